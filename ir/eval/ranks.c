// The meaning of collectives and of the ops that mark storage. Ranks run in step (hd_eval_ranks), so a collective can
// read every rank of its group: nothing writes during that op.
#include "ir/eval/rules.h"
#include "ir/mesh.h"
#include "ir/shapes.h"
#include <math.h>

typedef struct { Mesh mesh; Axes over; int n, mine; } Group; // `mine`: which of its n ranks this one is

static bool group_of(const Eval *e, const Op *o, Group *g) {
    const Symbol *comm = hd_named(o, A_COMM);
    *g = (Group){.mesh = hd_mesh(e->module), .over = hd_axes(&comm->attrs, A_OVER)};
    g->n = (int)hd_mesh_ranks(&g->mesh, g->over);
    g->mine = (int)hd_mesh_number(&g->mesh, g->over, e->rank);
    return hd_mesh_ranks(&g->mesh, HD_ALL_AXES) == (e->ranks ? e->n_ranks : 1);
}

static Eval *member(Eval *e, const Group *g, int i) {
    return e->ranks ? e->ranks[hd_mesh_member(&g->mesh, g->over, e->rank, i)] : e;
}

static const char *wrong_group(Eval *e, const Op *o) {
    return hd_eval_wrong(e, "comm @%s does not fit a run of %d ranks", hd_word(&o->attrs, A_COMM, ""),
                         e->ranks ? e->n_ranks : 1);
}

static const double *source(Eval *e, const Op *o) {
    return o->n_in ? e->values[o->in[0]->id].data : hd_eval_storage(e, hd_word(&o->attrs, A_BUFFER, "")).data;
}

// The elements of every rank, each quantized with the scale of its tensor; 0 where there is none.
static const char *gather_tensors(Eval *e, const Op *o, const Group *g, DType d, Tensor *out) {
    const Attr *tensors = hd_tensors(e->module, hd_named(o, A_BUFFER));
    const double *scale = hd_eval_storage(e, hd_word(&o->attrs, A_SCALES_IN, "")).data +
                          HD_SCALE_STRIDE * hd_int(&o->attrs, A_FIRST, 0);
    const int64_t size = hd_type_count(out->type), count = size / g->n;
    const DType f32 = e->mode == EVAL_EXACT ? TY_F64 : TY_F32;
    memset(out->data, 0, sizeof(double) * (size_t)size);
    for (int t = 0; t < tensors->n / 2; t++) {
        const double inverse = hd_round(f32, 1 / scale[HD_SCALE_STRIDE * t]);
        for (int64_t at = tensors->ints[2 * t]; at < tensors->ints[2 * t + 1]; at++) {
            const double x = source(member(e, g, (int)(at / count)), o)[at % count], y = hd_round(f32, x * inverse);
            out->data[at] = e->mode == EVAL_EXACT ? y : hd_round(d, y);
        }
    }
    return NULL;
}

const char *hd_eval_all_max(Eval *e, const Op *o, const Tensor *in HD_UNUSED, Tensor *out) {
    const Attr *list = hd_attr(&o->attrs, A_BUFFERS);
    Group g;
    DType d;
    if (!group_of(e, o, &g)) return wrong_group(e, o);
    if (!hd_dtype_parse(hd_word(&o->attrs, A_OUT, ""), &d)) return "no type to quantize to";
    double *scale = out->data;
    for (int i = 0; i < list->n; i++) {
        const Symbol *part = hd_symbol_find(e->module, list->strs[i]);
        const int64_t count = hd_type_count(part->type);
        const Attr *tensors = hd_tensors(e->module, part);
        for (int t = 0; t < tensors->n / 2; t++) {
            double most = 0x1p-100;
            for (int64_t at = tensors->ints[2 * t]; at < tensors->ints[2 * t + 1]; at++) {
                const double x = hd_eval_storage(member(e, &g, (int)(at / count)), part->name).data[at % count];
                if (fabs(x) > most || isnan(x)) most = isnan(most) ? most : fabs(x);
            }
            *scale = hd_round(e->mode == EVAL_EXACT ? TY_F64 : TY_F32, most / hd_dtype_info(d)->largest);
            scale += HD_SCALE_STRIDE;
        }
    }
    return NULL;
}

