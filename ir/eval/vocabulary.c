// The meaning of ops over a vocabulary that is split into parts.
#include "ir/eval/rules.h"
#include "ir/mesh.h"
#include "ir/shapes.h"
#include <math.h>

const char *hd_eval_own_index(Eval *e, const Op *o, const Tensor *in, Tensor *out) {
    const Mesh mesh = hd_mesh(e->module);
    const int64_t place = hd_mesh_number(&mesh, hd_axes(&o->attrs, A_OVER), e->rank);
    const double first = (double)(place * hd_int(&o->attrs, A_ROWS, 0));
    for (int64_t i = 0, n = hd_type_count(in[0].type); i < n; i++) out->data[i] = in[0].data[i] - first;
    return NULL;
}

static bool inside(double index, int64_t rows) { return index >= 0 && index < (double)rows; }

void hd_eval_take_parts(const Tensor *in, Tensor *out) {
    const int64_t cols = hd_type_cols(in[0].type), parts = in[1].type->dim[0],
                  rows = hd_type_rows(in[0].type) / parts, n = hd_type_count(in[1].type) / parts;
    for (int64_t p = 0; p < parts; p++)
        for (int64_t i = 0; i < n; i++) {
            const double index = in[1].data[p * n + i];
            for (int64_t c = 0; c < cols && inside(index, rows); c++)
                out->data[i * cols + c] += in[0].data[(p * rows + (int64_t)index) * cols + c];
        }
}

static double log_sum_exp(const double *x, int64_t n, int64_t step) {
    double top = -(double)INFINITY, sum = 0;
    for (int64_t i = 0; i < n; i++) top = x[i * step] > top || isnan(x[i * step]) ? x[i * step] : top;
    if (!isfinite(top)) top = 0;
    for (int64_t i = 0; i < n; i++) sum += exp(x[i * step] - top);
    return top + log(sum);
}

// Columns of part p that are in the vocabulary, where row r has this target.
static int64_t inside_of(const Op *o, const Tensor *in, int targets, int64_t p, int64_t r, int64_t size) {
    if (!hd_has(&o->attrs, A_UNEVEN)) return size;
    const double first = in[targets].data[r] - in[1].data[p * hd_type_rows(in[0].type) + r];
    const int64_t n = hd_int(&o->attrs, A_UNEVEN, 0) - (int64_t)first;
    return n < 0 ? 0 : n < size ? n : size;
}

const char *hd_eval_loss_part(Eval *e HD_UNUSED, const Op *o, const Tensor *in, Tensor *out) {
    const int64_t vocab = hd_type_cols(in[0].type), rows = hd_type_rows(in[0].type), parts = in[1].type->dim[0],
                  size = vocab / parts;
    for (int64_t p = 0; p < parts; p++)
        for (int64_t r = 0; r < rows; r++) {
            const double *z = in[0].data + r * vocab + p * size, index = in[1].data[p * rows + r];
            out[0].data[p * rows + r] = log_sum_exp(z, inside_of(o, in, 2, p, r, size), 1);
            if (inside(index, size)) out[1].data[p * rows + r] = z[(int64_t)index];
        }
    return NULL;
}

// The weight of row r, of a loss with targets and perhaps weights behind them; of a mean it is 1 / rows.
static double share_of(const Op *o, const Tensor *targets, bool weighted, int64_t r, int64_t rows) {
    if (!weighted) return 1.0 / (double)rows;
    const bool ignored = hd_has(&o->attrs, A_IGNORE) && targets->data[r] == (double)hd_int(&o->attrs, A_IGNORE, 0);
    return ignored ? 0 : targets[1].data[r];
}

const char *hd_eval_loss_of_parts(Eval *e HD_UNUSED, const Op *o, const Tensor *in, Tensor *out) {
    const int64_t parts = in[0].type->dim[0], rows = hd_type_count(out[1].type);
    for (int64_t r = 0; r < rows; r++) {
        const double lse = log_sum_exp(in[0].data + r, parts, rows), share = share_of(o, in + 2, o->n_in > 3, r, rows);
        double at = 0;
        for (int64_t p = 0; p < parts; p++) at += in[1].data[p * rows + r];
        out[1].data[r] = lse;
        if (share != 0) out[0].data[0] += o->n_in > 3 ? (lse - at) * share : (lse - at) / (double)rows;
    }
    return NULL;
}

const char *hd_eval_loss_part_grad(Eval *e HD_UNUSED, const Op *o, const Tensor *in, Tensor *out) {
    const int64_t vocab = hd_type_cols(in[0].type), rows = hd_type_rows(in[0].type), parts = in[1].type->dim[0],
                  size = vocab / parts;
    const double dloss = in[3].data[0];
    for (int64_t r = 0; r < rows; r++) {
        const double share = share_of(o, in + 4, o->n_in > 5, r, rows);
        const double by = o->n_in > 5 ? dloss * share : dloss / (double)rows;
        for (int64_t i = 0; i < vocab && share != 0; i++) {
            if (i % size >= inside_of(o, in, 4, i / size, r, size)) continue;
            const double hit = in[1].data[i / size * rows + r] == (double)(i % size) ? 1 : 0;
            out->data[r * vocab + i] = by * (exp(in[0].data[r * vocab + i] - in[2].data[r]) - hit);
        }
    }
    return NULL;
}
