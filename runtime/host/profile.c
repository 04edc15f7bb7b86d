// Profiles: the begin and end of each action of the last step, as a Chrome trace with a process per rank and a thread
// per stream, and as a page with a row for each of them.
#include "runtime/host/host.h"
#include "runtime/base/json.h"
#include "runtime/log/summary.h"
#include "runtime/log/timeline.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void hd_host_end_event(HostStream *s) {
    if (s->open_event) s->events[s->n_events - 1].end = hd_now();
    s->open_event = false;
}

void hd_host_begin_event(HostStream *s, const HdFunc *f, int index) {
    hd_host_end_event(s);
    if (s->n_events == s->cap_events) {
        const int cap = s->cap_events ? 2 * s->cap_events : 1024;
        HostEvent *e = realloc(s->events, sizeof *e * (size_t)cap);
        if (!e) {
            s->events_lost = true;
            return;
        }
        s->events = e;
        s->cap_events = cap;
    }
    s->events[s->n_events++] = (HostEvent){f, index, hd_now(), 0};
    s->open_event = true;
}

static void put_event(FILE *f, const HostEvent *e, int rank, int stream, double start) {
    const HdAction *a = &e->f->actions[e->index];
    char more[80];
    snprintf(more, sizeof more, ", \"flops\": %.6g, \"bytes\": %.6g", a->flops, a->bytes);
    hd_json_action(f, e->f, e->index, rank, stream, 1e6 * (e->start - start), 1e6 * (e->end - e->start), more);
}

static double first_start(Host *h, int ranks) {
    double first = hd_now();
    for (int r = 0; r < ranks; r++) {
        const Host *m = hd_host_team_member(h, r);
        for (int i = 0; i < m->n_streams; i++)
            if (m->stream[i].n_events && m->stream[i].events[0].start < first) first = m->stream[i].events[0].start;
    }
    return first;
}

// Returns whether no event was lost.
static bool put_rank(FILE *f, const Host *h, int rank, int ranks, double start) {
    const HdProgram *p = h->head.program;
    char name[160];
    if (ranks > 1) snprintf(name, sizeof name, "rank %d, %s", rank, h->device);
    else snprintf(name, sizeof name, "%s", h->device);
    hd_json_name(f, "process_name", rank, 0, name);
    bool whole = true;
    for (int i = 0; i < h->n_streams; i++) {
        const HostStream *s = &h->stream[i];
        hd_json_name(f, "thread_name", rank, i, i < p->n_streams ? p->streams[i] : "compute");
        for (int k = 0; k < s->n_events; k++) put_event(f, &s->events[k], rank, i, start);
        whole = whole && !s->events_lost;
    }
    return whole;
}

static void print_summary(const Host *h, double start) { // of one rank
    HdSummary summary = {0};
    for (int i = 0; i < h->n_streams; i++)
        for (int k = 0; k < h->stream[i].n_events; k++) {
            const HostEvent *e = &h->stream[i].events[k];
            hd_summary_add(&summary, &e->f->actions[e->index], i, 1e6 * (e->start - start), 1e6 * (e->end - e->start));
        }
    hd_summary_print(&summary, 0, stderr);
}

static bool write_all(Host *h, const char *path) {
    const int ranks = h->head.world->ranks;
    FILE *f = fopen(path, "w");
    if (!f) return hd_fail("cannot write the profile %s: %s", path, strerror(errno));
    fputs("{\"displayTimeUnit\": \"ms\", \"traceEvents\": [\n", f);
    const double start = first_start(h, ranks);
    bool whole = true;
    for (int r = 0; r < ranks; r++) whole &= put_rank(f, hd_host_team_member(h, r), r, ranks, start);
    fputs("{\"ph\": \"M\", \"name\": \"process_sort_index\", \"pid\": 0, \"args\": {\"sort_index\": 0}}\n]}\n", f);
    const bool bad = ferror(f) != 0;
    if (fclose(f) || bad) return hd_fail("cannot write the profile %s: %s", path, strerror(errno));
    if (!whole) return hd_fail("the profile %s is incomplete: out of memory", path);
    print_summary(hd_host_team_member(h, 0), start);
    return true;
}

bool hd_host_write_profile(HdExec *x, const char *path) {
    HdWorld *w = x->world;
    if (!hd_world_barrier(w)) return false; // no rank is in a step any more
    return hd_world_agree(w, w->rank || write_all(hd_host_of(x), path));
}

// --- as a page

static int count_events(Host *h, int ranks, int *lanes) {
    int n = *lanes = 0;
    for (int r = 0; r < ranks; r++) {
        const Host *m = hd_host_team_member(h, r);
        *lanes += m->n_streams;
        for (int i = 0; i < m->n_streams; i++) n += m->stream[i].n_events;
    }
    return n;
}

enum { LANE_TEXT = 80 };

static void fill_lane(HdSpan **to, const HostStream *s, int lane, double start) {
    for (int k = 0; k < s->n_events; k++) {
        const HostEvent *e = &s->events[k];
        *(*to)++ = (HdSpan){e->f, e->index, lane, e->start - start, e->end - start};
    }
}

static bool write_page(Host *h, const char *path) {
    const HdProgram *p = h->head.program;
    const int ranks = h->head.world->ranks;
    int n_lanes;
    const int n = count_events(h, ranks, &n_lanes);
    const double start = first_start(h, ranks);
    HdSpan *spans = calloc((size_t)n + 1, sizeof *spans), *to = spans;
    const char **lanes = calloc((size_t)n_lanes + 1, sizeof *lanes);
    char *names = calloc((size_t)n_lanes + 1, LANE_TEXT);
    bool ok = spans && lanes && names;
    if (!ok) hd_fail("out of memory");
    for (int r = 0, lane = 0; ok && r < ranks; r++) {
        const Host *m = hd_host_team_member(h, r);
        for (int i = 0; i < m->n_streams; i++, lane++) {
            char *name = names + lane * LANE_TEXT;
            const char *stream = i < p->n_streams ? p->streams[i] : "compute";
            if (ranks > 1) snprintf(name, LANE_TEXT, "%d %s", r, stream);
            else snprintf(name, LANE_TEXT, "%s", stream);
            lanes[lane] = name;
            fill_lane(&to, &m->stream[i], lane, start);
        }
    }
    ok = ok && hd_timeline_write(p, &(HdSpans){h->device, n_lanes, n_lanes / ranks, lanes, n, spans}, path);
    free(spans);
    free(lanes);
    free(names);
    return ok;
}

bool hd_host_write_timeline(HdExec *x, const char *path) {
    HdWorld *w = x->world;
    if (!hd_world_barrier(w)) return false; // no rank is in a step any more
    return hd_world_agree(w, w->rank || write_page(hd_host_of(x), path));
}
