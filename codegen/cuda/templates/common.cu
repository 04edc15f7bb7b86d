// Device helpers at the top of every CUDA translation unit. Header-free: NVRTC compiles it without an
// include path. Storage types are converted to f32 (f64 stays f64) when loaded and rounded to nearest even once, when
// stored.
typedef long long i64;
typedef unsigned long long u64;
struct bf16 { unsigned short bits; };
struct f16 { unsigned short bits; };

// The first statement of every kernel, but for let_next_start and what a kernel reads ahead. A kernel may be launched
// while the one before it on its stream still runs: its blocks then start as soon as there is room for them, and wait
// here until that one has ended and its writes are seen. Every kernel waits, so that those before that one have ended,
// too.
//
// The rule for what stands before enter(): it reads only what none of the kernels under way writes (hd_cuda_early), and
// writes nothing but the block's own memory, since a kernel under way may still read what this one will overwrite.
__device__ __forceinline__ void enter() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// A kernel that reads ahead calls this before enter(). The next kernel then starts as soon as all blocks of this one
// have started, and reads ahead too, while the kernel before this one still runs.
__device__ __forceinline__ void let_next_start() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// The number of this block from the end. Blocks start in the order of their numbers, so a kernel that works from the
// end first reads what the one before it wrote last, and ends with what the one after it reads first: both are still in
// the L2 cache.
__device__ __forceinline__ int from_end() { return (int)(gridDim.x - 1 - blockIdx.x); }

// The type in which a stored type is computed.
template <class T> struct Compute { typedef float type; };
template <> struct Compute<double> { typedef double type; };
template <> struct Compute<int> { typedef int type; };
template <> struct Compute<unsigned char> { typedef int type; };

__device__ __forceinline__ float widen(float x) { return x; }
__device__ __forceinline__ double widen(double x) { return x; }
__device__ __forceinline__ int widen(int x) { return x; }
__device__ __forceinline__ int widen(unsigned char x) { return x; }
__device__ __forceinline__ float widen(bf16 x) { return __uint_as_float((unsigned)x.bits << 16); }
__device__ __forceinline__ float widen(f16 x) {
    float y;
    asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
    return y;
}

template <class T> struct Narrow;
template <> struct Narrow<float> { static __device__ __forceinline__ float from(float x) { return x; } };
template <> struct Narrow<double> { static __device__ __forceinline__ double from(double x) { return x; } };
template <> struct Narrow<int> { static __device__ __forceinline__ int from(int x) { return x; } };
template <> struct Narrow<unsigned char> {
    static __device__ __forceinline__ unsigned char from(int x) { return (unsigned char)x; }
};
// Two values at once, `high` in the upper half. Conversions of one value run at a quarter of the rate of those of two.
__device__ __forceinline__ unsigned pair_bf16(float high, float low) {
    unsigned y;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low));
    return y;
}
__device__ __forceinline__ unsigned pair_f16(float high, float low) {
    unsigned y;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low));
    return y;
}
template <> struct Narrow<bf16> {
    static __device__ __forceinline__ bf16 from(float x) { return {(unsigned short)pair_bf16(0.0f, x)}; }
};
template <> struct Narrow<f16> {
    static __device__ __forceinline__ f16 from(float x) { return {(unsigned short)pair_f16(0.0f, x)}; }
};

// x as it is read back after it was stored as T.
template <class T> __device__ __forceinline__ typename Compute<T>::type rounded(typename Compute<T>::type x) {
    return widen(Narrow<T>::from(x));
}
template <> __device__ __forceinline__ float rounded<bf16>(float x) { return __uint_as_float(pair_bf16(x, 0.0f)); }

