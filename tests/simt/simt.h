// The names that a kernel's text may use: the part of CUDA C++ that Heddle generates, on engine.h. Included before the
// text.
#ifndef TESTS_SIMT_SIMT_H
#define TESTS_SIMT_SIMT_H
#include "tests/simt/engine.h"
#define _GLIBCXX_INCLUDE_NEXT_C_HEADERS // C's own: C++'s takes half of the time of a small module
#include <math.h>
#undef _GLIBCXX_INCLUDE_NEXT_C_HEADERS
#include <cstring>
#include <initializer_list>
#include <utility>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __grid_constant__
#define threadIdx simt::thread_index
#define blockIdx simt::block_index
#define blockDim simt::block_size
#define gridDim simt::grid_size

// --- vectors

#define SIMT_VECTOR(name, type, align2, align4)                                                    \
    struct alignas(align2) name##2 { type x, y; };                                                 \
    struct alignas(align4) name##4 { type x, y, z, w; };                                           \
    static inline name##2 make_##name##2(type x, type y) { return {x, y}; }                        \
    static inline name##4 make_##name##4(type x, type y, type z, type w) { return {x, y, z, w}; }
SIMT_VECTOR(float, float, 8, 16)
SIMT_VECTOR(int, int, 8, 16)
SIMT_VECTOR(uint, unsigned, 8, 16)
SIMT_VECTOR(double, double, 16, 16)
#undef SIMT_VECTOR
struct ushort2 { unsigned short x, y; };

// --- bits and rounded arithmetic (round to nearest even: what the CPU does)

static inline unsigned __float_as_uint(float v) { return simt::bits<unsigned>(v); }
static inline int __float_as_int(float v) { return simt::bits<int>(v); }
static inline float __uint_as_float(unsigned v) { return simt::bits<float>(v); }
static inline float __int_as_float(int v) { return simt::bits<float>(v); }
static inline long long __double_as_longlong(double v) { return simt::bits<long long>(v); }
static inline double __longlong_as_double(long long v) { return simt::bits<double>(v); }
static inline int __double2hiint(double v) { return (int)(simt::bits<simt::u64>(v) >> 32); }
static inline int __double2loint(double v) { return (int)simt::bits<simt::u64>(v); }
static inline double __hiloint2double(int hi, int lo) {
    return simt::bits<double>((simt::u64)(unsigned)hi << 32 | (unsigned)lo);
}
static inline float __fadd_rn(float a, float b) { return a + b; }
static inline float __fsub_rn(float a, float b) { return a - b; }
static inline float __fmul_rn(float a, float b) { return a * b; }
static inline float __fdiv_rn(float a, float b) { return a / b; }
static inline float __fsqrt_rn(float a) { return sqrtf(a); }
static inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
static inline float __frcp_rn(float a) { return 1.0f / a; }
static inline double __dadd_rn(double a, double b) { return a + b; }
static inline double __dsub_rn(double a, double b) { return a - b; }
static inline double __dmul_rn(double a, double b) { return a * b; }
static inline double __ddiv_rn(double a, double b) { return a / b; }
static inline double __dsqrt_rn(double a) { return sqrt(a); }
static inline double __fma_rn(double a, double b, double c) { return fma(a, b, c); }
#define __expf expf
#define __logf logf
static inline float rsqrtf(float a) { return 1.0f / sqrtf(a); }
static inline double rsqrt(double a) { return 1.0 / sqrt(a); }
static inline void sincospif(float a, float *s, float *c) {
    *s = (float)sin(M_PI * (double)a);
    *c = (float)cos(M_PI * (double)a);
}
static inline void sincospi(double a, double *s, double *c) { *s = sin(M_PI * a), *c = cos(M_PI * a); }
static inline unsigned __byte_perm(unsigned low, unsigned high, unsigned which) {
    const simt::u64 all = (simt::u64)high << 32 | low;
    unsigned y = 0;
    for (int i = 0; i < 4; i++) y |= (unsigned)(all >> 8 * (which >> 4 * i & 7) & 255) << 8 * i;
    return y;
}
static inline int __popc(unsigned v) { return __builtin_popcount(v); }
static inline int __clz(int v) { return v ? __builtin_clz((unsigned)v) : 32; }
static inline int __ffs(int v) { return __builtin_ffs(v); }
static inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)((simt::u64)a * b >> 32); }
static inline unsigned min(unsigned a, unsigned b) { return a < b ? a : b; }
static inline unsigned max(unsigned a, unsigned b) { return a > b ? a : b; }
static inline int min(int a, int b) { return a < b ? a : b; }
static inline int max(int a, int b) { return a > b ? a : b; }
static inline long long min(long long a, long long b) { return a < b ? a : b; }
static inline long long max(long long a, long long b) { return a > b ? a : b; }

