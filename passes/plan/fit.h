// Declarations for recompute auto under a limit of memory. fit.c: which choices are tried, and the one
// that is taken; states.c: what a choice comes to, and choices between two others;
// kinds.c: choices by kinds of places.
#ifndef PASSES_PLAN_FIT_H
#define PASSES_PLAN_FIT_H
#include "passes/plan/choose.h"
#include "passes/plan/narrow.h"

// A choice: what is recomputed, and how many values are offloaded.
typedef struct {
    bool *again;
    int values;    // a number, HD_HIDDEN, HD_ALL or HD_AS_LISTED
    int link;      // of the chain; -1: none
    Trial got;
    int64_t brief;    // the bytes of a brief packing; got: also of a deeper one, once it was tried
    bool deep;        // it was
    bool expanded;    // its neighbours have been tried
    bool turned;      // and those by kinds of places
    bool floored;     // tried only since auto's own choice does not fit: is not to be faster than what fits there
} State;
typedef VEC(State *) States;
typedef struct {
    Func *f;
    Arena *a;
    Trials *trials;
    const bool *begun; // the choice with which the trials began
    int left;          // trials
    int deep_left;     // trials with a deeper packing
    Uses uses;
    const bool *open;    // by op id: recompute may choose it, and it takes bytes or time
    const int *instance; // by op id
    int n_instances;
    Recomputed chain[2 * HD_RECOMPUTE_PRICES + 1];
    int n_chain, given;  // given: auto's own choice
    States states;
    bool floored;        // what is tried now
    int n_listed;        // the first of the states: those that do not depend on the limit; 0: all
} Fit;

// An op is recomputed only if the backward pass or another recomputed op reads its result.
void hd_fit_strip(const Fit *t, bool *again);
// The outcome of a choice. Choices that differ only in the offloaded values share the passes before that.
Trial hd_fit_trial(Fit *t, const bool *again, int values, TrialKind kind);
// The state of a choice, tried; NULL: it is new, and there is no work left.
State *hd_fit_try(Fit *t, bool *again, int values);
// Packs it more, where that may help.
State *hd_fit_deepen(Fit *t, State *s);
State *hd_fit_try_link(Fit *t, int link, int values);
bool *hd_fit_copy(const Fit *t, const bool *again);
// Of all that were tried the one with the fewest bytes.
State *hd_fit_least(const Fit *t);
// So many choices by kinds of places, near those with the fewest bytes; `offload`: with all values as well.
void hd_fit_try_kinds(Fit *t, int trials, bool offload);
// A plan that fits and takes less time than `less`, between two choices of the list.
State *hd_fit_between(Fit *t, State *more, State *less, int64_t limit);
#endif
