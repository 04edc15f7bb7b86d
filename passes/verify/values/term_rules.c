// The normal form of a term: the rules by which two terms are one (README.md has the list). A rule states an equality
// of the ops' definitions in ir/ops.def. It may change the order in which a sum or a product is added up, which the ops
// leave open, or leave out the rounding between a product and the bias that is added to it.
#include "ir/dropout.h"
#include "ir/layout.h"
#include "ir/shapes.h"
#include "passes/verify/values/terms.h"

// The column term of ops.def: result i of an op, of this type, from the terms of its operands.
typedef const Term *TermRule(const Terms *t, const Op *o, int i, const Type *type, const Term *const *in);

static const Type *type_like(const Terms *t, const Type *shape, DType d) { return hd_type_with(t->cx, d, shape); }

// A reshape of a reshape is one; of the same type it is nothing.
const Term *hd_term_reshape(const Terms *t, const Term *x, const Type *type) {
    x = hd_term_bare(x);
    return x->type == type ? x : hd_term_plain(t, OP_RESHAPE, 0, type, NULL, 1, &x);
}

// A cast that changes no element is nothing, also before another cast: x and the cast of x are the same numbers. (A
// cast to a wider dtype and back are two of them.) What a kernel has not rounded yet is rounded by a cast to its own
// dtype. Casts are inside of reshapes.
const Term *hd_term_cast(const Terms *t, const Term *x, DType d) {
    if (x->kind == OP_RESHAPE) return hd_term_reshape(t, hd_term_cast(t, x->of, d), type_like(t, x->type, d));
    if (x->type->dtype == d) return hd_term_is_unrounded(x) ? x->of : x;
    if (x->kind == OP_CAST && hd_term_fits(x->of, x->type->dtype)) return hd_term_cast(t, x->of, d);
    return hd_term_plain(t, OP_CAST, 0, type_like(t, x->type, d), NULL, 1, &x);
}

static const Term *slice(const Terms *t, const Term *x, int64_t axis, int64_t start, int64_t size) {
    Type type = *x->type;
    Attrs as = {0};
    if (type.dim[axis] == size) return x;
    type.dim[axis] = size;
    hd_set_int(t->cx, &as, A_AXIS, axis);
    hd_set_int(t->cx, &as, A_START, start);
    hd_set_int(t->cx, &as, A_SIZE, size);
    return hd_term_plain(t, OP_SLICE, 0, hd_type(t->cx, type.dtype, type.rank, type.dim), &as, 1, &x);
}

const Term *hd_term_rows(const Terms *t, const Term *x, int64_t start, const Type *type) {
    return slice(t, x, 0, start, type->dim[0]);
}

// --- sums

// The axes of `x`, an operand that `through` is reshaped to, as axes of `through`; false: they are other axes. Axes of
// size 1 do not count.
static bool same_axes(const Type *x, const Type *through, unsigned axes, unsigned *found) {
    int k = 0;
    *found = 0;
    for (int i = 0; i < x->rank; i++) {
        if (x->dim[i] == 1) continue;
        while (k < through->rank && through->dim[k] == 1) k++;
        if (k == through->rank || through->dim[k] != x->dim[i]) return false;
        if (axes >> i & 1) *found |= 1u << k;
        k++;
    }
    while (k < through->rank && through->dim[k] == 1) k++;
    return k == through->rank;
}

// The same elements without axes of size 1, and the axes that stay.
static const Term *squeezed(const Terms *t, const Term *x, unsigned *axes) {
    int64_t dim[HD_MAX_DIMS];
    unsigned left = 0;
    int n = 0;
    for (int i = 0; i < x->type->rank; i++) {
        if (x->type->dim[i] == 1) continue;
        left |= (*axes >> i & 1) << n;
        dim[n++] = x->type->dim[i];
    }
    *axes = left;
    return hd_term_reshape(t, x, hd_type(t->cx, x->type->dtype, n, dim));
}

