// The type rules of mixtures of experts.
#include "ir/type_rules.h"
#include "ir/base/ints.h"
#include "ir/mesh.h"
#include "ir/shapes.h"

static const char *integers(Rule *r, int operand, const char *what) {
    if (IN(operand)->dtype != TY_I32 || IN(operand)->rank < 1)
        WRONG("%s: %s must be i32 with an axis, not %s", hd_op_info(r->o->kind)->mnemonic, what, TEXT(IN(operand)));
    return NULL;
}

static const Type *vector(Rule *r, int64_t n) { return hd_type(r->cx, TY_I32, 1, &n); }

// t with another last axis, in dtype d
static const Type *with_last(Rule *r, const Type *t, DType d, int64_t last) {
    Type u = *t;
    u.dim[t->rank - 1] = last;
    return hd_type(r->cx, d, u.rank, u.dim);
}

const char *hd_rule_top_k(Rule *r) {
    const int64_t k = hd_int(&r->o->attrs, A_K, 0);
    const char *e = hd_rule_floating(r, 0);
    if (e) return e;
    if (IN(0)->rank < 1 || k < 1 || k > hd_type_cols(IN(0)))
        WRONG("top_k: k = %lld for %s: k is 1 to the size of the last axis", ll(k), TEXT(IN(0)));
    e = hd_rule_give(r, with_last(r, IN(0), IN(0)->dtype, k));
    return e ? e : hd_rule_give(r, with_last(r, IN(0), TY_I32, k));
}

const char *hd_rule_top_k_grad(Rule *r) {
    const char *e = hd_rule_floating(r, 0);
    if (!e) e = hd_rule_explicit(r);
    if (e) return e;
    const Type *dx = r->out[0];
    if (IN(1) != hd_type_with(r->cx, TY_I32, IN(0)))
        WRONG("top_k_grad: %s came from places %s", TEXT(IN(0)), TEXT(IN(1)));
    if (dx->rank < 1 || with_last(r, dx, IN(0)->dtype, hd_type_cols(IN(0))) != IN(0) || dx->dtype != IN(0)->dtype)
        WRONG("top_k_grad: %s are no elements of the rows of %s", TEXT(IN(0)), TEXT(dx));
    return NULL;
}

const char *hd_rule_dispatch(Rule *r) {
    const int64_t experts = hd_int(&r->o->attrs, A_EXPERTS, 0), n = hd_type_count(IN(0));
    const bool bounded = hd_has(&r->o->attrs, A_CAPACITY);
    const int64_t capacity = hd_int(&r->o->attrs, A_CAPACITY, n);
    const char *e = integers(r, 0, "the choices");
    if (e) return e;
    if (experts < 1 || experts > 65536) WRONG("dispatch: experts = %lld; it is 1 to 65536", ll(experts));
    if (bounded && capacity < 1) WRONG("dispatch: capacity = %lld; an expert takes at least one row", ll(capacity));
    if (n > INT32_MAX) WRONG("dispatch: %s has more choices than an i32 counts", TEXT(IN(0)));
    const int64_t runs = hd_int(&r->o->attrs, A_RUNS, 1);
    if (hd_has(&r->o->attrs, A_RUNS) && (!bounded || runs < 1 || n % runs))
        WRONG("dispatch: runs = %lld of %lld choices; it divides them, and says whose number `capacity` bounds",
              ll(runs), ll(n));
    // as many rows for each run as all experts, `runs` times these, may have of it
    const int64_t run = n / runs, all = experts * runs;
    const int64_t rows = capacity < hd_ceil_div(run, all) ? capacity * all * runs : n;
    const Type *out[] = {vector(r, rows), IN(0), vector(r, experts), vector(r, rows)};
    for (int i = 0; i < 4 && !e; i++) e = hd_rule_give(r, out[i]);
    return e;
}

