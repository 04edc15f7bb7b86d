// The functions of the language (builtins.def). Arguments are bound, evaluated and checked by kind here; one short rule
// per function makes the ops.
#include "frontend/builtins/builtins.h"
#include <stdlib.h>

static Val emit(Front *f, const BoundArgs *a, OpKind k, int n, const Attrs *attrs) { // of the first n arguments
    Value *in[MAX_FORMALS];
    for (int i = 0; i < n; i++) in[i] = a->v[i].tensor;
    return tensor(hd_emit(f, a->span, k, n, in, attrs, NULL));
}

static bool axis_of(Front *f, Span s, const Type *t, int64_t given_axis, int64_t *axis) { // negative: from the end
    *axis = given_axis < 0 ? given_axis + t->rank : given_axis;
    if (*axis >= 0 && *axis < t->rank) return true;
    return hd_front_error(f, s, "axis %lld is out of range for %s", (long long)given_axis, hd_type_text(f->cx, t));
}

static bool axis_or_last(Front *f, const BoundArgs *a, int k, const Type *t, int64_t *axis) {
    return axis_of(f, given(a, k) ? a->nodes[k]->span : a->span, t, given(a, k) ? a->v[k].i : -1, axis);
}

static int list_size(Val v) { return v.kind == VAL_LIST ? v.n : 1; }
static int64_t list_at(Val v, int i) { return v.kind == VAL_LIST ? v.list[i].i : v.i; }

static const Type *shape_of(Front *f, const BoundArgs *a, int k, DType dt) {
    int64_t dim[HD_MAX_DIMS];
    int n = list_size(a->v[k]);
    if (n > HD_MAX_DIMS) {
        hd_front_error(f, a->nodes[k]->span, "a tensor has at most %d axes, not %d", HD_MAX_DIMS, n);
        return NULL;
    }
    for (int i = 0; i < n; i++) {
        dim[i] = list_at(a->v[k], i);
        if (dim[i] >= 1) continue;
        hd_front_error(f, a->nodes[k]->span, "a dimension must be at least 1, not %lld", (long long)dim[i]);
        return NULL;
    }
    const Type *t = hd_type(f->cx, dt, n, dim);
    if (!t) hd_front_error(f, a->nodes[k]->span, "a tensor of this shape exceeds 2^60 bytes");
    return t;
}

// --- rules: one for each BUILTIN row of builtins.def

static Val call_linear(Front *f, BoundArgs *a) {
    if (type_at(a, 1)->rank != 2)
        return hd_front_bad(f, a->span, "linear: the weight must be [out, in], not %s",
                            hd_type_text(f->cx, type_at(a, 1)));
    Attrs attrs = {0};
    hd_set_flag(f->cx, &attrs, A_TB);
    Val y = emit(f, a, OP_MATMUL, 2, &attrs);
    if (y.kind == VAL_BAD || !given(a, 2)) return y;
    int64_t out = type_at(a, 1)->dim[0];
    if (type_at(a, 2)->rank != 1 || type_at(a, 2)->dim[0] != out)
        return hd_front_bad(f, a->nodes[2]->span, "linear: the bias must be [%lld] for the weight %s, not %s",
                            (long long)out, hd_type_text(f->cx, type_at(a, 1)), hd_type_text(f->cx, type_at(a, 2)));
    return hd_emit_elementwise(f, a->span, OP_ADD, 2, (Val[]){y, a->v[2]});
}

// `transpose(b)` written as a factor becomes the product's flag. The op it made, which nothing else can read, is
// dropped.
static bool fold_transpose(Front *f, BoundArgs *a, int k) {
    const Node *n = a->nodes[k];
    if (n->kind != N_CALL || n->a->kind != N_NAME || strcmp(n->a->name, "transpose") || n->n != 1) return false;
    if (hd_lower_hidden(f, a->scope, n->a->name)) return false; // a function of the file that is called transpose
    Op *def = a->v[k].tensor->def;
    a->v[k].tensor = def->in[0];
    hd_erase(def);
    return true;
}