// The operand of a sum may be widened first: sums are in a wide dtype anyway, and a largest element stays the same.
static const Term *not_widened(const Terms *t, const Term *x) {
    const Term *inner = hd_term_bare(x);
    if (inner->kind != OP_CAST || inner->type->dtype != TY_F32 || !hd_term_fits(inner->of, TY_F32)) return x;
    return hd_term_reshape(t, inner->of, type_like(t, x->type, inner->of->type->dtype));
}

// Sums are added up in f32 (f64 for f64) and rounded at the end. A sum of such a sum is one over all of the axes; so is
// the largest of the largest. Axes of size 1 do not count.
static const Term *reduce(const Terms *t, OpKind k, const Term *x, unsigned axes, const Type *type) {
    x = not_widened(t, x);
    const DType d = hd_op_info(k)->traits & TRAIT_PICKS || x->type->dtype == TY_F64 ? x->type->dtype : TY_F32;
    const Term *inner = hd_term_bare(x);
    unsigned more;
    if (inner->kind == k && inner->type->dtype == d && same_axes(x->type, inner->type, axes, &more))
        x = inner->of, axes = inner->axes | more;
    else
        x = squeezed(t, x, &axes);
    Type kept = *x->type;
    for (int i = 0; i < kept.rank; i++)
        if (axes >> i & 1) kept.dim[i] = 1;
    kept.dtype = d;
    const Type *to = hd_type(t->cx, kept.dtype, kept.rank, kept.dim);
    const Term *sum = axes ? hd_term_summed(t, k, to, axes, x) : hd_term_cast(t, x, to->dtype);
    return hd_term_reshape(t, hd_term_cast(t, sum, type->dtype), type);
}

// --- products

const Term *hd_term_stored(const Terms *t, const Term *x, DType d) {
    return hd_term_bare(hd_term_cast(t, hd_term_bare(x), d));
}

// Operands that may change places have an order of their own.
const Term *hd_term_commuting(const Terms *t, OpKind k, const Type *type, const Term *a, const Term *b) {
    const bool swap = a->hash.hi > b->hash.hi || (a->hash.hi == b->hash.hi && a->hash.lo > b->hash.lo);
    return hd_term_plain(t, k, 0, type, NULL, 2, swap ? (const Term *[]){b, a} : (const Term *[]){a, b});
}

// matmul, bmm and gemm are one: they read matrices, whatever the shapes of their operands are. The bias of a gemm is an
// addition. Scales stay operands: whose they are and which of the two says their place.
static const Term *term_product(const Terms *t, const Op *o, int i, const Type *type, const Term *const *in) {
    (void)i;
    const Product p = hd_product(o);
    const int scales = hd_operand_of(o, ROLE_SCALE_A) < 0 ? 0 : 2;
    const Term *factors[4], *x;
    for (int k = 0; k < 2 + scales; k++) factors[k] = hd_term_bare(in[k]);
    Attrs as = {0};
    if (hd_has(&o->attrs, A_FAST)) hd_set_flag(t->cx, &as, A_FAST);
    if (hd_has(&o->attrs, A_BLOCKS)) hd_set_flag(t->cx, &as, A_BLOCKS);
    hd_set_ints(t->cx, &as, A_SIZES, 6, (int64_t[]){p.batches, p.m, p.n, p.k, p.ta, p.tb});
    x = hd_term_plain(t, OP_MATMUL, 0, hd_type(t->cx, type->dtype, 2, (int64_t[]){p.batches * p.m, p.n}), &as,
                      2 + scales, factors);
    x = hd_term_reshape(t, x, type);
    const int bias = hd_operand_of(o, ROLE_BIAS);
    return bias >= 0 ? hd_term_commuting(t, OP_ADD, type, x, in[bias]) : x;
}

static const Term *term_concat(const Terms *t, const Op *o, int i, const Type *type, const Term *const *in) {
    const Term *x = hd_term_columns(t, hd_int(&o->attrs, A_AXIS, 0), type, o->n_in, in);
    return x ? x : hd_term_plain(t, o->kind, i, type, &o->attrs, o->n_in, in);
}