// V consecutive elements as in memory: moved as 16-byte words where they are that long, kept packed in
// registers.
template <class T, int V> struct Raw {
    static const int bytes = (int)sizeof(T) * V, words = (bytes + 3) / 4;
    unsigned w[words];
    __device__ __forceinline__ void load(const T *p) {
        if constexpr (bytes % 16 == 0) {
#pragma unroll
            for (int i = 0; i < bytes / 16; i++) {
                const uint4 q = ((const uint4 *)p)[i];
                w[4 * i] = q.x, w[4 * i + 1] = q.y, w[4 * i + 2] = q.z, w[4 * i + 3] = q.w;
            }
        } else if constexpr (bytes == 8) {
            const uint2 q = *(const uint2 *)p;
            w[0] = q.x, w[1] = q.y;
        } else if constexpr (bytes == 4) {
            w[0] = *(const unsigned *)p;
        } else if constexpr (bytes == 2) {
            w[0] = *(const unsigned short *)p;
        } else {
            static_assert(bytes == 1, "no such vector");
            w[0] = *(const unsigned char *)p;
        }
    }
    __device__ __forceinline__ void store(T *p) const {
        if constexpr (bytes % 16 == 0) {
#pragma unroll
            for (int i = 0; i < bytes / 16; i++)
                ((uint4 *)p)[i] = make_uint4(w[4 * i], w[4 * i + 1], w[4 * i + 2], w[4 * i + 3]);
        } else if constexpr (bytes == 8) {
            *(uint2 *)p = make_uint2(w[0], w[1]);
        } else if constexpr (bytes == 4) {
            *(unsigned *)p = w[0];
        } else if constexpr (bytes == 2) {
            *(unsigned short *)p = (unsigned short)w[0];
        } else {
            *(unsigned char *)p = (unsigned char)w[0];
        }
    }
    __device__ __forceinline__ void zero() {
#pragma unroll
        for (int i = 0; i < words; i++) w[i] = 0;
    }
    // Tells the compiler that the words may have changed, so that values made from them are recomputed instead of being
    // kept: packed words are half the registers of the floats.
    __device__ __forceinline__ void forget() {
#pragma unroll
        for (int i = 0; i < words; i++) asm volatile("" : "+r"(w[i]));
    }
    __device__ __forceinline__ typename Compute<T>::type at(int j) const;
};

// Copies of 4, 8 or a multiple of 16 bytes into shared memory, under way while the thread goes on. commit ends a group
// of them; wait<N> returns when all groups but the last N are there, for the thread that asked for them.
template <int BYTES> __device__ __forceinline__ void copy_ahead(void *to, const void *from) {
    const unsigned at = (unsigned)__cvta_generic_to_shared(to);
    if constexpr (BYTES % 16 == 0) {
#pragma unroll
        for (int i = 0; i < BYTES; i += 16)
            asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(at + i), "l"((const char *)from + i)
                         : "memory");
    } else {
        static_assert(BYTES == 4 || BYTES == 8, "no such copy");
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(at), "l"(from), "n"(BYTES) : "memory");
    }
}
__device__ __forceinline__ void copies_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N> __device__ __forceinline__ void copies_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

template <class T, int V> struct Lane; // element j of packed words
template <int V> struct Lane<float, V> {
    static __device__ __forceinline__ float get(const unsigned *w, int j) { return __uint_as_float(w[j]); }
};
template <int V> struct Lane<int, V> {
    static __device__ __forceinline__ int get(const unsigned *w, int j) { return (int)w[j]; }
};
template <int V> struct Lane<double, V> {
    static __device__ __forceinline__ double get(const unsigned *w, int j) {
        return __hiloint2double((int)w[2 * j + 1], (int)w[2 * j]);
    }
};
template <int V> struct Lane<unsigned char, V> {
    static __device__ __forceinline__ int get(const unsigned *w, int j) {
        return (int)(w[j / 4] >> (8 * (j % 4)) & 255u);
    }
};
template <int V> struct Lane<bf16, V> {
    static __device__ __forceinline__ float get(const unsigned *w, int j) {
        return __uint_as_float(j % 2 ? w[j / 2] & 0xffff0000u : w[j / 2] << 16);
    }
};
template <int V> struct Lane<f16, V> {
    static __device__ __forceinline__ float get(const unsigned *w, int j) {
        f16 x = {(unsigned short)(j % 2 ? w[j / 2] >> 16 : w[j / 2] & 0xffffu)};
        return widen(x);
    }
};
template <class T, int V> __device__ __forceinline__ typename Compute<T>::type Raw<T, V>::at(int j) const {
    return Lane<T, V>::get(w, j);
}

