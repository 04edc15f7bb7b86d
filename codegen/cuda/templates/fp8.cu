// The types of one byte, after common.cu in programs that have one. Values are rounded to nearest even; beyond the
// largest value they are the largest.
struct e4m3 { unsigned char bits; };
struct e5m2 { unsigned char bits; };

__device__ __forceinline__ float widen(e5m2 x) {
    f16 upper = {(unsigned short)(x.bits << 8)};
    return widen(upper);
}
__device__ __forceinline__ float widen(e4m3 x) { // 2^120 moves the exponent; subnormals become normal
    const float y = __uint_as_float((x.bits & 0x7fu) << 20) * __uint_as_float(0x7b800000u);
    const unsigned special = (x.bits & 0x7fu) == 0x7fu ? 0x7fc00000u : 0u;
    return __uint_as_float(__float_as_uint(y) | special | (x.bits & 0x80u) << 24);
}

// As hd_to_fp8 in runtime/bits.h does it, for devices without an instruction.
__device__ __forceinline__ unsigned narrow_fp8(float x, unsigned bias, int shift, float unit, unsigned largest) {
    const unsigned b = __float_as_uint(x), sign = b >> 24 & 0x80u, magnitude = b & 0x7fffffffu;
    const unsigned normal = (magnitude - (bias << 23) + (1u << (shift - 1)) - 1u + (magnitude >> shift & 1u)) >> shift;
    const unsigned subnormal = __float_as_uint(__fadd_rn(__uint_as_float(magnitude), unit)) - __float_as_uint(unit);
    const unsigned rounded = magnitude < (bias + 1u) << 23 ? subnormal : normal;
    return magnitude > 0x7f800000u ? 0x7fu : sign | (rounded > largest ? largest : rounded);
}
__device__ __forceinline__ unsigned pair_e4m3(float high, float low) {
#if __CUDA_ARCH__ >= 890
    unsigned short y;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(y) : "f"(high), "f"(low));
    return y;
#else
    return narrow_fp8(high, 120, 20, 16384.0f, 0x7eu) << 8 | narrow_fp8(low, 120, 20, 16384.0f, 0x7eu);
#endif
}
__device__ __forceinline__ unsigned pair_e5m2(float high, float low) {
#if __CUDA_ARCH__ >= 890
    unsigned short y;
    asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(y) : "f"(high), "f"(low));
    return y;
#else
    return narrow_fp8(high, 112, 21, 128.0f, 0x7bu) << 8 | narrow_fp8(low, 112, 21, 128.0f, 0x7bu);
#endif
}
template <> struct Narrow<e4m3> {
    static __device__ __forceinline__ e4m3 from(float x) { return {(unsigned char)pair_e4m3(0.0f, x)}; }
};
template <> struct Narrow<e5m2> {
    static __device__ __forceinline__ e5m2 from(float x) { return {(unsigned char)pair_e5m2(0.0f, x)}; }
};
template <int V> struct Lane<e4m3, V> {
    static __device__ __forceinline__ float get(const unsigned *w, int j) {
        e4m3 x = {(unsigned char)(w[j / 4] >> (8 * (j % 4)) & 255u)};
        return widen(x);
    }
};
template <int V> struct Lane<e5m2, V> {
    static __device__ __forceinline__ float get(const unsigned *w, int j) {
        e5m2 x = {(unsigned char)(w[j / 4] >> (8 * (j % 4)) & 255u)};
        return widen(x);
    }
};
template <int V> struct Pack<e4m3, V> {
    static __device__ __forceinline__ void put(unsigned *w, const float *x) {
#pragma unroll
        for (int j = 0; j < V; j += 2)
            w[j / 4] = (j % 4 ? w[j / 4] : 0u) | pair_e4m3(j + 1 < V ? x[j + 1] : 0.0f, x[j]) << (8 * (j % 4));
    }
};
template <int V> struct Pack<e5m2, V> {
    static __device__ __forceinline__ void put(unsigned *w, const float *x) {
#pragma unroll
        for (int j = 0; j < V; j += 2)
            w[j / 4] = (j % 4 ? w[j / 4] : 0u) | pair_e5m2(j + 1 < V ? x[j + 1] : 0.0f, x[j]) << (8 * (j % 4));
    }
};

