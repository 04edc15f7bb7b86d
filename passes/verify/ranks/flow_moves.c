// Flow through what moves buckets between buffers, values and ranks (flow.h): copy, reduce_scatter, all_gather. flow.c
// says what each of them means.
#include "passes/verify/ranks/flow.h"
#include "ir/base/ints.h"

// Everything that a buffer holds of a bucket may go to another buffer that holds the same part, in any memory. A copy
// to any other buffer is no part of a bucket.
void hd_flow_copy(Flow *w, const Op *o) {
    const Symbol *from = o->n_in ? w->homes[o->in[0]->id].buffer : hd_named(o, A_BUFFER);
    const Symbol *to = hd_named(o, A_INTO);
    Held *h = hd_flow_held(w, from), *g = hd_flow_held(w, to);
    bool all = h && g && hd_type_count(hd_result_type(o, 0)) == hd_type_count(from->type) &&
               hd_type_count(from->type) == hd_type_count(to->type);
    if (all && h->bucket && h->bucket == g->bucket && h->parts == g->parts) {
        hd_flow_cut_alike(h, g);
        hd_flow_cut_alike(g, h);
        for (int i = 0; i < g->map.n; i++)
            hd_range(&g->map, i)->cell.holds = hd_flow_hold(w, *hd_flow_holding(w, h, i));
        g->ever = true;
    } else if (g && g->bucket) {
        hd_plan_wrong(w->c, o, o->span, "copies into @%s, of bucket @%s, what is not those elements of the bucket",
                      to->name, g->bucket->symbol->name);
    } else if (!o->n_in && h && h->bucket) {
        hd_plan_wrong(w->c, o, o->span, "takes @%s out of bucket @%s: what keeps track of weights would miss them",
                      from->name, h->bucket->symbol->name);
    } else if (g) {
        int64_t lo = hd_int(&o->attrs, A_OFFSET, 0);
        int end, first = hd_ranges_cut(&g->map, lo, lo + hd_type_count(hd_result_type(o, 0)), &end);
        hd_ranges_set(&g->map, first, end,
                      (Cell){.writer = -1, .holds = hd_flow_hold(w, (Holding){.kind = HOLDS_OLD, .by = o})});
    }
}

// --- collectives

// The source of a collective: a buffer, the whole of it if it belongs to a bucket, or a value. If no collective made
// it, it is what this rank has computed.
static Held *source(Flow *w, const Op *o) {
    const Home home = o->n_in ? w->homes[o->in[0]->id] : (Home){.buffer = hd_named(o, A_BUFFER)};
    Held *h = o->n_in ? hd_flow_value(w, o->in[0]) : hd_flow_held(w, home.buffer);
    if (h && h->bucket && o->n_in && hd_type_count(o->in[0]->type) != h->size / h->parts) {
        hd_plan_wrong(w->c, o, o->span, "moves some elements of %s, not all that a rank has of bucket @%s", h->name,
                      h->bucket->symbol->name);
        return NULL;
    }
    if (h || !home.root) return h;
    const Op *def = home.root->def;
    Holding own = {.kind = def && hd_op_is(def, TRAIT_SQUARES) ? HOLDS_SQUARES : HOLDS_SUM, .count = 1, .by = def};
    if (own.kind == HOLDS_SQUARES) own.squares = def;
    h = w->values[home.root->id] = HD_NEW(w->c->a, Held);
    *h = (Held){.name = hd_plan_value(w->c, home.root), .parts = 1, .size = hd_type_count(home.root->type)};
    h->map = hd_ranges(w->c->a, h->size, (Cell){.writer = -1, .holds = hd_flow_hold(w, own)});
    return h->size ? h : NULL;
}

