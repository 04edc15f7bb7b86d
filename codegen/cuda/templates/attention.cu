// Attention for head sizes that are multiples of 16 up to 256, in bf16 or f16, on tensor cores (mma.sync, sm_80 and
// later). Forward: online softmax over key tiles (Dao, "FlashAttention-2", 2023); no T x T tensor. The backward pass,
// attention_backward.cu, follows this text, and attention_seen.cu precedes it.
//
// Written before this text by the compiler:
//   ATT_FWD, ATT_DELTA, ATT_DKV, ATT_DQ  names of the kernels
//   ATT_B ATT_T ATT_H ATT_KV ATT_D       batch, sequence, heads, key heads, head size
//   ATT_QS ATT_KS ATT_VS ATT_OS          elements from one position to the next in q/dq, k/dk, v/dv, o/dout
//   ATT_CAUSAL 0|1, ATT_SCALE            float factor on the scores
//   ATT_WINDOW                           positions that a query sees, itself the last of them; 0: there is no limit
//   ATT_DOCUMENTS 0|1                    `starts` says where the document of each position begins, which is all it sees
//   ATT_F16                              defined for f16, else bf16
//   ATT_LAUNCH                           how the compiler launches them, compared below
/*drop:
//   ATT_EACH, ATT_DROP, ATT_BY           dropout: batches of a sequence; what a word must reach for an element to be
//                                        kept; the factor of what is kept. `key` says by which numbers (ir/dropout.h)
//   ATT_FIRST                            heads of the ranks before this one
:drop*/
/*cap:
//   ATT_CAP                              softcap of the scores
:cap*/
/*sink:
//   ATT_SINK                             forward: `sink` has a logit for each head
:sink*/
// Grids: ATT_FWD and ATT_DQ (ceil(T/128), H, B), ATT_DKV (ceil(T/64), KV, B), ATT_DELTA (ceil(B*T*H/8), 1, 1). Threads:
// ATT_FWD 128 (D <= 64) or 256, ATT_DKV 128 (D <= 128) or 256, ATT_DQ and ATT_DELTA 256. Dynamic shared bytes, with a
// row of 2*(D+8) and N = 64 (D <= 128) or 32: ATT_FWD (128+4*N) rows, ATT_DKV (2*64+4*N) rows + 16*N (24*N with
// documents; 8192 more for D > 128), ATT_DQ (2*128+4*N) rows.
typedef unsigned short att_t;
typedef unsigned int u32;

#define ATT_BM 128                 // rows of a block: 128 queries (forward, dq) or keys (dkv)
#if ATT_D <= 128
#define ATT_BN 64                  // rows of the tile it walks over
#define ATT_SPLIT 0
#else
#define ATT_BN 32
#define ATT_SPLIT 1 // dkv: one warp has no registers for both dk and dv, so half of the warps sum each
#endif
#define ATT_LD (ATT_D + 8)         // a shared row; the 16 bytes of padding keep ldmatrix free of bank conflicts
// dkv: small blocks, so that three of them share a multiprocessor (H200: 0.46 against 0.59 ms)
#define ATT_KV_WARPS 4
#define ATT_KM (16 * ATT_KV_WARPS) // its keys
#define ATT_KV_THREADS (32 * ATT_KV_WARPS * (1 + ATT_SPLIT))
#if ATT_D <= 64
#define ATT_KEEP                   // dkv: fragments of k and v stay in registers (0.44 against 0.46 ms)
#define ATT_MT 2                   // forward: 16-row tiles of a warp; two share every key fragment
#else
#define ATT_MT 1
#endif
#define ATT_KV_SHARED (2 * (2 * ATT_KM + 4 * ATT_BN) * ATT_LD + (16 + 8 * ATT_DOCUMENTS) * ATT_BN + 8192 * ATT_SPLIT)
#define ATT_FWD_WARPS (ATT_BM / (16 * ATT_MT))
#define ATT_KSTEPS (ATT_D / 16)
#define ATT_NTILES (ATT_D / 8)
#define ATT_LOG2E 1.4426950408889634f
#define ATT_GROUP (ATT_H / ATT_KV) // query heads that share a key head
#ifdef ATT_LAUNCH
constexpr int att_launch[] = ATT_LAUNCH; // rows of forward and dq, of dkv; threads of both; shared bytes of all three
static_assert(att_launch[0] == ATT_BM && att_launch[1] == ATT_KM, "the compiler's grid is for other blocks");
static_assert(att_launch[2] == 32 * ATT_FWD_WARPS && att_launch[3] == ATT_KV_THREADS,
              "the compiler's blocks have other threads");
