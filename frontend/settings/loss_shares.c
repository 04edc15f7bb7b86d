// The shares that rows have in a cross_entropy with weights, or with a target that is ignored: their weights over the
// sum of all, so that the loss is the mean by weight. Where all weights are 0, it is 0.
#include "frontend/model/sema.h"

static Val two(Front *f, Span s, OpKind k, Val a, Val b) {
    if (a.kind == VAL_BAD || b.kind == VAL_BAD) return (Val){0};
    return hd_emit_elementwise(f, s, k, 2, (Val[]){a, b});
}

static Val sum_of(Front *f, Span s, Val v) {
    Attrs attrs = {0};
    int64_t axes[HD_MAX_DIMS];
    const int rank = v.tensor->type->rank;
    for (int i = 0; i < rank; i++) axes[i] = i;
    hd_set_ints(f->cx, &attrs, A_AXES, rank, axes);
    Value *x = hd_emit(f, s, OP_SUM, 1, &v.tensor, &attrs, NULL);
    return x ? (Val){.kind = VAL_TENSOR, .tensor = x} : (Val){0};
}

Val hd_loss_shares(Front *f, Span s, Val targets, const Val *ignored, const Val *weights) {
    const Type *y = targets.tensor->type;
    Val w = {0}, kept;
    if (weights) {
        const Type *t = weights->tensor->type;
        if (t->rank != y->rank || memcmp(t->dim, y->dim, sizeof *t->dim * (size_t)t->rank) != 0)
            return hd_front_bad(f, s, "cross_entropy: targets %s need as many weights, not %s", hd_type_text(f->cx, y),
                                hd_type_text(f->cx, t));
        w = hd_emit_float(f, s, *weights);
    }
    if (ignored) {
        kept = two(f, s, OP_NE, hd_emit_float(f, s, targets), *ignored);
        w = weights ? two(f, s, OP_MUL, w, kept) : kept;
    }
    if (w.kind == VAL_BAD) return w;
    const Val total = sum_of(f, s, w);
    if (total.kind == VAL_BAD) return total;
    return two(f, s, OP_DIV, w, two(f, s, OP_ADD, total, two(f, s, OP_EQ, total, hd_val_int(0))));
}
