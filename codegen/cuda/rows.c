// From the ops of a `rows` kernel to scalar nodes. Structured ops (norms, softmax, their gradients) are written here
// once, as sums, maxima and expressions; everything after this file knows only those. Formulas are those of the
// evaluator: statistics by two passes (mean, then variance), softmax with the maximum taken out.
#include "codegen/cuda/rows.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    RowProgram *p;
    Arena *a;
    const char *name;
    int *node_of;
    int *column_of;
} Lowering; // by value id; -1: none

static RowNode *at(Lowering *l, int node) { return &l->p->nodes.at[node]; }

static int add(Lowering *l, RowNode n) {
    for (int i = 0; i < n.n_in; i++) {
        const RowNode *x = at(l, n.in[i]);
        int after = x->phase + (x->kind == NODE_SUM || x->kind == NODE_MAX);
        if (after > n.phase) n.phase = after;
    }
    if (n.phase + 1 > l->p->phases) l->p->phases = n.phase + 1;
    hd_push(l->a, &l->p->nodes, n);
    return l->p->nodes.n - 1;
}

// The class of a value computed from two others.
static void join(RowNode *n, const RowNode *x) {
    RowClass a = n->cls, b = x->cls;
    bool row = a == CLASS_ROW || b == CLASS_ROW, wide = a >= CLASS_COLUMN || b >= CLASS_COLUMN;
    n->period = a == CLASS_PERIODIC && b == CLASS_PERIODIC && n->period != x->period ? 0
                : b == CLASS_PERIODIC                                                ? x->period
                                                                                     : n->period;
    n->cls = row && wide ? CLASS_FULL : a > b ? a : b;
    if (n->cls == CLASS_PERIODIC && !n->period) n->cls = CLASS_FULL;
}

static int expr(Lowering *l, DType d, int cost, const char *text, int n_in, const int *in) {
    RowNode n = {.kind = NODE_EXPR, .dtype = d, .cost = cost, .text = text, .n_in = n_in};
    for (int i = 0; i < n_in; i++) {
        n.in[i] = in[i];
        join(&n, at(l, in[i]));
    }
    return add(l, n);
}
#define EXPR(d, cost, text, ...)                                                                                       \
    expr(l, d, cost, text, (int)(sizeof((int[]){__VA_ARGS__}) / sizeof(int)), (int[]){__VA_ARGS__})

static int reduce(Lowering *l, NodeKind kind, int in) {
    RowNode n = {.kind = kind, .dtype = at(l, in)->dtype, .cls = CLASS_ROW, .n_in = 1, .in = {in}};
    return add(l, n);
}

static void column(Lowering *l, const Value *v, int node) { // v: the result that is the column sum of `node`
    l->column_of[v->id] = node;
}

// A literal of the compute type.
static const char *literal(Lowering *l, DType d, double v) {
    if (isnan(v)) return d == TY_F64 ? "__longlong_as_double(0x7ff8000000000000ll)" : "__int_as_float(0x7fc00000)";
    if (isinf(v)) return hd_sprintf(l->a, v < 0 ? "least<%s>()" : "(-least<%s>())", d == TY_F64 ? "double" : "float");
    if (d == TY_I32) return hd_sprintf(l->a, "%lld", (long long)v);
    char text[340];
    int digits = 1;
    do snprintf(text, sizeof text, "%.*g", digits, v); // the shortest text that reads back as the same number
    while (d == TY_F64 ? strtod(text, NULL) != v && ++digits <= 17 : strtof(text, NULL) != (float)v && ++digits <= 9);
    return hd_sprintf(l->a, "%s%s%s%s%s", v < 0 ? "(" : "", text, strpbrk(text, ".e") ? "" : ".0",
                      d == TY_F64 ? "" : "f", v < 0 ? ")" : "");
}