static_assert(att_launch[4] == 2 * (ATT_BM + 4 * ATT_BN) * ATT_LD, "shared memory of ATT_FWD");
static_assert(att_launch[5] == ATT_KV_SHARED, "shared memory of ATT_DKV");
static_assert(att_launch[6] == 2 * (2 * ATT_BM + 4 * ATT_BN) * ATT_LD, "shared memory of ATT_DQ");
#endif

__device__ __forceinline__ u32 att_shared(const void *p) { return (u32)__cvta_generic_to_shared(p); }

// zeroes where there is nothing to read
__device__ __forceinline__ void att_cp16(u32 to, const void *from, bool inside) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(inside ? 16 : 0) : "memory");
}

__device__ __forceinline__ void att_commit(void) { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N> __device__ __forceinline__ void att_wait(void) {
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

__device__ __forceinline__ void att_ldm(u32 (&r)[4], u32 at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at));
}

__device__ __forceinline__ void att_ldm_t(u32 (&r)[4], u32 at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at));
}

#ifdef ATT_F16
#define ATT_MMA "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
#define ATT_PACK "cvt.rn.f16x2.f32 %0, %1, %2;"
#else
#define ATT_MMA "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
#define ATT_PACK "cvt.rn.bf16x2.f32 %0, %1, %2;"
#endif

__device__ __forceinline__ void att_mma(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    asm volatile(ATT_MMA "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ __forceinline__ u32 att_pack(float lo, float hi) {
    u32 r;
    asm(ATT_PACK : "=r"(r) : "f"(hi), "f"(lo));
    return r;
}

// Two neighbouring 16 x 8 accumulators as the operand A of a product, 16 x 16.
__device__ __forceinline__ void att_fragment(u32 (&a)[4], const float (&left)[4], const float (&right)[4]) {
    a[0] = att_pack(left[0], left[1]);
    a[1] = att_pack(left[2], left[3]);
    a[2] = att_pack(right[0], right[1]);
    a[3] = att_pack(right[2], right[3]);
}

__device__ __forceinline__ float att_float(att_t h) {
#ifdef ATT_F16
    float f;
    asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h));
    return f;
#else
    return __uint_as_float((u32)h << 16);
#endif
}

// Rows [row, row + ROWS) of one head into shared memory; rows at or past ATT_T are zeroes.
template <int ROWS, int THREADS>
__device__ __forceinline__ void att_load(att_t *to, const att_t *from, long long stride, int row) {
    constexpr int CHUNKS = ATT_D / 8;
    for (int i = threadIdx.x; i < ROWS * CHUNKS; i += THREADS) {
        int r = i / CHUNKS, c = i % CHUNKS * 8;
        bool inside = row + r < ATT_T;
        att_cp16(att_shared(to + r * ATT_LD + c), from + (inside ? (long long)(row + r) * stride + c : 0), inside);
    }
}

// Lane addresses of the three fragment shapes inside a shared tile at (row, col).
__device__ __forceinline__ u32 att_at_a(const att_t *s, int row, int col) { // A, 16 x 16, rows are rows
    int l = threadIdx.x & 31;
    return att_shared(s + (row + (l & 15)) * ATT_LD + col + (l >> 4) * 8);
}
__device__ __forceinline__ u32 att_at_b(const att_t *s, int row, int col) { // B from [n][k]: two 8-column tiles
    int l = threadIdx.x & 31;
    return att_shared(s + (row + (l & 7) + (l >> 4) * 8) * ATT_LD + col + (l >> 3 & 1) * 8);
}
__device__ __forceinline__ u32 att_at_bt(const att_t *s, int row, int col) { // B from [k][n] by transposition
    int l = threadIdx.x & 31;
    return att_shared(s + (row + (l & 15)) * ATT_LD + col + (l >> 4) * 8);
}

// A warp's 16 x ATT_D accumulators, times `factor` per row half, through its own shared rows to global memory in
// 16-byte pieces.
__device__ __forceinline__ void att_write(const float (&acc)[ATT_NTILES][4], float f0, float f1, att_t *s, att_t *to,
                                          long long stride, int row) {
    int l = threadIdx.x & 31;
    __syncwarp();
#pragma unroll
    for (int j = 0; j < ATT_NTILES; j++) {
        int c = j * 8 + (l & 3) * 2;
        *(u32 *)(s + (l >> 2) * ATT_LD + c) = att_pack(acc[j][0] * f0, acc[j][1] * f0);
        *(u32 *)(s + ((l >> 2) + 8) * ATT_LD + c) = att_pack(acc[j][2] * f1, acc[j][3] * f1);
    }
    __syncwarp();
    constexpr int CHUNKS = ATT_D / 8;
    for (int i = l; i < 16 * CHUNKS; i += 32) {
        int r = i / CHUNKS, c = i % CHUNKS * 8;
        if (row + r < ATT_T) *(uint4 *)(to + (long long)(row + r) * stride + c) = *(const uint4 *)(s + r * ATT_LD + c);
    }
}

