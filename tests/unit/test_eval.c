// The evaluator against values worked out by hand (or by the closed form beside them).
#include "ir/eval/eval.h"
#include "tests/unit/check.h"
#include <math.h>

typedef struct { Ctx *cx; Arena *a; Module *m; Eval *e; Tensor out[8]; const char *wrong; } Run;

// Runs @f of a module; `values` fills its arguments one after another.
static Run run_mode(EvalMode mode, const char *text, const double *values) {
    Run r = {.cx = hd_ctx_new(), .a = hd_arena_new()};
    uint32_t base = hd_source_add(&r.cx->diags, "test", text, strlen(text), 1);
    r.m = hd_parse_module(r.cx, text, strlen(text), base);
    if (!r.m || !hd_verify(r.m)) {
        Out o = hd_out(r.a);
        hd_diags_print(&r.cx->diags, &o);
        fprintf(stderr, "%s", o.text);
        r.wrong = "does not compile";
        return r;
    }
    r.e = hd_eval_new(r.m, mode, r.a);
    Func *f = hd_func_find(r.m, "f");
    Tensor in[8];
    for (int i = 0; i < f->n_args; i++) {
        in[i] = hd_tensor(r.a, f->args[i]->type);
        for (int64_t k = 0, n = hd_type_count(in[i].type); k < n; k++) in[i].data[k] = *values++;
    }
    r.wrong = hd_eval(r.e, f, in, r.out);
    return r;
}
static Run run(const char *text, const double *values) { return run_mode(EVAL_EXACT, text, values); }

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
    Run r =
        run("stage tensor\nfunc @f(%a: f32[2,1], %b: f32[3]) -> f32[2,3] {\n%0 = sub %a, %b : f32[2,3]\nreturn %0\n}\n",
            V(10, 20, 1, 2, 3));
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

TEST(values_are_rounded_once_per_op) { // 256 + 1 is not a bf16; the mean of the three is computed from the rounded sum
    const char *text = "stage tensor\nfunc @f(%a: bf16[2]) -> bf16[2], bf16 {\n%0 = const {value = 1} : f32\n%1 = add "
                       "%a, %0 : bf16[2]\n"
                       "%2 = sum %1 {axes = [0]} : bf16\nreturn %1, %2\n}\n";
    Run r = run_mode(EVAL_ROUNDED, text, V(256, 258)), x = run(text, V(256, 258));
    CHECK(near(r.out[0], V(256, 260)) && near(r.out[1], V(516)));
    CHECK(near(x.out[0], V(257, 259)));
    end(&r);
    end(&x);
}

TEST(movement) {
    Run r =
        run("stage tensor\nfunc @f(%a: f32[2,3]) -> f32[3,2], f32[2,2], f32[2,4], f32[2,1,3] {\n"
            "%0 = transpose %a {perm = [1, 0]} : f32[3,2]\n%1 = slice %a {axis = 1, start = 1, size = 2} : f32[2,2]\n"
            "%2 = slice %a {axis = 1, start = 0, size = 1} : f32[2,1]\n%3 = concat %2, %1, %2 {axis = 1} : f32[2,4]\n"
            "%4 = reshape %a : f32[2,1,3]\nreturn %0, %1, %3, %4\n}\n",
            V(1, 2, 3, 4, 5, 6));
    CHECK(near(r.out[0], V(1, 4, 2, 5, 3, 6)) && near(r.out[1], V(2, 3, 5, 6)));
    CHECK(near(r.out[2], V(1, 2, 3, 1, 4, 5, 6, 4)) && near(r.out[3], V(1, 2, 3, 4, 5, 6)));
    end(&r);
}

TEST(reductions) {
    Run r = run("stage tensor\nfunc @f(%a: f32[2,3]) -> f32[2], f32[1,3], f32[3], f32[2,1] {\n%0 = sum %a {axes = [1]} "
                ": f32[2]\n"
                "%1 = reduce_max %a {axes = [0], keep} : f32[1,3]\n%2 = sum_to %a : f32[3]\n%3 = sum_to %a : f32[2,1]\n"
                "return %0, %1, %2, %3\n}\n",
                V(1, 5, 3, 4, 2, 6));
    CHECK(near(r.out[0], V(9, 12)) && near(r.out[1], V(4, 5, 6)) && near(r.out[2], V(5, 7, 9)) &&
          near(r.out[3], V(9, 12)));
    end(&r);
}

