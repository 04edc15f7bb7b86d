// Device time of every action of a step, from a pair of events around each: as a Chrome trace with a summary by kind of
// op, and as a page of a timeline.
//
// Actions of one stream run one after another, so one event can end an action and begin the next. With profiling on,
// functions are issued directly: an event inside a captured graph could not be read. The recording covers one training
// step. Each rank writes a file of its own, and rank 0 prints the summary; the time that the compute stream spends in
// waits is exposed communication.
#include "runtime/cuda/exec.h"
#include "runtime/cuda/losses.h"
#include "runtime/json.h"
#include "runtime/timeline.h"
#include "runtime/world/world.h"
#include "runtime/text.h"
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

typedef struct { const char *op; int count; double us, flops, bytes; } Kind;

static int by_time(const void *a, const void *b) {
    const Kind *x = a, *y = b;
    return x->us < y->us ? 1 : x->us > y->us ? -1 : strcmp(x->op, y->op);
}

static void add_kind(Kind *kinds, int *n, int limit, const HdAction *a, double us) {
    int i = 0;
    while (i < *n && strcmp(kinds[i].op, a->op) != 0) i++;
    if (i == limit) return;
    if (i == *n) kinds[(*n)++] = (Kind){.op = a->op};
    kinds[i].count++;
    kinds[i].us += us;
    kinds[i].flops += a->flops;
    kinds[i].bytes += a->bytes;
}

static void print_summary(HdCuda *x, Kind *kinds, int n) {
    double total = 0, peak = 0;
    peak = x->head.program->backend->peak_flops(&x->head);
    for (int i = 0; i < n; i++) total += kinds[i].us;
    qsort(kinds, (size_t)n, sizeof *kinds, by_time);
    hd_say(stderr, "%-24s %6s %10s %6s %9s %6s %8s\n", "op", "count", "us", "share", "TFLOP/s", "peak", "GB/s");
    for (int i = 0; i < n; i++) {
        const Kind *k = &kinds[i];
        double rate = k->us > 0 ? k->flops / k->us * 1e-6 : 0;
        hd_say(stderr, "%-24s %6d %10.1f %5.1f%% %9.1f %5.1f%% %8.0f\n", k->op, k->count, k->us,
               total > 0 ? 100 * k->us / total : 0, rate, peak > 0 ? 100e12 * rate / peak : 0,
               k->us > 0 ? k->bytes / k->us * 1e-3 : 0);
    }
    hd_say(stderr, "%-24s %6s %10.1f\n", "all", "", total);
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
    enum { KINDS = 64 };
    Kind kinds[KINDS];
    int n_kinds = 0;
    if (!p) return hd_fail("the program was started without profiling");
    const int rank = x->head.world->rank;
    char own[4200];
    path = own_path(x, path, own, sizeof own);
    double last = 0, waited = 0;
    int waits = 0;
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
        add_kind(kinds, &n_kinds, KINDS, a, us);
        hd_losses_add(&losses, a, us);
        if ((double)from * 1e3 + us > last) last = (double)from * 1e3 + us;
        if (s->stream == 0 && !strcmp(a->op, "wait")) {
            waited += us;
            waits++;
        }
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
        print_summary(x, kinds, n_kinds);
        hd_losses_print(&losses, last, stderr);
        if (waits)
            hd_say(stderr, "step %.3f ms, of which the compute stream spends %.3f ms in %d waits for other streams\n",
                   last * 1e-3, waited * 1e-3, waits);
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
