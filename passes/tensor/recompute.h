// Which values `recompute auto` makes again.
#ifndef PASSES_TENSOR_RECOMPUTE_H
#define PASSES_TENSOR_RECOMPUTE_H
#include "passes/pass.h"

typedef struct {
    bool *again;                // by op id: the op is computed again for the backward pass
    double saved, seconds, all; // bytes that are kept less; seconds that this takes, and those of products
} Recomputed;

// What auto may spend: the part of the time of products, by the times of the device; `any`: also on products and
// attention, not on cheap work alone, in the first `first` instances of repeated modules; 0: everywhere.
typedef struct { double slower; bool any; int first; } Budget;

// `may`: by op id, the ops that no list of the schedule speaks of.
bool hd_recompute_cheap(const Op *o); // its time is that of its memory traffic
Recomputed hd_recompute_auto(const Func *f, const bool *may, Budget budget, Arena *a);
// The least budget, from the schedule's upwards, with which the plan fits into `limit` bytes of device memory, by trial
// of all passes up to the addresses; the schedule's where none does. Less memory never gives a smaller one.
Budget hd_recompute_fit(const Module *m, Budget given, int64_t limit);
Change hd_recompute_module(Module *m, PassCx *cx, Budget budget); // slower < 0: what the schedule lists
#endif
