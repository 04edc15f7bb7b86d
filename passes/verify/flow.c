// Flow: what every element of every buffer holds while the functions of a step run one after another: weights before or
// after the update, or a sum of a number of this step's contributions, reduced over certain axes of the mesh. In a plan
// without races (verify_contents) program order gives the result of every order.
//   begin          nothing
//   zero           an empty sum
//   store, gemm    one contribution of this rank: the first overwrites what the last step left or zeros, others
//                  add [V20]
//   store of a buffer that holds a sum: the two sums are added; both must be reduced over the same axes
//   copy           the same, in another buffer of the bucket
//   reduce_scatter the sum over one axis more, dealt out over that axis; once for each element and axis [V22]
//   all_gather     what was dealt out, put together again; weights come from their own bucket, and those that the step
//                  before has updated but not gathered are gathered before anybody reads them [V7]
//   adamw          fresh weights, once a step, from a sum that has every contribution and is reduced over every
//                  axis [V5, V6]
//
// Contributions are inside one parameter, so padding always holds zeros. An op that reads weights reads them whole,
// inside one parameter, as they were before the update. Only reduce_scatter reduces, and contributions to one element
// are added in program order: the text fixes the order of every sum [V33].
#include "passes/verify/flow.h"
#include "ir/base/ints.h"
#include "passes/settings.h"

