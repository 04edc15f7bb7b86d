// The host executor: one zeroed arena per rank, and one thread per stream that runs its actions (streams.c), each
// parallel inside. Copies asked for by `post` are made at once and queued for `collect`.
#include "runtime/host/host.h"
#include "runtime/world/mesh.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#ifdef _OPENMP
#include <omp.h>
#endif

// --- memory and work

// The ranks' compute streams share the cores. A thread sets this for the parallel regions that it opens itself.
static int share_cores(int ranks) {
#ifdef _OPENMP
    const int all = omp_get_max_threads(), share = all / ranks > 1 ? all / ranks : 1;
    if (ranks > 1) omp_set_num_threads(share);
    return share;
#else
    (void)ranks;
    return 1;
#endif
}

static void find_device(Host *h, int threads) {
    char line[256], name[64] = "CPU";
    FILE *f = fopen("/proc/cpuinfo", "r");
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "model name : %63[^\n]", name) == 1) break;
    if (f) fclose(f);
    snprintf(h->device, sizeof h->device, "%s, %d thread%s%s", name, threads, threads == 1 ? "" : "s",
             h->head.world->ranks > 1 ? " a rank" : "");
}

static char *map_arena(int64_t bytes) { // zeroed; NULL after hd_fail
    void *m = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (m == MAP_FAILED) {
        hd_fail("out of memory: cannot allocate an arena of %lld bytes: %s", (long long)bytes, strerror(errno));
        return NULL;
    }
    madvise(m, (size_t)bytes, MADV_HUGEPAGE); // fewer page faults in the first step where the system has large pages
    return m;
}

static bool find_memory(Host *h, const HdProgram *p, int ranks) {
    const int64_t pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    const int64_t bytes = p->arena_bytes + p->pinned_bytes;
    if (pages > 0 && page > 0 && bytes / page > pages / ranks) {
        if (ranks == 1)
            hd_fail("out of memory: the program needs %lld bytes, this machine has %lld", (long long)bytes,
                    (long long)(pages * page));
        else
            hd_fail("out of memory: the program needs %lld bytes on each of %d ranks, this machine has %lld",
                    (long long)bytes, ranks, (long long)(pages * page));
        return false;
    }
    h->bytes = (size_t)(p->arena_bytes > 0 ? p->arena_bytes : 1);
    h->head.base = map_arena((int64_t)h->bytes);
    if (h->head.base && p->pinned_bytes) h->head.pinned = map_arena(p->pinned_bytes);
    return h->head.base && (h->head.pinned || !p->pinned_bytes);
}

static void host_close(HdExec *x) {
    if (!x) return;
    Host *h = hd_host_of(x);
    hd_host_streams_close(h);
    hd_host_guards_close(h);
    while (h->oldest) {
        HostCopy *c = h->oldest;
        h->oldest = c->next;
        free(c);
    }
    hd_host_team_close(h);
}

static bool start(Host *h, const HdProgram *p, HdWorld *w) {
    if (hd_ranks(p) != w->ranks) return hd_fail("the program is for %d ranks, the run has %d", hd_ranks(p), w->ranks);
    find_device(h, share_cores(w->ranks));
    return find_memory(h, p, w->ranks) && hd_host_guards_open(h) && hd_host_streams_open(h);
}

static HdExec *host_open(const HdProgram *p, HdWorld *w, const HdOpen *how) { // no graphs: actions cost little
    Host *h = calloc(1, sizeof *h);
    if (h) {
        h->head.program = p;
        h->head.world = w;
        h->profiling = how->profile;
    } else {
        hd_fail("out of memory: cannot start the host executor");
    }
    if (hd_world_agree(w, h && start(h, p, w)) && hd_host_team_open(h)) return &h->head;
    if (h) host_close(&h->head);
    return NULL;
}

static bool in_arena(Host *h, int64_t offset, size_t bytes, const char *what) {
    if (offset >= 0 && (size_t)offset <= h->bytes && bytes <= h->bytes - (size_t)offset) return true;
    return hd_fail("%s of %zu bytes at %lld is outside the arena of %zu bytes", what, bytes, (long long)offset,
                   h->bytes);
}

static bool host_write(HdExec *x, int64_t offset, const void *data, size_t bytes) {
    if (!in_arena(hd_host_of(x), offset, bytes, "a write")) return false;
    memcpy(x->base + offset, data, bytes);
    return true;
}

static bool host_read(HdExec *x, int64_t offset, void *data, size_t bytes) {
    if (!in_arena(hd_host_of(x), offset, bytes, "a read")) return false;
    memcpy(data, x->base + offset, bytes);
    return true;
}

static bool host_post(HdExec *x, int n, const int64_t *offsets, size_t bytes) {
    Host *h = hd_host_of(x);
    HostCopy *c = malloc(sizeof *c + (size_t)n * bytes);
    if (!c) return hd_fail("out of memory: cannot keep %zu bytes of results", (size_t)n * bytes);
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
    Host *h = hd_host_of(x);
    HostCopy *c = h->oldest;
    if (!c) return hd_fail("nothing was posted that could be collected");
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

static double host_peak_flops(HdExec *x) {
    (void)x;
    return 0; // it depends on clocks and instruction sets
}

static const char *host_device(HdExec *x) { return hd_host_of(x)->device; }

const HdBackend hd_host_backend = {
    .name = "host",
    .synchronous = true, .threads = true, .open = host_open, .write = host_write, .read = host_read, .run = hd_host_run,
    .post = host_post, .collect = host_collect, .sync = host_sync, .write_profile = hd_host_write_profile,
    .write_timeline = hd_host_write_timeline,
    .close = host_close, .peak_flops = host_peak_flops, .device = host_device,
};