// --- structured ops. Operands are nodes already; results are bound to the op's values.
static void layer_norm(Lowering *l, const Op *o, const int *in) {
    DType d = at(l, in[0])->dtype;
    const char *n = literal(l, d, (double)l->p->cols), *eps = literal(l, d, hd_float(&o->attrs, A_EPS, 0));
    int mean = EXPR(d, 1, hd_sprintf(l->a, "$0 / %s", n), reduce(l, NODE_SUM, in[0]));
    int away = EXPR(d, 1, "minus($0, $1)", in[0], mean);
    int square = EXPR(d, 1, "times($0, $0)", away);
    int rstd = EXPR(d, 4, hd_sprintf(l->a, "1 / sqrt(plus($0 / %s, %s))", n, eps), reduce(l, NODE_SUM, square));
    l->node_of[o->out[0]->id] = EXPR(d, 3, "fused(times($0, $1), $2, $3)", away, rstd, in[1], in[2]);
    l->node_of[o->out[1]->id] = mean;
    l->node_of[o->out[2]->id] = rstd;
}

// With h = (x - mean) rstd and g = dy w: dx = rstd (g - mean(g) - h mean(g h)), dw = sum dy h, db = sum dy.
static void layer_norm_grad(Lowering *l, const Op *o, const int *in) {
    DType d = at(l, in[1])->dtype;
    const char *n = literal(l, d, (double)l->p->cols);
    int h = EXPR(d, 2, "times(minus($0, $1), $2)", in[1], in[3], in[4]), g = EXPR(d, 1, "times($0, $1)", in[0], in[2]);
    int g_mean = EXPR(d, 1, hd_sprintf(l->a, "$0 / %s", n), reduce(l, NODE_SUM, g));
    int gh_mean = EXPR(d, 1, hd_sprintf(l->a, "$0 / %s", n), reduce(l, NODE_SUM, EXPR(d, 1, "times($0, $1)", g, h)));
    l->node_of[o->out[0]->id] = EXPR(d, 4, "times($0, fused(-$3, $4, minus($1, $2)))", in[4], g, g_mean, h, gh_mean);
    column(l, o->out[1], EXPR(d, 1, "times($0, $1)", in[0], h));
    column(l, o->out[2], in[0]);
}

static void rms_norm(Lowering *l, const Op *o, const int *in) {
    DType d = at(l, in[0])->dtype;
    const char *n = literal(l, d, (double)l->p->cols), *eps = literal(l, d, hd_float(&o->attrs, A_EPS, 0));
    int square = EXPR(d, 1, "times($0, $0)", in[0]);
    int r = EXPR(d, 4, hd_sprintf(l->a, "1 / sqrt(plus($0 / %s, %s))", n, eps), reduce(l, NODE_SUM, square));
    l->node_of[o->out[0]->id] = EXPR(d, 2, "times(times($0, $1), $2)", in[0], r, in[1]);
    l->node_of[o->out[1]->id] = r;
}

// With h = x r and g = dy w: dx = r (g - h mean(g h)), dw = sum dy h.
static void rms_norm_grad(Lowering *l, const Op *o, const int *in) {
    DType d = at(l, in[1])->dtype;
    const char *n = literal(l, d, (double)l->p->cols);
    int h = EXPR(d, 1, "times($0, $1)", in[1], in[3]), g = EXPR(d, 1, "times($0, $1)", in[0], in[2]);
    int gh_mean = EXPR(d, 1, hd_sprintf(l->a, "$0 / %s", n), reduce(l, NODE_SUM, EXPR(d, 1, "times($0, $1)", g, h)));
    l->node_of[o->out[0]->id] = EXPR(d, 3, "times($0, fused(-$2, $3, $1))", in[3], g, h, gh_mean);
    column(l, o->out[1], EXPR(d, 1, "times($0, $1)", in[0], h));
}

static void softmax(Lowering *l, const Op *o, const int *in) {
    DType d = at(l, in[0])->dtype;
    int x = in[0];
    if (hd_has(&o->attrs, A_CAUSAL)) {
        const Type *t = o->in[0]->type;
        x = EXPR(d, 1, hd_sprintf(l->a, "$c <= (int)($r %% %lld) ? $0 : least<%s>()", (long long)t->dim[t->rank - 2],
                                  d == TY_F64 ? "double" : "float"), x);
        at(l, x)->indexed = true;
        at(l, x)->cls = CLASS_FULL;
    }
    int e = EXPR(d, 9, "exp(minus($0, $1))", x, reduce(l, NODE_MAX, x));
    int r = EXPR(d, 4, "1 / $0", reduce(l, NODE_SUM, e));
    l->node_of[o->out[0]->id] = EXPR(d, 1, "times($0, $1)", e, r);
}

