// Before a matrix becomes orthogonal it is divided by the root of the sum of its squares, but at least by TU_LEAST. The
// sum is in f64 and in one fixed order: block b takes runs b, b + blocks, ... of 4096 elements, as grad_norm.cu does;
// then every block adds all of these. Written before this text: TU_SQUARES and TU_SCALE (names), TU_T (type of
// elements), TU_LEAST (an f32 literal). Both: the same grid of at most 1024 blocks for each of the matrices of `count`
// elements, which follow each other; 256 threads.
extern "C" __global__ void __launch_bounds__(256) TU_SQUARES(const TU_T *d, i64 count, double *sums) {
    enter();
    d += (i64)blockIdx.y * count;
    double sum = 0;
    for (i64 run = (i64)blockIdx.x * 4096; run < count; run += (i64)gridDim.x * 4096)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const i64 at = run + ((i64)i * 256 + threadIdx.x) * 4;
            if (at + 4 <= count) {
                Raw<TU_T, 4> x;
                x.load(d + at);
#pragma unroll
                for (int j = 0; j < 4; j++) sum += (double)x.at(j) * (double)x.at(j);
            } else {
                for (i64 k = at; k < count; k++) sum += (double)widen(d[k]) * (double)widen(d[k]);
            }
        }
    sum = block_sum<256>(sum);
    if (threadIdx.x == 0) sums[blockIdx.y * gridDim.x + blockIdx.x] = sum;
}

extern "C" __global__ void __launch_bounds__(256)
    TU_SCALE(const TU_T *d, i64 count, const double *sums, TU_T *x) {
    enter();
    d += (i64)blockIdx.y * count, x += (i64)blockIdx.y * count, sums += blockIdx.y * gridDim.x;
    double sum = 0;
    for (unsigned i = threadIdx.x; i < gridDim.x; i += 256) sum += sums[i];
    __shared__ float all;
    sum = block_sum<256>(sum);
    if (threadIdx.x == 0) all = (float)sqrt(sum);
    __syncthreads();
    const float by = all > TU_LEAST || all != all ? all : TU_LEAST;
    for (i64 run = (i64)blockIdx.x * 4096; run < count; run += (i64)gridDim.x * 4096)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const i64 at = run + ((i64)i * 256 + threadIdx.x) * 4;
            if (at + 4 <= count) {
                Raw<TU_T, 4> from;
                from.load(d + at);
                float y[4];
#pragma unroll
                for (int j = 0; j < 4; j++) y[j] = __fdiv_rn(from.at(j), by);
                put<TU_T, 4>(x + at, y);
            } else {
                for (i64 k = at; k < count; k++) put1(x + k, __fdiv_rn(widen(d[k]), by));
            }
        }
}
