// recompute auto under --device-memory: what to make again so that the plan fits, in the least time. A choice is tried:
// a copy of the module goes through all passes up to the addresses, and its step is simulated.
//
// The choices lie on a chain: what auto takes by itself; before it the least cuts that spend less time and keep more
// bytes; after it, by falling prices, those that spend more, of cheap work alone and of products and attention as well.
// Between two of them the instances of repeated modules change over one after another.
//
// - A small model: all of the chain is tried, and from auto's own on all that differ by one op from the choice that the
//   fewest others beat in bytes and seconds, again and again, as long as the work lasts. What is tried does not depend
//   on the limit, and the fastest one that fits is taken: less memory is never faster, by construction.
// - A large model: where auto's own choice does not fit, the first of the chain that does, by bisection. Where it fits,
//   those before it are tried, and the fastest that fits is taken, if need be for some of the instances: there is room
//   for what auto would give up to save memory.
// Beside that some choices are tried with offload (offload.h), which then takes as few values as fit: none that spend
// less time than auto's own, so that a plan for less memory is not faster than auto's for more. The fastest is taken.
//
// Where the schedule says `offload auto`, all is tried with it, and from the whole chain.
#include "passes/tensor/recompute.h"
#include "passes/settings.h"
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WORK = 60000, LEAST_TRIALS = 24, MOST_TRIALS = 1200, WITH_OFFLOAD = 8 }; // WORK: ops of all trials together

typedef struct {
    bool *again;
    Trial got;
    enum { TIMED, BOUNDED, PACKED } stage; // bytes are not known, are what a plan takes at least, are what it takes
    bool expanded;                         // its neighbours have been tried
} State;
typedef struct {
    Func *f;
    Arena *a;
    Trials *trials;
    int left;     // trials
    bool offload; // they are with it
    Uses uses;
    const bool *open;    // by op id: may be made again, and takes bytes or time
    const int *instance; // by op id
    int n_instances;
    Recomputed chain[2 * HD_RECOMPUTE_PRICES + 1];
    int n_chain, given; // given: auto's own choice
    VEC(State) states;
} Fit;

// Only what is read again is made again: an op that the backward pass reads, or another op that is made again.
static void strip(const Fit *t, bool *again) {
    for (const Op *o = t->f->last; o; o = o->prev) {
        bool read = false;
        for (int i = 0; again[o->id] && i < o->n_out; i++) {
            const Value *v = o->out[i];
            read |= hd_read_backward(&t->uses, v);
            for (int k = 0; k < t->uses.count[v->id]; k++) read |= again[t->uses.users[v->id][k]->id];
        }
        again[o->id] &= read;
    }
}

static int compare_costs(const void *x, const void *y) {
    const Recomputed *a = x, *b = y;
    if (a->seconds < b->seconds || a->seconds > b->seconds) return a->seconds < b->seconds ? -1 : 1;
    return a->kept < b->kept ? -1 : a->kept > b->kept;
}

static void find_chain(Fit *t, double slower) {
    const bool *cheap = hd_recompute_open(t->f, false, t->a), *dear = hd_recompute_open(t->f, true, t->a);
    const Costs costs[] = {hd_recompute_costs(t->f, cheap, false, t->a), hd_recompute_costs(t->f, dear, true, t->a)};
    Recomputed all[2 * HD_RECOMPUTE_PRICES];
    int n = 0;
    bool *open = HD_NEWN(t->a, bool, t->f->n_ops + 1);
    for (const Op *o = t->f->first; o; o = o->next)
        open[o->id] = costs[1].seconds[o->id] >= 0 && !hd_op_is(o, TRAIT_ALIAS);
    t->open = open;
    t->uses = costs[1].uses;
    for (int i = 0; i < 2; i++) n += hd_recompute_choices(&costs[i], all + n);
    qsort(all, (size_t)n, sizeof *all, compare_costs);
    const Recomputed given = hd_recompute_auto(&costs[0], slower);
    for (int i = 0; i < n && all[i].seconds < given.seconds; i++)
        if (all[i].kept > given.kept && (!t->n_chain || all[i].kept < t->chain[t->n_chain - 1].kept))
            t->chain[t->n_chain++] = all[i];
    t->given = t->n_chain;
    t->chain[t->n_chain++] = given;
    for (int i = 0; i < n; i++)
        if (all[i].kept < t->chain[t->n_chain - 1].kept) t->chain[t->n_chain++] = all[i];
}

