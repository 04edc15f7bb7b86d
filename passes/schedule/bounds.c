// The bounds `prefetch` and `live_grads` in the final order. The pass fsdp places gathers and the beginnings of
// gradients by the order of the model. Fusion and order.c move ops after that, and units inside units are the ones that
// notice: a unit that was used around an inner one is now used before it alone, and becomes a unit that is kept beside
// those that were gathered ahead. So the bounds are counted again here, as verify-plan counts them (V13, V14):
//   gathered weights  when a unit is gathered, at most `prefetch` others are alive whose last use is before its first
//   gradients         when one begins, at most live_grads - 1 others are alive whose last write is before it
//
// Where there are more, the op that begins the new one waits (`after`) for those that ended first. A gather moves down
// behind their last uses. These are before its own first use, so there is always a place:
//   [gather]  all_gather {into = @b.full}               [compute] gemm %x, %a
//   [compute] gemm %x, %a                      ->       [gather]  all_gather {into = @b.full, after = [@a.full]}
//   [compute] gemm %y, %b                               [compute] gemm %y, %b
// The reduction that a gradient waits for moves up before it, with the stores of what has been computed by then. Each
// of these stores may be made where its operand is computed (plan-memory), so the gradient counts as written there.
//
// A write beside the main stream counts as one before a gradient begins unless it certainly comes after that: where
// graphs are captured, such work is issued earlier or later (capture.c).
//
// Moves are few and only shorten lives. An order that keeps the bounds stays as it is.
#include "passes/analysis/clocks.h"
#include "passes/schedule/schedule.h"
#include "passes/settings.h"
#include <string.h>

typedef struct {
    const Symbol *buffer;
    const char *bucket, *unit;
    Op *begin;       // first access
    int use;         // id of the first read; -1: none
    int *written;    // by stream: id of the last write; -1: none
    Op *last;        // last access
    VEC(Op *) ops;   // that access it, in order
    bool waited_for; // by a later one, in this round
} Life;

typedef struct {
    Func *f;
    Arena *a;
    const char *class;
    int64_t bound;
    bool gradients;  // what counts is the last write, else the first and the last use
    const Deps *deps;
    Clocks clocks;
    Op **ops;        // by op id
    bool *raised;    // by op id: has moved up in this round
    Home *homes;
    Uses uses;
    int *slot;       // by symbol id: its index in `lives`, plus 1
    VEC(Life) lives; // in the order in which they begin
    VEC(int) alive, settled; // of those
} Bound;

// --- lives

static bool is_counted(const Bound *x, const Symbol *b) {
    return b && hd_has(&b->attrs, A_TRANSIENT) && !strcmp(hd_word(&b->attrs, A_CLASS, ""), x->class) &&
           !hd_stays(x->f->module, b) && hd_elements_each(b) == 1;
}

static Life life_of(const Bound *x, const Symbol *b, Op *o) {
    const char *bucket = hd_word(&b->attrs, A_BUCKET, b->name);
    const Symbol *k = hd_symbol_find(x->f->module, bucket);
    int *written = HD_NEWN(x->a, int, x->clocks.n_streams);
    for (int i = 0; i < x->clocks.n_streams; i++) written[i] = -1;
    return (Life){.buffer = b, .bucket = bucket, .unit = k ? hd_word(&k->attrs, A_UNIT, bucket) : bucket, .begin = o,
                  .use = -1, .written = written};
}

// Where a store takes place: plan-memory may let the op that makes its operand write straight to the buffer, if the
// life of that has begun.
static int written_at(const Bound *x, const Life *l, const Op *o) {
    if (o->kind != OP_STORE || !hd_store_may_be_in_place(o)) return o->id;
    const Value *v = o->in[0];
    while (x->uses.count[v->id] == 1 && v->def && hd_op_is(v->def, TRAIT_ALIAS) && v->def->n_in) v = v->def->in[0];
    const bool only = x->uses.count[v->id] == 1 && v->def && !hd_is_alias(v->def);
    return only && v->def->id > l->begin->id ? v->def->id : o->id;
}

