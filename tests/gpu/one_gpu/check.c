// Checks the stand-in for NCCL by itself, before programs use it: one_gpu_check [RANKS]. Ranks are processes that take
// the GPUs in turn. Every dtype, parts of one element and of several pieces; issued directly and replayed from a graph,
// on two communicators and two streams; a rank that does not come; ranks that disagree; what is refused.
// HEDDLE_CUDA_PATH says whose NCCL and whose driver: the real one on a GPU, tests/fake_cuda without. One line a check;
// exit status 0: all held.
#include "runtime/cuda/api.h"
#include "runtime/heddle.h"
#include "runtime/heddle_host.h"
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { REPLAYS = 5, SECONDS = 100 };
enum { GATHER = 0, REDUCE = 1, STUCK = 2, DISAGREE = 3, COMMS = 4 };
static const size_t counts[] = {1, 1000, 700001}; // the last: some pieces, the last of them odd
enum { MOST = 700001, N_COUNTS = sizeof counts / sizeof *counts };
typedef struct { const char *name; int type; size_t bytes; } Type;
static const Type types[] = {{"f32", HD_ncclFloat32, 4}, {"bf16", HD_ncclBfloat16, 2}, {"f16", HD_ncclFloat16, 2},
                             {"f64", HD_ncclFloat64, 8}, {"i32", HD_ncclInt32, 4},     {"u8", HD_ncclUint8, 1}};
enum { N_TYPES = 6, N_SUMMED = 4 };

enum { OPENED, GIVEN_UP, SEEN, MEETINGS };
typedef struct { NcId id[COMMS]; atomic_int here[MEETINGS]; } Common; // `here`: how many have come to each meeting
static Common *common;
static HdCudaApi api;
static int ranks, rank;
static CuStream stream[2];
static NcComm comm[COMMS];
static CuPtr part, gathered, whole, sum; // on the device: of all_gather, of reduce_scatter
static char *host;                       // of ranks x MOST elements

static void __attribute__((noreturn)) stop(const char *what, const char *why) {
    fprintf(stderr, "rank %d: %s: %s\n", rank, what, why);
    _exit(1);
}
static void cu(CuResult r, const char *what) {
    if (r != HD_CUDA_SUCCESS) stop(what, hd_cuda_error(&api, r));
}
static void nc(NcResult r, const char *what) {
    if (r != HD_ncclSuccess) stop(what, api.ncclGetLastError(NULL));
}

static void meet(int i) {
    atomic_fetch_add(&common->here[i], 1);
    while (common->here[i] < ranks) usleep(200);
}

// --- numbers: what rank r brings as element i of round k, and the sum in the order of the owner

static double number(int r, size_t i, int k) {
    return (double)((i * 37 + (size_t)r * 101 + (size_t)k * 13) % 97) * 0.37 + (double)(r + 1) / 7;
}

static void put(int type, void *at, size_t i, double v) {
    const float f = (float)v;
    if (type == HD_ncclFloat32) ((float *)at)[i] = f;
    else if (type == HD_ncclFloat64) ((double *)at)[i] = v;
    else if (type == HD_ncclBfloat16) ((uint16_t *)at)[i] = hd_to_bf16(f);
    else if (type == HD_ncclFloat16) ((uint16_t *)at)[i] = hd_to_f16(f);
    else if (type == HD_ncclInt32) ((int32_t *)at)[i] = (int32_t)v;
    else ((uint8_t *)at)[i] = (uint8_t)v;
}

static double rounded(int type, double v) {
    const float f = (float)v;
    if (type == HD_ncclFloat64) return v;
    return type == HD_ncclFloat32    ? (double)f
           : type == HD_ncclBfloat16 ? (double)hd_round_bf16(f)
                                     : (double)hd_round_f16(f);
}

// Element i of the whole, summed by this rank, then `times` - 1 times the sum of what all ranks then have alike.
static double expected(int type, size_t i, int k, int times) {
    double v = rounded(type, number((rank + 1) % ranks, i, k));
    for (int r = 2; r <= ranks; r++) v = rounded(type, v + rounded(type, number((rank + r) % ranks, i, k)));
    for (int n = 1; n < times; n++) {
        const double one = v;
        for (int r = 2; r <= ranks; r++) v = rounded(type, v + one);
    }
    return v;
}

