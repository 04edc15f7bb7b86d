// An optimizer over a bucket: UP_ONE, the ops of a kernel of kind optimizer, for every element. No product and sum are
// fused, so that both targets give the same bits.
// Written before this text: UP_KERNEL (name), UP_ONE (function of one element), UP_T (type of the compute weights),
// UP_COMPUTE (1: they are apart from the master weights), UP_VEC (4, or 1 where a buffer is not aligned), UP_STATES,
// UP_STATE (their type, to which they are rounded), UP_FORMALS and UP_LIST (the states, as further arguments),
// UP_DECAY (an f32 literal), UP_RATE (the rate of these parameters from that of the step), UP_GIVEN (what UP_ONE takes
// of a gradient, by `factor`), UP_TURN(i) (a further argument of UP_ONE: element i of what the optimizer has
// orthogonalized, from the formal `turned`; empty: it does not). Grid (ceil(count / (256 * UP_VEC)), 1, 1), 256
// threads. Elements [0, decayed) decay.
// Also UP_MASTER (type of the master weights) and, where it is bf16, UP_TABLE: of each parameter of all such buckets,
// its first element in the bucket, its number, and the elements of a run and the ranks where it is split
// (ir/rounding.h; 1 rank: it is not). The bucket has `params` of them from `param` on. `before`: elements of the bucket
// before this rank's part; `place`: of the rank along the axes that split parameters.
#ifdef UP_TABLE
__device__ const i64 UP_PARAMS[][4] = {UP_TABLE};
struct UP_ROUNDING {
    const i64 *param;
    i64 at; // the element of the bucket, from the parameter on
    unsigned k0, k1, step;
    i64 place;
    // The words of elements 4 n .. 4 n + 3 of the parameter.
    __device__ __forceinline__ Words words(i64 n) const {
        return philox(k0, k1, (unsigned)n, (unsigned)((unsigned long long)n >> 32), (unsigned)param[1], step);
    }
    __device__ __forceinline__ i64 whole(i64 i) const {
        return param[3] == 1 ? i : i / param[2] * param[2] * param[3] + place * param[2] + i % param[2];
    }
    static __device__ __forceinline__ float by(float y, unsigned word) {
        return y != y ? y : __uint_as_float((__float_as_uint(y) + (word >> 16)) & 0xffff0000u);
    }
    __device__ __forceinline__ float one(float y, i64 i) const {
        const i64 e = whole(i);
        return by(y, words(e / 4).at[e % 4]);
    }
};
#endif
extern "C" __global__ void __launch_bounds__(256)
    UP_KERNEL(const float *grad, UP_MASTER *master, UP_T *compute, const float *scalars, i64 count,
              i64 decayed UP_FORMALS) {
    enter();
#ifdef UP_TABLE
    __shared__ int first; // parameter of the block's elements
    if (threadIdx.x == 0) {
        int low = param, high = param + params - 1;
        while (low < high) {
            const int middle = (low + high + 1) / 2;
            if (UP_PARAMS[middle][0] <= before + (i64)blockIdx.x * (256 * UP_VEC)) low = middle;
            else high = middle - 1;
        }
        first = low;
    }
    __syncthreads();
    UP_ROUNDING rounding = {UP_PARAMS[first], before + ((i64)blockIdx.x * 256 + threadIdx.x) * UP_VEC,
                            (unsigned)seed[0], (unsigned)seed[1] ^ UP_KEY,
                            (unsigned)scalars[4] + (unsigned)(int)scalars[5], place};
    for (int k = first + 1; k < param + params && UP_PARAMS[k][0] <= rounding.at; k++) rounding.param = UP_PARAMS[k];
    rounding.at -= rounding.param[0]; // parameters begin at multiples of UP_VEC elements
#endif
    UP_STATE *const states[UP_STATES + 1] = {UP_LIST};
    const float rate = UP_RATE(scalars[0]), factor = scalars[1], c1 = scalars[2], c2 = scalars[3];
    const i64 at = ((i64)blockIdx.x * 256 + threadIdx.x) * UP_VEC;
    if (at + UP_VEC <= count) {
        Raw<float, UP_VEC> g;
        Raw<UP_MASTER, UP_VEC> p;
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
#ifdef UP_TABLE
        const i64 e = rounding.whole(rounding.at);
        if (rounding.param[3] == 1 || (rounding.param[2] % UP_VEC == 0 && e % UP_VEC == 0)) {
            const Words w = rounding.words(e / UP_VEC);
#pragma unroll
            for (int j = 0; j < UP_VEC; j++) y[j] = rounding.by(y[j], w.at[j]);
        } else {
            for (int j = 0; j < UP_VEC; j++) y[j] = rounding.one(y[j], rounding.at + j);
        }
#endif
        put<UP_MASTER, UP_VEC>(master + at, y);
#pragma unroll
        for (int k = 0; k < UP_STATES; k++) put<UP_STATE, UP_VEC>(states[k] + at, ys[k]);
#if UP_COMPUTE
        put<UP_T, UP_VEC>(compute + at, y);
#endif
        return;
    }
    for (i64 i = at; i < count; i++) {
        float y = widen(master[i]), one[UP_STATES + 1];
        for (int k = 0; k < UP_STATES; k++) one[k] = widen(states[k][i]);
        UP_ONE(UP_GIVEN(grad[i]), y, rate, i < decayed ? UP_DECAY : 0.0f, c1, c2, one UP_TURN(i));
#ifdef UP_TABLE
        y = rounding.one(y, rounding.at + (i - at));
#endif
        put1(master + i, y);
        for (int k = 0; k < UP_STATES; k++) put1(states[k] + i, one[k]);
#if UP_COMPUTE
        put1(compute + i, y);
#endif
    }
}
