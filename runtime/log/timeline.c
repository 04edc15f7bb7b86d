// Pages of measured steps. See timeline.h.
#include "runtime/log/timeline.h"
#include "runtime/base/json.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern const unsigned char hd_timeline_page[]; // runtime/log/timeline.html, as text

typedef struct { const HdFunc *f; double start, end; } Run; // of a function; end < start: nothing of it was timed
typedef struct { int n; Run *at; int *of; } Runs; // of: by span

// The functions that the step runs, one after another. Each lane meets them in this order, those in which it has
// actions.
static int step_runs(const HdStep *s, Run *runs) {
    int n = 0;
    for (int i = 0; i < s->n_segments; i++)
        for (int64_t k = 0; k < s->segments[i].times; k++, n++)
            if (runs) runs[n] = (Run){s->segments[i].func, 1e30, -1e30};
    return n;
}

static bool begins_run(const HdSpans *s, int i, int before) {
    return before < 0 || s->spans[before].f != s->spans[i].f || s->spans[i].index <= s->spans[before].index;
}

static void assign_lane(const HdSpans *s, int lane, int per_rank, Runs *r) {
    const int first = lane / s->lanes_of_rank * per_rank;
    int run = -1, before = -1;
    for (int i = 0; i < s->n; i++) {
        const HdSpan *x = &s->spans[i];
        if (x->lane != lane) continue;
        if (begins_run(s, i, before))
            for (run++; run < per_rank - 1 && r->at[first + run].f != x->f; run++) {}
        before = i;
        if (run >= per_rank) run = per_rank - 1;
        Run *y = &r->at[first + run];
        r->of[i] = first + run;
        if (x->start < y->start) y->start = x->start;
        if (x->end > y->end) y->end = x->end;
    }
}

static bool find_runs(const HdProgram *p, const HdSpans *s, Runs *r) {
    const int per_rank = step_runs(&p->train_step, NULL), ranks = s->n_lanes / s->lanes_of_rank;
    r->n = per_rank * ranks;
    r->at = calloc((size_t)r->n + 1, sizeof *r->at);
    r->of = calloc((size_t)s->n + 1, sizeof *r->of);
    if (!r->at || !r->of) return hd_fail("out of memory");
    for (int i = 0; i < ranks; i++) step_runs(&p->train_step, r->at + i * per_rank);
    for (int lane = 0; per_rank && lane < s->n_lanes; lane++) assign_lane(s, lane, per_rank, r);
    return true;
}

static long long ns(double seconds) { return (long long)(1e9 * seconds + 0.5); }

static void put_spans(FILE *f, const HdSpans *s, const Runs *r) {
    bool first = true;
    fputs("\"spans\":[", f);
    for (int i = 0; i < s->n; i++) {
        const HdSpan *x = &s->spans[i];
        if (!strcmp(x->f->actions[x->index].op, "record")) continue;
        fprintf(f, "%s%d,%d,%d,%lld,%lld", first ? "" : ",", x->lane, r->of[i], x->index, ns(x->start),
                ns(x->end) - ns(x->start));
        first = false;
    }
    fputs("]", f);
}

static void put_page(FILE *f, const HdProgram *p, const HdSpans *s, const Runs *r) {
    static const char mark[] = "@DATA@";
    const char *page = (const char *)hd_timeline_page, *data = strstr(page, mark);
    const int ranks = s->n_lanes / s->lanes_of_rank;
    fwrite(page, 1, (size_t)(data - page), f);
    fputs("{\"version\":1,\"kind\":\"measured\",\"device\":", f);
    hd_json_string(f, s->device);
    fputs(",\"lanes\":[", f);
    for (int i = 0; i < s->n_lanes; i++) {
        if (i) fputc(',', f);
        hd_json_string(f, s->lanes[i]);
    }
    fprintf(f, "],\"shown\":%d,\"runs\":[", r->n / ranks); // frames of the first rank
    for (int i = 0; i < r->n; i++) {
        const bool any = r->at[i].end >= r->at[i].start;
        fprintf(f, "%s%td,%lld,%lld", i ? "," : "", r->at[i].f - p->funcs, any ? ns(r->at[i].start) : 0,
                any ? ns(r->at[i].end) : 0);
    }
    fprintf(f, "],\n\"plan\":%s,\n", p->timeline);
    put_spans(f, s, r);
    fputs("}", f);
    fputs(data + strlen(mark), f);
}

bool hd_timeline_write(const HdProgram *p, const HdSpans *s, const char *path) {
    Runs r = {0};
    if (!p->timeline || !*p->timeline) return hd_fail("this program holds no timeline of its plan");
    const bool found = find_runs(p, s, &r);
    FILE *f = found ? fopen(path, "w") : NULL;
    bool good = f != NULL;
    if (f) {
        put_page(f, p, s, &r);
        good = !ferror(f);
        good = fclose(f) == 0 && good;
    }
    if (found && !good) hd_fail("cannot write the timeline %s: %s", path, strerror(errno));
    free(r.at);
    free(r.of);
    return good;
}
