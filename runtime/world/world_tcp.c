// A world of processes. Every connection is a stream of frames (frames.h). This file sends frames and waits for them;
// the thread that reads all connections is in world_watch.c. The first failure is the one that is reported; rank 0
// passes it on, so that all ranks report the same message.
//
// Environment: HEDDLE_CONNECT_SECONDS (120: time for all ranks to connect), HEDDLE_SILENCE_SECONDS (20: a rank silent
// for longer is dead).
#define _GNU_SOURCE // pipe2
#include "runtime/world/world_tcp.h"
#include "runtime/world/sockets.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { GATHER_TAG = 0x67617468, COLLECT_TAG = 0x636f6c6c, SHARE_TAG = 0x73686172 };

static bool gone(Tcp *t) { // false after hd_fail
    pthread_mutex_lock(&t->lock);
    if (t->from < 0) hd_fail("%s", t->why);
    else hd_fail("rank %d: %s", t->from, t->why);
    pthread_mutex_unlock(&t->lock);
    return false;
}

void hd_tcp_wake(Tcp *t) {
    const char c = 0;
    if (write(t->wake[1], &c, 1) < 0) return; // the pipe is full: the thread will wake anyway
}

void hd_tcp_give_up(Tcp *t, int from, int speaker, const char *why) {
    pthread_mutex_lock(&t->lock);
    if (!t->failed) {
        t->from = hd_world_names_rank(why) ? -1 : from;
        t->head.speaker = speaker;
        snprintf(t->why, sizeof t->why, "%s", why);
        t->failed = true;
    }
    pthread_cond_broadcast(&t->changed);
    pthread_mutex_unlock(&t->lock);
    hd_tcp_wake(t);
}

// Waits for the bytes; false after hd_fail. Bytes that came before a failure count: a rank that has the last answer of
// a run ends well, even where the connection of another one breaks off without a word of leaving.
static bool take(Tcp *t, Peer *p, void *data, size_t bytes) {
    char *to = data;
    bool was_full = false;
    pthread_mutex_lock(&t->lock);
    while (bytes) {
        was_full = was_full || p->queue.used >= HD_QUEUE_FULL;
        const size_t n = hd_queue_take(&p->queue, to, bytes);
        to += n;
        bytes -= n;
        if (n || !bytes) continue;
        if (t->failed || p->left_run || p->fd < 0) break;
        if (was_full) hd_tcp_wake(t); // reading goes on
        was_full = false;
        pthread_cond_wait(&t->changed, &t->lock);
    }
    const bool failed = t->failed;
    pthread_mutex_unlock(&t->lock);
    if (was_full) hd_tcp_wake(t);
    if (!bytes) return true;
    if (failed) return gone(t);
    return hd_fail("rank %d has left the run", p->rank);
}

// --- sending

bool hd_tcp_put(const Tcp *t, Peer *p, HdFrame f, const void *body) {
    char sealed[HD_SEALED];
    pthread_mutex_lock(&p->writing);
    const size_t bytes = hd_frame_seal(&p->out, f, body, sealed);
    errno = ENOTCONN;
    const bool ok =
        p->fd >= 0 && !p->broken && hd_tcp_write_unless(p->fd, sealed, bytes, hd_now() + 1e9, &t->failed);
    p->out.count++;
    p->broken = !ok;
    pthread_mutex_unlock(&p->writing);
    return ok;
}

static bool put(Tcp *t, Peer *p, const void *data, size_t bytes) { // false after hd_fail
    const char *from = data;
    while (bytes) {
        const HdFrame f = {HD_DATA, bytes < HD_BODY ? (uint32_t)bytes : HD_BODY, t->step};
        if (t->failed) return gone(t);
        if (!hd_tcp_put(t, p, f, from)) {
            char why[100];
            snprintf(why, sizeof why, "cannot send to rank %d: %s", p->rank, strerror(errno));
            for (int i = 0; i < 20 && !t->failed; i++) usleep(50000); // the reading thread may know more
            hd_tcp_give_up(t, -1, t->head.speaker, why);
            return gone(t);
        }
        from += f.bytes;
        bytes -= f.bytes;
    }
    return true;
}

typedef struct { uint32_t tag, unused; uint64_t bytes; } Opening; // of what all do: the ranks are at the same one

static bool opening(Tcp *t, Peer *p, uint32_t tag, size_t bytes) {
    Opening o;
    if (!take(t, p, &o, sizeof o)) return false;
    if (o.tag == tag && o.bytes == bytes) return true;
    hd_tcp_give_up(t, -1, 0, "the ranks gather parts of different sizes: an error of this program");
    return gone(t);
}

