// NCCL communicators, one for each stream and group of ranks, so that collectives on different streams never wait for
// each other. They do not block: every call is polled while the other ranks are watched, so that nothing here can hang.
// Sums use reduce-scatter only, whose order NCCL keeps.
//
// Environment:
//   HEDDLE_NCCL_CTAS          at most so many blocks a collective (16; of values just so many, 32); 0: NCCL's choice
//   HEDDLE_SKIP_COLLECTIVES   1: steps without collectives, to measure what they cost. Copies of this rank's own part
//                             replace the others', so that products work on numbers of the usual size and draw the
//                             usual power; the results mean nothing. large: the collectives of a few numbers (loss,
//                             norm) stay, so that all ranks run at the pace of the slowest GPU.
// NCCL's own variables are left alone except those that a plan relies on.
#include "runtime/cuda/comms.h"
#include "runtime/cuda/device.h"
#include "runtime/world/mesh.h"
#include "runtime/world/world.h"
#include "runtime/text.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { INIT_SECONDS = 120, ISSUE_SECONDS = 60, WARM_BYTES = 4 << 20, DEFAULT_CTAS = 16, VALUE_CTAS = 32,
       LARGE_BYTES = 64 << 10 };

static int ranks_of(const HdProgram *p, const HdComm *c) { return hd_group_ranks(p, c->over); }

static bool nccl_failed(HdCuda *x, NcResult r, const char *what, const HdComm *c) {
    const char *more = x->api.ncclGetLastError(NULL);
    return hd_cuda_fail(x, "NCCL: %s (%s over %d ranks): %s%s%s", what, c->name, ranks_of(x->head.program, c),
                        x->api.ncclGetErrorString(r), more && *more ? "; " : "", more ? more : "");
}

// Communicators are used only with the lock held, and only while they are intact.
static bool enter(HdCuda *x) {
    pthread_mutex_lock(&x->comms.lock);
    if (!x->comms.aborted) return true;
    pthread_mutex_unlock(&x->comms.lock);
    return hd_watch_good(x);
}
static void leave(HdCuda *x) { pthread_mutex_unlock(&x->comms.lock); }

// Waits until the communicator has taken the call.
static bool settle(HdCuda *x, int i, NcResult r, const char *what, double seconds) {
    const HdComm *c = &x->head.program->comms[i];
    struct HdWorld *w = x->head.world;
    const double start = hd_cuda_now_ms();
    for (double now = start; r == HD_ncclInProgress; now = hd_cuda_now_ms()) {
        if (!enter(x)) return false;
        const NcResult asked = x->api.ncclCommGetAsyncError(x->comms.comm[i], &r);
        leave(x);
        if (asked != HD_ncclSuccess || r != HD_ncclInProgress) break;
        if (now - start > 2 && !w->alive(w)) return hd_cuda_fail(x, "%s", hd_failure());
        if (now - start > seconds * 1e3)
            return hd_cuda_fail(x, "NCCL: %s (%s over %d ranks): not done after %.0f s", what, c->name,
                                ranks_of(x->head.program, c), seconds);
        if (now - start > 2) usleep(200);
    }
    return r == HD_ncclSuccess || nccl_failed(x, r, what, c);
}

// Which of the program's communicators is used for number i: the first with the same ranks on the same stream. Its
// collectives have one order then anyway, and every communicator costs hundreds of MiB of device memory.
static int shared(const HdProgram *p, int i) {
    const HdComm *c = &p->comms[i];
    for (int j = 0; j < i; j++) // the same axes, but for those of one rank
        if (p->comms[j].stream == c->stream && !((p->comms[j].over ^ c->over) & hd_live_axes(p))) return j;
    return i;
}

