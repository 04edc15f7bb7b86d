// Places of `recompute` and `keep` that change nothing: a warning for each kind of place, with the reason.
#include "passes/tensor/recompute.h"
#include "passes/analysis/places.h"
#include "passes/settings.h"
#include <string.h>

// The place at component `n` of a path, and the end of the next component; -1: it is not listed.
static int next_place(const Places *p, const char *path, size_t *n) {
    *n += *n ? 1 : 0;
    *n += strcspn(path + *n, ".");
    return hd_ptr_get(&p->at, hd_internf(p->m->cx, "%.*s", (int)*n, path));
}

// Of the places around a path those that have a say: the outermost, inside of it those with borders of their own, and
// those that another list's place is around.
static void mark(const Places *p, const Places *others, const char *path, bool *marked) {
    bool inside = false;
    for (size_t n = 0; !n || path[n];) {
        const int i = next_place(p, path, &n);
        const char *here = hd_internf(p->m->cx, "%.*s", (int)n, path);
        if (i >= 0) marked[i] |= !inside || p->border[i];
        inside = i >= 0 || (inside && hd_ptr_get(&others[0].at, here) < 0 && hd_ptr_get(&others[1].at, here) < 0);
    }
}

// Whether the place is part of one around it, with no place of another list between them.
static bool is_inside(const Places *p, const Places *others, const char *path) {
    bool inside = false;
    for (size_t n = 0; !n || path[n];) {
        const int i = next_place(p, path, &n);
        const char *here = hd_internf(p->m->cx, "%.*s", (int)n, path);
        if (!path[n]) break;
        inside = i >= 0 || (inside && hd_ptr_get(&others[0].at, here) < 0 && hd_ptr_get(&others[1].at, here) < 0);
    }
    return inside;
}

// Places of one kind differ in their layer only.
static const char *kind_of(const Layers *l, const char *path) {
    const char *layer = hd_layer_of(l, path);
    return hd_internf(l->cx, "%s %s", hd_layer_kind(l, layer), hd_place_pattern(l->cx, path + strlen(layer)));
}

// For each kind of place of which none has an effect. By place: whether it has one, and why not.
static void warn_kinds(const Places *p, const bool *marked, const char *const *why, Arena *a) {
    const Layers layers = hd_layers(p->m, a);
    PtrMap good = {0}, said = {0};
    for (int i = 0; i < p->paths->n; i++)
        if (marked[i]) hd_ptr_set(a, &good, kind_of(&layers, p->paths->strs[i]), 1);
    for (int i = 0; i < p->paths->n; i++) {
        const char *path = p->paths->strs[i], *kind = kind_of(&layers, path);
        int of = 0;
        for (int k = i; hd_ptr_get(&said, kind) < 0 && k < p->paths->n; k++)
            of += kind_of(&layers, p->paths->strs[k]) == kind;
        if (!of || hd_ptr_get(&good, kind) >= 0) continue;
        hd_ptr_set(a, &said, kind, 1);
        const char *others = of > 1 ? hd_sprintf(a, " (and %d more like it)", of - 1) : "";
        hd_warning(p->m->cx, hd_symbol_find(p->m, "schedule")->span, "schedule.%s: %s%s changes nothing: %s",
                   p->list == A_KEPT ? "keep" : hd_attr_info(p->list)->text, path, others, why[i]);
    }
}

void hd_recompute_effect(Module *m, Arena *a) {
    Places p = hd_places(m, A_RECOMPUTE, a);
    const Places others[] = {hd_places(m, A_KEPT, a), hd_places(m, A_OFFLOAD, a)};
    hd_places_borders(&p, a);
    bool *marked = HD_NEWN(a, bool, p.paths->n + 1);
    for (const Func *f = m->funcs; f; f = f->next)
        for (const Op *o = f->is_kernel ? NULL : f->first; o; o = o->next)
            if (hd_has(&o->attrs, A_RECOMPUTED) && o->loc.path) mark(&p, others, o->loc.path, marked);
    const char **why = HD_NEWN(a, const char *, p.paths->n + 1);
    for (int i = 0; i < p.paths->n; i++)
        why[i] = is_inside(&p, others, p.paths->strs[i])
                     ? "another listed place is around it, and is recomputed with all that is in it"
                     : "the backward pass reads no value that is made there, but for those that leave an instance with "
                       "a border and are kept";
    warn_kinds(&p, marked, why, a);
}

// Where something is chosen automatically, or may be under a limit, a place that is kept is left out.
void hd_keep_effect(Module *m, bool chosen, Arena *a) {
    const Places kept = hd_places(m, A_KEPT, a);
    const AttrId lists[] = {A_RECOMPUTE, A_OFFLOAD};
    if (!kept.paths || chosen) return;
    bool *marked = HD_NEWN(a, bool, kept.paths->n + 1);
    const char **why = HD_NEWN(a, const char *, kept.paths->n + 1);
    for (int i = 0; i < kept.paths->n; i++) why[i] = "no place of recompute or offload is around it";
    for (int k = 0; k < 2; k++) {
        Places p = hd_places(m, lists[k], a);
        if (p.paths && !strcmp(p.paths->strs[0], "auto")) return;
        for (int i = 0; i < kept.paths->n; i++) marked[i] |= hd_place_of(&p, kept.paths->strs[i], NULL) > 0;
    }
    warn_kinds(&kept, marked, why, a);
}
