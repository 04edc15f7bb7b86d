// State-space duality by chunks of positions, for any type and size: the formulas are those of runtime/host/ssd.c. A
// block makes a tile of 64 x 64 elements of a product, a thread 4 x 4 of them; sums run over the inner axis in its
// order, over the heads of a group and over chunks in theirs. Written before this text:
//   SD_T, SD_DT, SD_A, SD_D  types of x, b, c and y, of dt, of a, of d
//   SD_BATCH, SD_SEQ, SD_HEADS, SD_SIZE, SD_GROUPS, SD_STATE, SD_CHUNK, SD_CHUNKS  sizes
//   SD_SKIP, SD_PACKED       1: d, documents are there
//   SD_GRAD                  1: the kernels of the backward pass are there
//   SD_AT_*                  where the parts of the workspace begin (ir/ssd.h)
//   SD_CLOCK, SD_SCORES, SD_STATES, SD_PASS, SD_Y, and with SD_GRAD SD_DSTATES, SD_DPASS, SD_PAIRS, SD_DX, SD_CAME,
//   SD_DC, SD_DB, SD_DECAYS, SD_TIMES, SD_RATES   names, in the order in which they run
// Blocks of 256 threads. Grids are beside each kernel, with tiles of 64 in a chunk, TILES, in a head, WIDE, and in a
// state, DEEP.
namespace SD_SPACE {
enum { SD_TILE = 64, SD_STEP = 16, TILES = (SD_CHUNK + 63) / 64, WIDE = (SD_SIZE + 63) / 64,
       DEEP = (SD_STATE + 63) / 64, SHARE = SD_HEADS / SD_GROUPS };

struct Place { // of a chunk and a head or a group; first: the chunk's first position in all sequences
    int batch, chunk, of, n;
    i64 first, at;
    __device__ __forceinline__ Place(i64 index, int parts) {
        at = index;
        of = (int)(index % parts);
        chunk = (int)(index / parts % SD_CHUNKS);
        batch = (int)(index / parts / SD_CHUNKS);
        first = (i64)batch * SD_SEQ + (i64)chunk * SD_CHUNK;
        n = min(SD_CHUNK, SD_SEQ - chunk * SD_CHUNK);
    }
};
struct Head { // factors of a head's rows
    const float *clock;
    const int *starts;
    int from, n;
    __device__ __forceinline__ Head(const float *w, const int *s, const Place &p, int head) {
        clock = w + SD_AT_CLOCK + ((i64)p.batch * SD_HEADS + head) * SD_SEQ + (i64)p.chunk * SD_CHUNK;
        starts = s + p.first;
        from = p.chunk * SD_CHUNK;
        n = p.n;
    }
    __device__ __forceinline__ int start(int i) const { return SD_PACKED ? starts[i] - from : -1; }
    __device__ __forceinline__ float decay(int i, int j) const {
        return j <= i && j >= start(i) ? expf(clock[i] - clock[j]) : 0.0f;
    }
    __device__ __forceinline__ float in(int i) const { return start(i) < 0 ? expf(clock[i]) : 0.0f; }
    __device__ __forceinline__ float out(int j) const {
        return j >= start(n - 1) ? expf(clock[n - 1] - clock[j]) : 0.0f;
    }
};

__device__ __forceinline__ i64 x_at(const Place &p, int row, int head) {
    return ((p.first + row) * SD_HEADS + head) * SD_SIZE;
}
__device__ __forceinline__ i64 b_at(const Place &p, int row, int group) {
    return ((p.first + row) * SD_GROUPS + group) * SD_STATE;
}
__device__ __forceinline__ i64 state_at(const Place &p, int head) {
    return (((i64)p.batch * SD_CHUNKS + p.chunk) * SD_HEADS + head) * SD_SIZE * SD_STATE;
}
__device__ __forceinline__ i64 score_at(const Place &p, int group) {
    return (((i64)p.batch * SD_CHUNKS + p.chunk) * SD_GROUPS + group) * SD_CHUNK * SD_CHUNK;
}
template <class T> __device__ __forceinline__ float dt_of(const T *dt, const Place &p, int row, int head) {
    return widen(dt[(p.first + row) * SD_HEADS + head]);
}

// sum += left (64 rows) times right (64 columns) over inner elements from `from` to before `end`. A_IN, B_IN: the inner
// axis of an operand is consecutive in memory.
template <bool A_IN, bool B_IN, class L, class R>
__device__ __forceinline__ void multiply(float (&sum)[4][4], int from, int end, L a, R b) {
    __shared__ float left[SD_STEP][SD_TILE + 1], right[SD_STEP][SD_TILE + 1];
    const int down = threadIdx.x / 16, across = threadIdx.x % 16; // of the thread's elements: each 16th
    for (int k = from; k < end; k += SD_STEP) {
        for (int i = threadIdx.x; i < SD_TILE * SD_STEP; i += 256) {
            const int r = A_IN ? i / SD_STEP : i % SD_TILE, c = A_IN ? i % SD_STEP : i / SD_TILE;
            left[c][r] = k + c < end ? a(r, k + c) : 0.0f;
            const int n = B_IN ? i / SD_STEP : i % SD_TILE, m = B_IN ? i % SD_STEP : i / SD_TILE;
            right[m][n] = k + m < end ? b(k + m, n) : 0.0f;
        }
        __syncthreads();
#pragma unroll
        for (int c = 0; c < SD_STEP; c++)
#pragma unroll
            for (int i = 0; i < 4; i++)
#pragma unroll
                for (int j = 0; j < 4; j++)
                    sum[i][j] = fused(left[c][down + 16 * i], right[c][across + 16 * j], sum[i][j]);
        __syncthreads();
    }
}
// of each element of the thread: its row and column in the tile
template <class F> __device__ __forceinline__ void each(float (&sum)[4][4], F f) {
    const int down = threadIdx.x / 16, across = threadIdx.x % 16;
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 4; j++) f(down + 16 * i, across + 16 * j, sum[i][j], i, j);
}
__device__ __forceinline__ float across_row(float x) { // of the 16 threads that have a row's elements
#pragma unroll
    for (int d = 8; d; d /= 2) x += __shfl_xor_sync(0xffffffffu, x, d);
    return x;
}

