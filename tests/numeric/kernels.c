// The contract of kernel functions, on what fuse makes of random functions: a code generator knows a value by its type
// (full, periodic, one a column, one a row, scalar) and by the op that made it. Here every pointwise op of every kernel
// is read that way and compared, element by element, with what numpy broadcasting says; and the rules about results,
// tables and map kernels are checked.
#include "passes/manager/manager.h"
#include "tests/numeric/random_graph.h"
#include <stdlib.h>

typedef enum { SCALAR, STAT, COLUMN, PERIODIC, FULL, NO_CLASS } Class;
typedef struct { Test *t; const Func *k; int64_t rows, cols; } Checker;

static bool row_result(const Value *v) { return hd_result_class(v) == 's'; }
static bool column_result(const Value *v) { return hd_result_class(v) == 'c'; }

static Class class_of(const Checker *c, const Value *v) {
    int64_t n = hd_type_count(v->type), last = hd_type_cols(v->type);
    if (row_result(v)) return STAT;
    if (n == c->rows * c->cols) return FULL;
    if (n == 1) return SCALAR;
    if (last == c->cols && n == c->cols) return COLUMN;
    if (last == c->cols && c->rows % (n / c->cols) == 0) return PERIODIC;
    return n == c->rows ? STAT : NO_CLASS;
}

static int64_t by_class(const Checker *c, const Value *v, int64_t row, int64_t col) {
    switch (class_of(c, v)) {
    case SCALAR: return 0;
    case STAT: return row;
    case COLUMN: return col;
    case PERIODIC: return row % (hd_type_count(v->type) / c->cols) * c->cols + col;
    case FULL: return row * c->cols + col;
    default: return -1;
    }
}

// Where element i of `result` reads an operand of type t.
static int64_t by_broadcasting(const Type *result, const Type *t, int64_t i) {
    int64_t at = 0, step = 1;
    for (int d = result->rank - 1; d >= 0; d--) {
        int64_t index = i % result->dim[d], own = d - (result->rank - t->rank);
        i /= result->dim[d];
        if (own < 0) continue;
        if (t->dim[own] != 1) at += index * step;
        step *= t->dim[own];
    }
    return at;
}

static void check_pointwise(Checker *c, const Op *o) {
    const Value *y = o->out[0];
    for (int i = 0; i < o->n_in; i++)
        for (int64_t row = 0; row < c->rows; row++)
            for (int64_t col = 0; col < c->cols; col++) {
                int64_t want = by_broadcasting(y->type, o->in[i]->type, by_class(c, y, row, col));
                c->t->compared++;
                if (by_class(c, o->in[i], row, col) == want) continue;
                fail(c->t, "@%s: operand %d of %s is read at element %lld, not %lld", c->k->name, i,
                     hd_op_info(o->kind)->mnemonic, (long long)by_class(c, o->in[i], row, col), (long long)want);
                return;
            }
}

static void check_reshape(Checker *c, const Op *o) {
    for (int64_t row = 0; row < c->rows; row++)
        for (int64_t col = 0; col < c->cols; col++)
            if (by_class(c, o->in[0], row, col) != by_class(c, o->out[0], row, col)) {
                fail(c->t, "@%s: a reshape changes what a value is", c->k->name);
                return;
            }
}

// Parts of rows are taken of arguments and put together in results: row r of one is in row r of the other.
static void check_parts(Checker *c, const Op *o) {
    const Value *whole = o->kind == OP_SLICE ? o->in[0] : o->out[0];
    bool good = hd_int(&o->attrs, A_AXIS, 0) == whole->type->rank - 1 && hd_type_rows(whole->type) == c->rows;
    for (int i = 0; i < o->n_in; i++) {
        const Value *part = o->kind == OP_SLICE ? o->out[0] : o->in[i];
        good &= class_of(c, part) == FULL && hd_type_cols(part->type) == c->cols;
    }
    if (o->kind == OP_SLICE) good &= !whole->def;
    for (const Op *u = o->next; o->kind == OP_CONCAT && u; u = u->next)
        for (int i = 0; i < u->n_in; i++) good &= u->in[i] != whole || u->kind == OP_RETURN;
    if (!good) fail(c->t, "@%s: %s has other rows or columns", c->k->name, hd_op_info(o->kind)->mnemonic);
}

