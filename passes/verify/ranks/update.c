// The end of a step in the flow (flow.h): the optimizer reads a gradient that has every contribution of the step,
// summed over every axis of the mesh, for the same elements as the weights it updates, once for every bucket. The norm
// is that of all such gradients, each counted once over all ranks.
#include "ir/bins.h"
#include "ir/optimizer.h"
#include "passes/verify/ranks/flow.h"
#include "ir/base/ints.h"

static Holding *holding(Flow *w, const Held *h, int i) { return &w->holdings.at[hd_range(&h->map, i)->cell.holds]; }

// Whether elements of a parameter hold all contributions so far, summed over all ranks; reports what is missing.
static bool is_complete(Flow *w, const Op *o, const Symbol *s, const Holding *was, int given, long long lo,
                        long long hi) {
    // Where ranks own a parameter and read other sequences, its gradient is that of all of them (spread_experts.c).
    const BucketParts *k = hd_plan_bucket(w->c, s);
    const Axes axes = w->c->data & ~(k ? k->own : 0);
    const Axes same = was->over & w->c->live & ~axes; // whose ranks read the same sequences
    if (was->kind == HOLDS_SUM && was->count == given && (was->over & axes) == axes && !same) return true;
    if (was->kind != HOLDS_SUM)
        hd_plan_wrong(w->c, o, o->span, "reads elements [%lld, %lld) of @%s, which hold %s", lo, hi, s->name,
                      was->kind == HOLDS_OLD ? "what the last step left" : "no gradient");
    else if (was->count != given)
        hd_plan_wrong(
            w->c, o, o->span,
            "reads elements [%lld, %lld) of @%s, which hold %d of the step's %d contributions, as %s left them", lo, hi,
            s->name, was->count, given, hd_plan_op(w->c, was->by));
    else if (same)
        hd_plan_wrong(w->c, o, o->span, "reads elements [%lld, %lld) of @%s, which are summed over %s, along which "
                      "ranks read the same sequences", lo, hi, s->name, hd_axes_text(w->c->a, same));
    else
        hd_plan_wrong(w->c, o, o->span, "reads elements [%lld, %lld) of @%s, which are not summed over %s", lo, hi,
                      s->name, hd_axes_text(w->c->a, axes & ~was->over));
    return false;
}

static bool check_complete(Flow *w, const Op *o, const Symbol *s, Held *h) {
    BucketFlow *b = hd_flow_bucket(w, h->bucket);
    for (int k = 0; w->steps && k < h->bucket->items.n; k++) {
        const Symbol *p = h->bucket->items.at[k];
        int64_t lo = hd_int(&p->attrs, A_OFFSET, 0), hi = lo + hd_type_count(p->type);
        if (lo >= hi) continue;
        int end, first = hd_ranges_cut(&b->given, lo, hi, &end), last;
        for (int i = first; i < end; i++) {
            int64_t from = hd_range(&b->given, i)->lo, to = hd_range_hi(&b->given, i);
            for (int j = hd_ranges_cut(&h->map, from, to, &last); j < last; j++)
                if (!is_complete(w, o, s, holding(w, h, j), hd_range(&b->given, i)->cell.holds,
                                 ll(hd_range(&h->map, j)->lo), ll(hd_range_hi(&h->map, j))))
                    return false;
        }
    }
    return true;
}

// A gradient of bucket `k` with as many parts as its master weights, or `parts`.
static bool check_gradient(Flow *w, const Op *o, const Symbol *s, const BucketParts *k, int64_t parts) {
    Held *h = hd_flow_held(w, s);
    if (!h) return true;
    if (h->bucket != k)
        hd_plan_wrong(w->c, o, o->span, "updates bucket @%s by @%s, which is not of that bucket", k->symbol->name,
                      s->name);
    else if (h->parts != parts)
        hd_plan_wrong(w->c, o, o->span, "reads @%s, 1/%lld of bucket @%s, where 1/%lld belongs", s->name, ll(h->parts),
                      k->symbol->name, ll(parts));
    else return check_complete(w, o, s, h);
    return false;
}

static void same_buffer(Flow *w, const Op *o, const char *what, const Symbol *bucket, const Symbol *has,
                        const Symbol *is) {
    if (has != is)
        hd_plan_wrong(w->c, o, o->span, "has %s = %s, and that of bucket @%s is %s", what, has ? has->name : "nothing",
                      bucket->name, is ? is->name : "nothing");
}

