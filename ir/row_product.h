// Kernels of kind `product`: one product of a row with a matrix, the ops that make the row before it and pointwise ops
// on its result behind it. The contract of the pass that makes them, of the proof of plans and of the code generator.
#ifndef IR_ROW_PRODUCT_H
#define IR_ROW_PRODUCT_H
#include "ir/row_class.h"

// A gemm of one row that such a kernel can have: with the rows of a matrix.
bool hd_row_product(const Op *o);
// Whether a kernel makes, as result number `result`, the row of `cols` numbers of such a product, so that each block
// can do it for itself.
bool hd_row_maker(const Func *kernel, int result, int64_t cols);
// Whether all that a kernel does is pointwise work on the result of g, which is argument `arg`: as it is, turned by
// positions, or on parts of one size that are the whole.
bool hd_row_finisher(const Func *kernel, int arg, const Op *g);

typedef struct {
    const Op *product;      // NULL: what the kernel has is something else
    const Value *result;    // of the product, rounded as it would be stored
    const Op *behind;       // the first op that works on it
    RowSpace before, after; // the spaces of the ops before and behind it
    int parts;              // numbers of the result that make one, each of another part of `after.cols`; or, with
    int64_t half;           // so many columns to the other half of a head: both of a pair that is turned; 0: none is
} RowProduct;
RowProduct hd_row_product_of(const Func *kernel);
// Whether o, behind the product of its kernel, takes a part of it.
bool hd_row_product_part(const Op *o, const RowProduct *p);
#endif
