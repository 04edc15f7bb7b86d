// Square root of the sum of squares of gradient buffers, divided by the scale of the loss, in f64 and in one fixed
// order: blocks of GN_BLOCK elements (thread t of 256 takes vectors t, t + 256, ... of a block; then a fixed tree),
// then the blocks' sums (thread t of 1024 takes sums t, t + 1024, ...; then a fixed tree). The host target sums a block
// in the order of its elements: equal up to rounding of f64. Written before this text: GN_BLOCKS and GN_TOTAL (names),
// GN_VEC (4, or 1 where a buffer is not aligned to 16 bytes), GN_BLOCK (HD_NORM_BLOCK of ir/ir.h), GN_SCALE (an f64
// literal). GN_BLOCKS: grid (ceil(count / GN_BLOCK), 1, 1), 256 threads. GN_TOTAL: one block of 1024 threads.
extern "C" __global__ void __launch_bounds__(256) GN_BLOCKS(const float *grad, i64 count, double *sums) {
    enter();
    const i64 first = (i64)blockIdx.x * GN_BLOCK;
    double sum = 0;
#pragma unroll
    for (int i = 0; i < GN_BLOCK / 256 / GN_VEC; i++) {
        const i64 at = first + ((i64)i * 256 + threadIdx.x) * GN_VEC;
        if (at + GN_VEC <= count) {
            Raw<float, GN_VEC> x;
            x.load(grad + at);
#pragma unroll
            for (int j = 0; j < GN_VEC; j++) sum += (double)x.at(j) * (double)x.at(j);
        } else {
            for (i64 k = at; k < count; k++) sum += (double)grad[k] * (double)grad[k];
        }
    }
    sum = block_sum<256>(sum);
    if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

extern "C" __global__ void __launch_bounds__(1024) GN_TOTAL(const double *sums, i64 count, float *norm) {
    enter();
    double sum = 0;
#pragma unroll 8
    for (i64 i = threadIdx.x; i < count; i += 1024) sum += sums[i];
    sum = block_sum<1024>(sum);
    if (threadIdx.x == 0) *norm = (float)(sqrt(sum) / GN_SCALE);
}