TEST(matmul_takes_transposed_factors) { // a = [1 2; 3 4], b = [5 6; 7 8]
    Run r =
        run("stage tensor\nfunc @f(%a: f32[2,2], %b: f32[2,2]) -> f32[2,2], f32[2,2], f32[2,2], f32[2,2] {\n"
            "%0 = matmul %a, %b : f32[2,2]\n%1 = matmul %a, %b {ta} : f32[2,2]\n%2 = matmul %a, %b {tb} : f32[2,2]\n"
            "%3 = matmul %a, %b {ta, tb} : f32[2,2]\nreturn %0, %1, %2, %3\n}\n",
            V(1, 2, 3, 4, 5, 6, 7, 8));
    CHECK(near(r.out[0], V(19, 22, 43, 50)) && near(r.out[1], V(26, 30, 38, 44)));
    CHECK(near(r.out[2], V(17, 23, 39, 53)) && near(r.out[3], V(23, 31, 34, 46)));
    end(&r);
}

TEST(embedding_grad_adds_duplicates) {
    Run r = run("stage tensor\nfunc @f(%d: f32[3,2], %i: i32[3]) -> f32[4,2] {\n%0 = embedding_grad %d, %i : "
                "f32[4,2]\nreturn %0\n}\n",
                V(1, 2, 3, 4, 5, 6, /* rows */ 2, 0, 2));
    CHECK(near(r.out[0], V(3, 4, 0, 0, 6, 8, 0, 0)));
    end(&r);
}

TEST(an_index_outside_its_table_is_an_error) {
    const char *text = "stage tensor\nfunc @f(%w: f32[2,1], %i: i32[2]) -> f32[2,1] {\n%0 = embedding %w, %i : "
                       "f32[2,1]\nreturn %0\n}\n";
    Run r = run(text, V(1, 2, 0, 2));
    CHECK_TEXT(r.wrong, "embedding in @f: index 2 at position 1 is outside a table of 2 rows");
    end(&r);
}

TEST(layer_norm_of_a_row) { // row -1, 1: mean 0, variance 1; row 1, 3, scaled alike
    Run r = run("stage tensor\nfunc @f(%x: f32[2,2], %w: f32[2], %b: f32[2]) -> f32[2,2], f32[2], f32[2] {\n"
                "%0, %1, %2 = layer_norm %x, %w, %b {eps = 3} : f32[2,2], f32[2], f32[2]\nreturn %0, %1, %2\n}\n",
                V(-1, 1, 1, 3, 10, 20, 0.5, -0.5));
    CHECK(near(r.out[0], V(-4.5, 9.5, -4.5, 9.5)) && near(r.out[1], V(0, 2)) && near(r.out[2], V(0.5, 0.5)));
    end(&r);
}

TEST(rms_norm_of_a_row) { // mean of squares (9 + 16)/2 = 12.5
    Run r = run("stage tensor\nfunc @f(%x: f32[2], %w: f32[2]) -> f32[2], f32 {\n%0, %1 = rms_norm %x, %w {eps = 0} : "
                "f32[2], f32\nreturn %0, %1\n}\n",
                V(3, 4, 1, 2));
    CHECK(near(r.out[0], V(3 / sqrt(12.5), 8 / sqrt(12.5))) && near(r.out[1], V(1 / sqrt(12.5))));
    end(&r);
}

TEST(softmax_keeps_the_future_out) {
    Run r = run("stage tensor\nfunc @f(%x: f32[2,2]) -> f32[2,2], f32[2,2] {\n%0 = softmax %x : f32[2,2]\n%1 = softmax "
                "%x {causal} : f32[2,2]\n"
                "return %0, %1\n}\n",
                V(1000, 1000 + log(3), 0, log(4)));
    CHECK(near(r.out[0], V(0.25, 0.75, 0.2, 0.8)) && near(r.out[1], V(1, 0, 0.2, 0.8)));
    end(&r);
}