// The rows of every rank, quantized, or the scales of all rows.
static const char *gather_quantized(Eval *e, const Op *o, const Group *g, Tensor *out) {
    const int64_t row = hd_int(&o->attrs, A_QUANTIZED, 1), count = hd_type_count(out->type) / g->n;
    const bool scales = hd_has(&o->attrs, A_SCALES);
    DType d;
    if (!hd_dtype_parse(hd_word(&o->attrs, A_OUT, ""), &d)) return "no type to quantize to";
    if (!row) return gather_tensors(e, o, g, d, out);
    for (int i = 0; i < g->n; i++)
        for (int64_t r = 0; r < (scales ? count : count / row); r++) {
            const double *x = source(member(e, g, i), o) + r * row;
            double *to = out->data + i * count + r * (scales ? 1 : row);
            const double scale = hd_eval_quantized(e, d, x, row, scales ? NULL : to);
            if (scales) *to = scale;
            for (int64_t k = 0; !scales && e->mode != EVAL_EXACT && k < row; k++) to[k] = hd_round(d, to[k]);
        }
    return NULL;
}

const char *hd_eval_all_gather(Eval *e, const Op *o, const Tensor *in HD_UNUSED, Tensor *out) {
    Group g;
    if (!group_of(e, o, &g)) return wrong_group(e, o);
    if (hd_has(&o->attrs, A_QUANTIZED)) return gather_quantized(e, o, &g, out);
    int64_t count = hd_type_count(out->type) / g.n;
    for (int i = 0; i < g.n; i++)
        memcpy(out->data + i * count, source(member(e, &g, i), o), sizeof(double) * (size_t)count);
    for (int64_t i = 0; hd_has(&o->attrs, A_OUT) && e->mode != EVAL_EXACT && i < count * g.n; i++)
        out->data[i] = hd_round(out->type->dtype, out->data[i]);
    return NULL;
}

// Element `at` of the parts of ranks [first, first + n), added in a tree.
static double tree(Eval *e, const Op *o, const Group *g, DType d, int first, int n, int64_t at) {
    if (n == 1) return source(member(e, g, first), o)[at];
    const double sum = tree(e, o, g, d, first, n / 2, at) + tree(e, o, g, d, first + n / 2, n / 2, at);
    return e->mode == EVAL_EXACT ? sum : hd_round(d, sum);
}

const char *hd_eval_reduce_scatter(Eval *e, const Op *o, const Tensor *in HD_UNUSED, Tensor *out) {
    Group g;
    if (!group_of(e, o, &g)) return wrong_group(e, o);
    int64_t count = hd_type_count(out->type);
    for (int64_t k = 0; hd_has(&o->attrs, A_TREE) && k < count; k++)
        out->data[k] = tree(e, o, &g, out->type->dtype, 0, g.n, g.mine * count + k);
    for (int64_t k = 0; !hd_has(&o->attrs, A_TREE) && k < count; k++) {
        double sum = 0;
        for (int i = 1; i <= g.n; i++) {
            double v = source(member(e, &g, (g.mine + i) % g.n), o)[g.mine * count + k];
            sum = i == 1 ? v : e->mode == EVAL_EXACT ? sum + v : hd_round(out->type->dtype, sum + v);
        }
        out->data[k] = sum;
    }
    return NULL;
}

const char *hd_eval_exchange(Eval *e, const Op *o, const Tensor *in HD_UNUSED, Tensor *out) {
    Group g;
    if (!group_of(e, o, &g)) return wrong_group(e, o);
    const int64_t part = hd_type_count(out->type) / g.n, rows = hd_type_rows(out->type) / g.n,
                  moved = part / rows * hd_int(&o->attrs, A_CAPACITY, rows);
    for (int i = 0; i < g.n; i++)
        memcpy(out->data + i * part, source(member(e, &g, i), o) + g.mine * part, sizeof(double) * (size_t)moved);
    return NULL;
}

static double half_sums(const Eval *e, const double *x, int64_t n, int64_t stride) {
    if (n == 1) return *x;
    const double sum = half_sums(e, x, n / 2, stride) + half_sums(e, x + n / 2 * stride, n / 2, stride);
    return e->mode == EVAL_EXACT ? sum : hd_round(TY_F32, sum);
}

const char *hd_eval_tree_sum(Eval *e, const Op *o HD_UNUSED, const Tensor *in, Tensor *out) {
    const int64_t count = hd_type_count(out->type);
    for (int64_t i = 0; i < count; i++) out->data[i] = half_sums(e, in[0].data + i, in[0].type->dim[0], count);
    return NULL;
}

// Storage that was never written reads as NaN.
const char *hd_eval_begin(Eval *e, const Op *o, const Tensor *in HD_UNUSED, Tensor *out HD_UNUSED) {
    Tensor t = hd_eval_storage(e, hd_word(&o->attrs, A_LIFE, ""));
    for (int64_t i = 0, n = hd_type_count(t.type); i < n; i++) t.data[i] = __builtin_nan("");
    return NULL;
}
