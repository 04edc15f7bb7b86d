// One gradient rule for each name in the grad column of the op table: dy is the gradient of the first result, `give`
// adds a contribution to an operand. A rule asks `wants` before it builds anything, so that constants and data cost
// nothing.
#include "passes/tensor/autodiff.h"
#include "ir/dropout.h"
#include "ir/shapes.h"

#define A (o->in[0])
#define B (o->in[1])
#define Y (o->out[0])

static bool wants(const Autodiff *d, const Value *v) { return hd_grad_wanted(d, v); }
static void give(Autodiff *d, Value *v, Value *dv) { hd_grad_add(d, v, dv); }

// --- builders
static Value *one(Autodiff *d, OpKind k, Value *a) { return hd_build1(&d->b, k, a, NULL, NULL, NULL); }
static Value *two(Autodiff *d, OpKind k, Value *a, Value *b) { return hd_build1(&d->b, k, a, b, NULL, NULL); }
static Value *mul(Autodiff *d, Value *a, Value *b) { return two(d, OP_MUL, a, b); }
static Ctx *cx_of(const Autodiff *d) { return d->b.f->module->cx; }

static Value *number(Autodiff *d, double v, const Value *like) { // a scalar of the same dtype
    return hd_build_number(&d->b, like->type->dtype, v);
}

static Value *reshaped(Autodiff *d, Value *v, const Type *shape) {
    const Type *t = hd_type_with(cx_of(d), v->type->dtype, shape);
    return v->type == t ? v : hd_build1(&d->b, OP_RESHAPE, v, NULL, NULL, t);
}

static Value *cast(Autodiff *d, Value *v, DType dtype) { return hd_build_cast(&d->b, v, dtype); }

// --- no gradient
void hd_grad_none(Autodiff *d, const Op *o, Value *dy) {
    (void)d, (void)dy;
    HD_BUG("%s has no gradient", hd_op_info(o->kind)->mnemonic);
}
void hd_grad_zero(Autodiff *d, const Op *o, Value *dy) { (void)d, (void)o, (void)dy; }
static void grad_param(Autodiff *d, const Op *o, Value *dy) {
    (void)d, (void)o, (void)dy;
} // hd_grad_add made its `grad` op
#define grad_none hd_grad_none
#define grad_zero hd_grad_zero

