// Flow: what every element of every buffer holds while the functions of a step run one after another: weights before or
// after the update, or a sum of a number of this step's contributions, reduced over certain axes of the mesh. In a plan
// without races (verify_contents) program order gives the result of every order.
//   begin          nothing
//   zero           an empty sum
//   into           one contribution of this rank: the first overwrites what the last step left or zeros, others
//                  add [V20]
//   store of a buffer that holds a sum: the two sums are added; both must be reduced over the same axes
//   copy           the same, in another buffer of the bucket
//   reduce_scatter the sum over one axis more, sharded over that axis; once for each element and axis [V22]
//   all_gather     what was sharded, put together again; weights come from their own bucket, and those that the step
//                  before has updated but not gathered are gathered before anybody reads them. Nothing else is rounded
//                  on the way [V7]
//   update         fresh weights, once a step, from a sum that has every contribution and is reduced over every
//                  axis [V5, V6]
//
// With train.reduce = tree a sum also has the range of micro-batches that it is of. Two sums are added only where they
// are the halves of an aligned range of a power of two, and each once; within a micro-batch a reduce_scatter says
// `tree`. So what the optimizer reads is the one binary tree over micro-batches and ranks.
//
// Contributions are inside one parameter, so padding always holds zeros. An op that reads weights reads them whole,
// inside one parameter, as they were before the update. Only reduce_scatter reduces, and contributions to one element
// are added in program order: the text fixes the order of every sum [V33].
#include "passes/verify/ranks/flow.h"
#include "ir/base/ints.h"
#include "passes/settings.h"

Flow hd_flow(PlanCheck *c) {
    const char *reduction = hd_word(hd_settings(c->m, "train"), A_REDUCTION, "each");
    return (Flow){.c = c,
                  .each = strcmp(reduction, "last") != 0, .tree = strcmp(reduction, "tree") == 0,
                  .held = HD_NEWN(c->a, Held *, c->m->n_symbols + 1),
                  .flow = HD_NEWN(c->a, BucketFlow, c->n_buckets + 1),
                  .left = HD_NEWN(c->a, bool, c->m->n_symbols + 1)};
}

BucketFlow *hd_flow_bucket(Flow *w, const BucketParts *k) {
    BucketFlow *b = &w->flow[k - w->c->buckets];
    Cell none = {.writer = -1};
    if (!b->used) b->given = hd_ranges(w->c->a, k->size, none);
    if (!b->used_now) b->now = hd_ranges(w->c->a, k->size, none);
    b->used = b->used_now = true;
    return b;
}

// Whether a number was gathered from every rank that reads other sequences, and from no two that read the same ones.
static bool everywhere(const Flow *w, Axes taken) { return taken && (taken & w->c->live) == w->c->data; }

int hd_flow_hold(Flow *w, Holding h) {
    if (h.by == w->at) h.run = w->run;
    hd_push(w->c->a, &w->holdings, h);
    return w->holdings.n - 1;
}

Holding *hd_flow_holding(Flow *w, const Held *h, int i) { return &w->holdings.at[hd_range(&h->map, i)->cell.holds]; }

Held *hd_flow_held(Flow *w, const Symbol *s) {
    if (!s || s->kind != SYM_BUFFER || !s->type || hd_type_count(s->type) == 0) return NULL;
    Held *h = w->held[s->id];
    if (h) return h;
    h = w->held[s->id] = HD_NEW(w->c->a, Held);
    h->name = hd_sprintf(w->c->a, "@%s", s->name);
    h->buffer = s;
    h->bucket = hd_plan_bucket(w->c, s);
    h->parts = h->bucket ? hd_plan_parts(w->c, h->bucket, s) : 1;
    h->size = h->bucket ? h->bucket->size : hd_type_count(s->type);
    Holding first = {.kind = hd_has(&s->attrs, A_TRANSIENT) ? HOLDS_NOTHING : w->left[s->id] ? HOLDS_STALE :
                             h->bucket && hd_plan_is_weights(w->c, s) ? HOLDS_WEIGHTS : HOLDS_OLD};
    h->map = hd_ranges(w->c->a, h->size, (Cell){.writer = -1, .holds = hd_flow_hold(w, first)});
    return h;
}

