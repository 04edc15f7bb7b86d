// The CUDA executor: opens everything a program needs, then issues its functions; regions.c replays parts of them as
// graphs.
//
// Start-up overlaps: kernels compile and attention plans are built on threads of their own while this thread chooses
// GEMM algorithms. Nothing is loaded, compiled or allocated after open. A function keeps its streams in order by its
// own events alone, which the compiler has proved enough. The first failure is kept; after it every call does nothing.
//
// Environment:
//   HEDDLE_CUDA_PATH   folders with NVIDIA's libraries
//   HEDDLE_CACHE       a folder, or off
//   HEDDLE_TUNE        0: matrix products take the heuristic's first choice; load: they are timed for longer
//   HEDDLE_ATTENTION   kernel: the program's own kernels
//   HEDDLE_SYNC        1: wait after every action, to find the one that fails
//   HEDDLE_EARLY       0: a kernel is launched when the one before it has ended, not while it ends
//   HEDDLE_VERBOSE     1: print what start-up did, every choice, register counts
#include "runtime/cuda/exec.h"
#include "runtime/cuda/comms.h"
#include "runtime/cuda/device.h"
#include "runtime/world/mesh.h"
#include "runtime/world/world.h"
#include "runtime/text.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool flag(const char *name) {
    const char *v = getenv(name);
    return v && *v && strcmp(v, "0") != 0;
}

void hd_range_close(HdCuda *x) {
    if (x->range) hd_nvtx_pop();
    x->range = false;
}

static void on_action(HdExec *h, const HdFunc *f, int index) {
    HdCuda *x = (HdCuda *)h;
    hd_cuda_guards_action(x, index);
    if (x->failed) return;
    if (x->sync_each && x->action >= 0) hd_cuda_ok(x, x->api.cuCtxSynchronize(), "the GPU stopped");
    if (x->failed) return;
    x->action = index;
    hd_cuda_indices_action(x, f, index);
    if (x->failed) return;
    if (x->nvtx) {
        hd_range_close(x);
        hd_nvtx_push(f->actions[index].path ? f->actions[index].path : "", f->actions[index].op);
        x->range = true;
    }
    if (x->profile) hd_profile_action(x, f, index);
}

static bool open_streams(HdCuda *x) {
    const HdProgram *p = x->head.program;
    const HdCudaApi *api = &x->api;
    int least = 0, greatest = 0;
    x->n_streams = p->n_streams > 0 ? p->n_streams : 1;
    if (x->n_streams > HD_MAX_STREAMS)
        return hd_cuda_fail(x, "%d streams; the limit is %d", x->n_streams, HD_MAX_STREAMS), false;
    if (!hd_cuda_ok(x, api->cuCtxGetStreamPriorityRange(&least, &greatest), "stream priorities")) return false;
    // Communication and copies have priority: they are short and others wait for them. Streams that compute beside the
    // main one come last: nothing waits for them soon. (The least priority is the greatest number.)
    const int main = p->computing && least > greatest ? least - 1 : least;
    for (int i = 0; i < x->n_streams; i++) {
        const int priority = i == 0 ? main : p->computing >> i & 1 ? least : greatest;
        if (!hd_cuda_ok(x, api->cuStreamCreateWithPriority(&x->streams[i], HD_CU_STREAM_NON_BLOCKING, priority),
                        "cannot create a stream"))
            return false;
    }
    for (int i = 1; i < p->lanes; i++)
        if (!hd_cuda_ok(x, api->cuStreamCreateWithPriority(&x->streams[HD_MAX_STREAMS + i], HD_CU_STREAM_NON_BLOCKING,
                                                           main), "cannot create a stream"))
            return false;
    x->events = calloc((size_t)p->n_events + HD_TURN_LANES, sizeof *x->events);
    if (!x->events || !hd_regions_open(x))
        return hd_cuda_fail(x, "out of host memory"), false;
    for (int i = 0; i < p->n_events + p->lanes; i++)
        if (!hd_cuda_ok(x, api->cuEventCreate(&x->events[i], HD_CU_EVENT_DISABLE_TIMING), "cannot create an event"))
            return false;
    return true;
}

