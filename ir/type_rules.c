// The type rules of tensor ops and kernels; those of products are in type_products.c, those of dropout and attention
// in type_attention.c, those of storage and ranks in type_storage.c.
#include "ir/type_rules.h"
#include "ir/base/ints.h"
#include "ir/mesh.h"
#include "ir/shapes.h"

DType hd_rule_out(Rule *r, DType otherwise) {
    const char *w = hd_word(&r->o->attrs, A_OUT, NULL);
    DType d = otherwise;
    if (w) hd_dtype_parse(w, &d);
    return d;
}

const char *hd_rule_floating(Rule *r, int operand) {
    if (!hd_dtype_is_float(IN(operand)->dtype))
        WRONG("operand %d of %s must be floating point, not %s", operand, hd_op_info(r->o->kind)->mnemonic,
              TEXT(IN(operand)));
    return NULL;
}

static const Type *shape_as(Rule *r, const Type *shape, DType d) { return hd_type_with(r->cx, d, shape); }

static const char *elementwise(Rule *r) {
    const Type *t = NULL;
    for (int i = 0; i < r->o->n_in; i++) {
        const Type *x = IN(i);
        if (!hd_dtype_is_float(x->dtype))
            WRONG("%s of %s: operands must be floating point; in a model float(x) converts them",
                  hd_op_info(r->o->kind)->mnemonic, TEXT(x));
        if (!t) { t = x; continue; }
        // a rank-0 operand (a constant, a factor) adapts to the dtype of the other
        DType d = !t->rank && x->rank ? x->dtype : t->dtype;
        if (t->rank && x->rank && t->dtype != x->dtype)
            WRONG("operands have different element types: %s and %s", TEXT(t), TEXT(x));
        const Type *b = hd_type_broadcast(r->cx, t, x);
        if (!b) WRONG("shapes do not fit: %s and %s", TEXT(t), TEXT(x));
        t = shape_as(r, b, d);
    }
    return hd_rule_give(r, t);
}

static const char *declared_all(Rule *r) {
    for (int i = 0; i < r->n_declared; i++) {
        const char *e = hd_rule_give(r, r->declared[i]);
        if (e) return e;
    }
    return NULL;
}

const char *hd_rule_explicit(Rule *r) {
    if (r->n_declared != 1) WRONG("%d result types written, 1 needed", r->n_declared);
    return declared_all(r);
}

// The type of the parameters that an op names, as one matrix; NULL after the error in r->text.
const char *hd_rule_params(Rule *r, const Type **type) {
    const Attr *also = hd_attr(&r->o->attrs, A_ALSO);
    const Symbol *s = hd_named(r->o, A_PARAM);
    if (!s || s->kind != SYM_PARAM) WRONG("no parameter @%s", hd_word(&r->o->attrs, A_PARAM, ""));
    Type all = *s->type;
    for (int i = 0; also && i < also->n; i++) {
        const Symbol *next = hd_symbol_find(r->o->func->module, also->strs[i]);
        if (!next || next->kind != SYM_PARAM) WRONG("no parameter @%s", also->strs[i]);
        bool fits = all.rank && next->type->rank == all.rank && next->type->dtype == all.dtype;
        for (int k = 1; fits && k < all.rank; k++) fits = next->type->dim[k] == all.dim[k];
        if (fits) all.dim[0] += next->type->dim[0];
        fits = fits && hd_type(r->cx, all.dtype, all.rank, all.dim); // of a size that a type can have
        if (!fits) WRONG("rows of @%s : %s cannot follow those of @%s : %s", next->name, TEXT(next->type), s->name,
                         TEXT(s->type));
    }
    *type = hd_type(r->cx, all.dtype, all.rank, all.dim);
    return NULL;
}

const char *hd_rule_param(Rule *r) {
    const Type *t;
    const char *e = hd_rule_params(r, &t);
    return e ? e : hd_rule_give(r, t);
}

