// A world of processes. Every connection is a stream of frames. A thread of this file reads them all, shows the other
// ranks four times a second that this one lives, and detects a rank that does not: its connection ends, or nothing was
// received from it for too long. The first failure is the one that is reported; rank 0 passes it on, so that all ranks
// have the same words.
//
// Environment: HEDDLE_CONNECT_SECONDS (120: time for all ranks to connect), HEDDLE_SILENCE_SECONDS (20: a rank silent
// for longer is dead).
#define _GNU_SOURCE // pipe2
#include "runtime/world/rendezvous.h"
#include "runtime/world/queue.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    SETTLE_US = 300000,
    CHUNK = 1 << 20,
    FULL = 8 << 20,
    READ_AT_ONCE = 256 << 10,
    TEXT = HD_TCP_WHY,
    GATHER_TAG = 0x67617468
};
enum { DATA, BEAT, FAIL, LEAVE };
typedef struct {
    uint32_t kind, bytes;
    int64_t step;
} Frame; // step: the sender's; FAIL: the rank that failed

typedef struct {
    int fd, rank; // fd -1: the connection has ended
    pthread_mutex_t writing;
    Queue queue;
    Frame frame;        // being read
    size_t have;        // bytes read of its head, then of a short text
    uint32_t left;      // bytes of its body still to come
    char text[TEXT];
    bool left_run;      // it said that it is done
    bool broken;        // a frame to it was cut short: nothing can follow
    double heard;
    char what[40];      // what it did at its last sign of life
    int64_t step;
} Peer;

typedef struct {
    HdWorld head;
    Peer *peer; // rank 0: by rank; else peer[0] is rank 0
    int n;      // number of peers, with a gap at 0 on rank 0
    pthread_t thread;
    pthread_mutex_t lock; // guards queues, peers' states, the failure
    pthread_cond_t changed;
    int wake[2];
    atomic_bool failed, closing, gathering; // gathering: this rank is in a gather
    bool told; // the failure was sent to the others
    int heir;  // this rank reports for its host when rank 0 is gone; 0: another does
    int from;  // the rank that worded `why` itself, or -1
    char why[TEXT];
    atomic_llong step; // of this rank
    _Atomic(const char *) what;
    double silence;
    void (*say_waiting)(void *of, char *out, size_t size);
    void *waiting_of;
} Tcp;

static bool gone(Tcp *t) { // false after hd_fail
    pthread_mutex_lock(&t->lock);
    if (t->from < 0) hd_fail("%s", t->why);
    else hd_fail("rank %d: %s", t->from, t->why);
    pthread_mutex_unlock(&t->lock);
    return false;
}

static void wake_up(Tcp *t) {
    const char c = 0;
    if (write(t->wake[1], &c, 1) < 0) return; // the pipe is full: the thread will wake anyway
}

static void give_up(Tcp *t, int from, int speaker, const char *why) {
    pthread_mutex_lock(&t->lock);
    if (!t->failed) {
        t->from = hd_world_names_rank(why) ? -1 : from;
        t->head.speaker = speaker;
        snprintf(t->why, sizeof t->why, "%s", why);
        t->failed = true;
    }
    pthread_cond_broadcast(&t->changed);
    pthread_mutex_unlock(&t->lock);
    wake_up(t);
}

static bool take(Tcp *t, Peer *p, void *data, size_t bytes) { // waits for the bytes; false after hd_fail
    char *to = data;
    bool was_full = false;
    pthread_mutex_lock(&t->lock);
    while (bytes && !t->failed) {
        was_full = was_full || p->queue.used >= FULL;
        const size_t n = hd_queue_take(&p->queue, to, bytes);
        to += n;
        bytes -= n;
        if (n || !bytes) continue;
        if (p->left_run || p->fd < 0) break;
        if (was_full) wake_up(t); // reading goes on
        was_full = false;
        pthread_cond_wait(&t->changed, &t->lock);
    }
    const bool failed = t->failed;
    pthread_mutex_unlock(&t->lock);
    if (was_full) wake_up(t);
    if (!bytes) return true;
    if (failed) return gone(t);
    return hd_fail("rank %d has left the run", p->rank);
}

