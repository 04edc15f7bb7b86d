// The body of a `rows` kernel as a list of scalar nodes: what one element, one row or one column is made of. Built from
// the kernel function by rows.c, printed as CUDA by rows_kernel.c and what it calls.
#ifndef CODEGEN_CUDA_ROWS_H
#define CODEGEN_CUDA_ROWS_H
#include "ir/ir.h"

// How a value lies in the iteration space of rows x cols, from one value for all to one for each element.
typedef enum { CLASS_SCALAR, CLASS_ROW, CLASS_COLUMN, CLASS_PERIODIC, CLASS_FULL } RowClass;

typedef enum {
    NODE_LOAD,   // element of argument `arg`
    NODE_GATHER, // element of row in[0] of the table that is argument `arg`
    NODE_EXPR,   // `text` over in[]
    NODE_PARTNER,// in[0] at the column half a head away (rotary embedding)
    NODE_SUM,    // over the row
    NODE_MAX     // over the row
} NodeKind;

// `text` of an expression names its operands $0 .. $4, the row $r and the column $c.
typedef struct {
    NodeKind kind;
    RowClass cls;
    DType dtype;    // in which it is computed: f32, f64 or i32
    DType stored;   // LOAD, GATHER: the argument's
    int phase;      // how many row reductions, one after another, must be finished before it is known
    int arg, n_in, in[5];
    int64_t period; // CLASS_PERIODIC: rows of its type
    int64_t half;   // PARTNER: columns to the other half
    int cost;       // operations of an element
    bool indexed;   // the text names $r or $c
    const char *text;
} RowNode;

typedef struct { int node, result; DType dtype; RowClass cls; int64_t period; } RowStore;
typedef struct { int node, result; DType dtype; } RowColumn; // a column sum

typedef struct {
    const Func *kernel;
    int64_t rows, cols;
    int phases;               // passes over a row: 1 + the longest chain of row reductions
    VEC(RowNode) nodes;
    VEC(RowStore) stores;
    VEC(RowColumn) columns;
    VEC(const char *) globals; // definitions the expressions use (tables of frequencies)
} RowProgram;

RowProgram hd_rows_build(const Func *kernel, const char *name, Arena *a);
#endif
