// From the ops of a `rows` kernel to scalar nodes. Each op is written here once, as sums, maxima and expressions; the
// printers know only those. A structured op has the rule that its row of ir/ops.def names, row_<rule>. Formulas are the
// evaluator's: statistics in two passes (mean, then variance), softmax with the maximum subtracted.
#include "codegen/rows/rows.h"
#include "ir/dropout.h"
#include "ir/shapes.h"

typedef struct {
    RowProgram *p;
    const RowBody *body;
    Arena *a;
    int *node_of;   // by value id; -1: none
    int *column_of; // of what is summed over the rows
} Lowering;

typedef void RowRule(Lowering *l, const Op *o, const int *in); // in: the nodes of the operands

const char hd_rows_product[] = "times($0, $1)", hd_rows_difference[] = "minus($0, $1)";

static RowNode *at(Lowering *l, int node) { return &l->p->nodes.at[node]; }
static void result(Lowering *l, const Op *o, int i, int node) { l->node_of[o->out[i]->id] = node; }
static void column(Lowering *l, const Op *o, int i, int node) { l->column_of[o->out[i]->id] = node; }

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
    bool row = a == ROW_STAT || b == ROW_STAT, wide = a >= ROW_COLUMN || b >= ROW_COLUMN;
    n->period = a == ROW_PERIODIC && b == ROW_PERIODIC && n->period != x->period ? 0
                : b == ROW_PERIODIC                                                ? x->period
                                                                                     : n->period;
    n->cls = row && wide ? ROW_FULL : a > b ? a : b;
    if (n->cls == ROW_PERIODIC && !n->period) n->cls = ROW_FULL;
}

// d == N_DTYPES: in the type of the first operand.
static int expr(Lowering *l, DType d, int cost, const char *text, int n_in, const int *in) {
    RowNode n = {
        .kind = NODE_EXPR, .dtype = d == N_DTYPES ? at(l, in[0])->dtype : d, .cost = cost, .text = text, .n_in = n_in};
    for (int i = 0; i < n_in; i++) {
        n.in[i] = in[i];
        join(&n, at(l, in[i]));
    }
    return add(l, n);
}
#define EXPR(cost, text, ...) EXPR_IN(N_DTYPES, cost, text, __VA_ARGS__)
#define EXPR_IN(d, cost, text, ...)                                                                                    \
    expr(l, d, cost, text, (int)(sizeof((int[]){__VA_ARGS__}) / sizeof(int)), (int[]){__VA_ARGS__})
static int times(Lowering *l, int a, int b) { return EXPR(1, hd_rows_product, a, b); }
static int minus(Lowering *l, int a, int b) { return EXPR(1, hd_rows_difference, a, b); }

static int spread(Lowering *l, int in) { // a value of the row at every column, for nodes that read whole rows
    if (hd_rows_each(at(l, in))) return in;
    int n = EXPR(0, "$0", in);
    at(l, n)->cls = ROW_FULL;
    return n;
}

static int reduce(Lowering *l, NodeKind kind, int in) {
    in = spread(l, in);
    RowNode n = {.kind = kind, .dtype = at(l, in)->dtype, .cls = ROW_STAT, .n_in = 1, .in = {in}};
    return add(l, n);
}
static int sum(Lowering *l, int in) { return reduce(l, NODE_SUM, in); }
static int mean(Lowering *l, int in) {
    int s = sum(l, in);
    return EXPR(1, "$0 / $n", s);
}

// --- row ops

static int rstd(Lowering *l, int square, const Op *o) { // 1 / sqrt(mean + eps)
    int s = sum(l, square), r = EXPR(4, "1 / sqrt(plus($0 / $n, $e))", s);
    at(l, r)->number = hd_float(&o->attrs, A_EPS, 0);
    return r;
}

static void row_layer_norm(Lowering *l, const Op *o, const int *in) { // x, weight, bias
    int m = mean(l, in[0]), away = minus(l, in[0], m), r = rstd(l, times(l, away, away), o);
    result(l, o, 0, EXPR(3, "fused(times($0, $1), $2, $3)", away, r, in[1], in[2]));
    result(l, o, 1, m);
    result(l, o, 2, r);
}