const char *hd_rule_cast(Rule *r) {
    DType d;
    if (!hd_dtype_parse(hd_word(&r->o->attrs, A_OUT, ""), &d))
        WRONG("no element type '%s'", hd_word(&r->o->attrs, A_OUT, ""));
    return hd_rule_give(r, shape_as(r, IN(0), d));
}

const char *hd_rule_reshape(Rule *r) {
    const char *e = hd_rule_explicit(r);
    if (e) return e;
    if (r->out[0]->dtype != IN(0)->dtype || hd_type_count(r->out[0]) != hd_type_count(IN(0)))
        WRONG("cannot reshape %s (%lld elements) to %s (%lld)", TEXT(IN(0)), (long long)hd_type_count(IN(0)),
              TEXT(r->out[0]), (long long)hd_type_count(r->out[0]));
    const Attr *over = hd_attr(&r->o->attrs, A_OVER), *dims = hd_attr(&r->o->attrs, A_DIMS);
    if (!over != !dims || (over && over->n != dims->n)) return "reshape has as many `dims` as axes in `over`, or none";
    Axes said = 0;
    for (int i = 0; over && i < over->n; i++) {
        const int axis = hd_axis_called(over->strs[i]);
        if (!(HD_OWN_AXES >> axis & 1) || said >> axis & 1)
            WRONG("over of reshape: '%s' is no axis that splits values, or it is there twice", over->strs[i]);
        if (dims->ints[i] < 0 || dims->ints[i] >= r->out[0]->rank)
            WRONG("dims of reshape: %s has no dimension %lld", TEXT(r->out[0]), (long long)dims->ints[i]);
        said |= 1u << axis;
    }
    return NULL;
}

const char *hd_rule_broadcast(Rule *r) {
    const char *e = hd_rule_explicit(r);
    if (e) return e;
    if (hd_type_broadcast(r->cx, IN(0), r->out[0]) != r->out[0])
        WRONG("cannot broadcast %s to %s", TEXT(IN(0)), TEXT(r->out[0]));
    return NULL;
}

const char *hd_rule_sum_to(Rule *r) {
    const char *e = hd_rule_explicit(r);
    if (!e) e = hd_rule_floating(r, 0);
    if (e) return e;
    if (hd_type_broadcast(r->cx, IN(0), r->out[0]) != IN(0) &&
        hd_type_broadcast(r->cx, shape_as(r, r->out[0], IN(0)->dtype), IN(0)) != IN(0))
        WRONG("%s does not broadcast to %s, so that cannot be summed to it", TEXT(r->out[0]), TEXT(IN(0)));
    if (r->out[0]->dtype != hd_rule_out(r, IN(0)->dtype))
        WRONG("result is %s; write out = %s", TEXT(r->out[0]), hd_dtype_text(r->out[0]->dtype));
    return NULL;
}

const char *hd_rule_transpose(Rule *r) {
    const Attr *p = hd_attr(&r->o->attrs, A_PERM);
    int64_t dim[HD_MAX_DIMS];
    unsigned seen = 0;
    if (p->n != IN(0)->rank) WRONG("perm has %d entries for %s", p->n, TEXT(IN(0)));
    for (int i = 0; i < p->n; i++) {
        if (p->ints[i] < 0 || p->ints[i] >= p->n || (seen & 1u << p->ints[i]))
            WRONG("perm is not a permutation of 0..%d", p->n - 1);
        seen |= 1u << p->ints[i];
        dim[i] = IN(0)->dim[p->ints[i]];
    }
    return hd_rule_give(r, hd_type(r->cx, IN(0)->dtype, p->n, dim));
}

static const char *check_axis(Rule *r, int64_t axis) {
    if (axis < 0 || axis >= IN(0)->rank) WRONG("axis %lld is out of range for %s", (long long)axis, TEXT(IN(0)));
    return NULL;
}

const char *hd_rule_along(Rule *r) { // its axis; the result is like the operand
    const char *e = check_axis(r, hd_int(&r->o->attrs, A_AXIS, 0));
    if (!e) e = hd_rule_floating(r, 0);
    return e ? e : hd_rule_give(r, IN(0));
}