// Its destination: a buffer, the whole of it if it belongs to a bucket, or a value with another number of parts.
static Held *destination(Flow *w, const Op *o, const Held *from, int64_t parts) {
    const Symbol *into = hd_named(o, A_INTO);
    Held *g = into ? hd_flow_held(w, into) : NULL;
    if (g && g->bucket && hd_type_count(hd_result_type(o, 0)) != hd_type_count(into->type)) {
        hd_plan_wrong(w->c, o, o->span, "fills some elements of %s, not all that a rank has of bucket @%s", g->name,
                      g->bucket->symbol->name);
        return NULL;
    }
    if (into) return g;
    g = w->values[o->out[0]->id] = HD_NEW(w->c->a, Held);
    *g = (Held){.name = hd_plan_value(w->c, o->out[0]), .bucket = from->bucket, .parts = from->bucket ? parts : 1};
    g->size = from->bucket ? from->size : hd_type_count(o->out[0]->type);
    g->map = hd_ranges(w->c->a, g->size, (Cell){.writer = -1});
    return g;
}

// A collective between the whole of something and its parts over one kind of axes: the whole is the bucket where the
// axes split it, and a shard where they are those of its copies that read other sequences.
static bool fits_axes(Flow *w, const Op *o, Axes over, const Held *whole, const Held *part) {
    const PlanCheck *c = w->c;
    const BucketParts *k = whole->bucket;
    const Axes those = over & c->live;
    const bool splits = those == k->split, copies = those == hd_plan_summed(c, k);
    if (splits && whole->parts == 1 && part->parts == k->shards) return true;
    if (copies && whole->parts == k->shards && part->parts == k->shards * k->copies) return true;
    hd_plan_wrong(w->c, o, o->span,
                  "over %s goes between %s and %s, which are not the bucket's elements before and after that axis",
                  hd_axes_text(c->a, over), whole->name, part->name);
    return false;
}

// Padding that no op has written holds zeros, in every step.
static bool is_padding(const Held *h, const Holding *was, int64_t lo, int64_t hi) {
    return was->kind == HOLDS_OLD && h->bucket && !hd_plan_param_at(h->bucket, lo, hi);
}

// How many contributions the present function has made to elements that got equally many.
static int given_now(Flow *w, const BucketParts *k, int64_t lo, int64_t hi) {
    BucketFlow *b = hd_flow_bucket(w, k);
    int end;
    return hd_range(&b->now, hd_ranges_cut(&b->now, lo, hi, &end))->cell.holds;
}

static bool may_reduce(Flow *w, const Op *o, const Held *h, int i, Axes over) {
    const Holding *was = hd_flow_holding(w, h, i);
    long long lo = ll(hd_range(&h->map, i)->lo), hi = ll(hd_range_hi(&h->map, i));
    if (is_padding(h, was, lo, hi)) return true;
    if (was->kind != HOLDS_SUM)
        hd_plan_wrong(w->c, o, o->span, "sums elements [%lld, %lld) of %s, which hold %s", lo, hi, h->name,
                      was->kind == HOLDS_OLD ? "what the last step left" : "no gradient");
    else if ((was->over | was->taken) & over)
        hd_plan_wrong(w->c, o, o->span, "sums elements [%lld, %lld) of %s over %s again, after %s", lo, hi,
                      h->name, hd_axes_text(w->c->a, over), hd_plan_op(w->c, was->by));
    else if (h->bucket && (over & h->bucket->split) && w->each && was->count > given_now(w, h->bucket, lo, hi))
        hd_plan_wrong(w->c, o, o->span,
                      "sums elements [%lld, %lld) of %s, which hold several micro-batches, and config @train has each "
                      "summed on its own",
                      lo, hi, h->name);
    else if (h->bucket && (over & h->bucket->split) && !w->each && !w->last)
        hd_plan_wrong(w->c, o, o->span,
                      "sums elements [%lld, %lld) of %s, and config @train has that in the last micro-batch alone",
                      lo, hi, h->name);
    else
        return true;
    return false;
}

