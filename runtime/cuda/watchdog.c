// The watchdog: a thread that ends a run when a rank is gone, when NCCL reports an error, or when nothing has moved for
// too long. The device itself marks what it has completed, in pinned host memory: a few bytes after every collective,
// captured with it, so that the marks are right however far ahead the host issues. To end the run it aborts the
// communicators, so that whoever waits for the device wakes up; it kills a process that does not exit then. Within half
// a minute of a death or a hang every rank has exited, and one has reported which rank, which step and which
// collective.
//
// Environment: HEDDLE_STALL_SECONDS (23, more than the limit for a silent rank: how long the device may take from one
// completed collective to the next).
#include "runtime/cuda/comms.h"
#include "runtime/world/mesh.h"
#include "runtime/world/sockets.h"
#include "runtime/world/world.h"
#include "runtime/text.h"
#include <ctype.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

// Words of the marks. DONE + c: the action of communicator c that has completed last, plus 1, and from bit ACTIONS on
// its function, counted from 1: what a step lets run on may belong to the function before.
enum { RUNNING, STEP, DONE, LEAVE_SECONDS = 4, ACTIONS = 20 };
typedef atomic_int *Calls; // by action of a function: the communicator of a collective, plus 1; 0: it is none

struct HdWatch {
    HdCuda *x;
    pthread_t thread;
    bool started;
    volatile uint32_t *marks;
    Calls *calls; // one for each function
    const HdFunc *func;
    atomic_bool broken, told, quiet, stop;
    char why[1600];
    double limit; // seconds
};

static void name_open_collective(void *of, char *out, size_t size) { // "" when nothing is known to be open
    const HdWatch *t = of;
    const HdProgram *p = t->x->head.program;
    const uint32_t running = t->marks[RUNNING];
    out[0] = 0;
    if (running == 0 || running > (uint32_t)p->n_funcs) return;
    const HdFunc *f = &p->funcs[running - 1];
    for (int i = 0; i < f->n_actions; i++) {
        const int comm = t->calls[running - 1][i] - 1;
        if (comm < 0 || (t->marks[DONE + comm] >> ACTIONS == running &&
                         t->marks[DONE + comm] % (1u << ACTIONS) > (uint32_t)i))
            continue;
        const HdAction *a = &f->actions[i];
        const char *of_what = a->path && *a->path ? a->path : a->where ? a->where : "";
        snprintf(out, size, "; not completed: %s%s%s (%s)", a->op, *of_what ? " " : "", of_what, p->comms[comm].name);
        return;
    }
}

static bool own_words(const char *why) { // "rank 3: ...": that rank's own message
    if (strncmp(why, "rank ", 5) != 0) return false;
    for (why += 5; isdigit((unsigned char)*why); why++) continue;
    return *why == ':';
}

static void strike(HdWatch *t, const char *why, bool tell) {
    HdCuda *x = t->x;
    char open[300] = "";
    if (!own_words(why) && !strstr(why, "not completed: ")) name_open_collective(t, open, sizeof open);
    snprintf(t->why, sizeof t->why, "%.1200s%s", why, open);
    t->broken = true;
    if (tell) x->head.world->fail(x->head.world, t->why);
    struct timespec until; // whoever holds it may itself be waiting inside a call
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec++;
    const bool locked = pthread_mutex_timedlock(&x->comms.lock, &until) == 0;
    if (!t->quiet) hd_comms_abort(x);
    if (locked) pthread_mutex_unlock(&x->comms.lock);
}

static bool nccl_error(HdWatch *t, char *why, size_t size) {
    HdCuda *x = t->x;
    const HdProgram *p = x->head.program;
    bool bad = false;
    if (pthread_mutex_trylock(&x->comms.lock) != 0) return false;
    for (int i = 0; x->comms.comm && !x->comms.aborted && !t->quiet && !bad && i < p->n_comms; i++) {
        NcResult r = HD_ncclSuccess;
        if (!x->comms.comm[i] || x->api.ncclCommGetAsyncError(x->comms.comm[i], &r) != HD_ncclSuccess) continue;
        bad = r != HD_ncclSuccess && r != HD_ncclInProgress;
        if (bad)
            snprintf(why, size, "NCCL: %s over %d ranks: %s", p->comms[i].name, hd_group_ranks(p, p->comms[i].over),
                     x->api.ncclGetErrorString(r));
    }
    pthread_mutex_unlock(&x->comms.lock);
    return bad;
}

typedef struct { uint32_t sum; double since; } Movement;

static bool stalled(HdWatch *t, Movement *m, char *why, size_t size) {
    const double now = hd_now();
    uint32_t sum = 0; // these words only grow within a step: the same sum means the same place
    for (int i = 0; i < DONE + t->x->head.program->n_comms; i++) sum = sum * 31 + t->marks[i];
    if (t->marks[RUNNING] == 0 || sum != m->sum) *m = (Movement){sum, now};
    if (now - m->since < t->limit) return false;
    snprintf(why, size, "no collective has completed for %.0f s at step %u (HEDDLE_STALL_SECONDS=N waits longer)",
             now - m->since, t->marks[STEP] + 1);
    return true;
}

static void last_seconds(HdWatch *t) { // of a run that was ended
    const double until = hd_now() + LEAVE_SECONDS;
    const struct HdWorld *w = t->x->head.world;
    while (!t->stop && hd_now() < until) usleep(20000);
    if (t->stop) return;
    if (!t->told && !w->told && w->rank == w->speaker) hd_say(stderr, "error: %s\n", t->why);
    fflush(NULL);
    _exit(1);
}

