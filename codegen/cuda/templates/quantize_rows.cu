// Rows of weights as a gather sends them, quantized, or their scales: as the op quantize computes both. A warp takes a
// row. Written before this text: QR_KERNEL (name), QR_FROM, QR_TO (types; f32 for scales), QR_COLS (elements of a row),
// QR_VEC (of a vector, which divides them), QR_LARGEST (the largest value of e4m3), QR_SCALES (1: the scales alone).
// Grid (ceil(rows / 8), 1, 1), 256 threads.
#ifndef QR_ONCE
#define QR_ONCE
template <class From, int vec> __device__ __forceinline__ float qr_scale(const From *x, int cols, float largest) {
    float most = least<float>();
    for (int col = threadIdx.x % 32 * vec; col < cols; col += 32 * vec) {
        Raw<From, vec> r;
        r.load(x + col);
#pragma unroll
        for (int j = 0; j < vec; j++) most = larger(r.at(j) < 0 ? -r.at(j) : r.at(j), most);
    }
    most = warp_max(most);
    return (most < 7.888609e-31f ? 7.888609e-31f : most) / largest; // 2^-100
}

template <class From, class To, int vec>
__device__ __forceinline__ void qr_row(const From *x, To *q, int cols, float inverse) {
    for (int col = threadIdx.x % 32 * vec; col < cols; col += 32 * vec) {
        Raw<From, vec> r;
        float y[vec];
        r.load(x + col);
#pragma unroll
        for (int j = 0; j < vec; j++) y[j] = times(r.at(j), inverse);
        put<To, vec>(q + col, y);
    }
}
#endif

extern "C" __global__ void __launch_bounds__(256) QR_KERNEL(const QR_FROM *from, QR_TO *to, i64 rows) {
    enter();
    const i64 row = (i64)blockIdx.x * 8 + threadIdx.x / 32;
    if (row >= rows) return;
    const QR_FROM *x = from + row * QR_COLS;
    const float scale = qr_scale<QR_FROM, QR_VEC>(x, QR_COLS, QR_LARGEST);
#if QR_SCALES
    if (threadIdx.x % 32 == 0) to[row] = scale;
#else
    qr_row<QR_FROM, QR_TO, QR_VEC>(x, to + row * QR_COLS, QR_COLS, 1 / scale);
#endif
}
