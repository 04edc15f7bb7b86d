// The forward kernel of attention on wgmma (sm_90a) against double precision, and its times. Built with nvcc on a GPU
// machine:
//   nvcc -gencode=arch=compute_90a,code=sm_90a -O2 -include HEAD.h tests/gpu/attention_forward_test.cu
// HEAD.h has the macros of codegen/cuda/templates/attention.cu and ATT_LENGTH, the mean length of a document. Prints
// the relative errors ||out - ref|| / ||ref|| of o and lse (every query of small shapes, 4096 of large ones), whether
// six runs have the same bits and whether bytes beside o were written, then milliseconds; with an argument also after
// so many seconds without a pause. Exit 1 when o is off by more than 5e-3 (bf16 rounds p and o), lse by 1e-4, or bits
// differ.
#include "codegen/cuda/templates/common.cu"
#include "codegen/cuda/templates/attention_seen.cu"
#include "codegen/cuda/templates/attention_wgmma.cu"
#include "codegen/cuda/templates/attention_forward.cu"
#include "tests/gpu/meter.h"
#include <cuda.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <vector>
#define CU(x)                                                                                                          \
    do {                                                                                                               \
        cudaError_t e_ = (x);                                                                                          \
        if (e_) {                                                                                                      \
            printf("%d: %s: %s\n", __LINE__, #x, cudaGetErrorString(e_));                                              \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)
#if ATT_DOCUMENTS
#define MORE , starts
#else
#define MORE
#endif
typedef unsigned short half_t; // bf16
enum { PAD = 1024, THREADS = 256, SAMPLES = 4096 };

__device__ float wide(half_t h) { return __uint_as_float((unsigned)h << 16); }

// normally distributed numbers of this standard deviation
__global__ void fill(half_t *p, size_t n, unsigned long long seed, float deviation) {
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x) {
        unsigned long long z = (i + 1) * 0x9E3779B97F4A7C15ull + seed * 0xD1342543DE82EF95ull;
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9ull;
        z = (z ^ z >> 27) * 0x94D049BB133111EBull;
        z ^= z >> 31;
        const float u = (float)((unsigned)z & 0xffffff) / 16777216.f + 1e-7f, v = (float)(z >> 40) / 16777216.f;
        const unsigned bits = __float_as_uint(sqrtf(-2 * logf(u)) * cospif(2 * v) * deviation);
        p[i] = (half_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
    }
}

template <class F> __device__ double combine(double x, F f) { // over the block
    __shared__ double all[THREADS];
    __syncthreads();
    all[threadIdx.x] = x;
    __syncthreads();
    for (int w = THREADS / 2; w; w >>= 1) {
        if ((int)threadIdx.x < w) all[threadIdx.x] = f(all[threadIdx.x], all[threadIdx.x + w]);
        __syncthreads();
    }
    return all[0];
}

// Sums of squares: of the errors of o, of o, of the errors of lse, of lse. A block does one query after the other.
__global__ void compare(const half_t *q, const half_t *k, const half_t *v, const half_t *o, const float *lse,
                        const int *first, long long rows, int samples, double *sums) {
    extern __shared__ double p[];
    for (int s = blockIdx.x; s < samples; s += gridDim.x) {
        const long long r = samples == rows ? s : (long long)(((unsigned long long)s * 2654435761ull + 12345) % rows);
        const int row = (int)(r % ATT_T), h = (int)(r / ATT_T % ATT_H), b = (int)(r / ATT_T / ATT_H);
        const int low = first[b * ATT_T + row], end = ATT_CAUSAL ? row + 1 : ATT_T, column = h / ATT_GROUP * ATT_D;
        const half_t *query = q + ((long long)b * ATT_T + row) * ATT_QS + h * ATT_D;
        double top = -1e300, sum = 0;
        for (int j = low + threadIdx.x; j < end; j += THREADS) {
            const half_t *key = k + ((long long)b * ATT_T + j) * ATT_KS + column;
            double x = 0;
            for (int d = 0; d < ATT_D; d++) x += (double)wide(query[d]) * wide(key[d]);
            p[j] = x * (double)ATT_SCALE;
            top = fmax(top, p[j]);
        }
        top = combine(top, [](double x, double y) { return fmax(x, y); });
        for (int j = low + threadIdx.x; j < end; j += THREADS) sum += p[j] = exp(p[j] - top);
        sum = combine(sum, [](double x, double y) { return x + y; });
        for (int d = threadIdx.x; d < ATT_D; d += THREADS) {
            double x = 0;
            for (int j = low; j < end; j++) x += p[j] * wide(v[((long long)b * ATT_T + j) * ATT_VS + column + d]);
            x /= sum;
            const double e = wide(o[((long long)b * ATT_T + row) * ATT_OS + h * ATT_D + d]) - x;
            atomicAdd(&sums[0], e == e ? e * e : 1e300);
            atomicAdd(&sums[1], x * x);
        }
        if (threadIdx.x == 0) {
            const double x = top + log(sum), e = lse[((long long)b * ATT_H + h) * ATT_T + row] - x;
            atomicAdd(&sums[2], e == e ? e * e : 1e300);
            atomicAdd(&sums[3], x * x);
        }
        __syncthreads();
    }
}

template <class T> static T *device(size_t n) {
    T *p;
    CU(cudaMalloc(&p, n * sizeof(T)));
    return p;
}
static AttMap map_of(half_t *at, int heads, long long stride, int positions) { // as runtime/cuda/attention.c
    typedef CUresult Encode(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *, const cuuint64_t *,
                            const cuuint64_t *, const cuuint32_t *, const cuuint32_t *, CUtensorMapInterleave,
                            CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill);
    void *encode;
    CU(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &encode, 12000, cudaEnableDefault, NULL));
    const cuuint64_t dims[] = {ATT_D, (cuuint64_t)heads, ATT_T, ATT_B};
    const cuuint64_t strides[] = {ATT_D * 2, (cuuint64_t)stride * 2, (cuuint64_t)stride * 2 * ATT_T};
    const cuuint32_t box[] = {64, 1, (cuuint32_t)positions, 1}, steps[] = {1, 1, 1, 1};
    CUtensorMap map;
    if (((Encode *)encode)(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 4, at, dims, strides, box, steps,
                           CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                           CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE)) {
        printf("no tensor map\n");
        exit(1);
    }
    AttMap m;
    memcpy(&m, &map, sizeof m);
    return m;
}

int main(int argc, char **argv) {
    const size_t nq = (size_t)ATT_B * ATT_T * ATT_QS, nk = (size_t)ATT_B * ATT_T * ATT_KS;
    const long long rows = (long long)ATT_B * ATT_H * ATT_T;
    half_t *q = device<half_t>(nq), *k = device<half_t>(nk), *v = device<half_t>(nk),
           *room = device<half_t>(nq + 2 * PAD), *o = room + PAD;
    float *lse = device<float>(rows);
    fill<<<1024, THREADS>>>(q, nq, 1, 1.5f);
    fill<<<1024, THREADS>>>(k, nk, 2, 1.5f);
    fill<<<1024, THREADS>>>(v, nk, 3, 1.f);
    std::vector<int> begin((size_t)ATT_B * ATT_T), low(begin.size());
    double pairs = 0;
    for (size_t i = 0; i < begin.size(); i++) {
        const int row = (int)(i % ATT_T);
        const bool begins = row == 0 || (ATT_DOCUMENTS && rand() % (ATT_LENGTH + 1) == 0);
        low[i] = begin[i] = begins ? row : begin[i - 1];
        if (ATT_WINDOW && row + 1 - ATT_WINDOW > low[i]) low[i] = row + 1 - ATT_WINDOW;
        pairs += (ATT_CAUSAL ? row + 1 : ATT_T) - low[i];
    }
    int *starts = device<int>(begin.size()), *first = device<int>(low.size());
    CU(cudaMemcpy(starts, begin.data(), begin.size() * sizeof(int), cudaMemcpyHostToDevice));
    CU(cudaMemcpy(first, low.data(), low.size() * sizeof(int), cudaMemcpyHostToDevice));
    const AttMap mq = map_of(q, ATT_H, ATT_QS, ATT_QUERIES), mk = map_of(k, ATT_KV, ATT_KS, ATT_TILE),
                 mv = map_of(v, ATT_KV, ATT_VS, ATT_TILE);
    const unsigned blocks = (unsigned)(ATT_ITEMS < 132 ? ATT_ITEMS : 132);
    CU(cudaFuncSetAttribute(ATT_FWD, cudaFuncAttributeMaxDynamicSharedMemorySize, ATT_BYTES));
    auto forward = [&] { ATT_FWD<<<blocks, ATT_THREADS, ATT_BYTES>>>(mq, mk, mv, o, lse MORE); };

    std::vector<half_t> once(nq + 2 * PAD), again(once.size());
    bool same = true, outside = false;
    for (int i = 0; i < 6; i++) {
        CU(cudaMemset(room, 0xff, once.size() * sizeof(half_t)));
        CU(cudaMemset(lse, 0xff, rows * sizeof(float)));
        forward();
        CU(cudaGetLastError());
        CU(cudaMemcpy(again.data(), room, again.size() * sizeof(half_t), cudaMemcpyDeviceToHost));
        if (i == 0) once = again;
        same = same && !memcmp(once.data(), again.data(), once.size() * sizeof(half_t));
    }
    for (size_t i = 0; i < PAD; i++) outside = outside || once[i] != 0xffff || once[nq + PAD + i] != 0xffff;
    double *sums = device<double>(4), s[4];
    CU(cudaMemset(sums, 0, sizeof s));
    CU(cudaFuncSetAttribute(compare, cudaFuncAttributeMaxDynamicSharedMemorySize, ATT_T * 8));
    compare<<<1024, THREADS, ATT_T * 8>>>(q, k, v, o, lse, first, rows, rows < 4 * SAMPLES ? (int)rows : SAMPLES, sums);
    CU(cudaGetLastError());
    CU(cudaMemcpy(s, sums, sizeof s, cudaMemcpyDeviceToHost));

    cudaEvent_t t0, t1;
    cudaEventCreate(&t0);
    cudaEventCreate(&t1);
    auto timed = [&](int n) {
        float ms;
        cudaEventRecord(t0);
        for (int i = 0; i < n; i++) forward();
        cudaEventRecord(t1);
        cudaEventSynchronize(t1);
        cudaEventElapsedTime(&ms, t0, t1);
        return ms / n;
    };
    timed(3);
    const double e[2] = {sqrt(s[0] / s[1]), sqrt(s[2] / s[3])}, work = 4.0 * ATT_H * ATT_D * pairs;
    float ms = timed(20);
    const bool bad = !(e[0] < 5e-3) || !(e[1] < 1e-4) || !same || outside;
    printf("B%d H%d/%d T%d D%d causal%d window%d documents%d: errors o %.2e lse %.2e; repeat %s%s; %.4f ms "
           "(%.0f TFLOP/s)", ATT_B, ATT_H, ATT_KV, ATT_T, ATT_D, ATT_CAUSAL, ATT_WINDOW, ATT_LENGTH, e[0], e[1],
           same ? "bitwise" : "DIFFERS", outside ? ", WRITES BESIDE o" : "", ms, work / ms / 1e9);
    if (argc > 1) {
        const Metered t = metered(Meter(), forward, atof(argv[1]), atof(argv[1]));
        printf("; after %s s %.4f ms (%.0f), %u MHz, %.0f W, %.1f mJ", argv[1], t.ms, work / t.ms / 1e9, t.mhz,
               t.mj / t.ms, t.mj);
    }
    printf("%s\n", bad ? "  WRONG" : "");
    return bad;
}
