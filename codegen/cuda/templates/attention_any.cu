// Attention for every dtype and head size (up to 256) on the ordinary arithmetic units: what f32 and odd head sizes
// run, and the reference for attention.cu. A warp owns a query (forward, dq) or a key (dkv); lanes are the 32 rows of
// the tile it walks over. Deterministic: every sum has one owner and one order. The same names, macros and arguments as
// attention.cu, and
//   ATT_ELEM  the element type: float, bf16, f16, double
//   ATT_LAUNCH  the shared bytes of a launch, compared below
/*drop:
//   and of dropout ATT_EACH, ATT_DROP, ATT_BY, ATT_FIRST
:drop*/
/*cap:
//   and of softcap ATT_CAP
:cap*/
// Grids: ATT_FWD and ATT_DQ (ceil(T/8), H, B), ATT_DKV (ceil(T/8), KV, B), ATT_DELTA (ceil(B*T*H/8), 1, 1); 256
// threads. Dynamic shared memory of each but ATT_DELTA: (2*32*(D+1) + 8*2*D) reals.
typedef ATT_ELEM att_t;
typedef Compute<att_t>::type att_real;
#define ATT_GROUP (ATT_H / ATT_KV)
#define ATT_OWN ((ATT_D + 31) / 32) // head elements of a lane
#define ATT_ROW (ATT_D + 1)
#ifdef ATT_LAUNCH
static_assert(ATT_LAUNCH == (2 * 32 * ATT_ROW + 8 * 2 * ATT_D) * sizeof(att_real), "shared memory");
#endif

__device__ __forceinline__ att_real att_sum(att_real v) {
#pragma unroll
    for (int w = 16; w; w >>= 1) v += __shfl_xor_sync(~0u, v, w);
    return v;
}

// 32 rows, zeroes past the end
__device__ __forceinline__ void att_tile(att_real *to, const att_t *from, long long stride, int row) {
    for (int i = threadIdx.x; i < 32 * ATT_D; i += 256) {
        int r = i / ATT_D, c = i % ATT_D;
        to[r * ATT_ROW + c] = row + r < ATT_T ? widen(from[(long long)(row + r) * stride + c]) : (att_real)0;
    }
}

__device__ __forceinline__ void att_own(att_real *to, const att_t *from, bool inside) { // one row of this warp
    for (int d = threadIdx.x & 31; d < ATT_D; d += 32) to[d] = inside ? widen(from[d]) : (att_real)0;
}

__device__ __forceinline__ att_real att_dot(const att_real *a, const att_real *b) {
    att_real s = 0;
    for (int d = 0; d < ATT_D; d++) s += a[d] * b[d];
    return s;
}

/*drop:
// The factor of a probability. Elements of a sequence are numbered by head, query and key.
__device__ __forceinline__ att_real att_by(const Draw &d, int b, int h, int query, int key) {
    unsigned long long at = ((unsigned long long)(b % ATT_EACH * ATT_H + h) * ATT_T + query) * ATT_T + key;
    return random_keeps(d, at, ATT_DROP) ? (att_real)ATT_BY : (att_real)0;
}

:drop*/
extern "C" __global__ void __launch_bounds__(256)
    ATT_FWD(const att_t *q, const att_t *k, const att_t *v, att_t *o,
            att_real *lse ATT_STARTS/*sink:, const att_real *sink:sink*//*drop:, const int *key:drop*/) {
    enter();
    extern __shared__ __align__(16) att_real shared[];
    int warp = threadIdx.x / 32, l = threadIdx.x & 31, row = blockIdx.x * 8 + warp, h = blockIdx.y, b = blockIdx.z;
    att_real *sk = shared, *sv = sk + 32 * ATT_ROW, *sq = sv + 32 * ATT_ROW + warp * 2 * ATT_D;
    long long first = (long long)b * ATT_T;
    att_own(sq, q + (first + row) * ATT_QS + h * ATT_D, row < ATT_T);
    int most = blockIdx.x * 8 + 8, last = ATT_CAUSAL && most < ATT_T ? most : ATT_T, low = att_first(row ATT_OF_STARTS);
    att_real acc[ATT_OWN] = {}, top = -__int_as_float(0x7f800000), sum = 0;
/*sink:
    top = sink[h], sum = 1;
:sink*/
    for (int k0 = att_first(blockIdx.x * 8 ATT_OF_STARTS) / 32 * 32; k0 < last; k0 += 32) {
        __syncthreads();
        att_tile(sk, k + first * ATT_KS + (h / ATT_GROUP) * ATT_D, ATT_KS, k0);
        att_tile(sv, v + first * ATT_VS + (h / ATT_GROUP) * ATT_D, ATT_VS, k0);
        __syncthreads();
        int col = k0 + l;
        bool out = col >= ATT_T || row >= ATT_T || (ATT_CAUSAL && col > row) || col < low;
        att_real s = out ? (att_real)-__int_as_float(0x7f800000) : /*cap:
                     att_capped(:cap*/att_dot(sq, sk + l * ATT_ROW)/*cap:):cap*/ * (att_real)ATT_SCALE,
                 mx = s;
#pragma unroll
        for (int w = 16; w; w >>= 1) {
            att_real other = __shfl_xor_sync(~0u, mx, w);
            mx = other > mx ? other : mx;
        }
        mx = mx > top ? mx : top;
        if (mx == (att_real)-__int_as_float(0x7f800000)) continue; // the same in every lane: no key in this tile
        att_real shrink = exp(top - mx), p = out ? (att_real)0 : exp(s - mx);
        top = mx;
        sum = sum * shrink + att_sum(p);
/*drop:
        p *= att_by(draw_from(key, b / ATT_EACH), b, h + ATT_FIRST, row, col);
:drop*/
        for (int i = 0; i < ATT_OWN; i++) acc[i] *= shrink;
        for (int j = 0; j < 32; j++) {
            att_real pj = __shfl_sync(~0u, p, j);
#pragma unroll
            for (int i = 0; i < ATT_OWN; i++)
                if (l + 32 * i < ATT_D) acc[i] += pj * sv[j * ATT_ROW + l + 32 * i];
        }
    }
    if (row >= ATT_T) return;
#pragma unroll
    for (int i = 0; i < ATT_OWN; i++)
        if (l + 32 * i < ATT_D) o[(first + row) * ATT_OS + h * ATT_D + l + 32 * i] = Narrow<att_t>::from(acc[i] / sum);
    if (!l) lse[((long long)b * ATT_H + h) * ATT_T + row] = top + log(sum);
}