TEST(rope_turns_halves) { // one head of size 4, theta 100: position 1 turns pair 0 by 1, pair 1 by 100^(-1/2) = 0.1
    const char *text = "stage tensor\nfunc @f(%%x: f32[2,4]) -> f32[2,4] {\n%%0 = rope %%x {heads = 1, theta = 100%s} "
                       ": f32[2,4]\nreturn %%0\n}\n";
    char forward[200], back[200];
    snprintf(forward, sizeof forward, text, "");
    snprintf(back, sizeof back, text, ", inverse");
    Run r = run(forward, V(1, 2, 3, 4, 1, 0, 0, 1)), s = run(back, V(0, 0, 0, 0, cos(1), -sin(0.1), sin(1), cos(0.1)));
    CHECK(near(r.out[0], V(1, 2, 3, 4, cos(1), -sin(0.1), sin(1), cos(0.1))) &&
          near(s.out[0], V(0, 0, 0, 0, 1, 0, 0, 1)));
    end(&r);
    end(&s);
}

TEST(causal_attention) { // one head of size 1, scale 1: row 1 sees keys 0 and ln 3 with q = 1, so weights 1/4 and 3/4
    Run r =
        run("stage tensor\nfunc @f(%q: f32[1,2,1], %k: f32[1,2,1], %v: f32[1,2,1]) -> f32[1,2,1], f32[1,1,2] {\n"
            "%0, %1 = attention %q, %k, %v {heads = 1, causal, scale = 1} : f32[1,2,1], f32[1,1,2]\nreturn %0, %1\n}\n",
            V(5, 1, /* k */ 0, log(3), /* v */ 8, 4));
    CHECK(near(r.out[0], V(8, 5)) && near(r.out[1], V(0, log(4))));
    end(&r);
}

TEST(attention_heads_share_kv_heads) { // 4 heads, 2 kv heads of size 1, one key: every output is the value of head / 2
    Run r = run("stage tensor\nfunc @f(%x: f32[1,1,8]) -> f32[1,1,4], f32[1,4,1] {\n"
                "%0, %1 = attention %x {heads = 4, kv_heads = 2, packed} : f32[1,1,4], f32[1,4,1]\nreturn %0, %1\n}\n",
                V(1, 2, 3, 4, /* k */ 10, 20, /* v */ 7, 9));
    CHECK(near(r.out[0], V(7, 7, 9, 9)) && near(r.out[1], V(10, 20, 60, 80)));
    end(&r);
}

TEST(cross_entropy_is_a_mean) { // rows (0, ln 3) with target 1: -ln 3/4; (0, 0) with target 0: ln 2
    Run r = run("stage tensor\nfunc @f(%z: f32[2,2], %t: i32[2], %d: f32) -> f32, f32, f32[2,2] {\n%0 = cross_entropy "
                "%z, %t : f32\n"
                "%1, %2 = cross_entropy_grad %z, %t, %d : f32, f32[2,2]\nreturn %0, %1, %2\n}\n",
                V(0, log(3), 0, 0, 1, 0, /* dloss */ 4));
    double loss = (log(4.0 / 3) + log(2)) / 2;
    CHECK(near(r.out[0], V(loss)) && near(r.out[1], V(loss)) && near(r.out[2], V(0.5, -0.5, -1, 1)));
    end(&r);
}

TEST(cross_entropy_rejects_a_target_outside_the_vocabulary) {
    Run r =
        run("stage tensor\nfunc @f(%z: f32[1,2], %t: i32[1]) -> f32 {\n%0 = cross_entropy %z, %t : f32\nreturn %0\n}\n",
            V(0, 0, -1));
    CHECK_TEXT(r.wrong, "cross_entropy in @f: target -1 at position 0 is outside a vocabulary of 2");
    end(&r);
}

TEST(gradients_add_up) {
    Run r = run("stage tensor\nparam @w : f32[2]\nfunc @f(%a: f32[2], %b: f32[2]) {\ngrad %a {param = @w}\ngrad %b "
                "{param = @w}\nreturn\n}\n",
                V(1, 2, 10, 20));
    NOTHING_WRONG(r);
    CHECK(near(hd_eval_gradient(r.e, "w"), V(11, 22)));
    hd_eval_clear_gradients(r.e);
    CHECK(!hd_eval_gradient(r.e, "w").data);
    end(&r);
}