static Val call_matmul(Front *f, BoundArgs *a) {
    int ra = type_at(a, 0)->rank, rb = type_at(a, 1)->rank;
    bool batched = ra >= 3 && rb >= 3;
    if (ra < 2 || rb < 2 || (rb > 2 && !batched))
        return hd_front_bad(
            f, a->span,
            "matmul: the factors must be [.., m, k] and [k, n], or both have the same three or more axes, "
            "not %s and %s",
            hd_type_text(f->cx, type_at(a, 0)), hd_type_text(f->cx, type_at(a, 1)));
    Attrs attrs = {0};
    if (fold_transpose(f, a, 1)) hd_set_flag(f->cx, &attrs, A_TB);
    if ((batched || ra == 2) && fold_transpose(f, a, 0)) hd_set_flag(f->cx, &attrs, A_TA);
    return emit(f, a, batched ? OP_BMM : OP_MATMUL, 2, &attrs);
}

static Val call_transpose(Front *f, BoundArgs *a) {
    int rank = type_at(a, 0)->rank, n = given(a, 1) ? list_size(a->v[1]) : rank;
    int64_t perm[HD_MAX_DIMS];
    if (rank < 2 || n != rank)
        return hd_front_bad(f, a->span, "transpose: %d axes cannot be permuted in %s", given(a, 1) ? n : 2,
                            hd_type_text(f->cx, type_at(a, 0)));
    for (int i = 0; i < n; i++) perm[i] = given(a, 1) ? list_at(a->v[1], i) : i < n - 2 ? i : 2 * n - 3 - i;
    Attrs attrs = {0};
    hd_set_ints(f->cx, &attrs, A_PERM, n, perm);
    return emit(f, a, OP_TRANSPOSE, 1, &attrs);
}

static Val slice_at(Front *f, BoundArgs *a, int64_t axis, int64_t start, int64_t size) {
    Attrs attrs = {0};
    hd_set_int(f->cx, &attrs, A_AXIS, axis);
    hd_set_int(f->cx, &attrs, A_START, start);
    hd_set_int(f->cx, &attrs, A_SIZE, size);
    return emit(f, a, OP_SLICE, 1, &attrs);
}

static bool part_sizes(Front *f, const BoundArgs *a, int64_t whole, int *n, int64_t **sizes) {
    enum { MAX_PARTS = 4096 };
    Val parts = a->v[1];
    const char *t = hd_type_text(f->cx, type_at(a, 0));
    bool equal = parts.kind == VAL_INT;
    if (equal && (parts.i < 1 || parts.i > MAX_PARTS))
        return hd_front_error(f, a->nodes[1]->span, "split makes 1 to %d parts, not %lld", MAX_PARTS,
                              (long long)parts.i);
    if (equal && whole % parts.i)
        return hd_front_error(f, a->nodes[1]->span, "split: %lld does not divide %lld, the axis of %s",
                              (long long)parts.i, (long long)whole, t);
    *n = equal ? (int)parts.i : parts.n;
    *sizes = HD_NEWN(f->arena, int64_t, *n + 1);
    int64_t left = whole;
    for (int i = 0; i < *n; i++) {
        (*sizes)[i] = equal ? whole / parts.i : parts.list[i].i;
        if ((*sizes)[i] < 1 || (*sizes)[i] > left) left = -1;
        else left -= (*sizes)[i];
        if (left < 0) break;
    }
    if (left == 0) return true;
    return hd_front_error(f, a->nodes[1]->span,
                          "split: the sizes of the parts must be positive and add up to %lld, the axis of %s",
                          (long long)whole, t);
}

static Val call_split(Front *f, BoundArgs *a) {
    int64_t axis, *sizes = NULL, start = 0;
    int n = 0;
    if (!axis_or_last(f, a, 2, type_at(a, 0), &axis) || !part_sizes(f, a, type_at(a, 0)->dim[axis], &n, &sizes))
        return bad;
    Val *parts = HD_NEWN(f->arena, Val, n);
    for (int i = 0; i < n; start += sizes[i++]) {
        parts[i] = slice_at(f, a, axis, start, sizes[i]);
        if (parts[i].kind == VAL_BAD) return bad;
    }
    return (Val){.kind = VAL_LIST, .n = n, .list = parts};
}

