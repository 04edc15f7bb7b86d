// Streams and events. The first stream of a plan runs on the rank's own thread, every other one on a thread that is
// started once and sleeps between runs. A run ends when all its streams have ended, but for those that its step lets
// run beside the next one: they end before that does.
//
// An event is the number of the run in which it was last recorded. It needs no reset; a wait ends when that is the
// present run, or the one before. These two may go on at one time, so each has words of its own.
#include "runtime/host/host.h"
#include <linux/futex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#ifdef _OPENMP
#include <omp.h>
#endif

static _Thread_local HostStream *here;

void hd_host_sleep(_Atomic uint32_t *word, uint32_t value, long milliseconds) {
    const struct timespec limit = {milliseconds / 1000, milliseconds % 1000 * 1000000};
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, milliseconds ? &limit : NULL, NULL, 0);
}

void hd_host_wake(_Atomic uint32_t *word) { syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0); }

void hd_host_wait_for(_Atomic uint32_t *word, uint32_t value) {
    for (;;) {
        const uint32_t now = atomic_load_explicit(word, memory_order_acquire);
        if (now - value < UINT32_MAX / 2) return;
        hd_host_sleep(word, now, 0);
    }
}

void hd_host_reach(_Atomic uint32_t *word, uint32_t value) {
    atomic_store_explicit(word, value, memory_order_release);
    hd_host_wake(word);
}

HostStream *hd_host_stream(HdExec *x) { return here && here->host == hd_host_of(x) ? here : hd_host_of(x)->stream; }

// --- events

static _Atomic uint32_t *word_of(Host *h, int event, uint32_t run) { return &h->reached[2 * event + (int)(run % 2)]; }

void hd_host_record(HdExec *x, int event) {
    const uint32_t run = hd_host_stream(x)->run;
    hd_host_reach(word_of(hd_host_of(x), event, run), run);
}

void hd_host_wait(HdExec *x, int event) {
    const uint32_t run = hd_host_stream(x)->run;
    hd_host_wait_for(word_of(hd_host_of(x), event, run), run);
}

void hd_host_wait_before(HdExec *x, int event) {
    const uint32_t run = hd_host_stream(x)->run - 1;
    hd_host_wait_for(word_of(hd_host_of(x), event, run), run);
}

// --- the action being run

// HEDDLE_DELAY=MICROSECONDS delays streams at random, one action in two, to show where an order held only by chance.
static long delay_limit(void) {
    const char *text = getenv("HEDDLE_DELAY");
    const long limit = text ? strtol(text, NULL, 10) : 0;
    return limit > 0 ? limit : 0;
}

static void delay(HostStream *s, long limit) {
    s->noise = s->noise * 1664525u + 1013904223u;
    if (s->noise >> 31) return;
    const long ns = (long)(s->noise >> 8 & 0x7fffff) % limit * 1000;
    nanosleep(&(struct timespec){ns / 1000000000, ns % 1000000000}, NULL);
}

static void begin_action(HdExec *x, const HdFunc *f, int index) {
    HostStream *s = hd_host_stream(x);
    hd_host_turn_begin(s, f, index);
    s->at_func = f;
    s->at_action = index;
    hd_host_indices_action(s->host, f, index);
    if (s->host->delay) delay(s, s->host->delay);
    if (s->host->profiling && x->step == &x->program->train_step) hd_host_begin_event(s, f, index);
}

// --- threads

static void *work(void *p) {
    HostStream *s = here = p;
#ifdef _OPENMP
    omp_set_num_threads(1); // copies and collectives: the cores are for the compute streams
#endif
    for (uint32_t n = 1;; n++) {
        hd_host_wait_for(&s->go, n);
        const HdFunc *f = s->job[n % 2].f;
        if (!f) return NULL;
        s->run = s->job[n % 2].run;
        f->run_stream[s->index](&s->host->head);
        hd_host_turn_end(s);
        hd_host_end_event(s);
        hd_host_reach(&s->done, n);
    }
}

// A job waits for at most one before it.
static void hand_out(HostStream *s, const HdFunc *f) {
    const uint32_t n = atomic_load_explicit(&s->go, memory_order_relaxed) + 1;
    hd_host_wait_for(&s->done, n - 2);
    s->job[n % 2].f = f;
    s->job[n % 2].run = s->host->run;
    hd_host_reach(&s->go, n);
}

bool hd_host_streams_open(Host *h) {
    const HdProgram *p = h->head.program;
    h->n_streams = p->n_streams > 1 ? p->n_streams : 1;
    h->stream = calloc((size_t)h->n_streams, sizeof *h->stream);
    h->reached = calloc(2 * (size_t)p->n_events + 2, sizeof *h->reached);
    if (!h->stream || !h->reached) {
        hd_fail("out of memory: cannot start the host executor");
        return false;
    }
    h->delay = delay_limit();
    if (h->profiling || h->delay || h->n_streams > 1 || h->head.world->ranks > 1 || p->guard || p->indexed_in)
        h->head.on_action = begin_action;
    for (int i = 0; i < h->n_streams; i++) {
        HostStream *s = &h->stream[i];
        s->host = h;
        s->index = i;
        s->turn = -1;
        s->noise = (uint32_t)(h->head.world->rank * h->n_streams + i) * 2654435761u + 1u;
        if (!i) continue;
        const int wrong = pthread_create(&s->thread, NULL, work, s);
        s->started = !wrong;
        if (wrong) {
            hd_fail("cannot start a thread for stream %s: %s", p->streams[i], strerror(wrong));
            return false;
        }
    }
    return true;
}

void hd_host_streams_close(Host *h) {
    for (int i = 1; h->stream && i < h->n_streams; i++) {
        if (!h->stream[i].started) continue;
        hand_out(&h->stream[i], NULL);
        pthread_join(h->stream[i].thread, NULL);
    }
    for (int i = 0; h->stream && i < h->n_streams; i++) free(h->stream[i].events);
    free(h->stream);
    free(h->reached);
}

bool hd_host_run(HdExec *x, const HdFunc *f) {
    Host *h = hd_host_of(x);
    if (x->step == &x->program->train_step && x->begins) // what is kept of a profile is the last step's
        for (int i = 0; i < h->n_streams; i++) h->stream[i].n_events = 0;
    const unsigned on = x->step && !x->ends && !hd_host_guards_on(h) ? x->step->overlaps : 0;
    h->stream->run = ++h->run;
    here = h->stream;
    hd_host_guards_enter(h, f);
    for (int i = 1; i < h->n_streams; i++)
        if (f->run_stream[i]) hand_out(&h->stream[i], f);
    if (f->run_stream[0]) f->run_stream[0](x);
    hd_host_turn_end(h->stream);
    hd_host_end_event(h->stream);
    for (int i = 1; i < h->n_streams; i++)
        if (!(on >> i & 1))
            hd_host_wait_for(&h->stream[i].done, atomic_load_explicit(&h->stream[i].go, memory_order_relaxed));
    return hd_host_guards_leave(h) && hd_host_indices_leave(h) && (on || hd_host_team_ok(h));
}
