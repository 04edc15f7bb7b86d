// Matrix products in tiles of fixed size that threads share. Each tile is one single-threaded call whose order of
// additions depends on the shape alone, so results do not depend on the number of threads.
//
// A product of one row, of a token, is as fast as its weights are read: threads share the columns, each of which is one
// sum. Its bits differ from those of tiles, so it is a call of its own.
//
// f32 operands are read in place. Half-precision operands are converted a block at a time into a tile of scratch
// memory; sums stay in f32 until the whole inner dimension is done.
#include "runtime/host/blas.h"
#include "runtime/host/scratch.h"
#include "runtime/bits.h"

enum { TILE_M = 128, TILE_N = 512, TILE_K = 512 };

typedef struct { float a[TILE_M * TILE_K], b[TILE_K * TILE_N], d[TILE_M * TILE_N], block[TILE_M * TILE_N]; } GemmTiles;
static GemmTiles *tiles(void) { return hd_host_scratch(HD_SCRATCH_GEMM, sizeof(GemmTiles)); }

typedef struct {
    const HdGemm *g;
    const void *a, *b, *bias;
    const float *scale_a, *scale_b; // NULL: it has none
    void *d;
} Product;
typedef struct { int64_t batch, row, col, rows, cols; } Tile; // of d

static int64_t lesser(int64_t a, int64_t b) { return a < b ? a : b; }

// A block of a stored matrix with `width` columns, as dense floats: `rows` x `cols` from (row, col) on.
static const float *block(HdDtype d, const void *matrix, int64_t start, int64_t width, int64_t row, int64_t col,
                          int64_t rows, int64_t cols, float *buffer, int64_t *stride) {
    if (d == HD_F32) {
        *stride = width;
        return (const float *)matrix + start + row * width + col;
    }
    for (int64_t r = 0; r < rows; r++) hd_load_f32(d, matrix, start + (row + r) * width + col, cols, buffer + r * cols);
    *stride = cols;
    return buffer;
}

static bool has_blocks(const HdGemm *g) {
    return g->scaled == HD_SCALED_BLOCKS || g->scaled == HD_SCALED_SQUARES;
}

// The sums of a block, times its scales, are added to a tile.
static void add_block(const Product *p, const Tile *t, int64_t k, const float *sum, float *d, int64_t d_stride) {
    const HdGemm *g = p->g;
    const int64_t block = k / g->block, line = (g->k / g->block + 3) / 4 * 4;
    for (int64_t r = 0; r < t->rows; r++) {
        const float scale = p->scale_a[block * g->m + t->row + r];
        for (int64_t c = 0; c < t->cols; c++) {
            const int64_t col = t->col + c;
            const float other =
                p->scale_b[g->scaled == HD_SCALED_SQUARES ? col / g->block * line + block : block * g->n + col];
            const float x = sum[r * t->cols + c] * scale * other;
            d[r * d_stride + c] = k ? d[r * d_stride + c] + x : x;
        }
    }
}

static void finish_row(const Product *p, float *row, int64_t r, int64_t col, int64_t cols) {
    const bool rows = p->g->scaled == HD_SCALED_ROWS;
    for (int64_t c = 0; p->scale_a && !has_blocks(p->g) && c < cols; c++)
        row[c] = row[c] * p->scale_a[rows ? r : 0] * p->scale_b[rows ? col + c : 0];
    if (p->g->epilogue == HD_EPI_NONE) return;
    float bias[TILE_N];
    hd_load_f32(p->g->d, p->bias, col, cols, bias);
    for (int64_t c = 0; c < cols; c++) row[c] += bias[c];
}