static Val call_concat(Front *f, BoundArgs *a) {
    int64_t axis;
    int n = a->v[0].n;
    if (n < 1 || n > HD_MAX_IN) return hd_front_bad(f, a->span, "concat takes 1 to %d tensors, not %d", HD_MAX_IN, n);
    Value *in[HD_MAX_IN];
    for (int i = 0; i < n; i++) {
        Val v = a->v[0].list[i];
        if (v.kind != VAL_TENSOR) return hd_front_bad(f, a->span, "concat takes tensors, not %s", hd_val_text(f, v));
        in[i] = v.tensor;
    }
    if (!axis_or_last(f, a, 1, in[0]->type, &axis)) return bad;
    Attrs attrs = {0};
    hd_set_int(f->cx, &attrs, A_AXIS, axis);
    return tensor(hd_emit(f, a->span, OP_CONCAT, n, in, &attrs, NULL));
}

static Val call_slice(Front *f, BoundArgs *a) {
    int64_t axis;
    if (!axis_or_last(f, a, 1, type_at(a, 0), &axis)) return bad;
    if (a->v[3].i < 1)
        return hd_front_bad(f, a->nodes[3]->span, "a dimension must be at least 1, not %lld", (long long)a->v[3].i);
    return slice_at(f, a, axis, a->v[2].i, a->v[3].i);
}

static Val reshaped(Front *f, BoundArgs *a, OpKind k) {
    const Type *t = shape_of(f, a, 1, type_at(a, 0)->dtype);
    return t ? tensor(hd_emit(f, a->span, k, 1, &a->v[0].tensor, NULL, t)) : bad;
}
static Val call_reshape(Front *f, BoundArgs *a) { return reshaped(f, a, OP_RESHAPE); }
static Val call_broadcast(Front *f, BoundArgs *a) { return reshaped(f, a, OP_BROADCAST); }

static Val call_fill(Front *f, BoundArgs *a) {
    const Type *t = shape_of(f, a, 1, TY_F32);
    return t ? tensor(hd_emit_const(f, a->span, hd_val_number(a->v[0]), t)) : bad;
}

static Val call_iota(Front *f, BoundArgs *a) {
    const Type *t = shape_of(f, a, 0, TY_I32);
    return t ? tensor(hd_emit(f, a->span, OP_IOTA, 0, NULL, NULL, t)) : bad;
}

// An f32 tensor is one already, but under a narrower compute dtype it may not stay one.
static Val call_float(Front *f, BoundArgs *a) {
    Attrs attrs = {0};
    if (type_at(a, 0)->dtype != TY_F32) return hd_emit_float(f, a->span, a->v[0]);
    hd_set_word(f->cx, &attrs, A_OUT, "f32");
    hd_set_flag(f->cx, &attrs, A_WIDE);
    return emit(f, a, OP_CAST, 1, &attrs);
}

static Val call_size(Front *f, BoundArgs *a) {
    int64_t axis;
    const Val x = a->v[0];
    if (x.kind == VAL_TENSOR && !given(a, 1))
        return hd_front_bad(f, a->span, "size of a tensor needs an axis: size(x, 0) is how long the first one is");
    if (x.kind != VAL_TENSOR && given(a, 1))
        return hd_front_bad(f, a->nodes[1]->span, "size: %s has no axes", hd_val_text(f, x));
    if (x.kind != VAL_TENSOR) return hd_val_int(x.n);
    return axis_or_last(f, a, 1, type_at(a, 0), &axis) ? hd_val_int(type_at(a, 0)->dim[axis]) : bad;
}

// The axes that argument k names, in order, or all; *count is how many elements they hold.
static bool axes_of(Front *f, const BoundArgs *a, int k, Attrs *attrs, int64_t *count) {
    const Type *t = type_at(a, 0);
    int64_t axes[HD_MAX_DIMS];
    int n = given(a, k) ? list_size(a->v[k]) : t->rank;
    unsigned seen = 0;
    *count = 1;
    for (int i = 0; i < n; i++) {
        int64_t axis;
        if (!axis_of(f, given(a, k) ? a->nodes[k]->span : a->span, t, given(a, k) ? list_at(a->v[k], i) : i, &axis))
            return false;
        if (seen & 1u << axis) return hd_front_error(f, a->nodes[k]->span, "axis %lld is named twice", (long long)axis);
        seen |= 1u << axis;
        *count *= t->dim[axis];
    }
    n = 0;
    for (int i = 0; i < t->rank; i++)
        if (seen & 1u << i) axes[n++] = i;
    hd_set_ints(f->cx, attrs, A_AXES, n, axes);
    return true;
}

