// Products with an epilogue (product_kernel.cu) beside cuBLASLt: tests/bench/product.sh builds and runs it.
//   product list                    the kernels
//   product check KERNEL            on one shape, against cuBLASLt and separate kernels, and in double precision
//   product time SECONDS [CASE...]  each case: cuBLASLt (the best of its first 16 candidates), then each kernel, in
//                                   turns, for SECONDS each at the card's power limit
#include "tests/bench/product_kernel.cu"
#include "tests/bench/product_plain.cu"
#include <cublasLt.h>
#include <cuda.h>
#include <cuda_runtime.h>
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <string>
#include <vector>
#define OK(x)                                                                                                          \
    do {                                                                                                               \
        if (const int e_ = (int)(x)) {                                                                                 \
            printf("%s:%d: %s: %d %s\n", __FILE__, __LINE__, #x, e_, cudaGetErrorString(cudaGetLastError()));          \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)
#define LENGTH(a) ((int)(sizeof(a) / sizeof *(a)))

// --- the kernels

struct Kernel {
    const char *name;
    int ta, tb, epilogue, rows, columns, cluster, shared; // rows of a cluster's tile, columns of its results
    void (*launch)(Tensors);
};
template <int MB, int NB, bool EACH, int CL, int STAGES, int TA, int TB, int EPI>
static Kernel kernel(const char *name) {
    typedef Product<MB, NB, EACH, CL, STAGES, TA, TB, EPI> P;
    return {name, TA, TB, EPI, P::BM * CL, P::OWN, CL, P::SHARED, product<P>};
}
static const Kernel kernels[] = {
    kernel<1, 256, 0, 2, 4, 0, 0, PLAIN>("128x256 c2 s4"),
    kernel<1, 256, 0, 2, 4, 0, 1, PLAIN>("nn 128x256 c2 s4"),
    kernel<1, 256, 0, 2, 4, 1, 1, PLAIN_F32>("tn 128x256 c2 s4"),
    kernel<2, 128, 1, 2, 5, 0, 0, PLAIN>("each 128x128 c2 s5"),
    kernel<2, 128, 1, 2, 5, 0, 0, GELU>("each 128x128 c2 s5 gelu"),
    kernel<2, 128, 1, 2, 5, 0, 0, SWIGLU>("each 128x128 c2 s5 swiglu"),
    kernel<2, 128, 1, 2, 5, 0, 1, GELU_GRAD>("nn each 128x128 c2 s5 gelu_grad"),
    kernel<2, 128, 1, 2, 5, 0, 1, SWIGLU_GRAD>("nn each 128x128 c2 s5 swiglu_grad"),
};

struct Case {
    const char *model, *what;
    int m, n, k, ta, tb, epilogue;
};
static const Case cases[] = {
    {"Llama 1.24B", "q, o", 16384, 2048, 2048, 0, 0, PLAIN},
    {"Llama 1.24B", "k, v", 16384, 512, 2048, 0, 0, PLAIN},
    {"Llama 1.24B", "gate, up", 16384, 8192, 2048, 0, 0, PLAIN},
    {"Llama 1.24B", "down", 16384, 2048, 8192, 0, 0, PLAIN},
    {"Llama 1.24B", "dX of q, o", 16384, 2048, 2048, 0, 1, PLAIN},
    {"Llama 1.24B", "dX of k, v", 16384, 2048, 512, 0, 1, PLAIN},
    {"Llama 1.24B", "dX of gate, up", 16384, 2048, 8192, 0, 1, PLAIN},
    {"Llama 1.24B", "dX of down", 16384, 8192, 2048, 0, 1, PLAIN},
    {"Llama 1.24B", "dW of q, o", 2048, 2048, 16384, 1, 1, PLAIN_F32},
    {"Llama 1.24B", "dW of k, v", 512, 2048, 16384, 1, 1, PLAIN_F32},
    {"Llama 1.24B", "dW of gate, up", 8192, 2048, 16384, 1, 1, PLAIN_F32},
    {"Llama 1.24B", "dW of down", 2048, 8192, 16384, 1, 1, PLAIN_F32},
    {"Llama 1.24B", "gate and up, gated", 16384, 8192, 2048, 0, 0, SWIGLU},
    {"Llama 1.24B", "dX of down, gated", 16384, 8192, 2048, 0, 1, SWIGLU_GRAD},
    {"GPT-2 124M", "q k v", 32768, 2304, 768, 0, 0, PLAIN},
    {"GPT-2 124M", "fc", 32768, 3072, 768, 0, 0, PLAIN},
    {"GPT-2 124M", "proj", 32768, 768, 3072, 0, 0, PLAIN},
    {"GPT-2 124M", "dX of fc", 32768, 768, 3072, 0, 1, PLAIN},
    {"GPT-2 124M", "dX of proj", 32768, 3072, 768, 0, 1, PLAIN},
    {"GPT-2 124M", "dW of fc", 3072, 768, 32768, 1, 1, PLAIN_F32},
    {"GPT-2 124M", "fc, gelu", 32768, 3072, 768, 0, 0, GELU},
    {"GPT-2 124M", "dX of proj, gelu", 32768, 3072, 768, 0, 1, GELU_GRAD},
    {"Llama 8B", "down", 4096, 4096, 14336, 0, 0, PLAIN},
    {"Llama 8B", "gate, up", 4096, 14336, 4096, 0, 0, PLAIN},
    {"Llama 8B", "gate and up, gated", 4096, 14336, 4096, 0, 0, SWIGLU},
    {"Llama 8B", "dX of down, gated", 4096, 14336, 4096, 0, 1, SWIGLU_GRAD},
    {"GPT-2 1558M", "fc", 16384, 6400, 1600, 0, 0, PLAIN},
    {"GPT-2 1558M", "proj", 16384, 1600, 6400, 0, 0, PLAIN},
    {"GPT-2 1558M", "fc, gelu", 16384, 6400, 1600, 0, 0, GELU},
    {"GPT-2 1558M", "dX of proj, gelu", 16384, 6400, 1600, 0, 1, GELU_GRAD},
};

// --- a case's memory. out: of our kernel; other: of cuBLASLt and separate kernels

struct Buffers {
    char *a, *b, *b2, *in[2], *out[3], *other[3], *product, *workspace;
    bf16 *bias;
    float *sums[2], *total[2]; // GELU_GRAD: parts and column sums, ours and the other's
    size_t bytes;              // of one result
};
static char *filled(size_t count, float scale, u32 seed) {
    char *p;
    OK(cudaMalloc(&p, count * 2));
    fill<<<1024, 256>>>((bf16 *)p, (long long)count, scale, seed);
    return p;
}
static Buffers buffers(const Case &c) {
    Buffers x = {};
    const size_t m = c.m, n = c.n, k = c.k;
    const bool grad = c.epilogue == GELU_GRAD || c.epilogue == SWIGLU_GRAD || c.ta || c.tb;
    x.a = filled(m * k, grad ? .01f : 1.f, 1);
    x.b = filled(n * k, c.ta ? 1.f : .02f, 2);
    x.b2 = c.epilogue == SWIGLU ? filled(n * k, .02f, 3) : x.b;
    for (int i = 0; i < 2; i++) x.in[i] = c.epilogue >= GELU_GRAD ? filled(m * n, 1.f, 4 + i) : x.a;
    x.bias = (bf16 *)filled(n, .1f, 6);
    x.bytes = m * n * (c.epilogue == PLAIN_F32 ? 4 : 2);
    const int outs = c.epilogue <= PLAIN_F32 ? 1 : c.epilogue == SWIGLU || c.epilogue == SWIGLU_GRAD ? 3 : 2;
    for (int i = 0; i < 3; i++)
        if (i < outs) {
            OK(cudaMalloc(&x.out[i], x.bytes + 4096));
            OK(cudaMalloc(&x.other[i], x.bytes));
        }
    OK(cudaMalloc(&x.product, x.bytes));
    OK(cudaMalloc(&x.workspace, 32 << 20));
    for (int i = 0; i < 2; i++) {
        OK(cudaMalloc(&x.sums[i], (m / 64 + 1) * n * 4));
        OK(cudaMalloc(&x.total[i], n * 4));
    }
    OK(cudaDeviceSynchronize());
    return x;
}
static void release(const Case &c, Buffers &x) {
    char *all[] = {x.a, x.b, x.b2 == x.b ? NULL : x.b2, c.epilogue >= GELU_GRAD ? x.in[0] : NULL,
                   c.epilogue >= GELU_GRAD ? x.in[1] : NULL, (char *)x.bias, x.out[0], x.out[1], x.out[2], x.other[0],
                   x.other[1], x.other[2], x.product, x.workspace, (char *)x.sums[0], (char *)x.sums[1],
                   (char *)x.total[0], (char *)x.total[1]};
    for (char *p : all) OK(cudaFree(p));
}

// --- our kernels

typedef CUresult (*Encode)(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *, const cuuint64_t *,
                           const cuuint64_t *, const cuuint32_t *, const cuuint32_t *, CUtensorMapInterleave,
                           CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill);
static Map map(void *p, int rows, int columns, bool f32 = false) {
    static Encode encode;
    cudaDriverEntryPointQueryResult found;
    if (!encode)
        OK(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", (void **)&encode, 12000, cudaEnableDefault,
                                            &found));
    Map m;
    static_assert(sizeof m == sizeof(CUtensorMap), "tensor maps are of another size");
    const int size = f32 ? 4 : 2;
    const cuuint64_t dims[] = {(cuuint64_t)columns, (cuuint64_t)rows}, strides[] = {(cuuint64_t)columns * size};
    const cuuint32_t box[] = {128u / size, 64}, step[] = {1, 1};
    OK(encode((CUtensorMap *)&m, f32 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT32 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, p, dims,
              strides, box, step, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
              CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE));
    return m;
}
static Tensors tensors(const Case &c, const Kernel &k, const Buffers &x, int tall) {
    Tensors t = {};
    t.a = c.ta ? map(x.a, c.k, c.m) : map(x.a, c.m, c.k);
    t.b = c.tb ? map(x.b, c.k, c.n) : map(x.b, c.n, c.k);
    t.b2 = c.tb ? map(x.b2, c.k, c.n) : map(x.b2, c.n, c.k);
    for (int i = 0; i < 2; i++)
        if (c.epilogue >= GELU_GRAD) t.in[i] = map(x.in[i], c.m, c.n);
    for (int i = 0; i < 3; i++)
        if (x.out[i]) t.out[i] = map(x.out[i], c.m, c.n, c.epilogue == PLAIN_F32);
    t.bias = x.bias;
    t.sums = x.sums[0];
    t.m = c.m, t.n = c.n, t.k = c.k, t.tall = tall;
    t.tiles_m = (c.m + k.rows - 1) / k.rows, t.tiles_n = (c.n + k.columns - 1) / k.columns;
    return t;
}
static void launch(const Case &c, const Kernel &k, const Buffers &x, const Tensors &t) {
    static int blocks;
    if (!blocks) OK(cudaDeviceGetAttribute(&blocks, cudaDevAttrMultiProcessorCount, 0));
    cudaLaunchAttribute cluster;
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim = {(unsigned)k.cluster, 1, 1};
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(blocks / k.cluster * k.cluster), config.blockDim = dim3(384);
    config.dynamicSmemBytes = k.shared, config.attrs = &cluster, config.numAttrs = 1;
    OK(cudaLaunchKernelEx(&config, k.launch, t));
    if (c.epilogue == GELU_GRAD) add_sums(x.sums[0], x.total[0], c.m / 64, c.n);
}

// --- cuBLASLt and separate kernels

struct Library {
    cublasLtHandle_t handle;
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t a, b, d;
    std::vector<cublasLtMatmulHeuristicResult_t> found;
    int best;
};
static Library library(const Case &c) { // row-major d is d^T of column-major operands in the other order
    Library l = {};
    OK(cublasLtCreate(&l.handle));
    OK(cublasLtMatmulDescCreate(&l.desc, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    const cublasOperation_t opb = c.tb ? CUBLAS_OP_N : CUBLAS_OP_T, opa = c.ta ? CUBLAS_OP_T : CUBLAS_OP_N;
    OK(cublasLtMatmulDescSetAttribute(l.desc, CUBLASLT_MATMUL_DESC_TRANSA, &opb, sizeof opb));
    OK(cublasLtMatmulDescSetAttribute(l.desc, CUBLASLT_MATMUL_DESC_TRANSB, &opa, sizeof opa));
    OK(cublasLtMatrixLayoutCreate(&l.b, CUDA_R_16BF, c.tb ? c.n : c.k, c.tb ? c.k : c.n, c.tb ? c.n : c.k));
    OK(cublasLtMatrixLayoutCreate(&l.a, CUDA_R_16BF, c.ta ? c.m : c.k, c.ta ? c.k : c.m, c.ta ? c.m : c.k));
    OK(cublasLtMatrixLayoutCreate(&l.d, c.epilogue == PLAIN_F32 ? CUDA_R_32F : CUDA_R_16BF, c.n, c.m, c.n));
    cublasLtMatmulPreference_t preference;
    OK(cublasLtMatmulPreferenceCreate(&preference));
    const size_t room = 32 << 20;
    OK(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &room, sizeof room));
    l.found.resize(16);
    int count;
    OK(cublasLtMatmulAlgoGetHeuristic(l.handle, l.desc, l.b, l.a, l.d, l.d, preference, 16, l.found.data(), &count));
    l.found.resize(count);
    OK(cublasLtMatmulPreferenceDestroy(preference));
    return l;
}
static void multiply(const Library &l, const Buffers &x, const char *b, char *to) {
    const float one = 1, none = 0;
    OK(cublasLtMatmul(l.handle, l.desc, &one, b, l.b, x.a, l.a, &none, to, l.d, to, l.d, &l.found[l.best].algo,
                      x.workspace, 32 << 20, 0));
}
static void separately(const Case &c, const Library &l, const Buffers &x) {
    const bf16 *h = (bf16 *)x.in[0], *u = (bf16 *)x.in[1], *d = (bf16 *)x.product;
    bf16 *to[3] = {(bf16 *)x.other[0], (bf16 *)x.other[1], (bf16 *)x.other[2]};
    const long long count = (long long)c.m * c.n;
    const int blocks = (int)((count / 8 + 255) / 256);
    switch (c.epilogue) {
    case GELU:
        multiply(l, x, x.b, x.other[0]);
        gelu_map<<<blocks, 256>>>(to[0], x.bias, to[1], count, c.n);
        break;
    case SWIGLU:
        multiply(l, x, x.b2, x.other[1]);
        multiply(l, x, x.b, x.other[0]);
        swiglu_map<<<blocks, 256>>>(to[0], to[1], to[2], count);
        break;
    case GELU_GRAD:
        multiply(l, x, x.b, x.product);
        gelu_grad_rows<<<dim3((c.n + 511) / 512, (c.m + 63) / 64), 256>>>(h, x.bias, d, to[0], to[1], x.sums[1], c.m,
                                                                          c.n);
        add_sums(x.sums[1], x.total[1], c.m / 64, c.n);
        break;
    case SWIGLU_GRAD:
        multiply(l, x, x.b, x.product);
        swiglu_grad_map<<<blocks, 256>>>(h, u, d, to[0], to[1], to[2], count);
        break;
    default: multiply(l, x, x.b, x.other[0]);
    }
    OK(cudaGetLastError());
}

// --- agreement

static double wide(const char *p, size_t i, bool f32) {
    if (f32) return ((const float *)p)[i];
    const u32 bits = (u32)((const unsigned short *)p)[i] << 16;
    float f;
    memcpy(&f, &bits, 4);
    return f;
}
static std::vector<char> copied(const void *p, size_t bytes) {
    std::vector<char> to(bytes);
    OK(cudaMemcpy(to.data(), p, bytes, cudaMemcpyDeviceToHost));
    return to;
}
struct Inputs { std::vector<char> a, b, b2, in[2], bias; };
static double dot(const Case &c, const std::vector<char> &a, const std::vector<char> &b, size_t i, size_t j) {
    double sum = 0;
    for (size_t k = 0; k < (size_t)c.k; k++)
        sum += wide(a.data(), c.ta ? k * c.m + i : i * c.k + k, false) *
               wide(b.data(), c.tb ? k * c.n + j : j * c.k + k, false);
    return sum;
}
// the results at row i, column j in double precision; returns how large the numbers that they are made of are
static double expected(const Case &c, const Inputs &in, size_t i, size_t j, double *to) {
    const double x = dot(c, in.a, in.b, i, j), pi = 3.14159265358979323846;
    const size_t at = i * c.n + j;
    if (c.epilogue == SWIGLU || c.epilogue == SWIGLU_GRAD) {
        const bool grad = c.epilogue == SWIGLU_GRAD;
        const double g = grad ? wide(in.in[0].data(), at, false) : x, s = 1 / (1 + exp(-g));
        const double u = grad ? wide(in.in[1].data(), at, false) : dot(c, in.a, in.b2, i, j);
        to[0] = grad ? x * u * s * (1 + g * (1 - s)) : g;
        to[1] = grad ? x * g * s : u;
        to[2] = g * s * u;
        return grad ? fabs(x) * (1 + fabs(u)) : fabs(g) + fabs(u);
    }
    to[0] = x;
    if (c.epilogue != GELU && c.epilogue != GELU_GRAD) return fabs(x);
    const double h = c.epilogue == GELU ? x : wide(in.in[0].data(), at, false);
    const double z = h + wide(in.bias.data(), j, false), q = sqrt(2 / pi);
    const double t = tanh(q * (z + 0.044715 * z * z * z));
    to[1] = 0.5 * z * (1 + t);
    if (c.epilogue == GELU_GRAD)
        to[0] = x * (0.5 * (1 + t) + 0.5 * z * (1 - t * t) * q * (1 + 3 * 0.044715 * z * z));
    return fabs(x) + 1; // of the rounding of h + bias
}
static bool compare(const Case &c, const Buffers &x, int o, const Inputs &in) {
    const bool f32 = c.epilogue == PLAIN_F32;
    const size_t count = (size_t)c.m * c.n;
    const std::vector<char> ours = copied(x.out[o], x.bytes + 4096), theirs = copied(x.other[o], x.bytes);
    double square = 0, worst = 0, sampled = 0;
    size_t differ = 0, bad = 0, where = 0, past = 0;
    for (size_t i = 0; i < count; i++) square += wide(theirs.data(), i, f32) * wide(theirs.data(), i, f32);
    const double rms = sqrt(square / count);
    for (size_t i = 0; i < count; i++) { // each rounds a sum in its own order once: neighbours of a bf16, rarely more
        const double p = wide(ours.data(), i, f32), q = wide(theirs.data(), i, f32), d = fabs(p - q);
        differ += p != q;
        if (!(d <= (f32 ? 1e-4 : 0.016) * (fabs(q) + rms)) && !bad++) where = i;
        if (d / rms > worst) worst = d / rms;
    }
    for (size_t i = x.bytes; i < x.bytes + 4096; i++) past += ours[i] != (char)0xff;
    size_t off = 0;
    for (int s = 0; s < 400; s++) {
        const size_t i = (size_t)s * 2654435761u % c.m, j = (size_t)s * 40503u % c.n;
        double to[3] = {};
        const double large = expected(c, in, i, j, to);
        const double d = fabs(wide(ours.data(), i * c.n + j, f32) - to[o]) / (large + fabs(to[o]));
        if (!(d <= (f32 ? 1e-4 : 0.012))) off++;
        if (!(d <= sampled)) sampled = d;
    }
    printf(" [%d] differ %.2f %%, most %.1e rms; in double %.1e;", o, 100. * differ / count, worst, sampled);
    if (bad) printf(" %zu WRONG, first at row %zu column %zu;", bad, where / c.n, where % c.n);
    if (off || past) printf(" %zu SAMPLES OFF, %zu bytes past the end;", off, past);
    return !bad && !off && !past;
}
static bool check(const Kernel &k) {
    const Case c = {"", "", 4096 + 64, 1600, 456, k.ta, k.tb, k.epilogue}; // fills no tile, and more tiles than blocks
    Buffers x = buffers(c);
    const Library l = library(c);
    separately(c, l, x);
    bool ok = true;
    std::vector<char> before[3];
    for (int again = 0; again < 2; again++) {
        for (int o = 0; o < 3; o++)
            if (x.out[o]) OK(cudaMemset(x.out[o], 0xff, x.bytes + 4096));
        launch(c, k, x, tensors(c, k, x, 3));
        OK(cudaDeviceSynchronize());
        for (int o = 0; o < 3; o++) {
            if (!x.out[o]) continue;
            std::vector<char> now = copied(x.out[o], x.bytes);
            if (again && now != before[o]) printf(" NOT REPEATED"), ok = false;
            before[o] = now;
        }
    }
    Inputs in = {copied(x.a, (size_t)c.m * c.k * 2), copied(x.b, (size_t)c.n * c.k * 2),
                 copied(x.b2, (size_t)c.n * c.k * 2), {}, copied(x.bias, c.n * 2)};
    for (int i = 0; i < 2 && c.epilogue >= GELU_GRAD; i++) in.in[i] = copied(x.in[i], x.bytes);
    for (int o = 0; o < 3; o++)
        if (x.out[o] && !compare(c, x, o, in)) ok = false;
    if (c.epilogue == GELU_GRAD) {
        const std::vector<char> p = copied(x.total[0], c.n * 4), q = copied(x.total[1], c.n * 4);
        double worst = 0;
        for (int i = 0; i < c.n; i++) worst = fmax(worst, fabs(wide(p.data(), i, true) - wide(q.data(), i, true)));
        printf(" sums differ by %.1e at most;", worst);
        ok &= worst < 1e-2;
    }
    printf(" %s\n", ok ? "ok" : "WRONG");
    return ok;
}

// --- times

static struct {
    void *card;
    int (*energy)(void *, u64 *), (*clock)(void *, int, u32 *);
} meter;
static void find_meter() {
    void *lib = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    char bus[32];
    OK(cudaDeviceGetPCIBusId(bus, sizeof bus, 0));
    int (*init)() = lib ? (int (*)())dlsym(lib, "nvmlInit_v2") : NULL;
    int (*get)(const char *, void **) =
        lib ? (int (*)(const char *, void **))dlsym(lib, "nvmlDeviceGetHandleByPciBusId_v2") : NULL;
    if (!init || !get || init() || get(bus, &meter.card)) return;
    meter.energy = (int (*)(void *, u64 *))dlsym(lib, "nvmlDeviceGetTotalEnergyConsumption");
    meter.clock = (int (*)(void *, int, u32 *))dlsym(lib, "nvmlDeviceGetClockInfo");
}
struct Timed { double ms, watts; u32 mhz; };
template <class Run> static double batch(Run run, int count, u32 *mhz) { // milliseconds of one
    cudaEvent_t from, to;
    OK(cudaEventCreate(&from));
    OK(cudaEventCreate(&to));
    OK(cudaEventRecord(from));
    for (int i = 0; i < count; i++) {
        if (mhz && i == count / 2) {
            OK(cudaEventSynchronize(from));
            if (meter.clock) meter.clock(meter.card, 1, mhz);
        }
        run();
    }
    OK(cudaEventRecord(to));
    OK(cudaEventSynchronize(to));
    float ms;
    OK(cudaEventElapsedTime(&ms, from, to));
    OK(cudaEventDestroy(from));
    OK(cudaEventDestroy(to));
    return ms / count;
}
template <class Run> static Timed timed(Run run, double seconds) { // after half as long again of the same
    run();
    const double about = batch(run, 3, NULL);
    const int count = (int)(seconds * 1000 / about) + 1;
    Timed t = {};
    batch(run, count / 2 + 1, NULL);
    u64 from = 0, to = 0;
    if (meter.energy) meter.energy(meter.card, &from);
    t.ms = batch(run, count, &t.mhz);
    if (meter.energy) meter.energy(meter.card, &to);
    t.watts = (double)(to - from) / (t.ms * count);
    return t;
}
static void print(const Case &c, const char *what, const Timed &t, double against) {
    const double flops = 2. * c.m * c.n * c.k * (c.epilogue == SWIGLU ? 2 : 1);
    printf("  %-36s %8.4f ms %6.1f TFLOP/s %5u MHz %4.0f W  %.3f x\n", what, t.ms, flops / t.ms / 1e9, t.mhz, t.watts,
           against / t.ms);
    fflush(stdout);
}
static void time_case(const Case &c, double seconds, int rounds) {
    Buffers x = buffers(c);
    Library l = library(c);
    printf("%s, %s: %d x %d x %d\n", c.model, c.what, c.m, c.n, c.k);
    double least = 1e9;
    int best = 0;
    for (int i = 0; i < (int)l.found.size(); i++) {
        l.best = i;
        multiply(l, x, x.b, x.product);
        const double ms = batch([&] { multiply(l, x, x.b, x.product); }, 20, NULL);
        if (ms < least) least = ms, best = i;
    }
    l.best = best;
    int tall[LENGTH(kernels)] = {};
    for (int i = 0; i < LENGTH(kernels); i++) {
        const Kernel &k = kernels[i];
        if (k.ta != c.ta || k.tb != c.tb || k.epilogue != c.epilogue) continue;
        least = 1e9;
        for (const int n : {4, 8, 16, 64}) {
            const Tensors t = tensors(c, k, x, n);
            const double ms = batch([&] { launch(c, k, x, t); }, 20, NULL);
            if (ms < least) least = ms, tall[i] = n;
        }
    }
    for (int round = 0; round < rounds; round++) {
        if (c.epilogue > PLAIN_F32)
            print(c, "cuBLASLt, the product alone", timed([&] { multiply(l, x, x.b, x.product); }, seconds), 0);
        const Timed base = timed([&] { separately(c, l, x); }, seconds);
        print(c, c.epilogue > PLAIN_F32 ? "cuBLASLt and separate kernel" : "cuBLASLt", base, base.ms);
        for (int i = 0; i < LENGTH(kernels); i++) {
            if (!tall[i]) continue;
            const Tensors t = tensors(c, kernels[i], x, tall[i]);
            const std::string name = std::string(kernels[i].name) + " tall " + std::to_string(tall[i]);
            print(c, name.c_str(), timed([&] { launch(c, kernels[i], x, t); }, seconds), base.ms);
        }
    }
    OK(cublasLtDestroy(l.handle));
    release(c, x);
}

int main(int argc, char **argv) {
    const std::string what = argc > 1 ? argv[1] : "";
    for (const Kernel &k : kernels) {
        if (what == "list") puts(k.name);
        else OK(cudaFuncSetAttribute(k.launch, cudaFuncAttributeMaxDynamicSharedMemorySize, k.shared));
    }
    bool known = what == "list", ok = true;
    for (const Kernel &k : kernels)
        if (what == "check" && argc > 2 && !strcmp(argv[2], k.name)) {
            printf("%s:", k.name);
            known = true, ok &= check(k);
        }
    if (what == "time" && argc > 2) {
        find_meter();
        known = true;
        bool done[LENGTH(cases)] = {};
        for (int i = argc == 3 ? 2 : 3; i < argc; i++)
            for (int j = 0; j < LENGTH(cases); j++) {
                const std::string name = std::string(cases[j].model) + ", " + cases[j].what;
                if (done[j] || (argc > 3 && name.find(argv[i]) == std::string::npos)) continue;
                done[j] = true;
                time_case(cases[j], atof(argv[2]), 1);
            }
    }
    if (!known) puts("product list | check KERNEL | time SECONDS [CASE...]");
    return known && ok ? 0 : 1;
}
