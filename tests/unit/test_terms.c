// The rules of terms about rounding (passes/verify/values/term_exact.c, term_rules.c) against the evaluator: where a
// rule says that a cast changes nothing, it changes no value of 16 bits, and no f32 of a sample.
#include "ir/eval/eval.h"
#include "passes/verify/values/term_walk.h"
#include "tests/unit/check.h"
#include "tests/unit/hashes.h"
#include "tests/unit/module.h"
#include <math.h>

enum { ALL = 1 << 16 };
static const DType floats[] = {TY_F32, TY_BF16, TY_F16, TY_F64, TY_E4M3, TY_E5M2};
enum { N_FLOATS = sizeof floats / sizeof *floats };

static bool same(double a, double b) { return (isnan(a) && isnan(b)) || (a == b && signbit(a) == signbit(b)); }

// Value i of a dtype: all of those of 16 bits; of the wider ones those near to values of 16 bits, and others.
static double value(DType d, int i) {
    const uint32_t bits = (uint32_t)i << 16;
    const int size = i >> 10 & 31, part = i & 1023;
    float bf16;
    memcpy(&bf16, &bits, sizeof bf16);
    const double sign = i >> 15 ? -1 : 1;
    const double f16 = size == 31 ? (part ? (double)NAN : sign * (double)INFINITY)
                                  : sign * ldexp(size ? 1024 + part : part, (size ? size : 1) - 25);
    if (d == TY_BF16) return (double)bf16;
    if (d == TY_F16) return f16;
    if (hd_dtype_is_fp8(d)) return hd_round(d, i & 256 ? f16 : (double)bf16);
    const double of[] = {(double)bf16, f16, (double)bf16 * (1 + 0x1p-9), f16 * (1 + ldexp(1, -(i % 30)))};
    return hd_round(d, of[mix((uint64_t)i, 3) % 4]);
}

TEST(a_wider_dtype_holds_all_values) {
    int pairs = 0;
    for (int n = 0; n < N_FLOATS; n++)
        for (int w = 0; w < N_FLOATS; w++) {
            const bool said = hd_exact_values(floats[n]) >> floats[w] & 1;
            bool holds = true;
            for (int i = 0; i < ALL; i++) {
                const double v = value(floats[n], i);
                holds &= same(hd_round(floats[w], v), v);
            }
            CHECK(said == holds);
            pairs += said;
        }
    CHECK_INT(pairs, 6 + 2 + 2 + 1 + 4 + 4); // each itself, those of 16 bits f32 and f64, f32 f64, of 8 bits all wider
}

static Terms terms_in(Ctx *cx) { return (Terms){.a = cx->arena, .cx = cx, .ranks = 1}; }

static const Term *leaf(const Terms *t, DType d) {
    return hd_term_leaf(t, "argument", "x", 0, hd_type(t->cx, d, 0, NULL));
}

// Every pointwise op of which it is said that results for operands of d are values of d. Operand 0 takes every value,
// the others some.
static int exact_ops(DType d) {
    Ctx *cx = hd_ctx_new();
    const Terms t = terms_in(cx);
    const Term *const in[] = {leaf(&t, d), leaf(&t, d), leaf(&t, d)};
    int ops = 0;
    for (int k = 0; k < N_OPS; k++) {
        const OpInfo *info = hd_op_info((OpKind)k);
        if (!(info->traits & TRAIT_ELEMENTWISE)) continue;
        if (!(hd_exact_result((OpKind)k, NULL, info->n_in, in) >> d & 1)) continue;
        int wrong = 0;
        for (int i = 0; i < ALL; i++)
            for (int n = 0; n < 8; n++) {
                const uint64_t h = mix((uint64_t)i, (uint64_t)n);
                const double b = n ? value(d, (int)(h % ALL)) : value(d, i), c = value(d, (int)(h >> 20) % ALL);
                const double v = hd_eval_elt((OpKind)k, true, value(d, i), b, c);
                wrong += !same(hd_round(d, v), v);
            }
        if (wrong) fprintf(stderr, "%s: %d results are no %s\n", info->mnemonic, wrong, hd_dtype_text(d));
        CHECK_INT(wrong, 0);
        ops++;
    }
    hd_ctx_free(cx);
    return ops;
}

TEST(what_ops_pick_is_a_value_of_their_operands) {
    CHECK_INT(exact_ops(TY_BF16), 16); // six comparisons, sign, step, neg, abs, max, min, where, relu, relu_grad,
    CHECK_INT(exact_ops(TY_F16), 16);  // stop_gradient
    CHECK_INT(exact_ops(TY_E4M3), 16);
    CHECK_INT(exact_ops(TY_E5M2), 16);
}

