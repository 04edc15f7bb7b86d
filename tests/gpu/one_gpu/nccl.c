// A stand-in for NCCL that lets ranks share a GPU, which NCCL refuses: a program of 8 ranks runs on one GPU, for tests
// and for finding errors, at the speed of the host's memory. It has the functions of NCCL that runtime/cuda/api.def
// names, and adds up in NCCL's order (sum.h). All ranks are processes of one host and one user. Put the folder of its
// libnccl.so.2 first in HEDDLE_CUDA_PATH and set HEDDLE_SHARE_GPUS=1; tests/gpu/ranks.sh does so with ONE_GPU=1.
//
// A communicator is a piece of memory that all its ranks share and that the GPU can reach: a place of ROOM bytes for
// each rank's data, one for the result, and a flag per rank. A collective is cut into pieces that fit. A piece is four
// things on the stream, issued or captured in the same way:
//   1  copy this rank's data to its place
//   2  a host function (arrive), which never waits, as one thread may run those of all streams: sets this rank's flag
//      to WAITING and counts the rank in. The last rank to arrive computes the result for all and sets all flags to GO.
//   3  a memory operation that holds the stream until this rank's flag is GO (or ABORTED); it uses none of the GPU
//   4  copy this rank's part of the result to the device
//
// Why the same bytes can serve the next piece, the next collective and every replay of a graph, whose addresses and
// values are fixed: the collectives of a communicator follow each other on a rank (NCCL demands that, too), so on every
// rank the order is 1 2 3 4 1 2 3 4.
// - A rank overwrites its place (the next 1) when it has passed 3. Then the flags were set, so the result was complete
//   and no rank reads the places any more.
// - The result is overwritten (in a next 2) when all ranks have arrived again, each after its own 4: all have read it.
// - A flag is reset (2) after the 3 that waited for it, and before this rank is counted; it is set again only when all
//   are counted.
// - The last rank to arrive resets the counter, before any flag is set; no rank arrives again before that.
//
// Graphs and memory operations: NCCL captures cuStreamBatchMemOp itself (its collectives by copy engines), so the
// driver allows it.
#define _GNU_SOURCE
#include "tests/gpu/one_gpu/driver.h"
#include "tests/gpu/one_gpu/sum.h"
#include "runtime/host/scratch.h"
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { ROOM = 4 << 20, MOST = 64, VERSION = 21800 };
enum { WAITING, GO, ABORTED }; // the device waits for a flag >= GO
enum { CUDA_FAILED = 1, SYSTEM_FAILED = 2, INVALID_ARGUMENT = 4, INVALID_USAGE = 5 }; // results of NCCL

// The names it exports, with the types of api.def.
#define OF_DRIVER(result, name, params)
#define OF_NVRTC(result, name, params)
#define OF_LT(result, name, params)
#define OF_CUDNN(result, name, params)
#define OF_NCCL(result, name, params) result name params;
#define FN(lib, result, name, symbol, params) OF_##lib(result, name, params)
#include "runtime/cuda/api.def"

static struct {
#define FN(result, name, symbol, params) result(*name) params;
#include "tests/gpu/one_gpu/driver.def"
} driver;

typedef enum { GATHER, REDUCE, EXCHANGE, COMPARE } Does; // COMPARE: the largest of whole numbers
typedef struct { HdDtype dt; Does does; size_t count; } Piece; // count: elements of one rank's part
typedef struct { // of a rank; its flag is in a cache line of its own
    _Alignas(64) _Atomic uint32_t flag;
    _Alignas(64) Piece piece;
} Seat;
typedef struct { // what the ranks share
    Seat seat[MOST];
    atomic_int arrived, disagrees; // disagrees: a rank that came with another piece than rank 0; 0: none
    atomic_bool
        aborted; // by some rank: no collective completes any more, as that rank's stream runs on and spoils its place
    _Alignas(4096) char place[];   // of ROOM bytes: one a rank, and the result
} Shared;
typedef struct Call {
    NcComm comm;
    Piece piece;
    struct Call *next;
} Call; // what a host function gets; as old as the communicator
struct NcCommState { Shared *s; CuPtr flag; int ranks, rank, file; size_t bytes; Call *calls; };

