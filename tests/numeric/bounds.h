// How far a target's results may be from the reference evaluator's: the rows of tests/numeric/bounds.def.
#ifndef TESTS_NUMERIC_BOUNDS_H
#define TESTS_NUMERIC_BOUNDS_H
#include "ir/shapes.h"
#include "tests/numeric/harness.h"
#include <string.h>

// A product of e4m3 or e5m2 on a device. Its tensor cores add products to a running sum in 14 bits, from the first bit
// of the largest of them on, and cut off what is below. A cut is less than 2^-13 of what is largest, and cuts have
// either sign: a sum is off by some 2^-13 of the sum of the magnitudes at most. Measured on an H200 in all cases: 0.8
// of that. The host and the emulator add in f32.
#define FP8_SUM 0x1p-13

typedef enum { ANY, ATTENTION, RANDOM } BoundOps;
typedef struct { DType dtype; BoundOps ops; const char *target; double relative, of_row, of_largest, absolute; } Bound;

static inline const Op *attention_in(const Func *f) { // the first op of attention or its gradient; NULL: there is none
    for (const Op *o = f->first; o; o = o->next)
        if (o->kind == OP_ATTENTION || o->kind == OP_ATTENTION_GRAD) return o;
    return NULL;
}

static inline Bound bound_of(DType d, const Func *f, const char *target) {
    static const Bound bounds[] = {
#define BOUND(dtype, ops, target, relative, of_row, of_largest, absolute, reason)                                      \
    {TY_##dtype, ops, #target, relative, of_row, of_largest, absolute},
#include "tests/numeric/bounds.def"
#undef BOUND
    };
    Bound found = {0};
    const bool fits[] = {[ANY] = true, [ATTENTION] = attention_in(f), [RANDOM] = f->name[0] == 'r'};
    for (size_t i = 0; i < sizeof bounds / sizeof *bounds; i++) {
        const Bound *b = &bounds[i];
        if (b->dtype == d && fits[b->ops] && (!strcmp(b->target, "any") || !strcmp(b->target, target))) found = *b;
    }
    return found;
}

static inline double largest_of(const double *x, int64_t n) {
    double largest = 0;
    for (int64_t i = 0; i < n; i++) largest = isfinite(x[i]) ? fmax(largest, fabs(x[i])) : largest;
    return largest;
}

// By how much each element of a result may be off.
static inline double *allowed_errors(Arena *a, const Bound *b, const Func *f, Tensor want) {
    const int64_t n = hd_type_count(want.type), row = b->of_row > 0 ? hd_attention_shape(attention_in(f)).size : n;
    const double largest = largest_of(want.data, n);
    double *allowed = HD_NEWN(a, double, n + 1);
    for (int64_t at = 0; at < n; at += row) {
        const int64_t end = at + row < n ? at + row : n;
        double more = b->of_largest * largest;
        if (b->of_row > 0) // a row of zeroes has errors of f32 sums, of terms that are about as large as the largest
            more = fmin(more, b->of_row * fmax(largest_of(want.data + at, end - at), largest * 0x1p-10));
        for (int64_t i = at; i < end; i++) allowed[i] = b->relative * fabs(want.data[i]) + more + b->absolute;
    }
    return allowed;
}
#endif
