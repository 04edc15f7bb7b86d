// The kernels of products by groups of rows on wgmma (sm_90a) against the plain kernel and double precision, and their
// times. Built with nvcc on a GPU machine:
//   nvcc -std=c++17 -gencode=arch=compute_90a,code=sm_90a -O2 -include HEAD.h tests/gpu/grouped_test.cu -lcuda
// HEAD.h has the macros of codegen/cuda/templates/grouped_wgmma.cu but for the kernel's name and GW_SHARED. Checks
// every element for groups of equal and of skewed sizes, all rows in one group, empty groups, groups of 0 and 1 rows
// and rows of no group, which hold NaNs; whether three runs have the same bits, and whether bytes beside it were
// written. With an argument also the rates after so many seconds without a pause, of equal and of skewed sizes. Exit 1
// when something is off.
#define GW_KERNEL fast
#define GW_SHARED (4 * (2 + GW_COLS / 64) * 8192 + 64 + 4 * 8192 + 1024)
#include "codegen/cuda/templates/common.cu"
#include "codegen/cuda/templates/grouped_wgmma.cu"
#define GR_T GW_T
#define GR_OUT GW_OUT
#define GR_ROWS GW_ROWS
#define GR_M GW_M
#define GR_N GW_N
#define GR_GROUPS GW_GROUPS
#define GR_TB GW_TB
#if GW_GRAD
#define GR_GRAD plain
#include "codegen/cuda/templates/grouped_grad.cu"
#else
#define GR_KERNEL plain
#include "codegen/cuda/templates/grouped.cu"
#endif
#include "tests/gpu/meter.h"
#include <cuda.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <algorithm>
#include <vector>
#define CU(x)                                                                                                          \
    do {                                                                                                               \
        cudaError_t e_ = (x);                                                                                          \
        if (e_) {                                                                                                      \
            printf("%d: %s: %s\n", __LINE__, #x, cudaGetErrorString(e_));                                              \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)
enum { PAD = 1024, THREADS = 256, SAMPLES = 8192 };
static const size_t n_a = (size_t)GW_ROWS * GW_M, n_w = (size_t)GW_GROUPS * GW_M * GW_N, n_y = (size_t)GW_ROWS * GW_N,
                    n_b = GW_GRAD ? n_y : n_w, n_d = GW_GRAD ? n_w : n_y;
typedef std::vector<int> Counts;
template <class T> static const bool is_f16 = false;
template <> const bool is_f16<f16> = true;

__global__ void fill(GW_T *p, size_t n, unsigned long long seed) { // normally distributed
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x) {
        unsigned long long z = (i + 1) * 0x9E3779B97F4A7C15ull + seed * 0xD1342543DE82EF95ull;
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9ull;
        z = (z ^ z >> 27) * 0x94D049BB133111EBull;
        z ^= z >> 31;
        const float u = (float)((unsigned)z & 0xffffff) / 16777216.f + 1e-7f, v = (float)(z >> 40) / 16777216.f;
        put1(p + i, sqrtf(-2 * logf(u)) * cospif(2 * v));
    }
}
__global__ void differ(const unsigned *x, const unsigned *y, size_t words, unsigned long long *n) {
    unsigned long long mine = 0;
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < words; i += (size_t)gridDim.x * blockDim.x)
        mine += x[i] != y[i];
    if (mine) atomicAdd(n, mine);
}
struct Errors { double error, square, most; unsigned long long wrong; }; // wrong: NaNs
__device__ void add(Errors *e, double got, double want) {
    if (!(fabs(got - want) < 1e30)) atomicAdd(&e->wrong, 1ull);
    else {
        atomicAdd(&e->error, (got - want) * (got - want));
        atomicAdd(&e->square, want * want);
        atomicMax((unsigned long long *)&e->most, (unsigned long long)__double_as_longlong(fabs(got - want)));
    }
}
__global__ void against(const GW_OUT *got, const GW_OUT *want, size_t n, Errors *e) { // every element
    double error = 0, square = 0, most = 0;
    unsigned long long wrong = 0;
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x) {
        const double x = widen(got[i]), y = widen(want[i]), d = fabs(x - y);
        if (!(d < 1e30)) wrong++;
        else error += d * d, square += y * y, most = d > most ? d : most;
    }
    atomicAdd(&e->error, error), atomicAdd(&e->square, square), atomicAdd(&e->wrong, wrong);
    atomicMax((unsigned long long *)&e->most, (unsigned long long)__double_as_longlong(most));
}
// A warp sums one element in double precision; which ones: samples spread over the result.
__global__ void exact(const GW_T *a, const GW_T *b, const int *counts, const GW_OUT *got, Errors *e) {
    const size_t n = (size_t)GW_GRAD * GW_GROUPS * GW_M * GW_N + (size_t)!GW_GRAD * GW_ROWS * GW_N;
    const size_t s = blockIdx.x * (size_t)(blockDim.x / 32) + threadIdx.x / 32;
    if (s >= SAMPLES) return;
    const size_t at = n <= SAMPLES ? s : (s * 2654435761ull + 40503) % n, row = at / GW_N, col = at % GW_N;
    if (at >= n) return;
    double sum = 0;
    long long first = 0;
    int g = 0;
#if GW_GRAD
    for (; g < (int)(row / GW_M); g++) first += counts[g];
    for (long long r = first + threadIdx.x % 32; r < first + counts[g]; r += 32)
        sum += (double)widen(a[r * GW_M + row % GW_M]) * (double)widen(b[r * GW_N + col]);
#else
    for (; g < GW_GROUPS && (long long)row >= first + counts[g]; g++) first += counts[g];
    for (int k = threadIdx.x % 32; k < GW_M && g < GW_GROUPS; k += 32)
        sum += (double)widen(a[row * GW_M + k]) *
               (double)widen(b[(size_t)g * GW_M * GW_N + (GW_TB ? col * GW_M + k : (size_t)k * GW_N + col)]);
#endif
    for (int i = 16; i; i /= 2) sum += __shfl_xor_sync(~0u, sum, i);
    if (threadIdx.x % 32 == 0) add(e, widen(got[at]), sum);
}