void hd_flow_reduce_scatter(Flow *w, const Op *o) {
    const Symbol *comm = hd_named(o, A_COMM);
    Axes over = comm ? hd_axes(&comm->attrs, A_OVER) : 0;
    Held *h = source(w, o), *g = h ? destination(w, o, h, h->parts * hd_mesh_ranks(&w->c->mesh, over)) : NULL;
    if (!g || !comm || !hd_flow_same_bucket(w, o, h, g)) return;
    if (!h->bucket && h->buffer) {
        hd_plan_wrong(w->c, o, o->span, "sums %s, which belongs to no bucket", h->name);
        return;
    }
    if (h->bucket && !fits_axes(w, o, over, h, g)) return;
    if (h->bucket && hd_result_type(o, 0)->dtype != TY_F32) {
        hd_plan_wrong(w->c, o, o->span, "adds up %s in %s: gradients are added up in f32 (out = f32)", h->name,
                      hd_dtype_text(hd_result_type(o, 0)->dtype));
        return;
    }
    if (h->bucket && hd_has(&o->attrs, A_TREE) != w->tree) {
        hd_plan_wrong(w->c, o, o->span, w->tree ? "sums %s in the order of ranks, and config @train has it in a tree"
                                                : "sums %s in a tree, and config @train has no tree", h->name);
        return;
    }
    if (h->bucket && (over & h->bucket->copied) && !w->last && !w->tree) {
        hd_plan_wrong(w->c, o, o->span,
                      "sums over copies of the parameters, which only the last micro-batch of a step does");
        return;
    }
    hd_flow_set(w, g, (Holding){.kind = HOLDS_NOTHING});
    if (h->bucket) hd_flow_cut_alike(h, g);
    bool said = false;
    for (int i = 0; i < h->map.n; i++) {
        if (!said) said = !may_reduce(w, o, h, i, over);
        Holding was = *hd_flow_holding(w, h, i), now = was;
        was.taken |= over;
        was.by = o;
        if (is_padding(h, &was, hd_range(&h->map, i)->lo, hd_range_hi(&h->map, i)))
            now = (Holding){.kind = HOLDS_SUM, .over = was.over & ~over, .micro = w->micro, .n = 1};
        now.over |= over;
        now.taken = 0;
        now.by = o;
        hd_range(&h->map, i)->cell.holds = hd_flow_hold(w, was);
        if (h->bucket || i == 0) hd_range(&g->map, i)->cell.holds = hd_flow_hold(w, now);
    }
}

static bool may_gather(Flow *w, const Op *o, const Held *h, int i, Axes over) {
    const Holding *was = hd_flow_holding(w, h, i);
    if (was->kind != HOLDS_SUM || !h->bucket || (was->over & over)) return true;
    hd_plan_wrong(w->c, o, o->span,
                  "puts together elements [%lld, %lld) of %s over %s, which have not been summed over %s",
                  ll(hd_range(&h->map, i)->lo), ll(hd_range_hi(&h->map, i)), h->name, hd_axes_text(w->c->a, over),
                  hd_axes_text(w->c->a, over));
    return false;
}

static const Symbol *read_weights_of(const BucketParts *k) {
    return k->part[PART_COMPUTE] ? k->part[PART_COMPUTE] : k->part[PART_MASTER];
}

// The all_max before an op that fills this buffer; NULL: there is none.
static const Op *scales_before(const Op *o, const Symbol *s) {
    const Op *p = o->prev;
    while (p && (p->kind != OP_ALL_MAX || hd_named(p, A_INTO) != s)) p = p->prev;
    return p;
}

static bool updates(const Op *o, const Symbol *weights) {
    return hd_named(o, A_MASTER_WEIGHTS) == weights || hd_named(o, A_WEIGHTS) == weights;
}