// A state's buffer has the name that the kernel gives the state, after its last dot: so no two of them are exchanged.
static void check_name(Flow *w, const Op *o, int state, const Symbol *s) {
    const Func *k = hd_update_kernel(o);
    const char *dot = strrchr(s->name, '.'), *name = dot ? dot + 1 : s->name, *is = k->args[OPT_STATE + state]->name;
    if (strcmp(name, is) != 0)
        hd_plan_wrong(w->c, o, o->span, "has state %d = %s, and kernel @%s calls it %s", state + 1, s->name, k->name,
                      is);
}

// The rates of a group are those of the bucket, which has them from its parameters (layout.c).
static void check_rates(Flow *w, const Op *o, const Symbol *bucket) {
    const Attrs *is = &o->attrs, *should = &bucket->attrs;
    if (hd_float(is, A_LR_SCALE, 1) != hd_float(should, A_LR_SCALE, 1))
        hd_plan_wrong(w->c, o, o->span, "multiplies the learning rate by %g, and bucket @%s says %g",
                      hd_float(is, A_LR_SCALE, 1), bucket->name, hd_float(should, A_LR_SCALE, 1));
    const double decay = hd_float(is, A_WEIGHT_DECAY, 0);
    if (hd_float(should, A_WEIGHT_DECAY, decay) != decay)
        hd_plan_wrong(w->c, o, o->span, "has weight decay %g, and bucket @%s says %g", decay, bucket->name,
                      hd_float(should, A_WEIGHT_DECAY, decay));
}

// Weights in bf16 are rounded by the seed of the step.
static void check_seed(Flow *w, const Op *o) {
    const char *is = hd_word(&o->attrs, A_ROUNDING, NULL);
    const char *said = w->c->train ? hd_word(&w->c->train->attrs, A_RANDOM, "nothing") : is;
    if (is && strcmp(is, said) != 0)
        hd_plan_wrong(w->c, o, o->span, "rounds by the seed in @%s, and step @%s keeps it in %s", is, w->c->train->name,
                      said);
}

// Buffers of the model and parameters of a group with an optimizer have their bucket's kernel, which program.c compares
// with what their params declare; other parameters that of the module, which takes none whole.
static bool check_kernel(Flow *w, const Op *o, const Symbol *bucket) {
    const char *rule = hd_word(&bucket->attrs, A_KERNEL, NULL), *is = hd_word(&o->attrs, A_KERNEL, "");
    const char *own = hd_word(&bucket->attrs, A_UPDATED_BY, NULL);
    if (own && strcmp(is, own) != 0)
        return hd_plan_wrong(w->c, o, o->span, "updates by kernel @%s, and bucket @%s is updated by @%s", is,
                             bucket->name, own);
    if (!own && hd_takes_whole(hd_update_kernel(o)))
        return hd_plan_wrong(w->c, o, o->span, "updates by kernel @%s, which takes whole parameters, and bucket @%s "
                             "keeps none whole", is, bucket->name);
    if (rule ? !strcmp(is, rule) : !hd_is_rule(hd_update_kernel(o))) return true;
    return hd_plan_wrong(w->c, o, o->span, "updates by kernel @%s, and bucket @%s holds %s%s", is, bucket->name,
                         rule ? "buffers of kernel @" : "parameters", rule ? rule : "");
}

