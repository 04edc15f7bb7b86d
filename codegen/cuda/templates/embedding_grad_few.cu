// Gradient of an embedding table, added to what is there, for few positions: the same bits as embedding_grad.cu, whose
// sort takes as long as the table has rows. Here the block of a position compares its index with every other one. The
// block of the first position of an index adds up all of its rows; the others end at once. Sums of at most EG_LIGHT
// rows are in order of position. In longer ones warp w adds the rows w, w + 16, ..., then the warps' sums are added in
// the order of w.
//
// Written before this text by the compiler:
//   EG_KERNEL        name of the kernel, of EG_N blocks of 512
//   EG_T, EG_OUT     types of dy and of the table's gradient
//   EG_N, EG_ROWS, EG_COLS  positions, 65536 at most; rows and columns of the table
//   EG_VEC           elements a lane moves at once
#ifndef EG_FEW_ONCE
#define EG_FEW_ONCE
#define EG_LIGHT 16
template <class T, int V> __device__ __forceinline__ void eg_add(float (&sum)[V], const T *from) {
    Raw<T, V> x;
    x.load(from);
#pragma unroll
    for (int j = 0; j < V; j++) sum[j] += x.at(j);
}
template <class T, int V> __device__ __forceinline__ void eg_add_to(T *to, float (&sum)[V]) {
    Raw<T, V> old;
    old.load(to);
#pragma unroll
    for (int j = 0; j < V; j++) sum[j] = old.at(j) + sum[j];
    put<T, V>(to, sum);
}
#endif

extern "C" __global__ void __launch_bounds__(512) EG_KERNEL(const int *index, const EG_T *dy, EG_OUT *out) {
    enter();
    enum { WARPS = 16, CHUNKS = (EG_COLS + 32 * EG_VEC - 1) / (32 * EG_VEC) };
    __shared__ unsigned short found[EG_N]; // positions of this index, in order
    __shared__ int counts[WARPS];
    __shared__ float sums[WARPS][EG_VEC][32];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, v = index[blockIdx.x];
    int n = 0;
    if ((unsigned)v >= EG_ROWS) return;
    for (int first = 0; first < EG_N; first += 512) {
        const int i = first + threadIdx.x;
        const bool same = i < EG_N && index[i] == v;
        if (__syncthreads_or(same && i < (int)blockIdx.x)) return;
        const unsigned votes = __ballot_sync(0xffffffffu, same);
        if (lane == 0) counts[warp] = __popc(votes);
        __syncthreads();
        int before = 0;
#pragma unroll
        for (int w = 0; w < WARPS; w++) before += w < warp ? counts[w] : 0;
        if (same) found[n + before + __popc(votes & ((1u << lane) - 1u))] = (unsigned short)i;
#pragma unroll
        for (int w = 0; w < WARPS; w++) n += counts[w];
    }
    __syncthreads();
    EG_OUT *row = out + (i64)v * EG_COLS;
    if (n <= EG_LIGHT) {
#pragma unroll 1
        for (int c = warp; c < CHUNKS; c += WARPS) {
            const int col = (c * 32 + lane) * EG_VEC;
            float sum[EG_VEC] = {};
            if (col >= EG_COLS) continue;
#pragma unroll 2
            for (int i = 0; i < n; i++) eg_add<EG_T, EG_VEC>(sum, dy + (i64)found[i] * EG_COLS + col);
            eg_add_to<EG_OUT, EG_VEC>(row + col, sum);
        }
        return;
    }
#pragma unroll 1
    for (int c = 0; c < CHUNKS; c++) {
        const int col = (c * 32 + lane) * EG_VEC;
        float sum[EG_VEC] = {};
        if (col < EG_COLS) {
#pragma unroll 4
            for (int i = warp; i < n; i += WARPS)
                eg_add<EG_T, EG_VEC>(sum, dy + (i64)found[i] * EG_COLS + col);
        }
#pragma unroll
        for (int j = 0; j < EG_VEC; j++) sums[warp][j][lane] = sum[j];
        __syncthreads();
        if (warp == 0 && col < EG_COLS) {
            for (int w = 1; w < WARPS; w++)
#pragma unroll
                for (int j = 0; j < EG_VEC; j++) sum[j] += sums[w][j][lane];
            eg_add_to<EG_OUT, EG_VEC>(row + col, sum);
        }
        __syncthreads();
    }
}
