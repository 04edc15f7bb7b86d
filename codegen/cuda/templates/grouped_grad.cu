// The weights' gradient of grouped.cu: of each group the transpose of a's rows times b's. A block makes a tile of 64
// x 64 elements of a group, a thread 4 x 4 of them; sums run over the rows in their order. Written before this text:
// GR_GRAD (name), the rest as of grouped.cu, and GR_OUT, the type of the result; GR_M and GR_N are columns of a and
// of b. Grid (ceil(GR_M / 64) * ceil(GR_N / 64), GR_GROUPS, 1), 256 threads.
extern "C" __global__ void __launch_bounds__(256)
    GR_GRAD(const GR_T *a, const GR_T *b, const int *counts, GR_OUT *d) {
    enter();
    enum { TILE = 64, STEP = 16, TILES = (GR_N + TILE - 1) / TILE };
    __shared__ float left[STEP][TILE], right[STEP][TILE];
    const int group = blockIdx.y;
    i64 row = 0;
    for (int g = 0; g < group; g++) row += max(counts[g], 0);
    const i64 end = min(row + max(counts[group], 0), (i64)GR_ROWS);
    const int top = blockIdx.x / TILES * TILE, col = blockIdx.x % TILES * TILE;
    const int down = threadIdx.x / 16, across = threadIdx.x % 16; // of the thread's elements: each 16th
    float sum[4][4] = {};
    for (; row < end; row += STEP) {
        for (int i = threadIdx.x; i < TILE * STEP; i += 256) {
            const int r = i / TILE, c = i % TILE;
            left[r][c] = row + r < end && top + c < GR_M ? widen(a[(row + r) * GR_M + top + c]) : 0.0f;
            right[r][c] = row + r < end && col + c < GR_N ? widen(b[(row + r) * GR_N + col + c]) : 0.0f;
        }
        __syncthreads();
#pragma unroll
        for (int r = 0; r < STEP; r++) {
#pragma unroll
            for (int i = 0; i < 4; i++)
#pragma unroll
                for (int j = 0; j < 4; j++)
                    sum[i][j] = fused(left[r][down + 16 * i], right[r][across + 16 * j], sum[i][j]);
        }
        __syncthreads();
    }
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++)
            if (top + down + 16 * i < GR_M && col + across + 16 * j < GR_N)
                put1(d + ((i64)group * GR_M + top + down + 16 * i) * GR_N + col + across + 16 * j, sum[i][j]);
}
