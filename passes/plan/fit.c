// recompute auto under --device-memory: what to recompute, and how many values to offload, so that the plan
// fits, in the least time. A choice is tried: a copy of the module goes through all passes up to the addresses, and its
// step is simulated.
//
// A list of choices is tried, whatever the limit is. It comes from a chain: what auto takes by itself; before
// it the least cuts that spend less time and keep more bytes; after it, by falling prices, those that spend more, of
// cheap work alone and of products and attention as well.
//
// - Without offload, or with that of the schedule's list: of a small model all of the chain, and choices that differ by
//   one op from the one that the fewest others beat in bytes and seconds, again and again, as long as the work lasts.
//   Of a large model some links of the chain.
// - Where auto's own choice does not fit: some links from auto's own on with as many values offloaded as copies hide,
//   with all, and with parts of all; and choices by kinds of places near those with the fewest bytes
//   (kinds.c). None of those that are faster than what fits into the memory of auto's own choice is taken,
//   so that a plan for less memory is not faster than one for more.
//
// Of a large model fewer are tried, and a warning says so.
//
// Of the list the fastest that fits is taken. Then choices between that and its neighbour that does not fit are tried
// (narrow.h). So less memory is never faster, and a plan is found under each limit down to its own bytes.
//
// Where the schedule says `offload auto`, all is tried with it, and from the whole chain.
#include "passes/plan/fit.h"
#include "passes/analysis/units.h"
#include "passes/settings.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WORK = 60000, LEAST_TRIALS = 24, MOST_TRIALS = 1200 }; // of a small model; WORK: ops of all trials together
enum { MOST_DEEP = 200 };

// How many choices are tried. The larger the model, the longer each trial takes.
typedef struct {
    int most_ops;
    int prices;        // one of so many makes a link of the chain
    int before, after; // links before auto's own choice and after it
    int mixed, parts;  // with offload: choices between links, and parts of all values
    int between;       // two others, in each family
    int kinds;         // of places
    int families;
    bool links;             // with a family each
    const char *left_out; // of what a smaller model has; NULL: nothing
} Effort;
static const Effort efforts[] = {
    {1000, 1, 4, 8, 8, 8, 40, 100, 3, true, NULL},
    {2500, 1, 4, 8, 0, 2, 40, 50, 3, true, NULL},
    {8000, 1, 2, 4, 0, 1, 8, 16, 2, false, "most places one by one, and most numbers of offloaded values"},
    {INT32_MAX, 5, 1, 1, 0, 1, 4, 0, 1, false,
     "places one by one, most numbers of offloaded values, and all but three steps of recomputation"}};

