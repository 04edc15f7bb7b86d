// Attention's backward pass on Hopper in one kernel of five products: head sizes 64 and 128 in bf16 or f16, on wgmma
// (sm_90a). A work item is 128 keys of one key head: k and v stay in shared memory, dk and dv in registers, and the
// tiles of queries that see these keys pass by, for each query head of the group in order.
//
//   s = k q^T, p = v dout^T, w = exp(scale s - lse), z = w (p - delta), dv += w dout, dk += z q      (rows are keys)
//   dq of the tile += z^T k: z passes through shared memory, since each group of threads has half of the keys
//
// The parts of a tile's dq come from several items. They are added in f32 in the order of the keys: a counter of each
// tile says whose turn it is, so the result repeats bit for bit. The first part is stored and the last one writes dq.
// Blocks take items from a counter in an order in which every item comes after those that it waits for, so that some
// block can always go on. ATT_BEGIN sets the counters and computes lse * log2 e and delta by tile.
//
// With a window or documents an item meets only the tiles that see its keys, and a tile waits only for the items that
// meet it. Both follow from the first keys of the tiles' first queries (attention_seen.cu): with documents ATT_BEGIN
// writes down for each tile the first block of keys that it sees, and for each block the end of its tiles.
//
// Written before this text, with attention_wgmma.cu between: ATT_BEGIN, ATT_ALL, ATT_B, ATT_T, ATT_H, ATT_KV, ATT_D,
// ATT_QS, ATT_KS, ATT_VS, ATT_OS, ATT_CAUSAL, ATT_WINDOW, ATT_DOCUMENTS, ATT_SCALE, ATT_F16, ATT_LAUNCH.
// Grids: ATT_BEGIN (H, tiles, B) of 256 threads, ATT_ALL (at most one block a multiprocessor) of 384: two warps copy,
// one watches the counters, one moves them on, and two groups of 128 threads do the products.

constexpr int ATT_TILE = ATT_D <= 64 ? 128 : 64; // queries
constexpr int ATT_STEPS = 2;                     // tiles of q and dout in shared memory
constexpr int ATT_TILES = (ATT_T + ATT_TILE - 1) / ATT_TILE, ATT_BLOCKS = (ATT_T + ATT_ROWS - 1) / ATT_ROWS;
constexpr int ATT_HEADS = ATT_B * ATT_KV, ATT_ITEMS = ATT_HEADS * ATT_BLOCKS;
// When all items are under way at once, those of a head are taken from its last keys on: an item then meets each tile
// one turn after the item before it, and nobody waits. Else the longest come first, for so many heads together: enough
// that an item starts well after the one that it waits for, few enough that their sums stay in the L2 cache.
constexpr bool ATT_DOWN = ATT_CAUSAL && ATT_ITEMS <= 132;
constexpr int ATT_TOGETHER = ATT_DOWN ? 1 : ATT_HEADS < 96 ? ATT_HEADS : 96;

constexpr int ATT_EACH_QUERY = 2 + ATT_DOCUMENTS; // numbers: lse, delta, with documents its first key
// shared memory, in bytes from a multiple of 1024: two sets of k and v, stages of q and dout, two of z, lse and delta
constexpr int AT_KEYS = 0, BYTES_KEYS = ATT_ROWS * ATT_D * 2;
constexpr int AT_STAGES = AT_KEYS + 2 * 2 * BYTES_KEYS, BYTES_TILE = ATT_TILE * ATT_D * 2;
constexpr int AT_Z = AT_STAGES + ATT_STEPS * 2 * BYTES_TILE, BYTES_Z = ATT_TILE * ATT_ROWS * 2;
static_assert(BYTES_Z <= 2 * BYTES_KEYS, "att_work reads as much of keys before there is a z");
constexpr int AT_NUMBERS = AT_Z + 2 * BYTES_Z, BYTES_NUMBERS = ATT_EACH_QUERY * ATT_TILE * 4;
// barriers, two or ATT_STEPS of each
constexpr int AT_FULL = AT_NUMBERS + ATT_STEPS * BYTES_NUMBERS, AT_EMPTY = AT_FULL + 8 * ATT_STEPS;
constexpr int AT_KEYS_FULL = AT_EMPTY + 8 * ATT_STEPS, AT_KEYS_EMPTY = AT_KEYS_FULL + 16;
constexpr int AT_Z_FULL = AT_KEYS_EMPTY + 16, AT_Z_EMPTY = AT_Z_FULL + 16;
constexpr int AT_TURN = AT_Z_EMPTY + 16, AT_DONE = AT_TURN + 16, AT_SEEN = AT_DONE + 16;
constexpr int AT_ITEM = AT_SEEN + 16, ATT_BYTES = AT_ITEM + 16 + 1024;