// With h = (x - mean) rstd and g = dy w: dx = rstd (g - mean(g) - h mean(g h)), dw = sum dy h, db = sum dy.
static void row_layer_norm_grad(Lowering *l, const Op *o, const int *in) { // dy, x, weight, mean, rstd
    int h = EXPR(2, "times(minus($0, $1), $2)", in[1], in[3], in[4]), g = times(l, in[0], in[2]);
    int g_mean = mean(l, g), gh_mean = mean(l, times(l, g, h));
    result(l, o, 0, EXPR(4, "times($0, fused(-$3, $4, minus($1, $2)))", in[4], g, g_mean, h, gh_mean));
    column(l, o, 1, times(l, in[0], h));
    column(l, o, 2, in[0]);
}

static void row_rms_norm(Lowering *l, const Op *o, const int *in) { // x, weight
    int r = rstd(l, times(l, in[0], in[0]), o);
    result(l, o, 0, EXPR(2, "times(times($0, $1), $2)", in[0], r, in[1]));
    result(l, o, 1, r);
}

// With h = x r and g = dy w: dx = r (g - h mean(g h)), dw = sum dy h.
static void row_rms_norm_grad(Lowering *l, const Op *o, const int *in) { // dy, x, weight, r
    int h = times(l, in[1], in[3]), g = times(l, in[0], in[2]), gh_mean = mean(l, times(l, g, h));
    result(l, o, 0, EXPR(3, "times($0, fused(-$2, $3, $1))", in[3], g, h, gh_mean));
    column(l, o, 1, times(l, in[0], h));
}

static void row_softmax(Lowering *l, const Op *o, const int *in) {
    int x = in[0];
    if (hd_has(&o->attrs, A_CAUSAL)) {
        const Type *t = o->in[0]->type;
        x = EXPR(1, hd_sprintf(l->a, "$c <= (int)($r %% %lld) ? $0 : $l", (long long)t->dim[t->rank - 2]), x);
        at(l, x)->indexed = true;
        at(l, x)->cls = ROW_FULL;
    }
    int e = EXPR(9, "exp(minus($0, $1))", x, reduce(l, NODE_MAX, x)), s = sum(l, e);
    result(l, o, 0, l->p->reciprocal ? times(l, e, EXPR(4, "1 / $0", s)) : EXPR(1, "$0 / $1", e, s));
}

// The largest element is taken out, where it is finite.
static void row_logsumexp(Lowering *l, const Op *o, const int *in) {
    int m = reduce(l, NODE_MAX, in[0]), shift = EXPR(2, "minus($0, $0) == 0 ? $0 : 0", m);
    int s = sum(l, EXPR(9, "exp(minus($0, $1))", in[0], shift));
    result(l, o, 0, EXPR(9, "plus(log($0), $1)", s, shift));
}

static int at_column(Lowering *l, DType d, const char *text, int a, int b) { // it names the column
    const int n = EXPR_IN(d, 1, text, a, b);
    at(l, n)->indexed = true;
    at(l, n)->cls = ROW_FULL;
    return n;
}

// x at the columns of a part that are in the vocabulary, else what `$l` or 0 says: a part begins at the target less its
// index.
static int in_vocabulary(Lowering *l, const Op *o, int x, int index, int target, const char *otherwise) {
    if (!hd_has(&o->attrs, A_UNEVEN)) return x;
    const char *text = hd_sprintf(l->a, "$c + ($2 - $1) < %lld ? $0 : %s",
                                  (long long)hd_int(&o->attrs, A_UNEVEN, 0), otherwise);
    const int n = EXPR_IN(at(l, x)->dtype, 1, text, x, index, target);
    at(l, n)->indexed = true;
    at(l, n)->cls = ROW_FULL;
    return n;
}

static void row_loss_part(Lowering *l, const Op *o, const int *in) { // logits, index, targets
    row_logsumexp(l, o, &(int){in_vocabulary(l, o, in[0], in[1], in[o->n_in - 1], "$l")});
    result(l, o, 1, sum(l, at_column(l, at(l, in[0])->dtype, "$c == $0 ? $1 : 0", in[1], in[0])));
}

