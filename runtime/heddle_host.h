// Inline helpers of generated host kernels and of runtime/host: conversions, ordered row reductions, vectorisable exp
// and tanh. Every helper has one fixed order of operations, so results do not depend on threads, on the kernel it is
// inlined into, or on what the compiler vectorises. That needs -ffp-contract=off; where the machine has fused
// multiply-adds they are written out.
#ifndef RUNTIME_HEDDLE_HOST_H
#define RUNTIME_HEDDLE_HOST_H
#include "bits.h" // next to this file wherever that is installed
#include <math.h>
#include <stdint.h>
#include <string.h>

// --- conversions; those of one and two bytes are in bits.h
static inline float hd_from_f32(float f) { return f; }
static inline float hd_to_f32(float f) { return f; }
static inline float hd_from_f64(double d) { return (float)d; }
static inline double hd_to_f64(float f) { return (double)f; }
static inline float hd_from_i32(int32_t i) { return (float)i; }
static inline int32_t hd_to_i32(float f) { return (int32_t)f; }
static inline float hd_from_u8(uint8_t i) { return (float)i; }
static inline uint8_t hd_to_u8(float f) { return (uint8_t)f; }

static inline float hd_round_bf16(float f) { return hd_from_bf16(hd_to_bf16(f)); }
static inline float hd_round_f16(float f) { return hd_from_f16(hd_to_f16(f)); }
static inline float hd_round_e4m3(float f) { return hd_from_e4m3(hd_to_e4m3(f)); }
static inline float hd_round_e5m2(float f) { return hd_from_e5m2(hd_to_e5m2(f)); }

// --- random numbers of dropout: key and counter as ir/dropout.h says
// Words 4 block .. 4 block + 3 of a sequence. `key`: a row of the table that hd_host_dropout_keys makes.
static inline void hd_dropout_words(const int32_t *key, uint64_t sequence, uint64_t block, uint32_t word[4]) {
    const uint64_t number = ((uint64_t)(uint32_t)key[3] << 32 | (uint32_t)key[2]) + sequence;
    const uint32_t k[2] = {(uint32_t)key[0], (uint32_t)key[1]},
                   counter[4] = {(uint32_t)block, (uint32_t)key[4], (uint32_t)number, (uint32_t)(number >> 32)};
    hd_philox_words(k, counter, word);
}

static inline int hd_dropout_keeps(const int32_t *key, uint64_t sequence, uint64_t element, uint32_t threshold) {
    uint32_t word[4];
    hd_dropout_words(key, sequence, element / 4, word);
    return word[element % 4] >= threshold;
}

static inline float h_dropout(float x, const int32_t *key, uint64_t sequence, uint64_t element, uint32_t threshold,
                              float factor) {
    return hd_dropout_keeps(key, sequence, element, threshold) ? x * factor : 0.0f;
}
static inline double h_dropout_d(double x, const int32_t *key, uint64_t sequence, uint64_t element, uint32_t threshold,
                                 double factor) {
    return hd_dropout_keeps(key, sequence, element, threshold) ? x * factor : 0.0;
}

// --- exp and tanh: within 2 ulp of the exact value. Range reduction and polynomials after Cephes (expf, tanhf).
static inline float hd_fma(float a, float b, float c) {
#ifdef __FMA__
    return __builtin_fmaf(a, b, c);
#else
    return a * b + c;
#endif
}

static inline float hd_exp(float x) {
    const float bounded = x < -104.0f ? -104.0f
                          : x > 89.0f ? 89.0f
                                      : x; // the ends already give 0 and infinity; NaN stays
    const float n = (bounded * 1.44269504088896341f + 12582912.0f) - 12582912.0f; // nearest integer
    const float r = hd_fma(n, 2.12194440e-4f, hd_fma(n, -0.693359375f, bounded));
    float p = 1.9875691500e-4f;
    p = hd_fma(p, r, 1.3981999507e-3f);
    p = hd_fma(p, r, 8.3334519073e-3f);
    p = hd_fma(p, r, 4.1665795894e-2f);
    p = hd_fma(p, r, 1.6666665459e-1f);
    p = hd_fma(p, r, 5.0000001201e-1f);
    p = hd_fma(p, r * r, r) + 1.0f;
    const int32_t e = (int32_t)(x == x ? n : 0.0f), half = e >> 1; // 2^e in two factors: subnormal results round once
    return p * hd_float_of((uint32_t)(half + 127) << 23) * hd_float_of((uint32_t)(e - half + 127) << 23);
}

static inline float hd_tanh(float x) {
    const float z = x * x, a = x < 0.0f ? -x : x;
    float p = -5.70498872745e-3f;
    p = hd_fma(p, z, 2.06390887954e-2f);
    p = hd_fma(p, z, -5.37397155531e-2f);
    p = hd_fma(p, z, 1.33314422036e-1f);
    p = hd_fma(p, z, -3.33332819422e-1f);
    const float small = hd_fma(p * z, x, x);
    const float large = 1.0f - 2.0f / (hd_exp(2.0f * a) + 1.0f);
    return a < 0.625f ? small : x < 0.0f ? -large : large;
}

