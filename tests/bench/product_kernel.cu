// A product of bf16 matrices for sm_90a whose results pass through an epilogue before they leave the multiprocessor.
// Persistent blocks of three groups of 128 threads: one thread copies tiles into a ring in shared memory (TMA), two
// groups multiply (wgmma, f32 sums). EACH: every group has a tile of its own, so that one group's epilogue runs beside
// the other's products; otherwise both groups share a tile. A cluster of CL blocks has tiles one below the other and
// copies the tile of b once for all of them.
//
// d (m x n) = a (m x k) b (k x n). A matrix lies in memory along k ("along the sum") or, TA and TB, along m or n.
// Every box of every tensor map is 64 rows of 128 bytes, swizzled: 8 KiB.
#include "codegen/cuda/templates/common.cu"
typedef unsigned int u32;

struct __align__(64) Map { u64 words[16]; }; // a CUtensorMap
enum Epilogue { PLAIN, PLAIN_F32, GELU, SWIGLU, GELU_GRAD, SWIGLU_GRAD };
struct Tensors {
    Map a, b, b2;   // b2: SWIGLU's weight of u
    Map in[2];      // GELU_GRAD: h; SWIGLU_GRAD: g, u
    Map out[3];     // PLAIN d; GELU h, gelu(h + bias); SWIGLU g, u, silu(g) u;
                    // GELU_GRAD dh, gelu(h + bias); SWIGLU_GRAD dg, du, silu(g) u
    const bf16 *bias;
    float *sums; // GELU_GRAD: column sums of dh for every 64 rows, m / 64 x n
    int m, n, k, tiles_m, tiles_n; // tiles of a cluster
    int tall;                      // tiles one below the other before the next column
};

#define BOX 8192
#define LIMIT 232448 // bytes of shared memory of a block

__device__ __forceinline__ u32 shared_at(const void *p) { return (u32)__cvta_generic_to_shared(p); }

// --- barriers of shared memory

__device__ __forceinline__ void barrier_init(u32 at, int count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(at), "r"(count) : "memory");
}
__device__ __forceinline__ void barrier_expect(u32 at, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at), "r"(bytes) : "memory");
}
__device__ __forceinline__ void barrier_arrive(u32 at, u32 block) { // of this cluster
    asm volatile("{\n.reg .b32 there;\nmapa.shared::cluster.u32 there, %0, %1;\n"
                 "mbarrier.arrive.shared::cluster.b64 _, [there];\n}" ::"r"(at), "r"(block)
                 : "memory");
}
__device__ __forceinline__ void barrier_await(u32 at, u32 phase) {
    asm volatile("{\n.reg .pred done;\n"
                 "again: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                 "@done bra over;\nbra again;\nover:\n}" ::"r"(at), "r"(phase)
                 : "memory");
}
__device__ __forceinline__ void cluster_sync() {
    asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
}
__device__ __forceinline__ void group_sync(int group) { asm volatile("bar.sync %0, 128;" ::"r"(group + 1) : "memory"); }

// --- copies by tensor map

__device__ __forceinline__ void box_load(u32 to, const Map *map, int x, int y, u32 full) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], "
                 "[%2];" ::"r"(to), "l"(map), "r"(full), "r"(x), "r"(y)
                 : "memory");
}
__device__ __forceinline__ void box_load_all(u32 to, const Map *map, int x, int y, u32 full, int blocks) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
                 "[%0], [%1, {%3, %4}], [%2], %5;" ::"r"(to), "l"(map), "r"(full), "r"(x), "r"(y),
                 "h"((unsigned short)((1 << blocks) - 1))
                 : "memory");
}
__device__ __forceinline__ void box_store(const Map *map, int x, int y, u32 from) {
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];" ::"l"(map), "r"(x),
                 "r"(y), "r"(from)
                 : "memory");
}
__device__ __forceinline__ void map_prefetch(const Map *map) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}
__device__ __forceinline__ void stores_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
template <int N> __device__ __forceinline__ void stores_read() { // shared memory of all but the last N may be reused
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(N) : "memory");
}
__device__ __forceinline__ void stores_seen() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// --- wgmma