// --- pointwise
static void grad_add(Autodiff *d, const Op *o, Value *dy) {
    if (wants(d, A)) give(d, A, dy);
    if (wants(d, B)) give(d, B, dy);
}
static void grad_sub(Autodiff *d, const Op *o, Value *dy) {
    if (wants(d, A)) give(d, A, dy);
    if (wants(d, B)) give(d, B, one(d, OP_NEG, dy));
}
static void grad_mul(Autodiff *d, const Op *o, Value *dy) {
    if (wants(d, A)) give(d, A, mul(d, dy, B));
    if (wants(d, B)) give(d, B, mul(d, dy, A));
}
static void grad_div(Autodiff *d, const Op *o, Value *dy) {
    Value *da = two(d, OP_DIV, dy, B);
    if (wants(d, A)) give(d, A, da);
    if (wants(d, B)) give(d, B, one(d, OP_NEG, mul(d, da, Y)));
}
// Where two operands are equal the first one is the result, so it gets the whole gradient.
static void choice(Autodiff *d, const Op *o, Value *dy, Value *first) {
    Value *da = mul(d, dy, first);
    if (wants(d, A)) give(d, A, da);
    if (wants(d, B)) give(d, B, two(d, OP_SUB, dy, da));
}
static void grad_max(Autodiff *d, const Op *o, Value *dy) { choice(d, o, dy, two(d, OP_GE, A, B)); }
static void grad_min(Autodiff *d, const Op *o, Value *dy) { choice(d, o, dy, two(d, OP_GE, B, A)); }
static Value *where(Autodiff *d, Value *test, Value *yes, Value *no) {
    return hd_build(&d->b, OP_WHERE, 3, (Value *[]){test, yes, no}, NULL, NULL)->out[0];
}
// Exactly 0 reaches the operand that is not chosen, whatever dy is.
static void grad_where(Autodiff *d, const Op *o, Value *dy) {
    if (wants(d, B)) give(d, B, where(d, A, dy, number(d, 0, dy)));
    if (wants(d, o->in[2])) give(d, o->in[2], where(d, A, number(d, 0, dy), dy));
}
// d/da = b a^(b-1), 0 where b is 0; d/db = a^b log a, 0 where a is 0 and b >= 0.
static void grad_pow(Autodiff *d, const Op *o, Value *dy) {
    Value *zero = number(d, 0, dy);
    if (wants(d, A)) {
        Value *slope = mul(d, B, two(d, OP_POW, A, two(d, OP_SUB, B, number(d, 1, B))));
        give(d, A, mul(d, dy, where(d, B, slope, zero)));
    }
    if (wants(d, B)) {
        Value *flat = mul(d, two(d, OP_EQ, A, zero), two(d, OP_GE, B, zero));
        give(d, B, mul(d, dy, where(d, flat, zero, mul(d, Y, one(d, OP_LOG, A)))));
    }
}
static void grad_neg(Autodiff *d, const Op *o, Value *dy) { give(d, A, one(d, OP_NEG, dy)); }
static void grad_abs(Autodiff *d, const Op *o, Value *dy) { give(d, A, mul(d, dy, one(d, OP_SIGN, A))); }
static void grad_square(Autodiff *d, const Op *o, Value *dy) { give(d, A, mul(d, dy, mul(d, number(d, 2, A), A))); }
static void grad_exp(Autodiff *d, const Op *o, Value *dy) { give(d, A, mul(d, dy, Y)); }
static void grad_log(Autodiff *d, const Op *o, Value *dy) { give(d, A, two(d, OP_DIV, dy, A)); }
static void grad_sqrt(Autodiff *d, const Op *o, Value *dy) { // dy / (2 y)
    give(d, A, two(d, OP_DIV, mul(d, number(d, 0.5, A), dy), Y));
}
static void grad_rsqrt(Autodiff *d, const Op *o, Value *dy) { // -y^3 / 2
    give(d, A, mul(d, dy, mul(d, mul(d, number(d, -0.5, A), Y), one(d, OP_SQUARE, Y))));
}
static void grad_sin(Autodiff *d, const Op *o, Value *dy) { give(d, A, mul(d, dy, one(d, OP_COS, A))); }
static void grad_cos(Autodiff *d, const Op *o, Value *dy) { give(d, A, one(d, OP_NEG, mul(d, dy, one(d, OP_SIN, A)))); }
static void grad_tanh(Autodiff *d, const Op *o, Value *dy) { give(d, A, two(d, OP_TANH_GRAD, Y, dy)); }
static void grad_erf(Autodiff *d, const Op *o, Value *dy) { // 2/sqrt(pi) exp(-a^2)
    Value *bell = one(d, OP_EXP, one(d, OP_NEG, one(d, OP_SQUARE, A)));
    give(d, A, mul(d, dy, mul(d, number(d, 1.1283791670955126, A), bell)));
}
static void grad_sigmoid(Autodiff *d, const Op *o, Value *dy) { // y (1 - y)
    give(d, A, mul(d, dy, mul(d, Y, two(d, OP_SUB, number(d, 1, A), Y))));
}
static void grad_relu(Autodiff *d, const Op *o, Value *dy) { give(d, A, two(d, OP_RELU_GRAD, A, dy)); }
static void grad_silu(Autodiff *d, const Op *o, Value *dy) { give(d, A, two(d, OP_SILU_GRAD, A, dy)); }
static void grad_gelu(Autodiff *d, const Op *o, Value *dy) { give(d, A, two(d, OP_GELU_GRAD, A, dy)); }
static void grad_gelu_erf(Autodiff *d, const Op *o, Value *dy) { give(d, A, two(d, OP_GELU_ERF_GRAD, A, dy)); }

// --- movement
static void grad_cast(Autodiff *d, const Op *o, Value *dy) { give(d, A, dy); } // hd_grad_add casts back
static void grad_broadcast(Autodiff *d, const Op *o, Value *dy) { give(d, A, dy); } // ... and sums
static void grad_reshape(Autodiff *d, const Op *o, Value *dy) { give(d, A, reshaped(d, dy, A->type)); }

