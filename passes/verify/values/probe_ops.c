// How probes follow an op: the column `probe` of ops.def. x are the numbers of the operands; y[0..2] those of the
// results, which are unknown (NaN) until a rule sets them. Sums multiply by the number of elements that they add;
// other pointwise work computes one element by the op table's meaning. A mixed probe also computes softmax, norms and
// their gradients. 0 times anything is 0, so a gradient that does not begin here stays 0 through every op.
#include "ir/shapes.h"
#include "passes/verify/values/probe.h"
#include "ir/eval/eval.h"
#include <math.h>

static bool is_one(Num x) {
    for (int h = 1; h < KINDS; h++)
        if (x.of[h] != x.of[0]) return false;
    return true;
}

static double row_mean(const Type *t, Num x) {
    double sum = 0;
    if (is_one(x)) return x.of[0];
    for (int h = 0; h < KINDS; h++) sum += x.of[h] * (double)hd_probe_columns(t, h);
    return sum / (double)hd_type_cols(t);
}

static void probe_constant(const Probe *p, const Op *o, const Num *x, Num *y) {
    (void)p, (void)x;
    y[0] = hd_probe_all(hd_float(&o->attrs, A_VALUE, 0));
}

static void probe_same(const Probe *p, const Op *o, const Num *x, Num *y) {
    (void)p, (void)o;
    y[0] = x[0];
}

// Ops that move elements keep the numbers where each column keeps its kind.
static void probe_carried(const Probe *p, const Op *o, const Num *x, Num *y) {
    (void)p;
    const Type *t = o->out[0]->type, *from = o->in[0]->type;
    const int64_t cols = hd_type_cols(t), before = hd_type_cols(from), last = from->rank - 1;
    bool stay = cols == before, whole = cols % KINDS == 0;
    for (int i = 0; i < o->n_in; i++) {
        whole &= hd_type_cols(o->in[i]->type) % KINDS == 0;
        for (int h = 0; h < KINDS; h++)
            if (x[i].of[h] != x[0].of[h]) return;
    }
    if (hd_op_is(o, TRAIT_ALIAS) || o->kind == OP_CONCAT) stay |= whole;
    if (o->kind == OP_TRANSPOSE) stay = hd_attr(&o->attrs, A_PERM)->ints[last] == last;
    if (o->kind == OP_SLICE) stay |= hd_int(&o->attrs, A_START, 0) % KINDS == 0;
    if (stay || is_one(x[0])) y[0] = x[0];
}

// Whether the last axis is among those reduced.
static bool reduces_columns(const Op *o) {
    const Attr *axes = hd_attr(&o->attrs, A_AXES);
    for (int i = 0; axes && i < axes->n; i++)
        if (axes->ints[i] == o->in[0]->type->rank - 1) return true;
    return !axes && hd_type_cols(o->out[0]->type) != hd_type_cols(o->in[0]->type);
}

static void probe_reduced(const Probe *p, const Op *o, const Num *x, Num *y) {
    const Type *from = o->in[0]->type;
    const double n = (double)(hd_type_count(from) / hd_type_count(o->out[0]->type));
    (void)p;
    if (reduces_columns(o)) y[0] = hd_probe_all(row_mean(from, x[0]) * n);
    else
        for (int h = 0; h < KINDS; h++) y[0].of[h] = x[0].of[h] * n;
}

static void probe_largest(const Probe *p, const Op *o, const Num *x, Num *y) {
    (void)p;
    if (!reduces_columns(o) || is_one(x[0])) y[0] = x[0];
}

static double elementwise(const Op *o, const double *x) {
    const bool scales = o->kind == OP_MUL || hd_is_backward(o); // by operand 1
    if ((scales && x[1] == 0) || ((o->kind == OP_MUL || o->kind == OP_DIV) && x[0] == 0)) return 0;
    for (int i = 0; i < o->n_in; i++)
        if (isnan(x[i])) return (double)NAN;
    return hd_eval_elt(o->kind, false, x[0], x[1], x[2]);
}

static void probe_pointwise(const Probe *p, const Op *o, const Num *x, Num *y) {
    (void)p;
    for (int h = 0; h < KINDS; h++) {
        double operand[3] = {0};
        for (int i = 0; i < o->n_in; i++) operand[i] = x[i].of[h];
        y[0].of[h] = elementwise(o, operand);
    }
}

// --- rows

