// An optimizer over a bucket: UP_ONE, the ops of a kernel of kind optimizer, for every element. No product and sum are
// fused, so that both targets give the same bits.
// Written before this text: UP_KERNEL (name), UP_ONE (function of one element), UP_T (type of the compute weights),
// UP_COMPUTE (1: they are apart from the master weights), UP_VEC (4, or 1 where a buffer is not aligned), UP_STATES,
// UP_STATE (their type, to which they are rounded), UP_FORMALS and UP_LIST (the states, as further arguments),
// UP_DECAY (an f32 literal), UP_RATE (the rate of these parameters from that of the step), UP_GIVEN (what UP_ONE takes
// of a gradient, by `factor`), UP_TURN(i) (a further argument of UP_ONE: element i of what the optimizer has
// orthogonalized, from the formal `turned`; empty: it does not). Grid (ceil(count / (256 * UP_VEC)), 1, 1), 256
// threads. Elements [0, decayed) decay.
extern "C" __global__ void __launch_bounds__(256)
    UP_KERNEL(const float *grad, float *master, UP_T *compute, const float *scalars, i64 count,
              i64 decayed UP_FORMALS) {
    enter();
    UP_STATE *const states[UP_STATES + 1] = {UP_LIST};
    const float rate = UP_RATE(scalars[0]), factor = scalars[1], c1 = scalars[2], c2 = scalars[3];
    const i64 at = ((i64)blockIdx.x * 256 + threadIdx.x) * UP_VEC;
    if (at + UP_VEC <= count) {
        Raw<float, UP_VEC> g, p;
        Raw<UP_STATE, UP_VEC> s[UP_STATES + 1];
        g.load(grad + at);
        p.load(master + at);
#pragma unroll
        for (int k = 0; k < UP_STATES; k++) s[k].load(states[k] + at);
        float y[UP_VEC], ys[UP_STATES + 1][UP_VEC];
#pragma unroll
        for (int j = 0; j < UP_VEC; j++) {
            float one[UP_STATES + 1];
#pragma unroll
            for (int k = 0; k < UP_STATES; k++) one[k] = s[k].at(j);
            y[j] = p.at(j);
            UP_ONE(UP_GIVEN(g.at(j)), y[j], rate, at + j < decayed ? UP_DECAY : 0.0f, c1, c2, one UP_TURN(at + j));
#pragma unroll
            for (int k = 0; k < UP_STATES; k++) ys[k][j] = one[k];
        }
        put<float, UP_VEC>(master + at, y);
#pragma unroll
        for (int k = 0; k < UP_STATES; k++) put<UP_STATE, UP_VEC>(states[k] + at, ys[k]);
#if UP_COMPUTE
        put<UP_T, UP_VEC>(compute + at, y);
#endif
        return;
    }
    for (i64 i = at; i < count; i++) {
        float y = master[i], one[UP_STATES + 1];
        for (int k = 0; k < UP_STATES; k++) one[k] = widen(states[k][i]);
        UP_ONE(UP_GIVEN(grad[i]), y, rate, i < decayed ? UP_DECAY : 0.0f, c1, c2, one UP_TURN(i));
        master[i] = y;
        for (int k = 0; k < UP_STATES; k++) put1(states[k] + i, one[k]);
#if UP_COMPUTE
        put1(compute + i, y);
#endif
    }
}
