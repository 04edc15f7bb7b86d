// When a bias can be the epilogue of a matrix product. fuse leaves such additions alone, select folds them; both use
// this.
#ifndef PASSES_FUSE_GEMM_BIAS_H
#define PASSES_FUSE_GEMM_BIAS_H
#include "ir/ir.h"

// add(matmul, b), with b one number per column: which operand of `add` is the product (0 or 1); -1: not of this form.
// The product must have no other reader.
int hd_gemm_bias(const Op *add, const Uses *uses);
#endif
