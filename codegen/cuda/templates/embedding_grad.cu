// Gradient of an embedding table: row v is the sum of dy's rows whose index is v, added in order of position; no
// atomics on floats, so the bits never change. Positions are sorted by index first: integer counts (atomic, the
// result does not depend on order), starts, positions in any order, then each position's rank among the positions of
// its index. A position whose index is outside of the table counts nowhere. Rows with at most EG_LIGHT positions are
// added by a warp in order. Others are spread over 16 warps: warp w adds positions w, w + 16, ... of the sorted list
// in order, then the warps' sums are added in the order of w.
//
// Written before this text by the compiler:
//   EG_COUNT, EG_STARTS, EG_SCATTER, EG_RANK, EG_FEW, EG_MANY  names, in the order of launch
//   EG_T, EG_OUT     types of dy and of the table's gradient
//   EG_N, EG_ROWS, EG_COLS   positions, rows and columns of the table
//   EG_VEC           elements a lane moves at once;  EG_ADD  1: added to what is there, else absent rows become zero
// Integers of the workspace: counts[EG_ROWS] and n_many (both zeroed before EG_COUNT), starts[EG_ROWS + 1], many[EG_N /
// 16 + 1], loose[EG_N], sorted[EG_N]. Grids: EG_COUNT, EG_SCATTER, EG_RANK ceil(EG_N / 256) blocks of 256; EG_STARTS
// one block of 1024; EG_FEW ceil(EG_ROWS / 8) blocks of 256; EG_MANY (ceil(EG_COLS / (32 * EG_VEC)), up to 256, 1)
// blocks of 512.
#ifndef EG_ONCE
#define EG_ONCE
#define EG_LIGHT 16
struct EmbeddingGradSpace { int *counts, *n_many, *starts, *many, *loose, *sorted; };
__device__ __forceinline__ EmbeddingGradSpace eg_space(int *at, i64 rows, i64 n) {
    int *starts = at + rows + 1, *many = starts + rows + 1, *loose = many + n / 16 + 1;
    return {at, at + rows, starts, many, loose, loose + n};
}
#endif

extern "C" __global__ void __launch_bounds__(256) EG_COUNT(const int *index, int *workspace) {
    enter();
    const i64 i = (i64)blockIdx.x * 256 + threadIdx.x;
    if (i < EG_N && (unsigned)index[i] < EG_ROWS) atomicAdd(eg_space(workspace, EG_ROWS, EG_N).counts + index[i], 1);
}

// A thread has a run of consecutive rows: sums of runs, their scan over the block, then the starts of its rows.
extern "C" __global__ void __launch_bounds__(1024) EG_STARTS(int *workspace) {
    enter();
    const EmbeddingGradSpace w = eg_space(workspace, EG_ROWS, EG_N);
    const int run = (EG_ROWS + 1023) / 1024, first = threadIdx.x * run, last = min(first + run, EG_ROWS);
    __shared__ int sums[32];
    int sum = 0;
#pragma unroll 8
    for (int v = first; v < last; v++) sum += w.counts[v];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int before = sum;
    for (int d = 1; d < 32; d *= 2) {
        const int x = __shfl_up_sync(0xffffffffu, before, d);
        if (lane >= d) before += x;
    }
    if (lane == 31) sums[warp] = before;
    __syncthreads();
    int start = before - sum;
    for (int i = 0; i < warp; i++) start += sums[i];
#pragma unroll 8
    for (int v = first; v < last; v++) {
        const int n = w.counts[v];
        w.starts[v] = start;
        start += n;
        if (n > EG_LIGHT) w.many[atomicAdd(w.n_many, 1)] = v; // their order does not matter
    }
    if (first < EG_ROWS && last == EG_ROWS) w.starts[EG_ROWS] = start;
}

extern "C" __global__ void __launch_bounds__(256) EG_SCATTER(const int *index, int *workspace) {
    enter();
    const EmbeddingGradSpace w = eg_space(workspace, EG_ROWS, EG_N);
    const i64 i = (i64)blockIdx.x * 256 + threadIdx.x;
    if (i >= EG_N || (unsigned)index[i] >= EG_ROWS) return;
    const int v = index[i];
    w.loose[w.starts[v] + atomicSub(w.counts + v, 1) - 1] = (int)i;
}