const char *hd_rule_documents(Rule *r) {
    if (IN(0)->dtype != TY_I32 || IN(0)->rank < 1)
        WRONG("documents are told apart by integers i32[.., seq], not %s", TEXT(IN(0)));
    return hd_rule_give(r, IN(0));
}

// The operands of conv1d, from operand `x` on.
static const char *convolved(Rule *r, int i) {
    const bool packed = hd_has(&r->o->attrs, A_DOCUMENTS);
    const int n = r->o->n_in - packed; // but for the starts of documents
    const char *e = n == i + 2 || n == i + 3 ? hd_rule_floating(r, i) : NULL;
    if (n != i + 2 && n != i + 3)
        WRONG("%s takes %sx, taps, perhaps a bias%s, not %d operands", hd_op_info(r->o->kind)->mnemonic,
              i ? "dy, " : "", packed ? " and the starts of documents" : "", r->o->n_in);
    if (e) return e;
    const Type *x = IN(i), *taps = IN(i + 1);
    const Attr *start = hd_attr(&r->o->attrs, A_START);
    if (x->rank < 2) WRONG("conv1d needs [.., seq, dim], not %s", TEXT(x));
    if (taps->rank != 2 || taps->dim[0] < 1 || (!start && taps->dim[1] != hd_type_cols(x)))
        WRONG("the taps of conv1d over %s are [k, %lld], not %s%s", TEXT(x), ll(hd_type_cols(x)), TEXT(taps),
              taps->rank > 1 && taps->dim[0] == hd_type_cols(x) ? ", which has the columns first" : "");
    if (start && (start->i < 0 || start->i > hd_type_cols(x) - taps->dim[1]))
        WRONG("columns %lld to %lld of conv1d are not in %s", ll(start->i), ll(start->i + taps->dim[1]), TEXT(x));
    for (int k = i + 1; k < n; k++)
        if (IN(k)->dtype != x->dtype) WRONG("operands have different element types: %s and %s", TEXT(x), TEXT(IN(k)));
    const Type *starts = hd_type(r->cx, TY_I32, x->rank - 1, x->dim);
    if (packed && IN(n) != starts)
        WRONG("documents of conv1d are integers %s, as documents(tokens, eot = ..) gives them, not %s", TEXT(starts),
              TEXT(IN(n)));
    if (n > i + 2 && IN(i + 2) != hd_type(r->cx, x->dtype, 1, taps->dim + 1))
        WRONG("the bias of conv1d with taps %s is [%lld], not %s", TEXT(taps), ll(taps->dim[1]), TEXT(IN(i + 2)));
    return NULL;
}

static const Type *convolution(Rule *r, int x) {
    Type t = *IN(x);
    t.dim[t.rank - 1] = IN(x + 1)->dim[1];
    return hd_type(r->cx, t.dtype, t.rank, t.dim);
}

const char *hd_rule_conv1d(Rule *r) {
    const char *e = convolved(r, 0);
    return e ? e : hd_rule_give(r, convolution(r, 0));
}

const char *hd_rule_conv1d_grad(Rule *r) {
    const char *e = convolved(r, 1);
    if (e) return e;
    const ConvShape s = hd_conv_shape(r->o);
    const DType sums = IN(1)->dtype == TY_F64 ? TY_F64 : TY_F32;
    if (IN(0) != convolution(r, 1)) WRONG("conv1d_grad: dy is %s, not %s", TEXT(convolution(r, 1)), TEXT(IN(0)));
    e = hd_rule_give(r, IN(0));
    if (!e) e = hd_rule_give(r, hd_type(r->cx, sums, 3, (int64_t[]){s.runs, s.taps, s.dim}));
    if (!e && s.bias) e = hd_rule_give(r, hd_type(r->cx, sums, 2, (int64_t[]){s.runs, s.dim}));
    return e;
}

