// Products by groups of rows on Hopper, in bf16 or f16 with sums in f32 (sm_90a): the same as grouped.cu and, with
// GW_GRAD, as grouped_grad.cu. One thread copies tiles of both operands into a ring in shared memory (TMA, one tensor
// map an operand), two groups of 128 threads multiply them (wgmma), 64 rows each of a tile of 128. A block takes one
// tile after the other; which ones follows from the counts alone, which every role reads on its own. No tile is shared,
// so sums have one order.
//
// A cluster of two blocks takes two tiles at once, one below the other, and copies the second operand's once for both;
// where a group has an odd number of tiles of rows, the last ones are taken side by side, and the first operand's rows
// are copied once. Results leave as boxes, too, while the next tile is multiplied. Where the rows of a group end inside
// of a tile, threads store them.
//
// Rows of a table by index: no tensor map names such rows, so 128 threads copy them, 16 bytes each (cp.async), and
// arrive at the stage's mbarrier when theirs are there. Each block copies its own, the other operand comes as ever.
// The rows of a gradient are not gathered: their indices change with every stage, and that took a third longer.
// Written before this text: wgmma.cu, and
//   GW_KERNEL            name
//   GW_T, GW_OUT         types of the operands, of the result
//   GW_ROWS, GW_GROUPS   rows, and groups of them
//   GW_M, GW_N           columns of the first operand, of the result; with GW_GRAD columns of both operands
//   GW_TB                without GW_GRAD, 1: the weights of a group are GW_N x GW_M, else GW_M x GW_N
//   GW_GRAD              1: the transpose of the first operand's rows of a group times the second's
//   GW_COLS              columns of a tile: 128 or 256
//   GW_FROM              rows of the table, of which `source` says the rows of the first operand, zeros where it has no
//                        such row; 0: the operand has its rows, as with GW_GRAD
//   GW_SHARED            dynamic shared bytes of the launch
// Grid: an even number of blocks in clusters of two, at most one a multiprocessor; 384 threads.
#ifndef GW_ONCE
#define GW_ONCE
// LEAVING: boxes of results; TALL: pairs of tiles before the next column
enum { GW_STAGES = 4, GW_LEAVING = 4, GW_TILE = 128, GW_TALL = 8 };

// 16 bytes, or as many zeroes.
__device__ __forceinline__ void gw_gather(u32 to, const void *from, bool inside) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(inside ? 16 : 0) : "memory");
}
__device__ __forceinline__ void gw_gathered(u32 at) { // arrives when what this thread has asked for is there
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(at) : "memory");
}

// A kernel's shape. GRAD, TB, COLS, FROM: as GW_GRAD, GW_TB, GW_COLS, GW_FROM.
template <class T, class OUT, i64 ROWS, int GROUPS, i64 M, i64 N, bool TB, bool GRAD, int COLS, i64 FROM>
struct GwProduct {
    static const bool A_DEEP = GRAD, B_DEEP = GRAD || !TB; // rows lie along the sum
    static const int STAGE = (GW_TILE / 64 + COLS / 64) * GW_BOX;
    static const int LEAVING = GW_STAGES * STAGE, FULL = LEAVING + GW_LEAVING * GW_BOX, EMPTY = FULL + 8 * GW_STAGES,
                     BYTES = EMPTY + 8 * GW_STAGES + 1024;
    static const int ACROSS = (int)((N + COLS - 1) / COLS); // tiles

