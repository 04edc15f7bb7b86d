// A driver that executes at once: device memory is host memory, streams run when called, a capture records and a graph
// replays. With FAKE_CUDA_ASYNC=1 streams run beside the program, and the branches of a graph beside each other
// (streams.h). It keeps the rules of capture that a program can break: work on a stream outside a running capture is an
// error, every stream that joined the capture has to come back to its origin, and an event belongs to the capture that
// recorded it, unless its record and its wait are external.
#include "tests/fake_cuda/driver.h"
#include "tests/fake_cuda/draw.h"
#include "tests/fake_cuda/simt.h"
#include "tests/fake_cuda/streams.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_STREAMS = 32 };
struct CuStreamState {
    bool captured;
    int work, number, seen[MOST_STREAMS]; // captured calls made; by stream's number: those that it comes after
    Queue *queue;
};
struct CuEventState { CuStream captured_on; int capture, seen[MOST_STREAMS]; double time; Mark mark; size_t node; };
// A node of a graph, on which of its streams. An event that is recorded or waited for is a node as well: `event` is
// that of the recording, `outer` an external one.
typedef struct Node {
    FakeWork *work;
    void *data;
    size_t bytes;
    bool host;
    int stream;
    enum { WORK, RECORD, WAIT } kind;
    size_t event;
    CuEvent outer;
    struct Node *next;
} Node;
struct CuGraphState { Node *first, *last; size_t n, events; int streams; };
struct CuGraphExecState { CuGraph graph; Queue *queue[MOST_STREAMS]; };
struct CuModuleState { const char *text; Simt *simt; };
enum { MOST_ARGS = 32 };
struct CuFunctionState {
    char name[64];
    int shared, params, args, bytes[4]; // bytes: of the first parameters, where the source tells
    bool points[MOST_ARGS], writes[MOST_ARGS];
    Simt *simt; // NULL: it does not run for real
}; // args: of those that mix
struct CuContextState { int unused; };

static struct { CuGraph graph; CuStream origin; CuStream members[MOST_STREAMS]; int n_members, number; } capture;
static double clock_ms;
static struct CuContextState the_context;

bool fake_capturing(void) { return capture.graph != NULL; }

long long fake_number(const char *variable, long long otherwise) {
    const char *v = getenv(variable);
    return v ? atoll(v) : otherwise;
}

void fake_tick(double ms) { clock_ms += ms; }

static bool async(void) { return fake_number("FAKE_CUDA_ASYNC", 0) != 0; }

static Node *add_node(Node node) {
    Node *n = malloc(sizeof *n);
    *n = node;
    if (capture.graph->last) capture.graph->last->next = n;
    else capture.graph->first = n;
    return capture.graph->last = n;
}

static CuResult submit(CuStream s, FakeWork *work, const void *data, size_t bytes, const char *what, bool host) {
    if (capture.graph && !s->captured) {
        fake_log("%s outside the capture", what);
        return ISOLATION;
    }
    if (!capture.graph && async()) {
        queue_push(s->queue, work, data, bytes, host);
        return 0;
    }
    if (!capture.graph) {
        void *copy = malloc(bytes + 1);
        memcpy(copy, data, bytes);
        work(copy);
        free(copy);
        return 0;
    }
    Node *n =
        add_node((Node){.work = work, .data = malloc(bytes + 1), .bytes = bytes, .host = host, .stream = s->number});
    memcpy(n->data, data, bytes);
    capture.graph->n++;
    s->work++;
    return 0;
}

CuResult fake_submit(CuStream s, FakeWork *work, const void *data, size_t bytes, const char *what) {
    return submit(s, work, data, bytes, what, false);
}