const char *hd_rule_slice(Rule *r) {
    int64_t axis = hd_int(&r->o->attrs, A_AXIS, 0), start = hd_int(&r->o->attrs, A_START, 0),
            size = hd_int(&r->o->attrs, A_SIZE, 0);
    const char *e = check_axis(r, axis);
    if (e) return e;
    if (start < 0 || size < 0 || start > IN(0)->dim[axis] - size)
        WRONG("slice [%lld, %lld) is outside axis %lld of %s", (long long)start, (long long)(start + size),
              (long long)axis, TEXT(IN(0)));
    Type t = *IN(0);
    t.dim[axis] = size;
    return hd_rule_give(r, hd_type(r->cx, t.dtype, t.rank, t.dim));
}

const char *hd_rule_concat(Rule *r) {
    int64_t axis = hd_int(&r->o->attrs, A_AXIS, 0);
    if (!r->o->n_in) return "concat of nothing";
    const char *e = check_axis(r, axis);
    if (e) return e;
    Type t = *IN(0);
    for (int i = 1; i < r->o->n_in; i++) {
        const Type *x = IN(i);
        bool fits = x->rank == t.rank && x->dtype == t.dtype;
        for (int k = 0; fits && k < t.rank; k++) fits = k == axis || x->dim[k] == t.dim[k];
        if (!fits) WRONG("cannot concatenate %s and %s along axis %lld", TEXT(IN(0)), TEXT(x), (long long)axis);
        t.dim[axis] += x->dim[axis];
    }
    return hd_rule_give(r, hd_type(r->cx, t.dtype, t.rank, t.dim));
}

const char *hd_rule_reduce(Rule *r) {
    const char *wrong = hd_rule_floating(r, 0);
    if (wrong) return wrong;
    const Attr *axes = hd_attr(&r->o->attrs, A_AXES);
    bool keep = hd_has(&r->o->attrs, A_KEEP);
    unsigned drop = 0;
    for (int i = 0; i < axes->n; i++) {
        const char *e = check_axis(r, axes->ints[i]);
        if (e) return e;
        drop |= 1u << axes->ints[i];
    }
    int64_t dim[HD_MAX_DIMS];
    int rank = 0;
    for (int i = 0; i < IN(0)->rank; i++) {
        if (!(drop & 1u << i)) dim[rank++] = IN(0)->dim[i];
        else if (keep) dim[rank++] = 1;
    }
    return hd_rule_give(r, hd_type(r->cx, hd_rule_out(r, IN(0)->dtype), rank, dim));
}

const char *hd_rule_embedding(Rule *r) {
    if (IN(0)->rank != 2) WRONG("an embedding table has 2 axes, not %s", TEXT(IN(0)));
    if (IN(1)->dtype != TY_I32) WRONG("embedding indices must be i32, not %s", TEXT(IN(1)));
    const char *e = hd_rule_floating(r, 0);
    if (e) return e;
    if (IN(1)->rank >= HD_MAX_DIMS) WRONG("too many axes: %s", TEXT(IN(1)));
    int64_t dim[HD_MAX_DIMS];
    for (int i = 0; i < IN(1)->rank; i++) dim[i] = IN(1)->dim[i];
    dim[IN(1)->rank] = IN(0)->dim[1];
    return hd_rule_give(r, hd_type(r->cx, IN(0)->dtype, IN(1)->rank + 1, dim));
}

const char *hd_rule_embedding_grad(Rule *r) {
    int64_t cols = hd_type_cols(IN(0)), rows = hd_int(&r->o->attrs, A_ROWS, -1);
    const char *e = hd_rule_floating(r, 0);
    if (e) return e;
    const bool parts = hd_has(&r->o->attrs, A_PARTS);
    if (IN(1)->dtype != TY_I32 || (parts && !IN(1)->rank) ||
        hd_type_rows(IN(0)) * (parts ? IN(1)->dim[0] : 1) != hd_type_count(IN(1)))
        WRONG("%s has %lld rows for the indices %s", TEXT(IN(0)), ll(hd_type_rows(IN(0))), TEXT(IN(1)));
    if (hd_has(&r->o->attrs, A_INTO)) {
        if (rows < 0) return "a table in a buffer needs rows";
        if (parts && (e = hd_rule_parts_wrong(r, IN(1), rows))) return e;
        return hd_rule_give(r, hd_rule_matrix_into(r, rows, cols));
    }
    e = hd_rule_explicit(r);
    if (e) return e;
    if (r->out[0]->rank != 2 || r->out[0]->dim[1] != cols)
        WRONG("rows of %s cannot be added to a table %s", TEXT(IN(0)), TEXT(r->out[0]));
    return parts ? hd_rule_parts_wrong(r, IN(1), r->out[0]->dim[0]) : NULL;
}