// --- lookups

static bool counts_up(const Term *index) { return index->kind == OP_IOTA && index->type->rank == 1; }

// A table looked up by 0, 1, 2, ... is its first rows.
static const Term *looked_up(const Terms *t, const Term *table, const Term *index, const Type *type) {
    if (counts_up(index) && type->dim[0] <= table->type->dim[0]) return hd_term_rows(t, table, 0, type);
    return hd_term_plain(t, OP_EMBEDDING, 0, type, NULL, 2, (const Term *[]){table, index});
}

static const Term *term_embedding(const Terms *t, const Op *o, int i, const Type *type, const Term *const *in) {
    (void)o, (void)i;
    return looked_up(t, in[0], in[1], type);
}

// --- a vocabulary in parts

static const Term *own_index(const Terms *t, const Term *index, int64_t parts, int64_t rows) {
    int64_t dim[HD_MAX_DIMS] = {parts};
    Attrs as = {0};
    for (int i = 0; i < index->type->rank; i++) dim[i + 1] = index->type->dim[i];
    hd_set_int(t->cx, &as, A_SIZE, rows);
    return hd_term_plain(t, OP_OWN_INDEX, 0, hd_type(t->cx, TY_I32, index->type->rank + 1, dim), &as, 1, &index);
}

// Choices among so many experts of all ranks, by the numbers that each rank gives its own.
static const Term *routed(const Terms *t, const Term *chosen, int64_t experts) {
    Attrs as = {0};
    hd_set_int(t->cx, &as, A_EXPERTS, experts);
    return hd_term_plain(t, OP_OWN_INDEX, 0, chosen->type, &as, 1, &chosen);
}

// --- rows that are sent between ranks
//
// What a rank sends of x by the rows of a route, and what it has received of it, is `sent`: of x, by these rows. Every
// rank has the tokens with a choice among its experts, so an op on the rows of experts computes of what is sent what it
// computes of the whole, if all of its operands are sent by the rows of the very choices that are dispatched.

static const Term *sent(const Terms *t, const Term *x, const Term *by) {
    Term *s = HD_NEW(t->a, Term);
    *s = *hd_term_plain(t, OP_EXCHANGE, 0, x->type, NULL, 2, (const Term *[]){x, by});
    s->by = by;
    return s;
}

static const Term *term_route(const Terms *t, const Op *o, int i, const Type *type, const Term *const *in) {
    Term *by = HD_NEW(t->a, Term);
    *by = *hd_term_plain(t, OP_ROUTE, 0, hd_result_type(o, 0), &o->attrs, 1, in);
    by->made = o;
    if (i == 0) return by;
    return i == 2 ? sent(t, in[0], by) : hd_term_plain(t, OP_ROUTE, 1, type, NULL, 1, (const Term *[]){by});
}

static bool is_sent_by(const Term *x, const Term *by) { return x->by && hd_term_same(x->by->hash, by->hash); }

// The rows by which operands are sent: all of them but those in `whole`, a bit each. NULL: they are not all.
static const Term *sent_by(int n, const Term *const *in, unsigned whole, const Term **of) {
    const Term *by = NULL;
    for (int i = 0; i < n; i++) {
        of[i] = in[i];
        if (whole >> i & 1) continue;
        if (!in[i]->by || (by && !is_sent_by(in[i], by))) return NULL;
        by = in[i]->by;
        of[i] = in[i]->of;
    }
    return by;
}

// An exchange moves all rows that the route leaves room for, or what it gives is something else.
const Term *hd_term_exchanged(const Terms *t, const Op *o, const Term *x) {
    const int64_t moved = hd_int(&o->attrs, A_CAPACITY, INT64_MAX);
    if (x->by && hd_int(&x->by->made->attrs, A_CAPACITY, moved == INT64_MAX ? 0 : INT64_MAX) <= moved) return x;
    return hd_term_plain(t, OP_EXCHANGE, 1, x->type, &o->attrs, 1, &x);
}

