// The evaluator against values worked out by hand (or by the closed form beside them).
#include "ir/eval/eval.h"
#include "runtime/heddle_host.h"
#include "tests/unit/check.h"
#include "tests/unit/module.h"
#include <math.h>

typedef struct { Ctx *cx; Arena *a; Module *m; Eval *e; const Func *f; Tensor out[8]; const char *wrong; } Run;

// Runs a function of tests/unit/ir/eval.hir or, from `stage kernels` on, eval_storage.hir; `values` fills its arguments
// one after another.
static Run run_mode(EvalMode mode, const char *file, const char *func, const double *values) {
    Run r = {.cx = hd_ctx_new(), .a = hd_arena_new()};
    r.m = test_module(r.cx, file);
    if (!r.m) {
        r.wrong = "does not compile";
        return r;
    }
    r.e = hd_eval_new(r.m, mode, r.a);
    r.f = hd_func_find(r.m, func);
    Tensor in[8];
    for (int i = 0; i < r.f->n_args; i++) {
        in[i] = hd_tensor(r.a, r.f->args[i]->type);
        for (int64_t k = 0, n = hd_type_count(in[i].type); k < n; k++) in[i].data[k] = *values++;
    }
    r.wrong = hd_eval(r.e, r.f, in, r.out);
    return r;
}
static Run run(const char *func, const double *values) { return run_mode(EVAL_EXACT, "eval.hir", func, values); }
static Run run_storage(const char *func, const double *values) {
    return run_mode(EVAL_EXACT, "eval_storage.hir", func, values);
}

static void end(Run *r) {
    hd_arena_free(r->a);
    hd_ctx_free(r->cx);
}

static bool near(Tensor t, const double *want) {
    bool ok = t.data != NULL;
    for (int64_t i = 0; ok && i < hd_type_count(t.type); i++)
        if (!(fabs(t.data[i] - want[i]) <= 1e-12 * fmax(1, fabs(want[i])))) {
            fprintf(stderr, "element %lld is %.17g, not %.17g\n", (long long)i, t.data[i], want[i]);
            ok = false;
        }
    return ok;
}
#define V(...) ((const double[]){__VA_ARGS__})
#define NOTHING_WRONG(r) CHECK_TEXT((r).wrong ? (r).wrong : "", "")

TEST(elementwise_broadcasts_both_ways) {
    Run r = run("broadcasts", V(10, 20, 1, 2, 3));
    NOTHING_WRONG(r);
    CHECK(near(r.out[0], V(9, 8, 7, 19, 18, 17)));
    end(&r);
}

TEST(max_gives_nan_from_either_side) {
    double nan = (double)NAN;
    CHECK(isnan(hd_eval_elt(OP_MAX, true, nan, 1, 0)) && isnan(hd_eval_elt(OP_MAX, true, 1, nan, 0)));
    CHECK(isnan(hd_eval_elt(OP_MIN, false, nan, 1, 0)) && isnan(hd_eval_elt(OP_MIN, false, 1, nan, 0)));
    CHECK(isnan(hd_eval_elt(OP_RELU, true, nan, 0, 0)));
    CHECK(hd_eval_elt(OP_MAX, false, -2, -1, 0) == -1);
}

TEST(rounding_is_to_nearest_even) {
    CHECK(hd_round(TY_BF16, 1.0 + 0x1p-8) == 1.0 && hd_round(TY_BF16, 1.0 + 0x3p-8) == 1.0 + 0x1p-6);
    CHECK(hd_round(TY_BF16, 1.0 + 0x1.0001p-8) == 1.0 + 0x1p-7); // no double rounding through f32
    CHECK(hd_round(TY_BF16, 0x1.ffp127) == (double)INFINITY && hd_round(TY_BF16, 0x1.fefp127) == 0x1.fep127);
    CHECK(hd_round(TY_F16, 65519) == 65504 && hd_round(TY_F16, 65520) == (double)INFINITY);
    CHECK(hd_round(TY_F16, 0x1p-25) == 0 && hd_round(TY_F16, 0x1.8p-25) == 0x1p-24); // subnormals
    CHECK(hd_round(TY_BF16, 0x1.1p-133) == 0x1p-133);
    CHECK(hd_round(TY_F32, 1.0 + 0x1p-24) == 1.0 && hd_round(TY_F64, 1.0 + 0x1p-50) == 1.0 + 0x1p-50);
    CHECK(hd_round(TY_I32, 2.9) == 2 && hd_round(TY_I32, -2.9) == -2 && signbit(hd_round(TY_BF16, -0.0)));
}

