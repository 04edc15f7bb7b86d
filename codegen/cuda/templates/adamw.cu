// AdamW over a bucket. Rounded f32 arithmetic, operation by operation, in the order of ir/eval/update.c; no fused
// multiply-add, so that both targets give the same bits:
//   m = b1 m + (1-b1) g,  v = b2 v + (1-b2) g g,  p = p - lr (m/c1 / (sqrt(v/c2) + eps) + decay p),
//   g = clip factor * gradient
// Written before this text: AW_KERNEL (name), AW_T (type of the compute weights), AW_COMPUTE (1: they are apart from
// the master weights), AW_VEC (4, or 1 where a buffer is not aligned), AW_BETA1, AW_BETA2, AW_EPS, AW_DECAY (f32
// literals). Grid (ceil(count / (256 * AW_VEC)), 1, 1), 256 threads. Elements [0, decayed) decay.
#ifndef AW_ONCE
#define AW_ONCE
struct AdamwStep { float rate, factor, c1, c2; };

__device__ __forceinline__ float adamw(const AdamwStep &s, float b1, float b2, float eps, float decay, float grad,
                                       float p, float &m, float &v) {
    const float g = __fmul_rn(grad, s.factor);
    m = __fadd_rn(__fmul_rn(b1, m), __fmul_rn(__fsub_rn(1.0f, b1), g));
    v = __fadd_rn(__fmul_rn(b2, v), __fmul_rn(__fmul_rn(__fsub_rn(1.0f, b2), g), g));
    const float root = __fsqrt_rn(__fdiv_rn(v, s.c2));
    const float direction = __fdiv_rn(__fdiv_rn(m, s.c1), __fadd_rn(root, eps));
    return __fsub_rn(p, __fmul_rn(s.rate, __fadd_rn(direction, __fmul_rn(decay, p))));
}
#endif

extern "C" __global__ void __launch_bounds__(256)
    AW_KERNEL(const float *grad, float *master, float *m1, float *m2, AW_T *compute, const float *scalars, i64 count,
              i64 decayed) {
    enter();
    const AdamwStep s = {scalars[0], scalars[1], scalars[2], scalars[3]};
    const i64 at = ((i64)blockIdx.x * 256 + threadIdx.x) * AW_VEC;
    if (at + AW_VEC <= count) {
        Raw<float, AW_VEC> g, p, m, v;
        g.load(grad + at);
        p.load(master + at);
        m.load(m1 + at);
        v.load(m2 + at);
        float y[AW_VEC], ym[AW_VEC], yv[AW_VEC];
#pragma unroll
        for (int j = 0; j < AW_VEC; j++) {
            ym[j] = m.at(j), yv[j] = v.at(j);
            y[j] = adamw(s, AW_BETA1, AW_BETA2, AW_EPS, at + j < decayed ? AW_DECAY : 0.0f, g.at(j), p.at(j), ym[j],
                         yv[j]);
        }
        put<float, AW_VEC>(master + at, y);
        put<float, AW_VEC>(m1 + at, ym);
        put<float, AW_VEC>(m2 + at, yv);
#if AW_COMPUTE
        put<AW_T, AW_VEC>(compute + at, y);
#endif
        return;
    }
    for (i64 i = at; i < count; i++) {
        const float y =
            adamw(s, AW_BETA1, AW_BETA2, AW_EPS, i < decayed ? AW_DECAY : 0.0f, grad[i], master[i], m1[i], m2[i]);
        master[i] = y;
#if AW_COMPUTE
        put1(compute + i, y);
#endif
    }
}