// the workspace: f32 sums of dq, lse and delta by tile, counters of the tiles, the counter of items; with documents, of
// each batch, the first blocks of the tiles and the ends of the blocks
constexpr long long ATT_ALL_TILES = (long long)ATT_B * ATT_H * ATT_TILES;
constexpr long long ATT_SUMS = ATT_ALL_TILES * ATT_TILE * ATT_D;
constexpr long long ATT_NUMBERS = ATT_ALL_TILES * ATT_EACH_QUERY * ATT_TILE;
constexpr long long ATT_SPANS = ATT_SUMS + ATT_NUMBERS + ATT_ALL_TILES + 1;
constexpr long long ATT_WORKSPACE = 4 * (ATT_SPANS + ATT_DOCUMENTS * ATT_B * (ATT_TILES + ATT_BLOCKS));

#ifdef ATT_LAUNCH
constexpr long long att_launch[] = ATT_LAUNCH; // queries of a tile, shared bytes of ATT_ALL, bytes of the workspace
static_assert(att_launch[0] == ATT_TILE && att_launch[1] == ATT_BYTES, "the compiler's grid is for other blocks");
static_assert(att_launch[2] == ATT_WORKSPACE, "workspace");
#endif

__device__ __forceinline__ int *att_spans(float *workspace, int batch) {
    return (int *)workspace + ATT_SPANS + batch * (ATT_TILES + ATT_BLOCKS);
}
// 128 keys of a key head of a batch, and the tiles of queries that see one of them
struct AttItem { int block, head, from, end; };
__device__ __forceinline__ AttItem att_item(int ticket) { // with documents the caller knows the end
    constexpr int MANY = ATT_TOGETHER * ATT_BLOCKS;
    const int together = ticket / MANY * ATT_TOGETHER, rest = ticket % MANY;
    const int heads = ATT_HEADS - together < ATT_TOGETHER ? ATT_HEADS - together : ATT_TOGETHER;
    const int block = rest / heads;
    AttItem w = {ATT_DOWN ? ATT_BLOCKS - 1 - block : block, together + rest % heads, 0, ATT_TILES};
    if (ATT_CAUSAL) w.from = w.block * (ATT_ROWS / ATT_TILE);
    const int last = (w.block + 1) * ATT_ROWS + ATT_WINDOW - 2; // query that sees the last key
    if (ATT_WINDOW && last < ATT_T) w.end = last / ATT_TILE + 1;
    return w;
}
__device__ __forceinline__ AttItem att_taken(u32 s, int i) { // the item with number i of this block, which is there
    AttItem w = att_item(att_whole(s + AT_ITEM + 8 * (i & 1)));
    if (ATT_DOCUMENTS) w.end = att_whole(s + AT_ITEM + 8 * (i & 1) + 4);
    return w;
}
// The part of a tile's dq that comes from a block: how many parts come before it, and whether it is the last.
struct AttTurn { int before; bool last; };
__device__ __forceinline__ AttTurn att_turn_of(const AttItem &w, int tile, float *workspace) {
    const int last = ATT_CAUSAL ? tile / (ATT_ROWS / ATT_TILE) : ATT_BLOCKS - 1;
    int first = 0; // block
    if (ATT_DOCUMENTS) first = __ldg(att_spans(workspace, w.head / ATT_KV) + tile);
    else if (ATT_WINDOW && tile * ATT_TILE >= ATT_WINDOW) first = (tile * ATT_TILE + 1 - ATT_WINDOW) / ATT_ROWS;
    return ATT_DOWN ? AttTurn{last - w.block, w.block == first} : AttTurn{w.block - first, w.block == last};
}
__device__ __forceinline__ int att_tile(const AttItem &w, int head, int tile) { // among all tiles
    return (w.head * ATT_GROUP + head) * ATT_TILES + tile;
}

