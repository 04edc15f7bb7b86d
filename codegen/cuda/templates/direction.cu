// What an optimizer orthogonalizes, for every element of a bucket: DI_ONE, the first ops of a kernel of kind optimizer,
// rounded as in update.cu, and then to DI_T. Written before this text: DI_KERNEL (name), DI_ONE (function of one
// element), DI_T, DI_STATES, DI_STATE (type of the states), DI_FORMALS and DI_LIST (the states, as further arguments),
// DI_DECAY and DI_RATE as UP_DECAY and UP_RATE. Grid (ceil(count / 1024), 1, 1), 256 threads.
extern "C" __global__ void __launch_bounds__(256)
    DI_KERNEL(const float *grad, const float *master, DI_T *to, const float *scalars, i64 count,
              i64 decayed DI_FORMALS) {
    enter();
    const DI_STATE *const states[DI_STATES + 1] = {DI_LIST};
    const float rate = DI_RATE(scalars[0]), factor = scalars[1], c1 = scalars[2], c2 = scalars[3];
    const i64 at = ((i64)blockIdx.x * 256 + threadIdx.x) * 4;
    if (at + 4 <= count) {
        Raw<float, 4> g, p;
        Raw<DI_STATE, 4> s[DI_STATES + 1];
        g.load(grad + at);
        p.load(master + at);
#pragma unroll
        for (int k = 0; k < DI_STATES; k++) s[k].load(states[k] + at);
        float y[4];
#pragma unroll
        for (int j = 0; j < 4; j++) {
            float one[DI_STATES + 1];
#pragma unroll
            for (int k = 0; k < DI_STATES; k++) one[k] = s[k].at(j);
            y[j] = DI_ONE(__fmul_rn(g.at(j), factor), p.at(j), rate, at + j < decayed ? DI_DECAY : 0.0f, c1, c2, one);
        }
        put<DI_T, 4>(to + at, y);
        return;
    }
    for (i64 i = at; i < count; i++) {
        float one[DI_STATES + 1];
        for (int k = 0; k < DI_STATES; k++) one[k] = widen(states[k][i]);
        const float decay = i < decayed ? DI_DECAY : 0.0f;
        put1(to + i, DI_ONE(__fmul_rn(grad[i], factor), master[i], rate, decay, c1, c2, one));
    }
}