// Choice number k of the chain: in the first instances that of one link, in all others that of the one before.
static bool *choice(const Fit *t, int k) {
    const int link = k / t->n_instances, first = k % t->n_instances;
    const Recomputed *before = &t->chain[link], *after = first ? before + 1 : before;
    bool *again = HD_NEWN(t->a, bool, t->f->n_ops + 1);
    for (const Op *o = t->f->first; o; o = o->next) {
        const bool taken = t->instance[o->id] >= 0 && t->instance[o->id] < first;
        again[o->id] = taken ? after->again[o->id] : before->again[o->id];
    }
    return again;
}

static State *pack(Fit *t, State *s) {
    if (s->stage != PACKED) s->got = hd_trial(t->trials, s->again, TRIAL_PACKED, t->offload);
    s->stage = PACKED;
    return s;
}

static State *bound(Fit *t, State *s) {
    if (s->stage == TIMED) s->got = hd_trial(t->trials, s->again, TRIAL_BOUND, t->offload), s->stage = BOUNDED;
    return s;
}

// The state of a choice; NULL: there is no work left to try it. A new one is of stage TIMED, with 0 seconds.
static State *state_of(Fit *t, bool *again) {
    strip(t, again);
    for (int i = 0; i < t->states.n; i++)
        if (!memcmp(t->states.at[i].again, again, (size_t)t->f->n_ops)) return &t->states.at[i];
    if (t->left <= 0) return NULL;
    t->left--;
    hd_push(t->a, &t->states, ((State){.again = again}));
    return &t->states.at[t->states.n - 1];
}

static State *try(Fit *t, bool *again) {
    State *s = state_of(t, again);
    return s ? bound(t, s) : NULL;
}

static bool beats(const State *x, const State *y) {
    if (x->got.bytes < 0 || y->got.bytes < 0) return y->got.bytes < 0;
    const bool no_worse = x->got.bytes <= y->got.bytes && x->got.seconds <= y->got.seconds;
    return no_worse && (x->got.bytes < y->got.bytes || x->got.seconds < y->got.seconds);
}

// Of the choices whose neighbours have not been tried the first that the fewest others beat; -1: there is none.
static int next_to_expand(const Fit *t) {
    int next = -1, fewest = 0;
    for (int i = 0; i < t->states.n; i++) {
        int better = 0;
        if (t->states.at[i].expanded || t->states.at[i].got.bytes < 0) continue;
        for (int k = 0; k < t->states.n; k++) better += beats(&t->states.at[k], &t->states.at[i]);
        if (next < 0 || better < fewest) next = i, fewest = better;
    }
    return next;
}

static void try_neighbours(Fit *t) {
    for (int i = next_to_expand(t); i >= 0 && t->left > 0; i = next_to_expand(t)) {
        t->states.at[i].expanded = true;
        for (const Op *o = t->f->first; o && t->left > 0; o = o->next) {
            if (!t->open[o->id]) continue;
            bool *again = HD_NEWN(t->a, bool, t->f->n_ops + 1);
            memcpy(again, t->states.at[i].again, sizeof(bool) * (size_t)t->f->n_ops);
            again[o->id] = !again[o->id];
            try(t, again);
        }
    }
}

static bool fits(const Trial *got, int64_t limit) { return got->bytes >= 0 && got->bytes <= limit; }

// The fastest one that fits, below so many seconds; the first of equal ones. A choice is bounded, then packed, only
// where what is known so far could make it the fastest.
static State *fastest(Fit *t, int64_t limit, double below) {
    for (;;) {
        State *best = NULL;
        for (int i = 0; i < t->states.n; i++) {
            State *s = &t->states.at[i];
            if (fits(&s->got, limit) && s->got.seconds < (best ? best->got.seconds : below)) best = s;
        }
        if (!best || best->stage == PACKED) return best;
        if (best->stage == TIMED) bound(t, best);
        else pack(t, best);
    }
}