static void check_rows(Checker *c) {
    for (const Op *o = c->k->first; o; o = o->next) {
        if (hd_op_is(o, TRAIT_ELEMENTWISE) || o->kind == OP_CAST) check_pointwise(c, o);
        if (o->kind == OP_RESHAPE) check_reshape(c, o);
        for (int i = 0; i < o->n_in && o->kind != OP_RETURN; i++)
            if (column_result(o->in[i]))
                fail(c->t, "@%s: %s reads a sum over rows", c->k->name, hd_op_info(o->kind)->mnemonic);
        bool table = o->kind == OP_EMBEDDING || o->kind == OP_LAYER_NORM || o->kind == OP_RMS_NORM;
        for (int i = o->kind != OP_EMBEDDING; table && i < o->n_in; i++)
            if (o->in[i]->def)
                fail(c->t, "@%s: operand %d of %s is made inside", c->k->name, i, hd_op_info(o->kind)->mnemonic);
        if (o->kind == OP_SLICE || o->kind == OP_CONCAT) check_parts(c, o);
        for (int i = 0; i < o->n_out; i++)
            if (class_of(c, o->out[i]) == NO_CLASS && o->kind != OP_CONCAT)
                fail(c->t, "@%s: %s has no place in the rows", c->k->name,
                     hd_type_text(c->k->module->cx, o->out[i]->type));
    }
}

static void check_kernel(Test *t, const Func *k) {
    Checker c = {t, k, hd_int(&k->attrs, A_ROWS, 1), hd_int(&k->attrs, A_COLS, 1)};
    const Op *ret = hd_return(k);
    if (!ret->n_in || ret->n_in > HD_MAX_OUT) fail(t, "@%s has %d results", k->name, ret->n_in);
    for (int i = 0; i < ret->n_in; i++)
        if (!ret->in[i]->def) fail(t, "@%s returns an argument", k->name);
    for (int i = 0; i < ret->n_in; i++)
        for (int j = 0; j < i; j++)
            if (ret->in[i] == ret->in[j]) fail(t, "@%s returns a value twice", k->name);
    if (!strcmp(hd_word(&k->attrs, A_KIND, ""), "rows")) check_rows(&c);
    else if (k->first->next != ret) fail(t, "@%s is a map of more than one op", k->name);
    for (const Op *o = k->first; o; o = o->next) t->covered[o->kind] = true;
}

static void run_seed(Test *t, uint64_t seed) {
    Ctx *cx = hd_ctx_new();
    Arena *a = hd_arena_new();
    static const DType dtypes[] = {TY_F32, TY_BF16, TY_F64};
    Graph g = random_graph(cx, a, "f", seed, dtypes[seed % 3], false, 30, 8);
    Pipeline p;
    ManagerOptions options = {.verify_each = true};
    int failures = t->failures;
    Out text = hd_out(a);
    hd_print_module(g.m, &text);
    if (!hd_pipeline_parse(cx, "fuse", &p) || !hd_manager_run(g.m, &p, &options)) {
        hd_diags_print(&cx->diags, &text);
        fail(t, "fuse fails");
    }
    for (const Func *f = g.m->funcs; f; f = f->next)
        if (f->is_kernel) check_kernel(t, f);
        else
            for (const Op *o = f->first; o; o = o->next)
                if (hd_op_is(o, TRAIT_ELEMENTWISE) && o->kind != OP_ADD)
                    fail(t, "%s is in no kernel", hd_op_info(o->kind)->mnemonic);
    if (t->failures != failures) {
        hd_print_module(g.m, &text);
        fprintf(stderr, "%s", text.text);
    }
    hd_arena_free(a);
    hd_ctx_free(cx);
}

int main(int argc, char **argv) { // kernels [FIRST_SEED COUNT]
    Test t = {0};
    uint64_t first = argc > 2 ? strtoull(argv[1], NULL, 10) : 1, count = argc > 2 ? strtoull(argv[2], NULL, 10) : 600;
    for (uint64_t seed = first; seed < first + count && t.failures < 3; seed++) {
        char name[60];
        snprintf(name, sizeof name, "seed %llu", (unsigned long long)seed);
        t.name = name;
        run_seed(&t, seed);
    }
    static const OpKind rows[] = {OP_LAYER_NORM, OP_LAYER_NORM_GRAD, OP_RMS_NORM,   OP_RMS_NORM_GRAD,
                                  OP_SOFTMAX,    OP_SOFTMAX_GRAD,    OP_ROPE,       OP_EMBEDDING,
                                  OP_SUM,        OP_SUM_TO,          OP_REDUCE_MAX, OP_CAST, OP_LOGSUMEXP,
                                  OP_RESHAPE,    OP_TRANSPOSE,       OP_BROADCAST,  OP_SLICE,        OP_CONCAT};
    t.name = "coverage";
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (!t.covered[rows[i]]) fail(&t, "no kernel has a %s", hd_op_info(rows[i])->mnemonic);
    printf("%d elements compared, %d failures\n", t.compared, t.failures);
    return t.failures != 0;
}
