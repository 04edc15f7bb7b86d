// Every algorithm that cuBLASLt has for a product of bf16 matrices, timed when the card is cool, and the fastest again
// at the card's power limit with the energy that a product takes. Needs nvcc and cuBLASLt:
//   nvcc -std=c++17 -O2 -I. tests/bench/algorithms.cu -lcublasLt -o algorithms
//   algorithms M N K TA TB F32 [SECONDS [MOST]]: d (M x N) = a (M x K) b (K x N), all row-major. TA: a is stored K x M;
//   TB: b is stored K x N, else N x K. F32: d is f32, else bf16. MOST algorithms (8) for SECONDS (1) each, twice.
#include "tests/gpu/meter.h"
#include <algorithm>
#include <cublasLt.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string>
#include <time.h>
#include <vector>
#define OK(x)                                                                                                          \
    do {                                                                                                               \
        if (const int e_ = (int)(x)) {                                                                                 \
            printf("%s:%d: %s: %d\n", __FILE__, __LINE__, #x, e_);                                                     \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

// nearly normal numbers: the energy of a product depends on them
__global__ void fill(uint16_t *p, size_t count, float scale, uint64_t seed) {
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < count; i += (size_t)gridDim.x * blockDim.x) {
        uint64_t z = i + seed * 0x9e3779b97f4a7c15ull;
        float sum = 0;
        z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull, z = (z ^ z >> 27) * 0x94d049bb133111ebull, z ^= z >> 31;
        for (int j = 0; j < 4; j++) sum += (float)(z >> 16 * j & 0xffff) / 65536.f - .5f;
        p[i] = (uint16_t)(__float_as_uint(sum * 1.7320508f * scale) >> 16);
    }
}
static void *numbers(size_t count, float scale, int seed) {
    void *p;
    OK(cudaMalloc(&p, count * 2));
    fill<<<1024, 256>>>((uint16_t *)p, count, scale, seed);
    OK(cudaGetLastError());
    return p;
}

struct Product { // row-major d is d^T of column-major operands in the other order
    cublasLtHandle_t handle;
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t first, second, d;
    void *a, *b, *to, *workspace;
};
static const size_t ROOM = 32 << 20; // bytes of workspace
static cublasLtMatrixLayout_t layout(cudaDataType type, int64_t rows, int64_t columns) {
    cublasLtMatrixLayout_t l;
    OK(cublasLtMatrixLayoutCreate(&l, type, rows, columns, rows));
    return l;
}
static Product product(int64_t m, int64_t n, int64_t k, bool ta, bool tb, bool f32) {
    Product p;
    OK(cublasLtCreate(&p.handle));
    OK(cublasLtMatmulDescCreate(&p.desc, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    const cublasOperation_t first = tb ? CUBLAS_OP_N : CUBLAS_OP_T, second = ta ? CUBLAS_OP_T : CUBLAS_OP_N;
    OK(cublasLtMatmulDescSetAttribute(p.desc, CUBLASLT_MATMUL_DESC_TRANSA, &first, sizeof first));
    OK(cublasLtMatmulDescSetAttribute(p.desc, CUBLASLT_MATMUL_DESC_TRANSB, &second, sizeof second));
    p.first = layout(CUDA_R_16BF, tb ? n : k, tb ? k : n);
    p.second = layout(CUDA_R_16BF, ta ? m : k, ta ? k : m);
    p.d = layout(f32 ? CUDA_R_32F : CUDA_R_16BF, n, m);
    p.a = numbers((size_t)(m * k), 1, 1), p.b = numbers((size_t)(n * k), .02f, 2);
    OK(cudaMalloc(&p.to, (size_t)(m * n) * (f32 ? 4 : 2)));
    OK(cudaMalloc(&p.workspace, ROOM));
    return p;
}

struct Choice { cublasLtMatmulAlgo_t algo; float cool; int rank; }; // rank: among the heuristic's, or -1
static cublasStatus_t run(const Product &p, const cublasLtMatmulAlgo_t &algo) {
    const float one = 1, none = 0;
    return cublasLtMatmul(p.handle, p.desc, &one, p.b, p.first, p.a, p.second, &none, p.to, p.d, p.to, p.d, &algo,
                          p.workspace, ROOM, 0);
}
template <class T> static T config(const cublasLtMatmulAlgo_t &algo, cublasLtMatmulAlgoConfigAttributes_t what) {
    T x = {};
    size_t size;
    cublasLtMatmulAlgoConfigGetAttribute(&algo, what, &x, sizeof x, &size);
    return x;
}
static std::string named(const Choice &c) {
    const cublasLtMatmulAlgo_t &a = c.algo;
    char text[160];
    snprintf(text, sizeof text, "id %d tile %d stages %d cluster %d split %d swizzle %d custom %d inner %d%s%.0d",
             config<int>(a, CUBLASLT_ALGO_CONFIG_ID), config<int>(a, CUBLASLT_ALGO_CONFIG_TILE_ID),
             config<int>(a, CUBLASLT_ALGO_CONFIG_STAGES_ID),
             config<uint16_t>(a, CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID),
             config<int>(a, CUBLASLT_ALGO_CONFIG_SPLITK_NUM), config<int>(a, CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING),
             config<int>(a, CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION),
             config<uint16_t>(a, CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID), c.rank < 0 ? "" : ", heuristic's ", c.rank + 1);
    return text;
}
// milliseconds of one, after a rest; negative: it does not run
static float cool(const Product &p, const cublasLtMatmulAlgo_t &algo, float enough) {
    static cudaEvent_t from, to;
    float ms = -1;
    if (!from) {
        OK(cudaEventCreate(&from));
        OK(cudaEventCreate(&to));
    }
    for (int count : {1, 1, 5}) {
        if (count > 1) {
            if (ms > enough) return ms;
            struct timespec rest = {0, 8000000};
            nanosleep(&rest, NULL);
        }
        OK(cudaEventRecord(from));
        for (int i = 0; i < count; i++)
            if (run(p, algo)) return -1;
        OK(cudaEventRecord(to));
        if (cudaEventSynchronize(to)) return -1;
        OK(cudaEventElapsedTime(&ms, from, to));
        ms /= (float)count;
    }
    return ms;
}
template <class T> static bool with(cublasLtMatmulAlgo_t &algo, cublasLtMatmulAlgoConfigAttributes_t what, T x) {
    return !cublasLtMatmulAlgoConfigSetAttribute(&algo, what, &x, sizeof x);
}
template <class T>
static std::vector<T> list(const cublasLtMatmulAlgo_t &algo, cublasLtMatmulAlgoCapAttributes_t what) {
    size_t size = 0;
    cublasLtMatmulAlgoCapGetAttribute(&algo, what, NULL, 0, &size);
    std::vector<T> x(size / sizeof(T));
    if (size) cublasLtMatmulAlgoCapGetAttribute(&algo, what, x.data(), size, &size);
    return x;
}
static std::vector<Choice> all(const Product &p, bool f32, int *tried) {
    std::vector<Choice> found;
    cublasLtMatmulPreference_t preference;
    OK(cublasLtMatmulPreferenceCreate(&preference));
    OK(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &ROOM, sizeof ROOM));
    cublasLtMatmulHeuristicResult_t best[64];
    int count, ids[256];
    OK(cublasLtMatmulAlgoGetHeuristic(p.handle, p.desc, p.first, p.second, p.d, p.d, preference, 64, best, &count));
    float least = 1e9;
    for (int i = 0; i < count; i++) {
        const float ms = cool(p, best[i].algo, 1e9);
        if (ms > 0) found.push_back({best[i].algo, ms, i}), least = std::min(least, ms);
    }
    const cudaDataType type = f32 ? CUDA_R_32F : CUDA_R_16BF;
    OK(cublasLtMatmulAlgoGetIds(p.handle, CUBLAS_COMPUTE_32F, CUDA_R_32F, CUDA_R_16BF, CUDA_R_16BF, type, type, 256,
                                ids, &count));
    printf("%d algorithms:", count);
    for (int i = 0; i < count; i++) {
        cublasLtMatmulAlgo_t base;
        if (cublasLtMatmulAlgoInit(p.handle, CUBLAS_COMPUTE_32F, CUDA_R_32F, CUDA_R_16BF, CUDA_R_16BF, type, type,
                                   ids[i], &base))
            continue;
        std::vector<uint32_t> tiles = list<uint32_t>(base, CUBLASLT_ALGO_CAP_TILE_IDS),
                              stages = list<uint32_t>(base, CUBLASLT_ALGO_CAP_STAGES_IDS);
        int custom = 0, swizzle = 0;
        size_t size;
        cublasLtMatmulAlgoCapGetAttribute(&base, CUBLASLT_ALGO_CAP_CUSTOM_OPTION_MAX, &custom, sizeof custom, &size);
        cublasLtMatmulAlgoCapGetAttribute(&base, CUBLASLT_ALGO_CAP_CTA_SWIZZLING_SUPPORT, &swizzle, sizeof swizzle,
                                          &size);
        printf(" %d (%d tiles, %d stages, %d options, swizzle %d)", ids[i], (int)tiles.size(), (int)stages.size(),
               custom, swizzle);
        if (ids[i] < 60) continue; // older cards'
        if (tiles.empty()) tiles.push_back(0);
        if (stages.empty()) stages.push_back(0);
        for (uint32_t tile : tiles)
            for (uint32_t stage : stages)
                for (int option = 0; option <= custom && option < 8; option++)
                    for (int turn = 0; turn <= (swizzle ? 1 : 0); turn++)
                        for (uint16_t cluster : {0, 2, 3, 5, 6, 4, 8}) {
                            Choice c = {base, 0, -1};
                            cublasLtMatmulHeuristicResult_t result;
                            if (!with(c.algo, CUBLASLT_ALGO_CONFIG_TILE_ID, tile) ||
                                !with(c.algo, CUBLASLT_ALGO_CONFIG_STAGES_ID, stage) ||
                                !with(c.algo, CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION, option) ||
                                !with(c.algo, CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING, turn) ||
                                !with(c.algo, CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, cluster) ||
                                cublasLtMatmulAlgoCheck(p.handle, p.desc, p.first, p.second, p.d, p.d, &c.algo,
                                                        &result) ||
                                result.workspaceSize > ROOM)
                                continue;
                            ++*tried;
                            c.cool = cool(p, c.algo, 1.3f * least);
                            if (c.cool > 0) found.push_back(c), least = std::min(least, c.cool);
                            if (clock() > 25 * CLOCKS_PER_SEC) return found;
                        }
    }
    puts("");
    return found;
}

int main(int argc, char **argv) {
    if (argc < 7) return puts("algorithms M N K TA TB F32 [SECONDS [MOST]]"), 2;
    const int64_t m = atoll(argv[1]), n = atoll(argv[2]), k = atoll(argv[3]);
    const bool f32 = atoi(argv[6]);
    const double seconds = argc > 7 ? atof(argv[7]) : 1;
    const size_t most = argc > 8 ? (size_t)atoi(argv[8]) : 8;
    const Product p = product(m, n, k, atoi(argv[4]), atoi(argv[5]), f32);
    int tried = 0;
    std::vector<Choice> found = all(p, f32, &tried);
    std::stable_sort(found.begin(), found.end(), [](const Choice &a, const Choice &b) { return a.cool < b.cool; });
    printf("%lld x %lld x %lld: %d run of %d\n", (long long)m, (long long)n, (long long)k, (int)found.size(), tried);
    const Meter meter;
    for (int again = 0; again < 2; again++)
        for (size_t i = 0; i < found.size() && i < most; i++) {
            const Metered t = metered(meter, [&] { run(p, found[i].algo); }, seconds / 2, seconds);
            printf("  cool %.4f, hot %.4f ms (%.0f TFLOP/s) %u MHz %.0f W %.1f mJ  %s\n", found[i].cool, t.ms,
                   2e-9 * (double)(m * n * k) / t.ms, t.mhz, t.mj / t.ms, t.mj, named(found[i]).c_str());
            fflush(stdout);
        }
    return 0;
}