// The optimizer's buffers are those of the bucket, each in its place; its gradient may be another sum.
static bool check_operands(Flow *w, const Op *o, const BucketParts *k) {
    static const struct { AttrId at; int part;
    } own[] = {{A_MASTER_WEIGHTS, PART_MASTER}, {A_WEIGHTS, PART_COMPUTE}};
    int before = w->c->found.n;
    const Symbol *master = hd_named(o, A_MASTER_WEIGHTS), *bucket = k->symbol;
    for (int i = 0; i < 2; i++)
        same_buffer(w, o, hd_attr_info(own[i].at)->text, bucket, hd_named(o, own[i].at), k->part[own[i].part]);
    for (int i = 0, more = 1; more; i++) {
        const Symbol *s = hd_state(w->c->m, &o->attrs, i), *is = hd_state(w->c->m, &bucket->attrs, i);
        same_buffer(w, o, hd_sprintf(w->c->a, "state %d", i + 1), bucket, s, is);
        if (s && s == is) check_name(w, o, i, s);
        more = s || is;
    }
    int64_t decayed = hd_int(&o->attrs, A_DECAYED, 0), ranks = hd_int(&o->attrs, A_RANKS, 1),
            parts = hd_plan_parts(w->c, k, master);
    if (decayed != hd_int(&bucket->attrs, A_DECAYED, 0) || ranks != parts)
        hd_plan_wrong(w->c, o, o->span,
                      "decays the first %lld elements in %lld parts, and bucket @%s the first %lld, in %lld parts",
                      ll(decayed), ll(ranks), bucket->name, ll(hd_int(&bucket->attrs, A_DECAYED, 0)), ll(parts));
    check_rates(w, o, bucket);
    check_seed(w, o);
    return check_kernel(w, o, bucket) && w->c->found.n == before;
}

void hd_flow_update(Flow *w, const Op *o) {
    const Symbol *master = hd_named(o, A_MASTER_WEIGHTS);
    BucketParts *k = hd_plan_bucket(w->c, master);
    if (!k) {
        hd_plan_wrong(w->c, o, o->span, "updates @%s, which is of no bucket", hd_word(&o->attrs, A_MASTER_WEIGHTS, ""));
        return;
    }
    if (k->size == 0) return;
    BucketFlow *b = hd_flow_bucket(w, k);
    if (b->updated) hd_plan_wrong(w->c, o, o->span, "updates bucket @%s a second time, after %s", k->symbol->name,
                                  hd_plan_op(w->c, b->updated));
    b->updated = o;
    if (!check_operands(w, o, k)) return;
    Held *m = hd_flow_held(w, master), *g = hd_flow_held(w, k->part[PART_COMPUTE]);
    check_gradient(w, o, hd_named(o, A_GRADIENT), k, m->parts);
    Holding fresh = {.kind = HOLDS_WEIGHTS, .fresh = true, .by = o};
    hd_flow_set(w, m, fresh);
    if (g) hd_flow_set(w, g, fresh);
}

// Adds to `times`, by symbol id of the gradient that persists, how often an op counts it.
static void count_squares(const PlanCheck *c, const Op *o, int *times) {
    const Attr *list = hd_attr(&o->attrs, A_BUFFERS);
    for (int i = 0; list && i < list->n; i++) {
        const Symbol *s = hd_symbol_find(c->m, list->strs[i]);
        const BucketParts *k = hd_plan_bucket(c, s);
        const Symbol *grad = k ? k->part[PART_GRAD] : s;
        if (grad) times[grad->id]++;
    }
}

static void all_counted_once(PlanCheck *c, const Op *o, const int *times) {
    for (const Symbol *s = c->m->symbols; s; s = s->next)
        if (c->part_of[s->id] == PART_GRAD && times[s->id] != !hd_plan_rule(hd_plan_bucket(c, s)))
            hd_plan_wrong(c, o, o->span, "counts gradient buffer @%s %d times", s->name, times[s->id]);
}

// The axes along which ranks hold different elements of a bucket: those over which it is split, and those along which
// each rank owns experts.
static Axes parts_over(const BucketParts *k) { return k->split | (k->own & HD_EXPERT_AXES); }

// Squares of buckets with elements: of the first one. One op counts squares of no others.
static Axes split_axes(const Flow *w) {
    int i = 0;
    while (i < w->c->n_buckets && !w->c->buckets[i].size) i++;
    return i < w->c->n_buckets ? parts_over(&w->c->buckets[i]) : 0;
}

static bool owns_any(const Flow *w) { // some bucket has other parameters on each rank along an axis
    Axes own = 0;
    for (int i = 0; i < w->c->n_buckets; i++) own |= w->c->buckets[i].size ? w->c->buckets[i].own : 0;
    return own != 0;
}

// The axes along which ranks have other elements of the buckets whose squares an op adds up.
static Axes axes_of(const PlanCheck *c, const Op *squares) {
    const Attr *list = hd_attr(&squares->attrs, A_BUFFERS);
    for (int i = 0; list && i < list->n; i++) {
        const BucketParts *k = hd_plan_bucket(c, hd_symbol_find(c->m, list->strs[i]));
        if (k && k->size) return k->split | k->own;
    }
    return 0;
}

