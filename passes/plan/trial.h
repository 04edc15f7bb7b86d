// The bytes and time of a plan on trial: the passes that follow run on a copy of the module, which nothing else sees.
#ifndef PASSES_PLAN_TRIAL_H
#define PASSES_PLAN_TRIAL_H
#include "passes/pass.h"

typedef struct Trials Trials;
// The outcome of a choice: the bytes of device memory that plan-memory gives the plan, the predicted seconds of a step,
// and how many values are offloaded. bound: no packing takes fewer bytes. bytes < 0: some pass reports errors.
typedef struct { int64_t bytes, bound; double seconds; int values; } Trial;
// The effort of packing, in the numbers of pack.h; whole: as in the plan.
typedef enum { TRIAL_WHOLE, TRIAL_BRIEF, TRIAL_DEEP } TrialKind;
// Values in host memory: a number of the best, as many as copies hide, all, or what the schedule lists.
enum { HD_HIDDEN = -1, HD_AS_LISTED = -2, HD_ALL = INT32_MAX };

// Of a module before `recompute`, or before `offload`. `a` outlives the trials.
Trials *hd_trials(const Module *m, Arena *a);
void hd_trials_end(Trials *t);
// From `recompute` up to `select`, on a copy that later trials share. `again`: what is recomputed, by op id of the
// function that has a backward pass; NULL: what the schedule lists. false: errors
bool hd_trial_begin(Trials *t, const bool *again);
// From `offload` on. `timed`: with the seconds of a step.
Trial hd_trial_end(Trials *t, int values, TrialKind kind, bool timed);
Trial hd_trial(Trials *t, const bool *again, int values, TrialKind kind); // both, timed

// Writes into the text that these ops of a function are computed again.
void hd_mark_again(Func *f, const bool *again);
#endif
