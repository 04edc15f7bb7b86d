// Matrix products through cuBLASLt, and the choice of an algorithm for each.
//
// cuBLASLt stores matrices by columns: the row-major d (m x n) = a b is its d' (n x m) = b' a', so our b is its first
// operand. Every algorithm repeats bit for bit, but two algorithms differ. So a choice, once timed, is kept on disk and
// used by every later run and every other process (the first writer wins). Where nothing can be kept, the heuristic's
// first answer is taken without timing: results never depend on timing twice.
#include "runtime/cuda/exec.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// A short product takes less time than its launch: it is timed in a graph, MANY of them together, and more candidates
// are looked at, since they take no time.
enum { CANDIDATES = 8, SHORT_CANDIDATES = 24, REPEATS = 3, MANY = 20 };
static const double short_work = 1e10; // multiplications and additions: some 30 us
static const double tuning_budget_ms = 2500; // seconds; after that the heuristic's first is taken, and kept

typedef struct { bool keep, time; } Policy; // keep: choices are read from and written to the cache
static int64_t batches(const HdGemm *g) { return g->batch > 1 ? g->batch : 1; }
static double work(const HdGemm *g) { return (double)batches(g) * (double)g->m * (double)g->n * (double)g->k; }
static unsigned align_of(const HdGemm *g) { return g->align ? (unsigned)g->align : 16; }

typedef struct { LtAlgo algo; uint64_t workspace; } Kept; // the cache entry

static bool lt_ok(HdCuda *x, LtStatus s, const char *what) {
    if (s == HD_CUBLAS_STATUS_SUCCESS) return true;
    return hd_cuda_fail(x, "cuBLASLt: %s: %s", what, x->api.cublasLtGetStatusString(s));
}

static void describe(const HdGemm *g, char *text, size_t size) {
    static const char *const epilogues[] = {"", " + bias"};
    snprintf(text, size, "%lld x %lld x %lld%s%s %s,%s->%s%s%s", (long long)g->m, (long long)g->n, (long long)g->k,
             g->ta ? " ta" : "", g->tb ? " tb" : "", hd_dtypes[g->a].name, hd_dtypes[g->b].name, hd_dtypes[g->d].name,
             g->accumulate ? " +=" : "", epilogues[g->epilogue]);
    if (g->batch > 1) snprintf(text + strlen(text), size - strlen(text), " x %lld", (long long)g->batch);
}

static bool layout(HdCuda *x, LtLayout *out, HdDtype t, int64_t rows, int64_t cols, int64_t batch) {
    const HdCudaApi *api = &x->api;
    int32_t count = (int32_t)batch;
    int64_t stride = rows * cols;
    if (!lt_ok(x, api->cublasLtMatrixLayoutCreate(out, hd_dtypes[t].cuda, (uint64_t)rows, (uint64_t)cols, rows),
               "layout"))
        return false;
    if (batch <= 1) return true;
    LtStatus r =
        api->cublasLtMatrixLayoutSetAttribute(*out, HD_CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count);
    if (r == HD_CUBLAS_STATUS_SUCCESS)
        r = api->cublasLtMatrixLayoutSetAttribute(*out, HD_CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride,
                                                  sizeof stride);
    return lt_ok(x, r, "batch");
}

static bool describe_product(HdCuda *x, const HdGemmState *s, LtDescAttribute what, const void *value, size_t bytes) {
    return lt_ok(x, x->api.cublasLtMatmulDescSetAttribute(s->desc, what, value, bytes), "descriptor's attribute");
}

static bool set_bias(HdCuda *x, const HdGemm *g, const HdGemmState *s, CuPtr bias) {
    return g->epilogue == HD_EPI_NONE ||
           describe_product(x, s, HD_CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias);
}