Held *hd_flow_value(Flow *w, const Value *v) {
    Home home = w->homes[v->id];
    return home.buffer ? hd_flow_held(w, home.buffer) : home.root ? w->values[home.root->id] : NULL;
}

void hd_flow_set_range(Flow *w, Held *h, int64_t lo, int64_t hi, Holding what) {
    int end, first = hd_ranges_cut(&h->map, lo, hi, &end);
    hd_ranges_set(&h->map, first, end, (Cell){.writer = -1, .holds = hd_flow_hold(w, what)});
    h->ever = true;
}

void hd_flow_set(Flow *w, Held *h, Holding what) { hd_flow_set_range(w, h, 0, h->size, what); }

// Whether these elements are inside one parameter, or several whole ones without a gap (a product of all of them).
static bool inside_param(const BucketParts *k, int64_t lo, int64_t hi) {
    const Symbol *p = hd_plan_param_at(k, lo, hi);
    int64_t from = p ? hd_int(&p->attrs, A_OFFSET, 0) : 0;
    if (p && lo > from) return hi <= from + hd_type_count(p->type);
    for (int64_t at = lo; p && from == at; from = p ? hd_int(&p->attrs, A_OFFSET, 0) : 0) {
        const int64_t end = at + hd_type_count(p->type);
        if (hi == end || (hi < end && at == lo)) return true;
        at = end;
        p = at < hi ? hd_plan_param_at(k, at, hi) : NULL;
    }
    return false;
}

// --- contributions

static void count_given(Flow *w, const BucketParts *k, int64_t lo, int64_t hi) {
    BucketFlow *b = hd_flow_bucket(w, k);
    RangeMap *maps[] = {&b->given, &b->now};
    for (int m = 0; m < 2; m++) {
        int end, first = hd_ranges_cut(maps[m], lo, hi, &end);
        for (int i = first; i < end; i++) hd_range(maps[m], i)->cell.holds++;
    }
}

// Whether these elements may receive a contribution of one rank.
static bool may_contribute(Flow *w, const Write *x, const Held *h, int64_t lo, int64_t hi) {
    const Op *o = x->op;
    const Symbol *s = x->buffer;
    const bool adds = x->adds;
    const BucketParts *k = h->bucket;
    if (!k) return true;
    if (h->parts > 1)
        hd_plan_wrong(w->c, o, o->span,
                      "writes what one rank has computed into @%s, which holds a part of the sum over ranks: only "
                      "reduce_scatter makes one",
                      s->name);
    else if (!inside_param(k, lo, hi))
        hd_plan_wrong(w->c, o, o->span,
                      "writes elements [%lld, %lld) of @%s, which are not inside one parameter of bucket @%s", ll(lo),
                      ll(hi), s->name, k->symbol->name);
    else if (hd_flow_bucket(w, k)->updated) hd_plan_wrong(w->c, o, o->span,
        "contributes to the gradient of bucket @%s, which %s has updated", k->symbol->name,
        hd_plan_op(w->c, hd_flow_bucket(w, k)->updated));
    else if (hd_flow_bucket(w, k)->squared) hd_plan_wrong(w->c, o, o->span,
        "contributes to the gradient of bucket @%s, whose squares %s has added up", k->symbol->name,
        hd_plan_op(w->c, hd_flow_bucket(w, k)->squared));
    else if (adds && hd_dtype_is_narrow(s->type->dtype))
        hd_plan_wrong(w->c, o, o->span, "adds to elements [%lld, %lld) of @%s in %s: gradients are added up in f32",
                      ll(lo), ll(hi), s->name, hd_dtype_text(s->type->dtype));
    else return true;
    return false;
}