// left' times right over the rows of a chunk: left is x by f dt, or dy by e; right is b or c.
template <bool GRAD>
__device__ __forceinline__ void add_state(const SD_T *x, const SD_DT *dt, const SD_T *b, const int *starts, float *w) {
    const Place p(blockIdx.x / (WIDE * DEEP), SD_HEADS);
    const int tile = blockIdx.x % (WIDE * DEEP), top = tile / DEEP * SD_TILE, side = tile % DEEP * SD_TILE;
    const Head h(w, starts, p, p.of);
    const int group = p.of / SHARE;
    float sum[4][4] = {};
    multiply<false, false>(
        sum, 0, p.n,
        [&](int r, int k) {
            if (top + r >= SD_SIZE) return 0.0f;
            const float by = GRAD ? h.in(k) : h.out(k) * dt_of(dt, p, k, p.of);
            return by * widen(x[x_at(p, k, p.of) + top + r]);
        },
        [&](int k, int c) { return side + c < SD_STATE ? widen(b[b_at(p, k, group) + side + c]) : 0.0f; });
    float *to = w + (GRAD ? SD_AT_DSTATES : SD_AT_STATES) + state_at(p, p.of);
    each(sum, [&](int r, int c, float v, int, int) {
        if (top + r < SD_SIZE && side + c < SD_STATE) to[(top + r) * SD_STATE + side + c] = v;
    });
}
// Each chunk's own part becomes what comes into it from the chunks before it; GRAD: from those behind it.
template <bool GRAD> __device__ __forceinline__ void pass_on(const int *starts, float *w) {
    const i64 at = (i64)blockIdx.x * 256 + threadIdx.x, each = (i64)SD_SIZE * SD_STATE;
    if (at >= (i64)SD_BATCH * SD_HEADS * each) return;
    const int head = (int)(at / each % SD_HEADS);
    const i64 batch = at / each / SD_HEADS;
    float now = 0.0f;
    for (int i = 0; i < SD_CHUNKS; i++) {
        const int chunk = GRAD ? SD_CHUNKS - 1 - i : i;
        const Place p((batch * SD_CHUNKS + chunk) * SD_HEADS + head, SD_HEADS);
        const Head h(w, starts, p, head);
        float *s = w + (GRAD ? SD_AT_DSTATES : SD_AT_STATES) + state_at(p, head) + at % each;
        const float own = *s;
        *s = now;
        now = fused(h.in(p.n - 1), now, own);
    }
}
} // namespace SD_SPACE

