#include "passes/fuse/gemm_bias.h"

int hd_gemm_bias(const Op *add, const Uses *uses) {
    if (add->kind != OP_ADD) return -1;
    for (int i = 0; i < 2; i++) {
        const Value *product = add->in[i], *bias = add->in[1 - i];
        const Type *t = product->type;
        if (product->def && product->def->kind == OP_MATMUL && uses->count[product->id] == 1 &&
            t == add->out[0]->type && t->dtype == product->def->in[0]->type->dtype && bias->type->rank > 0 &&
            hd_type_cols(bias->type) == hd_type_cols(t) && hd_type_count(bias->type) == hd_type_cols(t))
            return i;
    }
    return -1;
}