TEST(kernels_and_buffers) { // a launch, a gemm with an epilogue, a gemm and a store into a buffer, a view of it
    Run r =
        run("stage kernels\nbuffer @s : f32[6]\n"
            "kernel @k0(%x: bf16[2,2]) -> bf16[2,2] with {kind = rows, rows = 2, cols = 2} {\n%0 = const {value = 1} : "
            "f32\n"
            "%1 = add %x, %0 : bf16[2,2]\n%2 = sub %1, %0 : bf16[2,2]\nreturn %2\n}\n"
            "func @f(%a: bf16[2,2], %b: bf16[2,2], %c: bf16[2]) -> bf16[2,2], bf16[2,2], f32[4] {\n"
            "%0 = launch %a {kernel = @k0} : bf16[2,2]\n%1 = gemm %a, %b, %c {epilogue = bias} : bf16[2,2]\n"
            "gemm %a, %b {into = @s, offset = 1}\ngemm %a, %b {into = @s, offset = 1, accumulate}\n%2 = const {value = "
            "7} : f32[1]\n"
            "store %2 {into = @s, offset = 5}\n%3 = view {buffer = @s, offset = 2} : f32[4]\nreturn %0, %1, %3\n}\n",
            V(256, 2, 3, 4, 1, 0, 0, 1, 10, 20));
    NOTHING_WRONG(r);
    CHECK(near(r.out[0], V(256, 2, 3, 4))); // 257 lives in f32 inside the kernel
    CHECK(near(r.out[1], V(266, 22, 13, 24)) && near(r.out[2], V(4, 6, 8, 7)));
    CHECK(near(hd_eval_storage(r.e, "s"), V(0, 512, 4, 6, 8, 7)));
    end(&r);
}

static const char update[] =
    "stage kernels\nbuffer @root.master : f32[2]\nbuffer "
    "@root.grad : f32[2]\nbuffer @root.m : f32[2]\n"
    "buffer @root.v : f32[2]\nbuffer @state.step : i32[1]\n"
    "func @f() -> f32, f32[8] {\n%0 = grad_norm {buffers = [@root.grad]} : f32\n"
    "%1 = step_scalars %0 {counter = @state.step, clip = 1.0, betas = [0.5, 0.75], lr = "
    "cosine, lr_peak = 0.5, lr_floor = 0.1, "
    "lr_warmup = 2, lr_total = 4} : f32[8]\nadamw %1 {gradient = @root.grad, moment1 = "
    "@root.m, moment2 = @root.v, master_weights = @root.master, decayed = 1, betas = [0.5, 0.75], "
    "eps = 1e-30, weight_decay = 0.1}\nreturn %0, %1\n}\n";

TEST(the_update) {
    Run r = run(update, NULL);
    NOTHING_WRONG(r);
    const Func *f = hd_func_find(r.m, "f");
    Tensor p = hd_eval_storage(r.e, "root.master"), g = hd_eval_storage(r.e, "root.grad");
    memcpy(p.data, V(1, 1), 2 * sizeof(double));
    memcpy(g.data, V(3, -4), 2 * sizeof(double));
    hd_eval_storage(r.e, "state.step").data[0] = 0; // the first run, on zeros, was step 1
    CHECK(!hd_eval(r.e, f, NULL, r.out));
    CHECK(near(r.out[0], V(5)) && near(r.out[1], V(0.25, 0.2, 0.5, 0.25, 1, 0, 0, 0)));
    // g = 0.6, -0.8; after one step m/c1 = g and v/c2 = g g, so that the direction is the sign of g
    CHECK(near(p, V(1 - 0.25 * (1 + 0.1), 1 + 0.25)));
    const double rates[] = {0.5, 0.3, 0.1, 0.1}; // steps 2, 3 (half way down the cosine), 4, 5
    for (int i = 0; i < 4; i++) {
        CHECK(!hd_eval(r.e, f, NULL, r.out));
        CHECK(fabs(r.out[1].data[0] - rates[i]) < 1e-15);
    }
    end(&r);
}

int main(int argc, char **argv) { return run_tests(argc, argv); }
