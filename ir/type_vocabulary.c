// The type rules of ops over a vocabulary that is split into parts.
#include "ir/type_rules.h"
#include "ir/base/ints.h"
#include "ir/shapes.h"

static const Type *with_first(Rule *r, int64_t first, const Type *t, DType d) { // t behind an axis of its own
    int64_t dim[HD_MAX_DIMS] = {first};
    if (t->rank >= HD_MAX_DIMS) return NULL;
    for (int i = 0; i < t->rank; i++) dim[i + 1] = t->dim[i];
    return hd_type(r->cx, d, t->rank + 1, dim);
}

static const Type *without_first(Rule *r, const Type *t, DType d) {
    return hd_type(r->cx, d, t->rank - 1, t->dim + 1);
}

const char *hd_rule_own_index(Rule *r) {
    const int64_t rows = hd_int(&r->o->attrs, A_ROWS, 0);
    if (IN(0)->dtype != TY_I32) WRONG("an index must be i32, not %s", TEXT(IN(0)));
    if (rows < 1) WRONG("rows is %lld; a part has at least one row", ll(rows));
    return hd_rule_give(r, hd_has(&r->o->attrs, A_ROUTED) ? IN(0) : with_first(r, 1, IN(0), TY_I32));
}

// An index into each part of `rows` rows: one part, or equal ones, or uneven ones of a proof (layout.h).
const char *hd_rule_parts_wrong(Rule *r, const Type *index, int64_t rows) {
    if (index->dtype != TY_I32 || index->rank < 1) WRONG("the index must be i32[parts, ..], not %s", TEXT(index));
    if (index->dim[0] < 1 || (rows % index->dim[0] && !hd_has(&r->o->attrs, A_UNEVEN)))
        WRONG("%lld rows do not divide into %lld equal parts", ll(rows), ll(index->dim[0]));
    return NULL;
}

const char *hd_rule_take_parts(Rule *r) {
    const Type *x = IN(0);
    const char *e = hd_rule_parts_wrong(r, IN(1), hd_type_rows(x));
    if (e) return e;
    if (r->o->n_in > 2) return "take of parts has no slots";
    Type t = *without_first(r, IN(1), x->dtype);
    t.dim[t.rank++] = hd_type_cols(x);
    return hd_rule_give(r, hd_type(r->cx, x->dtype, t.rank, t.dim));
}

static DType sums_of(const Type *z) { return z->dtype == TY_F64 ? TY_F64 : TY_F32; }

// Logits and the index of each row in each part of the vocabulary.
static const char *logits_wrong(Rule *r) {
    const Type *z = IN(0), *index = IN(1);
    if (z->rank < 1 || !hd_dtype_is_float(z->dtype))
        WRONG("logits must be floating point with a last axis, not %s", TEXT(z));
    const char *e = hd_rule_parts_wrong(r, index, hd_type_cols(z));
    if (e) return e;
    const Type *rows = hd_type(r->cx, TY_I32, z->rank - 1, z->dim);
    if (without_first(r, index, TY_I32) != rows)
        WRONG("logits %s need an index %s of each part, not %s", TEXT(z), TEXT(rows), TEXT(index));
    return NULL;
}

const char *hd_rule_loss_part(Rule *r) {
    const bool uneven = hd_has(&r->o->attrs, A_UNEVEN);
    if (r->o->n_in != 2 + uneven) WRONG("%d operands, not %d", r->o->n_in, 2 + uneven);
    const char *e = logits_wrong(r);
    if (!e && uneven && (IN(2)->dtype != TY_I32 || IN(2) != without_first(r, IN(1), TY_I32)))
        WRONG("targets must be %s, not %s", TEXT(without_first(r, IN(1), TY_I32)), TEXT(IN(2)));
    const Type *each = e ? NULL : hd_type_with(r->cx, sums_of(IN(0)), IN(1));
    if (!e) e = hd_rule_give(r, each);
    return e ? e : hd_rule_give(r, each);
}

// Targets, and weights where the op has one operand more than `n`.
static const char *rows_wrong(Rule *r, const Type *each, int n) {
    const Type *targets = hd_type_with(r->cx, TY_I32, each);
    const bool weighted = r->o->n_in > n;
    if (r->o->n_in < n || r->o->n_in > n + 1) WRONG("%d operands, not %d or %d", r->o->n_in, n, n + 1);
    if (IN(n - 1) != targets) WRONG("targets must be %s, not %s", TEXT(targets), TEXT(IN(n - 1)));
    if (weighted && IN(n) != each) WRONG("weights must be %s, not %s", TEXT(each), TEXT(IN(n)));
    if (!weighted && hd_has(&r->o->attrs, A_IGNORE)) return "without weights no target can be ignored";
    return NULL;
}

const char *hd_rule_loss_of_parts(Rule *r) {
    const Type *x = IN(0);
    if (r->o->n_in < 2 || IN(1) != x || x->rank < 1 || x->dim[0] < 1 || (x->dtype != TY_F32 && x->dtype != TY_F64))
        WRONG("the two results of loss_part must be f32[parts, ..], not %s", TEXT(x));
    const Type *each = without_first(r, x, x->dtype);
    const char *e = rows_wrong(r, each, 3);
    if (!e) e = hd_rule_give(r, hd_type(r->cx, x->dtype, 0, NULL));
    return e ? e : hd_rule_give(r, each);
}

const char *hd_rule_loss_part_grad(Rule *r) {
    if (r->o->n_in < 4) WRONG("%d operands, not 5 or 6", r->o->n_in);
    const char *e = logits_wrong(r);
    if (e) return e;
    const Type *each = hd_type(r->cx, sums_of(IN(0)), IN(0)->rank - 1, IN(0)->dim);
    if (IN(2) != each) WRONG("the log of the sum of exp must be %s, not %s", TEXT(each), TEXT(IN(2)));
    const Type *dloss = hd_type(r->cx, sums_of(IN(0)), 0, NULL);
    if (IN(3) != dloss) WRONG("dloss must be a scalar, %s, not %s", TEXT(dloss), TEXT(IN(3)));
    e = rows_wrong(r, each, 5);
    return e ? e : hd_rule_give(r, IN(0));
}