extern "C" __global__ void __launch_bounds__(256) EG_RANK(const int *index, int *workspace) {
    enter();
    const EmbeddingGradSpace w = eg_space(workspace, EG_ROWS, EG_N);
    const i64 slot = (i64)blockIdx.x * 256 + threadIdx.x;
    if (slot >= w.starts[EG_ROWS]) return;
    const int i = w.loose[slot], v = index[i], first = w.starts[v], last = w.starts[v + 1];
    int rank = 0;
#pragma unroll 8
    for (int k = first; k < last; k++) rank += w.loose[k] < i;
    w.sorted[first + rank] = i;
}

extern "C" __global__ void __launch_bounds__(256) EG_FEW(const EG_T *dy, EG_OUT *out, int *workspace) {
    enter();
    const EmbeddingGradSpace w = eg_space(workspace, EG_ROWS, EG_N);
    const int v = blockIdx.x * 8 + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (v >= EG_ROWS) return;
    const int first = w.starts[v], n = w.starts[v + 1] - first;
    if (n > EG_LIGHT || (EG_ADD && n == 0)) return;
    enum { CHUNKS = (EG_COLS + 32 * EG_VEC - 1) / (32 * EG_VEC), TOGETHER = CHUNKS < 3 ? CHUNKS : 3 };
#pragma unroll 1
    for (int c = 0; c < CHUNKS; c += TOGETHER) {
        float sum[TOGETHER][EG_VEC] = {};
#pragma unroll 2
        for (int i = 0; i < n; i++) {
            const EG_T *row = dy + (i64)w.sorted[first + i] * EG_COLS;
#pragma unroll
            for (int k = 0; k < TOGETHER; k++) {
                const int col = ((c + k) * 32 + lane) * EG_VEC;
                if (col >= EG_COLS) continue;
                Raw<EG_T, EG_VEC> x;
                x.load(row + col);
#pragma unroll
                for (int j = 0; j < EG_VEC; j++) sum[k][j] += x.at(j);
            }
        }
#pragma unroll
        for (int k = 0; k < TOGETHER; k++) {
            const int col = ((c + k) * 32 + lane) * EG_VEC;
            if (col >= EG_COLS) continue;
            EG_OUT *to = out + (i64)v * EG_COLS + col;
#if EG_ADD
            Raw<EG_OUT, EG_VEC> old;
            old.load(to);
#pragma unroll
            for (int j = 0; j < EG_VEC; j++) sum[k][j] = old.at(j) + sum[k][j];
#endif
            put<EG_OUT, EG_VEC>(to, sum[k]);
        }
    }
}

extern "C" __global__ void __launch_bounds__(512) EG_MANY(const EG_T *dy, EG_OUT *out, int *workspace) {
    enter();
    const EmbeddingGradSpace w = eg_space(workspace, EG_ROWS, EG_N);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, col = (blockIdx.x * 32 + lane) * EG_VEC,
              rows = *w.n_many;
    __shared__ float sums[16][EG_VEC][32];
    for (int m = blockIdx.y; m < rows; m += gridDim.y) {
        const int v = w.many[m], first = w.starts[v], last = w.starts[v + 1];
        float sum[EG_VEC] = {};
        if (col < EG_COLS) {
#pragma unroll 4
            for (int i = first + warp; i < last; i += 16) {
                Raw<EG_T, EG_VEC> x;
                x.load(dy + (i64)w.sorted[i] * EG_COLS + col);
#pragma unroll
                for (int j = 0; j < EG_VEC; j++) sum[j] += x.at(j);
            }
        }
#pragma unroll
        for (int j = 0; j < EG_VEC; j++) sums[warp][j][lane] = sum[j];
        __syncthreads();
        if (warp == 0 && col < EG_COLS) {
            for (int k = 1; k < 16; k++)
#pragma unroll
                for (int j = 0; j < EG_VEC; j++) sum[j] += sums[k][j][lane];
            EG_OUT *to = out + (i64)v * EG_COLS + col;
#if EG_ADD
            Raw<EG_OUT, EG_VEC> old;
            old.load(to);
#pragma unroll
            for (int j = 0; j < EG_VEC; j++) sum[j] = old.at(j) + sum[j];
#endif
            put<EG_OUT, EG_VEC>(to, sum);
        }
        __syncthreads();
    }
}
