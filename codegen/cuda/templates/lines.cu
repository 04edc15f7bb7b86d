// An optimizer with means of rows, columns and whole parameters (ir/optimizer.h): one stage of it, for a parameter of
// rows x cols elements. LN_AT(r, c) is a function of one element that this text follows. Written before this text:
// LN_KERNEL and, of means of columns and wholes, LN_FINISH (names), LN_STAGE (what the kernel does), LN_OF (1: what it
// averages differs from row to row, 2: from column to column), LN_FORMALS (the states and the means so far, as
// further arguments), of elements LN_T (type of the compute weights) and LN_COMPUTE (1: they are apart from the
// master weights). All: 256 threads. Sums are f64, in one fixed order.
#define LN_GIVEN                                                                                                       \
    const float *grad, float *master, const float *scalars, i64 rows, i64 cols, float *to, double *sums LN_FORMALS

// Grid (rows, 1, 1)
#if LN_STAGE == LN_ROW
extern "C" __global__ void __launch_bounds__(256) LN_KERNEL(LN_GIVEN) {
    enter();
    double sum = 0;
    for (i64 c = threadIdx.x; c < cols; c += 256) sum += (double)LN_AT(blockIdx.x, c);
    sum = block_sum<256>(sum);
    if (threadIdx.x == 0) to[blockIdx.x] = (float)(sum / (double)cols);
    (void)rows, (void)sums;
}
#endif

// Grid (ceil(cols / 32), runs, 1): a warp has a row of 32 columns, a block every eighth row of its run. Then
// (ceil(cols / 256), 1, 1).
#if LN_STAGE == LN_COLUMN
extern "C" __global__ void __launch_bounds__(256) LN_KERNEL(LN_GIVEN) {
    enter();
    __shared__ double part[8][32];
    const int x = (int)threadIdx.x % 32, y = (int)threadIdx.x / 32;
    const i64 c = (i64)blockIdx.x * 32 + x, run = (rows + gridDim.y - 1) / gridDim.y, first = run * blockIdx.y;
    const i64 end = first + run < rows ? first + run : rows;
    double sum = 0;
    for (i64 r = first + y; r < end && c < cols; r += 8) sum += (double)LN_AT(r, c);
    part[y][x] = sum;
    __syncthreads();
    if (y == 0 && c < cols) {
        for (int i = 1; i < 8; i++) sum += part[i][x];
        sums[blockIdx.y * cols + c] = sum;
    }
    (void)to;
}
extern "C" __global__ void __launch_bounds__(256)
    LN_FINISH(const double *sums, i64 runs, i64 rows, i64 cols, float *to) {
    enter();
    const i64 c = (i64)blockIdx.x * 256 + threadIdx.x;
    if (c >= cols) return;
    double sum = 0;
    for (i64 i = 0; i < runs; i++) sum += sums[i * cols + c];
    to[c] = (float)(sum / (double)rows);
}
#endif

// Grid (blocks, 1, 1): at most 1024, each of which takes every blocks-th run of 1024 numbers. Then (1, 1, 1).
#if LN_STAGE == LN_WHOLE
extern "C" __global__ void __launch_bounds__(256) LN_KERNEL(LN_GIVEN) {
    enter();
    const i64 n = LN_OF == 3 ? rows * cols : LN_OF == 1 ? rows : cols;
    double sum = 0;
    for (i64 run = (i64)blockIdx.x * 1024; run < n; run += (i64)gridDim.x * 1024)
        for (i64 i = run + threadIdx.x; i < run + 1024 && i < n; i += 256)
            sum += (double)(LN_OF == 3 ? LN_AT(i / cols, i % cols) : LN_OF == 1 ? LN_AT(i, 0) : LN_AT(0, i));
    sum = block_sum<256>(sum);
    if (threadIdx.x == 0) sums[blockIdx.x] = sum;
    (void)to;
}
extern "C" __global__ void __launch_bounds__(256)
    LN_FINISH(const double *sums, i64 runs, i64 rows, i64 cols, float *to) {
    enter();
    const i64 n = LN_OF == 3 ? rows * cols : LN_OF == 1 ? rows : cols;
    double sum = 0;
    for (i64 i = threadIdx.x; i < runs; i += 256) sum += sums[i];
    sum = block_sum<256>(sum);
    if (threadIdx.x == 0) to[0] = (float)(sum / (double)n);
}
#endif

// Grid (ceil(rows * cols / 256), 1, 1); `to`: the compute weights
#if LN_STAGE == LN_ELEMENTS
extern "C" __global__ void __launch_bounds__(256) LN_KERNEL(LN_GIVEN) {
    enter();
    const i64 i = (i64)blockIdx.x * 256 + threadIdx.x;
    if (i >= rows * cols) return;
    const float y = LN_AT(i / cols, i % cols);
    master[i] = y;
#if LN_COMPUTE
    put1((LN_T *)to + i, y);
#endif
    (void)sums, (void)to;
}
#endif

// What a state of rows, columns or one number becomes. Grid (ceil(n / 256), 1, 1)
#if LN_STAGE == LN_STATE
extern "C" __global__ void __launch_bounds__(256) LN_KERNEL(LN_GIVEN) {
    enter();
    const i64 n = LN_OF == 1 ? rows : LN_OF == 2 ? cols : 1, i = (i64)blockIdx.x * 256 + threadIdx.x;
    if (i < n) to[i] = LN_AT(LN_OF == 1 ? i : 0, LN_OF == 2 ? i : 0);
    (void)sums;
}
#endif
#undef LN_GIVEN