static bool wrong_contribution(Flow *w, const Op *o, const Symbol *s, const Holding *was, bool adds, long long lo,
                               long long hi) {
    const char *by = was->by ? hd_plan_op(w->c, was->by) : "an earlier function";
    if (adds && was->kind == HOLDS_OLD)
        hd_plan_wrong(w->c, o, o->span,
                      "adds to elements [%lld, %lld) of @%s, which hold the last step's sum: the first contribution "
                      "must overwrite",
                      lo, hi, s->name);
    else if (adds && was->kind != HOLDS_SUM)
        hd_plan_wrong(w->c, o, o->span, "adds to elements [%lld, %lld) of @%s, which hold no sum", lo, hi, s->name);
    else if (was->kind == HOLDS_SUM && was->taken && (adds || (was->by && was->run == w->run)))
        hd_plan_wrong(w->c, o, o->span,
                      "contributes to elements [%lld, %lld) of @%s after %s, which has been summed over %s already",
                      lo, hi, s->name, by, hd_axes_text(w->c->a, was->taken));
    else if (adds && was->over)
        hd_plan_wrong(w->c, o, o->span,
                      "adds what one rank has computed to elements [%lld, %lld) of @%s, which are summed over %s", lo,
                      hi, s->name, hd_axes_text(w->c->a, was->over));
    else if (!adds && was->kind == HOLDS_SUM && was->count && was->by && was->run == w->run)
        hd_plan_wrong(w->c, o, o->span, "overwrites elements [%lld, %lld) of @%s and with them the contribution of %s",
                      lo, hi, s->name, by);
    else if (!adds && was->kind == HOLDS_SUM && was->count && !was->taken && !was->used)
        hd_plan_wrong(w->c, o, o->span,
                      "overwrites elements [%lld, %lld) of @%s and with them the sum of the micro-batches before", lo,
                      hi, s->name);
    else
        return false;
    return true;
}

static void contribute(Flow *w, const Write *x) {
    const Op *o = x->op;
    const Symbol *s = x->buffer;
    const int64_t lo = x->at, hi = lo + hd_type_count(x->type);
    const bool adds = x->adds;
    Held *h = hd_flow_held(w, s);
    if (!h || !may_contribute(w, x, h, lo, hi)) return;
    bool said = false;
    int end, first = hd_ranges_cut(&h->map, lo, hi, &end);
    for (int i = first; i < end; i++) {
        Holding was = *hd_flow_holding(w, h, i);
        const int64_t from = hd_range(&h->map, i)->lo, to = hd_range_hi(&h->map, i);
        if (!said) said = wrong_contribution(w, o, s, &was, adds, ll(from), ll(to));
        Holding now = {.kind = HOLDS_SUM, .count = (adds && was.kind == HOLDS_SUM ? was.count : 0) + 1, .by = o,
                       .micro = w->micro, .n = 1};
        if (!said && adds && w->tree && was.kind == HOLDS_SUM && was.count && was.micro != w->micro)
            said = !hd_plan_wrong(w->c, o, o->span, "adds micro-batch %lld to elements [%lld, %lld) of @%s, which hold "
                                  "others: in a tree each has a sum of its own", ll(w->micro), ll(from), ll(to),
                                  s->name);
        hd_range(&h->map, i)->cell.holds = hd_flow_hold(w, now);
    }
    if (h->bucket) count_given(w, h->bucket, lo, hi);
    h->writes++;
    h->ever = true;
}

// --- one buffer added to another

static const char *bucket_text(const Flow *w, const Held *h) {
    return h->bucket ? hd_sprintf(w->c->a, "bucket @%s", h->bucket->symbol->name) : "no bucket";
}

bool hd_flow_same_bucket(Flow *w, const Op *o, const Held *h, const Held *g) {
    if (h->bucket == g->bucket) return true;
    hd_plan_wrong(w->c, o, o->span, "moves %s of %s to %s of %s", h->name, bucket_text(w, h), g->name,
                  bucket_text(w, g));
    return false;
}

void hd_flow_cut_alike(const Held *h, Held *g) {
    int end;
    for (int i = 0; i < h->map.n; i++) hd_ranges_cut(&g->map, hd_range(&h->map, i)->lo, hd_range_hi(&h->map, i), &end);
}

// Two halves of a sum in the tree, the earlier one added to the later one.
static bool are_neighbours(const Holding *in, const Holding *was) {
    return in->n == was->n && in->n > 0 && in->micro + in->n == was->micro && in->micro % (2 * in->n) == 0;
}

