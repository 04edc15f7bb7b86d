// The backward pass of state-space duality on tensor cores; formulas as runtime/host/ssd.c. SC_STATES leaves the state
// that comes into every step and the gradient of the one that leaves it, in f16: three bits more than bf16, of which da
// is made. Those of a head and step are divided by the power of two of the largest; products with them have their other
// operand in f16 as well, by such a power of each row. SC_PAIRS does the rest: a block takes
// a step and some heads of a group, one after the other, and keeps sums over them in registers. Of its warps the first
// four make dx and the gradient of the scores, with rows of positions j and columns of positions i >= j, the other four
// db and dc:
//   dM' = x dy',  z = dM' by decay,  dG' += z by dt of its row,   v = f b dS' + (G' by decay) dy,  dx = dt v + d dy
//   dc += e dy S,   db += (f dt x) dS;   at the end dc += dG b, db += dG' c
// with the sums over rows and columns that the gradients of dt and a are made of. ssd_mma.cu precedes this text, and:
//   SC_SPLITS      blocks that share the heads of a group; more than one leave parts in f32, which SC_SUM adds up
//   SC_STATES, SC_PAIRS, SC_SUM, SC_RATES   names, in the order in which they run
namespace SC_SPACE {
enum { STATES_STAGE = B_TILE + X_TILE + 1024, PAIRS_STAGE = 2 * (B_TILE + X_TILE) + 1024 };

__device__ __forceinline__ i64 state_at(int batch, int step, int head) {
    return (((i64)batch * STEPS + step) * SC_HEADS + head) * (SIZE * STATE);
}
__device__ __forceinline__ float exact_power(u32 e) { return __uint_as_float(e << 23); } // 2 to e - 127
// The power of two of the largest of some numbers, whose magnitude is given as bits; with an inverse, so not quite to
// the ends of f32.
struct Power {
    u32 e;
    __device__ __forceinline__ Power(u32 most) : e(min(max(most >> 23, 1u), 253u)) {}
    __device__ __forceinline__ float of() const { return exact_power(e); }
    __device__ __forceinline__ float inverse() const { return exact_power(254 - e); }
};
// Where the power of a head's state of a step is; of its gradient: `ALL_STATES` further.
enum { ALL_STATES = SC_BATCH * STEPS * SC_HEADS };
__device__ __forceinline__ i64 power_at(int batch, int step, int head) {
    return SC_AT_POWERS + ((i64)batch * STEPS + step) * SC_HEADS + head;
}

// GRAD: from the last step to the first, of dy and c; else of x and b.
template <bool GRAD>
__device__ __forceinline__ void pass_on(unsigned char *space, const bf16 *x, const bf16 *b, const int *starts,
                                        f16 *to, float *w) {
    const int item = blockIdx.x / 2, head = item % SC_HEADS, batch = item / SC_HEADS;
    const int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4;
    const auto step_of = [&](int i) { return GRAD ? STEPS - 1 - i : i; };
    const auto numbers = [&](int i) { return (Numbers *)(space + (i & 1) * STATES_STAGE + B_TILE + X_TILE); };
    const auto copy = [&](int i) {
        if (i < STEPS) {
            const u32 at = (u32)__cvta_generic_to_shared(space) + (i & 1) * STATES_STAGE;
            const int first = step_of(i) * STEP, n = min((int)STEP, SC_SEQ - first);
            fetch<STATE, 128>(at, b + b_at(batch, first, head / SHARE), (i64)SC_GROUPS * STATE, n);
            fetch<SIZE, 128>(at + B_TILE, x + x_at(batch, first, head), (i64)SC_HEADS * SIZE, n);
            fetch_numbers(numbers(i), w, batch, head, step_of(i));
            put_starts(numbers(i), starts, batch, step_of(i));
        }
        mma_commit();
    };
    float s[STATE / 8][4] = {};
    copy(0);
    for (int i = 0; i < STEPS; i++) {
        mma_wait<0>();
        __syncthreads();
        copy(i + 1);
        const Numbers &z = *numbers(i);
        const Power p(i ? max(max(z.most[0], z.most[1]), max(z.most[2], z.most[3])) : 0u);
        const float by = p.inverse();
        put_pairs(s, to + state_at(batch, step_of(i), head) + (16 * warp + g) * STATE, STATE, true, true,
                  [&](float h, float l) { return pair_f16(h * by, l * by); });
        if (!threadIdx.x) w[power_at(batch, step_of(i), head) + (GRAD ? ALL_STATES : 0)] = p.of();
        if (i + 1 == STEPS) break;
        const u32 at = (u32)__cvta_generic_to_shared(space) + (i & 1) * STATES_STAGE;
        advance<true>(s, at + B_TILE, at, 16 * warp, z.in(STEP - 1),
                [&](int j) { return GRAD ? z.in(j) : z.out(j) * z.dt[j]; });
        u32 most = 0;
#pragma unroll
        for (int n = 0; n < STATE / 8; n++)
#pragma unroll
            for (int e = 0; e < 4; e++) most = max(most, __float_as_uint(s[n][e]) & 0x7fffffffu);
#pragma unroll
        for (int d = 16; d; d /= 2) most = max(most, __shfl_xor_sync(~0u, most, d));
        if (threadIdx.x % 32 == 0) numbers(i + 1)->most[warp] = most;
    }
}
} // namespace SC_SPACE

