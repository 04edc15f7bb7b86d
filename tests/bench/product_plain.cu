// The surroundings of the products of product.cu: numbers to multiply, and the epilogues as kernels of their own, 16
// bytes of each operand a thread.

__global__ void fill(bf16 *p, long long count, float scale, u32 seed) { // nearly normal, standard deviation `scale`
    for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
        u64 z = (u64)i + (u64)seed * 0x9e3779b97f4a7c15ull;
        float sum = 0;
        z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull, z = (z ^ z >> 27) * 0x94d049bb133111ebull, z ^= z >> 31;
        for (int j = 0; j < 4; j++) sum += (float)(z >> 16 * j & 0xffff) / 65536.f - .5f;
        p[i] = Narrow<bf16>::from(sum * 1.7320508f * scale);
    }
}

typedef Raw<bf16, 8> Eight;
#define EACH_OF_EIGHT                                                                                                  \
    const long long i = (blockIdx.x * (long long)blockDim.x + threadIdx.x) * 8;                                        \
    if (i >= count) return;

__global__ void gelu_map(const bf16 *h, const bf16 *bias, bf16 *to, long long count, int n) {
    EACH_OF_EIGHT
    Eight x, b;
    float y[8];
    x.load(h + i), b.load(bias + i % n);
    for (int j = 0; j < 8; j++) y[j] = gelu(rounded(x.at(j) + b.at(j)));
    Pack<bf16, 8>::put(x.w, y);
    x.store(to + i);
}
__global__ void swiglu_map(const bf16 *g, const bf16 *u, bf16 *to, long long count) {
    EACH_OF_EIGHT
    Eight x, y;
    float z[8];
    x.load(g + i), y.load(u + i);
    for (int j = 0; j < 8; j++) z[j] = silu_mul(x.at(j), y.at(j));
    Pack<bf16, 8>::put(x.w, z);
    x.store(to + i);
}
__global__ void swiglu_grad_map(const bf16 *g, const bf16 *u, const bf16 *d, bf16 *dg, bf16 *du, bf16 *act,
                                long long count) {
    EACH_OF_EIGHT
    Eight x, y, z;
    float to[3][8];
    x.load(g + i), y.load(u + i), z.load(d + i);
    for (int j = 0; j < 8; j++) {
        const Gated r = silu_mul_grad(x.at(j), y.at(j), z.at(j));
        to[0][j] = r.dg, to[1][j] = r.du, to[2][j] = r.act;
    }
    Pack<bf16, 8>::put(x.w, to[0]), Pack<bf16, 8>::put(y.w, to[1]), Pack<bf16, 8>::put(z.w, to[2]);
    x.store(dg + i), y.store(du + i), z.store(act + i);
}
// 64 rows and 512 columns a block: 4 rows at once, 8 columns a thread; `sums` of every 64 rows
__global__ void gelu_grad_rows(const bf16 *h, const bf16 *bias, const bf16 *d, bf16 *dh, bf16 *act, float *sums, int m,
                               int n) {
    __shared__ float all[4][512];
    const int t = threadIdx.x, column = blockIdx.x * 512 + t % 64 * 8;
    float sum[8] = {};
    if (column < n) {
        Eight b;
        b.load(bias + column);
#pragma unroll 4
        for (int r = 0; r < 16; r++) {
            const int row = blockIdx.y * 64 + r * 4 + t / 64;
            if (row >= m) break;
            const long long i = (long long)row * n + column;
            Eight x, y;
            float v[8], w[8];
            x.load(h + i), y.load(d + i);
            for (int j = 0; j < 8; j++) {
                const float g = gelu_grad(rounded(x.at(j) + b.at(j)), &w[j]);
                v[j] = rounded(y.at(j) * g);
                sum[j] += v[j];
            }
            Pack<bf16, 8>::put(x.w, v), Pack<bf16, 8>::put(y.w, w);
            x.store(dh + i), y.store(act + i);
        }
    }
    for (int j = 0; j < 8; j++) all[t / 64][t % 64 * 8 + j] = sum[j];
    __syncthreads();
    for (int c = t; c < 512 && blockIdx.x * 512 + c < n; c += 256)
        sums[(long long)blockIdx.y * n + blockIdx.x * 512 + c] = all[0][c] + all[1][c] + all[2][c] + all[3][c];
}
__global__ void add_rows(const float *sums, float *total, int rows, int n) { // 32 columns a block, 32 threads a column
    __shared__ float part[32][33];
    const int x = threadIdx.x % 32, y = threadIdx.x / 32, column = blockIdx.x * 32 + x;
    float sum = 0;
    if (column < n)
        for (int r = y; r < rows; r += 32) sum += sums[(long long)r * n + column];
    part[y][x] = sum;
    __syncthreads();
    if (y || column >= n) return;
    for (int i = 1; i < 32; i++) sum += part[i][x];
    total[column] = sum;
}
static void add_sums(const float *sums, float *total, int rows, int n) {
    add_rows<<<(n + 31) / 32, 1024>>>(sums, total, rows, n);
}
