// Matrix products through cuBLASLt, and the choice of an algorithm for each.
//
// cuBLASLt stores matrices by columns: the row-major d (m x n) = a b is its d' (n x m) = b' a', so our b is its first
// operand. Every algorithm repeats bit for bit, but two algorithms differ. So a choice, once timed, is kept on disk and
// used by every later run and every other process (the first writer wins). Where nothing can be kept, the heuristic's
// first answer is taken without timing: results never depend on timing twice. gemm_time.c does the timing.
#include "runtime/cuda/gemm.h"
#include "runtime/world/world.h"
#include "runtime/text.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double tuning_budget_ms = 2500; // after that the heuristic's first is taken, and kept; not under load

typedef enum { TUNE_NONE, TUNE_QUICK, TUNE_LOAD } Tune; // of HEDDLE_TUNE
typedef struct { Tune tune; bool keep, time; } Policy; // keep: choices are read from and written to the cache
static unsigned align_of(const HdGemm *g) { return g->align ? (unsigned)g->align : 16; }

typedef HdChoice Kept; // the cache entry

static HdGemm like(const HdGemm *g) { // the product that the algorithm is chosen for
    HdGemm l = *g;
    if (g->like) l.batch = g->like;
    if (g->columns) l.n = g->columns;
    return l;
}

static bool lt_ok(HdCuda *x, LtStatus s, const char *what) {
    if (s == HD_CUBLAS_STATUS_SUCCESS) return true;
    return hd_cuda_fail(x, "cuBLASLt: %s: %s", what, x->api.cublasLtGetStatusString(s));
}

static void describe(const HdGemm *g, char *text, size_t size) {
    static const char *const epilogues[] = {"", " + bias"}, *const scales[] = {
        "", " scaled by rows", " scaled", " scaled by blocks", " scaled by blocks and squares"};
    const HdGemm as = like(g);
    snprintf(text, size, "%lld x %lld x %lld%s%s %s,%s->%s%s%s%s%s", (long long)g->m, (long long)as.n, (long long)g->k,
             g->ta ? " ta" : "", g->tb ? " tb" : "", hd_dtypes[g->a].name, hd_dtypes[g->b].name, hd_dtypes[g->d].name,
             g->accumulate ? " +=" : "", epilogues[g->epilogue], scales[g->scaled], g->fast ? " fast" : "");
    if (as.batch > 1) snprintf(text + strlen(text), size - strlen(text), " x %lld", (long long)as.batch);
}