template <class T> static T *device(size_t n) {
    T *p;
    CU(cudaMalloc(&p, n * sizeof(T)));
    return p;
}
static GwMap map_of(void *at, size_t x, size_t y, size_t z, size_t bytes) { // as runtime/cuda/maps.c
    typedef CUresult Encode(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *, const cuuint64_t *,
                            const cuuint64_t *, const cuuint32_t *, const cuuint32_t *, CUtensorMapInterleave,
                            CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill);
    void *encode;
    CU(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &encode, 12000, cudaEnableDefault, NULL));
    const cuuint64_t dims[] = {x, y, z, 1}, strides[] = {x * bytes, x * y * bytes, x * y * z * bytes};
    const cuuint32_t box[] = {128 / (cuuint32_t)bytes, 64, 1, 1}, steps[] = {1, 1, 1, 1};
    CUtensorMap map;
    const CUtensorMapDataType type = bytes == 4     ? CU_TENSOR_MAP_DATA_TYPE_FLOAT32
                                     : is_f16<GW_T> ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16
                                                    : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
    if (((Encode *)encode)(&map, type, 4, at, dims, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
                           CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                           CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE)) {
        printf("no tensor map\n");
        exit(1);
    }
    GwMap m;
    memcpy(&m, &map, sizeof m);
    return m;
}