CuResult fake_cuGetErrorName(CuResult e, const char **t) {
    return *t = e == INJECTED   ? "CUDA_ERROR_INJECTED"
                : e == UNJOINED ? "CUDA_ERROR_STREAM_CAPTURE_UNJOINED"
                                : "CUDA_ERROR",
           0;
}
CuResult fake_cuGetErrorString(CuResult e, const char **t) { return (void)e, *t = "a pretended failure", 0; }
CuResult fake_cuDevicePrimaryCtxRetain(CuContext *c, CuDevice d) {
    (void)d;
    CALL("cuDevicePrimaryCtxRetain");
    return *c = &the_context, 0;
}
typedef struct { void *to; const void *from; size_t bytes; } Copy;
static void do_copy(void *d) { memcpy(((Copy *)d)->to, ((Copy *)d)->from, ((Copy *)d)->bytes); }
CuResult fake_cuMemcpyHtoDAsync(CuPtr to, const void *from, size_t bytes, CuStream s) {
    CALL("cuMemcpyHtoDAsync");
    return fake_submit(s, do_copy, &(Copy){(void *)(uintptr_t)to, from, bytes}, sizeof(Copy), "copy");
}
CuResult fake_cuMemcpyDtoHAsync(void *to, CuPtr from, size_t bytes, CuStream s) {
    CALL("cuMemcpyDtoHAsync");
    return fake_submit(s, do_copy, &(Copy){to, (void *)(uintptr_t)from, bytes}, sizeof(Copy), "copy");
}
CuResult fake_cuMemcpyDtoDAsync(CuPtr to, CuPtr from, size_t bytes, CuStream s) {
    return fake_submit(s, do_copy, &(Copy){(void *)(uintptr_t)to, (void *)(uintptr_t)from, bytes}, sizeof(Copy),
                       "copy");
}
CuResult fake_cuMemcpyAsync(CuPtr to, CuPtr from, size_t bytes, CuStream s) {
    return fake_submit(s, do_copy, &(Copy){(void *)(uintptr_t)to, (void *)(uintptr_t)from, bytes}, sizeof(Copy),
                       "copy");
}
typedef struct { void *to; unsigned char value; size_t count; unsigned word; } Fill;
static void do_fill(void *d) { memset(((Fill *)d)->to, ((Fill *)d)->value, ((Fill *)d)->count); }
CuResult fake_cuMemsetD8Async(CuPtr to, unsigned char value, size_t count, CuStream s) {
    return fake_submit(s, do_fill, &(Fill){(void *)(uintptr_t)to, value, count, 0}, sizeof(Fill), "fill");
}
static void do_words(void *d) {
    for (size_t i = 0; i < ((Fill *)d)->count; i++) memcpy((char *)((Fill *)d)->to + 4 * i, &((Fill *)d)->word, 4);
}
CuResult fake_cuMemsetD32Async(CuPtr to, unsigned value, size_t count, CuStream s) {
    return fake_submit(s, do_words, &(Fill){(void *)(uintptr_t)to, 0, count, value}, sizeof(Fill), "fill");
}

typedef struct { CuHostFn work; void *data; } HostCall;
static void do_host_call(void *d) { ((HostCall *)d)->work(((HostCall *)d)->data); }
CuResult fake_cuLaunchHostFunc(CuStream s, CuHostFn work, void *data) {
    return submit(s, do_host_call, &(HostCall){work, data}, sizeof(HostCall), "host function", true);
}
static void do_wait(void *d) {
    const CuMemOp *op = d;
    while ((int32_t)(*(volatile uint32_t *)(uintptr_t)op->wait.address - (uint32_t)op->wait.value) < 0) usleep(20);
}
CuResult fake_cuStreamBatchMemOp(CuStream s, unsigned count, CuMemOp *ops, unsigned flags) {
    if (count != 1 || flags || ops->wait.operation != HD_CU_STREAM_MEM_OP_WAIT_VALUE_32 ||
        ops->wait.flags != HD_CU_STREAM_WAIT_VALUE_GEQ)
        return INVALID;
    return fake_submit(s, do_wait, ops, sizeof *ops, "memory operation");
}