Flow hd_flow(PlanCheck *c) {
    return (Flow){.c = c,
                  .each = strcmp(hd_word(hd_settings(c->m, "train"), A_REDUCTION, "each"), "each") == 0,
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

// Whether a sum is reduced over these axes, and no other axis has more than one rank.
static bool everywhere(const Flow *w, Axes taken) { return taken && !(hd_mesh_live(&w->c->mesh) & ~taken); }

static int hold(Flow *w, Holding h) {
    if (h.by == w->at) h.run = w->run;
    hd_push(w->c->a, &w->holdings, h);
    return w->holdings.n - 1;
}

static Holding *holding(Flow *w, const Held *h, int i) { return &w->holdings.at[h->map.v.at[i].cell.holds]; }

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
    h->map = hd_ranges(w->c->a, h->size, (Cell){.writer = -1, .holds = hold(w, first)});
    return h;
}

Held *hd_flow_value(Flow *w, const Value *v) {
    Home home = w->homes[v->id];
    return home.buffer ? hd_flow_held(w, home.buffer) : home.root ? w->values[home.root->id] : NULL;
}

void hd_flow_set(Flow *w, Held *h, Holding what) {
    int end, first = hd_ranges_cut(&h->map, 0, h->size, &end);
    hd_ranges_set(&h->map, first, end, (Cell){.writer = -1, .holds = hold(w, what)});
    h->ever = true;
}

static const Symbol *named(const Flow *w, const Op *o, AttrId a) {
    return hd_symbol_find(w->c->m, hd_word(&o->attrs, a, ""));
}

// The parameter that contains elements [lo, hi) of a bucket; NULL: none, they are padding.
static const Symbol *param_at(const BucketParts *k, int64_t lo, int64_t hi) {
    int a = 0, b = k->items.n; // the first that ends after lo
    while (a < b) {
        int mid = a + (b - a) / 2;
        const Symbol *p = k->items.at[mid];
        if (hd_int(&p->attrs, A_OFFSET, 0) + hd_type_count(p->type) <= lo) a = mid + 1;
        else b = mid;
    }
    return a < k->items.n && hd_int(&k->items.at[a]->attrs, A_OFFSET, 0) < hi ? k->items.at[a] : NULL;
}

static bool inside_param(const BucketParts *k, int64_t lo, int64_t hi) {
    const Symbol *p = param_at(k, lo, hi);
    int64_t from = p ? hd_int(&p->attrs, A_OFFSET, 0) : 0;
    return p && lo >= from && hi <= from + hd_type_count(p->type);
}

// --- contributions

static void count_given(Flow *w, const BucketParts *k, int64_t lo, int64_t hi) {
    BucketFlow *b = hd_flow_bucket(w, k);
    RangeMap *maps[] = {&b->given, &b->now};
    for (int m = 0; m < 2; m++) {
        int end, first = hd_ranges_cut(maps[m], lo, hi, &end);
        for (int i = first; i < end; i++) maps[m]->v.at[i].cell.holds++;
    }
}

// Whether these elements may receive a contribution of one rank.
static bool may_contribute(Flow *w, const Op *o, const Symbol *s, const Held *h, int64_t lo, int64_t hi) {
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
    else if (!adds && was->kind == HOLDS_SUM && was->count && !was->taken)
        hd_plan_wrong(w->c, o, o->span,
                      "overwrites elements [%lld, %lld) of @%s and with them the sum of the micro-batches before", lo,
                      hi, s->name);
    else
        return false;
    return true;
}

static void contribute(Flow *w, const Op *o, const Symbol *s, int64_t lo, int64_t hi) {
    Held *h = hd_flow_held(w, s);
    if (!h || lo >= hi || !may_contribute(w, o, s, h, lo, hi)) return;
    bool adds = hd_has(&o->attrs, A_ACCUMULATE), said = false;
    int end, first = hd_ranges_cut(&h->map, lo, hi, &end);
    for (int i = first; i < end; i++) {
        Holding was = *holding(w, h, i);
        if (!said) said = wrong_contribution(w, o, s, &was, adds, ll(h->map.v.at[i].lo), ll(hd_range_hi(&h->map, i)));
        Holding now = {.kind = HOLDS_SUM, .count = (adds && was.kind == HOLDS_SUM ? was.count : 0) + 1, .by = o};
        h->map.v.at[i].cell.holds = hold(w, now);
    }
    if (h->bucket) count_given(w, h->bucket, lo, hi);
    h->writes++;
    h->ever = true;
}

// --- one buffer added to another

static const char *bucket_text(const Flow *w, const Held *h) {
    return h->bucket ? hd_sprintf(w->c->a, "bucket @%s", h->bucket->symbol->name) : "no bucket";
}

static bool same_bucket(Flow *w, const Op *o, const Held *h, const Held *g) {
    if (h->bucket == g->bucket) return true;
    hd_plan_wrong(w->c, o, o->span, "moves %s of %s to %s of %s", h->name, bucket_text(w, h), g->name,
                  bucket_text(w, g));
    return false;
}

// Cuts `g` wherever `h` is cut. Both maps have the same positions.
static void cut_alike(const Held *h, Held *g) {
    int end;
    for (int i = 0; i < h->map.v.n; i++) hd_ranges_cut(&g->map, h->map.v.at[i].lo, hd_range_hi(&h->map, i), &end);
}

static void add_sums(Flow *w, const Op *o, Held *h, Held *g) {
    bool adds = hd_has(&o->attrs, A_ACCUMULATE), said = false;
    int64_t n = h->size / h->parts;
    if (!same_bucket(w, o, h, g)) return;
    if (h->parts != g->parts || hd_type_count(o->in[0]->type) != n || hd_int(&o->attrs, A_OFFSET, 0) != 0) {
        hd_plan_wrong(w->c, o, o->span, "adds up %s and %s, which do not hold the same elements of their bucket",
                      h->name, g->name);
        return;
    }
    cut_alike(h, g);
    cut_alike(g, h);
    for (int i = 0; i < g->map.v.n; i++) {
        Holding in = *holding(w, h, i), was = *holding(w, g, i);
        Holding now = {.kind = HOLDS_SUM, .count = in.count + (adds ? was.count : 0), .over = in.over, .by = o};
        long long lo = ll(g->map.v.at[i].lo), hi = ll(hd_range_hi(&g->map, i));
        if (!adds) said = said || wrong_contribution(w, o, g->buffer, &was, false, lo, hi);
        else if (!said && was.kind != HOLDS_SUM) said = wrong_contribution(w, o, g->buffer, &was, true, lo, hi);
        else if (!said && was.taken) said = wrong_contribution(w, o, g->buffer, &was, true, lo, hi);
        else if (!said && was.over != in.over) {
            hd_plan_wrong(w->c, o, o->span,
                          "adds elements [%lld, %lld) of %s, summed over %s, to those of %s, summed over %s", lo, hi,
                          h->name, hd_axes_text(w->c->a, in.over), g->name, hd_axes_text(w->c->a, was.over));
            said = true;
        }
        g->map.v.at[i].cell.holds = hold(w, now);
    }
    g->writes++;
    g->ever = true;
}

static bool all_of_kind(Flow *w, const Held *h, HoldsKind kind) {
    for (int i = 0; i < h->map.v.n; i++)
        if (holding(w, h, i)->kind != kind) return false;
    return true;
}

static void store(Flow *w, const Op *o, const Access *x) {
    const Home home = w->homes[o->in[0]->id];
    const Op *def = home.root ? home.root->def : NULL;
    Held *from = hd_flow_value(w, o->in[0]), *to = hd_flow_held(w, x->buffer);
    int64_t size = hd_dtype_bytes(x->buffer->type->dtype), lo = x->lo / size, hi = x->hi / size;
    if (!to) return;
    if (from && from->bucket && all_of_kind(w, from, HOLDS_SUM)) add_sums(w, o, from, to);
    else if (def && def->kind == OP_SQUARE_SUMS) hd_flow_set(w, to, (Holding){.kind = HOLDS_SQUARES, .by = o});
    else if (!to->bucket && all_of_kind(w, to, HOLDS_SUM) && everywhere(w, holding(w, to, 0)->taken) &&
             !hd_has(&o->attrs, A_ACCUMULATE))
        hd_flow_set(w, to, (Holding){.kind = HOLDS_SUM, .over = HD_ALL_AXES, .by = o}); // the mean over ranks: scale.c
    else contribute(w, o, x->buffer, lo, hi);
}

static void zero(Flow *w, const Op *o, const Access *x) {
    Held *h = hd_flow_held(w, x->buffer);
    int64_t size = hd_dtype_bytes(x->buffer->type->dtype), lo = x->lo / size, hi = x->hi / size;
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
        const Holding *was = holding(w, h, i);
        if (was->kind != HOLDS_SUM || !was->count || said) continue;
        hd_plan_wrong(w->c, o, o->span, "clears elements [%lld, %lld) of @%s and with them the contribution of %s",
                      ll(h->map.v.at[i].lo), ll(hd_range_hi(&h->map, i)), x->buffer->name, hd_plan_op(w->c, was->by));
        said = true;
    }
    hd_ranges_set(&h->map, first, end, (Cell){.writer = -1, .holds = hold(w, (Holding){.kind = HOLDS_SUM, .by = o})});
}

