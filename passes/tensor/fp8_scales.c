// What the pass fp8 makes of a factor: numbers of one byte, and their scale or scales.
#include "passes/tensor/fp8_scales.h"
#include "ir/base/ints.h"
#include "ir/shapes.h"

static Value *number(Builder *b, double x) { return hd_build_number(b, TY_F32, x); }

// Along `n` axes from `first` on; with `keep` they stay as axes of 1.
Value *hd_fp8_highest(Builder *b, Value *v, int first, int n, bool keep) {
    Ctx *cx = b->f->module->cx;
    int64_t axes[HD_MAX_DIMS];
    Attrs as = {0};
    for (int i = 0; i < n; i++) axes[i] = first + i;
    hd_set_ints(cx, &as, A_AXES, n, axes);
    if (keep) hd_set_flag(cx, &as, A_KEEP);
    return hd_build1(b, OP_REDUCE_MAX, v, NULL, &as, NULL);
}

// The largest |x|, in f32.
static Value *largest(Builder *b, Value *v, int first, int n, bool keep) {
    return hd_build_cast(b, hd_fp8_highest(b, hd_build1(b, OP_ABS, v, NULL, NULL, NULL), first, n, keep), TY_F32);
}

// As quantize does it for a row.
static Value *scale_of(Builder *b, Value *most, DType d) {
    Value *least = number(b, 0x1p-100), *limit = number(b, hd_dtype_info(d)->largest);
    return hd_build1(b, OP_DIV, hd_build1(b, OP_MAX, most, least, NULL, NULL), limit, NULL, NULL);
}

static Value *inverse_of(Builder *b, Value *scale) {
    Value *one = number(b, 1);
    return hd_build1(b, OP_DIV, one, scale, NULL, NULL);
}

Value *hd_fp8_constant(Builder *b, double x, int64_t n) { // a vector
    Attrs as = {0};
    hd_set_float(b->f->module->cx, &as, A_VALUE, x);
    return hd_build1(b, OP_CONST, NULL, NULL, &as, hd_type(b->f->module->cx, TY_F32, 1, &n));
}

static Value *divided(Builder *b, Value *v, Value *inverse, DType d) {
    Value *x = hd_build_cast(b, v, TY_F32);
    return hd_build_cast(b, hd_build1(b, OP_MUL, x, inverse, NULL, NULL), d);
}

Scaled hd_fp8_of_tensor(Builder *b, Value *v, DType d) {
    Value *scale = scale_of(b, largest(b, v, 0, v->type->rank, false), d), *inverse = inverse_of(b, scale);
    return (Scaled){divided(b, v, inverse, d), scale, NULL};
}

// Of equal rows of pointwise work: one kernel makes all of them, and finds the largest of a row on the way.
static bool in_parts(const Value *v) {
    const Op *o = v->def;
    if (!o || o->kind != OP_CONCAT || v->type->rank < 2 || hd_int(&o->attrs, A_AXIS, 0) != v->type->rank - 1)
        return false;
    for (int i = 0; i < o->n_in; i++) {
        const Value *part = o->in[i];
        if (part->type != o->in[0]->type || !part->def || !hd_op_is(part->def, TRAIT_ELEMENTWISE)) return false;
    }
    return true;
}

// The op from which pointwise work of the backward pass makes a value.
static Op *source_of(const Value *v) {
    Op *o = v->def;
    for (int i = 0; i < o->n_in && hd_op_is(o, TRAIT_ELEMENTWISE); i++) {
        Op *def = o->in[i]->def;
        if (def && hd_has(&def->attrs, A_BWD) && !hd_op_is(def, TRAIT_CONSTANT)) o = def, i = -1;
    }
    return o;
}

// Part i of n of what the columns are multiplied by, times the columns, in f32. The part is taken before the work of
// which the columns are, which stays one kernel.
static Value *times_columns(Builder *b, Value *v, Value *columns, int i, int n) {
    const int64_t all = hd_type_count(columns->type);
    Attrs as = {0};
    hd_set_int(b->f->module->cx, &as, A_AXIS, 0);
    hd_set_int(b->f->module->cx, &as, A_START, all / n * i);
    hd_set_int(b->f->module->cx, &as, A_SIZE, all / n);
    if (n > 1) {
        Builder before = *b;
        before.before = source_of(v);
        columns = hd_build1(&before, OP_SLICE, columns, NULL, &as, NULL);
    }
    return hd_build1(b, OP_MUL, hd_build_cast(b, v, TY_F32), columns, NULL, NULL);
}

