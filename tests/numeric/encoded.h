// Numbers as bytes of a dtype, and back, for the tests of compiled code.
#ifndef TESTS_NUMERIC_ENCODED_H
#define TESTS_NUMERIC_ENCODED_H
#include "tests/numeric/harness.h"

static inline void encode(DType d, const double *x, int64_t n, char *bytes) {
    for (int64_t i = 0; i < n; i++) {
        float f = (float)x[i];
        double r = hd_round(d, x[i]);
        int32_t whole;
        uint32_t b;
        uint16_t h;
        switch (d) {
        case TY_F32: memcpy(bytes + 4 * i, &f, 4); break;
        case TY_F64: memcpy(bytes + 8 * i, &x[i], 8); break;
        case TY_I32: whole = (int32_t)x[i]; memcpy(bytes + 4 * i, &whole, 4); break;
        case TY_BF16:
            f = (float)r;
            memcpy(&b, &f, 4);
            h = (uint16_t)(b >> 16);
            memcpy(bytes + 2 * i, &h, 2);
            break;
        case TY_F16: { // r is exact in half precision: scale its exponent into place
            f = (float)r * 0x1p-112f;
            memcpy(&b, &f, 4);
            h = (uint16_t)((isnan(r)   ? 0x7e00u
                            : isinf(r) ? 0x7c00u
                                       : (b & 0x7fffffffu) >> 13) | (b >> 16 & 0x8000u));
            memcpy(bytes + 2 * i, &h, 2);
            break;
        }
        default: HD_BUG("no test encodes %s", hd_dtype_text(d));
        }
    }
}

static inline double decode(DType d, const char *bytes, int64_t i) {
    float f;
    double x;
    int32_t whole;
    uint16_t h;
    uint32_t b;
    switch (d) {
    case TY_F32: memcpy(&f, bytes + 4 * i, 4); return (double)f;
    case TY_F64: memcpy(&x, bytes + 8 * i, 8); return x;
    case TY_I32: memcpy(&whole, bytes + 4 * i, 4); return whole;
    case TY_BF16:
        memcpy(&h, bytes + 2 * i, 2);
        b = (uint32_t)h << 16;
        memcpy(&f, &b, 4);
        return (double)f;
    case TY_F16:
        memcpy(&h, bytes + 2 * i, 2);
        if ((h & 0x7c00) == 0x7c00)
            return h & 0x3ff ? (double)NAN : (h & 0x8000 ? -(double)INFINITY : (double)INFINITY);
        b = (uint32_t)(h & 0x7fff) << 13 | (uint32_t)(h & 0x8000) << 16;
        memcpy(&f, &b, 4);
        return (double)(f * 0x1p112f);
    default: HD_BUG("no test decodes %s", hd_dtype_text(d));
    }
}
#endif