// The four numbers of a word.
__device__ __forceinline__ void widen_word(e4m3, unsigned w, float *x) {
#if __CUDA_ARCH__ >= 890
#pragma unroll
    for (int j = 0; j < 4; j += 2) {
        unsigned both;
        asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(both) : "h"((unsigned short)(w >> 8 * j)));
        x[j] = widen(f16{(unsigned short)both}), x[j + 1] = widen(f16{(unsigned short)(both >> 16)});
    }
#else
#pragma unroll
    for (int j = 0; j < 4; j++) x[j] = Lane<e4m3, 4>::get(&w, j);
#endif
}
__device__ __forceinline__ void widen_word(e5m2, unsigned w, float *x) {
#pragma unroll
    for (int j = 0; j < 4; j++) x[j] = Lane<e5m2, 4>::get(&w, j);
}
template <class From, class To> __device__ __forceinline__ unsigned scaled_word(unsigned w, float factor) {
    float x[4];
    widen_word(From{}, w, x);
#pragma unroll
    for (int j = 0; j < 4; j++) x[j] = times(x[j], factor);
    Pack<To, 4>::put(&w, x);
    return w;
}

// The transpose of a matrix of `rows` x `cols`, which 16 divides, by tiles of 128 x 128: 256 threads read 4 rows of 16
// columns each, turn blocks of 4 x 4 bytes, and write 16 rows of 4 columns. SCALED: times the factors of rows. Words of
// a column are in shared memory turned round by 4 for each 16 columns: without that, 8 threads of a warp share a bank.
template <bool SCALED, class From, class To>
__device__ __forceinline__ void turn_bytes(const From *in, const float *factor, To *out, i64 rows, i64 cols) {
    __shared__ uint4 tile[128 * 8];
    const i64 across = (cols + 127) / 128, row = blockIdx.x / across * 128, col = blockIdx.x % across * 128;
    const int j = threadIdx.x % 8, i = threadIdx.x / 8;
    if (row + 4 * i < rows && col + 16 * j < cols) {
        Raw<From, 16> x[4];
        float f[4];
#pragma unroll
        for (int k = 0; k < 4; k++) x[k].load(in + (row + 4 * i + k) * cols + col + 16 * j);
#pragma unroll
        for (int k = 0; k < 4; k++) f[k] = SCALED ? factor[row + 4 * i + k] : 1.0f;
        unsigned *at = (unsigned *)tile + 16 * j * 32 + (i + 4 * j) % 32;
#pragma unroll
        for (int w = 0; w < 4; w++) {
            if (SCALED) {
#pragma unroll
                for (int k = 0; k < 4; k++) x[k].w[w] = scaled_word<From, To>(x[k].w[w], f[k]);
            }
            const unsigned a = __byte_perm(x[0].w[w], x[1].w[w], 0x5140), b = __byte_perm(x[2].w[w], x[3].w[w], 0x5140);
            const unsigned c = __byte_perm(x[0].w[w], x[1].w[w], 0x7362), d = __byte_perm(x[2].w[w], x[3].w[w], 0x7362);
            at[(4 * w) * 32] = __byte_perm(a, b, 0x5410), at[(4 * w + 1) * 32] = __byte_perm(a, b, 0x7632);
            at[(4 * w + 2) * 32] = __byte_perm(c, d, 0x5410), at[(4 * w + 3) * 32] = __byte_perm(c, d, 0x7632);
        }
    }
    __syncthreads();
#pragma unroll
    for (int c = i; c < 128; c += 32)
        if (col + c < cols && row + 16 * j < rows)
            *(uint4 *)(out + (col + c) * rows + row + 16 * j) = tile[c * 8 + (j + c / 16) % 8];
}

