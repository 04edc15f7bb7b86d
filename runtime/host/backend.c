// The host executor: one zeroed arena, actions run one after another in plan order by the calling thread (each action is parallel
// inside). Copies asked for by `post` are made at once and queued for `collect`.
#include "runtime/host/scratch.h"
#include "runtime/world.h"
#include <errno.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

typedef struct { const HdFunc *f; int index; double start, end; } Event; // seconds

typedef struct Copy { struct Copy *next; size_t bytes; char data[]; } Copy;

typedef struct {
    HdExec head;
    size_t bytes;
    Copy *oldest, *newest;
    Event *events; // of the last step, when profiling
    int n_events, cap_events;
    bool profiling, open_event, events_lost;
    char device[96];
} Host;

static Host *host_of(HdExec *x) { return (Host *)(void *)x; }

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

// --- profile

static void end_event(Host *h) {
    if (h->open_event) h->events[h->n_events - 1].end = now();
    h->open_event = false;
}

static void begin_event(HdExec *x, const HdFunc *f, int index) {
    Host *h = host_of(x);
    end_event(h);
    if (h->n_events == h->cap_events) {
        const int cap = h->cap_events ? 2 * h->cap_events : 1024;
        Event *e = realloc(h->events, sizeof *e * (size_t)cap);
        if (!e) {
            h->events_lost = true;
            return;
        }
        h->events = e;
        h->cap_events = cap;
    }
    h->events[h->n_events++] = (Event){f, index, now(), 0};
    h->open_event = true;
}

static void put_json(FILE *f, const char *text) {
    for (const char *s = text ? text : ""; *s; s++) {
        if (*s == '"' || *s == '\\') fprintf(f, "\\%c", *s);
        else if ((unsigned char)*s < 32) fprintf(f, "\\u%04x", (unsigned)*s);
        else fputc(*s, f);
    }
}

static int stream_of(const HdProgram *p, const char *name) {
    for (int i = 0; i < p->n_streams; i++)
        if (!strcmp(p->streams[i], name)) return i;
    return 0;
}

static bool host_write_profile(HdExec *x, const char *path) {
    Host *h = host_of(x);
    FILE *f = fopen(path, "w");
    if (!f) {
        hd_fail("cannot write the profile %s: %s", path, strerror(errno));
        return false;
    }
    fputs("{\"displayTimeUnit\": \"ms\", \"traceEvents\": [\n", f);
    for (int i = 0; i < x->program->n_streams; i++) {
        fprintf(f, "{\"ph\": \"M\", \"name\": \"thread_name\", \"pid\": 0, \"tid\": %d, \"args\": {\"name\": \"", i);
        put_json(f, x->program->streams[i]);
        fputs("\"}},\n", f);
    }
    for (int i = 0; i < h->n_events; i++) {
        const Event *e = &h->events[i];
        const HdAction *a = &e->f->actions[e->index];
        fputs("{\"ph\": \"X\", \"name\": \"", f);
        put_json(f, a->op);
        fprintf(f, "\", \"cat\": \"%s\", \"pid\": 0, \"tid\": %d, \"ts\": %.3f, \"dur\": %.3f, \"args\": {\"path\": \"", e->f->name,
                stream_of(x->program, a->stream), 1e6 * (e->start - h->events[0].start), 1e6 * (e->end - e->start));
        put_json(f, a->path);
        fputs("\", \"where\": \"", f);
        put_json(f, a->where);
        fputs("\", \"stream\": \"", f);
        put_json(f, a->stream);
        fprintf(f, "\", \"flops\": %.6g, \"bytes\": %.6g}},\n", a->flops, a->bytes);
    }
    fputs("{\"ph\": \"M\", \"name\": \"process_name\", \"pid\": 0, \"args\": {\"name\": \"", f);
    put_json(f, h->device);
    fputs("\"}}\n]}\n", f);
    const bool bad = ferror(f) != 0;
    if (fclose(f) || bad) {
        hd_fail("cannot write the profile %s: %s", path, strerror(errno));
        return false;
    }
    if (h->events_lost) {
        hd_fail("the profile %s is incomplete: out of memory", path);
        return false;
    }
    return true;
}

// --- memory and work

static void find_device(Host *h) {
    char line[256], name[64] = "CPU";
    FILE *f = fopen("/proc/cpuinfo", "r");
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "model name : %63[^\n]", name) == 1) break;
    if (f) fclose(f);
    snprintf(h->device, sizeof h->device, "%s, %d threads", name, omp_get_max_threads());
}

