// How a `rows` kernel is spread over threads.
#ifndef CODEGEN_CUDA_ROWS_SHAPE_H
#define CODEGEN_CUDA_ROWS_SHAPE_H
#include "codegen/rows/rows.h"

typedef enum {
    SHAPE_LINEAR, // pointwise over all elements, whatever their row
    SHAPE_FLAT,   // pointwise, a vector of one row a thread; of several heads where it rotates
    SHAPE_SLAB,   // column sums without row reductions: a block has a run of rows of a few columns
    SHAPE_ROW     // row reductions: a warp or a block has a whole row in registers
} ShapeKind;

typedef struct {
    ShapeKind kind;
    int vec;    // elements a thread moves at once
    int lanes;  // threads that share a row
    int items;  // vectors of a thread in a row
    int64_t stride; // SHAPE_FLAT with several of them: columns of a head; they are at the same place of both halves of
                    // items / 2 heads
    int groups; // rows that a block works on at once
    int run;    // column sums: consecutive rows of a block (hd_partial_rows)
    int unroll; // rows whose loads a thread issues together
    int ahead;  // rows on their way into shared memory while one is worked on
    bool stream; // rows too long for registers: every pass reads them again
    int threads, min_blocks;
    int64_t gx, gy;
    bool ragged_cols, ragged_rows; // the last vector or row may be outside
} RowShape;

RowShape hd_rows_shape(const RowProgram *p, int widest);
RowShape hd_rows_block_shape(const RowProgram *p, int widest); // one row, by the 256 threads of a block
void hd_rows_occupancy(const RowProgram *p, RowShape *s); // sets min_blocks from what the threads need
// one line, for the comment before the kernel
const char *hd_rows_describe(const RowProgram *p, const RowShape *s, Arena *a);
#endif
