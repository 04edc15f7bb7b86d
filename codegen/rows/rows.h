// The body of a `rows` kernel as a list of scalar nodes: how one element, one row or one column is computed. It is
// lowered from the kernel function once (lower.c). Each target prints it: loops over columns (host/rows.c), warps and
// blocks with a row in registers (cuda/rows_kernel.c).
#ifndef CODEGEN_ROWS_ROWS_H
#define CODEGEN_ROWS_ROWS_H
#include "ir/row_class.h"

typedef enum {
    NODE_LOAD,    // element of argument `arg`
    NODE_GATHER,  // element of row in[0] of the table that is argument `arg`
    NODE_EXPR,    // `text` over in[]
    NODE_PARTNER, // in[0] at the column half a head away (rotary embedding)
    NODE_TURN,    // in[0] and its partner in[1], rotated as `turn` says; in[2], where there is one: the position
    NODE_SUM,     // over the row
    NODE_MAX      // over the row
} NodeKind;

typedef struct {
    int64_t half, seq; // columns to the other half of a head; positions
    int64_t apart;     // rows of a position, one after another: its heads; 1: they are in one row
    int64_t columns;   // that turn; those after them stay
    const Attrs *rope; // of the op: its rates
    bool inverse;
    int id; // of the op
} RowTurn;

typedef struct { int64_t width, start; } RowPart; // of a row of so many columns, those from `start` on; width 0: all

// `text` of an expression is a call: plus(a, b), minus, times, fused(a, b, c) = a * b + c with one rounding where the
// target has that, /, exp, log, sqrt, the functions of the pointwise ops, and
//   $0 .. $4 operands    $r row    $c column    $n number of columns    $e `number`    $l minus infinity
//   $t the type it is computed in               $q operand 0 rounded to `stored`   $a argument `arg`, as a pointer
//   $v $j the column as the first that a thread computes together and the distance from it, which has none of its bits
typedef struct {
    NodeKind kind;
    RowClass cls;
    DType dtype;  // in which it is computed: f32, f64 or i32
    DType stored; // LOAD, GATHER: the argument's
    int phase;    // the number of row reductions, one after another, that must be finished before it is known
    int arg, n_in, in[5];
    int64_t period; // ROW_PERIODIC: rows of its type
    RowPart part;   // LOAD
    RowTurn turn;   // PARTNER, TURN
    int cost;       // operations of an element
    bool indexed;   // the text names $r or $c
    double number;
    const char *text;
} RowNode;

typedef struct {
    int node, result;
    DType dtype;
    RowClass cls;
    int64_t period;
    RowPart part; // of the result: several stores may have one
} RowStore;
typedef struct {
    int node, result;
    DType dtype;
} RowColumn; // a column sum

typedef struct {
    const Func *kernel;
    int64_t rows, cols;
    int phases;      // passes over a row: 1 + the longest chain of row reductions
    bool reciprocal; // a row is divided by one number by multiplying with its reciprocal, which differs in the last bit
    VEC(RowNode) nodes;
    VEC(RowStore) stores;
    VEC(RowColumn) columns;
} RowProgram;

RowProgram hd_rows_build(const Func *kernel, bool reciprocal, Arena *a);
// Some ops of a kernel of kind product, from `first` on, before `end`.
typedef struct {
    const Op *first, *end;
    RowSpace space;
    const Value *given; // a value of the kernel that is read like an argument, behind the last one; NULL: none is
    int n;
    const Value *const *results; // what is stored: NULL where a result is made elsewhere
} RowBody;
RowProgram hd_rows_build_body(const Func *kernel, const RowBody *body, bool reciprocal, Arena *a);
bool hd_rows_sums_columns(const Value *v); // a result of a kernel of kind rows: it is summed over the rows
extern const char hd_rows_product[], hd_rows_difference[]; // texts that a printer recognises
// The values of an element, not of a row.
static inline bool hd_rows_each(const RowNode *n) {
    return n->cls >= ROW_COLUMN || n->kind == NODE_PARTNER || n->indexed;
}
#endif
