// What a plan would take: the passes that follow run on a copy of the module, which nothing else sees.
#ifndef PASSES_MEMORY_TRIAL_H
#define PASSES_MEMORY_TRIAL_H
#include "passes/pass.h"

typedef struct Trials Trials;

// `a` outlives the trials.
Trials *hd_trials(const Module *m, Arena *a);
// A copy of the module, in a context of its own: nobody reads the errors of passes on it. Passes that several trials
// share run on it. The next call frees it.
Module *hd_trial_first(Trials *t);
// A copy of that, or of the module where there is none. The next call frees it.
Module *hd_trial_copy(Trials *t);
void hd_trials_end(Trials *t);

// Bytes of device memory that plan-memory gives a plan with events; -1: none, after an error. The module is for nothing
// else after it.
int64_t hd_trial_bytes(Module *m, PassCx *cx);
#endif
