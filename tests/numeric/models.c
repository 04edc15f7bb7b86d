// Whole models: sampled gradients against finite differences, and the gradient of every compute dtype against the exact
// one.
#include "tests/numeric/finite.h"
#include "tests/numeric/examples.h"

static void against_differences(Test *t, const Model *model) {
    Loaded l = load(t, model, "train.precision.compute=f32", "simplify,autodiff,simplify,cse,dce");
    if (l.m) {
        uint64_t state = 3;
        fill_parameters(&l, EVAL_EXACT);
        double micro = (double)hd_int(&hd_config(l.m, "train")->attrs, A_MICRO, 1);
        compare(t, l.e, l.m, l.in, micro, 6, &state);
    }
    unload(&l);
}

// |gradient - exact| / |exact| over all parameters together.
static double distance(Test *t, const Model *model, const char *compute, EvalMode mode) {
    Loaded exact = load(t, model, "train.precision.compute=f32", "simplify,autodiff");
    Loaded other = load(t, model, compute, "simplify,cse,autodiff,precision,simplify,cse,dce");
    double apart = 0, size = 0;
    if (exact.m && other.m) {
        fill_parameters(&exact, EVAL_EXACT);
        fill_parameters(&other, mode);
        t->arena = exact.arena;
        double want = loss_at(t, exact.e, hd_func_find(exact.m, "micro"), exact.in);
        double got = loss_at(t, other.e, hd_func_find(other.m, "micro"), other.in);
        const double scale = (double)hd_int(&hd_config(other.m, "train")->attrs, A_LOSS_SCALE, 1);
        for (const Symbol *s = exact.m->symbols; s; s = s->next) {
            if (s->kind != SYM_PARAM) continue;
            Tensor a = hd_eval_gradient(exact.e, s->name), b = hd_eval_gradient(other.e, s->name);
            for (int64_t i = 0, n = hd_type_count(a.type); i < n; i++) {
                const double off = a.data[i] - b.data[i] / scale;
                apart += off * off;
                size += a.data[i] * a.data[i];
            }
        }
        printf("%s, %s: loss %.6f (exact %.6f), gradient off by %.2g\n", t->name, compute, got, want,
               sqrt(apart / size));
    }
    unload(&exact);
    unload(&other);
    return sqrt(apart / size);
}

int main(void) {
    Test t = {0};
    for (int i = 0; i < N_MODELS; i++) {
        t.name = models[i].name;
        against_differences(&t, &models[i]);
        // A value that passes through n roundings of relative size u (2^-25 for f32, 2^-12 for f16, 2^-9 for bf16) is
        // off by about u sqrt(n); n is near 40 in two layers, and cancellation in the residual stream costs a little
        // more: 16 u.
        static const struct { const char *compute; EvalMode mode; double bound;
        } rows[] = {
            {"train.precision.compute=f32", EVAL_ROUNDED, 16 * 0x1p-25},
            {"train.precision.compute=f16", EVAL_ROUNDED, 16 * 0x1p-12},
            {"train.precision.compute=bf16", EVAL_ROUNDED, 16 * 0x1p-9},
            {"train.precision.compute=bf16", EVAL_EXACT,
             1e-12}, // the casts alone change nothing: the parameters are exact in bf16
        };
        for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
            double off = distance(&t, &models[i], rows[k].compute, rows[k].mode);
            if (!(off <= rows[k].bound))
                fail(&t, "%s: gradient off by %.3g, more than %.3g", rows[k].compute, off, rows[k].bound);
        }
    }
    printf("%d gradient elements compared, %d failures\n", t.compared, t.failures);
    return t.failures != 0;
}
