// The backward pass of attention.cu, whose text precedes this one: three deterministic kernels. They compute row sums
// of dout*o, dk and dv by key tile, and dq by query tile. The scores are computed twice so that no two blocks ever add
// to the same bytes.

// delta[b][h][t] = sum over the head of dout * o. One warp a row.
extern "C" __global__ void __launch_bounds__(256)
    ATT_DELTA(const att_t *dout, const att_t *q, const att_t *k, const att_t *v, const att_t *o, const float *lse,
              att_t *dq, att_t *dk, att_t *dv, float *delta ATT_STARTS/*drop:, const int *key:drop*/) {
    enter();
    long long row = (long long)blockIdx.x * 8 + threadIdx.x / 32; // (b, t, h)
    int l = threadIdx.x & 31;
    if (row >= (long long)ATT_B * ATT_T * ATT_H) return;
    long long bt = row / ATT_H;
    int h = (int)(row % ATT_H);
    float s = 0.f;
    const u32 *x = (const u32 *)(dout + bt * ATT_OS + h * ATT_D), *y = (const u32 *)(o + bt * ATT_OS + h * ATT_D);
    for (int d = l; d < ATT_D / 2; d += 32) {
        u32 a = x[d], c = y[d];
        s += att_float((att_t)a) * att_float((att_t)c) + att_float((att_t)(a >> 16)) * att_float((att_t)(c >> 16));
    }
#pragma unroll
    for (int w = 16; w; w >>= 1) s += __shfl_xor_sync(~0u, s, w);
    if (!l) delta[(bt / ATT_T * ATT_H + h) * ATT_T + bt % ATT_T] = s;
}

// acc, 16 x ATT_D, += s, a warp's 16 x 32, times the 32 rows of `tile` from `row` on.
__device__ __forceinline__ void att_add_32(float (&acc)[ATT_NTILES][4], const float (&s)[4][4], const att_t *tile,
                                           int row) {
#pragma unroll
    for (int j = 0; j < 2; j++) {
        u32 a[4];
        att_fragment(a, s[2 * j], s[2 * j + 1]);
#pragma unroll
        for (int n = 0; n < ATT_KSTEPS; n++) {
            u32 b[4];
            att_ldm_t(b, att_at_bt(tile, row + j * 16, n * 16));
            att_mma(acc[2 * n], a, b[0], b[1]);
            att_mma(acc[2 * n + 1], a, b[2], b[3]);
        }
    }
}