__device__ __forceinline__ void wgmma_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wgmma_submit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int N> __device__ __forceinline__ void wgmma_finish() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}
template <int N> __device__ __forceinline__ void wgmma_hold(float (&d)[N]) {
#pragma unroll
    for (int i = 0; i < N; i++) asm volatile("" : "+f"(d[i])::"memory");
}
// swizzle of 128 bytes; 1024 bytes from 8 rows to the next 8, a box from 64 columns to the next 64
__device__ __forceinline__ u64 descriptor(u32 at) {
    return 1ull << 62 | 64ull << 32 | (u64)(BOX >> 4) << 16 | (at >> 4 & 0x3fff);
}
#define R4(d, i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define R16(d, i) R4(d, i), R4(d, i + 4), R4(d, i + 8), R4(d, i + 12)
#define R64(d, i) R16(d, i), R16(d, i + 16), R16(d, i + 32), R16(d, i + 48)
#define L64                                                                                                            \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, "   \
    "%24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, "   \
    "%46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define L128                                                                                                           \
    L64 ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, %84, "  \
        "%85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, %96, %97, %98, %99, %100, %101, %102, %103, %104, "    \
        "%105, %106, %107, %108, %109, %110, %111, %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, "       \
        "%122, %123, %124, %125, %126, %127"
// d[FROM ...] (64 x 128) = a b, or += when `add`
template <int FROM, int TA, int TB> __device__ __forceinline__ void wgmma128(float (&d)[128], u64 a, u64 b, int add) {
    asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, %66, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" L64 "}, %64, %65, add, 1, 1, %67, %68;\n}"
                 : R64(d, FROM)
                 : "l"(a), "l"(b), "r"(add), "n"(TA), "n"(TB));
}
template <int TA, int TB> __device__ __forceinline__ void wgmma256(float (&d)[128], u64 a, u64 b, int add) {
    asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, %130, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {" L128 "}, %128, %129, add, 1, 1, %131, "
                 "%132;\n}"
                 : R64(d, 0), R64(d, 64)
                 : "l"(a), "l"(b), "r"(add), "n"(TA), "n"(TB));
}

// --- pieces: 64 x 64 results of a group, 32 a thread, as wgmma leaves them: x[4 j + 2 h + e] is row lane / 4 + 8 h of
// the warp's 16, column 8 j + 2 (lane % 4) + e. In shared memory a piece is a box.

__device__ __forceinline__ u32 piece_at(u32 box, int j) { // where this lane's row of four 8 x 8 blocks begins
    const int t = threadIdx.x & 127, i = t >> 3 & 3;
    const int row = t / 32 * 16 + (i & 1) * 8 + (t & 7);
    return box + row * 128 + ((j + (i >> 1) ^ row & 7) << 4);
}
__device__ __forceinline__ void piece_store(u32 box, const u32 (&x)[16]) {
#pragma unroll
    for (int j = 0; j < 8; j += 2)
        asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(piece_at(box, j)),
                     "r"(x[2 * j]), "r"(x[2 * j + 1]), "r"(x[2 * j + 2]), "r"(x[2 * j + 3])
                     : "memory");
}
__device__ __forceinline__ void piece_load(u32 (&x)[16], u32 box) {
#pragma unroll
    for (int j = 0; j < 8; j += 2)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(x[2 * j]), "=r"(x[2 * j + 1]), "=r"(x[2 * j + 2]), "=r"(x[2 * j + 3])
                     : "r"(piece_at(box, j))
                     : "memory");
}
__device__ __forceinline__ void piece_store_f32(u32 boxes, const float *x) { // two boxes of 32 columns
    const int t = threadIdx.x & 127, lane = t & 31;
#pragma unroll
    for (int j = 0; j < 8; j++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const int row = t / 32 * 16 + lane / 4 + 8 * h, c = j % 4 * 2 + (lane & 3) / 2;
            asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(boxes + j / 4 * BOX + row * 128 +
                                                                  ((c ^ row & 7) << 4) + (lane & 1) * 8),
                         "f"(x[4 * j + 2 * h]), "f"(x[4 * j + 2 * h + 1])
                         : "memory");
        }
}
__device__ __forceinline__ u32 pair(float lo, float hi) {
    u32 r;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo));
    return r;
}
__device__ __forceinline__ float low(u32 x) { return __uint_as_float(x << 16); }
__device__ __forceinline__ float high(u32 x) { return __uint_as_float(x & 0xffff0000u); }
__device__ __forceinline__ float rounded(float x) { return widen(Narrow<bf16>::from(x)); }

