// cuBLASLt for small products: column-major, computed plainly, so that a test sees whether the row-major mapping is
// right. Three algorithms of different speed; an algorithm is its number.
#define _GNU_SOURCE
#include "tests/fake_cuda/fake.h"
#include "runtime/heddle_host.h"
#include <dlfcn.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

struct LtState { int unused; };
struct LtDescState {
    int ta, tb, modes[2];
    unsigned epilogue;
    const void *bias, *scales[2];
    int8_t fast;
    LtType scale;
};
struct LtLayoutState { LtType type; int64_t rows, cols, ld, batches, stride; };
struct LtPreferenceState { uint64_t workspace; uint32_t align; };
static const double speed[3] = {3, 1, 2};

// FAKE_CUDA_LOAD=1: milliseconds of a product, which has no result. Algorithm 1 is the fastest of a few runs, algorithm
// 2 of many without another between them.
static double under_load(int algo) {
    static int last = -1, runs;
    runs = algo == last ? runs + 1 : 1;
    last = algo;
    fake_log("run of algorithm %d", algo);
    return algo == 0 ? 3 : algo == 2 ? 1.1 : runs > 20 ? 1.3 : 1;
}

size_t fake_cublasLtGetVersion(void) { return 130100; }
const char *fake_cublasLtGetStatusString(LtStatus s) {
    return s ? "CUBLAS_STATUS_NOT_SUPPORTED" : "CUBLAS_STATUS_SUCCESS";
}
LtStatus fake_cublasLtCreate(LtHandle *h) { return *h = calloc(1, sizeof **h), 0; }
LtStatus fake_cublasLtDestroy(LtHandle h) { return free(h), 0; }
LtStatus fake_cublasLtMatmulDescCreate(LtDesc *d, LtCompute compute, LtType scale) {
    (void)compute;
    *d = calloc(1, sizeof **d);
    (*d)->scale = scale;
    return 0;
}
LtStatus fake_cublasLtMatmulDescDestroy(LtDesc d) { return free(d), 0; }
LtStatus fake_cublasLtMatmulDescSetAttribute(LtDesc d, LtDescAttribute a, const void *v, size_t bytes) {
    void *to = a == HD_CUBLASLT_MATMUL_DESC_TRANSA         ? (void *)&d->ta
               : a == HD_CUBLASLT_MATMUL_DESC_TRANSB       ? (void *)&d->tb
               : a == HD_CUBLASLT_MATMUL_DESC_EPILOGUE     ? (void *)&d->epilogue
               : a == HD_CUBLASLT_MATMUL_DESC_BIAS_POINTER ? (void *)&d->bias
               : a == HD_CUBLASLT_MATMUL_DESC_A_SCALE_POINTER ? (void *)&d->scales[0]
               : a == HD_CUBLASLT_MATMUL_DESC_B_SCALE_POINTER ? (void *)&d->scales[1]
               : a == HD_CUBLASLT_MATMUL_DESC_A_SCALE_MODE    ? (void *)&d->modes[0]
               : a == HD_CUBLASLT_MATMUL_DESC_B_SCALE_MODE    ? (void *)&d->modes[1]
               : a == HD_CUBLASLT_MATMUL_DESC_FAST_ACCUM      ? (void *)&d->fast
                                                              : NULL;
    return to ? memcpy(to, v, bytes), 0 : 7;
}
LtStatus fake_cublasLtMatrixLayoutCreate(LtLayout *l, LtType type, uint64_t rows, uint64_t cols, int64_t ld) {
    *l = calloc(1, sizeof **l);
    **l = (struct LtLayoutState){type, (int64_t)rows, (int64_t)cols, ld, 1, 0};
    return 0;
}
LtStatus fake_cublasLtMatrixLayoutDestroy(LtLayout l) { return free(l), 0; }
LtStatus fake_cublasLtMatrixLayoutSetAttribute(LtLayout l, LtLayoutAttribute a, const void *v, size_t bytes) {
    int32_t count = 0;
    if (a == HD_CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT) memcpy(&count, v, bytes), l->batches = count;
    else memcpy(&l->stride, v, bytes);
    return 0;
}
LtStatus fake_cublasLtMatmulPreferenceCreate(LtPreference *p) { return *p = calloc(1, sizeof **p), 0; }
LtStatus fake_cublasLtMatmulPreferenceDestroy(LtPreference p) { return free(p), 0; }
LtStatus fake_cublasLtMatmulPreferenceSetAttribute(LtPreference p, LtPreferenceAttribute a, const void *v,
                                                   size_t bytes) {
    if (a == HD_CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES) memcpy(&p->workspace, v, bytes);
    else memcpy(&p->align, v, bytes);
    return 0;
}
static int64_t contracted(LtDesc d, LtLayout a) { return d->ta ? a->rows : a->cols; }
static bool is_fp8(LtType t) { return t == HD_CUDA_R_8F_E4M3 || t == HD_CUDA_R_8F_E5M2; }
static bool has_blocks(LtDesc d) { return d->modes[0] >= HD_CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F; }
// Both factors have scales of the same kind, or of blocks, and then not both of 128 rows.
static bool modes_fit(LtDesc d, int64_t m, int64_t n) {
    const int squares = HD_CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F;
    if (!has_blocks(d)) return d->modes[0] == d->modes[1];
    return d->modes[1] >= HD_CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F && !d->fast && m % 4 == 0 && n % 4 == 0 &&
           !(d->modes[0] == squares && d->modes[1] == squares);
}
// Products of one byte: the rows of both factors, which have scales alike at addresses that 16 divides, and such sizes.
// Not both e5m2.
static bool fp8_fits(LtDesc d, LtLayout a, LtLayout b, int64_t m, int64_t n) {
    if (!is_fp8(a->type) && !is_fp8(b->type)) return !d->modes[0] && !d->modes[1];
    const bool wide = a->type == HD_CUDA_R_8F_E5M2 && b->type == HD_CUDA_R_8F_E5M2;
    return is_fp8(a->type) && is_fp8(b->type) && !wide && d->ta && !d->tb && modes_fit(d, m, n) &&
           d->scales[0] && d->scales[1] && ((uintptr_t)d->scales[0] | (uintptr_t)d->scales[1]) % 16 == 0 &&
           a->ld % 16 == 0 && b->ld % 16 == 0 && m % 16 == 0;
}
static LtStatus fits(LtDesc d, LtLayout a, LtLayout b, LtLayout c) {
    int64_t m = d->ta ? a->cols : a->rows, n = d->tb ? b->rows : b->cols, k = d->tb ? b->cols : b->rows;
    return m == c->rows && n == c->cols && k == contracted(d, a) && a->ld >= a->rows && b->ld >= b->rows &&
                   c->ld >= c->rows && fp8_fits(d, a, b, m, n)
               ? 0
               : 7;
}
LtStatus fake_cublasLtMatmulAlgoGetHeuristic(LtHandle h, LtDesc d, LtLayout a, LtLayout b, LtLayout c, LtLayout dd,
                                             LtPreference p, int wanted, LtHeuristic *out, int *got) {
    (void)h, (void)dd;
    if (fake_call("cublasLtMatmulAlgoGetHeuristic") || fits(d, a, b, c)) return 7;
    fake_log("heuristic, align %u", p->align);
    for (*got = 0; *got < 3 && *got < wanted; ++*got) {
        memset(&out[*got], 0, sizeof *out);
        out[*got].algo.data[0] = (uint64_t)*got;
    }
    return 0;
}
LtStatus fake_cublasLtMatmulAlgoCheck(LtHandle h, LtDesc d, LtLayout a, LtLayout b, LtLayout c, LtLayout dd,
                                      const LtAlgo *algo, LtHeuristic *r) {
    (void)h, (void)dd;
    memset(r, 0, sizeof *r);
    fake_log("check of algorithm %d", (int)algo->data[0]);
    return algo->data[0] < 3 ? fits(d, a, b, c) : 7;
}