enum { NAME = 256 };
static void name_of(const HdGemm *g, char name[NAME]) { // as choices.h has it: all that an algorithm depends on
    describe(g, name, NAME);
    const size_t n = strlen(name);
    snprintf(name + n, NAME - n, " workspace %lld align %u", (long long)g->workspace_bytes, align_of(g));
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

// Our b is the library's first operand.
static bool set_scales(HdCuda *x, const HdGemm *g, const HdGemmState *s, CuPtr scale_a, CuPtr scale_b) {
    return !g->scaled || (describe_product(x, s, HD_CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, &scale_b, sizeof scale_b) &&
                          describe_product(x, s, HD_CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, &scale_a, sizeof scale_a));
}

static bool set_scale_modes(HdCuda *x, const HdGemm *g, const HdGemmState *s) {
    enum { WHOLE = HD_CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F, ROWS = HD_CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F,
           BLOCKS = HD_CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F,
           SQUARES = HD_CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F };
    static const int32_t modes[][2] = { // of a and of b
        [HD_SCALED_ROWS] = {ROWS, ROWS}, [HD_SCALED_WHOLE] = {WHOLE, WHOLE}, [HD_SCALED_BLOCKS] = {BLOCKS, BLOCKS},
        [HD_SCALED_SQUARES] = {BLOCKS, SQUARES}};
    const int32_t *const mode = modes[g->scaled];
    const int8_t fast = g->fast;
    return !g->scaled || (describe_product(x, s, HD_CUBLASLT_MATMUL_DESC_A_SCALE_MODE, &mode[1], sizeof *mode) &&
                          describe_product(x, s, HD_CUBLASLT_MATMUL_DESC_B_SCALE_MODE, &mode[0], sizeof *mode) &&
                          describe_product(x, s, HD_CUBLASLT_MATMUL_DESC_FAST_ACCUM, &fast, sizeof fast) &&
                          set_scales(x, g, s, 256, 256)); // only that there are some is read before the first call
}

static bool make_layouts(HdCuda *x, const HdGemm *g, HdGemmState *s) {
    return layout(x, &s->b, g->b, g->tb ? g->k : g->n, g->tb ? g->n : g->k, g->batch) &&
           layout(x, &s->a, g->a, g->ta ? g->m : g->k, g->ta ? g->k : g->m, g->batch) &&
           layout(x, &s->d, g->d, g->n, g->m, g->batch);
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
        !set_scale_modes(x, g, s) || !set_bias(x, g, s, 256)) // only its alignment is read before the first call
        return false;
    return make_layouts(x, g, s);
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

LtStatus hd_gemm_issue(HdCuda *x, const HdGemm *g, const HdGemmState *s, const LtAlgo *algo, CuStream stream,
                       const HdGemmOperands *at) {
    static const float one = 1, zero = 0;
    static const double wide_one = 1, wide_zero = 0;
    const void *alpha = g->d == HD_F64 ? (const void *)&wide_one : at->c ? &at->alpha : &one;
    const void *beta = g->d == HD_F64 ? (g->accumulate ? &wide_one : &wide_zero)
                       : at->c        ? (const void *)&at->beta
                                      : (const void *)(g->accumulate ? &one : &zero);
    return x->api.cublasLtMatmul(x->gemms.handle, s->desc, alpha, (const void *)at->b, s->b, (const void *)at->a, s->a,
                                 beta, (const void *)(at->c ? at->c : at->d), s->d, (void *)at->d, s->d, algo,
                                 (void *)at->workspace,
                                 (size_t)g->workspace_bytes, stream);
}

static HdKey key_of(const HdCuda *x, const HdGemm *g, Tune tune) {
    static const char *const scales[] = {"", "|scales of rows", "|a scale each", "|scales of blocks",
                                         "|scales of blocks and squares"};
    char text[512];
    HdKey k;
    const HdGemm as = like(g);
    int n = snprintf(text, sizeof text,
                     "cublasLt %zu, timed %s|%s|%d SM|%lld %lld %lld|%d %d %d|%d %d %d|%d|%lld|%lld|align %u%s%s",
                     x->api.cublasLtGetVersion(), tune == TUNE_LOAD ? "under load" : "in graphs", x->device_name,
                     x->sms, (long long)g->m, (long long)as.n, (long long)g->k, g->ta, g->tb, g->accumulate, (int)g->a,
                     (int)g->b, (int)g->d, g->epilogue, (long long)hd_gemm_batches(&as), (long long)g->workspace_bytes,
                     align_of(g), scales[g->scaled], g->fast ? ", fast" : "");
    hd_key_start(&k);
    hd_key_add(&k, text, (size_t)n);
    return k;
}

// Takes a choice of an earlier run, if the library accepts it.
static bool take(HdCuda *x, const HdGemm *g, HdGemmState *s, const Kept *kept) {
    LtHeuristic check;
    bool ok = x->api.cublasLtMatmulAlgoCheck(x->gemms.handle, s->desc, s->b, s->a, s->d, s->d, &kept->algo, &check) ==
                  HD_CUBLAS_STATUS_SUCCESS &&
              check.workspace <= (size_t)g->workspace_bytes;
    if (ok) {
        s->algo = kept->algo;
        s->workspace = (size_t)kept->workspace;
        s->chosen = -1;
    }
    return ok;
}

static bool recall(HdCuda *x, const HdGemm *g, HdGemmState *s, HdKey key) {
    size_t bytes = 0;
    Kept *kept = hd_cache_get(&x->cache, "gemm", key, &bytes);
    const bool ok = kept && bytes == sizeof *kept && take(x, g, s, kept);
    free(kept);
    return ok;
}

static bool take_given(HdCuda *x, const HdGemm *g, HdGemmState *s) { // of --choices
    char name[NAME];
    Kept given;
    name_of(g, name);
    return hd_choices_find(x, name, &given) &&
           (take(x, g, s, &given) ||
            hd_cuda_fail(x, "--choices=%s: cuBLASLt refuses the algorithm of the product %s", x->choices.path, name));
}

// The fastest of the heuristic's candidates, agreed on with other processes through the cache.
static bool choose(HdCuda *x, HdGemmState *s, const HdGemmTrial *trial, HdKey key, Policy policy) {
    LtHeuristic found[HD_GEMM_CANDIDATES];
    const HdGemm *g = trial->g;
    char text[160];
    describe(g, text, sizeof text);
    s->candidates = heuristics(x, g, s, hd_gemm_wanted(g), found);
    if (s->candidates == 0)
        return hd_cuda_fail(x, "cuBLASLt has no algorithm for gemm %s in %lld bytes of workspace", text,
                            (long long)g->workspace_bytes);
    const bool loads = policy.time && policy.tune == TUNE_LOAD && !hd_gemm_short(g);
    if (loads && !x->gemms.told && x->head.world->rank == 0)
        hd_say(stderr, "choosing algorithms of matrix products under load, some seconds for each; they are kept\n");
    x->gemms.told |= loads;
    if (policy.time) s->chosen = hd_gemm_fastest(x, trial, found, s->candidates, policy.tune == TUNE_LOAD, &s->ms);
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
    hd_say(stderr, "gemm %2d %-56s algorithm %d tile %u split-k %u workspace %zu", i, text, id, tile, split,
           s->workspace);
    if (s->chosen < 0) hd_say(stderr, ", remembered\n");
    else if (s->ms > 0)
        hd_say(stderr, ", %d of %d, %.3f ms, %.0f TFLOP/s\n", s->chosen, s->candidates, (double)s->ms,
               2e-9 * hd_gemm_work(g) / (double)s->ms);
    else hd_say(stderr, ", the heuristic's first of %d\n", s->candidates);
}

static bool same_key(HdKey a, HdKey b) { return a.word[0] == b.word[0] && a.word[1] == b.word[1]; }

static bool is_other(const HdGemm *as, const HdGemm *g) { return as->batch != g->batch || as->n != g->n; }

// The algorithm stays that of `like`, and the product becomes that of g.
static bool lay_out_again(HdCuda *x, const HdGemm *g, HdGemmState *s) {
    LtHeuristic check;
    LtLayout *const old[] = {&s->a, &s->b, &s->d};
    for (int i = 0; i < 3; i++) {
        x->api.cublasLtMatrixLayoutDestroy(*old[i]);
        *old[i] = NULL;
    }
    return make_layouts(x, g, s) &&
           lt_ok(x, x->api.cublasLtMatmulAlgoCheck(x->gemms.handle, s->desc, s->b, s->a, s->d, s->d, &s->algo, &check),
                 "an algorithm of several products, for another number of them or of columns");
}

// One product: from an equal one before it, from the cache, or by choosing; then one run, so that its kernel is loaded.
static bool prepare(HdCuda *x, const int *order, int at_order, HdKey *keys, HdStopwatch watch, Policy policy) {
    int i = order[at_order];
    const HdProgram *p = x->head.program;
    const HdGemm *g = &p->gemms[i];
    HdGemmState *s = &x->gemms.gemms[i];
    const HdGemm as = like(g);
    HdGemmTrial trial = {.g = &as, .s = s, .watch = watch};
    bool fits = hd_gemm_operands(x, &as, &trial.at) <= p->arena_bytes;
    keys[i] = key_of(x, g, policy.tune);
    if (!make_descriptors(x, &as, s) || (fits && !(set_bias(x, g, s, trial.at.bias) &&
                                                 set_scales(x, g, s, trial.at.scale_a, trial.at.scale_b))))
        return false;
    int twin = 0;
    while (twin < at_order && !same_key(keys[order[twin]], keys[i])) twin++;
    if (twin < at_order) {
        const HdGemmState *t = &x->gemms.gemms[order[twin]];
        s->algo = t->algo;
        s->workspace = t->workspace;
        s->candidates = t->candidates;
        s->chosen = t->chosen;
        s->ms = t->ms;
        return !is_other(&as, g) || lay_out_again(x, g, s);
    }
    policy.time = policy.time && fits;
    if (hd_choices_given(&x->choices)) {
        if (!take_given(x, g, s)) return false;
    } else if (!(policy.keep && recall(x, g, s, keys[i])) && !choose(x, s, &trial, keys[i], policy)) {
        return false;
    }
    if (is_other(&as, g) && !lay_out_again(x, g, s)) return false;
    if (fits && !lt_ok(x, hd_gemm_issue(x, g, s, &s->algo, x->streams[0], &trial.at), "first run of a matrix product"))
        return false;
    if (x->verbose) report(x, i, g, s);
    return true;
}

// The largest products first, so that those the budget does not reach matter least; ties by index.
static void sort_by_work(const HdProgram *p, int *order) {
    for (int i = 0; i < p->n_gemms; i++) {
        int j = i;
        for (; j > 0 && hd_gemm_work(&p->gemms[order[j - 1]]) < hd_gemm_work(&p->gemms[i]); j--)
            order[j] = order[j - 1];
        order[j] = i;
    }
}

static bool read_policy(HdCuda *x, Policy *policy) {
    static const char *const names[] = {[TUNE_NONE] = "0", [TUNE_QUICK] = "1", [TUNE_LOAD] = "load"};
    const char *asked = getenv("HEDDLE_TUNE");
    int tune = TUNE_QUICK;
    if (asked && *asked)
        for (tune = TUNE_NONE; tune <= TUNE_LOAD && strcmp(asked, names[tune]) != 0;) tune++;
    if (tune > TUNE_LOAD) return hd_cuda_fail(x, "HEDDLE_TUNE=%s: expected 0, 1 or load", asked);
    *policy = (Policy){.tune = (Tune)tune, .keep = tune != TUNE_NONE && hd_cache_usable(&x->cache)};
    if (tune != TUNE_LOAD || policy->keep) return true;
    return hd_cuda_fail(x, "HEDDLE_TUNE=load keeps its choices in the cache, and there is none: HEDDLE_CACHE has to "
                           "name a folder that this user may write, not off");
}

static bool tell_choices(HdCuda *x) {
    const HdProgram *p = x->head.program;
    for (int i = 0; i < p->n_gemms; i++) {
        char name[NAME];
        name_of(&p->gemms[i], name);
        if (!hd_choices_add(x, name, &(HdChoice){x->gemms.gemms[i].algo, x->gemms.gemms[i].workspace})) return false;
    }
    return true;
}

static int64_t scratch_bytes(const HdCuda *x) { // of the largest product that fits
    const HdProgram *p = x->head.program;
    int64_t most = 0;
    for (int i = 0; i < p->n_gemms; i++) {
        HdGemmOperands at;
        const HdGemm as = like(&p->gemms[i]);
        const int64_t need = hd_gemm_operands(x, &as, &at);
        if (need > most && need <= p->arena_bytes) most = need;
    }
    return most;
}

bool hd_gemms_open(HdCuda *x) {
    const HdProgram *p = x->head.program;
    const HdCudaApi *api = &x->api;
    Policy policy;
    if (p->n_gemms == 0) return true;
    if (!read_policy(x, &policy) || !lt_ok(x, api->cublasLtCreate(&x->gemms.handle), "cannot start")) return false;
    x->gemms.gemms = calloc((size_t)p->n_gemms, sizeof *x->gemms.gemms);
    HdKey *keys = calloc((size_t)p->n_gemms, sizeof *keys);
    int *order = calloc((size_t)p->n_gemms, sizeof *order);
    HdStopwatch watch = {0};
    bool ok = x->gemms.gemms && keys && order;
    if (ok) sort_by_work(p, order);
    else hd_cuda_fail(x, "out of host memory");
    ok = ok && hd_stopwatch_open(x, &watch, scratch_bytes(x));
    double begin = hd_cuda_now_ms();
    for (int i = 0; i < p->n_gemms && ok; i++) {
        policy.time = policy.keep && (policy.tune == TUNE_LOAD || hd_cuda_now_ms() - begin < tuning_budget_ms);
        ok = prepare(x, order, i, keys, watch, policy);
    }
    ok = ok && hd_cuda_ok(x, api->cuStreamSynchronize(x->streams[0]), "tuning of the matrix products") &&
         tell_choices(x);
    if (ok && x->verbose)
        hd_say(stderr, "gemms: %d products ready in %.0f ms\n", p->n_gemms, hd_cuda_now_ms() - begin);
    hd_stopwatch_close(x, &watch);
    free(keys);
    free(order);
    return ok;
}

void hd_gemm_run(HdCuda *x, int stream, int gemm, const HdGemmOperands *at) {
    if (x->failed) return;
    const HdGemm *g = &x->head.program->gemms[gemm];
    HdGemmState *s = &x->gemms.gemms[gemm];
    const uint64_t bias = g->epilogue == HD_EPI_NONE ? 0 : at->bias;
    const uint64_t all = at->a | at->b | at->c | at->d | bias | at->scale_a | at->scale_b;
    if (all % align_of(g)) { // the algorithm may rely on it
        hd_cuda_fail(x, "an operand of gemm %d is not at a multiple of %u bytes", gemm, align_of(g));
        return;
    }
    if (HD_NOTE(x, 'g', (uint64_t)stream, (uint64_t)gemm, at->a, at->b, at->bias, at->d, at->workspace) ||
        (g->scaled && HD_NOTE(x, 's', at->scale_a, at->scale_b)) || (at->c && HD_NOTE(x, 'c', at->c)) ||
        !set_bias(x, g, s, at->bias) || !set_scales(x, g, s, at->scale_a, at->scale_b))
        return;
    lt_ok(x, hd_gemm_issue(x, g, s, &s->algo, x->streams[stream], at), "matrix product");
}

void hd_cuda_gemm(HdExec *h, int stream, int gemm, uint64_t a, uint64_t b, uint64_t bias, uint64_t d,
                  uint64_t workspace) {
    hd_gemm_run((HdCuda *)h, stream, gemm,
                &(HdGemmOperands){.a = a, .b = b, .bias = bias, .d = d, .workspace = workspace});
}

void hd_cuda_gemm_scaled(HdExec *h, int stream, int gemm, uint64_t a, uint64_t b, uint64_t scale_a, uint64_t scale_b,
                         uint64_t d, uint64_t workspace) {
    hd_gemm_run((HdCuda *)h, stream, gemm, &(HdGemmOperands){.a = a, .b = b, .scale_a = scale_a, .scale_b = scale_b,
                                                          .d = d, .workspace = workspace});
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
