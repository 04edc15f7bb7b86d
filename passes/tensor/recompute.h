// Which values `recompute auto` makes again.
#ifndef PASSES_TENSOR_RECOMPUTE_H
#define PASSES_TENSOR_RECOMPUTE_H
#include "passes/pass.h"

typedef struct {
    bool *again;                // by op id: the op is computed again for the backward pass
    double saved, seconds, all; // bytes that are kept less; seconds that this takes, and those of products
} Recomputed;

// `may`: by op id, the ops that no list of the schedule speaks of. `slower`: the part of the time of products, by the
// times of the device, that recomputation may take.
Recomputed hd_recompute_auto(const Func *f, const bool *may, double slower, Arena *a);
#endif