static const char *micros_text(const Flow *w, const Holding *h) {
    return hd_sprintf(w->c->a, "[%lld, %lld)", ll(h->micro), ll(h->micro + h->n));
}

static void add_sums(Flow *w, const Write *x, Held *h, Held *g) {
    const Op *o = x->op;
    const bool adds = x->adds;
    bool said = false;
    int64_t n = h->size / h->parts;
    if (!hd_flow_same_bucket(w, o, h, g)) return;
    if (h->parts != g->parts || hd_type_count(x->type) != n || x->at != 0) {
        hd_plan_wrong(w->c, o, o->span, "adds up %s and %s, which do not hold the same elements of their bucket",
                      h->name, g->name);
        return;
    }
    hd_flow_cut_alike(h, g);
    hd_flow_cut_alike(g, h);
    for (int i = 0; i < g->map.n; i++) {
        Holding in = *hd_flow_holding(w, h, i), was = *hd_flow_holding(w, g, i);
        Holding now = {.kind = HOLDS_SUM, .count = in.count + (adds ? was.count : 0), .over = in.over, .by = o,
                       .micro = in.micro, .n = in.n + (adds ? was.n : 0)};
        long long lo = ll(hd_range(&g->map, i)->lo), hi = ll(hd_range_hi(&g->map, i));
        if (!adds) said = said || wrong_contribution(w, o, g->buffer, &was, false, lo, hi);
        else if (!said && was.kind != HOLDS_SUM) said = wrong_contribution(w, o, g->buffer, &was, true, lo, hi);
        else if (!said && was.taken) said = wrong_contribution(w, o, g->buffer, &was, true, lo, hi);
        else if (!said && was.over != in.over) {
            hd_plan_wrong(w->c, o, o->span,
                          "adds elements [%lld, %lld) of %s, summed over %s, to those of %s, summed over %s", lo, hi,
                          h->name, hd_axes_text(w->c->a, in.over), g->name, hd_axes_text(w->c->a, was.over));
            said = true;
        }
        else if (!said && w->tree && (in.used || !are_neighbours(&in, &was))) {
            hd_plan_wrong(w->c, o, o->span, "adds elements [%lld, %lld) of %s, of micro-batches %s, to those of %s, of "
                          "%s: %s", lo, hi, h->name, micros_text(w, &in), g->name, micros_text(w, &was),
                          in.used ? "they have been added before" : "they are no two neighbours in the tree");
            said = true;
        }
        in.used = true;
        hd_range(&h->map, i)->cell.holds = hd_flow_hold(w, in);
        hd_range(&g->map, i)->cell.holds = hd_flow_hold(w, now);
    }
    g->writes++;
    g->ever = true;
}

static bool all_of_kind(Flow *w, const Held *h, HoldsKind kind) {
    for (int i = 0; i < h->map.n; i++)
        if (hd_flow_holding(w, h, i)->kind != kind) return false;
    return true;
}

static bool is_level_of_loss(const Flow *w, const Symbol *from, const Symbol *to) {
    const int number = w->tree ? hd_step_keeps(w->c->train, from) : -1;
    return number >= 0 && number == hd_step_keeps(w->c->train, to);
}

// In a tree each micro-batch stores the mean over ranks, after it has gathered the losses (scale.c).
static bool is_mean(Flow *w, const Write *x) {
    const int number = hd_step_keeps(w->c->train, x->buffer);
    if (!w->tree || w->c->ranks == 1 || x->adds || number < 0) return false;
    const Held *h = hd_flow_held(w, hd_step_kept_at(w->c->m, w->c->train, number));
    const Holding *was = h ? hd_flow_holding(w, h, 0) : NULL;
    return was && was->kind == HOLDS_SUM && everywhere(w, was->taken) && was->by && was->run == w->run;
}