static void access_buffer(Bound *x, Op *o, const Symbol *b, bool write) {
    if (!x->slot[b->id]) {
        hd_push(x->a, &x->lives, life_of(x, b, o));
        x->slot[b->id] = x->lives.n;
    }
    Life *l = &x->lives.at[x->slot[b->id] - 1];
    int *written = &l->written[x->clocks.stream_of[o->id]];
    if (write && written_at(x, l, o) > *written) *written = written_at(x, l, o);
    if (!write && l->use < 0) l->use = o->id;
    if (l->last != o) hd_push(x->a, &l->ops, o);
    l->last = o;
}

static void find_lives(Bound *x) {
    Accesses list = {0};
    for (Op *o = x->f->first; o; o = o->next) {
        x->ops[o->id] = o;
        hd_accesses(o, x->a, &list);
        for (int i = 0; i < list.n; i++) {
            const Access *k = &list.at[i];
            const Symbol *b = k->order ? NULL : k->at == AT_VALUE ? x->homes[k->value->id].buffer : k->buffer;
            if (is_counted(x, b)) access_buffer(x, o, b, k->write);
        }
    }
}

// --- counting

static bool is_gone(const Bound *x, const Life *l, const Life *by) {
    for (int i = 0; i < l->ops.n; i++)
        if (!hd_before(&x->clocks, l->ops.at[i]->id, by->begin->id)) return false;
    return true;
}

static bool is_partner(const Life *a, const Life *b) { return a->unit == b->unit && a->bucket != b->bucket; }

// Another bucket of the unit that begins, or of a unit that an earlier one stands for, does not count.
static bool counts(const Bound *x, int i, const Life *by) {
    const Life *l = &x->lives.at[x->alive.at[i]];
    bool partner = is_partner(l, by);
    for (int k = 0; k < i && !partner; k++) partner = is_partner(l, &x->lives.at[x->alive.at[k]]);
    return !partner;
}

// Its last write, or its last use.
static int ended(const Bound *x, const Life *l) {
    int last = x->gradients ? -1 : l->last->id;
    for (int i = 0; x->gradients && i < x->clocks.n_streams; i++)
        if (l->written[i] > last) last = l->written[i];
    return last;
}

static bool is_settled(const Bound *x, const Life *l, const Life *by) {
    const int begin = by->begin->id;
    if (!x->gradients) return ended(x, l) < by->use;
    for (int i = 0; i < x->clocks.n_streams; i++) {
        const bool same = i == x->clocks.stream_of[begin];
        if (l->written[i] >= 0 && (same ? l->written[i] > begin : hd_before(&x->clocks, begin, l->written[i])))
            return false;
    }
    return true;
}

// Fills `settled`, the oldest first, for the one that begins.
static void find_settled(Bound *x, const Life *by) {
    int n = 0;
    x->settled.n = 0;
    for (int i = 0; i < x->alive.n; i++) {
        const Life *l = &x->lives.at[x->alive.at[i]];
        if (!l->waited_for && !is_gone(x, l, by)) x->alive.at[n++] = x->alive.at[i];
    }
    x->alive.n = n;
    for (int i = 0; i < n; i++) {
        const Life *l = &x->lives.at[x->alive.at[i]];
        if (!counts(x, i, by) || !is_settled(x, l, by)) continue;
        hd_push(x->a, &x->settled, x->alive.at[i]);
        for (int k = x->settled.n - 1; k > 0; k--) { // few: sorted as they come
            int *pair = &x->settled.at[k - 1];
            if (ended(x, &x->lives.at[pair[0]]) <= ended(x, &x->lives.at[pair[1]])) break;
            const int later = pair[0];
            pair[0] = pair[1];
            pair[1] = later;
        }
    }
}

// --- waiting

static void add_after(Bound *x, Op *o, const Symbol *b) {
    const char *const *old, **names;
    const Attr *after = hd_attr(&o->attrs, A_AFTER);
    const int n = after ? hd_names(after, &old) : 0;
    names = HD_NEWN(x->a, const char *, n + 1);
    for (int i = 0; i < n; i++) {
        names[i] = old[i];
        if (!strcmp(old[i], b->name)) return;
    }
    names[n] = b->name;
    hd_set_words(x->f->module->cx, &o->attrs, A_AFTER, n + 1, names);
}

static void move_up(const Bound *x, Op *o, Op *before) {
    hd_detach(o);
    hd_insert_before(before, o);
    x->raised[o->id] = true;
}