TEST(types_of_one_byte_saturate) {
    const double inf = (double)INFINITY;
    CHECK(hd_round(TY_E4M3, 448) == 448 && hd_round(TY_E4M3, 464) == 448 && hd_round(TY_E4M3, 1e30) == 448);
    CHECK(hd_round(TY_E4M3, -inf) == -448 && hd_round(TY_E5M2, inf) == 57344 && hd_round(TY_E5M2, -1e9) == -57344);
    CHECK(isnan(hd_round(TY_E4M3, (double)NAN)) && isnan(hd_round(TY_E5M2, (double)NAN)));
    CHECK(hd_round(TY_E4M3, 17) == 16 && hd_round(TY_E4M3, 19) == 20 && hd_round(TY_E5M2, 9) == 8); // ties to even
    CHECK(hd_round(TY_E4M3, 0x1p-10) == 0 && hd_round(TY_E4M3, 0x1.8p-10) == 0x1p-9); // subnormals
    CHECK(hd_round(TY_E5M2, 0x1p-17) == 0 && hd_round(TY_E5M2, 0x1.8p-17) == 0x1p-16);
}

// The conversions of the host target against the evaluator, for every upper half of an f32 and some lower ones: ties
// and what is beside them.
TEST(conversions_of_one_byte_round_as_the_evaluator) {
    static const uint32_t low[] = {0, 1, 0x7fff, 0x8000, 0xffff};
    int wrong = 0;
    for (uint32_t i = 0; i < 1u << 16; i++)
        for (size_t k = 0; k < sizeof low / sizeof *low; k++) {
            const float f = hd_float_of(i << 16 | low[k]);
            const double q[] = {(double)hd_round_e4m3(f), (double)hd_round_e5m2(f)};
            const double want[] = {hd_round(TY_E4M3, (double)f), hd_round(TY_E5M2, (double)f)};
            for (int d = 0; d < 2; d++)
                wrong += isnan(want[d]) ? !isnan(q[d]) : q[d] != want[d] || signbit(q[d]) != signbit(want[d]);
        }
    CHECK_INT(wrong, 0);
    for (int q = 0; q < 256; q++) { // of the infinities and NaN of e5m2 one byte is made
        const uint8_t one = hd_to_e4m3(hd_from_e4m3((uint8_t)q)), two = hd_to_e5m2(hd_from_e5m2((uint8_t)q));
        CHECK((q & 0x7f) == 0x7f ? one == 0x7f : one == q);
        CHECK((q & 0x7f) > 0x7c ? two == 0x7f : (q & 0x7f) == 0x7c ? two == (q & 0x80) + 0x7b : two == q);
    }
}

TEST(rows_are_quantised_by_their_largest_element) { // 448 / 7 = 64; a row of zeros, a row with a NaN
    Run r = run_mode(EVAL_ROUNDED, "eval.hir", "quantises", V(7, -3.5, 0.02, 0, 0, 0, 1, (double)NAN, 2)),
        x = run("quantises", V(7, -3.5, 0.02, 0, 0, 0, 1, 2, 7));
    NOTHING_WRONG(r);
    CHECK(r.out[0].data[0] == 448 && r.out[0].data[1] == -224 && r.out[0].data[2] == 1.25); // of 1.28
    CHECK(r.out[0].data[3] == 0 && r.out[1].data[1] == (double)(0x1p-100f / 448.0f));
    CHECK(isnan(r.out[0].data[6]) && isnan(r.out[0].data[8]) && isnan(r.out[1].data[2]));
    CHECK(r.out[1].data[0] == (double)(7.0f / 448.0f));
    CHECK(near(x.out[0], V(448, -224, 1.28, 0, 0, 0, 64, 128, 448)));
    end(&r);
    end(&x);
}