static double tell(const HdCuda *x, double since, const char *what) {
    double now = hd_cuda_now_ms();
    if (x->verbose) hd_say(stderr, "start: %-28s %7.0f ms\n", what, now - since);
    return now;
}

// cuBLASLt is half a gigabyte: a thread opens it while the driver starts.
typedef struct { HdCuda *x; pthread_t thread; bool started, ok; char why[4096]; } Prefetch;

static void *prefetch(void *arg) {
    Prefetch *f = arg;
    f->ok = hd_cuda_load(&f->x->api, HD_LIB_LT);
    if (!f->ok) snprintf(f->why, sizeof f->why, "%s", hd_failure());
    return NULL;
}

static bool prefetch_join(Prefetch *f) {
    if (!f->x->head.program->n_gemms) return true;
    if (f->started) pthread_join(f->thread, NULL);
    else prefetch(f);
    if (!f->ok) hd_cuda_fail(f->x, "%s", f->why);
    return f->ok;
}

static bool open_all(HdCuda *x, const char *choices) {
    const HdProgram *p = x->head.program;
    Prefetch lt = {.x = x};
    double t = hd_cuda_now_ms();
    if (!hd_driver_open(x)) return hd_comms_open(x);
    lt.started = p->n_gemms && pthread_create(&lt.thread, NULL, prefetch, &lt) == 0;
    if (!hd_device_open(x)) {
        if (lt.started) pthread_join(lt.thread, NULL);
        return hd_comms_open(x); // the other ranks learn that there is no executor here
    }
    t = tell(x, t, "driver and device");
    HdCompile *compile = p->n_sources || p->n_params ? hd_compile_start(x) : NULL;
    bool ok = !x->failed && hd_device_enter(x);
    x->memory.context = hd_device_used(x);
    t = tell(x, t, "context");
    ok = prefetch_join(&lt) && ok;
    t = tell(x, t, "cuBLASLt");
    HdAttentionBuild *attention = ok ? hd_attention_start(x, compile) : NULL;
    ok = ok && !x->failed && open_streams(x);
    int64_t before = hd_device_used(x);
    ok = ok && hd_device_allocate(x) && hd_transfer_open(x) && hd_cuda_guards_open(x);
    x->memory.arena = hd_device_used(x) - before;
    t = tell(x, t, "memory and streams");
    ok = ok && hd_choices_open(x, choices) && hd_gemms_open(x);
    t = tell(x, t, "matrix products");
    ok = hd_attention_join(x, attention) && ok; // first: it may still wait for the compilation to open NVRTC
    ok = ok && hd_choices_settle(x);
    t = tell(x, t, "wait for attention plans");
    ok = hd_compile_join(x, compile) && ok;
    t = tell(x, t, "wait for kernels");
    before = hd_device_used(x);
    x->memory.libraries = before - x->memory.context - x->memory.arena;
    ok = hd_comms_open(x) && ok;
    x->memory.comms = hd_device_used(x) - before;
    t = tell(x, t, "communicators");
    ok = ok && hd_cuda_ok(x, x->api.cuMemsetD8Async(x->arena, 0, (size_t)p->arena_bytes, x->streams[0]),
                          "cannot clear device memory");
    return ok && hd_cuda_ok(x, x->api.cuStreamSynchronize(x->streams[0]), "cannot clear device memory");
}

static void cuda_close(HdExec *h) {
    HdCuda *x = (HdCuda *)h;
    const HdCudaApi *api = &x->api;
    const HdProgram *p = x->head.program;
    if (x->context) {
        api->cuCtxSetCurrent(x->context);
        if (x->failed) hd_comms_close(x); // else the device may wait for ranks that are gone
        api->cuCtxSynchronize();
        if (!x->failed && (x->verbose || x->profile)) hd_device_tell_memory(x);
        hd_profile_close(x);
        hd_regions_close(x);
        hd_comms_close(x);
        hd_attention_close(x);
        hd_gemms_close(x);
        hd_modules_close(x);
        hd_transfer_close(x);
        hd_cuda_guards_close(x);
        for (int i = 0; x->events && i < p->n_events + p->lanes; i++)
            if (x->events[i]) api->cuEventDestroy(x->events[i]);
        for (int i = 0; i < HD_MAX_STREAMS + HD_TURN_LANES; i++)
            if (x->streams[i]) api->cuStreamDestroy(x->streams[i]);
        if (x->arena) api->cuMemFree(x->arena);
        hd_device_free_pinned(x);
        hd_watch_close(x);
        api->cuDevicePrimaryCtxRelease(x->device);
    }
    hd_cuda_unload(&x->api);
    pthread_mutex_destroy(&x->comms.lock);
    pthread_mutex_destroy(&x->failing);
    hd_choices_close(x);
    free(x->events);
    free(x);
}