// --- copies

// All that a buffer holds of a bucket may go to another buffer that holds as much of it, in any memory. What goes
// elsewhere is no part of a bucket any more.
static void copy(Flow *w, const Op *o) {
    const Symbol *from = o->n_in ? w->homes[o->in[0]->id].buffer : named(w, o, A_BUFFER), *to = named(w, o, A_INTO);
    Held *h = hd_flow_held(w, from), *g = hd_flow_held(w, to);
    bool all = h && g && hd_type_count(hd_result_type(o, 0)) == hd_type_count(from->type) &&
               hd_type_count(from->type) == hd_type_count(to->type);
    if (all && h->bucket && h->bucket == g->bucket && h->parts == g->parts) {
        cut_alike(h, g);
        cut_alike(g, h);
        for (int i = 0; i < g->map.v.n; i++) g->map.v.at[i].cell.holds = hold(w, *holding(w, h, i));
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
                      (Cell){.writer = -1, .holds = hold(w, (Holding){.kind = HOLDS_OLD, .by = o})});
    }
}

// --- collectives

// What a collective takes: a buffer, all of it where that is of a bucket, or a value. What no collective gave is what
// this rank has computed.
static Held *source(Flow *w, const Op *o) {
    const Home home = o->n_in ? w->homes[o->in[0]->id] : (Home){.buffer = named(w, o, A_BUFFER)};
    Held *h = o->n_in ? hd_flow_value(w, o->in[0]) : hd_flow_held(w, home.buffer);
    if (h && h->bucket && o->n_in && hd_type_count(o->in[0]->type) != h->size / h->parts) {
        hd_plan_wrong(w->c, o, o->span, "moves some elements of %s, not all that a rank has of bucket @%s", h->name,
                      h->bucket->symbol->name);
        return NULL;
    }
    if (h || !home.root) return h;
    const Op *def = home.root->def;
    Holding own = {.kind = def && def->kind == OP_SQUARE_SUMS ? HOLDS_SQUARES : HOLDS_SUM, .count = 1, .by = def};
    h = w->values[home.root->id] = HD_NEW(w->c->a, Held);
    *h = (Held){.name = hd_plan_value(w->c, home.root), .parts = 1, .size = hd_type_count(home.root->type)};
    h->map = hd_ranges(w->c->a, h->size, (Cell){.writer = -1, .holds = hold(w, own)});
    return h->size ? h : NULL;
}

