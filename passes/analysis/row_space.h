// How the values of an op fit into the iteration space of a row kernel (ir/row_class.h, passes/fuse/fuse.c).
#ifndef PASSES_ANALYSIS_ROW_SPACE_H
#define PASSES_ANALYSIS_ROW_SPACE_H
#include "ir/row_class.h"

// The space that an op has by itself. False: row kernels cannot compute it, or not in this form.
bool hd_row_natural(const Op *o, RowSpace *s);
// Whether an op can be part of a kernel over s: in its own space, or as arithmetic on one number per row.
bool hd_row_fits(const Op *o, RowSpace s);
// Whether operand i must come from outside of the kernel: tables, indices, weights of norms, what parts are taken of.
bool hd_row_external(const Op *o, int i);
// Whether operand i is read as one number a row or as one a column. A kernel reads a value from outside in one of these
// ways; where it has as many rows as columns, the type does not say which. Tables and whole rows are neither.
typedef struct { bool row, column; } RowReads;
RowReads hd_row_reads(const Op *o, int i, RowSpace s);
// Whether a kernel that reads a value so has one way to load it.
bool hd_row_reads_agree(RowReads r, RowSpace s);
// Whether a value can only be a result of a kernel: sums over the rows, rows that are put together from parts.
bool hd_row_leaves(const Value *v);
#endif