// The scale of a row is that of the largest element of all its parts.
static Scaled of_parts(Builder *b, Value *v, Value *columns, DType d) {
    const Op *o = v->def;
    const int last = v->type->rank - 1;
    Value *most = NULL, *q[HD_MAX_IN];
    for (int i = 0; i < o->n_in; i++) {
        q[i] = columns ? times_columns(b, o->in[i], columns, i, o->n_in) : o->in[i];
        Value *m = largest(b, q[i], last, 1, true);
        most = most ? hd_build1(b, OP_MAX, most, m, NULL, NULL) : m;
    }
    Value *scale = scale_of(b, most, d), *inverse = inverse_of(b, scale);
    for (int i = 0; i < o->n_in; i++) q[i] = divided(b, q[i], inverse, d);
    Attrs as = {0};
    hd_set_int(b->f->module->cx, &as, A_AXIS, last);
    Value *rows = hd_build1(b, OP_RESHAPE, scale, NULL, NULL,
                            hd_type(b->f->module->cx, TY_F32, last, v->type->dim));
    return (Scaled){hd_build(b, OP_CONCAT, o->n_in, q, &as, NULL)->out[0], rows, columns};
}

Scaled hd_fp8_of_rows(Builder *b, Value *v, Value *columns, DType d) {
    if (in_parts(v)) return of_parts(b, v, columns, d);
    if (columns) v = times_columns(b, v, columns, 0, 1);
    Attrs as = {0};
    hd_set_word(b->f->module->cx, &as, A_OUT, hd_dtype_text(d));
    const Op *q = hd_build(b, OP_QUANTIZE, 1, &v, &as, NULL);
    return (Scaled){q->out[0], q->out[1], columns};
}

Value *hd_fp8_transposed(Builder *b, Value *v) {
    Ctx *cx = b->f->module->cx;
    Attrs as = {0};
    hd_set_ints(cx, &as, A_PERM, 2, (int64_t[]){1, 0});
    const int64_t dim[] = {hd_type_rows(v->type), hd_type_cols(v->type)};
    if (v->type->rank != 2) v = hd_build1(b, OP_RESHAPE, v, NULL, NULL, hd_type(cx, v->type->dtype, 2, dim));
    return hd_build1(b, OP_TRANSPOSE, v, NULL, &as, NULL);
}

// --- blocks

Scaled hd_fp8_of_blocks(Builder *b, Value *v, DType d, BlocksOf of) {
    Ctx *cx = b->f->module->cx;
    Attrs as = {0};
    hd_set_word(cx, &as, A_OUT, hd_dtype_text(d));
    if (of == OF_SQUARES) hd_set_flag(cx, &as, A_SQUARES);
    if (of == OF_COLUMNS) hd_set_flag(cx, &as, A_ACROSS);
    const Op *q = hd_build(b, OP_QUANTIZE_BLOCKS, 1, &v, &as, NULL);
    return (Scaled){q->out[0], q->out[1], NULL};
}

Scaled hd_fp8_of_both(Builder *b, Value *v, DType d, Scaled *columns) {
    Attrs as = {0};
    hd_set_word(b->f->module->cx, &as, A_OUT, hd_dtype_text(d));
    const Op *q = hd_build(b, OP_QUANTIZE_BOTH, 1, &v, &as, NULL);
    *columns = (Scaled){q->out[2], q->out[3], NULL};
    return (Scaled){q->out[0], q->out[1], NULL};
}

// The first n of the columns, with zeros after them up to `width`.
static Value *columns_to(Builder *b, Value *v, int64_t n, int64_t width) {
    Ctx *cx = b->f->module->cx;
    Attrs as = {0};
    hd_set_int(cx, &as, A_AXIS, 1);
    if (v->type->dim[1] > n) {
        Attrs part = hd_attrs_copy(cx, &as);
        hd_set_int(cx, &part, A_START, 0);
        hd_set_int(cx, &part, A_SIZE, n);
        v = hd_build1(b, OP_SLICE, v, NULL, &part, NULL);
    }
    if (n == width) return v;
    Attrs zero = {0};
    hd_set_float(cx, &zero, A_VALUE, 0);
    Value *zeros = hd_build1(b, OP_CONST, NULL, NULL, &zero,
                             hd_type(cx, TY_F32, 2, (int64_t[]){v->type->dim[0], width - n}));
    return hd_build(b, OP_CONCAT, 2, (Value *[]){v, zeros}, &as, NULL)->out[0];
}

Scaled hd_fp8_turned(Builder *b, Scaled w) {
    Value *q = hd_fp8_transposed(b, w.q);
    const int64_t across = hd_type_cols(w.q->type) / HD_BLOCK;
    const Blocks turned = hd_blocks(q->type, true, false);
    Value *scale = hd_fp8_transposed(b, columns_to(b, w.scale, across, across));
    return (Scaled){q, columns_to(b, scale, scale->type->dim[1], turned.scale_cols), NULL};
}