static void softmax_grad(Lowering *l, const Op *o, const int *in) {
    DType d = at(l, in[0])->dtype;
    int dot = reduce(l, NODE_SUM, EXPR(d, 1, "times($0, $1)", in[0], in[1]));
    l->node_of[o->out[0]->id] = EXPR(d, 2, "times($1, minus($0, $2))", in[0], in[1], dot);
}

// Frequencies in revolutions a position, each as the sum of two numbers, so that the angle of a far position keeps its
// precision.
static void rope(Lowering *l, const Op *o, const int *in) {
    DType d = at(l, in[0])->dtype;
    const Type *t = o->in[0]->type;
    int64_t seq = t->dim[t->rank - 2], size = l->p->cols / hd_int(&o->attrs, A_HEADS, 1), half = size / 2;
    double theta = hd_float(&o->attrs, A_THETA, 10000.0);
    const char *real = d == TY_F64 ? "double" : "float";
    char *table = hd_sprintf(l->a, "%s_turns%d", l->name, o->id);
    Out g = hd_out(l->a);
    hd_printf(&g, "__device__ const %s %s[%lld] = { // revolutions a position: high and low part\n", real, table,
              (long long)(2 * half));
    for (int64_t i = 0; i < half; i++) {
        double f = pow(theta, -2.0 * (double)i / (double)size) / (2 * 3.14159265358979323846);
        double high = d == TY_F64 ? f : (double)(float)f;
        hd_printf(&g, "%s%s, %s%s", i % 4 ? " " : "    ", literal(l, d, high), literal(l, d, f - high),
                  i % 4 == 3 || i + 1 == half ? ",\n" : ",");
    }
    hd_puts(&g, "};\n");
    hd_push(l->a, &l->p->globals, g.text);
    RowNode n = {.kind = NODE_PARTNER, .dtype = d, .cls = CLASS_FULL, .half = half, .n_in = 1, .in = {in[0]}};
    int other = add(l, n);
    int y = EXPR(d, 40,
                 hd_sprintf(l->a, "rope<%lld>($0, $1, (int)($r %% %lld), $c %% %lld, %s, %s)", (long long)half,
                            (long long)seq, (long long)size, table, hd_has(&o->attrs, A_INVERSE) ? "true" : "false"),
                 in[0], other);
    at(l, y)->indexed = true;
    at(l, y)->cls = CLASS_FULL;
    l->node_of[o->out[0]->id] = y;
}

static void elementwise(Lowering *l, const Op *o, const int *in) {
    const OpInfo *info = hd_op_info(o->kind);
    DType d = hd_dtype_computed(o->out[0]->type->dtype);
    Out t = hd_out(l->a);
    hd_printf(&t, "h_%s%s(", info->mnemonic, d == TY_F64 ? "_d" : "");
    for (int i = 0; i < o->n_in; i++) hd_printf(&t, "%s$%d", i ? ", " : "", i);
    hd_puts(&t, ")");
    static const struct { OpKind kind; const char *text;
    } short_forms[] = {{OP_ADD, "plus($0, $1)"}, {OP_SUB, "minus($0, $1)"}, {OP_MUL, "times($0, $1)"},
                       {OP_DIV, "$0 / $1"},      {OP_NEG, "-$0"},           {OP_SQUARE, "times($0, $0)"}};
    const char *text = t.text;
    for (size_t i = 0; i < sizeof short_forms / sizeof *short_forms; i++)
        if (short_forms[i].kind == o->kind) text = short_forms[i].text;
    l->node_of[o->out[0]->id] = expr(l, d, info->flops, text, o->n_in, in);
}

