// The planner's choices: what is computed again, how many values are offloaded, and whether ranks keep rounded copies
// of weights. cut.c: least cuts; open.c: the ops that recompute may choose; fit.c, states.c, kinds.c: the choice under
// --device-memory; weights.c: copies of weights; trial.c: bytes and time of a choice. The choice stands in the
// text: `again` of ops with `chosen` of config @schedule, and `offload_values` and `weights_from` of config @schedule.
#ifndef PASSES_PLAN_CHOOSE_H
#define PASSES_PLAN_CHOOSE_H
#include "passes/analysis/recompute_costs.h"
#include "passes/plan/trial.h"

typedef struct {
    bool *again;    // by op id: the op is computed again for the backward pass
    double seconds; // that this takes
    double kept;    // bytes of the forward pass that wait for the backward pass
} Recomputed;

// The least of bytes for which no more than the part `slower` of the time of products is spent.
Recomputed hd_recompute_auto(const Costs *c, double slower);
// All such choices, from the one that spends nothing to the one that keeps the fewest bytes; returns how many. Of a
// large model with every so many prices only, down to the last.
enum { HD_RECOMPUTE_PRICES = 36 }; // from 2^46 bytes a second down, half as much each time
int hd_recompute_choices(const Costs *c, int every, Recomputed *list); // list: room for HD_RECOMPUTE_PRICES

// By op id: the ops of a module's schedule about which auto decides.
bool *hd_recompute_open(Func *f, bool dear, Arena *a);
// By op id: the number of the innermost instance of a repeated module around it; -1: none is.
int *hd_recompute_instances(const Func *f, Arena *a);

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