static Val call_mean(Front *f, BoundArgs *a) {
    Attrs attrs = {0};
    int64_t count;
    if (!axes_of(f, a, 1, &attrs, &count)) return bad;
    if (given(a, 2) && a->v[2].i) hd_set_flag(f->cx, &attrs, A_KEEP);
    Val total = emit(f, a, OP_SUM, 1, &attrs);
    if (total.kind == VAL_BAD) return bad;
    return hd_emit_elementwise(f, a->span, OP_MUL, 2, (Val[]){total, hd_val_float(1.0 / (double)count)});
}

static Val call_dropout(Front *f, BoundArgs *a) {
    Attrs attrs = {0};
    hd_dropout_attrs(f, a, 1, &attrs);
    return attrs.n ? emit(f, a, OP_DROPOUT, 1, &attrs) : a->v[0];
}

static Val call_cross_entropy(Front *f, BoundArgs *a) {
    enum { EXACT = 1 << 24 }; // integers up to it are compared as f32
    Attrs attrs = {0};
    if (a->v[0].tensor->def && a->v[0].tensor->def->kind == OP_SOFTMAX)
        hd_warning(f->cx, hd_front_site(f, a->span), "cross_entropy takes logits and computes their softmax, and these "
                                                     "are the result of one: the loss is of a softmax of shares");
    if (!given(a, 2) && !given(a, 3)) return emit(f, a, OP_CROSS_ENTROPY, 2, NULL);
    if (given(a, 2) && llabs(a->v[2].i) > EXACT)
        return hd_front_bad(f, a->nodes[2]->span, "cross_entropy: ignore is from -%d to %d, not %lld", EXACT, EXACT,
                            (long long)a->v[2].i);
    if (given(a, 2)) hd_set_int(f->cx, &attrs, A_IGNORE, a->v[2].i);
    const Val *ignored = given(a, 2) ? &a->v[2] : NULL, *weights = given(a, 3) ? &a->v[3] : NULL;
    const Val shares = hd_loss_shares(f, a->span, a->v[1], ignored, weights);
    if (shares.kind == VAL_BAD) return bad;
    Value *in[] = {a->v[0].tensor, a->v[1].tensor, shares.tensor};
    return tensor(hd_emit(f, a->span, OP_CROSS_ENTROPY, 3, in, &attrs, NULL));
}

#define call_positions hd_call_positions
#define call_attention hd_call_attention
#define call_conv1d hd_call_conv1d
#define call_ssd hd_call_ssd
#define call_top_k hd_call_top_k
#define call_one_hot hd_call_one_hot
#define call_take hd_call_take
#define call_total hd_call_total
#define call_dispatch hd_call_dispatch
#define call_grouped hd_call_grouped
#define call_combine hd_call_combine
// rule == NULL: the op of that name
static const struct Builtin { const char *name, *formals; Val (*rule)(Front *, BoundArgs *); } builtins[] = {
#define BUILTIN(name, formals, doc) {#name, formals, call_##name},
#define CALL(name, formals, doc) {#name, formals, NULL},
#include "frontend/builtins/builtins.def"
#undef BUILTIN
#undef CALL
};
enum { N_BUILTINS = sizeof builtins / sizeof *builtins };

// --- calls

static const struct Builtin *find_builtin(const char *name) {
    int k = 0;
    while (k < N_BUILTINS && strcmp(builtins[k].name, name)) k++;
    return k < N_BUILTINS ? &builtins[k] : NULL;
}

static bool callable_op(OpKind k) {
    const char *name = hd_op_info(k)->mnemonic;
    const size_t n = strlen(name);
    return (hd_op_info(k)->traits & TRAIT_ELEMENTWISE) && (n < 5 || strcmp(name + n - 5, "_grad"));
}

bool hd_builtin_exists(const char *name) {
    OpKind k;
    return find_builtin(name) || (hd_op_find(name, &k) && callable_op(k));
}

void hd_builtin_names(Front *f, Names *names) {
    for (int k = 0; k < N_BUILTINS; k++) hd_push(f->scratch, names, builtins[k].name);
    for (int k = 0; k < N_OPS; k++)
        if (callable_op((OpKind)k)) hd_push(f->scratch, names, hd_op_info((OpKind)k)->mnemonic);
}