CuResult fake_cuStreamCreateWithPriority(CuStream *s, unsigned flags, int priority) {
    (void)flags, (void)priority;
    *s = calloc(1, sizeof **s);
    if (async()) queue_is_stream((*s)->queue = queue_new());
    return 0;
}
CuResult fake_cuStreamSynchronize(CuStream s) {
    CALL("cuStreamSynchronize");
    if (s->queue) queue_drain(s->queue);
    return 0;
}
CuResult fake_cuCtxSynchronize(void) {
    CALL("cuCtxSynchronize");
    queue_drain(NULL);
    return 0;
}
CuResult fake_cuStreamDestroy(CuStream s) { return free(s), 0; }
CuResult fake_cuEventCreate(CuEvent *e, unsigned flags) { return (void)flags, *e = calloc(1, sizeof **e), 0; }
CuResult fake_cuEventDestroy(CuEvent e) { return free(e), 0; }
typedef struct { Mark *mark; unsigned long n; } Point;
static void do_reach(void *d) { mark_reach(((Point *)d)->mark, ((Point *)d)->n); }
static void do_await(void *d) { mark_await(((Point *)d)->mark, ((Point *)d)->n); }
CuResult fake_cuEventRecord(CuEvent e, CuStream s) {
    CALL("cuEventRecord");
    e->captured_on = s->captured ? s : NULL;
    e->capture = capture.number;
    memcpy(e->seen, s->seen, sizeof e->seen);
    e->seen[s->number] = s->work;
    e->time = clock_ms;
    if (s->captured) add_node((Node){.kind = RECORD, .stream = s->number, .event = e->node = capture.graph->events++});
    else if (s->queue) queue_push(s->queue, do_reach, &(Point){&e->mark, ++e->mark.asked}, sizeof(Point), false);
    return 0;
}
CuResult fake_cuEventRecordWithFlags(CuEvent e, CuStream s, unsigned flags) {
    CALL("cuEventRecordWithFlags");
    if (flags != HD_CU_EVENT_RECORD_EXTERNAL || !s->captured) return INVALID;
    e->captured_on = NULL;
    add_node((Node){.kind = RECORD, .stream = s->number, .outer = e});
    s->work++;
    fake_log("external record");
    return 0;
}
CuResult fake_cuEventSynchronize(CuEvent e) {
    CALL("cuEventSynchronize");
    mark_await(&e->mark, e->mark.asked);
    return 0;
}
CuResult fake_cuStreamWaitEvent(CuStream s, CuEvent e, unsigned flags) {
    if (flags == HD_CU_EVENT_WAIT_EXTERNAL) {
        if (!s->captured) return INVALID;
        add_node((Node){.kind = WAIT, .stream = s->number, .outer = e});
        s->work++;
        fake_log("external wait");
        return 0;
    }
    if (e->captured_on && (!capture.graph || e->capture != capture.number)) return CAPTURED;
    if (!s->captured && !e->captured_on && s->queue)
        queue_push(s->queue, do_await, &(Point){&e->mark, e->mark.asked}, sizeof(Point), false);
    if (!capture.graph) return 0;
    if (!e->captured_on) return s->captured ? ISOLATION : 0;
    if (!s->captured) {
        s->captured = true;
        s->work = 0;
        memset(s->seen, 0, sizeof s->seen);
        capture.members[capture.n_members++] = s;
        s->number = capture.n_members;
    }
    add_node((Node){.kind = WAIT, .stream = s->number, .event = e->node});
    for (int i = 0; i < MOST_STREAMS; i++)
        if (e->seen[i] > s->seen[i]) s->seen[i] = e->seen[i];
    s->work++; // a later join has to cover what this wait brought along
    return 0;
}
CuResult fake_cuEventElapsedTime(float *ms, CuEvent a, CuEvent b) { return *ms = (float)(b->time - a->time), 0; }