extern "C" __global__ void __launch_bounds__(ATT_FWD_WARPS * 32)
    ATT_FWD(const att_t *q, const att_t *k, const att_t *v, att_t *o,
            float *lse ATT_STARTS/*sink:, const float *sink:sink*//*drop:, const int *key:drop*/) {
    enter();
    extern __shared__ __align__(16) att_t shared[];
    constexpr int THREADS = ATT_FWD_WARPS * 32;
    att_t *sq = shared, *sk = sq + ATT_BM * ATT_LD, *sv = sk + 2 * ATT_BN * ATT_LD;
    int qb = ATT_CAUSAL ? gridDim.x - 1 - blockIdx.x : blockIdx.x; // long rows first
    int h = blockIdx.y, b = blockIdx.z, warp = threadIdx.x / 32, l = threadIdx.x & 31;
    int q0 = qb * ATT_BM, w0 = warp * 16 * ATT_MT;
    const att_t *kh = k + (long long)b * ATT_T * ATT_KS + (h / ATT_GROUP) * ATT_D,
                *vh = v + (long long)b * ATT_T * ATT_VS + (h / ATT_GROUP) * ATT_D;
    int last = ATT_CAUSAL && q0 + ATT_BM < ATT_T ? q0 + ATT_BM : ATT_T, tiles = (last + ATT_BN - 1) / ATT_BN,
        from = att_first(q0 ATT_OF_STARTS) / ATT_BN;
    int first = att_first(q0 + w0 ATT_OF_STARTS), final = att_first(q0 + w0 + 16 * ATT_MT - 1 ATT_OF_STARTS);
    int low[ATT_MT][2]; // the first key of the rows of this thread; `first` and `final`: of the first and last row
    att_load<ATT_BM, THREADS>(sq, q + (long long)b * ATT_T * ATT_QS + h * ATT_D, ATT_QS, q0);
    att_load<ATT_BN, THREADS>(sk + (from & 1) * ATT_BN * ATT_LD, kh, ATT_KS, from * ATT_BN);
    att_load<ATT_BN, THREADS>(sv + (from & 1) * ATT_BN * ATT_LD, vh, ATT_VS, from * ATT_BN);
    att_commit();
    float acc[ATT_MT][ATT_NTILES][4] = {}, top[ATT_MT][2], sum[ATT_MT][2] = {};
#pragma unroll
    for (int m = 0; m < ATT_MT; m++)
#pragma unroll
        for (int r = 0; r < 2; r++) {
            top[m][r] = -__int_as_float(0x7f800000);
            low[m][r] = att_first(q0 + w0 + m * 16 + (l >> 2) + r * 8 ATT_OF_STARTS);
/*sink:
            top[m][r] = sink[h] * (1 / ATT_SCALE), sum[m][r] = l & 3 ? 0.f : 1.f; // in one of the threads of a row
:sink*/
        }
    const float factor = ATT_SCALE * ATT_LOG2E;
/*drop:
    const Draw draw = draw_from(key, b / ATT_EACH);
:drop*/
    for (int t = from; t < tiles; t++) {
        if (t + 1 < tiles) {
            att_load<ATT_BN, THREADS>(sk + (t + 1 & 1) * ATT_BN * ATT_LD, kh, ATT_KS, (t + 1) * ATT_BN);
            att_load<ATT_BN, THREADS>(sv + (t + 1 & 1) * ATT_BN * ATT_LD, vh, ATT_VS, (t + 1) * ATT_BN);
        }
        att_commit();
        att_wait<1>();
        __syncthreads();
        const att_t *tk = sk + (t & 1) * ATT_BN * ATT_LD, *tv = sv + (t & 1) * ATT_BN * ATT_LD;
        int k0 = t * ATT_BN;
        // else every score of this warp is masked
        if ((!ATT_CAUSAL || k0 <= q0 + w0 + 16 * ATT_MT - 1) && k0 + ATT_BN > first) {
            float s[ATT_MT][ATT_BN / 8][4] = {};
#pragma unroll
            for (int d = 0; d < ATT_KSTEPS; d++) {
                u32 a[ATT_MT][4];
#pragma unroll
                for (int m = 0; m < ATT_MT; m++) att_ldm(a[m], att_at_a(sq, w0 + m * 16, d * 16));
#pragma unroll
                for (int n = 0; n < ATT_BN / 16; n++) {
                    u32 bk[4];
                    att_ldm(bk, att_at_b(tk, n * 16, d * 16));
#pragma unroll
                    for (int m = 0; m < ATT_MT; m++) {
                        att_mma(s[m][2 * n], a[m], bk[0], bk[1]);
                        att_mma(s[m][2 * n + 1], a[m], bk[2], bk[3]);
                    }
                }
            }
            bool edge = (ATT_CAUSAL && k0 + ATT_BN - 1 > q0 + w0) || k0 + ATT_BN > ATT_T ||
                        k0 < final;
#pragma unroll
            for (int m = 0; m < ATT_MT; m++) {
/*cap:
#pragma unroll
                for (int n = 0; n < ATT_BN / 8; n++)
#pragma unroll
                    for (int e = 0; e < 4; e++) s[m][n][e] = att_fast_capped(s[m][n][e]);
:cap*/
                if (edge) {
#pragma unroll
                    for (int n = 0; n < ATT_BN / 8; n++)
#pragma unroll
                        for (int e = 0; e < 4; e++) {
                            int col = k0 + n * 8 + (l & 3) * 2 + (e & 1),
                                row = q0 + w0 + m * 16 + (l >> 2) + (e >> 1) * 8;
                            if ((ATT_CAUSAL && col > row) || col >= ATT_T || col < low[m][e >> 1])
                                s[m][n][e] = -__int_as_float(0x7f800000);
                        }
                }
#pragma unroll
                for (int r = 0; r < 2; r++) {
                    float mx = top[m][r];
#pragma unroll
                    for (int n = 0; n < ATT_BN / 8; n++) mx = fmaxf(mx, fmaxf(s[m][n][2 * r], s[m][n][2 * r + 1]));
                    mx = fmaxf(mx, __shfl_xor_sync(~0u, mx, 1));
                    mx = fmaxf(mx, __shfl_xor_sync(~0u, mx, 2));
                    float base = mx == -__int_as_float(0x7f800000) ? 0.f : mx * factor; // a row with no key yet
                    float shrink = fast_exp2(top[m][r] * factor - base), add = 0.f;
                    top[m][r] = mx;
#pragma unroll
                    for (int n = 0; n < ATT_BN / 8; n++) {
                        s[m][n][2 * r] = fast_exp2(s[m][n][2 * r] * factor - base);
                        s[m][n][2 * r + 1] = fast_exp2(s[m][n][2 * r + 1] * factor - base);
                        add += s[m][n][2 * r] + s[m][n][2 * r + 1];
                    }
                    sum[m][r] = sum[m][r] * shrink + add;
#pragma unroll
                    for (int n = 0; n < ATT_NTILES; n++) {
                        acc[m][n][2 * r] *= shrink;
                        acc[m][n][2 * r + 1] *= shrink;
                    }
                }
/*drop:
                u32 kept = tiles_kept<ATT_BN / 8, ATT_EACH, ATT_H, ATT_T>(draw, ATT_DROP, b, h + ATT_FIRST,
                                                                                q0 + w0 + m * 16, k0);
#pragma unroll
                for (int n = 0; n < ATT_BN / 8; n++)
#pragma unroll
                    for (int e = 0; e < 4; e++) s[m][n][e] = kept >> (4 * n + e) & 1 ? s[m][n][e] : 0.f;
:drop*/
            }
#pragma unroll
            for (int j = 0; j < ATT_BN / 16; j++) {
                u32 p[ATT_MT][4];
#pragma unroll
                for (int m = 0; m < ATT_MT; m++) att_fragment(p[m], s[m][2 * j], s[m][2 * j + 1]);
#pragma unroll
                for (int n = 0; n < ATT_KSTEPS; n++) {
                    u32 bv[4];
                    att_ldm_t(bv, att_at_bt(tv, j * 16, n * 16));
#pragma unroll
                    for (int m = 0; m < ATT_MT; m++) {
                        att_mma(acc[m][2 * n], p[m], bv[0], bv[1]);
                        att_mma(acc[m][2 * n + 1], p[m], bv[2], bv[3]);
                    }
                }
            }
        }
        __syncthreads();
    }
#pragma unroll
    for (int m = 0; m < ATT_MT; m++) {
        float f[2];
#pragma unroll
        for (int r = 0; r < 2; r++) {
            float total = sum[m][r];
            total += __shfl_xor_sync(~0u, total, 1);
            total += __shfl_xor_sync(~0u, total, 2);
            f[r] = 1.f / total/*drop: * ATT_BY:drop*/;
            int row = q0 + w0 + m * 16 + (l >> 2) + r * 8;
            if ((l & 3) == 0 && row < ATT_T)
                lse[((long long)b * ATT_H + h) * ATT_T + row] = top[m][r] * ATT_SCALE + __logf(total);
        }
        att_write(acc[m], f[0], f[1], sq + (w0 + m * 16) * ATT_LD, o + (long long)b * ATT_T * ATT_OS + h * ATT_D,
                  ATT_OS, q0 + w0 + m * 16);
    }
}
