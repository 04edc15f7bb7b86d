// Factors of products in one byte, as the pass fp8 makes them.
#ifndef PASSES_TENSOR_FP8_SCALES_H
#define PASSES_TENSOR_FP8_SCALES_H
#include "passes/pass.h"

typedef struct {
    Value *q, *scale;
    Value *columns; // of a gradient: what its columns were multiplied by before, the scales of a weight's rows; or NULL
} Scaled;
typedef enum { OF_ROWS, OF_SQUARES, OF_COLUMNS } BlocksOf; // OF_COLUMNS: of the transpose

Value *hd_fp8_constant(Builder *b, double x, int64_t n); // a vector
// Along `n` axes from `first` on; with `keep` they stay as axes of 1.
Value *hd_fp8_highest(Builder *b, Value *v, int first, int n, bool keep);
Value *hd_fp8_transposed(Builder *b, Value *v); // as a matrix

Scaled hd_fp8_of_tensor(Builder *b, Value *v, DType d);
Scaled hd_fp8_of_rows(Builder *b, Value *v, Value *columns, DType d); // after its columns were multiplied, or NULL
Scaled hd_fp8_of_blocks(Builder *b, Value *v, DType d, BlocksOf of);
Scaled hd_fp8_of_both(Builder *b, Value *v, DType d, Scaled *columns); // OF_ROWS, and OF_COLUMNS in one op
Scaled hd_fp8_turned(Builder *b, Scaled w); // the transpose of what has scales of squares
#endif
