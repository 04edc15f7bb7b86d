// Square root of the sum of squares of gradient buffers, divided by the scale of the loss, with the same bits whatever
// rank holds which elements: see ir/bins.h. A run of 32 elements is added in f64 in one fixed order, by 8 threads with
// 4 elements each; its sum is cut into binary digits, and thread k of a warp adds up those of bin k. All additions of
// bins are exact, so they may come in any order. Written before this text: EN_ADD and EN_ROOT (names), EN_BINS,
// EN_BITS, EN_LEAST (HD_BINS, HD_BIN_BITS and HD_BIN_LEAST), EN_SCALE (an f64 literal). EN_ADD: any grid, 256 threads;
// `bins` begin as zeros. EN_ROOT: one block of 32 threads, for `count` numbers of bins.
#ifndef EN_ONCE
#define EN_ONCE
__device__ __forceinline__ double en_power(int exponent) { // of two, between 2^-1022 and 2^1023
    return __longlong_as_double((long long)(exponent + 1023) << 52);
}
#endif

extern "C" __global__ void __launch_bounds__(256) EN_ADD(const float *grad, i64 count, double *bins) {
    enter();
    __shared__ double part[8][32];
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    const bool bin = lane < EN_BINS;
    const double unit = en_power(EN_LEAST + (bin ? lane : 0) * EN_BITS);
    const double here = bin ? en_power(-EN_LEAST - lane * EN_BITS) : 0.0;
    const double above = lane < EN_BINS - 1 ? en_power(-EN_LEAST - (lane + 1) * EN_BITS) : 0.0;
    double sum = 0;
    for (i64 first = ((i64)blockIdx.x * 8 + warp) * 128; first < count; first += (i64)gridDim.x * 1024) {
        double run = 0; // of 32 elements: threads 0 to 7 have the first
        if (first + lane * 4 < count) {
            Raw<float, 4> x;
            x.load(grad + first + lane * 4);
#pragma unroll
            for (int j = 0; j < 4; j++) run += (double)x.at(j) * (double)x.at(j);
        }
#pragma unroll
        for (int d = 1; d < 8; d *= 2) run += __shfl_xor_sync(0xffffffffu, run, d);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const double v = __shfl_sync(0xffffffffu, run, i * 8);
            sum += floor(v * here) - floor(v * above) * (double)(1 << EN_BITS);
        }
    }
    part[warp][lane] = sum;
    __syncthreads();
    if (warp) return;
    for (int w = 1; w < 8; w++) sum += part[w][lane];
    if (bin) atomicAdd(bins + lane, sum * unit);
}

extern "C" __global__ void __launch_bounds__(32) EN_ROOT(const double *bins, i64 count, float *norm) {
    enter();
    __shared__ double part[32];
    double sum = 0;
    if (threadIdx.x < EN_BINS)
        for (i64 i = threadIdx.x; i < count; i += EN_BINS) sum += bins[i];
    part[threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.x) return;
    sum = 0;
    for (int k = EN_BINS - 1; k >= 0; k--) sum += part[k];
    *norm = (float)(sqrt(sum) / EN_SCALE);
}
