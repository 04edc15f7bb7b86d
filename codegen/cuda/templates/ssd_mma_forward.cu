// The forward pass of state-space duality on tensor cores, in one kernel: a block goes through the steps of a head with
// its state in registers, so that x is read and y written once and no state ever reaches memory. Of a step, with the
// incoming state S (size x state) and M = (c b') by decay and dt of its column:
//   y = e c S' + M x + d x,    S = e_last S + (f dt x)' b
// A warp makes 16 rows of y and 16 of S. ssd_mma.cu precedes this text, and SC_Y is defined: the kernel's name. Grid
// SC_BATCH * SC_HEADS, 128 threads. Dynamic shared bytes: 2 * (2 * B_TILE + X_TILE + 1024) + B_TILE.
extern "C" __global__ void __launch_bounds__(128, 2)
    SC_Y(const bf16 *x, const bf16 *b, const bf16 *c, const SC_D *d, const int *starts, bf16 *y, const float *w) {
    enter();
    using namespace SC_SPACE;
    enum { STAGE = 2 * B_TILE + X_TILE + 1024 };
    extern __shared__ __align__(16) unsigned char sc_space[];
    const int head = blockIdx.x % SC_HEADS, batch = blockIdx.x / SC_HEADS, group = head / SHARE;
    const int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, q = threadIdx.x % 4 * 2;
    const u32 space = (u32)__cvta_generic_to_shared(sc_space), carried = space + 2 * STAGE;
    const auto numbers = [&](int step) {
        return (Numbers *)(sc_space + (step & 1) * STAGE + 2 * B_TILE + X_TILE);
    };
    const auto copy = [&](int step) { // a step's c, b, x and numbers
        if (step < STEPS) {
            const u32 to = space + (step & 1) * STAGE;
            const int first = step * STEP, n = min((int)STEP, SC_SEQ - first);
            fetch<STATE, 128>(to, c + b_at(batch, first, group), (i64)SC_GROUPS * STATE, n);
            fetch<STATE, 128>(to + B_TILE, b + b_at(batch, first, group), (i64)SC_GROUPS * STATE, n);
            fetch<SIZE, 128>(to + 2 * B_TILE, x + x_at(batch, first, head), (i64)SC_HEADS * SIZE, n);
            fetch_numbers(numbers(step), w, batch, head, step);
            put_starts(numbers(step), starts, batch, step);
        }
        mma_commit();
    };
    const float skip = SC_SKIP ? widen(d[head]) : 0.0f;
    float s[STATE / 8][4] = {};
    copy(0);
    for (int step = 0; step < STEPS; step++) {
        mma_wait<0>();
        __syncthreads();
        copy(step + 1);
        const u32 at_c = space + (step & 1) * STAGE, at_b = at_c + B_TILE, at_x = at_b + B_TILE;
        const Numbers &z = *numbers(step);
        const int row = (warp + step & 3) * 16, r0 = row + g, r1 = r0 + 8; // rows in turn: the later, the more to do
        float out[8][4] = {};
        u32 rows[STATE / 16][4], f[4];
#pragma unroll
        for (int k = 0; k < STATE / 16; k++) mma_left<false, B_PITCH>(rows[k], at_c, row, 16 * k);
        if (step) {
#pragma unroll
            for (int k = 0; k < STATE / 16; k++)
#pragma unroll
                for (int p = 0; p < 4; p++) {
                    mma_right<false, B_PITCH>(f, carried, 16 * p, 16 * k);
                    mma_multiply<bf16>(out[2 * p], rows[k], f[0], f[1]);
                    mma_multiply<bf16>(out[2 * p + 1], rows[k], f[2], f[3]);
                }
            const float in0 = z.in(r0), in1 = z.in(r1);
#pragma unroll
            for (int p = 0; p < 8; p++) out[p][0] *= in0, out[p][1] *= in0, out[p][2] *= in1, out[p][3] *= in1;
        }
#pragma unroll 1
        for (int j = 0; j <= row; j += 16) {
            float m[2][4] = {};
#pragma unroll
            for (int k = 0; k < STATE / 16; k++) {
                mma_right<false, B_PITCH>(f, at_b, j, 16 * k);
                mma_multiply<bf16>(m[0], rows[k], f[0], f[1]);
                mma_multiply<bf16>(m[1], rows[k], f[2], f[3]);
            }
            u32 a[4];
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int r = i % 2 ? r1 : r0, col = j + i / 2 * 8 + q;
                const float *v = m[i / 2] + i % 2 * 2;
                a[i] = pair_bf16(v[1] * z.decay(r, col + 1) * z.dt[col + 1], v[0] * z.decay(r, col) * z.dt[col]);
            }
#pragma unroll
            for (int p = 0; p < 4; p++) {
                mma_right<true, X_PITCH>(f, at_x, 16 * p, j);
                mma_multiply<bf16>(out[2 * p], a, f[0], f[1]);
                mma_multiply<bf16>(out[2 * p + 1], a, f[2], f[3]);
            }
        }
        if constexpr (SC_SKIP)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                mma_left<false, X_PITCH>(f, at_x, row, 16 * i);
#pragma unroll
                for (int e = 0; e < 4; e++) { // f[e]: two columns of row r0 or r1
                    float *v = out[2 * i + e / 2] + e % 2 * 2;
                    v[0] = fused(skip, low(f[e]), v[0]);
                    v[1] = fused(skip, high(f[e]), v[1]);
                }
            }
        const int first = step * STEP;
        put_rows(out, y + x_at(batch, first + r0, head), (i64)SC_HEADS * SIZE, first + r0 < SC_SEQ,
                 first + r1 < SC_SEQ);
        if (step + 1 == STEPS) break;
        advance<false>(s, at_x, at_b, 16 * warp, z.in(STEP - 1), [&](int j) { return z.out(j) * z.dt[j]; });
        __syncthreads(); // the state that came in has been read
        unsigned char *to = sc_space + 2 * STAGE + 2 * ((16 * warp + g) * B_PITCH + q);
#pragma unroll
        for (int n = 0; n < STATE / 8; n++) {
            *(u32 *)(to + 16 * n) = pair_bf16(s[n][1], s[n][0]);
            *(u32 *)(to + 16 * n + 16 * B_PITCH) = pair_bf16(s[n][3], s[n][2]);
        }
    }
}