// Every rank must have a GPU of its own unless sharing was allowed; NCCL's message would be less clear.
static bool own_gpu(HdCuda *x) {
    typedef struct { char host[80], boot[40], gpu[32]; } Place; // different hosts may have the same name
    struct HdWorld *w = x->head.world;
    Place mine = {"", "", ""}, *all = calloc((size_t)w->ranks, sizeof *all);
    if (!all) return hd_cuda_fail(x, "out of host memory");
    gethostname(mine.host, sizeof mine.host - 1);
    FILE *id = fopen("/proc/sys/kernel/random/boot_id", "r");
    if (id && !fgets(mine.boot, sizeof mine.boot, id)) mine.boot[0] = 0;
    if (id) fclose(id);
    x->api.cuDeviceGetPCIBusId(mine.gpu, sizeof mine.gpu, x->device);
    bool ok = w->gather(w, &mine, sizeof mine, all);
    if (!ok) hd_cuda_fail(x, "%s", hd_failure());
    for (int b = 1; b < w->ranks && ok; b++)
        for (int a = 0; a < b && ok; a++)
            if (mine.gpu[0] && !hd_device_shared() && !memcmp(&all[a], &all[b], sizeof *all))
                ok = hd_cuda_fail(x, "ranks %d and %d are both on GPU %s of %s: start at most one rank a GPU", a, b,
                                  all[b].gpu, all[b].host);
    free(all);
    return ok;
}

// Whether a communicator that shares this one moves values.
static bool moves_values(const HdProgram *p, int i) {
    for (int j = 0; j < p->n_comms; j++)
        if (p->comms[j].values && shared(p, j) == i) return true;
    return false;
}

// Gathers of weights and sums of gradients run beside products, which want the multiprocessors; for values these wait.
static NcConfig config(const HdProgram *p, int i) {
    const char *text = getenv("HEDDLE_NCCL_CTAS");
    const bool values = moves_values(p, i);
    const int most = text ? atoi(text) : values ? VALUE_CTAS : DEFAULT_CTAS, undefined = HD_NCCL_CONFIG_UNDEF_INT;
    return (NcConfig){.size = sizeof(NcConfig), .magic = 0xcafebeef, .version = 21800, .blocking = 0,
                      .cluster = undefined, .min_blocks = values && most > 0 ? most : undefined,
                      .max_blocks = most > 0 ? most : undefined, .split_share = undefined, .unused = undefined};
}

static bool connect_one(HdCuda *x, int i) {
    const HdProgram *p = x->head.program;
    const HdComm *c = &p->comms[i];
    struct HdWorld *w = x->head.world;
    const int first = hd_group_member(p, c->over, w->rank, 0);
    NcId mine = {{0}}, *all = calloc((size_t)w->ranks, sizeof *all);
    NcConfig conf = config(p, i);
    if (!all) return hd_cuda_fail(x, "out of host memory");
    NcResult r = first == w->rank ? x->api.ncclGetUniqueId(&mine) : HD_ncclSuccess;
    bool ok = r == HD_ncclSuccess || nccl_failed(x, r, "cannot start", c);
    if (!w->gather(w, &mine, sizeof mine, all)) ok = hd_cuda_fail(x, "%s", hd_failure());
    if (ok) {
        r = x->api.ncclCommInitRankConfig(&x->comms.comm[i], ranks_of(p, c), all[first],
                                           hd_group_number(p, c->over, w->rank), &conf);
        ok =
            x->comms.comm[i] ? settle(x, i, r, "cannot connect", INIT_SECONDS) : nccl_failed(x, r, "cannot connect", c);
    }
    free(all);
    return ok;
}

static bool all_gather(HdCuda *x, int stream, int comm, HdDtype dt, const void *part, void *whole, size_t count) {
    if (!enter(x)) return false;
    const NcResult r =
        x->api.ncclAllGather(part, whole, count, hd_dtypes[dt].nccl, x->comms.comm[comm], x->streams[stream]);
    leave(x);
    return settle(x, comm, r, "all_gather", ISSUE_SECONDS);
}

static bool reduce_scatter(HdCuda *x, int stream, int comm, HdDtype dt, const void *whole, void *part, size_t count) {
    if (!enter(x)) return false;
    const NcResult r = x->api.ncclReduceScatter(whole, part, count, hd_dtypes[dt].nccl, HD_ncclSum, x->comms.comm[comm],
                                                x->streams[stream]);
    leave(x);
    return settle(x, comm, r, "reduce_scatter", ISSUE_SECONDS);
}

