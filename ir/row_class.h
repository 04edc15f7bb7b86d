// The iteration space of a row kernel, rows x columns, and how often a value of some type occurs in it: the contract of
// kernel functions in terms of types. Fusion, the proof of a plan and the code generators read it.
#ifndef IR_ROW_CLASS_H
#define IR_ROW_CLASS_H
#include "ir/ir.h"

typedef struct { int64_t rows, cols; } RowSpace;

typedef enum {
    ROW_NONE = -1, // does not fit into the space
    ROW_SCALAR,    // one number
    ROW_STAT,      // one number a row: [.., 1], or the last axis dropped
    ROW_COLUMN,    // one number a column: [C]
    ROW_PERIODIC,  // [T, C]: row r reads row r % T
    ROW_FULL       // [.., C]
} RowClass; // in order: what is computed of two values has the later class, or is full

RowClass hd_row_class(const Type *t, RowSpace s);
#endif
