// Integers: the argument of a %lld, division rounded up, rounding up, powers. All take n >= 0 and step > 0.
#ifndef IR_BASE_INTS_H
#define IR_BASE_INTS_H
#include <stdint.h>

enum { HD_ALIGN = 256 }; // bytes: values, buffers and workspaces of an arena start at multiples of it

static inline long long ll(int64_t v) { return (long long)v; }
static inline int64_t hd_ceil_div(int64_t n, int64_t step) { return (n + step - 1) / step; }
static inline int64_t hd_round_up(int64_t n, int64_t step) { return hd_ceil_div(n, step) * step; }
static inline int64_t hd_align_to(int64_t n, int64_t power) { return (n + power - 1) & ~(power - 1); } // a power of two
static inline int hd_is_power(int64_t n) { return n > 0 && !(n & (n - 1)); } // of two
static inline int64_t hd_align(int64_t bytes) { return hd_align_to(bytes, HD_ALIGN); }
#endif