CuResult fake_cuStreamBeginCapture(CuStream s, CuCaptureMode mode) {
    CALL("cuStreamBeginCapture");
    fake_log("capture begins, mode %d", mode);
    capture.graph = calloc(1, sizeof *capture.graph);
    capture.number++;
    capture.origin = s;
    capture.n_members = s->number = s->work = 0;
    memset(s->seen, 0, sizeof s->seen);
    s->captured = true;
    return 0;
}
CuResult fake_cuStreamEndCapture(CuStream s, CuGraph *g) {
    CuResult r = 0;
    for (int i = 0; i < capture.n_members; i++) {
        if (s->seen[i + 1] < capture.members[i]->work) r = UNJOINED;
        capture.members[i]->captured = false;
    }
    s->captured = false;
    capture.graph->streams = capture.n_members + 1;
    *g = capture.graph;
    fake_log("capture ends: %zu nodes%s", capture.graph->n, r ? ", unjoined" : "");
    capture.graph = NULL;
    return r;
}
CuResult fake_cuGraphInstantiateWithFlags(CuGraphExec *x, CuGraph g, unsigned long long flags) {
    (void)flags;
    CALL("cuGraphInstantiateWithFlags");
    *x = calloc(1, sizeof **x);
    (*x)->graph = g; // the graph itself is never freed, so the exec may keep it
    for (int i = 0; i < g->streams && async(); i++) (*x)->queue[i] = queue_new();
    return 0;
}
CuResult fake_cuGraphExecDestroy(CuGraphExec x) { return free(x), 0; }
CuResult fake_cuGraphGetNodes(CuGraph g, CuGraphNode *nodes, size_t *n) { return (void)nodes, *n = g->n, 0; }
// A launch, and the number that each external event has for it, by node: a wait is for the last record that was issued
// before the launch.
typedef struct { CuGraphExec x; unsigned long *outer; } Replay;
static Replay issue_graph(CuGraphExec x) {
    size_t n = 0, i = 0;
    for (const Node *at = x->graph->first; at; at = at->next) n++;
    Replay l = {x, calloc(n + 1, sizeof *l.outer)};
    for (const Node *at = x->graph->first; at; at = at->next, i++)
        if (at->outer && at->kind == WAIT) l.outer[i] = at->outer->mark.asked;
    i = 0;
    for (const Node *at = x->graph->first; at; at = at->next, i++)
        if (at->outer && at->kind == RECORD) l.outer[i] = ++at->outer->mark.asked;
    return l;
}
static void do_launch_graph(void *d) { // its streams start together and wait for each other as they did when captured
    CuGraphExec x = ((Replay *)d)->x;
    Mark *reached = calloc(x->graph->events + 1, sizeof *reached);
    size_t i = 0;
    for (Node *n = x->graph->first; n; n = n->next, i++) {
        Queue *q = x->queue[n->stream];
        Point outer = {n->outer ? &n->outer->mark : NULL, ((Replay *)d)->outer[i]}, own = {&reached[n->event], 1};
        if (n->kind == WORK) queue_push(q, n->work, n->data, n->bytes, n->host);
        else
            queue_push(q, n->kind == RECORD ? do_reach : do_await, n->outer ? &outer : &own, sizeof(Point), false);
    }
    for (i = 0; i < (size_t)x->graph->streams; i++) queue_drain(x->queue[i]);
    free(reached);
    free(((Replay *)d)->outer);
}
CuResult fake_cuGraphLaunch(CuGraphExec x, CuStream s) {
    CALL("cuGraphLaunch");
    if (capture.graph) return ISOLATION;
    fake_log("graph launch");
    if (s->queue) {
        const Replay l = issue_graph(x);
        queue_push(s->queue, do_launch_graph, &l, sizeof l, false);
    }
    for (Node *n = x->graph->first; n && !s->queue; n = n->next)
        if (n->kind == WORK) n->work(n->data);
    return 0;
}

CuResult fake_cuModuleLoadData(CuModule *m, const void *image) {
    CALL("cuModuleLoadData");
    bool real = !memcmp(image, "\177ELF", 4); // of the real NVRTC: every name is in it
    if (!real && strncmp(image, "FAKECUBIN", 9) != 0) return BAD_IMAGE;
    *m = calloc(1, sizeof **m);
    (*m)->text = real ? NULL : strdup(image);
    if (!real && !simt_open(image, &(*m)->simt)) return BAD_IMAGE;
    fake_log("module loaded");
    return 0;
}
// The parameters of a kernel as its text declares them; a text that is not source declares none.
static void read_parameters(CuFunction f, const char *text) {
    const size_t n = strlen(f->name);
    const char *at = strstr(text, f->name);
    while (at && at[n] != '(') at = strstr(at + n, f->name);
    if (!at) return;
    for (at += n + 1; *at != ')' && f->args < MOST_ARGS; at += *at == ',') {
        const size_t size = strcspn(at, ",)");
        const char *star = memchr(at, '*', size), *fixed = strstr(at, "const ");
        f->points[f->args] = star != NULL;
        f->writes[f->args++] = star && !(fixed && fixed < star);
        at += size;
    }
}
CuResult fake_cuModuleGetFunction(CuFunction *f, CuModule m, const char *name) {
    if (m->text && !m->simt && !strstr(m->text, name)) return NOT_FOUND;
    *f = calloc(1, sizeof **f);
    if (m->simt && !((*f)->simt = simt_find(m->simt, name))) return NOT_FOUND;
    snprintf((*f)->name, sizeof (*f)->name, "%s", name);
    const char *at = m->text && !m->simt ? strstr(m->text, name) + strlen(name) : "";
    (*f)->params = *at == '/' ? (int)strtol(at + 1, (char **)&at, 10) : -1;
    for (int i = 0; i < 4 && *at == ':'; i++) (*f)->bytes[i] = (int)strtol(at + 1, (char **)&at, 10);
    if (m->text && fake_number("FAKE_CUDA_MIX", 0)) read_parameters(*f, m->text);
    return 0;
}
CuResult fake_cuFuncSetAttribute(CuFunction f, CuFuncAttribute a, int value) {
    if (a == HD_CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) f->shared = value;
    return 0;
}
// "name/3" in a source: the kernel has three parameters, "name/3:8:128:4" of so many bytes; otherwise any number will
// do.
CuResult fake_cuFuncGetParamInfo(CuFunction f, size_t i, size_t *offset, size_t *bytes) {
    *offset = 0;
    if (f->simt) return (*bytes = simt_bytes(f->simt, i)) ? 0 : INVALID;
    *bytes = i < 4 && f->bytes[i] ? (size_t)f->bytes[i] : 8;
    return f->params < 0 || i < (size_t)f->params ? 0 : INVALID;
}
CuResult fake_cuFuncGetAttribute(int *v, CuFuncAttribute a, CuFunction f) { return (void)a, (void)f, *v = 0, 0; }