// --- the two warps that copy

__device__ __forceinline__ void att_copy(u32 s, const att_t *dout, const att_t *q, const att_t *k, const att_t *v,
                                         float *workspace) {
    const float *numbers = workspace + ATT_SUMS;
    u32 *ticket = (u32 *)(numbers + ATT_NUMBERS) + ATT_ALL_TILES;
    int n = 0;
    for (int i = 0;; i++) {
        const u32 slot = i & 1;
        int next;
        if (i >= 2) att_await(s + AT_KEYS_EMPTY + 8 * slot, (i >> 1) - 1 & 1);
        if (threadIdx.x == 0) {
            next = (int)atomicAdd(ticket, 1u);
            if (next >= ATT_ITEMS) next = -1;
            asm volatile("st.shared.b32 [%0], %1;" ::"r"(s + AT_ITEM + 8 * slot), "r"(next) : "memory");
            const AttItem w = att_item(next);
            const int *end = att_spans(workspace, w.head / ATT_KV) + ATT_TILES + w.block;
            if (ATT_DOCUMENTS && next >= 0)
                asm volatile("st.shared.b32 [%0], %1;" ::"r"(s + AT_ITEM + 8 * slot + 4), "r"(__ldg(end)) : "memory");
        }
        asm volatile("bar.sync 2, 64;" ::: "memory");
        next = att_whole(s + AT_ITEM + 8 * slot);
        if (next < 0) {
            att_arrive_copied(s + AT_KEYS_FULL + 8 * slot);
            return;
        }
        const AttItem w = att_taken(s, i);
        const int head = w.head % ATT_KV;
        const long long bt = (long long)(w.head / ATT_KV) * ATT_T;
        const u32 keys = s + AT_KEYS + slot * 2 * BYTES_KEYS;
        att_fetch<ATT_ROWS, 64>(keys, k + bt * ATT_KS + head * ATT_D, ATT_KS, w.block * ATT_ROWS);
        att_fetch<ATT_ROWS, 64>(keys + BYTES_KEYS, v + bt * ATT_VS + head * ATT_D, ATT_VS, w.block * ATT_ROWS);
        att_arrive_copied(s + AT_KEYS_FULL + 8 * slot);
        for (int h = 0; h < ATT_GROUP; h++) {
            const int column = (head * ATT_GROUP + h) * ATT_D;
            for (int t = w.from; t < w.end; t++, n++) {
                const int stage = n % ATT_STEPS;
                const u32 to = s + AT_STAGES + stage * 2 * BYTES_TILE, into = s + AT_NUMBERS + stage * BYTES_NUMBERS;
                if (n >= ATT_STEPS) att_await(s + AT_EMPTY + 8 * stage, n / ATT_STEPS - 1 & 1);
                att_fetch<ATT_TILE, 64>(to, q + bt * ATT_QS + column, ATT_QS, t * ATT_TILE);
                att_fetch<ATT_TILE, 64>(to + BYTES_TILE, dout + bt * ATT_OS + column, ATT_OS, t * ATT_TILE);
                const float *of = numbers + (long long)att_tile(w, h, t) * (ATT_EACH_QUERY * ATT_TILE);
#pragma unroll 1
                for (int j = threadIdx.x; j < BYTES_NUMBERS / 16; j += 64)
                    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(into + j * 16), "l"(of + j * 4)
                                 : "memory");
                __syncwarp(); // threads that wait for a barrier hold up those of their warp that do not yet
                att_arrive_copied(s + AT_FULL + 8 * stage);
            }
        }
    }
}

// --- the order of additions: one thread waits for the parts before, another one says that a part is there

