// The iteration space of a row kernel, rows x columns, and what the values of an op are in it. This is the contract of
// kernel functions (passes/fuse/fuse.c) seen from the type side.
#ifndef PASSES_FUSE_ROW_SPACE_H
#define PASSES_FUSE_ROW_SPACE_H
#include "ir/ir.h"

typedef struct { int64_t rows, cols; } RowSpace;

typedef enum {
    ROW_NONE,     // has no place in the space
    ROW_SCALAR,   // one number
    ROW_STAT,     // one number a row: [.., 1], or the last axis dropped
    ROW_COLUMN,   // one number a column: [C]
    ROW_PERIODIC, // [T, C]: row r reads row r % T
    ROW_FULL      // [.., C]
} RowClass;

RowClass hd_row_class(const Type *t, RowSpace s);
// The space that an op has by itself. false: it is no op of row kernels, or not in this form.
bool hd_row_natural(const Op *o, RowSpace *s);
// Whether an op can stand in a kernel over s: in its own space, or as arithmetic on one number a row.
bool hd_row_fits(const Op *o, RowSpace s);
// Whether operand i must come from outside of the kernel: tables, indices, weights of norms.
bool hd_row_external(const Op *o, int i);
#endif