typedef struct {
    struct LtDescState d;
    struct LtLayoutState a, b, c;
    const void *pa, *pb, *pc;
    void *pd;
    double alpha, beta;
    int algo;
} Product;
static double get(LtType t, const void *p, int64_t i) {
    if (t == HD_CUDA_R_64F) return ((const double *)p)[i];
    if (t == HD_CUDA_R_32F) return (double)((const float *)p)[i];
    if (t == HD_CUDA_R_8F_E4M3) return (double)hd_from_e4m3(((const uint8_t *)p)[i]);
    if (t == HD_CUDA_R_8F_E5M2) return (double)hd_from_e5m2(((const uint8_t *)p)[i]);
    const uint16_t half = ((const uint16_t *)p)[i];
    return (double)(t == HD_CUDA_R_16BF ? hd_from_bf16(half) : hd_from_f16(half));
}
static void put(LtType t, void *p, int64_t i, double v) {
    if (t == HD_CUDA_R_64F) ((double *)p)[i] = v;
    else if (t == HD_CUDA_R_32F) ((float *)p)[i] = (float)v;
    else ((uint16_t *)p)[i] = t == HD_CUDA_R_16BF ? hd_to_bf16((float)v) : hd_to_f16((float)v);
}
// Batch q of a matrix of `rows` x `k`, or of `k` x `rows`: eight rows together, by k. Zeroes follow the last row.
enum { SOME = 4 };
typedef double Rows __attribute__((vector_size(8 * sizeof(double))));
static Rows *taken(const struct LtLayoutState *l, const void *p, int64_t q, int64_t rows, int64_t k, bool across) {
    const int64_t n = (rows + 7) / 8 * k;
    Rows *v = aligned_alloc(sizeof *v, (size_t)(n + 1) * sizeof *v);
    if (!v) abort();
    memset(v + (n ? n - k : 0), 0, (size_t)(n ? k : 0) * sizeof *v);
    for (int64_t row = 0; row < rows; row++)
        for (int64_t i = 0; i < k; i++)
            v[row / 8 * k + i][row % 8] = get(l->type, p, q * l->stride + (across ? row * l->ld + i : i * l->ld + row));
    return v;
}
static double finished(const Product *p, double sum, int64_t at, int64_t row, int64_t col) {
    const float *const *scales = (const float *const *)p->d.scales;
    const bool rows = p->d.modes[0] == HD_CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F;
    if (is_fp8(p->a.type) && !has_blocks((LtDesc)&p->d))
        sum *= (double)scales[0][rows ? row : 0] * (double)scales[1][rows ? col : 0];
    sum = p->alpha * sum + (p->beta != 0 ? p->beta * get(p->c.type, p->pc, at) : 0);
    if (p->d.epilogue & 4) sum += get(p->c.type, p->d.bias, row);
    if (p->d.epilogue & 32) sum = 0.5 * sum * (1 + tanh(0.7978845608028654 * (sum + 0.044715 * sum * sum * sum)));
    return sum;
}
// Eight rows times SOME columns from `first` on, of eight by eight in b; added up in the order of k.
static void some_sums(Rows *sum, const Rows *a, const Rows *b, int64_t first, int64_t k, int64_t from, int64_t to) {
    const double *column = (const double *)(b + first / 8 * k + from) + first % 8;
    Rows s0 = {0}, s1 = {0}, s2 = {0}, s3 = {0};
    for (int64_t i = from; i < to; i++, column += 8) {
        s0 += a[i] * column[0];
        s1 += a[i] * column[1];
        s2 += a[i] * column[2];
        s3 += a[i] * column[3];
    }
    sum[0] = s0, sum[1] = s1, sum[2] = s2, sum[3] = s3;
}
// Of factor i: by blocks of 128 elements of a row, [k / 128][rows], or of 128 rows, [rows / 128][k / 128 and zeros].
static double block_scale(const Product *p, int i, int64_t rows, int64_t k, int64_t row, int64_t block) {
    const float *scale = p->d.scales[i];
    const int64_t line = (k / 128 + 3) / 4 * 4;
    return (double)scale[p->d.modes[i] == HD_CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F ? block * rows + row
                                                                                     : row / 128 * line + block];
}
static void block_sums(Rows *sum, const Product *p, const Rows *a, const Rows *b, int64_t first, int64_t col,
                       int64_t k) {
    Rows part[SOME];
    memset(sum, 0, SOME * sizeof *sum);
    for (int64_t block = 0; block < k / 128; block++) {
        some_sums(part, a, b, col, k, block * 128, (block + 1) * 128);
        for (int64_t c = 0; c < SOME && col + c < p->c.cols; c++)
            for (int64_t r = 0; r < 8 && first + r < p->c.rows; r++)
                sum[c][r] += part[c][r] * block_scale(p, 0, p->c.rows, k, first + r, block) *
                             block_scale(p, 1, p->c.cols, k, col + c, block);
    }
}
static void multiply(void *data) {
    const Product *p = data;
    const int64_t k = contracted((LtDesc)&p->d, (LtLayout)&p->a), rows = p->c.rows, cols = p->c.cols;
    FakeTick *tick = (FakeTick *)dlsym(dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD), "fake_tick");
    if (getenv("FAKE_CUDA_LOAD")) {
        if (tick) tick(under_load(p->algo));
        return;
    }
    for (int64_t q = 0; q < p->c.batches; q++) {
        Rows *a = taken(&p->a, p->pa, q, rows, k, p->d.ta), *b = taken(&p->b, p->pb, q, cols, k, !p->d.tb), sum[SOME];
        for (int64_t first = 0; first < rows; first += 8)
            for (int64_t col = 0; col < cols; col += SOME) {
                if (has_blocks((LtDesc)&p->d)) block_sums(sum, p, a + first / 8 * k, b, first, col, k);
                else some_sums(sum, a + first / 8 * k, b, col, k, 0, k);
                for (int64_t c = col; c < cols && c < col + SOME; c++)
                    for (int64_t row = first; row < rows && row < first + 8; row++) {
                        const int64_t at = q * p->c.stride + row + c * p->c.ld;
                        put(p->c.type, p->pd, at, finished(p, sum[c - col][row - first], at, row, c));
                    }
            }
        free(a);
        free(b);
    }
    if (tick) tick(speed[p->algo]);
}
LtStatus fake_cublasLtMatmul(LtHandle h, LtDesc d, const void *alpha, const void *a, LtLayout la, const void *b,
                             LtLayout lb, const void *beta, const void *c, LtLayout lc, void *dd, LtLayout ld,
                             const LtAlgo *algo, void *workspace, size_t bytes, RtStream s) {
    (void)h, (void)ld, (void)workspace, (void)bytes;
    FakeSubmit *submit = (FakeSubmit *)dlsym(dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD), "fake_submit");
    if (fake_call("cublasLtMatmul")) return 7;
    if (fits(d, la, lb, lc) || algo->data[0] > 2) return 7;
    bool wide = d->scale == HD_CUDA_R_64F;
    Product p = {*d, *la, *lb, *lc, a, b, c, dd, wide ? *(const double *)alpha : (double)*(const float *)alpha,
                 wide ? *(const double *)beta : (double)*(const float *)beta, (int)algo->data[0]};
    return submit((CuStream)s, multiply, &p, sizeof p, "product") ? 14 : 0;
}
