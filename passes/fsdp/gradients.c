// Where gradients are written and reduced. `grad` ops become stores, each at its place. Where a rank keeps all of the
// gradient (one rank, none, reduce = last with several micro-batches) they go to the persistent buffer: a step's first
// contribution overwrites, every other adds.
//
//   grad %dw {param = @b.w}                   ->   store %dw {into = @b.grad, offset = 0}
//
// In a step of one micro-batch that buffer is transient: it begins before the first store, with zeros in its padding.
//
// Otherwise a micro-batch writes all of a unit's gradient into a transient buffer, which is reduced after the last
// write:
//
//   %dw = matmul ...                               %dw = matmul ...
//   grad %dw {param = @b.w}                   ->   begin {life = @micro.b.gradient, after = [...]}
//                                                  zero {into = @micro.b.gradient, offset = 64, size = 32}
//                                                  (what no gradient covers)
//                                                  store %dw {into = @micro.b.gradient, offset = 0}
//                                                  reduce_scatter {buffer = @micro.b.gradient, into = @b.grad, ...}
//
// In every micro-batch but the first the sum goes into staging, and the reduce stream adds it to @b.grad. In none with
// reduce = each a micro-batch writes its gradient to @b.grad, over that of the one before; it is reduced in the same
// way, into the shard @b.sum, and the last micro-batch gathers the sum of the step into @b.grad. All sums over ranks
// are reduce_scatter, whose order is known, so every strategy adds in the same order. Replicas add up their shards
// once, after the last micro-batch, in the same way.
//
// With reduce = tree a micro-batch is summed over ranks likewise, over replicas as well, and sums of micro-batches are
// added as the digits of a binary number are carried. Micro-batch 0 leaves its sum in @b.level0. Micro-batch 1 writes
// its sum to @b.level1 and adds level0 to it; micro-batch 2 writes level0 again; micro-batch 3 writes level2 and adds
// level0 and level1. So a function is made for each number of sums that a micro-batch completes. With micro-batch m of
// rank r as leaf m * ranks + r, one tree adds up all of a step, whatever the number of ranks is. What one rank owns
// alone is written where that sum belongs.
//
// With grad = bf16 the transient buffer of a bucket whose gradients are bf16 is bf16, too. Each rank gets the parts
// that it adds up, in f32, in the same order (`out` of reduce_scatter). What persists is f32. So a gradient that is
// whole on a rank holds the same numbers, and is summed to the same bits.
//
// live_grads = k: a buffer begins only when all but k - 1 of the gradients whose reduction was issued before are
// reduced. A buffer that is still being written, like that of a root whose embedding is tied to its head, does not
// count.
#include "passes/fsdp/fsdp.h"
#include <stdlib.h>

typedef struct { int64_t lo, hi; } Range;

typedef struct { // of a bucket, in the present function
    Op *first, *last; // stores
    VEC(Range) covered; // by first contributions
} Written;

typedef struct {
    Fsdp *s;
    StepFunc f;
    Written *written; // by bucket
    VEC(Op *) stores; // in program order,
    VEC(int) bucket;  // and of which bucket
    VEC(int) issued;  // buckets whose reductions were issued, in this order,
    int drained;      // and how many of them some buffer has waited for
} Grads;

// Whether stores go to the persistent buffer.
static bool is_whole(const Grads *g, const FsdpBucket *b) { return hd_fsdp_grad_is_whole(g->s, b); }

// Whether no other rank adds to it: a run has one rank, or this one owns it alone (experts).
static bool is_of_one(const FsdpBucket *b) { return b->shards * b->copies == 1; }