// The scales of a bucket's tensors are those that all_max has found for it, of the weights as they are now.
static void check_scales(Flow *w, const Op *o, const Held *h) {
    const Symbol *s = hd_named(o, A_SCALES_IN);
    const Op *found = scales_before(o, s);
    const Attr *parts = found ? hd_attr(&found->attrs, A_BUFFERS) : NULL;
    const int64_t at = found ? hd_int(&found->attrs, A_OFFSET, 0) : 0;
    int64_t first = at / HD_SCALE_STRIDE;
    int i = 0;
    for (; parts && i < parts->n && strcmp(parts->strs[i], h->buffer->name) != 0; i++)
        first += hd_tensors(w->c->m, hd_symbol_find(w->c->m, parts->strs[i]))->n / 2;
    if (!parts || i == parts->n || at % HD_SCALE_STRIDE || first != hd_int(&o->attrs, A_FIRST, 0))
        hd_plan_wrong(w->c, o, o->span, "takes the scales of %s from number %lld of @%s on, where no all_max has put "
                      "them", h->name, ll(hd_int(&o->attrs, A_FIRST, 0)), s->name);
    for (const Op *p = found; p && p != o; p = p->next)
        if (updates(p, h->buffer))
            hd_plan_wrong(w->c, o, o->span, "takes the scales that %s had before %s", h->name, hd_plan_op(w->c, p));
}

// Every rank of those that share the buckets sends the largest of its part of the weights that ops read.
void hd_flow_all_max(Flow *w, const Op *o) {
    const Attr *parts = hd_attr(&o->attrs, A_BUFFERS);
    const Symbol *comm = hd_named(o, A_COMM), *into = hd_named(o, A_INTO);
    const Axes over = (comm ? hd_axes(&comm->attrs, A_OVER) : 0) & w->c->live;
    Held *g = into ? hd_flow_held(w, into) : NULL;
    for (int i = 0; i < parts->n; i++) {
        const Symbol *s = hd_symbol_find(w->c->m, parts->strs[i]);
        const Held *h = s ? hd_flow_held(w, s) : NULL;
        const BucketParts *k = h ? h->bucket : NULL;
        if (!k || s != read_weights_of(k))
            hd_plan_wrong(w->c, o, o->span, "finds scales of @%s, which is not what ranks have of weights that ops "
                          "read", parts->strs[i]);
        else if (over != k->split)
            hd_plan_wrong(w->c, o, o->span, "finds scales of @%s over %s, and %s has its elements", s->name,
                          over ? hd_axes_text(w->c->a, over) : "one rank",
                          k->split ? hd_axes_text(w->c->a, k->split) : "one rank");
    }
    if (!into || (g && g->bucket) || !hd_has(&into->attrs, A_TRANSIENT))
        hd_plan_wrong(w->c, o, o->span, "puts scales into %s: they go into a transient buffer of no bucket",
                      into ? hd_sprintf(w->c->a, "@%s", into->name) : "a value");
    else if (scales_before(o, into))
        hd_plan_wrong(w->c, o, o->span, "puts scales into @%s, as %s does: they are found once", into->name,
                      hd_plan_op(w->c, scales_before(o, into)));
    if (!g || g->bucket) return;
    const int64_t at = hd_int(&o->attrs, A_OFFSET, 0);
    hd_flow_set_range(w, g, at, at + hd_type_count(hd_result_type(o, 0)), (Holding){.kind = HOLDS_OLD, .by = o});
}

// Rows are quantized as the buffer says that they are, and from the weights that ops read.
static void check_quantized(Flow *w, const Op *o, const Held *h, const Symbol *into) {
    const Symbol *from = read_weights_of(h->bucket);
    const int64_t is = hd_int(&o->attrs, A_QUANTIZED, -1), said = into ? hd_int(&into->attrs, A_QUANTIZED, -1) : -1;
    if (is != said)
        hd_plan_wrong(w->c, o, o->span, "quantizes %s in rows of %lld elements into %s, which has rows of %lld (0: "
                      "whole tensors, -1: is not quantized)", h->name, ll(is),
                      into ? hd_sprintf(w->c->a, "@%s", into->name) : "a value", ll(said));
    else if (is >= 0 && h->buffer != from)
        hd_plan_wrong(w->c, o, o->span, "quantizes %s, and ops read @%s", h->name, from ? from->name : "nothing");
    else if (!is)
        check_scales(w, o, h);
}

