// Restarts of the packing search, at several capacities by turns. See pack_search.h.
#include "passes/memory/pack_search.h"
#include <string.h>

enum { N_GUESSES = 8, GUESS_PART = 32 };              // of the steps at the bound, each guess has this part
static const int64_t GUESS_STEPS = 16 * 1000 * 1000; // at most

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
    hd_sections_rank(s, s->values, round % N_RANKINGS);
    s->strategy = round / N_RANKINGS % N_STRATEGIES;
    s->node_limit = r->share;
    s->steps = r->left;
    const Result found = hd_search_from(s, s->list, s->n_listed);
    r->left = s->steps;
    return found;
}

// The search that found a packing, or NULL.
static const Search *search(Rung *rungs, int n_rungs) {
    for (int turn = 0, idle = 0; idle < 2 * n_rungs; turn++) {
        Rung *r = &rungs[turn % 2 && n_rungs > 1 ? 1 + turn / 2 % (n_rungs - 1) : 0];
        const bool done = r->none || r->left <= 0;
        const Result found = done ? STOPPED : restart(r);
        if (found == FOUND) return r->search;
        if (r->search->late || (found == NONE && r == &rungs[n_rungs - 1])) return NULL;
        r->none |= found == NONE;
        idle = done ? idle + 1 : 0;
    }
    return NULL;
}

// Searches at the bound with values joined by guesses, which are often right where lives and sizes are diverse. A right
// guess leaves a small search; a wrong one costs its steps, a small part of all. True when a packing was found.
static bool search_guesses(int n, const Interval *values, int64_t bound, int64_t steps, int fewest, double until,
                           int64_t *offset) {
    const int64_t share = steps / GUESS_PART < GUESS_STEPS ? steps / GUESS_PART : GUESS_STEPS;
    bool found = false;
    for (int guess = 1; guess <= N_GUESSES && !found; guess++) {
        Arena *a = hd_arena_new();
        Fused fused;
        hd_fuse(&fused, n, values, bound, guess, a);
        Search *s = fused.n < fewest ? begin(fused.n, fused.values, a) : NULL;
        if (s) {
            Rung rung = {.search = s, .capacity = bound, .left = share, .share = 4 * (int64_t)s->n,
                         .fails = HD_NEWN(a, int64_t, s->n_sections + 1)};
            s->until = until;
            found = search(&rung, 1) != NULL;
            if (found) hd_unfuse(&fused, n, s->offset, offset);
            finish(s);
        }
        hd_arena_free(a);
    }
    return found;
}

int hd_pack_search(int n, const Interval *values, int64_t *offset, int64_t capacity, int64_t steps, double seconds) {
    const int64_t bound = hd_pack_lower_bound(n, values);
    if (bound > capacity) return 1;
    const double until = seconds > 0 ? hd_search_now() + seconds : 0;
    Arena *a = hd_arena_new();
    Fused fused;
    hd_fuse(&fused, n, values, bound, 0, a);
    Search *loose = begin(n, values, a), *tight = loose;
    if (loose && fused.n < n) tight = begin(fused.n, fused.values, a);
    Rung rungs[1 + sizeof wider / sizeof *wider] = {0};
    bool found = tight && search_guesses(n, values, bound, steps, fused.n, until, offset);
    if (tight && !found) {
        tight->until = loose->until = until;
        const Search *best = search(rungs, find_rungs(rungs, tight, loose, capacity, bound, steps, a));
        found = best != NULL;
        if (found && best == tight) hd_unfuse(&fused, n, best->offset, offset);
        else if (found) memcpy(offset, best->offset, sizeof(int64_t) * (size_t)n);
    }
    if (tight && tight != loose) finish(tight);
    if (loose) finish(loose);
    hd_arena_free(a);
    return !found;
}
