// The meaning of mixtures of experts: choices, rows by index, products by groups of rows.
#include "ir/eval/rules.h"
#include "ir/mesh.h"
#include "ir/shapes.h"
#include <math.h>

// Whether element i comes before element k in a row: the larger, a NaN before a number, the first of equal ones.
static bool before(const double *x, int64_t i, int64_t k) {
    if (isnan(x[i]) || isnan(x[k])) return isnan(x[i]) && (!isnan(x[k]) || i < k);
    return x[i] > x[k] || (x[i] == x[k] && i < k);
}

const char *hd_eval_top_k(Eval *e HD_UNUSED, const Op *o, const Tensor *in, Tensor *out) {
    const int64_t n = hd_type_cols(in[0].type), k = hd_int(&o->attrs, A_K, 0), rows = hd_type_rows(in[0].type);
    for (int64_t r = 0; r < rows; r++) {
        const double *x = in[0].data + r * n;
        for (int64_t i = 0; i < n; i++) {
            int64_t place = 0;
            for (int64_t other = 0; other < n; other++) place += before(x, other, i);
            if (place >= k) continue;
            out[0].data[r * k + place] = x[i];
            out[1].data[r * k + place] = (double)i;
        }
    }
    return NULL;
}

static bool inside(double index, int64_t n) { return index >= 0 && index < (double)n; }

const char *hd_eval_top_k_grad(Eval *e HD_UNUSED, const Op *o HD_UNUSED, const Tensor *in, Tensor *out) {
    const int64_t n = hd_type_cols(out->type), k = hd_type_cols(in[0].type), all = hd_type_count(in[0].type);
    for (int64_t i = 0; i < all; i++)
        if (inside(in[1].data[i], n)) out->data[i / k * n + (int64_t)in[1].data[i]] += in[0].data[i];
    return NULL;
}

const char *hd_eval_dispatch(Eval *e HD_UNUSED, const Op *o, const Tensor *in, Tensor *out) {
    const int64_t n = hd_type_count(in[0].type), k = hd_type_cols(in[0].type), rows = hd_type_count(out[0].type);
    const int64_t experts = hd_int(&o->attrs, A_EXPERTS, 0), capacity = hd_int(&o->attrs, A_CAPACITY, n);
    const int64_t run = n / hd_int(&o->attrs, A_RUNS, 1);
    int64_t row = 0, before = 0; // of the expert: its rows before the run
    for (int64_t i = 0; i < n; i++) out[1].data[i] = -1;
    for (int64_t g = 0; g < experts; g++)
        for (int64_t i = 0; i < n; i++) {
            if (i % run == 0) before = (int64_t)out[2].data[g];
            if (in[0].data[i] != (double)g || (int64_t)out[2].data[g] - before >= capacity) continue;
            out[0].data[row] = (double)(i / k);
            out[3].data[row] = (double)i;
            out[1].data[i] = (double)row++;
            out[2].data[g]++;
        }
    for (; row < rows; row++) out[0].data[row] = out[3].data[row] = -1;
    return NULL;
}

const char *hd_eval_route(Eval *e, const Op *o, const Tensor *in, Tensor *out) {
    const Mesh mesh = hd_mesh(e->module);
    const Axes over = hd_axes(&o->attrs, A_OVER);
    const int64_t n = hd_type_rows(in[0].type), k = hd_type_cols(in[0].type), ranks = hd_type_cols(out[1].type),
                  own = hd_mesh_number(&mesh, over, e->rank), m = hd_int(&o->attrs, A_EXPERTS, 0) / ranks,
                  most = hd_int(&o->attrs, A_CAPACITY, n);
    for (int64_t i = 0; i < n * ranks; i++) out[0].data[i] = -1;
    for (int64_t i = 0; i < n * ranks * k; i++) out[2].data[i] = -1;
    for (int64_t r = 0; r < ranks; r++)
        for (int64_t i = 0, row = r * n; i < n; i++) {
            double *slot = &out[1].data[i * ranks + (r + 2 * ranks - own - 1) % ranks];
            bool goes = false;
            for (int64_t j = 0; j < k; j++) {
                const double g = in[0].data[i * k + j];
                goes |= g >= (double)(r * m) && g < (double)((r + 1) * m);
            }
            *slot = !goes ? -1 : row < r * n + most ? (double)row : -2;
            if (*slot < 0) continue;
            out[0].data[row] = (double)i;
            for (int64_t j = 0; j < k; j++) out[2].data[row * k + j] = in[0].data[i * k + j];
            row++;
        }
    return NULL;
}