static Counts sizes(int kind) {
    Counts c(GW_GROUPS, 0);
    long long sum = 0;
    const auto part = [](int g) { return (int)((long long)GW_ROWS * g / GW_GROUPS); };
    if (kind == 0)
        for (int g = 0; g < GW_GROUPS; g++) c[g] = part(g + 1) - part(g);
    if (kind == 1) { // 1 / g, in sixteens, as torch_grouped.py
        double all = 0;
        for (int g = 0; g < GW_GROUPS; g++) all += 1.0 / (g + 1);
        for (int g = 0; g < GW_GROUPS; g++) sum += c[g] = (int)lrint(GW_ROWS / 16 / all / (g + 1)) * 16;
        c[0] += (int)(GW_ROWS - sum);
    }
    if (kind == 2) c[GW_GROUPS / 2] = GW_ROWS;
    if (kind == 3)
        for (int g = 0; g < GW_GROUPS; g++) sum += c[g] = g % 2 ? (int)(GW_ROWS - sum) / (GW_GROUPS - g + 1) : 0;
    if (kind == 4) { // any size; rows of no group at the end
        for (int g = 0; g < GW_GROUPS; g++) {
            const int left = (int)(GW_ROWS - sum), most = left / (GW_GROUPS - g) * 2 + 2;
            sum += c[g] = g % 5 == 1 ? (left > 0) : g % 5 == 3 ? 0 : min(left, rand() % most);
        }
        if (sum == GW_ROWS) c[0] -= c[0] > 0;
    }
    if (kind == 5) return c; // all rows of no group
    return c;
}