// dk and dv of 64 keys: a warp holds 16 of them and walks over the queries, heads of the group in order. Scores are
// computed transposed (keys are rows), so that the products with dout and q take them straight from registers. Of large
// heads two warps hold 16 keys: one computes the probabilities and sums dv, the other takes them from it and sums dk.
extern "C" __global__ void __launch_bounds__(ATT_KV_THREADS)
    ATT_DKV(const att_t *dout, const att_t *q, const att_t *k, const att_t *v, const att_t *o, const float *lse,
            att_t *dq, att_t *dk, att_t *dv, const float *delta ATT_STARTS/*drop:, const int *key:drop*/) {
    enter();
    extern __shared__ __align__(16) att_t shared[];
    att_t *sk = shared, *sv = sk + ATT_KM * ATT_LD, *sq = sv + ATT_KM * ATT_LD, *sd = sq + 2 * ATT_BN * ATT_LD;
    float *sl = (float *)(sd + 2 * ATT_BN * ATT_LD), *se = sl + 2 * ATT_BN; // lse * log2 e, delta
    int kb = blockIdx.x, g = blockIdx.y, b = blockIdx.z, warp = threadIdx.x / 32, l = threadIdx.x & 31;
    int k0 = kb * ATT_KM, w0 = warp % ATT_KV_WARPS * 16;
    const bool sums_v = !ATT_SPLIT || warp < ATT_KV_WARPS, sums_k = !ATT_SPLIT || warp >= ATT_KV_WARPS;
    int first = ATT_CAUSAL ? k0 / ATT_BN : 0, end = ATT_T;
    if (ATT_WINDOW && k0 + ATT_KM - 1 + ATT_WINDOW < end) end = k0 + ATT_KM - 1 + ATT_WINDOW; // queries that see a key
    int tiles = (end + ATT_BN - 1) / ATT_BN - first;
#if ATT_SPLIT
    float4 *sp = (float4 *)(se + (2 + 2 * ATT_DOCUMENTS) * ATT_BN) + warp % ATT_KV_WARPS * 4 * 32 + l; // probabilities
#endif
#if ATT_DOCUMENTS
    int *ss = (int *)(se + 2 * ATT_BN), all = tiles; // ss: the first key of each query
    tiles = 0;
    for (int i = threadIdx.x; i - (int)threadIdx.x < all; i += ATT_KV_THREADS) // those whose first query sees a key
        tiles += __syncthreads_count(i < all && att_first((first + i) * ATT_BN ATT_OF_STARTS) < k0 + ATT_KM);
#endif
    int steps = tiles * ATT_GROUP;
    att_load<ATT_KM, ATT_KV_THREADS>(sk, k + (long long)b * ATT_T * ATT_KS + g * ATT_D, ATT_KS, k0);
    att_load<ATT_KM, ATT_KV_THREADS>(sv, v + (long long)b * ATT_T * ATT_VS + g * ATT_D, ATT_VS, k0);
    auto fetch = [&](int step) {
        int h = g * ATT_GROUP + step / tiles, row = (first + step % tiles) * ATT_BN, at = step & 1;
        att_load<ATT_BN, ATT_KV_THREADS>(sq + at * ATT_BN * ATT_LD, q + (long long)b * ATT_T * ATT_QS + h * ATT_D,
                                         ATT_QS, row);
        att_load<ATT_BN, ATT_KV_THREADS>(sd + at * ATT_BN * ATT_LD, dout + (long long)b * ATT_T * ATT_OS + h * ATT_D,
                                         ATT_OS, row);
        if (threadIdx.x < ATT_BN) {
            int r = row + threadIdx.x;
            long long i = ((long long)b * ATT_H + h) * ATT_T + r;
            sl[at * ATT_BN + threadIdx.x] = r < ATT_T ? lse[i] * ATT_LOG2E : 0.f;
            se[at * ATT_BN + threadIdx.x] = r < ATT_T ? delta[i] : 0.f;
#if ATT_DOCUMENTS
            ss[at * ATT_BN + threadIdx.x] = att_first(r ATT_OF_STARTS);
#endif
        }
    };
    if (steps) fetch(0);
    att_commit();
#ifdef ATT_KEEP
    u32 fk[ATT_KSTEPS][4], fv[ATT_KSTEPS][4];
    att_wait<0>();
    __syncthreads();
#pragma unroll
    for (int d = 0; d < ATT_KSTEPS; d++) {
        att_ldm(fk[d], att_at_a(sk, w0, d * 16));
        att_ldm(fv[d], att_at_a(sv, w0, d * 16));
    }
#endif
    float av[ATT_NTILES][4] = {};
#if ATT_SPLIT
    float(&ak)[ATT_NTILES][4] = av;
#else
    float ak[ATT_NTILES][4] = {};
#endif
    const float factor = ATT_SCALE * ATT_LOG2E;
/*drop:
    const Draw draw = draw_from(key, b / ATT_EACH);
:drop*/
    for (int step = 0; step < steps; step++) {
        if (step + 1 < steps) fetch(step + 1);
        att_commit();
        att_wait<1>();
        __syncthreads();
        const att_t *tq = sq + (step & 1) * ATT_BN * ATT_LD, *td = sd + (step & 1) * ATT_BN * ATT_LD;
        const float *tl = sl + (step & 1) * ATT_BN, *te = se + (step & 1) * ATT_BN;
#if ATT_DOCUMENTS
        const int *ts = ss + (step & 1) * ATT_BN;
#define ATT_LOW(i) ts[i]
#else
#define ATT_LOW(i) att_first(q0 + (i))
#endif
        int q0 = (first + step % tiles) * ATT_BN;
#pragma unroll
        for (int half = 0; half < ATT_BN / 32; half++) { // 32 queries at a time: fewer registers
            if (ATT_CAUSAL && q0 + half * 32 + 31 < k0 + w0) continue;
            if (ATT_LOW(half * 32) > k0 + w0 + 15) continue;
#if ATT_SPLIT // s: the scores, or dout times v
            const att_t *own = sums_v ? sk : sv, *other = sums_v ? tq : td, *last = sums_v ? td : tq;
            float s[4][4] = {};
#pragma unroll
            for (int d = 0; d < ATT_KSTEPS; d++) {
                u32 a[4];
                att_ldm(a, att_at_a(own, w0, d * 16));
#pragma unroll
                for (int n = 0; n < 2; n++) {
                    u32 x[4];
                    att_ldm(x, att_at_b(other, half * 32 + n * 16, d * 16));
                    att_mma(s[2 * n], a, x[0], x[1]);
                    att_mma(s[2 * n + 1], a, x[2], x[3]);
                }
            }
#else
            float s[4][4] = {}, p[4][4] = {};
#pragma unroll
            for (int d = 0; d < ATT_KSTEPS; d++) {
#ifdef ATT_KEEP
                u32(&a)[4] = fk[d], (&c)[4] = fv[d];
#else
                u32 a[4], c[4];
                att_ldm(a, att_at_a(sk, w0, d * 16));
                att_ldm(c, att_at_a(sv, w0, d * 16));
#endif
#pragma unroll
                for (int n = 0; n < 2; n++) {
                    u32 bq[4], bd[4];
                    att_ldm(bq, att_at_b(tq, half * 32 + n * 16, d * 16));
                    att_mma(s[2 * n], a, bq[0], bq[1]);
                    att_mma(s[2 * n + 1], a, bq[2], bq[3]);
                    att_ldm(bd, att_at_b(td, half * 32 + n * 16, d * 16));
                    att_mma(p[2 * n], c, bd[0], bd[1]);
                    att_mma(p[2 * n + 1], c, bd[2], bd[3]);
                }
            }
#endif
/*drop:
            u32 kept = turned_kept<4, ATT_EACH, ATT_H, ATT_T>(draw, ATT_DROP, b,
                                                              ATT_FIRST + g * ATT_GROUP + step / tiles,
                                                              q0 + half * 32, k0 + w0);
:drop*/
#if ATT_SPLIT
            if (!sums_v) asm volatile("bar.sync %0, 64;" ::"r"(1 + warp % ATT_KV_WARPS) : "memory");
#pragma unroll
            for (int n = 0; n < 4; n++) {
                __align__(16) float w[4];
                if (!sums_v) *(float4 *)w = sp[n * 32];
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    int i = half * 32 + n * 8 + (l & 3) * 2 + (e & 1), col = q0 + i,
                        row = k0 + w0 + (l >> 2) + (e >> 1) * 8;
                    bool out = col >= ATT_T || row >= ATT_T || (ATT_CAUSAL && row > col) || row < ATT_LOW(i);
/*cap:
                    if (sums_v) s[n][e] = att_fast_capped(s[n][e]);
:cap*/
                    if (sums_v) w[e] = out ? 0.f : fast_exp2(s[n][e] * factor - tl[i]);
/*drop:
                    s[n][e] = kept >> (4 * n + e) & 1 ? s[n][e] * ATT_BY : 0.f;
:drop*/
                    s[n][e] = sums_v ? w[e]/*drop: * (float)(kept >> (4 * n + e) & 1):drop*/ : w[e] * (s[n][e] - te[i]);
/*cap:
                    if (!sums_v) s[n][e] *= att_slope_of(w[e], tl[i]);
:cap*/
                }
                if (sums_v) sp[n * 32] = *(float4 *)w;
            }
            if (sums_v) asm volatile("bar.arrive %0, 64;" ::"r"(1 + warp % ATT_KV_WARPS) : "memory");
            att_add_32(av, s, last, half * 32);
#else
#pragma unroll
            for (int n = 0; n < 4; n++)
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    int i = half * 32 + n * 8 + (l & 3) * 2 + (e & 1), col = q0 + i,
                        row = k0 + w0 + (l >> 2) + (e >> 1) * 8;
                    bool out = col >= ATT_T || row >= ATT_T || (ATT_CAUSAL && row > col) || row < ATT_LOW(i);
/*cap:
                    s[n][e] = att_fast_capped(s[n][e]);
                    const float slope = att_slope(s[n][e]);
:cap*/
                    float w = out ? 0.f : fast_exp2(s[n][e] * factor - tl[i]);
                    s[n][e] = w;
/*drop:
                    bool keep = kept >> (4 * n + e) & 1;
                    s[n][e] = keep ? w : 0.f;
                    p[n][e] = keep ? p[n][e] * ATT_BY : 0.f;
:drop*/
                    p[n][e] = w * (p[n][e] - te[i])/*cap: * slope:cap*/;
                }
#pragma unroll
            for (int j = 0; j < 2; j++) {
                u32 w[4], z[4];
                att_fragment(w, s[2 * j], s[2 * j + 1]);
                att_fragment(z, p[2 * j], p[2 * j + 1]);
#pragma unroll
                for (int n = 0; n < ATT_KSTEPS; n++) {
                    u32 bd[4], bq[4];
                    att_ldm_t(bd, att_at_bt(td, half * 32 + j * 16, n * 16));
                    att_mma(av[2 * n], w, bd[0], bd[1]);
                    att_mma(av[2 * n + 1], w, bd[2], bd[3]);
                    att_ldm_t(bq, att_at_bt(tq, half * 32 + j * 16, n * 16));
                    att_mma(ak[2 * n], z, bq[0], bq[1]);
                    att_mma(ak[2 * n + 1], z, bq[2], bq[3]);
                }
            }
#endif
        }
        __syncthreads();
    }
    att_wait<0>();
    __syncthreads();
    if (sums_k)
        att_write(ak, ATT_SCALE, ATT_SCALE, sk + w0 * ATT_LD, dk + (long long)b * ATT_T * ATT_KS + g * ATT_D, ATT_KS,
                  k0 + w0);
    if (!sums_v) return;
