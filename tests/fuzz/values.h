// The values that a module computes, so that it can be compared with what a pass made of it.
#ifndef TESTS_FUZZ_VALUES_H
#define TESTS_FUZZ_VALUES_H
#include "ir/ir.h"

typedef struct { int64_t n; const double *at; } Values;

// By function: is it small enough to be evaluated within milliseconds, and does no rule with a licence apply to it?
const bool *hd_values_small(const Module *m, Arena *a);
// Evaluates these functions on inputs and storage that depend on their position alone; the results, gradients and
// buffers of all. A function whose inputs do not suit an op (an index outside its table) counts for nothing.
Values hd_values(const Module *m, const bool *which, Arena *a);
bool hd_values_equal(const Values *x, const Values *y); // bit for bit, but NaN equals NaN and 0 equals -0
#endif
