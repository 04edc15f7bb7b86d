// Copies and conversions between dtypes, rounding to nearest even.
#include "runtime/host/scratch.h"

enum { BLOCK = 4096 };

size_t hd_host_bytes(HdDtype d) {
    static const size_t bytes[] = {4, 2, 2, 8, 4, 1};
    return bytes[d];
}

void hd_host_load(HdDtype from, const void *src, int64_t index, int64_t n, float *dst) {
    switch (from) {
    case HD_F32: memcpy(dst, (const float *)src + index, (size_t)n * sizeof(float)); break;
    case HD_BF16: {
        const uint16_t *s = (const uint16_t *)src + index;
        for (int64_t i = 0; i < n; i++) dst[i] = hd_from_bf16(s[i]);
        break;
    }
    case HD_F16: {
        const uint16_t *s = (const uint16_t *)src + index;
        for (int64_t i = 0; i < n; i++) dst[i] = hd_from_f16(s[i]);
        break;
    }
    case HD_F64: {
        const double *s = (const double *)src + index;
        for (int64_t i = 0; i < n; i++) dst[i] = (float)s[i];
        break;
    }
    case HD_I32: {
        const int32_t *s = (const int32_t *)src + index;
        for (int64_t i = 0; i < n; i++) dst[i] = (float)s[i];
        break;
    }
    case HD_U8: break;
    }
}

void hd_host_store(HdDtype to, const float *src, int64_t n, void *dst, int64_t index) {
    switch (to) {
    case HD_F32: memcpy((float *)dst + index, src, (size_t)n * sizeof(float)); break;
    case HD_BF16: {
        uint16_t *d = (uint16_t *)dst + index;
        for (int64_t i = 0; i < n; i++) d[i] = hd_to_bf16(src[i]);
        break;
    }
    case HD_F16: {
        uint16_t *d = (uint16_t *)dst + index;
        for (int64_t i = 0; i < n; i++) d[i] = hd_to_f16(src[i]);
        break;
    }
    case HD_F64: {
        double *d = (double *)dst + index;
        for (int64_t i = 0; i < n; i++) d[i] = (double)src[i];
        break;
    }
    case HD_I32: case HD_U8: break;
    }
}

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
        hd_host_load(dt, src, at, part, a);
        hd_host_load(dt, dst, at, part, b);
        add_f32(a, b, part);
        hd_host_store(dt, b, part, dst, at);
    }
}

// Sums are f32 (f64 when both sides are).
static void copy_block(HdDtype from, HdDtype to, int64_t at, int64_t n, const void *src, void *dst, bool accumulate) {
    if (from == HD_F64 && to == HD_F64 && accumulate) {
        add_f64((const double *)src + at, (double *)dst + at, n);
        return;
    }
    if (from == to && !accumulate) {
        const size_t size = hd_host_bytes(from);
        memcpy((char *)dst + (size_t)at * size, (const char *)src + (size_t)at * size, (size_t)n * size);
        return;
    }
    float x[BLOCK], y[BLOCK];
    hd_host_load(from, src, at, n, x);
    if (accumulate) {
        hd_host_load(to, dst, at, n, y);
        for (int64_t i = 0; i < n; i++) x[i] = y[i] + x[i];
    }
    hd_host_store(to, x, n, dst, at);
}

void hd_host_copy(HdDtype from, HdDtype to, int64_t count, const void *src, void *dst, bool accumulate) {
#pragma omp parallel for schedule(static) if (count > 4 * BLOCK)
    for (int64_t at = 0; at < count; at += BLOCK)
        copy_block(from, to, at, count - at < BLOCK ? count - at : BLOCK, src, dst, accumulate);
}