// Grid 2 * SC_BATCH * SC_HEADS, 128 threads. Dynamic shared bytes: 2 * (B_TILE + X_TILE + 1024).
extern "C" __global__ void __launch_bounds__(128, 3)
    SC_STATES(const bf16 *dy, const bf16 *x, const bf16 *b, const bf16 *c, const int *starts, float *w) {
    enter();
    using namespace SC_SPACE;
    extern __shared__ __align__(16) unsigned char sc_space[];
    if (blockIdx.x & 1) pass_on<true>(sc_space, dy, c, starts, (f16 *)(w + SC_AT_DSTATES), w);
    else pass_on<false>(sc_space, x, b, starts, (f16 *)(w + SC_AT_STATES), w);
}

namespace SC_SPACE {
// The sums that the warps of a block leave of a head, in shared memory: sums by position, and of the step.
struct Sums {
    float rows[4][STEP], cols[STEP], left[STEP], came[STEP]; // rows: parts of the sums of rows i, by the warp of rows j
    float dt[STEP], kept[4], both[4], keep; // both: <state, its gradient>
};

struct Pairs {
    unsigned char *space;
    u32 tiles, at_b, at_c; // of stages; of the group's b and c
    Sums *sums;            // two, in turn
    int batch, step, group, first_head, heads, n; // n: positions of the step