static void bring(const Type *t, size_t n, bool reduce, int k) {
    const size_t all = reduce ? n * (size_t)ranks : n;
    for (size_t i = 0; i < all; i++) put(t->type, host, i, number(rank, i, k));
    cu(api.cuMemcpyHtoDAsync(reduce ? whole : part, host, all * t->bytes, stream[reduce]), "copy");
    cu(api.cuStreamSynchronize(stream[reduce]), "copy");
}

static bool right(const Type *t, size_t n, bool reduce, int k, int times) {
    const size_t all = reduce ? n : n * (size_t)ranks;
    double want;
    cu(api.cuMemcpyDtoHAsync(host, reduce ? sum : gathered, all * t->bytes, stream[reduce]), "copy");
    cu(api.cuStreamSynchronize(stream[reduce]), "copy");
    for (size_t i = 0; i < all; i++) {
        put(t->type, &want, 0,
            reduce ? expected(t->type, (size_t)rank * n + i, k, times) : number((int)(i / n), i % n, k));
        if (!memcmp(&want, host + i * t->bytes, t->bytes)) continue;
        fprintf(stderr, "rank %d: %s of %zu %s, round %d: element %zu is wrong\n", rank,
                reduce ? "reduce_scatter" : "all_gather", n, t->name, k, i);
        return false;
    }
    return true;
}

static void *pointer(CuPtr p) { return (void *)(uintptr_t)p; }
static void gather(const Type *t, size_t n, CuPtr from, CuPtr to) {
    nc(api.ncclAllGather(pointer(from), pointer(to), n, t->type, comm[GATHER], stream[0]), "ncclAllGather");
}
static void reduce_scatter(const Type *t, size_t n) {
    nc(api.ncclReduceScatter(pointer(whole), pointer(sum), n, t->type, HD_ncclSum, comm[REDUCE], stream[1]),
       "ncclReduceScatter");
}

// --- checks

static bool direct(void) {
    bool ok = true;
    for (int i = 0; i < N_TYPES; i++)
        for (int c = 0; c < N_COUNTS && ok; c++) {
            bring(&types[i], counts[c], false, c);
            if (i < N_SUMMED) bring(&types[i], counts[c], true, c);
            for (int k = 0; k < 3; k++) { // nothing waits for the host between them
                gather(&types[i], counts[c], part, gathered);
                if (i < N_SUMMED) reduce_scatter(&types[i], counts[c]);
            }
            ok = right(&types[i], counts[c], false, c, 1) && (i >= N_SUMMED || right(&types[i], counts[c], true, c, 1));
        }
    return ok;
}

// A graph of three collectives on two streams, an odd number, so that a replay does not begin where the last one did:
// the sum of `whole`, and what becomes of it handed round, twice, into `whole`.
static bool replayed_of(const Type *t, size_t n) {
    CuGraph graph = NULL;
    CuGraphExec exec = NULL;
    CuEvent event[2];
    bool ok = true;
    for (int i = 0; i < 2; i++) cu(api.cuEventCreate(&event[i], HD_CU_EVENT_DISABLE_TIMING), "event");
    cu(api.cuStreamBeginCapture(stream[1], HD_CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), "begin of the capture");
    reduce_scatter(t, n);
    cu(api.cuEventRecord(event[0], stream[1]), "record");
    cu(api.cuStreamWaitEvent(stream[0], event[0], 0), "wait");
    gather(t, n, sum, whole);
    gather(t, n, sum, whole);
    cu(api.cuEventRecord(event[1], stream[0]), "record");
    cu(api.cuStreamWaitEvent(stream[1], event[1], 0), "wait");
    cu(api.cuStreamEndCapture(stream[1], &graph), "end of the capture");
    cu(api.cuGraphInstantiateWithFlags(&exec, graph, HD_CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY), "graph");
    for (int k = 0; k < REPLAYS && ok; k++) { // the host between the launches, then nothing between them
        bring(t, n, true, k);
        for (int i = 0; i <= k; i++) cu(api.cuGraphLaunch(exec, stream[1]), "launch of the graph");
        ok = right(t, n, true, k, k + 1);
    }
    cu(api.cuGraphExecDestroy(exec), "graph");
    cu(api.cuGraphDestroy(graph), "graph");
    for (int i = 0; i < 2; i++) cu(api.cuEventDestroy(event[i]), "event");
    return ok;
}