static bool split_alike(const Flow *w, const Op *o, const BucketParts *k) {
    const Axes own = axes_of(w->c, o) & ~split_axes(w);
    if (k->size && (k->own & ~(Axes)HD_EXPERT_AXES) != own)
        return hd_plan_wrong(w->c, o, o->span,
                             "adds up squares of bucket @%s, whose parameters are split over %s, with those of buckets "
                             "split over %s", k->symbol->name, hd_axes_text(w->c->a, k->own),
                             hd_axes_text(w->c->a, own));
    if (!k->size || parts_over(k) == split_axes(w)) return true;
    return hd_plan_wrong(w->c, o, o->span, "adds up squares of bucket @%s, which is split over %s, with those of "
                         "buckets split over %s", k->symbol->name, hd_axes_text(w->c->a, parts_over(k)),
                         hd_axes_text(w->c->a, split_axes(w)));
}

// Where sums are those of a tree, the norm is one of exact sums, whatever ranks hold.
static bool is_exact(Flow *w, const Op *o) {
    if ((o->kind != OP_GRAD_NORM && hd_has(&o->attrs, A_EXACT)) == w->tree) return true;
    return hd_plan_wrong(w->c, o, o->span, w->tree ? "adds up squares in an order, and config @train has a tree: they "
                                                     "must add up exactly"
                                                   : "adds up exact squares, and config @train has no tree");
}

// Runs of elements whose squares add up are those of parameters, on any number of ranks.
static bool has_runs(Flow *w, const Op *o, const BucketParts *k) {
    for (int i = 0; i < k->items.n; i++) {
        const Symbol *p = k->items.at[i];
        if (hd_int(&p->attrs, A_OFFSET, 0) % HD_BIN_RUN)
            return hd_plan_wrong(w->c, o, o->span, "adds up squares of runs of %d elements, and parameter @%s begins "
                                 "at element %lld", HD_BIN_RUN, p->name, ll(hd_int(&p->attrs, A_OFFSET, 0)));
    }
    return true;
}

// The squares of all gradients, each element on one rank of the shard group: where every rank has all of them, they
// must not be added over ranks. A rank that is alone may count them in several ops (check_parts).
void hd_flow_norm(Flow *w, const Op *o) {
    PlanCheck *c = w->c;
    const Attr *list = hd_attr(&o->attrs, A_BUFFERS);
    if (!is_exact(w, o)) return;
    for (int i = 0; list && i < list->n; i++) {
        const Symbol *s = hd_symbol_find(c->m, list->strs[i]);
        BucketParts *k = hd_plan_bucket(c, s);
        if (k && w->tree && !has_runs(w, o, k)) return;
        if (k && !split_alike(w, o, k)) return;
        if (k && !check_gradient(w, o, s, k, hd_op_is(o, TRAIT_SQUARES) ? k->shards : 1)) return;
        if (k && k->size) hd_flow_bucket(w, k)->squared = o;
        Held *h = k || !w->steps ? NULL : hd_flow_held(w, s);
        for (int j = 0; h && j < h->map.n; j++) {
            const Holding *was = holding(w, h, j);
            const int64_t from = hd_range(&h->map, j)->lo, to = hd_range_hi(&h->map, j);
            if (!is_complete(w, o, s, was, was->count, ll(from), ll(to))) return;
        }
    }
    if (o->kind == OP_GRAD_NORM && owns_any(w)) {
        hd_plan_wrong(c, o, o->span,
                      "covers the gradients of one rank, and other ranks hold other parts of the parameters");
        return;
    }
    if (hd_op_is(o, TRAIT_SQUARES) && (!split_axes(w) || owns_any(w))) return; // check_parts
    int *times = HD_NEWN(c->a, int, c->m->n_symbols + 1);
    count_squares(c, o, times);
    all_counted_once(c, o, times);
}

// The squares that several ops have stored are added in the order of the buckets, as one op adds them. `last`: the one
// before.
static void in_order(PlanCheck *c, const Op *o, const Op *sums, const Symbol **last) {
    const Attr *list = hd_attr(&sums->attrs, A_BUFFERS);
    for (int i = 0; list && i < list->n; i++) {
        const BucketParts *k = hd_plan_bucket(c, hd_symbol_find(c->m, list->strs[i]));
        if (k && *last && k->symbol->id < (*last)->id)
            hd_plan_wrong(c, o, o->span, "adds the squares of bucket @%s after those of @%s, which is declared later",
                          k->symbol->name, (*last)->name);
        if (k) *last = k->symbol;
    }
}