static HdExec *host_open(const HdProgram *p, HdWorld *w, bool use_graphs, const char *profile) {
    (void)use_graphs; // actions are cheap to issue here
    const int64_t pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    if (pages > 0 && page > 0 && p->arena_bytes / page > pages) {
        hd_fail("out of memory: the program needs %lld bytes, this machine has %lld", (long long)p->arena_bytes, (long long)(pages * page));
        return NULL;
    }
    Host *h = calloc(1, sizeof *h);
    if (!h) {
        hd_fail("out of memory: cannot start the host executor");
        return NULL;
    }
    h->bytes = (size_t)(p->arena_bytes > 0 ? p->arena_bytes : 1);
    void *m = mmap(NULL, h->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); // zeroed
    if (m == MAP_FAILED) {
        hd_fail("out of memory: cannot allocate an arena of %lld bytes: %s", (long long)p->arena_bytes, strerror(errno));
        free(h);
        return NULL;
    }
    madvise(m, h->bytes, MADV_HUGEPAGE); // fewer faults in the first step where the system has large pages
    h->head.program = p;
    h->head.world = w;
    h->head.shard_index = w->rank % (p->shard ? p->shard : 1);
    h->head.base = m;
    h->profiling = profile != NULL;
    find_device(h);
    return &h->head;
}

static bool in_arena(Host *h, int64_t offset, size_t bytes, const char *what) {
    if (offset >= 0 && (size_t)offset <= h->bytes && bytes <= h->bytes - (size_t)offset) return true;
    hd_fail("%s of %zu bytes at %lld is outside the arena of %zu bytes", what, bytes, (long long)offset, h->bytes);
    return false;
}

static bool host_write(HdExec *x, int64_t offset, const void *data, size_t bytes) {
    if (!in_arena(host_of(x), offset, bytes, "a write")) return false;
    memcpy(x->base + offset, data, bytes);
    return true;
}

static bool host_read(HdExec *x, int64_t offset, void *data, size_t bytes) {
    if (!in_arena(host_of(x), offset, bytes, "a read")) return false;
    memcpy(data, x->base + offset, bytes);
    return true;
}

static bool host_run(HdExec *x, const HdFunc *f) {
    Host *h = host_of(x);
    if (!strcmp(f->name, "micro_only") || !strcmp(f->name, "micro_first")) h->n_events = 0; // a new step
    h->head.on_action = h->profiling && strcmp(f->name, "eval") != 0 ? begin_event : NULL; // validation is no part of a step
    f->run(x);
    end_event(h);
    return true;
}

static bool host_post(HdExec *x, int n, const int64_t *offsets, size_t bytes) {
    Host *h = host_of(x);
    Copy *c = malloc(sizeof *c + (size_t)n * bytes);
    if (!c) {
        hd_fail("out of memory: cannot keep %zu bytes of results", (size_t)n * bytes);
        return false;
    }
    c->next = NULL;
    c->bytes = (size_t)n * bytes;
    for (int i = 0; i < n; i++)
        if (!host_read(x, offsets[i], c->data + (size_t)i * bytes, bytes)) {
            free(c);
            return false;
        }
    if (h->newest) h->newest->next = c;
    else h->oldest = c;
    h->newest = c;
    return true;
}

static bool host_collect(HdExec *x, void *data) {
    Host *h = host_of(x);
    Copy *c = h->oldest;
    if (!c) {
        hd_fail("nothing was posted that could be collected");
        return false;
    }
    memcpy(data, c->data, c->bytes);
    h->oldest = c->next;
    if (!h->oldest) h->newest = NULL;
    free(c);
    return true;
}

static bool host_sync(HdExec *x) {
    (void)x;
    return true;
}

static void host_close(HdExec *x) {
    if (!x) return;
    Host *h = host_of(x);
    while (h->oldest) {
        Copy *c = h->oldest;
        h->oldest = c->next;
        free(c);
    }
    munmap(h->head.base, h->bytes);
    free(h->events);
    free(h);
}

static double host_peak_flops(HdExec *x) {
    (void)x;
    return 0; // depends on clocks and instruction sets: no honest number
}

static const char *host_device(HdExec *x) { return host_of(x)->device; }

const HdBackend hd_host_backend = {
    .name = "host", .synchronous = true, .open = host_open, .write = host_write, .read = host_read, .run = host_run, .post = host_post, .collect = host_collect,
    .sync = host_sync, .write_profile = host_write_profile, .close = host_close, .peak_flops = host_peak_flops, .device = host_device,
};