const char *hd_eval_take(Eval *e HD_UNUSED, const Op *o, const Tensor *in, Tensor *out) {
    if (hd_has(&o->attrs, A_PARTS)) return hd_eval_take_parts(in, out), NULL;
    const int64_t cols = hd_type_cols(in[0].type), rows = hd_type_rows(in[0].type), n = hd_type_count(in[1].type);
    for (int64_t i = 0; i < n; i++)
        for (int64_t c = 0; c < cols && inside(in[1].data[i], rows); c++)
            out->data[i * cols + c] = in[0].data[(int64_t)in[1].data[i] * cols + c];
    return NULL;
}

// As a sum over ranks is rounded; a slot of -2 is of a row that was not sent.
static void combine_stepwise(const Eval *e, const Tensor *in, Tensor *out) {
    const int64_t cols = hd_type_cols(in[0].type), rows = hd_type_rows(in[0].type), n = hd_type_count(in[1].type),
                  k = hd_type_cols(in[1].type);
    for (int64_t i = 0; i < n; i++)
        for (int64_t c = 0; c < cols; c++) {
            const double slot = in[1].data[i];
            double *y = &out->data[i / k * cols + c];
            if (slot == -2) *y = (double)NAN;
            if (inside(slot, rows)) *y += in[0].data[(int64_t)slot * cols + c];
            if (e->mode != EVAL_EXACT) *y = hd_round(out->type->dtype, *y);
        }
}

const char *hd_eval_combine(Eval *e, const Op *o, const Tensor *in, Tensor *out) {
    if (hd_has(&o->attrs, A_STEPWISE)) return combine_stepwise(e, in, out), NULL;
    const int64_t cols = hd_type_cols(in[0].type), rows = hd_type_rows(in[0].type), n = hd_type_count(in[1].type),
                  k = hd_type_cols(in[1].type);
    for (int64_t i = 0; i < n; i++)
        for (int64_t c = 0; c < cols && inside(in[1].data[i], rows); c++)
            out->data[i / k * cols + c] +=
                (o->n_in > 2 ? in[2].data[i] : 1) * in[0].data[(int64_t)in[1].data[i] * cols + c];
    return NULL;
}

// The row of a choice is its own, so no element of dy is written twice.
const char *hd_eval_combine_grad(Eval *e HD_UNUSED, const Op *o HD_UNUSED, const Tensor *in, Tensor *out) {
    const int64_t cols = hd_type_cols(in[1].type), rows = hd_type_rows(in[1].type), n = hd_type_count(in[2].type),
                  k = hd_type_cols(in[2].type);
    for (int64_t i = 0; i < n; i++)
        for (int64_t c = 0; c < cols && inside(in[2].data[i], rows); c++) {
            const int64_t at = (int64_t)in[2].data[i] * cols + c;
            const double d = in[0].data[i / k * cols + c];
            out[0].data[at] = in[3].data[i] * d;
            out[1].data[i] += d * in[1].data[at];
        }
    return NULL;
}

// Rows of a group, of those that are left.
static int64_t rows_of(const Tensor *counts, int64_t g, int64_t left) {
    const int64_t n = (int64_t)counts->data[g];
    return n < 0 ? 0 : n < left ? n : left;
}

// Where a row of x begins, of `cols` columns; -1: it is a row of zeros.
static int64_t begin_of(const Op *o, const Tensor *in, int64_t row, int64_t cols) {
    const int source = hd_operand_of(o, ROLE_SOURCE);
    if (source < 0) return row * cols;
    const double from = in[source].data[row];
    return inside(from, hd_type_rows(in[0].type)) ? (int64_t)from * cols : -1;
}

const char *hd_eval_grouped(Eval *e HD_UNUSED, const Op *o, const Tensor *in, Tensor *out) {
    const Product p = hd_product(o);
    for (int64_t g = 0, row = 0, end; g < hd_type_count(in[2].type); g++) {
        const double *w = in[1].data + g * p.n * p.k;
        for (end = row + rows_of(&in[2], g, p.m - row); row < end; row++) {
            const int64_t x = begin_of(o, in, row, p.k);
            for (int64_t c = 0; c < p.n && x >= 0; c++)
                for (int64_t i = 0; i < p.k; i++)
                    out->data[row * p.n + c] += in[0].data[x + i] * (p.tb ? w[c * p.k + i] : w[i * p.n + c]);
        }
    }
    return NULL;
}

const char *hd_eval_grouped_grad(Eval *e HD_UNUSED, const Op *o, const Tensor *in, Tensor *out) {
    const Product p = hd_product(o);
    for (int64_t g = 0, row = 0, end; g < hd_type_count(in[2].type); g++)
        for (end = row + rows_of(&in[2], g, p.k - row); row < end; row++)
            for (int64_t i = 0; i < p.m; i++)
                for (int64_t c = 0; c < p.n; c++)
                    out->data[(g * p.m + i) * p.n + c] += in[0].data[row * p.m + i] * in[1].data[row * p.n + c];
    return NULL;
}