// Every rank dispatches the choices of its own experts, and all ranks together those of all.
static const Term *term_dispatch(const Terms *t, const Op *o, int i, const Type *type, const Term *const *in) {
    const int64_t experts = hd_int(&o->attrs, A_EXPERTS, 0);
    const Term *x = in[0], *is = x->kind == OP_OWN_INDEX && x->type == x->of->type ? routed(t, x->of, experts) : NULL;
    if (!is || !hd_term_same(is->hash, x->hash)) return hd_term_plain(t, OP_DISPATCH, i, type, &o->attrs, 1, in);
    const Term *by = x->of->by, *chosen = by ? x->of->of : x->of;
    const bool own = by && by->made && hd_term_same(by->of->hash, chosen->hash) &&
                     hd_int(&by->made->attrs, A_EXPERTS, 0) == experts;
    if (by && (!own || hd_has(&o->attrs, A_RUNS))) return hd_term_plain(t, OP_DISPATCH, i, type, &o->attrs, 1, in);
    const Term *all = hd_term_plain(t, OP_DISPATCH, i, type, &o->attrs, 1, &chosen);
    return by && i != 2 ? sent(t, all, by) : all;
}

static const Term *term_combine(const Terms *t, const Op *o, int i, const Type *type, const Term *const *in) {
    const Term *of[4], *by = sent_by(o->n_in, in, 1, of);
    if (by) return sent(t, hd_term_plain(t, o->kind, i, type, NULL, o->n_in, of), by);
    const bool returns = hd_has(&o->attrs, A_STEPWISE) && in[1]->kind == OP_ROUTE && in[1]->of->made;
    if (returns && is_sent_by(in[0], in[1]->of)) return hd_term_reshape(t, in[0]->of, type);
    return hd_term_plain(t, o->kind, i, type, &o->attrs, o->n_in, in);
}

static const Term *term_combine_grad(const Terms *t, const Op *o, int i, const Type *type, const Term *const *in) {
    const Term *of[5], *by = sent_by(o->n_in, in, 2, of);
    const Term *x = hd_term_plain(t, o->kind, i, type, by ? NULL : &o->attrs, o->n_in, by ? of : in);
    return by && i ? sent(t, x, by) : x;
}

static const Term *term_own_index(const Terms *t, const Op *o, int i, const Type *type, const Term *const *in) {
    (void)i;
    if (hd_has(&o->attrs, A_ROUTED)) return routed(t, in[0], hd_int(&o->attrs, A_ROWS, 0));
    return own_index(t, in[0], type->dim[0], hd_int(&o->attrs, A_ROWS, 0));
}

// The stride by which `x` counts in the parts of a table of so many rows; NULL: it is not that.
static const Term *whole_index(const Terms *t, const Term *x, int64_t rows) {
    if (x->kind != OP_OWN_INDEX) return NULL;
    const Term *same = own_index(t, x->of, x->type->dim[0], hd_part_of_size(rows, x->type->dim[0]));
    return hd_term_same(same->hash, x->hash) ? x->of : NULL;
}

// Whether an op says how long a vocabulary is where, and only where, its parts are not equal.
static bool says_uneven(const Op *o, int64_t size, int64_t parts) {
    return hd_int(&o->attrs, A_UNEVEN, 0) == (size % parts ? size : 0);
}

// The rows of all parts are those of the table.
static const Term *term_take(const Terms *t, const Op *o, int i, const Type *type, const Term *const *in) {
    const Term *index = hd_has(&o->attrs, A_PARTS) ? whole_index(t, in[1], in[0]->type->dim[0]) : NULL;
    const Term *of[3], *by = sent_by(o->n_in, in, 0, of);
    if (by) return hd_term_plain(t, o->kind, i, type, &o->attrs, o->n_in, of);
    if (o->n_in == 2 && in[1]->made && !in[0]->by) return sent(t, hd_term_reshape(t, in[0], type), in[1]);
    if (!index) return hd_term_plain(t, o->kind, i, type, &o->attrs, o->n_in, in);
    return looked_up(t, in[0], index, type);
}