static void run_tile(const Product *p, const Tile *t) {
    const HdGemm *g = p->g;
    const int64_t a0 = t->batch * g->m * g->k, b0 = t->batch * g->k * g->n,
                  d0 = t->batch * g->m * g->n + t->row * g->n + t->col;
    const bool in_place = g->d == HD_F32, blocks = has_blocks(g), whole = g->a == HD_F32 && g->b == HD_F32;
    GemmTiles *const x = in_place && whole ? NULL : tiles();
    float *const d = in_place ? (float *)p->d + d0 : x->d;
    const int64_t d_stride = in_place ? g->n : t->cols, step = blocks ? g->block : whole ? g->k : TILE_K;
    float *const room_a = x ? x->a : NULL, *const room_b = x ? x->b : NULL;
    float beta = in_place && g->accumulate ? 1.0f : 0.0f;
    for (int64_t k = 0; k < g->k; k += step, beta = 1.0f) {
        const int64_t n = lesser(step, g->k - k);
        int64_t a_stride, b_stride;
        const float *a = g->ta ? block(g->a, p->a, a0, g->m, k, t->row, n, t->rows, room_a, &a_stride)
                               : block(g->a, p->a, a0, g->k, t->row, k, t->rows, n, room_a, &a_stride);
        const float *b = g->tb ? block(g->b, p->b, b0, g->k, t->col, k, t->cols, n, room_b, &b_stride)
                               : block(g->b, p->b, b0, g->n, k, t->col, n, t->cols, room_b, &b_stride);
        hd_host_product(&(HostProduct){g->ta, g->tb, t->rows, t->cols, n, a_stride, b_stride,
                                       blocks ? t->cols : d_stride},
                        1.0f, a, b, blocks ? 0.0f : beta, blocks ? x->block : d);
        if (blocks) add_block(p, t, k, x->block, d, d_stride);
    }
    for (int64_t r = 0; r < t->rows; r++) {
        float *row = d + r * d_stride;
        if (!g->k && beta == 0.0f) memset(row, 0, (size_t)t->cols * sizeof(float));
        finish_row(p, row, t->row + r, t->col, t->cols);
        if (in_place) continue;
        if (g->accumulate) {
            float old[TILE_N];
            hd_load_f32(g->d, p->d, d0 + r * g->n, t->cols, old);
            for (int64_t c = 0; c < t->cols; c++) row[c] = old[c] + row[c];
        }
        hd_store_f32(g->d, row, t->cols, p->d, d0 + r * g->n);
    }
}

static void run_tile_f64(const Product *p, const Tile *t) {
    const HdGemm *g = p->g;
    const double *a = (const double *)p->a + t->batch * g->m * g->k + (g->ta ? t->row : t->row * g->k);
    const double *b = (const double *)p->b + t->batch * g->k * g->n + (g->tb ? t->col * g->k : t->col), *bias = p->bias;
    double *d = (double *)p->d + t->batch * g->m * g->n + t->row * g->n + t->col;
    const HostProduct product = {g->ta, g->tb, t->rows, t->cols, g->k, g->ta ? g->m : g->k, g->tb ? g->k : g->n, g->n};
    hd_host_product_f64(&product, a, b, g->accumulate ? 1.0 : 0.0, d);
    for (int64_t r = 0; g->epilogue != HD_EPI_NONE && r < t->rows; r++)
        for (int64_t c = 0; c < t->cols; c++) {
            const double x = d[r * g->n + c] + bias[t->col + c];
            d[r * g->n + c] = g->epilogue == HD_EPI_BIAS
                                  ? x
                                  : 0.5 * x * (1.0 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
        }
}

// --- one row: each weight is read once

enum { ROW_COLS = 64, ROW_K = 32768 }; // columns of a thread's part; the longest row in f32 that a thread keeps

// Four sums of products with a: of four consecutive rows of b.
static void dots_f32(const float *a, const float *b, int64_t k, float *sum) {
    float s0 = 0, s1 = 0, s2 = 0, s3 = 0;
#pragma omp simd reduction(+ : s0, s1, s2, s3)
    for (int64_t i = 0; i < k; i++) {
        s0 += a[i] * b[i];
        s1 += a[i] * b[k + i];
        s2 += a[i] * b[2 * k + i];
        s3 += a[i] * b[3 * k + i];
    }
    sum[0] = s0, sum[1] = s1, sum[2] = s2, sum[3] = s3;
}

static void dots_bf16(const float *a, const uint16_t *b, int64_t k, float *sum) {
    float s0 = 0, s1 = 0, s2 = 0, s3 = 0;
#pragma omp simd reduction(+ : s0, s1, s2, s3)
    for (int64_t i = 0; i < k; i++) {
        s0 += a[i] * hd_from_bf16(b[i]);
        s1 += a[i] * hd_from_bf16(b[k + i]);
        s2 += a[i] * hd_from_bf16(b[2 * k + i]);
        s3 += a[i] * hd_from_bf16(b[3 * k + i]);
    }
    sum[0] = s0, sum[1] = s1, sum[2] = s2, sum[3] = s3;
}

static float dot(HdDtype d, const float *a, const void *b, int64_t at, int64_t k, float *room) {
    const float *row = (const float *)b + at;
    if (d != HD_F32) hd_load_f32(d, b, at, k, room), row = room;
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < k; i++) sum += a[i] * row[i];
    return sum;
}

