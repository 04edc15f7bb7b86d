// Attention's backward pass on Hopper: heads of 64, 96, 128, 192 and 256 in bf16 or f16, on wgmma (sm_90a). One kernel
// makes dq, the other dk and dv; both compute the scores, so no two blocks ever add to the same bytes and the result
// repeats bit for bit. Both are one loop (AttGroup::run): a block keeps rows of two operands in shared memory and walks
// over tiles of two others, which a group of 128 threads copies ahead.
//
//            kept      walked over   scores          second product   added up
//   dk, dv   k, v      q, dout       s = k q^T       p = v dout^T     dv += w dout, dk += z q     (rows are keys)
//   dq       q, dout   k, v          s = q k^T       p = dout v^T     dq += z k                   (rows are queries)
//
//   w = exp(scale s - lse), z = w (p - delta), with lse and delta of the query (Dao, "FlashAttention-2", 2023)
//
// With a window or documents a block walks over the tiles that hold a query and a key that it sees. The first key of a
// query never decreases from query to query, so these tiles follow each other. A group leaves out those of them that
// only the other group needs.
//
// Written before this text, as for attention.cu: ATT_DKV, ATT_DQ, ATT_B, ATT_T, ATT_H, ATT_KV, ATT_D, ATT_QS, ATT_KS,
// ATT_VS, ATT_OS, ATT_CAUSAL, ATT_WINDOW, ATT_DOCUMENTS, ATT_SCALE, ATT_F16, ATT_LAUNCH. ATT_DQ runs first.
// Grids: ATT_DKV (ceil(T / ATT_KV_ROWS), KV, B), ATT_DQ (ceil(T / ATT_ROWS), H, B). Threads: 128 for copies and two
// groups of 128 for products; one group's exponentials run beside the other's products. attention_wgmma.cu precedes
// this text.

// Of dk and dv, of dq: rows of a block and of a tile, and whether a tile's scores are under way beside the sums of the
// tile before. For large heads a group has registers for one sum alone (ATT_HALVES, AttGroup::run_half): one group adds
// up dv and the other dk, both of the same 64 keys.
#define ATT_HALVES (ATT_D > 128)
#define ATT_KV_ROWS (ATT_HALVES ? 64 : ATT_ROWS)
#define ATT_KV_TILE (ATT_D <= 64 ? 128 : 64)
#define ATT_Q_TILE (ATT_D <= 64 ? 128 : ATT_D <= 128 ? 64 : 32)
#define ATT_KV_AHEAD false
#define ATT_Q_AHEAD (ATT_D > 64)
#define ATT_KV_STAGES (ATT_D <= 192 ? 3 : 2)
#define ATT_Q_STAGES 3
#define ATT_EACH_QUERY (2 + ATT_DOCUMENTS) // numbers: lse, delta, with documents its first key
// shared bytes: two kept operands, stages of two operands and of numbers, w from group to group, barriers; 1024 to
// align the first
#define ATT_SHARED(rows, tile, stages, pairs)                                                                          \
    (2 * rows * ATT_ROW_BYTES + stages * tile * (2 * ATT_ROW_BYTES + ATT_EACH_QUERY * 4) + pairs + 256 + 1024)
#define ATT_SHARED_KV ATT_SHARED(ATT_KV_ROWS, ATT_KV_TILE, ATT_KV_STAGES, (ATT_HALVES ? 64 * ATT_KV_TILE * 4 : 0))
#define ATT_SHARED_Q ATT_SHARED(ATT_ROWS, ATT_Q_TILE, ATT_Q_STAGES, 0)

