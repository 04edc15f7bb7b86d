// The meaning of ops that move elements without arithmetic: constants, shapes, rows by index, parameters and buffers.
#include "ir/eval/rules.h"
#include "ir/shapes.h"

const char *hd_eval_fill(Eval *e HD_UNUSED, const Op *o, const Tensor *in HD_UNUSED, Tensor *out) {
    double v = hd_float(&o->attrs, A_VALUE, 0.0);
    for (int64_t i = 0, n = hd_type_count(out->type); i < n; i++) out->data[i] = v;
    return NULL;
}

const char *hd_eval_iota(Eval *e HD_UNUSED, const Op *o HD_UNUSED, const Tensor *in HD_UNUSED, Tensor *out) {
    for (int64_t i = 0, n = hd_type_count(out->type); i < n; i++) out->data[i] = (double)(i % hd_type_cols(out->type));
    return NULL;
}

const char *hd_eval_copy(Eval *e HD_UNUSED, const Op *o HD_UNUSED, const Tensor *in, Tensor *out) {
    memcpy(out->data, in[0].data, sizeof(double) * (size_t)hd_type_count(out->type));
    return NULL;
}

const char *hd_eval_broadcast(Eval *e HD_UNUSED, const Op *o HD_UNUSED, const Tensor *in, Tensor *out) {
    Steps s = hd_eval_steps(out->type, in[0].type);
    for (int64_t i = 0, n = hd_type_count(out->type); i < n; i++)
        out->data[i] = in[0].data[hd_eval_source(out->type, &s, i)];
    return NULL;
}

const char *hd_eval_transpose(Eval *e HD_UNUSED, const Op *o, const Tensor *in, Tensor *out) {
    const Type *t = in[0].type;
    Steps own = hd_eval_steps(t, t), s = {{0}};
    const Attr *perm = hd_attr(&o->attrs, A_PERM);
    for (int i = 0; i < t->rank; i++) s.at[i] = own.at[perm->ints[i]];
    for (int64_t i = 0, n = hd_type_count(t); i < n; i++) out->data[i] = in[0].data[hd_eval_source(out->type, &s, i)];
    return NULL;
}

// Elements of one axis and of all axes after it.
static int64_t block(const Type *t, int64_t axis) {
    int64_t n = 1;
    for (int64_t i = axis; i < t->rank; i++) n *= t->dim[i];
    return n;
}

// Copies `part` (the smaller along `axis`, at `start`) out of or into `whole`.
static void copy_part(Tensor whole, Tensor part, int64_t axis, int64_t start, bool into) {
    int64_t inner = block(whole.type, axis + 1), wide = block(whole.type, axis), narrow = block(part.type, axis);
    for (int64_t i = 0, n = hd_type_count(part.type); i < n; i++) {
        double *w = whole.data + i / narrow * wide + start * inner + i % narrow;
        if (into) *w = part.data[i];
        else part.data[i] = *w;
    }
}

const char *hd_eval_slice(Eval *e HD_UNUSED, const Op *o, const Tensor *in, Tensor *out) {
    copy_part(in[0], out[0], hd_int(&o->attrs, A_AXIS, 0), hd_int(&o->attrs, A_START, 0), false);
    return NULL;
}

const char *hd_eval_concat(Eval *e HD_UNUSED, const Op *o, const Tensor *in, Tensor *out) {
    int64_t axis = hd_int(&o->attrs, A_AXIS, 0), start = 0;
    for (int i = 0; i < o->n_in; i++) {
        copy_part(out[0], in[i], axis, start, true);
        start += in[i].type->dim[axis];
    }
    return NULL;
}

// --- rows by index
static const char *bad_index(Eval *e, Tensor index, int64_t rows) {
    for (int64_t i = 0, n = hd_type_count(index.type); i < n; i++)
        if (!(index.data[i] >= 0 && index.data[i] < (double)rows))
            return hd_eval_wrong(e, "index %g at position %lld is outside a table of %lld rows", index.data[i],
                                 (long long)i, (long long)rows);
    return NULL;
}

const char *hd_eval_embedding(Eval *e, const Op *o HD_UNUSED, const Tensor *in, Tensor *out) {
    const char *wrong = bad_index(e, in[1], in[0].type->dim[0]);
    int64_t cols = block(in[0].type, 1);
    for (int64_t i = 0, n = hd_type_count(in[1].type); i < n && !wrong; i++)
        memcpy(out->data + i * cols, in[0].data + (int64_t)in[1].data[i] * cols, sizeof(double) * (size_t)cols);
    return wrong;
}

const char *hd_eval_embedding_grad(Eval *e HD_UNUSED, const Op *o, const Tensor *in, Tensor *out) {
    const int64_t parts = hd_has(&o->attrs, A_PARTS) ? in[1].type->dim[0] : 1, cols = hd_type_cols(in[0].type),
                  rows = hd_table_rows(o) / parts, n = hd_type_count(in[1].type) / parts;
    for (int64_t i = 0; i < n * parts; i++)
        for (int64_t c = 0; c < cols && in[1].data[i] >= 0 && in[1].data[i] < (double)rows; c++)
            out->data[(i / n * rows + (int64_t)in[1].data[i]) * cols + c] += in[0].data[i % n * cols + c];
    return NULL;
}

// --- parameters and buffers
const char *hd_eval_param(Eval *e, const Op *o, const Tensor *in HD_UNUSED, Tensor *out) {
    double *to = out->data;
    const Symbol *p;
    for (int i = 0; (p = hd_op_param(o, i)); i++) {
        const int64_t n = hd_type_count(p->type);
        memcpy(to, hd_eval_storage(e, p->name).data, sizeof *to * (size_t)n);
        to += n;
    }
    return NULL;
}

static double to_dtype(const Eval *e, DType d, double v) {
    return e->mode == EVAL_EXACT && hd_dtype_is_float(d) ? v : hd_round(d, v);
}

const char *hd_eval_grad(Eval *e, const Op *o, const Tensor *in, Tensor *out HD_UNUSED) {
    const double *from = in[0].data;
    const Symbol *p;
    for (int k = 0; (p = hd_op_param(o, k)); k++) {
        struct Stored *s = hd_eval_stored(e, p->name);
        if (!s->grad.data) s->grad = hd_tensor(e->arena, s->value.type);
        for (int64_t i = 0, n = hd_type_count(p->type); i < n; i++)
            s->grad.data[i] = to_dtype(e, s->grad.type->dtype, s->grad.data[i] + *from++);
    }
    return NULL;
}

const char *hd_eval_view(Eval *e, const Op *o, const Tensor *in HD_UNUSED, Tensor *out) {
    const char *buffer = hd_word(&o->attrs, A_BUFFER, "");
    out->data = hd_eval_range(e, buffer, hd_int(&o->attrs, A_OFFSET, 0), hd_type_count(out->type));
    return out->data ? NULL : hd_eval_wrong(e, "it leaves @%s", buffer);
}

const char *hd_eval_transfer(Eval *e, const Op *o, const Tensor *in, Tensor *out) {
    const double *from = o->n_in ? in[0].data : hd_eval_storage(e, hd_word(&o->attrs, A_BUFFER, "")).data;
    memcpy(out->data, from, sizeof *from * (size_t)hd_type_count(out->type));
    return NULL;
}