TEST(products_take_the_scales_of_their_rows) { // a = [1 2; 3 4], b = [5 6; 7 8], scales 2, 3 and 10, 100
    Run r = run("scaled_product", V(1, 2, 3, 4, 5, 6, 7, 8, 2, 3, 10, 100));
    NOTHING_WRONG(r);
    CHECK(near(r.out[0], V(17 * 20, 23 * 200, 39 * 30, 53 * 300)));
    end(&r);
}

TEST(values_are_rounded_once_per_op) { // 256 + 1 is not a bf16; the mean of the three is computed from the rounded sum
    Run r = run_mode(EVAL_ROUNDED, "eval.hir", "rounded_once", V(256, 258)), x = run("rounded_once", V(256, 258));
    CHECK(near(r.out[0], V(256, 260)) && near(r.out[1], V(516)));
    CHECK(near(x.out[0], V(257, 259)));
    end(&r);
    end(&x);
}

TEST(movement) {
    Run r = run("movement", V(1, 2, 3, 4, 5, 6));
    CHECK(near(r.out[0], V(1, 4, 2, 5, 3, 6)) && near(r.out[1], V(2, 3, 5, 6)));
    CHECK(near(r.out[2], V(1, 2, 3, 1, 4, 5, 6, 4)) && near(r.out[3], V(1, 2, 3, 4, 5, 6)));
    end(&r);
}

TEST(reductions) {
    Run r = run("reductions", V(1, 5, 3, 4, 2, 6));
    CHECK(near(r.out[0], V(9, 12)) && near(r.out[1], V(4, 5, 6)) && near(r.out[2], V(5, 7, 9)) &&
          near(r.out[3], V(9, 12)));
    end(&r);
}

TEST(matmul_takes_transposed_factors) { // a = [1 2; 3 4], b = [5 6; 7 8]
    Run r = run("matmul_takes_transposed_factors", V(1, 2, 3, 4, 5, 6, 7, 8));
    CHECK(near(r.out[0], V(19, 22, 43, 50)) && near(r.out[1], V(26, 30, 38, 44)));
    CHECK(near(r.out[2], V(17, 23, 39, 53)) && near(r.out[3], V(23, 31, 34, 46)));
    end(&r);
}

TEST(embedding_grad_adds_duplicates) {
    Run r = run("embedding_grad", V(1, 2, 3, 4, 5, 6, /* rows */ 2, 0, 2));
    CHECK(near(r.out[0], V(3, 4, 0, 0, 6, 8, 0, 0)));
    end(&r);
}

TEST(an_index_outside_its_table_is_an_error) {
    Run r = run("index_outside", V(1, 2, 0, 2));
    CHECK_TEXT(r.wrong, "embedding in @index_outside: index 2 at position 1 is outside a table of 2 rows");
    end(&r);
}

TEST(layer_norm_of_a_row) { // row -1, 1: mean 0, variance 1; row 1, 3, scaled alike
    Run r = run("layer_norm_of_a_row", V(-1, 1, 1, 3, 10, 20, 0.5, -0.5));
    CHECK(near(r.out[0], V(-4.5, 9.5, -4.5, 9.5)) && near(r.out[1], V(0, 2)) && near(r.out[2], V(0.5, 0.5)));
    end(&r);
}

TEST(rms_norm_of_a_row) { // mean of squares (9 + 16)/2 = 12.5
    Run r = run("rms_norm_of_a_row", V(3, 4, 1, 2));
    CHECK(near(r.out[0], V(3 / sqrt(12.5), 8 / sqrt(12.5))) && near(r.out[1], V(1 / sqrt(12.5))));
    end(&r);
}

TEST(softmax_keeps_the_future_out) {
    Run r = run("softmax_keeps_the_future_out", V(1000, 1000 + log(3), 0, log(4)));
    CHECK(near(r.out[0], V(0.25, 0.75, 0.2, 0.8)) && near(r.out[1], V(1, 0, 0.2, 0.8)));
    end(&r);
}