static State *search_small(Fit *t, int from, int n, int64_t limit) {
    for (int k = from; k < n; k++) try(t, choice(t, k));
    try_neighbours(t);
    t->left += from;
    for (int k = 0; k < from; k++) try(t, choice(t, k));
    return fastest(t, limit, HUGE_VAL);
}

// The first choice of the chain from number `from` on that fits; NULL: not even the last one does.
static State *search_large(Fit *t, int from, int n, int64_t limit) {
    int few = from - 1, enough = n - 1;
    t->left = INT_MAX;
    if (!fits(&try(t, choice(t, enough))->got, limit)) return NULL;
    while (enough - few > 1) {
        const int k = few + (enough - few) / 2;
        if (fits(&try(t, choice(t, k))->got, limit)) enough = k;
        else few = k;
    }
    for (; enough < n; enough++) {
        State *s = pack(t, try(t, choice(t, enough)));
        if (fits(&s->got, limit)) return s;
    }
    return NULL;
}

// A choice takes no less time with offload than without.
static void time_without_offload(Fit *t, bool *again) {
    State *s = state_of(t, again);
    if (s->stage == TIMED) s->got.seconds = hd_trial(t->trials, s->again, TRIAL_BOUND, false).seconds;
}

// The fastest of some choices, from number `from` of the chain on, that fit with offload and take less than `below`
// seconds. An infinity: nothing fits yet, and if the last choice does not, no other does.
static State *search_with_offload(Fit *t, int from, int n, int64_t limit, double below) {
    t->offload = true;
    t->states.n = 0;
    t->left = INT_MAX;
    if (isinf(below) && !fits(&try(t, choice(t, n - 1))->got, limit)) return NULL;
    for (int k = from; k < t->given * t->n_instances; k += t->n_instances) time_without_offload(t, choice(t, k));
    from = t->given * t->n_instances;
    for (int i = 0; i <= WITH_OFFLOAD; i++)
        time_without_offload(t, choice(t, from + (int)((int64_t)(n - 1 - from) * i / WITH_OFFLOAD)));
    return fastest(t, limit, below);
}

// auto's own choice, number `given` of the chain, fits. Where the fastest before it does not, as many instances as
// possible get that one.
static State *search_before(Fit *t, int given, int64_t limit) {
    double best = t->states.at[0].got.seconds;
    int from = given;
    for (int k = given - t->n_instances; k >= 0; k -= t->n_instances) {
        const State *s = try(t, choice(t, k));
        if (s && s->got.bytes >= 0 && s->got.seconds < best) best = s->got.seconds, from = k;
    }
    search_large(t, from, given + 1, limit);
    return fastest(t, limit, HUGE_VAL);
}

// again: what is taken; NULL: what auto takes by itself. given: what that comes to, and whether it fits; got: what the
// choice comes to. Where nothing fits the choice is all there is.
typedef struct {
    const bool *again;
    Trial given, got;
    bool more, given_fits, fits, offloads; // more: again differs from what auto takes
} Found;

static void say(Module *m, const Found *found, int64_t limit) {
    const DeviceModel *device = hd_model(m);
    const Span at = hd_symbol_find(m, "schedule")->span;
    char times[120] = "";
    if (device)
        snprintf(times, sizeof times, "; predicted for %s: %.3f ms a step instead of %.3f", hd_model_name(device),
                 1e3 * found->got.seconds, 1e3 * found->given.seconds);
    hd_warning(m->cx, at, "recompute auto: to fit into %lld bytes instead of %lld, %s%s%s%s", (long long)limit,
               (long long)found->given.bytes, found->more ? "more is computed again" : "",
               found->more && found->offloads ? ", and " : "", found->offloads ? "values wait in host memory" : "",
               times);
    hd_note(m->cx, (Span){0},
            "--emit=table lists what is computed again, the bytes that it saves and the time it takes");
}