typedef struct { char kind; const char *value; } Kind; // of a formal; its default, or NULL

// "t:x l:axes? f:eps=1e-5" -> formals and their kinds.
static int parse_formals(Front *f, const char *text, Formal *formals, Kind *kinds) {
    int n = 0;
    for (const char *s = text; *s; n++) {
        const char *name = strchr(s, ':') + 1, *end = name + strcspn(name, "?= ");
        kinds[n] = (Kind){s[0], *end == '=' ? end + 1 : NULL};
        formals[n] = (Formal){hd_strndup(f->arena, name, (size_t)(end - name)), *end == '?' || *end == '='};
        s = end + strcspn(end, " ");
        s += *s == ' ';
    }
    return n;
}

static void set_numbers(Front *f, Attrs *attrs, AttrId id, Val list) {
    double *v = HD_NEWN(f->arena, double, list.n + 1);
    for (int i = 0; i < list.n; i++) v[i] = hd_val_number(list.list[i]);
    hd_set_floats(f->cx, attrs, id, list.n, v);
}

// The same elements with axis `from` at place `to`, the other axes in their order.
static Val with_axis_at(Front *f, const BoundArgs *a, Val x, int64_t from, int64_t to) {
    int64_t perm[HD_MAX_DIMS];
    if (x.kind == VAL_BAD || from == to) return x;
    const int rank = x.tensor->type->rank;
    for (int i = 0, other = 0; i < rank; i++) {
        if (other == from) other++;
        perm[i] = i == to ? from : other++;
    }
    Attrs attrs = {0};
    hd_set_ints(f->cx, &attrs, A_PERM, rank, perm);
    return tensor(hd_emit(f, a->span, OP_TRANSPOSE, 1, &x.tensor, &attrs, NULL));
}

// An op over the last axis, over any: that axis goes last in operand 0, and back in a result that still has it.
static Val over_axis(Front *f, BoundArgs *a, OpKind op, int operands, const Attrs *attrs, int64_t axis) {
    const int last = type_at(a, 0)->rank - 1;
    if (axis != last && hd_has(attrs, A_CAUSAL))
        return hd_front_bad(f, a->span, "%s: causal is over the last axis, %d, and axis = %lld is another",
                            hd_op_info(op)->mnemonic, last, (long long)axis);
    a->v[0] = with_axis_at(f, a, a->v[0], axis, last);
    Val y = emit(f, a, op, operands, attrs);
    return y.kind != VAL_BAD && y.tensor->type->rank == last + 1 ? with_axis_at(f, a, y, last, axis) : y;
}

// The op that has the function's name.
static Val call_op(Front *f, BoundArgs *a, const char *name, int n, const Formal *formals, const Kind *kinds) {
    OpKind op;
    Attrs attrs = {0};
    AttrId id;
    int operands = 0;
    int64_t n_axes, axis, over = -1; // over: of an op over the last axis
    if (!hd_op_find(name, &op)) HD_BUG("no op is called %s", name);
    for (int i = 0; i < n; i++) {
        if (kinds[i].kind == 't' || kinds[i].kind == 'x') {
            operands += given(a, i) || !formals[i].optional; // an optional one is the last
            continue;
        }
        if (!hd_attr_find(formals[i].name, &id)) HD_BUG("no attribute is called %s", formals[i].name);
        if (id == A_AXES) {
            if (!axes_of(f, a, i, &attrs, &n_axes)) return bad;
        } else if (id == A_AXIS) {
            if (!axis_or_last(f, a, i, type_at(a, 0), &axis)) return bad;
            if (hd_attr_allowed(hd_op_info(op)->attrs, id)) hd_set_int(f->cx, &attrs, id, axis);
            else over = axis;
        } else if (kinds[i].kind == 'b') {
            if (given(a, i) && a->v[i].i) hd_set_flag(f->cx, &attrs, id);
        } else if (kinds[i].kind == 'f') {
            if (given(a, i)) hd_set_float(f->cx, &attrs, id, hd_val_number(a->v[i]));
            else if (kinds[i].value) hd_set_float(f->cx, &attrs, id, strtod(kinds[i].value, NULL));
        } else if (kinds[i].kind == 'n') {
            if (given(a, i)) set_numbers(f, &attrs, id, a->v[i]);
        } else if (given(a, i)) {
            hd_set_int(f->cx, &attrs, id, a->v[i].i);
        }
    }
    return over < 0 ? emit(f, a, op, operands, &attrs) : over_axis(f, a, op, operands, &attrs, over);
}

