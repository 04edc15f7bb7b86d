// Device time of every action of a step, from a pair of events around each: as a Chrome trace with a summary by kind of
// op, and as a page of a timeline.
//
// Actions of one stream run one after another, so one event can end an action and begin the next. With profiling on,
// functions are issued directly: an event inside a captured graph could not be read. The recording covers one training
// step. Each rank writes a file of its own, and rank 0 prints the summary; the time that the compute stream spends in
// waits is exposed communication.
#include "runtime/cuda/exec.h"
#include "runtime/cuda/losses.h"
#include "runtime/base/json.h"
#include "runtime/log/summary.h"
#include "runtime/log/timeline.h"
#include "runtime/world/world.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct { const HdFunc *func; int index, stream; CuEvent start, end; } Span;

struct HdProfile {
    Span *spans; // events are kept for the next step
    int n, capacity;
    bool open; // spans[n - 1] has no end yet
    CuEvent origin;
};

HdProfile *hd_profile_open(HdCuda *x) {
    HdProfile *p = calloc(1, sizeof *p);
    if (!p) {
        hd_cuda_fail(x, "out of host memory");
    } else if (!hd_cuda_ok(x, x->api.cuEventCreate(&p->origin, HD_CU_EVENT_DEFAULT), "event")) {
        free(p);
        p = NULL;
    }
    return p;
}

static int stream_of(const HdCuda *x, const HdAction *a) {
    const HdProgram *p = x->head.program;
    for (int i = 0; i < p->n_streams; i++)
        if (a->stream && !strcmp(p->streams[i], a->stream)) return i;
    return 0;
}

static void end_span(HdCuda *x) {
    HdProfile *p = x->profile;
    if (!p->open) return;
    Span *s = &p->spans[p->n - 1];
    hd_cuda_ok(x, x->api.cuEventRecord(s->end, x->streams[s->stream]), "profile");
    p->open = false;
}

static bool recording(const HdCuda *x) { return x->head.step == &x->head.program->train_step; }

void hd_profile_begin(HdCuda *x) {
    HdProfile *p = x->profile;
    if (!recording(x) || !x->head.begins) return;
    p->n = 0;
    hd_cuda_ok(x, x->api.cuEventRecord(p->origin, x->streams[0]), "profile");
}

void hd_profile_action(HdCuda *x, const HdFunc *f, int index) {
    HdProfile *p = x->profile;
    if (!recording(x) || x->failed) return;
    end_span(x);
    if (p->n == p->capacity) {
        int more = p->capacity ? 2 * p->capacity : 1024;
        Span *grown = realloc(p->spans, (size_t)more * sizeof *grown);
        if (!grown) {
            hd_cuda_fail(x, "out of host memory");
            return;
        }
        memset(grown + p->capacity, 0, (size_t)(more - p->capacity) * sizeof *grown);
        p->spans = grown;
        p->capacity = more;
    }
    Span *s = &p->spans[p->n];
    s->func = f;
    s->index = index;
    s->stream = stream_of(x, &f->actions[index]);
    if ((!s->start && !hd_cuda_ok(x, x->api.cuEventCreate(&s->start, HD_CU_EVENT_DEFAULT), "profile")) ||
        (!s->end && !hd_cuda_ok(x, x->api.cuEventCreate(&s->end, HD_CU_EVENT_DEFAULT), "profile")) ||
        !hd_cuda_ok(x, x->api.cuEventRecord(s->start, x->streams[s->stream]), "profile"))
        return;
    p->n++;
    p->open = true;
}

void hd_profile_end(HdCuda *x) {
    if (recording(x) && !x->failed) end_span(x);
}

static void write_span(FILE *f, int rank, const Span *s, double from, double us) {
    const HdAction *a = &s->func->actions[s->index];
    char more[200];
    snprintf(more, sizeof more,
             ", \"action\": %d, \"gflop\": %.6g, \"mbytes\": %.6g, \"tflops\": %.4g, \"gbs\": %.4g, \"floor_us\": %.6g",
             s->index, a->flops * 1e-9, a->bytes * 1e-6, us > 0 ? a->flops / us * 1e-6 : 0,
             us > 0 ? a->bytes / us * 1e-3 : 0, a->floor);
    hd_json_action(f, s->func, s->index, rank, s->stream, from, us, more);
}

