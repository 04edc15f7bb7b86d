// Scenarios of cuda_fake: products by the pretended cuBLASLt, devices of the pretended driver, attention by the
// pretended cuDNN, programs that cannot be opened.
#include "tests/fake_cuda/opened.h"
#include "runtime/cuda/api.h"
#include "runtime/world/world.h"
#include <dlfcn.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const HdBackend *const b = &hd_cuda_backend;

// --- matrix products

static double reference(const HdGemm *g, const double *a, const double *m, const double *bias, int64_t q, int64_t i,
                        int64_t j, double old) {
    double sum = 0;
    for (int64_t l = 0; l < g->k; l++)
        sum += a[q * g->m * g->k + (g->ta ? l * g->m + i : i * g->k + l)] *
               m[q * g->k * g->n + (g->tb ? j * g->k + l : l * g->n + j)];
    if (g->accumulate) sum += old;
    return g->epilogue == HD_EPI_NONE ? sum : sum + bias[j];
}

static void put(HdExec *x, int64_t at, HdDtype t, const double *v, int n) {
    float f[64];
    for (int i = 0; i < n; i++) f[i] = (float)v[i];
    CHECK(t == HD_F64 ? b->write(x, at, v, (size_t)n * 8) : b->write(x, at, f, (size_t)n * 4));
}

static void get(HdExec *x, int64_t at, HdDtype t, double *v, int n) {
    float f[64];
    CHECK(t == HD_F64 ? b->read(x, at, v, (size_t)n * 8) : b->read(x, at, f, (size_t)n * 4));
    for (int i = 0; i < n && t != HD_F64; i++) v[i] = (double)f[i];
}

enum { N_GEMMS = 2 * 2 * 2 * 2 + 2 };
static HdGemm gemms[N_GEMMS];
static int fill_gemms(void) {
    int n = 0;
    for (int i = 0; i < 16; i++)
        gemms[n++] = (HdGemm){.m = 3,
                              .n = 4,
                              .k = 5,
                              .ta = i & 1,
                              .tb = i >> 1 & 1,
                              .accumulate = i >> 2 & 1,
                              .batch = i >> 3 & 1 ? 2 : 1,
                              .a = HD_F32,
                              .b = HD_F32,
                              .d = HD_F32,
                              .workspace_bytes = 256};
    gemms[n++] = (HdGemm){
        .m = 3, .n = 4, .k = 5, .tb = true, .batch = 1, .epilogue = HD_EPI_BIAS, .a = HD_F32, .b = HD_F32, .d = HD_F32};
    gemms[n++] = (HdGemm){
        .m = 3, .n = 4, .k = 5, .ta = true, .accumulate = true, .a = HD_F64, .b = HD_F64, .d = HD_F64}; // batch 0 is 1
    return n;
}

static HdProgram with_gemms(void) {
    HdProgram p = small_program();
    p.n_gemms = fill_gemms();
    p.gemms = gemms;
    return p;
}

void products(void) {
    HdProgram p = with_gemms();
    static HdGemm both[2 * N_GEMMS]; // those after the first half say that their operands are aligned to less
    for (int i = 0; i < 2 * N_GEMMS; i++) {
        both[i] = gemms[i % N_GEMMS];
        both[i].align = i < N_GEMMS ? 0 : both[i].d == HD_F64 ? 8 : 4;
    }
    p.gemms = both;
    p.n_gemms = 2 * N_GEMMS;
    HdExec *x = opened(&p, false);
    double a[40], m[40], bias[4], old[24], got[24];
    for (int i = 0; i < 40; i++) a[i] = i % 7 - 3, m[i] = i % 5 - 1.5;
    for (int i = 0; i < 24; i++) old[i] = i * 0.25;
    for (int i = 0; i < 4; i++) bias[i] = i - 1.5;
    for (int i = 0; i < p.n_gemms; i++)
        for (int shift = 0; shift < 1 + (i >= N_GEMMS); shift++) {
            const HdGemm *g = &both[i];
            int64_t batch = g->batch > 1 ? g->batch : 1, at = DATA + shift * g->align;
            put(x, at, g->a, a, (int)(batch * g->m * g->k));
            put(x, at + 1024, g->b, m, (int)(batch * g->k * g->n));
            put(x, at + 2048, g->d, bias, 4);
            put(x, at + 3072, g->d, old, (int)(batch * g->m * g->n));
            hd_cuda_gemm(x, 0, i, hd_device(x, at), hd_device(x, at + 1024), hd_device(x, at + 2048),
                         hd_device(x, at + 3072), hd_device(x, 0));
            get(x, at + 3072, g->d, got, (int)(batch * g->m * g->n));
            for (int64_t q = 0; q < batch; q++)
                for (int64_t r = 0; r < g->m; r++)
                    for (int64_t c = 0; c < g->n; c++) {
                        int64_t e = (q * g->m + r) * g->n + c;
                        CHECK(fabs(got[e] - reference(g, a, m, bias, q, r, c, old[e])) < 1e-4);
                    }
        }
    CHECK(count_in_log("heuristic, align 4") == N_GEMMS - 1 && count_in_log("heuristic, align 8") == 1 &&
          count_in_log("heuristic, align 16") == N_GEMMS);
    hd_cuda_gemm(x, 0, N_GEMMS, hd_device(x, DATA + 2), hd_device(x, DATA), 0, hd_device(x, 0), 0);
    CHECK(!b->sync(x) && failed_with("an operand of gemm 18 is not at a multiple of 4 bytes"));
    b->close(x);
}