// Values inside a kernel are unrounded f32 whatever their type says; a cast rounds, also one to the type a value has
// already.
static void cast(Lowering *l, const Op *o, const int *in) {
    DType to = o->out[0]->type->dtype, d = hd_dtype_computed(to), from = at(l, in[0])->dtype;
    int n = in[0];
    if (d != from) n = EXPR(d, 1, hd_sprintf(l->a, "(%s)$0", hd_dtype_info(d)->cuda), n);
    bool exact = (at(l, n)->kind == NODE_LOAD || at(l, n)->kind == NODE_GATHER) && at(l, n)->stored == to;
    if (d != to && !exact) n = EXPR(d, 1, hd_sprintf(l->a, "widen(Narrow<%s>::from($0))", hd_dtype_info(to)->cuda), n);
    l->node_of[o->out[0]->id] = n;
}

static void sum_to(Lowering *l, const Op *o, const int *in) {
    const Type *from = o->in[0]->type, *to = o->out[0]->type;
    int64_t n = hd_type_count(to);
    if (n == hd_type_count(from)) l->node_of[o->out[0]->id] = in[0];
    else if (n == l->p->cols && hd_type_cols(to) == l->p->cols) column(l, o->out[0], in[0]);
    else if (n == l->p->rows) l->node_of[o->out[0]->id] = reduce(l, NODE_SUM, in[0]);
    else
        HD_BUG("kernel @%s sums to %lld elements of %lld x %lld", l->p->kernel->name, (long long)n,
               (long long)l->p->rows, (long long)l->p->cols);
}

static void row_reduce(Lowering *l, const Op *o, const int *in) {
    bool wide = hd_type_count(o->in[0]->type) != hd_type_count(o->out[0]->type);
    l->node_of[o->out[0]->id] = wide ? reduce(l, o->kind == OP_SUM ? NODE_SUM : NODE_MAX, in[0]) : in[0];
}

static void embedding(Lowering *l, const Op *o, const int *in) {
    DType d = o->out[0]->type->dtype;
    RowNode n = {.kind = NODE_GATHER,
                 .dtype = hd_dtype_computed(d),
                 .stored = d,
                 .cls = CLASS_FULL,
                 .n_in = 1,
                 .in = {in[1]},
                 .arg = o->in[0]->index};
    if (o->in[0]->def) HD_BUG("kernel @%s looks up a table that it computes", l->p->kernel->name);
    l->node_of[o->out[0]->id] = add(l, n);
}

static void constant(Lowering *l, const Op *o) {
    DType d = hd_dtype_computed(o->out[0]->type->dtype);
    RowNode n = {
        .kind = NODE_EXPR, .dtype = d, .cls = CLASS_SCALAR, .text = literal(l, d, hd_float(&o->attrs, A_VALUE, 0))};
    l->node_of[o->out[0]->id] = add(l, n);
}

static void lower_op(Lowering *l, const Op *o) {
    int in[HD_MAX_IN];
    for (int i = 0; i < o->n_in; i++) {
        in[i] = l->node_of[o->in[i]->id];
        if (in[i] < 0 && !(o->kind == OP_EMBEDDING && i == 0))
            HD_BUG("kernel @%s: %s reads a column sum", l->p->kernel->name, hd_op_info(o->kind)->mnemonic);
    }
    switch (o->kind) {
    case OP_CONST: constant(l, o); return;
    case OP_CAST: cast(l, o, in); return;
    case OP_RESHAPE: l->node_of[o->out[0]->id] = in[0]; return;
    case OP_EMBEDDING: embedding(l, o, in); return;
    case OP_SUM: case OP_REDUCE_MAX: row_reduce(l, o, in); return;
    case OP_SUM_TO: sum_to(l, o, in); return;
    case OP_LAYER_NORM: layer_norm(l, o, in); return;
    case OP_LAYER_NORM_GRAD: layer_norm_grad(l, o, in); return;
    case OP_RMS_NORM: rms_norm(l, o, in); return;
    case OP_RMS_NORM_GRAD: rms_norm_grad(l, o, in); return;
    case OP_SOFTMAX: softmax(l, o, in); return;
    case OP_SOFTMAX_GRAD: softmax_grad(l, o, in); return;
    case OP_ROPE: rope(l, o, in); return;
    default:
        if (!hd_op_info(o->kind)->meaning)
            HD_BUG("%s cannot stand in kernel @%s", hd_op_info(o->kind)->mnemonic, l->p->kernel->name);
        elementwise(l, o, in);
    }
}

