// Products by groups of rows on Hopper, in bf16 or f16 with sums in f32 (sm_90a): the same as grouped.cu and, with
// GW_GRAD, as grouped_grad.cu. One thread copies tiles of both operands into a ring in shared memory (TMA, one tensor
// map an operand), two groups of 128 threads multiply them (wgmma), 64 rows each of a tile of 128. A block takes one
// tile after the other; which ones follows from the counts alone, which every role reads on its own. No tile is shared,
// so sums have one order.
//
// A cluster of two blocks takes two tiles at once, one below the other, and copies the second operand's once for both;
// where a group has an odd number of tiles of rows, the last ones are taken side by side, and the first operand's rows
// are copied once. A box of a map is 64 rows of 128 bytes, swizzled: 8 KiB. Elements outside of an operand are zeroes.
// Results leave as such boxes, too, while the next tile is multiplied. Where the rows of a group end inside of a tile,
// threads store them.
// Written before this text:
//   GW_KERNEL            name
//   GW_T, GW_OUT         types of the operands, of the result
//   GW_ROWS, GW_GROUPS   rows, and groups of them
//   GW_M, GW_N           columns of the first operand, of the result; with GW_GRAD columns of both operands
//   GW_TB                without GW_GRAD, 1: the weights of a group are GW_N x GW_M, else GW_M x GW_N
//   GW_GRAD              1: the transpose of the first operand's rows of a group times the second's
//   GW_COLS              columns of a tile: 128 or 256
//   GW_SHARED            dynamic shared bytes of the launch
// Grid: an even number of blocks in clusters of two, at most one a multiprocessor; 384 threads.
#ifndef GW_ONCE
#define GW_ONCE
typedef unsigned int u32;
// LEAVING: boxes of results; TALL: pairs of tiles before the next column
enum { GW_BOX = 8192, GW_STAGES = 4, GW_LEAVING = 4, GW_TILE = 128, GW_TALL = 8 };

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
#define GW_LIST128                                                                                                     \
    GW_LIST64 ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, " \
              "%84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, %96, %97, %98, %99, %100, %101, %102, "     \
              "%103, %104, %105, %106, %107, %108, %109, %110, %111, %112, %113, %114, %115, %116, %117, %118, %119, " \
              "%120, %121, %122, %123, %124, %125, %126, %127"
