// State-space duality on tensor cores (mma.sync), of bf16 and heads of 64: what the kernels of both directions share.
// A step is 64 positions, whatever the chunk; states go from step to step in f32 and into products in bf16. mma.cu
// precedes this text, and these do:
//   SC_SPACE                 name of the namespace
//   SC_DT, SC_A, SC_D        types of dt, of a, of d
//   SC_BATCH, SC_SEQ, SC_HEADS, SC_GROUPS, SC_STATE  sizes; SC_STATE: 64 or 128
//   SC_SKIP, SC_PACKED       1: d, documents are there
//   SC_AT_*                  where the parts of the workspace begin, in f32 elements (ir/ssd.h)
//   SC_CLOCK                 name of the kernel below
namespace SC_SPACE {
enum { STEP = 64, SIZE = 64, STATE = SC_STATE, STEPS = (SC_SEQ + 63) / 64, LONG = STEPS * 64,
       SHARE = SC_HEADS / SC_GROUPS };
// From row to row of a tile in shared memory, so that the rows of an ldmatrix are in different banks; bytes of a tile.
enum { X_PITCH = SIZE + 8, B_PITCH = STATE + 8, X_TILE = STEP * X_PITCH * 2, B_TILE = STEP * B_PITCH * 2 };

// Numbers of the positions of a step and a head, in shared memory: the sum of dt a log2(e) from the start of the step,
// dt, and where the document of each position begins, counted from the step's first.
struct Numbers {
    float clock[STEP], dt[STEP];
    int start[SC_PACKED ? STEP : 1];
    u32 most[4]; // the largest magnitudes in parts of the state that the step begins with, as bits; of SC_STATES
    __device__ __forceinline__ bool seen(int i, int j) const { return j <= i && (!SC_PACKED || j >= start[i]); }
    __device__ __forceinline__ float decay(int i, int j) const {
        return seen(i, j) ? fast_exp2(clock[i] - clock[j]) : 0.0f;
    }
    __device__ __forceinline__ float in(int i) const { // what is left at i of the state that comes into the step
        return !SC_PACKED || start[i] < 0 ? fast_exp2(clock[i]) : 0.0f;
    }
    __device__ __forceinline__ float out(int j) const { // of j in the state that leaves it
        return seen(STEP - 1, j) ? fast_exp2(clock[STEP - 1] - clock[j]) : 0.0f;
    }
};

__device__ __forceinline__ i64 x_at(int batch, int position, int head) {
    return (((i64)batch * SC_SEQ + position) * SC_HEADS + head) * SIZE;
}
__device__ __forceinline__ i64 b_at(int batch, int position, int group) {
    return (((i64)batch * SC_SEQ + position) * SC_GROUPS + group) * STATE;
}

// Copies of 64 rows of WIDE elements, `n` of which are there, by THREADS threads; zeroes for the others.
template <int WIDE, int THREADS, class T>
__device__ __forceinline__ void fetch(u32 to, const T *from, i64 pitch, int n) {
#pragma unroll
    for (int i = 0; i < 64 * WIDE / 8; i += THREADS) {
        const int at = i + (int)threadIdx.x, r = at / (WIDE / 8), c = at % (WIDE / 8) * 8;
        mma_copy(to + 2 * (r * (WIDE + 8) + c), from + (r < n ? r * pitch + c : 0), r < n);
    }
}
// Copies of a step's numbers but for documents. The workspace has them for whole steps.
__device__ __forceinline__ void fetch_numbers(Numbers *to, const float *w, int batch, int head, int step) {
    const int t = threadIdx.x % 16 * 4;
    const i64 at = ((i64)batch * SC_HEADS + head) * LONG + step * STEP + t;
    if (threadIdx.x < 16) copy_ahead<16>(to->clock + t, w + SC_AT_CLOCK + at);
    else if (threadIdx.x < 32) copy_ahead<16>(to->dt + t, w + SC_AT_DT + at);
}
// Of documents; positions beyond the end belong to the last one.
__device__ __forceinline__ void put_starts(Numbers *to, const int *starts, int batch, int step) {
    if constexpr (SC_PACKED)
        if (threadIdx.x < STEP)
            to->start[threadIdx.x] =
                starts[(i64)batch * SC_SEQ + min(step * STEP + (int)threadIdx.x, SC_SEQ - 1)] - step * STEP;
}

__device__ __forceinline__ float low(u32 x) { return __uint_as_float(x << 16); }
__device__ __forceinline__ float high(u32 x) { return __uint_as_float(x & 0xffff0000u); }
__device__ __forceinline__ u32 scaled(u32 x, float l, float h) { return pair_bf16(high(x) * h, low(x) * l); }

// The four threads of a row have 2 columns each of four pieces of 8; afterwards each has one whole piece.
__device__ __forceinline__ void turn(u32 (&w)[4]) {
#pragma unroll
    for (int d = 1; d < 4; d *= 2) {
        const bool odd = threadIdx.x & d;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            if (i & d) continue;
            const u32 x = __shfl_xor_sync(~0u, odd ? w[i] : w[i + d], d);
            if (odd) w[i] = x;
            else w[i + d] = x;
        }
    }
}
// Two rows of 16 N columns, of an accumulator, rounded in pairs: to `to` where `first`, and 8 rows further down where
// `second`.
template <int N, class T, class F>
__device__ __forceinline__ void put_pairs(const float (&d)[N][4], T *to, i64 pitch, bool first, bool second, F pair) {
    const int part = threadIdx.x % 4;
#pragma unroll
    for (int half = 0; half < 2; half++)
#pragma unroll
        for (int n = 0; n < N; n += 4) {
            u32 w[4];
#pragma unroll
            for (int i = 0; i < 4; i++) w[i] = pair(d[n + i][2 * half + 1], d[n + i][2 * half]);
            turn(w);
            if (half ? second : first)
                *(uint4 *)(to + half * 8 * pitch + 8 * (n + part)) = make_uint4(w[0], w[1], w[2], w[3]);
        }
}
template <int N>
__device__ __forceinline__ void put_rows(const float (&d)[N][4], bf16 *to, i64 pitch, bool first, bool second) {
    put_pairs(d, to, pitch, first, second, pair_bf16);
}