    __device__ __forceinline__ u32 at_x(int i) const { return tiles + (i & 1) * PAIRS_STAGE; }
    __device__ __forceinline__ u32 at_dy(int i) const { return at_x(i) + X_TILE; }
    __device__ __forceinline__ u32 at_s(int i) const { return at_x(i) + 2 * X_TILE; }
    __device__ __forceinline__ u32 at_ds(int i) const { return at_s(i) + B_TILE; }
    __device__ __forceinline__ Numbers *numbers(int i) const {
        return (Numbers *)(space + (i & 1) * PAIRS_STAGE + 2 * (X_TILE + B_TILE));
    }
    __device__ __forceinline__ void copy(int i, const bf16 *dy, const bf16 *x, const int *of, const float *w) const {
        if (i < heads) {
            const int head = first_head + i;
            const i64 at = x_at(batch, step * STEP, head), state = state_at(batch, step, head);
            fetch<SIZE, 256>(at_x(i), x + at, (i64)SC_HEADS * SIZE, n);
            fetch<SIZE, 256>(at_dy(i), dy + at, (i64)SC_HEADS * SIZE, n);
            fetch<STATE, 256>(at_s(i), (const f16 *)(w + SC_AT_STATES) + state, STATE, SIZE);
            fetch<STATE, 256>(at_ds(i), (const f16 *)(w + SC_AT_DSTATES) + state, STATE, SIZE);
            fetch_numbers(numbers(i), w, batch, head, step);
            put_starts(numbers(i), of, batch, step);
        }
        mma_commit();
    }
    // The powers of head i's state and of its gradient.
    __device__ __forceinline__ float power(int i, const float *w) const {
        return w[power_at(batch, step, first_head + i)];
    }
    __device__ __forceinline__ float gradient_power(int i, const float *w) const {
        return w[power_at(batch, step, first_head + i) + ALL_STATES];
    }
    // One warp, of head i: ddt, and the step's parts of da and dd.
    __device__ __forceinline__ void finish(int i, const SC_A *a, SC_DT *ddt, float *w) const {
        const Sums &s = sums[i & 1];
        const int head = first_head + i, lane = threadIdx.x % 32;
        const float rate = widen(a[head]);
        float now[2], col[2], from = 0.0f;
#pragma unroll
        for (int e = 0; e < 2; e++) {
            const int at = 2 * lane + e;
            float row = s.came[at];
            for (int p = 0; p <= at / 16; p++) row += s.rows[p][at];
            col[e] = s.cols[at] + s.left[at];
            now[e] = fused(-s.dt[at], col[e], row);
            from = fused(s.dt[at], s.left[at], from);
        }
        now[0] += now[1];
        float behind = now[0]; // of this lane and those after it
#pragma unroll
        for (int d = 1; d < 32; d *= 2) {
            const float other = __shfl_down_sync(~0u, behind, d);
            if (lane + d < 32) behind += other;
        }
        behind = __shfl_down_sync(~0u, behind, 1);
        const float both = s.both[0] + s.both[1] + (s.both[2] + s.both[3]);
        const float base = fused(s.keep, both, warp_sum(from)) + (lane < 31 ? behind : 0.0f);
        float da = 0.0f;
#pragma unroll
        for (int e = 0; e < 2; e++) {
            const int at = 2 * lane + e;
            now[e] += base;
            da = fused(now[e], s.dt[at], da);
            if (at < n)
                put1(ddt + ((i64)batch * SC_SEQ + step * STEP + at) * SC_HEADS + head, fused(now[e], rate, col[e]));
        }
        da = warp_sum(da);
        if (lane) return;
        const i64 to = ((i64)batch * STEPS + step) * SC_HEADS + head;
        w[SC_AT_DA + to] = da;
        w[SC_AT_DD + to] = s.kept[0] + s.kept[1] + (s.kept[2] + s.kept[3]);
    }
};

__device__ __forceinline__ float of_row(float x) { // a sum over the four threads of a row
    x += __shfl_xor_sync(~0u, x, 1);
    return x + __shfl_xor_sync(~0u, x, 2);
}
__device__ __forceinline__ float dot(u32 x, u32 y, float sum) {
    return fused(high(x), high(y), fused(low(x), low(y), sum));
}
__device__ __forceinline__ float low_f16(u32 x) { return widen(f16{(unsigned short)x}); }
__device__ __forceinline__ float dot_f16(u32 x, u32 y, float sum) {
    return fused(low_f16(x >> 16), low_f16(y >> 16), fused(low_f16(x), low_f16(y), sum));
}
// Two rows of a first operand, in pieces of 16 inner elements, from bf16 to f16, each divided by a power of two that
// lets it keep its bits. Leaves the powers.
template <int K> __device__ __forceinline__ void to_f16(u32 (&x)[K][4], float (&power)[2]) {
    u32 most[2] = {0, 0};
#pragma unroll
    for (int k = 0; k < K; k++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            most[e % 2] = max(most[e % 2], max(x[k][e] << 16 & 0x7fffffffu, x[k][e] & 0x7fff0000u));
    float by[2];
#pragma unroll
    for (int r = 0; r < 2; r++) {
        most[r] = max(most[r], __shfl_xor_sync(~0u, most[r], 1));
        most[r] = max(most[r], __shfl_xor_sync(~0u, most[r], 2));
        const Power p(most[r]);
        power[r] = p.of(), by[r] = p.inverse();
    }
#pragma unroll
    for (int k = 0; k < K; k++)
#pragma unroll
        for (int e = 0; e < 4; e++) x[k][e] = pair_f16(high(x[k][e]) * by[e % 2], low(x[k][e]) * by[e % 2]);
}

// A warp's 16 rows j from `row` on.
struct Columns {
    u32 b[STATE / 16][4];      // of its rows, in f16
    float power[2];            // of these
    float scores[8][4], all[8][4]; // G' and dG'
    int row, r0, r1, g, q;     // r0, r1: this thread's rows

    __device__ __forceinline__ void start(const Pairs &p) {
        u32 f[4];
        row = threadIdx.x / 32 * 16, g = threadIdx.x % 32 / 4, q = threadIdx.x % 4 * 2, r0 = row + g, r1 = r0 + 8;
#pragma unroll
        for (int k = 0; k < STATE / 16; k++) mma_left<false, B_PITCH>(b[k], p.at_b, row, 16 * k);
#pragma unroll
        for (int i = 0; i < 4; i++) {
#pragma unroll
            for (int e = 0; e < 8; e++) all[2 * i + e / 4][e % 4] = scores[2 * i + e / 4][e % 4] = 0.0f;
            if (16 * i < row) continue;
#pragma unroll
            for (int k = 0; k < STATE / 16; k++) {
                mma_right<false, B_PITCH>(f, p.at_c, 16 * i, 16 * k);
                mma_multiply<bf16>(scores[2 * i], b[k], f[0], f[1]);
                mma_multiply<bf16>(scores[2 * i + 1], b[k], f[2], f[3]);
            }
        }
        to_f16(b, power);
    }
    __device__ __forceinline__ void head(const Pairs &p, int h, const SC_D *d, bf16 *dx, const float *w) {
        const Numbers &z = *p.numbers(h);
        const float whole = p.gradient_power(h, w);
        Sums &s = p.sums[h & 1];
        u32 x[4][4], f[4];
        float v[8][4] = {}, left0 = 0.0f, left1 = 0.0f;
        const u32 ds = p.at_ds(h), dy = p.at_dy(h);
#pragma unroll
        for (int k = 0; k < 4; k++) mma_left<false, X_PITCH>(x[k], p.at_x(h), row, 16 * k);
#pragma unroll
        for (int k = 0; k < STATE / 16; k++)
#pragma unroll
            for (int c = 0; c < 4; c++) {
                mma_right<false, B_PITCH>(f, ds, 16 * c, 16 * k);
                mma_multiply<f16>(v[2 * c], b[k], f[0], f[1]);
                mma_multiply<f16>(v[2 * c + 1], b[k], f[2], f[3]);
            }
        const float dt0 = z.dt[r0], dt1 = z.dt[r1];
        const float out0 = z.out(r0) * power[0] * whole, out1 = z.out(r1) * power[1] * whole;
#pragma unroll
        for (int c = 0; c < 8; c++) {
            const u32 x0 = x[c / 2][c % 2 * 2], x1 = x[c / 2][c % 2 * 2 + 1];
            v[c][0] *= out0, v[c][1] *= out0, v[c][2] *= out1, v[c][3] *= out1;
            left0 = fused(v[c][1], high(x0), fused(v[c][0], low(x0), left0));
            left1 = fused(v[c][3], high(x1), fused(v[c][2], low(x1), left1));
        }
        float col0 = 0.0f, col1 = 0.0f;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            if (16 * i < row) continue;
            float m[2][4] = {}, sum[4];
#pragma unroll
            for (int k = 0; k < 4; k++) {
                mma_right<false, X_PITCH>(f, dy, 16 * i, 16 * k);
                mma_multiply<bf16>(m[0], x[k], f[0], f[1]);
                mma_multiply<bf16>(m[1], x[k], f[2], f[3]);
            }
            u32 a[4];
#pragma unroll
            for (int t = 0; t < 2; t++) {
                float decayed[4];
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    const float l = z.decay(16 * i + 8 * t + q + e % 2, e < 2 ? r0 : r1), y = m[t][e] * l;
                    float &to = all[2 * i + t][e];
                    const float g = scores[2 * i + t][e];
                    to = fused(y, e < 2 ? dt0 : dt1, to);
                    decayed[e] = g * l;
                    m[t][e] = y * g;
                }
                a[2 * t] = pair_bf16(decayed[1], decayed[0]);
                a[2 * t + 1] = pair_bf16(decayed[3], decayed[2]);
                col0 += m[t][0] + m[t][1];
                col1 += m[t][2] + m[t][3];
                sum[2 * t] = fused(m[t][2], dt1, m[t][0] * dt0);
                sum[2 * t + 1] = fused(m[t][3], dt1, m[t][1] * dt0);
            }
            // over the 8 rows of each of the four columns: a thread ends with one column's
            const int lane = threadIdx.x % 32;
            float pair[2];
#pragma unroll
            for (int e = 0; e < 2; e++) {
                const float other = __shfl_xor_sync(~0u, lane & 16 ? sum[e] : sum[2 + e], 16);
                pair[e] = (lane & 16 ? sum[2 + e] : sum[e]) + other;
            }
            const float other = __shfl_xor_sync(~0u, lane & 8 ? pair[0] : pair[1], 8);
            float one = (lane & 8 ? pair[1] : pair[0]) + other;
            one += __shfl_xor_sync(~0u, one, 4);
            if (!(lane & 4)) s.rows[row / 16][16 * i + (lane >> 4) * 8 + q + (lane >> 3 & 1)] = one;
#pragma unroll
            for (int c = 0; c < 4; c++) {
                mma_right<true, X_PITCH>(f, dy, 16 * c, 16 * i);
                mma_multiply<bf16>(v[2 * c], a, f[0], f[1]);
                mma_multiply<bf16>(v[2 * c + 1], a, f[2], f[3]);
            }
        }
        left0 = of_row(left0), left1 = of_row(left1), col0 = of_row(col0), col1 = of_row(col1);
        if (!q) s.left[r0] = left0, s.left[r1] = left1, s.cols[r0] = col0, s.cols[r1] = col1;
        if (threadIdx.x < STEP) s.dt[threadIdx.x] = z.dt[threadIdx.x];
        if (!threadIdx.x) s.keep = z.in(STEP - 1);
#pragma unroll
        for (int c = 0; c < 8; c++) v[c][0] *= dt0, v[c][1] *= dt0, v[c][2] *= dt1, v[c][3] *= dt1;
        float kept = 0.0f;
        if constexpr (SC_SKIP) {
            const float skip = widen(d[p.first_head + h]);
#pragma unroll
            for (int k = 0; k < 4; k++) {
                mma_left<false, X_PITCH>(f, dy, row, 16 * k);
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    float *to = v[2 * k + e / 2] + e % 2 * 2;
                    to[0] = fused(skip, low(f[e]), to[0]);
                    to[1] = fused(skip, high(f[e]), to[1]);
                    kept = dot(f[e], x[k][e], kept);
                }
            }
            kept = warp_sum(kept);
        }
        if (threadIdx.x % 32 == 0) s.kept[row / 16] = kept;
        put_rows(v, dx + x_at(p.batch, p.step * STEP + r0, p.first_head + h), (i64)SC_HEADS * SIZE, r0 < p.n,
                 r1 < p.n);
    }
    __device__ __forceinline__ void leave(unsigned char *to) const { // dG', in rows of X_PITCH
#pragma unroll
        for (int i = 0; i < 8; i++) {
            *(u32 *)(to + 2 * (r0 * X_PITCH + 8 * i + q)) = pair_bf16(all[i][1], all[i][0]);
            *(u32 *)(to + 2 * (r1 * X_PITCH + 8 * i + q)) = pair_bf16(all[i][3], all[i][2]);
        }
    }
};