/*drop:
#pragma unroll
    for (int n = 0; n < ATT_NTILES; n++)
#pragma unroll
        for (int e = 0; e < 4; e++) av[n][e] *= ATT_BY;
:drop*/
    att_write(av, 1.f, 1.f, sv + w0 * ATT_LD, dv + (long long)b * ATT_T * ATT_VS + g * ATT_D, ATT_VS, k0 + w0);
}

// dq of 128 queries: a warp holds 16 of them and walks over the keys.
extern "C" __global__ void __launch_bounds__(256)
    ATT_DQ(const att_t *dout, const att_t *q, const att_t *k, const att_t *v, const att_t *o, const float *lse,
           att_t *dq, att_t *dk, att_t *dv, const float *delta ATT_STARTS/*drop:, const int *key:drop*/) {
    enter();
    extern __shared__ __align__(16) att_t shared[];
    att_t *sq = shared, *sd = sq + ATT_BM * ATT_LD, *sk = sd + ATT_BM * ATT_LD, *sv = sk + 2 * ATT_BN * ATT_LD;
    int qb = ATT_CAUSAL ? gridDim.x - 1 - blockIdx.x : blockIdx.x;
    int h = blockIdx.y, b = blockIdx.z, warp = threadIdx.x / 32, l = threadIdx.x & 31;
    int q0 = qb * ATT_BM, w0 = warp * 16;
    const att_t *kh = k + (long long)b * ATT_T * ATT_KS + (h / ATT_GROUP) * ATT_D,
                *vh = v + (long long)b * ATT_T * ATT_VS + (h / ATT_GROUP) * ATT_D;
    int last = ATT_CAUSAL && q0 + ATT_BM < ATT_T ? q0 + ATT_BM : ATT_T, tiles = (last + ATT_BN - 1) / ATT_BN,
        from = att_first(q0 ATT_OF_STARTS) / ATT_BN, first = att_first(q0 + w0 ATT_OF_STARTS), low[2];
    att_load<ATT_BM, 256>(sq, q + (long long)b * ATT_T * ATT_QS + h * ATT_D, ATT_QS, q0);
    att_load<ATT_BM, 256>(sd, dout + (long long)b * ATT_T * ATT_OS + h * ATT_D, ATT_OS, q0);
    att_load<ATT_BN, 256>(sk + (from & 1) * ATT_BN * ATT_LD, kh, ATT_KS, from * ATT_BN);
    att_load<ATT_BN, 256>(sv + (from & 1) * ATT_BN * ATT_LD, vh, ATT_VS, from * ATT_BN);
    att_commit();
    float acc[ATT_NTILES][4] = {}, row_lse[2], row_delta[2];
#pragma unroll
    for (int r = 0; r < 2; r++) {
        int row = q0 + w0 + (l >> 2) + r * 8;
        long long i = ((long long)b * ATT_H + h) * ATT_T + row;
        low[r] = att_first(row ATT_OF_STARTS);
        row_lse[r] = row < ATT_T ? lse[i] * ATT_LOG2E : 0.f;
        row_delta[r] = row < ATT_T ? delta[i] : 0.f;
    }
    const float factor = ATT_SCALE * ATT_LOG2E;
/*drop:
    const Draw draw = draw_from(key, b / ATT_EACH);
:drop*/
    for (int t = from; t < tiles; t++) {
        if (t + 1 < tiles) {
            att_load<ATT_BN, 256>(sk + (t + 1 & 1) * ATT_BN * ATT_LD, kh, ATT_KS, (t + 1) * ATT_BN);
            att_load<ATT_BN, 256>(sv + (t + 1 & 1) * ATT_BN * ATT_LD, vh, ATT_VS, (t + 1) * ATT_BN);
        }
        att_commit();
        att_wait<1>();
        __syncthreads();
        const att_t *tk = sk + (t & 1) * ATT_BN * ATT_LD, *tv = sv + (t & 1) * ATT_BN * ATT_LD;
        int k0 = t * ATT_BN;
#pragma unroll
        for (int half = 0; half < ATT_BN / 32; half++) {
            if (ATT_CAUSAL && k0 + half * 32 > q0 + w0 + 15) continue;
            if (k0 + half * 32 + 31 < first) continue;
            float s[4][4] = {}, p[4][4] = {};
#pragma unroll
            for (int d = 0; d < ATT_KSTEPS; d++) {
                u32 a[4], c[4];
                att_ldm(a, att_at_a(sq, w0, d * 16));
                att_ldm(c, att_at_a(sd, w0, d * 16));
#pragma unroll
                for (int n = 0; n < 2; n++) {
                    u32 bk[4], bv[4];
                    att_ldm(bk, att_at_b(tk, half * 32 + n * 16, d * 16));
                    att_mma(s[2 * n], a, bk[0], bk[1]);
                    att_mma(s[2 * n + 1], a, bk[2], bk[3]);
                    att_ldm(bv, att_at_b(tv, half * 32 + n * 16, d * 16));
                    att_mma(p[2 * n], c, bv[0], bv[1]);
                    att_mma(p[2 * n + 1], c, bv[2], bv[3]);
                }
            }
/*drop:
            u32 kept = tiles_kept<4, ATT_EACH, ATT_H, ATT_T>(draw, ATT_DROP, b, h + ATT_FIRST, q0 + w0,
                                                                     k0 + half * 32);
:drop*/
#pragma unroll
            for (int n = 0; n < 4; n++)
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    int col = k0 + half * 32 + n * 8 + (l & 3) * 2 + (e & 1), row = q0 + w0 + (l >> 2) + (e >> 1) * 8;
                    bool out = col >= ATT_T || row >= ATT_T || (ATT_CAUSAL && col > row) || col < low[e >> 1];
/*cap:
                    s[n][e] = att_fast_capped(s[n][e]);
:cap*/
                    float w = out ? 0.f : fast_exp2(s[n][e] * factor - row_lse[e >> 1]);
/*drop:
                    p[n][e] = kept >> (4 * n + e) & 1 ? p[n][e] * ATT_BY : 0.f;
:drop*/
                    p[n][e] = w * (p[n][e] - row_delta[e >> 1])/*cap: * att_slope(s[n][e]):cap*/;
                }
            att_add_32(acc, p, tk, half * 32);
        }
        __syncthreads();
    }
    att_wait<0>();
    __syncthreads();
    att_write(acc, ATT_SCALE, ATT_SCALE, sq + w0 * ATT_LD, dq + (long long)b * ATT_T * ATT_QS + h * ATT_D, ATT_QS,
              q0 + w0);
}
