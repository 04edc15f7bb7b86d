// Questions that others ask the pass `tensor-parallel`.
#ifndef PASSES_TENSOR_TENSOR_PARALLEL_H
#define PASSES_TENSOR_TENSOR_PARALLEL_H
#include "ir/ir.h"

bool hd_is_partitioned(const Module *m); // some parameter is split over an axis: ranks hold parts of values
#endif