void choices_are_remembered(void) {
    HdProgram p = with_gemms();
    b->close(opened(&p, true));
    CHECK(count_in_log("heuristic") == p.n_gemms && count_in_log("check") == 0 &&
          files_in_cache("gemm", false) == p.n_gemms);
    b->close(opened(&p, true));
    CHECK(count_in_log("heuristic") == p.n_gemms &&
          count_in_log("check of algorithm 1") == p.n_gemms); // 1 is the fastest
    CHECK(files_in_cache("gemm", true) == p.n_gemms);
    b->close(opened(&p, true));
    CHECK(count_in_log("heuristic") == 2 * p.n_gemms);
    setenv("HEDDLE_TUNE", "0", 1);
    b->close(opened(&p, true));
    CHECK(count_in_log("heuristic") == 3 * p.n_gemms && count_in_log("check") == p.n_gemms);
}

// Each way of choosing keeps its own choice, which is taken again without timing.
void choices_under_load(void) {
    HdProgram p = small_program();
    const HdGemm g = {.m = 2200, .n = 2200, .k = 2200, .batch = 1, .a = HD_F32, .b = HD_F32, .d = HD_F32};
    p.n_gemms = 1;
    p.gemms = &g;
    p.arena_bytes = 64 << 20;
    setenv("FAKE_CUDA_LOAD", "1", 1);
    b->close(opened(&p, true));
    const int quick = count_in_log("run of algorithm");
    setenv("HEDDLE_TUNE", "load", 1);
    b->close(opened(&p, true));
    const int all = count_in_log("run of algorithm");
    CHECK(all > quick + 500 && count_in_log("check of") == 0 && files_in_cache("gemm", false) == 2);
    b->close(opened(&p, true));
    CHECK(count_in_log("check of algorithm 2") == 1);
    setenv("HEDDLE_TUNE", "1", 1);
    b->close(opened(&p, true));
    CHECK(count_in_log("check of algorithm 1") == 1 && count_in_log("check of") == 2);
    CHECK(count_in_log("run of algorithm") == all + 2); // one run each, which loads the kernel
    no_open("HEDDLE_TUNE", "fast", &p, "HEDDLE_TUNE=fast: expected 0, 1 or load");
    setenv("HEDDLE_CACHE", "off", 1);
    no_open("HEDDLE_TUNE", "load", &p, "HEDDLE_TUNE=load keeps its choices in the cache, and there is none");
}

// Opens a program under the choices of a file; `hash` of what runs. NULL where that fails.
static HdExec *with_choices(const HdProgram *p, const char *file, char hash[20]) {
    HdExec *x = b->open(p, hd_world_alone(), &(HdOpen){.choices = file});
    if (x) memcpy(hash, x->choices, 20);
    return x;
}

static void refuses_choices(const HdProgram *p, const char *file, const char *edit, const char *message) {
    char command[1600], other[700], hash[20];
    snprintf(other, sizeof other, "%s.other", file);
    snprintf(command, sizeof command, "sed '%s' %s > %s", edit, file, other);
    CHECK(system(command) == 0);
    HdExec *x = with_choices(p, other, hash);
    CHECK(!x && failed_with(message));
    if (x) b->close(x);
}