static bool replayed(void) {
    bool ok = true;
    for (int i = 0; i < N_TYPES; i++) // not f16: sums of sums leave its range
        for (int c = 0; c < N_COUNTS && ok && i < N_SUMMED && types[i].type != HD_ncclFloat16; c++)
            ok = replayed_of(&types[i], counts[c]);
    return ok;
}

// A collective that is issued alone, on a thread: a pretended driver may wait there, a real one waits in its stream.
typedef struct { int comm; size_t count; pthread_t thread; atomic_bool done; } Alone;
static CuContext context;

static void *issue_alone(void *arg) {
    Alone *a = arg;
    cu(api.cuCtxSetCurrent(context), "context");
    nc(api.ncclAllGather(pointer(part), pointer(gathered), a->count, HD_ncclFloat32, comm[a->comm], stream[0]),
       "ncclAllGather");
    cu(api.cuStreamSynchronize(stream[0]), "stream");
    a->done = true;
    return NULL;
}

static bool waits_until_aborted(Alone *a) {
    pthread_create(&a->thread, NULL, issue_alone, a);
    usleep(300000);
    const bool waits = !a->done;
    nc(api.ncclCommAbort(comm[a->comm]), "ncclCommAbort");
    pthread_join(a->thread, NULL);
    return waits;
}

static bool aborted(void) { // the last rank comes when the others have given up: nothing completes, for anyone
    Alone a = {.comm = STUCK, .count = 4};
    bool ok = true;
    if (rank < ranks - 1) {
        ok = waits_until_aborted(&a);
        for (int i = 0; i < ranks; i++) issue_alone(&a); // whatever else is queued runs through, and nobody is counted
    }
    meet(GIVEN_UP);
    if (rank == ranks - 1) ok = waits_until_aborted(&a);
    return ok;
}

static bool disagree(void) {
    Alone a = {.comm = DISAGREE, .count = rank == 1 ? 5 : 4};
    NcResult r = HD_ncclSuccess;
    pthread_create(&a.thread, NULL, issue_alone, &a);
    while (r == HD_ncclSuccess && api.ncclCommGetAsyncError(comm[DISAGREE], &r) == HD_ncclSuccess) usleep(1000);
    const bool ok =
        !strcmp(api.ncclGetErrorString(r),
                "ranks disagree: rank 0 has come with all_gather of 4 f32, rank 1 with all_gather of 5 f32");
    meet(SEEN);
    nc(api.ncclCommAbort(comm[DISAGREE]), "ncclCommAbort");
    pthread_join(a.thread, NULL);
    return ok;
}

static bool said(NcResult r, const char *words) {
    if (r != HD_ncclSuccess && strstr(api.ncclGetLastError(NULL), words)) return true;
    fprintf(stderr, "rank %d: result %d, \"%s\", not \"%s\"\n", rank, r, api.ncclGetLastError(NULL), words);
    return false;
}

static bool refused(void) {
    void *from = pointer(whole), *to = pointer(sum);
    NcComm none = NULL;
    NcConfig config = {.size = sizeof config};
    return said(api.ncclReduceScatter(from, to, 4, HD_ncclInt32, HD_ncclSum, comm[REDUCE], stream[1]),
                "type 2 is not one that can be summed here") &&
           said(api.ncclAllGather(from, to, 4, 99, comm[GATHER], stream[0]),
                "type 99 is not one that can be gathered here") &&
           said(api.ncclReduceScatter(from, to, 4, HD_ncclFloat32, 1, comm[REDUCE], stream[1]),
                "operation 1: only sums are done here") &&
           said(api.ncclCommInitRankConfig(&none, 65, common->id[0], 0, &config),
                "rank 0 of 65; at most 64 ranks can share a GPU here") &&
           said(api.ncclCommInitRankConfig(&none, ranks, (NcId){"/proc/0/fd/0"}, rank, &config),
                "/proc/0/fd/0: No such file or directory; all ranks have to be processes of one host and one user");
}