static void grad_transpose(Autodiff *d, const Op *o, Value *dy) {
    const Attr *perm = hd_attr(&o->attrs, A_PERM);
    int64_t inverse[HD_MAX_DIMS];
    for (int i = 0; i < perm->n; i++) inverse[perm->ints[i]] = i;
    Attrs as = {0};
    hd_set_ints(cx_of(d), &as, A_PERM, perm->n, inverse);
    give(d, A, hd_build1(&d->b, OP_TRANSPOSE, dy, NULL, &as, NULL));
}

// Kept until the last slice of the same value is seen: slices that cover the value become one concat.
static void grad_slice(Autodiff *d, const Op *o, Value *dy) {
    if (hd_type_count(Y->type))
        hd_push(d->scratch, &d->sliced[A->id].pieces, ((SliceGrad){o, cast(d, dy, A->type->dtype)}));
}

static void grad_concat(Autodiff *d, const Op *o, Value *dy) {
    int64_t axis = hd_int(&o->attrs, A_AXIS, 0), start = 0;
    for (int i = 0; i < o->n_in; start += o->in[i++]->type->dim[axis]) {
        if (!wants(d, o->in[i])) continue;
        Attrs as = {0};
        hd_set_int(cx_of(d), &as, A_AXIS, axis);
        hd_set_int(cx_of(d), &as, A_START, start);
        hd_set_int(cx_of(d), &as, A_SIZE, o->in[i]->type->dim[axis]);
        give(d, o->in[i], hd_build1(&d->b, OP_SLICE, dy, NULL, &as, NULL));
    }
}

// A result of the op, or its gradient, with the reduced axes as axes of size 1.
static Value *with_axes(Autodiff *d, const Op *o, Value *v) {
    const Attr *axes = hd_attr(&o->attrs, A_AXES);
    Type kept = *A->type;
    for (int i = 0; i < axes->n; i++) kept.dim[axes->ints[i]] = 1;
    return reshaped(d, cast(d, v, A->type->dtype), hd_type(cx_of(d), kept.dtype, kept.rank, kept.dim));
}

static void grad_sum(Autodiff *d, const Op *o, Value *dy) {
    Value *v = with_axes(d, o, dy);
    give(d, A, v->type == A->type ? v : hd_build1(&d->b, OP_BROADCAST, v, NULL, NULL, A->type));
}

// Equal maxima share dy evenly, as those of PyTorch's amax.
static void grad_reduce_max(Autodiff *d, const Op *o, Value *dy) {
    Value *largest = two(d, OP_EQ, A, with_axes(d, o, Y));
    Attrs as = {0};
    hd_set_attr(cx_of(d), &as, hd_attr(&o->attrs, A_AXES));
    hd_set_flag(cx_of(d), &as, A_KEEP);
    Value *count = hd_build1(&d->b, OP_SUM, largest, NULL, &as, NULL);
    give(d, A, mul(d, largest, two(d, OP_DIV, with_axes(d, o, dy), count)));
}

static void grad_cumsum(Autodiff *d, const Op *o, Value *dy) {
    Attrs as = hd_attrs_copy(cx_of(d), &o->attrs);
    if (hd_has(&as, A_REVERSE)) hd_unset(&as, A_REVERSE);
    else hd_set_flag(cx_of(d), &as, A_REVERSE);
    give(d, A, hd_build1(&d->b, OP_CUMSUM, dy, NULL, &as, NULL));
}

// The sums over runs of positions become those over all of them.
static void grad_conv1d(Autodiff *d, const Op *o, Value *dy) {
    const int n = o->n_in - hd_has(&o->attrs, A_DOCUMENTS); // those that have gradients
    Value *in[5] = {dy};
    for (int i = 0; i < o->n_in; i++) in[i + 1] = o->in[i];
    Op *g = hd_build(&d->b, OP_CONV1D_GRAD, o->n_in + 1, in, &o->attrs, NULL);
    Attrs runs = {0};
    hd_set_ints(cx_of(d), &runs, A_AXES, 1, (int64_t[]){0});
    if (wants(d, A)) give(d, A, g->out[0]);
    for (int i = 1; i < n; i++)
        if (wants(d, o->in[i])) give(d, o->in[i], hd_build1(&d->b, OP_SUM, g->out[i], NULL, &runs, NULL));
}

