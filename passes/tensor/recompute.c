// recompute: values that the schedule lists are not kept for the backward pass but computed again, just before the
// backward pass first needs them:
//
//   %h = gelu %p                   loc(blocks.0.mlp.act)        %h = gelu %p
//   ...                                                   ->    ...
//   %dw = matmul %dy, %h {ta, bwd}                              %h2 = gelu %p {bwd, recomputed}
//                                                               %dw = matmul %dy, %h2 {ta, bwd}
//
// A listed path names a module instance and everything inside it but the places that `keep` or `offload` lists there.
// Operands are recomputed as well if they are listed and belong to the same region, the innermost instance of a
// repeated module (blocks.3 for blocks.3.mlp.act). A value that leaves its region is kept, so that listing every block
// keeps the blocks' inputs and recomputes each block once. A copy is the same op on the same bytes, so no result
// changes.
//
// `recompute auto` chooses the values itself (recompute_auto.c), but for what `keep` and `offload` list.
#include "passes/tensor/recompute.h"
#include "passes/analysis/places.h"
#include "passes/settings.h"
#include <stdlib.h>

typedef struct {
    Module *m;
    PassCx *cx;
    Func *f;
    Places listed, kept_list, offloaded;
    const char **regions; // by place of the list
    const char **region;  // by op id: the region in which it is listed, or NULL
    bool *kept;           // by value id: enters another region, so it is kept anyway
    Value **again;        // by value id: its copy
    int copies;
    Budget budget; // of auto; slower < 0: the list says what
} Recompute;

// Weights and constants are storage, not saved values; so are their casts and reshapes.
static bool is_storage(const Op *o) {
    if (o->kind == OP_CAST || o->kind == OP_RESHAPE) return o->in[0]->def && is_storage(o->in[0]->def);
    return o->n_in == 0;
}

// An op in a place of the list, unless a place of another list is inside that one and around the op.
static const char *region_of(Recompute *s, const Op *o) {
    if (hd_has(&o->attrs, A_BWD) || !hd_op_is(o, TRAIT_PURE) || !o->loc.path) return NULL;
    int widest = 0, depth = hd_place_of(&s->listed, o->loc.path, &widest);
    bool other = hd_place_of(&s->kept_list, o->loc.path, NULL) > depth ||
                 hd_place_of(&s->offloaded, o->loc.path, NULL) > depth;
    return depth && !other && !is_storage(o) ? s->regions[widest] : NULL; // the outermost place has the widest region
}

// The value as the backward pass reads it: itself, or a copy of its op that is placed before `at`.
static Value *value_again(Recompute *s, Value *v, Op *at) {
    if (!v->def || !s->region[v->def->id] || s->kept[v->id]) return v;
    if (s->again[v->id]) return s->again[v->id];
    Op *o = v->def;
    Value **in = HD_NEWN(s->cx->scratch, Value *, o->n_in + 1);
    for (int i = 0; i < o->n_in; i++) {
        const Op *def = o->in[i]->def;
        in[i] = def && s->region[def->id] == s->region[o->id] ? value_again(s, o->in[i], at) : o->in[i];
    }
    Op *copy = hd_op_clone(s->f, o, in);
    hd_set_flag(s->m->cx, &copy->attrs, A_BWD);
    hd_set_flag(s->m->cx, &copy->attrs, A_RECOMPUTED);
    hd_insert_before(at, copy);
    for (int i = 0; i < o->n_out; i++) s->again[o->out[i]->id] = copy->out[i];
    s->copies++;
    return s->again[v->id];
}

// Whether a region is one of the first instances: blocks.3 is the fourth.
static bool is_first(const char *region, int first) {
    const char *dot = region ? strrchr(region, '.') : NULL;
    return !first || (dot && atoi(dot + 1) < first);
}

// The ops among which auto may choose. What leaves an instance of a repeated module stays, if it is read, so that
// nothing is made again from far away and every instance is a choice of its own.
static bool *open_to_choice(Recompute *s) {
    bool *may = HD_NEWN(s->cx->scratch, bool, s->f->n_ops + 1);
    const char **region = HD_NEWN(s->cx->scratch, const char *, s->f->n_ops + 1);
    for (const Op *o = s->f->first; o; o = o->next) {
        const char *path = o->loc.path;
        bool same = o->prev && o->prev->loc.path == path;
        region[o->id] = same ? region[o->prev->id] : path ? hd_region_of_path(s->m->cx, path) : NULL;
        may[o->id] = hd_op_is(o, TRAIT_PURE) && !(path && (hd_place_of(&s->kept_list, path, NULL) ||
                                                           hd_place_of(&s->offloaded, path, NULL)));
        may[o->id] &= hd_recompute_cheap(o) || is_first(region[o->id], s->budget.first);
        for (int i = 0; i < o->n_in && !hd_has(&o->attrs, A_BWD); i++)
            if (o->in[i]->def && region[o->in[i]->def->id] != region[o->id]) may[o->in[i]->def->id] = false;
    }
    return may;
}