static HdExec *cuda_open(const HdProgram *p, HdWorld *w, const HdOpen *how) {
    HdCuda *x = calloc(1, sizeof *x);
    if (!x) return hd_fail("out of host memory"), NULL;
    x->head.program = p;
    x->head.world = w;
    x->head.on_action = on_action;
    x->action = -1;
    pthread_mutex_init(&x->comms.lock, NULL);
    pthread_mutex_init(&x->failing, NULL);
    x->nvtx = hd_nvtx_open();
    x->verbose = flag("HEDDLE_VERBOSE");
    x->sync_each = flag("HEDDLE_SYNC");
    const char *early = getenv("HEDDLE_EARLY");
    x->early = !early || strcmp(early, "0") != 0;
    x->graphs = how->use_graphs && !how->profile && !x->sync_each;
    hd_cache_open(&x->cache);
    bool ok = open_all(x, how->choices);
    if (ok && how->profile) ok = (x->profile = hd_profile_open(x)) != NULL;
    if (!ok) {
        hd_fail("%s", x->failure);
        cuda_close(&x->head);
        return NULL;
    }
    return &x->head;
}

static void issue(HdCuda *x, const HdFunc *f) {
    hd_watch_begin(x, f);
    if (x->profile) hd_profile_begin(x);
    hd_cuda_guards_enter(x);
    if (!x->failed) f->run(&x->head);
    hd_cuda_guards_leave(x);
    if (x->profile) hd_profile_end(x);
    if (x->sync_each) hd_cuda_ok(x, x->api.cuCtxSynchronize(), "the GPU stopped");
    if (!x->failed) x->action = -1;
    hd_range_close(x);
    hd_watch_end(x);
}

static bool cuda_run(HdExec *h, const HdFunc *f) {
    HdCuda *x = (HdCuda *)h;
    x->func = f;
    x->action = -1;
    if (hd_watch_good(x) && hd_cuda_ok(x, x->api.cuCtxSetCurrent(x->context), "cannot enter the context")) issue(x, f);
    x->func = NULL;
    if (x->failed) hd_fail("%s", x->failure);
    return !x->failed;
}

static bool cuda_sync(HdExec *h) {
    HdCuda *x = (HdCuda *)h;
    x->func = NULL;
    if (!x->failed && hd_cuda_ok(x, x->api.cuCtxSetCurrent(x->context), "cannot enter the context"))
        hd_cuda_ok(x, x->api.cuCtxSynchronize(), "the GPU stopped; HEDDLE_SYNC=1 finds the action that failed");
    if (!hd_watch_good(x)) hd_fail("%s", x->failure);
    return !x->failed;
}

static bool write_profile(HdExec *h, const char *path, bool (*write)(HdCuda *, const char *)) {
    HdCuda *x = (HdCuda *)h;
    x->func = NULL;
    if (!x->failed && hd_cuda_ok(x, x->api.cuCtxSynchronize(), "the GPU stopped")) return write(x, path);
    hd_fail("%s", x->failure);
    return false;
}

static bool cuda_write_profile(HdExec *h, const char *path) { return write_profile(h, path, hd_profile_write); }
static bool cuda_write_timeline(HdExec *h, const char *path) { return write_profile(h, path, hd_profile_page); }

uint64_t hd_device(HdExec *h, int64_t offset) { return ((HdCuda *)h)->arena + (CuPtr)offset; }