static void *watch(void *arg) {
    HdWatch *t = arg;
    struct HdWorld *w = t->x->head.world;
    Movement m = {0, hd_now()};
    char why[1300];
    for (int round = 0; !t->stop; round++, usleep(20000)) {
        const bool alive = w->alive(w);
        if (!alive) snprintf(why, sizeof why, "%s", hd_failure());
        if (alive && (t->quiet || round % 8 || (!nccl_error(t, why, sizeof why) && !stalled(t, &m, why, sizeof why))))
            continue;
        strike(t, why, alive);
        last_seconds(t);
        break;
    }
    return NULL;
}

bool hd_watch_open(HdCuda *x) {
    const HdProgram *p = x->head.program;
    HdWatch *t = calloc(1, sizeof *t);
    void *marks = NULL;
    if (!t) return hd_cuda_fail(x, "out of host memory");
    x->watch = t;
    t->x = x;
    t->limit = hd_tcp_seconds("HEDDLE_STALL_SECONDS", 23);
    t->calls = calloc((size_t)p->n_funcs + 1, sizeof *t->calls);
    bool ok = t->calls;
    for (int i = 0; i < p->n_funcs && ok; i++)
        ok = (t->calls[i] = calloc((size_t)p->funcs[i].n_actions + 1, sizeof(atomic_int))) != NULL;
    if (!ok) return hd_cuda_fail(x, "out of host memory");
    if (!hd_cuda_ok(x,
                    x->api.cuMemHostAlloc(&marks, sizeof(uint32_t) * (size_t)(DONE + p->n_comms),
                                          HD_CU_MEMHOSTALLOC_PORTABLE | HD_CU_MEMHOSTALLOC_DEVICEMAP),
                    "cannot allocate pinned host memory"))
        return false;
    memset(marks, 0, sizeof(uint32_t) * (size_t)(DONE + p->n_comms));
    t->marks = marks;
    if (x->head.world->waiting) x->head.world->waiting(x->head.world, name_open_collective, t);
    t->started = pthread_create(&t->thread, NULL, watch, t) == 0;
    return t->started || (hd_cuda_fail(x, "cannot start the watchdog"), false);
}

static CuPtr mark(const HdWatch *t, int word) {
    return (CuPtr)(uintptr_t)&t->marks[word];
} // pinned memory has one address for both

void hd_watch_begin(HdCuda *x, const HdFunc *f) {
    HdWatch *t = x->watch;
    const HdProgram *p = x->head.program;
    if (!t || x->failed) return;
    t->func = f >= p->funcs && f < p->funcs + p->n_funcs ? f : NULL;
    if (!t->func) return;
    if (p->train_step.counter >= 0)
        hd_cuda_ok(x,
                   x->api.cuMemcpyDtoHAsync((void *)(uintptr_t)mark(t, STEP), x->arena + (CuPtr)p->train_step.counter,
                                            sizeof(uint32_t), x->streams[0]),
                   "mark");
    hd_cuda_ok(x, x->api.cuMemsetD32Async(mark(t, DONE), 0, (size_t)p->n_comms, x->streams[0]), "mark");
    hd_cuda_ok(x, x->api.cuMemsetD32Async(mark(t, RUNNING), (unsigned)(f - p->funcs) + 1, 1, x->streams[0]), "mark");
}

void hd_watch_collective(HdCuda *x, int stream, int comm) {
    HdWatch *t = x->watch;
    if (!t || !t->func || x->failed || x->action < 0 || x->action >= t->func->n_actions) return;
    const unsigned f = (unsigned)(t->func - x->head.program->funcs), done = (unsigned)x->action + 1;
    t->calls[f][x->action] = comm + 1;
    hd_cuda_ok(x, x->api.cuMemsetD32Async(mark(t, DONE + comm), (f + 1) << ACTIONS | done, 1, x->streams[stream]),
               "mark");
}

void hd_watch_end(HdCuda *x) {
    HdWatch *t = x->watch;
    if (t && t->func && !x->failed)
        hd_cuda_ok(x, x->api.cuMemsetD32Async(mark(t, RUNNING), 0, 1, x->streams[0]), "mark");
}

const char *hd_watch_why(HdCuda *x) {
    HdWatch *t = x->watch;
    if (!t || !t->broken) return NULL;
    t->told = true;
    return t->why;
}

bool hd_watch_good(HdCuda *x) {
    if (x->failed || !x->watch || !x->watch->broken) return !x->failed;
    hd_cuda_fail(x, "this run was ended"); // which reports the watchdog's message
    return false;
}

void hd_watch_quiet(HdCuda *x) {
    if (!x->watch) return;
    pthread_mutex_lock(&x->comms.lock);
    x->watch->quiet = true;
    pthread_mutex_unlock(&x->comms.lock);
}

void hd_watch_close(HdCuda *x) {
    HdWatch *t = x->watch;
    if (!t) return;
    t->stop = true;
    if (t->started) pthread_join(t->thread, NULL);
    if (x->head.world->waiting) x->head.world->waiting(x->head.world, NULL, NULL);
    if (t->marks) x->api.cuMemFreeHost((void *)(uintptr_t)t->marks);
    for (int i = 0; t->calls && i < x->head.program->n_funcs; i++) free(t->calls[i]);
    free(t->calls);
    free(t);
    x->watch = NULL;
}