// What it gives: a buffer, all of it where that is of a bucket, or a value with another number of parts.
static Held *destination(Flow *w, const Op *o, const Held *from, int64_t parts) {
    const Symbol *into = named(w, o, A_INTO);
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

// A collective between the whole of something and its parts over one kind of axes: the whole is a bucket where the axes
// split, and a shard where they copy, as the layout says.
static bool fits_axes(Flow *w, const Op *o, Axes over, const Held *whole, const Held *part) {
    const PlanCheck *c = w->c;
    Axes live = hd_mesh_live(&c->mesh), those = over & live;
    bool splits = those == (HD_SPLIT_AXES & live), copies = those == (HD_COPY_AXES & live);
    if (splits && whole->parts == 1 && part->parts == c->shard) return true;
    if (copies && whole->parts == c->shard && part->parts == c->ranks) return true;
    hd_plan_wrong(w->c, o, o->span,
                  "over %s goes between %s and %s, which are not the bucket's elements before and after that axis",
                  hd_axes_text(c->a, over), whole->name, part->name);
    return false;
}

// Padding that no op has written holds zeros, in every step.
static bool is_padding(const Held *h, const Holding *was, int64_t lo, int64_t hi) {
    return was->kind == HOLDS_OLD && h->bucket && !param_at(h->bucket, lo, hi);
}

// How many contributions the present function has made to elements that got equally many.
static int given_now(Flow *w, const BucketParts *k, int64_t lo, int64_t hi) {
    BucketFlow *b = hd_flow_bucket(w, k);
    int end;
    return b->now.v.at[hd_ranges_cut(&b->now, lo, hi, &end)].cell.holds;
}

static bool may_reduce(Flow *w, const Op *o, const Held *h, int i, Axes over) {
    const Holding *was = holding(w, h, i);
    long long lo = ll(h->map.v.at[i].lo), hi = ll(hd_range_hi(&h->map, i));
    if (is_padding(h, was, lo, hi)) return true;
    if (was->kind != HOLDS_SUM)
        hd_plan_wrong(w->c, o, o->span, "sums elements [%lld, %lld) of %s, which hold %s", lo, hi, h->name,
                      was->kind == HOLDS_OLD ? "what the last step left" : "no gradient");
    else if ((was->over | was->taken) & over)
        hd_plan_wrong(w->c, o, o->span, "sums elements [%lld, %lld) of %s over %s again, after %s", lo, hi,
                      h->name, hd_axes_text(w->c->a, over), hd_plan_op(w->c, was->by));
    else if (h->bucket && (over & HD_SPLIT_AXES) && w->each && was->count > given_now(w, h->bucket, lo, hi))
        hd_plan_wrong(w->c, o, o->span,
                      "sums elements [%lld, %lld) of %s, which hold several micro-batches, and config @train has each "
                      "summed on its own",
                      lo, hi, h->name);
    else if (h->bucket && (over & HD_SPLIT_AXES) && !w->each && !w->last)
        hd_plan_wrong(w->c, o, o->span,
                      "sums elements [%lld, %lld) of %s, and config @train has that in the last micro-batch alone",
                      lo, hi, h->name);
    else
        return true;
    return false;
}

static void reduce_scatter(Flow *w, const Op *o) {
    const Symbol *comm = named(w, o, A_COMM);
    Axes over = comm ? hd_axes(&comm->attrs, A_OVER) : 0;
    Held *h = source(w, o), *g = h ? destination(w, o, h, h->parts * hd_mesh_ranks(&w->c->mesh, over)) : NULL;
    if (!g || !comm || !same_bucket(w, o, h, g)) return;
    if (!h->bucket && h->buffer) {
        hd_plan_wrong(w->c, o, o->span, "sums %s, which belongs to no bucket", h->name);
        return;
    }
    if (h->bucket && !fits_axes(w, o, over, h, g)) return;
    if (h->bucket && (over & HD_COPY_AXES & hd_mesh_live(&w->c->mesh)) && !w->last) {
        hd_plan_wrong(w->c, o, o->span,
                      "sums over copies of the parameters, which only the last micro-batch of a step does");
        return;
    }
    hd_flow_set(w, g, (Holding){.kind = HOLDS_NOTHING});
    if (h->bucket) cut_alike(h, g);
    bool said = false;
    for (int i = 0; i < h->map.v.n; i++) {
        if (!said) said = !may_reduce(w, o, h, i, over);
        Holding was = *holding(w, h, i), now = was;
        was.taken |= over;
        was.by = o;
        if (is_padding(h, &was, h->map.v.at[i].lo, hd_range_hi(&h->map, i))) now.kind = HOLDS_SUM;
        now.over |= over;
        now.taken = 0;
        now.by = o;
        h->map.v.at[i].cell.holds = hold(w, was);
        if (h->bucket || i == 0) g->map.v.at[i].cell.holds = hold(w, now);
    }
}

static bool may_gather(Flow *w, const Op *o, const Held *h, int i, Axes over) {
    const Holding *was = holding(w, h, i);
    if (was->kind != HOLDS_SUM || !h->bucket || (was->over & over)) return true;
    hd_plan_wrong(w->c, o, o->span,
                  "puts together elements [%lld, %lld) of %s over %s, which have not been summed over %s",
                  ll(h->map.v.at[i].lo), ll(hd_range_hi(&h->map, i)), h->name, hd_axes_text(w->c->a, over),
                  hd_axes_text(w->c->a, over));
    return false;
}

// Weights go into buffers, since it is buffers that a bound counts.
static void check_kept_track(Flow *w, const Op *o, const Held *h, const Held *g) {
    if (!h->bucket || !h->buffer || !hd_plan_is_weights(w->c, h->buffer)) return;
    if (g->buffer && hd_plan_is_weights(w->c, g->buffer)) return;
    hd_plan_wrong(w->c, o, o->span, "gathers weights into %s, whose class is %s: a bound on weights would miss them",
                  g->name, g->buffer ? hd_word(&g->buffer->attrs, A_CLASS, "none") : "none");
}

static void all_gather(Flow *w, const Op *o) {
    const Symbol *comm = named(w, o, A_COMM);
    Axes over = comm ? hd_axes(&comm->attrs, A_OVER) : 0;
    Held *h = source(w, o), *g = h ? destination(w, o, h, h->parts / hd_mesh_ranks(&w->c->mesh, over)) : NULL;
    if (!g || !comm || !same_bucket(w, o, h, g) || (h->bucket && !fits_axes(w, o, over, g, h))) return;
    check_kept_track(w, o, h, g);
    hd_flow_set(w, g, (Holding){.kind = HOLDS_NOTHING});
    if (h->bucket) cut_alike(h, g);
    bool said = false;
    for (int i = 0; i < h->map.v.n; i++) {
        if (!said) said = !may_gather(w, o, h, i, over);
        Holding was = *holding(w, h, i), now = was;
        if (!h->bucket) was.taken |= over, now.over |= over;
        now.by = o;
        h->map.v.at[i].cell.holds = hold(w, was);
        if (h->bucket || i == 0) g->map.v.at[i].cell.holds = hold(w, now);
    }
}

// --- reads of weights

// Only the optimizer and reductions may read this part of a bucket.
static bool is_kept_apart(const Flow *w, const Symbol *s) {
    int part = w->c->part_of[s->id];
    return part == PART_GRAD || part == PART_SUM || part == PART_MOMENT1 || part == PART_MOMENT2 ||
           (hd_has(&s->attrs, A_TRANSIENT) && strcmp(hd_word(&s->attrs, A_CLASS, ""), "gradients") == 0);
}

static void read_weights(Flow *w, const Op *o, const Value *v) {
    Home home = w->homes[v->id];
    Held *given = home.root ? w->values[home.root->id] : NULL;
    if (given && given->bucket && o->kind != OP_STORE)
        hd_plan_wrong(w->c, o, o->span, "computes with %s, which holds no weights", given->name);
    Held *kept = home.buffer && is_kept_apart(w, home.buffer) ? hd_flow_held(w, home.buffer) : NULL;
    if (kept && kept->bucket && !(o->kind == OP_STORE && all_of_kind(w, kept, HOLDS_SUM))) {
        hd_plan_wrong(w->c, o, o->span, "computes with @%s, which holds no weights", home.buffer->name);
        return;
    }
    Held *h = home.buffer ? hd_flow_held(w, home.buffer) : NULL;
    if (h && h->bucket && o->kind == OP_STORE && all_of_kind(w, h, HOLDS_SUM))
        return; // a sum to be added elsewhere: store() checks it
    int64_t lo = h ? home.at / hd_dtype_bytes(home.buffer->type->dtype) : 0, hi = lo + hd_type_count(v->type);
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
        const Holding *was = holding(w, h, i);
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

static void run_op(Flow *w, const Op *o) {
    w->at = o;
    if (hd_is_alias(o) || hd_op_is(o, TRAIT_SYNC)) return;
    for (int i = 0; i < o->n_in && !hd_has(&o->attrs, A_COMM); i++) read_weights(w, o, o->in[i]);
    switch (o->kind) {
    case OP_REDUCE_SCATTER: reduce_scatter(w, o); return;
    case OP_ALL_GATHER: all_gather(w, o); return;
    case OP_COPY:
        copy(w, o);
        return;
    case OP_RANDOM: return; // random.c
    case OP_ADAMW: hd_flow_adamw(w, o); return;
    case OP_GRAD_NORM: case OP_SQUARE_SUMS: hd_flow_norm(w, o); return;
    case OP_ROOT_SUM: case OP_STEP_SCALARS: hd_flow_scalars(w, o); return;
    case OP_BEGIN: {
        Held *h = hd_flow_held(w, named(w, o, A_LIFE));
        if (h) hd_flow_set(w, h, (Holding){.kind = HOLDS_NOTHING, .by = o});
        return;
    }
    default: break;
    }
    if (!hd_has(&o->attrs, A_INTO)) return;
    hd_accesses(o, w->c->a, &w->list);
    for (int i = 0; i < w->list.n; i++) {
        const Access *x = &w->list.at[i];
        if (x->at != AT_BUFFER || !x->write || x->order) continue;
        int64_t size = hd_dtype_bytes(x->buffer->type->dtype);
        if (o->kind == OP_STORE) store(w, o, x);
        else if (o->kind == OP_ZERO) zero(w, o, x);
        else contribute(w, o, x->buffer, x->lo / size, x->hi / size);
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
