// The product of one row with a matrix, in f32: y = x W' (GV_TB, W [n, k]) or y = x W (W [k, n]). Its time is that of
// reading W. With GV_TB a warp adds up GV_EACH elements of y, its lanes side by side along k. Else a thread has GV_VEC
// columns, and the threads of a block share k; a block adds their sums up in order. Written before this text: GV_KERNEL
// (name), GV_T (type of x, W and the bias), GV_OUT (type of y), GV_N, GV_K, GV_VEC, GV_TB, GV_EACH, GV_LANES (threads
// side by side along n, without GV_TB), GV_BIAS. Grid (n / (8 GV_EACH) or n / (GV_LANES GV_VEC), rounded up, 1, 1), 256
// threads.
#ifndef GV_ONCE
#define GV_ONCE
// y += x w, element by element, into the V sums
template <class T, int V>
__device__ __forceinline__ void gv_add(float (&sum)[V], const Raw<T, V> &x, const Raw<T, V> &w) {
#pragma unroll
    for (int j = 0; j < V; j++) sum[j] = fused(x.at(j), w.at(j), sum[j]);
}
#endif

extern "C" __global__ void __launch_bounds__(256) GV_KERNEL(const GV_T *x, const GV_T *w,
#if GV_BIAS
                                                            const GV_T *bias,
#endif
                                                            GV_OUT *y) {
    enter();
#if GV_TB
    // Of one row of W up to 12 chunks are under way at once, so that a warp waits for memory once; of several 4 each.
    enum { CHUNK = 32 * GV_VEC, CHUNKS = (GV_K + CHUNK - 1) / CHUNK, MOST = GV_EACH == 1 ? 12 : 4,
           AHEAD = CHUNKS < MOST ? CHUNKS : MOST };
    const int lane = threadIdx.x % 32, first = (blockIdx.x * 8 + threadIdx.x / 32) * GV_EACH;
    float sum[GV_EACH][GV_VEC];
#pragma unroll
    for (int i = 0; i < GV_EACH; i++)
#pragma unroll
        for (int j = 0; j < GV_VEC; j++) sum[i][j] = 0.0f;
    for (int c = 0; c < CHUNKS; c += AHEAD) {
        Raw<GV_T, GV_VEC> a[AHEAD], b[GV_EACH][AHEAD];
#pragma unroll
        for (int s = 0; s < AHEAD; s++) {
            const int k = (c + s) * CHUNK + lane * GV_VEC;
            const bool there = GV_K % (CHUNK * AHEAD) == 0 || k < GV_K;
            if (there) a[s].load(x + k);
            else a[s].zero();
#pragma unroll
            for (int i = 0; i < GV_EACH; i++) {
                if (there && (GV_N % (8 * GV_EACH) == 0 || first + i < GV_N))
                    b[i][s].load(w + (i64)(first + i) * GV_K + k);
                else b[i][s].zero();
            }
        }
#pragma unroll
        for (int s = 0; s < AHEAD; s++)
#pragma unroll
            for (int i = 0; i < GV_EACH; i++) gv_add(sum[i], a[s], b[i][s]);
    }
#pragma unroll
    for (int i = 0; i < GV_EACH; i++) {
        float all = warp_sum(tree(sum[i]));
        if (lane || first + i >= GV_N) continue;
#if GV_BIAS
        all = plus(all, widen(bias[first + i]));
#endif
        put1(y + first + i, all);
    }
#else
    enum { PARTS = 256 / GV_LANES, COLUMNS = GV_LANES * GV_VEC, AHEAD = 4 };
    __shared__ float sums[PARTS][COLUMNS];
    const int lane = threadIdx.x % GV_LANES, part = threadIdx.x / GV_LANES,
              first = blockIdx.x * COLUMNS + lane * GV_VEC;
    float sum[GV_VEC];
#pragma unroll
    for (int j = 0; j < GV_VEC; j++) sum[j] = 0.0f;
    for (int k = part; k < GV_K && first < GV_N; k += PARTS * AHEAD) {
        Raw<GV_T, GV_VEC> b[AHEAD];
        float a[AHEAD];
#pragma unroll
        for (int s = 0; s < AHEAD; s++) {
            const int at = k + s * PARTS;
            a[s] = at < GV_K ? widen(x[at]) : 0.0f;
            if (at < GV_K) b[s].load(w + (i64)at * GV_N + first);
            else b[s].zero();
        }
#pragma unroll
        for (int s = 0; s < AHEAD; s++)
#pragma unroll
            for (int j = 0; j < GV_VEC; j++) sum[j] = fused(a[s], b[s].at(j), sum[j]);
    }
#pragma unroll
    for (int j = 0; j < GV_VEC; j++) sums[part][lane * GV_VEC + j] = sum[j];
    __syncthreads();
    // a warp adds up a column: its lanes the parts, in order, then the lanes as a tree
    for (int c = threadIdx.x / 32; c < COLUMNS; c += 8) {
        const int n = blockIdx.x * COLUMNS + c;
        float all = 0.0f;
        for (int p = threadIdx.x % 32; p < PARTS; p += 32) all = plus(all, sums[p][c]);
        all = warp_sum(all);
        if (threadIdx.x % 32 || n >= GV_N) continue;
#if GV_BIAS
        all = plus(all, widen(bias[n]));
#endif
        put1(y + n, all);
    }
#endif
}
