// The update: gradient norm, the scalars of a step, the optimizer. The arithmetic and its order are the reference
// evaluator's.
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

// ir/bins.h, whose numbers these are.
enum { BIN_RUN = 32, BIN_BITS = 20, BIN_LEAST = -300, BINS = 29 };

static void add_to_bins(double *bins, double v) {
    double above = 0; // the digits from bin k + 1 on, in units of bin k
    for (int k = BINS - 1; k >= 0; k--) {
        const double unit = ldexp(1, BIN_LEAST + k * BIN_BITS), digits = floor(v / unit);
        bins[k] += (digits - above) * unit;
        above = digits * (1 << BIN_BITS);
    }
}

void hd_host_exact_square_sums(int n, const float *const *buffers, const int64_t *counts, double *bins) {
    for (int k = 0; k < BINS; k++) bins[k] = 0;
    for (int b = 0; b < n; b++) {
        double *const bin = bins;
#pragma omp parallel for schedule(static) reduction(+ : bin[:BINS]) if (counts[b] > 1 << 16)
        for (int64_t i = 0; i < counts[b]; i += BIN_RUN) add_to_bins(bin, square_sum(buffers[b] + i, BIN_RUN));
    }
}

void hd_host_exact_root_sum(int64_t n, const double *bins, double loss_scale, float *norm) {
    double total = 0;
    for (int k = BINS - 1; k >= 0; k--) {
        double bin = 0;
        for (int64_t i = k; i < n; i += BINS) bin += bins[i];
        total += bin;
    }
    *norm = (float)(sqrt(total) / loss_scale);
}

// Of element `at` of rows that are `stride` elements apart.
static float half_sums(const float *rows, int64_t n, int64_t stride) {
    return n == 1 ? *rows : half_sums(rows, n / 2, stride) + half_sums(rows + n / 2 * stride, n / 2, stride);
}

void hd_host_tree_sum(int64_t n, int64_t count, const float *rows, float *sum) {
    for (int64_t i = 0; i < count; i++) sum[i] = half_sums(rows + i, n, count);
}

void hd_host_step_scalars(const HdOptimizer *o, const float *norm, int32_t *step, float *scalars) {
    const double t = (double)(*step += 1), clip = norm ? o->clip : 0.0, n = norm ? (double)*norm : 0.0;
    scalars[0] = (float)hd_learning_rate(&o->lr, t);
    scalars[1] = (float)((clip > 0 && n > clip ? clip / n : 1.0) / o->loss_scale);
    if (o->skips && !isfinite(n)) scalars[1] = (float)(n - n);
    scalars[2] = (float)(1.0 - pow(o->beta1, t));
    scalars[3] = (float)(1.0 - pow(o->beta2, t));
    scalars[4] = (float)t;
    scalars[5] = (float)(t - (double)scalars[4]);
    scalars[6] = scalars[7] = 0;
}

// The z-score of v among the last numbers, its own among them (the same text as in step_scalars.cu).
static float z_score(float *last, float v) {
    const int n = HD_HISTORY_STEPS, seen = (int)last[n];
    double mean = 0, square = 0;
    if (!isfinite(v)) return v - v;
    last[seen % n] = v;
    last[n] = (float)(seen + 1 < 2 * n ? seen + 1 : n);
    if (seen < n) return NAN;
    for (int i = 0; i < n; i++) mean += (double)last[i] / n;
    for (int i = 0; i < n; i++) {
        const double d = (double)last[i] - mean;
        square += d * d / n;
    }
    return square > 0 ? (float)(((double)v - mean) / sqrt(square)) : 0.0f;
}

void hd_host_skip_outlier(const HdOptimizer *o, const float *norm, const float *loss, float *history, float *scalars) {
    float *z = history + HD_HISTORY_Z;
    z[0] = z_score(history, *loss);
    z[1] = z_score(history + HD_HISTORY_STEPS + 1, *norm);
    for (int i = 0; i < 2; i++)
        if (o->skip_z[i] > 0 && (double)z[i] > o->skip_z[i]) scalars[1] = NAN;
}

void hd_host_dropout_keys(int32_t *counter, int64_t sites, int64_t stride, uint64_t place, int32_t *keys) {
    for (int64_t s = 0; s < sites; s++) {
        const int32_t row[8] = {counter[0], counter[1], counter[2], counter[3], (int32_t)s, (int32_t)place};
        memcpy(keys + s * 8, row, sizeof row);
    }
    const uint64_t next = ((uint64_t)(uint32_t)counter[3] << 32 | (uint32_t)counter[2]) + (uint64_t)stride;
    counter[2] = (int32_t)(uint32_t)next;
    counter[3] = (int32_t)(uint32_t)(next >> 32);
}

void hd_host_update(HdUpdate *update, int64_t count, int64_t decayed, float weight_decay, float lr_scale,
                    const float *grad, float *master, int n_states, float *const *states, void *compute,
                    HdDtype compute_dtype, const float *scalars) {
    enum { BLOCK = 4096 };
    const float own[] = {scalars[0] * lr_scale, scalars[1], scalars[2], scalars[3]};
#pragma omp parallel for schedule(static) if (count > 4 * BLOCK)
    for (int64_t at = 0; at < count; at += BLOCK) {
        const int64_t end = at + BLOCK < count ? at + BLOCK : count, middle = decayed < at    ? at
                                                                              : decayed > end ? end
                                                                                              : decayed;
        float *first[HD_STATES], *second[HD_STATES];
        for (int i = 0; i < n_states; i++) first[i] = states[i] + at, second[i] = states[i] + middle;
        update(middle - at, own, weight_decay, grad + at, master + at, first);
        update(end - middle, own, 0.0f, grad + middle, master + middle, second);
        if (compute && compute != (void *)master) hd_store_f32(compute_dtype, master + at, end - at, compute, at);
    }
}

void hd_host_update_narrow(HdUpdate *update, int64_t count, int64_t decayed, float weight_decay, float lr_scale,
                           const float *grad, float *master, int n_states, HdDtype dtype, void *const *states,
                           void *compute, HdDtype compute_dtype, const float *scalars) {
    enum { BLOCK = 2048 };
#pragma omp parallel for schedule(static) if (count > 4 * BLOCK)
    for (int64_t at = 0; at < count; at += BLOCK) {
        const int64_t n = at + BLOCK < count ? BLOCK : count - at;
        float wide[HD_STATES][BLOCK], *parts[HD_STATES];
        for (int i = 0; i < n_states; i++) hd_load_f32(dtype, states[i], at, n, parts[i] = wide[i]);
        hd_host_update(update, n, decayed - at, weight_decay, lr_scale, grad + at, master + at, n_states, parts, NULL,
                       HD_F32, scalars);
        for (int i = 0; i < n_states; i++) hd_store_f32(dtype, wide[i], n, states[i], at);
        if (compute && compute != (void *)master) hd_store_f32(compute_dtype, master + at, n, compute, at);
    }
}
