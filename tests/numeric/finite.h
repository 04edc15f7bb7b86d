// Gradients against finite differences of the evaluator.
//
// Bound: a difference of fourth order with h = 1e-3 has a truncation error of h^4/30 times the fifth derivative (about
// 1e-12 for the values used here) and a rounding error of 2^-52 |loss| / h (about 1e-13), so 1e-8 of the parameter's
// largest gradient is far above both, and far below the smallest error that a wrong rule could make.
#ifndef TESTS_NUMERIC_FINITE_H
#define TESTS_NUMERIC_FINITE_H
#include "ir/dropout.h"
#include "tests/numeric/harness.h"

static const double STEP = 1e-3, BOUND = 1e-8;

static double difference(Test *t, Eval *e, const Func *f, const Tensor *in, double *x, double step) {
    double at = *x, y[4];
    static const double where[4] = {1, -1, 2, -2};
    for (int i = 0; i < 4; i++) {
        ArenaMark mark = hd_arena_mark(t->arena);
        *x = at + where[i] * step;
        y[i] = loss_at(t, e, f, in);
        hd_arena_rewind(t->arena, mark);
    }
    *x = at;
    return (8 * (y[0] - y[1]) - (y[2] - y[3])) / (12 * step);
}

// The function that gives the differences: @eval, or with dropout, which it has not, @micro. Its masks stay the same.
static inline const Func *differentiated(const Module *m) {
    const Func *micro = hd_func_find(m, "micro");
    for (const Op *o = micro->first; o; o = o->next)
        if (hd_draws(o)) return micro;
    return hd_func_find(m, "eval");
}

// The gradient of a parameter; that of @micro, which the differences have run again, is computed anew.
static inline Tensor gradient_of(Test *t, Eval *e, const Module *m, const Tensor *in, const char *param) {
    const Func *micro = hd_func_find(m, "micro");
    if (differentiated(m) == micro) hd_eval_clear_gradients(e), loss_at(t, e, micro, in);
    Tensor g = hd_eval_gradient(e, param), copy = hd_tensor(t->arena, g.type);
    if (g.data) memcpy(copy.data, g.data, sizeof(double) * (size_t)hd_type_count(g.type));
    return g.data ? copy : g;
}

// At most `samples` elements of each parameter are compared.
static inline void compare(Test *t, Eval *e, const Module *m, const Tensor *in, double micro, int samples,
                           uint64_t *state) {
    const Func *eval = differentiated(m), *backward = hd_func_find(m, "micro");
    double forward = loss_at(t, e, eval, in), loss = loss_at(t, e, backward, in);
    if (!(fabs(forward - loss) <= 1e-14 * fabs(forward))) fail(t, "@eval gives %.17g, @micro %.17g", forward, loss);
    for (const Symbol *s = m->symbols; s; s = s->next) {
        if (s->kind != SYM_PARAM) continue;
        Tensor p = hd_eval_storage(e, s->name), g = gradient_of(t, e, m, in, s->name);
        if (!g.data) { fail(t, "@%s has no gradient", s->name); continue; }
        int64_t n = hd_type_count(p.type);
        double largest = 1e-3;
        for (int64_t i = 0; i < n; i++) largest = fmax(largest, fabs(g.data[i]));
        for (int64_t k = 0; k < n && k < samples; k++) {
            int64_t i = n <= samples ? k : (int64_t)uniform(state, 0, (double)n);
            double want = difference(t, e, eval, in, &p.data[i], STEP) / micro;
            t->compared++;
            if (!(fabs(g.data[i] - want) <= BOUND * largest))
                fail(t, "@%s[%lld]: gradient %.12g, difference %.12g", s->name, (long long)i, g.data[i], want);
        }
    }
}
#endif
