// `train { products = merged; }`, and the function of a token: products that share an operand and whose weights are
// neighbours become one product.
#ifndef PASSES_TENSOR_MERGE_PRODUCTS_H
#define PASSES_TENSOR_MERGE_PRODUCTS_H
#include "passes/pass.h"

// In the function of kind loss, before it is differentiated: the merged forms then have merged gradients.
void hd_merge_products(Module *m, Func *loss, PassCx *cx);
// Whatever the setting says, in the function of a token on cuda: each number is the same, and kernels are fewer.
void hd_merge_token_products(Module *m, Func *decode, PassCx *cx);
#endif
