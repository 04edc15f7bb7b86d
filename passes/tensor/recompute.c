// recompute: values that the schedule lists are not kept for the backward pass but computed again, just before the
// backward pass first needs them:
//
//   %h = gelu %p                   loc(blocks.0.mlp.act)        %h = gelu %p
//   ...                                                   ->    ...
//   %dw = matmul %dy, %h {ta, bwd}                              %h2 = gelu %p {bwd, recomputed}
//                                                               %dw = matmul %dy, %h2 {ta, bwd}
//
// A listed path names a module instance and everything inside it but the places that `keep` or `offload` lists there.
// Operands are recomputed as well if they are listed and have the same border. The border of a place is an instance
// around it: the innermost instance of a repeated module (blocks.3 for blocks.3.mlp.act), or one that the frontend
// names (l3 for l3.mlp.act, where blocks are members). Of places inside each other the innermost with a border of its
// own decides. A value that leaves its border is kept, so that listing every block keeps the blocks' inputs and
// recomputes each block once. A copy is the same op on the same bytes, so no result changes.
//
// With `recompute auto` the ops are those that say `again`, as choose-recompute has decided or a hand has written.
#include "passes/tensor/recompute.h"
#include "passes/analysis/places.h"
#include "passes/pass.h"
#include "passes/settings.h"
#include <string.h>

typedef struct {
    Module *m;
    PassCx *cx;
    Func *f;
    Places listed, kept_list, offloaded;
    const char *const *borders; // by place of the list
    const char **border;  // by op id: the border inside which it is listed, or NULL
    bool *kept;           // by value id: crosses a border, so it is kept anyway
    Value **again;        // by value id: its copy
    int copies;
    bool automatic;
} Recompute;

// Weights and constants are storage, not saved values; so are their casts and reshapes.
static bool is_storage(const Op *o) {
    if (hd_op_is(o, TRAIT_CARRIES)) return o->in[0]->def && is_storage(o->in[0]->def);
    return o->n_in == 0;
}

// An op in a place of the list, unless a place of another list is inside that one and around the op. A place that is
// recomputed and offloaded is recomputed, and offload takes what is kept of it.
static const char *border_of(Recompute *s, const Op *o) {
    if (hd_has(&o->attrs, A_BWD) || !hd_recompute_possible(o) || !o->loc.path) return NULL;
    if (hd_op_info(o->kind)->chosen) return NULL; // one expert more or less would be another function
    int widest = 0, depth = hd_place_of(&s->listed, o->loc.path, &widest);
    bool other = hd_place_of(&s->kept_list, o->loc.path, NULL) > depth ||
                 hd_place_of(&s->offloaded, o->loc.path, NULL) > depth;
    return depth && !other && !is_storage(o) ? s->borders[widest] : NULL;
}

// The value as the backward pass reads it: itself, or a copy of its op that is placed before `at`.
static Value *value_again(Recompute *s, Value *v, Op *at) {
    if (!v->def || !s->border[v->def->id] || s->kept[v->id]) return v;
    if (s->again[v->id]) return s->again[v->id];
    Op *o = v->def;
    Value **in = HD_NEWN(s->cx->scratch, Value *, o->n_in + 1);
    for (int i = 0; i < o->n_in; i++) {
        const Op *def = o->in[i]->def;
        in[i] = def && s->border[def->id] == s->border[o->id] ? value_again(s, o->in[i], at) : o->in[i];
    }
    Op *copy = hd_op_clone(s->f, o, in);
    hd_set_flag(s->m->cx, &copy->attrs, A_BWD);
    hd_set_flag(s->m->cx, &copy->attrs, A_RECOMPUTED);
    hd_insert_before(at, copy);
    for (int i = 0; i < o->n_out; i++) s->again[o->out[i]->id] = copy->out[i];
    s->copies++;
    return s->again[v->id];
}

// For the report.
static void declare(Recompute *s, const Costs *c) {
    bool *copied = HD_NEWN(s->cx->scratch, bool, s->f->n_ops + 1);
    for (const Op *o = s->f->first; o; o = o->next)
        for (int i = 0; i < o->n_out && s->copies && !hd_has(&o->attrs, A_BWD); i++)
            copied[o->id] |= s->again[o->out[i]->id] != NULL;
    hd_recompute_declare(s->m, c, copied);
}

// All that is chosen has one border: every value is computed again from what is kept.
static void take_chosen(Recompute *s) {
    for (Op *o = s->f->first; o; o = o->next) {
        s->border[o->id] = hd_has(&o->attrs, A_AGAIN) ? s->listed.paths->strs[0] : NULL;
        hd_unset(&o->attrs, A_AGAIN);
    }
}