static void grad_embedding(Autodiff *d, const Op *o, Value *dy) {
    give(d, A, hd_build1(&d->b, OP_EMBEDDING_GRAD, dy, B, NULL, A->type));
}

// --- products
static Value *product(Autodiff *d, OpKind k, Value *a, Value *b, bool ta, bool tb) {
    Attrs as = {0};
    if (ta) hd_set_flag(cx_of(d), &as, A_TA);
    if (tb) hd_set_flag(cx_of(d), &as, A_TB);
    return hd_build1(&d->b, k, a, b, &as, NULL);
}

// y = a b: da = dy b', db = a' dy; with ta, da is transposed, with tb, db is.
static void products(Autodiff *d, const Op *o, Value *dy) {
    bool ta = hd_has(&o->attrs, A_TA), tb = hd_has(&o->attrs, A_TB);
    dy = cast(d, dy, A->type->dtype);
    if (wants(d, B))
        give(d, B,
             reshaped(d, tb ? product(d, o->kind, dy, A, true, ta) : product(d, o->kind, A, dy, !ta, false), B->type));
    if (wants(d, A))
        give(d, A,
             reshaped(d, ta ? product(d, o->kind, B, dy, tb, true) : product(d, o->kind, dy, B, false, !tb), A->type));
}
static void grad_matmul(Autodiff *d, const Op *o, Value *dy) { products(d, o, dy); }
static void grad_bmm(Autodiff *d, const Op *o, Value *dy) { products(d, o, dy); }

// --- mixtures of experts
static void grad_top_k(Autodiff *d, const Op *o, Value *dy) {
    give(d, A, hd_build1(&d->b, OP_TOP_K_GRAD, dy, o->out[1], NULL, hd_type_with(cx_of(d), dy->type->dtype, A->type)));
}

// By the slots, where a dispatch says which rows took a row of x; else rows are sorted by index.
static void grad_take(Autodiff *d, const Op *o, Value *dy) {
    const int64_t rows = hd_type_rows(A->type), cols = hd_type_cols(A->type);
    Value *dx = o->n_in > 2 ? two(d, OP_COMBINE, dy, o->in[2])
                            : hd_build1(&d->b, OP_EMBEDDING_GRAD, dy, B, NULL,
                                        hd_type(cx_of(d), dy->type->dtype, 2, (int64_t[]){rows, cols}));
    give(d, A, reshaped(d, dx, A->type));
}

static void grad_combine(Autodiff *d, const Op *o, Value *dy) {
    if (o->n_in < 4) HD_BUG("the gradient of a combine without weights is not needed");
    Value *in[] = {cast(d, dy, A->type->dtype), A, B, o->in[2], o->in[3]};
    Op *g = hd_build(&d->b, OP_COMBINE_GRAD, 5, in, NULL, NULL);
    if (wants(d, A)) give(d, A, g->out[0]);
    if (wants(d, o->in[2])) give(d, o->in[2], g->out[1]);
}

static Value *by_group(Autodiff *d, OpKind k, Value *a, Value *b, Value *counts, bool tb) {
    Attrs as = {0};
    if (tb) hd_set_flag(cx_of(d), &as, A_TB);
    return hd_build(&d->b, k, 3, (Value *[]){a, b, counts}, &as, NULL)->out[0];
}

static void grad_grouped(Autodiff *d, const Op *o, Value *dy) {
    const bool tb = hd_has(&o->attrs, A_TB);
    dy = cast(d, dy, A->type->dtype);
    if (wants(d, B)) give(d, B, by_group(d, OP_GROUPED_GRAD, tb ? dy : A, tb ? A : dy, o->in[2], false));
    if (wants(d, A)) give(d, A, by_group(d, OP_GROUPED, dy, B, o->in[2], !tb));
}

// --- rows
static void grad_layer_norm(Autodiff *d, const Op *o, Value *dy) {
    Op *g = hd_build(&d->b, OP_LAYER_NORM_GRAD, 5, (Value *[]){dy, A, B, o->out[1], o->out[2]}, NULL, NULL);
    for (int i = 0; i < 3; i++)
        if (wants(d, o->in[i])) give(d, o->in[i], g->out[i]);
}

