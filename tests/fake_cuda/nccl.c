// Collectives between processes of one host, through shared memory: what the real library does, in its order of
// addition, at the speed of memcpy. The id of a communicator is the name of a file. A call does its work when the
// stream gets to it, and waits there for the other ranks, or for an abort.
//
//   FAKE_NCCL_ERROR=k   the k-th collective of a process leaves an error in its communicator
//   FAKE_NCCL_FOLDER    the folder of the files, else /tmp
#include "tests/fake_cuda/fake.h"
#include "runtime/host/scratch.h"
#include "tests/gpu/one_gpu/sum.h"
#include <dlfcn.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { ROOM = 512 << 20, MOST = 16, REMOTE_ERROR = 6 };
typedef struct { atomic_int arrived, left; atomic_int turn; size_t part; char data[]; } Shared;
struct NcCommState { Shared *s; int ranks, rank; atomic_int aborted; int error; char file[128]; };
typedef struct { NcComm c; const char *from; char *to; size_t bytes, count, stride; HdDtype dt; bool reduce,
                 exchange, most; }
    Collective;

NcResult fake_ncclGetVersion(int *v) { return *v = 22809, 0; }
const char *fake_ncclGetErrorString(NcResult r) {
    return r == REMOTE_ERROR ? "remote process exited or there was a network error" : "no error";
}
const char *fake_ncclGetLastError(NcComm c) { return (void)c, "a pretended failure"; }

NcResult fake_ncclGetUniqueId(NcId *id) {
    static int n;
    const char *folder = getenv("FAKE_NCCL_FOLDER");
    memset(id, 0, sizeof *id);
    snprintf(id->internal, sizeof id->internal, "%s/heddle-fake-nccl-%ld-%d", folder ? folder : "/tmp", (long)getpid(),
             n++);
    return fake_call("ncclGetUniqueId") ? 3 : 0;
}

NcResult fake_ncclCommInitRankConfig(NcComm *comm, int ranks, NcId id, int rank, NcConfig *config) {
    if (fake_call("ncclCommInitRankConfig") || config->magic != 0xcafebeef || config->blocking ||
        strcmp(getenv("NCCL_NVLS_ENABLE"), "0") != 0)
        return 4;
    NcComm c = calloc(1, sizeof *c);
    const int fd = open(id.internal, O_RDWR | O_CREAT, 0600);
    if (fd < 0 || ftruncate(fd, ROOM) != 0) return 2;
    c->s = mmap(NULL, ROOM, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    c->ranks = ranks;
    c->rank = rank;
    snprintf(c->file, sizeof c->file, "%s", id.internal);
    fake_log("comm of %d ranks, at most %d blocks%s", ranks, config->max_blocks,
             config->min_blocks == config->max_blocks ? " and at least" : "");
    return *comm = c, HD_ncclInProgress;
}

NcResult fake_ncclCommGetAsyncError(NcComm c, NcResult *r) { return *r = c->error, 0; }
static NcResult end(NcComm c) {
    unlink(c->file);
    munmap(c->s, ROOM);
    return free(c), 0;
}
NcResult fake_ncclCommDestroy(NcComm c) { return end(c); }
NcResult fake_ncclCommFinalize(NcComm c) { return (void)c, fake_log("comm finalized"), 0; }
NcResult fake_ncclCommAbort(NcComm c) { // a collective may still look at it
    fake_log("comm aborted");
    c->aborted = 1;
    unlink(c->file);
    return 0;
}

static bool meet(NcComm c) { // false: aborted
    const int turn = c->s->turn;
    if (atomic_fetch_add(&c->s->arrived, 1) + 1 == c->ranks) {
        c->s->arrived = 0;
        c->s->turn++;
        return true;
    }
    while (c->s->turn == turn) {
        if (c->aborted) return false;
        usleep(20);
    }
    return true;
}

static void largest(int32_t *to, const char *from, const Collective *k) { // of what is there and of a rank's numbers
    for (size_t i = 0; i < k->count; i++) {
        int32_t x;
        memcpy(&x, from + i * sizeof x, sizeof x);
        if (x > to[i]) to[i] = x;
    }
}

static void work(void *data) {
    const Collective *k = data;
    NcComm c = k->c;
    const size_t mine = k->reduce || k->exchange ? k->bytes * (size_t)c->ranks : k->bytes;
    if (mine * (size_t)c->ranks > ROOM - sizeof(Shared)) abort();
    for (int i = 0; k->exchange && i < c->ranks; i++)
        memcpy(c->s->data + (size_t)c->rank * mine + (size_t)i * k->bytes, k->from + (size_t)i * k->stride, k->bytes);
    if (!k->exchange) memcpy(c->s->data + (size_t)c->rank * mine, k->from, mine);
    if (!meet(c)) return;
    const char *parts = c->s->data + (size_t)c->rank * k->bytes;
    for (int i = 0; k->exchange && i < c->ranks; i++)
        memcpy(k->to + (size_t)i * k->stride, parts + (size_t)i * mine, k->bytes);
    if (!k->reduce && !k->exchange && !k->most) memcpy(k->to, c->s->data, mine * (size_t)c->ranks);
    for (int i = 0; k->most && i < c->ranks; i++) largest((int32_t *)(void *)k->to, c->s->data + (size_t)i * mine, k);
    if (k->reduce) sum_in_order(k->dt, parts, mine, c->ranks, c->rank, k->count, k->to);
    meet(c);
    static int n;
    if (getenv("FAKE_NCCL_ERROR") && ++n == atoi(getenv("FAKE_NCCL_ERROR"))) c->error = REMOTE_ERROR;
}

static NcResult submit(Collective k, NcType type, RtStream stream) {
    static FakeSubmit *go;
    void *f = go ? NULL : dlsym(RTLD_DEFAULT, "fake_submit");
    if (!go && !f) f = dlsym(dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD), "fake_submit");
    if (f) memcpy(&go, &f, sizeof f);
    if (!nccl_dtype(type, &k.dt) || (k.reduce && !nccl_sums(k.dt))) return 4;
    k.bytes = k.count * hd_dtypes[k.dt].bytes;
    return go((CuStream)stream, work, &k, sizeof k, "collective") ? 5 : 0;
}