// A warp's 16 rows of db and of dc.
struct Shared {
    float db[STATE / 8][4], dc[STATE / 8][4];
    int row, r0, r1, q;

    __device__ __forceinline__ void start() {
        row = threadIdx.x / 32 * 16 - 64, q = threadIdx.x % 4 * 2, r0 = row + threadIdx.x % 32 / 4, r1 = r0 + 8;
#pragma unroll
        for (int i = 0; i < STATE / 8; i++)
#pragma unroll
            for (int e = 0; e < 4; e++) db[i][e] = dc[i][e] = 0.0f;
    }
    __device__ __forceinline__ void head(const Pairs &p, int h, const float *w) {
        const Numbers &z = *p.numbers(h);
        Sums &s = p.sums[h & 1];
        u32 x[4][4], dy[4][4], f[4], df[4];
        const float of_state = p.power(h, w), of_gradient = p.gradient_power(h, w);
        float came0 = 0.0f, came1 = 0.0f, both = 0.0f;
#pragma unroll
        for (int k = 0; k < 4; k++) {
            mma_left<false, X_PITCH>(dy[k], p.at_dy(h), row, 16 * k);
            mma_left<false, X_PITCH>(x[k], p.at_x(h), row, 16 * k);
        }
        float of_dy[2], of_x[2];
        to_f16(dy, of_dy);
        to_f16(x, of_x);
        const float in0 = z.in(r0) * of_dy[0] * of_state, in1 = z.in(r1) * of_dy[1] * of_state;
        const float out0 = z.out(r0) * z.dt[r0] * of_x[0] * of_gradient;
        const float out1 = z.out(r1) * z.dt[r1] * of_x[1] * of_gradient;
#pragma unroll
        for (int n = 0; n < STATE / 16; n++) {
            float m[2][4] = {}, dm[2][4] = {};
#pragma unroll
            for (int k = 0; k < 4; k++) {
                mma_right<true, B_PITCH>(f, p.at_s(h), 16 * n, 16 * k);
                mma_right<true, B_PITCH>(df, p.at_ds(h), 16 * n, 16 * k);
                mma_multiply<f16>(m[0], dy[k], f[0], f[1]);
                mma_multiply<f16>(m[1], dy[k], f[2], f[3]);
                mma_multiply<f16>(dm[0], x[k], df[0], df[1]);
                mma_multiply<f16>(dm[1], x[k], df[2], df[3]);
                if (16 * k == row) // each warp a quarter
#pragma unroll
                    for (int e = 0; e < 4; e++) both = dot_f16(f[e], df[e], both);
            }
            mma_left<false, B_PITCH>(f, p.at_c, row, 16 * n);
#pragma unroll
            for (int t = 0; t < 2; t++) {
                came0 = fused(m[t][1], high(f[2 * t]), fused(m[t][0], low(f[2 * t]), came0));
                came1 = fused(m[t][3], high(f[2 * t + 1]), fused(m[t][2], low(f[2 * t + 1]), came1));
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    dc[2 * n + t][e] = fused(e < 2 ? in0 : in1, m[t][e], dc[2 * n + t][e]);
                    db[2 * n + t][e] = fused(e < 2 ? out0 : out1, dm[t][e], db[2 * n + t][e]);
                }
            }
        }
        came0 = of_row(came0) * in0, came1 = of_row(came1) * in1;
        both = warp_sum(both) * of_state * of_gradient;
        if (!q) s.came[r0] = came0, s.came[r1] = came1;
        if (threadIdx.x % 32 == 0) s.both[row / 16] = both;
    }
    __device__ __forceinline__ void end(const Pairs &p, u32 scores) {
        u32 a[4], f[4];
#pragma unroll
        for (int k = 0; k < STEP; k += 16) {
            if (k >= row) { // positions i of a row j
                mma_left<false, X_PITCH>(a, scores, row, k);
#pragma unroll
                for (int n = 0; n < STATE / 16; n++) {
                    mma_right<true, B_PITCH>(f, p.at_c, 16 * n, k);
                    mma_multiply<bf16>(db[2 * n], a, f[0], f[1]);
                    mma_multiply<bf16>(db[2 * n + 1], a, f[2], f[3]);
                }
            }
            if (k <= row) {
                mma_left<true, X_PITCH>(a, scores, row, k);
#pragma unroll
                for (int n = 0; n < STATE / 16; n++) {
                    mma_right<true, B_PITCH>(f, p.at_b, 16 * n, k);
                    mma_multiply<bf16>(dc[2 * n], a, f[0], f[1]);
                    mma_multiply<bf16>(dc[2 * n + 1], a, f[2], f[3]);
                }
            }
        }
    }
    __device__ __forceinline__ void put(const Pairs &p, bf16 *to_b, bf16 *to_c, int split, float *w) const {
        const i64 at = b_at(p.batch, p.step * STEP + r0, p.group), pitch = (i64)SC_GROUPS * STATE;
        if constexpr (SC_SPLITS == 1) {
            put_rows(db, to_b + at, pitch, r0 < p.n, r1 < p.n);
            put_rows(dc, to_c + at, pitch, r0 < p.n, r1 < p.n);
            return;
        }
        const i64 part = (i64)SC_BATCH * SC_SEQ * SC_GROUPS * STATE;
        float *b = w + SC_AT_PARTS + 2 * split * part + at + q, *c = b + part;
#pragma unroll
        for (int i = 0; i < STATE / 8; i++)
#pragma unroll
            for (int half = 0; half < 2; half++) {
                if ((half ? r1 : r0) >= p.n) continue;
                const i64 to = half * 8 * pitch + 8 * i;
                *(float2 *)(b + to) = make_float2(db[i][2 * half], db[i][2 * half + 1]);
                *(float2 *)(c + to) = make_float2(dc[i][2 * half], dc[i][2 * half + 1]);
            }
    }
};
} // namespace SC_SPACE

