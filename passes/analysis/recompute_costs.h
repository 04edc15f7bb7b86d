// The cost of computing the results of an op again for the backward pass, by the times of the device.
#ifndef PASSES_ANALYSIS_RECOMPUTE_COSTS_H
#define PASSES_ANALYSIS_RECOMPUTE_COSTS_H
#include "ir/machine/device_model.h"

typedef struct {
    const Func *f;
    const DeviceModel *model; // NULL: the times of a device like those in devices/
    Arena *a;
    Uses uses;
    const bool *storage; // by op id: its result is a parameter or an argument, if cast or reshaped
    double *seconds;     // by op id: to compute it again; < 0: it is not
    double products;     // seconds of all products
} Costs;

// `may`: by op id, the ops that recompute may choose; `dear`: even products and attention.
Costs hd_recompute_costs(const Func *f, const bool *may, bool dear, Arena *a);
// By value id: the values of the forward pass that wait for the backward pass, and their bytes. `again`: by op id, what
// is computed again; NULL: nothing is.
bool *hd_recompute_waiting(const Costs *c, const bool *again);
double hd_recompute_kept(const Costs *c, const bool *again);
bool hd_read_backward(const Uses *uses, const Value *v); // by some op of the backward pass
bool hd_recompute_possible(const Op *o); // it has no effect but its results
bool hd_recompute_cheap(const Op *o); // its time is that of its memory traffic
bool hd_has_backward(const Func *f);
#endif