static bool put_opened(Tcp *t, Peer *p, uint32_t tag, size_t part, const void *data, size_t bytes) {
    const Opening o = {tag, 0, part};
    return put(t, p, &o, sizeof o) && put(t, p, data, bytes);
}

// Rank 0 takes `part` bytes of every rank, its own among them.
static bool take_parts(Tcp *t, uint32_t tag, const void *mine, size_t part, char *all) {
    if (part) memmove(all, mine, part);
    for (int r = 1; r < t->head.ranks; r++)
        if (!opening(t, &t->peer[r], tag, part) || !take(t, &t->peer[r], all + (size_t)r * part, part)) return false;
    return true;
}

static bool put_to_all(Tcp *t, uint32_t tag, size_t part, const void *data, size_t bytes) { // on rank 0
    for (int r = 1; r < t->head.ranks; r++)
        if (!put_opened(t, &t->peer[r], tag, part, data, bytes)) return false;
    return true;
}

static bool gather(Tcp *t, const void *mine, size_t bytes, void *all) {
    const size_t total = bytes * (size_t)t->head.ranks;
    if (t->head.rank)
        return put_opened(t, t->peer, GATHER_TAG, bytes, mine, bytes) && opening(t, t->peer, GATHER_TAG, bytes) &&
               take(t, t->peer, all, total);
    return take_parts(t, GATHER_TAG, mine, bytes, all) && put_to_all(t, GATHER_TAG, bytes, all, total);
}

static bool share(Tcp *t, void *data, size_t bytes) { // the others say that they are there; rank 0 answers
    if (t->head.rank)
        return put_opened(t, t->peer, SHARE_TAG, bytes, NULL, 0) && opening(t, t->peer, SHARE_TAG, bytes) &&
               take(t, t->peer, data, bytes);
    for (int r = 1; r < t->head.ranks; r++)
        if (!opening(t, &t->peer[r], SHARE_TAG, bytes)) return false;
    return put_to_all(t, SHARE_TAG, bytes, data, bytes);
}

static bool tcp_gather(HdWorld *w, const void *mine, size_t bytes, void *all) {
    Tcp *t = (Tcp *)w;
    t->gathering = true;
    const bool ok = t->failed ? gone(t) : gather(t, mine, bytes, all);
    t->gathering = false;
    return ok;
}

static bool tcp_collect(HdWorld *w, const void *mine, size_t bytes, void *on_zero) {
    Tcp *t = (Tcp *)w;
    t->gathering = true;
    const bool ok = t->failed   ? gone(t)
                    : w->rank   ? put_opened(t, t->peer, COLLECT_TAG, bytes, mine, bytes)
                                : take_parts(t, COLLECT_TAG, mine, bytes, on_zero);
    t->gathering = false;
    return ok;
}

static bool tcp_share(HdWorld *w, void *data, size_t bytes) {
    Tcp *t = (Tcp *)w;
    t->gathering = true;
    const bool ok = t->failed ? gone(t) : share(t, data, bytes);
    t->gathering = false;
    return ok;
}

static bool tcp_send(HdWorld *w, const void *data, size_t bytes) {
    return put((Tcp *)w, ((Tcp *)w)->peer, data, bytes);
}
static bool tcp_receive(HdWorld *w, int from, void *data, size_t bytes) {
    return take((Tcp *)w, &((Tcp *)w)->peer[from], data, bytes);
}
// Rank 0 hears from everybody. Peers' states belong to the reading thread; a torn word does no harm here.
void hd_tcp_add_slowest(const Tcp *t, const char *why, char *out, size_t size) {
    const Peer *slowest = NULL;
    int64_t least = t->step, most = t->step;
    for (int i = 1; i < t->n; i++) {
        const Peer *p = &t->peer[i];
        if (p->step > most) most = p->step;
        if (p->step >= least) continue;
        least = p->step;
        slowest = p;
    }
    const bool still = strstr(why, "not completed: ") != NULL && least < most;
    if (!still) snprintf(out, size, "%s", why);
    else if (slowest)
        snprintf(out, size, "%s; rank %d is still at %s %lld", why, slowest->rank, slowest->what, (long long)least);
    else snprintf(out, size, "%s; rank 0 is still at %s %lld", why, t->what ? t->what : "step", (long long)least);
}

