// Places of `recompute` and `keep` that change nothing: a warning for each kind of place, with the reason.
#include "passes/tensor/recompute.h"
#include "passes/analysis/place_effect.h"
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

static const char *why_not(const Places *p, const Places *others, const Places *forward, int i) {
    if (hd_place_is_inside(p, 2, others, p->paths->strs[i]))
        return "another listed place is around it, and is recomputed with all that is in it";
    if (!forward->found[i])
        return "the loss computes it in chunks, each with its gradient, so nothing of it is kept for the backward pass "
               "(train.loss_chunks = 1 has the logits whole)";
    return "the backward pass reads no value that is made there, but for those that leave an instance with a border "
           "and are kept";
}

void hd_recompute_effect(Module *m, Arena *a) {
    Places p = hd_places(m, A_RECOMPUTE, a), forward = hd_places(m, A_RECOMPUTE, a); // found: by ops of that pass
    const Places others[] = {hd_places(m, A_KEPT, a), hd_places(m, A_OFFLOAD, a)};
    hd_places_borders(&p, a);
    bool *marked = HD_NEWN(a, bool, p.paths->n + 1);
    for (const Func *f = m->funcs; f; f = f->next)
        for (const Op *o = f->is_kernel || !hd_has_backward(f) ? NULL : f->first; o; o = o->next) {
            if (hd_has(&o->attrs, A_RECOMPUTED) && o->loc.path) mark(&p, others, o->loc.path, marked);
            if (!hd_has(&o->attrs, A_BWD)) hd_place_of(&forward, o->loc.path, NULL);
        }
    const char **why = HD_NEWN(a, const char *, p.paths->n + 1);
    for (int i = 0; i < p.paths->n; i++) why[i] = why_not(&p, others, &forward, i);
    hd_places_warn(&p, marked, why, a);
}

static bool is_auto(const Places *p) { return p->paths && !strcmp(p->paths->strs[0], "auto"); }

// Where something is chosen automatically, or may be under a limit, a place that is kept is left out.
void hd_keep_effect(Module *m, bool chosen, Arena *a) {
    const Places kept = hd_places(m, A_KEPT, a);
    Places others[] = {hd_places(m, A_RECOMPUTE, a), hd_places(m, A_OFFLOAD, a)};
    if (!kept.paths) return;
    chosen |= is_auto(&others[0]) || is_auto(&others[1]);
    bool *effect = HD_NEWN(a, bool, kept.paths->n + 1);
    const char **why = HD_NEWN(a, const char *, kept.paths->n + 1);
    for (int i = 0; i < kept.paths->n; i++) {
        const char *path = kept.paths->strs[i];
        const bool inside = hd_place_is_inside(&kept, 2, others, path);
        const bool needed = hd_place_of(&others[0], path, NULL) || hd_place_of(&others[1], path, NULL);
        effect[i] = !inside && (chosen || needed);
        why[i] = inside ? "another place of the list is around it, and is kept with all that is in it"
                        : "no place of recompute or offload is around it";
    }
    hd_places_warn(&kept, effect, why, a);
}