int main(int argc, char **argv) {
    GW_T *a = device<GW_T>(n_a), *b = device<GW_T>(n_b);
    const size_t space = n_d + 2 * PAD;
    GW_OUT *room = device<GW_OUT>(space), *d = room + PAD, *other = device<GW_OUT>(space), *want = device<GW_OUT>(n_d);
    int *counts = device<int>(GW_GROUPS);
    unsigned long long *n = device<unsigned long long>(1), different;
    Errors *errors = device<Errors>(1), e;
    const GwMap ma = map_of(a, GW_M, GW_ROWS, 1, 2),
                mb = GW_GRAD ? map_of(b, GW_N, GW_ROWS, 1, 2)
                     : GW_TB ? map_of(b, GW_M, GW_N, GW_GROUPS, 2)
                             : map_of(b, GW_N, GW_M, GW_GROUPS, 2),
                md = GW_GRAD ? map_of(d, GW_N, GW_M, GW_GROUPS, sizeof(GW_OUT))
                             : map_of(d, GW_N, GW_ROWS, 1, sizeof(GW_OUT));
    CU(cudaFuncSetAttribute(fast, cudaFuncAttributeMaxDynamicSharedMemorySize, GW_SHARED));
    const int across = (GW_N + GW_COLS - 1) / GW_COLS;
    const long long down = GW_GRAD ? (GW_M + 127) / 128 * (long long)GW_GROUPS : GW_ROWS / 128 + GW_GROUPS + 1;
    const long long tiles = down * across;
    cudaLaunchConfig_t config = {};
    cudaLaunchAttribute cluster = {};
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim.x = 2, cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
    config.gridDim = dim3((unsigned)(tiles < 66 ? 2 * tiles : 132));
    config.blockDim = dim3(384);
    config.dynamicSmemBytes = GW_SHARED;
    config.attrs = &cluster, config.numAttrs = 1;
    auto run = [&] { CU(cudaLaunchKernelEx(&config, fast, ma, mb, md, (const int *)counts, d)); };
    bool bad = false;
    double worst = 0, worst64 = 0;
    static const char *const kinds[] = {"equal", "skewed", "one", "every other", "any", "none"};
    for (int kind = 0; kind < 6; kind++) {
        const Counts c = sizes(kind);
        long long sum = 0;
        for (int x : c) sum += x;
        fill<<<1024, THREADS>>>(a, n_a, 2 * kind + 1);
        fill<<<1024, THREADS>>>(b, n_b, 2 * kind + 2);
        if (sum < GW_ROWS) CU(cudaMemset(a + sum * GW_M, 0xff, (GW_ROWS - sum) * GW_M * sizeof(GW_T)));
        if (GW_GRAD && sum < GW_ROWS) CU(cudaMemset(b + sum * GW_N, 0xff, (GW_ROWS - sum) * GW_N * sizeof(GW_T)));
        CU(cudaMemcpy(counts, c.data(), GW_GROUPS * sizeof(int), cudaMemcpyHostToDevice));
        CU(cudaMemset(errors, 0, sizeof e));
        CU(cudaMemset(n, 0, 8));
        CU(cudaMemset(want, 0xff, n_d * sizeof(GW_OUT)));
#if GW_GRAD
        plain<<<dim3((GW_M + 63) / 64 * ((GW_N + 63) / 64), GW_GROUPS), 256>>>(a, b, counts, want);
#else
        plain<<<dim3(GW_ROWS / 64 + GW_GROUPS + 1, (GW_N + 63) / 64), 256>>>(a, b, counts, want);
#endif
        CU(cudaGetLastError());
        for (int i = 0; i < 3; i++) {
            CU(cudaMemset(room, 0xff, space * sizeof(GW_OUT)));
            run();
            CU(cudaDeviceSynchronize());
            if (i == 0) CU(cudaMemcpy(other, room, space * sizeof(GW_OUT), cudaMemcpyDeviceToDevice));
            else differ<<<1024, THREADS>>>((unsigned *)room, (unsigned *)other, space * sizeof(GW_OUT) / 4, n);
        }
        std::vector<unsigned char> beside(2 * PAD * sizeof(GW_OUT));
        CU(cudaMemcpy(beside.data(), room, PAD * sizeof(GW_OUT), cudaMemcpyDeviceToHost));
        CU(cudaMemcpy(beside.data() + PAD * sizeof(GW_OUT), d + n_d, PAD * sizeof(GW_OUT), cudaMemcpyDeviceToHost));
        bool outside = false;
        for (unsigned char x : beside) outside = outside || x != 0xff;
        CU(cudaMemcpy(&different, n, 8, cudaMemcpyDeviceToHost));
        // wgmma cuts off what it adds, which grows with the length of a sum
        const double cut = 2e-6 + 2e-9 * (GW_GRAD ? *std::max_element(c.begin(), c.end()) : GW_M);
        const double limit = sizeof(GW_OUT) == 4 ? cut : cut + (is_f16<GW_T> ? 5e-4 : 4e-3);
        for (int against64 = 0; against64 < 2; against64++) {
            CU(cudaMemset(errors, 0, sizeof e));
            if (against64) exact<<<SAMPLES / 8, 256>>>(a, b, counts, d, errors);
            else against<<<1024, THREADS>>>(d, want, n_d, errors);
            CU(cudaGetLastError());
            CU(cudaMemcpy(&e, errors, sizeof e, cudaMemcpyDeviceToHost));
            const double rms = sqrt(e.square / (against64 ? min((size_t)SAMPLES, n_d) : n_d));
            const double error = e.square ? sqrt(e.error / e.square) : e.error;
            (against64 ? worst64 : worst) = fmax(against64 ? worst64 : worst, error);
            const bool off = !(error < limit) || e.wrong || (rms && e.most > 100 * limit * rms);
            if (off || different || outside) {
                printf("%s, %s: error %.2e, largest %.2e of %.2e, %llu NaNs, %llu words differ%s\n", kinds[kind],
                       against64 ? "f64" : "plain", error, e.most, rms, e.wrong, different,
                       outside ? ", WRITES BESIDE the result" : "");
                bad = true;
            }
        }
    }
    printf("%s%s of %s, %d rows, %d groups, %d x %d: errors %.2e, %.2e; %s", GW_GRAD ? "dW" : GW_TB ? "forward" : "dX",
           sizeof(GW_OUT) == 4 ? " f32" : "", is_f16<GW_T> ? "f16" : "bf16", (int)GW_ROWS, GW_GROUPS,
           (int)GW_M, (int)GW_N, worst, worst64,
           bad ? "WRONG" : "repeats bitwise");
    for (int kind = 0; argc > 1 && kind < 2; kind++) {
        const Counts c = sizes(kind);
        fill<<<1024, THREADS>>>(a, n_a, 1);
        fill<<<1024, THREADS>>>(b, n_b, 2);
        CU(cudaMemcpy(counts, c.data(), GW_GROUPS * sizeof(int), cudaMemcpyHostToDevice));
        const Metered t = metered(Meter(), run, 0.67 * atof(argv[1]), atof(argv[1]));
        printf("; %s %.3f ms %.0f TF %u MHz %.0f mJ", kinds[kind], t.ms, 2.0 * GW_ROWS * GW_M * GW_N / t.ms / 1e9,
               t.mhz, t.mj);
    }
    printf("\n");
    return bad;
}