static void row_loss_part_grad(Lowering *l, const Op *o, const int *in) { // logits, index, lse, dloss, targets, weights
    const DType d = at(l, in[0])->dtype;
    const int e = EXPR(9, "exp(minus($0, $1))", in[0], in[2]);
    int away = at_column(l, d, "minus($1, ($t)($c == $0 ? 1 : 0))", in[1], e);
    away = in_vocabulary(l, o, away, in[1], in[4], "0");
    if (o->n_in == 5) {
        const int step = EXPR(1, "$0 / $e", in[3]);
        at(l, step)->number = (double)l->p->rows;
        result(l, o, 0, times(l, step, away));
        return;
    }
    int weight = in[5];
    if (hd_has(&o->attrs, A_IGNORE))
        weight = EXPR_IN(d, 1, hd_sprintf(l->a, "$0 == %lld ? 0 : $1", (long long)hd_loss_ignored(o)), in[4], weight);
    result(l, o, 0, EXPR(2, "$0 == 0 ? 0 : times(times($1, $0), $2)", weight, in[3], away));
}

static void row_quantize(Lowering *l, const Op *o, const int *in) { // q is rounded where it is stored
    int most = reduce(l, NODE_MAX, EXPR(1, "$0 < 0 ? -$0 : $0", in[0])), least = EXPR(1, "$0 < $e ? $e : $0", most);
    int scale = EXPR(4, "$0 / $e", least);
    at(l, least)->number = 0x1p-100;
    at(l, scale)->number = hd_dtype_info(o->out[0]->type->dtype)->largest;
    result(l, o, 0, times(l, in[0], EXPR(4, "1 / $0", scale)));
    result(l, o, 1, scale);
}

// Of a rank's part of a value: what is added to the number that an element has in it (ir/dropout.h).
static const char *part_before(const Lowering *l, const Op *o, const char *type, const char *u, int64_t rows) {
    const int64_t run = hd_dropout_run(o), n = hd_dropout_ranks(o), each = run / l->p->cols;
    const char *own = hd_sprintf(l->a, " + (%s)$a[%d] * %lld%s", type, HD_KEY_PLACE, (long long)run, u);
    if (each == rows) return own;
    return hd_sprintf(l->a, "%s + (%s)$r %% %lld%s / %lld%s * %lld%s", own, type, (long long)rows, u, (long long)each,
                      u, (long long)(run * (n - 1)), u);
}

// The sequence and the element in it follow from row and column; rows of a sequence are next to each other. With $v and
// $j the CUDA compiler sees which elements have their numbers from one draw.
static void row_dropout(Lowering *l, const Op *o, const int *in) { // x, key
    const int64_t rows = l->p->rows / hd_int(&o->attrs, A_BATCH, 1), cols = l->p->cols;
    const bool wide = l->p->rows > INT32_MAX || rows > UINT32_MAX / cols / hd_dropout_ranks(o);
    const char *type = wide ? "unsigned long long" : "unsigned", *u = wide ? "ull" : "u";
    const DType d = at(l, in[0])->dtype;
    if (o->n_in < 2 || o->in[1]->def) HD_BUG("kernel @%s has dropout without a key", l->p->kernel->name);
    RowNode n = {.kind = NODE_EXPR, .dtype = d, .cls = ROW_FULL, .cost = 40, .indexed = true, .n_in = 1};
    n.in[0] = in[0];
    n.arg = o->in[1]->index;
    n.number = hd_dropout_factor(o);
    const char *first = "";
    if (hd_has(&o->attrs, A_OVER)) // what the whole has before this rank's part of the row's run of rows
        first = part_before(l, o, type, u, rows);
    n.text = hd_sprintf(
        l->a, "h_dropout%s($0, $a, (%s)$r / %lld%s, ((%s)$r %% %lld%s * %lld%s%s + (%s)$v) | $j, 0x%08xu, $e)",
        d == TY_F64 ? "_d" : "", type, (long long)rows, u, type, (long long)rows, u, (long long)cols, u, first, type,
        hd_dropout_threshold(o));
    result(l, o, 0, add(l, n));
}

static void row_softmax_grad(Lowering *l, const Op *o, const int *in) { // dy, y
    int dot = sum(l, times(l, in[0], in[1]));
    result(l, o, 0, EXPR(2, "times($1, minus($0, $2))", in[0], in[1], dot));
}

