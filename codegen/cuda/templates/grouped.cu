// A product of rows by groups, whose sizes are on the device: the rows of group g times its own weights. A block makes
// a tile of 64 x 64 elements, a thread 4 x 4 of them; sums run over the inner axis in its order. Rows after the last
// group become 0. Written before this text:
//   GR_KERNEL  name    GR_T  type    GR_ROWS  rows of x and y    GR_M, GR_N  columns of x, of y
//   GR_GROUPS  groups  GR_TB  1: the weights of a group are GR_N x GR_M, else GR_M x GR_N
//   GR_FROM    rows of a table, of which `source` says the rows of x, zeros where it has no such row; 0: x has them
// Grid (GR_ROWS / 64 + GR_GROUPS + 1, ceil(GR_N / 64), 1), 256 threads.
extern "C" __global__ void __launch_bounds__(256)
    GR_KERNEL(const GR_T *x, const GR_T *w, const int *counts, const int *source, GR_T *y) {
    enter();
    enum { TILE = 64, STEP = 16 };
    __shared__ float left[STEP][TILE + 1], right[STEP][TILE + 1];
    i64 first = 0, rows = 0, tile = blockIdx.x;
    int group = 0;
    for (; group <= GR_GROUPS; group++) { // the last one: rows of no group
        rows = GR_ROWS - first;
        if (group < GR_GROUPS) rows = min((i64)max(counts[group], 0), rows);
        if (tile < (rows + TILE - 1) / TILE) break;
        tile -= (rows + TILE - 1) / TILE;
        first += rows;
    }
    if (group > GR_GROUPS) return;
    const i64 row = first + tile * TILE, col = (i64)blockIdx.y * TILE;
    const int height = (int)min((i64)TILE, rows - tile * TILE), width = (int)min((i64)TILE, GR_N - col);
    const int down = threadIdx.x / 16, across = threadIdx.x % 16; // of the thread's elements: each 16th
    const GR_T *own = w + (i64)group * GR_M * GR_N;
    float sum[4][4] = {};
    for (int k = 0; k < GR_M && group < GR_GROUPS; k += STEP) {
        for (int i = threadIdx.x; i < TILE * STEP; i += 256) {
            const int r = i / STEP, c = i % STEP;
            i64 from = r < height ? row + r : -1;
            if (GR_FROM && from >= 0) from = source[from];
            const bool inside = from >= 0 && (!GR_FROM || from < GR_FROM);
            left[c][r] = inside && k + c < GR_M ? widen(x[from * GR_M + k + c]) : 0.0f;
#if GR_TB
            right[c][r] = r < width && k + c < GR_M ? widen(own[(col + r) * GR_M + k + c]) : 0.0f;
#else
            const int n = i % TILE, m = i / TILE;
            right[m][n] = n < width && k + m < GR_M ? widen(own[(i64)(k + m) * GR_N + col + n]) : 0.0f;
#endif
        }
        __syncthreads();
#pragma unroll
        for (int c = 0; c < STEP; c++) {
#pragma unroll
            for (int i = 0; i < 4; i++)
#pragma unroll
                for (int j = 0; j < 4; j++)
                    sum[i][j] = fused(left[c][down + 16 * i], right[c][across + 16 * j], sum[i][j]);
        }
        __syncthreads();
    }
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++)
            if (down + 16 * i < height && across + 16 * j < width)
                put1(y + (row + down + 16 * i) * GR_N + col + across + 16 * j, sum[i][j]);
}