static _Thread_local char words[400]; // of this thread's last failure

static NcResult __attribute__((format(printf, 2, 3))) failed(NcResult r, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(words, sizeof words, fmt, ap);
    va_end(ap);
    return r;
}

static NcResult checked(CuResult r, const char *what) {
    const char *name = NULL;
    if (r == HD_CUDA_SUCCESS) return HD_ncclSuccess;
    return failed(CUDA_FAILED, "%s: %s (%d)", what,
                  driver.cuGetErrorName(r, &name) == HD_CUDA_SUCCESS && name ? name : "unknown CUDA error", r);
}

static const char *missing; // of the driver's functions
static void open_driver(void) {
    void *h = dlopen("libcuda.so.1", RTLD_LAZY); // the one that the program has opened
    if (!h) missing = "libcuda.so.1";
#define FN(result, name, symbol, params)            \
    {                                               \
        void *f = h ? dlsym(h, symbol) : NULL;      \
        memcpy(&driver.name, &f, sizeof f);         \
        if (!f && !missing) missing = symbol;       \
    }
#include "tests/gpu/one_gpu/driver.def"
}

// --- communicators

NcResult ncclGetVersion(int *version) { return *version = VERSION, HD_ncclSuccess; }
const char *ncclGetErrorString(NcResult r) {
    if (r == INVALID_USAGE && words[0]) return words; // what the watchdog tells
    return r == HD_ncclSuccess     ? "no error"
           : r == CUDA_FAILED      ? "a CUDA call failed"
           : r == SYSTEM_FAILED    ? "a system call failed"
           : r == INVALID_ARGUMENT ? "invalid argument"
                                   : "invalid usage";
}
const char *ncclGetLastError(NcComm c) { return (void)c, words; }

// Memory without a name, which the others find through the process that made it: it is freed whichever process dies,
// and /dev/shm may be small.
NcResult ncclGetUniqueId(NcId *id) {
    memset(id, 0, sizeof *id);
    const int file = memfd_create("heddle-one-gpu", MFD_CLOEXEC);
    if (file < 0) return failed(SYSTEM_FAILED, "memfd_create: %s", strerror(errno));
    snprintf(id->internal, sizeof id->internal, "/proc/%ld/fd/%d", (long)getpid(), file);
    return HD_ncclSuccess;
}

static int made_here(const char *path) { // the file of ncclGetUniqueId; -1: another process holds it
    long process = 0;
    int file = -1;
    return sscanf(path, "/proc/%ld/fd/%d", &process, &file) == 2 && process == (long)getpid() ? file : -1;
}

static void forget(NcComm c) {
    while (c->calls) {
        Call *k = c->calls;
        c->calls = k->next;
        free(k);
    }
    if (c->s) munmap(c->s, c->bytes);
    if (c->file >= 0) close(c->file);
    free(c);
}

static NcResult connect_to(NcComm c, const char *path) {
    CuPtr device = 0;
    const int file = open(path, O_RDWR | O_CLOEXEC);
    if (file < 0)
        return failed(SYSTEM_FAILED, "%s: %s; all ranks have to be processes of one host and one user", path,
                      strerror(errno));
    c->bytes = sizeof(Shared) + (size_t)(c->ranks + 1) * ROOM;
    void *s = ftruncate(file, (off_t)c->bytes) == 0 ? mmap(NULL, c->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0)
                                                    : MAP_FAILED;
    const int why = errno;
    close(file);
    if (s == MAP_FAILED)
        return failed(SYSTEM_FAILED, "cannot map %zu bytes of shared memory: %s", c->bytes, strerror(why));
    c->s = s;
    const unsigned flags = HD_CU_MEMHOSTREGISTER_PORTABLE | HD_CU_MEMHOSTREGISTER_DEVICEMAP;
    NcResult r = checked(driver.cuMemHostRegister(s, c->bytes, flags), "cuMemHostRegister");
    if (r != HD_ncclSuccess) return r;
    r = checked(driver.cuMemHostGetDevicePointer(&device, s, 0), "cuMemHostGetDevicePointer");
    if (r != HD_ncclSuccess) driver.cuMemHostUnregister(s);
    c->flag = device + offsetof(Shared, seat) + (size_t)c->rank * sizeof(Seat) + offsetof(Seat, flag);
    return r;
}

