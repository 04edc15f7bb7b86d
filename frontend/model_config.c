// What a program must know of its model, as config @model: name and source, the length of its sequences, the bound of
// its tokens, and the floating-point work of a micro-batch. All of it is derived from @loss.
#include "frontend/sema.h"
#include "ir/cost.h"
#include "ir/shapes.h"

// --- floating-point operations, for utilisation (MFU) as papers count it: two for each multiply-add of matrix products
// and of attention (half of it when causal), three times the forward pass; recomputation does not count.

static int64_t model_flops(const Func *f) {
    double forward = 0, flops, bytes;
    for (const Op *o = f->first; o; o = o->next) {
        if (!hd_op_is(o, TRAIT_MATMUL | TRAIT_ATTENTION)) continue;
        hd_cost(o, &flops, &bytes);
        forward += flops;
    }
    return 3 * forward < 9e18 ? (int64_t)(3 * forward) : INT64_MAX;
}

// --- tokens

static bool is_argument(const Value *v) {
    while (v->def && hd_op_is(v->def, TRAIT_MOVES) && v->def->n_in == 1) v = v->def->in[0];
    return !v->def;
}

// The smallest table or row of logits that an argument indexes: a larger token would read past its end. 0: none.
static int64_t token_bound(const Func *f) {
    int64_t bound = 0;
    for (const Op *o = f->first; o; o = o->next) {
        const int64_t n = hd_indexed(o);
        if (n < 0 || !is_argument(o->in[1])) continue;
        if (!bound || n < bound) bound = n;
    }
    return bound;
}

static bool takes_integers(const Func *f) {
    for (int i = 0; i < f->n_args; i++)
        if (f->args[i]->type->dtype == TY_I32) return true;
    return false;
}

void hd_facts_emit(Front *f) {
    Attrs *attrs = &hd_config(f->module, "model")->attrs;
    hd_set_word(f->cx, attrs, A_MODEL, f->model->name);
    hd_set_word(f->cx, attrs, A_SOURCE, f->file);
    const int64_t any = (int64_t)INT32_MAX + 1, bound = token_bound(f->func); // any: of tokens that index nothing
    const int64_t vocab = bound ? bound : takes_integers(f->func) ? any : 0;
    if (vocab > 0) hd_set_int(f->cx, attrs, A_VOCAB, vocab);
    const Type *tokens = f->func->n_args ? f->func->args[0]->type : NULL;
    if (tokens && tokens->dtype == TY_I32 && tokens->rank == 2) hd_set_int(f->cx, attrs, A_SEQ, tokens->dim[1]);
    hd_set_int(f->cx, attrs, A_MODEL_FLOPS, model_flops(f->func));
}
