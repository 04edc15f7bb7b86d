// Columns of a product that have been computed one after another.
#include "passes/verify/values/terms.h"

// The product of a matrix and the rows of another one, from `start` on.
static const Term *product_of_rows(const Terms *t, const Term *a, const Term *w, int64_t start, int64_t n) {
    const int64_t k = w->type->dim[1], m = hd_type_count(a->type) / k;
    Attrs as = {0};
    hd_set_ints(t->cx, &as, A_SIZES, 6, (int64_t[]){1, m, n, k, 0, 1});
    const Term *rows = hd_term_rows(t, w, start, hd_type(t->cx, w->type->dtype, 2, (int64_t[]){n, k}));
    return hd_term_plain(t, OP_MATMUL, 0, hd_type(t->cx, a->type->dtype, 2, (int64_t[]){m, n}), &as, 2,
                         (const Term *[]){a, rows});
}

const Term *hd_term_columns(const Terms *t, int64_t axis, const Type *type, int n, const Term *const *in) {
    const Term *x = n ? hd_term_bare(in[0]) : NULL, *rows = x && x->kind == OP_MATMUL ? x->with : NULL;
    const Term *a = rows ? x->of : NULL, *w = rows && rows->kind == OP_SLICE ? rows->of : NULL;
    int64_t at = 0;
    if (!w || w->type->rank != 2 || axis != type->rank - 1 || a->type->dtype != type->dtype) return NULL;
    for (int k = 0; k < n; k++) {
        const int64_t cols = in[k]->type->dim[axis];
        if (at + cols > w->type->dim[0]) return NULL;
        if (!hd_term_same(hd_term_bare(in[k])->hash, product_of_rows(t, a, w, at, cols)->hash)) return NULL;
        at += cols;
    }
    return at == w->type->dim[0] ? hd_term_reshape(t, product_of_rows(t, a, w, 0, at), type) : NULL;
}
