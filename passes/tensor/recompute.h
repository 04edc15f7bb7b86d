// The values that `recompute auto` chooses. recompute.c: the pass; recompute_auto.c: least cuts; recompute_open.c: the
// ops that recompute may choose; recompute_fit.c, recompute_states.c, recompute_kinds.c: the choice under
// --device-memory; recompute_weights.c: whether ranks then keep copies of gathered weights; recompute_try.c: bytes and
// time of a choice; recompute_rows.c: recomputed values, for the report; recompute_effect.c: places without effect.
#ifndef PASSES_TENSOR_RECOMPUTE_H
#define PASSES_TENSOR_RECOMPUTE_H
#include "passes/memory/trial.h"
#include "ir/machine/device_model.h"

// What it costs to make the results of an op again, by the times of the device.
typedef struct {
    const Func *f;
    const DeviceModel *model; // NULL: the times of a device like those in devices/
    Arena *a;
    Uses uses;
    const bool *storage; // by op id: its result is a parameter or an argument, if cast or reshaped
    double *seconds;     // by op id: to compute it again; < 0: it is not
    double products;     // seconds of all products
} Costs;
typedef struct {
    bool *again;    // by op id: the op is computed again for the backward pass
    double seconds; // that this takes
    double kept;    // bytes of the forward pass that wait for the backward pass
} Recomputed;

// `may`: by op id, the ops that recompute may choose; `dear`: even products and attention.
Costs hd_recompute_costs(const Func *f, const bool *may, bool dear, Arena *a);
// The least of bytes for which no more than the part `slower` of the time of products is spent.
Recomputed hd_recompute_auto(const Costs *c, double slower);
// All such choices, from the one that spends nothing to the one that keeps the fewest bytes; returns how many. Of a
// large model with every so many prices only, down to the last.
enum { HD_RECOMPUTE_PRICES = 36 }; // from 2^46 bytes a second down, half as much each time
int hd_recompute_choices(const Costs *c, int every, Recomputed *list); // list: room for HD_RECOMPUTE_PRICES
// By value id: the values of the forward pass that wait for the backward pass, and their bytes.
bool *hd_recompute_waiting(const Costs *c, const bool *again);
double hd_recompute_kept(const Costs *c, const bool *again); // NULL: nothing is recomputed
bool hd_read_backward(const Uses *uses, const Value *v); // by some op of the backward pass

// Declares the recomputed values, for the report: `copied`, by op id. `c`: of all ops, before any was copied.
void hd_recompute_declare(Module *m, const Costs *c, const bool *copied);

// Warns of places that change nothing: of `recompute` after it, and of `keep`; `chosen`: there is a limit of memory.
void hd_recompute_effect(Module *m, Arena *a);
void hd_keep_effect(Module *m, bool chosen, Arena *a);

bool hd_recompute_cheap(const Op *o); // its time is that of its memory traffic
bool hd_has_backward(const Func *f);
// By op id: the ops of a module's schedule about which auto decides.
bool *hd_recompute_open(Func *f, bool dear, Arena *a);
// By op id: the number of the innermost instance of a repeated module around it; -1: none is.
int *hd_recompute_instances(const Func *f, Arena *a);

// What the pass does: makes again what the schedule lists, what auto takes, or, where `again` is given, these ops of
// the function that has a backward pass.
typedef struct { bool automatic; double slower; const bool *again; } Again;
Change hd_recompute_module(Module *m, PassCx *cx, Again what);

// What a choice comes to: the bytes of device memory that plan-memory gives the plan, the predicted seconds of a step,
// and how many values are offloaded. bound: no packing takes fewer bytes. bytes < 0: some pass reports errors.
typedef struct { int64_t bytes, bound; double seconds; int values; } Trial;
// The effort of packing, in the numbers of pack.h; whole: as in the plan.
typedef enum { TRIAL_WHOLE, TRIAL_BRIEF, TRIAL_DEEP } TrialKind;
// Values in host memory: a number of the best, as many as copies hide, all, or what the schedule lists.
enum { HD_HIDDEN = -1, HD_AS_LISTED = -2, HD_ALL = INT32_MAX };
bool hd_trial_begin(Trials *t, const bool *again); // again NULL: what the schedule lists; false: errors
Trial hd_trial_end(Trials *t, int values, TrialKind kind);
Trial hd_trial(Trials *t, const bool *again, int values, TrialKind kind); // both
// Chooses the values to recompute so that the plan fits into `limit` bytes of device memory in the least time, how many
// values are offloaded (`offload_values` in config @schedule), and with `weights = auto` whether ranks keep
// rounded copies. NULL: what auto takes by itself, or nothing is to be chosen. Less memory is never faster, and what is
// found under a limit is found under each one down to its own bytes.
const bool *hd_recompute_fit(Module *m, PassCx *cx, double slower, int64_t limit);
// The same for a schedule that lists places to recompute, or nothing; whether that changes the module.
bool hd_weights_fit(Module *m, PassCx *cx, int64_t limit);
bool hd_may_drop_copies(const Module *m);        // `weights = auto`, and there are copies
void hd_drop_copies(Module *m, bool drop);       // config @schedule keeps them not, or as auto does
void hd_say_dropped(Module *m, int64_t limit, int64_t saved);
#endif