template <class Each> __device__ __forceinline__ void att_each_tile(u32 s, float *workspace, Each each) {
    int n = 0;
    for (int i = 0;; i++) {
        att_await(s + AT_KEYS_FULL + 8 * (i & 1), i >> 1 & 1);
        const int ticket = att_whole(s + AT_ITEM + 8 * (i & 1));
        const AttItem w = att_taken(s, i);
        att_arrive(s + AT_KEYS_EMPTY + 8 * (i & 1));
        if (ticket < 0) return;
        for (int h = 0; h < ATT_GROUP; h++)
            for (int t = w.from; t < w.end; t++, n++) each(n, att_tile(w, h, t), att_turn_of(w, t, workspace));
    }
}
__device__ __forceinline__ void att_watch(u32 s, float *workspace) {
    const u32 *counters = (const u32 *)(workspace + ATT_SUMS + ATT_NUMBERS);
    att_each_tile(s, workspace, [&](int n, int tile, const AttTurn &turn) {
        if (n >= 2) att_await(s + AT_SEEN + 8 * (n & 1), (n >> 1) - 1 & 1);
        u32 there = 0;
        while (turn.before) {
            asm volatile("ld.acquire.gpu.global.b32 %0, [%1];" : "=r"(there) : "l"(counters + tile) : "memory");
            if (there >= (u32)turn.before) break;
        }
        att_arrive(s + AT_TURN + 8 * (n & 1));
    });
}
__device__ __forceinline__ void att_move_on(u32 s, float *workspace) {
    u32 *counters = (u32 *)(workspace + ATT_SUMS + ATT_NUMBERS);
    att_each_tile(s, workspace, [&](int n, int tile, const AttTurn &turn) {
        att_await(s + AT_DONE + 8 * (n & 1), n >> 1 & 1);
        att_arrive(s + AT_SEEN + 8 * (n & 1));
        if (turn.last) return;
        asm volatile("fence.acq_rel.gpu;" ::: "memory"); // of what the groups added before they arrived
        asm volatile("st.relaxed.gpu.global.b32 [%0], %1;" ::"l"(counters + tile), "r"(turn.before + 1) : "memory");
    });
}

// --- results

// 64 rows of a group's results, times `factor`; `row` is the first one.
template <int N>
__device__ __forceinline__ void att_put(const float (&d)[N], float factor, att_t *to, long long stride, int row) {
    const int r = row + (threadIdx.x & 127) / 32 * 16 + ((threadIdx.x & 31) >> 2);
#pragma unroll
    for (int half = 0; half < 2; half++) {
        att_t *p = to + (long long)(r + half * 8) * stride + (threadIdx.x & 3) * 8;
#pragma unroll
        for (int j = 0; j < N / 4; j += 4) {
            u32 w[4];
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int at = (j + i) * 4 + half * 2;
                w[i] = att_pack(d[at] * factor, d[at + 1] * factor);
            }
            att_turn(w);
            if (ATT_T % ATT_ROWS && r + half * 8 >= ATT_T) continue;
            *(uint4 *)(p + j * 8) = make_uint4(w[0], w[1], w[2], w[3]);
        }
    }
}

// --- the two groups of 128 threads that do the products

// d = a b, or d += a b: rows of a along the sum, rows of b along the result
__device__ __forceinline__ void att_ss_turned(float (&d)[32], unsigned long long a, unsigned long long b, bool add) {
    asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, %34, 0;\nwgmma.mma_async.sync.aligned.m64n64k16." ATT_TYPES
                 "{" ATT_LIST32 "}, %32, %33, add, 1, 1, 0, 1;\n}"
                 : ATT_32("+f", d, 0)
                 : "l"(a), "l"(b), "r"((int)add));
}
// half of a tile's dq = z^T k: queries by keys, keys by elements
__device__ __forceinline__ void att_part(float (&d)[32], u32 z, u32 k, int group) {
    const u32 a = z + (ATT_TILE > 64 ? group * (64 * 128) : 0), b = k + (ATT_CHUNKS > 1 ? group * (ATT_ROWS * 128) : 0);
#pragma unroll
    for (int i = 0; i < ATT_ROWS / 16; i++)
        att_ss_turned(d, att_descriptor(a + i / 4 * (ATT_TILE * 128) + i % 4 * 32, 16),
                      att_descriptor(b + i * (16 * 128), 16), i > 0);
}
// z (64 keys by queries) into shared memory as queries by keys
__device__ __forceinline__ void att_store_z(u32 to, const u32 (&z)[ATT_TILE / 16][4], int group) {
    const int l = threadIdx.x & 31, warp = (threadIdx.x & 127) / 32;
    const u32 at = to + group * (ATT_TILE * 128) + ((l >> 4) * 8 + (l & 7)) * 128 +
                   ((warp * 2 + (l >> 3 & 1) ^ l & 7) << 4);
#pragma unroll
    for (int k = 0; k < ATT_TILE / 16; k++)
        asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(at + k * 2048),
                     "r"(z[k][0]), "r"(z[k][1]), "r"(z[k][2]), "r"(z[k][3])
                     : "memory");
}