// --- stores
static void store_contribution(Grads *g, Op *o, PtrMap *seen) {
    Fsdp *s = g->s;
    const Symbol *p;
    FsdpBucket *b = hd_fsdp_owner(s, o, &p);
    Written *w = &g->written[b - s->buckets.at];
    bool again = hd_ptr_get(seen, p) >= 0;
    int64_t offset = hd_int(&p->attrs, A_OFFSET, 0);
    Range covered = {offset, offset + hd_type_count(o->in[0]->type)};
    for (int i = 0; hd_op_param(o, i); i++) hd_ptr_set(s->cx->scratch, seen, hd_op_param(o, i), 1);
    if (!again) hd_push(s->cx->scratch, &w->covered, covered);
    Builder at = {.f = g->f.f, .before = o, .loc = o->loc, .span = o->span, .bwd = hd_has(&o->attrs, A_BWD)};
    const bool adds = is_whole(g, b) && !b->sum && !g->f.first && !s->tree;
    hd_fsdp_store(s, &at, o->in[0], b->gradient, offset, again || adds);
    w->last = o->prev;
    if (!w->first) w->first = w->last;
    hd_push(s->cx->scratch, &g->stores, w->last);
    hd_push(s->cx->scratch, &g->bucket, (int)(b - s->buckets.at));
    hd_erase(o);
}

// Where the sum that a micro-batch is the last of belongs: a level, or `all` for that of the step.
static Symbol *level(const Grads *g, const FsdpBucket *b, Symbol *all) {
    return g->f.done < b->levels.n ? b->levels.at[g->f.done] : all;
}

static void store_contributions(Grads *g) {
    Fsdp *s = g->s;
    PtrMap seen = {0};
    VEC(Op *) grads = {0};
    for (Op *o = g->f.f->first; o; o = o->next)
        if (hd_param_added(o, 0)) hd_push(s->cx->scratch, &grads, o);
    for (int i = 0; i < s->buckets.n; i++) {
        FsdpBucket *b = &s->buckets.at[i];
        b->gradient = !is_whole(g, b) ? NULL : is_of_one(b) ? level(g, b, b->grad) : b->grad;
    }
    for (int i = 0; i < grads.n; i++) {
        const Symbol *p;
        FsdpBucket *b = hd_fsdp_owner(s, grads.at[i], &p);
        if (!b->gradient)
            b->gradient = hd_fsdp_transient(s, g->f.f, b, "gradient", "gradients", b->sent, b->layout.size);
        store_contribution(g, grads.at[i], &seen);
    }
}

// --- the life of a transient buffer
static int by_start(const void *a, const void *b) {
    const Range *x = a, *y = b;
    return x->lo < y->lo ? -1 : x->lo > y->lo;
}

static void zero_range(Grads *g, Builder *at, const Symbol *buffer, int64_t lo, int64_t hi) {
    Attrs as = {0};
    if (lo >= hi) return;
    hd_set_word(g->s->m->cx, &as, A_INTO, buffer->name);
    hd_set_int(g->s->m->cx, &as, A_OFFSET, lo);
    hd_set_int(g->s->m->cx, &as, A_SIZE, hi - lo);
    hd_build(at, OP_ZERO, 0, NULL, &as, NULL);
}

static void zero_gaps(Grads *g, Builder *at, const FsdpBucket *b, Written *w) {
    int64_t end = 0;
    qsort(w->covered.at, (size_t)w->covered.n, sizeof *w->covered.at, by_start);
    for (int i = 0; i < w->covered.n; i++) {
        zero_range(g, at, b->gradient, end, w->covered.at[i].lo);
        end = w->covered.at[i].hi;
    }
    zero_range(g, at, b->gradient, end, b->layout.size);
}

// Units whose reductions were issued and that no beginning has waited for yet. Buckets of one unit count as one, those
// of the unit of `b` not at all.
static int64_t pending(const Grads *g, const FsdpBucket *b) {
    int64_t n = 0;
    for (int i = g->drained; i < g->issued.n; i++) {
        const int unit = g->s->buckets.at[g->issued.at[i]].unit;
        bool counted = unit == b->unit;
        for (int k = g->drained; k < i; k++)
            counted |= g->s->buckets.at[g->issued.at[k]].unit == unit;
        n += !counted;
    }
    return n;
}

