// Choices of recomputation and offload, and those between two of them. See fit.h.
#include "passes/plan/fit.h"
#include <string.h>

void hd_fit_strip(const Fit *t, bool *again) {
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

bool *hd_fit_copy(const Fit *t, const bool *again) {
    bool *copy = HD_NEWN(t->a, bool, t->f->n_ops + 1);
    memcpy(copy, again, sizeof(bool) * (size_t)t->f->n_ops);
    return copy;
}

Trial hd_fit_trial(Fit *t, const bool *again, int values, TrialKind kind) {
    if (again != t->begun && (!t->begun || memcmp(again, t->begun, (size_t)t->f->n_ops) != 0)) {
        t->begun = NULL;
        if (!hd_trial_begin(t->trials, again)) return (Trial){.bytes = -1};
        t->begun = again;
    }
    return hd_trial_end(t->trials, values, kind, true);
}

State *hd_fit_try(Fit *t, bool *again, int values) {
    hd_fit_strip(t, again);
    for (int i = 0; i < t->states.n; i++) {
        State *s = t->states.at[i];
        if (s->values != values || memcmp(s->again, again, (size_t)t->f->n_ops) != 0) continue;
        // Choices that another search between the two has tried count as new.
        if (t->n_listed && i >= t->n_listed && t->left-- <= 0) return NULL;
        return s;
    }
    if (t->left <= 0) return NULL;
    t->left--;
    State *s = HD_NEW(t->a, State);
    *s = (State){.again = again, .values = values, .link = -1, .floored = t->floored,
                 .got = hd_fit_trial(t, again, values, TRIAL_BRIEF)};
    s->brief = s->got.bytes;
    hd_push(t->a, &t->states, s);
    return s;
}

State *hd_fit_deepen(Fit *t, State *s) {
    if (!s || s->deep) return s;
    s->deep = true;
    if (s->got.bytes - s->got.bound <= s->got.bound / 100 || t->deep_left-- <= 0) return s;
    const Trial deep = hd_fit_trial(t, s->again, s->values, TRIAL_DEEP);
    if (deep.bytes >= 0 && deep.bytes < s->got.bytes) s->got = deep;
    return s;
}

State *hd_fit_try_link(Fit *t, int link, int values) {
    State *s = hd_fit_try(t, hd_fit_copy(t, t->chain[link].again), values);
    if (s && s->link < 0) s->link = link;
    return s;
}

// --- between two choices

enum { PARTS = 4 };

// The number of the unit in which an op changes over: an instance, or all that is in none.
static int unit_of(const Fit *t, int op) { return t->instance[op] >= 0 ? t->instance[op] : t->n_instances; }

// The first `part` quarters of the units in which two choices differ from the second, the rest from the first. If they
// differ in one unit only, of its ops.
static bool *between_sets(const Fit *t, const bool *x, const bool *y, int part) {
    bool *differs = HD_NEWN(t->a, bool, t->n_instances + 1), *mixed = hd_fit_copy(t, x);
    int units = 0, ops = 0;
    for (int i = 0; i < t->f->n_ops; i++) {
        if (x[i] == y[i]) continue;
        units += !differs[unit_of(t, i)];
        differs[unit_of(t, i)] = true;
        ops++;
    }
    if (units > 1) {
        int left = units * part / PARTS;
        for (int u = 0; u <= t->n_instances; u++)
            if (differs[u]) differs[u] = left-- > 0;
        for (int i = 0; i < t->f->n_ops; i++)
            if (differs[unit_of(t, i)]) mixed[i] = y[i];
    } else {
        for (int i = 0, left = ops * part / PARTS; i < t->f->n_ops && left > 0; i++)
            if (x[i] != y[i]) mixed[i] = y[i], left--;
    }
    return mixed;
}

static int between_values(const State *x, const State *y, int part) {
    if (x->values == y->values) return x->values;
    return x->got.values + (y->got.values - x->got.values) * part / PARTS;
}

// A way to mix two choices: how much of the recomputed and of the offloaded values comes from the second.
typedef struct { int again, values; } Mix;

static const Mix mixes[] = {{2, 2}, {0, 2}, {0, 4}, {4, 0}, {1, 1}, {3, 3}};
static const Mix same_values[] = {{2, 0}, {1, 0}, {3, 0}};
static const Mix same_again[] = {{0, 2}, {0, 1}, {0, 3}};

static State *mix(Fit *t, const State *x, const State *y, Mix way) {
    const bool links = x->link >= 0 && y->link > x->link + 1 && way.again > 0 && way.again < PARTS;
    const int values = way.values == 0 ? x->values : way.values == PARTS ? y->values : between_values(x, y, way.values);
    const int link = links ? x->link + (y->link - x->link) * way.again / PARTS : -1;
    if (links && link > x->link && link < y->link) return hd_fit_try_link(t, link, values);
    bool *again = way.again == 0       ? hd_fit_copy(t, x->again)
                  : way.again == PARTS ? hd_fit_copy(t, y->again)
                                       : between_sets(t, x->again, y->again, way.again);
    return hd_fit_try(t, again, values);
}

static Plan plan_of(const State *s) {
    return s ? (Plan){.bytes = s->got.bytes, .cost = s->got.seconds, .what = s} : (Plan){.bytes = -1};
}

static bool try_between(void *data, const Plan *more, const Plan *less, int which, Plan *got) {
    Fit *t = data;
    const State *x = more->what, *y = less->what;
    const bool again = !memcmp(x->again, y->again, (size_t)t->f->n_ops), values = x->values == y->values;
    const Mix *ways = again ? same_again : values ? same_values : mixes;
    const int n = again || values ? (int)(sizeof same_again / sizeof *same_again) : (int)(sizeof mixes / sizeof *mixes);
    if ((again && values) || which >= n || t->left <= 0) return false;
    *got = plan_of(hd_fit_deepen(t, mix(t, x, y, ways[which])));
    return true;
}

State *hd_fit_between(Fit *t, State *more, State *less, int64_t limit) {
    const Narrow narrow = {.limit = limit, .data = t, .between = try_between};
    const Plan found = hd_narrow(&narrow, plan_of(more), plan_of(less));
    for (int i = 0; i < t->states.n; i++)
        if (t->states.at[i] == found.what) return t->states.at[i];
    return less;
}