// --- sending

// Sends while the run continues: a peer that does not read will be found dead. false with errno.
static bool put_frame(const Tcp *t, Peer *p, Frame f, const void *body) {
    const double until = hd_now() + 1e9;
    pthread_mutex_lock(&p->writing);
    errno = ENOTCONN;
    const bool ok = p->fd >= 0 && !p->broken && hd_tcp_write_unless(p->fd, &f, sizeof f, until, &t->failed) &&
                    hd_tcp_write_unless(p->fd, body, f.bytes, until, &t->failed);
    p->broken = !ok;
    pthread_mutex_unlock(&p->writing);
    return ok;
}

static bool put(Tcp *t, Peer *p, const void *data, size_t bytes) { // false after hd_fail
    const char *from = data;
    while (bytes) {
        const Frame f = {DATA, bytes < CHUNK ? (uint32_t)bytes : CHUNK, t->step};
        if (t->failed) return gone(t);
        if (!put_frame(t, p, f, from)) {
            char why[100];
            snprintf(why, sizeof why, "cannot send to rank %d: %s", p->rank, strerror(errno));
            for (int i = 0; i < 20 && !t->failed; i++) usleep(50000); // the reading thread may know more
            give_up(t, -1, t->head.speaker, why);
            return gone(t);
        }
        from += f.bytes;
        bytes -= f.bytes;
    }
    return true;
}

typedef struct { uint32_t tag, unused; uint64_t bytes; } Opening; // of a gather: the ranks are at the same one

static bool opening(Tcp *t, Peer *p, size_t bytes) {
    Opening o;
    if (!take(t, p, &o, sizeof o)) return false;
    if (o.tag == GATHER_TAG && o.bytes == bytes) return true;
    give_up(t, -1, 0, "the ranks gather parts of different sizes: an error of this program");
    return gone(t);
}

static bool gather(Tcp *t, const void *mine, size_t bytes, void *all) {
    HdWorld *w = &t->head;
    const Opening o = {GATHER_TAG, 0, bytes};
    const size_t total = bytes * (size_t)w->ranks;
    if (t->failed) return gone(t);
    if (w->rank)
        return put(t, t->peer, &o, sizeof o) && put(t, t->peer, mine, bytes) && opening(t, t->peer, bytes) &&
               take(t, t->peer, all, total);
    if (bytes) memmove(all, mine, bytes);
    for (int r = 1; r < w->ranks; r++)
        if (!opening(t, &t->peer[r], bytes) || !take(t, &t->peer[r], (char *)all + (size_t)r * bytes, bytes))
            return false;
    for (int r = 1; r < w->ranks; r++)
        if (!put(t, &t->peer[r], &o, sizeof o) || !put(t, &t->peer[r], all, total)) return false;
    return true;
}

static bool tcp_gather(HdWorld *w, const void *mine, size_t bytes, void *all) {
    Tcp *t = (Tcp *)w;
    t->gathering = true;
    const bool ok = gather(t, mine, bytes, all);
    t->gathering = false;
    return ok;
}