static bool all_max(HdCuda *x, int stream, int comm, HdDtype dt, void *numbers, size_t count) {
    if (!enter(x)) return false;
    const NcResult r = x->api.ncclAllReduce(numbers, numbers, count, hd_dtypes[dt].nccl, HD_ncclMax,
                                            x->comms.comm[comm], x->streams[stream]);
    leave(x);
    return settle(x, comm, r, "all_max", ISSUE_SECONDS);
}

// A call of a group that a nonblocking communicator takes later is no failure.
static NcResult first_of(NcResult a, NcResult b) { return a == HD_ncclSuccess || a == HD_ncclInProgress ? b : a; }

static bool exchange(HdCuda *x, int stream, int comm, HdDtype dt, const void *whole, void *parts, size_t count,
                     size_t stride) {
    const HdProgram *p = x->head.program;
    const size_t bytes = stride * hd_dtypes[dt].bytes;
    const NcComm c = x->comms.comm[comm];
    if (!enter(x)) return false;
    NcResult r = x->api.ncclGroupStart();
    for (int i = 0; i < ranks_of(p, &p->comms[comm]); i++) {
        r = first_of(r, x->api.ncclSend((const char *)whole + (size_t)i * bytes, count, hd_dtypes[dt].nccl, i, c,
                                        x->streams[stream]));
        r = first_of(r, x->api.ncclRecv((char *)parts + (size_t)i * bytes, count, hd_dtypes[dt].nccl, i, c,
                                        x->streams[stream]));
    }
    r = first_of(r, x->api.ncclGroupEnd());
    leave(x);
    return settle(x, comm, r, "exchange", ISSUE_SECONDS);
}

// Whether a communicator that shares this one exchanges parts, or compares numbers.
static bool exchanges(const HdProgram *p, int i) {
    for (int j = 0; j < p->n_comms; j++)
        if (p->comms[j].exchanges && shared(p, j) == i) return true;
    return false;
}

static bool compares(const HdProgram *p, int i) {
    for (int j = 0; j < p->n_comms; j++)
        if (p->comms[j].compares && shared(p, j) == i) return true;
    return false;
}

// NCCL makes buffers and connections at the first use of each kind; none may be made later, inside a capture.
static bool warm_up(HdCuda *x, int i) {
    const HdProgram *p = x->head.program;
    const HdComm *c = &p->comms[i];
    int64_t part = p->arena_bytes / (ranks_of(p, c) + 1) / 256 * 256;
    if (part > WARM_BYTES) part = WARM_BYTES;
    void *one = (void *)(uintptr_t)x->arena, *whole = (void *)(uintptr_t)(x->arena + (CuPtr)part);
    const size_t counts[] = {part > 0 ? 1 : 0, (size_t)part / 4};
    for (int k = 0; k < 2; k++)
        if (counts[k] && (!all_gather(x, c->stream, i, HD_F32, one, whole, counts[k]) ||
                          !reduce_scatter(x, c->stream, i, HD_F32, whole, one, counts[k])))
            return false;
    for (int k = 0; k < 2 && compares(p, i); k++)
        if (counts[k] && !all_max(x, c->stream, i, HD_I32, one, counts[k])) return false;
    const int64_t each = p->arena_bytes / (2 * ranks_of(p, c)) / 256 * 256;
    const size_t most = (size_t)(each < WARM_BYTES ? each : WARM_BYTES);
    void *const parts = (void *)(uintptr_t)(x->arena + most * (CuPtr)ranks_of(p, c));
    for (size_t n = 1; exchanges(p, i) && most && n <= most / 4; n = n < most / 4 ? most / 4 : most)
        if (!exchange(x, c->stream, i, HD_F32, one, parts, n, n)) return false;
    return hd_cuda_ok(x, x->api.cuStreamSynchronize(x->streams[c->stream]), "first collectives");
}

