// Rows added in f32 in a binary tree: neighbours, then neighbouring sums, until one is left. Written before this text:
// TS_KERNEL (name), TS_FROM (their type), TS_ROWS (a power of two), TS_VEC (elements a thread: 16 bytes where rows
// start at multiples of them, else 1). Grid (ceil(count / (256 * TS_VEC)), 1, 1), 256 threads.
#ifndef TS_ONCE
#define TS_ONCE
template <int rows, class T, int vec>
__device__ __forceinline__ void ts_add(const T *x, i64 stride, float (&sum)[vec]) {
    if constexpr (rows == 1) {
        Raw<T, vec> r;
        r.load(x);
#pragma unroll
        for (int j = 0; j < vec; j++) sum[j] = r.at(j);
    } else {
        float other[vec];
        ts_add<rows / 2>(x, stride, sum);
        ts_add<rows / 2>(x + (rows / 2) * stride, stride, other);
#pragma unroll
        for (int j = 0; j < vec; j++) sum[j] += other[j];
    }
}
#endif

extern "C" __global__ void __launch_bounds__(256) TS_KERNEL(const TS_FROM *rows, float *sum, i64 count) {
    enter();
    const i64 at = ((i64)blockIdx.x * 256 + threadIdx.x) * TS_VEC;
    if (at >= count) return;
    // Runs of up to 16 rows are added at once; their sums wait in levels for their neighbours, as digits are carried.
    const int run = TS_ROWS < 16 ? TS_ROWS : 16, runs = TS_ROWS / run;
    float now[TS_VEC], level[16][TS_VEC];
    for (int i = 0; i < runs; i++) {
        ts_add<run>(rows + (i64)i * run * count + at, count, now);
        int l = 0;
        for (int m = i; m & 1; m >>= 1, l++)
#pragma unroll
            for (int j = 0; j < TS_VEC; j++) now[j] = level[l][j] + now[j];
#pragma unroll
        for (int j = 0; j < TS_VEC; j++) level[l][j] = now[j];
    }
#pragma unroll
    for (int j = 0; j < TS_VEC; j++) sum[at + j] = now[j];
}