// --- reductions of a row: 16 (8 for double) running values, element c into value c % 16, then added pairwise
#define HD_ROW_REDUCTION(NAME, T, LANES, PARAMS, START, TERM, JOIN)                                                    \
    static inline T NAME PARAMS {                                                                                      \
        T lane[LANES];                                                                                                 \
        int64_t c = 0;                                                                                                 \
        for (int i = 0; i < LANES; i++) lane[i] = START;                                                               \
        for (; c + LANES <= n; c += LANES)                                                                             \
            for (int i = 0; i < LANES; i++) {                                                                          \
                const T a = lane[i], b = TERM(c + i);                                                                  \
                lane[i] = JOIN;                                                                                        \
            }                                                                                                          \
        for (int i = 0; i < LANES && c < n; c++, i++) {                                                                \
            const T a = lane[i], b = TERM(c);                                                                          \
            lane[i] = JOIN;                                                                                            \
        }                                                                                                              \
        for (int step = LANES / 2; step; step /= 2)                                                                    \
            for (int i = 0; i < step; i++) {                                                                           \
                const T a = lane[i], b = lane[i + step];                                                               \
                lane[i] = JOIN;                                                                                        \
            }                                                                                                          \
        return lane[0];                                                                                                \
    }
#define HD_TERM(c) v[c]
#define HD_TERM_DOT(c) (v[c] * w[c])
#define HD_TERM_SQUARE(c) ((v[c] - mean) * (v[c] - mean))
#define HD_LARGER ((a > b || a != a) ? a : b) // NaN wins
HD_ROW_REDUCTION(hd_row_sum, float, 16, (const float *v, int64_t n), 0.0f, HD_TERM, a + b)
HD_ROW_REDUCTION(hd_row_dot, float, 16, (const float *v, const float *w, int64_t n), 0.0f, HD_TERM_DOT, a + b)
HD_ROW_REDUCTION(hd_row_spread, float, 16, (const float *v, float mean, int64_t n), 0.0f, HD_TERM_SQUARE, a + b)
HD_ROW_REDUCTION(hd_row_max, float, 16, (const float *v, int64_t n), -INFINITY, HD_TERM, HD_LARGER)
HD_ROW_REDUCTION(hd_row_sum_d, double, 8, (const double *v, int64_t n), 0.0, HD_TERM, a + b)
HD_ROW_REDUCTION(hd_row_dot_d, double, 8, (const double *v, const double *w, int64_t n), 0.0, HD_TERM_DOT, a + b)
HD_ROW_REDUCTION(hd_row_spread_d, double, 8, (const double *v, double mean, int64_t n), 0.0, HD_TERM_SQUARE, a + b)
HD_ROW_REDUCTION(hd_row_max_d, double, 8, (const double *v, int64_t n), -(double)INFINITY, HD_TERM, HD_LARGER)

// --- rotary embedding of one row of cols = heads x size: halves of a head turn by position * rate[i]; sign -1: back.
// Heads from column `turned` on stay as they are.
static inline void hd_rope_rates(double *rate, int64_t half, double theta) {
    for (int64_t i = 0; i < half; i++) rate[i] = pow(theta, -(double)i / (double)half);
}

#define HD_ROW_ROPE(NAME, T)                                                                                           \
    static inline void NAME(const T *x, T *y, int64_t cols, int64_t turned, int64_t half, int64_t position,            \
                            const double *rate, double sign) {                                                         \
        for (int64_t i = 0; i < half; i++) {                                                                           \
            const double angle = (double)position * rate[i];                                                           \
            const T c = (T)cos(angle), s = (T)(sign * sin(angle));                                                     \
            for (int64_t h = 0; h < turned; h += 2 * half) {                                                           \
                const T a = x[h + i], b = x[h + half + i];                                                             \
                y[h + i] = a * c - b * s;                                                                              \
                y[h + half + i] = b * c + a * s;                                                                       \
            }                                                                                                          \
        }                                                                                                              \
        for (int64_t i = turned; i < cols; i++) y[i] = x[i];                                                           \
    }
HD_ROW_ROPE(hd_row_rope, float)
HD_ROW_ROPE(hd_row_rope_d, double)

// --- column sums: n partial sums a column, added in order
static inline void hd_add_partials(const float *partial, int64_t n, int64_t cols, float *sum) {
#ifdef _OPENMP
#pragma omp parallel for schedule(static) if (n * cols > 65536)
#endif
    for (int64_t block = 0; block < cols; block += 64) {
        const int64_t end = block + 64 < cols ? block + 64 : cols;
        for (int64_t c = block; c < end; c++) sum[c] = partial[c];
        for (int64_t i = 1; i < n; i++)
            for (int64_t c = block; c < end; c++) sum[c] += partial[i * cols + c];
    }
}
#endif
