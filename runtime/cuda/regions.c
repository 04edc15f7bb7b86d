// Capture regions: ranges of a function's actions that are captured as a graph once, then replayed. Capturing executes
// nothing and changes nothing. A region holds what it forks and joins itself. An event that it shares with the actions
// outside of it is external: its record and wait become nodes of the graph, and each replay records it anew or waits
// for what was recorded last before that replay was issued.
//
// With --check a region is issued once more before each replay, into nothing: every call compares what it would pass
// with what it passed at the capture. A number that changes from step to step and is not read on the device shows here.
#include "runtime/cuda/exec.h"
#include "runtime/world/world.h"
#include "runtime/text.h"
#include <stdio.h>
#include <stdlib.h>

typedef struct HdNotes { uint64_t *at; int n, capacity, next; bool compare; } HdNotes; // a hash a call

bool hd_regions_open(HdCuda *x) {
    const size_t n = (size_t)x->head.program->n_regions + 1;
    x->execs = calloc(n, sizeof *x->execs);
    x->capture_failures = calloc(n, 1);
    x->notes = calloc(n, sizeof *x->notes);
    return x->execs && x->capture_failures && x->notes;
}

void hd_regions_close(HdCuda *x) {
    for (int i = 0; i < x->head.program->n_regions; i++) {
        if (x->execs && x->execs[i]) x->api.cuGraphExecDestroy(x->execs[i]);
        if (x->notes) free(x->notes[i].at);
    }
    free(x->execs);
    free(x->notes);
    free(x->capture_failures);
}

// --- what is passed

static bool keep(HdCuda *x, uint64_t hash) {
    HdNotes *n = x->noting;
    if (n->compare) {
        if (n->next >= n->n || n->at[n->next] != hash)
            hd_cuda_fail(x, "--check: it would get other addresses, sizes or numbers than its graph was captured with");
        n->next++;
        return true;
    }
    if (n->n == n->capacity) {
        const int more = n->capacity ? 2 * n->capacity : 64;
        uint64_t *grown = realloc(n->at, (size_t)more * sizeof *grown);
        if (!grown) return hd_cuda_fail(x, "out of host memory"), false;
        n->at = grown;
        n->capacity = more;
    }
    n->at[n->n++] = hash;
    return false;
}

bool hd_region_note_bytes(HdCuda *x, const void *data, size_t bytes) {
    uint64_t hash = 14695981039346656037u;
    for (size_t i = 0; i < bytes; i++) hash = (hash ^ ((const unsigned char *)data)[i]) * 1099511628211u;
    return keep(x, hash);
}

bool hd_region_note(HdCuda *x, int n, const uint64_t *values) {
    return hd_region_note_bytes(x, values, (size_t)n * sizeof *values);
}

static bool unchanged(HdCuda *x, int i) {
    HdNotes *n = x->noting = &x->notes[i];
    n->next = 0;
    n->compare = true;
    x->head.program->regions[i].run(&x->head);
    if (!x->failed && n->next < n->n) hd_cuda_fail(x, "--check: its graph was captured with more actions");
    x->noting = NULL;
    x->action = -1;
    return !x->failed;
}

// --- graphs

static bool capture(HdCuda *x, const HdRegion *region, CuGraphExec *exec) {
    const HdCudaApi *api = &x->api;
    CuGraph graph = NULL;
    double start = hd_cuda_now_ms();
    size_t nodes = 0;
    if (!hd_cuda_ok(x, api->cuStreamBeginCapture(x->streams[0], HD_CU_STREAM_CAPTURE_MODE_THREAD_LOCAL),
                    "cannot start a capture"))
        return false;
    x->capturing = true;
    if (x->head.check) x->noting = &x->notes[region - x->head.program->regions], x->noting->n = 0;
    region->run(&x->head);
    x->noting = NULL;
    x->capturing = false;
    // also after a failure: the stream must not stay in capture
    CuResult r = api->cuStreamEndCapture(x->streams[0], &graph);
    x->action = -1;
    *exec = NULL;
    bool ok =
        !x->failed && hd_cuda_ok(x, r, "cannot capture this region as a graph") &&
        hd_cuda_ok(x, api->cuGraphInstantiateWithFlags(exec, graph, HD_CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY),
                   "cannot instantiate a graph") &&
        hd_cuda_ok(x, api->cuGraphUpload(*exec, x->streams[0]), "cannot upload a graph");
    if (ok && x->verbose && api->cuGraphGetNodes(graph, NULL, &nodes) == HD_CUDA_SUCCESS)
        hd_say(stderr, "graph %s: %zu nodes, %.1f ms to capture and instantiate\n", region->name, nodes,
               hd_cuda_now_ms() - start);
    if (graph) api->cuGraphDestroy(graph);
    if (!ok && *exec) {
        api->cuGraphExecDestroy(*exec);
        *exec = NULL;
    }
    return ok;
}