// Blocks of 128 elements with a scale each (the op quantize_blocks). 16 threads hold 8 elements of a block each, in
// vectors of V. The bits of magnitudes are in the order of the numbers, and those of a NaN are above all.
__device__ __forceinline__ unsigned most_of_16(unsigned most) {
#pragma unroll
    for (int d = 8; d > 0; d /= 2) most = max(most, __shfl_xor_sync(0xffffffffu, most, d));
    return most;
}
__device__ __forceinline__ float block_scale(unsigned most, float limit) {
    return __uint_as_float(max(most, 0x0d800000u)) / limit; // 2^-100
}
template <class From, int V> struct Eighth {
    Raw<From, V> x[8 / V];
    __device__ __forceinline__ void load(const From *p, int valid) {
#pragma unroll
        for (int i = 0; i < 8 / V; i++) {
            if (i * V < valid) x[i].load(p + i * V);
            else x[i].zero();
        }
    }
    __device__ __forceinline__ float at(int j) const { return x[j / V].at(j % V); }
    __device__ __forceinline__ unsigned size(int j) const { return __float_as_uint(at(j)) & 0x7fffffffu; }
    __device__ __forceinline__ unsigned largest(unsigned most) const {
#pragma unroll
        for (int j = 0; j < 8; j++) most = max(size(j), most);
        return most;
    }
    template <class To> __device__ __forceinline__ void put_divided(To *q, float inverse) const {
#pragma unroll
        for (int i = 0; i < 8 / V; i++) {
            float y[V];
#pragma unroll
            for (int j = 0; j < V; j++) y[j] = times(x[i].at(j), inverse);
            put<To, V>(q + i * V, y);
        }
    }
};

// 256 threads take 32 rows of one block: their scales are one after another.
template <int V, class From, class To>
__device__ __forceinline__ void quantize_blocks(const From *in, To *q, float *scale, float limit, i64 rows, i64 cols) {
    const i64 across = cols / 128, block = blockIdx.x % across, first = blockIdx.x / across * 32;
    const int lane = threadIdx.x % 16, group = threadIdx.x / 16;
    Eighth<From, V> x[2];
#pragma unroll
    for (int k = 0; k < 2; k++) {
        const i64 row = min(first + group + 16 * k, rows - 1);
        x[k].load(in + row * cols + block * 128 + lane * 8, 8);
    }
#pragma unroll
    for (int k = 0; k < 2; k++) {
        const i64 row = first + group + 16 * k;
        const float is = block_scale(most_of_16(x[k].largest(0)), limit);
        if (row >= rows) continue;
        if (q) x[k].put_divided(q + row * cols + block * 128 + lane * 8, 1 / is);
        if (scale && lane == 0) scale[block * rows + row] = is;
    }
}

// 256 threads take a square of 128 x 128, the last of a row also the zeros after its scales.
template <int V, class From, class To>
__device__ __forceinline__ void quantize_squares(const From *in, To *q, float *scale, float limit, i64 cols) {
    __shared__ unsigned part[8];
    const i64 across = cols / 128, line = (across + 3) / 4 * 4;
    const i64 block = blockIdx.x % across, down = blockIdx.x / across;
    const int lane = threadIdx.x % 16, group = threadIdx.x / 16;
    const i64 at = (down * 128 + group) * cols + block * 128 + lane * 8;
    Eighth<From, V> x[8];
    unsigned most = 0;
#pragma unroll
    for (int k = 0; k < 8; k++) x[k].load(in + at + 16 * k * cols, 8);
#pragma unroll
    for (int k = 0; k < 8; k++) most = x[k].largest(most);
    most = most_of_16(most);
    most = max(most, __shfl_xor_sync(0xffffffffu, most, 16));
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = most;
    __syncthreads();
    most = part[0];
#pragma unroll
    for (int k = 1; k < 8; k++) most = max(part[k], most);
    const float is = block_scale(most, limit), inverse = 1 / is;
#pragma unroll
    for (int k = 0; k < 8; k++)
        if (q) x[k].put_divided(q + at + 16 * k * cols, inverse);
    if (!scale) return;
    if (threadIdx.x == 0) scale[down * line + block] = is;
    if (block == across - 1 && threadIdx.x < line - across) scale[down * line + across + threadIdx.x] = 0;
}