// A product whose rows are gathered is one of the rows that a take gives.
static const Term *term_grouped(const Terms *t, const Op *o, int i, const Type *type, const Term *const *in) {
    if (!hd_has(&o->attrs, A_GATHERED)) return hd_term_plain(t, o->kind, i, type, &o->attrs, 3, in);
    const Term *const take[] = {in[0], in[3], in[4]}, *of[3];
    const int64_t dim[] = {hd_type_count(in[3]->type), hd_type_cols(o->in[0]->type)};
    const bool sent = sent_by(3, take, 0, of) != NULL;
    const Type *rows = hd_type(t->cx, o->in[0]->type->dtype, 2, dim);
    const Term *const factors[] = {hd_term_plain(t, OP_TAKE, 0, rows, NULL, 3, sent ? of : take), in[1], in[2]};
    Attrs as = hd_attrs_copy(t->cx, &o->attrs);
    hd_unset(&as, A_GATHERED);
    return hd_term_plain(t, o->kind, i, type, &as, 3, factors);
}

static const Term *term_embedding_grad(const Terms *t, const Op *o, int i, const Type *type, const Term *const *in) {
    (void)i;
    const Attrs *as = hd_has(&o->attrs, A_PARTS) ? &o->attrs : NULL;
    const Term *index = as ? whole_index(t, in[1], type->dim[0]) : in[1];
    if (!index || (as && !says_uneven(o, type->dim[0], in[1]->type->dim[0])))
        return hd_term_plain(t, o->kind, 0, type, as, 2, in);
    if (counts_up(index) && hd_type_count(in[0]->type) == hd_type_count(type)) // every row once
        return hd_term_reshape(t, hd_term_cast(t, in[0], type->dtype), type);
    return hd_term_plain(t, o->kind, 0, type, NULL, 2, (const Term *[]){in[0], index});
}

// The results of loss_part for these logits and targets, by `parts`: the log of the sum of exp, and the logit of the
// target.
static void said_of(const Terms *t, const Term *logits, const Term *targets, int64_t parts, const Term **said) {
    const DType d = logits->type->dtype == TY_F64 ? TY_F64 : TY_F32;
    const int64_t cols = hd_type_cols(logits->type);
    const Term *in[] = {logits, own_index(t, targets, parts, hd_part_of_size(cols, parts)), targets};
    Attrs as = {0};
    if (cols % parts) hd_set_int(t->cx, &as, A_UNEVEN, cols);
    for (int i = 0; i < 2; i++)
        said[i] = hd_term_plain(t, OP_LOSS_PART, i, type_like(t, in[1]->type, d), &as, as.n ? 3 : 2, in);
}

static bool is_said_of(const Terms *t, const Term *logits, const Term *targets, const Term *const *said) {
    const Term *is[2];
    const int64_t parts = said[0]->type->rank ? said[0]->type->dim[0] : 0;
    if (!parts || !logits->type->rank) return false;
    said_of(t, logits, targets, parts, is);
    return hd_term_same(is[0]->hash, said[0]->hash) && hd_term_same(is[1]->hash, said[1]->hash);
}

static const Term *term_loss_of_parts(const Terms *t, const Op *o, int i, const Type *type, const Term *const *in) {
    const Term *logits = in[0]->kind == OP_LOSS_PART ? in[0]->of : NULL;
    if (i) return hd_term_plain(t, o->kind, 1, type, NULL, 2, in); // it does not depend on what is left
    if (!logits || !is_said_of(t, logits, in[2], in)) return hd_term_plain(t, o->kind, 0, type, &o->attrs, o->n_in, in);
    const Term *loss[] = {logits, in[2], in[o->n_in - 1]};
    return hd_term_plain(t, OP_CROSS_ENTROPY, 0, type, &o->attrs, o->n_in - 1, loss);
}