// An op moves up before another one, and so does what it depends on. Of the main stream these are stores alone: what
// they store has been computed. false: something cannot.
static bool raise(const Bound *x, Op *o, Op *before) {
    if (o->id <= before->id || x->raised[o->id]) return true;
    if (o->stream == before->stream && o->kind != OP_STORE) return false;
    for (int k = x->deps->start[o->id]; k < x->deps->start[o->id + 1]; k++) {
        Op *on = x->ops[x->deps->pred[k]];
        const Symbol *comm = hd_named(o, A_COMM); // its order is free
        if ((!comm || hd_named(on, A_COMM) != comm) && !raise(x, on, before)) return false;
    }
    move_up(x, o, before);
    for (int i = 0; i < o->n_in; i++) // reshapes of operands
        for (Op *at = o, *v = o->in[i]->def; v && hd_is_alias(v) && v->id > before->id && !x->raised[v->id];
             at = v, v = v->n_in ? v->in[0]->def : NULL)
            move_up(x, v, at);
    return true;
}

static bool raise_all(const Bound *x, const Life *l, Op *before) {
    for (int i = 0; i < l->ops.n; i++)
        if (!raise(x, l->ops.at[i], before)) return false;
    return true;
}

// `by` waits for `l` and for other buckets of its unit. Whether it can.
static bool wait_for(Bound *x, Life *by, const Life *l, Op **behind) {
    bool changed = false;
    for (int i = 0; i < x->alive.n; i++) {
        Life *k = &x->lives.at[x->alive.at[i]];
        if ((k != l && !is_partner(k, l)) || !is_settled(x, k, by)) continue;
        if (x->gradients && !raise_all(x, k, by->begin)) continue; // verify-plan names it
        add_after(x, by->begin, k->buffer);
        if (!*behind || k->last->id > (*behind)->id) *behind = k->last;
        k->waited_for = changed = true;
    }
    return changed;
}

static bool hold(Bound *x, int index) {
    Life *by = &x->lives.at[index];
    bool changed = false;
    Op *behind = NULL;
    find_settled(x, by);
    for (int i = 0; i < x->settled.n - x->bound; i++)
        changed |= wait_for(x, by, &x->lives.at[x->settled.at[i]], &behind);
    if (!x->gradients && behind && behind->id > by->begin->id) {
        hd_detach(by->begin);
        hd_insert_after(behind, by->begin);
    }
    hd_push(x->a, &x->alive, index);
    return changed;
}

static bool hold_all(Func *f, const char *class, int64_t bound, bool gradients, Arena *a) {
    Bound x = {.f = f, .a = a, .class = class, .bound = bound, .gradients = gradients};
    x.homes = hd_homes(f, a);
    x.uses = hd_uses(f, a);
    x.ops = HD_NEWN(a, Op *, f->n_ops + 1);
    x.raised = HD_NEWN(a, bool, f->n_ops + 1);
    x.slot = HD_NEWN(a, int, f->module->n_symbols + 1);
    const Deps deps = hd_deps(f, a);
    x.deps = &deps;
    x.clocks = hd_clocks_of_deps(f, &deps, a);
    find_lives(&x);
    bool changed = false;
    for (int i = 0; i < x.lives.n; i++) changed |= hold(&x, i);
    return changed;
}

// Each round adds waits, or is the last: what waits for a buffer once finds it gone in the next round. verify-plan
// names what no wait could mend.
static bool hold_class(Func *f, const char *class, int64_t bound, bool gradients, PassCx *cx) {
    bool any = false;
    for (int rounds = f->module->n_symbols; rounds && bound >= 0; rounds--) {
        if (!hold_all(f, class, bound, gradients, cx->scratch)) break;
        hd_count(cx, "rounds of waits for prefetch and live_grads", 1);
        hd_renumber(f);
        any = true;
    }
    return any;
}

bool hd_hold_bounds(Func *f, PassCx *cx) {
    const Attrs *schedule = hd_settings(f->module, "schedule");
    const bool weights = hold_class(f, "weights", hd_int(schedule, A_PREFETCH, -1), false, cx);
    return hold_class(f, "gradients", hd_int(schedule, A_LIVE_GRADS, 0) - 1, true, cx) || weights;
}
