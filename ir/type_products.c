// The type rules of matrix products. A product of e4m3 or e5m2 has the scales of its factors as operands.
#include "ir/type_rules.h"
#include "ir/base/ints.h"
#include "ir/shapes.h"
#include <string.h>

// A block of a row, or for the second factor one of 128 rows, has a scale.
static const char *scales_of_blocks(Rule *r) {
    if (hd_has(&r->o->attrs, A_FAST)) return "the sums of blocks are added in f32, and none is fast";
    for (int i = 0; i < 2; i++) {
        const Type *x = IN(i), *scale = IN(2 + i);
        if (hd_type_cols(x) % HD_BLOCK) WRONG("blocks of %d do not divide the rows of %s", HD_BLOCK, TEXT(x));
        const Blocks rows = hd_blocks(x, false, false), squares = hd_blocks(x, true, false);
        const Type *is[] = {hd_type(r->cx, TY_F32, 2, (int64_t[]){rows.scale_rows, rows.scale_cols}),
                            hd_type(r->cx, TY_F32, 2, (int64_t[]){squares.scale_rows, squares.scale_cols})};
        const bool may = i && hd_type_rows(x) % HD_BLOCK == 0; // have scales of squares
        if (scale == is[0] || (may && scale == is[1])) continue;
        WRONG("the %s has scales of its blocks, %s%s%s, and not %s", TEXT(x), TEXT(is[0]), may ? " or of squares " : "",
              may ? TEXT(is[1]) : "", TEXT(scale));
    }
    return NULL;
}

// The operands of a product but its bias: a, b and, with `scaled`, a scale for each row of both.
static const char *factors(Rule *r) {
    const bool scaled = hd_has(&r->o->attrs, A_SCALED);
    for (int i = 0; i < 2; i++) {
        if (scaled == hd_dtype_is_fp8(IN(i)->dtype)) continue;
        WRONG(scaled ? "a product with scales multiplies e4m3 or e5m2, not %s" : "factor %s needs scales", TEXT(IN(i)));
    }
    if (!scaled && hd_has(&r->o->attrs, A_BLOCKS)) return "blocks is of products with scales";
    if (!scaled) return hd_has(&r->o->attrs, A_FAST) ? "fast is of products with scales" : NULL;
    if (!hd_has(&r->o->attrs, A_TB) || hd_has(&r->o->attrs, A_TA))
        return "a product with scales reads the rows of both factors: tb, and not ta";
    if (IN(0)->dtype == TY_E5M2 && IN(1)->dtype == TY_E5M2) return "one of two factors with scales is e4m3";
    if (hd_has(&r->o->attrs, A_BLOCKS)) return scales_of_blocks(r);
    const bool one = hd_type_count(IN(2)) == 1 && hd_type_count(IN(3)) == 1;
    for (int i = 0; i < 2; i++) {
        const Type *scale = IN(2 + i);
        if (scale->dtype != TY_F32 || (!one && hd_type_count(scale) != hd_type_rows(IN(i))))
            WRONG("the %s has %lld rows, and its scale is %s", TEXT(IN(i)), ll(hd_type_rows(IN(i))), TEXT(scale));
    }
    return NULL;
}

static const char *product(Rule *r, Product *p) {
    *p = hd_product(r->o);
    const bool scaled = hd_has(&r->o->attrs, A_SCALED);
    if (!scaled && IN(0)->dtype != IN(1)->dtype)
        WRONG("operands have different element types: %s and %s", TEXT(IN(0)), TEXT(IN(1)));
    const char *e = hd_rule_floating(r, 0);
    if (!e) e = factors(r);
    if (e) return e;
    if (p->k != p->b_k)
        WRONG("matmul inner sizes differ: %lld and %lld (%s times %s)", ll(p->k), ll(p->b_k), TEXT(IN(0)), TEXT(IN(1)));
    return NULL;
}

const char *hd_rule_matmul(Rule *r) {
    const int n_in = hd_has(&r->o->attrs, A_SCALED) ? 4 : 2;
    if (r->o->n_in != n_in) WRONG("matmul takes %d operands, not %d", n_in, r->o->n_in);
    if (!IN(0)->rank || !IN(1)->rank) WRONG("matmul of a scalar: %s times %s", TEXT(IN(0)), TEXT(IN(1)));
    Product p;
    const char *e = product(r, &p);
    if (e) return e;
    DType d = hd_rule_out(r, n_in == 4 ? TY_F32 : IN(0)->dtype);
    if (p.ta) return hd_rule_give(r, hd_type(r->cx, d, 2, (int64_t[]){p.m, p.n}));
    Type t = *IN(0);
    t.dim[t.rank - 1] = p.n;
    return hd_rule_give(r, hd_type(r->cx, d, t.rank, t.dim));
}