static bool tcp_send(HdWorld *w, const void *data, size_t bytes) {
    return put((Tcp *)w, ((Tcp *)w)->peer, data, bytes);
}
static bool tcp_receive(HdWorld *w, int from, void *data, size_t bytes) {
    return take((Tcp *)w, &((Tcp *)w)->peer[from], data, bytes);
}
// On rank 0, which hears from everybody: the rank that is furthest behind, if that explains a run that does not move.
// Peers' states belong to the reading thread; a torn word does no harm here.
static void add_slowest(const Tcp *t, const char *why, char *out, size_t size) {
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
    char more[TEXT];
    if (w->rank == 0) add_slowest(t, why, more, sizeof more);
    const bool deaf = w->rank != 0 && hd_now() - t->peer->heard > 2; // rank 0 will not report for this one
    give_up(t, w->rank, deaf ? w->rank : 0, w->rank == 0 ? more : why);
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

// --- the thread: signs of life, and frames that arrive

static void lost(Tcp *t, const Peer *p, const char *how) {
    char why[600];
    // a gather says the step, and may arrive before the first beat that says it
    const char *at = p->what[0] ? p->what : "step";
    const int speaker = p->rank == 0 ? t->heir : 0; // everybody hears rank 0; without it the first of each host reports
    if (p->what[0] || p->step) snprintf(why, sizeof why, "rank %d %s at %s %lld", p->rank, how, at, (long long)p->step);
    else snprintf(why, sizeof why, "rank %d %s before its first step", p->rank, how);
    pthread_mutex_lock(&t->lock);
    const bool asks = t->say_waiting != NULL;
    pthread_mutex_unlock(&t->lock);
    if (asks) usleep(SETTLE_US); // work under way on this rank continues until it needs the one that is gone
    pthread_mutex_lock(&t->lock);
    const size_t n = strlen(why);
    if (asks && t->say_waiting) t->say_waiting(t->waiting_of, why + n, sizeof why - n);
    const char *what = t->what;
    if (asks && !why[n] && t->gathering && what)
        snprintf(why + n, sizeof why - n, "; not completed: the ranks' agreement at %s %lld", what, (long long)t->step);
    else if (asks && !why[n]) snprintf(why + n, sizeof why - n, "; nothing was under way on rank %d", t->head.rank);
    pthread_mutex_unlock(&t->lock);
    give_up(t, -1, speaker, why);
}

static void end_connection(Tcp *t, Peer *p, const char *how) {
    if (!p->left_run && !t->closing) lost(t, p, how);
    pthread_mutex_lock(&p->writing);
    close(p->fd);
    p->fd = -1;
    pthread_mutex_unlock(&p->writing);
    pthread_mutex_lock(&t->lock);
    pthread_cond_broadcast(&t->changed);
    pthread_mutex_unlock(&t->lock);
}

static void frame_ended(Tcp *t, Peer *p) {
    p->text[p->have < TEXT ? p->have : TEXT - 1] = 0;
    if (p->frame.kind == BEAT) {
        snprintf(p->what, sizeof p->what, "%.39s", p->text);
        p->step = p->frame.step;
    } else if (p->frame.kind == FAIL && t->head.rank == 0) {
        char more[TEXT];
        add_slowest(t, p->text, more, sizeof more);
        give_up(t, p->rank, 0, more);
    } else if (p->frame.kind == FAIL) {
        give_up(t, -1, (int)p->frame.step, p->text);
    } else if (p->frame.kind == LEAVE) {
        pthread_mutex_lock(&t->lock);
        p->left_run = true;
        pthread_cond_broadcast(&t->changed);
        pthread_mutex_unlock(&t->lock);
    }
    p->have = 0;
}

static bool came(Tcp *t, Peer *p, const char *data, size_t n) { // false: not our protocol, or no memory
    while (n) {
        if (!p->left) { // the head of a frame
            const size_t part = n < sizeof p->frame - p->have ? n : sizeof p->frame - p->have;
            memcpy((char *)&p->frame + p->have, data, part);
            p->have += part;
            data += part;
            n -= part;
            if (p->have < sizeof p->frame) return true;
            p->have = 0;
            p->left = p->frame.bytes;
            if (p->frame.kind > LEAVE || p->left > CHUNK) return false;
            if (p->frame.kind == DATA) p->step = p->frame.step;
            if (!p->left) frame_ended(t, p);
            continue;
        }
        const size_t part = n < p->left ? n : p->left;
        if (p->frame.kind == DATA) {
            pthread_mutex_lock(&t->lock);
            const bool ok = hd_queue_put(&p->queue, data, part);
            pthread_cond_broadcast(&t->changed);
            pthread_mutex_unlock(&t->lock);
            if (!ok) return false;
        } else {
            const size_t room = TEXT - p->have < part ? TEXT - p->have : part;
            memcpy(p->text + p->have, data, room);
            p->have += room;
        }
        data += part;
        n -= part;
        p->left -= (uint32_t)part;
        if (!p->left) frame_ended(t, p);
    }
    return true;
}

static void read_peer(Tcp *t, Peer *p, char *room) {
    const ssize_t n = recv(p->fd, room, READ_AT_ONCE, MSG_DONTWAIT);
    if (n > 0) {
        p->heard = hd_now();
        if (!came(t, p, room, (size_t)n)) end_connection(t, p, "sent something that no rank sends");
    } else if (n == 0 || (errno != EINTR && errno != EAGAIN && errno != EWOULDBLOCK)) {
        end_connection(t, p, "died");
    }
}

static Peer *each(Tcp *t, int i) { // the i-th connection that is still open, or NULL
    Peer *p = &t->peer[i];
    return p->fd >= 0 && p->rank != t->head.rank ? p : NULL;
}

// Never waits for a peer that does not read: data on its way to that peer is as good a sign of life.
static void beat(Tcp *t) {
    struct { Frame f; char what[40]; } b = {.f = {BEAT, 0, t->step}};
    const char *what = t->what;
    snprintf(b.what, sizeof b.what, "%s", what ? what : "");
    b.f.bytes = (uint32_t)strlen(b.what);
    for (int i = 0; i < t->n; i++) {
        Peer *p = each(t, i);
        const size_t size = sizeof b.f + b.f.bytes;
        if (!p || pthread_mutex_trylock(&p->writing) != 0) continue;
        const ssize_t n = p->broken ? 0 : send(p->fd, &b, size, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n > 0 && (size_t)n < size) p->broken = !hd_tcp_write(p->fd, (char *)&b + n, size - (size_t)n, hd_now() + 2);
        pthread_mutex_unlock(&p->writing);
    }
}

static void tell_failure(Tcp *t) { // sent to those that may not know it
    char text[TEXT + 20];
    if (t->from >= 0 && t->head.rank == 0) snprintf(text, sizeof text, "rank %d: %s", t->from, t->why);
    else snprintf(text, sizeof text, "%s", t->why);
    t->told = true;
    for (int i = 0; i < t->n; i++) {
        Peer *p = each(t, i);
        if (!p) continue;
        // whoever is writing to it will soon be done: a run that has failed waits for no peer
        pthread_mutex_lock(&p->writing);
        const Frame f = {FAIL, (uint32_t)strlen(text), t->head.speaker};
        const double until = hd_now() + 1;
        p->broken =
            p->broken || !hd_tcp_write(p->fd, &f, sizeof f, until) || !hd_tcp_write(p->fd, text, f.bytes, until);
        pthread_mutex_unlock(&p->writing);
    }
}

static void find_silent(Tcp *t, double now) {
    for (int i = 0; i < t->n; i++) {
        Peer *p = each(t, i);
        char how[60];
        // The others leave it to rank 0 to name the silent rank, and judge only rank 0, a little later.
        if (!p || p->left_run || t->failed || now - p->heard < t->silence + (t->head.rank ? 1 : 0)) continue;
        snprintf(how, sizeof how, "does not answer (for %.0f s)", now - p->heard);
        lost(t, p, how);
    }
}

static void leave(Tcp *t) {
    for (int i = 0; i < t->n; i++) {
        Peer *p = each(t, i);
        if (!p) continue;
        if (!t->failed) put_frame(t, p, (Frame){LEAVE, 0, 0}, NULL);
        shutdown(p->fd, SHUT_WR);
    }
}

// what to read from; a connection with a full queue waits, and counts as heard
static int poll_all(Tcp *t, struct pollfd *fds, int *who) {
    const double now = hd_now();
    int n = 0;
    fds[n++] = (struct pollfd){t->wake[0], POLLIN, 0};
    for (int i = 0; i < t->n; i++) {
        Peer *p = each(t, i);
        if (!p) continue;
        pthread_mutex_lock(&t->lock);
        const bool full = p->queue.used >= FULL && !t->failed && !t->closing;
        pthread_mutex_unlock(&t->lock);
        if (full) {
            p->heard = now;
            continue;
        }
        who[n] = i;
        fds[n++] = (struct pollfd){p->fd, POLLIN, 0};
    }
    return n;
}

static void *watch(void *arg) {
    Tcp *t = arg;
    char *room = malloc(READ_AT_ONCE);
    struct pollfd *fds = calloc((size_t)t->n + 1, sizeof *fds);
    int *who = calloc((size_t)t->n + 1, sizeof *who);
    double next = 0, last = hd_now(), end = 0;
    while (room && fds && who) {
        const int n = poll_all(t, fds, who);
        if (end > 0 && (n == 1 || hd_now() > end)) break;
        if (poll(fds, (nfds_t)n, 100) > 0) {
            char drain[64];
            if (fds[0].revents && read(t->wake[0], drain, sizeof drain) < 0) continue;
            for (int k = 1; k < n; k++)
                if (fds[k].revents) read_peer(t, &t->peer[who[k]], room);
        }
        const double now = hd_now();
        if (now - last > 2) // this process itself was stopped, so the others had no chance to be heard
            for (int i = 0; i < t->n; i++) t->peer[i].heard = now;
        last = now;
        if (t->failed && !t->told) tell_failure(t);
        if (t->closing && end <= 0) {
            leave(t);
            end = now + 2;
        }
        if (end <= 0 && now >= next) {
            beat(t);
            next = now + 0.25;
        }
        if (end <= 0) find_silent(t, now);
    }
    free(room);
    free(fds);
    free(who);
    return NULL;
}

static void tcp_free(Tcp *t) {
    for (int i = 0; i < t->n; i++) {
        if (t->peer[i].fd >= 0) close(t->peer[i].fd);
        free(t->peer[i].queue.bytes);
        pthread_mutex_destroy(&t->peer[i].writing);
    }
    if (t->wake[0] >= 0) close(t->wake[0]);
    if (t->wake[1] >= 0) close(t->wake[1]);
    pthread_mutex_destroy(&t->lock);
    pthread_cond_destroy(&t->changed);
    free(t->peer);
    free(t);
}

static void tcp_close(HdWorld *w) {
    Tcp *t = (Tcp *)w;
    t->closing = true;
    wake_up(t);
    pthread_join(t->thread, NULL);
    tcp_free(t);
}

static bool start(Tcp *t, const int *fd) {
    for (int i = 0; i < t->n; i++) {
        t->peer[i] = (Peer){.fd = fd[i], .rank = i, .heard = hd_now()};
        pthread_mutex_init(&t->peer[i].writing, NULL);
    }
    if (pipe2(t->wake, O_CLOEXEC | O_NONBLOCK) == 0 && pthread_create(&t->thread, NULL, watch, t) == 0) return true;
    return hd_fail("cannot watch the other ranks: %s", strerror(errno));
}

HdWorld *hd_world_tcp(HdLaunch *l, const HdProgram *p) {
    if (l->ranks == 1) return hd_world_alone();
    int *fd = malloc((size_t)l->ranks * sizeof *fd);
    Tcp *t = calloc(1, sizeof *t);
    Peer *peers = calloc((size_t)l->ranks, sizeof *peers);
    if (!fd || !t || !peers || !hd_tcp_connect(l, p, fd)) {
        if (!fd || !t || !peers) hd_fail("out of memory");
        free(fd);
        free(t);
        free(peers);
        return NULL;
    }
    t->head = (HdWorld){.rank = l->rank, .ranks = l->ranks, .local_rank = l->local_rank, .gather = tcp_gather,
                        .send = tcp_send, .receive = tcp_receive, .fail = tcp_fail, .alive = tcp_alive, .at = tcp_at,
                        .waiting = tcp_waiting, .close = tcp_close};
    t->peer = peers;
    t->n = l->rank ? 1 : l->ranks;
    t->wake[0] = t->wake[1] = -1;
    t->from = -1;
    t->heir = l->speaker;
    t->silence = hd_tcp_seconds("HEDDLE_SILENCE_SECONDS", 20);
    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->changed, NULL);
    const bool ok = start(t, fd);
    free(fd);
    if (ok) return &t->head;
    tcp_free(t);
    return NULL;
}