NcResult ncclCommInitRankConfig(NcComm *comm, int ranks, NcId id, int rank, NcConfig *config) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)config;
    *comm = NULL;
    pthread_once(&once, open_driver);
    if (missing) return failed(SYSTEM_FAILED, "the driver lacks %s", missing);
    if (ranks < 1 || ranks > MOST || rank < 0 || rank >= ranks)
        return failed(INVALID_ARGUMENT, "rank %d of %d; at most %d ranks can share a GPU here", rank, ranks, MOST);
    NcComm c = calloc(1, sizeof *c);
    if (!c) return failed(SYSTEM_FAILED, "out of memory");
    c->ranks = ranks;
    c->rank = rank;
    c->file = made_here(id.internal);
    const NcResult r = connect_to(c, id.internal);
    if (r == HD_ncclSuccess) *comm = c;
    else forget(c);
    return r;
}

NcResult ncclCommFinalize(NcComm c) { return (void)c, HD_ncclSuccess; }

NcResult ncclCommDestroy(NcComm c) {
    const NcResult r = checked(driver.cuMemHostUnregister(c->s), "cuMemHostUnregister");
    forget(c);
    return r;
}

// Releases this rank's stream, with all that is still queued; the other ranks wait until they abort, too. The memory
// stays, as the device may use it.
NcResult ncclCommAbort(NcComm c) {
    atomic_store(&c->s->aborted, true);
    atomic_store(&c->s->seat[c->rank].flag, ABORTED);
    return HD_ncclSuccess;
}

static void describe(char *text, size_t size, const Piece *p) {
    static const char *const names[] = {"all_gather", "reduce_scatter", "exchange", "all_max"};
    snprintf(text, size, "%s of %zu %s", names[p->does], p->count, hd_dtypes[p->dt].name);
}

NcResult ncclCommGetAsyncError(NcComm c, NcResult *r) {
    const int i = c->s->disagrees;
    char zero[100], other[100];
    *r = HD_ncclSuccess;
    if (!i) return HD_ncclSuccess;
    describe(zero, sizeof zero, &c->s->seat[0].piece);
    describe(other, sizeof other, &c->s->seat[i].piece);
    *r = failed(INVALID_USAGE, "ranks disagree: rank 0 has come with %s, rank %d with %s", zero, i, other);
    return HD_ncclSuccess;
}

// --- collectives

static char *place(const Shared *s, int i) { return (char *)s->place + (size_t)i * ROOM; }

static void work_out(Shared *s, int ranks, const Piece *p) {
    const size_t part = p->count * hd_dtypes[p->dt].bytes;
    char *result = place(s, ranks);
    if (p->does == COMPARE) {
        int32_t *most = (int32_t *)(void *)result;
        memcpy(most, place(s, 0), part);
        for (int i = 1; i < ranks; i++)
            for (size_t k = 0; k < p->count; k++) {
                const int32_t x = ((const int32_t *)(const void *)place(s, i))[k];
                if (x > most[k]) most[k] = x;
            }
        return;
    }
    for (int i = 0; p->does == EXCHANGE && i < ranks * ranks; i++)
        memcpy(result + (size_t)i * part, place(s, i % ranks) + (size_t)(i / ranks) * part, part);
    for (int i = 0; p->does != EXCHANGE && i < ranks; i++, result += part)
        if (p->does == REDUCE) sum_in_order(p->dt, place(s, 0) + (size_t)i * part, ROOM, ranks, i, p->count, result);
        else memcpy(result, place(s, i), part);
}

static bool same(const Piece *a, const Piece *b) {
    return a->dt == b->dt && a->does == b->does && a->count == b->count;
}

