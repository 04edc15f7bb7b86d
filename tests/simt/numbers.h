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
enum Type { BF16, F16 };
inline float from(Type t, u32 v) { return t == BF16 ? from_bf16(v & 0xffff) : from_f16(v & 0xffff); }
} // namespace simt
#endif
