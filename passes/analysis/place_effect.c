// Places of a schedule's list that change nothing. See place_effect.h.
#include "passes/analysis/place_effect.h"
#include <string.h>

bool hd_place_is_inside(const Places *p, int n, const Places *others, const char *path) {
    bool inside = false;
    for (size_t end = strcspn(path, "."); path[end]; end += 1 + strcspn(path + end + 1, ".")) {
        const char *here = hd_internf(p->m->cx, "%.*s", (int)end, path);
        for (int k = 0; k < n && inside; k++) inside = hd_ptr_get(&others[k].at, here) < 0;
        inside |= hd_ptr_get(&p->at, here) >= 0;
    }
    return inside;
}

// Places of one kind differ in their layer only.
static const char *kind_of(const Layers *l, const char *path) {
    const char *layer = hd_layer_of(l, path);
    return hd_internf(l->cx, "%s %s", hd_layer_kind(l, layer), hd_place_pattern(l->cx, path + strlen(layer)));
}

static const char *name_of(AttrId list) { // as the schedule has it
    return list == A_KEPT ? "keep" : list == A_CAPTURE ? "graph" : hd_attr_info(list)->text;
}

void hd_places_warn(const Places *p, const bool *effect, const char *const *why, Arena *a) {
    const Layers layers = hd_layers(p->m, a);
    PtrMap good = {0}, said = {0};
    for (int i = 0; i < p->paths->n; i++)
        if (effect[i]) hd_ptr_set(a, &good, kind_of(&layers, p->paths->strs[i]), 1);
    for (int i = 0; i < p->paths->n; i++) {
        const char *path = p->paths->strs[i], *kind = kind_of(&layers, path);
        int of = 0;
        for (int k = i; hd_ptr_get(&said, kind) < 0 && k < p->paths->n; k++)
            of += kind_of(&layers, p->paths->strs[k]) == kind;
        if (!of || hd_ptr_get(&good, kind) >= 0) continue;
        hd_ptr_set(a, &said, kind, 1);
        const char *others = of > 1 ? hd_sprintf(a, " (and %d more like it)", of - 1) : "";
        hd_warning(p->m->cx, hd_symbol_find(p->m, "schedule")->span, "schedule.%s: %s%s changes nothing: %s",
                   name_of(p->list), path, others, why[i]);
    }
}

void hd_places_warn_inside(const Places *p, int n, const Places *others, const char *why, Arena *a) {
    if (!p->paths) return;
    bool *effect = HD_NEWN(a, bool, p->paths->n + 1);
    const char **whys = HD_NEWN(a, const char *, p->paths->n + 1);
    for (int i = 0; i < p->paths->n; i++) {
        effect[i] = !hd_place_is_inside(p, n, others, p->paths->strs[i]);
        whys[i] = why;
    }
    hd_places_warn(p, effect, whys, a);
}