static void arrive(void *data) {
    const Call *k = data;
    Shared *s = k->comm->s;
    const int ranks = k->comm->ranks;
    Seat *mine = &s->seat[k->comm->rank];
    uint32_t flag = GO;
    if (s->aborted) return;
    atomic_compare_exchange_strong(&mine->flag, &flag, WAITING);
    mine->piece = k->piece;
    if (atomic_fetch_add(&s->arrived, 1) + 1 < ranks) return;
    atomic_store(&s->arrived, 0);
    for (int i = 1; i < ranks; i++)
        if (!same(&s->seat[0].piece, &s->seat[i].piece)) {
            s->disagrees = i; // nobody goes on
            return;
        }
    work_out(s, ranks, &k->piece);
    if (s->aborted) return;
    for (int i = 0; i < ranks; i++) {
        flag = WAITING;
        atomic_compare_exchange_strong(&s->seat[i].flag, &flag, GO); // unless it is aborted just now
    }
}

static Call *call_of(NcComm c, Piece p) { // one for all calls alike
    for (Call *k = c->calls; k; k = k->next)
        if (same(&k->piece, &p)) return k;
    Call *k = calloc(1, sizeof *k);
    if (k) *k = (Call){c, p, c->calls}, c->calls = k;
    return k;
}

// `times` strips of n bytes, side by side on the host, `stride` apart on the device.
typedef struct { char *host; CuPtr device; size_t n, stride; int times; } Strips;

static NcResult copy(Strips s, bool in, CuStream stream) {
    if (s.n == s.stride) s = (Strips){s.host, s.device, s.n * (size_t)s.times, 0, 1};
    NcResult r = HD_ncclSuccess;
    for (int i = 0; i < s.times && r == HD_ncclSuccess; i++) {
        char *host = s.host + (size_t)i * s.n;
        const CuPtr device = s.device + (CuPtr)i * s.stride;
        r = in ? checked(driver.cuMemcpyDtoHAsync(host, device, s.n, stream), "cuMemcpyDtoHAsync")
               : checked(driver.cuMemcpyHtoDAsync(device, host, s.n, stream), "cuMemcpyHtoDAsync");
    }
    return r;
}

static NcResult meet(NcComm c, Piece p, CuStream stream) {
    const int operation = HD_CU_STREAM_MEM_OP_WAIT_VALUE_32;
    CuMemOp until = {
        .wait = {.operation = operation, .address = c->flag, .value = GO, .flags = HD_CU_STREAM_WAIT_VALUE_GEQ}};
    Call *k = call_of(c, p);
    if (!k) return failed(SYSTEM_FAILED, "out of memory");
    const NcResult r = checked(driver.cuLaunchHostFunc(stream, arrive, k), "cuLaunchHostFunc");
    return r == HD_ncclSuccess ? checked(driver.cuStreamBatchMemOp(stream, 1, &until, 0), "cuStreamBatchMemOp") : r;
}

// stride: bytes from one part to the next
static NcResult issue(NcComm c, Does does, const void *from, void *to, size_t count, size_t stride, NcType type,
                      CuStream stream) {
    HdDtype dt;
    if (!nccl_dtype(type, &dt) || (does == REDUCE && !nccl_sums(dt)))
        return failed(INVALID_ARGUMENT, "type %d is not one that can be %s here", type,
                      does == REDUCE ? "summed" : "gathered");
    const size_t size = hd_dtypes[dt].bytes, ranks = (size_t)c->ranks;
    const size_t most = (size_t)ROOM / ranks / (does == EXCHANGE ? ranks : 1) / size;
    NcResult r = HD_ncclSuccess;
    for (size_t at = 0; at < count && r == HD_ncclSuccess; at += most) {
        const Piece p = {dt, does, count - at < most ? count - at : most};
        const size_t n = p.count * size;
        const CuPtr first = (CuPtr)(uintptr_t)from + at * size, last = (CuPtr)(uintptr_t)to + at * size;
        char *mine = place(c->s, c->rank), *result = place(c->s, c->ranks);
        const Strips one_in = {mine, first, n, n, 1}, all_in = {mine, first, n, stride, c->ranks};
        const Strips one_out = {result + (size_t)c->rank * n, last, n, n, 1},
                     all_out = {result, last, n, stride, c->ranks},
                     parts_out = {result + (size_t)c->rank * ranks * n, last, n, stride, c->ranks},
                     first_out = {result, last, n, n, 1};
        r = copy(does == GATHER || does == COMPARE ? one_in : all_in, true, stream);
        if (r == HD_ncclSuccess) r = meet(c, p, stream);
        const Strips out =
            does == REDUCE ? one_out : does == GATHER ? all_out : does == COMPARE ? first_out : parts_out;
        if (r == HD_ncclSuccess) r = copy(out, false, stream);
    }
    return r;
}

