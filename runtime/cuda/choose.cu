// The token that greedy text goes on with: the first of the largest of n logits. It becomes what the next run of the
// function of a token reads, one position further on, and takes the place of the first logit, for the host; there it is
// -1, and 0 for that run, where a logit is not finite. One block.
struct Largest {
    float logit;
    int at;
    bool bad; // a logit that is not finite
};
__device__ __forceinline__ void take(Largest &best, const Largest &other) {
    best.bad |= other.bad;
    if (other.logit > best.logit || (other.logit == best.logit && other.at < best.at))
        best.logit = other.logit, best.at = other.at;
}

extern "C" __global__ void __launch_bounds__(1024) choose_largest(float *logits, long long n, int *token,
                                                                  int *position) {
    enum { THREADS = 1024, AHEAD = 4 };
    __shared__ Largest warps[THREADS / 32];
    Largest best = {__uint_as_float(0xff800000u), 0x7fffffff, false};
    const auto see = [&](float x, long long at) { // of a thread's logits in their order
        best.bad |= !(fabsf(x) <= 3.402823466e+38f);
        if (x > best.logit) best.logit = x, best.at = (int)at;
    };
    const long long fours = (unsigned long long)logits % 16 ? 0 : n / 4;
    for (long long from = threadIdx.x; from < fours; from += THREADS * AHEAD) {
        float4 x[AHEAD];
#pragma unroll
        for (int i = 0; i < AHEAD; i++)
            if (from + i * THREADS < fours) x[i] = ((const float4 *)logits)[from + i * THREADS];
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            const long long at = (from + i * THREADS) * 4;
            if (at >= 4 * fours) continue;
            see(x[i].x, at);
            see(x[i].y, at + 1);
            see(x[i].z, at + 2);
            see(x[i].w, at + 3);
        }
    }
    for (long long at = 4 * fours + threadIdx.x; at < n; at += THREADS) see(logits[at], at);
    for (int by = 1; by < 32; by *= 2) {
        const Largest other = {__shfl_xor_sync(0xffffffffu, best.logit, by), __shfl_xor_sync(0xffffffffu, best.at, by),
                               __shfl_xor_sync(0xffffffffu, (int)best.bad, by) != 0};
        take(best, other);
    }
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = best;
    __syncthreads();
    if (threadIdx.x) return;
    for (int w = 1; w < THREADS / 32; w++) take(best, warps[w]);
    *token = best.bad ? 0 : best.at;
    *position += 1;
    *(int *)logits = best.bad ? -1 : best.at;
}