const char *hd_rule_bmm(Rule *r) {
    const Type *a = IN(0), *b = IN(1);
    bool fits = a->rank == b->rank && a->rank >= 3;
    for (int i = 0; fits && i < a->rank - 2; i++) fits = a->dim[i] == b->dim[i];
    if (!fits) WRONG("bmm needs two operands of rank 3 or more with equal leading axes: %s and %s", TEXT(a), TEXT(b));
    Product p;
    const char *e = product(r, &p);
    if (e) return e;
    Type t = *a;
    t.dim[t.rank - 2] = p.m;
    t.dim[t.rank - 1] = p.n;
    return hd_rule_give(r, hd_type(r->cx, hd_rule_out(r, a->dtype), t.rank, t.dim));
}

const Type *hd_rule_matrix_into(Rule *r, int64_t rows, int64_t cols) {
    const Symbol *s = hd_rule_symbol(r, A_INTO, SYM_BUFFER);
    return hd_type(r->cx, s->type->dtype, 2, (int64_t[]){rows, cols});
}

// impl = gemv: one row, times a matrix.
static const char *gemv(Rule *r, const Product *p) {
    const char *impl = hd_word(&r->o->attrs, A_IMPL, NULL);
    if (!impl) return NULL;
    if (strcmp(impl, "gemv")) WRONG("no implementation %s of gemm: gemv, or none for the library's", impl);
    if (p->m != 1 || p->ta || hd_int(&r->o->attrs, A_BATCHES, 1) != 1)
        WRONG("gemv is for one row times a matrix, and %s has %lld", TEXT(IN(0)), ll(hd_type_rows(IN(0))));
    if (hd_has(&r->o->attrs, A_SCALED) || hd_has(&r->o->attrs, A_INTO))
        return "gemv has no scales and adds to no buffer";
    return NULL;
}

const char *hd_rule_gemm(Rule *r) {
    const char *epi = hd_word(&r->o->attrs, A_EPILOGUE, "none");
    const bool epilogue = strcmp(epi, "none") != 0, scaled = hd_has(&r->o->attrs, A_SCALED);
    const int n_in = 2 + 2 * scaled + epilogue, bias = hd_operand_of(r->o, ROLE_BIAS);
    if (epilogue && strcmp(epi, "bias")) WRONG("gemm has no epilogue %s: none or bias", epi);
    if (r->o->n_in != n_in) WRONG("gemm with epilogue %s takes %d operands, not %d", epi, n_in, r->o->n_in);
    if (scaled && (epilogue || hd_has(&r->o->attrs, A_ACCUMULATE) || hd_has(&r->o->attrs, A_BATCHES)))
        return "a product with scales has no epilogue, no batches, and adds to no buffer";
    const int64_t batches = hd_int(&r->o->attrs, A_BATCHES, 1);
    if (batches < 1) WRONG("batches = %lld", ll(batches));
    if (hd_type_rows(IN(0)) % batches || hd_type_rows(IN(1)) % batches)
        WRONG("rows of %s or %s do not divide into %lld batches", TEXT(IN(0)), TEXT(IN(1)), ll(batches));
    Product p;
    const char *e = product(r, &p);
    if (e) return e;
    e = gemv(r, &p);
    if (e) return e;
    int64_t rows = batches * p.m;
    if (bias >= 0 && (hd_type_count(IN(bias)) != p.n || batches != 1))
        WRONG("bias %s for %lld columns", TEXT(IN(bias)), ll(p.n));
    if (hd_has(&r->o->attrs, A_INTO)) return hd_rule_give(r, hd_rule_matrix_into(r, rows, p.n));
    e = hd_rule_explicit(r);
    if (e) return e;
    if (hd_type_count(r->out[0]) != rows * p.n || hd_type_cols(r->out[0]) != p.n)
        WRONG("product is %lld x %lld, result %s", ll(rows), ll(p.n), TEXT(r->out[0]));
    return NULL;
}
