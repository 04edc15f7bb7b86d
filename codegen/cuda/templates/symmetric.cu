// Products of a matrix and its transpose on Hopper, in bf16 or f16 with sums in f32 (sm_90a): d = a a', or a' a where
// the rows of a lie along the sum, for each of many matrices; with SY_ADDS alpha a a + beta a of a symmetric a. A
// block computes one tile on or under the diagonal and writes it twice, there and, transposed, above.
//
// One thread copies boxes of both operands into a ring in shared memory (TMA); on the diagonal they are the same and
// are copied once. Two groups of 128 threads multiply 64 rows of the tile each (wgmma), in the order of the sum. With
// SY_ADDS the last stage of the ring is the tile of a. Results become boxes in stages that are needed no more.
// Two blocks are on a multiprocessor: one writes while the other one multiplies.
// Written before this text: wgmma.cu, and
//   SY_KERNEL        name
//   SY_T             type of the elements
//   SY_DEEP          1: a' a
//   SY_ADDS, SY_ALPHA, SY_BETA   1 and two f32 literals; or 0
//   SY_SHARED        dynamic shared bytes of the launch
// k: length of a sum. Grid: (t (t + 1) / 2, matrices, 1) for t tiles across a result; 288 threads.
#ifndef SY_ONCE
#define SY_ONCE
enum { SY_TILE = 128, SY_STAGES = 3, SY_STAGE = 4 * GW_BOX };

