// The types of one byte, after common.cu in programs that have one. Values are rounded to nearest even; beyond the
// largest value they are the largest.
struct e4m3 { unsigned char bits; };
struct e5m2 { unsigned char bits; };

__device__ __forceinline__ float widen(e5m2 x) {
    f16 upper = {(unsigned short)(x.bits << 8)};
    return widen(upper);
}
__device__ __forceinline__ float widen(e4m3 x) { // 2^120 moves the exponent; subnormals become normal
    const float y = __uint_as_float((x.bits & 0x7fu) << 20) * __uint_as_float(0x7b800000u);
    const unsigned special = (x.bits & 0x7fu) == 0x7fu ? 0x7fc00000u : 0u;
    return __uint_as_float(__float_as_uint(y) | special | (x.bits & 0x80u) << 24);
}

// As hd_to_fp8 in runtime/bits.h does it, for devices without an instruction.
__device__ __forceinline__ unsigned narrow_fp8(float x, unsigned bias, int shift, float unit, unsigned largest) {
    const unsigned b = __float_as_uint(x), sign = b >> 24 & 0x80u, magnitude = b & 0x7fffffffu;
    const unsigned normal = (magnitude - (bias << 23) + (1u << (shift - 1)) - 1u + (magnitude >> shift & 1u)) >> shift;
    const unsigned subnormal = __float_as_uint(__fadd_rn(__uint_as_float(magnitude), unit)) - __float_as_uint(unit);
    const unsigned rounded = magnitude < (bias + 1u) << 23 ? subnormal : normal;
    return magnitude > 0x7f800000u ? 0x7fu : sign | (rounded > largest ? largest : rounded);
}
__device__ __forceinline__ unsigned pair_e4m3(float high, float low) {
#if __CUDA_ARCH__ >= 890
    unsigned short y;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(y) : "f"(high), "f"(low));
    return y;
#else
    return narrow_fp8(high, 120, 20, 16384.0f, 0x7eu) << 8 | narrow_fp8(low, 120, 20, 16384.0f, 0x7eu);
#endif
}
__device__ __forceinline__ unsigned pair_e5m2(float high, float low) {
#if __CUDA_ARCH__ >= 890
    unsigned short y;
    asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(y) : "f"(high), "f"(low));
    return y;
#else
    return narrow_fp8(high, 112, 21, 128.0f, 0x7bu) << 8 | narrow_fp8(low, 112, 21, 128.0f, 0x7bu);
#endif
}
template <> struct Narrow<e4m3> {
    static __device__ __forceinline__ e4m3 from(float x) { return {(unsigned char)pair_e4m3(0.0f, x)}; }
};
template <> struct Narrow<e5m2> {
    static __device__ __forceinline__ e5m2 from(float x) { return {(unsigned char)pair_e5m2(0.0f, x)}; }
};
template <int V> struct Lane<e4m3, V> {
    static __device__ __forceinline__ float get(const unsigned *w, int j) {
        e4m3 x = {(unsigned char)(w[j / 4] >> (8 * (j % 4)) & 255u)};
        return widen(x);
    }
};
template <int V> struct Lane<e5m2, V> {
    static __device__ __forceinline__ float get(const unsigned *w, int j) {
        e5m2 x = {(unsigned char)(w[j / 4] >> (8 * (j % 4)) & 255u)};
        return widen(x);
    }
};
template <int V> struct Pack<e4m3, V> {
    static __device__ __forceinline__ void put(unsigned *w, const float *x) {
#pragma unroll
        for (int j = 0; j < V; j += 2)
            w[j / 4] = (j % 4 ? w[j / 4] : 0u) | pair_e4m3(j + 1 < V ? x[j + 1] : 0.0f, x[j]) << (8 * (j % 4));
    }
};
template <int V> struct Pack<e5m2, V> {
    static __device__ __forceinline__ void put(unsigned *w, const float *x) {
#pragma unroll
        for (int j = 0; j < V; j += 2)
            w[j / 4] = (j % 4 ? w[j / 4] : 0u) | pair_e5m2(j + 1 < V ? x[j + 1] : 0.0f, x[j]) << (8 * (j % 4));
    }
};