struct AttPlace { int tile; AttTurn turn; }; // of a part of dq
__device__ __forceinline__ void att_add_part(u32 s, int n, float (&d)[32], const AttPlace &p, float *sums, att_t *dq,
                                             int group) {
    att_await(s + AT_TURN + 8 * (n & 1), n >> 1 & 1);
    float4 *at = (float4 *)(sums + (long long)p.tile * (ATT_TILE * ATT_D) + group * (64 * 64)) + (threadIdx.x & 127);
    const int t = p.tile % ATT_TILES, head = p.tile / ATT_TILES % ATT_H, batch = p.tile / (ATT_TILES * ATT_H);
    if (p.turn.last) {
        if (p.turn.before)
#pragma unroll
            for (int i = 0; i < 8; i++) {
                const float4 x = __ldcg(at + i * 128);
                d[4 * i] += x.x, d[4 * i + 1] += x.y, d[4 * i + 2] += x.z, d[4 * i + 3] += x.w;
                if (i == 3) asm volatile("" ::: "memory"); // not all of them at once: registers
            }
        att_put(d, ATT_SCALE,
                dq + (long long)batch * ATT_T * ATT_QS + head * ATT_D + (ATT_CHUNKS > 1 ? group * 64 : 0), ATT_QS,
                t * ATT_TILE + (ATT_TILE > 64 ? group * 64 : 0));
    } else if (p.turn.before) {
#pragma unroll
        for (int i = 0; i < 8; i++)
            asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(at + i * 128), "f"(d[4 * i]),
                         "f"(d[4 * i + 1]), "f"(d[4 * i + 2]), "f"(d[4 * i + 3])
                         : "memory");
    } else {
#pragma unroll
        for (int i = 0; i < 8; i++)
            __stcg(at + i * 128, make_float4(d[4 * i], d[4 * i + 1], d[4 * i + 2], d[4 * i + 3]));
    }
    __syncwarp();
    if ((threadIdx.x & 31) == 0) att_arrive(s + AT_DONE + 8 * (n & 1));
}