// Where the arguments are, or false where they are not what the kernel takes.
static bool gather_args(HdCuda *x, int kernel, int n, const HdArg *args, void **at) {
    const char *name = x->head.program->kernels[kernel].name;
    const HdParams *want = &x->modules.params[kernel];
    if (n > HD_MAX_ARGS)
        return hd_cuda_fail(x, "kernel %s has %d arguments; the limit is %d", name, n, HD_MAX_ARGS), false;
    if (want->n >= 0 && want->n != n)
        return hd_cuda_fail(x, "kernel %s takes %d arguments, the program passes %d", name, want->n, n), false;
    for (int i = 0; i < n; i++) {
        const size_t bytes = args[i].data ? args[i].bytes : sizeof args[i].word;
        if (want->n >= 0 && (args[i].data ? want->bytes[i] != bytes : want->bytes[i] > bytes))
            return hd_cuda_fail(x, "argument %d of kernel %s has %d bytes, the program passes %zu", i, name,
                                want->bytes[i], bytes),
                   false;
        at[i] = (void *)(uintptr_t)(args[i].data ? args[i].data : &args[i].word);
    }
    return true;
}

void hd_cuda_launch(HdExec *h, int stream, int kernel, HdGrid grid, int n, const HdArg *args) {
    HdCuda *x = (HdCuda *)h;
    void *at[HD_MAX_ARGS];
    if (x->failed || !gather_args(x, kernel, n, args, at)) return;
    const unsigned *c = grid.cluster;
    bool noted = HD_NOTE(x, 'l', (uint64_t)stream, (uint64_t)kernel, grid.gx, grid.gy, grid.gz, grid.block, grid.shared,
                         c[0], c[1], c[2], (uint64_t)n);
    for (int i = 0; i < n && x->noting; i++) noted |= hd_region_note_bytes(x, at[i], args[i].data ? args[i].bytes : 8);
    if (noted) return;
    CuLaunchAttribute attributes[2];
    unsigned n_attributes = 0;
    if (c[0])
        attributes[n_attributes++] = (CuLaunchAttribute){
            .id = HD_CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, .cluster = {c[0], c[1], c[2], {0}}};
    if (x->early && x->head.program->kernels[kernel].waits)
        attributes[n_attributes++] = (CuLaunchAttribute){
            .id = HD_CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION, .allowed = 1};
    const CuLaunch launch = {.gx = grid.gx, .gy = grid.gy, .gz = grid.gz, .bx = grid.block, .by = 1, .bz = 1,
                             .shared = grid.shared, .stream = x->streams[stream], .attributes = attributes,
                             .n_attributes = n_attributes};
    CuResult r = x->api.cuLaunchKernelEx(&launch, x->modules.functions[kernel], at, NULL);
    if (r != HD_CUDA_SUCCESS)
        hd_cuda_fail(x, "kernel %s of (%u, %u, %u) blocks of %u threads with %u bytes of shared memory%s: %s",
                     x->head.program->kernels[kernel].name, grid.gx, grid.gy, grid.gz, grid.block, grid.shared,
                     c[0] ? " in clusters" : "", hd_cuda_error(&x->api, r));
}

void hd_cuda_zero(HdExec *h, int stream, uint64_t d, size_t bytes) {
    HdCuda *x = (HdCuda *)h;
    if (!x->failed && !HD_NOTE(x, 'z', (uint64_t)stream, d, bytes))
        hd_cuda_ok(x, x->api.cuMemsetD8Async(d, 0, bytes, x->streams[stream]), "zero");
}

void hd_cuda_copy(HdExec *h, int stream, uint64_t d, uint64_t s, size_t bytes) {
    HdCuda *x = (HdCuda *)h;
    if (!x->failed && !HD_NOTE(x, 'c', (uint64_t)stream, d, s, bytes))
        hd_cuda_ok(x, x->api.cuMemcpyAsync(d, s, bytes, x->streams[stream]), "copy");
}

const HdBackend hd_cuda_backend = {
    .name = "cuda",
    .open = cuda_open, .write = hd_cuda_write, .draw = hd_cuda_draw, .choose = hd_cuda_choose,
    .read = hd_cuda_read, .run = cuda_run,
    .take_memory = hd_cuda_take_memory, .give_memory = hd_cuda_give_memory,
    .post = hd_cuda_post, .collect = hd_cuda_collect, .sync = cuda_sync, .write_profile = cuda_write_profile,
    .write_timeline = cuda_write_timeline, .close = cuda_close,
    .peak_flops = hd_cuda_peak_flops, .device = hd_cuda_device_name,
};