// A group's 64 rows of results, times `factor`, through its own shared rows to global memory in 16-byte pieces.
__device__ __forceinline__ void att_write(const float (&acc)[ATT_D / 2], float factor, u32 s, att_t *to,
                                          long long stride, int row) {
    constexpr int LD = ATT_D * 2 + 16; // bytes; the padding keeps the pieces of a column in different banks
    const int t = threadIdx.x & 127, l = t & 31, first = t / 32 * 16;
#pragma unroll
    for (int j = 0; j < ATT_D / 8; j++)
#pragma unroll
        for (int half = 0; half < 2; half++)
            asm volatile("st.shared.b32 [%0], %1;" ::"r"(s + (first + (l >> 2) + half * 8) * LD + j * 16 + (l & 3) * 4),
                         "r"(att_pack(acc[j * 4 + half * 2] * factor, acc[j * 4 + half * 2 + 1] * factor))
                         : "memory");
    __syncwarp();
    for (int i = l; i < 16 * (ATT_D / 8); i += 32) {
        const int r = first + i / (ATT_D / 8), c = i % (ATT_D / 8);
        u32 w0, w1, w2, w3;
        asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(w0), "=r"(w1), "=r"(w2), "=r"(w3)
                     : "r"(s + r * LD + c * 16)
                     : "memory");
        if (row + r < ATT_T) *(uint4 *)(to + (long long)(row + r) * stride + c * 8) = make_uint4(w0, w1, w2, w3);
    }
}

// Where things are in shared memory, and the barriers ready for use.
struct AttSpace { u32 kept, stages, numbers, full, empty, pairs; };
template <int ROWS, int TILE, int STAGES> __device__ __forceinline__ AttSpace att_space(void) {
    AttSpace s;
    s.kept = att_start<1024>();
    s.stages = s.kept + 2 * (ROWS * ATT_ROW_BYTES);
    s.numbers = s.stages + STAGES * 2 * (TILE * ATT_ROW_BYTES);
    s.full = s.numbers + STAGES * ATT_EACH_QUERY * 4 * TILE;
    s.empty = s.full + 8 * STAGES;
    s.pairs = s.full + 256;
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; i++) {
            att_barrier(s.full + 8 * i, 2 * 128);
            att_barrier(s.empty + 8 * i, 8);
        }
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    }
    __syncthreads();
    return s;
}
struct AttWalk { // one block's share of the work: `steps` tiles from row `first` on, for each head in turn
    int row, first, tiles, heads;
    const att_t *kept[2];
    long long kept_stride[2];
};

// The work of the 128 threads that copy. from(i, h): operand i (0 or 1) of the tiles of head h; of(h, row, at): the
// numbers of a query to where they belong.
template <bool DQ, int ROWS, int TILE, int STAGES, class From, class Numbers>
__device__ __forceinline__ void att_copy_all(const AttWalk &w, const AttSpace &m, const long long (&stride)[2],
                                             From from, Numbers of) {
    const int steps = w.tiles * w.heads;
    for (int i = 0; i < 2; i++)
        att_fetch<ROWS>(m.kept + i * (ROWS * ATT_ROW_BYTES), w.kept[i], w.kept_stride[i], w.row);
    for (int n = 0; n < steps; n++) {
        const int s = n % STAGES, h = n / w.tiles, row = w.first + n % w.tiles * TILE;
        if (n >= STAGES) att_await(m.empty + 8 * s, n / STAGES - 1 & 1);
        for (int i = 0; i < 2; i++)
            att_fetch<TILE>(m.stages + (2 * s + i) * (TILE * ATT_ROW_BYTES), from(i, h), stride[i], row);
        if (!DQ && threadIdx.x < TILE)
            of(h, row + (int)threadIdx.x, m.numbers + (s * ATT_EACH_QUERY * TILE + threadIdx.x) * 4);
        __syncwarp(); // threads that wait for a barrier hold up those of their warp that do not yet
        att_arrive_copied(m.full + 8 * s);
    }
}