__device__ __forceinline__ void att_weights(float (&x)[ATT_TILE / 2], u32 numbers, int low, int first) {
#pragma unroll
    for (int j = 0; j < ATT_TILE / 8; j++) {
        const float2 c = att_pair(numbers + ((threadIdx.x & 3) * 2 + j * 8) * 4);
#pragma unroll
        for (int e = 0; e < 4; e++) {
            float &y = x[j * 4 + e];
/*cap:
            y = att_fast_capped(y);
:cap*/
            y = fast_exp2(y * (ATT_SCALE * ATT_LOG2E) - (e & 1 ? c.y : c.x));
        }
    }
    const bool edge = ATT_CAUSAL && low + 63 > first, tail = !ATT_CAUSAL && ATT_T % ATT_ROWS && low + 63 >= ATT_T;
    // some of the queries see only later keys than some of these
    const bool past = ATT_MASKED && (ATT_DOCUMENTS ? att_whole(numbers + (3 * ATT_TILE - 1) * 4) :
                                                     first + ATT_TILE - ATT_WINDOW) > low;
    const int row = low + (threadIdx.x & 127) / 32 * 16 + ((threadIdx.x & 31) >> 2);
    const int col = first + (threadIdx.x & 3) * 2;
    if (edge || tail)
#pragma unroll
        for (int i = 0; i < ATT_TILE / 2; i++) {
            const int r = row + (i >> 1 & 1) * 8, c = col + i / 4 * 8 + (i & 1);
            if ((edge && r > c) || (tail && r >= ATT_T)) x[i] = 0;
        }
    if (!past) return;
#pragma unroll
    for (int j = 0; j < ATT_TILE / 8; j++) {
        int2 least = make_int2(col + j * 8 + 1 - ATT_WINDOW, col + j * 8 + 2 - ATT_WINDOW); // first keys of two queries
        if (ATT_DOCUMENTS) {
            const float2 y = att_pair(numbers + (2 * ATT_TILE + (threadIdx.x & 3) * 2 + j * 8) * 4);
            least = make_int2(__float_as_int(y.x), __float_as_int(y.y));
        }
#pragma unroll
        for (int e = 0; e < 4; e++)
            if (row + (e >> 1) * 8 < (e & 1 ? least.y : least.x)) x[j * 4 + e] = 0;
    }
}
__device__ __forceinline__ void att_differences(float (&p)[ATT_TILE / 2], const float (&x)[ATT_TILE / 2], u32 numbers) {
#pragma unroll
    for (int j = 0; j < ATT_TILE / 8; j++) {
        const float2 c = att_pair(numbers + (ATT_TILE + (threadIdx.x & 3) * 2 + j * 8) * 4);
#pragma unroll
        for (int e = 0; e < 4; e++) p[j * 4 + e] = x[j * 4 + e] * (p[j * 4 + e] - (e & 1 ? c.y : c.x));
/*cap:
        const float2 of = att_pair(numbers + ((threadIdx.x & 3) * 2 + j * 8) * 4); // lse of two columns
#pragma unroll
        for (int e = 0; e < 4; e++) p[j * 4 + e] *= att_slope_of(x[j * 4 + e], e & 1 ? of.y : of.x);
:cap*/
    }
}