static const Effort *effort_of(const Func *f) {
    const Effort *e = efforts;
    while (f->n_ops > e->most_ops) e++;
    return e;
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
    for (int i = 0; i < 2; i++) n += hd_recompute_choices(&costs[i], effort_of(t->f)->prices, all + n);
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

// --- the list

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

static bool beats(const State *x, const State *y) {
    if (x->got.bytes < 0 || y->got.bytes < 0) return y->got.bytes < 0;
    const bool no_worse = x->got.bound <= y->got.bound && x->got.seconds <= y->got.seconds;
    return no_worse && (x->got.bound < y->got.bound || x->got.seconds < y->got.seconds);
}

// Of the choices whose neighbours have not been tried the first that the fewest others beat; NULL: there is none.
static State *next_to_expand(const Fit *t) {
    State *next = NULL;
    int fewest = 0;
    for (int i = 0; i < t->states.n; i++) {
        State *s = t->states.at[i];
        int better = 0;
        if (s->expanded || s->got.bytes < 0) continue;
        for (int k = 0; k < t->states.n; k++) better += beats(t->states.at[k], s);
        if (!next || better < fewest) next = s, fewest = better;
    }
    return next;
}

static void try_neighbours(Fit *t, int values) {
    for (State *s = next_to_expand(t); s && t->left > 0; s = next_to_expand(t)) {
        s->expanded = true;
        for (const Op *o = t->f->first; o && t->left > 0; o = o->next) {
            if (!t->open[o->id]) continue;
            bool *again = hd_fit_copy(t, s->again);
            again[o->id] = !again[o->id];
            hd_fit_try(t, again, values);
        }
    }
}

// All of a small model's chain, and what is near it.
static void try_small(Fit *t, int n, int values) {
    const int from = t->given * t->n_instances;
    for (int k = from; k < n; k++) hd_fit_try(t, choice(t, k), values);
    try_neighbours(t, values);
    t->left += from;
    for (int k = 0; k < from; k++) hd_fit_try(t, choice(t, k), values);
}

// So many links of the chain, from one to another, up or down, with both.
static void try_links(Fit *t, int from, int to, int n, void (*try)(Fit *t, int link, int values), int values) {
    t->left = INT32_MAX;
    const int low = from < to ? from : to, links = abs(to - from);
    if (n > links) n = links;
    for (int i = 0; i <= n; i++) {
        const int k = from <= to ? i : n - i;
        try(t, low + (n ? (int)((int64_t)links * k / n) : 0), values);
    }
}

static void try_link(Fit *t, int link, int values) { hd_fit_try_link(t, link, values); }

static void try_parts(Fit *t, const bool *again, int all) {
    const int parts = effort_of(t->f)->parts;
    for (int i = 1, last = 0; i < parts; i++) {
        const int some = (int)((int64_t)all * i / parts);
        if (some > last) hd_fit_try(t, hd_fit_copy(t, again), some);
        last = some;
    }
}

// A link with `values` offloaded, with all, and with parts of all.
static void try_hosted(Fit *t, int link, int values) {
    hd_fit_try_link(t, link, values);
    const State *all = hd_fit_try_link(t, link, HD_ALL);
    try_parts(t, all->again, all->got.values);
}

// So many choices between links, likewise: some instances are like one link, the others like the one before.
static void try_mixed(Fit *t, int from, int n) {
    const int last = (t->n_chain - 1) * t->n_instances;
    from *= t->n_instances;
    for (int i = 1; i < n; i++) {
        bool *again = choice(t, from + (int)((int64_t)(last - from) * i / n));
        hd_fit_try(t, again, HD_HIDDEN);
        const State *all = hd_fit_try(t, hd_fit_copy(t, again), HD_ALL);
        try_parts(t, again, all->got.values);
    }
}

// How the schedule offloads values: `values` without further choice; `may`: as many as are good;
// `automatic`: it says so.
typedef struct { int values; bool may, automatic; } Hosting;

static Hosting hosting_of(const Module *m) {
    const Attr *listed = hd_attr(hd_settings(m, "schedule"), A_OFFLOAD);
    const bool automatic = listed && listed->n && !strcmp(listed->strs[0], "auto");
    const bool forbidden = hd_has(hd_settings(m, "schedule"), A_NO_OFFLOAD) || !hd_model(m);
    const int values = automatic ? HD_HIDDEN : listed ? HD_AS_LISTED : 0;
    return (Hosting){values, automatic || (!listed && !forbidden), automatic};
}

// --- the choice

// Choices of one family: all, or those of so many values, or those that recompute the same. `floor`: those with
// offload take no fewer seconds.
typedef struct { enum { ANY, SAME_VALUES, SAME_AGAIN } of; const State *like; int values; double floor; } Family;

static bool belongs(const Fit *t, const State *s, Family f) {
    if (s->got.bytes < 0 || (s->floored && s->got.seconds < f.floor)) return false;
    if (f.of == SAME_VALUES) return s->values == f.values;
    return f.of == ANY || !memcmp(s->again, f.like->again, (size_t)t->f->n_ops);
}

static bool is_faster(const State *x, const State *y) {
    return x->got.seconds < y->got.seconds || (x->got.seconds <= y->got.seconds && x->got.bytes < y->got.bytes);
}

static int64_t least_bytes(const State *s) { return s->deep ? s->got.bytes : s->got.bound; }

// Of the list the fastest that fits. A choice is packed more only where it may be that.
static State *fastest(Fit *t, int64_t limit, Family f) {
    for (;;) {
        State *best = NULL;
        for (int i = 0; i < t->n_listed; i++) {
            State *s = t->states.at[i];
            if (belongs(t, s, f) && least_bytes(s) <= limit && (!best || is_faster(s, best))) best = s;
        }
        if (!best || best->deep) return best;
        hd_fit_deepen(t, best);
    }
}

// Of the list that which has the fewest bytes of those that do not fit and are faster than `best`.
static State *neighbour(Fit *t, int64_t limit, Family f, const State *best) {
    for (;;) {
        State *next = NULL;
        for (int i = 0; i < t->n_listed; i++) {
            State *s = t->states.at[i];
            const bool fits = s->deep && s->got.bytes <= limit;
            if (!belongs(t, s, f) || fits || s->got.seconds >= best->got.seconds) continue;
            const int64_t bytes = least_bytes(s), fewest = next ? least_bytes(next) : INT64_MAX;
            if (bytes < fewest || (bytes == fewest && is_faster(s, next))) next = s;
        }
        if (!next || next->deep) return next;
        hd_fit_deepen(t, next);
    }
}

static State *best_of(Fit *t, int64_t limit, Family f) {
    State *best = fastest(t, limit, f), *next = best ? neighbour(t, limit, f, best) : NULL;
    t->left = effort_of(t->f)->between;
    return next ? hd_fit_between(t, next, best, limit) : best;
}

// The best of several families: of each less memory is never faster, and so it is of all. More values in host memory
// take no less time, so some links of the chain need no family.
static State *best_within(Fit *t, int64_t limit, Hosting h, double floor) {
    const Family families[] = {{.floor = floor}, {SAME_VALUES, .values = h.values},
                               {SAME_VALUES, .values = HD_HIDDEN, .floor = floor}};
    State *best = NULL;
    t->n_listed = t->states.n;
    for (int i = 0; i < effort_of(t->f)->families; i++) {
        State *s = best_of(t, limit, families[i]);
        if (s && (!best || is_faster(s, best))) best = s;
    }
    for (int i = 0; i < t->n_listed && h.may && effort_of(t->f)->links; i++) {
        const State *like = t->states.at[i];
        if (like->values || like->link < 0 || like->got.bytes <= limit) continue;
        if (best && like->got.seconds >= best->got.seconds) continue;
        State *s = best_of(t, limit, (Family){SAME_AGAIN, .like = like, .floor = floor});
        if (s && (!best || is_faster(s, best))) best = s;
    }
    t->n_listed = 0;
    return best;
}

// again, values: what is taken; NULL: what auto takes by itself. given: what that comes to, and whether it fits; got:
// what the choice comes to. Where nothing fits the choice is the least plan that was tried.
typedef struct {
    const bool *again;
    int values;
    Trial given, got;
    bool more, given_fits, fits, offloads; // more: again differs from what auto takes
    int tried;                             // choices
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
               found->more && found->offloads ? ", and " : "", found->offloads ? "values are offloaded" : "",
               times);
    hd_note(m->cx, (Span){0},
            "--emit=table lists what is computed again, the bytes that it saves and the time it takes");
    hd_note_units(m, found->given.bytes);
}