static bool make_descriptors(HdCuda *x, const HdGemm *g, HdGemmState *s) {
    const HdCudaApi *api = &x->api;
    static const uint32_t epilogues[] = {HD_CUBLASLT_EPILOGUE_DEFAULT, HD_CUBLASLT_EPILOGUE_BIAS};
    bool wide = g->d == HD_F64;
    // COMPUTE_32F on f32 operands multiplies in plain f32: TF32 is a compute type of its own
    LtCompute compute = wide ? HD_CUBLAS_COMPUTE_64F : HD_CUBLAS_COMPUTE_32F;
    int32_t op_first = g->tb ? HD_CUBLAS_OP_T : HD_CUBLAS_OP_N, op_second = g->ta ? HD_CUBLAS_OP_T : HD_CUBLAS_OP_N;
    if (!lt_ok(x, api->cublasLtMatmulDescCreate(&s->desc, compute, wide ? HD_CUDA_R_64F : HD_CUDA_R_32F),
               "descriptor") ||
        !describe_product(x, s, HD_CUBLASLT_MATMUL_DESC_TRANSA, &op_first, sizeof op_first) ||
        !describe_product(x, s, HD_CUBLASLT_MATMUL_DESC_TRANSB, &op_second, sizeof op_second) ||
        !describe_product(x, s, HD_CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogues[g->epilogue], sizeof *epilogues) ||
        !set_bias(x, g, s, 256)) // only its alignment is read before the first call
        return false;
    return layout(x, &s->b, g->b, g->tb ? g->k : g->n, g->tb ? g->n : g->k, g->batch) &&
           layout(x, &s->a, g->a, g->ta ? g->m : g->k, g->ta ? g->k : g->m, g->batch) &&
           layout(x, &s->d, g->d, g->n, g->m, g->batch);
}

