// The type rules of ssd and of its gradient.
#include "ir/base/ints.h"
#include "ir/shapes.h"
#include "ir/ssd.h"
#include "ir/type_rules.h"

static DType statistic(DType d) { return d == TY_F64 ? TY_F64 : TY_F32; }

// dt, a and d are of the statistics' type or of that of x.
static const char *rates(Rule *r, int i, const char *name, int rank, const int64_t *dim) {
    const DType d = IN(i)->dtype, x = IN(hd_is_backward(r->o))->dtype;
    if ((d != statistic(x) && d != x) || IN(i) != hd_type(r->cx, d, rank, dim))
        WRONG("ssd: %s is %s, not %s", name, TEXT(IN(i)), TEXT(hd_type(r->cx, statistic(x), rank, dim)));
    return NULL;
}

static const char *operands(Rule *r) {
    const int x = hd_is_backward(r->o), n = r->o->n_in - hd_has(&r->o->attrs, A_DOCUMENTS) - x;
    const int64_t chunk = hd_int(&r->o->attrs, A_CHUNK, 0);
    if (n != 5 && n != 6)
        WRONG("%s takes %sx, dt, a, b, c, perhaps d%s, not %d operands", hd_op_info(r->o->kind)->mnemonic,
              x ? "dy, " : "", hd_has(&r->o->attrs, A_DOCUMENTS) ? " and the starts of documents" : "", r->o->n_in);
    const char *e = hd_rule_floating(r, x);
    if (e) return e;
    const Type *t = IN(x), *b = IN(x + 3);
    if (t->rank != 4) WRONG("ssd: x is [batch, seq, heads, size], not %s", TEXT(t));
    if (b->rank != 4 || b->dim[0] != t->dim[0] || b->dim[1] != t->dim[1] || b->dtype != t->dtype)
        WRONG("ssd: b of x %s is %s[%lld,%lld,groups,state], not %s", TEXT(t), hd_dtype_text(t->dtype), ll(t->dim[0]),
              ll(t->dim[1]), TEXT(b));
    if (IN(x + 4) != b) WRONG("ssd: c is like b, %s, not %s", TEXT(b), TEXT(IN(x + 4)));
    if (!t->dim[2] || !t->dim[3] || !b->dim[2] || !b->dim[3] || t->dim[2] % b->dim[2])
        WRONG("ssd: %lld heads of x cannot share %lld groups of b and c: they do not divide", ll(t->dim[2]),
              ll(b->dim[2]));
    if (chunk < 1 || chunk > HD_SSD_CHUNK)
        WRONG("ssd: chunk = %lld; it is 1 to %d positions", ll(chunk), HD_SSD_CHUNK);
    e = rates(r, x + 1, "dt", 3, t->dim);
    if (!e) e = rates(r, x + 2, "a", 1, t->dim + 2);
    if (!e && n > 5) e = rates(r, x + 5, "d", 1, t->dim + 2);
    if (e) return e;
    const Value *starts = hd_ssd_starts(r->o);
    if (starts && starts->type != hd_type(r->cx, TY_I32, 2, t->dim))
        WRONG("ssd: documents are integers i32[%lld,%lld], as documents(tokens, eot = ..) gives them, not %s",
              ll(t->dim[0]), ll(t->dim[1]), TEXT(starts->type));
    return NULL;
}

const char *hd_rule_ssd(Rule *r) {
    const char *e = operands(r);
    return e ? e : hd_rule_give(r, IN(0));
}

const char *hd_rule_ssd_grad(Rule *r) {
    const char *e = operands(r);
    if (e) return e;
    if (IN(0) != IN(1)) WRONG("ssd_grad: dy is like x, %s, not %s", TEXT(IN(1)), TEXT(IN(0)));
    const Type *sums = hd_type_with(r->cx, statistic(IN(1)->dtype), IN(3)); // over all positions
    const Type *out[] = {IN(1), IN(2), sums, IN(4), IN(5), sums};
    for (int i = 0; i < 5 + (hd_ssd_skip(r->o) != NULL) && !e; i++) e = hd_rule_give(r, out[i]);
    return e;
}
