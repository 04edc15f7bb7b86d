// The token that a text goes on with, chosen by n logits. It becomes what the next run of the function of a token
// reads, one position further on, and takes the place of the first logit, for the host; there it is -1, and 0 for that
// run, where a logit is not finite.
//
// Greedy text takes the first of the largest (choose_largest). Otherwise tokens have an order: the likeliest first, of
// equal logits the first token; or, where all may be chosen, that of their numbers. A place in it is one number of 52
// bits, and choose_among finds the first place up to which there is more than a limit of something: of tokens (top_k),
// of their shares (top_p), and then of the shares of those that remain, where the position of this token in [0, 1)
// falls. A run decides LEVEL bits of the place. Shares are whole multiples of 2^-42 of that of the likeliest, so that
// sums are exact in any order.
enum { THREADS = 1024, MOST_BLOCKS = 64, LEVEL = 11, BINS = 1 << LEVEL, TOKEN_BITS = 20, LEVELS = 5 };
typedef unsigned long long u64;

struct Largest {
    float logit;
    int at;
    bool bad; // a logit that is not finite
};
struct Chosen {
    Largest best;
    u64 last;  // the last place that may be chosen
    u64 place; // the bits that are decided
    u64 limit, passed; // what is looked for; how much there is before these bits
};
__device__ Largest found[MOST_BLOCKS];
__device__ Chosen chosen;
__device__ u64 bins[BINS];
__device__ unsigned arrived;

__device__ __forceinline__ void take(Largest &best, const Largest &other) {
    best.bad |= other.bad;
    if (other.logit > best.logit || (other.logit == best.logit && other.at < best.at))
        best.logit = other.logit, best.at = other.at;
}

__device__ __forceinline__ void take_warp(Largest &best) {
    for (int by = 1; by < 32; by *= 2) {
        const Largest other = {__shfl_xor_sync(0xffffffffu, best.logit, by), __shfl_xor_sync(0xffffffffu, best.at, by),
                               __shfl_xor_sync(0xffffffffu, (int)best.bad, by) != 0};
        take(best, other);
    }
}

// Whether this block is the last one to arrive here: it then sees what the others have written.
__device__ __forceinline__ bool last_block() {
    __shared__ bool last;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) last = atomicAdd(&arrived, 1u) == gridDim.x - 1;
    __syncthreads();
    if (!last) return false;
    __threadfence();
    if (threadIdx.x == 0) arrived = 0;
    return true;
}

__device__ __forceinline__ void give(const Largest &best, int at, float *logits, int *token, int *position) {
    *token = best.bad ? 0 : at;
    *position += 1;
    *(int *)logits = best.bad ? -1 : at;
}

// token NULL: the largest is only remembered.
extern "C" __global__ void __launch_bounds__(1024) choose_largest(float *logits, long long n, int *token,
                                                                  int *position) {
    enum { AHEAD = 4 };
    __shared__ Largest warps[THREADS / 32];
    Largest best = {__uint_as_float(0xff800000u), 0x7fffffff, false};
    const auto see = [&](float x, long long at) { // of a thread's logits in their order
        best.bad |= !(fabsf(x) <= 3.402823466e+38f);
        if (x > best.logit) best.logit = x, best.at = (int)at;
    };
    const long long fours = (u64)logits % 16 ? 0 : n / 4, stride = (long long)gridDim.x * THREADS,
                    mine = (long long)blockIdx.x * THREADS + threadIdx.x;
    for (long long from = mine; from < fours; from += stride * AHEAD) {
        float4 x[AHEAD];
#pragma unroll
        for (int i = 0; i < AHEAD; i++)
            if (from + i * stride < fours) x[i] = ((const float4 *)logits)[from + i * stride];
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            const long long at = (from + i * stride) * 4;
            if (at >= 4 * fours) continue;
            see(x[i].x, at);
            see(x[i].y, at + 1);
            see(x[i].z, at + 2);
            see(x[i].w, at + 3);
        }
    }
    for (long long at = 4 * fours + mine; at < n; at += stride) see(logits[at], at);
    take_warp(best);
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = best;
    __syncthreads();
    if (threadIdx.x < 32) {
        best = warps[threadIdx.x];
        take_warp(best);
        if (threadIdx.x == 0) found[blockIdx.x] = best;
    }
    if (!last_block() || threadIdx.x >= 32) return;
    best = found[threadIdx.x < gridDim.x ? threadIdx.x : 0];
    for (unsigned b = threadIdx.x + 32; b < gridDim.x; b += 32) take(best, found[b]);
    take_warp(best);
    if (threadIdx.x) return;
    chosen.best = best;
    chosen.last = ~0ull;
    if (token) give(best, best.at, logits, token, position);
}