extern "C" __global__ void __launch_bounds__(256)
    ATT_DELTA(const att_t *dout, const att_t *q, const att_t *k, const att_t *v, const att_t *o, const att_real *lse,
              att_t *dq, att_t *dk, att_t *dv, att_real *delta ATT_STARTS/*drop:, const int *key:drop*/) {
    enter();
    long long row = (long long)blockIdx.x * 8 + threadIdx.x / 32; // (b, t, h)
    int l = threadIdx.x & 31;
    if (row >= (long long)ATT_B * ATT_T * ATT_H) return;
    long long bt = row / ATT_H;
    int h = (int)(row % ATT_H);
    att_real s = 0;
    for (int d = l; d < ATT_D; d += 32)
        s += widen(dout[bt * ATT_OS + h * ATT_D + d]) * widen(o[bt * ATT_OS + h * ATT_D + d]);
    s = att_sum(s);
    if (!l) delta[(bt / ATT_T * ATT_H + h) * ATT_T + bt % ATT_T] = s;
}

extern "C" __global__ void __launch_bounds__(256)
    ATT_DKV(const att_t *dout, const att_t *q, const att_t *k, const att_t *v, const att_t *o, const att_real *lse,
            att_t *dq, att_t *dk, att_t *dv, const att_real *delta ATT_STARTS/*drop:, const int *key:drop*/) {
    enter();
    extern __shared__ __align__(16) att_real shared[];
    int warp = threadIdx.x / 32, l = threadIdx.x & 31, row = blockIdx.x * 8 + warp, g = blockIdx.y, b = blockIdx.z;
    att_real *sq = shared, *sd = sq + 32 * ATT_ROW, *own_k = sd + 32 * ATT_ROW + warp * 2 * ATT_D,
             *own_v = own_k + ATT_D;
    long long first = (long long)b * ATT_T;
    att_own(own_k, k + (first + row) * ATT_KS + g * ATT_D, row < ATT_T);
    att_own(own_v, v + (first + row) * ATT_VS + g * ATT_D, row < ATT_T);
    att_real ak[ATT_OWN] = {}, av[ATT_OWN] = {};
    for (int h = g * ATT_GROUP; h < (g + 1) * ATT_GROUP; h++)
        for (int q0 = ATT_CAUSAL ? (int)(blockIdx.x * 8) / 32 * 32 : 0; q0 < ATT_T; q0 += 32) {
            if (att_first(q0 ATT_OF_STARTS) > (int)blockIdx.x * 8 + 7) break; // nor do later queries see these keys
            __syncthreads();
            att_tile(sq, q + first * ATT_QS + h * ATT_D, ATT_QS, q0);
            att_tile(sd, dout + first * ATT_OS + h * ATT_D, ATT_OS, q0);
            __syncthreads();
            int col = q0 + l;
            bool out = col >= ATT_T || row >= ATT_T || (ATT_CAUSAL && row > col) || row < att_first(col ATT_OF_STARTS);
            long long at = ((long long)b * ATT_H + h) * ATT_T + col;
/*cap:
            att_real score = 0;
:cap*/
            att_real w = out ? (att_real)0 : exp(/*cap:
                     (score = att_capped(:cap*/att_dot(own_k, sq + l * ATT_ROW)/*cap:
                     )):cap*/ * (att_real)ATT_SCALE - lse[at]);
/*drop:
            att_real by = att_by(draw_from(key, b / ATT_EACH), b, h + ATT_FIRST, col, row);
:drop*/
            att_real z = out ? (att_real)0 : w * (/*drop:by * :drop*/att_dot(own_v, sd + l * ATT_ROW) - delta[at]);
/*cap:
            z *= att_slope(score);
:cap*/
/*drop:
            w *= by;
:drop*/
            for (int j = 0; j < 32; j++) {
                att_real wj = __shfl_sync(~0u, w, j), zj = __shfl_sync(~0u, z, j);
#pragma unroll
                for (int i = 0; i < ATT_OWN; i++)
                    if (l + 32 * i < ATT_D) {
                        av[i] += wj * sd[j * ATT_ROW + l + 32 * i];
                        ak[i] += zj * sq[j * ATT_ROW + l + 32 * i];
                    }
            }
        }
    if (row >= ATT_T) return;
#pragma unroll
    for (int i = 0; i < ATT_OWN; i++)
        if (l + 32 * i < ATT_D) {
            dk[(first + row) * ATT_KS + g * ATT_D + l + 32 * i] = Narrow<att_t>::from(ak[i] * (att_real)ATT_SCALE);
            dv[(first + row) * ATT_VS + g * ATT_D + l + 32 * i] = Narrow<att_t>::from(av[i]);
        }
}

