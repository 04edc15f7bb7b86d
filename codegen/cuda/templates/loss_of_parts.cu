// Mean cross entropy, or its sum by weights, from what each part of the vocabulary says about a row: the log of its sum
// of exp, and the logit of the target, 0 where another part has it. Parts are added in their order, rows in a fixed
// tree: thread t adds rows t, t + 1024, ... in order, then halves are added.
//
// Written before this text by the compiler:
//   LP_KERNEL  name; LP_PARTS, LP_ROWS  their numbers
//   LP_WEIGHTED  1: with weights, of which a row whose target is LP_IGNORE has none
// One block of 1024 threads.
extern "C" __global__ void __launch_bounds__(1024) LP_KERNEL(const float *lse, const float *at,
#if LP_WEIGHTED
                                                             const int *targets, const float *weights,
#endif
                                                             float *loss, float *all) {
    enter();
    __shared__ float part[1024];
    float total = 0;
    for (int r = threadIdx.x; r < LP_ROWS; r += 1024) {
        float top = lse[r], logit = at[r], sum = 0;
        for (int p = 1; p < LP_PARTS; p++) {
            const float x = lse[p * LP_ROWS + r];
            top = x > top || x != x ? x : top; // NaN wins
            logit += at[p * LP_ROWS + r];
        }
        const float shift = top - top == 0 ? top : 0;
        for (int p = 0; p < LP_PARTS; p++) sum += expf(lse[p * LP_ROWS + r] - shift);
        const float log_sum = shift + logf(sum);
        all[r] = log_sum;
#if LP_WEIGHTED
        const float weight = targets[r] == LP_IGNORE ? 0 : weights[r];
        if (weight != 0) total += weight * (log_sum - logit);
#else
        total += log_sum - logit;
#endif
    }
    part[threadIdx.x] = total;
    for (int d = 512; d > 0; d /= 2) {
        __syncthreads();
        if ((int)threadIdx.x < d) part[threadIdx.x] += part[threadIdx.x + d];
    }
    if (threadIdx.x == 0) *loss = part[0] / (LP_WEIGHTED ? 1 : LP_ROWS);
}