static void give(Flow *w, const Write *x) {
    const Value *moved = hd_moves(x) ? x->value : NULL;
    const Value *root = moved ? w->homes[moved->id].root : NULL;
    const Op *by = root ? root->def : hd_writer(x);
    Held *from = moved ? hd_flow_value(w, moved) : NULL, *to = hd_flow_held(w, x->buffer);
    if (!to) return;
    if (from && (from->bucket || is_level_of_loss(w, from->buffer, x->buffer)) && all_of_kind(w, from, HOLDS_SUM))
        add_sums(w, x, from, to);
    else if (by && hd_op_is(by, TRAIT_SQUARES))
        hd_flow_set_range(w, to, x->at, x->at + hd_type_count(x->type),
                          (Holding){.kind = HOLDS_SQUARES, .by = by, .squares = by});
    else if (is_mean(w, x))
        hd_flow_set(w, to, (Holding){.kind = HOLDS_SUM, .count = 1, .over = HD_DATA_AXES, .by = x->op,
                                     .micro = w->micro, .n = 1});
    else if (x->value && !to->bucket && all_of_kind(w, to, HOLDS_SUM) &&
             everywhere(w, hd_flow_holding(w, to, 0)->taken) && !x->adds) // the mean over ranks: scale.c
        hd_flow_set(w, to, (Holding){.kind = HOLDS_SUM, .over = HD_DATA_AXES, .by = x->op});
    else contribute(w, x);
}

static void zero(Flow *w, const Write *x) {
    const Op *o = x->op;
    Held *h = hd_flow_held(w, x->buffer);
    int64_t lo = x->at, hi = lo + hd_type_count(x->type);
    if (!h) return;
    if (h->parts > 1 && hi - lo != hd_type_count(x->buffer->type)) {
        hd_plan_wrong(w->c, o, o->span, "clears some elements of @%s, which are others of bucket @%s on every rank",
                      x->buffer->name, h->bucket->symbol->name);
        return;
    }
    if (h->parts > 1) hi = h->size;
    bool said = false;
    int end, first = hd_ranges_cut(&h->map, lo, hi, &end);
    for (int i = first; i < end; i++) {
        const Holding *was = hd_flow_holding(w, h, i);
        if (was->kind != HOLDS_SUM || !was->count || said) continue;
        hd_plan_wrong(w->c, o, o->span, "clears elements [%lld, %lld) of @%s and with them the contribution of %s",
                      ll(hd_range(&h->map, i)->lo), ll(hd_range_hi(&h->map, i)), x->buffer->name,
                      hd_plan_op(w->c, was->by));
        said = true;
    }
    const int empty = hd_flow_hold(w, (Holding){.kind = HOLDS_SUM, .by = o, .micro = w->micro, .n = 1});
    hd_ranges_set(&h->map, first, end, (Cell){.writer = -1, .holds = empty});
}

// --- reads of weights

// Only the optimizer and reductions may read this part of a bucket.
static bool is_kept_apart(const Flow *w, const Symbol *s) {
    int part = w->c->part_of[s->id];
    return part == PART_GRAD || part == PART_SUM || part == PART_LEVEL || part == PART_STATE ||
           (hd_has(&s->attrs, A_TRANSIENT) && strcmp(hd_word(&s->attrs, A_CLASS, ""), "gradients") == 0);
}

