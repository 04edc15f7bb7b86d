// A product of one row of the host target against a plain loop in f64: the types of weights, both ways that they are
// stored, biases, sums to which it adds, and sizes that no part divides.
#include "runtime/dtypes.h"
#include "runtime/heddle.h"
#include "runtime/heddle_host.h"
#include "tests/numeric/harness.h"
#include <math.h>

enum { MOST_K = 600, MOST_N = 200 };

static double input(int64_t i) { return (double)((i * 37 + i / 11) % 201 - 100) / 64; }

// `n` numbers of type d in `to`, from number `from` of the inputs on, and in `as` what is left of them after rounding.
static void fill(HdDtype d, void *to, double *as, int64_t n, int64_t from) {
    for (int64_t i = 0; i < n; i++) {
        const float x = (float)input(from + i);
        float rounded;
        hd_store_f32(d, &x, 1, to, i);
        hd_load_f32(d, to, i, 1, &rounded);
        as[i] = (double)rounded;
    }
}

// The largest error as a part of its bound: k + 2 roundings of f32, and the one of the result.
static double error_of(const HdGemm *g) {
    static float a[MOST_K], b[MOST_K * MOST_N], bias[MOST_N], d[MOST_N];
    static double x[MOST_K], w[MOST_K * MOST_N], plus[MOST_N], old[MOST_N];
    double most = 0;
    fill(g->a, a, x, g->k, 0);
    fill(g->b, b, w, g->k * g->n, 5);
    fill(g->d, bias, plus, g->n, 7);
    fill(g->d, d, old, g->n, 9);
    hd_host_gemm_row(g, a, b, g->epilogue == HD_EPI_BIAS ? bias : NULL, d, NULL);
    for (int64_t c = 0; c < g->n; c++) {
        double want = (g->epilogue == HD_EPI_BIAS ? plus[c] : 0) + (g->accumulate ? old[c] : 0), size = fabs(want);
        float got;
        for (int64_t i = 0; i < g->k; i++) {
            const double term = x[i] * w[g->tb ? c * g->k + i : i * g->n + c];
            want += term;
            size += fabs(term);
        }
        hd_load_f32(g->d, d, c, 1, &got);
        const double last = g->d == HD_F32 ? 0x1p-24 : g->d == HD_F16 ? 0x1p-11 : 0x1p-8;
        const double bound = (double)(g->k + 2) * 0x1p-24 * size + last * fabs(want) + 0x1p-24;
        most = fmax(most, fabs((double)got - want) / bound);
    }
    return most;
}

static void every_type_and_form(Test *t) {
    static const struct { HdDtype dtype; const char *name; } types[] = {{HD_F32, "f32"}, {HD_BF16, "bf16"},
                                                                        {HD_F16, "f16"}};
    static const int64_t sizes[][2] = {{1, 1}, {64, 64}, {66, 31}, {200, 600}, {3, 513}}; // n, k
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
            for (int form = 0; form < 8; form++) {
                const HdDtype d = types[i].dtype;
                const HdGemm g = {.m = 1, .n = sizes[s][0], .k = sizes[s][1], .tb = form & 1, .accumulate = form & 2,
                                  .a = d, .b = d, .d = form & 4 ? d : HD_F32, .batch = 1,
                                  .epilogue = form & 4 ? HD_EPI_BIAS : HD_EPI_NONE};
                const double error = error_of(&g);
                t->compared += (int)g.n;
                if (!(error <= 1))
                    fail(t, "%s, n = %lld, k = %lld, form %d: off by %.3g times the bound", types[i].name,
                         (long long)g.n, (long long)g.k, form, error);
            }
}

// Of two rows, and of more numbers than a row has room for.
static void others_are_of_tiles(Test *t) {
    enum { LONG = 40000 };
    static float a[LONG], b[LONG], row[2][4], tiles[2][4];
    static const HdGemm products[] = {
        {.m = 2, .n = 2, .k = 9, .a = HD_F32, .b = HD_F32, .d = HD_F32, .batch = 1},
        {.m = 1, .n = 1, .k = LONG, .tb = true, .a = HD_F32, .b = HD_F32, .d = HD_F32, .batch = 1}};
    for (int64_t i = 0; i < LONG; i++) a[i] = (float)input(i), b[i] = (float)input(i + 3);
    for (int i = 0; i < 2; i++) {
        hd_host_gemm_row(&products[i], a, b, NULL, row[i], NULL);
        hd_host_gemm(&products[i], a, b, NULL, tiles[i], NULL);
        t->compared += (int)(products[i].m * products[i].n);
        if (memcmp(row[i], tiles[i], sizeof row[i]) != 0 || tiles[i][0] == 0)
            fail(t, "%d rows of %d differ from those of tiles", (int)products[i].m, (int)products[i].k);
    }
}

int main(void) {
    Test t = {.name = "host_row"};
    every_type_and_form(&t);
    others_are_of_tiles(&t);
    printf("%d numbers compared, %d failures\n", t.compared, t.failures);
    return t.failures != 0;
}