TEST(rope_turns_halves) { // one head of size 4, theta 100: position 1 turns pair 0 by 1, pair 1 by 100^(-1/2) = 0.1
    Run r = run("rope", V(1, 2, 3, 4, 1, 0, 0, 1));
    Run s = run("rope_inverse", V(0, 0, 0, 0, cos(1), -sin(0.1), sin(1), cos(0.1)));
    CHECK(near(r.out[0], V(1, 2, 3, 4, cos(1), -sin(0.1), sin(1), cos(0.1))) &&
          near(s.out[0], V(0, 0, 0, 0, 1, 0, 0, 1)));
    end(&r);
    end(&s);
}

TEST(causal_attention) { // one head of size 1, scale 1: row 1 sees keys 0 and ln 3 with q = 1, so weights 1/4 and 3/4
    Run r = run("causal_attention", V(5, 1, /* k */ 0, log(3), /* v */ 8, 4));
    CHECK(near(r.out[0], V(8, 5)) && near(r.out[1], V(0, log(4))));
    end(&r);
}

TEST(a_window_of_two_is_the_token_and_the_one_before) { // weights as above; row 2 does not see value 8
    Run r = run("window", V(5, 1, 1, /* k */ 0, log(3), 0, /* v */ 8, 4, 12));
    CHECK(near(r.out[0], V(8, 5, 6)) && near(r.out[1], V(0, log(4), log(4))));
    end(&r);
}

TEST(documents_begin_where_their_numbers_say) {
    Run r = run("documents", V(4, 9, 9, 5, 5, 9, 6));
    CHECK(near(r.out[0], V(0, 1, 1, 3, 3, 5, 6)) && near(r.out[1], V(0, 0, 2, 3, 3, 3, 6)));
    CHECK(near(r.out[2], V(0, 1, 2, 2, 2, 5, 5)) && near(r.out[3], V(0, 1, 0, 0, 1, 2, 0)));
    end(&r);
}

TEST(attention_stays_in_its_document) { // the second begins at position 1
    Run r = run("attention_in_documents", V(5, 1, 1, /* k */ 7, 0, log(3), /* v */ 6, 8, 4, /* starts */ 0, 1, 1));
    CHECK(near(r.out[0], V(6, 8, 5)) && near(r.out[1], V(35, 0, log(4))));
    end(&r);
}

TEST(attention_heads_share_kv_heads) { // 4 heads, 2 kv heads of size 1, one key: every output is the value of head / 2
    Run r = run("shared_heads", V(1, 2, 3, 4, /* k */ 10, 20, /* v */ 7, 9));
    CHECK(near(r.out[0], V(7, 7, 9, 9)) && near(r.out[1], V(10, 20, 60, 80)));
    end(&r);
}

TEST(cross_entropy_is_a_mean) { // rows (0, ln 3) with target 1: -ln 3/4; (0, 0) with target 0: ln 2
    Run r = run("cross_entropy", V(0, log(3), 0, 0, 1, 0, /* dloss */ 4));
    double loss = (log(4.0 / 3) + log(2)) / 2;
    CHECK(near(r.out[0], V(loss)) && near(r.out[1], V(loss)) && near(r.out[2], V(0.5, -0.5, -1, 1)));
    end(&r);
}

// The rows of above by weights 1/2 and 2, then one whose target is ignored and one of weight 0, which needs none.
TEST(cross_entropy_by_weight_is_a_sum) {
    Run r = run("weighted", V(0, log(3), 0, 0, 5, 6, 7, 8, /* targets */ 1, 0, -9, 77, /* weights */ 0.5, 2, 3, 0,
                              /* dloss */ 4));
    double loss = log(4.0 / 3) / 2 + 2 * log(2);
    CHECK(near(r.out[0], V(loss)) && near(r.out[1], V(loss)));
    CHECK(near(r.out[2], V(0.5, -0.5, -4, 4, 0, 0, 0, 0)));
    end(&r);
}

TEST(cross_entropy_rejects_a_target_outside_the_vocabulary) {
    Run r = run("target_outside", V(0, 0, -1));
    CHECK_TEXT(r.wrong, "cross_entropy in @target_outside: target -1 at position 0 is outside a vocabulary of 2");
    end(&r);
}