#define GW_MULTIPLY(T)                                                                                                 \
    template <int TA, int TB> __device__ __forceinline__ void gw_multiply(float (&d)[64], u64 a, u64 b, T) {           \
        asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32." #T "." #T " {" GW_LIST64                           \
                     "}, %64, %65, 1, 1, 1, %66, %67;"                                                                 \
                     : GW_64(d, 0)                                                                                     \
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
template <int N> __device__ __forceinline__ void gw_put(float *to, const float (&d)[N], int half, int col, int cols,
                                                        bool inside) {
#pragma unroll
    for (int j = 0; j < N / 4; j++) {
        const int c = col + j * 8 + (threadIdx.x & 3) * 2;
        if (inside && c < cols) *(float2 *)(to + c) = make_float2(d[4 * j + 2 * half], d[4 * j + 2 * half + 1]);
    }
}
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

// A kernel's shape. GRAD, TB, COLS: as GW_GRAD, GW_TB, GW_COLS.
template <class T, class OUT, i64 ROWS, int GROUPS, i64 M, i64 N, bool TB, bool GRAD, int COLS> struct GwProduct {
    static const bool A_DEEP = GRAD, B_DEEP = GRAD || !TB; // rows lie along the sum
    static const int STAGE = (GW_TILE / 64 + COLS / 64) * GW_BOX;
    static const int LEAVING = GW_STAGES * STAGE, FULL = LEAVING + GW_LEAVING * GW_BOX, EMPTY = FULL + 8 * GW_STAGES,
                     BYTES = EMPTY + 8 * GW_STAGES + 1024;
    static const int ACROSS = (int)((N + COLS - 1) / COLS); // tiles

    const int *counts;
    u32 ring, rank;
    // the group that the walk has come to, its rows, its items and those before it; -1: none yet
    int group;
    i64 first, rows, items, before;
    // this block's tile of an item
    int row, col; // of the result
    bool beside;  // the cluster's tiles are side by side

    __device__ __forceinline__ int down(void) const { return (int)(((GRAD ? M : rows) + GW_TILE - 1) / GW_TILE); }
    __device__ __forceinline__ void start(void) { group = -1, first = rows = items = before = 0; }
    // Finds item t, which is not before the last one; false: there is none.
    __device__ __forceinline__ bool seek(i64 t) {
        while (t - before >= items) {
            if (++group > (GRAD ? GROUPS - 1 : GROUPS)) return false;
            before += items;
            first += rows;
            rows = ROWS - first;
            if (group < GROUPS) rows = min((i64)max(__ldg(counts + group), 0), rows); // the last one: rows of no group
            items = (i64)(down() / 2) * ACROSS + down() % 2 * ((ACROSS + 1) / 2);
        }
        const int i = (int)(t - before), pairs = down() / 2, panel = i / (GW_TALL * ACROSS) * GW_TALL;
        beside = i >= pairs * ACROSS;
        if (beside) {
            row = (down() - 1) * GW_TILE;
            col = ((i - pairs * ACROSS) * 2 + (int)rank) * COLS;
        } else {
            const int tall = min(GW_TALL, pairs - panel), inside = i - panel * ACROSS;
            row = ((panel + inside % tall) * 2 + (int)rank) * GW_TILE;
            col = inside / tall * COLS;
        }
        return true;
    }
    // The item that this cluster takes in a round, or one behind the last. Tiles of a gradient take as long as their
    // group has rows: every other round goes the other way, so that all clusters get long and short ones.
    __device__ __forceinline__ i64 ticket(int round) const {
        const int many = (int)gridDim.x / 2, mine = (int)blockIdx.x / 2;
        return (i64)round * many + (GRAD && round & 1 ? many - 1 - mine : mine);
    }
    __device__ __forceinline__ int steps(void) const { // of 64 elements along the sum
        return group == GROUPS ? 0 : (int)(((GRAD ? rows : M) + 63) / 64);
    }

    // Boxes `from` to `end` of an operand, 64 rows or columns of the result each, at place k of the sum.
    template <bool DEEP>
    __device__ __forceinline__ void boxes(u32 to, const GwMap &map, int from, int end, int at, int k, int z, bool both,
                                          u32 full) const {
        for (int i = from; i < end; i++) {
            const int x = DEEP ? at + 64 * i : k, y = DEEP ? k : at + 64 * i;
            if (both) gw_both(to + i * GW_BOX, map, x, y, z, full);
            else gw_one(to + i * GW_BOX, map, x, y, z, full);
        }
    }
    __device__ __forceinline__ void copy(const GwMap &a, const GwMap &b) {
        u32 n = 0; // stages so far
        for (int round = 0; seek(ticket(round)); round++)
            for (int i = 0; i < steps(); i++, n++) {
                const u32 s = n % GW_STAGES, to = ring + s * STAGE, full = ring + FULL + 8 * s;
                if (n >= GW_STAGES) gw_await(ring + EMPTY + 8 * s, n / GW_STAGES - 1 & 1);
                gw_expect(full, STAGE);
                const int k = 64 * i, deep = (int)first + k, half = COLS / 128;
                const int mine = beside ? (int)rank : 0, m = GRAD ? row : (int)first + row;
                boxes<A_DEEP>(to, a, mine, beside ? mine + 1 : 2, m, GRAD ? deep : k, 0, beside, full);
                const int from = beside ? 0 : (int)rank * half, end = beside ? 2 * half : from + half;
                boxes<B_DEEP>(to + 2 * GW_BOX, b, from, end, col, GRAD ? deep : k, GRAD ? 0 : group, !beside, full);
            }
    }
    // Rows of the stage that belong to the next group, or to none, become zeroes.
    __device__ __forceinline__ void clear(u32 stage, int from) const {
        const int pieces = (64 - from) * 8; // of 16 bytes, of a box
        for (int i = (int)threadIdx.x - 128; i < pieces * (2 + COLS / 64); i += 256)
            asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(stage + i / pieces * GW_BOX + from * 128 +
                                                                          i % pieces * 16),
                         "f"(0.f), "f"(0.f), "f"(0.f), "f"(0.f)
                         : "memory");
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        asm volatile("bar.sync %0, %1;" ::"r"(1), "r"(256) : "memory");
    }
    __device__ __forceinline__ void release(u32 s) const { // this warp reads the stage no more
        const u32 lane = threadIdx.x & 31;
        if (lane < 2) gw_arrive(ring + EMPTY + 8 * s, lane);
    }
    // The team's 64 rows; each of its two boxes is written when the copy before the last one has read it.
    __device__ __forceinline__ void leave(int team, const float (&d)[COLS / 2], const GwMap &map) const {
        const int wide = 128 / (int)sizeof(OUT), mine = (threadIdx.x & 127) / 32 * 16 + ((threadIdx.x & 31) >> 2);
        const bool copies = (threadIdx.x & 127) == 0;
#pragma unroll
        for (int i = 0; i < COLS / wide; i++) {
            const u32 box = ring + LEAVING + (team * 2 + i % 2) * GW_BOX;
            if (copies) gw_left<1>();
            asm volatile("bar.sync %0, %1;" ::"r"(2 + team), "r"(128) : "memory");
            gw_box(box, d, i * wide, mine, OUT());
            asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
            asm volatile("bar.sync %0, %1;" ::"r"(2 + team), "r"(128) : "memory");
            const int x = col + i * wide, y = row + team * 64;
            if (copies && x < N && (!GRAD || y < M)) gw_leave(map, x, GRAD ? y : (int)first + y, GRAD ? group : 0, box);
            if (copies) gw_close();
        }
    }
    __device__ __forceinline__ void work(int team, OUT *out, const GwMap &map) {
        u32 n = 0;
        float d[COLS / 2];
        const int mine = team * 64 + (threadIdx.x & 127) / 32 * 16 + ((threadIdx.x & 31) >> 2); // and 8 further down
        for (int round = 0; seek(ticket(round)); round++) {
            const int many = steps();
#pragma unroll
            for (int i = 0; i < COLS / 2; i++) d[i] = 0;
            for (int i = 0; i < many; i++, n++) {
                const u32 s = n % GW_STAGES, stage = ring + s * STAGE;
                gw_await(ring + FULL + 8 * s, n / GW_STAGES & 1);
                if (GRAD && i + 1 == many && rows % 64) clear(stage, (int)(rows % 64));
                const u64 a = gw_descriptor(stage + team * GW_BOX), b = gw_descriptor(stage + 2 * GW_BOX);
                gw_begin();
#pragma unroll
                for (int k = 0; k < 4; k++)
                    gw_multiply<A_DEEP, B_DEEP>(d, a + k * (A_DEEP ? 128 : 2), b + k * (B_DEEP ? 128 : 2), T());
                gw_submit();
                if (i) {
                    gw_finish<1>();
                    release((n - 1) % GW_STAGES);
                }
            }
            gw_finish<0>();
            gw_hold(d);
            if (many) release((n - 1) % GW_STAGES);
            if (GRAD || row + GW_TILE <= rows) {
                leave(team, d, map);
                continue;
            }
#pragma unroll
            for (int half = 0; half < 2; half++) { // rows behind those of the group are others'
                const int r = row + mine + 8 * half;
                gw_put(out + (first + r) * N, d, half, col, (int)N, r < rows);
            }
        }
        if ((threadIdx.x & 127) == 0) gw_left<0>();
    }
    __device__ __forceinline__ void run(const GwMap &a, const GwMap &b, const GwMap &d, OUT *out, u32 space) {
        ring = space + 1023 & ~1023u;
        rank = gw_rank();
        start();
        if (threadIdx.x == 0) {
            for (int i = 0; i < GW_STAGES; i++) {
                gw_barrier(ring + FULL + 8 * i, 1);
                gw_barrier(ring + EMPTY + 8 * i, 16); // warps of the cluster
            }
            asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
            asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        }
        gw_meet();
        if (threadIdx.x < 128) {
            asm volatile("setmaxnreg.dec.sync.aligned.u32 56;");
            if (threadIdx.x == 0) copy(a, b);
        } else {
            asm volatile("setmaxnreg.inc.sync.aligned.u32 224;");
            // the same number in every thread of a warp, which ptxas wants to know
            work(__shfl_sync(~0u, (int)threadIdx.x / 128 - 1, 0), out, d);
        }
        __syncwarp();
        gw_meet(); // no block ends while the other one may still reach its memory
    }
};
#endif

extern "C" __global__ void __launch_bounds__(384, 1)
    GW_KERNEL(const __grid_constant__ GwMap a, const __grid_constant__ GwMap b, const __grid_constant__ GwMap boxes,
              const int *counts, GW_OUT *d) {
    enter();
    typedef GwProduct<GW_T, GW_OUT, GW_ROWS, GW_GROUPS, GW_M, GW_N, GW_TB, GW_GRAD, GW_COLS> Shape;
    static_assert(Shape::BYTES == GW_SHARED, "shared memory");
    extern __shared__ __align__(16) unsigned char gw_space[];
    Shape s;
    s.counts = counts;
    s.run(a, b, boxes, d, gw_shared(gw_space));
}
