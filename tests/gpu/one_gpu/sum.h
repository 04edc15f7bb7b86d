// The arithmetic of a reduce-scatter as NCCL does it, for the stand-ins that tests use instead.
#ifndef TESTS_GPU_ONE_GPU_SUM_H
#define TESTS_GPU_ONE_GPU_SUM_H
#include "runtime/cuda/api.h"
#include "runtime/heddle.h"

bool nccl_dtype(NcType type, HdDtype *dt); // false: not one that the runtime uses
bool nccl_sums(HdDtype dt);                // dtypes that are added up

// to = the sum of what the ranks bring, ((owner+1) + (owner+2)) + ... + owner, rounded to dt after each addition. What
// rank i brings begins at from + i stride bytes.
void sum_in_order(HdDtype dt, const void *from, size_t stride, int ranks, int owner, size_t count, void *to);
#endif