static int heuristics(HdCuda *x, const HdGemm *g, const HdGemmState *s, int wanted, LtHeuristic *out) {
    const HdCudaApi *api = &x->api;
    static const LtPreferenceAttribute aligned[] = {
        HD_CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, HD_CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        HD_CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, HD_CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
    LtPreference preference = NULL;
    uint64_t workspace = (uint64_t)g->workspace_bytes;
    uint32_t bytes = align_of(g);
    int got = 0;
    bool ok = lt_ok(x, api->cublasLtMatmulPreferenceCreate(&preference), "preference") &&
              lt_ok(x,
                    api->cublasLtMatmulPreferenceSetAttribute(preference, HD_CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                              &workspace, sizeof workspace),
                    "workspace limit");
    for (int i = 0; i < 4 && ok; i++)
        ok = lt_ok(x, api->cublasLtMatmulPreferenceSetAttribute(preference, aligned[i], &bytes, sizeof bytes),
                   "alignment");
    if (ok && api->cublasLtMatmulAlgoGetHeuristic(x->gemms.handle, s->desc, s->b, s->a, s->d, s->d, preference, wanted,
                                                  out, &got) != HD_CUBLAS_STATUS_SUCCESS)
        got = 0;
    if (preference) api->cublasLtMatmulPreferenceDestroy(preference);
    int kept = 0;
    for (int i = 0; i < got; i++)
        if (out[i].state == HD_CUBLAS_STATUS_SUCCESS && out[i].workspace <= workspace) out[kept++] = out[i];
    return kept;
}

static LtStatus issue(HdCuda *x, const HdGemm *g, const HdGemmState *s, const LtAlgo *algo, CuStream stream, CuPtr a,
                      CuPtr b, CuPtr d, CuPtr workspace) {
    static const float one = 1, zero = 0;
    static const double wide_one = 1, wide_zero = 0;
    const void *alpha = g->d == HD_F64 ? (const void *)&wide_one : &one;
    const void *beta =
        g->d == HD_F64 ? (g->accumulate ? &wide_one : &wide_zero) : (const void *)(g->accumulate ? &one : &zero);
    return x->api.cublasLtMatmul(x->gemms.handle, s->desc, alpha, (const void *)b, s->b, (const void *)a, s->a, beta,
                                 (const void *)d, s->d, (void *)d, s->d, algo, (void *)workspace,
                                 (size_t)g->workspace_bytes, stream);
}

// Places for one product's operands in the arena, which is still unused; false when they do not fit.
typedef struct { CuPtr a, b, bias, d, workspace; } ProductScratch;
static int64_t padded(int64_t bytes) { return (bytes + 255) & ~(int64_t)255; }

static int64_t lay_out(const HdCuda *x, const HdGemm *g, ProductScratch *s) {
    int64_t at = 0,
            size[5] = {batches(g) * g->m * g->k * (int64_t)hd_dtypes[g->a].bytes,
                       batches(g) * g->k * g->n * (int64_t)hd_dtypes[g->b].bytes, g->n * (int64_t)hd_dtypes[g->d].bytes,
                       batches(g) * g->m * g->n * (int64_t)hd_dtypes[g->d].bytes, g->workspace_bytes};
    CuPtr *place[5] = {&s->a, &s->b, &s->bias, &s->d, &s->workspace};
    for (int i = 0; i < 5; i++) {
        *place[i] = x->arena + (CuPtr)at;
        at += padded(size[i]);
    }
    return at;
}

// Small random numbers in every float format: the power that a product draws, and so its speed, depends on the data.
static bool fill_scratch(HdCuda *x, int64_t bytes) {
    enum { BLOCK = 4 << 20 };
    uint16_t *host = malloc(BLOCK);
    uint32_t seed = 1;
    if (!host) return hd_cuda_fail(x, "out of host memory");
    for (size_t i = 0; i < BLOCK / 2; i++) {
        seed = seed * 1664525u + 1013904223u;
        host[i] = (uint16_t)(0x3c00u | (seed >> 16 & 0x83ffu)); // bf16: 2^-7 .. 2, f16: 1 .. 2, signs at random
    }
    int64_t have = bytes < BLOCK ? bytes : BLOCK;
    bool ok = hd_cuda_ok(x, x->api.cuMemcpyHtoDAsync(x->arena, host, (size_t)have, x->streams[0]),
                         "cannot fill the tuning scratch") &&
              hd_cuda_ok(x, x->api.cuStreamSynchronize(x->streams[0]), "cannot fill the tuning scratch");
    for (; ok && have < bytes; have *= 2) {
        int64_t more = bytes - have < have ? bytes - have : have;
        ok = hd_cuda_ok(x, x->api.cuMemcpyDtoDAsync(x->arena + (CuPtr)have, x->arena, (size_t)more, x->streams[0]),
                        "cannot fill the tuning scratch");
    }
    free(host);
    return ok;
}

typedef struct { CuEvent start, end; } Stopwatch;

static bool issue_all(HdCuda *x, const HdGemm *g, const HdGemmState *s, const LtAlgo *algo, const ProductScratch *at,
                      int repeats) {
    for (int i = 0; i < repeats; i++)
        if (issue(x, g, s, algo, x->streams[0], at->a, at->b, at->d, at->workspace) != HD_CUBLAS_STATUS_SUCCESS)
            return false;
    return true;
}

// Milliseconds from `start` to now, once the stream has come here; a negative number where the device fails.
static float stop(HdCuda *x, Stopwatch watch) {
    float ms = -1;
    if (x->api.cuEventRecord(watch.end, x->streams[0]) != HD_CUDA_SUCCESS ||
        x->api.cuEventSynchronize(watch.end) != HD_CUDA_SUCCESS ||
        x->api.cuEventElapsedTime(&ms, watch.start, watch.end) != HD_CUDA_SUCCESS)
        return -1;
    return ms;
}

// Mean time of `repeats` runs; a negative number when the algorithm cannot run.
static float time_runs(HdCuda *x, const HdGemm *g, const HdGemmState *s, const LtAlgo *algo, const ProductScratch *at,
                       Stopwatch watch, int repeats) {
    if (x->api.cuEventRecord(watch.start, x->streams[0]) != HD_CUDA_SUCCESS || !issue_all(x, g, s, algo, at, repeats))
        return -1;
    return stop(x, watch) / (float)repeats;
}

// The same, of MANY runs that are one graph, so that no launch counts.
static float time_graph(HdCuda *x, const HdGemm *g, const HdGemmState *s, const LtAlgo *algo, const ProductScratch *at,
                        Stopwatch watch) {
    const HdCudaApi *api = &x->api;
    CuStream stream = x->streams[0];
    CuGraph graph = NULL;
    CuGraphExec exec = NULL;
    float ms = -1;
    if (api->cuStreamBeginCapture(stream, HD_CU_STREAM_CAPTURE_MODE_THREAD_LOCAL) != HD_CUDA_SUCCESS) return -1;
    bool ok = issue_all(x, g, s, algo, at, MANY);
    ok = api->cuStreamEndCapture(stream, &graph) == HD_CUDA_SUCCESS && ok && graph &&
         api->cuGraphInstantiateWithFlags(&exec, graph, 0) == HD_CUDA_SUCCESS &&
         api->cuGraphLaunch(exec, stream) == HD_CUDA_SUCCESS && // the first launch also moves the graph to the device
         api->cuEventRecord(watch.start, stream) == HD_CUDA_SUCCESS &&
         api->cuGraphLaunch(exec, stream) == HD_CUDA_SUCCESS;
    if (ok) ms = stop(x, watch) / MANY;
    if (exec) api->cuGraphExecDestroy(exec);
    if (graph) api->cuGraphDestroy(graph);
    return ms;
}

// One run loads the kernel, one shows whether the algorithm is worth measuring against `best` (0: none yet), REPEATS
// measure it.
static float time_algo(HdCuda *x, const HdGemm *g, const HdGemmState *s, const LtAlgo *algo, const ProductScratch *at,
                       Stopwatch watch, float best) {
    if (time_runs(x, g, s, algo, at, watch, 1) < 0) return -1;
    if (work(g) < short_work) return time_graph(x, g, s, algo, at, watch);
    float once = time_runs(x, g, s, algo, at, watch, 1);
    if (once < 0 || (best > 0 && once > best * 1.3f)) return once;
    return time_runs(x, g, s, algo, at, watch, REPEATS);
}

static HdKey key_of(const HdCuda *x, const HdGemm *g) {
    char text[512];
    HdKey k;
    int n = snprintf(text, sizeof text,
                     "cublasLt %zu, timed in graphs|%s|%d SM|%lld %lld %lld|%d %d %d|%d %d %d|%d|%lld|%lld|align %u",
                     x->api.cublasLtGetVersion(), x->device_name, x->sms, (long long)g->m, (long long)g->n,
                     (long long)g->k, g->ta, g->tb, g->accumulate, (int)g->a, (int)g->b, (int)g->d, g->epilogue,
                     (long long)batches(g), (long long)g->workspace_bytes, align_of(g));
    hd_key_start(&k);
    hd_key_add(&k, text, (size_t)n);
    return k;
}

static bool recall(HdCuda *x, const HdGemm *g, HdGemmState *s, HdKey key) {
    LtHeuristic check;
    size_t bytes = 0;
    Kept *kept = hd_cache_get(&x->cache, "gemm", key, &bytes);
    bool ok = kept && bytes == sizeof *kept &&
              x->api.cublasLtMatmulAlgoCheck(x->gemms.handle, s->desc, s->b, s->a, s->d, s->d, &kept->algo, &check) ==
                  HD_CUBLAS_STATUS_SUCCESS &&
              check.workspace <= (size_t)g->workspace_bytes;
    if (ok) {
        s->algo = kept->algo;
        s->workspace = (size_t)kept->workspace;
        s->chosen = -1;
    }
    free(kept);
    return ok;
}

// The fastest of the heuristic's candidates, agreed on with other processes through the cache.
static bool choose(HdCuda *x, const HdGemm *g, HdGemmState *s, HdKey key, const ProductScratch *at,
                   Stopwatch watch, Policy policy) {
    LtHeuristic found[SHORT_CANDIDATES];
    char text[160];
    describe(g, text, sizeof text);
    s->candidates = heuristics(x, g, s, work(g) < short_work ? SHORT_CANDIDATES : CANDIDATES, found);
    if (s->candidates == 0)
        return hd_cuda_fail(x, "cuBLASLt has no algorithm for gemm %s in %lld bytes of workspace", text,
                            (long long)g->workspace_bytes);
    for (int i = 0; i < s->candidates && policy.time; i++) {
        float ms = time_algo(x, g, s, &found[i].algo, at, watch, s->ms);
        if (ms > 0 && (s->ms <= 0 || ms < s->ms)) {
            s->ms = ms;
            s->chosen = i;
        }
    }
    Kept kept = {.algo = found[s->chosen].algo, .workspace = found[s->chosen].workspace};
    if (policy.keep) hd_cache_settle(&x->cache, "gemm", key, &kept, sizeof kept);
    s->algo = kept.algo;
    s->workspace = (size_t)kept.workspace;
    return true;
}

static void report(HdCuda *x, int i, const HdGemm *g, const HdGemmState *s) {
    int32_t id = 0;
    uint32_t tile = 0, split = 0;
    size_t written;
    char text[160];
    describe(g, text, sizeof text);
    x->api.cublasLtMatmulAlgoConfigGetAttribute(&s->algo, HD_CUBLASLT_ALGO_CONFIG_ID, &id, sizeof id, &written);
    x->api.cublasLtMatmulAlgoConfigGetAttribute(&s->algo, HD_CUBLASLT_ALGO_CONFIG_TILE_ID, &tile, sizeof tile,
                                                &written);
    x->api.cublasLtMatmulAlgoConfigGetAttribute(&s->algo, HD_CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &split, sizeof split,
                                                &written);
    fprintf(stderr, "gemm %2d %-56s algorithm %d tile %u split-k %u workspace %zu", i, text, id, tile, split,
            s->workspace);
    if (s->chosen < 0) fprintf(stderr, ", remembered\n");
    else if (s->ms > 0)
        fprintf(stderr, ", %d of %d, %.3f ms, %.0f TFLOP/s\n", s->chosen, s->candidates, (double)s->ms,
                2e-9 * (double)batches(g) * (double)g->m * (double)g->n * (double)g->k / (double)s->ms);
    else fprintf(stderr, ", the heuristic's first of %d\n", s->candidates);
}

static bool same_key(HdKey a, HdKey b) { return a.word[0] == b.word[0] && a.word[1] == b.word[1]; }

// One product: from an equal one before it, from the cache, or by choosing; then one run, so that its kernel is loaded.
static bool prepare(HdCuda *x, const int *order, int at_order, HdKey *keys, Stopwatch watch, Policy policy) {
    int i = order[at_order];
    const HdProgram *p = x->head.program;
    const HdGemm *g = &p->gemms[i];
    HdGemmState *s = &x->gemms.gemms[i];
    ProductScratch at;
    bool fits = lay_out(x, g, &at) <= p->arena_bytes;
    keys[i] = key_of(x, g);
    if (!make_descriptors(x, g, s) || (fits && !set_bias(x, g, s, at.bias))) return false;
    int twin = 0;
    while (twin < at_order && !same_key(keys[order[twin]], keys[i])) twin++;
    if (twin < at_order) {
        const HdGemmState *t = &x->gemms.gemms[order[twin]];
        s->algo = t->algo;
        s->workspace = t->workspace;
        s->candidates = t->candidates;
        s->chosen = t->chosen;
        s->ms = t->ms;
        return true;
    }
    policy.time = policy.time && fits;
    bool remembered = policy.keep && recall(x, g, s, keys[i]);
    if (!remembered && !choose(x, g, s, keys[i], &at, watch, policy)) return false;
    if (fits && !lt_ok(x, issue(x, g, s, &s->algo, x->streams[0], at.a, at.b, at.d, at.workspace),
                       "first run of a matrix product"))
        return false;
    if (x->verbose) report(x, i, g, s);
    return true;
}

// The largest products first, so that those the budget does not reach matter least; ties by index.
static void sort_by_work(const HdProgram *p, int *order) {
    for (int i = 0; i < p->n_gemms; i++) {
        int j = i;
        for (; j > 0 && work(&p->gemms[order[j - 1]]) < work(&p->gemms[i]); j--) order[j] = order[j - 1];
        order[j] = i;
    }
}

bool hd_gemms_open(HdCuda *x) {
    const HdProgram *p = x->head.program;
    const HdCudaApi *api = &x->api;
    const char *tune = getenv("HEDDLE_TUNE");
    if (p->n_gemms == 0) return true;
    if (!lt_ok(x, api->cublasLtCreate(&x->gemms.handle), "cannot start")) return false;
    x->gemms.gemms = calloc((size_t)p->n_gemms, sizeof *x->gemms.gemms);
    HdKey *keys = calloc((size_t)p->n_gemms, sizeof *keys);
    int *order = calloc((size_t)p->n_gemms, sizeof *order);
    Stopwatch watch = {0};
    bool ok = x->gemms.gemms && keys && order;
    if (ok) sort_by_work(p, order);
    else hd_cuda_fail(x, "out of host memory");
    int64_t scratch = 0;
    for (int i = 0; i < p->n_gemms; i++) {
        ProductScratch at;
        int64_t need = lay_out(x, &p->gemms[i], &at);
        if (need > scratch && need <= p->arena_bytes) scratch = need;
    }
    ok = ok && (scratch == 0 || fill_scratch(x, scratch)) &&
         hd_cuda_ok(x, api->cuEventCreate(&watch.start, HD_CU_EVENT_DEFAULT), "event") &&
         hd_cuda_ok(x, api->cuEventCreate(&watch.end, HD_CU_EVENT_DEFAULT), "event");
    bool keep = !(tune && !strcmp(tune, "0")) && hd_cache_usable(&x->cache);
    double begin = hd_cuda_now_ms();
    for (int i = 0; i < p->n_gemms && ok; i++)
        ok = prepare(x, order, i, keys, watch,
                     (Policy){.keep = keep, .time = keep && hd_cuda_now_ms() - begin < tuning_budget_ms});
    ok = ok && hd_cuda_ok(x, api->cuStreamSynchronize(x->streams[0]), "tuning of the matrix products");
    if (ok && x->verbose)
        fprintf(stderr, "gemms: %d products ready in %.0f ms\n", p->n_gemms, hd_cuda_now_ms() - begin);
    if (watch.start) api->cuEventDestroy(watch.start);
    if (watch.end) api->cuEventDestroy(watch.end);
    free(keys);
    free(order);
    return ok;
}

void hd_cuda_gemm(HdExec *h, int stream, int gemm, uint64_t a, uint64_t b, uint64_t bias, uint64_t d,
                  uint64_t workspace) {
    HdCuda *x = (HdCuda *)h;
    if (x->failed) return;
    const HdGemm *g = &x->head.program->gemms[gemm];
    HdGemmState *s = &x->gemms.gemms[gemm];
    uint64_t all = a | b | d | (g->epilogue == HD_EPI_NONE ? 0 : bias);
    if (all % align_of(g)) { // the algorithm may rely on it
        hd_cuda_fail(x, "an operand of gemm %d is not at a multiple of %u bytes", gemm, align_of(g));
        return;
    }
    if (HD_NOTE(x, 'g', (uint64_t)stream, (uint64_t)gemm, a, b, bias, d, workspace) || !set_bias(x, g, s, bias)) return;
    lt_ok(x, issue(x, g, s, &s->algo, x->streams[stream], a, b, d, workspace), "matrix product");
}

void hd_gemms_close(HdCuda *x) {
    const HdCudaApi *api = &x->api;
    for (int i = 0; x->gemms.gemms && i < x->head.program->n_gemms; i++) {
        HdGemmState *s = &x->gemms.gemms[i];
        if (s->desc) api->cublasLtMatmulDescDestroy(s->desc);
        if (s->a) api->cublasLtMatrixLayoutDestroy(s->a);
        if (s->b) api->cublasLtMatrixLayoutDestroy(s->b);
        if (s->d) api->cublasLtMatrixLayoutDestroy(s->d);
    }
    if (x->gemms.handle) api->cublasLtDestroy(x->gemms.handle);
    free(x->gemms.gemms);
    memset(&x->gemms, 0, sizeof x->gemms);
}
