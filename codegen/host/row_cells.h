// A row kernel as cells: what one row computes, split into passes over its columns. row_cells.c makes a cell of each
// node of the kernel, row_passes.c decides passes and which values must be kept for the whole row, rows.c prints.
#ifndef CODEGEN_HOST_ROW_CELLS_H
#define CODEGEN_HOST_ROW_CELLS_H
#include "codegen/host/host.h"
#include "codegen/rows/rows.h"

typedef enum {
    CELL_NARROW, // one value a row (or for all rows)
    CELL_WIDE,   // one value a column
    CELL_LOAD,   // wide, read from memory: cheap to repeat, so it is never kept only for a later pass
    CELL_ROW     // wide, made as a whole row by a statement that reads whole rows
} CellKind;

enum { CELL_MAX_IN = 5 };
typedef struct Cell {
    CellKind kind;
    DType type;       // TY_F32, TY_F64 or TY_I32: what it is computed in
    const char *text; // C with $0, $1, ...: operands; $$: the cell's own row; c and r are column and row
    int n_in, in[CELL_MAX_IN];
    unsigned whole; // bit i: operand i is the row as a pointer, not its value at c
    int pass;       // the pass that computes it; narrow: it is known before that pass begins
    bool kept;      // its row is stored in a buffer
    bool used;
} Cell;

typedef struct RowKernel {
    Emit *e;
    const RowProgram *p;
    VEC(Cell) cells;
    VEC(const char *) setup; // statements before the rows
    int n_passes;
} RowKernel;

void hd_row_cells(RowKernel *rk);
void hd_row_passes(RowKernel *rk);
#endif