extern "C" __global__ void __launch_bounds__(256)
    ATT_DQ(const att_t *dout, const att_t *q, const att_t *k, const att_t *v, const att_t *o, const att_real *lse,
           att_t *dq, att_t *dk, att_t *dv, const att_real *delta ATT_STARTS/*drop:, const int *key:drop*/) {
    enter();
    extern __shared__ __align__(16) att_real shared[];
    int warp = threadIdx.x / 32, l = threadIdx.x & 31, row = blockIdx.x * 8 + warp, h = blockIdx.y, b = blockIdx.z;
    att_real *sk = shared, *sv = sk + 32 * ATT_ROW, *own_q = sv + 32 * ATT_ROW + warp * 2 * ATT_D,
             *own_d = own_q + ATT_D;
    long long first = (long long)b * ATT_T, at = ((long long)b * ATT_H + h) * ATT_T + row;
    att_own(own_q, q + (first + row) * ATT_QS + h * ATT_D, row < ATT_T);
    att_own(own_d, dout + (first + row) * ATT_OS + h * ATT_D, row < ATT_T);
    att_real row_lse = row < ATT_T ? lse[at] : (att_real)0, row_delta = row < ATT_T ? delta[at] : (att_real)0,
             acc[ATT_OWN] = {};
    int most = blockIdx.x * 8 + 8, last = ATT_CAUSAL && most < ATT_T ? most : ATT_T, low = att_first(row ATT_OF_STARTS);
    for (int k0 = att_first(blockIdx.x * 8 ATT_OF_STARTS) / 32 * 32; k0 < last; k0 += 32) {
        __syncthreads();
        att_tile(sk, k + first * ATT_KS + (h / ATT_GROUP) * ATT_D, ATT_KS, k0);
        att_tile(sv, v + first * ATT_VS + (h / ATT_GROUP) * ATT_D, ATT_VS, k0);
        __syncthreads();
        int col = k0 + l;
        bool out = col >= ATT_T || row >= ATT_T || (ATT_CAUSAL && col > row) || col < low;
/*cap:
        att_real score = 0;
:cap*/
        att_real w = out ? (att_real)0 : exp(/*cap:
                     (score = att_capped(:cap*/att_dot(own_q, sk + l * ATT_ROW)/*cap:
                 )):cap*/ * (att_real)ATT_SCALE - row_lse);
/*drop:
        att_real by = att_by(draw_from(key, b / ATT_EACH), b, h + ATT_FIRST, row, col);
:drop*/
        att_real z = out ? (att_real)0 : w * (/*drop:by * :drop*/att_dot(own_d, sv + l * ATT_ROW) - row_delta);
/*cap:
        z *= att_slope(score);
:cap*/
        for (int j = 0; j < 32; j++) {
            att_real zj = __shfl_sync(~0u, z, j);
#pragma unroll
            for (int i = 0; i < ATT_OWN; i++)
                if (l + 32 * i < ATT_D) acc[i] += zj * sk[j * ATT_ROW + l + 32 * i];
        }
    }
    if (row >= ATT_T) return;
#pragma unroll
    for (int i = 0; i < ATT_OWN; i++)
        if (l + 32 * i < ATT_D)
            dq[(first + row) * ATT_QS + h * ATT_D + l + 32 * i] = Narrow<att_t>::from(acc[i] * (att_real)ATT_SCALE);
}