// Kernels with a meaning: bump(p) adds one to an int; twice(p) doubles it; those of initial values make them (draw.c).
// Others only log. With FAKE_CUDA_MIX=1 the first word of all that they write becomes a number that the first words of
// all their operands decide: what a program computes depends on what every rank has read, and on every collective.
typedef struct { CuFunction f; uint64_t arg[MOST_ARGS]; } Launch;
static void mix(const Launch *l) {
    uint32_t h = 2166136261u, word;
    for (int i = 0; i < l->f->args; i++) {
        if (!l->f->points[i]) continue;
        memcpy(&word, (void *)(uintptr_t)l->arg[i], sizeof word);
        h = (h ^ word) * 16777619u;
    }
    for (int i = 0; i < l->f->args; i++) {
        const float v = (float)(h >> 8) / (1 << 24);
        if (l->f->writes[i]) memcpy((void *)(uintptr_t)l->arg[i], &v, sizeof v);
    }
}
static void do_launch(void *d) {
    Launch *l = d;
    int *p = (int *)(uintptr_t)l->arg[0];
    fake_tick(0.25);
    if (!strcmp(l->f->name, "bump")) *p += 1;
    else if (!strcmp(l->f->name, "twice")) *p *= 2;
    else {
        fake_log("kernel %s runs", l->f->name);
        mix(l);
    }
}
// The arguments of a launch in a cluster, whose second argument is a block of bytes.
static void log_cluster(const CuLaunch *c, CuFunction f, void **args) {
    const CuLaunchAttribute *a = c->attributes;
    const unsigned char *map = args[1];
    fake_log("%s: %u x %u blocks of %u, clusters of %u x %u x %u, %u shared, arguments %d %d %d, map %d %d, then %d",
             f->name, c->gx, c->gy, c->bx, a->cluster.x, a->cluster.y, a->cluster.z, c->shared, f->bytes[0],
             f->bytes[1], f->bytes[2], map[0], map[f->bytes[1] - 1], *(int *)args[2]);
}
static void do_draw(void *d) { fake_draw(d); }
static CuResult launch_draw(const CuLaunch *c, const char *kernel, void **args) {
    FakeDraw l = {.blocks = c->gx, .threads = c->bx};
    snprintf(l.kernel, sizeof l.kernel, "%.15s", kernel);
    memcpy(&l.out, args[0], sizeof l.out);
    memcpy(&l.draw, args[1], sizeof l.draw);
    fake_log("%s: %lld from %lld", kernel, (long long)l.draw.count, (long long)l.draw.first);
    return fake_submit(c->stream, do_draw, &l, sizeof l, kernel);
}
CuResult fake_cuLaunchKernelEx(const CuLaunch *c, CuFunction f, void **args, void **extra) {
    (void)extra;
    CALL("cuLaunchKernelEx");
    if ((int)c->shared > f->shared || !c->gx || !c->gy || !c->gz || !c->bx || !c->by || !c->bz) return INVALID;
    for (unsigned i = 0; i < c->n_attributes; i++) {
        const CuLaunchAttribute *a = &c->attributes[i];
        if (a->id == HD_CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION) continue;
        if (a->id != HD_CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION || !a->cluster.x || c->gx % a->cluster.x ||
            !a->cluster.y || c->gy % a->cluster.y || !a->cluster.z || c->gz % a->cluster.z)
            return INVALID;
        if (!f->simt) log_cluster(c, f, args);
    }
    if (f->simt) return simt_submit(f->simt, c, args);
    if (fake_is_draw(f->name)) return launch_draw(c, f->name, args);
    Launch l = {.f = f};
    for (int i = 0; i < (f->args ? f->args : 1); i++) memcpy(&l.arg[i], args[i], 8);
    return fake_submit(c->stream, do_launch, &l, sizeof l, f->name);
}

// The real NVRTC asks the driver for this where there is one.
CuResult cuGetExportTable(const void **table, const void *id);
CuResult cuGetExportTable(const void **table, const void *id) { return (void)id, *table = NULL, NOT_FOUND; }