// Rounds V computed values to T and packs them.
template <class T, int V> struct Pack;
template <int V> struct Pack<float, V> {
    static __device__ __forceinline__ void put(unsigned *w, const float *x) {
#pragma unroll
        for (int j = 0; j < V; j++) w[j] = __float_as_uint(x[j]);
    }
};
template <int V> struct Pack<int, V> {
    static __device__ __forceinline__ void put(unsigned *w, const int *x) {
#pragma unroll
        for (int j = 0; j < V; j++) w[j] = (unsigned)x[j];
    }
};
template <int V> struct Pack<unsigned char, V> {
    static __device__ __forceinline__ void put(unsigned *w, const int *x) {
#pragma unroll
        for (int j = 0; j < V; j++) w[j / 4] = (j % 4 ? w[j / 4] : 0u) | ((unsigned)x[j] & 255u) << (8 * (j % 4));
    }
};
template <int V> struct Pack<double, V> {
    static __device__ __forceinline__ void put(unsigned *w, const double *x) {
#pragma unroll
        for (int j = 0; j < V; j++)
            w[2 * j] = (unsigned)__double2loint(x[j]), w[2 * j + 1] = (unsigned)__double2hiint(x[j]);
    }
};
template <int V> struct Pack<bf16, V> {
    static __device__ __forceinline__ void put(unsigned *w, const float *x) {
        if constexpr (V == 1) {
            w[0] = Narrow<bf16>::from(x[0]).bits;
        } else {
#pragma unroll
            for (int j = 0; j < V / 2; j++) w[j] = pair_bf16(x[2 * j + 1], x[2 * j]);
        }
    }
};
template <int V> struct Pack<f16, V> {
    static __device__ __forceinline__ void put(unsigned *w, const float *x) {
        if constexpr (V == 1) {
            w[0] = Narrow<f16>::from(x[0]).bits;
        } else {
#pragma unroll
            for (int j = 0; j < V / 2; j++) w[j] = pair_f16(x[2 * j + 1], x[2 * j]);
        }
    }
};
template <class T, int V> __device__ __forceinline__ void put(T *p, const typename Compute<T>::type (&x)[V]) {
    Raw<T, V> r;
    Pack<T, V>::put(r.w, x);
    r.store(p);
}
template <class T> __device__ __forceinline__ void put1(T *p, typename Compute<T>::type x) { *p = Narrow<T>::from(x); }

// Arithmetic that the compiler does not contract: a product and a sum stay two roundings, fused is one.
__device__ __forceinline__ float plus(float a, float b) { return __fadd_rn(a, b); }
__device__ __forceinline__ float minus(float a, float b) { return __fsub_rn(a, b); }
__device__ __forceinline__ float times(float a, float b) { return __fmul_rn(a, b); }
__device__ __forceinline__ float fused(float a, float b, float c) { return __fmaf_rn(a, b, c); }
__device__ __forceinline__ double plus(double a, double b) { return __dadd_rn(a, b); }
__device__ __forceinline__ double minus(double a, double b) { return __dsub_rn(a, b); }
__device__ __forceinline__ double times(double a, double b) { return __dmul_rn(a, b); }
__device__ __forceinline__ double fused(double a, double b, double c) { return __fma_rn(a, b, c); }