// logits, index, the log of the sum of exp, dloss, targets [, weights]
static const Term *term_loss_part_grad(const Terms *t, const Op *o, int i, const Type *type, const Term *const *in) {
    const Term *said[2];
    const int64_t parts = in[1]->type->dim[0];
    const Term *targets = whole_index(t, in[1], hd_type_cols(in[0]->type));
    bool same = targets && hd_term_same(targets->hash, in[4]->hash) &&
                says_uneven(o, hd_type_cols(in[0]->type), parts);
    if (same) {
        said_of(t, in[0], targets, parts, said);
        same = hd_term_same(in[2]->hash, hd_term_plain(t, OP_LOSS_OF_PARTS, 1, in[2]->type, NULL, 2, said)->hash);
    }
    if (!same) return hd_term_plain(t, o->kind, i, type, &o->attrs, o->n_in, in);
    const Term *all[] = {in[0], targets, in[3], in[o->n_in - 1]};
    Attrs as = hd_attrs_copy(t->cx, &o->attrs);
    hd_unset(&as, A_UNEVEN);
    return hd_term_plain(t, OP_CROSS_ENTROPY_GRAD, 1, type, &as, o->n_in - 2, all);
}

// --- dropout and attention

static const Term *key_of(const Terms *t, const Op *o, const Term *const *in, int others) {
    if (o->n_in > others) return in[others];
    const Type *type = hd_type(t->cx, TY_I32, 1, (int64_t[]){HD_KEY});
    return hd_term_leaf(t, "key", "", hd_int(&o->attrs, A_SITE, 0), type);
}

static const Term *term_dropout(const Terms *t, const Op *o, int i, const Type *type, const Term *const *in) {
    (void)i;
    return hd_term_plain(t, o->kind, 0, type, &o->attrs, 2, (const Term *[]){in[0], key_of(t, o, in, 1)});
}

// Columns of a wider x are a slice of it.
static const Term *term_conv1d(const Terms *t, const Op *o, int i, const Type *type, const Term *const *in) {
    const ConvShape s = hd_conv_shape(o);
    const Term *all[5];
    Attrs as = {0};
    for (int k = 0; k < o->n_in; k++) all[k] = in[k];
    all[s.grad] = slice(t, in[s.grad], in[s.grad]->type->rank - 1, s.start, s.dim);
    if (s.silu) hd_set_flag(t->cx, &as, A_SILU);
    if (s.reverse) hd_set_flag(t->cx, &as, A_REVERSE);
    if (s.documents) hd_set_flag(t->cx, &as, A_DOCUMENTS);
    return hd_term_plain(t, o->kind, i, type, &as, o->n_in, all);
}

// Packed operands are slices of one, and packed results a concat. Defaults are as if they were written.
static const Term *term_attention(const Terms *t, const Op *o, int index, const Type *type, const Term *const *in) {
    const AttentionShape s = hd_attention_shape(o);
    const int64_t size[] = {s.heads * s.size, s.kv_heads * s.size, s.kv_heads * s.size};
    const Term *all[8], *part[3];
    int n = 0, from = 0;
    Attrs as = {0};
    if (s.grad) all[n++] = in[from++];
    for (int i = 0; i < 3; i++) all[n++] = s.packed ? slice(t, in[from], 2, s.part[i], size[i]) : in[from++];
    if (s.packed) from++;
    for (int i = 0; s.grad && i < 2; i++) all[n++] = in[from++];
    if (s.documents) all[n++] = in[from++];
    if (s.sink) all[n++] = in[from++];
    hd_set_int(t->cx, &as, A_HEADS, s.heads);
    hd_set_int(t->cx, &as, A_KV_HEADS, s.kv_heads);
    if (s.causal) hd_set_flag(t->cx, &as, A_CAUSAL);
    if (s.window < s.seq) hd_set_int(t->cx, &as, A_WINDOW, s.window);
    if (s.documents) hd_set_flag(t->cx, &as, A_DOCUMENTS);
    hd_set_float(t->cx, &as, A_SCALE, s.scale);
    if (s.softcap > 0) hd_set_float(t->cx, &as, A_SOFTCAP, s.softcap);
    if (s.sink) hd_set_flag(t->cx, &as, A_SINK);
    if (hd_draws(o)) {
        hd_set_float(t->cx, &as, A_P, hd_float(&o->attrs, A_P, 0));
        hd_set_int(t->cx, &as, A_BATCH, hd_int(&o->attrs, A_BATCH, 0));
        all[n++] = key_of(t, o, in, from);
    }
    if (!s.grad || !s.packed) return hd_term_plain(t, o->kind, index, type, &as, n, all);
    for (int i = 0; i < 3; i++)
        part[i] = hd_term_plain(t, o->kind, i,
                                hd_type(t->cx, s.dtype, 3, (int64_t[]){s.batch, s.seq, size[i]}), &as, n, all);
    as = (Attrs){0};
    hd_set_int(t->cx, &as, A_AXIS, 2);
    return hd_term_plain(t, OP_CONCAT, 0, type, &as, 3, part);
}