bool hd_comms_open(HdCuda *x) {
    const HdProgram *p = x->head.program;
    struct HdWorld *w = x->head.world;
    int version = 0, n = 0;
    bool ok = !x->failed;
    if (!p->n_comms) return ok;
    setenv("NCCL_NVLS_ENABLE", "0", 1);           // sums in the network's switch have another order
    setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "0",
           // the edges it adds between launches crash NCCL 2.28 inside a capture; events give the order that is needed
           1);
    setenv("NCCL_RUNTIME_CONNECT", "0", 0);       // connect at once, so that nothing does so inside a capture
    if (ok && !hd_cuda_load(&x->api, HD_LIB_NCCL)) ok = hd_cuda_fail(x, "%s", hd_failure());
    if (!ok) hd_fail("%s", x->failure);
    if (!hd_world_agree(w, ok)) { // do not wait for a rank that fails elsewhere
        x->failed = false;
        return hd_cuda_fail(x, "%s", hd_failure());
    }
    const char *skip = getenv("HEDDLE_SKIP_COLLECTIVES");
    const bool large = skip && !strcmp(skip, "large"), all = skip && !strcmp(skip, "1");
    x->comms.skip_from = large ? LARGE_BYTES : all ? 0 : SIZE_MAX;
    if (x->comms.skip_from < SIZE_MAX && w->rank == 0)
        hd_say(stderr,
                "note: HEDDLE_SKIP_COLLECTIVES=%s: the ranks do not exchange their parts, the numbers mean "
                "nothing\n",
                skip);
    if (hd_device_shared() && w->rank == 0)
        hd_say(stderr, "note: HEDDLE_SHARE_GPUS=1: ranks may share a GPU, for tests; NCCL itself refuses that, "
                        "tests/gpu/one_gpu has a stand-in "
                        "that does not\n");
    x->comms.comm = calloc((size_t)p->n_comms, sizeof *x->comms.comm);
    if (!x->comms.comm) return hd_cuda_fail(x, "out of host memory");
    ok = own_gpu(x) && hd_watch_open(x);
    for (int i = 0; i < p->n_comms && ok; i++)
        if (ranks_of(p, &p->comms[i]) > 1 && shared(p, i) == i) ok = connect_one(x, i) && warm_up(x, i), n++;
    if (!ok) w->fail(w, x->failure); // others may be waiting for this rank inside NCCL
    if (ok && !hd_world_barrier(w)) ok = hd_cuda_fail(x, "%s", hd_failure());
    if (!ok) return false;
    if (x->verbose && x->api.ncclGetVersion(&version) == HD_ncclSuccess)
        hd_say(stderr, "comms: %d communicators by NCCL %d.%d.%d, rank %d of %d\n", n, version / 10000,
               version / 100 % 100, version % 100, w->rank, w->ranks);
    return true;
}

void hd_comms_abort(HdCuda *x) {
    for (int i = 0; x->comms.comm && !x->comms.aborted && i < x->head.program->n_comms; i++)
        if (x->comms.comm[i]) x->api.ncclCommAbort(x->comms.comm[i]);
    x->comms.aborted = true;
}

void hd_comms_close(HdCuda *x) {
    if (!x->comms.comm) return;
    hd_watch_quiet(x);
    if (x->failed && !x->comms.aborted) hd_comms_abort(x);
    for (int i = 0; i < x->head.program->n_comms && !x->comms.aborted; i++) {
        if (!x->comms.comm[i]) continue;
        // Aborts what is outstanding, as all ranks do now. Errors no longer matter here.
        NcResult r = x->api.ncclCommFinalize(x->comms.comm[i]);
        const double until = hd_cuda_now_ms() + 5e3;
        while (r == HD_ncclInProgress && hd_cuda_now_ms() < until &&
               x->api.ncclCommGetAsyncError(x->comms.comm[i], &r) == HD_ncclSuccess)
            usleep(200);
        if (r == HD_ncclSuccess) x->api.ncclCommDestroy(x->comms.comm[i]);
        else x->api.ncclCommAbort(x->comms.comm[i]);
    }
    free(x->comms.comm);
    x->comms.comm = NULL;
}