// --- a rank

static void open_rank(void) {
    static NcConfig config = {.size = sizeof config, .magic = 0xcafebeef, .version = 21800, .blocking = 0};
    const size_t all = sizeof(double) * MOST * (size_t)ranks;
    int count = 0;
    CuDevice device = 0;
    if (!hd_cuda_load(&api, HD_LIB_DRIVER) || !hd_cuda_load(&api, HD_LIB_NCCL)) stop("libraries", hd_failure());
    cu(api.cuInit(0), "cuInit");
    cu(api.cuDeviceGetCount(&count), "GPUs");
    cu(api.cuDeviceGet(&device, rank % (count > 0 ? count : 1)), "GPU");
    cu(api.cuDevicePrimaryCtxRetain(&context, device), "context");
    cu(api.cuCtxSetCurrent(context), "context");
    for (int i = 0; i < 2; i++) cu(api.cuStreamCreateWithPriority(&stream[i], HD_CU_STREAM_NON_BLOCKING, 0), "stream");
    for (int i = 0; i < 4; i++)
        cu(api.cuMemAlloc((CuPtr *[]){&part, &sum, &gathered, &whole}[i], i < 2 ? sizeof(double) * MOST : all),
           "memory");
    cu(api.cuMemHostAlloc((void **)&host, all, HD_CU_MEMHOSTALLOC_PORTABLE), "memory");
    for (int i = 0; i < COMMS && rank == 0; i++) nc(api.ncclGetUniqueId(&common->id[i]), "ncclGetUniqueId");
    meet(OPENED);
    config.min_blocks = config.max_blocks = config.cluster = config.split_share = config.unused =
        HD_NCCL_CONFIG_UNDEF_INT;
    for (int i = 0; i < COMMS; i++)
        nc(api.ncclCommInitRankConfig(&comm[i], ranks, common->id[i], rank, &config), "ncclCommInitRankConfig");
}

static int run(void) {
    static const struct { const char *name; bool (*check)(void);
    } checks[] = {{"direct", direct},
                  {"replayed", replayed},
                  {"aborted", aborted},
                  {"ranks that disagree", disagree},
                  {"refused", refused}};
    bool ok = true;
    alarm(SECONDS);
    open_rank();
    for (size_t i = 0; i < sizeof checks / sizeof *checks && ok; i++) {
        ok = checks[i].check();
        if (rank == 0 || !ok) printf("%-28s %s\n", checks[i].name, ok ? "ok" : "FAILED");
        fflush(stdout);
    }
    for (int i = GATHER; i <= REDUCE && ok; i++) {
        nc(api.ncclCommFinalize(comm[i]), "ncclCommFinalize");
        nc(api.ncclCommDestroy(comm[i]), "ncclCommDestroy");
    }
    return !ok;
}

int main(int argc, char **argv) {
    int bad = 0;
    ranks = argc > 1 ? atoi(argv[1]) : 2;
    common = mmap(NULL, sizeof *common, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (ranks < 2 || common == MAP_FAILED) return fprintf(stderr, "usage: one_gpu_check RANKS, at least 2\n"), 2;
    pid_t *process = calloc((size_t)ranks, sizeof *process);
    for (rank = 0; rank < ranks; rank++)
        if ((process[rank] = fork()) == 0) _exit(run());
    for (int i = 0, how; i < ranks; i++) {
        const pid_t p = wait(&how);
        if (how && !bad++) fprintf(stderr, "a rank has ended with status %#x\n", (unsigned)how);
        for (int r = 0; r < ranks; r++) {
            if (process[r] == p) process[r] = 0;
            else if (how && process[r]) kill(process[r], SIGKILL); // the others would wait for it
        }
    }
    free(process);
    return bad != 0;
}