// Argument i of fn. Where its value would do for another one that must be given, the message says their order.
static bool eval_arg(Front *f, Instance *scope, const char *fn, int n_formals, const Formal *formals, const Kind *kinds,
                     int i, const Node *n, Val *v) {
    *v = hd_lower_expr(f, scope, n);
    if (v->kind == VAL_BAD) return false;
    if (hd_has_kind(kinds[i].kind, *v)) return true;
    for (int k = 0; k < (v->kind == VAL_LIST ? v->n : 1); k++) {
        const Val *of = v->kind == VAL_LIST ? &v->list[k] : v;
        if (of->inexact)
            return hd_front_error(f, n->span, "argument '%s' of %s must be %s: %lld does not divide %lld",
                                  formals[i].name, fn, of == v ? "an integer" : "integers", (long long)of->den,
                                  (long long)of->num);
    }
    bool elsewhere = false;
    for (int k = 0; k < n_formals; k++)
        elsewhere |= !formals[k].optional && kinds[k].kind != kinds[i].kind && hd_has_kind(kinds[k].kind, *v);
    return hd_front_error(f, n->span, "argument '%s' of %s must be %s, not %s%s", formals[i].name, fn,
                          hd_kind_text(kinds[i].kind), hd_val_text(f, *v),
                          elsewhere ? hd_order_hint(f, fn, n_formals, formals) : "");
}

// The leading positional arguments as one list in slot 0.
static bool gather(Front *f, Instance *scope, const Node *call, BoundArgs *a, int *n_taken) {
    int n = 0;
    while (n < call->n && call->kids[n]->kind != N_NAMED) n++;
    Val *list = HD_NEWN(f->arena, Val, n + 1);
    bool ok = true;
    for (int k = 0; k < n; k++) {
        list[k] = hd_lower_expr(f, scope, call->kids[k]);
        ok &= list[k].kind != VAL_BAD;
    }
    a->v[0] = (Val){.kind = VAL_LIST, .n = n, .list = list};
    a->nodes[0] = call;
    *n_taken = n;
    return ok;
}

static Val call_elementwise(Front *f, Instance *scope, OpKind k, const Node *call) {
    static const Formal formals[] = {{"a", false}, {"b", false}, {"c", false}};
    static const Kind kinds[] = {{.kind = 'v'}, {.kind = 'v'}, {.kind = 'v'}};
    const char *name = hd_op_info(k)->mnemonic;
    int n = hd_op_info(k)->n_in;
    const Node *slots[3];
    Val v[3];
    if (!hd_bind(f, call->span, name, n, formals, call->n, call->kids, slots)) return bad;
    bool ok = true;
    for (int i = 0; i < n; i++) ok &= eval_arg(f, scope, name, n, formals, kinds, i, slots[i], &v[i]);
    return ok ? hd_emit_elementwise(f, call->span, k, n, v) : bad;
}

Val hd_builtin_call(Front *f, Instance *scope, const char *name, const Node *call) {
    const struct Builtin *b = find_builtin(name);
    OpKind k;
    if (!b) return hd_op_find(name, &k) ? call_elementwise(f, scope, k, call) : bad;
    Formal formals[MAX_FORMALS];
    Kind kinds[MAX_FORMALS];
    BoundArgs a = {.span = call->span, .scope = scope};
    int n = parse_formals(f, b->formals, formals, kinds), first = kinds[0].kind == '.', taken = 0;
    if (first && !gather(f, scope, call, &a, &taken)) return bad;
    if (!hd_bind(f, call->span, name, n - first, formals + first, call->n - taken, call->kids + taken, a.nodes + first))
        return bad;
    bool ok = true;
    for (int i = first; i < n; i++)
        if (a.nodes[i]) ok &= eval_arg(f, scope, name, n, formals, kinds, i, a.nodes[i], &a.v[i]);
    if (!ok) return bad;
    return b->rule ? b->rule(f, &a) : call_op(f, &a, name, n, formals, kinds);
}