static bool follows(const Probe *p, const Op *o) { return p->mixed && !hd_has(&o->attrs, A_CAUSAL); }
static bool is_zero(Num x) { return is_one(x) && x.of[0] == 0; }

// Where the first operand is a gradient of 0, all results are.
static void probe_linear(const Probe *p, const Op *o, const Num *x, Num *y) {
    (void)p, (void)o;
    if (is_zero(x[0])) y[0] = y[1] = y[2] = hd_probe_all(0);
}

static void probe_softmax(const Probe *p, const Op *o, const Num *x, Num *y) {
    if (!follows(p, o)) return;
    const Type *t = o->in[0]->type;
    const double cols = (double)hd_type_cols(t);
    Num e;
    for (int h = 0; h < KINDS; h++) e.of[h] = !hd_is_backward(o) ? exp(x[0].of[h]) : x[0].of[h] * x[1].of[h];
    const double sum = cols * row_mean(t, e);
    for (int h = 0; h < KINDS; h++)
        y[0].of[h] = !hd_is_backward(o) ? e.of[h] / sum : x[1].of[h] * (x[0].of[h] - sum);
}

static void probe_logsumexp(const Probe *p, const Op *o, const Num *x, Num *y) {
    const Type *t = o->in[0]->type;
    Num e;
    (void)p;
    for (int h = 0; h < KINDS; h++) e.of[h] = exp(x[0].of[h] - x[0].of[0]);
    y[0] = hd_probe_all(x[0].of[0] + log((double)hd_type_cols(t) * row_mean(t, e)));
}

static void probe_norm(const Probe *p, const Op *o, const Num *x, Num *y) {
    if (!follows(p, o)) return;
    const bool layer = o->n_out == 3; // with a mean
    const Type *t = o->in[0]->type;
    const double mean = layer ? row_mean(t, x[0]) : 0;
    Num from, square;
    for (int h = 0; h < KINDS; h++) {
        from.of[h] = x[0].of[h] - mean;
        square.of[h] = from.of[h] * from.of[h];
    }
    const double r = 1 / sqrt(row_mean(t, square) + hd_float(&o->attrs, A_EPS, 0));
    for (int h = 0; h < KINDS; h++) y[0].of[h] = from.of[h] * r * x[1].of[h] + (layer ? x[2].of[h] : 0);
    y[1] = hd_probe_all(layer ? mean : r);
    y[2] = hd_probe_all(r);
}

static void probe_norm_grad(const Probe *p, const Op *o, const Num *x, Num *y) {
    probe_linear(p, o, x, y);
    if (!follows(p, o) || is_zero(x[0])) return;
    const bool layer = o->n_out == 3; // with a mean
    const Type *t = o->in[0]->type;
    const double mean = layer ? x[3].of[0] : 0, r = x[layer ? 4 : 3].of[0];
    const double rows = (double)(hd_type_count(t) / hd_type_cols(t));
    Num hat, g, product;
    for (int h = 0; h < KINDS; h++) {
        hat.of[h] = (x[1].of[h] - mean) * r;
        g.of[h] = x[0].of[h] * x[2].of[h];
        product.of[h] = g.of[h] * hat.of[h];
        y[1].of[h] = rows * x[0].of[h] * hat.of[h];
        y[2].of[h] = rows * x[0].of[h];
    }
    const double shift = layer ? row_mean(t, g) : 0, along = row_mean(t, product);
    for (int h = 0; h < KINDS; h++) y[0].of[h] = r * (g.of[h] - shift - hat.of[h] * along);
}

static void probe_softmax_grad(const Probe *p, const Op *o, const Num *x, Num *y) {
    probe_linear(p, o, x, y);
    if (!is_zero(x[0])) probe_softmax(p, o, x, y);
}

// --- the table

static const struct { OpKind of; void (*rule)(const Probe *, const Op *, const Num *, Num *); } rules[N_OPS] = {
#define ELT(id, ...) [OP_##id] = {.rule = probe_pointwise},
#define OP(id, mnemonic, n_in, n_out, attrs, fields, doc) [OP_##id] = {.of = OP_##id, fields},
#define probe(x) .rule = probe_##x,
#include "ir/ops.def"
};

void hd_probe_op(const Probe *p, const Op *o, const Num *x, Num *y) {
    y[0] = y[1] = y[2] = hd_probe_all((double)NAN);
    if (rules[o->kind].rule && o->n_out && hd_type_count(o->out[0]->type)) rules[o->kind].rule(p, o, x, y);
}