// Grid SC_BATCH * STEPS * SC_GROUPS * SC_SPLITS, 256 threads. Dynamic shared bytes: 2 * PAIRS_STAGE + 2 * B_TILE +
// 6144.
extern "C" __global__ void __launch_bounds__(256, 1)
    SC_PAIRS(const bf16 *dy, const bf16 *x, const SC_A *a, const bf16 *b, const bf16 *c, const SC_D *d,
             const int *starts, bf16 *dx, SC_DT *ddt, bf16 *db, bf16 *dc, float *w) {
    enter();
    using namespace SC_SPACE;
    extern __shared__ __align__(16) unsigned char sc_space[];
    const int split = blockIdx.x % SC_SPLITS, item = blockIdx.x / SC_SPLITS;
    Pairs p;
    p.space = sc_space;
    p.tiles = (u32)__cvta_generic_to_shared(sc_space);
    p.at_b = p.tiles + 2 * PAIRS_STAGE, p.at_c = p.at_b + B_TILE;
    p.sums = (Sums *)(sc_space + 2 * PAIRS_STAGE + 2 * B_TILE);
    static_assert(2 * sizeof(Sums) <= 6144 && sizeof(Numbers) <= 1024, "shared memory");
    p.group = item % SC_GROUPS, p.step = item / SC_GROUPS % STEPS, p.batch = item / SC_GROUPS / STEPS;
    p.n = min((int)STEP, SC_SEQ - p.step * STEP);
    const int from = SHARE * split / SC_SPLITS;
    p.first_head = p.group * SHARE + from, p.heads = SHARE * (split + 1) / SC_SPLITS - from;
    const i64 at = b_at(p.batch, p.step * STEP, p.group);
    fetch<STATE, 256>(p.at_b, b + at, (i64)SC_GROUPS * STATE, p.n);
    fetch<STATE, 256>(p.at_c, c + at, (i64)SC_GROUPS * STATE, p.n);
    p.copy(0, dy, x, starts, w);
    mma_wait<0>();
    __syncthreads();
    if (threadIdx.x < 128) {
        Columns mine;
        mine.start(p);
        for (int h = 0; h < p.heads; h++) {
            if (h) {
                mma_wait<0>();
                __syncthreads();
            }
            p.copy(h + 1, dy, x, starts, w);
            mine.head(p, h, d, dx, w);
            if (h && threadIdx.x >= 96) p.finish(h - 1, a, ddt, w); // its pairs are the fewest
        }
        __syncthreads();
        if (threadIdx.x >= 96) p.finish(p.heads - 1, a, ddt, w);
        mine.leave(sc_space);
        __syncthreads();
    } else {
        Shared mine;
        mine.start();
        for (int h = 0; h < p.heads; h++) {
            if (h) {
                mma_wait<0>();
                __syncthreads();
            }
            p.copy(h + 1, dy, x, starts, w);
            mine.head(p, h, w);
        }
        __syncthreads();
        __syncthreads();
        mine.end(p, p.tiles);
        mine.put(p, db, dc, split, w);
    }
}