// The work of a group of 128 threads on its 64 rows.
template <bool DQ, int ROWS, int TILE, int STAGES, bool AHEAD> struct AttGroup {
    const AttWalk &w;
    const AttSpace &m;
    int low, from, to;      // its first row; the first of the block's tiles that it needs, and the one after the last
    float lse[2], delta[2]; // DQ: of the two rows of this thread
    int seen[2], late;      // DQ, masked: the first keys that they see, and that which the group's last row sees
    float x[TILE / 2], p[TILE / 2];                // scores and second products, then w and z
    u32 z[TILE / 16][4], v[DQ ? 1 : TILE / 16][4]; // z and w, narrow

    __device__ __forceinline__ u32 tile(int n) const { return m.stages + 2 * (n % STAGES) * (TILE * ATT_ROW_BYTES); }

    __device__ __forceinline__ void submit_scores(int n) {
        u32 a = m.kept + (low - w.row) * 128;
        if (ATT_HALVES) asm volatile("" : "+r"(a)); // descriptors are recomputed: they would take 32 registers
        att_await(m.full + 8 * (n % STAGES), n / STAGES & 1);
        att_seen();
        att_begin();
        att_scores<TILE, ROWS>(x, a, tile(n));
        att_submit();
        att_scores<TILE, ROWS>(p, a + ROWS * ATT_ROW_BYTES, tile(n) + TILE * ATT_ROW_BYTES);
        att_submit();
    }
    __device__ __forceinline__ void submit_sums(int n, float (&out0)[ATT_D / 2], float (&out1)[ATT_D / 2]) {
        if constexpr (!DQ) att_add<TILE>(out1, v, tile(n) + TILE * ATT_ROW_BYTES);
        att_add<TILE>(out0, z, tile(n));
        att_submit();
    }
    __device__ __forceinline__ float2 number(int n, int which, int j) const { // lse or delta of two columns
        return att_pair(m.numbers +
                        ((n % STAGES * ATT_EACH_QUERY + which) * TILE + (threadIdx.x & 3) * 2 + j * 8) * 4);
    }
    // !DQ, of a tile that begins with query `first`: the first keys of two of its queries, and of its last one
    __device__ __forceinline__ int2 first_keys(int n, int first, int j) const {
        const int i = (threadIdx.x & 3) * 2 + j * 8;
        if constexpr (ATT_DOCUMENTS) {
            const float2 x = number(n, 2, j);
            return make_int2(__float_as_int(x.x), __float_as_int(x.y));
        }
        return make_int2(first + i + 1 - ATT_WINDOW, first + i + 2 - ATT_WINDOW);
    }
    __device__ __forceinline__ int last_key(int n, int first) const {
        if constexpr (!ATT_DOCUMENTS) return first + TILE - ATT_WINDOW;
        return att_whole(m.numbers + ((n % STAGES * ATT_EACH_QUERY + 2) * TILE + TILE - 1) * 4);
    }
    __device__ __forceinline__ void exponentials(int n) {
        const int first = w.first + n % w.tiles * TILE, col = first + (threadIdx.x & 3) * 2;
        const int row = low + (threadIdx.x & 127) / 32 * 16 + ((threadIdx.x & 31) >> 2); // and 8 further down
        // a tile on the diagonal: some of its keys come after some of its queries
        const bool edge = ATT_CAUSAL && (DQ ? first + TILE - 1 > low : low + 63 > first);
        const bool tail = DQ && ATT_T % TILE && first + TILE > ATT_T; // no such keys
        // some of its queries see only later keys than some of its own
        const bool past = ATT_MASKED && (DQ ? first < late : last_key(n, first) > low);
#pragma unroll
        for (int j = 0; j < TILE / 8; j++) {
            const float2 c = DQ ? make_float2(0, 0) : number(n, 0, j);
#pragma unroll
            for (int e = 0; e < 4; e++) {
                float &y = x[j * 4 + e];
/*cap:
                y = att_fast_capped(y);
:cap*/
                y = fast_exp2(y * (ATT_SCALE * ATT_LOG2E) - (DQ ? lse[e >> 1] : e & 1 ? c.y : c.x));
            }
        }
        if (edge || tail)
#pragma unroll
            for (int i = 0; i < TILE / 2; i++) {
                const int c = col + i / 4 * 8 + (i & 1), ahead = row + (i >> 1 & 1) * 8 - c; // rows minus columns
                if ((edge && (DQ ? ahead < 0 : ahead > 0)) || (tail && c >= ATT_T)) x[i] = 0;
            }
        if (!past) return;
#pragma unroll
        for (int j = 0; j < TILE / 8; j++) {
            const int2 least = DQ ? make_int2(0, 0) : first_keys(n, first, j);
#pragma unroll
            for (int e = 0; e < 4; e++) {
                const int r = row + (e >> 1) * 8, c = col + j * 8 + (e & 1);
                if (DQ ? c < seen[e >> 1] : r < (e & 1 ? least.y : least.x)) x[j * 4 + e] = 0;
            }
        }
    }
    __device__ __forceinline__ void differences(int n) {
#pragma unroll
        for (int j = 0; j < TILE / 8; j++) {
            const float2 c = DQ ? make_float2(0, 0) : number(n, 1, j);
#pragma unroll
            for (int e = 0; e < 4; e++)
                p[j * 4 + e] = x[j * 4 + e] * (p[j * 4 + e] - (DQ ? delta[e >> 1] : e & 1 ? c.y : c.x));
/*cap:
            const float2 of = DQ ? make_float2(0, 0) : number(n, 0, j);
#pragma unroll
            for (int e = 0; e < 4; e++)
                p[j * 4 + e] *= att_slope_of(x[j * 4 + e], DQ ? lse[e >> 1] : e & 1 ? of.y : of.x);
:cap*/
        }
    }
    __device__ __forceinline__ void narrow(void) {
        if constexpr (!DQ) att_narrow<TILE / 2>(v, x);
        att_narrow<TILE / 2>(z, p);
    }
    __device__ __forceinline__ void release(int n) { // this warp reads the tile no more
        if ((threadIdx.x & 31) == 0) att_arrive(m.empty + 8 * (n % STAGES));
    }
    __device__ __forceinline__ void leave_out(int n) {
        att_await(m.full + 8 * (n % STAGES), n / STAGES & 1);
        release(n);
    }
    // out0 += z (tile 0), out1 += w (tile 1). AHEAD: the scores of a tile and the sums of the tile before are under way
    // together, and the exponentials begin when the first scores are there. That takes more registers.
    __device__ __forceinline__ void run(float (&out0)[ATT_D / 2], float (&out1)[ATT_D / 2]) {
        const int steps = w.tiles * w.heads, begin = AHEAD && ATT_MASKED ? from : 0,
                  end = AHEAD && ATT_MASKED ? to : steps;
        att_hold(out0);
        if (!DQ) att_hold(out1);
        for (int n = 0; n < begin; n++) leave_out(n);
#pragma unroll 1
        for (int n = begin; n < (AHEAD ? begin + 1 : end); n++) {
            if (!AHEAD && ATT_MASKED && (n % w.tiles < from || n % w.tiles >= to)) {
                leave_out(n);
                continue;
            }
            submit_scores(n);
            att_finish<1>();
            att_hold(x);
            exponentials(n);
            att_finish<0>();
            att_hold(p);
            differences(n);
            narrow();
            if constexpr (!AHEAD) {
                att_begin();
                submit_sums(n, out0, out1);
                att_finish<0>();
                att_hold(out0);
                if (!DQ) att_hold(out1);
                release(n);
            }
        }
        if constexpr (!AHEAD) return;
#pragma unroll 1
        for (int n = begin + 1; n < end; n++) {
            submit_scores(n);
            submit_sums(n - 1, out0, out1);
            att_finish<2>();
            att_hold(x);
            exponentials(n);
            att_finish<1>();
            att_hold(p);
            differences(n);
            att_finish<0>();
            att_hold(out0);
            if (!DQ) att_hold(out1);
            release(n - 1);
            narrow();
        }
        att_begin();
        submit_sums(end - 1, out0, out1);
        att_finish<0>();
        att_hold(out0);
        if (!DQ) att_hold(out1);
        release(end - 1);
        for (int n = end; n < steps; n++) leave_out(n);
    }

    // ATT_HALVES: out = the sum of w dout (the first group), or of z q (the second, which gets w from the first).
    template <bool SECOND> __device__ __forceinline__ void run_half(float (&out)[ATT_D / 2]) {
        const int steps = w.tiles * w.heads;
        const u32 pairs = m.pairs + (threadIdx.x & 127) * 16;
        att_hold(out);
#pragma unroll 1
        for (int n = 0; n < steps; n++) {
            float(&y)[TILE / 2] = SECOND ? p : x;
            att_await(m.full + 8 * (n % STAGES), n / STAGES & 1);
            att_seen();
            att_begin();
            att_scores<TILE, ROWS>(y, m.kept + SECOND * (ROWS * ATT_ROW_BYTES),
                                   tile(n) + SECOND * (TILE * ATT_ROW_BYTES));
            att_submit();
            att_finish<0>();
            att_hold(y);
            if constexpr (SECOND) {
                asm volatile("bar.sync 2, 256;" ::: "memory"); // w is there
#pragma unroll
                for (int i = 0; i < TILE / 2; i += 4)
                    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                                 : "=f"(x[i]), "=f"(x[i + 1]), "=f"(x[i + 2]), "=f"(x[i + 3])
                                 : "r"(pairs + i * 512)
                                 : "memory");
                if (n + 1 < steps) asm volatile("bar.arrive 3, 256;" ::: "memory"); // and has been read
                differences(n);
                att_narrow<TILE / 2>(z, p);
            } else {
                exponentials(n);
                if (n) asm volatile("bar.sync 3, 256;" ::: "memory");
#pragma unroll
                for (int i = 0; i < TILE / 2; i += 4)
                    asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(pairs + i * 512), "f"(x[i]),
                                 "f"(x[i + 1]), "f"(x[i + 2]), "f"(x[i + 3])
                                 : "memory");
                asm volatile("bar.arrive 2, 256;" ::: "memory");
                att_narrow<TILE / 2>(z, x);
            }
            att_begin();
            att_add<TILE>(out, z, tile(n) + !SECOND * (TILE * ATT_ROW_BYTES));
            att_submit();
            att_finish<0>();
            att_hold(out);
            release(n);
        }
    }
};

