// hd_main: the command line of every compiled program, and the ranks it starts: one alone, threads, or processes.
#include "runtime/world/mesh.h"
#include "runtime/world/launch.h"
#include "runtime/run/run.h"
#include "runtime/run/signals.h"
#include "runtime/text.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct { const HdProgram *p; const Options *o; HdWorld *w; RankResult result; } Rank;

static void *rank_main(void *arg) {
    Rank *r = arg;
    r->result = hd_run_rank(r->p, r->o, r->w);
    return NULL;
}

static int close_ranks(Rank *rank, int n) { // the lowest rank's status that is not 0
    int status = 0;
    for (int r = 0; r < n; r++) {
        if (rank[r].result.x) rank[r].p->backend->close(rank[r].result.x);
        rank[r].w->close(rank[r].w);
        if (!status) status = rank[r].result.status;
    }
    return status;
}

static int tell(void) {
    hd_say(stderr, "error: %s\n", hd_failure());
    return 1;
}

// Rank 0 runs on this thread. No rank's memory is freed before every rank has returned: others may be reading it.
static int run_threads(const HdProgram *p, const Options *o, int n) {
    HdWorld *w = hd_world_threads(n);
    Rank *rank = calloc((size_t)n, sizeof *rank);
    pthread_t *thread = calloc((size_t)n, sizeof *thread);
    if (!w || !rank || !thread) {
        hd_fail("out of memory: cannot start %d ranks", n);
        return tell();
    }
    int started = 1;
    for (int r = 0; r < n; r++) rank[r] = (Rank){p, o, &w[r], {NULL, 1}};
    for (int wrong; started < n; started++)
        if ((wrong = pthread_create(&thread[started], NULL, rank_main, &rank[started]))) {
            char why[100];
            snprintf(why, sizeof why, "cannot start its thread: %s", strerror(wrong));
            w[started].fail(&w[started], why);
            break;
        }
    rank_main(&rank[0]);
    for (int r = 1; r < started; r++) pthread_join(thread[r], NULL);
    const int status = close_ranks(rank, n);
    free(thread);
    free(rank);
    return status;
}

static int run_one(const HdProgram *p, const Options *o, HdWorld *w) {
    Rank rank = {.p = p, .o = o, .w = w};
    rank_main(&rank);
    return close_ranks(&rank, 1);
}

// this process is a rank, or looks after those that it has started
static int run_processes(const HdProgram *p, const Options *o) {
    HdLaunch l;
    if (!hd_launch(p, (int)o->ranks, &l)) return l.status;
    hd_catch_signals();
    HdWorld *w = hd_world_tcp(&l, p);
    return w ? run_one(p, o, w) : hd_launch_speaks(&l) ? tell() : 1;
}

static int print_report(const char *report) {
    hd_say_text(stdout, report);
    if (!ferror(stdout) && !fflush(stdout)) return 0;
    hd_fail("cannot write the report: %s", strerror(errno));
    return tell();
}

// Where 0, 1 or 2 is closed, the next file that is opened would get its number: progress would land in a log.
static void reserve_standard_files(void) {
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd ? O_RDONLY : O_WRONLY) < 0) return;
}

static int run_options(const HdProgram *p, const Options *o, const char *launcher, int rank, int started) {
    const int n = hd_ranks(p);
    if (o->report || o->report_json) return rank ? 0 : print_report(o->report ? p->report_text : p->report);
    if (!p->backend->threads) return run_processes(p, o);
    if (started > 1) {
        if (!rank)
            hd_say(stderr, "error: %s has started %d processes: target %s runs its %d rank%s as threads of one: start "
                           "it alone; --target=cuda of heddlec makes a program whose ranks are processes\n",
                   launcher, started, p->target, n, n > 1 ? "s" : "");
        return 2;
    }
    hd_catch_signals();
    return n == 1 ? run_one(p, o, hd_world_alone()) : run_threads(p, o, n);
}

int hd_main(int argc, char **argv, const HdProgram *p) {
    Options o;
    reserve_standard_files();
    int rank = 0, started = 1;
    const char *launcher = hd_launcher(&rank, &started);
    const int usage = hd_options_parse(argc, argv, p, rank == 0, &o);
    const int status = usage ? (usage == 1 ? 0 : 2) : run_options(p, &o, launcher, rank, started);
    hd_options_free(&o);
    return status;
}
