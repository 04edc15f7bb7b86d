// Capture regions: ranges of a function's actions that are captured as a graph once, then replayed. Capturing executes
// nothing and changes nothing. A region holds what it forks and joins itself. An event that it shares with the actions
// outside of it is external: its record and wait become nodes of the graph, and each replay records it anew or waits
// for what was recorded last before that replay was issued.
#include "runtime/cuda/exec.h"
#include "runtime/world/world.h"
#include <stdio.h>

static bool capture(HdCuda *x, const HdRegion *region, CuGraphExec *exec) {
    const HdCudaApi *api = &x->api;
    CuGraph graph = NULL;
    double start = hd_cuda_now_ms();
    size_t nodes = 0;
    if (!hd_cuda_ok(x, api->cuStreamBeginCapture(x->streams[0], HD_CU_STREAM_CAPTURE_MODE_THREAD_LOCAL),
                    "cannot start a capture"))
        return false;
    x->capturing = true;
    region->run(&x->head);
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
        fprintf(stderr, "graph %s: %zu nodes, %.1f ms to capture and instantiate\n", region->name, nodes,
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
    fprintf(stderr, "note: %s; %s\n", x->failure,
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
    if (exec) hd_cuda_ok(x, x->api.cuGraphLaunch(exec, x->streams[0]), "cannot launch the graph");
    else if (!x->failed) x->head.program->regions[region].run(h);
}

static void record(HdCuda *x, int stream, int event, bool external) {
    if (x->failed) return;
    CuEvent e = x->events[event];
    CuStream s = x->streams[stream];
    hd_cuda_ok(x, external && x->capturing ? x->api.cuEventRecordWithFlags(e, s, HD_CU_EVENT_RECORD_EXTERNAL)
                                           : x->api.cuEventRecord(e, s), "record");
}

static void wait(HdCuda *x, int stream, int event, bool external) {
    if (x->failed) return;
    const unsigned flags = external && x->capturing ? HD_CU_EVENT_WAIT_EXTERNAL : 0;
    hd_cuda_ok(x, x->api.cuStreamWaitEvent(x->streams[stream], x->events[event], flags), "wait");
}

void hd_cuda_record(HdExec *h, int stream, int event) { record((HdCuda *)h, stream, event, false); }
void hd_cuda_wait(HdExec *h, int stream, int event) { wait((HdCuda *)h, stream, event, false); }
void hd_cuda_record_external(HdExec *h, int stream, int event) { record((HdCuda *)h, stream, event, true); }
void hd_cuda_wait_external(HdExec *h, int stream, int event) { wait((HdCuda *)h, stream, event, true); }