// The buffers that must be reduced before another one begins: the oldest ones.
static int drain(Grads *g, const FsdpBucket *b, const char **names) {
    int n = 0;
    for (; pending(g, b) >= g->s->live_grads; g->drained++)
        names[n++] = g->s->buckets.at[g->issued.at[g->drained]].gradient->name;
    return n;
}

static void begin(Grads *g, int bucket) {
    Fsdp *s = g->s;
    FsdpBucket *b = &s->buckets.at[bucket];
    Written *w = &g->written[bucket];
    const char **names = HD_NEWN(s->cx->scratch, const char *, g->issued.n - g->drained + 1);
    int n = is_whole(g, b) ? 0 : drain(g, b, names); // of gradients that stay whole none ends before the optimizer
    Builder at = {.f = g->f.f, .before = w->first, .loc = b->loc, .span = w->first->span,
                  .bwd = hd_has(&w->first->attrs, A_BWD)};
    Attrs as = {0};
    hd_set_word(s->m->cx, &as, A_LIFE, b->gradient->name);
    if (n) hd_set_words(s->m->cx, &as, A_AFTER, n, names);
    hd_build(&at, OP_BEGIN, 0, NULL, &as, NULL);
    zero_gaps(g, &at, b, w);
}

// Padding of a gradient that is added to another one.
static void zero_before(Grads *g, int bucket) {
    FsdpBucket *b = &g->s->buckets.at[bucket];
    Written *w = &g->written[bucket];
    Builder at = {.f = g->f.f, .before = w->first, .loc = b->loc, .span = w->first->span,
                  .bwd = hd_has(&w->first->attrs, A_BWD)};
    zero_gaps(g, &at, b, w);
}

// --- reductions
static Symbol *staging(Grads *g, const FsdpBucket *b, const char *part, int64_t n, Axes split) {
    Symbol *y = hd_fsdp_transient(g->s, g->f.f, b, part, "staging", TY_F32, n);
    hd_set_axes(g->s->m->cx, &y->attrs, A_SPLIT, split);
    return y;
}

// Every replica adds up its part of the shard, and all of them get the whole shard back.
static void reduce_outer(Grads *g, Builder *at, const FsdpBucket *b) {
    const Axes summed = hd_fsdp_summed(b);
    const Symbol *part = staging(g, b, "outer", hd_type_count(b->reduced->type) / b->copies, b->split | summed);
    const Symbol *comm = hd_fsdp_comm(g->s, COMM_OUTER, summed);
    hd_fsdp_sum(g->s, at, b->reduced, part, comm);
    hd_fsdp_collective(g->s, at, OP_ALL_GATHER, part, b->reduced, comm);
}

static void add_to_sum(Grads *g, Builder *at, const Symbol *sum, const Symbol *part) {
    Value *v = hd_fsdp_view(g->s, at, part, 0, part->type);
    hd_fsdp_store(g->s, at, v, sum, 0, true);
    if (g->s->ranks > 1) hd_set_word(g->s->m->cx, &at->before->prev->attrs, A_ON, hd_intern(g->s->m->cx, "reduce"));
}

// With reduce = tree, in one of several micro-batches: its sum over all ranks goes where the sum that it completes
// belongs, and to it are added those that wait for it, each of twice as many micro-batches as the one before.
static void reduce_in_tree(Grads *g, FsdpBucket *b, Builder *at) {
    Fsdp *s = g->s;
    Symbol *whole = b->gradient, *sum = is_whole(g, b) && b->sum ? b->sum : b->grad, *into = level(g, b, sum);
    const Axes summed = hd_fsdp_summed(b);
    if (b->copies > 1 && g->f.done == b->levels.n)
        into = staging(g, b, "outer", b->layout.shard / b->copies, b->split | summed);
    if (b->shards > 1) {
        Symbol *part = b->copies > 1 ? staging(g, b, "shard", b->layout.shard, b->split) : into;
        hd_fsdp_sum(s, at, whole, part, hd_fsdp_comm(s, COMM_REDUCE, b->split));
        whole = part;
    }
    if (b->copies > 1) hd_fsdp_sum(s, at, whole, into, hd_fsdp_comm(s, COMM_OUTER, summed));
    for (int i = 0; i < g->f.done; i++) add_to_sum(g, at, into, b->levels.at[i]);
    b->reduced = sum;
    if (!g->f.last) return;
    if (b->copies > 1) hd_fsdp_collective(s, at, OP_ALL_GATHER, into, sum, hd_fsdp_comm(s, COMM_OUTER, summed));
    if (sum != b->grad) hd_fsdp_collective(s, at, OP_ALL_GATHER, sum, b->grad, hd_fsdp_comm(s, COMM_GATHER, b->split));
}

