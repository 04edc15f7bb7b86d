// Times cuBLASLt's algorithms for a product, in the arena's memory while nothing else is in it.
//
// A few runs on a cool card say how fast an algorithm is at the highest clock. In a training step the card is at its
// power limit: then the clock falls until the power fits, and the algorithm that takes the least energy is the fastest.
// Which one that is only shows when each runs without a pause until the clock has settled ("under load").
#include "runtime/cuda/gemm.h"
#include <stdlib.h>

// A short product takes less time than its launch: it is timed in a graph, MANY of them together.
enum { CANDIDATES = 8, REPEATS = 3, MANY = 20 };
static const double short_work = 1e10; // some 30 us

// Under load. The clock follows the power within some tens of milliseconds. Measured on an H200: two rounds of 250 ms
// differ by up to 1 %, and the best under load is within 10 % of the best on a cool card.
static const float settle_ms = 150, measure_ms = 250;
static const float worth_loading = 1.15f;  // times the best on a cool card; slower candidates are not tried
static const float worth_repeating = 1.03f; // times the best under load; slower ones are not measured again

int64_t hd_gemm_batches(const HdGemm *g) { return g->batch > 1 ? g->batch : 1; }
double hd_gemm_work(const HdGemm *g) {
    return (double)hd_gemm_batches(g) * (double)g->m * (double)g->n * (double)g->k;
}
bool hd_gemm_short(const HdGemm *g) { return hd_gemm_work(g) < short_work; }
int hd_gemm_wanted(const HdGemm *g) { return hd_gemm_short(g) || g->like ? HD_GEMM_CANDIDATES : CANDIDATES; }

static int64_t padded(int64_t bytes) { return (bytes + 255) & ~(int64_t)255; }

int64_t hd_gemm_operands(const HdCuda *x, const HdGemm *g, HdGemmOperands *p) {
    const int64_t scales = !g->scaled ? 0 : g->block ? g->k / g->block * 4 : 4; // of a row: bytes
    const int64_t n = hd_gemm_batches(g), size[7] = {n * g->m * g->k * (int64_t)hd_dtypes[g->a].bytes,
                                                     n * g->k * g->n * (int64_t)hd_dtypes[g->b].bytes,
                                                     g->m * scales,
                                                     g->n * scales,
                                                     g->n * (int64_t)hd_dtypes[g->d].bytes,
                                                     n * g->m * g->n * (int64_t)hd_dtypes[g->d].bytes,
                                                     g->workspace_bytes};
    CuPtr *place[7] = {&p->a, &p->b, &p->scale_a, &p->scale_b, &p->bias, &p->d, &p->workspace};
    int64_t at = 0;
    for (int i = 0; i < 7; i++) {
        *place[i] = x->arena + (CuPtr)at;
        at += padded(size[i]);
    }
    return at;
}

