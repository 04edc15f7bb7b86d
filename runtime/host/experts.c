// Mixtures of experts: choices, rows by index, products by groups of rows. Every element is made by one thread in one
// order, so results do not depend on the number of threads.
#include "runtime/dtypes.h"
#include "runtime/heddle.h"
#include "runtime/heddle_host.h"
#include <math.h>

enum { COLUMNS = 256, LARGE = 16384 };

enum { NOT_SENT = -2 }; // the slot of a row beyond the capacity of an exchange
static int64_t lesser(int64_t a, int64_t b) { return a < b ? a : b; }
static bool inside(int32_t index, int64_t n) { return index >= 0 && index < n; }

// Whether element i, which is x, comes before element k, which is y: the larger, a NaN before a number, the first of
// equal ones.
static bool before(float x, int64_t i, float y, int64_t k) {
    if (isnan(x) || isnan(y)) return isnan(x) && (!isnan(y) || i < k);
    return x > y || (x == y && i < k);
}

// The element that comes first among those after element `last`, which is `top`; last < 0: among all.
static int64_t next_largest(const float *x, int64_t n, int64_t last) {
    int64_t best = -1;
    for (int64_t i = 0; i < n; i++) {
        if (last >= 0 && !before(x[last], last, x[i], i)) continue;
        if (best < 0 || before(x[i], i, x[best], best)) best = i;
    }
    return best;
}

void hd_host_top_k(HdDtype dt, int64_t rows, int64_t n, int64_t k, const void *x, void *values, int32_t *places,
                   void *workspace) {
    float *all = workspace;
#pragma omp parallel for schedule(static) if (rows * n > LARGE)
    for (int64_t r = 0; r < rows; r++) {
        float *row = all + r * n;
        hd_load_f32(dt, x, r * n, n, row);
        for (int64_t j = 0, last = -1; j < k; j++) {
            last = next_largest(row, n, last);
            places[r * k + j] = (int32_t)last;
            hd_store_f32(dt, row + last, 1, values, r * k + j);
        }
    }
}

void hd_host_top_k_grad(HdDtype dt, int64_t rows, int64_t n, int64_t k, const void *dy, const int32_t *places,
                        void *dx) {
#pragma omp parallel for schedule(static) if (rows * n > LARGE)
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < n; c++) {
            float sum = 0, y;
            for (int64_t j = 0; j < k; j++) {
                if (places[r * k + j] != c) continue;
                hd_load_f32(dt, dy, r * k + j, 1, &y);
                sum += y;
            }
            hd_store_f32(dt, &sum, 1, dx, r * n + c);
        }
}

// Whether choice i has a row. left: how many rows of the present run each expert may still have.
static bool has_row(const int32_t *index, int64_t i, int64_t run, int64_t experts, int64_t capacity, int32_t *left) {
    for (int64_t g = 0; i % run == 0 && g < experts; g++) left[g] = (int32_t)lesser(capacity, run);
    return inside(index[i], experts) && left[index[i]]-- > 0;
}

void hd_host_dispatch(int64_t n, int64_t k, int64_t experts, int64_t capacity, int64_t runs, int64_t rows,
                      const int32_t *index, int32_t *source, int32_t *slots, int32_t *counts, int32_t *choice,
                      void *workspace) {
    int32_t *next = workspace, *left = next + experts, row = 0; // of each expert
    memset(counts, 0, (size_t)experts * sizeof *counts);
    for (int64_t i = 0; i < n; i++)
        if (has_row(index, i, n / runs, experts, capacity, left)) counts[index[i]]++;
    for (int64_t g = 0; g < experts; g++) next[g] = row, row += counts[g];
    for (int64_t i = row; i < rows; i++) source[i] = choice[i] = -1;
    for (int64_t i = 0; i < n; i++) {
        slots[i] = has_row(index, i, n / runs, experts, capacity, left) ? next[index[i]]++ : -1;
        if (slots[i] < 0) continue;
        source[slots[i]] = (int32_t)(i / k);
        choice[slots[i]] = (int32_t)i;
    }
}

void hd_host_route(int64_t n, int64_t k, int64_t experts, int64_t ranks, uint64_t own, int64_t capacity,
                   const int32_t *index, int32_t *source, int32_t *slots, int32_t *sent, int32_t *wanted) {
    const int64_t m = experts / ranks, most = lesser(k, ranks) * n;
    for (int64_t r = 0; r < ranks; r++) {
        int64_t row = r * n, rows = 0;
        for (int64_t t = 0; t < n; t++) {
            bool goes = false;
            for (int64_t j = 0; j < k; j++) goes |= index[t * k + j] >= r * m && index[t * k + j] < (r + 1) * m;
            rows += goes;
            int32_t *slot = &slots[t * ranks + (r + 2 * ranks - (int64_t)own - 1) % ranks];
            *slot = !goes ? -1 : row < r * n + capacity ? (int32_t)row : NOT_SENT;
            if (*slot < 0) continue;
            source[row] = (int32_t)t;
            memcpy(sent + row++ * k, index + t * k, (size_t)k * sizeof *sent);
        }
        for (; row < (r + 1) * n; row++) {
            source[row] = -1;
            for (int64_t j = 0; j < k; j++) sent[row * k + j] = -1;
        }
        if (!wanted || wanted[1] || rows <= capacity) continue;
        const int32_t bound = (int32_t)((rows - 1) * ranks * 100 / most + 1); // with which `rows` are the capacity
        if (bound > wanted[0]) wanted[0] = bound;
    }
    if (wanted && wanted[0]) wanted[1] = 1; // what follows may be choices by scores of NaN
}