// auto's own choice is packed as a plan is, if need be: without a limit it is taken as it is.
static bool given_fits(Fit *t, State *given, int64_t limit) {
    if (given->got.bytes > limit) {
        const Trial whole = hd_fit_trial(t, given->again, given->values, TRIAL_WHOLE);
        if (whole.bytes >= 0 && whole.bytes < given->got.bytes) given->got = whole;
        given->deep = true;
    }
    return given->got.bytes <= limit;
}

// From auto's own choice on; where the schedule says `offload auto`, from the whole chain.
static void try_offload(Fit *t, bool automatic) {
    const Effort *e = effort_of(t->f);
    const int values = automatic ? 0 : HD_HIDDEN;
    if (automatic && t->given) try_links(t, 0, t->given, e->before, try_hosted, values);
    try_links(t, t->n_chain - 1, t->given, e->after, try_hosted, values); // the last link was tried last
    try_mixed(t, t->given, e->mixed);
}

static State *search_list(Fit *t, State *given, Hosting h, bool fits, int64_t limit) {
    const int n = (t->n_chain - 1) * t->n_instances + 1;
    double floor = 0;
    if (n < t->left / 2) {
        try_small(t, n, h.values);
    } else {
        try_links(t, 0, t->given, effort_of(t->f)->before, try_link, h.values);
        try_links(t, t->given, t->n_chain - 1, effort_of(t->f)->after, try_link, h.values);
    }
    if (h.automatic) try_offload(t, true);
    t->n_listed = t->states.n;
    if (!fits) floor = fastest(t, given->got.bytes, (Family){.of = ANY})->got.seconds;
    t->n_listed = 0;
    t->floored = true;
    if (h.may && !h.automatic && !fits) try_offload(t, false);
    if (!fits) hd_fit_try_kinds(t, effort_of(t->f)->kinds, h.may);
    State *best = best_within(t, limit, h, floor);
    return best ? best : fits ? given : hd_fit_deepen(t, hd_fit_least(t));
}