// s = keep s + (x by `weight` of its rows)' b: 16 rows of the state from `row` on, over the positions of a step. EXACT:
// what rounding takes from x by its weight is a second factor.
template <bool EXACT, class F>
__device__ __forceinline__ void advance(float (&s)[STATE / 8][4], u32 x, u32 b, int row, float keep, F weight) {
    const int q = threadIdx.x % 4 * 2;
#pragma unroll
    for (int n = 0; n < STATE / 8; n++)
#pragma unroll
        for (int e = 0; e < 4; e++) s[n][e] *= keep;
#pragma unroll
    for (int k = 0; k < STEP; k += 16) {
        u32 a[4], rest[4], f[4];
        mma_left<true, X_PITCH>(a, x, row, k);
        float w[4];
#pragma unroll
        for (int e = 0; e < 4; e++) w[e] = weight(k + q + e % 2 + e / 2 * 8);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const u32 whole = a[i];
            const float l = w[i / 2 * 2], h = w[i / 2 * 2 + 1];
            a[i] = scaled(whole, l, h);
            rest[i] = pair_bf16(fused(high(whole), h, -high(a[i])), fused(low(whole), l, -low(a[i])));
        }
#pragma unroll
        for (int n = 0; n < STATE / 16; n++) {
            mma_right<true, B_PITCH>(f, b, 16 * n, k);
            mma_multiply<bf16>(s[2 * n], a, f[0], f[1]);
            mma_multiply<bf16>(s[2 * n + 1], a, f[2], f[3]);
            if constexpr (EXACT) {
                mma_multiply<bf16>(s[2 * n], rest, f[0], f[1]);
                mma_multiply<bf16>(s[2 * n + 1], rest, f[2], f[3]);
            }
        }
    }
}
} // namespace SC_SPACE

// The numbers of every head, with its positions beside each other. Grid SC_BATCH * STEPS * ceil(SC_HEADS / 32), 256
// threads.
extern "C" __global__ void __launch_bounds__(256) SC_CLOCK(const SC_DT *dt, const SC_A *a, float *w) {
    enter();
    using namespace SC_SPACE;
    enum { PARTS = (SC_HEADS + 31) / 32 };
    __shared__ float tile[STEP][33];
    const int first = blockIdx.x % PARTS * 32, step = blockIdx.x / PARTS % STEPS, batch = blockIdx.x / PARTS / STEPS;
    const int lane = threadIdx.x % 32;
    for (int r = threadIdx.x / 32; r < STEP; r += 8) {
        const int position = step * STEP + r;
        const bool inside = position < SC_SEQ && first + lane < SC_HEADS;
        tile[r][lane] = inside ? widen(dt[((i64)batch * SC_SEQ + position) * SC_HEADS + first + lane]) : 0.0f;
    }
    __syncthreads();
    for (int h = threadIdx.x / 32; h < 32 && first + h < SC_HEADS; h += 8) {
        const float rate = widen(a[first + h]) * 1.4426950408889634f, x = tile[2 * lane][h], y = tile[2 * lane + 1][h];
        const float before = times(x, rate), both = fused(y, rate, before);
        float sum = both;
#pragma unroll
        for (int d = 1; d < 32; d *= 2) {
            const float other = __shfl_up_sync(~0u, sum, d);
            if (lane >= d) sum = plus(sum, other);
        }
        float from = __shfl_up_sync(~0u, sum, 1);
        if (!lane) from = 0.0f;
        const i64 at = ((i64)batch * SC_HEADS + first + h) * LONG + step * STEP + 2 * lane;
        *(float2 *)(w + SC_AT_CLOCK + at) = make_float2(plus(from, before), sum);
        *(float2 *)(w + SC_AT_DT + at) = make_float2(x, y);
    }
}