// --- the functions of one element. tanh(z) = 2 sigmoid(2 z) - 1.
#define GELU_C 0.7978845608028654f
__device__ __forceinline__ float gelu(float x) {
    return x * fast_sigmoid(2 * GELU_C * fmaf(0.044715f * x * x, x, x));
}
__device__ __forceinline__ float gelu_grad(float x, float *y) { // the derivative; y: the function
    const float s = fast_sigmoid(2 * GELU_C * fmaf(0.044715f * x * x, x, x));
    *y = x * s;
    return fmaf(*y * (1 - s), 2 * GELU_C * fmaf(3 * 0.044715f * x, x, 1.f), s);
}
struct Gated { float dg, du, act; };
__device__ __forceinline__ float silu_mul(float g, float u) { return rounded(g * fast_sigmoid(g)) * u; }
__device__ __forceinline__ Gated silu_mul_grad(float g, float u, float d) {
    const float s = fast_sigmoid(g), y = rounded(g * s);
    return {rounded(d * u) * fmaf(g * s, 1 - s, s), d * y, y * u};
}

// sums of 64 rows of a piece's columns: over 8 lanes, then over the group's warps through `space` (4 x 64 floats)
__device__ __forceinline__ void column_sums(const u32 (&x)[16], float *space, float *to, bool inside, int group) {
    const int t = threadIdx.x & 127, lane = t & 31;
    float s[16];
#pragma unroll
    for (int j = 0; j < 8; j++) {
        s[2 * j] = low(x[2 * j]) + low(x[2 * j + 1]);
        s[2 * j + 1] = high(x[2 * j]) + high(x[2 * j + 1]);
    }
#pragma unroll
    for (int far = 16, half = 8; far >= 4; far /= 2, half /= 2)
#pragma unroll
        for (int i = 0; i < 8; i++)
            if (i < half) { // the lane with this bit keeps the upper half
                const bool up = lane & far;
                const float give = up ? s[i] : s[i + half], keep = up ? s[i + half] : s[i];
                s[i] = keep + __shfl_xor_sync(~0u, give, far);
            }
    const int j = lane >> 2 & 7; // bits 16, 8, 4 of the lane chose the pair of columns
#pragma unroll
    for (int e = 0; e < 2; e++) space[t / 32 * 64 + j * 8 + (lane & 3) * 2 + e] = s[e];
    group_sync(group);
    if (t < 64 && inside) to[t] = space[t] + space[64 + t] + space[128 + t] + space[192 + t];
}

