// For each token the sum of weight times row over its CO_K choices, in their order; a choice outside of the rows adds
// nothing. Written before this text:
//   CO_KERNEL                        name
//   CO_T                             type of the rows
//   CO_ROWS, CO_COLS                 of y
//   CO_TOKENS, CO_K                  tokens, and choices of each
//   CO_VEC                           elements of a thread
//   CO_WEIGHTED                      0: every weight is 1, and the argument is another pointer
//   CO_STEPWISE                      1: rounded to CO_T after each choice; a slot of -2 makes the sum NaN
// Grid (ceil(CO_TOKENS * CO_COLS / (256 * CO_VEC)), 1, 1), 256 threads.
extern "C" __global__ void __launch_bounds__(256)
    CO_KERNEL(const CO_T *y, const int *slots, const float *weight, CO_T *out) {
    enter();
    const i64 at = ((i64)blockIdx.x * 256 + threadIdx.x) * CO_VEC, token = at / CO_COLS;
    if (token >= CO_TOKENS) return;
    float sum[CO_VEC] = {};
    for (int j = 0; j < CO_K; j++) {
        const int slot = slots[token * CO_K + j];
#pragma unroll
        for (int c = 0; CO_STEPWISE && slot == -2 && c < CO_VEC; c++) sum[c] = __int_as_float(0x7fffffff);
        if ((unsigned)slot >= CO_ROWS) continue;
        const float w = CO_WEIGHTED ? weight[token * CO_K + j] : 1.0f;
        Raw<CO_T, CO_VEC> v;
        v.load(y + (i64)slot * CO_COLS + at % CO_COLS);
#pragma unroll
        for (int c = 0; c < CO_VEC; c++) sum[c] = plus(sum[c], times(w, v.at(c)));
#pragma unroll
        for (int c = 0; CO_STEPWISE && c < CO_VEC; c++) sum[c] = rounded<CO_T>(sum[c]);
    }
    put<CO_T, CO_VEC>(out + at, sum);
}