// The choices of one run are those of another one, whatever its own cache, timing or heuristic says.
void choices_of_a_file(void) {
    HdProgram p = with_gemms();
    char file[600], mine[20], theirs[20], quick[20];
    snprintf(file, sizeof file, "%s.choices", cache_path);
    remove(file);
    b->close(with_choices(&p, file, mine));
    CHECK(access(file, R_OK) == 0 && strlen(mine) == 16);
    setenv("HEDDLE_TUNE", "0", 1);
    setenv("HEDDLE_CACHE", "off", 1);
    b->close(with_choices(&p, NULL, quick));
    CHECK(strlen(quick) == 16 && strcmp(mine, quick) != 0); // the heuristic's first is algorithm 0, the fastest is 1
    const int asked = count_in_log("heuristic"), checked = count_in_log("check of algorithm 1");
    b->close(with_choices(&p, file, theirs));
    CHECK(!strcmp(mine, theirs) && count_in_log("heuristic") == asked &&
          count_in_log("check of algorithm 1") == checked + p.n_gemms);
    refuses_choices(&p, file, "s/^device .*/device NVIDIA B200, 148 SM/", "the file is for device NVIDIA B200, 148 SM");
    refuses_choices(&p, file, "s/^library .*/library cuBLASLt 120000/", "this run has library cuBLASLt 130100");
    refuses_choices(&p, file, "/^product 3 x 4 x 5 ta tb /d", "no choice for the product 3 x 4 x 5 ta tb");
    refuses_choices(&p, file, "s/ = 01/ = 09/", "cuBLASLt refuses the algorithm of the product");
    refuses_choices(&p, file, "s/ = 01/ = x1/", "is damaged");
    refuses_choices(&p, file, "s/ 0$/ 0 0/", "is damaged");
    refuses_choices(&p, file, "1s/.*/tokens/", "the file is no list of algorithms");
    HdExec *x = with_choices(&p, "/nowhere/choices", theirs);
    CHECK(!x && failed_with("/nowhere/choices: cannot be written"));
    setenv("HEDDLE_TUNE", "1", 1);
    setenv("HEDDLE_CACHE", cache_path, 1);
}

// --- devices

static struct {
    CuResult (*cuInit)(unsigned), (*cuDeviceGetCount)(int *), (*cuDeviceGet)(CuDevice *, int),
        (*cuDeviceGetPCIBusId)(char *, int, CuDevice);
} api;

static void find(const char *name, void *function) {
    char path[600];
    snprintf(path, sizeof path, "%s/libcuda.so.1", getenv("HEDDLE_CUDA_PATH"));
    void *driver = dlopen(path, RTLD_NOW | RTLD_LOCAL), *at = driver ? dlsym(driver, name) : NULL;
    if (!at) fprintf(stderr, "%s in %s: %s\n", name, path, dlerror());
    if (!at) exit(1);
    memcpy(function, &at, sizeof at);
}

// The bus addresses of the GPUs that a process sees, by number.
static void seen_with(const char *variable, const char *expected) {
    char text[200] = "", id[32];
    int n = -1;
    CuDevice d;
    if (variable) setenv("CUDA_VISIBLE_DEVICES", variable, 1);
    else unsetenv("CUDA_VISIBLE_DEVICES");
    CHECK((api.cuInit(0) == 0) == (*expected != 0) && api.cuDeviceGetCount(&n) == 0);
    for (int i = 0; i < n; i++) {
        CHECK(api.cuDeviceGet(&d, i) == 0 && api.cuDeviceGetPCIBusId(id, sizeof id, d) == 0);
        snprintf(text + strlen(text), sizeof text - strlen(text), "%.2s ", id + strlen("0000:"));
    }
    CHECK(api.cuDeviceGet(&d, n) != 0);
    if (strcmp(text, expected)) fprintf(stderr, "CUDA_VISIBLE_DEVICES=%s: %s\n", variable ? variable : "(none)", text);
    CHECK(!strcmp(text, expected));
}

void visible_devices(void) {
    find("cuInit", &api.cuInit);
    find("cuDeviceGetCount", &api.cuDeviceGetCount);
    find("cuDeviceGet", &api.cuDeviceGet);
    find("cuDeviceGetPCIBusId", &api.cuDeviceGetPCIBusId);
    setenv("FAKE_CUDA_DEVICES", "4", 1);
    seen_with(NULL, "00 01 02 03 ");
    seen_with("2", "02 ");
    seen_with("3,1, 0", "03 01 00 ");
    seen_with("1,4,2", "01 ");
    seen_with("0,-1,2", "00 ");
    seen_with("1,GPU-1234,2", "01 ");
    seen_with("", "");
    seen_with("-1", "");
    seen_with("1,2,1", "");
}