// Weights go into buffers, since it is buffers that a bound counts. Nothing but weights may be rounded on the way.
static void check_kept_track(Flow *w, const Op *o, const Held *h, const Held *g) {
    const bool weights = h->bucket && h->buffer && hd_plan_is_weights(w->c, h->buffer);
    if (!weights && hd_has(&o->attrs, A_OUT))
        hd_plan_wrong(w->c, o, o->span, "rounds %s to %s, which holds no weights: leave out `out`", h->name,
                      hd_word(&o->attrs, A_OUT, ""));
    if (!weights) return;
    check_quantized(w, o, h, g->buffer);
    if (g->buffer && hd_plan_is_weights(w->c, g->buffer)) return;
    if (!g->buffer)
        hd_plan_wrong(w->c, o, o->span,
                      "gathers weights into value %s: a bound counts gathered weights in buffers of class weights, so "
                      "they go into one",
                      g->name);
    else
        hd_plan_wrong(w->c, o, o->span,
                      "gathers weights into %s, whose class is %s: a bound on weights would miss them", g->name,
                      hd_word(&g->buffer->attrs, A_CLASS, "none"));
}

// Of values alone: no bucket's elements go to other ranks so.
void hd_flow_exchange(Flow *w, const Op *o) {
    Held *h = source(w, o), *g = h ? destination(w, o, h, h->parts) : NULL;
    if (!h || !g) return;
    const Symbol *into = hd_named(o, A_INTO), *from = hd_named(o, A_BUFFER);
    if (h->bucket)
        hd_plan_wrong(w->c, o, o->span, "takes @%s out of bucket @%s: what keeps track of weights would miss them",
                      from ? from->name : h->name, h->bucket->symbol->name);
    else if (g->bucket)
        hd_plan_wrong(w->c, o, o->span, "copies into @%s, of bucket @%s, what is not those elements of the bucket",
                      into ? into->name : g->name, g->bucket->symbol->name);
    if (h->bucket || g->bucket) return;
    for (int i = 0; i < h->map.n && i < g->map.n; i++) {
        Holding was = *hd_flow_holding(w, h, i);
        was.by = o;
        hd_range(&g->map, i)->cell.holds = hd_flow_hold(w, was);
    }
}

void hd_flow_all_gather(Flow *w, const Op *o) {
    const Symbol *comm = hd_named(o, A_COMM);
    Axes over = comm ? hd_axes(&comm->attrs, A_OVER) : 0;
    Held *h = source(w, o), *g = h ? destination(w, o, h, h->parts / hd_mesh_ranks(&w->c->mesh, over)) : NULL;
    if (!g || !comm || !hd_flow_same_bucket(w, o, h, g) || (h->bucket && !fits_axes(w, o, over, g, h))) return;
    check_kept_track(w, o, h, g);
    const int64_t at = hd_int(&o->attrs, A_OFFSET, 0), all = hd_type_count(hd_result_type(o, 0));
    const bool some = !h->bucket && g->buffer && all < g->size; // of a buffer, into which others gather as well
    if (!some) hd_flow_set(w, g, (Holding){.kind = HOLDS_NOTHING});
    if (h->bucket) hd_flow_cut_alike(h, g);
    bool said = false;
    for (int i = 0; i < h->map.n; i++) {
        if (!said) said = !may_gather(w, o, h, i, over);
        Holding was = *hd_flow_holding(w, h, i), now = was;
        if (!h->bucket) was.taken |= over, now.over |= over;
        now.by = o;
        hd_range(&h->map, i)->cell.holds = hd_flow_hold(w, was);
        if (some && i == 0) hd_flow_set_range(w, g, at, at + all, h->map.n == 1 ? now : (Holding){.by = o});
        else if (h->bucket || i == 0) hd_range(&g->map, i)->cell.holds = hd_flow_hold(w, now);
    }
}
