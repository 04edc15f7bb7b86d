// The order in which the ops of a planned function are looked at where bytes are counted. Any order will do in which
// every op comes after all that happens before it, and the order of issue is one. A capture region is issued at once,
// so what other streams do beside it is issued before or after all of it; lives counted in that order would overlap
// where none needs to. So where a function has such regions, ops of other streams count as early as they may start.
#ifndef PASSES_ANALYSIS_TIMES_H
#define PASSES_ANALYSIS_TIMES_H
#include "ir/ir.h"

// By op id: the place of the op in that order, a number of its own. The first `tail` ops come first, as they are. Needs
// dense ids and a stream for every op.
const int *hd_times(const Func *f, int tail, Arena *a);
#endif