// --- programs that cannot be opened

void open_fails_clearly(void) {
    HdProgram p = with_gemms();
    setenv("HEDDLE_CACHE", "off", 1);
    no_open("FAKE_CUDA_DEVICES", "0", &p, "no NVIDIA GPU can be used");
    no_open("CUDA_VISIBLE_DEVICES", "", &p, "no NVIDIA GPU can be used");
    no_open("FAKE_CUDA_CC", "80", &p, "built for sm_90, the GPU (NVIDIA H200 (pretended)) is sm_80");
    no_open("FAKE_CUDA_MEMORY", "1000000", &p, "needs 16777216 bytes (0.02 GiB) of device memory");
    no_open("FAKE_CUDA_FAIL", "cuDevicePrimaryCtxRetain:1", &p,
            "cannot create a context on the GPU: CUDA_ERROR_INJECTED (999: a pretended failure)");
    no_open("FAKE_CUDA_FAIL", "cuModuleLoadData:1", &p, "cannot load the kernels of k.cu");
    no_open("FAKE_CUDA_FAIL", "cublasLtMatmulAlgoGetHeuristic:1", &p,
            "cuBLASLt has no algorithm for gemm 3 x 4 x 5 f32,f32->f32");
    HdSource bad[] = {{"bad.cu", "#error bump twice"}, {"other.cu", "other"}};
    p.sources = bad;
    no_open(NULL, NULL, &p, "cannot compile bad.cu: NVRTC_ERROR_COMPILATION, and says why above");
    p.sources = small_sources;
    HdKernel absent[] = {{"bump", 0, 0, false}, {"absent", 0, 0, false}, {"other", 1, 1000, false},
                         {"tiled", 0, 200000, false}};
    p.kernels = absent;
    no_open(NULL, NULL, &p, "kernel absent is not in k.cu");
    absent[1] = (HdKernel){"twice", 0, 300000, false};
    no_open(NULL, NULL, &p, "kernel twice needs 300000 bytes of shared memory");
}

// --- attention

static HdAttention shape(bool grad, int64_t stride, int64_t workspace_bytes) { // a stride makes it causal, too
    return (HdAttention){.batch = 1,
                         .seq = 128,
                         .heads = 2,
                         .kv_heads = 2,
                         .size = 64,
                         .q_stride = stride,
                         .k_stride = stride,
                         .v_stride = stride,
                         .o_stride = stride,
                         .causal = stride > 0,
                         .grad = grad,
                         .dtype = HD_BF16,
                         .workspace_bytes = workspace_bytes,
                         .kernel = {-1, -1, -1},
                         .grid = {one, one, one}};
}

void attention(void) { // the pretended cuDNN has no engine: the program's kernels run, three for the backward
    HdAttention list[] = {shape(false, 0, 1024), shape(true, 0, 1 << 20)};
    list[0].kernel[0] = 2;
    list[0].grid[0].shared = 1000;
    for (int i = 0; i < 3; i++) list[1].kernel[i] = 2;
    HdProgram p = small_program();
    p.n_attentions = 2;
    p.attentions = list;
    HdExec *x = opened(&p, false);
    hd_cuda_attention(x, 0, &list[0], 1, 2, 3, 4, 5, 0, 0, 0, 6);
    CHECK(b->sync(x) && count_in_log("kernel other runs") == 1);
    hd_cuda_attention_grad(x, 0, &list[1], 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 0, 10);
    CHECK(b->sync(x) && count_in_log("kernel other runs") == 4);
    list[0].documents = true, list[0].each = 1; // two more arguments
    hd_cuda_attention(x, 0, &list[0], 1, 2, 3, 4, 5, 11, 0, 12, 6);
    CHECK(b->sync(x) && count_in_log("kernel other runs") == 5);
    list[0].documents = false, list[0].each = 0;
    b->close(x);
    list[1].kernel[1] = -1;
    no_open(
        NULL, NULL, &p,
        "attention 1 has no kernel where cuDNN cannot run (the plan has no else): cuDNN cannot do the forward of size "
        "64, length 128: none of its 0 configurations");
    list[0].kernel[0] = -1;
    no_open("FAKE_CUDA_FAIL", "cudnnCreate:1", &p,
            "attention 0 has no kernel where cuDNN cannot run (the plan has no else): cuDNN ");
}