// A shape of the kernel: MB x 64 rows and NB columns for a group.
template <int MB, int NB, bool EACH, int CL, int STAGES, int TA, int TB, int EPI> struct Product {
    static const int BM = 64 * MB * (EACH ? 1 : 2), BN = NB, STAGE = (BM + BN) * 128;
    static const int SET = EPI == PLAIN ? 1 : EPI == SWIGLU || EPI == SWIGLU_GRAD ? 3 : 2; // boxes of one piece
    static const int INS = EPI == GELU_GRAD ? 1 : EPI == SWIGLU_GRAD ? 2 : 0;
    static const int OUTS = EPI == PLAIN_F32 ? 1 : SET;
    static const int PIECES = EPI == SWIGLU ? 2 : 4;
    static const int OWN = EPI == SWIGLU ? BN / 2 : BN; // columns of a result
    static const int BARRIERS = 256, SPACE = EPI == GELU_GRAD ? 2048 : 0;
    static const int ROOM = (LIMIT - 1024 - BARRIERS - SPACE - STAGES * STAGE) / (2 * BOX) / SET;
    static const int SETS = ROOM > 4 ? 4 : ROOM; // of a group
    static const int SHARED = 1024 + STAGES * STAGE + 2 * SETS * SET * BOX + SPACE + BARRIERS;
    static_assert(SETS > 0 && MB * NB == 128 * (MB * NB / 128) && MB * NB == 256, "does not fit");
    static const int USERS = CL * (EACH ? 4 : 8); // warps that read a stage

    const Tensors &p;
    u32 ring, boxes, space, full, empty, loaded, turn;
    int rank;

    __device__ __forceinline__ void tile(int t, int *m, int *n) const { // first row and column of this block's tile
        const int column = p.tall * p.tiles_n, first = t / column * p.tall;
        const int rows = p.tiles_m - first < p.tall ? p.tiles_m - first : p.tall;
        *m = ((first + t % column % rows) * CL + rank) * BM;
        *n = t % column / rows;
    }
    __device__ __forceinline__ void copy() const {
        const int steps = (p.k + 63) / 64, total = p.tiles_m * p.tiles_n;
        int s = 0, round = 0;
        for (int t = blockIdx.x / CL; t < total; t += gridDim.x / CL) {
            int m, n;
            tile(t, &m, &n);
            n *= OWN;
            for (int i = 0; i < steps; i++) {
                if (round) barrier_await(empty + 8 * s, round - 1 & 1);
                const u32 at = ring + s * STAGE, f = full + 8 * s;
                barrier_expect(f, STAGE);
#pragma unroll
                for (int c = 0; c < BM / 64; c++)
                    box_load(at + c * BOX, &p.a, TA ? m + 64 * c : 64 * i, TA ? 64 * i : m + 64 * c, f);
#pragma unroll
                for (int j = 0; j < BN / 64 / CL; j++) {
                    const int c = rank * (BN / 64 / CL) + j;
                    const bool second = EPI == SWIGLU && c >= BN / 128;
                    const Map *b = second ? &p.b2 : &p.b;
                    const int row = n + 64 * (second ? c - BN / 128 : c), x = TB ? row : 64 * i, y = TB ? 64 * i : row;
                    if (CL == 1) box_load(at + (BM / 64 + c) * BOX, b, x, y, f);
                    else box_load_all(at + (BM / 64 + c) * BOX, b, x, y, f, CL);
                }
                if (++s == STAGES) s = 0, round++;
            }
        }
    }
    __device__ __forceinline__ void release(int s) const {
        const u32 lane = threadIdx.x & 31;
        if (lane < CL) barrier_arrive(empty + 8 * s, lane);
    }
    // Products of this block's tile t, of `steps` stages of the ring. EACH: the groups take turns, since a wait tells a
    // round from the one before it, but not from the one before that: all earlier stages must have been seen.
    __device__ __forceinline__ void multiply(float (&d)[128], int group, int t, int steps) const {
        int s = t * steps % STAGES, round = t * steps / STAGES, before = 0;
        if (EACH && t) barrier_await(turn + 8 * group, (t - 1) / 2 & 1);
        for (int i = 0; i < steps; i++) {
            barrier_await(full + 8 * s, round & 1);
            const u64 a = descriptor(ring + s * STAGE) + (EACH ? 0 : group * MB * (BOX >> 4));
            const u64 b = descriptor(ring + s * STAGE + BM / 64 * BOX);
            wgmma_begin();
#pragma unroll
            for (int k = 0; k < 4; k++) {
                const u64 ak = a + k * (TA ? 128 : 2), bk = b + k * (TB ? 128 : 2);
                if constexpr (NB == 256) {
                    wgmma256<TA, TB>(d, ak, bk, i | k);
                } else {
                    wgmma128<0, TA, TB>(d, ak, bk, i | k);
                    wgmma128<64, TA, TB>(d, ak + (BOX >> 4), bk, i | k);
                }
            }
            wgmma_submit();
            if (i) {
                wgmma_finish<1>();
                release(before);
            }
            before = s;
            if (++s == STAGES) s = 0, round++;
        }
        if (EACH && (threadIdx.x & 31) == 0) barrier_arrive(turn + 8 * (1 - group), rank);
        wgmma_finish<0>();
        wgmma_hold(d);
        release(before);
    }

    // --- epilogue of a group: pieces q of this group's tiles use the sets in turn
    __device__ __forceinline__ u32 set_at(int group, int q) const {
        return boxes + (group * SETS + q % SETS) * (SET * BOX);
    }
    __device__ __forceinline__ void place(int c, int m, int n, int *x, int *y) const { // of piece c
        constexpr int WIDE = OWN / 64;
        *x = n * OWN + c % WIDE * 64;
        *y = m + c / WIDE * 64;
    }
    __device__ __forceinline__ void fetch(int group, int q, int c, int m, int n) const {
        int x, y;
        place(c, m, n, &x, &y);
        const u32 f = loaded + 8 * (group * SETS + q % SETS);
        barrier_expect(f, INS * BOX);
        for (int i = 0; i < INS; i++) box_load(set_at(group, q) + i * BOX, &p.in[i], x, y, f);
    }
    __device__ __forceinline__ void before(int group, int q, int m, int n) const { // while the products are under way
        if (INS == 0 || (threadIdx.x & 127)) return;
        stores_read<0>();
        for (int c = 0; c < (SETS < PIECES ? SETS : PIECES); c++) fetch(group, q + c, c, m, n);
    }
    __device__ __forceinline__ void compute(const float *d, u32 at, int x, int y, int group) const {
        u32 r[16], v[16], w[16];
        const int column = x + (threadIdx.x & 3) * 2;
        if constexpr (EPI != PLAIN_F32) {
#pragma unroll
            for (int i = 0; i < 16; i++) r[i] = pair(d[2 * i], d[2 * i + 1]);
        }
        if constexpr (EPI == PLAIN) piece_store(at, r);
        if constexpr (EPI == PLAIN_F32) piece_store_f32(at, d);
        if constexpr (EPI == GELU) {
            piece_store(at, r);
#pragma unroll
            for (int i = 0; i < 16; i++) {
                const u32 b = column + i / 2 * 8 < p.n ? __ldg((const u32 *)(p.bias + column + i / 2 * 8)) : 0;
                v[i] = pair(gelu(rounded(low(r[i]) + low(b))), gelu(rounded(high(r[i]) + high(b))));
            }
            piece_store(at + BOX, v);
        }
        if constexpr (EPI == SWIGLU) { // u's column is NB / 2 after g's, as many results of a thread as NB / 4
#pragma unroll
            for (int i = 0; i < 16; i++) v[i] = pair(d[NB / 4 + 2 * i], d[NB / 4 + 2 * i + 1]);
#pragma unroll
            for (int i = 0; i < 16; i++)
                w[i] = pair(silu_mul(low(r[i]), low(v[i])), silu_mul(high(r[i]), high(v[i])));
            piece_store(at, r);
            piece_store(at + BOX, v);
            piece_store(at + 2 * BOX, w);
        }
        if constexpr (EPI == GELU_GRAD) {
            piece_load(v, at);
#pragma unroll
            for (int i = 0; i < 16; i++) {
                const u32 b = column + i / 2 * 8 < p.n ? __ldg((const u32 *)(p.bias + column + i / 2 * 8)) : 0;
                float y0, y1;
                const float g0 = gelu_grad(rounded(low(v[i]) + low(b)), &y0),
                            g1 = gelu_grad(rounded(high(v[i]) + high(b)), &y1);
                r[i] = pair(low(r[i]) * g0, high(r[i]) * g1);
                w[i] = pair(y0, y1);
            }
            piece_store(at, r);
            piece_store(at + BOX, w);
            const int t = threadIdx.x & 127;
            extern __shared__ __align__(16) unsigned char shared[];
            column_sums(r, (float *)(shared + (space - shared_at(shared))) + group * 256,
                        p.sums + (long long)(y / 64) * p.n + x, x + t < p.n && y < p.m, group);
        }
        if constexpr (EPI == SWIGLU_GRAD) {
            piece_load(v, at);
            piece_load(w, at + BOX);
#pragma unroll
            for (int i = 0; i < 16; i++) {
                const Gated l = silu_mul_grad(low(v[i]), low(w[i]), low(r[i])),
                            h = silu_mul_grad(high(v[i]), high(w[i]), high(r[i]));
                r[i] = pair(l.dg, h.dg);
                v[i] = pair(l.du, h.du);
                w[i] = pair(l.act, h.act);
            }
            piece_store(at, r);
            piece_store(at + BOX, v);
            piece_store(at + 2 * BOX, w);
        }
    }
    __device__ __forceinline__ void finish(const float (&d)[128], int group, int q, int m, int n) const {
        const bool first = (threadIdx.x & 127) == 0;
#pragma unroll
        for (int c = 0; c < PIECES; c++) {
            const u32 at = set_at(group, q + c);
            int x, y;
            place(c, m, n, &x, &y);
            if (INS) {
                barrier_await(loaded + 8 * (group * SETS + (q + c) % SETS), (q + c) / SETS & 1);
            } else {
                if (first) stores_read<SETS - 1>();
                group_sync(group);
            }
            compute(d + (EPI == SWIGLU && NB == 128 ? c * 64 : c * 32), at, x, y, group);
            stores_seen();
            group_sync(group);
            if (!first) continue;
            for (int i = 0; i < OUTS; i++) box_store(&p.out[i], x, y, at + i * BOX);
            if (EPI == PLAIN_F32) box_store(&p.out[0], x + 32, y, at + BOX);
            stores_commit();
            if (INS && c + 1 >= SETS && c + 1 < PIECES) {
                stores_read<SETS - 1>();
                fetch(group, q + c + 1, c + 1, m, n);
            }
        }
    }
    __device__ __forceinline__ void work(int group) const {
        const int steps = (p.k + 63) / 64, total = p.tiles_m * p.tiles_n;
        float d[128];
#pragma unroll
        for (int i = 0; i < 128; i++) d[i] = 0;
        int i = 0, q = 0;
        for (int t = blockIdx.x / CL; t < total; t += gridDim.x / CL, i++) {
            if (EACH && (i & 1) != group) continue;
            int m, n;
            tile(t, &m, &n);
            if (!EACH) m += group * 64 * MB;
            before(group, q, m, n);
            multiply(d, group, i, steps);
            finish(d, group, q, m, n);
            q += PIECES;
        }
        if ((threadIdx.x & 127) == 0) stores_read<0>();
    }
    __device__ __forceinline__ void run() {
        extern __shared__ __align__(16) unsigned char shared[];
        ring = shared_at(shared) + 1023 & ~1023u;
        boxes = ring + STAGES * STAGE;
        space = boxes + 2 * SETS * SET * BOX;
        full = space + SPACE;
        empty = full + 8 * STAGES;
        loaded = empty + 8 * STAGES;
        turn = loaded + 16 * SETS;
        asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
        if (threadIdx.x == 0) {
            for (int i = 0; i < STAGES; i++) {
                barrier_init(full + 8 * i, 1);
                barrier_init(empty + 8 * i, USERS);
            }
            for (int i = 0; i < 2 * SETS; i++) barrier_init(loaded + 8 * i, 1);
            for (int i = 0; i < 2; i++) barrier_init(turn + 8 * i, 4);
            asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
            stores_seen();
        }
        __syncthreads();
        cluster_sync();
        const int group = (int)threadIdx.x / 128 - 1;
        if (group < 0) {
            asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
            if (threadIdx.x == 0) copy();
        } else {
            asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
            work(group);
        }
        __syncwarp();
        cluster_sync(); // no block leaves while another may still arrive at its barriers
    }
};

template <class Shape> __global__ void __launch_bounds__(384, 1) product(const __grid_constant__ Tensors p) {
    enter();
    Shape s = {p};
    s.run();
}