// Called after the last write to a bucket's gradient. `reduced` is where the step's sum ends up, in its last function.
static void reduce(Grads *g, FsdpBucket *b, Builder *at) {
    Fsdp *s = g->s;
    if (hd_fsdp_in_levels(s)) {
        reduce_in_tree(g, b, at);
        return;
    }
    Symbol *sum = is_whole(g, b) ? b->sum : b->grad; // over micro-batches; NULL: they add up before the reduction
    b->reduced = b->grad;
    if (!sum && !g->f.last) return;
    if (b->shards > 1) {
        bool direct = sum && g->f.first;
        Symbol *into = direct ? sum : staging(g, b, "shard", b->layout.shard, b->split);
        hd_fsdp_sum(s, at, b->gradient, into, hd_fsdp_comm(s, COMM_REDUCE, b->split));
        b->reduced = sum ? sum : into;
        if (sum && !direct) add_to_sum(g, at, sum, into);
    }
    if (!g->f.last) return;
    if (b->copies > 1) reduce_outer(g, at, b);
    if (s->strategy == FSDP_NONE && b->reduced != b->grad)
        hd_fsdp_collective(s, at, OP_ALL_GATHER, b->reduced, b->grad, hd_fsdp_comm(s, COMM_GATHER, b->split));
}

static void reduce_all(Grads *g) {
    Fsdp *s = g->s;
    for (int i = 0; i < g->stores.n; i++) {
        int k = g->bucket.at[i];
        FsdpBucket *b = &s->buckets.at[k];
        const Written *w = &g->written[k];
        if (g->stores.at[i] == w->first && (!is_whole(g, b) || s->micro == 1)) begin(g, k);
        else if (g->stores.at[i] == w->first && is_of_one(b)) zero_before(g, k);
        if (g->stores.at[i] != w->last) continue;
        Builder at = {.f = g->f.f, .before = w->last->next, .loc = b->loc, .span = w->last->span,
                      .bwd = hd_has(&w->last->attrs, A_BWD)};
        reduce(g, b, &at);
        if (!is_whole(g, b)) hd_push(s->cx->scratch, &g->issued, k);
        hd_push(s->cx->scratch, &s->reduced, k);
    }
    Op *end = hd_return(g->f.f);
    for (int i = 0; i < s->buckets.n;
         i++) { // no gradient, in a function written by hand: zeros everywhere
        FsdpBucket *b = &s->buckets.at[i];
        if (g->written[i].last || b->frozen) continue;
        Builder at = {.f = g->f.f, .before = end, .loc = b->loc, .span = end->span, .bwd = true};
        b->reduced = b->grad;
        if (s->micro == 1) zero_range(g, &at, b->grad, 0, hd_type_count(b->grad->type));
        if (is_whole(g, b)) reduce(g, b, &at);
        hd_push(s->cx->scratch, &s->reduced, i);
    }
}

void hd_fsdp_gradients(Fsdp *s, StepFunc f) {
    Grads g = {.s = s, .f = f,
               .written = HD_NEWN(s->cx->scratch, Written, s->buckets.n + 1)};
    store_contributions(&g);
    s->reduced.n = 0;
    if (s->several || s->micro == 1 || s->tree) reduce_all(&g);
}
