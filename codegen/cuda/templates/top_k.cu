// The TK_K largest of each row, the largest first: of equal ones the first, and a NaN before every number. A warp has a
// row and finds one after the other: the first in that order among those after the one before. Written before this
// text: TK_KERNEL (name), TK_T (type), TK_ROWS, TK_N (of a row), TK_K. Grid (ceil(TK_ROWS / 8), 1, 1), 256 threads.
#ifndef TK_ONCE
#define TK_ONCE
// Whether element i, which is x, comes before element k, which is y; an element of -1 comes after all.
__device__ __forceinline__ bool tk_before(float x, int i, float y, int k) {
    if (i < 0 || k < 0) return i >= 0;
    const bool odd = x != x, other = y != y;
    if (odd || other) return odd && (!other || i < k);
    return x > y || (x == y && i < k);
}
#endif

extern "C" __global__ void __launch_bounds__(256) TK_KERNEL(const TK_T *x, TK_T *values, int *places) {
    enter();
    const int row = blockIdx.x * 8 + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (row >= TK_ROWS) return;
    const TK_T *from = x + (i64)row * TK_N;
    float top = 0;
    int last = -1;
    for (int j = 0; j < TK_K; j++) {
        float best = 0;
        int place = -1;
        for (int i = lane; i < TK_N; i += 32) {
            const float v = widen(from[i]);
            const bool left = last < 0 || tk_before(top, last, v, i);
            if (left && tk_before(v, i, best, place)) best = v, place = i;
        }
#pragma unroll
        for (int by = 16; by; by /= 2) {
            const float v = __shfl_xor_sync(~0u, best, by);
            const int i = __shfl_xor_sync(~0u, place, by);
            if (tk_before(v, i, best, place)) best = v, place = i;
        }
        top = best, last = place;
        if (lane) continue;
        values[(i64)row * TK_K + j] = from[place];
        places[(i64)row * TK_K + j] = place;
    }
}
