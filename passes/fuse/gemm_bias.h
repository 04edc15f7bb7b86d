// Matrix products as gemm: with the bias that fuse gives to a product, or as select finds them.
#ifndef PASSES_FUSE_GEMM_BIAS_H
#define PASSES_FUSE_GEMM_BIAS_H
#include "ir/ir.h"

// add(matmul, b), with b one number per column: which operand of `add` is the product (0 or 1); -1: not of this form.
// The product must have no other reader.
int hd_gemm_bias(const Op *add, const Uses *uses);
// The gemm for a product and a bias, which may be NULL: not inserted, and without its type.
Op *hd_gemm_of(const Op *product, Value *bias);
#endif