static void read_weights(Flow *w, const Op *o, const Value *v) {
    Home home = w->homes[v->id];
    Held *given = home.root ? w->values[home.root->id] : NULL;
    const bool stores = o->kind == OP_STORE;
    if (given && given->bucket && !stores)
        hd_plan_wrong(w->c, o, o->span, "computes with %s, which holds no weights", given->name);
    Held *kept = home.buffer && is_kept_apart(w, home.buffer) ? hd_flow_held(w, home.buffer) : NULL;
    if (kept && kept->bucket && !(stores && all_of_kind(w, kept, HOLDS_SUM))) {
        hd_plan_wrong(w->c, o, o->span, "computes with @%s, which holds no weights", home.buffer->name);
        return;
    }
    Held *h = home.buffer ? hd_flow_held(w, home.buffer) : NULL;
    if (h && h->bucket && stores && all_of_kind(w, h, HOLDS_SUM))
        return; // a sum to be added elsewhere: store() checks it
    const int64_t each = h && h->bucket ? hd_elements_each(home.buffer) : 1;
    int64_t lo = h ? home.at / hd_dtype_bytes(home.buffer->type->dtype) * each : 0;
    int64_t hi = lo + hd_type_count(v->type) * each;
    if (!h || !h->bucket || lo >= hi) return;
    if (h->parts > 1) {
        hd_plan_wrong(w->c, o, o->span, "reads weights from @%s, which holds only a rank's part of bucket @%s",
                      home.buffer->name, h->bucket->symbol->name);
        return;
    }
    if (h->bucket->items.n && !inside_param(h->bucket, lo, hi)) {
        hd_plan_wrong(w->c, o, o->span, "reads elements [%lld, %lld) of @%s, which are not inside one parameter",
                      ll(lo), ll(hi), home.buffer->name);
        return;
    }
    int end, first = hd_ranges_cut(&h->map, lo, hi, &end);
    for (int i = first; i < end; i++) {
        const Holding *was = hd_flow_holding(w, h, i);
        if (was->kind == HOLDS_WEIGHTS && !was->fresh) continue;
        if (was->kind == HOLDS_WEIGHTS)
            hd_plan_wrong(w->c, o, o->span, "reads weights from @%s after the update by %s", home.buffer->name,
                          hd_plan_op(w->c, was->by));
        else if (was->kind == HOLDS_STALE)
            hd_plan_wrong(w->c, o, o->span,
                          "reads weights from @%s, which no op has gathered since the step before updated bucket @%s: "
                          "an all_gather into it belongs "
                          "before this op, or after that update",
                          home.buffer->name, h->bucket->symbol->name);
        else
            hd_plan_wrong(w->c, o, o->span,
                          "reads weights from @%s, which holds none%s%s: an all_gather of bucket @%s into it belongs "
                          "before op %d",
                          home.buffer->name, was->by ? " since " : "", was->by ? hd_plan_op(w->c, was->by) : "",
                          h->bucket->symbol->name, o->id);
        return;
    }
}

// --- the walk

static void (*const collectives[N_OPS])(Flow *, const Op *) = {
#define COLLECTIVE(id, inverse, moves, sums, fact, name) [OP_##id] = hd_flow_##name,
#include "ir/collectives.def"
};

void hd_flow_keys(Flow *w HD_UNUSED, const Op *o HD_UNUSED) {} // dropout.c

void hd_flow_begin(Flow *w, const Op *o) {
    Held *h = hd_flow_held(w, hd_named(o, A_LIFE));
    if (h) hd_flow_set(w, h, (Holding){.kind = HOLDS_NOTHING, .by = o});
}

static const struct { OpKind of; void (*rule)(Flow *, const Op *); bool gives; } rules[N_OPS] = {
#define OP(id, mnemonic, n_in, n_out, attrs, fields, doc) [OP_##id] = {.of = OP_##id, fields},
#define flow(name, also) .rule = hd_flow_##name, .gives = also,
#include "ir/ops.def"
};

static bool gives(const Op *o) { return !rules[o->kind].rule || rules[o->kind].gives; }

static void run_op(Flow *w, const Op *o) {
    w->at = o;
    if (hd_is_alias(o) || hd_op_is(o, TRAIT_SYNC)) return;
    for (int i = 0; i < o->n_in && !hd_has(&o->attrs, A_COMM); i++) read_weights(w, o, o->in[i]);
    if (hd_op_is(o, TRAIT_COLLECTIVE)) {
        collectives[o->kind](w, o);
        return;
    }
    if (rules[o->kind].rule) rules[o->kind].rule(w, o);
    Write x;
    for (int i = 0; gives(o) && hd_next_write(o, &i, &x);) {
        if (!hd_type_count(x.type)) continue;
        if (o->kind == OP_ZERO) zero(w, &x);
        else give(w, &x);
    }
}

void hd_flow_run(Flow *w, const Func *f, bool last) {
    w->f = f;
    w->run++;
    w->last = last;
    w->homes = hd_homes(f, w->c->a);
    w->values = HD_NEWN(w->c->a, Held *, f->n_values + 1);
    for (int i = 0; i < w->c->n_buckets; i++) w->flow[i].used_now = false;
    for (int i = 0; i < w->c->m->n_symbols; i++)
        if (w->held[i]) w->held[i]->writes = 0;
    for (const Op *o = f->first; o; o = o->next) run_op(w, o);
}