__device__ __forceinline__ void att_work(u32 s, int group, att_t *dq, att_t *dk, att_t *dv, float *sums) {
    const bool speaks = (threadIdx.x & 31) == 0; // of its warp
    int i = 0, head = 0, ticket;                 // items so far; head and tile of the group's
    att_await(s + AT_KEYS_FULL, 0);
    ticket = att_whole(s + AT_ITEM);
    if (ticket < 0) return;
    AttItem w = att_taken(s, 0);
    int t = w.from;
    u32 keys = s + AT_KEYS, keys_before = keys;
    AttPlace place = {};
    float x[ATT_TILE / 2], p[ATT_TILE / 2], part[32] = {}, ak[ATT_D / 2] = {}, av[ATT_D / 2] = {};
    u32 z[ATT_TILE / 16][4], v[ATT_TILE / 16][4];
    att_await(s + AT_FULL, 0);
    att_seen();
    att_begin();
    att_scores<ATT_TILE>(x, keys + group * (64 * 128), s + AT_STAGES);
    att_submit();
    att_finish<0>();
    att_hold(x);
    for (int n = 0;; n++) { // a tile; its scores are under way
        const u32 stage = s + AT_STAGES + n % ATT_STEPS * 2 * BYTES_TILE;
        const u32 numbers = s + AT_NUMBERS + n % ATT_STEPS * BYTES_NUMBERS;
        const int low = w.block * ATT_ROWS + group * 64;
        att_begin();
        att_scores<ATT_TILE>(p, keys + BYTES_KEYS + group * (64 * 128), stage + BYTES_TILE);
        att_submit();
        att_weights(x, numbers, low, t * ATT_TILE);
        att_finish<0>();
        att_hold(p);
        att_differences(p, x, numbers);
        att_narrow<ATT_TILE / 2>(v, x);
        att_narrow<ATT_TILE / 2>(z, p);
        if (n >= 2) att_await(s + AT_Z_EMPTY + 8 * (n & 1), (n >> 1) - 1 & 1);
        att_store_z(s + AT_Z + (n & 1) * BYTES_Z, z, group);
        att_seen();
        __syncwarp();
        if (speaks) att_arrive(s + AT_Z_FULL + 8 * (n & 1));
        att_begin();
        att_add<ATT_TILE>(av, v, stage + BYTES_TILE);
        att_add<ATT_TILE>(ak, z, stage);
        att_submit();
        if (n) att_await(s + AT_Z_FULL + 8 * (n - 1 & 1), n - 1 >> 1 & 1);
        // for n = 0 unused, and of keys: the other group may be storing its second z already
        att_part(part, n ? s + AT_Z + (n - 1 & 1) * BYTES_Z : keys, keys_before, group);
        att_submit();
        att_finish<1>();
        att_hold(ak);
        att_hold(av);
        if (speaks) att_arrive(s + AT_EMPTY + 8 * (n % ATT_STEPS));
        att_finish<0>();
        att_hold(part);
        if (speaks && n) att_arrive(s + AT_Z_EMPTY + 8 * (n - 1 & 1));
        if (speaks && i && head == 0 && t == w.from) att_arrive(s + AT_KEYS_EMPTY + 8 * (i - 1 & 1));
        // on to the next tile
        const AttPlace next_place = {att_tile(w, head, t), att_turn_of(w, t, sums)};
        const bool over = t + 1 == w.end, ended = over && head + 1 == ATT_GROUP; // of a head, of the item
        keys_before = keys;
        if (ended) {
            i++;
            keys = s + AT_KEYS + (i & 1) * 2 * BYTES_KEYS;
            att_await(s + AT_KEYS_FULL + 8 * (i & 1), i >> 1 & 1);
            ticket = att_whole(s + AT_ITEM + 8 * (i & 1));
        }
        if (ticket >= 0) att_await(s + AT_FULL + 8 * ((n + 1) % ATT_STEPS), (n + 1) / ATT_STEPS & 1);
        att_seen();
        att_begin();
        att_scores<ATT_TILE>(x, keys + group * (64 * 128), s + AT_STAGES + (n + 1) % ATT_STEPS * 2 * BYTES_TILE);
        att_submit();
        if (ended) {
            const long long bt = (long long)(w.head / ATT_KV) * ATT_T;
            const int row = w.block * ATT_ROWS + group * 64, column = w.head % ATT_KV * ATT_D;
            att_put(ak, ATT_SCALE, dk + bt * ATT_KS + column, ATT_KS, row);
            att_put(av, 1.f, dv + bt * ATT_VS + column, ATT_VS, row);
#pragma unroll
            for (int e = 0; e < ATT_D / 2; e++) ak[e] = av[e] = 0;
            w = att_taken(s, i);
        }
        t = over ? w.from : t + 1;
        if (over) head = ended ? 0 : head + 1;
        if (n) att_add_part(s, n - 1, part, place, sums, dq, group);
        att_finish<0>();
        att_hold(x);
        place = next_place;
        if (ticket >= 0) continue;
        att_await(s + AT_Z_FULL + 8 * (n & 1), n >> 1 & 1);
        att_begin();
        att_part(part, s + AT_Z + (n & 1) * BYTES_Z, keys_before, group);
        att_submit();
        att_finish<0>();
        att_hold(part);
        att_add_part(s, n, part, place, sums, dq, group);
        return;
    }
}

extern "C" __global__ void __launch_bounds__(384, 1)
    ATT_ALL(const att_t *dout, const att_t *q, const att_t *k, const att_t *v, const att_t *o, const float *lse,
            att_t *dq, att_t *dk, att_t *dv, float *workspace ATT_STARTS) {
    enter();
    const u32 s = att_start<1024>();
    if (threadIdx.x == 0) {
        for (int i = 0; i < ATT_STEPS; i++) {
            att_barrier(s + AT_FULL + 8 * i, 2 * 64);
            att_barrier(s + AT_EMPTY + 8 * i, 8);
        }
        for (int i = 0; i < 2; i++) {
            att_barrier(s + AT_KEYS_FULL + 8 * i, 2 * 64);
            att_barrier(s + AT_KEYS_EMPTY + 8 * i, 8 + 2);
            att_barrier(s + AT_Z_FULL + 8 * i, 8);
            att_barrier(s + AT_Z_EMPTY + 8 * i, 8);
            att_barrier(s + AT_TURN + 8 * i, 1);
            att_barrier(s + AT_DONE + 8 * i, 8);
            att_barrier(s + AT_SEEN + 8 * i, 1);
        }
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    }
    __syncthreads();
    if (threadIdx.x < 128) {
        att_fewer();
        if (threadIdx.x < 64) att_copy(s, dout, q, k, v, workspace);
        else if (threadIdx.x == 64) att_watch(s, workspace);
        else if (threadIdx.x == 96) att_move_on(s, workspace);
    } else {
        att_more();
        att_work(s, threadIdx.x / 128 - 1, dq, dk, dv, workspace);
    }
}