static void recompute_func(Recompute *s) {
    hd_renumber(s->f);
    int n_values = s->f->n_values;
    bool *any = HD_NEWN(s->cx->scratch, bool, s->f->n_ops + 1);
    for (int i = 0; i < s->f->n_ops; i++) any[i] = true;
    const Costs costs = hd_recompute_costs(s->f, any, true, s->cx->scratch);
    s->border = HD_NEWN(s->cx->scratch, const char *, s->f->n_ops + 1);
    s->kept = HD_NEWN(s->cx->scratch, bool, n_values + 1);
    s->again = HD_NEWN(s->cx->scratch, Value *, n_values + 1);
    if (s->automatic) take_chosen(s);
    else
        for (const Op *o = s->f->first; o; o = o->next) s->border[o->id] = border_of(s, o);
    for (const Op *o = s->f->first; o; o = o->next)
        for (int i = 0; s->border[o->id] && i < o->n_in; i++) {
            const Op *def = o->in[i]->def;
            if (def && s->border[def->id] && s->border[def->id] != s->border[o->id]) s->kept[o->in[i]->id] = true;
        }
    for (Op *o = s->f->first; o; o = o->next) {
        if (!hd_has(&o->attrs, A_BWD) || hd_has(&o->attrs, A_RECOMPUTED)) continue;
        for (int i = 0; i < o->n_in; i++)
            if (o->in[i]->id < n_values) o->in[i] = value_again(s, o->in[i], o);
    }
    declare(s, &costs);
    hd_renumber(s->f);
}

// Where the loss is computed in chunks, each with its gradient, the logits are no part of the forward pass. That is no
// error: a smaller model has them whole. hd_recompute_effect says that nothing changes.
static void find_chunked(Recompute *s) {
    if (!hd_has(hd_settings(s->m, "train"), A_LOSS_CHUNK_BYTES)) return;
    for (const Func *f = s->m->funcs; f; f = f->next)
        for (const Op *o = f->is_kernel ? NULL : f->first; o; o = o->next)
            if (hd_has(&o->attrs, A_BWD)) hd_place_of(&s->listed, o->loc.path, NULL);
}

static Change recompute(Module *m, PassCx *cx, bool automatic) {
    Recompute s = {.m = m, .cx = cx, .automatic = automatic, .listed = hd_places(m, A_RECOMPUTE, cx->scratch),
                   .kept_list = hd_places(m, A_KEPT, cx->scratch), .offloaded = hd_places(m, A_OFFLOAD, cx->scratch)};
    const int errors = m->cx->diags.errors;
    if (!automatic && !hd_places_differ(&s.listed, &s.kept_list)) return FAILED;
    s.borders = hd_places_borders(&s.listed, cx->scratch);
    for (s.f = m->funcs; s.f; s.f = s.f->next)
        if (!s.f->is_kernel && hd_has_backward(s.f)) recompute_func(&s);
    if (m->cx->diags.errors > errors) return FAILED; // the table of the device cannot be read
    if (!automatic) find_chunked(&s);
    if (!automatic && !hd_places_found(&s.listed, "no operation of the forward pass is there; name a module "
                                                  "instance that computes something"))
        return FAILED;
    hd_count(cx, "ops recomputed", s.copies);
    return s.copies || automatic ? CHANGED : UNCHANGED;
}

// Without `recompute auto` no op may say `again`: nothing would come of it.
static bool check_unmarked(const Module *m) {
    for (const Func *f = m->funcs; f; f = f->next)
        for (const Op *o = f->is_kernel ? NULL : f->first; o; o = o->next)
            if (hd_has(&o->attrs, A_AGAIN))
                return hd_error(m->cx, o->span, "says `again`, which changes nothing without `recompute = [auto]` and "
                                "`chosen` in config @schedule");
    return true;
}

Change hd_pass_recompute(Module *m, PassCx *cx) {
    const Attrs *schedule = hd_settings(m, "schedule");
    const Attr *listed = hd_attr(schedule, A_RECOMPUTE);
    const bool automatic = listed && listed->n && !strcmp(listed->strs[0], "auto");
    if (cx->call) hd_keep_effect(m, hd_has(hd_settings(m, "target"), A_DEVICE_MEMORY_BYTES), cx->scratch);
    if (!automatic && !check_unmarked(m)) return FAILED;
    if (!listed || !listed->n) return UNCHANGED;
    if (automatic && !hd_has(schedule, A_CHOSEN))
        return hd_error(m->cx, hd_symbol_find(m, "schedule")->span,
                        "recompute auto is not decided: run choose-recompute before recompute, or write `chosen` here "
                        "and `again` at the ops to compute again"), FAILED;
    const Change c = recompute(m, cx, automatic);
    if (automatic) hd_unset(&hd_symbol_find(m, "schedule")->attrs, A_CHOSEN);
    if (c != FAILED && !automatic && cx->call) hd_recompute_effect(m, cx->scratch);
    return c;
}