// Small random numbers in every float format: the power that a product draws, and so its speed, depends on the data.
static bool fill(HdCuda *x, int64_t bytes) {
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

bool hd_stopwatch_open(HdCuda *x, HdStopwatch *w, int64_t bytes) {
    return (bytes == 0 || fill(x, bytes)) &&
           hd_cuda_ok(x, x->api.cuEventCreate(&w->start, HD_CU_EVENT_DEFAULT), "event") &&
           hd_cuda_ok(x, x->api.cuEventCreate(&w->end, HD_CU_EVENT_DEFAULT), "event");
}

void hd_stopwatch_close(HdCuda *x, HdStopwatch *w) {
    if (w->start) x->api.cuEventDestroy(w->start);
    if (w->end) x->api.cuEventDestroy(w->end);
}

static bool issue_all(HdCuda *x, const HdGemmTrial *t, const LtAlgo *algo, int repeats) {
    for (int i = 0; i < repeats; i++)
        if (hd_gemm_issue(x, t->g, t->s, algo, x->streams[0], &t->at) != HD_CUBLAS_STATUS_SUCCESS) return false;
    return true;
}

// Milliseconds from `start` to now, once the stream has come here; a negative number where the device fails.
static float stop(HdCuda *x, HdStopwatch watch) {
    float ms = -1;
    if (x->api.cuEventRecord(watch.end, x->streams[0]) != HD_CUDA_SUCCESS ||
        x->api.cuEventSynchronize(watch.end) != HD_CUDA_SUCCESS ||
        x->api.cuEventElapsedTime(&ms, watch.start, watch.end) != HD_CUDA_SUCCESS)
        return -1;
    return ms;
}

// Mean time of `repeats` runs; a negative number when the algorithm cannot run.
static float time_runs(HdCuda *x, const HdGemmTrial *t, const LtAlgo *algo, int repeats) {
    if (x->api.cuEventRecord(t->watch.start, x->streams[0]) != HD_CUDA_SUCCESS || !issue_all(x, t, algo, repeats))
        return -1;
    return stop(x, t->watch) / (float)repeats;
}

// The same, of MANY runs that are one graph, so that no launch counts.
static float time_graph(HdCuda *x, const HdGemmTrial *t, const LtAlgo *algo) {
    const HdCudaApi *api = &x->api;
    CuStream stream = x->streams[0];
    CuGraph graph = NULL;
    CuGraphExec exec = NULL;
    float ms = -1;
    if (api->cuStreamBeginCapture(stream, HD_CU_STREAM_CAPTURE_MODE_THREAD_LOCAL) != HD_CUDA_SUCCESS) return -1;
    bool ok = issue_all(x, t, algo, MANY);
    ok = api->cuStreamEndCapture(stream, &graph) == HD_CUDA_SUCCESS && ok && graph &&
         api->cuGraphInstantiateWithFlags(&exec, graph, 0) == HD_CUDA_SUCCESS &&
         api->cuGraphLaunch(exec, stream) == HD_CUDA_SUCCESS && // the first launch also moves the graph to the device
         api->cuEventRecord(t->watch.start, stream) == HD_CUDA_SUCCESS &&
         api->cuGraphLaunch(exec, stream) == HD_CUDA_SUCCESS;
    if (ok) ms = stop(x, t->watch) / MANY;
    if (exec) api->cuGraphExecDestroy(exec);
    if (graph) api->cuGraphDestroy(graph);
    return ms;
}

// On a cool card. One run loads the kernel, one shows whether the algorithm is worth measuring against `best` (0: none
// yet), REPEATS measure it.
static float time_cool(HdCuda *x, const HdGemmTrial *t, const LtAlgo *algo, float best) {
    if (time_runs(x, t, algo, 1) < 0) return -1;
    if (hd_gemm_short(t->g)) return time_graph(x, t, algo);
    float once = time_runs(x, t, algo, 1);
    if (once < 0 || (best > 0 && once > best * 1.3f)) return once;
    return time_runs(x, t, algo, REPEATS);
}

// `about`: milliseconds of one run
static float time_under_load(HdCuda *x, const HdGemmTrial *t, const LtAlgo *algo, float about) {
    if (!issue_all(x, t, algo, (int)(settle_ms / about) + 1)) return -1;
    return time_runs(x, t, algo, (int)(measure_ms / about) + 1);
}

static int least_of(const float *ms, int n) { // of those above 0; -1: there is none
    int least = -1;
    for (int i = 0; i < n; i++)
        if (ms[i] > 0 && (least < 0 || ms[i] < ms[least])) least = i;
    return least;
}

// `cool`: milliseconds on a cool card. The second round goes backwards, so that a drift of the clock favours nobody.
static int fastest_under_load(HdCuda *x, const HdGemmTrial *t, const LtHeuristic *found, int n, const float *cool,
                              float *ms) {
    float loaded[HD_GEMM_CANDIDATES] = {0};
    const float best = cool[least_of(cool, n)];
    for (int i = 0; i < n; i++)
        if (cool[i] > 0 && cool[i] <= best * worth_loading) loaded[i] = time_under_load(x, t, &found[i].algo, cool[i]);
    int least = least_of(loaded, n);
    const float limit = least < 0 ? 0 : loaded[least] * worth_repeating;
    for (int i = n - 1; i >= 0; i--)
        if (loaded[i] > 0 && loaded[i] <= limit) {
            const float again = time_under_load(x, t, &found[i].algo, cool[i]);
            loaded[i] = again < 0 ? -1 : (loaded[i] + again) / 2;
        }
    least = least_of(loaded, n);
    if (least >= 0) *ms = loaded[least];
    return least;
}

int hd_gemm_fastest(HdCuda *x, const HdGemmTrial *t, const LtHeuristic *found, int n, bool load, float *ms) {
    float cool[HD_GEMM_CANDIDATES] = {0};
    int least = -1;
    for (int i = 0; i < n; i++) {
        cool[i] = time_cool(x, t, &found[i].algo, least < 0 ? 0 : cool[least]);
        least = least_of(cool, n);
    }
    *ms = least < 0 ? 0 : cool[least];
    if (load && n > 1 && least >= 0 && !hd_gemm_short(t->g)) {
        const int loaded = fastest_under_load(x, t, found, n, cool, ms);
        if (loaded >= 0) least = loaded;
    }
    return least < 0 ? 0 : least;
}