__device__ __forceinline__ u64 place_of(float x, long long token, bool by_number) {
    const unsigned bits = __float_as_uint(x + 0.0f); // -0 is 0
    const unsigned key = by_number ? 0 : bits >> 31 ? bits : ~(bits | 0x80000000u); // grows as x falls
    return (u64)key << TOKEN_BITS | (u64)token;
}

// The bits of a level: 11, 11 and 10 of the logit, 10 and 10 of the token.
__device__ __forceinline__ int bits_below(int level) { return level < 2 ? 41 - LEVEL * level : (4 - level) * 10; }

// Level `level` of the place at which the sum of shares, or of tokens where `count` is not 0, passes its limit: count
// tokens, or the share `part` of all. closed: the limit itself is enough. done: the token there is chosen, and not the
// last place that may be.
extern "C" __global__ void __launch_bounds__(1024) choose_among(float *logits, long long n, int *token, int *position,
                                                                double temperature, double part, long long count,
                                                                int level, int by_number, int closed, int done) {
    __shared__ u64 mine[BINS], warps[THREADS / 32];
    const Chosen c = chosen;
    const int below = bits_below(level), begin = by_number ? LEVELS - 2 : 0;
    const u64 before = level == begin ? 0 : c.place;
    const int above = level == begin ? 63 : bits_below(level - 1);
    for (int i = threadIdx.x; i < BINS; i += THREADS) mine[i] = 0;
    __syncthreads();
    for (long long at = (long long)blockIdx.x * THREADS + threadIdx.x; at < n; at += (long long)gridDim.x * THREADS) {
        const float x = logits[at];
        const u64 place = place_of(x, at, by_number != 0);
        if (place > c.last || place >> above != before >> above) continue;
        const double share = exp(((double)x - (double)c.best.logit) / temperature);
        const u64 weight = count ? 1 : (u64)(share * 4398046511104.0 + 0.5);
        if (weight) atomicAdd(&mine[place >> below & (BINS - 1)], weight);
    }
    __syncthreads();
    for (int i = threadIdx.x; i < BINS; i += THREADS)
        if (mine[i]) atomicAdd(&bins[i], mine[i]);
    if (!last_block()) return;
    // a thread has two bins, one after the other
    const u64 first = bins[2 * threadIdx.x], both = first + bins[2 * threadIdx.x + 1];
    const int lane = threadIdx.x % 32;
    u64 sum = both;
    for (int by = 1; by < 32; by *= 2) {
        const u64 other = __shfl_up_sync(0xffffffffu, sum, by);
        if (lane >= by) sum += other;
    }
    if (lane == 31) warps[threadIdx.x / 32] = sum;
    bins[2 * threadIdx.x] = bins[2 * threadIdx.x + 1] = 0;
    __syncthreads();
    u64 all = 0;
    for (int w = 0; w < THREADS / 32; w++) {
        if (w < (int)threadIdx.x / 32) sum += warps[w];
        all += warps[w];
    }
    if (c.best.bad) {
        if (done && level == LEVELS - 1 && threadIdx.x == 0) give(c.best, 0, logits, token, position);
        return;
    }
    u64 limit = c.limit, passed = level == begin ? 0 : c.passed;
    if (level == begin) {
        const double want = part * (double)all;
        limit = count ? (u64)count - 1 : closed ? (u64)ceil(want) - (want > 0) : (u64)want;
        if (limit >= all) limit = all - 1;
    }
    const u64 end = passed + sum, start = end - both;
    if (limit < start || limit >= end) return; // of another thread's bins
    const u64 bin = 2 * threadIdx.x + (limit >= start + first);
    const u64 place = before | bin << below;
    chosen.place = place;
    chosen.limit = limit;
    chosen.passed = limit >= start + first ? start + first : start;
    if (level < LEVELS - 1) return;
    if (done) give(c.best, (int)(place & ((1ull << TOKEN_BITS) - 1)), logits, token, position);
    else chosen.last = place;
}
