// Products by groups of rows on tensor cores (mma.sync, sm_80 and later), in bf16 or f16 with sums in f32: the same as
// grouped.cu and, with GM_GRAD, as grouped_grad.cu, whose sums run over the same axis in the same order but for the 16
// of an instruction. A block makes a tile of 128 x 128 elements; each of its 8 warps makes 64 x 32 of them. Tiles of
// both operands come through GM_STAGES buffers in shared memory. Columns are multiples of 8, so that 16 bytes are
// inside or outside of an operand as a whole. Written before this text, which mma.cu precedes:
//   GM_KERNEL            name
//   GM_T, GM_OUT         types of the operands, of the result;  GM_F16  1: GM_T is f16, 0: bf16
//   GM_ROWS, GM_GROUPS   rows, and groups of them
//   GM_M, GM_N           columns of the first operand, of the result; with GM_GRAD columns of both operands
//   GM_TB                without GM_GRAD, 1: the weights of a group are GM_N x GM_M, else GM_M x GM_N
//   GM_GRAD              1: the transpose of the first operand's rows of a group times the second's
//   GM_FROM              rows of a table, of which `source` says the rows of the first operand, zeros where it has no
//                        such row; 0: the operand has its rows, as with GM_GRAD
// Grids, of 256 threads: (GM_ROWS / 128 + GM_GROUPS + 1) * ceil(GM_N / 128), with GM_GRAD ceil(GM_M / 128) * ceil(GM_N
// / 128) * GM_GROUPS. Dynamic shared bytes: GM_STAGES * 2 * 10240.
#ifndef GM_ONCE
#define GM_ONCE
enum { GM_TILE = 128, GM_STEP = 32, GM_STAGES = 4, GM_PART = 5120 }; // GM_PART: elements of an operand's buffer
constexpr int gm_pitch(bool deep) { return (deep ? GM_TILE : GM_STEP) + 8; } // from row to row of a buffer

// A tile of an operand into a buffer. deep: the inner axis is that of the rows, 32 of them with 128 columns; else it is
// that of the columns, 128 rows with 32 of them. `down` rows and `across` columns are inside from `from` on. FROM: rows
// of the table from `from` on, of which `source` says the tile's.
template <bool DEEP, i64 FROM, class T>
__device__ __forceinline__ void gm_fetch(u32 to, const T *from, i64 pitch, int down, int across, const int *source) {
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int chunk = threadIdx.x + i * 256, wide = DEEP ? GM_TILE / 8 : GM_STEP / 8;
        const int r = chunk / wide, c = chunk % wide * 8;
        bool inside = r < down && c < across;
        i64 row = r;
        if (FROM && inside) {
            row = source[r];
            inside = row >= 0 && row < FROM;
        }
        mma_copy(to + 2 * (r * gm_pitch(DEEP) + c), inside ? from + row * pitch + c : from, inside);
    }
}
#endif

extern "C" __global__ void __launch_bounds__(256, 2)
    GM_KERNEL(const GM_T *a, const GM_T *b, const int *counts, const int *source, GM_OUT *d) {
    enter();
    extern __shared__ __align__(16) unsigned short gm_space[];
    enum { ACROSS = (GM_N + GM_TILE - 1) / GM_TILE, DOWN = (GM_M + GM_TILE - 1) / GM_TILE };
    i64 first = 0, rows = 0, tile = blockIdx.x / ACROSS;
    const int col = blockIdx.x % ACROSS * GM_TILE;
    int group = 0;
#if GM_GRAD
    const int top = (int)(tile % DOWN) * GM_TILE;
    group = (int)(tile / DOWN);
    for (int g = 0; g < group; g++) first += max(counts[g], 0);
    rows = max(min((i64)max(counts[group], 0), GM_ROWS - first), (i64)0);
    const int height = min(GM_TILE, GM_M - top);
    const i64 inner = rows;
    const GM_T *left = a + first * GM_M + top, *right = b + first * GM_N + col;
    GM_OUT *to = d + ((i64)group * GM_M + top) * GM_N + col;
#else
    for (; group <= GM_GROUPS; group++) { // the last one: rows of no group
        rows = GM_ROWS - first;
        if (group < GM_GROUPS) rows = min((i64)max(counts[group], 0), rows);
        if (tile < (rows + GM_TILE - 1) / GM_TILE) break;
        tile -= (rows + GM_TILE - 1) / GM_TILE;
        first += rows;
    }
    if (group > GM_GROUPS) return;
    const i64 top = first + tile * GM_TILE, inner = group < GM_GROUPS ? GM_M : 0;
    const int height = (int)min((i64)GM_TILE, rows - tile * GM_TILE);
    source += top;
    const GM_T *left = a + (GM_FROM ? 0 : top * GM_M);
    const GM_T *right = b + (i64)group * GM_M * GM_N + (GM_TB ? (i64)col * GM_M : (i64)col);
    GM_OUT *to = d + top * GM_N + col;
#endif
    const int width = min(GM_TILE, GM_N - col);
    constexpr bool DEEP = GM_GRAD || !GM_TB; // of the second operand
    const u32 space = (u32)__cvta_generic_to_shared(gm_space);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, down = warp / 4 * 64, across = warp % 4 * 32;
    float sum[4][4][4] = {};
    const int steps = (int)((inner + GM_STEP - 1) / GM_STEP);
    auto fetch = [&](int step) {
        if (step < steps) {
            const i64 k = (i64)step * GM_STEP;
            const int depth = (int)min((i64)GM_STEP, inner - k);
            const u32 at = space + 4 * GM_PART * (step % GM_STAGES);
            if constexpr (GM_GRAD) gm_fetch<true, 0>(at, left + k * GM_M, GM_M, depth, height, source);
            else gm_fetch<false, GM_FROM>(at, left + k, GM_M, height, depth, source);
            if constexpr (DEEP) gm_fetch<true, 0>(at + 2 * GM_PART, right + k * GM_N, GM_N, depth, width, source);
            else gm_fetch<false, 0>(at + 2 * GM_PART, right + k, GM_M, width, depth, source);
        }
        mma_commit();
    };
    for (int s = 0; s < GM_STAGES - 1; s++) fetch(s);
    for (int step = 0; step < steps; step++) {
        mma_wait<GM_STAGES - 2>();
        __syncthreads();
        fetch(step + GM_STAGES - 1);
        const u32 at = space + 4 * GM_PART * (step % GM_STAGES);
#pragma unroll
        for (int k = 0; k < GM_STEP; k += 16) {
            u32 x[4][4], w[2][4];
#pragma unroll
            for (int i = 0; i < 4; i++) mma_left<GM_GRAD, gm_pitch(GM_GRAD)>(x[i], at, down + 16 * i, k);
#pragma unroll
            for (int j = 0; j < 2; j++)
                mma_right<DEEP, gm_pitch(DEEP)>(w[j], at + 2 * GM_PART, across + 16 * j, k);
#pragma unroll
            for (int i = 0; i < 4; i++)
#pragma unroll
                for (int j = 0; j < 4; j++)
                    mma_multiply<GM_T>(sum[i][j], x[i], w[j / 2][j % 2 * 2], w[j / 2][j % 2 * 2 + 1]);
        }
    }
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 8; j++) { // the second half: 8 rows further down
            const int r = down + 16 * i + j % 2 * 8 + lane / 4, c = across + 8 * (j / 2) + lane % 4 * 2;
            const float pair[2] = {sum[i][j / 2][j % 2 * 2], sum[i][j / 2][j % 2 * 2 + 1]};
            if (r < height && c < width) put<GM_OUT, 2>(to + (i64)r * GM_N + c, pair);
        }
}