// Without offload, or with that of the schedule's list.
static State *search_as_listed(Fit *t, bool given_fits, int n, int64_t limit) {
    const int from = t->given * t->n_instances;
    if (n < t->left / 2) return search_small(t, from, n, limit);
    return given_fits ? search_before(t, from, limit) : search_large(t, from, n, limit);
}

static Found search(Module *m, Func *f, PassCx *cx, double slower, int64_t limit) {
    Fit t = {.f = f, .a = cx->scratch, .trials = hd_trials(m, cx->scratch), .n_instances = 1};
    const Attr *listed = hd_attr(hd_settings(m, "schedule"), A_OFFLOAD);
    const bool automatic = listed && listed->n && !strcmp(listed->strs[0], "auto");
    const bool may = !listed && !hd_has(hd_settings(m, "schedule"), A_NO_OFFLOAD) && hd_model(m);
    t.offload = listed != NULL;
    t.instance = hd_recompute_instances(t.f, t.a);
    for (const Op *o = t.f->first; o; o = o->next)
        if (t.instance[o->id] >= t.n_instances) t.n_instances = t.instance[o->id] + 1;
    find_chain(&t, slower);
    const int from = t.given * t.n_instances, n = (t.n_chain - 1) * t.n_instances + 1;
    const int trials = WORK / (t.f->n_ops + 1);
    t.left = trials < LEAST_TRIALS ? LEAST_TRIALS : trials < MOST_TRIALS ? trials : MOST_TRIALS;
    const State given = *pack(&t, try(&t, choice(&t, from)));
    Found found = {.given = given.got, .got = given.got, .given_fits = given.got.bytes <= limit, .fits = true};
    if (given.got.bytes >= 0) {
        const State *best = automatic ? NULL : search_as_listed(&t, found.given_fits, n, limit);
        const State as_listed = best ? *best : given;
        bool fits = best != NULL;
        if (automatic || (may && !found.given_fits)) {
            best = search_with_offload(&t, automatic ? 0 : from, n, limit, fits ? as_listed.got.seconds : HUGE_VAL);
            found.offloads = best != NULL;
        }
        const State taken = found.offloads ? *best : as_listed;
        fits |= found.offloads;
        found.fits = fits || found.given_fits;
        found.more = !fits || memcmp(taken.again, given.again, (size_t)t.f->n_ops) != 0;
        if (found.more) found.again = fits ? taken.again : choice(&t, n - 1); // all there is: the error says what lacks
        if (fits) found.got = taken.got;
    }
    hd_trials_end(t.trials);
    return found;
}

// Whether to go without rounded copies of weights, as `x` does; `y` keeps them.
static bool pays(const Found *x, const Found *y) {
    if (x->given.bytes < 0) return false;
    if (!x->fits || !y->fits) return !y->fits && (x->fits || x->given.bytes < y->given.bytes);
    return x->got.seconds < y->got.seconds ||
           (!y->given_fits && x->got.seconds <= y->got.seconds && x->given.bytes < y->given.bytes);
}

const bool *hd_recompute_fit(Module *m, PassCx *cx, double slower, int64_t limit) {
    Func *trained = NULL;
    for (Func *f = m->funcs; f; f = f->next)
        if (!f->is_kernel && hd_has_backward(f)) trained = trained ? NULL : f;
    if (!trained || m->cx->diags.errors) return NULL;
    hd_renumber(trained);
    Found found = search(m, trained, cx, slower, limit);
    if (hd_may_drop_copies(m)) {
        hd_drop_copies(m, true);
        const Found without = search(m, trained, cx, slower, limit);
        const bool needed = !found.given_fits, dropped = pays(&without, &found);
        if (dropped && needed) hd_say_dropped(m, limit, found.given.bytes - without.given.bytes);
        if (dropped) found = without;
        else hd_drop_copies(m, false);
    }
    if (!found.given_fits && found.fits) say(m, &found, limit);
    return found.again;
}
