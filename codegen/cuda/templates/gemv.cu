// The product of one row with a matrix, in f32: y = x W' (GV_TB, W [n, k]) or y = x W (W [k, n]). Its time is that of
// reading W. With GV_TB a warp adds up GV_ROWS elements of y one after another, its lanes side by side along k, and has
// two parts of rows under way; with GV_EARLY instead of GV_LATE the first two before the kernels before this one have
// ended, none of which writes W. An element may be made of GV_PARTS rows of W, which are n / GV_PARTS apart, or with
// GV_HALF two of them half a head apart. Without GV_TB a thread has GV_VEC columns, and the threads of a block share k;
// a block adds their sums up in order.
//
// Written before this text: GV_KERNEL (name), GV_PARAMS (its parameters), GV_T (type of x, W and the bias), GV_N, GV_K,
// GV_VEC, GV_TB, GV_ROWS, GV_PARTS, GV_STAGED (1: x is copied to shared memory; 2: GV_MAKE makes it there, as
// `staged`), GV_LANES (threads side by side along n, without GV_TB), GV_BIAS. With GV_TB also GV_X, GV_W, GV_SHIFT (x,
// W and the bias among the parameters), GV_PUT(at, sums) (stores element `at`; the sum of each part), GV_KEEP and
// GV_AHEAD (read what they need before the kernels before this one have ended). Without it the parameters are x, w,
// bias and y.
// Grid (n / (8 GV_ROWS GV_PARTS) or n / (GV_LANES GV_VEC), rounded up, 1, 1), 256 threads.
#ifndef GV_ONCE
#define GV_ONCE
// y += x w, element by element, into the V sums
template <class T, int V>
__device__ __forceinline__ void gv_add(float (&sum)[V], const Raw<T, V> &x, const Raw<T, V> &w) {
#pragma unroll
    for (int j = 0; j < V; j++) sum[j] = fused(x.at(j), w.at(j), sum[j]);
}
template <int N, class T> __device__ __forceinline__ void gv_copy(const T *from, T *to) {
#pragma unroll 4
    for (int i = threadIdx.x; i < N; i += 256) to[i] = from[i];
}
// of the elements of a warp that of a lane, of the first 32 of them
template <class T> __device__ __forceinline__ float gv_keep(const T *from, int first, int lane, int n, int rows) {
    return lane < rows && first + lane < n ? widen(from[first + lane]) : 0.0f;
}
#endif

extern "C" __global__ void __launch_bounds__(256, 2) GV_KERNEL(GV_PARAMS) {
/*late:
    enter();
:late*/
#if GV_TB
    enum { CHUNK = 32 * GV_VEC, CHUNKS = (GV_K + CHUNK - 1) / CHUNK, PARTS = (CHUNKS + 7) / 8,
           AHEAD = (CHUNKS + PARTS - 1) / PARTS, ALL = GV_ROWS * GV_PARTS * PARTS, N = GV_N / GV_PARTS };
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, first = (blockIdx.x * 8 + warp) * GV_ROWS;
    Raw<GV_T, GV_VEC> here[AHEAD], next[AHEAD];
    const auto there = [&](int k) { return GV_K % (CHUNK * AHEAD) == 0 || k < GV_K; };
    const auto load = [&](Raw<GV_T, GV_VEC>(&w_of)[AHEAD], int part) {
        const int line = part / PARTS, row = first + line / GV_PARTS, of = line % GV_PARTS;
#if GV_HALF
        const int at = row / GV_HALF * (2 * GV_HALF) + row % GV_HALF + of * GV_HALF; // in W
#else
        const int at = row + of * N;
#endif
#pragma unroll
        for (int s = 0; s < AHEAD; s++) {
            const int k = (part % PARTS * AHEAD + s) * CHUNK + lane * GV_VEC;
            if (there(k) && (N % (8 * GV_ROWS) == 0 || row < N))
                w_of[s].load(GV_W + (i64)at * GV_K + k);
            else w_of[s].zero();
        }
    };
/*early:
    let_next_start();
:early*/
    load(here, 0);
    if (ALL > 1) load(next, 1);
#if GV_BIAS
    float shift = gv_keep(GV_SHIFT, first, lane, N, GV_ROWS);
#endif
    GV_KEEP
    GV_AHEAD
/*early:
    enter();
:early*/
#if GV_STAGED == 2
    __shared__ __align__(16) GV_T staged[GV_K];
    GV_MAKE
    __syncthreads();
    const GV_T *factor = staged;
#elif GV_STAGED
    __shared__ __align__(16) GV_T staged[GV_K];
    for (int k = threadIdx.x * GV_VEC; k < GV_K; k += 256 * GV_VEC) {
        Raw<GV_T, GV_VEC> a;
        a.load(GV_X + k);
        a.store(staged + k);
    }
    __syncthreads();
    const GV_T *factor = staged;
#else
    const GV_T *factor = GV_X;
#endif
    float sum[GV_VEC], mine[GV_PARTS] = {};
#pragma unroll
    for (int j = 0; j < GV_VEC; j++) sum[j] = 0.0f;
    const auto add = [&](const Raw<GV_T, GV_VEC>(&w_of)[AHEAD], int part) {
#pragma unroll
        for (int s = 0; s < AHEAD; s++) {
            const int k = (part % PARTS * AHEAD + s) * CHUNK + lane * GV_VEC;
            Raw<GV_T, GV_VEC> a;
            if (there(k)) a.load(factor + k);
            else a.zero();
            gv_add(sum, a, w_of[s]);
        }
        if (part % PARTS != PARTS - 1) return;
        const float all = warp_sum(tree(sum));
        const int line = part / PARTS, row = line / GV_PARTS, of = line % GV_PARTS, at = first + row / 32 * 32 + lane;
#pragma unroll
        for (int i = 0; i < GV_PARTS; i++)
            if (row % 32 == lane && of == i) mine[i] = all;
#pragma unroll
        for (int j = 0; j < GV_VEC; j++) sum[j] = 0.0f;
        if (of != GV_PARTS - 1 || (row % 32 != 31 && row != GV_ROWS - 1) || lane > row % 32 || at >= N)
            return; // else a lane has an element
#if GV_BIAS
        if (row >= 32) shift = widen(GV_SHIFT[at]);
        mine[0] = plus(mine[0], shift);
#endif
        GV_PUT(at, mine);
    };
#pragma unroll 1
    for (int part = 0; part < ALL; part += 2) {
        add(here, part);
        if (part + 2 < ALL) load(here, part + 2);
        if (part + 1 < ALL) add(next, part + 1);
        if (part + 3 < ALL) load(next, part + 3);
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
