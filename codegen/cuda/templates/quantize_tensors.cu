// A rank's part of a bucket with tensors (codegen/cuda/ranks.c): the scales of its elements, or its elements quantized
// by the scales of all ranks. Written before this text: TQ_SCALES or TQ_QUANTIZE (name), TQ_FROM (type), TQ_N,
// TQ_TENSORS (first element and end of each), TQ_VEC (of a vector, which no tensor cuts), TQ_LARGEST (the largest value
// of e4m3), TQ_STRIDE (from one scale to the next).
// Grid (ceil(count / (64 * 32 * TQ_VEC)), 1, 1), 256 threads: a warp takes 8 vectors of each lane.
#ifndef TQ_ONCE
#define TQ_ONCE
struct TqTensor {
    int number; // -1: no tensor is here
    i64 end;    // up to where all elements are of it, or of none
};
struct TqWarp { i64 begin, end, lane; }; // its elements; where those of a lane begin
template <int vec> __device__ __forceinline__ TqWarp tq_warp(i64 count) {
    const i64 begin = ((i64)blockIdx.x * 8 + threadIdx.x / 32) * (8 * 32 * vec), end = begin + 8 * 32 * vec;
    return {begin, end < count ? end : count, (i64)(threadIdx.x % 32 * vec)};
}
template <int n> __device__ __forceinline__ TqTensor tq_find(const i64 (&at)[2 * n], i64 e) {
    TqTensor t = {-1, 0x7fffffffffffffffll};
#pragma unroll
    for (int i = n - 1; i >= 0; i--) {
        if (e < at[2 * i + 1]) t = {i, at[2 * i + 1]};
        if (e < at[2 * i]) t = {-1, at[2 * i]};
    }
    return t;
}
__device__ __forceinline__ void tq_note(float *scale, float most, float largest) { // NaN has the most bits
    const float s = (most < 7.888609e-31f ? 7.888609e-31f : most) / largest;       // 2^-100
    atomicMax((int *)scale, (int)(__float_as_uint(s) & 0x7fffffffu));
}
template <class From, int vec> __device__ __forceinline__ float tq_most(const From *x) {
    Raw<From, vec> r;
    r.load(x);
    float most = 0;
#pragma unroll
    for (int j = 0; j < vec; j++) most = larger(r.at(j) < 0 ? -r.at(j) : r.at(j), most);
    return most;
}
#endif

#ifdef TQ_SCALES
extern "C" __global__ void __launch_bounds__(256) TQ_SCALES(const TQ_FROM *x, i64 first, i64 count, float *scales) {
    enter();
    const i64 at[] = {TQ_TENSORS};
    const TqWarp w = tq_warp<TQ_VEC>(count);
    if (w.begin >= count) return;
    TqTensor t = tq_find<TQ_N>(at, first + w.begin);
    const bool one = t.end >= first + w.end; // of one tensor
    float all = 0;
    for (i64 e = w.begin + w.lane; e < w.end; e += 32 * TQ_VEC) {
        const float most = tq_most<TQ_FROM, TQ_VEC>(x + e);
        if (first + e >= t.end) t = tq_find<TQ_N>(at, first + e);
        if (one) all = larger(most, all);
        else if (t.number >= 0) tq_note(scales + TQ_STRIDE * t.number, most, TQ_LARGEST);
    }
    if (!one) return;
    all = warp_max(all);
    if (t.number >= 0 && threadIdx.x % 32 == 0) tq_note(scales + TQ_STRIDE * t.number, all, TQ_LARGEST);
}
#endif

#ifdef TQ_QUANTIZE
extern "C" __global__ void __launch_bounds__(256) TQ_QUANTIZE(const TQ_FROM *x, i64 first, i64 count,
                                                              const float *scales, e4m3 *q) {
    enter();
    const i64 at[] = {TQ_TENSORS};
    const TqWarp w = tq_warp<TQ_VEC>(count);
    if (w.begin >= count) return;
    TqTensor t = tq_find<TQ_N>(at, first + w.begin);
    float inverse = t.number < 0 ? 0 : 1 / scales[TQ_STRIDE * t.number];
    for (i64 e = w.begin + w.lane; e < w.end; e += 32 * TQ_VEC) {
        if (first + e >= t.end) {
            t = tq_find<TQ_N>(at, first + e);
            inverse = t.number < 0 ? 0 : 1 / scales[TQ_STRIDE * t.number];
        }
        Raw<TQ_FROM, TQ_VEC> r;
        float y[TQ_VEC];
        r.load(x + e);
#pragma unroll
        for (int j = 0; j < TQ_VEC; j++) y[j] = t.number < 0 ? 0.0f : times(r.at(j), inverse);
        put<e4m3, TQ_VEC>(q + e, y);
    }
}
#endif
