// The loss over a vocabulary that is split over ranks, and what a rank looks up in its part.
#include "runtime/host/scratch.h"

void hd_host_own_index(int64_t n, uint64_t first, const int32_t *index, int32_t *own) {
    for (int64_t i = 0; i < n; i++) own[i] = index[i] - (int32_t)first;
}

static float log_of_parts(int64_t parts, int64_t rows, const float *lse) {
    float top = -INFINITY, sum = 0;
    for (int64_t p = 0; p < parts; p++) top = (top > lse[p * rows] || top != top) ? top : lse[p * rows]; // NaN wins
    if (top == -INFINITY) return top;
    for (int64_t p = 0; p < parts; p++) sum += expf(lse[p * rows] - top);
    return top + logf(sum);
}

void hd_host_loss_of_parts(int64_t parts, int64_t rows, const float *lse, const float *at, const int32_t *targets,
                           const float *weights, int32_t ignore, float *loss, float *all) {
    double total = 0;
    for (int64_t r = 0; r < rows; r++) {
        const float weight = !weights ? 1 : targets[r] == ignore ? 0 : weights[r];
        float logit = 0;
        for (int64_t p = 0; p < parts; p++) logit += at[p * rows + r];
        all[r] = log_of_parts(parts, rows, lse + r);
        if (weight != 0) total += (double)(weight * (all[r] - logit));
    }
    *loss = (float)(total / (weights ? 1.0 : (double)rows));
}