static void grad_rms_norm(Autodiff *d, const Op *o, Value *dy) {
    Op *g = hd_build(&d->b, OP_RMS_NORM_GRAD, 4, (Value *[]){dy, A, B, o->out[1]}, NULL, NULL);
    for (int i = 0; i < 2; i++)
        if (wants(d, o->in[i])) give(d, o->in[i], g->out[i]);
}

static void grad_logsumexp(Autodiff *d, const Op *o, Value *dy) {
    Type kept = *A->type;
    kept.dim[kept.rank - 1] = 1;
    give(d, A, mul(d, one(d, OP_SOFTMAX, A), reshaped(d, cast(d, dy, A->type->dtype), &kept)));
}

static void grad_softmax(Autodiff *d, const Op *o, Value *dy) { give(d, A, two(d, OP_SOFTMAX_GRAD, dy, Y)); }

static void grad_rope(Autodiff *d, const Op *o, Value *dy) {
    Attrs as = hd_attrs_copy(cx_of(d), &o->attrs);
    if (hd_has(&as, A_INVERSE)) hd_unset(&as, A_INVERSE);
    else hd_set_flag(cx_of(d), &as, A_INVERSE);
    give(d, A, hd_build1(&d->b, OP_ROPE, dy, NULL, &as, NULL));
}

static void grad_dropout(Autodiff *d, const Op *o, Value *dy) { // the same elements of dy
    give(d, A, hd_build1(&d->b, OP_DROPOUT, dy, hd_key(o), &o->attrs, NULL));
}

static void grad_attention(Autodiff *d, const Op *o, Value *dy) {
    const int n = hd_attention_operands(o);
    Value *in[HD_MAX_IN] = {dy};
    memcpy(in + 1, o->in, sizeof *in * (size_t)n);
    memcpy(in + 1 + n, o->out, sizeof *in * 2);
    int all = n + 3;
    if (hd_attention_starts(o)) in[all++] = hd_attention_starts(o);
    if (hd_key(o)) in[all++] = hd_key(o);
    Attrs as = hd_attrs_copy(cx_of(d), &o->attrs);
    if (hd_has(&as, A_SINK)) hd_unset(&as, A_SINK);
    Op *g = hd_build(&d->b, OP_ATTENTION_GRAD, all, in, &as, NULL);
    for (int i = 0; i < n; i++)
        if (wants(d, o->in[i])) give(d, o->in[i], g->out[i]);
    Value *const sink = hd_attention_sink(o);
    if (sink && wants(d, sink))
        give(d, sink, hd_build(&d->b, OP_SINK_GRAD, 4, (Value *[]){dy, Y, o->out[1], sink}, NULL, NULL)->out[0]);
}

static void grad_ssd(Autodiff *d, const Op *o, Value *dy) {
    Value *in[HD_MAX_IN] = {dy};
    memcpy(in + 1, o->in, sizeof *in * (size_t)o->n_in);
    Op *g = hd_build(&d->b, OP_SSD_GRAD, o->n_in + 1, in, &o->attrs, NULL);
    for (int i = 0; i < g->n_out; i++)
        if (wants(d, o->in[i])) give(d, o->in[i], g->out[i]);
}

static void grad_cross_entropy(Autodiff *d, const Op *o, Value *dy) {
    Value *const weights = hd_loss_weights(o);
    Value *in[] = {A, B, dy, weights};
    give(d, A, hd_build(&d->b, OP_CROSS_ENTROPY_GRAD, weights ? 4 : 3, in, &o->attrs, NULL)->out[1]);
}

GradRule *hd_grad_rule(OpKind k) {
    static const struct { OpKind of; GradRule *rule; } rules[N_OPS] = {
#define ELT(id, mnemonic, n, traits, by, ...) [OP_##id] = {.rule = grad_##by},
#define OP(id, mnemonic, n_in, n_out, attrs, fields, doc) [OP_##id] = {.of = OP_##id, fields},
#define grad(x) .rule = grad_##x,
#include "ir/ops.def"
    };
    return rules[k].rule ? rules[k].rule : grad_none;
}