static Found search(Module *m, Func *f, PassCx *cx, double slower, int64_t limit) {
    Fit t = {.f = f, .a = cx->scratch, .trials = hd_trials(m, cx->scratch), .n_instances = 1};
    const Hosting h = hosting_of(m);
    t.instance = hd_recompute_instances(t.f, t.a);
    for (const Op *o = t.f->first; o; o = o->next)
        if (t.instance[o->id] >= t.n_instances) t.n_instances = t.instance[o->id] + 1;
    find_chain(&t, slower);
    const int trials = WORK / (t.f->n_ops + 1);
    t.deep_left = MOST_DEEP;
    t.left = trials < LEAST_TRIALS ? LEAST_TRIALS : trials < MOST_TRIALS ? trials : MOST_TRIALS;
    State *given = hd_fit_try_link(&t, t.given, h.values);
    Found found = {.given = given->got, .got = given->got, .values = given->values};
    if (given->got.bytes >= 0) {
        found.given_fits = given_fits(&t, given, limit);
        found.given = given->got;
        const State *best = search_list(&t, given, h, found.given_fits, limit);
        found.got = best->got;
        found.values = best->values;
        found.fits = found.got.bytes <= limit;
        found.tried = t.states.n;
        found.offloads = best->got.values > 0 && h.may;
        found.more = memcmp(best->again, given->again, (size_t)t.f->n_ops) != 0;
        if (found.more) found.again = best->again;
    }
    hd_trials_end(t.trials);
    return found;
}

// A large model: what was not tried.
static void say_left_out(Module *m, const Func *f, const Found *found, int64_t limit) {
    const Effort *e = effort_of(f);
    if (!e->left_out || found->given_fits || found->given.bytes < 0) return;
    const Span at = hd_symbol_find(m, "schedule")->span;
    hd_warning(m->cx, at,
               "recompute auto: the search for a plan of at most %lld bytes stopped after %d plans, since the model "
               "has %d ops; not tried: %s", (long long)limit, found->tried, f->n_ops, e->left_out);
    hd_note(m->cx, (Span){0}, "schedule.recompute and schedule.offload with lists of places choose what was not tried");
}

// Whether to go without rounded copies of weights, as `x` does; `y` keeps them.
static bool pays(const Found *x, const Found *y) {
    if (x->given.bytes < 0) return false;
    if (!x->fits || !y->fits) return !y->fits && (x->fits || x->given.bytes < y->given.bytes);
    return x->got.seconds < y->got.seconds ||
           (!y->given_fits && x->got.seconds <= y->got.seconds && x->given.bytes < y->given.bytes);
}

// Facts that the passes that follow need.
static void decide(Module *m, const Found *found, int64_t limit) {
    const bool as_given = found->given_fits && !found->more && !found->values;
    if (found->given.bytes < 0 || as_given) return;
    if (found->values != HD_AS_LISTED)
        hd_set_int(m->cx, &hd_symbol_find(m, "schedule")->attrs, A_OFFLOAD_VALUES, found->values);
    if (found->got.bytes > limit)
        hd_set_int(m->cx, &hd_symbol_find(m, "target")->attrs, A_LEAST_BYTES, found->got.bytes);
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
    say_left_out(m, trained, &found, limit);
    decide(m, &found, limit);
    return found.again;
}
