// Symmetric products (codegen/cuda/templates/symmetric.cu) beside strided batches of cuBLASLt's best algorithm, as the
// steps of Muon have them, on one GPU of sm_90a:
//   nvcc -std=c++17 -gencode=arch=compute_90a,code=sm_90a -O2 -I. tests/bench/symmetric.cu -lcublasLt -o symmetric
//   symmetric [SECONDS]    each product, checked and timed; then all products of GPT-2 124M's Muon, in turns
#include "codegen/cuda/templates/common.cu"
#include "codegen/cuda/templates/wgmma.cu"
#define SY_T bf16
#define SY_SHARED 99376
#define SY_ADDS 0
#define SY_ALPHA 1.0f
#define SY_BETA 0.0f
#define SY_KERNEL wide
#define SY_DEEP 0
#include "codegen/cuda/templates/symmetric.cu"
#undef SY_KERNEL
#undef SY_DEEP
#define SY_KERNEL tall
#define SY_DEEP 1
#include "codegen/cuda/templates/symmetric.cu"
#undef SY_KERNEL
#undef SY_DEEP
#undef SY_ADDS
#undef SY_ALPHA
#undef SY_BETA
#define SY_KERNEL twice
#define SY_DEEP 0
#define SY_ADDS 1
#define SY_ALPHA 2.0315f
#define SY_BETA -4.7750f
#include "codegen/cuda/templates/symmetric.cu"