#ifdef ATT_LAUNCH
constexpr int att_launch[] = ATT_LAUNCH; // rows of a block of ATT_DQ and of ATT_DKV, threads, shared bytes of both
static_assert(att_launch[0] == ATT_ROWS && att_launch[1] == ATT_KV_ROWS, "the compiler's grid is for other blocks");
static_assert(att_launch[2] == 384, "the compiler's blocks have other threads");
static_assert(att_launch[3] == ATT_SHARED_Q && att_launch[4] == ATT_SHARED_KV, "shared memory");
#endif

// all products are done: the kept operands may be overwritten
__device__ __forceinline__ void att_meet(void) { asm volatile("bar.sync 1, 256;" ::: "memory"); }

// dk and dv of ATT_KV_ROWS keys: the queries that see them, for the heads of the group in order. The longest walks
// start first, those of all heads.
extern "C" __global__ void __launch_bounds__(384, 1)
    ATT_DKV(const att_t *dout, const att_t *q, const att_t *k, const att_t *v, const att_t *o, const float *lse,
            att_t *dq, att_t *dk, att_t *dv, float *delta ATT_STARTS) {
    enter();
    const AttSpace s = att_space<ATT_KV_ROWS, ATT_KV_TILE, ATT_KV_STAGES>();
    const int g = blockIdx.x, b = blockIdx.z, group = threadIdx.x / 128 - 1;
    const long long bt = (long long)b * ATT_T;
    AttWalk w = {(int)blockIdx.y * ATT_KV_ROWS, 0, 0, ATT_GROUP,
                 {k + bt * ATT_KS + g * ATT_D, v + bt * ATT_VS + g * ATT_D}, {ATT_KS, ATT_VS}};
    w.first = ATT_CAUSAL ? w.row / ATT_KV_TILE * ATT_KV_TILE : 0;
    int to[2]; // of the first 64 keys and of the next
#if ATT_DOCUMENTS // tiles whose first query sees one of the keys
    const int all = (ATT_T - w.first + ATT_KV_TILE - 1) / ATT_KV_TILE;
    to[0] = to[1] = 0;
    for (int i = threadIdx.x; i - (int)threadIdx.x < all; i += 384) {
        const int seen = att_first(w.first + i * ATT_KV_TILE ATT_OF_STARTS);
        for (int x = 0; x < 2; x++) to[x] += __syncthreads_count(i < all && seen < w.row + (x + 1) * 64);
    }
#else
    for (int x = 0; x < 2; x++) {
        const int end = ATT_WINDOW && w.row + x * 64 + 63 < ATT_T - ATT_WINDOW ? w.row + x * 64 + 63 + ATT_WINDOW :
                                                                                 ATT_T;
        to[x] = (end - w.first + ATT_KV_TILE - 1) / ATT_KV_TILE;
    }
#endif
    w.tiles = to[ATT_KV_ROWS / 64 - 1];
    if (group < 0) {
        att_fewer();
        const long long stride[2] = {ATT_QS, ATT_OS};
        att_copy_all<false, ATT_KV_ROWS, ATT_KV_TILE, ATT_KV_STAGES>(
            w, s, stride,
            [&](int i, int h) {
                const int column = (g * ATT_GROUP + h) * ATT_D;
                return i ? dout + bt * ATT_OS + column : q + bt * ATT_QS + column;
            },
            [&](int h, int row, u32 at) {
                const long long i = ((long long)b * ATT_H + g * ATT_GROUP + h) * ATT_T + row;
                const float x = row < ATT_T ? lse[i] * ATT_LOG2E : __int_as_float(0x7f800000); // no such query: w = 0
                const float y = row < ATT_T ? delta[i] : 0.f;
                asm volatile("st.shared.f32 [%0], %1;" ::"r"(at), "f"(x) : "memory");
                asm volatile("st.shared.f32 [%0], %1;" ::"r"(at + 4 * ATT_KV_TILE), "f"(y) : "memory");
#if ATT_DOCUMENTS
                asm volatile("st.shared.b32 [%0], %1;" ::"r"(at + 8 * ATT_KV_TILE), "r"(att_first(row ATT_OF_STARTS))
                             : "memory");
#endif
            });
    } else {
        att_more();
        const int row = w.row + (ATT_HALVES ? 0 : group * 64);
        AttGroup<false, ATT_KV_ROWS, ATT_KV_TILE, ATT_KV_STAGES, ATT_KV_AHEAD> work = {
            w, s, row, ATT_CAUSAL ? (row - w.first) / ATT_KV_TILE : 0, group ? to[1] : to[0]};
        float av[ATT_D / 2] = {};
        att_t *const to_k = dk + bt * ATT_KS + g * ATT_D, *const to_v = dv + bt * ATT_VS + g * ATT_D;
        const u32 own = s.kept + group * 64 * (ATT_D * 2 + 16);
#if ATT_HALVES
        if (group) work.run_half<true>(av);
        else work.run_half<false>(av);
        att_meet();
        att_write(av, group ? ATT_SCALE : 1.f, own, group ? to_k : to_v, group ? ATT_KS : ATT_VS, row);
#else
        float ak[ATT_D / 2] = {};
        work.run(ak, av);
        att_meet();
        att_write(ak, ATT_SCALE, own, to_k, ATT_KS, row);
        __syncwarp();
        att_write(av, 1.f, own, to_v, ATT_VS, row);
#endif
    }
}