NcResult fake_ncclAllGather(const void *part, void *whole, size_t count, NcType type, NcComm c, RtStream s) {
    if (fake_call("ncclAllGather")) return 3;
    return submit((Collective){.c = c, .from = part, .to = whole, .count = count}, type, s);
}
NcResult fake_ncclReduceScatter(const void *whole, void *part, size_t count, NcType type, NcOp op, NcComm c,
                                RtStream s) {
    if (fake_call("ncclReduceScatter") || op != HD_ncclSum) return 3;
    return submit((Collective){.c = c, .from = whole, .to = part, .count = count, .reduce = true}, type, s);
}

NcResult fake_ncclAllReduce(const void *from, void *to, size_t count, NcType type, NcOp op, NcComm c, RtStream s) {
    if (fake_call("ncclAllReduce") || op != HD_ncclMax || type != HD_ncclInt32 || from != to) return 3;
    return submit((Collective){.c = c, .from = from, .to = to, .count = count, .most = true}, type, s);
}

// A group has a send to every rank and a receive from each, of parts that begin equally far from each other, as the
// runtime makes it.
static Collective group;
static struct { bool open, wrong; int sent, received; NcType type; RtStream stream; } of_group;

NcResult fake_ncclGroupStart(void) {
    if (fake_call("ncclGroupStart")) return 3;
    group = (Collective){.exchange = true};
    memset(&of_group, 0, sizeof of_group);
    of_group.open = true;
    return 0;
}

static void add(NcComm c, size_t count, NcType type, RtStream s) {
    const bool first = !of_group.sent && !of_group.received;
    if (first) group.c = c, group.count = count, of_group.type = type, of_group.stream = s;
    of_group.wrong |= !of_group.open || c != group.c || count != group.count || type != of_group.type ||
                      s != of_group.stream || !nccl_dtype(type, &group.dt);
}

NcResult fake_ncclSend(const void *from, size_t count, NcType type, int peer, NcComm c, RtStream s) {
    add(c, count, type, s);
    if (!of_group.sent) group.from = from;
    if (of_group.sent == 1) group.stride = (size_t)((const char *)from - group.from);
    of_group.wrong |= peer != of_group.sent || from != group.from + (size_t)peer * group.stride ||
                      (peer && group.stride < count * hd_dtypes[group.dt].bytes);
    return of_group.sent++, HD_ncclInProgress;
}

NcResult fake_ncclRecv(void *to, size_t count, NcType type, int peer, NcComm c, RtStream s) {
    add(c, count, type, s);
    if (!of_group.received) group.to = to;
    of_group.wrong |= peer != of_group.received ||
                      (peer > 1 && to != group.to + (size_t)peer * group.stride) ||
                      (peer == 1 && of_group.sent > 1 && to != group.to + group.stride);
    return of_group.received++, HD_ncclInProgress;
}

NcResult fake_ncclGroupEnd(void) {
    if (fake_call("ncclGroupEnd")) return 3;
    of_group.open = false;
    if (of_group.wrong || !group.c || of_group.sent != group.c->ranks || of_group.received != group.c->ranks) return 4;
    return submit(group, of_group.type, of_group.stream);
}