void attention_maps(void) { // of q, k and v, in place of their addresses
    HdAttention list[] = {shape(false, 0, 1024)};
    list[0].impl = HD_ATTENTION_KERNEL;
    list[0].kernel[0] = 2;
    list[0].grid[0].shared = 1000;
    list[0].kv_heads = 1, list[0].q_stride = 128, list[0].k_stride = 64, list[0].v_stride = 96;
    list[0].boxes[0] = 192, list[0].boxes[1] = 112;
    HdProgram p = small_program();
    p.n_attentions = 1;
    p.attentions = list;
    HdExec *x = opened(&p, false);
    hd_cuda_attention(x, 0, &list[0], 256, 512, 1024, 4, 5, 0, 0, 0, 6);
    CHECK(b->sync(x) && count_in_log("kernel other runs") == 1);
    CHECK(count_in_log("map of type 9, 64 x 2 x 128 x 1, 128, 256 and 32768 bytes apart, boxes of 64 x 1 x 192 x 1") ==
          1);
    CHECK(count_in_log("map of type 9, 64 x 1 x 128 x 1, 128, 128 and 16384 bytes apart, boxes of 64 x 1 x 112 x 1") ==
          1);
    CHECK(count_in_log("map of type 9, 64 x 1 x 128 x 1, 128, 192 and 24576 bytes apart, boxes of 64 x 1 x 112 x 1") ==
          1);
    b->close(x);
    list[0].dtype = HD_F16;
    x = opened(&p, false);
    hd_cuda_attention(x, 0, &list[0], 256, 512, 1024, 4, 5, 0, 0, 0, 6);
    CHECK(b->sync(x) && count_in_log("map of type 6,") == 3);
    b->close(x);
    list[0].v_stride = 90; // 180 bytes: no multiple of 16
    x = opened(&p, false);
    hd_cuda_attention(x, 0, &list[0], 256, 512, 1024, 4, 5, 0, 0, 0, 6);
    CHECK(!b->sync(x) &&
          failed_with("a tensor map of 64 x 1 x 128 x 1 elements, 128, 180 and 23040 bytes apart: "));
    b->close(x);
}

static HdAttention plans[2];

static void all_of_it(HdExec *x) { hd_cuda_region(x, 0); }

static void both_attentions(HdExec *x) {
    hd_cuda_attention(x, 0, &plans[0], 1, 2, 3, 4, 5, 0, 0, 0, 6);
    hd_cuda_attention_grad(x, 0, &plans[1], 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 0, 10);
}

void attention_plans(void) {
    static const HdFunc f[] = {{.name = "micro_only", .run = all_of_it}};
    static const HdRegion region = {"micro_only.step", both_attentions};
    HdProgram p = small_program();
    plans[0] = shape(false, 128, 1024);
    plans[1] = shape(true, 128, 1024 + 250);
    for (int i = 0; i < 3; i++) plans[1].kernel[i] = 2;
    p.regions = &region;
    p.n_regions = 1;
    p.n_attentions = 2;
    p.attentions = plans;
    p.funcs = f;
    p.n_funcs = 1;
    setenv("FAKE_CUDNN_ENGINES", "1", 1); // plans of 100 bytes for the forward, 200 for the backward
    HdExec *x = opened(&p, true);
    CHECK(count_in_log("attention plan 1 runs") == 1 &&
          count_in_log("attention plan 2 runs") == 1); // once, before any capture
    CHECK(b->run(x, f) && b->run(x, f) && count_in_log("attention plan 1 runs") == 3 &&
          count_in_log("capture ends: 2 nodes") == 1);
    b->close(x);
    plans[1].workspace_bytes = 1024 + 150; // now the backward's plan does not fit, and the kernels take over
    x = opened(&p, true);
    CHECK(b->run(x, f) && count_in_log("kernel other runs") == 3);
    b->close(x);
    setenv("HEDDLE_ATTENTION", "kernel", 1);
    no_open(NULL, NULL, &p,
            "attention 0 has no kernel where cuDNN cannot run (the plan has no else): HEDDLE_ATTENTION=kernel");
}