// All that is chosen is one region: every value is made again from what is kept.
static void choose_regions(Recompute *s) {
    const bool *may = open_to_choice(s);
    const Recomputed r = hd_recompute_auto(s->f, may, s->budget, s->cx->scratch);
    for (const Op *o = s->f->first; o; o = o->next) s->region[o->id] = r.again[o->id] ? s->listed.paths->strs[0] : NULL;
    hd_count(s->cx, "bytes not kept", (int64_t)r.saved);
    hd_count(s->cx, "millionths of the time for it", r.all > 0 ? (int64_t)(1e6 * r.seconds / r.all) : 0);
}

static void recompute_func(Recompute *s) {
    hd_renumber(s->f);
    int n_values = s->f->n_values;
    s->region = HD_NEWN(s->cx->scratch, const char *, s->f->n_ops + 1);
    s->kept = HD_NEWN(s->cx->scratch, bool, n_values + 1);
    s->again = HD_NEWN(s->cx->scratch, Value *, n_values + 1);
    if (s->budget.slower >= 0) choose_regions(s);
    else
        for (const Op *o = s->f->first; o; o = o->next) s->region[o->id] = region_of(s, o);
    for (const Op *o = s->f->first; o; o = o->next)
        for (int i = 0; s->region[o->id] && i < o->n_in; i++) {
            const Op *def = o->in[i]->def;
            if (def && s->region[def->id] && s->region[def->id] != s->region[o->id]) s->kept[o->in[i]->id] = true;
        }
    for (Op *o = s->f->first; o; o = o->next) {
        if (!hd_has(&o->attrs, A_BWD) || hd_has(&o->attrs, A_RECOMPUTED)) continue;
        for (int i = 0; i < o->n_in; i++)
            if (o->in[i]->id < n_values) o->in[i] = value_again(s, o->in[i], o);
    }
    hd_renumber(s->f);
}

static bool has_backward(const Func *f) {
    for (const Op *o = f->first; o; o = o->next)
        if (hd_has(&o->attrs, A_BWD)) return true;
    return false;
}

Change hd_recompute_module(Module *m, PassCx *cx, Budget budget) {
    Recompute s = {.m = m, .cx = cx, .budget = budget, .listed = hd_places(m, A_RECOMPUTE, cx->scratch),
                   .kept_list = hd_places(m, A_KEPT, cx->scratch), .offloaded = hd_places(m, A_OFFLOAD, cx->scratch)};
    const bool automatic = budget.slower >= 0;
    const int errors = m->cx->diags.errors;
    if (!automatic && !hd_places_differ(&s.listed, &s.kept_list)) return FAILED;
    if (!automatic && !hd_places_differ(&s.listed, &s.offloaded)) return FAILED;
    s.regions = HD_NEWN(cx->scratch, const char *, s.listed.paths->n);
    for (int i = 0; i < s.listed.paths->n; i++) s.regions[i] = hd_region_of_path(m->cx, s.listed.paths->strs[i]);
    for (s.f = m->funcs; s.f; s.f = s.f->next)
        if (!s.f->is_kernel && has_backward(s.f)) recompute_func(&s);
    if (m->cx->diags.errors > errors) return FAILED; // the table of the device cannot be read
    if (!automatic && !hd_places_found(&s.listed, "no operation of the forward pass is there; name a module instance "
                                                  "that computes something"))
        return FAILED;
    hd_count(cx, "ops recomputed", s.copies);
    return s.copies ? CHANGED : UNCHANGED;
}

// `recompute auto` under --device-memory takes more than its budget where the plan does not fit with it, and says so.
static Budget choose_budget(Module *m, PassCx *cx, Budget given) {
    int64_t limit = hd_int(hd_settings(m, "target"), A_DEVICE_MEMORY_BYTES, 0);
    if (!limit || hd_has(hd_settings(m, "schedule"), A_OFFLOAD)) return given;
    Budget b = hd_recompute_fit(m, given, limit);
    if (b.slower > given.slower || b.any)
        hd_warning(m->cx, hd_symbol_find(m, "schedule")->span,
                   "recompute auto: to fit into %lld bytes, recomputation may take up to %g %% of the time of the "
                   "products, and not %g %%%s",
                   (long long)limit, 100 * b.slower, 100 * given.slower,
                   !b.any    ? ""
                   : b.first ? hd_sprintf(cx->scratch, "; products and attention are made again, too, in the first %d "
                                                       "instances of repeated modules", b.first)
                             : "; products and attention are made again, too");
    return b;
}

Change hd_pass_recompute(Module *m, PassCx *cx) {
    const Attr *listed = hd_attr(hd_settings(m, "schedule"), A_RECOMPUTE);
    if (!listed || !listed->n) return UNCHANGED;
    Budget b = {.slower = -1};
    if (!strcmp(listed->strs[0], "auto"))
        b = choose_budget(m, cx, (Budget){.slower = hd_float(hd_settings(m, "schedule"), A_SLOWER, 0)});
    return hd_recompute_module(m, cx, b);
}
