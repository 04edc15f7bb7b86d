#include "passes/fuse/gemm_bias.h"
#include "ir/shapes.h"
#include <string.h>

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

Op *hd_gemm_of(const Op *product, Value *bias) {
    Ctx *cx = product->func->module->cx;
    Value *in[HD_MAX_IN];
    memcpy(in, product->in, sizeof *in * (size_t)product->n_in);
    in[product->n_in] = bias;
    Op *g = hd_op_new(product->func, OP_GEMM, product->n_in + (bias != NULL), in);
    static const AttrId kept[] = {A_TA, A_TB, A_SCALED, A_BLOCKS, A_FAST, A_BWD, A_RECOMPUTED};
    g->loc = product->loc;
    g->span = product->span;
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
        if (hd_has(&product->attrs, kept[i])) hd_set_flag(cx, &g->attrs, kept[i]);
    if (hd_has(&product->attrs, A_COLUMNS)) hd_set_int(cx, &g->attrs, A_COLUMNS, hd_int(&product->attrs, A_COLUMNS, 0));
    if (product->kind == OP_BMM) hd_set_int(cx, &g->attrs, A_BATCHES, hd_product(product).batches);
    if (bias) hd_set_word(cx, &g->attrs, A_EPILOGUE, hd_intern(cx, "bias"));
    return g;
}
