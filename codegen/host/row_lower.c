// Makes the cells of a row kernel: loads for its operands, then a few cells for every op of its body.
//
// What an operand is (full rows, rows that repeat, one row for all, one value a row, one value) follows from its type,
// except where an op says it: statistics of a norm are one value a row and an embedding's operands are a table and
// indices even if their last size happens to equal the number of columns.
#include "codegen/host/row_cells.h"
#include "ir/base/ints.h"

typedef enum { LIKE_TYPE, LIKE_ROW_VALUE, LIKE_INDEX, LIKE_TABLE } Like;

static const char *text(RowKernel *rk, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static const char *text(RowKernel *rk, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    const char *s = hd_vsprintf(rk->e->a, fmt, ap);
    va_end(ap);
    return s;
}

// --- adding cells

static int add(RowKernel *rk, CellKind kind, DType type, const char *s) {
    Cell c = {.kind = kind, .type = hd_dtype_computed(type), .text = s, .operand = -1};
    hd_push(rk->e->a, &rk->cells, c);
    return rk->cells.n - 1;
}

static int add_in(RowKernel *rk, int cell, int in, bool whole) {
    Cell *c = &rk->cells.at[cell];
    if (c->n_in == CELL_MAX_IN) HD_BUG("cell %s has too many operands", c->text);
    if (whole) c->whole |= 1u << c->n_in;
    c->in[c->n_in++] = in;
    return cell;
}

static bool is_wide(RowKernel *rk, int cell) { return rk->cells.at[cell].kind != CELL_NARROW; }

// A pointwise cell over up to five others: wide when one of them is.
static int expr(RowKernel *rk, DType type, const char *s, int n, const int *in) {
    bool wide = false;
    for (int i = 0; i < n; i++) wide = wide || is_wide(rk, in[i]);
    int cell = add(rk, wide ? CELL_WIDE : CELL_NARROW, type, s);
    for (int i = 0; i < n; i++) add_in(rk, cell, in[i], false);
    return cell;
}
#define EXPR(rk, type, s, ...)                                                                                         \
    expr(rk, type, s, (int)(sizeof((int[]){__VA_ARGS__}) / sizeof(int)), (int[]){__VA_ARGS__})

// A whole row is asked of a value that is the same in every column: spread it first.
static int as_wide(RowKernel *rk, int cell) {
    if (is_wide(rk, cell)) return cell;
    int w = add(rk, CELL_WIDE, rk->cells.at[cell].type, "$0");
    return add_in(rk, w, cell, false);
}

// A narrow cell over one or two whole rows and narrow values.
static int reduce(RowKernel *rk, DType type, const char *s, int row1, int row2, int narrow) {
    if (row1 >= 0) row1 = as_wide(rk, row1);
    if (row2 >= 0) row2 = as_wide(rk, row2);
    int cell = add(rk, CELL_NARROW, type, s);
    if (row1 >= 0) add_in(rk, cell, row1, true);
    if (row2 >= 0) add_in(rk, cell, row2, true);
    if (narrow >= 0) add_in(rk, cell, narrow, false);
    return cell;
}

// --- operands

static Like like_of(const Func *k, const Value *v) {
    for (const Op *o = k->first; o; o = o->next)
        for (int i = 0; i < o->n_in; i++) {
            if (o->in[i] != v) continue;
            if (o->kind == OP_EMBEDDING) return i ? LIKE_INDEX : LIKE_TABLE;
            if ((o->kind == OP_LAYER_NORM_GRAD || o->kind == OP_RMS_NORM_GRAD) && i >= 3) return LIKE_ROW_VALUE;
            if (o->kind == OP_RESHAPE || o->kind == OP_CAST) {
                Like l = like_of(k, o->out[0]);
                if (l != LIKE_TYPE) return l;
                const Type *t = o->out[0]->type;
                if (o->kind == OP_RESHAPE && t->rank && t->dim[t->rank - 1] == 1) return LIKE_ROW_VALUE;
            }
        }
    return LIKE_TYPE;
}

static int load_arg(RowKernel *rk, int i) {
    const Value *v = rk->k->args[i];
    const Type *t = v->type;
    int64_t count = hd_type_count(t), cols = rk->cols;
    Like like = like_of(rk->k, v);
    const char *place;
    CellKind kind = CELL_LOAD;
    if (like == LIKE_TABLE) return -1; // read by its embedding
    if (count == 1 && cols * rk->rows != 1) { kind = CELL_NARROW; place = text(rk, "a%d[0]", i);
    } else if (like == LIKE_INDEX && count != rk->rows) {
        kind = CELL_NARROW;
        place = text(rk, "a%d[r %% %lld]", i, ll(count));
    } else if (like != LIKE_TYPE || !t->rank || t->dim[t->rank - 1] != cols) {
        if (count != rk->rows)
            HD_BUG("kernel @%s: operand %d has %lld values for %lld rows of %lld", rk->k->name, i, ll(count),
                   ll(rk->rows), ll(cols));
        kind = CELL_NARROW;
        place = text(rk, "a%d[r]", i);
    } else if (count == cols && rk->rows > 1) {
        place = text(rk, "a%d[c]", i);
    } else if (count == cols * rk->rows) {
        place = text(rk, "a%d[r * %lld + c]", i, ll(cols));
    } else {
        if (count % cols || rk->rows % (count / cols))
            HD_BUG("kernel @%s: operand %d does not repeat over %lld rows", rk->k->name, i, ll(rk->rows));
        place = text(rk, "a%d[r %% %lld * %lld + c]", i, ll(count / cols), ll(cols));
    }
    int cell = add(rk, kind, t->dtype, hd_host_load(rk->e->a, t->dtype, place));
    rk->cells.at[cell].operand = i;
    return cell;
}

// How a result is stored. One that is narrower than the kernel is stored by its first rows only.
static RowStore store_of(RowKernel *rk, const Value *v, int result, bool column_sum) {
    int64_t count = hd_type_count(v->type);
    RowStore s = {.cell = rk->cell_of[v->id], .result = result, .column_sum = column_sum, .wide = true};
    if (column_sum) {
        if (v->type->dtype != TY_F32 && v->type->dtype != TY_F64)
            HD_BUG("kernel @%s: a column sum is stored as %s", rk->k->name, hd_dtype_text(v->type->dtype));
        s.cell = as_wide(rk, s.cell);
        return s;
    }
    bool full_rows = v->type->rank && v->type->dim[v->type->rank - 1] == rk->cols && count % rk->cols == 0;
    if (!is_wide(rk, s.cell) && (count == rk->rows || !full_rows)) s.wide = false;
    s.period = s.wide ? count / rk->cols : count;
    if (s.wide && count % rk->cols)
        HD_BUG("kernel @%s: result %d has %lld values for %lld columns", rk->k->name, result, ll(count), ll(rk->cols));
    return s;
}

// --- ops. `in` are the cells of the operands; results go to rk->cell_of.

static int function(RowKernel *rk, const Op *o, const int *in) {
    static const char *const f[] = {"$0", "$0, $1", "$0, $1, $2"};
    bool f64 = o->out[0]->type->dtype == TY_F64;
    return expr(rk, f64 ? TY_F64 : TY_F32,
                text(rk, "h_%s%s(%s)", hd_op_info(o->kind)->mnemonic, f64 ? "_d" : "", f[o->n_in - 1]), o->n_in, in);
}

static int cast(RowKernel *rk, const Op *o, int in) {
    DType to = o->out[0]->type->dtype, from = rk->cells.at[in].type;
    if (hd_dtype_is_float(to) && hd_dtype_computed(to) != to)
        return EXPR(rk, TY_F32, text(rk, "hd_round_%s(%s$0)", hd_dtype_text(to), from == TY_F32 ? "" : "(float)"), in);
    if (hd_dtype_computed(to) == from) return in;
    return EXPR(rk, to, text(rk, "(%s)$0", hd_host_compute_type(to)), in);
}

static int embedding(RowKernel *rk, const Op *o, const int *in) {
    const Value *table = o->in[0];
    if (table->def || table->func != rk->k)
        HD_BUG("kernel @%s: the table of an embedding must be an operand", rk->k->name);
    const char *place = text(rk, "a%d[(int64_t)$0 * %lld + c]", table->index, ll(rk->cols));
    int cell = add(rk, CELL_LOAD, table->type->dtype, hd_host_load(rk->e->a, table->type->dtype, place));
    rk->cells.at[cell].operand = table->index;
    return add_in(rk, cell, in[1], false);
}

static const char *suffix(DType t) { return t == TY_F64 ? "_d" : ""; }
static const char *literal(RowKernel *rk, double v, DType t) { return hd_emit_number(rk->e->a, v, t == TY_F64); }

static void norm(RowKernel *rk, const Op *o, const int *in, int out[]) {
    DType t = hd_dtype_computed(o->in[0]->type->dtype);
    bool centred = o->kind == OP_LAYER_NORM;
    const char *n = text(rk, "%lld", ll(rk->cols)), *nf = literal(rk, (double)rk->cols, t), *one = literal(rk, 1, t);
    const char *root = t == TY_F64 ? "sqrt" : "sqrtf", *eps = literal(rk, hd_float(&o->attrs, A_EPS, 0), t);
    if (centred) {
        int mean = reduce(rk, t, text(rk, "hd_row_sum%s($0, %s) / %s", suffix(t), n, nf), in[0], -1, -1);
        int rstd =
            reduce(rk, t, text(rk, "%s / %s(hd_row_spread%s($0, $1, %s) / %s + %s)", one, root, suffix(t), n, nf, eps),
                   in[0], -1, mean);
        out[0] = EXPR(rk, t, "($0 - $1) * $2 * $3 + $4", in[0], mean, rstd, in[1], in[2]);
        out[1] = mean;
        out[2] = rstd;
    } else {
        int r = reduce(rk, t, text(rk, "%s / %s(hd_row_dot%s($0, $1, %s) / %s + %s)", one, root, suffix(t), n, nf, eps),
                       in[0], in[0], -1);
        out[0] = EXPR(rk, t, "$0 * $1 * $2", in[0], r, in[1]);
        out[1] = r;
    }
}

static void norm_grad(RowKernel *rk, const Op *o, const int *in, int out[]) { // dy, x, weight, [mean,] 1/std
    DType t = hd_dtype_computed(o->in[0]->type->dtype);
    bool centred = o->kind == OP_LAYER_NORM_GRAD;
    const char *n = text(rk, "%lld", ll(rk->cols)), *nf = literal(rk, (double)rk->cols, t), *s = suffix(t);
    int rstd = in[centred ? 4 : 3];
    int hat = centred ? EXPR(rk, t, "($0 - $1) * $2", in[1], in[3], rstd) : EXPR(rk, t, "$0 * $1", in[1], rstd);
    int g = EXPR(rk, t, "$0 * $1", in[0], in[2]);
    int along = reduce(rk, t, text(rk, "hd_row_dot%s($0, $1, %s) / %s", s, n, nf), g, hat, -1);
    if (centred) {
        int mean = reduce(rk, t, text(rk, "hd_row_sum%s($0, %s) / %s", s, n, nf), g, -1, -1);
        out[0] = EXPR(rk, t, "($0 - $1 - $2 * $3) * $4", g, mean, hat, along, rstd);
    } else {
        out[0] = EXPR(rk, t, "($0 - $1 * $2) * $3", g, hat, along, rstd);
    }
    out[1] = EXPR(rk, t, "$0 * $1", in[0], hat); // summed over the rows
    out[2] = in[0];
}

static int softmax(RowKernel *rk, const Op *o, int x) {
    const Type *ty = o->in[0]->type;
    DType t = hd_dtype_computed(ty->dtype);
    const char *s = suffix(t), *e = t == TY_F64 ? "exp" : "hd_exp", *zero = literal(rk, 0, t);
    x = as_wide(rk, x);
    int p;
    if (hd_has(&o->attrs, A_CAUSAL)) {
        int64_t steps = ty->dim[ty->rank - 2];
        const char *visible =
            text(rk, steps <= rk->cols ? "r %% %lld + 1" : "(r %% %lld < %lld ? r %% %lld + 1 : %lld)", ll(steps),
                 ll(rk->cols), ll(steps), ll(rk->cols));
        int m = reduce(rk, t, text(rk, "hd_row_max%s($0, %s)", s, visible), x, -1, -1);
        p = EXPR(rk, t, text(rk, "(c < %s ? %s($0 - $1) : %s)", visible, e, zero), x, m);
    } else {
        int m = reduce(rk, t, text(rk, "hd_row_max%s($0, %lld)", s, ll(rk->cols)), x, -1, -1);
        p = EXPR(rk, t, text(rk, "%s($0 - $1)", e), x, m);
    }
    int sum = reduce(rk, t, text(rk, "hd_row_sum%s($0, %lld)", s, ll(rk->cols)), p, -1, -1);
    return EXPR(rk, t, "$0 / $1", p, sum);
}

static int softmax_grad(RowKernel *rk, const Op *o, const int *in) { // dy, y
    DType t = hd_dtype_computed(o->in[0]->type->dtype);
    int s = reduce(rk, t, text(rk, "hd_row_dot%s($0, $1, %lld)", suffix(t), ll(rk->cols)), in[0], in[1], -1);
    return EXPR(rk, t, "$0 * ($1 - $2)", in[1], in[0], s);
}

static int rope(RowKernel *rk, const Op *o, int x) {
    const Type *ty = o->in[0]->type;
    DType t = hd_dtype_computed(ty->dtype);
    int64_t half = rk->cols / hd_int(&o->attrs, A_HEADS, 1) / 2, seq = ty->dim[ty->rank - 2];
    int n = rk->setup.n;
    const char *rates = text(rk, "double rate%d[%lld];\n    hd_rope_rates(rate%d, %lld, %s);", n, ll(half), n, ll(half),
                             hd_emit_number(rk->e->a, hd_float(&o->attrs, A_THETA, 10000), true));
    hd_push(rk->e->a, &rk->setup, rates);
    int cell = add(rk, CELL_ROW, t,
                   text(rk, "hd_row_rope%s($0, $$, %lld, %lld, r %% %lld, rate%d, %s);", suffix(t), ll(rk->cols),
                        ll(half), ll(seq), n, hd_has(&o->attrs, A_INVERSE) ? "-1" : "1"));
    return add_in(rk, cell, as_wide(rk, x), true);
}

static int constant(RowKernel *rk, const Op *o) {
    DType d = o->out[0]->type->dtype;
    double v = hd_float(&o->attrs, A_VALUE, 0);
    return add(rk, CELL_NARROW, d, d == TY_I32 ? text(rk, "%lld", (long long)v) : literal(rk, v, hd_dtype_computed(d)));
}

static int iota(RowKernel *rk, const Op *o) { // read by an embedding it counts rows, else columns
    const Type *t = o->out[0]->type;
    if (like_of(rk->k, o->out[0]) == LIKE_INDEX)
        return add(rk, CELL_NARROW, TY_I32, text(rk, "(int32_t)(r %% %lld)", ll(hd_type_cols(t))));
    return add(rk, CELL_WIDE, t->dtype, text(rk, "(%s)c", hd_host_compute_type(t->dtype)));
}

static int row_reduction(RowKernel *rk, const Op *o, int x) {
    DType t = hd_dtype_computed(o->in[0]->type->dtype);
    const char *name = o->kind == OP_REDUCE_MAX ? "hd_row_max" : "hd_row_sum";
    return reduce(rk, t, text(rk, "%s%s($0, %lld)", name, suffix(t), ll(rk->cols)), x, -1, -1);
}

static bool sums_columns(const Op *o) {
    if (o->kind != OP_SUM_TO) return false;
    const Type *in = o->in[0]->type, *out = o->out[0]->type;
    return in->rank && out->rank && out->dim[out->rank - 1] == in->dim[in->rank - 1] &&
           hd_type_count(out) == hd_type_cols(in) && hd_type_count(in) != hd_type_count(out);
}

static void lower_op(RowKernel *rk, const Op *o) {
    int in[8], out[3] = {-1, -1, -1};
    if (o->n_in > 8) HD_BUG("%s cannot stand in a row kernel", hd_op_info(o->kind)->mnemonic);
    for (int i = 0; i < o->n_in; i++) in[i] = rk->cell_of[o->in[i]->id];
    if (hd_op_is(o, TRAIT_ELEMENTWISE)) out[0] = function(rk, o, in);
    else switch (o->kind) {
    case OP_CONST: out[0] = constant(rk, o); break;
    case OP_IOTA: out[0] = iota(rk, o); break;
    case OP_CAST: out[0] = cast(rk, o, in[0]); break;
    case OP_RESHAPE: case OP_BROADCAST: out[0] = in[0]; break;
    case OP_EMBEDDING: out[0] = embedding(rk, o, in); break;
    case OP_LAYER_NORM: case OP_RMS_NORM: norm(rk, o, in, out); break;
    case OP_LAYER_NORM_GRAD: case OP_RMS_NORM_GRAD: norm_grad(rk, o, in, out); break;
    case OP_SOFTMAX: out[0] = softmax(rk, o, in[0]); break;
    case OP_SOFTMAX_GRAD: out[0] = softmax_grad(rk, o, in); break;
    case OP_ROPE: out[0] = rope(rk, o, in[0]); break;
    case OP_SUM: case OP_REDUCE_MAX: out[0] = row_reduction(rk, o, in[0]); break;
    case OP_SUM_TO:
        out[0] = sums_columns(o) || o->in[0]->type == o->out[0]->type ? in[0] : row_reduction(rk, o, in[0]);
        break;
    default: HD_BUG("%s cannot stand in a row kernel", hd_op_info(o->kind)->mnemonic);
    }
    for (int i = 0; i < o->n_out; i++) rk->cell_of[o->out[i]->id] = out[i];
}

static bool column_result(const Value *v) {
    const Op *o = v->def;
    if (!o) return false;
    if (o->kind == OP_LAYER_NORM_GRAD || o->kind == OP_RMS_NORM_GRAD) return v->index > 0;
    return sums_columns(o);
}

void hd_row_lower(RowKernel *rk) {
    const Func *k = rk->k;
    rk->cell_of = HD_NEWN(rk->e->a, int, k->n_values + 1);
    for (int i = 0; i < k->n_args; i++) rk->cell_of[k->args[i]->id] = load_arg(rk, i);
    const Op *o = k->first;
    for (; o && o->kind != OP_RETURN; o = o->next) lower_op(rk, o);
    for (int i = 0; o && i < o->n_in; i++) {
        RowStore s = store_of(rk, o->in[i], i, column_result(o->in[i]));
        hd_push(rk->e->a, &rk->stores, s);
    }
}

bool hd_host_has_column_sums(const Func *k) {
    const Op *r = hd_return(k);
    for (int i = 0; r && i < r->n_in; i++)
        if (column_result(r->in[i])) return hd_kind(&k->attrs) != KIND_MAP;
    return false;
}
