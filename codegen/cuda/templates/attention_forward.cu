// Attention's forward pass on Hopper: bf16 or f16 on wgmma (sm_90a). A work item is ATT_QUERIES queries of a head, 64
// for each team of 128 threads; tiles of ATT_TILE keys pass by, the last ones first, while one more thread copies the
// next ones. Online softmax (Dao, "FlashAttention-2", 2023); the scores of a tile are under way beside the sums of the
// tile before (Shah et al., "FlashAttention-3", 2024). A block takes one item after the other.
//
// Written before this text, with attention_seen.cu and attention_wgmma.cu between: ATT_FWD, ATT_B, ATT_T, ATT_H,
// ATT_KV, ATT_D, ATT_QS, ATT_KS, ATT_VS, ATT_OS, ATT_CAUSAL, ATT_WINDOW, ATT_DOCUMENTS, ATT_SCALE, ATT_F16, ATT_LAUNCH.
// Grid: as many blocks as there are items, at most one a multiprocessor; 128 threads for copies and 128 for each team.

#ifndef ATT_TRY
constexpr int ATT_QUERIES = ATT_D <= 96 ? 192 : 128, ATT_TEAMS = ATT_QUERIES / 64; // of an item
constexpr int ATT_TILE = ATT_D == 64 || ATT_D == 128 ? 128 : ATT_D <= 192 ? 96 : 64; // keys
#endif
constexpr int ATT_THREADS = 128 + 128 * ATT_TEAMS;
constexpr int ATT_STEPS = 2;                 // tiles of k and of v in shared memory
constexpr int ATT_PARTS = (ATT_D + 63) / 64; // of a row, 64 elements each: the last may be half full
// Items end with the last 64 queries: if one has teams without queries, it is the first and so, with causality, short.
constexpr int ATT_BLOCKS = (ATT_T + ATT_QUERIES - 1) / ATT_QUERIES;
constexpr int ATT_FIRST_ROW = (ATT_T + 63) / 64 * 64 - ATT_BLOCKS * ATT_QUERIES;
constexpr long long ATT_LINES = (long long)ATT_B * ATT_H, ATT_ITEMS = ATT_LINES * ATT_BLOCKS;
// Heads whose items are taken together, the longest ones first: their keys and values stay in the L2 cache.
constexpr long long ATT_FITTING = (24 << 20) / (4ll * ATT_T * ATT_D) * ATT_GROUP;
constexpr long long ATT_MOST = ATT_FITTING < 16 ? 16 : ATT_FITTING;
constexpr int ATT_TOGETHER = (int)(ATT_LINES < ATT_MOST ? ATT_LINES : ATT_MOST);

// shared memory, in bytes from a multiple of 1024
constexpr int BYTES_Q = ATT_QUERIES * 128 * ATT_PARTS, BYTES_TILE = ATT_TILE * 128 * ATT_PARTS;
constexpr int AT_Q = 0, AT_K = BYTES_Q, AT_V = AT_K + ATT_STEPS * BYTES_TILE, AT_BARS = AT_V + ATT_STEPS * BYTES_TILE;
constexpr int AT_Q_FULL = AT_BARS, AT_Q_EMPTY = AT_Q_FULL + 8, AT_K_FULL = AT_Q_EMPTY + 8,
              AT_K_EMPTY = AT_K_FULL + 8 * ATT_STEPS, AT_V_FULL = AT_K_EMPTY + 8 * ATT_STEPS,
              AT_V_EMPTY = AT_V_FULL + 8 * ATT_STEPS, ATT_BYTES = AT_V_EMPTY + 8 * ATT_STEPS + 1024;

#ifdef ATT_LAUNCH
constexpr int att_launch[] = ATT_LAUNCH; // queries of an item, keys of a tile, shared bytes
static_assert(att_launch[0] == ATT_QUERIES && att_launch[1] == ATT_TILE, "the compiler's maps are for other tiles");
static_assert(att_launch[2] == ATT_BYTES, "shared memory");
#endif

