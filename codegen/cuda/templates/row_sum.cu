// Rows added in f32 in their order, from the one behind row `own` on, in a circle that ends with it. Written before
// this text: TS_KERNEL (name), TS_FROM (their type), TS_ROWS (how many), TS_VEC (elements a thread: 16 bytes where rows
// start at multiples of them, else 1). Grid (ceil(count / (256 * TS_VEC)), 1, 1), 256 threads.
extern "C" __global__ void __launch_bounds__(256) TS_KERNEL(const TS_FROM *rows, float *sum, i64 count, i64 own) {
    enter();
    const i64 at = ((i64)blockIdx.x * 256 + threadIdx.x) * TS_VEC;
    if (at >= count) return;
    float now[TS_VEC];
    for (int i = 1; i <= TS_ROWS; i++) {
        Raw<TS_FROM, TS_VEC> r;
        r.load(rows + (own + i) % TS_ROWS * count + at);
#pragma unroll
        for (int j = 0; j < TS_VEC; j++) now[j] = i == 1 ? r.at(j) : plus(now[j], r.at(j));
    }
#pragma unroll
    for (int j = 0; j < TS_VEC; j++) sum[at + j] = now[j];
}