static const Term *term_attention_step(const Terms *t, const Op *o, int index, const Type *type,
                                       const Term *const *in) {
    const StepParts p = hd_step_parts(o);
    const int operands = hd_step_operands(o);
    const Term *all[5];
    int n = 4;
    Attrs as = hd_attrs_copy(t->cx, &o->attrs);
    hd_unset(&as, A_PACKED);
    for (int i = 0; i < 3; i++)
        all[i ? i + 1 : 0] = operands == 4 ? in[p.in[i]]
                                           : slice(t, in[0], 2, p.at[i], (i ? p.kv_heads : p.heads) * p.size);
    all[1] = in[1];
    for (int i = operands; i < o->n_in; i++) all[n++] = in[i];
    return hd_term_plain(t, o->kind, index, type, &as, n, all);
}

// --- the rest

// Pointwise ops broadcast by themselves. The operands of some may change places.
static const Term *term_pointwise(const Terms *t, const Op *o, int i, const Type *type, const Term *const *in) {
    (void)i;
    const Term *narrow[HD_MAX_IN];
    for (int k = 0; k < o->n_in; k++) narrow[k] = in[k]->kind == OP_BROADCAST ? in[k]->of : in[k];
    if (hd_op_is(o, TRAIT_COMMUTES)) return hd_term_commuting(t, o->kind, type, narrow[0], narrow[1]);
    return hd_term_plain(t, o->kind, 0, type, &o->attrs, o->n_in, narrow);
}

static const Term *term_constant(const Terms *t, const Op *o, int i, const Type *type, const Term *const *in) {
    (void)i, (void)in;
    Attrs as = {0};
    double value = hd_float(&o->attrs, A_VALUE, 0);
    if (hd_has(&o->attrs, A_PER_RANK)) value /= (double)t->ranks;
    hd_set_float(t->cx, &as, A_VALUE, value);
    return hd_term_plain(t, OP_CONST, 0, type, &as, 0, NULL);
}

static const Term *term_reshape(const Terms *t, const Op *o, int i, const Type *type, const Term *const *in) {
    (void)o, (void)i;
    if (in[0]->by) return sent(t, hd_term_reshape(t, in[0]->of, type), in[0]->by);
    return hd_term_reshape(t, in[0], type);
}

static const Term *term_cast(const Terms *t, const Op *o, int i, const Type *type, const Term *const *in) {
    (void)o, (void)i;
    if (in[0]->by) return sent(t, hd_term_cast(t, in[0]->of, type->dtype), in[0]->by);
    return hd_term_cast(t, in[0], type->dtype);
}

