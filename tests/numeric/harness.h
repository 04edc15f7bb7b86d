// Declarations that the numeric tests share: failures, random numbers, running a function.
#ifndef TESTS_NUMERIC_HARNESS_H
#define TESTS_NUMERIC_HARNESS_H
#include "ir/eval/eval.h"
#include "passes/pass.h"
#include <math.h>
#include <stdio.h>

// --- random numbers: splitmix64
static inline double uniform(uint64_t *state, double lo, double hi) {
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return lo + (hi - lo) * (double)((z ^ (z >> 31)) >> 11) / 9007199254740992.0;
}

typedef struct { const char *name; bool covered[N_OPS]; int failures, compared; bool positive; Arena *arena; } Test;

static void fail(Test *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void fail(Test *t, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    fprintf(stderr, "%s: ", t->name);
    vfprintf(stderr, fmt, ap);
    fprintf(stderr, "\n");
    va_end(ap);
    t->failures++;
}

static inline double loss_at(Test *t, Eval *e, const Func *f, const Tensor *in) {
    Tensor out;
    const char *wrong = hd_eval(e, f, in, &out);
    if (wrong) fail(t, "%s", wrong);
    return wrong ? 0 : out.data[0];
}
#endif