// Grid ceil(SD_BATCH * SD_CHUNKS * SD_HEADS / 256).
extern "C" __global__ void __launch_bounds__(256) SD_CLOCK(const SD_DT *dt, const SD_A *a, float *w) {
    enter();
    using namespace SD_SPACE;
    const i64 at = (i64)blockIdx.x * 256 + threadIdx.x;
    if (at >= (i64)SD_BATCH * SD_CHUNKS * SD_HEADS) return;
    const Place p(at, SD_HEADS);
    float *clock = w + SD_AT_CLOCK + ((i64)p.batch * SD_HEADS + p.of) * SD_SEQ + (i64)p.chunk * SD_CHUNK, now = 0.0f;
    const float rate = widen(a[p.of]);
    for (int i = 0; i < p.n; i++) clock[i] = now = fused(dt_of(dt, p, i, p.of), rate, now);
}
// Grid SD_BATCH * SD_CHUNKS * SD_GROUPS * TILES * TILES.
extern "C" __global__ void __launch_bounds__(256) SD_SCORES(const SD_T *b, const SD_T *c, float *w) {
    enter();
    using namespace SD_SPACE;
    const Place p(blockIdx.x / (TILES * TILES), SD_GROUPS);
    const int tile = blockIdx.x % (TILES * TILES), top = tile / TILES * SD_TILE, side = tile % TILES * SD_TILE;
    if (side > top || top >= p.n) return;
    float sum[4][4] = {};
    multiply<true, true>(
        sum, 0, SD_STATE,
        [&](int r, int k) { return top + r < p.n ? widen(c[b_at(p, top + r, p.of) + k]) : 0.0f; },
        [&](int k, int j) { return side + j < p.n ? widen(b[b_at(p, side + j, p.of) + k]) : 0.0f; });
    float *to = w + SD_AT_SCORES + score_at(p, p.of);
    each(sum, [&](int r, int j, float v, int, int) {
        if (top + r < p.n && side + j < p.n) to[(i64)(top + r) * SD_CHUNK + side + j] = v;
    });
}
// Grid SD_BATCH * SD_CHUNKS * SD_HEADS * WIDE * DEEP.
extern "C" __global__ void __launch_bounds__(256)
    SD_STATES(const SD_T *x, const SD_DT *dt, const SD_T *b, const int *starts, float *w) {
    enter();
    SD_SPACE::add_state<false>(x, dt, b, starts, w);
}
// Grid ceil(SD_BATCH * SD_HEADS * SD_SIZE * SD_STATE / 256).
extern "C" __global__ void __launch_bounds__(256) SD_PASS(const int *starts, float *w) {
    enter();
    SD_SPACE::pass_on<false>(starts, w);
}
#if !SD_GRAD
// Grid SD_BATCH * SD_CHUNKS * SD_HEADS * TILES * WIDE.
extern "C" __global__ void __launch_bounds__(256)
    SD_Y(const SD_T *x, const SD_DT *dt, const SD_T *c, const SD_D *d, const int *starts, SD_T *y, float *w) {
    enter();
    using namespace SD_SPACE;
    const Place p(blockIdx.x / (TILES * WIDE), SD_HEADS);
    const int tile = blockIdx.x % (TILES * WIDE), top = tile / WIDE * SD_TILE, side = tile % WIDE * SD_TILE;
    if (top >= p.n) return;
    const Head h(w, starts, p, p.of);
    const int group = p.of / SHARE, end = min(top + SD_TILE, p.n);
    const float *scores = w + SD_AT_SCORES + score_at(p, group), *state = w + SD_AT_STATES + state_at(p, p.of);
    float sum[4][4] = {};
    multiply<true, true>(
        sum, 0, SD_STATE,
        [&](int r, int k) { return top + r < p.n ? h.in(top + r) * widen(c[b_at(p, top + r, group) + k]) : 0.0f; },
        [&](int k, int q) { return side + q < SD_SIZE ? state[(side + q) * SD_STATE + k] : 0.0f; });
    multiply<true, false>(
        sum, 0, end,
        [&](int r, int k) {
            const float l = top + r < p.n ? h.decay(top + r, k) : 0.0f;
            return l != 0.0f ? scores[(i64)(top + r) * SD_CHUNK + k] * l * dt_of(dt, p, k, p.of) : 0.0f;
        },
        [&](int k, int q) { return side + q < SD_SIZE ? widen(x[x_at(p, k, p.of) + side + q]) : 0.0f; });
    each(sum, [&](int r, int q, float v, int, int) {
        if (top + r >= p.n || side + q >= SD_SIZE) return;
        const i64 at = x_at(p, top + r, p.of) + side + q;
        put1(y + at, SD_SKIP ? fused(widen(d[p.of]), widen(x[at]), v) : v);
    });
}
#else
// Grid as SD_STATES, and as SD_PASS.
extern "C" __global__ void __launch_bounds__(256)
    SD_DSTATES(const SD_T *dy, const SD_DT *dt, const SD_T *c, const int *starts, float *w) {
    enter();
    SD_SPACE::add_state<true>(dy, dt, c, starts, w);
}
extern "C" __global__ void __launch_bounds__(256) SD_DPASS(const int *starts, float *w) {
    enter();
    SD_SPACE::pass_on<true>(starts, w);
}
// The gradient of the scores, and sums over rows and columns of what the gradient of L is made of. Grid as SD_SCORES.
extern "C" __global__ void __launch_bounds__(256)
    SD_PAIRS(const SD_T *dy, const SD_T *x, const SD_DT *dt, const int *starts, float *w) {
    enter();
    using namespace SD_SPACE;
    const Place p(blockIdx.x / (TILES * TILES), SD_GROUPS);
    const int tile = blockIdx.x % (TILES * TILES), top = tile / TILES * SD_TILE, side = tile % TILES * SD_TILE;
    if (side > top || top >= p.n) return;
    __shared__ float columns[16][SD_TILE + 1];
    const int down = threadIdx.x / 16, across = threadIdx.x % 16;
    const float *scores = w + SD_AT_SCORES + score_at(p, p.of);
    float all[4][4] = {};
    for (int head = p.of * SHARE; head < (p.of + 1) * SHARE; head++) {
        const Head h(w, starts, p, head);
        float sum[4][4] = {}, rows[4] = {}, cols[4] = {};
        multiply<true, true>(
            sum, 0, SD_SIZE,
            [&](int r, int k) { return top + r < p.n ? widen(dy[x_at(p, top + r, head) + k]) : 0.0f; },
            [&](int k, int j) { return side + j < p.n ? widen(x[x_at(p, side + j, head) + k]) : 0.0f; });
        each(sum, [&](int r, int j, float v, int i, int k) {
            if (top + r >= p.n || side + j > top + r) return;
            const float l = v * h.decay(top + r, side + j), z = l * scores[(i64)(top + r) * SD_CHUNK + side + j];
            const float step = dt_of(dt, p, side + j, head);
            all[i][k] = fused(l, step, all[i][k]);
            rows[i] = fused(z, step, rows[i]);
            cols[k] += z;
        });
        const i64 at = ((i64)p.batch * SD_HEADS + head) * TILES, from = (i64)p.chunk * SD_CHUNK;
        for (int i = 0; i < 4; i++) {
            const float row = across_row(rows[i]);
            const int r = top + down + 16 * i;
            if (!across && r < p.n) w[SD_AT_ROWS + (at + side / SD_TILE) * SD_SEQ + from + r] = row;
            columns[down][across + 16 * i] = cols[i];
        }
        __syncthreads();
        if (threadIdx.x < SD_TILE && side + (int)threadIdx.x < p.n) {
            float col = 0.0f;
            for (int i = 0; i < 16; i++) col += columns[i][threadIdx.x];
            w[SD_AT_COLS + (at + top / SD_TILE) * SD_SEQ + from + side + threadIdx.x] = col;
        }
    }
    float *to = w + SD_AT_DSCORES + score_at(p, p.of);
    each(all, [&](int r, int j, float v, int, int) {
        if (top + r < p.n && side + j < p.n) to[(i64)(top + r) * SD_CHUNK + side + j] = v;
    });
}
// Grid SD_BATCH * SD_CHUNKS * SD_HEADS * TILES.
extern "C" __global__ void __launch_bounds__(256)
    SD_DX(const SD_T *dy, const SD_T *x, const SD_DT *dt, const SD_T *b, const SD_D *d, const int *starts, SD_T *dx,
          float *w) {
    enter();
    using namespace SD_SPACE;
    const Place p(blockIdx.x / TILES, SD_HEADS);
    const int top = blockIdx.x % TILES * SD_TILE, group = p.of / SHARE;
    if (top >= p.n) return;
    const Head h(w, starts, p, p.of);
    const float *scores = w + SD_AT_SCORES + score_at(p, group), *state = w + SD_AT_DSTATES + state_at(p, p.of);
    float left[4] = {}, kept[4] = {};
    for (int side = 0; side < SD_SIZE; side += SD_TILE) {
        float sum[4][4] = {};
        multiply<true, true>(
            sum, 0, SD_STATE,
            [&](int r, int k) { return top + r < p.n ? h.out(top + r) * widen(b[b_at(p, top + r, group) + k]) : 0.0f; },
            [&](int k, int q) { return side + q < SD_SIZE ? state[(side + q) * SD_STATE + k] : 0.0f; });
        each(sum, [&](int r, int q, float v, int i, int) {
            if (top + r >= p.n || side + q >= SD_SIZE) return;
            const i64 at = x_at(p, top + r, p.of) + side + q;
            left[i] = fused(v, widen(x[at]), left[i]);
            kept[i] = fused(widen(dy[at]), widen(x[at]), kept[i]);
        });
        multiply<false, false>(
            sum, top, p.n,
            [&](int r, int k) {
                const float l = top + r < p.n ? h.decay(k, top + r) : 0.0f;
                return l != 0.0f ? scores[(i64)k * SD_CHUNK + top + r] * l : 0.0f;
            },
            [&](int k, int q) { return side + q < SD_SIZE ? widen(dy[x_at(p, k, p.of) + side + q]) : 0.0f; });
        each(sum, [&](int r, int q, float v, int, int) {
            if (top + r >= p.n || side + q >= SD_SIZE) return;
            const i64 at = x_at(p, top + r, p.of) + side + q;
            const float step = dt_of(dt, p, top + r, p.of);
            put1(dx + at, SD_SKIP ? fused(widen(d[p.of]), widen(dy[at]), step * v) : step * v);
        });
    }
    for (int i = 0; i < 4; i++) {
        const int r = top + threadIdx.x / 16 + 16 * i;
        const i64 at = ((i64)p.batch * SD_HEADS + p.of) * SD_SEQ + (i64)p.chunk * SD_CHUNK + r;
        const float out = across_row(left[i]), own = across_row(kept[i]);
        if (threadIdx.x % 16 || r >= p.n) continue;
        w[SD_AT_LEFT + at] = out;
        w[SD_AT_KEPT + at] = own;
    }
}
// The share of the incoming state in y, times dy. Grid as SD_DX.
extern "C" __global__ void __launch_bounds__(256)
    SD_CAME(const SD_T *dy, const SD_T *c, const int *starts, float *w) {
    enter();
    using namespace SD_SPACE;
    const Place p(blockIdx.x / TILES, SD_HEADS);
    const int top = blockIdx.x % TILES * SD_TILE, group = p.of / SHARE;
    if (top >= p.n) return;
    const Head h(w, starts, p, p.of);
    const float *state = w + SD_AT_STATES + state_at(p, p.of);
    float came[4] = {};
    for (int side = 0; side < SD_SIZE; side += SD_TILE) {
        float sum[4][4] = {};
        multiply<true, true>(
            sum, 0, SD_STATE,
            [&](int r, int k) { return top + r < p.n ? h.in(top + r) * widen(c[b_at(p, top + r, group) + k]) : 0.0f; },
            [&](int k, int q) { return side + q < SD_SIZE ? state[(side + q) * SD_STATE + k] : 0.0f; });
        each(sum, [&](int r, int q, float v, int i, int) {
            if (top + r < p.n && side + q < SD_SIZE)
                came[i] = fused(v, widen(dy[x_at(p, top + r, p.of) + side + q]), came[i]);
        });
    }
    for (int i = 0; i < 4; i++) {
        const int r = top + threadIdx.x / 16 + 16 * i;
        const float row = across_row(came[i]);
        if (threadIdx.x % 16 || r >= p.n) continue;
        w[SD_AT_CAME + ((i64)p.batch * SD_HEADS + p.of) * SD_SEQ + (i64)p.chunk * SD_CHUNK + r] = row;
    }
}
namespace SD_SPACE {
// dc: the rows of dy by e times states, and the gradient of the scores times b. COLUMNS, db: the rows of x by f dt
// times the gradients of states, and the transpose of that gradient times c.
template <bool COLUMNS>
__device__ __forceinline__ void of_group(const SD_T *x, const SD_DT *dt, const SD_T *b, const int *starts, SD_T *to,
                                         const float *w) {
    const Place p(blockIdx.x / (TILES * DEEP), SD_GROUPS);
    const int tile = blockIdx.x % (TILES * DEEP), top = tile / DEEP * SD_TILE, side = tile % DEEP * SD_TILE;
    if (top >= p.n) return;
    float sum[4][4] = {};
    for (int head = p.of * SHARE; head < (p.of + 1) * SHARE; head++) {
        const Head h(w, starts, p, head);
        const float *state = w + (COLUMNS ? SD_AT_DSTATES : SD_AT_STATES) + state_at(p, head);
        multiply<true, false>(
            sum, 0, SD_SIZE,
            [&](int r, int k) {
                if (top + r >= p.n) return 0.0f;
                const float by = COLUMNS ? h.out(top + r) * dt_of(dt, p, top + r, head) : h.in(top + r);
                return by * widen(x[x_at(p, top + r, head) + k]);
            },
            [&](int k, int c) { return side + c < SD_STATE ? state[k * SD_STATE + side + c] : 0.0f; });
    }
    const float *scores = w + SD_AT_DSCORES + score_at(p, p.of);
    multiply<!COLUMNS, false>(
        sum, COLUMNS ? top : 0, COLUMNS ? p.n : min(top + SD_TILE, p.n),
        [&](int r, int k) {
            if (top + r >= p.n || (COLUMNS ? k < top + r : k > top + r)) return 0.0f;
            return scores[COLUMNS ? (i64)k * SD_CHUNK + top + r : (i64)(top + r) * SD_CHUNK + k];
        },
        [&](int k, int c) { return side + c < SD_STATE ? widen(b[b_at(p, k, p.of) + side + c]) : 0.0f; });
    each(sum, [&](int r, int c, float v, int, int) {
        if (top + r < p.n && side + c < SD_STATE) put1(to + b_at(p, top + r, p.of) + side + c, v);
    });
}
} // namespace SD_SPACE
// Grids SD_BATCH * SD_CHUNKS * SD_GROUPS * TILES * DEEP.
extern "C" __global__ void __launch_bounds__(256)
    SD_DC(const SD_T *dy, const SD_DT *dt, const SD_T *b, const int *starts, SD_T *dc, const float *w) {
    enter();
    SD_SPACE::of_group<false>(dy, dt, b, starts, dc, w);
}
extern "C" __global__ void __launch_bounds__(256)
    SD_DB(const SD_T *x, const SD_DT *dt, const SD_T *c, const int *starts, SD_T *db, const float *w) {
    enter();
    SD_SPACE::of_group<true>(x, dt, c, starts, db, w);
}
// <state, its gradient>. Grid SD_BATCH * SD_CHUNKS * SD_HEADS.
extern "C" __global__ void __launch_bounds__(256) SD_DECAYS(float *w) {
    enter();
    __shared__ float part[256];
    const i64 size = (i64)SD_SIZE * SD_STATE, from = blockIdx.x * size;
    float sum = 0.0f;
    for (i64 i = threadIdx.x; i < size; i += 256)
        sum = fused(w[SD_AT_STATES + from + i], w[SD_AT_DSTATES + from + i], sum);
    part[threadIdx.x] = sum;
    for (int n = 128; n; n /= 2) {
        __syncthreads();
        if (threadIdx.x < n) part[threadIdx.x] += part[threadIdx.x + n];
    }
    if (!threadIdx.x) w[SD_AT_DECAYS + blockIdx.x] = part[0];
}
// ddt, and the chunks' parts of da and dd. Grid as SD_CLOCK.
extern "C" __global__ void __launch_bounds__(256)
    SD_TIMES(const SD_DT *dt, const SD_A *a, const int *starts, SD_DT *ddt, float *w) {
    enter();
    using namespace SD_SPACE;
    const i64 index = (i64)blockIdx.x * 256 + threadIdx.x;
    if (index >= (i64)SD_BATCH * SD_CHUNKS * SD_HEADS) return;
    const Place p(index, SD_HEADS);
    const Head h(w, starts, p, p.of);
    const i64 head = (i64)p.batch * SD_HEADS + p.of, from = (i64)p.chunk * SD_CHUNK;
    const float *left = w + SD_AT_LEFT + head * SD_SEQ + from, *came = w + SD_AT_CAME + head * SD_SEQ + from;
    const float *kept = w + SD_AT_KEPT + head * SD_SEQ + from, rate = widen(a[p.of]);
    float now = h.in(p.n - 1) * w[SD_AT_DECAYS + index], da = 0.0f, dd = 0.0f;
    for (int i = 0; i < p.n; i++) now = fused(dt_of(dt, p, i, p.of), left[i], now);
    for (int i = p.n - 1; i >= 0; i--) {
        const float step = dt_of(dt, p, i, p.of);
        float row = came[i], col = left[i];
        for (int t = 0; t <= i / SD_TILE; t++) row += w[SD_AT_ROWS + (head * TILES + t) * SD_SEQ + from + i];
        for (int t = i / SD_TILE; t * SD_TILE < p.n; t++) col += w[SD_AT_COLS + (head * TILES + t) * SD_SEQ + from + i];
        now += fused(-step, col, row);
        da = fused(now, step, da);
        dd += kept[i];
        put1(ddt + (p.first + i) * SD_HEADS + p.of, fused(now, rate, col));
    }
    w[SD_AT_DA + index] = da;
    w[SD_AT_DD + index] = dd;
}
// Grid ceil(SD_HEADS / 256).
extern "C" __global__ void __launch_bounds__(256) SD_RATES(float *da, float *dd, const float *w) {
    enter();
    const int head = blockIdx.x * 256 + threadIdx.x;
    if (head >= SD_HEADS) return;
    float sum_a = 0.0f, sum_d = 0.0f;
    for (i64 i = 0; i < (i64)SD_BATCH * SD_CHUNKS; i++) {
        sum_a += w[SD_AT_DA + i * SD_HEADS + head];
        sum_d += w[SD_AT_DD + i * SD_HEADS + head];
    }
    da[head] = sum_a;
    if (SD_SKIP) dd[head] = sum_d;
}
#endif