const char *hd_rule_route(Rule *r) {
    const Mesh mesh = hd_mesh(r->o->func->module);
    const int64_t experts = hd_int(&r->o->attrs, A_EXPERTS, 0);
    const int64_t ranks = hd_mesh_ranks(&mesh, hd_axes(&r->o->attrs, A_OVER));
    const char *e = integers(r, 0, "the choices");
    if (e) return e;
    const int64_t tokens = hd_type_rows(IN(0)), most = hd_int(&r->o->attrs, A_CAPACITY, tokens);
    Type by = *IN(0), slots = *IN(0), sent = *IN(0);
    if (by.rank < 2) WRONG("route: choices are i32[.., k], not %s", TEXT(IN(0)));
    if (experts < 1 || experts % ranks)
        WRONG("route: %lld ranks cannot own equal parts of %lld experts", ll(ranks), ll(experts));
    if (most < 1 || most > tokens) WRONG("route: capacity = %lld of %lld tokens", ll(most), ll(tokens));
    by.rank--;
    if (__builtin_mul_overflow(by.dim[0], ranks, &by.dim[0]) || tokens > INT32_MAX / ranks)
        WRONG("route: %s has more rows for %lld ranks than an i32 counts", TEXT(IN(0)), ll(ranks));
    sent.dim[0] = by.dim[0];
    slots.dim[slots.rank - 1] = ranks;
    const Type *out[] = {&by, &slots, &sent};
    for (int i = 0; i < 3 && !e; i++) e = hd_rule_give(r, hd_type(r->cx, TY_I32, out[i]->rank, out[i]->dim));
    return e;
}

const char *hd_rule_take(Rule *r) {
    const Type *x = IN(0), *index = r->o->n_in > 1 ? IN(1) : NULL;
    if (r->o->n_in != 2 && r->o->n_in != 3) WRONG("take has 2 or 3 operands, not %d", r->o->n_in);
    const char *e = hd_rule_floating(r, 0);
    if (!e) e = integers(r, 1, "the index");
    if (!e && r->o->n_in > 2) e = integers(r, 2, "the slots");
    if (e) return e;
    if (x->rank < 2) WRONG("take: %s has no rows", TEXT(x));
    const Type *slots = r->o->n_in > 2 ? IN(2) : NULL;
    if (slots && (hd_type_count(slots) < hd_type_count(index) || hd_type_rows(slots) != hd_type_rows(x)))
        WRONG("take: slots %s are not of the rows of %s", TEXT(slots), TEXT(x));
    if (index->rank >= HD_MAX_DIMS) WRONG("too many axes: %s", TEXT(index));
    if (hd_has(&r->o->attrs, A_PARTS)) return hd_rule_take_parts(r);
    Type t = *index;
    t.dim[t.rank++] = hd_type_cols(x);
    return hd_rule_give(r, hd_type(r->cx, x->dtype, t.rank, t.dim));
}

static DType stat(const Type *t) { return t->dtype == TY_F64 ? TY_F64 : TY_F32; }

// Operands from `at` on: slots, weight, choice, for the rows of y.
static const char *choices(Rule *r, int at, const Type *y) {
    const Type *weight = hd_type_with(r->cx, stat(y), IN(at));
    if (IN(at + 1) != weight) WRONG("%s: slots %s need weights %s, not %s", hd_op_info(r->o->kind)->mnemonic,
                                    TEXT(IN(at)), TEXT(weight), TEXT(IN(at + 1)));
    if (IN(at + 2) != vector(r, hd_type_rows(y)))
        WRONG("%s: %s has rows for choices %s, not %s", hd_op_info(r->o->kind)->mnemonic, TEXT(y),
              TEXT(vector(r, hd_type_rows(y))), TEXT(IN(at + 2)));
    return NULL;
}

const char *hd_rule_combine(Rule *r) {
    if (r->o->n_in != 2 && r->o->n_in != 4) WRONG("combine has 2 or 4 operands, not %d", r->o->n_in);
    const char *e = hd_rule_floating(r, 0);
    if (!e) e = integers(r, 1, "the slots");
    if (e) return e;
    if (IN(0)->rank != 2) WRONG("combine: the rows are [rows, cols], not %s", TEXT(IN(0)));
    e = r->o->n_in > 2 ? choices(r, 1, IN(0)) : NULL;
    return e ? e : hd_rule_give(r, with_last(r, IN(1), IN(0)->dtype, hd_type_cols(IN(0))));
}

