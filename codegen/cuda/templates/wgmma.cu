// What kernels on Hopper share that multiply boxes of matrices (sm_90a): tensor maps, barriers of shared memory, copies
// of boxes by maps (TMA), wgmma, and results on their way into boxes.
#ifndef GW_PIECES
#define GW_PIECES
typedef unsigned int u32;
enum { GW_BOX = 8192 }; // bytes of 64 rows of 128 bytes, swizzled, which a copy moves: elements outside are zeroes

struct __align__(128) GwMap { unsigned char byte[128]; }; // a tensor map: of rows of 128 bytes

__device__ __forceinline__ u32 gw_shared(const void *p) { return (u32)__cvta_generic_to_shared(p); }

// --- barriers of shared memory: `count` arrivals end a phase

__device__ __forceinline__ void gw_barrier(u32 at, int count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(at), "r"(count) : "memory");
}
__device__ __forceinline__ void gw_expect(u32 at, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at), "r"(bytes) : "memory");
}
__device__ __forceinline__ void gw_arrive(u32 at, u32 block) { // at the barrier in that place of a block of the cluster
    asm volatile("{\n.reg .b32 there;\nmapa.shared::cluster.u32 there, %0, %1;\n"
                 "mbarrier.arrive.shared::cluster.b64 _, [there];\n}" ::"r"(at), "r"(block)
                 : "memory");
}
__device__ __forceinline__ void gw_await(u32 at, u32 phase) { // until the phase of this parity has ended
    asm volatile("{\n.reg .pred done;\n"
                 "again: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                 "@done bra over;\nbra again;\nover:\n}" ::"r"(at), "r"(phase)
                 : "memory");
}
__device__ __forceinline__ void gw_meet(void) { // the blocks of the cluster
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
__device__ __forceinline__ u32 gw_rank(void) {
    u32 rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

// --- copies of boxes; gw_both: into both blocks of the cluster

__device__ __forceinline__ void gw_one(u32 to, const GwMap &map, int x, int y, int z, u32 full) {
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes"
                 " [%0], [%1, {%3, %4, %5, %6}], [%2];" ::"r"(to), "l"(&map), "r"(full), "r"(x), "r"(y), "r"(z), "r"(0)
                 : "memory");
}
__device__ __forceinline__ void gw_both(u32 to, const GwMap &map, int x, int y, int z, u32 full) {
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster"
                 " [%0], [%1, {%3, %4, %5, %6}], [%2], %7;" ::"r"(to), "l"(&map), "r"(full), "r"(x), "r"(y), "r"(z),
                 "r"(0), "h"((unsigned short)3)
                 : "memory");
}

// --- boxes of results on their way out, in groups of one

__device__ __forceinline__ void gw_leave(const GwMap &map, int x, int y, int z, u32 from) {
    asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.bulk_group [%0, {%1, %2, %3, %4}], [%5];" ::"l"(&map),
                 "r"(x), "r"(y), "r"(z), "r"(0), "r"(from)
                 : "memory");
}
__device__ __forceinline__ void gw_close(void) { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
template <int N> __device__ __forceinline__ void gw_left(void) { // all but the last N have been read
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(N) : "memory");
}

// --- wgmma: d (64 x 2 N) += a (64 x 16) b (16 x 2 N), from shared memory through descriptors: swizzle of 128 bytes,
// 1024 bytes from 8 rows to the next 8, a box from 64 columns to the next 64. TA, TB: rows lie along the sum.

