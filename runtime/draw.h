// Initial values of parameters: element i of parameter k depends on (seed, k, i) alone. A C compiler and NVRTC both
// read this text. All of its arithmetic is that of IEEE doubles, each result rounded once, in one order: +, -, *, /,
// sqrt and conversions, and no function of a library whose last bit could differ. Neither compiler may contract a
// product and a sum (-ffp-contract=off, -fmad=false). So the device makes the host's bits.
#ifndef RUNTIME_DRAW_H
#define RUNTIME_DRAW_H
#ifndef __CUDACC_RTC__
#include "runtime/bits.h"
#include <math.h>
#endif

enum { HD_DRAW_CONST, HD_DRAW_UNIFORM, HD_DRAW_NORMAL, HD_DRAW_TRUNCATED };
typedef struct HdDraw { // elements [first, first + count) of parameter number `stream`
    uint64_t seed, stream;
    int64_t first, count;
    double scale; // of a constant its value, of a uniform one half its width, else the standard deviation, which is
                  // that before truncation
    int kind;
} HdDraw;

static inline double hd_draw_cubic(double r, double c3, double c2, double c1, double c0) {
    return ((c3 * r + c2) * r + c1) * r + c0;
}

// The natural logarithm of a normal number x > 0, within 1 ulp where it is not close to 0: with x = 2^e m and m between
// sqrt(1/2) and sqrt(2), e log 2 + 2 atanh(s), s = (m - 1) / (m + 1), by the series of atanh.
static inline double hd_draw_log(double x) {
    uint64_t bits;
    double m;
    memcpy(&bits, &x, sizeof bits);
    int e = (int)(bits >> 52) - 1023;
    bits = (bits & 0xfffffffffffffu) | 0x3ff0000000000000u;
    memcpy(&m, &bits, sizeof m);
    if (m > 0x1.6a09e667f3bcdp0) {
        m = m * 0.5;
        e++;
    }
    const double s = (m - 1) / (m + 1), z = s * s;
    double sum = hd_draw_cubic(z, 1.0 / 25, 1.0 / 23, 1.0 / 21, 1.0 / 19);
    sum = hd_draw_cubic(z, sum * z + 1.0 / 17, 1.0 / 15, 1.0 / 13, 1.0 / 11);
    sum = hd_draw_cubic(z, sum * z + 1.0 / 9, 1.0 / 7, 1.0 / 5, 1.0 / 3);
    // log 2 in two parts: the product of e and the first is exact
    return e * 0x1.62e42feep-1 + (2 * s + (2 * s * (z * sum) + e * 0x1.a39ef35793c76p-33));
}

// The standard normal quantile of p in (0, 1): Wichura's algorithm AS 241 (PPND7), relative error about 1e-7.
static inline double hd_draw_quantile(double p) {
    const double q = p - 0.5;
    if (fabs(q) <= 0.425) {
        const double r = 0.180625 - q * q;
        return q * (hd_draw_cubic(r, 59.109374720, 159.29113202, 50.434271938, 3.3871327179) /
                    hd_draw_cubic(r, 67.187563600, 78.757757664, 17.895169469, 1.0));
    }
    const double t = sqrt(-hd_draw_log(q < 0 ? p : 1 - p));
    double a, b;
    if (t <= 5) {
        const double r = t - 1.6;
        a = hd_draw_cubic(r, 0.17023821103, 1.3067284816, 2.7568153900, 1.4234372777);
        b = (0.12021132975 * r + 0.73700164250) * r + 1.0;
    } else {
        const double r = t - 5;
        a = hd_draw_cubic(r, 0.017337203997, 0.42868294337, 3.0812263860, 6.6579051150);
        b = (0.012258202635 * r + 0.24197894225) * r + 1.0;
    }
    return q < 0 ? -a / b : a / b;
}

// Of the four words of Philox's block i / 4, word i % 4 makes element i.
static inline void hd_draw_words(const HdDraw *d, int64_t block, uint32_t word[4]) {
    const uint32_t key[2] = {(uint32_t)d->seed, (uint32_t)(d->seed >> 32)},
                   counter[4] = {(uint32_t)block, (uint32_t)((uint64_t)block >> 32), (uint32_t)d->stream,
                                 (uint32_t)(d->stream >> 32)};
    hd_philox_words(key, counter, word);
}

static inline float hd_draw_value(const HdDraw *d, uint32_t word) {
    const double u = ((double)word + 0.5) * 0x1p-32;
    if (d->kind == HD_DRAW_CONST) return (float)d->scale;
    const double cut = 0.022750131948179207; // of the normal distribution lies below -2, and as much above 2
    switch (d->kind) {
    case HD_DRAW_NORMAL: return (float)(d->scale * hd_draw_quantile(u));
    case HD_DRAW_TRUNCATED: return (float)(d->scale * hd_draw_quantile(cut + u * (1 - 2 * cut)));
    default: return (float)(d->scale * (2 * u - 1));
    }
}
#endif