void hd_host_take(HdDtype dt, int64_t rows, int64_t n, int64_t cols, const void *x, const int32_t *index, void *y) {
    const size_t bytes = (size_t)cols * hd_dtypes[dt].bytes;
#pragma omp parallel for schedule(static) if (n * cols > LARGE)
    for (int64_t i = 0; i < n; i++) {
        char *to = (char *)y + (size_t)i * bytes;
        if (inside(index[i], rows)) memcpy(to, (const char *)x + (size_t)index[i] * bytes, bytes);
        else memset(to, 0, bytes);
    }
}

void hd_host_combine(HdDtype dt, int64_t rows, int64_t tokens, int64_t k, int64_t cols, const void *y,
                     const int32_t *slots, const float *weight, void *out, bool stepwise) {
#pragma omp parallel for schedule(static) if (tokens * k * cols > LARGE)
    for (int64_t t = 0; t < tokens; t++)
        for (int64_t col = 0; col < cols; col += COLUMNS) {
            float sum[COLUMNS] = {0}, x[COLUMNS];
            const int64_t n = lesser(COLUMNS, cols - col);
            for (int64_t i = t * k; i < t * k + k; i++) {
                for (int64_t c = 0; stepwise && slots[i] == NOT_SENT && c < n; c++) sum[c] = (float)NAN;
                if (!inside(slots[i], rows)) continue;
                hd_load_f32(dt, y, slots[i] * cols + col, n, x);
                for (int64_t c = 0; c < n; c++) sum[c] += (weight ? weight[i] : 1) * x[c];
                if (!stepwise) continue;
                hd_store_f32(dt, sum, n, out, t * cols + col);
                hd_load_f32(dt, out, t * cols + col, n, sum);
            }
            hd_store_f32(dt, sum, n, out, t * cols + col);
        }
}

// A row of dy and the dot product of a row of dout with one of y.
static float combine_row(HdDtype dt, int64_t cols, float weight, const void *dout, int64_t from, const void *y,
                         int64_t at, void *dy) {
    float d[COLUMNS], x[COLUMNS], dot = 0;
    for (int64_t col = 0; col < cols; col += COLUMNS) {
        const int64_t n = lesser(COLUMNS, cols - col);
        hd_load_f32(dt, dout, from + col, n, d);
        hd_load_f32(dt, y, at + col, n, x);
        for (int64_t c = 0; c < n; c++) dot += d[c] * x[c], d[c] *= weight;
        hd_store_f32(dt, d, n, dy, at + col);
    }
    return dot;
}

void hd_host_combine_grad(HdDtype dt, int64_t rows, int64_t tokens, int64_t k, int64_t cols, const void *dout,
                          const void *y, const int32_t *slots, const float *weight, const int32_t *choice, void *dy,
                          float *dweight) {
    const size_t bytes = (size_t)cols * hd_dtypes[dt].bytes;
#pragma omp parallel for schedule(static) if (rows * cols > LARGE)
    for (int64_t r = 0; r < rows; r++)
        if (!inside(choice[r], tokens * k)) memset((char *)dy + (size_t)r * bytes, 0, bytes);
#pragma omp parallel for schedule(static) if (rows * cols > LARGE)
    for (int64_t i = 0; i < tokens * k; i++)
        dweight[i] = inside(slots[i], rows)
                         ? combine_row(dt, cols, weight[i], dout, i / k * cols, y, slots[i] * cols, dy)
                         : 0;
}

static int64_t rows_of(const int32_t *counts, int64_t g, int64_t left) {
    return counts[g] < 0 ? 0 : lesser(counts[g], left);
}

static const void *at(const void *p, HdDtype dt, int64_t element) {
    return (const char *)p + (size_t)element * hd_dtypes[dt].bytes;
}

void hd_host_grouped(HdDtype dt, int64_t rows, int64_t n, int64_t k, int64_t groups, bool tb, const void *x,
                     const void *w, const int32_t *counts, void *y, const int32_t *source, int64_t from,
                     void *workspace) {
    int64_t first = 0;
    if (source) hd_host_take(dt, from, rows, k, x, source, workspace), x = workspace;
    for (int64_t g = 0, m; g < groups; g++, first += m) {
        m = rows_of(counts, g, rows - first);
        const HdGemm one = {.m = m, .n = n, .k = k, .tb = tb, .a = dt, .b = dt, .d = dt, .batch = 1};
        if (m) hd_host_gemm(&one, at(x, dt, first * k), at(w, dt, g * n * k), NULL, (char *)at(y, dt, first * n), NULL);
    }
    memset((char *)at(y, dt, first * n), 0, (size_t)((rows - first) * n) * hd_dtypes[dt].bytes);
}

void hd_host_grouped_grad(HdDtype dt, HdDtype to, int64_t rows, int64_t m, int64_t n, int64_t groups, const void *a,
                          const void *b, const int32_t *counts, void *d) {
    int64_t first = 0;
    for (int64_t g = 0, k; g < groups; g++, first += k) {
        k = rows_of(counts, g, rows - first);
        const HdGemm one = {.m = m, .n = n, .k = k, .ta = true, .a = dt, .b = dt, .d = to, .batch = 1};
        char *out = (char *)at(d, to, g * m * n);
        if (k) hd_host_gemm(&one, at(a, dt, first * m), at(b, dt, first * n), NULL, out, NULL);
        else memset(out, 0, (size_t)(m * n) * hd_dtypes[to].bytes);
    }
}