struct AttItem { int row, head, batch; };
__device__ __forceinline__ AttItem att_item(int n) {
    constexpr int MANY = ATT_TOGETHER * ATT_BLOCKS;
    const int section = n / MANY * ATT_TOGETHER, rest = n % MANY;
    const int lines = ATT_LINES - section < ATT_TOGETHER ? (int)ATT_LINES - section : ATT_TOGETHER;
    const int block = rest / lines, line = section + rest % lines;
    return {ATT_FIRST_ROW + (ATT_CAUSAL ? ATT_BLOCKS - 1 - block : block) * ATT_QUERIES, line % ATT_H, line / ATT_H};
}
// The item that this block takes in a round, or one behind the last. Every other round goes the other way, so that all
// blocks get long and short ones.
__device__ __forceinline__ long long att_ticket(int round) {
    return (long long)round * gridDim.x + (round & 1 ? gridDim.x - 1 - blockIdx.x : blockIdx.x);
}

struct AttSpan { int from, end; }; // tiles of keys that some of these queries see
__device__ __forceinline__ AttSpan att_span(int row, int rows, int b ATT_STARTS) {
    const int last = ATT_CAUSAL && row + rows < ATT_T ? row + rows : ATT_T, end = (last + ATT_TILE - 1) / ATT_TILE;
    return {att_first(row < 0 ? 0 : row ATT_OF_STARTS) / ATT_TILE, end};
}

// --- copies. Of rows outside of the tensor they make zeroes.

struct __align__(128) AttMap { unsigned char byte[128]; }; // a tensor map: elements, heads, positions, batches

template <int ROWS>
__device__ __forceinline__ void att_fetch_box(u32 to, u32 full, const AttMap &from, int row, int head, int batch) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(full), "r"(ROWS * 128 * ATT_PARTS)
                 : "memory");
#pragma unroll
    for (int i = 0; i < ATT_PARTS; i++)
        asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes"
                     " [%0], [%1, {%3, %4, %5, %6}], [%2];" ::"r"(to + i * (ROWS * 128)),
                     "l"(&from), "r"(full), "r"(i * 64), "r"(head), "r"(row), "r"(batch)
                     : "memory");
}

__device__ __forceinline__ void att_copy(u32 s, const AttMap &q, const AttMap &k, const AttMap &v ATT_STARTS) {
    int c = 0; // tiles so far
    for (int round = 0; att_ticket(round) < ATT_ITEMS; round++) {
        const AttItem w = att_item((int)att_ticket(round));
        const AttSpan span = att_span(w.row, ATT_QUERIES, w.batch ATT_THESE_STARTS);
        const int head = w.head / ATT_GROUP;
        if (round) att_await(s + AT_Q_EMPTY, round - 1 & 1);
        att_fetch_box<ATT_QUERIES>(s + AT_Q, s + AT_Q_FULL, q, w.row, w.head, w.batch);
        for (int t = span.end - 1; t >= span.from; t--, c++) {
            const int stage = c % ATT_STEPS, before = c / ATT_STEPS - 1 & 1;
            const u32 to = s + stage * BYTES_TILE, bars = s + 8 * stage;
            if (c >= ATT_STEPS) att_await(bars + AT_K_EMPTY, before);
            att_fetch_box<ATT_TILE>(to + AT_K, bars + AT_K_FULL, k, t * ATT_TILE, head, w.batch);
            if (c >= ATT_STEPS) att_await(bars + AT_V_EMPTY, before);
            att_fetch_box<ATT_TILE>(to + AT_V, bars + AT_V_FULL, v, t * ATT_TILE, head, w.batch);
        }
    }
}

// --- products that attention_wgmma.cu lacks: scores of 96 columns

__device__ __forceinline__ void att_ss0(float (&d)[48], unsigned long long a, unsigned long long b) {
    asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, 0, 0;\nwgmma.mma_async.sync.aligned.m64n96k16." ATT_TYPES
                 "{" ATT_LIST48 "}, %48, %49, add, 1, 1, 0, 0;\n}"
                 : ATT_32("=f", d, 0), ATT_8("=f", d, 32), ATT_8("=f", d, 40)
                 : "l"(a), "l"(b));
}
__device__ __forceinline__ void att_ss(float (&d)[48], unsigned long long a, unsigned long long b) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n96k16." ATT_TYPES "{" ATT_LIST48 "}, %48, %49, 1, 1, 1, 0, 0;"
                 : ATT_32("+f", d, 0), ATT_8("+f", d, 32), ATT_8("+f", d, 40)
                 : "l"(a), "l"(b));
}