__device__ __forceinline__ u64 gw_descriptor(u32 at) {
    return 1ull << 62 | 64ull << 32 | (u64)(GW_BOX >> 4) << 16 | (at >> 4 & 0x3fff);
}
__device__ __forceinline__ void gw_begin(void) { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void gw_submit(void) { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int N> __device__ __forceinline__ void gw_finish(void) {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}
template <int N> __device__ __forceinline__ void gw_hold(float (&d)[N]) { // keeps the registers where they are
#pragma unroll
    for (int i = 0; i < N; i++) asm volatile("" : "+f"(d[i])::"memory");
}
#define GW_4(d, i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define GW_16(d, i) GW_4(d, i), GW_4(d, i + 4), GW_4(d, i + 8), GW_4(d, i + 12)
#define GW_64(d, i) GW_16(d, i), GW_16(d, i + 16), GW_16(d, i + 32), GW_16(d, i + 48)
#define GW_LIST64                                                                                                      \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, "   \
    "%24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, "   \
    "%46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define GW_LIST96                                                                                                      \
    GW_LIST64 ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, " \
              "%84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define GW_LIST128                                                                                                     \
    GW_LIST96 ", %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, %112, "   \
              "%113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
#define GW_MULTIPLY(T)                                                                                                 \
    template <int TA, int TB> __device__ __forceinline__ void gw_multiply(float (&d)[64], u64 a, u64 b, T) {           \
        asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32." #T "." #T " {" GW_LIST64                           \
                     "}, %64, %65, 1, 1, 1, %66, %67;"                                                                 \
                     : GW_64(d, 0)                                                                                     \
                     : "l"(a), "l"(b), "n"(TA), "n"(TB));                                                              \
    }                                                                                                                  \
    template <int TA, int TB> __device__ __forceinline__ void gw_multiply(float (&d)[96], u64 a, u64 b, T) {           \
        asm volatile("wgmma.mma_async.sync.aligned.m64n192k16.f32." #T "." #T " {" GW_LIST96                           \
                     "}, %96, %97, 1, 1, 1, %98, %99;"                                                                 \
                     : GW_64(d, 0), GW_16(d, 64), GW_16(d, 80)                                                         \
                     : "l"(a), "l"(b), "n"(TA), "n"(TB));                                                              \
    }                                                                                                                  \
    template <int TA, int TB> __device__ __forceinline__ void gw_multiply(float (&d)[128], u64 a, u64 b, T) {          \
        asm volatile("wgmma.mma_async.sync.aligned.m64n256k16.f32." #T "." #T " {" GW_LIST128                          \
                     "}, %128, %129, 1, 1, 1, %130, %131;"                                                             \
                     : GW_64(d, 0), GW_64(d, 64)                                                                       \
                     : "l"(a), "l"(b), "n"(TA), "n"(TB));                                                              \
    }
GW_MULTIPLY(bf16)
GW_MULTIPLY(f16)

// --- results: a thread has 2 columns of every 8 of two rows

// Four neighbouring threads have 2 columns each of four pieces of 8 columns; afterwards each has one whole piece.
__device__ __forceinline__ void gw_turn(u32 (&w)[4]) {
    const int l = threadIdx.x;
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
        const u32 x = __shfl_xor_sync(~0u, l & 1 ? w[i] : w[i + 1], 1);
        if (l & 1) w[i] = x;
        else w[i + 1] = x;
    }
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const u32 x = __shfl_xor_sync(~0u, l & 2 ? w[i] : w[i + 2], 2);
        if (l & 2) w[i] = x;
        else w[i + 2] = x;
    }
}
// Columns from `col` on of a row that begins at `to`; of rows that are not `inside`, nothing.
template <int N, class T> __device__ __forceinline__ void gw_put(T *to, const float (&d)[N], int half, int col,
                                                                 int cols, bool inside) {
#pragma unroll
    for (int j = 0; j < N / 4; j += 4) {
        const int c = col + (j + (threadIdx.x & 3)) * 8;
        u32 w[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float x[2] = {d[4 * (j + i) + 2 * half], d[4 * (j + i) + 2 * half + 1]};
            Pack<T, 2>::put(&w[i], x);
        }
        gw_turn(w);
        if (inside && c < cols) *(uint4 *)(to + c) = make_uint4(w[0], w[1], w[2], w[3]);
    }
}

// Columns `from` on of 64 rows, as many as are 128 bytes, into a box. row: the first one of a thread. Of f32, odd rows
// store pieces of 32 bytes the other way round, so that neighbouring rows reach other banks.
template <int N> __device__ __forceinline__ void gw_box(u32 box, const float (&d)[N], int from, int row, float) {
    const int t = threadIdx.x & 3, odd = row & 1;
#pragma unroll
    for (int i = 0; i < 4; i++) { // halves of 8 rows, pairs of pieces of 8 columns
        const int half = i / 2, p = from / 8 + i % 2, q = p + 2, at = row + 8 * half;
        const float p0 = d[4 * p + 2 * half], p1 = d[4 * p + 2 * half + 1];
        const float q0 = d[4 * q + 2 * half], q1 = d[4 * q + 2 * half + 1];
        const int one = 2 * (i % 2 + 2 * odd) + t / 2, two = one ^ 4;
        const u32 to = box + at * 128 + t % 2 * 8;
        asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(to + (one ^ at & 7) * 16), "f"(odd ? q0 : p0),
                     "f"(odd ? q1 : p1)
                     : "memory");
        asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(to + (two ^ at & 7) * 16), "f"(odd ? p0 : q0),
                     "f"(odd ? p1 : q1)
                     : "memory");
    }
}
template <int N, class T> __device__ __forceinline__ void gw_box(u32 box, const float (&d)[N], int from, int row, T) {
#pragma unroll
    for (int i = 0; i < 16; i++) { // halves of 8 rows, pieces of 8 columns
        const int half = i / 8, p = from / 8 + i % 8, at = row + 8 * half;
        const float x[2] = {d[4 * p + 2 * half], d[4 * p + 2 * half + 1]};
        u32 w;
        Pack<T, 2>::put(&w, x);
        asm volatile("st.shared.b32 [%0], %1;" ::"r"(box + at * 128 + (i % 8 ^ at & 7) * 16 + (threadIdx.x & 3) * 4),
                     "r"(w)
                     : "memory");
    }
}
#endif