// A block has the rows of one tile: ATT_D / 8 threads add up dout * o of a row.
extern "C" __global__ void __launch_bounds__(256)
    ATT_BEGIN(const att_t *dout, const att_t *q, const att_t *k, const att_t *v, const att_t *o, const float *lse,
              att_t *dq, att_t *dk, att_t *dv, float *workspace ATT_STARTS) {
    enter();
    constexpr int EACH = ATT_D / 8, PASS = 256 / EACH;
    const int h = blockIdx.x, t = blockIdx.y, b = blockIdx.z, lane = threadIdx.x % EACH;
    const int tile = (b * ATT_H + h) * ATT_TILES + t;
    float *to = workspace + ATT_SUMS + (long long)tile * (ATT_EACH_QUERY * ATT_TILE);
    u32 *counters = (u32 *)(workspace + ATT_SUMS + ATT_NUMBERS);
    uint4 x[ATT_TILE / PASS], y[ATT_TILE / PASS];
#pragma unroll
    for (int i = 0; i < ATT_TILE / PASS; i++) {
        const int row = t * ATT_TILE + i * PASS + threadIdx.x / EACH;
        const long long at = ((long long)b * ATT_T + row) * ATT_OS + h * ATT_D + lane * 8;
        x[i] = y[i] = make_uint4(0, 0, 0, 0);
        if (ATT_T % ATT_TILE == 0 || row < ATT_T) x[i] = *(const uint4 *)(dout + at), y[i] = *(const uint4 *)(o + at);
    }
#pragma unroll
    for (int i = 0; i < ATT_TILE / PASS; i++) {
        const Raw<att_number, 8> xs = {{x[i].x, x[i].y, x[i].z, x[i].w}}, ys = {{y[i].x, y[i].y, y[i].z, y[i].w}};
        float sum = 0;
#pragma unroll
        for (int e = 0; e < 8; e++) sum += xs.at(e) * ys.at(e);
#pragma unroll
        for (int e = 1; e < EACH; e *= 2) sum += __shfl_xor_sync(~0u, sum, e);
        if (lane == 0) to[ATT_TILE + i * PASS + threadIdx.x / EACH] = sum;
    }
    for (int i = threadIdx.x; i < ATT_TILE; i += 256) {
        const int row = t * ATT_TILE + i; // no such query: its weights are 0
        to[i] = row < ATT_T ? lse[((long long)b * ATT_H + h) * ATT_T + row] * ATT_LOG2E : __int_as_float(0x7f800000);
        if (ATT_DOCUMENTS) to[2 * ATT_TILE + i] = __int_as_float(att_first(row ATT_OF_STARTS));
    }
#if ATT_DOCUMENTS
    if (h == 0) { // t: a tile, and if there are so many a block of keys
        int *spans = att_spans(workspace, b), end = 0;
        if (threadIdx.x == 0) spans[t] = att_first(t * ATT_TILE ATT_OF_STARTS) / ATT_ROWS;
        for (int i = threadIdx.x; i - (int)threadIdx.x < ATT_TILES; i += 256)
            end += __syncthreads_count(i < ATT_TILES && att_first(i * ATT_TILE ATT_OF_STARTS) < (t + 1) * ATT_ROWS);
        if (threadIdx.x == 0 && t < ATT_BLOCKS) spans[ATT_TILES + t] = end;
    }
#endif
    if (threadIdx.x == 0) counters[tile] = 0;
    if (threadIdx.x == 0 && tile == 0) counters[ATT_ALL_TILES] = 0;
}