#include <cublasLt.h>
#include <cuda.h>
#include <cuda_runtime.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <vector>
#define OK(x)                                                                                                          \
    do {                                                                                                               \
        if (const int e_ = (int)(x)) {                                                                                 \
            printf("%s:%d: %s: %d %s\n", __FILE__, __LINE__, #x, e_, cudaGetErrorString(cudaGetLastError()));          \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

static cublasLtHandle_t lt;
static cudaStream_t stream;

// --- cuBLASLt: row-major d (m x n) = alpha a b + beta c, `batch` times

struct Plain {
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t a, b, d;
    cublasLtMatmulAlgo_t algo;
};
static cublasLtMatrixLayout_t layout(int rows, int cols, int batch) {
    cublasLtMatrixLayout_t l;
    const int64_t stride = (int64_t)rows * cols;
    OK(cublasLtMatrixLayoutCreate(&l, CUDA_R_16BF, cols, rows, cols));
    OK(cublasLtMatrixLayoutSetAttribute(l, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batch, sizeof batch));
    OK(cublasLtMatrixLayoutSetAttribute(l, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride, sizeof stride));
    return l;
}
static void run(const Plain &p, const bf16 *a, const bf16 *b, const bf16 *c, bf16 *d, float alpha, float beta) {
    OK(cublasLtMatmul(lt, p.desc, &alpha, b, p.b, a, p.a, &beta, c, p.d, d, p.d, &p.algo, NULL, 0, stream));
}
template <class F> static float milliseconds(int times, F f) { // of one, in a graph
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    cudaEvent_t from, to;
    float ms;
    OK(cudaEventCreate(&from));
    OK(cudaEventCreate(&to));
    OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < times; i++) f();
    OK(cudaStreamEndCapture(stream, &graph));
    OK(cudaGraphInstantiate(&exec, graph, 0));
    OK(cudaGraphLaunch(exec, stream));
    OK(cudaEventRecord(from, stream));
    OK(cudaGraphLaunch(exec, stream));
    OK(cudaEventRecord(to, stream));
    OK(cudaStreamSynchronize(stream));
    OK(cudaEventElapsedTime(&ms, from, to));
    OK(cudaGraphExecDestroy(exec));
    OK(cudaGraphDestroy(graph));
    return ms / (float)times;
}
static Plain plain(int m, int n, int k, bool ta, bool tb, int batch, const bf16 *a, const bf16 *b, bf16 *d) {
    Plain p, best;
    const cublasOperation_t turned = CUBLAS_OP_T;
    cublasLtMatmulPreference_t preference;
    cublasLtMatmulHeuristicResult_t found[24];
    int got = 0;
    const uint64_t none = 0;
    float least = INFINITY;
    OK(cublasLtMatmulDescCreate(&p.desc, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    if (tb) OK(cublasLtMatmulDescSetAttribute(p.desc, CUBLASLT_MATMUL_DESC_TRANSA, &turned, sizeof turned));
    if (ta) OK(cublasLtMatmulDescSetAttribute(p.desc, CUBLASLT_MATMUL_DESC_TRANSB, &turned, sizeof turned));
    p.a = ta ? layout(k, m, batch) : layout(m, k, batch);
    p.b = tb ? layout(n, k, batch) : layout(k, n, batch);
    p.d = layout(m, n, batch);
    OK(cublasLtMatmulPreferenceCreate(&preference));
    OK(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &none, sizeof none));
    OK(cublasLtMatmulAlgoGetHeuristic(lt, p.desc, p.b, p.a, p.d, p.d, preference, 24, found, &got));
    for (int i = 0; i < got; i++) {
        p.algo = found[i].algo;
        const float ms = milliseconds(20, [&] { run(p, a, b, d, d, 1, 0); });
        if (ms < least) least = ms, best = p;
    }
    return best;
}

// --- ours

static GwMap map_of(const bf16 *at, int cols, int rows, int many) {
    CUtensorMap map;
    GwMap m;
    const cuuint64_t row = 2 * (cuuint64_t)cols, dims[] = {(cuuint64_t)cols, (cuuint64_t)rows, (cuuint64_t)many, 1},
                     strides[] = {row, row * rows, row * rows * many};
    const cuuint32_t box[] = {64, 64, 1, 1}, steps[] = {1, 1, 1, 1};
    OK(cuTensorMapEncodeTiled(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 4, (void *)at, dims, strides, box, steps,
                              CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                              CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE));
    memcpy(&m, &map, sizeof m);
    return m;
}
typedef void (*Kernel)(const GwMap, const GwMap, int);
enum { WIDE, TALL, TWICE };
static const Kernel kernels[] = {wide, tall, twice};
static void symmetric(int which, const bf16 *a, bf16 *d, int rows, int cols, int batch) {
    const int n = which == TALL ? cols : rows, k = which == TALL ? rows : cols, tiles = (n + 127) / 128;
    const GwMap from = map_of(a, cols, rows, batch), to = map_of(d, n, n, batch);
    cudaLaunchAttribute early;
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t how = {};
    how.gridDim = dim3(tiles * (tiles + 1) / 2, batch), how.blockDim = dim3(288), how.dynamicSmemBytes = SY_SHARED;
    how.stream = stream, how.attrs = &early, how.numAttrs = 1;
    OK(cudaLaunchKernelEx(&how, kernels[which], from, to, k));
}

// --- matrices

static bf16 *filled(size_t count, double size, unsigned seed) {
    std::vector<bf16> x(count);
    bf16 *at;
    for (size_t i = 0; i < count; i++) {
        seed = seed * 1664525u + 1013904223u;
        const float v = (float)(((seed >> 8) / 8388608.0 - 1) * size);
        unsigned bits;
        memcpy(&bits, &v, 4);
        x[i].bits = (unsigned short)(bits >> 16);
    }
    OK(cudaMalloc(&at, count * 2));
    OK(cudaMemcpy(at, x.data(), count * 2, cudaMemcpyHostToDevice));
    return at;
}
static float number(bf16 x) {
    const unsigned bits = (unsigned)x.bits << 16;
    float v;
    memcpy(&v, &bits, 4);
    return v;
}
// The largest difference of two results, in parts of the largest element; whether the first one is symmetric.
static double apart(const bf16 *x, const bf16 *y, int n, int batch, bool *symmetric) {
    const size_t count = (size_t)batch * n * n;
    std::vector<bf16> a(count), b(count);
    double off = 0, most = 0;
    *symmetric = true;
    OK(cudaMemcpy(a.data(), x, 2 * count, cudaMemcpyDeviceToHost));
    OK(cudaMemcpy(b.data(), y, 2 * count, cudaMemcpyDeviceToHost));
    for (size_t i = 0; i < count; i++) {
        const size_t turned = i / ((size_t)n * n) * n * n + i % n * n + i / n % n;
        const double d = fabs(number(a[i]) - number(b[i]));
        off = d > off || d != d ? d : off, most = fmax(most, fabs(number(b[i])));
        *symmetric = *symmetric && a[i].bits == a[turned].bits;
    }
    return off / most;
}
struct Shape { int rows, cols, batch; };
struct Matrices { bf16 *x, *y, *g, *h, *other; Plain square, twice, step; };

static Matrices matrices(const Shape &s) {
    const bool tall = s.rows > s.cols;
    const int least = tall ? s.cols : s.rows, other = tall ? s.rows : s.cols;
    const size_t count = (size_t)s.batch * s.rows * s.cols, square = (size_t)s.batch * least * least;
    Matrices m;
    m.x = filled(count, sqrt(3.0 / other), 1), m.y = filled(count, 1, 2);
    m.g = filled(square, 1, 3), m.h = filled(square, 1, 4), m.other = filled(square, 1, 5);
    m.square = plain(least, least, other, tall, !tall, s.batch, m.x, m.x, m.g);
    m.twice = plain(least, least, least, false, false, s.batch, m.g, m.g, m.h);
    m.step = plain(s.rows, s.cols, least, false, false, s.batch, tall ? m.x : m.h, tall ? m.h : m.x, m.y);
    return m;
}
static void step(const Shape &s, const Matrices &m, bool own) {
    const bool tall = s.rows > s.cols;
    const int least = tall ? s.cols : s.rows;
    if (own) {
        symmetric(tall ? TALL : WIDE, m.x, m.g, s.rows, s.cols, s.batch);
        symmetric(TWICE, m.g, m.h, least, least, s.batch);
    } else {
        run(m.square, m.x, m.x, m.g, m.g, 1, 0);
        run(m.twice, m.g, m.g, m.g, m.h, 2.0315f, -4.7750f);
    }
    run(m.step, tall ? m.x : m.h, tall ? m.h : m.x, m.x, m.y, 1, 3.4445f);
}

int main(int argc, char **argv) {
    const double seconds = argc > 1 ? atof(argv[1]) : 1;
    static const Shape shapes[] = {{2304, 768, 12},  {768, 768, 12},  {3072, 768, 12}, {768, 3072, 12}, {768, 2304, 12},
                                   {1024, 1024, 8}, {1024, 4096, 8}, {200, 328, 3},   {2048, 2048, 2}, {3072, 768, 1}};
    enum { SHAPES = sizeof shapes / sizeof *shapes, OF_GPT2 = 4 };
    Matrices all[SHAPES];
    bool bad = false;
    OK(cudaFree(0));
    OK(cudaStreamCreate(&stream));
    OK(cublasLtCreate(&lt));
    for (Kernel k : kernels) OK(cudaFuncSetAttribute(k, cudaFuncAttributeMaxDynamicSharedMemorySize, SY_SHARED));
    printf("us; TFLOP/s as if all of the product were computed\n%-24s %18s %18s\n", "", "cuBLASLt", "symmetric");
    for (int i = 0; i < SHAPES; i++) {
        const Shape s = shapes[i];
        const bool tall = s.rows > s.cols;
        const int least = tall ? s.cols : s.rows, other = tall ? s.rows : s.cols;
        const Matrices m = all[i] = matrices(s);
        for (int what = 0; what < 2; what++) {
            const double work = 2e-6 * s.batch * least * least * (what ? least : other);
            auto theirs = [&] {
                if (what) run(m.twice, m.g, m.g, m.g, m.h, 2.0315f, -4.7750f);
                else run(m.square, m.x, m.x, m.g, m.g, 1, 0);
            };
            auto ours = [&] {
                if (what) symmetric(TWICE, m.g, m.other, least, least, s.batch);
                else symmetric(tall ? TALL : WIDE, m.x, m.other, s.rows, s.cols, s.batch);
            };
            bool same;
            OK(cudaMemset(m.other, 0xff, 2 * (size_t)s.batch * least * least));
            theirs(), ours();
            OK(cudaStreamSynchronize(stream));
            const double off = apart(m.other, what ? m.h : m.g, least, s.batch, &same);
            const bool right = off < 0.01 && same;
            bad |= !right;
            const double us[] = {1e3 * milliseconds(100, theirs), 1e3 * milliseconds(100, ours)};
            printf("%4d x %4d x %2d %-7s %8.1f %7.0f   %8.1f %7.0f%s\n", s.rows, s.cols, s.batch,
                   what ? "g g" : tall ? "x' x" : "x x'", us[0], work / us[0], us[1], work / us[1],
                   right ? "" : " WRONG");
            fflush(stdout);
        }
    }
    printf("five steps of GPT-2 124M's matrices, ms, in turns\n");
    for (int turn = 0; turn < 6; turn++) {
        auto five = [&] {
            for (int i = 0; i < OF_GPT2; i++)
                for (int k = 0; k < 5; k++) step(shapes[i], all[i], turn % 2);
        };
        printf("%-20s %.3f\n", turn % 2 ? "symmetric" : "cuBLASLt", milliseconds((int)(seconds / 0.0025) + 1, five));
        fflush(stdout);
    }
    return bad;
}