static void row_rope(Lowering *l, const Op *o, const int *in) {
    const int64_t apart = hd_rope_apart(o);
    int x = spread(l, in[0]);
    RowNode n = {.kind = NODE_PARTNER, .dtype = at(l, x)->dtype, .cls = ROW_FULL, .n_in = 1, .in = {x}};
    n.turn = (RowTurn){l->p->cols * apart / hd_int(&o->attrs, A_HEADS, 1) / 2, hd_rope_seq(o), apart,
                       hd_rope_columns(o), &o->attrs, hd_has(&o->attrs, A_INVERSE), o->id};
    n.in[1] = add(l, n);
    n.kind = NODE_TURN;
    n.n_in = 2;
    if (o->n_in > 1) n.in[n.n_in++] = in[1];
    n.cost = 40;
    n.indexed = true;
    result(l, o, 0, add(l, n));
}

static void row_sum_to(Lowering *l, const Op *o, const int *in) {
    const Type *from = o->in[0]->type, *to = o->out[0]->type;
    if (hd_rows_sums_columns(o->out[0]))
        column(l, o, 0, in[0]);
    else if (hd_type_count(to) == hd_type_count(from))
        result(l, o, 0, in[0]);
    else if (hd_type_count(to) == l->p->rows)
        result(l, o, 0, sum(l, in[0]));
    else
        HD_BUG("kernel @%s sums to %lld elements of %lld x %lld", l->p->kernel->name, (long long)hd_type_count(to),
               (long long)l->p->rows, (long long)l->p->cols);
}

static void reduced(Lowering *l, const Op *o, NodeKind kind, int in) {
    bool wide = hd_type_count(o->in[0]->type) != hd_type_count(o->out[0]->type);
    result(l, o, 0, wide ? reduce(l, kind, in) : in);
}
static void row_sum(Lowering *l, const Op *o, const int *in) { reduced(l, o, NODE_SUM, in[0]); }
static void row_largest(Lowering *l, const Op *o, const int *in) { reduced(l, o, NODE_MAX, in[0]); }

// --- elements

static void row_embedding(Lowering *l, const Op *o, const int *in) {
    DType d = o->out[0]->type->dtype;
    if (o->in[0]->def) HD_BUG("kernel @%s looks up a table that it computes", l->p->kernel->name);
    RowNode n = {.kind = NODE_GATHER, .dtype = hd_dtype_computed(d), .stored = d, .cls = ROW_FULL, .n_in = 1};
    n.in[0] = in[1];
    n.arg = o->in[0]->index;
    result(l, o, 0, add(l, n));
}

static void row_constant(Lowering *l, const Op *o, const int *in) {
    (void)in;
    RowNode n = {.kind = NODE_EXPR, .dtype = hd_dtype_computed(o->out[0]->type->dtype), .text = "$e"};
    n.number = hd_float(&o->attrs, A_VALUE, 0);
    result(l, o, 0, add(l, n));
}

static int index_of(const Lowering *l, const Value *v) { // among the arguments
    return v == l->body->given ? l->p->kernel->n_args : v->index;
}

static void row_part(Lowering *l, const Op *o, const int *in) {
    (void)in;
    const Type *t = o->in[0]->type, *y = o->out[0]->type;
    const Value *v = o->in[0];
    if ((v->def && v != l->body->given) || hd_int(&o->attrs, A_AXIS, 0) != t->rank - 1 || hd_type_cols(y) != l->p->cols)
        HD_BUG("kernel @%s takes a part that it cannot load", l->p->kernel->name);
    RowNode n = {.kind = NODE_LOAD, .dtype = hd_dtype_computed(t->dtype), .stored = t->dtype, .arg = index_of(l, v),
                 .cls = ROW_FULL, .part = {hd_type_cols(t), hd_int(&o->attrs, A_START, 0)}};
    result(l, o, 0, add(l, n));
}

static void row_parts(Lowering *l, const Op *o, const int *in) { // stored one by one
    (void)in;
    if (hd_int(&o->attrs, A_AXIS, 0) != o->out[0]->type->rank - 1)
        HD_BUG("kernel @%s puts parts together along another axis than the last", l->p->kernel->name);
}

static void row_same(Lowering *l, const Op *o, const int *in) { result(l, o, 0, in[0]); }