// --- memory: one thread runs at a time, so each access is atomic

template <class T> static inline T __ldg(const T *p) { return *p; }
template <class T> static inline T __ldcg(const T *p) { return *p; }
template <class T> static inline T __ldcs(const T *p) { return *p; }
template <class T> static inline void __stcg(T *p, T v) { *p = v; }
template <class T> static inline void __stcs(T *p, T v) { *p = v; }
// An access that may race with others of its kind; it is no plain access of its place.
#define SIMT_ATOMIC __attribute__((no_sanitize("kernel-address"))) static inline
template <class T, class V> SIMT_ATOMIC T atomicAdd(T *p, V v) {
    simt::atomic(p, sizeof *p, false);
    const T old = *p;
    *p = (T)(old + (T)v);
    return old;
}
template <class T, class V> SIMT_ATOMIC T atomicMax(T *p, V v) {
    simt::atomic(p, sizeof *p, false);
    const T old = *p;
    *p = old < (T)v ? (T)v : old;
    return old;
}
template <class T, class V> SIMT_ATOMIC T atomicSub(T *p, V v) {
    simt::atomic(p, sizeof *p, false);
    const T old = *p;
    *p = (T)(old - (T)v);
    return old;
}
static inline void __threadfence() { simt::fence(); }
static inline void __threadfence_block() {} // orders nothing between blocks
static inline size_t __cvta_generic_to_shared(const void *p) { return simt::shared_address(p); }

// --- blocks and warps

static inline void __syncthreads() { simt::barrier(0, -1, true); }
static inline int __syncthreads_count(int yes) { return simt::barrier_count(yes != 0); }
static inline int __syncthreads_or(int yes) { return simt::barrier_count(yes != 0) > 0; }
namespace simt {
template <class T> T shuffled(unsigned mask, T v, int from) {
    Shuffle s = {0, 0, from};
    memcpy(&s.in, &v, sizeof v);
    together(mask, shuffle, &s);
    memcpy(&v, &s.out, sizeof v);
    return v;
}
} // namespace simt
static inline void __syncwarp(unsigned mask = ~0u) { simt::together(mask, simt::meet, nullptr); }
static inline unsigned __ballot_sync(unsigned mask, int yes) {
    simt::Ballot b = {yes != 0, 0};
    simt::together(mask, simt::ballot, &b);
    return b.out;
}
static inline int __any_sync(unsigned mask, int yes) { return __ballot_sync(mask, yes) != 0; }
static inline int __all_sync(unsigned mask, int yes) { return __ballot_sync(mask, !yes) == 0; }
template <class T> static inline T __shfl_sync(unsigned mask, T v, int from, int width = 32) {
    const int l = simt::lane();
    return simt::shuffled(mask, v, (l & ~(width - 1)) + (from & (width - 1)));
}
template <class T> static inline T __shfl_xor_sync(unsigned mask, T v, int with, int width = 32) {
    const int l = simt::lane(), from = l ^ with;
    return simt::shuffled(mask, v, (from & ~(width - 1)) == (l & ~(width - 1)) ? from : l);
}
template <class T> static inline T __shfl_up_sync(unsigned mask, T v, int by, int width = 32) {
    const int l = simt::lane();
    return simt::shuffled(mask, v, (l & (width - 1)) >= by ? l - by : l);
}
template <class T> static inline T __shfl_down_sync(unsigned mask, T v, int by, int width = 32) {
    const int l = simt::lane();
    return simt::shuffled(mask, v, (l & (width - 1)) + by < width ? l + by : l);
}

// --- a module's list of kernels (compile.py)

namespace simt {
template <class... A> inline const unsigned *bytes(void (*)(A...)) {
    static const unsigned of[] = {(unsigned)sizeof(A)..., 0};
    return of;
}
template <class... A> constexpr int params(void (*)(A...)) { return (int)sizeof...(A); }
template <class... A, size_t... I> // reads the arguments, which are in no memory of the device
__attribute__((no_sanitize("kernel-address"))) void call(void (*f)(A...), void **args, std::index_sequence<I...>) {
    f(*(typename std::remove_cv<A>::type *)args[I]...);
}
template <class... A> inline void call(void (*f)(A...), void **args) { call(f, args, std::index_sequence_for<A...>()); }
} // namespace simt
#endif