// The region's graph, captured at its first run. A capture executes nothing, so when it fails (for example because a
// library loads a kernel late) the actions are issued directly. It is captured again at the next run; if that fails
// too, never again. Either all ranks capture a region, with the collectives in it, or none does.
static CuGraphExec graph_of(HdCuda *x, int i) {
    const HdProgram *p = x->head.program;
    if (!x->graphs || x->execs[i] || x->capture_failures[i] == 2) return x->execs[i];
    bool ok = capture(x, &p->regions[i], &x->execs[i]);
    if (p->n_comms) {
        if (!ok) hd_fail("%s", x->failure);
        if (!hd_world_agree(x->head.world, ok) && ok) {
            ok = false;
            snprintf(x->failure, sizeof x->failure, "%s", hd_failure());
            x->api.cuGraphExecDestroy(x->execs[i]);
            x->execs[i] = NULL;
        }
        if (!x->head.world->alive(x->head.world)) { // a rank is gone: the run cannot continue
            x->failed = false;
            hd_cuda_fail(x, "%s", hd_failure());
            return NULL;
        }
    }
    if (ok) return x->execs[i];
    x->capture_failures[i]++;
    hd_say(stderr, "note: %s; %s\n", x->failure,
           x->capture_failures[i] == 2 ? "continuing without this graph" : "running it directly this once");
    x->failed = false;
    return NULL;
}

void hd_cuda_region(HdExec *h, int region) {
    HdCuda *x = (HdCuda *)h;
    if (x->failed) return;
    hd_range_close(x);
    x->action = -1;
    CuGraphExec exec = graph_of(x, region);
    if (exec && x->head.check && !unchanged(x, region)) return;
    if (exec) hd_cuda_ok(x, x->api.cuGraphLaunch(exec, x->streams[0]), "cannot launch the graph");
    else if (!x->failed) x->head.program->regions[region].run(h);
}

static void record(HdCuda *x, int stream, int event, bool external) {
    if (x->failed || HD_NOTE(x, 'r', (uint64_t)stream, (uint64_t)event, external)) return;
    CuEvent e = x->events[event];
    CuStream s = x->streams[stream];
    hd_cuda_ok(x, external && x->capturing ? x->api.cuEventRecordWithFlags(e, s, HD_CU_EVENT_RECORD_EXTERNAL)
                                           : x->api.cuEventRecord(e, s), "record");
}

static void wait(HdCuda *x, int stream, int event, bool external) {
    if (x->failed || HD_NOTE(x, 'w', (uint64_t)stream, (uint64_t)event, external)) return;
    const unsigned flags = external && x->capturing ? HD_CU_EVENT_WAIT_EXTERNAL : 0;
    hd_cuda_ok(x, x->api.cuStreamWaitEvent(x->streams[stream], x->events[event], flags), "wait");
}

void hd_cuda_record(HdExec *h, int stream, int event) { record((HdCuda *)h, stream, event, false); }
void hd_cuda_wait(HdExec *h, int stream, int event) { wait((HdCuda *)h, stream, event, false); }
void hd_cuda_record_external(HdExec *h, int stream, int event) { record((HdCuda *)h, stream, event, true); }
void hd_cuda_wait_external(HdExec *h, int stream, int event) { wait((HdCuda *)h, stream, event, true); }