static const char *own_path(const HdCuda *x, const char *path, char *own, size_t size) { // each rank has a file
    const int rank = x->head.world->rank;
    snprintf(own, size, rank ? "%s.rank%d" : "%s", path, rank);
    return own;
}

bool hd_profile_write(HdCuda *x, const char *path) {
    const HdProfile *p = x->profile;
    const HdProgram *program = x->head.program;
    HdSummary summary = {0};
    if (!p) return hd_fail("the program was started without profiling");
    const int rank = x->head.world->rank;
    char own[4200];
    path = own_path(x, path, own, sizeof own);
    HdLosses losses = {0};
    FILE *f = fopen(path, "w");
    if (!f) return hd_fail("cannot write %s", path);
    fprintf(f, "{\"displayTimeUnit\": \"ns\", \"otherData\": {\"program\": ");
    hd_json_string(f, program->model);
    fprintf(f, ", \"device\": ");
    hd_json_string(f, x->device_name);
    fprintf(f, ", \"plan\": ");
    hd_json_string(f, program->plan_hash);
    fprintf(f, "}, \"traceEvents\": [\n");
    for (int i = 0; i < program->n_streams; i++) hd_json_name(f, "thread_name", rank, i, program->streams[i]);
    for (int i = 0; i < p->n; i++) {
        const Span *s = &p->spans[i];
        const HdAction *a = &s->func->actions[s->index];
        float from = 0, took = 0; // milliseconds, in steps of half a microsecond
        if (x->api.cuEventElapsedTime(&from, p->origin, s->start) != HD_CUDA_SUCCESS ||
            x->api.cuEventElapsedTime(&took, s->start, s->end) != HD_CUDA_SUCCESS)
            continue;
        double us = (double)took * 1e3;
        hd_summary_add(&summary, a, s->stream, (double)from * 1e3, us);
        hd_losses_add(&losses, a, us);
        write_span(f, rank, s, (double)from * 1e3, us);
    }
    char name[300];
    snprintf(name, sizeof name, "rank %d: %s", rank, x->device_name);
    hd_json_name(f, "process_name", rank, 0, name);
    fprintf(f, "{\"ph\": \"M\", \"name\": \"process_sort_index\", \"pid\": %d, \"args\": {\"sort_index\": %d}}\n]}\n",
            rank, rank);
    bool ok = !ferror(f);
    ok = fclose(f) == 0 && ok;
    if (ok && rank == 0) {
        hd_summary_print(&summary, program->backend->peak_flops(&x->head), stderr);
        hd_losses_print(&losses, summary.end, stderr);
    }
    hd_losses_free(&losses);
    return ok || hd_fail("cannot write %s", path);
}

bool hd_profile_page(HdCuda *x, const char *path) {
    const HdProfile *p = x->profile;
    const HdProgram *program = x->head.program;
    char own[4200];
    if (!p) return hd_fail("the program was started without profiling");
    HdSpan *spans = calloc((size_t)p->n + 1, sizeof *spans);
    if (!spans) return hd_fail("out of host memory");
    int n = 0;
    for (int i = 0; i < p->n; i++) {
        const Span *s = &p->spans[i];
        float from = 0, took = 0; // milliseconds
        if (x->api.cuEventElapsedTime(&from, p->origin, s->start) != HD_CUDA_SUCCESS ||
            x->api.cuEventElapsedTime(&took, s->start, s->end) != HD_CUDA_SUCCESS)
            continue;
        spans[n++] = (HdSpan){s->func, s->index, s->stream, 1e-3 * (double)from, 1e-3 * ((double)from + (double)took)};
    }
    const HdSpans all = {x->device_name, program->n_streams, program->n_streams, program->streams, n, spans};
    const bool ok = hd_timeline_write(program, &all, own_path(x, path, own, sizeof own));
    free(spans);
    return ok;
}

void hd_profile_close(HdCuda *x) {
    HdProfile *p = x->profile;
    if (!p) return;
    for (int i = 0; i < p->capacity; i++) {
        if (p->spans[i].start) x->api.cuEventDestroy(p->spans[i].start);
        if (p->spans[i].end) x->api.cuEventDestroy(p->spans[i].end);
    }
    if (p->origin) x->api.cuEventDestroy(p->origin);
    free(p->spans);
    free(p);
    x->profile = NULL;
}