// 8 rows of 8 columns that a thread has of each of 128 rows: the results of quantize_blocks.
template <int V, class From, class To>
__device__ __forceinline__ void quantize_own_rows(const Eighth<From, V> (&x)[8], To *q, float *scale, float limit,
                                                  i64 row, i64 col, i64 rows, i64 cols) {
    const int j = threadIdx.x % 16;
#pragma unroll
    for (int k = 0; k < 8; k++) {
        const float is = block_scale(most_of_16(x[k].largest(0)), limit);
        if (q) x[k].put_divided(q + (row + k) * cols + col + 8 * j, 1 / is);
        if (scale && j == 0) scale[col / 128 * rows + row + k] = is;
    }
}

// 256 threads take 128 rows of 128 columns, each column with a scale, and write them as rows. A thread has 8 rows of 8
// columns; the words of a column are in shared memory turned round by 2 for each 8 columns, as those of turn_bytes.
// ROWS: besides, they write the rows themselves.
template <int V, bool ROWS, class From, class To>
__device__ __forceinline__ void quantize_across(const From *in, To *own, float *own_scale, To *q, float *scale,
                                                float limit, i64 rows, i64 cols) {
    __shared__ unsigned part[16][128]; // of rows 8 i on; column 8 j + c is at 16 c + j, so that threads share no bank
    __shared__ float inverse[128];
    __shared__ uint2 tile[128 * 16];
    const i64 across = (cols + 127) / 128, col = blockIdx.x % across * 128, row = blockIdx.x / across * 128;
    const int j = threadIdx.x % 16, i = threadIdx.x / 16;
    const int valid = (int)min((i64)8, cols - col - 8 * j);
    Eighth<From, V> x[8];
#pragma unroll
    for (int k = 0; k < 8; k++) x[k].load(in + (row + 8 * i + k) * cols + col + 8 * j, valid);
    if (ROWS) quantize_own_rows(x, own, own_scale, limit, row + 8 * i, col, rows, cols);
#pragma unroll
    for (int c = 0; c < 8; c++) {
        unsigned most = 0;
#pragma unroll
        for (int k = 0; k < 8; k++) most = max(x[k].size(c), most);
        part[i][16 * c + j] = most;
    }
    __syncthreads();
    if (threadIdx.x < 128) {
        unsigned most = part[0][threadIdx.x];
#pragma unroll
        for (int k = 1; k < 16; k++) most = max(part[k][threadIdx.x], most);
        const float is = block_scale(most, limit);
        const i64 own_col = col + threadIdx.x % 16 * 8 + threadIdx.x / 16;
        inverse[threadIdx.x] = 1 / is;
        if (scale && own_col < cols) scale[row / 128 * cols + own_col] = is;
    }
    __syncthreads();
#pragma unroll
    for (int c = 0; c < 8; c++) {
        float y[8];
        unsigned w[2];
#pragma unroll
        for (int k = 0; k < 8; k++) y[k] = times(x[k].at(c), inverse[16 * c + j]);
        Pack<To, 8>::put(w, y);
        tile[(8 * j + c) * 16 + (i + j) % 16] = make_uint2(w[0], w[1]);
    }
    __syncthreads();
    const int run = threadIdx.x % 8;
    for (int c = threadIdx.x / 8; q && c < 128; c += 32) {
        if (col + c >= cols) break;
        To *at = q + (col + c) * rows + row + 16 * run;
        const uint2 a = tile[c * 16 + (2 * run + c / 8) % 16], b = tile[c * 16 + (2 * run + 1 + c / 8) % 16];
        const unsigned w[4] = {a.x, a.y, b.x, b.y};
        if (V == 8) *(uint4 *)at = make_uint4(a.x, a.y, b.x, b.y);
        else
            for (int k = 0; k < 16; k++) at[k].bits = (unsigned char)(w[k / 4] >> 8 * (k % 4));
    }
}