const char *hd_rule_combine_grad(Rule *r) {
    const char *e = hd_rule_floating(r, 0);
    if (!e) e = integers(r, 2, "the slots");
    if (e) return e;
    if (IN(1)->rank != 2 || IN(0) != with_last(r, IN(2), IN(1)->dtype, hd_type_cols(IN(1))))
        WRONG("combine_grad: %s is not what rows %s combine to by slots %s", TEXT(IN(0)), TEXT(IN(1)), TEXT(IN(2)));
    e = choices(r, 2, IN(1));
    if (!e) e = hd_rule_give(r, IN(1));
    return e ? e : hd_rule_give(r, IN(3));
}

// Source and slots of gathered rows, as of take.
static const char *of_table(Rule *r) {
    const char *e = integers(r, 3, "the source");
    if (!e) e = integers(r, 4, "the slots");
    if (e) return e;
    if (IN(0)->rank < 2 || IN(3)->rank != 1 || hd_type_count(IN(4)) < hd_type_count(IN(3)) ||
        hd_type_rows(IN(4)) != hd_type_rows(IN(0)))
        WRONG("grouped: source %s and slots %s are not of the rows of %s", TEXT(IN(3)), TEXT(IN(4)), TEXT(IN(0)));
    return NULL;
}

static const char *of_groups(Rule *r, int64_t groups) {
    if (IN(0)->dtype != IN(1)->dtype)
        WRONG("operands have different element types: %s and %s", TEXT(IN(0)), TEXT(IN(1)));
    if (groups >= 0 && IN(2) != vector(r, groups))
        WRONG("grouped: counts of %s are %s, not %s", TEXT(IN(1)), TEXT(vector(r, groups)), TEXT(IN(2)));
    return integers(r, 2, "counts");
}

const char *hd_rule_grouped(Rule *r) {
    const char *e = hd_rule_floating(r, 0);
    if (e) return e;
    const bool gathered = hd_has(&r->o->attrs, A_GATHERED);
    if (r->o->n_in != (gathered ? 5 : 3))
        WRONG("grouped has %d operands here, not %d", gathered ? 5 : 3, r->o->n_in);
    if (gathered && (e = of_table(r)) != NULL) return e;
    if ((IN(0)->rank != 2 && !gathered) || IN(1)->rank != 3)
        WRONG("grouped: rows are [rows, in], such as those of take(x, source), and weights [groups, out, in], not %s "
              "and %s", TEXT(IN(0)), TEXT(IN(1)));
    e = of_groups(r, IN(1)->dim[0]);
    if (e) return e;
    const Product p = hd_product(r->o);
    if (p.k != p.b_k)
        WRONG("grouped: inner sizes differ: %lld and %lld (%s by %s%s)", ll(p.k), ll(p.b_k), TEXT(IN(0)), TEXT(IN(1)),
              hd_has(&r->o->attrs, A_TB) ? ", which is [groups, out, in]" : "");
    return hd_rule_give(r, hd_type(r->cx, IN(0)->dtype, 2, (int64_t[]){p.m, p.n}));
}

const char *hd_rule_grouped_grad(Rule *r) {
    DType d = IN(0)->dtype;
    const char *word = hd_word(&r->o->attrs, A_OUT, NULL), *e = hd_rule_floating(r, 0);
    if (!e) e = of_groups(r, -1);
    if (e) return e;
    if (IN(0)->rank != 2 || IN(1)->rank != 2 || IN(0)->dim[0] != IN(1)->dim[0] || IN(2)->rank != 1)
        WRONG("grouped_grad: %s and %s are not the same rows, in groups counted by %s", TEXT(IN(0)), TEXT(IN(1)),
              TEXT(IN(2)));
    if (word) hd_dtype_parse(word, &d);
    return hd_rule_give(r, hd_type(r->cx, d, 3, (int64_t[]){IN(2)->dim[0], IN(0)->dim[1], IN(1)->dim[1]}));
}
