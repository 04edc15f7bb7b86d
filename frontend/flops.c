// The floating-point operations that a model asks for, for utilisation (MFU) as papers count it: two for each multiply-add of the
// matrix products and of attention (half of it when causal), three times the forward pass; recomputation does not count.
#include "frontend/sema.h"

static double product(const Op *o) {
    const Type *a = o->in[0]->type, *c = o->out[0]->type;
    double inner = (double)(hd_has(&o->attrs, A_TA) ? (o->kind == OP_BMM ? a->dim[a->rank - 2] : hd_type_rows(a)) : hd_type_cols(a));
    return 2.0 * (double)hd_type_count(c) * inner;
}

static double attention(const Op *o) { // q k' and p v
    const Type *q = o->in[0]->type;
    double all = 4.0 * (double)hd_type_count(q) * (double)q->dim[1];
    return hd_has(&o->attrs, A_CAUSAL) ? all / 2 : all;
}

int64_t hd_model_flops(const Func *f) {
    double forward = 0;
    for (const Op *o = f->first; o; o = o->next) {
        if (o->kind == OP_MATMUL || o->kind == OP_BMM) forward += product(o);
        if (o->kind == OP_ATTENTION) forward += attention(o);
    }
    return 3 * forward < 9e18 ? (int64_t)(3 * forward) : INT64_MAX;
}