__device__ __forceinline__ void att_keys_scores(float (&x)[ATT_TILE / 2], u32 q, u32 k) {
#pragma unroll
    for (int i = 0; i < ATT_D / 16; i++) {
        const unsigned long long a = att_descriptor(q + i / 4 * (ATT_QUERIES * 128) + i % 4 * 32, 16),
                                 b = att_descriptor(k + i / 4 * (ATT_TILE * 128) + i % 4 * 32, 16);
        if (i) att_ss(x, a, b);
        else att_ss0(x, a, b);
    }
}
// o += p v, 128 columns at most in one instruction
template <int N> __device__ __forceinline__ void att_sums(float (&o)[N], const u32 (&p)[ATT_TILE / 16][4], u32 v) {
#pragma unroll
    for (int i = 0; i < ATT_TILE / 16; i++) {
        const u32 b = v + i * (16 * 128);
        if constexpr (N <= 64) {
            att_rs(o, p[i], att_descriptor(b, ATT_TILE * 128));
        } else {
            att_rs(*(float(*)[64])o, p[i], att_descriptor(b, ATT_TILE * 128));
            att_rs(*(float(*)[N - 64])(o + 64), p[i], att_descriptor(b + 2 * ATT_TILE * 128, ATT_TILE * 128));
        }
    }
}

// --- softmax

#define ATT_NONE (-__int_as_float(0x7f800000)) // a score that does not count

struct AttRows { // the two of a thread: the largest score, the sum of exponentials in this thread, the first key
    float top[2], sum[2];
    int low[2];
};

__device__ __forceinline__ void att_mask(float (&x)[ATT_TILE / 2], const AttRows &r, int row, int key) {
#pragma unroll
    for (int i = 0; i < ATT_TILE / 2; i++) {
        const int c = key + i / 4 * 8 + (i & 1), half = i >> 1 & 1;
        if ((ATT_CAUSAL && c > row + half * 8) || c >= ATT_T || (ATT_MASKED && c < r.low[half])) x[i] = ATT_NONE;
    }
}
/*cap:
__device__ __forceinline__ void att_cap_all(float (&x)[ATT_TILE / 2]) {
#pragma unroll
    for (int i = 0; i < ATT_TILE / 2; i++) x[i] = att_fast_capped(x[i]);
}
:cap*/
// Scores become exponentials; `shrink` is the factor of what was summed before.
__device__ __forceinline__ void att_softmax(float (&x)[ATT_TILE / 2], AttRows &r, float (&shrink)[2]) {
    constexpr float factor = ATT_SCALE * ATT_LOG2E;
#pragma unroll
    for (int h = 0; h < 2; h++) { // two chains of each row
        float a = x[2 * h], b = x[2 * h + 1], s = 0, t = 0;
#pragma unroll
        for (int j = 1; j < ATT_TILE / 8; j++) a = fmaxf(a, x[4 * j + 2 * h]), b = fmaxf(b, x[4 * j + 2 * h + 1]);
        a = fmaxf(a, b);
        a = fmaxf(a, __shfl_xor_sync(~0u, a, 1));
        a = fmaxf(a, __shfl_xor_sync(~0u, a, 2));
        a = fmaxf(a, r.top[h]);
        const float base = a == ATT_NONE ? 0.f : a * factor; // NONE: a row that has seen no key yet
        shrink[h] = fast_exp2(r.top[h] * factor - base);
        r.top[h] = a;
#pragma unroll
        for (int j = 0; j < ATT_TILE / 8; j++) {
            float &y = x[4 * j + 2 * h], &z = x[4 * j + 2 * h + 1];
            y = fast_exp2(y * factor - base), z = fast_exp2(z * factor - base);
            s += y, t += z;
        }
        r.sum[h] = r.sum[h] * shrink[h] + (s + t);
    }
}

// --- teams. They submit products in turn, so that one team's products run beside another's exponentials.

__device__ __forceinline__ void att_my_turn(int team) {
    asm volatile("bar.sync %0, 256;" ::"r"(1 + team) : "memory");
}
__device__ __forceinline__ void att_your_turn(int team) {
    asm volatile("bar.arrive %0, 256;" ::"r"(team + 1 == ATT_TEAMS ? 1 : 2 + team) : "memory");
}

