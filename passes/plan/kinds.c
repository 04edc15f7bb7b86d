// Choices by kinds of places, for the least plan. A kind is a place that is equal in all layers, with all that is in
// it, or one op of it. A turn of a choice keeps all of a kind, recomputes all, or all but what leaves the place. The
// search goes on from the choice with the fewest bytes whose turns have not been tried, so a list by hand is a few
// turns away. See fit.h.
#include "passes/plan/fit.h"
#include "passes/analysis/places.h"
#include <string.h>

// KEPT: no op of it is recomputed; AGAIN: all are; INSIDE: all but those whose results leave it, as with a list of
// places in the schedule.
typedef enum { KEPT, AGAIN, INSIDE, N_TURNS } Turn;
typedef VEC(const char *) Kinds;

// "Layer.attn.proj:matmul": equal for the same op in all layers of a kind; of an op that may be recomputed.
static const char *kind_of(const Layers *l, const Op *o) {
    const char *path = o->loc.path ? o->loc.path : "", *layer = hd_layer_of(l, path);
    return hd_internf(l->cx, "%s%s:%s", *layer ? hd_layer_kind(l, layer) : "", path + strlen(layer),
                      hd_op_info(o->kind)->mnemonic);
}

static const char **find_kinds(const Fit *t) {
    const Layers layers = hd_layers(t->f->module, t->a);
    const char **kinds = HD_NEWN(t->a, const char *, t->f->n_ops + 1);
    for (const Op *o = t->f->first; o; o = o->next)
        if (t->open[o->id]) kinds[o->id] = kind_of(&layers, o);
    return kinds;
}

// The kinds of ops and of all places around them, each once.
static Kinds list_kinds(const Fit *t, const char *const *kinds) {
    Kinds list = {0};
    PtrMap seen = {0};
    for (int i = 0; i < t->f->n_ops; i++)
        for (const char *kind = kinds[i], *end = kind; kind; end++) {
            end += strcspn(end, ".:");
            const char *outer = hd_intern_part(t->f->module->cx, kind, (size_t)(end - kind));
            if (*outer && hd_ptr_get(&seen, outer) < 0) hd_push(t->a, &list, outer);
            hd_ptr_set(t->a, &seen, outer, 1);
            if (!*end) break;
        }
    return list;
}

static bool is_in(const char *kind, const char *place, size_t n) {
    return kind && !strncmp(kind, place, n) && (!kind[n] || kind[n] == '.' || kind[n] == ':');
}

// Some op of the forward pass outside the place reads a result.
static bool leaves(const Fit *t, const Op *o, const char *const *kinds, const char *place, size_t n) {
    for (int i = 0; i < o->n_out; i++)
        for (int k = 0; k < t->uses.count[o->out[i]->id]; k++) {
            const Op *user = t->uses.users[o->out[i]->id][k];
            if (hd_op_is(user, TRAIT_ALIAS) ? leaves(t, user, kinds, place, n)
                                            : !hd_has(&user->attrs, A_BWD) && !is_in(kinds[user->id], place, n))
                return true;
        }
    return false;
}

static bool *turned(const Fit *t, const bool *again, const char *const *kinds, const char *place, Turn turn) {
    bool *turned = hd_fit_copy(t, again);
    const size_t n = strlen(place);
    for (const Op *o = t->f->first; o; o = o->next)
        if (is_in(kinds[o->id], place, n))
            turned[o->id] = turn == AGAIN || (turn == INSIDE && !leaves(t, o, kinds, place, n));
    return turned;
}

static void expand(Fit *t, State *s, const char *const *kinds, const Kinds *list, bool offload) {
    s->turned = true;
    for (int i = 0; i < list->n; i++)
        for (Turn turn = KEPT; turn < N_TURNS; turn++) {
            hd_fit_try(t, turned(t, s->again, kinds, list->at[i], turn), s->values);
            if (offload && s->values != HD_ALL)
                hd_fit_try(t, turned(t, s->again, kinds, list->at[i], turn), HD_ALL);
        }
}

static State *least(const Fit *t, bool expanded) {
    State *least = NULL;
    for (int i = 0; i < t->states.n; i++) {
        State *s = t->states.at[i];
        if (s->got.bytes < 0 || (s->turned && !expanded)) continue;
        if (!least || s->brief < least->brief) least = s;
    }
    return least;
}

State *hd_fit_least(const Fit *t) { return least(t, true); }

void hd_fit_try_kinds(Fit *t, int trials, bool offload) {
    const char **kinds = find_kinds(t);
    const Kinds list = list_kinds(t, kinds);
    t->left = trials;
    for (State *s = least(t, false); s && t->left > 0; s = least(t, false)) expand(t, s, kinds, &list, offload);
}