// Heads that are an axis of their own turn as those in a row.
static const Term *term_rope(const Terms *t, const Op *o, int i, const Type *type, const Term *const *in) {
    if (!hd_has(&o->attrs, A_APART)) return hd_term_plain(t, o->kind, i, type, &o->attrs, o->n_in, in);
    Attrs as = hd_attrs_copy(t->cx, &o->attrs);
    hd_unset(&as, A_APART);
    Type row = *type;
    row.dim[--row.rank - 1] *= type->dim[type->rank - 1];
    const Type *rows = hd_type(t->cx, row.dtype, row.rank, row.dim);
    const Term *x = hd_term_reshape(t, in[0], rows);
    return hd_term_reshape(t, hd_term_plain(t, o->kind, i, rows, &as, 1, &x), type);
}

static const Term *term_copy(const Terms *t, const Op *o, int i, const Type *type, const Term *const *in) {
    return o->n_in ? in[0] : hd_term_plain(t, o->kind, i, type, &o->attrs, 0, NULL);
}

static const Term *term_broadcast(const Terms *t, const Op *o, int i, const Type *type, const Term *const *in) {
    (void)i;
    return in[0]->type == type ? in[0] : hd_term_plain(t, o->kind, 0, type, NULL, 1, in);
}

static const Term *term_slice(const Terms *t, const Op *o, int i, const Type *type, const Term *const *in) {
    (void)i, (void)type;
    const Attrs *as = &o->attrs;
    return slice(t, in[0], hd_int(as, A_AXIS, 0), hd_int(as, A_START, 0), hd_int(as, A_SIZE, 0));
}

// There and back is nothing.
static const Term *term_transpose(const Terms *t, const Op *o, int i, const Type *type, const Term *const *in) {
    const Attr *perm = hd_attr(&o->attrs, A_PERM);
    int64_t back[HD_MAX_DIMS];
    Attrs as = {0};
    for (int k = 0; k < perm->n; k++) back[perm->ints[k]] = k;
    hd_set_ints(t->cx, &as, A_PERM, perm->n, back);
    if (in[0]->kind == OP_TRANSPOSE && in[0]->of->type == type) {
        const Term *there = hd_term_plain(t, OP_TRANSPOSE, 0, in[0]->type, &as, 1, &in[0]->of);
        if (hd_term_same(there->hash, in[0]->hash)) return in[0]->of;
    }
    return hd_term_plain(t, OP_TRANSPOSE, i, type, &o->attrs, 1, in);
}

static const Term *term_sum(const Terms *t, const Op *o, int i, const Type *type, const Term *const *in) {
    (void)i;
    return reduce(t, OP_SUM, in[0], hd_reduced_axes(o), type);
}

static const Term *term_largest(const Terms *t, const Op *o, int i, const Type *type, const Term *const *in) {
    (void)i;
    return reduce(t, o->kind, in[0], hd_reduced_axes(o), type);
}

// Its first result is the loss.
static const Term *term_cross_entropy_grad(const Terms *t, const Op *o, int i, const Type *type,
                                           const Term *const *in) {
    if (i) return hd_term_plain(t, o->kind, i, type, &o->attrs, o->n_in, in);
    const Term *forward[] = {in[0], in[1], in[o->n_in - 1]};
    return hd_term_plain(t, OP_CROSS_ENTROPY, 0, type, &o->attrs, hd_loss_weights(o) ? 3 : 2, forward);
}

const Term *hd_term_of(const Terms *t, const Op *o, int index, const Term *const *in) {
    static const struct { OpKind of; TermRule *rule; } rules[N_OPS] = {
#define ELT(id, ...) [OP_##id] = {.rule = term_pointwise},
#define OP(id, mnemonic, n_in, n_out, attrs, fields, doc) [OP_##id] = {.of = OP_##id, fields},
#define term(x) .rule = term_##x,
#include "ir/ops.def"
    };
    const Type *type = hd_result_type(o, index);
    if (rules[o->kind].rule) return rules[o->kind].rule(t, o, index, type, in);
    return hd_term_plain(t, o->kind, index, type, &o->attrs, o->n_in, in);
}