// Values inside a kernel are unrounded f32 whatever their type says; a cast rounds, even to the type that a value
// already has.
static void row_cast(Lowering *l, const Op *o, const int *in) {
    DType to = o->out[0]->type->dtype, d = hd_dtype_computed(to);
    int n = in[0];
    if (d != at(l, n)->dtype) n = EXPR_IN(d, 1, "($t)$0", n);
    bool exact = (at(l, n)->kind == NODE_LOAD || at(l, n)->kind == NODE_GATHER) && at(l, n)->stored == to;
    if (to != d && !exact) {
        n = EXPR_IN(d, 1, "$q", n);
        at(l, n)->stored = to;
    }
    result(l, o, 0, n);
}

static void row_elementwise(Lowering *l, const Op *o, const int *in) {
    static const struct {
        OpKind kind;
        const char *text;
    } short_forms[] = {{OP_ADD, "plus($0, $1)"},  {OP_SUB, hd_rows_difference},
                       {OP_MUL, hd_rows_product}, {OP_DIV, "$0 / $1"},
                       {OP_NEG, "-$0"},           {OP_SQUARE, "times($0, $0)"}};
    static const char *const operands[] = {"$0", "$0, $1", "$0, $1, $2"};
    const OpInfo *info = hd_op_info(o->kind);
    DType d = hd_dtype_computed(o->out[0]->type->dtype);
    const char *text = hd_sprintf(l->a, "h_%s%s(%s)", info->mnemonic, d == TY_F64 ? "_d" : "", operands[o->n_in - 1]);
    for (size_t i = 0; i < sizeof short_forms / sizeof *short_forms; i++)
        if (short_forms[i].kind == o->kind) text = short_forms[i].text;
    result(l, o, 0, expr(l, d, info->flops, text, o->n_in, in));
}

static void lower_op(Lowering *l, const Op *o) {
    static const struct { OpKind of; RowRule *rule; } rules[N_OPS] = {
#define ELT(id, ...) [OP_##id] = {.rule = row_elementwise},
#define OP(id, mnemonic, n_in, n_out, attrs, fields, doc) [OP_##id] = {.of = OP_##id, fields},
#define row(x) .rule = row_##x,
#include "ir/ops.def"
    };
    int in[HD_MAX_IN];
    for (int i = 0; i < o->n_in; i++) {
        in[i] = l->node_of[o->in[i]->id];
        if (in[i] < 0 && hd_operand_class(o, i) != 't' && hd_operand_class(o, i) != 'p')
            HD_BUG("kernel @%s: %s reads a column sum", l->p->kernel->name, hd_op_info(o->kind)->mnemonic);
    }
    if (!rules[o->kind].rule)
        HD_BUG("%s cannot be computed in kernel @%s", hd_op_info(o->kind)->mnemonic, l->p->kernel->name);
    rules[o->kind].rule(l, o, in);
}

// --- classes by type; where the type leaves two, the reader of a value decides (a row statistic as long as a row)
static RowClass class_of(const RowProgram *p, const Type *t, int64_t *period) {
    const int64_t n = hd_type_count(t);
    const bool all = n == p->rows * p->cols; // under whatever shape
    const RowClass c = all ? ROW_FULL : hd_row_class(t, (RowSpace){p->rows, p->cols});
    *period = c == ROW_PERIODIC ? n / p->cols : 0;
    if (c == ROW_NONE)
        HD_BUG("kernel @%s: %lld elements do not lie in %lld rows of %lld", p->kernel->name, (long long)n,
               (long long)p->rows, (long long)p->cols);
    return c;
}

typedef struct {
    bool row, column, other, element; // other: as a table or in parts
} Read; // as what a value is read

static void find_reads(const Lowering *l, const Value *v, Read *read) {
    const RowProgram *p = l->p;
    for (const Op *o = l->body->first; o != l->body->end; o = o->next)
        for (int i = 0; i < o->n_in; i++) {
            if (o->in[i] != v) continue;
            const char c = hd_operand_class(o, i);
            if (c == 't' || c == 'p')
                read->other = true;
            else if (c == 'i' || c == 's')
                read->row = true;
            else if (c == 'w')
                read->column = true;
            else if (hd_op_is(o, TRAIT_ALIAS))
                find_reads(l, o->out[0], read);
            else
                read->element = true;
            if (hd_op_is(o, TRAIT_ALIAS) && hd_type_count(v->type) == p->rows && hd_type_cols(o->out[0]->type) == 1)
                read->row = true;
        }
}