// Of a rank that is alone in its shard group, or whose buckets are not all split over the same axes: the operand of
// root_sum is the squares of all gradients, each once, made by one op or by several that have stored or gathered
// theirs one behind the other. Whether it is any squares at all.
static bool check_parts(Flow *w, const Op *o) {
    const Value *root = w->homes[o->in[0]->id].root;
    const Held *h = hd_flow_value(w, o->in[0]);
    int *times = HD_NEWN(w->c->a, int, w->c->m->n_symbols + 1);
    const Symbol *last = NULL;
    if (root && root->def && hd_op_is(root->def, TRAIT_SQUARES)) {
        if (axes_of(w->c, root->def)) return false;
        count_squares(w->c, root->def, times);
    } else {
        if (!h || !h->map.n || hd_type_count(o->in[0]->type) != h->size) return false;
        for (int i = 0; i < h->map.n; i++) {
            const Holding *was = holding(w, h, i);
            const int64_t n = hd_range_hi(&h->map, i) - hd_range(&h->map, i)->lo;
            const Axes axes = was->squares ? axes_of(w->c, was->squares) : 0;
            if (was->kind != HOLDS_SQUARES || !was->squares || (was->over & w->c->live) != axes) return false;
            if (hd_type_count(hd_result_type(was->squares, 0)) * hd_mesh_ranks(&w->c->mesh, axes) != n) return false;
            count_squares(w->c, was->squares, times);
            if (!owns_any(w)) in_order(w->c, o, was->squares, &last);
        }
    }
    all_counted_once(w->c, o, times);
    return true;
}

// root_sum: of this rank's squares where it is alone in its shard group, else of those of all ranks of the group.
static void check_squares(Flow *w, const Op *o) {
    const Held *h = hd_flow_value(w, o->in[0]);
    const Axes axes = split_axes(w);
    const Holding *was = h ? holding(w, h, 0) : NULL;
    bool gathered =
        was && was->kind == HOLDS_SQUARES && (was->over & w->c->live) == axes &&
        hd_type_count(o->in[0]->type) == h->size;
    if (axes && !owns_any(w) ? !gathered : !check_parts(w, o)) hd_plan_wrong(w->c, o, o->span,
        "takes %s, which is not the squares of all ranks of a shard group", hd_plan_value(w->c, o->in[0]));
}

// The loss that step_scalars compares with those before is that of the step; writes.c says when.
static void check_loss_operand(Flow *w, const Op *o) {
    const Symbol *loss = w->c->train ? hd_step_kept_at(w->c->m, w->c->train, 0) : NULL;
    const Held *h = loss ? hd_flow_held(w, loss) : NULL, *is = hd_flow_value(w, o->in[1]);
    if (h && is != h)
        hd_plan_wrong(w->c, o, o->span, "takes %s for the loss, which is not @%s, the loss of the step",
                      hd_plan_value(w->c, o->in[1]), loss->name);
}

void hd_flow_scalars(Flow *w, const Op *o) {
    if (o->kind == OP_ROOT_SUM) {
        if (is_exact(w, o)) check_squares(w, o);
        return;
    }
    if (o->n_in == 0) {
        if (hd_float(&o->attrs, A_CLIP, 0) > 0)
            hd_plan_wrong(w->c, o, o->span, "clips by a gradient norm that it does not take");
    } else {
        const Value *v = w->homes[o->in[0]->id].root;
        if (!v || !v->def || (v->def->kind != OP_GRAD_NORM && v->def->kind != OP_ROOT_SUM))
            hd_plan_wrong(w->c, o, o->span, "takes %s, which is not a gradient norm", hd_plan_value(w->c, o->in[0]));
    }
    if (o->n_in > 1) check_loss_operand(w, o);
    Held *h = hd_flow_held(w, hd_named(o, A_COUNTER));
    if (h) hd_flow_set(w, h, (Holding){.kind = HOLDS_SUM, .count = 1, .by = o});
}