static void tcp_fail(HdWorld *w, const char *why) {
    Tcp *t = (Tcp *)w;
    char more[HD_WHY];
    if (w->rank == 0) hd_tcp_add_slowest(t, why, more, sizeof more);
    const bool deaf = w->rank != 0 && hd_now() - t->peer->heard > 2; // rank 0 will not report for this one
    hd_tcp_give_up(t, w->rank, deaf ? w->rank : 0, w->rank == 0 ? more : why);
}

static void tcp_waiting(HdWorld *w, void (*say)(void *of, char *out, size_t size), void *of) {
    Tcp *t = (Tcp *)w;
    pthread_mutex_lock(&t->lock);
    t->say_waiting = say;
    t->waiting_of = of;
    pthread_mutex_unlock(&t->lock);
}

static bool tcp_alive(HdWorld *w) { return !((Tcp *)w)->failed || gone((Tcp *)w); }

static void tcp_at(HdWorld *w, const char *what, int64_t step) {
    ((Tcp *)w)->what = what;
    ((Tcp *)w)->step = step;
}

static void tcp_free(Tcp *t) {
    for (int i = 0; i < t->n; i++) {
        if (t->peer[i].fd >= 0) close(t->peer[i].fd);
        free(t->peer[i].queue.bytes);
        free(t->peer[i].reader.rest);
        pthread_mutex_destroy(&t->peer[i].writing);
    }
    if (t->wake[0] >= 0) close(t->wake[0]);
    if (t->wake[1] >= 0) close(t->wake[1]);
    pthread_mutex_destroy(&t->lock);
    pthread_cond_destroy(&t->changed);
    free(t->room);
    free(t->fds);
    free(t->who);
    free(t->peer);
    free(t);
}

static void tcp_close(HdWorld *w) {
    Tcp *t = (Tcp *)w;
    t->closing = true;
    hd_tcp_wake(t);
    pthread_join(t->thread, NULL);
    tcp_free(t);
}

static bool start(Tcp *t, const HdLink *link) {
    const HdReader reader = {.kinds = 1u << HD_DATA | 1u << HD_BEAT | 1u << HD_FAIL | 1u << HD_LEAVE, .most = HD_BODY};
    for (int i = 0; i < t->n; i++) {
        t->peer[i] = (Peer){.fd = link[i].fd, .rank = i, .out = link[i].out, .reader = reader, .heard = hd_now()};
        t->peer[i].reader.seal = link[i].in;
        pthread_mutex_init(&t->peer[i].writing, NULL);
    }
    t->room = malloc(HD_READ_AT_ONCE);
    t->fds = calloc((size_t)t->n + 1, sizeof *t->fds);
    t->who = calloc((size_t)t->n + 1, sizeof *t->who);
    if (!t->room || !t->fds || !t->who) return hd_fail("out of memory");
    if (pipe2(t->wake, O_CLOEXEC | O_NONBLOCK) == 0 && pthread_create(&t->thread, NULL, hd_tcp_watch, t) == 0)
        return true;
    return hd_fail("cannot watch the other ranks: %s", strerror(errno));
}

HdWorld *hd_world_tcp(HdLaunch *l, const HdProgram *p) {
    if (l->ranks == 1) return hd_world_alone();
    HdLink *link = calloc((size_t)l->ranks, sizeof *link);
    Tcp *t = calloc(1, sizeof *t);
    Peer *peers = calloc((size_t)l->ranks, sizeof *peers);
    if (!link || !t || !peers || !hd_tcp_connect(l, p, link)) {
        if (!link || !t || !peers) hd_fail("out of memory");
        free(link);
        free(t);
        free(peers);
        return NULL;
    }
    t->head = (HdWorld){.rank = l->rank, .ranks = l->ranks, .local_rank = l->local_rank, .gather = tcp_gather,
                        .collect = tcp_collect, .share = tcp_share, .send = tcp_send, .receive = tcp_receive,
                        .fail = tcp_fail, .alive = tcp_alive, .at = tcp_at, .waiting = tcp_waiting,
                        .close = tcp_close};
    t->peer = peers;
    t->n = l->rank ? 1 : l->ranks;
    t->wake[0] = t->wake[1] = -1;
    t->from = -1;
    t->heir = l->speaker;
    t->silence = hd_tcp_seconds("HEDDLE_SILENCE_SECONDS", 20);
    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->changed, NULL);
    const bool ok = start(t, link);
    free(link);
    if (ok) return &t->head;
    tcp_free(t);
    return NULL;
}