static const Type *stats(Rule *r, const Type *x) {
    const bool keep = hd_has(&r->o->attrs, A_KEEP);
    Type t = *x;
    t.dim[x->rank - 1] = 1;
    return hd_type(r->cx, x->dtype == TY_F64 ? TY_F64 : TY_F32, x->rank - !keep, t.dim);
}

static const char *weight(Rule *r, const Type *x, int operand) {
    const Type *w = IN(operand);
    if (w->rank != 1 || w->dim[0] != hd_type_cols(x))
        WRONG("operand %d is %s; the last axis of %s has %lld", operand, TEXT(w), TEXT(x), (long long)hd_type_cols(x));
    if (w->dtype != x->dtype) WRONG("operands have different element types: %s and %s", TEXT(x), TEXT(w));
    return NULL;
}

// An op over the last axis, by the classes of its row: data are like operand 0, weights one number a column, statistics
// one number a row in f32, column sums f32 as well.
const char *hd_rule_rows(Rule *r) {
    const Type *x = IN(0);
    if (x->rank < 1) WRONG("%s needs at least one axis, not %s", hd_op_info(r->o->kind)->mnemonic, TEXT(x));
    const Type *row = stats(r, x), *column = hd_type(r->cx, row->dtype, 1, &x->dim[x->rank - 1]);
    const char *e = hd_rule_floating(r, 0);
    for (int i = 1; i < r->o->n_in && !e; i++) {
        const char c = hd_operand_class(r->o, i);
        if (c == 'w') e = weight(r, x, i);
        else if (c == 's' && IN(i) != row) WRONG("operand %d is %s; %s needs %s", i, TEXT(IN(i)), TEXT(x), TEXT(row));
        else if (c == 'd' && IN(i) != x) WRONG("operands differ: %s and %s", TEXT(x), TEXT(IN(i)));
    }
    for (int i = 0; i < hd_op_info(r->o->kind)->n_out && !e; i++) {
        const char c = hd_class_of_result(r->o->kind, i);
        e = hd_rule_give(r, c == 's' ? row : c == 'c' ? column : x);
    }
    return e;
}

const char *hd_rule_softmax(Rule *r) {
    const char *e = hd_rule_floating(r, 0);
    if (e) return e;
    if (IN(0)->rank < 1 + hd_has(&r->o->attrs, A_CAUSAL)) WRONG("softmax needs more axes than %s has", TEXT(IN(0)));
    return hd_rule_give(r, IN(0));
}