// sum of dout * o over a row's head, by four neighbouring threads; 0 where there is no row
__device__ __forceinline__ float att_delta(const att_t *dout, const att_t *o, bool inside) {
    float sum = 0;
#pragma unroll 2
    for (int c = threadIdx.x & 3; c < ATT_D / 8; c += 4) {
        const uint4 none = make_uint4(0, 0, 0, 0), x = inside ? *(const uint4 *)(dout + c * 8) : none,
                    y = inside ? *(const uint4 *)(o + c * 8) : none;
        const Raw<att_number, 8> xs = {{x.x, x.y, x.z, x.w}}, ys = {{y.x, y.y, y.z, y.w}};
#pragma unroll
        for (int i = 0; i < 8; i++) sum += xs.at(i) * ys.at(i);
    }
    sum += __shfl_xor_sync(~0u, sum, 1);
    return sum + __shfl_xor_sync(~0u, sum, 2);
}

// dq of 128 queries: the keys that they see, up to the diagonal. Leaves delta, which ATT_DKV reads.
extern "C" __global__ void __launch_bounds__(384, 1)
    ATT_DQ(const att_t *dout, const att_t *q, const att_t *k, const att_t *v, const att_t *o, const float *lse,
           att_t *dq, att_t *dk, att_t *dv, float *delta ATT_STARTS) {
    enter();
    const AttSpace s = att_space<ATT_ROWS, ATT_Q_TILE, ATT_Q_STAGES>();
    const int h = blockIdx.x, g = h / ATT_GROUP, b = blockIdx.z, group = threadIdx.x / 128 - 1;
    const long long bt = (long long)b * ATT_T;
    AttWalk w = {(int)(ATT_CAUSAL ? gridDim.y - 1 - blockIdx.y : blockIdx.y) * ATT_ROWS, 0, 0, 1,
                 {q + bt * ATT_QS + h * ATT_D, dout + bt * ATT_OS + h * ATT_D}, {ATT_QS, ATT_OS}};
    w.first = att_first(w.row ATT_OF_STARTS) / ATT_Q_TILE * ATT_Q_TILE;
    auto tiles = [&](int row) { // up to that of the key `row`
        return ((ATT_CAUSAL && row < ATT_T ? row : ATT_T) - w.first + ATT_Q_TILE - 1) / ATT_Q_TILE;
    };
    w.tiles = tiles(w.row + ATT_ROWS);
    if (group < 0) {
        att_fewer();
        const long long stride[2] = {ATT_KS, ATT_VS};
        att_copy_all<true, ATT_ROWS, ATT_Q_TILE, ATT_Q_STAGES>(
            w, s, stride,
            [&](int i, int) { return i ? v + bt * ATT_VS + g * ATT_D : k + bt * ATT_KS + g * ATT_D; },
            [&](int, int, u32) {});
    } else {
        att_more();
        float acc[ATT_D / 2] = {};
        const int row = w.row + group * 64, first = row + (threadIdx.x & 127) / 32 * 16 + ((threadIdx.x & 31) >> 2);
        AttGroup<true, ATT_ROWS, ATT_Q_TILE, ATT_Q_STAGES, ATT_Q_AHEAD> work = {w, s, row, 0, tiles(row + 64)};
        if (ATT_MASKED) {
            auto seen = [&](int i) { return att_first(i < ATT_T ? i : ATT_T - 1 ATT_OF_STARTS); };
            work.from = (seen(row) - w.first) / ATT_Q_TILE;
            work.late = seen(row + 63);
            for (int r = 0; r < 2; r++) work.seen[r] = seen(first + r * 8);
        }
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const long long i = ((long long)b * ATT_H + h) * ATT_T + first + r * 8;
            work.lse[r] = first + r * 8 < ATT_T ? lse[i] * ATT_LOG2E : 0.f;
            work.delta[r] = att_delta(dout + (bt + first + r * 8) * ATT_OS + h * ATT_D,
                                     o + (bt + first + r * 8) * ATT_OS + h * ATT_D, first + r * 8 < ATT_T);
            if (first + r * 8 < ATT_T && (threadIdx.x & 3) == 0) delta[i] = work.delta[r];
        }
        work.run(acc, acc);
        att_meet();
        att_write(acc, ATT_SCALE, s.kept + group * 64 * (ATT_D * 2 + 16), dq + bt * ATT_QS + h * ATT_D, ATT_QS,
                  row);
    }
}