// --- what programs call

void hd_cuda_all_gather(HdExec *h, int stream, int comm, HdDtype dt, uint64_t part, uint64_t whole, int64_t count) {
    HdCuda *x = (HdCuda *)h;
    if (x->failed || count == 0) return;
    const size_t bytes = (size_t)count * hd_dtypes[dt].bytes;
    if (bytes >= x->comms.skip_from) {
        for (int r = 0; r < ranks_of(h->program, &h->program->comms[comm]); r++)
            if (whole + (uint64_t)r * bytes != part) hd_cuda_copy(h, stream, whole + (uint64_t)r * bytes, part, bytes);
        return;
    }
    const int own = shared(h->program, comm);
    if (!x->comms.comm[own]) { // one rank
        if (part != whole) hd_cuda_copy(h, stream, whole, part, bytes);
        return;
    }
    if (HD_NOTE(x, 'G', (uint64_t)stream, (uint64_t)comm, dt, part, whole, (uint64_t)count)) return;
    if (all_gather(x, stream, own, dt, (void *)(uintptr_t)part, (void *)(uintptr_t)whole, (size_t)count))
        hd_watch_collective(x, stream, comm);
}

void hd_cuda_reduce_scatter(HdExec *h, int stream, int comm, HdDtype dt, uint64_t whole, uint64_t part, int64_t count) {
    HdCuda *x = (HdCuda *)h;
    if (x->failed || count == 0) return;
    const size_t bytes = (size_t)count * hd_dtypes[dt].bytes;
    const int own = shared(h->program, comm);
    if (bytes >= x->comms.skip_from || !x->comms.comm[own]) {
        if (part != whole) hd_cuda_copy(h, stream, part, whole, bytes);
        return;
    }
    if (HD_NOTE(x, 'R', (uint64_t)stream, (uint64_t)comm, dt, whole, part, (uint64_t)count)) return;
    if (reduce_scatter(x, stream, own, dt, (void *)(uintptr_t)whole, (void *)(uintptr_t)part, (size_t)count))
        hd_watch_collective(x, stream, comm);
}

void hd_cuda_all_max(HdExec *h, int stream, int comm, HdDtype dt, uint64_t numbers, int64_t count) {
    HdCuda *x = (HdCuda *)h;
    if (x->failed || count == 0) return;
    const int own = shared(h->program, comm);
    if ((size_t)count * hd_dtypes[dt].bytes >= x->comms.skip_from || !x->comms.comm[own]) return;
    if (HD_NOTE(x, 'M', (uint64_t)stream, (uint64_t)comm, dt, numbers, (uint64_t)count)) return;
    if (all_max(x, stream, own, dt, (void *)(uintptr_t)numbers, (size_t)count)) hd_watch_collective(x, stream, comm);
}

void hd_cuda_exchange(HdExec *h, int stream, int comm, HdDtype dt, uint64_t whole, uint64_t parts, int64_t count,
                      int64_t stride) {
    HdCuda *x = (HdCuda *)h;
    if (x->failed || count == 0) return;
    const size_t bytes = (size_t)stride * hd_dtypes[dt].bytes;
    const int own = shared(h->program, comm);
    if ((size_t)count * hd_dtypes[dt].bytes >= x->comms.skip_from || !x->comms.comm[own]) {
        hd_cuda_copy(h, stream, parts, whole, bytes * (size_t)ranks_of(h->program, &h->program->comms[comm]));
        return;
    }
    if (HD_NOTE(x, 'X', (uint64_t)stream, (uint64_t)comm, dt, whole, parts, (uint64_t)count, (uint64_t)stride)) return;
    if (exchange(x, stream, own, dt, (void *)(uintptr_t)whole, (void *)(uintptr_t)parts, (size_t)count,
                 (size_t)stride))
        hd_watch_collective(x, stream, comm);
}