TEST(gradients_add_up) {
    Run r = run("gradients", V(1, 2, 10, 20));
    NOTHING_WRONG(r);
    CHECK(near(hd_eval_gradient(r.e, "w"), V(11, 22)));
    hd_eval_clear_gradients(r.e);
    CHECK(!hd_eval_gradient(r.e, "w").data);
    end(&r);
}

TEST(kernels_and_buffers) { // a launch, a gemm with an epilogue, a gemm and a store into a buffer, a view of it
    Run r = run_storage("kernels_and_buffers", V(256, 2, 3, 4, 1, 0, 0, 1, 10, 20));
    NOTHING_WRONG(r);
    CHECK(near(r.out[0], V(256, 2, 3, 4))); // 257 lives in f32 inside the kernel
    CHECK(near(r.out[1], V(266, 22, 13, 24)) && near(r.out[2], V(4, 6, 8, 7)));
    CHECK(near(hd_eval_storage(r.e, "s"), V(0, 512, 4, 6, 8, 7)));
    end(&r);
}

TEST(the_update) {
    Run r = run_storage("update", NULL);
    NOTHING_WRONG(r);
    Tensor p = hd_eval_storage(r.e, "root.master"), g = hd_eval_storage(r.e, "root.grad");
    memcpy(p.data, V(1, 1), 2 * sizeof(double));
    memcpy(g.data, V(3, -4), 2 * sizeof(double));
    hd_eval_storage(r.e, "state.step").data[0] = 0; // the first run, on zeros, was step 1
    CHECK(!hd_eval(r.e, r.f, NULL, r.out));
    CHECK(near(r.out[0], V(5)) && near(r.out[1], V(0.25, 0.2, 0.5, 0.25, 1, 0, 0, 0)));
    // g = 0.6, -0.8; after one step m/c1 = g and v/c2 = g g, so that the direction is the sign of g
    CHECK(near(p, V(1 - 0.25 * (1 + 0.1), 1 + 0.25)));
    const double rates[] = {0.5, 0.3, 0.1, 0.1}; // steps 2, 3 (half way down the cosine), 4, 5
    for (int i = 0; i < 4; i++) {
        CHECK(!hd_eval(r.e, r.f, NULL, r.out));
        CHECK(fabs(r.out[1].data[0] - rates[i]) < 1e-15);
    }
    end(&r);
}

static void exchange(const char *path, int n) {
    enum { MOST = 4 };
    Ctx *cx = hd_ctx_new();
    Arena *a = hd_arena_new();
    size_t size = 0;
    const char *text = hd_read_file(a, path, &size);
    CHECK(text != NULL);
    Module *m = text ? hd_parse_module(cx, text, size, hd_source_add(&cx->diags, path, text, size, 1)) : NULL;
    CHECK(m && hd_verify(m));
    Eval *e[MOST];
    Tensor x[MOST], results[MOST][2];
    const Tensor *in[MOST];
    Tensor *out[MOST];
    const Func *f = hd_func_find(m, "f");
    for (int r = 0; r < n; r++) {
        e[r] = hd_eval_new(m, EVAL_ROUNDED, a);
        x[r] = hd_tensor(a, f->args[0]->type);
        for (int i = 0; i < 4; i++) x[r].data[i] = 10 * r + i;
        in[r] = &x[r];
        out[r] = results[r];
    }
    CHECK(!hd_eval_ranks(e, n, f, in, out));
    for (int r = 0; r < n; r++)
        for (int k = 0; k < 2; k++)
            CHECK(near(out[r][k], V(n * n * 10 * r, n * n * (10 * r + 1), n * n * (10 * r + 2), n * n * (10 * r + 3))));
    hd_arena_free(a);
    hd_ctx_free(cx);
}

TEST(collectives_of_values) {
    exchange(HEDDLE_SOURCE "/tests/unit/plans/exchange2.hir", 2);
    exchange(HEDDLE_SOURCE "/tests/unit/plans/exchange4.hir", 4);
}

int main(int argc, char **argv) { return run_tests(argc, argv); }
