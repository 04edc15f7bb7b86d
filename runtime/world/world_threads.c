// The ranks of one process, one thread each. One mutex guards everything they share and one condition wakes everybody.
// A gather copies through a buffer of this file, and a receive copies while the mutex is held, so that no rank ever
// touches the memory of another that has already returned.
#include "runtime/heddle.h"
#include "runtime/world/world.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct { const char *data; size_t bytes; } Letter; // bytes that a rank has sent and rank 0 has not yet read

typedef struct {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    int ranks, open;     // open: ranks that have not closed
    // A gather: the ranks that have come to it, and how many gathers are complete. A rank can be at most one gather
    // ahead of another that still reads the previous one, so two boxes taken in turn are enough.
    int arrived;
    unsigned long complete;
    struct { char *bytes; size_t capacity, part; } box[2];
    atomic_bool failed; // set under the mutex, after who and why
    int who;
    char why[1024];
    Letter *letter; // a rank
    HdWorld world[];
} Shared;

static Shared *shared_of(HdWorld *w) { return (Shared *)(void *)((char *)(w - w->rank) - offsetof(Shared, world)); }

static bool gone(const Shared *s) { // false after hd_fail
    if (s->who < 0) hd_fail("%s", s->why);
    else hd_fail("rank %d: %s", s->who, s->why);
    return false;
}

// the mutex is held; the first failure is the one reported
static void give_up(Shared *s, int who, const char *why) {
    if (!s->failed) {
        s->who = hd_world_names_rank(why) ? -1 : who;
        snprintf(s->why, sizeof s->why, "%s", why);
        s->failed = true;
    }
    pthread_cond_broadcast(&s->changed);
}

static bool make_room(Shared *s, int box, size_t part, size_t parts) { // the first to come sizes the box
    if (s->arrived) {
        if (s->box[box].part == part) return true;
        give_up(s, -1, "the ranks gather parts of different sizes: an error of this program");
        return gone(s);
    }
    const size_t need = part * parts;
    if (need > s->box[box].capacity) {
        char *grown = realloc(s->box[box].bytes, need);
        if (!grown) {
            give_up(s, -1, "out of memory");
            return gone(s);
        }
        s->box[box].bytes = grown;
        s->box[box].capacity = need;
    }
    s->box[box].part = part;
    return true;
}

// The mutex is held. Each of the first `parts` ranks gives `bytes`; all of that goes to `all`, which may be NULL.
static bool meet(Shared *s, int rank, int parts, const void *mine, size_t bytes, void *all) {
    const unsigned long turn = s->complete;
    const int box = (int)(turn % 2);
    if (s->failed) return gone(s);
    if (!make_room(s, box, bytes, (size_t)parts)) return false;
    if (bytes && rank < parts) memcpy(s->box[box].bytes + (size_t)rank * bytes, mine, bytes);
    if (++s->arrived == s->ranks) {
        s->arrived = 0;
        s->complete++;
        pthread_cond_broadcast(&s->changed);
    }
    while (s->complete == turn && !s->failed) pthread_cond_wait(&s->changed, &s->mutex);
    if (s->complete == turn) return gone(s); // a complete gather stays valid
    if (bytes && all) memcpy(all, s->box[box].bytes, bytes * (size_t)parts);
    return true;
}

static bool locked_meet(HdWorld *w, int parts, const void *mine, size_t bytes, void *all) {
    Shared *s = shared_of(w);
    pthread_mutex_lock(&s->mutex);
    const bool ok = meet(s, w->rank, parts, mine, bytes, all);
    pthread_mutex_unlock(&s->mutex);
    return ok;
}

static bool threads_gather(HdWorld *w, const void *mine, size_t bytes, void *all) {
    return locked_meet(w, w->ranks, mine, bytes, all);
}
static bool threads_collect(HdWorld *w, const void *mine, size_t bytes, void *on_zero) {
    return locked_meet(w, w->ranks, mine, bytes, w->rank ? NULL : on_zero);
}
static bool threads_share(HdWorld *w, void *data, size_t bytes) { return locked_meet(w, 1, data, bytes, data); }

static bool threads_send(HdWorld *w, const void *data, size_t bytes) { // returns when rank 0 has all of it
    Shared *s = shared_of(w);
    pthread_mutex_lock(&s->mutex);
    Letter *mine = &s->letter[w->rank];
    *mine = (Letter){data, bytes};
    pthread_cond_broadcast(&s->changed);
    while (mine->bytes && !s->failed) pthread_cond_wait(&s->changed, &s->mutex);
    const bool ok = !mine->bytes || gone(s);
    *mine = (Letter){NULL, 0};
    pthread_mutex_unlock(&s->mutex);
    return ok;
}

// a stream of bytes: sizes need not match the sends
static bool threads_receive(HdWorld *w, int from, void *data, size_t bytes) {
    Shared *s = shared_of(w);
    char *to = data;
    pthread_mutex_lock(&s->mutex);
    while (bytes) {
        Letter *theirs = &s->letter[from];
        while (!theirs->bytes && !s->failed) pthread_cond_wait(&s->changed, &s->mutex);
        if (!theirs->bytes) break;
        const size_t n = bytes < theirs->bytes ? bytes : theirs->bytes;
        memcpy(to, theirs->data, n);
        to += n;
        bytes -= n;
        *theirs = (Letter){theirs->data + n, theirs->bytes - n};
        if (!theirs->bytes) pthread_cond_broadcast(&s->changed);
    }
    const bool ok = !bytes || gone(s);
    pthread_mutex_unlock(&s->mutex);
    return ok;
}

static void threads_fail(HdWorld *w, const char *why) {
    Shared *s = shared_of(w);
    pthread_mutex_lock(&s->mutex);
    give_up(s, w->rank, why);
    pthread_mutex_unlock(&s->mutex);
}

static bool threads_alive(HdWorld *w) {
    const Shared *s = shared_of(w);
    return !s->failed || gone(s); // who and why do not change once `failed` is set
}

static void threads_at(HdWorld *w, const char *what, int64_t step) {
    (void)w, (void)what, (void)step;
} // a thread cannot vanish

static void release(Shared *s) {
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->mutex);
    free(s->box[0].bytes);
    free(s->box[1].bytes);
    free(s->letter);
    free(s);
}

static void threads_close(HdWorld *w) {
    Shared *s = shared_of(w);
    pthread_mutex_lock(&s->mutex);
    const bool last = --s->open == 0;
    pthread_mutex_unlock(&s->mutex);
    if (last) release(s);
}

HdWorld *hd_world_threads(int ranks) {
    Shared *s = calloc(1, sizeof *s + (size_t)ranks * sizeof s->world[0]);
    Letter *letters = calloc((size_t)ranks, sizeof *letters);
    if (!s || !letters) {
        free(s);
        free(letters);
        hd_fail("out of memory");
        return NULL;
    }
    s->ranks = s->open = ranks;
    s->letter = letters;
    pthread_mutex_init(&s->mutex, NULL);
    pthread_cond_init(&s->changed, NULL);
    for (int r = 0; r < ranks; r++)
        s->world[r] = (HdWorld){.rank = r, .ranks = ranks, .local_rank = r, .gather = threads_gather,
                                .collect = threads_collect, .share = threads_share, .send = threads_send,
                                .receive = threads_receive, .fail = threads_fail, .alive = threads_alive,
                                .at = threads_at, .close = threads_close};
    return s->world;
}