// Adds up the parts of db and dc. Grid ceil(2 * SC_BATCH * SC_SEQ * SC_GROUPS * STATE / 256).
extern "C" __global__ void __launch_bounds__(256) SC_SUM(bf16 *db, bf16 *dc, const float *w) {
    enter();
    using namespace SC_SPACE;
    const i64 part = (i64)SC_BATCH * SC_SEQ * SC_GROUPS * STATE, at = (i64)blockIdx.x * 256 + threadIdx.x;
    if (at >= 2 * part) return;
    float sum = 0.0f;
    for (int i = 0; i < SC_SPLITS; i++) sum += w[SC_AT_PARTS + 2 * i * part + at];
    put1(at < part ? db + at : dc + at - part, sum);
}

// Grid SC_HEADS, 256 threads.
extern "C" __global__ void __launch_bounds__(256) SC_RATES(float *da, float *dd, const float *w) {
    enter();
    using namespace SC_SPACE;
    __shared__ float part[2][256];
    float sum_a = 0.0f, sum_d = 0.0f;
    for (i64 i = threadIdx.x; i < (i64)SC_BATCH * STEPS; i += 256) {
        sum_a += w[SC_AT_DA + i * SC_HEADS + blockIdx.x];
        sum_d += w[SC_AT_DD + i * SC_HEADS + blockIdx.x];
    }
    part[0][threadIdx.x] = sum_a, part[1][threadIdx.x] = sum_d;
    for (int n = 128; n; n /= 2) {
        __syncthreads();
        if (threadIdx.x < n)
            for (int i = 0; i < 2; i++) part[i][threadIdx.x] += part[i][threadIdx.x + n];
    }
    if (threadIdx.x) return;
    da[blockIdx.x] = part[0][0];
    if (SC_SKIP) dd[blockIdx.x] = part[1][0];
}