template <class T, bool DEEP, bool ADDS> struct SyTile {
    static const int FULL = SY_STAGES * SY_STAGE, EMPTY = FULL + 8 * SY_STAGES, BYTES = EMPTY + 8 * SY_STAGES + 1024;

    u32 ring;
    int row, col, matrix, stages; // stages: along the sum
    bool apart;                   // the tile is not on the diagonal

    __device__ __forceinline__ void find(int k) {
        int i = 0, first = 0; // of row i of tiles
        while (first + i < (int)blockIdx.x) first += ++i;
        row = i * SY_TILE, col = ((int)blockIdx.x - first) * SY_TILE;
        apart = row != col;
        matrix = (int)blockIdx.y;
        stages = (k + 63) / 64;
    }
    __device__ __forceinline__ u32 stage(int n) const { return ring + n % SY_STAGES * SY_STAGE; }
    __device__ __forceinline__ u32 expect(int n, int boxes) const { // when both groups have read what was there
        const u32 full = ring + FULL + 8 * (n % SY_STAGES);
        if (n >= SY_STAGES) gw_await(ring + EMPTY + 8 * (n % SY_STAGES), n / SY_STAGES - 1 & 1);
        gw_expect(full, boxes * GW_BOX);
        return full;
    }
    __device__ __forceinline__ void copy(const GwMap &a) const {
        for (int n = 0; n < stages; n++) {
            const u32 full = expect(n, apart ? 4 : 2), to = stage(n);
            for (int i = 0; i < (apart ? 4 : 2); i++) {
                const int at = (i < 2 ? row : col) + i % 2 * 64;
                gw_one(to + i * GW_BOX, a, DEEP ? at : 64 * n, DEEP ? 64 * n : at, matrix, full);
            }
        }
        if (!ADDS) return;
        const u32 full = expect(stages, 4), to = stage(stages);
        for (int i = 0; i < 4; i++) gw_one(to + i * GW_BOX, a, col + i % 2 * 64, row + i / 2 * 64, matrix, full);
    }
    __device__ __forceinline__ void multiply(int team, float (&d)[64]) const {
#pragma unroll
        for (int i = 0; i < 64; i++) d[i] = 0;
        gw_hold(d); // otherwise ptxas lets one product wait for the other
        for (int n = 0; n < stages; n++) {
            gw_await(ring + FULL + 8 * (n % SY_STAGES), n / SY_STAGES & 1);
            const u64 a = gw_descriptor(stage(n) + team * GW_BOX),
                      b = gw_descriptor(stage(n) + (apart ? 2 * GW_BOX : 0));
            gw_begin();
#pragma unroll
            for (int k = 0; k < 4; k++)
                gw_multiply<DEEP, DEEP>(d, a + k * (DEEP ? 128 : 2), b + k * (DEEP ? 128 : 2), T());
            gw_submit();
            if (n) {
                gw_finish<1>();
                if (threadIdx.x % 32 == 0) gw_arrive(ring + EMPTY + 8 * ((n - 1) % SY_STAGES), 0);
            }
        }
        gw_finish<0>();
        gw_hold(d);
    }
    // d = alpha d + beta a
    __device__ __forceinline__ void add(int team, int mine, float (&d)[64], float alpha, float beta) const {
        gw_await(ring + FULL + 8 * (stages % SY_STAGES), stages / SY_STAGES & 1);
#pragma unroll
        for (int i = 0; i < 32; i++) { // halves of 8 rows, pieces of 8 columns
            const int half = i % 2, p = i / 2, at = mine + 8 * half;
            Raw<T, 2> a;
            asm volatile("ld.shared.b32 %0, [%1];"
                         : "=r"(a.w[0])
                         : "r"(stage(stages) + (team * 2 + p / 8) * GW_BOX + at * 128 + (p % 8 ^ at & 7) * 16 +
                               (threadIdx.x & 3) * 4));
#pragma unroll
            for (int j = 0; j < 2; j++) {
                float &x = d[4 * p + 2 * half + j];
                x = __fmaf_rn(alpha, x, __fmul_rn(beta, a.at(j)));
            }
        }
    }
    // 64 columns of the group's rows, from 64 j on, transposed
    __device__ __forceinline__ void turn(u32 to, const float (&d)[64], int j) const {
        const int l = threadIdx.x & 31, warp = (threadIdx.x & 127) / 32;
        const u32 at = to + ((l >> 4) * 8 + (l & 7)) * 128 + (warp * 2 + (l >> 3 & 1) ^ l & 7) * 16;
#pragma unroll
        for (int i = 0; i < 4; i++) { // 16 columns
            u32 w[4];
#pragma unroll
            for (int k = 0; k < 4; k++) {
                const int from = 4 * (8 * j + 2 * i + k / 2) + 2 * (k % 2);
                const float x[2] = {d[from], d[from + 1]};
                Pack<T, 2>::put(&w[k], x);
            }
            asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(at + i * 2048),
                         "r"(w[0]), "r"(w[1]), "r"(w[2]), "r"(w[3])
                         : "memory");
        }
    }
    __device__ __forceinline__ void meet(int team) const { // what the group has stored may be copied
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        asm volatile("bar.sync %0, %1;" ::"r"(2 + team), "r"(128) : "memory");
    }
    // What is outside of the result is not written.
    __device__ __forceinline__ void leave(int team, int mine, const float (&d)[64], const GwMap &map) const {
        const int y = row + 64 * team;
        const u32 there = stage(stages + 1) + team * (2 * GW_BOX), above = stage(stages) + team * (2 * GW_BOX);
        const bool copies = (threadIdx.x & 127) == 0;
#pragma unroll
        for (int j = 0; j < 2; j++) gw_box(there + j * GW_BOX, d, 64 * j, mine, T());
        meet(team); // and the group has read its rows of a
        for (int j = 0; copies && j < 2; j++) gw_leave(map, col + 64 * j, y, matrix, there + j * GW_BOX);
        if (apart) {
#pragma unroll
            for (int j = 0; j < 2; j++) turn(above + j * GW_BOX, d, j);
            meet(team);
            for (int j = 0; copies && j < 2; j++) gw_leave(map, y, col + 64 * j, matrix, above + j * GW_BOX);
        }
        gw_close();
        gw_left<0>();
    }
    __device__ __forceinline__ void start(int k, u32 space) {
        ring = space + 1023 & ~1023u;
        find(k);
        if (threadIdx.x == 0) {
            for (int i = 0; i < SY_STAGES; i++) {
                gw_barrier(ring + FULL + 8 * i, 1);
                gw_barrier(ring + EMPTY + 8 * i, 8); // warps that multiply
            }
            asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        }
        __syncthreads();
    }
    __device__ __forceinline__ void run(const GwMap &a, const GwMap &d, float alpha, float beta) const {
        // the same number in every thread of a warp, which ptxas wants to know
        const int team = __shfl_sync(~0u, (int)threadIdx.x / 128, 0);
        if (team == 2) {
            if (threadIdx.x == 256) copy(a);
            return;
        }
        const int mine = (threadIdx.x & 127) / 32 * 16 + ((threadIdx.x & 31) >> 2); // row; and 8 further down
        float x[64];
        multiply(team, x);
        asm volatile("bar.sync %0, %1;" ::"r"(1), "r"(256) : "memory"); // neither group reads the ring any more
        if (ADDS) add(team, mine, x, alpha, beta);
        leave(team, mine, x, d);
    }
};
#endif

extern "C" __global__ void __launch_bounds__(288, 2)
    SY_KERNEL(const __grid_constant__ GwMap a, const __grid_constant__ GwMap d, int k) {
    typedef SyTile<SY_T, SY_DEEP, SY_ADDS> Tile;
    static_assert(Tile::BYTES == SY_SHARED, "shared memory");
    extern __shared__ __align__(16) unsigned char sy_space[];
    Tile t;
    t.start(k, gw_shared(sy_space));
    enter();
    t.run(a, d, SY_ALPHA, SY_BETA);
}