struct AttTeam {
    u32 s;
    int team, c; // c: tiles so far
    __device__ __forceinline__ u32 keys(int n) const { return s + AT_K + n % ATT_STEPS * BYTES_TILE; }
    __device__ __forceinline__ u32 values(int n) const { return s + AT_V + n % ATT_STEPS * BYTES_TILE; }
    __device__ __forceinline__ void await(int bars, int n) const {
        att_await(s + bars + 8 * (n % ATT_STEPS), n / ATT_STEPS & 1);
    }
    __device__ __forceinline__ void release(int bars, int n) const { // a warp reads the tile no more
        if ((threadIdx.x & 31) == 0) att_arrive(s + bars + 8 * (n % ATT_STEPS));
    }
    __device__ __forceinline__ void leave_queries(void) const {
        if ((threadIdx.x & 31) == 0) att_arrive(s + AT_Q_EMPTY);
    }
    __device__ __forceinline__ void pass(void) { // a tile that no query of the team sees
        await(AT_K_FULL, c);
        release(AT_K_EMPTY, c);
        await(AT_V_FULL, c);
        release(AT_V_EMPTY, c);
        att_my_turn(team);
        att_your_turn(team);
        c++;
    }
    // Adds up the team's own tiles, one or more, the last one first. Tiles outside of `whole` have keys that some of
    // its queries do not see. `row`: the first of the thread's; `ends`: the team needs its queries for no other tile.
    __device__ __forceinline__ void sum(float (&o)[ATT_D / 2], AttRows &r, AttSpan own, AttSpan whole, int row,
                                        bool ends) {
        const u32 q = s + AT_Q + team * (64 * 128);
        const int column = (threadIdx.x & 3) * 2;
        float x[ATT_TILE / 2], shrink[2];
        u32 p[ATT_TILE / 16][4];
        await(AT_K_FULL, c);
        att_my_turn(team);
        att_begin();
        att_keys_scores(x, q, keys(c));
        att_submit();
        att_your_turn(team);
        att_finish<0>();
        att_hold(x);
        release(AT_K_EMPTY, c);
        int t = own.end - 1;
/*cap:
        att_cap_all(x);
:cap*/
        if (t < whole.from || t >= whole.end) att_mask(x, r, row, t * ATT_TILE + column);
        att_softmax(x, r, shrink);
        att_narrow<ATT_TILE / 2>(p, x);
        att_hold(o);
#pragma unroll 1
        for (t--; t >= own.from; t--, c++) {
            await(AT_K_FULL, c + 1);
            att_my_turn(team);
            att_begin();
            att_keys_scores(x, q, keys(c + 1));
            att_submit();
            await(AT_V_FULL, c);
            att_sums(o, p, values(c));
            att_submit();
            att_your_turn(team);
            att_finish<1>();
            att_hold(x);
            release(AT_K_EMPTY, c + 1);
/*cap:
            att_cap_all(x);
:cap*/
            if (t < whole.from || t >= whole.end) att_mask(x, r, row, t * ATT_TILE + column);
            att_softmax(x, r, shrink);
            att_finish<0>();
            att_hold(o);
            release(AT_V_EMPTY, c);
#pragma unroll
            for (int i = 0; i < ATT_D / 2; i++) o[i] *= shrink[i >> 1 & 1];
            att_narrow<ATT_TILE / 2>(p, x);
        }
        if (ends) leave_queries();
        await(AT_V_FULL, c);
        att_begin();
        att_sums(o, p, values(c));
        att_submit();
        att_finish<0>();
        att_hold(o);
        release(AT_V_EMPTY, c);
        c++;
    }
};

// o times f, and lse: the rows of a thread, from `row` on
__device__ __forceinline__ void att_results(const float (&o)[ATT_D / 2], const AttRows &r, att_t *to, float *lse,
                                            int row) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int at = row + half * 8;
        float sum = r.sum[half];
        sum += __shfl_xor_sync(~0u, sum, 1);
        sum += __shfl_xor_sync(~0u, sum, 2);
        const float factor = 1.f / sum;
        if ((threadIdx.x & 3) == 0 && at < ATT_T) lse[at] = r.top[half] * ATT_SCALE + __logf(sum);
        att_t *p = to + (long long)at * ATT_OS + (threadIdx.x & 3) * 8;
