// recompute: values that the schedule lists are not kept for the backward pass but computed again, just before the
// backward pass first needs them:
//
//   %h = gelu %p                   loc(blocks.0.mlp.act)        %h = gelu %p
//   ...                                                   ->    ...
//   %dw = matmul %dy, %h {ta, bwd}                              %h2 = gelu %p {bwd, recomputed}
//                                                               %dw = matmul %dy, %h2 {ta, bwd}
//
// A listed path names a module instance and everything inside it. Operands are recomputed as well if they are listed
// and belong to the same region, the innermost instance of a repeated module (blocks.3 for blocks.3.mlp.act). A value
// that leaves its region is kept, so that listing every block keeps the blocks' inputs and recomputes each block once.
// A copy is the same op on the same bytes, so no result changes.
#include "passes/pass.h"
#include "passes/analysis/ptr_map.h"
#include "passes/settings.h"
#include <string.h>

typedef struct {
    Module *m;
    PassCx *cx;
    Func *f;
    const Attr *paths;
    PtrMap listed;        // path to its place in the list (the first one)
    bool *found;          // by listed path: it contains some op
    const char **regions; // by listed path
    const char **region;  // by op id: the region in which it is listed, or NULL
    bool *kept;           // by value id: enters another region, so it is kept anyway
    Value **again;        // by value id: its copy
    int copies;
} Recompute;

// Weights and constants are storage, not saved values; so are their casts and reshapes.
static bool is_storage(const Op *o) {
    if (o->kind == OP_CAST || o->kind == OP_RESHAPE) return o->in[0]->def && is_storage(o->in[0]->def);
    return o->n_in == 0;
}

// Up to the last component that is a number; nothing when there is none.
static const char *region_of_path(Ctx *cx, const char *path) {
    size_t end = 0;
    for (const char *p = path; *p;) {
        size_t n = strcspn(p, ".");
        if (n && strspn(p, "0123456789") == n) end = (size_t)(p - path) + n;
        p += n + (p[n] == '.');
    }
    return hd_internf(cx, "%.*s", (int)end, path);
}

static const char *region_of(Recompute *s, const Op *o) {
    if (hd_has(&o->attrs, A_BWD) || !hd_op_is(o, TRAIT_PURE) || !o->loc.path) return NULL;
    const char *region = NULL;
    for (size_t n = strcspn(o->loc.path, "."); n; n = o->loc.path[n] ? n + 1 + strcspn(o->loc.path + n + 1, ".") : 0) {
        int i = hd_ptr_get(&s->listed, hd_internf(s->m->cx, "%.*s", (int)n, o->loc.path));
        if (i < 0) continue;
        s->found[i] = true;
        if (!region) region = s->regions[i]; // the shortest path has the widest region
    }
    return region && !is_storage(o) ? region : NULL;
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

static void recompute_func(Recompute *s) {
    hd_renumber(s->f);
    int n_values = s->f->n_values;
    s->region = HD_NEWN(s->cx->scratch, const char *, s->f->n_ops + 1);
    s->kept = HD_NEWN(s->cx->scratch, bool, n_values + 1);
    s->again = HD_NEWN(s->cx->scratch, Value *, n_values + 1);
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

Change hd_pass_recompute(Module *m, PassCx *cx) {
    Recompute s = {.m = m, .cx = cx, .paths = hd_attr(hd_settings(m, "schedule"), A_RECOMPUTE)};
    if (!s.paths || !s.paths->n) return UNCHANGED;
    s.found = HD_NEWN(cx->scratch, bool, s.paths->n);
    s.regions = HD_NEWN(cx->scratch, const char *, s.paths->n);
    for (int i = 0; i < s.paths->n; i++) {
        const char *path = hd_intern(m->cx, s.paths->strs[i]);
        s.regions[i] = region_of_path(m->cx, path);
        if (hd_ptr_get(&s.listed, path) < 0) hd_ptr_set(cx->scratch, &s.listed, path, i);
    }
    for (s.f = m->funcs; s.f; s.f = s.f->next)
        if (!s.f->is_kernel && has_backward(s.f)) recompute_func(&s);
    int errors = m->cx->diags.errors;
    for (int i = 0; i < s.paths->n; i++)
        if (!s.found[hd_ptr_get(&s.listed, hd_intern(m->cx, s.paths->strs[i]))])
            hd_error(m->cx, hd_symbol_find(m, "schedule")->span,
                     "recompute %s: no operation of the forward pass is there; name a module instance that "
                     "computes something",
                     s.paths->strs[i]);
    if (m->cx->diags.errors > errors) return FAILED;
    hd_count(cx, "ops recomputed", s.copies);
    return s.copies ? CHANGED : UNCHANGED;
}