static void load_argument(Lowering *l, const Value *v) {
    Read read = {0};
    find_reads(l, v, &read);
    for (int i = 0; i < l->body->n; i++) read.element |= l->body->results[i] == v;
    if (!read.row && !read.column && !read.element && !read.other) return; // elsewhere in the kernel
    if (read.other && !read.row && !read.column && !read.element) return; // reached by loads of their own
    RowNode n = {
        .kind = NODE_LOAD, .dtype = hd_dtype_computed(v->type->dtype), .stored = v->type->dtype, .arg = index_of(l, v)};
    n.cls = read.row ? ROW_STAT : read.column ? ROW_COLUMN : class_of(l->p, v->type, &n.period);
    l->node_of[v->id] = add(l, n);
}

bool hd_rows_sums_columns(const Value *v) {
    if (hd_result_class(v) != 'c') return false;
    const Type *in = v->def->in[0]->type;
    return v->def->kind != OP_SUM_TO || (hd_type_cols(v->type) == hd_type_cols(in) &&
                                         hd_type_count(v->type) == hd_type_cols(in) && hd_type_rows(in) > 1);
}

static void bind_parts(Lowering *l, const Op *parts, int result) {
    const DType d = parts->out[0]->type->dtype;
    const int64_t width = hd_type_cols(parts->out[0]->type);
    int64_t start = 0;
    for (int i = 0; i < parts->n_in; start += hd_type_cols(parts->in[i++]->type)) {
        RowStore s = {.node = spread(l, l->node_of[parts->in[i]->id]), .result = result, .dtype = d, .cls = ROW_FULL,
                      .part = {width, start}};
        hd_push(l->a, &l->p->stores, s);
    }
}

static void bind_result(Lowering *l, const Value *v, int i) {
    int node = l->node_of[v->id];
    if (hd_result_class(v) == 'p') {
        bind_parts(l, v->def, i);
    } else if (node < 0) {
        RowColumn c = {l->column_of[v->id], i, v->type->dtype};
        if (c.dtype != TY_F32 && c.dtype != TY_F64)
            HD_BUG("kernel @%s: a column sum is stored as %s", l->p->kernel->name, hd_dtype_text(c.dtype));
        hd_push(l->a, &l->p->columns, c);
    } else {
        RowStore s = {.node = node, .result = i, .dtype = v->type->dtype};
        const bool stat = at(l, node)->cls == ROW_STAT && hd_type_count(v->type) == l->p->rows;
        s.cls = stat ? ROW_STAT : class_of(l->p, v->type, &s.period);
        hd_push(l->a, &l->p->stores, s);
    }
}

RowProgram hd_rows_build_body(const Func *kernel, const RowBody *body, bool reciprocal, Arena *a) {
    RowProgram p = {
        .kernel = kernel, .rows = body->space.rows, .cols = body->space.cols, .phases = 1, .reciprocal = reciprocal};
    Lowering l = {&p, body, a, HD_NEWN(a, int, kernel->n_values), HD_NEWN(a, int, kernel->n_values)};
    for (int i = 0; i < kernel->n_values; i++) l.node_of[i] = l.column_of[i] = -1;
    for (int i = 0; i < kernel->n_args; i++) load_argument(&l, kernel->args[i]);
    if (body->given) load_argument(&l, body->given);
    for (const Op *o = body->first; o != body->end; o = o->next) lower_op(&l, o);
    for (int i = 0; i < body->n; i++)
        if (body->results[i]) bind_result(&l, body->results[i], i);
    return p;
}

RowProgram hd_rows_build(const Func *kernel, bool reciprocal, Arena *a) {
    const Op *ret = hd_return(kernel);
    const Value **results = HD_NEWN(a, const Value *, ret->n_in + 1);
    for (int i = 0; i < ret->n_in; i++) results[i] = ret->in[i];
    const RowBody body = {.first = kernel->first, .end = ret, .results = results, .n = ret->n_in,
                          .space = {hd_int(&kernel->attrs, A_ROWS, 1), hd_int(&kernel->attrs, A_COLS, 1)}};
    return hd_rows_build_body(kernel, &body, reciprocal, a);
}
