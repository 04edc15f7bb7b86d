// Cross entropy with its gradient, and the gradient of an embedding. Sums over rows run in a fixed order on any number
// of threads.
#include "runtime/host/scratch.h"

enum { PIECE = 1024, COLUMNS = 32 };

// log(sum(exp(row))), a piece at a time. *target: the logit of the target.
static float log_sum(HdDtype dt, const void *logits, int64_t row, int64_t vocab, int32_t wanted, float *target) {
    float x[PIECE], top = -INFINITY, sum = 0;
    for (int64_t at = 0; at < vocab; at += PIECE) {
        const int64_t n = vocab - at < PIECE ? vocab - at : PIECE;
        hd_load_f32(dt, logits, row * vocab + at, n, x);
        const float m = hd_row_max(x, n);
        if (wanted >= at && wanted < at + n) *target = x[wanted - at];
        const float now = (top > m || top != top) ? top : m; // NaN wins
        if (now == -INFINITY) continue;
        for (int64_t i = 0; i < n; i++) x[i] = hd_exp(x[i] - now);
        sum = sum * hd_exp(top - now) + hd_row_sum(x, n);
        top = now;
    }
    return top + logf(sum);
}

static void grad_row(HdDtype dt, int64_t row, int64_t vocab, const void *logits, int32_t wanted, float lse, float scale,
                     void *dlogits) {
    float x[PIECE];
    for (int64_t at = 0; at < vocab; at += PIECE) {
        const int64_t n = vocab - at < PIECE ? vocab - at : PIECE;
        hd_load_f32(dt, logits, row * vocab + at, n, x);
        for (int64_t i = 0; i < n; i++) x[i] = hd_exp(x[i] - lse) * scale;
        if (wanted >= at && wanted < at + n) x[wanted - at] -= scale;
        hd_store_f32(dt, x, n, dlogits, row * vocab + at);
    }
}

// weights: NULL, or a number a row; then a target `ignore` has none, and a row without weight needs no target.
typedef struct { const int32_t *targets; const float *weights; int32_t ignore; } Rows;

static float weight_of(const Rows *y, int64_t r) {
    return !y->weights ? 1.0f : y->targets[r] == y->ignore ? 0.0f : y->weights[r];
}

static void cross_entropy(HdDtype dt, int64_t rows, int64_t vocab, const void *logits, Rows y, const float *dloss,
                          float *loss, void *dlogits, float *losses) {
    const double parts = y.weights ? 1.0 : (double)rows;
    // before the loss is written: both may be in the same bytes
    const float scale = dloss ? *dloss / (float)parts : 0.0f;
#pragma omp parallel for schedule(static) if (rows * vocab > 16384)
    for (int64_t r = 0; r < rows; r++) {
        float target = NAN;
        const float weight = weight_of(&y, r);
        const int32_t wanted = weight != 0 ? y.targets[r] : 0;
        const float lse = log_sum(dt, logits, r, vocab, wanted, &target);
        losses[r] = weight != 0 ? weight * (lse - target) : 0.0f;
        if (dlogits) grad_row(dt, r, vocab, logits, wanted, lse, scale * weight, dlogits);
    }
    double total = 0;
    for (int64_t r = 0; r < rows; r++) total += (double)losses[r];
    *loss = (float)(total / parts);
}

void hd_host_cross_entropy(HdDtype dt, int64_t rows, int64_t vocab, const void *logits, const int32_t *targets,
                           const float *weights, int32_t ignore, float *loss, void *workspace) {
    cross_entropy(dt, rows, vocab, logits, (Rows){targets, weights, ignore}, NULL, loss, NULL, workspace);
}

void hd_host_cross_entropy_grad(HdDtype dt, int64_t rows, int64_t vocab, const void *logits, const int32_t *targets,
                                const float *weights, int32_t ignore, const float *dloss, float *loss, void *dlogits,
                                void *workspace) {
    cross_entropy(dt, rows, vocab, logits, (Rows){targets, weights, ignore}, dloss, loss, dlogits, workspace);
}

void hd_host_embedding_grad(HdDtype dt, int64_t rows, int64_t vocab, int64_t cols, const void *dy, const int32_t *index,
                            float *out, bool accumulate, void *workspace) {
    int32_t *first = workspace, *next = first + vocab; // positions of each row of the table, in order; -1: none
    memset(first, 0xff, (size_t)vocab * sizeof *first);
    for (int64_t r = rows - 1; r >= 0; r--) {
        if (index[r] < 0 || index[r] >= vocab) continue;
        next[r] = first[index[r]];
        first[index[r]] = (int32_t)r;
    }
#pragma omp parallel for schedule(static, 64) if (rows * cols > 16384)
    for (int64_t v = 0; v < vocab; v++)
        for (int64_t col = 0; col < cols && (first[v] >= 0 || !accumulate); col += COLUMNS) {
            const int64_t n = cols - col < COLUMNS ? cols - col : COLUMNS;
            float sum[COLUMNS] = {0}, x[COLUMNS], *to = out + v * cols + col;
            for (int32_t r = first[v]; r >= 0; r = next[r]) {
                hd_load_f32(dt, dy, r * cols + col, n, x);
                for (int64_t c = 0; c < n; c++) sum[c] += x[c];
            }
            for (int64_t c = 0; c < n; c++) to[c] = accumulate ? to[c] + sum[c] : sum[c];
        }
}