// The sum of a row is one fixed tree, however the row is spread over threads: neighbours are added, then neighbouring
// pairs, up to runs of 256 elements; the runs are added in order. A thread adds its V elements (tree), a warp its 32 V
// (warp_sum: a butterfly, so every lane ends with the same bits), and runs of a warp's sums make the rest
// (join_chunks); what is missing at the end is 0.
template <class R, int V> __device__ __forceinline__ R tree(R (&e)[V]) {
#pragma unroll
    for (int d = 1; d < V; d *= 2)
#pragma unroll
        for (int i = 0; i + d < V; i += 2 * d) e[i] = plus(e[i], e[i + d]);
    return e[0];
}
template <class R> __device__ __forceinline__ R warp_sum(R x) {
#pragma unroll
    for (int d = 1; d < 32; d *= 2) x = plus(x, __shfl_xor_sync(0xffffffffu, x, d));
    return x;
}
// n sums of 32 V elements each
template <int V, int n, class R> __device__ __forceinline__ R join_chunks(const R *chunk) {
    const int run = 8 / V;
    R total = 0;
#pragma unroll
    for (int first = 0; first < n; first += run) {
        R e[run];
#pragma unroll
        for (int i = 0; i < run; i++) e[i] = first + i < n ? chunk[first + i] : R(0);
        total = first ? plus(total, tree(e)) : tree(e);
    }
    return total;
}
// The sum over the threads of a block, a power of two, in a fixed tree; every thread of it ends with the same bits.
template <int threads> __device__ __forceinline__ double block_sum(double sum) {
    __shared__ double part[threads];
    __syncthreads(); // where an earlier sum may still be read
    part[threadIdx.x] = sum;
    for (int d = threads / 2; d > 0; d /= 2) {
        __syncthreads();
        if ((int)threadIdx.x < d) part[threadIdx.x] += part[threadIdx.x + d];
    }
    __syncthreads();
    return part[0];
}
template <class R> __device__ __forceinline__ R larger(R a, R b) { return (a > b || a != a) ? a : b; } // NaN wins
template <class R> __device__ __forceinline__ R warp_max(R x) {
#pragma unroll
    for (int d = 16; d > 0; d /= 2) x = larger(x, __shfl_xor_sync(0xffffffffu, x, d));
    return x;
}
template <class R> __device__ __forceinline__ R least();
template <> __device__ __forceinline__ float least<float>() { return __uint_as_float(0xff800000u); }
template <> __device__ __forceinline__ double least<double>() { return __hiloint2double((int)0xfff00000u, 0); }

// 2^x and 1/x in one instruction each: relative error below 2^-22.
__device__ __forceinline__ float fast_exp2(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
__device__ __forceinline__ float fast_reciprocal(float x) {
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
// 1 / (1 + e^-x): within 3 units in the last place of f32 for |x| < 16, a relative error below 1e-5 beyond.
__device__ __forceinline__ float fast_sigmoid(float x) {
    return fast_reciprocal(1.0f + fast_exp2(-1.4426950408889634f * x));
}

// Rotary embedding of one element: x at index i of its head, `other` the element half a head away. `turns` holds, for
// each frequency, revolutions a position as a high and a low part.
__device__ __forceinline__ void sincos_turns(float f, float *s, float *c) { sincospif(2.0f * f, s, c); }
__device__ __forceinline__ void sincos_turns(double f, double *s, double *c) { sincospi(2.0 * f, s, c); }
template <int half, class R>
__device__ __forceinline__ void rope_angle(int position, int i, const R *turns, R *s, R *c) {
    const int k = i < half ? i : i - half;
    const R high = __ldg(turns + 2 * k), low = __ldg(turns + 2 * k + 1);
    const R at = (R)position, turn = times(at, high), rest = fused(at, low, fused(at, high, -turn));
    sincos_turns(plus(minus(turn, rint(turn)), rest), s, c);
}
// The sines of a row's position, then its cosines, once a warp.
template <int half, class R>
__device__ __forceinline__ void warp_angles(int position, const R *turns, R *angles) {
    __syncwarp(); // of the row before: they have been read
#pragma unroll
    for (int i = threadIdx.x % 32; i < half; i += 32)
        rope_angle<half>(position, i, turns, angles + i, angles + half + i);
    __syncwarp();
}
// Number i of the angles of a block's positions: its sine and its cosine.
template <int half, class R>
__device__ __forceinline__ void block_angle(int position, int i, const R *turns, R (*angles)[2 * half]) {
    rope_angle<half>(position, i % half, turns, &angles[i / half][i % half], &angles[i / half][half + i % half]);
}
template <int half, class R> __device__ __forceinline__ R turned(R x, R other, int i, R s, R c, bool inverse) {
    return fused(x, c, times((i < half) != inverse ? -other : other, s));
}
template <int half, class R>
__device__ __forceinline__ R rope(R x, R other, int position, int i, const R *turns, bool inverse) {
    R s, c;
    rope_angle<half>(position, i, turns, &s, &c);
    return turned<half>(x, other, i, s, c, inverse);
}