const char *hd_rule_rope(Rule *r) {
    int64_t heads = hd_int(&r->o->attrs, A_HEADS, 1);
    if (r->o->n_in < 1 || r->o->n_in > 2) WRONG("rope takes x and perhaps positions, not %d operands", r->o->n_in);
    if (IN(0)->rank < 2) WRONG("rope needs [.., seq, heads*size], not %s", TEXT(IN(0)));
    if (r->o->n_in > 1 && (IN(1)->dtype != TY_I32 || hd_type_count(IN(1)) != hd_type_rows(IN(0))))
        WRONG("the positions of rope are integers, one for each row of %s, not %s", TEXT(IN(0)), TEXT(IN(1)));
    if (hd_has(&r->o->attrs, A_APART)) {
        const Type *t = IN(0);
        if (r->o->n_in > 1 || hd_has(&r->o->attrs, A_TURNED) || t->rank < 3 || t->dim[t->rank - 2] != heads ||
            hd_type_cols(t) % 2)
            WRONG("rope of heads apart turns all %lld heads of [.., seq, heads, size], not %s", (long long)heads,
                  TEXT(t));
        const char *e = hd_rule_floating(r, 0);
        return e ? e : hd_rule_give(r, t);
    }
    if (heads < 1 || heads > hd_type_cols(IN(0)) || hd_type_cols(IN(0)) % (2 * heads))
        WRONG("the last axis of %s does not divide into %lld heads of even size", TEXT(IN(0)), (long long)heads);
    const int64_t turned = hd_int(&r->o->attrs, A_TURNED, heads);
    if (turned < 1 || turned > heads)
        WRONG("rope cannot turn %lld of %lld heads", (long long)turned, (long long)heads);
    const Attr *s = hd_attr(&r->o->attrs, A_SCALING);
    if (s && (s->n != 4 || !(s->floats[0] > 0 && s->floats[1] > 0 && s->floats[2] > s->floats[1] && s->floats[3] > 0)))
        WRONG("rope's scaling is [factor, low, high, length]: four positive numbers, high above low, such as "
              "[8, 1, 4, 8192]");
    const char *e = hd_rule_floating(r, 0);
    return e ? e : hd_rule_give(r, IN(0));
}

static const char *cross_entropy(Rule *r, int least) { // of so many operands, or one more
    if (r->o->n_in < least || r->o->n_in > least + 1)
        WRONG("%d operands, not %d or %d", r->o->n_in, least, least + 1);
    const Type *z = IN(0), *y = IN(1);
    if (z->rank < 1 || !hd_dtype_is_float(z->dtype))
        WRONG("logits must be floating point with a last axis, not %s", TEXT(z));
    if (y != hd_type(r->cx, TY_I32, z->rank - 1, z->dim))
        WRONG("logits %s need targets %s, not %s", TEXT(z), TEXT(hd_type(r->cx, TY_I32, z->rank - 1, z->dim)), TEXT(y));
    const DType sums = z->dtype == TY_F64 ? TY_F64 : TY_F32;
    const Value *weights = hd_loss_weights(r->o);
    const Type *each = hd_type(r->cx, sums, y->rank, y->dim);
    if (weights && weights->type != each)
        WRONG("targets %s need weights %s, not %s", TEXT(y), TEXT(each), TEXT(weights->type));
    if (!weights && hd_has(&r->o->attrs, A_IGNORE)) WRONG("without weights no target can be ignored");
    return hd_rule_give(r, hd_type(r->cx, sums, 0, NULL));
}

const char *hd_rule_cross_entropy(Rule *r) { return cross_entropy(r, 2); }

const char *hd_rule_cross_entropy_grad(Rule *r) {
    const char *e = cross_entropy(r, 3);
    if (e) return e;
    const Type *dloss = hd_type(r->cx, IN(0)->dtype == TY_F64 ? TY_F64 : TY_F32, 0, NULL);
    if (IN(2) != dloss) WRONG("dloss must be a scalar, %s, not %s", TEXT(dloss), TEXT(IN(2)));
    return hd_rule_give(r, IN(0));
}

const char *hd_rule_launch(Rule *r) {
    const Func *k = hd_launched(r->o);
    if (!k || !k->is_kernel) WRONG("no kernel @%s", hd_word(&r->o->attrs, A_KERNEL, ""));
    if (k->n_args != r->o->n_in) WRONG("kernel @%s takes %d operands, not %d", k->name, k->n_args, r->o->n_in);
    for (int i = 0; i < k->n_args; i++)
        if (k->args[i]->type != IN(i))
            WRONG("operand %d of kernel @%s is %s, not %s", i, k->name, TEXT(k->args[i]->type), TEXT(IN(i)));
    const Op *ret = hd_return(k);
    if (!ret || ret->n_in != r->n_declared)
        WRONG("kernel @%s has %d results, %d written", k->name, ret ? ret->n_in : 0, r->n_declared);
    for (int i = 0; i < ret->n_in; i++)
        if (ret->in[i]->type != r->declared[i])
            WRONG("result %d of kernel @%s is %s, not %s", i, k->name, TEXT(ret->in[i]->type), TEXT(r->declared[i]));
    return declared_all(r);
}

