// What an action costs by the shapes alone: floating-point operations and bytes that must move. Profiles and traces show it.
#include "codegen/emit.h"

static double pointwise_flops(const Func *k) {
    double total = 0;
    for (const Op *o = k->first; o; o = o->next) {
        if (o->kind == OP_RETURN || !(o->n_in && o->n_out)) continue;
        int64_t in = hd_type_count(o->in[0]->type), out = hd_type_count(o->out[0]->type);
        int each = hd_op_is(o, TRAIT_ELEMENTWISE) ? hd_op_info(o->kind)->flops : hd_op_is(o, TRAIT_ALIAS) || o->kind == OP_CAST ? 0 : 1;
        total += (double)each * (double)(in > out ? in : out);
    }
    return total;
}

static double gemm_flops(const Op *o) {
    const Type *a = o->in[0]->type, *b = o->in[1]->type;
    double inner = (double)(hd_has(&o->attrs, A_TB) ? hd_type_cols(b) : hd_type_rows(b)), batch = 1;
    if (o->kind == OP_BMM)
        for (int i = 0; i + 2 < a->rank; i++) batch *= (double)a->dim[i];
    batch = (double)hd_int(&o->attrs, A_BATCHES, (int64_t)batch);
    if (!hd_has(&o->attrs, A_TB)) inner /= batch;
    double n = (double)hd_type_count(b) / inner / batch;
    return 2.0 * (double)hd_type_count(a) * n;
}

static double attention_flops(const Op *o) {
    bool grad = o->kind == OP_ATTENTION_GRAD;
    const Type *q = o->in[grad]->type;
    int64_t heads = hd_int(&o->attrs, A_HEADS, 1), kv = hd_int(&o->attrs, A_KV_HEADS, heads);
    double width = (double)hd_type_cols(q);
    if (hd_has(&o->attrs, A_PACKED)) width *= (double)heads / (double)(heads + 2 * kv);
    double seq = q->rank >= 2 ? (double)q->dim[q->rank - 2] : 1;
    double work = (grad ? 10.0 : 4.0) * (double)hd_type_rows(q) * width * seq; // 2 products forward, 5 backward
    return hd_has(&o->attrs, A_CAUSAL) ? work / 2 : work;
}

void hd_emit_cost(const Op *o, double *flops, double *bytes) {
    *flops = *bytes = 0;
    for (int i = 0; i < o->n_in; i++) *bytes += (double)hd_type_bytes(o->in[i]->type);
    for (int i = 0; i < o->n_out; i++) *bytes += (double)hd_type_bytes(o->out[i]->type);
    const Module *m = o->func->module;
    switch (o->kind) {
    case OP_GEMM: case OP_BMM:
        *flops = gemm_flops(o);
        if (!o->n_out) *bytes += 4.0 * *flops / 2.0 / (double)hd_type_rows(o->in[0]->type);
        break;
    case OP_ATTENTION: case OP_ATTENTION_GRAD: *flops = attention_flops(o); break;
    case OP_CROSS_ENTROPY: case OP_CROSS_ENTROPY_GRAD: *flops = 12.0 * (double)hd_type_count(o->in[0]->type); break;
    case OP_STORE: *bytes *= hd_has(&o->attrs, A_ACCUMULATE) ? 3 : 2; break;
    case OP_ADAMW: { // reads gradient, master and both moments; writes master, moments and compute weights
        const Symbol *b = hd_symbol_find(m, hd_word(&o->attrs, A_BUCKET, ""));
        double n = b && b->type ? (double)hd_type_count(b->type) : 0;
        *flops = 16 * n;
        *bytes = 30 * n;
        break;
    }
    case OP_GRAD_NORM: {
        const Attr *list = hd_attr(&o->attrs, A_BUFFERS);
        for (int i = 0; list && i < list->n; i++) {
            const Symbol *s = hd_symbol_find(m, list->strs[i]);
            if (!s || !s->type) continue;
            *flops += 2.0 * (double)hd_type_count(s->type);
            *bytes += (double)hd_type_bytes(s->type);
        }
        break;
    }
    case OP_LAUNCH: {
        const Func *k = hd_func_find(m, hd_word(&o->attrs, A_KERNEL, ""));
        if (k) *flops = pointwise_flops(k);
        break;
    }
    default: break;
    }
}
