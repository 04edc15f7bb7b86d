// Buffers that are lent (analysis/lifetimes.h): each has one place in all functions, whose other storages go around it.
#ifndef PASSES_MEMORY_LENT_H
#define PASSES_MEMORY_LENT_H
#include "ir/ir.h"
#include "passes/pack/pack.h"

// Before anything has a place. With places to go around packings are a little higher, so where lending saves hardly
// anything, buffers are lent no more.
void hd_lend_less(Module *m, Arena *a);

// The first `n_lent` of n values are lives of buffers, one or two of each, which `of` says in order. The others have
// offsets. Gives each buffer the lowest that is free in all of its lives, and where no other buffer is. By buffer.
const int64_t *hd_place_lent(int n, int n_lent, const int *of, const Interval *values, int64_t *offset, Arena *a);
#endif
