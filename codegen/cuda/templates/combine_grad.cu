// The gradient of combine.cu. A warp has a choice: it makes the row of dy that is the choice's own, and the weight's
// gradient, the dot product of rows. The warp of a row without a choice makes zeros of it. Written before this text:
// CO_GRAD (name), the rest as of combine.cu. Grid (ceil(max(CO_ROWS, CO_TOKENS * CO_K) / 8), 1, 1), 256 threads.
extern "C" __global__ void __launch_bounds__(256)
    CO_GRAD(const CO_T *dout, const CO_T *y, const int *slots, const float *weight, const int *choice, CO_T *dy,
            float *dweight) {
    enter();
    const i64 i = (i64)blockIdx.x * 8 + threadIdx.x / 32;
    const int lane = threadIdx.x % 32;
    if (i < CO_ROWS && (u64)(i64)choice[i] >= (u64)CO_TOKENS * CO_K)
        for (int c = lane * CO_VEC; c < CO_COLS; c += 32 * CO_VEC) {
            Raw<CO_T, CO_VEC> v;
            v.zero();
            v.store(dy + i * CO_COLS + c);
        }
    if (i >= (i64)CO_TOKENS * CO_K) return;
    const int slot = slots[i];
    float dot = 0;
    if ((unsigned)slot < CO_ROWS) {
        const float w = weight[i];
        for (int c = lane * CO_VEC; c < CO_COLS; c += 32 * CO_VEC) {
            Raw<CO_T, CO_VEC> d, v;
            d.load(dout + i / CO_K * CO_COLS + c);
            v.load(y + (i64)slot * CO_COLS + c);
            float row[CO_VEC];
#pragma unroll
            for (int j = 0; j < CO_VEC; j++) {
                dot = plus(dot, times(d.at(j), v.at(j)));
                row[j] = times(w, d.at(j));
            }
            put<CO_T, CO_VEC>(dy + (i64)slot * CO_COLS + c, row);
        }
    }
#pragma unroll
    for (int by = 16; by; by /= 2) dot = plus(dot, __shfl_xor_sync(~0u, dot, by));
    if (lane == 0) dweight[i] = dot;
}