// --- classes by type; where the type leaves two, the reader of the value decides (a row statistic as long as a row)
static RowClass class_of(const RowProgram *p, const Type *t, int64_t *period) {
    int64_t n = hd_type_count(t), last = hd_type_cols(t);
    *period = 0;
    if (n == p->rows * p->cols) return CLASS_FULL;
    if (n == 1) return CLASS_SCALAR;
    if (last == p->cols && n == p->cols) return CLASS_COLUMN;
    if (last == p->cols && p->rows % (n / p->cols) == 0) { *period = n / p->cols; return CLASS_PERIODIC; }
    if (n == p->rows) return CLASS_ROW;
    HD_BUG("kernel @%s: %lld elements do not lie in %lld rows of %lld", p->kernel->name, (long long)n,
           (long long)p->rows, (long long)p->cols);
}

static bool per_row_operand(const Op *o, int i) {
    return (o->kind == OP_LAYER_NORM_GRAD && i >= 3) || (o->kind == OP_RMS_NORM_GRAD && i == 3) ||
           (o->kind == OP_EMBEDDING && i == 1);
}
static bool per_column_operand(const Op *o, int i) {
    return (o->kind == OP_LAYER_NORM && i >= 1) || (o->kind == OP_RMS_NORM && i == 1) ||
           ((o->kind == OP_LAYER_NORM_GRAD || o->kind == OP_RMS_NORM_GRAD) && i == 2);
}

static void load_argument(Lowering *l, const Value *v) {
    bool row = false, col = false, table = false, element = false;
    for (const Op *o = l->p->kernel->first; o; o = o->next)
        for (int i = 0; i < o->n_in; i++)
            if (o->in[i] == v) {
                if (o->kind == OP_EMBEDDING && i == 0) table = true;
                else if (per_row_operand(o, i)) row = true;
                else if (per_column_operand(o, i)) col = true;
                else element = true;
            }
    if (table && !row && !col && !element) return; // reached through its gather only
    RowNode n = {
        .kind = NODE_LOAD, .dtype = hd_dtype_computed(v->type->dtype), .stored = v->type->dtype, .arg = v->index};
    n.cls = row ? CLASS_ROW : col ? CLASS_COLUMN : class_of(l->p, v->type, &n.period);
    l->node_of[v->id] = add(l, n);
}

static void bind_results(Lowering *l) {
    const Op *ret = hd_return(l->p->kernel);
    for (int i = 0; i < ret->n_in; i++) {
        const Value *v = ret->in[i];
        int node = l->node_of[v->id];
        if (node < 0) {
            RowColumn c = {l->column_of[v->id], i, v->type->dtype};
            hd_push(l->a, &l->p->columns, c);
        } else {
            RowStore s = {.node = node, .result = i, .dtype = v->type->dtype};
            s.cls = at(l, node)->cls == CLASS_ROW && hd_type_count(v->type) == l->p->rows
                        ? CLASS_ROW
                        : class_of(l->p, v->type, &s.period);
            hd_push(l->a, &l->p->stores, s);
        }
    }
}

RowProgram hd_rows_build(const Func *kernel, const char *name, Arena *a) {
    RowProgram p = {.kernel = kernel,
                    .rows = hd_int(&kernel->attrs, A_ROWS, 1),
                    .cols = hd_int(&kernel->attrs, A_COLS, 1),
                    .phases = 1};
    Lowering l = {&p, a, name, HD_NEWN(a, int, kernel->n_values), HD_NEWN(a, int, kernel->n_values)};
    for (int i = 0; i < kernel->n_values; i++) l.node_of[i] = l.column_of[i] = -1;
    for (int i = 0; i < kernel->n_args; i++) load_argument(&l, kernel->args[i]);
    for (const Op *o = kernel->first; o && o->kind != OP_RETURN; o = o->next) lower_op(&l, o);
    bind_results(&l);
    return p;
}