#pragma unroll
        for (int j = 0; j < ATT_D / 8; j += 4) {
            u32 w[4];
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int n = (j + i) * 4 + half * 2;
                w[i] = att_pack(o[n] * factor, o[n + 1] * factor);
            }
            att_turn(w);
            if (at < ATT_T) *(uint4 *)(p + j * 8) = make_uint4(w[0], w[1], w[2], w[3]);
        }
    }
}

__device__ __forceinline__ void att_work(u32 s, int team, att_t *out, float *lse ATT_STARTS/*sink:,
                                         const float *sink:sink*/) {
    AttTeam m = {s, team, 0};
    const int mine = (threadIdx.x & 127) / 32 * 16 + ((threadIdx.x & 31) >> 2); // and 8 further down
    if (team == ATT_TEAMS - 1) att_your_turn(team);
    for (int round = 0; att_ticket(round) < ATT_ITEMS; round++) {
        const AttItem w = att_item((int)att_ticket(round));
        const int b = w.batch, low = w.row + team * 64, row = low + mine;
        const AttSpan all = att_span(w.row, ATT_QUERIES, b ATT_THESE_STARTS);
        int t = all.end - 1;
        att_await(s + AT_Q_FULL, round & 1);
        if (low >= 0) {
            const AttSpan own = att_span(low, 64, b ATT_THESE_STARTS);
            const int from = ATT_MASKED ? att_first(low + 63 ATT_OF_STARTS) : 0, end = ATT_CAUSAL ? low + 1 : ATT_T;
            const AttSpan whole = {(from + ATT_TILE - 1) / ATT_TILE, (end < ATT_T ? end : ATT_T) / ATT_TILE};
            AttRows r = {{ATT_NONE, ATT_NONE}, {0, 0}, {0, 0}};
/*sink:
            r.top[0] = r.top[1] = sink[w.head] * (1 / ATT_SCALE);
            r.sum[0] = r.sum[1] = threadIdx.x & 3 ? 0.f : 1.f; // in one of the threads of a row
:sink*/
            if (ATT_MASKED) r.low[0] = att_first(row ATT_OF_STARTS), r.low[1] = att_first(row + 8 ATT_OF_STARTS);
            float o[ATT_D / 2] = {};
            for (; t >= own.end; t--) m.pass();
            m.sum(o, r, own, whole, row, own.from == all.from);
            t = own.from - 1;
            att_results(o, r, out + (long long)b * ATT_T * ATT_OS + w.head * ATT_D,
                        lse + ((long long)b * ATT_H + w.head) * ATT_T, row);
            if (own.from == all.from) continue;
        }
        for (; t >= all.from; t--) m.pass();
        m.leave_queries();
    }
}

extern "C" __global__ void __launch_bounds__(ATT_THREADS, 1)
    ATT_FWD(const __grid_constant__ AttMap q, const __grid_constant__ AttMap k, const __grid_constant__ AttMap v,
            att_t *o, float *lse ATT_STARTS/*sink:, const float *sink:sink*/) {
    enter();
    const u32 s = att_start<1024>();
    if (threadIdx.x == 0) {
        att_barrier(s + AT_Q_FULL, 1);
        att_barrier(s + AT_Q_EMPTY, 4 * ATT_TEAMS); // warps
        for (int i = 0; i < ATT_STEPS; i++) {
            att_barrier(s + AT_K_FULL + 8 * i, 1);
            att_barrier(s + AT_K_EMPTY + 8 * i, 4 * ATT_TEAMS);
            att_barrier(s + AT_V_FULL + 8 * i, 1);
            att_barrier(s + AT_V_EMPTY + 8 * i, 4 * ATT_TEAMS);
        }
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    }
    __syncthreads();
    if (threadIdx.x < 128) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(ATT_TEAMS == 3 ? 32 : 24));
        if (threadIdx.x == 0) att_copy(s, q, k, v ATT_THESE_STARTS);
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(ATT_TEAMS == 3 ? 160 : 240));
        // the same number in every thread of a warp, which ptxas wants to know
        att_work(s, __shfl_sync(~0u, (int)threadIdx.x / 128 - 1, 0), o, lse ATT_THESE_STARTS/*sink:, sink:sink*/);
    }
}
