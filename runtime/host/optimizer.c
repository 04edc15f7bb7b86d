// The update: gradient norm, the scalars of a step, AdamW. The arithmetic and its order are the reference evaluator's.
#include "runtime/host/scratch.h"

static double square_sum(const float *x, int64_t n) {
    double lane[8] = {0};
    int64_t i = 0;
    for (; i + 8 <= n; i += 8)
        for (int k = 0; k < 8; k++) lane[k] += (double)x[i + k] * (double)x[i + k];
    for (int k = 0; i < n; i++, k++) lane[k & 7] += (double)x[i] * (double)x[i];
    return ((lane[0] + lane[4]) + (lane[2] + lane[6])) + ((lane[1] + lane[5]) + (lane[3] + lane[7]));
}

// One sum per block. Returns their number.
static int64_t block_sums(const float *x, int64_t count, double *sums) {
    const int64_t blocks = (count + HD_HOST_NORM_BLOCK - 1) / HD_HOST_NORM_BLOCK;
#pragma omp parallel for schedule(static) if (blocks > 16)
    for (int64_t i = 0; i < blocks; i++)
        sums[i] = square_sum(x + i * HD_HOST_NORM_BLOCK,
                             i < blocks - 1 ? HD_HOST_NORM_BLOCK : count - i * HD_HOST_NORM_BLOCK);
    return blocks;
}

void hd_host_grad_norm(int n, const float *const *buffers, const int64_t *counts, double loss_scale, float *norm,
                       void *workspace) {
    double total = 0, *const sums = workspace;
    for (int k = 0; k < n; k++) {
        const int64_t blocks = block_sums(buffers[k], counts[k], sums);
        for (int64_t i = 0; i < blocks; i++) total += sums[i];
    }
    *norm = (float)(sqrt(total) / loss_scale);
}

void hd_host_square_sums(int n, const float *const *buffers, const int64_t *counts, double *sums) {
    for (int k = 0; k < n; k++) sums += block_sums(buffers[k], counts[k], sums);
}

void hd_host_root_sum(int64_t n, const double *sums, double loss_scale, float *norm) {
    double total = 0;
    for (int64_t i = 0; i < n; i++) total += sums[i];
    *norm = (float)(sqrt(total) / loss_scale);
}

void hd_host_step_scalars(const HdOptimizer *o, const float *norm, int32_t *step, float *scalars) {
    const double t = (double)(*step += 1), clip = norm ? o->clip : 0.0, n = norm ? (double)*norm : 0.0;
    scalars[0] = (float)hd_learning_rate(o, t);
    scalars[1] = (float)((clip > 0 && n > clip ? clip / n : 1.0) / o->loss_scale);
    scalars[2] = (float)(1.0 - pow(o->beta1, t));
    scalars[3] = (float)(1.0 - pow(o->beta2, t));
    scalars[4] = (float)t;
    scalars[5] = scalars[6] = scalars[7] = 0;
}

typedef struct { float lr, clip, c1, c2, b1, b2, n1, n2, eps; } Numbers;

static void adamw_block(const Numbers *s, float decay, int64_t n, const float *grad, float *master, float *m,
                        float *v) {
    for (int64_t i = 0; i < n; i++) {
        const float g = grad[i] * s->clip;
        m[i] = s->b1 * m[i] + s->n1 * g;
        v[i] = s->b2 * v[i] + s->n2 * g * g;
        const float direction = m[i] / s->c1 / (sqrtf(v[i] / s->c2) + s->eps);
        master[i] = master[i] - s->lr * (direction + decay * master[i]);
    }
}

void hd_host_random(int32_t *counter, int64_t sites, int64_t stride, int32_t *keys) {
    for (int64_t s = 0; s < sites; s++) {
        const int32_t row[8] = {counter[0], counter[1], counter[2], counter[3], (int32_t)s};
        memcpy(keys + s * 8, row, sizeof row);
    }
    const uint64_t next = ((uint64_t)(uint32_t)counter[3] << 32 | (uint32_t)counter[2]) + (uint64_t)stride;
    counter[2] = (int32_t)(uint32_t)next;
    counter[3] = (int32_t)(uint32_t)(next >> 32);
}

void hd_host_adamw(const HdOptimizer *o, int64_t count, int64_t decayed, const float *grad, float *master, float *m,
                   float *v, void *compute, HdDtype compute_dtype, const float *scalars) {
    enum { BLOCK = 4096 };
    const float b1 = (float)o->beta1, b2 = (float)o->beta2;
    const Numbers s = {scalars[0], scalars[1], scalars[2], scalars[3], b1, b2, 1.0f - b1, 1.0f - b2, (float)o->eps};
#pragma omp parallel for schedule(static) if (count > 4 * BLOCK)
    for (int64_t at = 0; at < count; at += BLOCK) {
        const int64_t end = at + BLOCK < count ? at + BLOCK : count, middle = decayed < at    ? at
                                                                              : decayed > end ? end
                                                                                              : decayed;
        adamw_block(&s, (float)o->weight_decay, middle - at, grad + at, master + at, m + at, v + at);
        adamw_block(&s, 0.0f, end - middle, grad + middle, master + middle, m + middle, v + middle);
        if (compute && compute != (void *)master) hd_store_f32(compute_dtype, master + at, end - at, compute, at);
    }
}