    const int *counts, *source;
    const T *table;
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
    // An operand's tiles at place k of the sum.
    __device__ __forceinline__ void copy_first(u32 to, const GwMap &map, int k, u32 full) const {
        const int mine = beside ? (int)rank : 0, m = GRAD ? row : (int)first + row;
        boxes<A_DEEP>(to, map, mine, beside ? mine + 1 : 2, m, GRAD ? (int)first + k : k, 0, beside, full);
    }
    __device__ __forceinline__ void copy_second(u32 to, const GwMap &map, int k, u32 full) const {
        const int half = COLS / 128, from = beside ? 0 : (int)rank * half, end = beside ? 2 * half : from + half;
        boxes<B_DEEP>(to, map, from, end, col, GRAD ? (int)first + k : k, GRAD ? 0 : group, !beside, full);
    }
    __device__ __forceinline__ void copy(const GwMap &a, const GwMap &b) {
        u32 n = 0; // stages so far
        for (int round = 0; seek(ticket(round)); round++)
            for (int i = 0; i < steps(); i++, n++) {
                const u32 s = n % GW_STAGES, to = ring + s * STAGE, full = ring + FULL + 8 * s;
                if (n >= GW_STAGES) gw_await(ring + EMPTY + 8 * s, n / GW_STAGES - 1 & 1);
                gw_expect(full, STAGE);
                copy_first(to, a, 64 * i, full);
                copy_second(to + 2 * GW_BOX, b, 64 * i, full);
            }
    }
    // The same, by 128 threads, of rows of the table: eight threads a row of 128 bytes, each of them 8 rows, 16 apart.
    __device__ __forceinline__ void gather(const GwMap &b) {
        const int mine = threadIdx.x / 8, piece = threadIdx.x % 8, at = mine * 128 + (piece ^ mine & 7) * 16;
        u32 n = 0;
        for (int round = 0; seek(ticket(round)); round++) {
            int from[8]; // -1: there is no such row
#pragma unroll
            for (int p = 0; p < 8; p++) {
                const i64 r = row + mine + 16 * p;
                from[p] = r < rows ? __ldg(source + first + r) : -1;
                if (from[p] >= FROM) from[p] = -1;
            }
            for (int i = 0; i < steps(); i++, n++) {
                const u32 s = n % GW_STAGES, to = ring + s * STAGE, full = ring + FULL + 8 * s;
                if (n >= GW_STAGES) gw_await(ring + EMPTY + 8 * s, n / GW_STAGES - 1 & 1);
                if (threadIdx.x == 0) {
                    gw_expect(full, COLS / 64 * GW_BOX);
                    copy_second(to + 2 * GW_BOX, b, 64 * i, full);
                }
                const int x = 64 * i + piece * 8;
#pragma unroll
                for (int p = 0; p < 8; p++) {
                    const bool inside = from[p] >= 0 && x < M;
                    const T *row_at = inside ? table + from[p] * M + x : table;
                    gw_gather(to + p / 4 * GW_BOX + at + p % 4 * 2048, row_at, inside);
                }
                gw_gathered(full);
            }
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
                if (FROM) asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); // threads have written it
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
            if constexpr (!GRAD) // rows behind those of the group are others'
#pragma unroll
                for (int half = 0; half < 2; half++) {
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
                gw_barrier(ring + FULL + 8 * i, FROM ? 129 : 1); // threads that gather, and the one that expects bytes
                gw_barrier(ring + EMPTY + 8 * i, 16); // warps of the cluster
            }
            asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
            asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        }
        gw_meet();
        if (threadIdx.x < 128) {
            asm volatile("setmaxnreg.dec.sync.aligned.u32 56;");
            if (FROM) gather(b);
            else if (threadIdx.x == 0) copy(a, b);
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
              const int *counts, GW_OUT *d
#if GW_FROM
              ,
              const GW_T *table, const int *source
#endif
    ) {
    enter();
    typedef GwProduct<GW_T, GW_OUT, GW_ROWS, GW_GROUPS, GW_M, GW_N, GW_TB, GW_GRAD, GW_COLS, GW_FROM>
        Shape;
    static_assert(Shape::BYTES == GW_SHARED, "shared memory");
    extern __shared__ __align__(16) unsigned char gw_space[];
    Shape s;
    s.counts = counts;
#if GW_FROM
    s.table = table, s.source = source;
#endif
    s.run(a, b, boxes, d, gw_shared(gw_space));
}