// x cast to `first` and then to `last`; x has dtype d.
static void cast_twice(const Terms *t, DType d, DType first, DType last, int *one) {
    const Term *x = leaf(t, d), *twice = hd_term_cast(t, hd_term_cast(t, x, first), last);
    if (!hd_term_same(twice->hash, hd_term_cast(t, x, last)->hash)) return;
    int wrong = 0;
    for (int i = 0; i < ALL; i++) {
        const double v = value(d, i);
        wrong += !same(hd_round(last, hd_round(first, v)), hd_round(last, v));
    }
    CHECK_INT(wrong, 0);
    *one += 1;
}

TEST(a_cast_that_changes_nothing_is_left_out) {
    Ctx *cx = hd_ctx_new();
    const Terms t = terms_in(cx);
    int one = 0;
    for (int i = 0; i < N_FLOATS * N_FLOATS * N_FLOATS; i++)
        cast_twice(&t, floats[i / N_FLOATS / N_FLOATS], floats[i / N_FLOATS % N_FLOATS], floats[i % N_FLOATS], &one);
    CHECK_INT(one, 19 * 6 + 17); // first holds all of d; or first is last and is not: it is one cast then
    const Term *half = leaf(&t, TY_F16), *of_half = hd_term_cast(&t, half, TY_BF16);
    CHECK(hd_term_fits(hd_term_cast(&t, half, TY_F32), TY_F16));
    CHECK(!hd_term_fits(of_half, TY_F16) && hd_round(TY_F16, hd_round(TY_BF16, 65504)) > 65504);
    hd_ctx_free(cx);
}

TEST(numbers_that_a_dtype_holds) {
    static const double numbers[] = {0, -0.0, 1, -2, 0.5, 0.1, 257, 65504, 65505, 0x1p-24, 0x1p-133, 1e300, 0x1p-1070};
    Ctx *cx = hd_ctx_new();
    const Terms t = terms_in(cx);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        for (int d = 0; d < N_FLOATS; d++)
            for (int k = 0; k < N_FLOATS; k++) {
                Attrs as = {0};
                hd_set_float(cx, &as, A_VALUE, numbers[i]);
                const Term *x = hd_term_plain(&t, OP_CONST, 0, hd_type(cx, floats[d], 0, NULL), &as, 0, NULL);
                const double v = hd_round(floats[d], numbers[i]);
                CHECK(!hd_term_fits(x, floats[k]) || same(hd_round(floats[k], v), v));
                CHECK(hd_term_fits(x, floats[k]) || !same(numbers[i], v) || !same(hd_round(floats[k], v), v));
            }
    hd_ctx_free(cx);
}

// --- kernels

static bool same_bits(const Module *m, const Func *f, Arena *a) {
    Eval *e = hd_eval_new(m, EVAL_ROUNDED, a);
    Tensor in[2], out[2];
    for (int i = 0; i < 2; i++) {
        in[i] = hd_tensor(a, f->args[i]->type);
        for (int k = 0; k < ALL; k++) {
            const double v = value(TY_BF16, i ? (int)(mix((uint64_t)k, 1) % ALL) : k);
            in[i].data[k] = isnan(v) ? 1 : v; // one NaN would make a row of them
        }
    }
    const char *wrong = hd_eval(e, f, in, out);
    CHECK_TEXT(wrong ? wrong : "", "");
    for (int k = 0; !wrong && k < ALL; k++)
        if (!same(out[0].data[k], out[1].data[k])) return false;
    return true;
}

TEST(kernels_with_casts_and_without) {
    Ctx *cx = hd_ctx_new();
    Module *m = test_module(cx, "terms.hir");
    TermWalk w = hd_term_walk(m, NULL, cx->arena);
    int functions = 0;
    for (Func *f = m->funcs; f; f = f->next) {
        if (f->is_kernel) continue;
        const bool want = !strncmp(f->name, "same", 4);
        hd_renumber(f);
        hd_term_func(&w, f);
        const Op *ret = hd_return(f);
        const bool one = hd_term_same(w.terms[ret->in[0]->id]->hash, w.terms[ret->in[1]->id]->hash);
        if (one != want || same_bits(m, f, cx->arena) != want) CHECK_TEXT(f->name, want ? "one term" : "two terms");
        functions++;
    }
    CHECK_INT(functions, 9);
    hd_ctx_free(cx);
}

int main(int argc, char **argv) { return run_tests(argc, argv); }
