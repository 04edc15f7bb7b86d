// The cost of an op by its shapes alone: floating-point operations, and the bytes that must move between memory and the
// processor when nothing is read twice. Reports, profiles and traces show it; no pass decides by it yet.
#ifndef IR_MACHINE_COST_H
#define IR_MACHINE_COST_H
#include "ir/ir.h"

void hd_cost(const Op *o, double *flops, double *bytes);
// The sum over all ops of a function.
void hd_cost_of_func(const Func *f, double *flops, double *bytes);
#endif
