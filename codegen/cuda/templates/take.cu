// Rows of a table by index; zeros where there is no such row. Written before this text: TA_KERNEL (name), TA_T (type),
// TA_ROWS and TA_COLS (of the table), TA_N (indices), TA_VEC (elements a thread). Grid (ceil(TA_N * TA_COLS / (256 *
// TA_VEC)), 1, 1), 256 threads.
extern "C" __global__ void __launch_bounds__(256) TA_KERNEL(const TA_T *x, const int *index, TA_T *y) {
    enter();
    const i64 at = ((i64)blockIdx.x * 256 + threadIdx.x) * TA_VEC, i = at / TA_COLS;
    if (i >= TA_N) return;
    const int from = index[i];
    Raw<TA_T, TA_VEC> v;
    if ((unsigned)from < TA_ROWS) v.load(x + (i64)from * TA_COLS + at % TA_COLS);
    else v.zero();
    v.store(y + at);
}