static void columns_of_rows(const HdGemm *g, const float *a, const void *b, int64_t col, int64_t cols, float *sum) {
    int64_t c = 0;
    for (; c + 4 <= cols && (g->b == HD_F32 || g->b == HD_BF16); c += 4)
        if (g->b == HD_F32) dots_f32(a, (const float *)b + (col + c) * g->k, g->k, sum + c);
        else dots_bf16(a, (const uint16_t *)b + (col + c) * g->k, g->k, sum + c);
    for (; c < cols; c++) sum[c] = dot(g->b, a, b, (col + c) * g->k, g->k, tiles()->b);
}

static void columns_of_columns(const HdGemm *g, const float *a, const void *b, int64_t col, int64_t cols, float *sum) {
    float room[ROW_COLS];
    memset(sum, 0, (size_t)cols * sizeof *sum);
    for (int64_t i = 0; i < g->k; i++) {
        const float *row = (const float *)b + i * g->n + col;
        if (g->b != HD_F32) hd_load_f32(g->b, b, i * g->n + col, cols, room), row = room;
#pragma omp simd
        for (int64_t c = 0; c < cols; c++) sum[c] += a[i] * row[c];
    }
}

static bool is_row(const HdGemm *g) {
    return g->m == 1 && g->batch == 1 && !g->ta && !g->scaled && g->a != HD_F64 && g->k && g->k <= ROW_K;
}

static void run_row(const Product *p) {
    const HdGemm *g = p->g;
    const int64_t parts = (g->n + ROW_COLS - 1) / ROW_COLS;
#pragma omp parallel for schedule(static) if ((double)g->n * (double)g->k > 32768.0)
    for (int64_t i = 0; i < parts; i++) {
        const int64_t col = i * ROW_COLS, cols = lesser(ROW_COLS, g->n - col);
        const float *a = p->a;
        float sum[ROW_COLS], old[ROW_COLS];
        if (g->a != HD_F32) hd_load_f32(g->a, p->a, 0, g->k, tiles()->a), a = tiles()->a;
        (g->tb ? columns_of_rows : columns_of_columns)(g, a, p->b, col, cols, sum);
        finish_row(p, sum, 0, col, cols);
        if (g->accumulate) {
            hd_load_f32(g->d, p->d, col, cols, old);
            for (int64_t c = 0; c < cols; c++) sum[c] = old[c] + sum[c];
        }
        hd_store_f32(g->d, sum, cols, p->d, col);
    }
}

static void run(const Product *p) {
    const HdGemm *g = p->g;
    const int64_t down = (g->m + TILE_M - 1) / TILE_M, across = (g->n + TILE_N - 1) / TILE_N,
                  tiles = g->batch * down * across;
    hd_host_blas_start();
#pragma omp parallel for schedule(static) if ((double)g->m * (double)g->n * (double)g->k * (double)g->batch > 32768.0)
    for (int64_t i = 0; i < tiles; i++) {
        Tile t = {.batch = i / (down * across), .row = i / across % down * TILE_M, .col = i % across * TILE_N};
        t.rows = lesser(TILE_M, g->m - t.row);
        t.cols = lesser(TILE_N, g->n - t.col);
        if (g->a == HD_F64) run_tile_f64(p, &t);
        else run_tile(p, &t);
    }
}

// The workspace is for other targets: the tiles are smaller, one set for each thread.
void hd_host_gemm(const HdGemm *g, const void *a, const void *b, const void *bias, void *d, void *workspace) {
    (void)workspace;
    run(&(Product){.g = g, .a = a, .b = b, .bias = bias, .d = d});
}

void hd_host_gemm_scaled(const HdGemm *g, const void *a, const void *b, const float *scale_a, const float *scale_b,
                         void *d, void *workspace) {
    (void)workspace;
    run(&(Product){.g = g, .a = a, .b = b, .scale_a = scale_a, .scale_b = scale_b, .d = d});
}

void hd_host_gemm_row(const HdGemm *g, const void *a, const void *b, const void *bias, void *d, void *workspace) {
    (void)workspace;
    const Product p = {.g = g, .a = a, .b = b, .bias = bias, .d = d};
    if (is_row(g)) run_row(&p);
    else run(&p);
}
