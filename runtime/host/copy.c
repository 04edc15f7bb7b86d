// Copies, sums and quantized rows over dtypes, rounding to nearest even.
#include "runtime/host/scratch.h"

enum { BLOCK = 4096 };

static void add_f64(const double *src, double *dst, int64_t n) {
    for (int64_t i = 0; i < n; i++) dst[i] += src[i];
}

static void add_f32(const float *src, float *dst, int64_t n) {
    for (int64_t i = 0; i < n; i++) dst[i] += src[i];
}

void hd_host_add(HdDtype dt, const void *src, void *dst, int64_t index, int64_t n) {
    if (dt == HD_F32) {
        add_f32((const float *)src + index, (float *)dst + index, n);
        return;
    }
    if (dt == HD_F64) {
        add_f64((const double *)src + index, (double *)dst + index, n);
        return;
    }
    for (int64_t at = index, end = index + n; at < end; at += BLOCK) {
        const int64_t part = end - at < BLOCK ? end - at : BLOCK;
        float a[BLOCK], b[BLOCK];
        hd_load_f32(dt, src, at, part, a);
        hd_load_f32(dt, dst, at, part, b);
        add_f32(a, b, part);
        hd_store_f32(dt, b, part, dst, at);
    }
}

// Sums are f32 (f64 when both sides are).
static void copy_block(HdDtype from, HdDtype to, int64_t at, int64_t n, const void *src, void *dst, bool accumulate) {
    if (from == HD_F64 && to == HD_F64 && accumulate) {
        add_f64((const double *)src + at, (double *)dst + at, n);
        return;
    }
    if (from == to && !accumulate) {
        const size_t size = hd_dtypes[from].bytes;
        memcpy((char *)dst + (size_t)at * size, (const char *)src + (size_t)at * size, (size_t)n * size);
        return;
    }
    float x[BLOCK], y[BLOCK];
    hd_load_f32(from, src, at, n, x);
    if (accumulate) {
        hd_load_f32(to, dst, at, n, y);
        for (int64_t i = 0; i < n; i++) x[i] = y[i] + x[i];
    }
    hd_store_f32(to, x, n, dst, at);
}

void hd_host_copy(HdDtype from, HdDtype to, int64_t count, const void *src, void *dst, bool accumulate) {
#pragma omp parallel for schedule(static) if (count > 4 * BLOCK)
    for (int64_t at = 0; at < count; at += BLOCK)
        copy_block(from, to, at, count - at < BLOCK ? count - at : BLOCK, src, dst, accumulate);
}

static float row_scale(HdDtype from, HdDtype to, int64_t at, int64_t cols, const void *x) {
    float part[BLOCK], most = 0x1p-100f;
    for (int64_t c = 0; c < cols; c += BLOCK) {
        const int64_t n = cols - c < BLOCK ? cols - c : BLOCK;
        hd_load_f32(from, x, at + c, n, part);
        for (int64_t i = 0; i < n; i++) {
            const float a = part[i] < 0 ? -part[i] : part[i];
            most = a > most || a != a ? a : most; // a NaN stays
        }
    }
    return most / (float)hd_dtypes[to].largest;
}

static void quantize_row(HdDtype from, HdDtype to, int64_t at, int64_t cols, const void *x, float inverse, void *q) {
    float part[BLOCK];
    for (int64_t c = 0; c < cols; c += BLOCK) {
        const int64_t n = cols - c < BLOCK ? cols - c : BLOCK;
        hd_load_f32(from, x, at + c, n, part);
        for (int64_t i = 0; i < n; i++) part[i] *= inverse;
        hd_store_f32(to, part, n, q, at + c);
    }
}

void hd_host_quantize(HdDtype from, HdDtype to, int64_t rows, int64_t cols, const void *x, void *q, void *scales) {
#pragma omp parallel for schedule(static) if (rows * cols > 4 * BLOCK)
    for (int64_t r = 0; r < rows; r++) {
        const float scale = row_scale(from, to, r * cols, cols, x);
        if (scales) ((float *)scales)[r] = scale;
        if (q) quantize_row(from, to, r * cols, cols, x, 1 / scale, q);
    }
}

// --- tensors of a bucket

// The elements of tensor t of those from `first` on, counted from there: [*lo, the result).
static int64_t elements_of(const int64_t *tensors, int t, int64_t first, int64_t count, int64_t *lo) {
    const int64_t from = tensors[2 * t] - first, to = tensors[2 * t + 1] - first;
    *lo = from > 0 ? from : 0;
    return to < count ? to : count;
}

void hd_host_tensor_scales(HdDtype from, HdDtype to, int64_t first, int64_t count, int n, const int64_t *tensors,
                           const void *x, float *scales, int stride) {
    memset(scales, 0, sizeof *scales * (size_t)n * (size_t)stride);
#pragma omp parallel for schedule(dynamic) if (count > 4 * BLOCK)
    for (int t = 0; t < n; t++) {
        int64_t lo, hi = elements_of(tensors, t, first, count, &lo);
        if (lo < hi) scales[t * stride] = row_scale(from, to, lo, hi - lo, x);
    }
}

void hd_host_quantize_tensors(HdDtype from, HdDtype to, int64_t first, int64_t count, int n, const int64_t *tensors,
                              const void *x, const float *scales, int stride, void *q) {
    memset(q, 0, (size_t)count);
#pragma omp parallel for schedule(dynamic) if (count > 4 * BLOCK)
    for (int t = 0; t < n; t++) {
        int64_t lo, hi = elements_of(tensors, t, first, count, &lo);
        if (lo < hi) quantize_row(from, to, lo, hi - lo, x, 1 / scales[t * stride], q);
    }
}
