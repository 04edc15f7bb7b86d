// Conversions and Philox, for a C compiler and for NVRTC alike: both read this text, so both make the same bits of the
// same input. NVRTC has no headers, only the types as names.
#ifndef RUNTIME_BITS_H
#define RUNTIME_BITS_H
#ifdef __CUDACC_RTC__
#define uint8_t unsigned char
#define uint16_t unsigned short
#define uint32_t unsigned
#define int64_t long long
#define uint64_t unsigned long long
#else
#include <stdint.h>
#include <string.h>
#endif

// --- conversions, rounding to nearest even. Written without branches, so that loops over them vectorise.
static inline float hd_float_of(uint32_t bits) {
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static inline uint32_t hd_bits_of(float f) {
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

static inline float hd_from_bf16(uint16_t h) { return hd_float_of((uint32_t)h << 16); }

static inline uint16_t hd_to_bf16(float f) {
    const uint32_t b = hd_bits_of(f);
    const uint32_t rounded = (b + 0x7fffu + ((b >> 16) & 1u)) >> 16;
    return (uint16_t)((b & 0x7fffffffu) > 0x7f800000u ? (b >> 16) | 0x40u : rounded); // a NaN stays one
}

static inline float hd_from_f16(uint16_t h) {
    const uint32_t magnitude = (uint32_t)(h & 0x7fffu) << 13, sign = (uint32_t)(h & 0x8000u) << 16;
    const float scaled = hd_float_of(magnitude) * 0x1p112f; // moves the exponent; subnormals become normal
    const uint32_t special = (h & 0x7c00u) == 0x7c00u ? 0x7f800000u : 0u;
    return hd_float_of(hd_bits_of(scaled) | special | sign);
}

static inline uint16_t hd_to_f16(float f) {
    const uint32_t b = hd_bits_of(f), sign = (b >> 16) & 0x8000u, magnitude = b & 0x7fffffffu;
    const uint32_t normal = (magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
    const uint32_t subnormal = hd_bits_of(hd_float_of(magnitude) + 0.5f) - 0x3f000000u; // the addition rounds to 2^-24
    const uint32_t finite = magnitude < 0x38800000u ? subnormal : normal;
    const uint32_t large = magnitude > 0x7f800000u ? 0x7e00u : 0x7c00u;
    return (uint16_t)(sign | (magnitude >= 0x477ff000u ? large : finite));
}

// Types of one byte saturate: what rounds beyond the largest value, an infinity too, is the largest value. A NaN is
// 0x7f. `bias`, `shift` and `unit` are those of the type: the difference of the exponents' biases, the bits of a f32's
// mantissa that it lacks, and 2^23 times its least subnormal number, to which an addition rounds.
static inline uint8_t hd_to_fp8(float f, uint32_t bias, int shift, float unit, uint32_t largest) {
    const uint32_t b = hd_bits_of(f), sign = (b >> 24) & 0x80u, magnitude = b & 0x7fffffffu;
    const uint32_t half = (1u << (shift - 1)) - 1u + ((magnitude >> shift) & 1u);
    const uint32_t normal = (magnitude - (bias << 23) + half) >> shift;
    const uint32_t subnormal = hd_bits_of(hd_float_of(magnitude) + unit) - hd_bits_of(unit);
    const uint32_t rounded = magnitude < (bias + 1u) << 23 ? subnormal : normal;
    const uint32_t finite = rounded > largest ? largest : rounded;
    return (uint8_t)(magnitude > 0x7f800000u ? 0x7fu : sign | finite);
}

static inline uint8_t hd_to_e4m3(float f) { return hd_to_fp8(f, 120, 20, 16384.0f, 0x7eu); }
static inline uint8_t hd_to_e5m2(float f) { return hd_to_fp8(f, 112, 21, 128.0f, 0x7bu); }

static inline float hd_from_e4m3(uint8_t q) {
    const float scaled = hd_float_of((uint32_t)(q & 0x7fu) << 20) * 0x1p120f;
    const uint32_t special = (q & 0x7fu) == 0x7fu ? 0x7fc00000u : 0u, sign = (uint32_t)(q & 0x80u) << 24;
    return hd_float_of(hd_bits_of(scaled) | special | sign);
}

static inline float hd_from_e5m2(uint8_t q) { return hd_from_f16((uint16_t)(q << 8)); } // its upper byte

// --- Philox 4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011)
static inline void hd_philox_words(const uint32_t key[2], const uint32_t counter[4], uint32_t word[4]) {
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3], k0 = key[0], k1 = key[1];
    for (int round = 0; round < 10; round++) {
        const uint64_t p0 = (uint64_t)c0 * 0xD2511F53u, p1 = (uint64_t)c2 * 0xCD9E8D57u;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    word[0] = c0, word[1] = c1, word[2] = c2, word[3] = c3;
}
#endif
