// Numbers of 16 bits.
#ifndef TESTS_SIMT_NUMBERS_H
#define TESTS_SIMT_NUMBERS_H
#include <cstdint>
#include <cstring>

namespace simt {
typedef uint32_t u32;
template <class To, class From> inline To bits(From v) {
    static_assert(sizeof(To) == sizeof(From), "another size");
    To t;
    memcpy(&t, &v, sizeof t);
    return t;
}
inline u32 to_bf16(float v) { // to nearest even
    const u32 b = bits<u32>(v);
    if ((b & 0x7fffffff) > 0x7f800000) return 0x7fff;
    return (b + 0x7fff + (b >> 16 & 1)) >> 16;
}
inline float from_bf16(u32 v) { return bits<float>(v << 16); }
inline u32 to_f16(float v) {
    const _Float16 h = (_Float16)v;
    return v != v ? 0x7fff : bits<unsigned short>(h);
}
inline float from_f16(u32 v) { return (float)bits<_Float16>((unsigned short)v); }
// To a type of one byte, whose least normal number is 2^least: to nearest even; beyond the largest it is the largest.
inline u32 to_fp8(float v, int mantissa, int least, float largest) {
    if (v != v) return 0x7f;
    const float size = __builtin_fminf(__builtin_fabsf(v), largest);
    const int above = size > 0 ? __builtin_ilogbf(size) : least, exponent = above > least ? above : least;
    const float steps = __builtin_nearbyintf(__builtin_ldexpf(size, mantissa - exponent)); // up to 2^(mantissa + 1)
    return (u32)((exponent - least) << mantissa) + (u32)steps + (__builtin_signbit(v) ? 0x80 : 0);
}
inline u32 to_e4m3(float v) { return to_fp8(v, 3, -6, 448); }
inline u32 to_e5m2(float v) { return to_fp8(v, 2, -14, 57344); }
inline u32 e4m3_to_f16(u32 v) { // 2^8 moves the exponent
    if ((v & 0x7f) == 0x7f) return 0x7fff;
    return to_f16(256 * from_f16((v & 0x7f) << 7)) | (v & 0x80) << 8;
}
enum Type { BF16, F16 };
inline float from(Type t, u32 v) { return t == BF16 ? from_bf16(v & 0xffff) : from_f16(v & 0xffff); }
} // namespace simt
#endif