static size_t bytes_of(size_t count, NcType type) {
    HdDtype dt = HD_F32;
    return nccl_dtype(type, &dt) ? count * hd_dtypes[dt].bytes : 0;
}

NcResult ncclAllGather(const void *part, void *whole, size_t count, NcType type, NcComm c, RtStream stream) {
    return issue(c, GATHER, part, whole, count, bytes_of(count, type), type, (CuStream)stream);
}
NcResult ncclReduceScatter(const void *whole, void *part, size_t count, NcType type, NcOp op, NcComm c,
                           RtStream stream) {
    if (op != HD_ncclSum) return failed(INVALID_ARGUMENT, "operation %d: only sums are done here", op);
    return issue(c, REDUCE, whole, part, count, bytes_of(count, type), type, (CuStream)stream);
}

NcResult ncclAllReduce(const void *from, void *to, size_t count, NcType type, NcOp op, NcComm c, RtStream stream) {
    if (op != HD_ncclMax || type != HD_ncclInt32)
        return failed(INVALID_ARGUMENT, "operation %d of type %d: only the largest of i32 is found here", op, type);
    return issue(c, COMPARE, from, to, count, bytes_of(count, type), type, (CuStream)stream);
}

// A group has a send to every rank and a receive from each, of parts that begin equally far from each other.
static _Thread_local struct {
    NcComm comm;
    const char *from;
    char *to;
    size_t count, stride; // in bytes; of one rank: those of the part
    NcType type;
    RtStream stream;
    int sent, received;
    bool other; // something else
} group;

NcResult ncclGroupStart(void) {
    memset(&group, 0, sizeof group);
    return HD_ncclSuccess;
}

static size_t group_part(NcComm c, size_t count, NcType type, RtStream stream) { // its bytes
    HdDtype dt = HD_F32;
    if (!group.comm)
        group.comm = c, group.count = count, group.stride = bytes_of(count, type), group.type = type,
        group.stream = stream;
    group.other |= !nccl_dtype(type, &dt) || c != group.comm || count != group.count || type != group.type ||
                   stream != group.stream;
    return count * hd_dtypes[dt].bytes;
}

NcResult ncclSend(const void *from, size_t count, NcType type, int peer, NcComm c, RtStream stream) {
    const size_t bytes = group_part(c, count, type, stream);
    if (!group.sent) group.from = from;
    if (peer == 1) group.stride = (size_t)((const char *)from - group.from);
    group.other |= peer != group.sent++ || from != group.from + (size_t)peer * group.stride || group.stride < bytes;
    return HD_ncclSuccess;
}

NcResult ncclRecv(void *to, size_t count, NcType type, int peer, NcComm c, RtStream stream) {
    group_part(c, count, type, stream);
    if (!group.received) group.to = to;
    group.other |= peer != group.received++ || to != group.to + (size_t)peer * group.stride; // after the send
    return HD_ncclSuccess;
}

NcResult ncclGroupEnd(void) {
    if (!group.comm || group.other || group.sent != group.comm->ranks || group.received != group.comm->ranks)
        return failed(INVALID_ARGUMENT, "a group that is no exchange between all ranks");
    return issue(group.comm, EXCHANGE, group.from, group.to, group.count, group.stride, group.type,
                 (CuStream)group.stream);
}