const char *hd_rule_nothing(Rule *r) {
    (void)r;
    return NULL;
}

static const struct { OpKind of; TypeRule *rule; } rules[N_OPS] = {
#define ELT(id, ...) [OP_##id] = {.rule = elementwise},
#define OP(id, mnemonic, n_in, n_out, attrs, fields, doc) [OP_##id] = {.of = OP_##id, fields},
#define type(x) .rule = hd_rule_##x,
#include "ir/ops.def"
};

static const char *named_buffers(Rule *r) {
    const Attrs *as = &r->o->attrs;
    for (int i = 0; i < as->n; i++) {
        const char *const *names;
        for (int k = hd_operand_uses(as->at[i].id) ? hd_names(&as->at[i], &names) : 0; k-- > 0;) {
            const Symbol *s = hd_symbol_find(r->o->func->module, names[k]);
            if (!s || s->kind != SYM_BUFFER || !s->type) WRONG("no buffer @%s", names[k]);
        }
    }
    return NULL;
}

// `into`: result 0 goes to the buffer and is none of the op's results.
static const char *write_into(Rule *r) {
    const Symbol *s = hd_rule_symbol(r, A_INTO, SYM_BUFFER);
    const Type *t = r->out[0];
    const char *e = hd_rule_in_buffer(r, A_INTO, t);
    if (e) return e;
    if (s->type->dtype != t->dtype)
        WRONG("%s of %s into buffer @%s : %s", hd_op_info(r->o->kind)->mnemonic, TEXT(t), s->name, TEXT(s->type));
    r->n--;
    memmove(r->out, r->out + 1, sizeof *r->out * (size_t)r->n);
    return NULL;
}

const Type *hd_result_type(const Op *o, int i) {
    if (!hd_has(&o->attrs, A_INTO)) return o->out[i]->type;
    if (i) return o->out[i - 1]->type;
    Rule r = {.cx = o->func->module->cx, .o = o};
    return rules[o->kind].rule(&r) ? NULL : r.out[0];
}

static bool has_named(const Attrs *as, const char *name, size_t n) {
    for (int i = 0; i < as->n; i++) {
        const char *text = hd_attr_info(as->at[i].id)->text;
        if (!strncmp(text, name, n) && !text[n]) return true;
    }
    return false;
}

const char *hd_infer(Op *o, int n_declared, const Type *const *declared) {
    const OpInfo *info = hd_op_info(o->kind);
    Ctx *cx = o->func->module->cx;
    if (info->n_in >= 0 && o->n_in != info->n_in)
        return hd_internf(cx, "%s takes %d operands, not %d", info->mnemonic, info->n_in, o->n_in);
    for (const char *p = info->attrs; *p;) { // required attributes, so that rules may read them
        const size_t len = strcspn(p, " ");
        if (p[len - 1] != '?' && !has_named(&o->attrs, p, len))
            return hd_internf(cx, "%s needs the attribute '%.*s'", info->mnemonic, (int)len, p);
        p += len + (p[len] == ' ');
    }
    Rule r = {.cx = cx, .o = o, .n_declared = n_declared, .declared = declared};
    if (n_declared > HD_MAX_IN) return hd_internf(cx, "%d results; at most %d", n_declared, HD_MAX_IN);
    const char *wrong = named_buffers(&r);
    const bool adds = hd_has(&o->attrs, A_ACCUMULATE), into = hd_has(&o->attrs, A_INTO);
    if (!wrong && adds && !into) wrong = "accumulate adds to a buffer: it needs into";
    if (!wrong) wrong = rules[o->kind].rule(&r);
    if (!wrong && hd_has(&o->attrs, A_INTO)) wrong = write_into(&r);
    if (!wrong) hd_set_results(o, r.n, r.out);
    return wrong;
}
