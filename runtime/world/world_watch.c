// The thread of a world of processes. It reads all connections, shows the other ranks four times a second that this one
// lives, and detects a rank that does not: its connection ends, or nothing was received from it for too long.
#include "runtime/world/world_tcp.h"
#include "runtime/world/sockets.h"
#include "runtime/text.h"
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { SETTLE_US = 300000 };

static void lost(Tcp *t, const Peer *p, const char *how) {
    char why[600];
    // a gather says the step, and may arrive before the first beat that says it
    const char *at = p->what[0] ? p->what : "step";
    // everybody hears rank 0; without it the first of each host reports
    const int speaker = p->rank ? 0 : t->heir ? t->heir : -1;
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
    hd_tcp_give_up(t, -1, speaker, why);
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

static bool put_data(Tcp *t, Peer *p, const HdFrame *f, const char *body) {
    p->step = f->step;
    pthread_mutex_lock(&t->lock);
    const bool ok = t->failed || t->closing || hd_queue_put(&p->queue, body, f->bytes); // else nobody will read it
    pthread_cond_broadcast(&t->changed);
    pthread_mutex_unlock(&t->lock);
    return ok;
}

typedef struct { Tcp *t; Peer *p; } Heard;

static bool frame_came(void *of, const HdFrame *f, char *body) { // false: not our protocol, or no memory
    Tcp *t = ((Heard *)of)->t;
    Peer *p = ((Heard *)of)->p;
    if (f->kind == HD_DATA) return put_data(t, p, f, body);
    if (f->bytes >= HD_WHY) return false;
    hd_text_clean(body, f->bytes + 1);
    if (f->kind == HD_BEAT) {
        snprintf(p->what, sizeof p->what, "%.39s", body);
        p->step = f->step;
    } else if (f->kind == HD_FAIL && t->head.rank == 0) {
        char more[HD_WHY];
        hd_tcp_add_slowest(t, body, more, sizeof more);
        hd_tcp_give_up(t, p->rank, 0, more);
    } else if (f->kind == HD_FAIL) {
        hd_tcp_give_up(t, -1, (int)f->step, body);
    } else {
        pthread_mutex_lock(&t->lock);
        p->left_run = true;
        pthread_cond_broadcast(&t->changed);
        pthread_mutex_unlock(&t->lock);
    }
    return true;
}

static void read_peer(Tcp *t, Peer *p, char *room) {
    const ssize_t n = recv(p->fd, room, HD_READ_AT_ONCE, MSG_DONTWAIT);
    if (n > 0) {
        p->heard = hd_now();
        if (!hd_reader_take(&p->reader, room, (size_t)n, frame_came, &(Heard){t, p}))
            end_connection(t, p, "sent something that no rank sends");
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
    char sealed[HD_SEALED], what[40];
    const char *now_at = t->what;
    snprintf(what, sizeof what, "%s", now_at ? now_at : "");
    const HdFrame f = {HD_BEAT, (uint32_t)strlen(what), t->step};
    for (int i = 0; i < t->n; i++) {
        Peer *p = each(t, i);
        if (!p || pthread_mutex_trylock(&p->writing) != 0) continue;
        const size_t size = p->broken ? 0 : hd_frame_seal(&p->out, f, what, sealed);
        const ssize_t n = p->broken ? 0 : send(p->fd, sealed, size, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n > 0) p->out.count++;
        if (n > 0 && (size_t)n < size) p->broken = !hd_tcp_write(p->fd, sealed + n, size - (size_t)n, hd_now() + 2);
        pthread_mutex_unlock(&p->writing);
    }
}

static void tell_failure(Tcp *t) { // sent to those that may not know it
    char text[HD_WHY], sealed[HD_SEALED];
    if (t->from >= 0 && t->head.rank == 0) snprintf(text, sizeof text, "rank %d: %.1000s", t->from, t->why);
    else snprintf(text, sizeof text, "%s", t->why);
    t->told = true;
    for (int i = 0; i < t->n; i++) {
        Peer *p = each(t, i);
        if (!p) continue;
        // whoever is writing to it will soon be done: a run that has failed waits for no peer
        pthread_mutex_lock(&p->writing);
        const HdFrame f = {HD_FAIL, (uint32_t)strlen(text), t->head.speaker};
        const size_t size = hd_frame_seal(&p->out, f, text, sealed);
        p->broken = p->broken || !hd_tcp_write(p->fd, sealed, size, hd_now() + 1);
        p->out.count++;
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
        if (!t->failed) hd_tcp_put(t, p, (HdFrame){HD_LEAVE, 0, 0}, NULL);
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
        const bool full = p->queue.used >= HD_QUEUE_FULL && !t->failed && !t->closing;
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

void *hd_tcp_watch(void *arg) {
    Tcp *t = arg;
    struct pollfd *fds = t->fds;
    double next = 0, last = hd_now(), end = 0;
    for (;;) {
        const int n = poll_all(t, fds, t->who);
        if (end > 0 && (n == 1 || hd_now() > end)) break;
        if (poll(fds, (nfds_t)n, 100) > 0) {
            char drain[64];
            // what was written there only ended the poll; where it cannot be read, the connections still are
            if (fds[0].revents && read(t->wake[0], drain, sizeof drain) < 0) drain[0] = 0;
            for (int k = 1; k < n; k++)
                if (fds[k].revents) read_peer(t, &t->peer[t->who[k]], t->room);
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
    return NULL;
}

