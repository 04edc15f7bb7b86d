// Restarts of the packing search, at several capacities by turns. See pack_search.h.
#include "passes/pack/pack_search.h"
#include <string.h>

// Of the steps at the bound, the search for slicing packings has this part, at most. It comes first, with a few steps;
// then it has as many as the tree search has taken at the bound.
enum { SLICE_PART = 4 };
static const int64_t FIRST_SLICE = 1000 * 1000;

// Room makes a search harder, for it leaves more packings that fail late. So the same search also runs at smaller
// capacities, by turns: at the lower bound every other time, and at the capacity and a few sizes between, which depend
// on the bound alone. Each has steps of its own, so more room adds a size and takes nothing from the others: what is
// found with as much room as the bound or one of these sizes is found with any larger room.
static const int wider[] = {0, 256, 32}; // 0: the bound; else this part more

typedef struct {
    Search *search;
    int64_t capacity, share, left, *fails; // left: steps
    int round;
    bool none; // no packing is so small
} Rung;

// Room for a search among n values. NULL: too many overlap.
static Search *begin(int n, const Interval *values, Arena *a) {
    Search *s = HD_NEW(a, Search);
    s->n = n;
    s->values = values;
    s->box = HD_NEWN(a, Box, n + 1);
    s->offset = HD_NEWN(a, int64_t, n + 1);
    s->most = HD_NEWN(a, int64_t, n + 1);
    s->in_set = HD_NEWN(a, int, n + 1);
    s->key = HD_NEWN(a, int64_t, n + 1);
    s->blamed = HD_NEWN(a, int, n + 1);
    s->words = (n + 63) / 64;
    s->conflict = HD_NEWN(a, uint64_t, s->words + 1);
    if (!hd_sections_find(s, values, a)) return NULL;
    s->list = HD_NEWN(a, int, n + 1);
    s->n_listed = hd_sections_list(s, s->list);
    return s;
}

static void finish(Search *s) {
    free(s->trail);
    free(s->stack.at);
    free(s->queue.at);
    free(s->sets.at);
}

// From the bound to the capacity. All but the bound share as many steps as that has.
static int find_rungs(Rung *rungs, Search *tight, Search *loose, int64_t capacity, int64_t bound, int64_t steps,
                      Arena *a) {
    const int n_wider = (int)(sizeof wider / sizeof *wider);
    int n = 0;
    for (int i = 0; i < n_wider; i++) {
        const int64_t at = bound + (wider[i] ? bound / wider[i] : 0);
        if (at < capacity && (!n || at > rungs[n - 1].capacity)) rungs[n++].capacity = at;
    }
    rungs[n++].capacity = capacity;
    for (int i = 0; i < n; i++) {
        Search *s = rungs[i].search = rungs[i].capacity == bound ? tight : loose;
        rungs[i].left = i ? steps / n_wider : steps;
        rungs[i].share = 4 * (int64_t)s->n;
        rungs[i].fails = HD_NEWN(a, int64_t, s->n_sections + 1);
    }
    return n;
}

// One restart at one capacity.
static Result restart(Rung *r) {
    Search *s = r->search;
    const int round = r->round++;
    if (round > 0 && round % (N_RANKINGS * N_STRATEGIES) == 0) r->share *= 2;
    s->capacity = r->capacity;
    s->fails = r->fails;
    s->steps = r->left;
    hd_sections_rank(s, s->values, round % N_RANKINGS);
    s->strategy = round / N_RANKINGS % N_STRATEGIES;
    s->node_limit = r->share;
    const Result found = hd_search_from(s, s->list, s->n_listed);
    r->left = s->steps;
    return found;
}

typedef struct {
    Rung rungs[1 + sizeof wider / sizeof *wider];
    int n_rungs;
    Search *tight, *loose; // of the fused values; of all
    Slicing *slicing;
    int64_t slicing_left; // steps
    bool sliced;          // slicing found a packing
} Race;

static bool slice(Race *race, int64_t steps) {
    if (steps > race->slicing_left) steps = race->slicing_left;
    race->slicing_left -= steps;
    race->sliced = steps > 0 && hd_slice(race->slicing, steps);
    return race->sliced;
}

// The search of trees that found a packing, or NULL: slicing did, or none.
static const Search *search(Race *race) {
    const int n = race->n_rungs;
    for (int turn = 0, idle = 0; idle < 2 * n; turn++) {
        Rung *r = &race->rungs[turn % 2 && n > 1 ? 1 + turn / 2 % (n - 1) : 0];
        const bool done = r->none || r->left <= 0;
        const int64_t left = r->left;
        const Result found = done ? STOPPED : restart(r);
        if (found == FOUND) return r->search;
        if (r->search->late || (found == NONE && r == &race->rungs[n - 1])) return NULL;
        r->none |= found == NONE;
        if (r == race->rungs && found == STOPPED && slice(race, left - r->left)) return NULL;
        idle = done ? idle + 1 : 0;
    }
    return NULL;
}

static void finish_both(Race *race) {
    if (race->tight && race->tight != race->loose) finish(race->tight);
    if (race->loose) finish(race->loose);
}

int hd_pack_search(int n, const Interval *values, int64_t *offset, int64_t capacity, int64_t steps, double seconds) {
    const int64_t bound = hd_pack_lower_bound(n, values);
    if (bound > capacity) return 1;
    const double until = seconds > 0 ? hd_search_now() + seconds : 0;
    Arena *a = hd_arena_new();
    Race race = {.slicing = hd_slicing(n, values, bound, a), .slicing_left = steps / SLICE_PART};
    const Search *best = NULL;
    Fused fused;
    if (!slice(&race, FIRST_SLICE)) {
        hd_fuse(&fused, n, values, bound, a);
        race.tight = race.loose = begin(n, values, a);
        if (race.loose && fused.n < n) race.tight = begin(fused.n, fused.values, a);
        if (race.tight) {
            race.tight->until = race.loose->until = until;
            race.n_rungs = find_rungs(race.rungs, race.tight, race.loose, capacity, bound, steps, a);
            best = search(&race);
        } else {
            slice(&race, race.slicing_left);
        }
    }
    if (race.sliced) hd_sliced(race.slicing, n, offset);
    else if (best && best == race.tight) hd_unfuse(&fused, n, best->offset, offset);
    else if (best) memcpy(offset, best->offset, sizeof(int64_t) * (size_t)n);
    finish_both(&race);
    hd_arena_free(a);
    return !best && !race.sliced;
}
