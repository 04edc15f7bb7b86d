// Rank 0 at the door. Connections are judged side by side, each within JUDGED seconds and with a few hundred bytes of
// memory. When as many are open as may be, the oldest goes for the next one to come in, but not before LEAST seconds: a
// rank that is let in has time to prove itself, however many strangers come. One that is let go all the same comes
// again.
#include "runtime/world/rendezvous.h"
#include "runtime/world/sockets.h"
#include "runtime/text.h"
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

enum { JUDGED = 10, SPARE = 256, AT_ONCE = 64, LAST_WORDS = 3 }; // seconds, connections, connections, seconds
static const double LEAST = 0.5;

typedef struct {
    const HdLaunch *l;
    const HdProgram *p;
    HdLink *link;
    HdVisitor *visitor;
    HdHello *own;         // rank 0's part of each visitor's connection
    int n, most, here;    // visitors; ranks that came, rank 0 among them
    long strangers;       // let go, or gone without a word
    int trouble;          // errno of the last accept that failed
    double until;
    char *why;
} Door;

// --- one connection

static bool greeted(void *of, const HdFrame *f, char *body) {
    HdVisitor *v = of;
    if (v->greeted || f->bytes != sizeof v->greeting) return false;
    memcpy(&v->greeting, body, sizeof v->greeting);
    hd_text_clean(v->greeting.plan, sizeof v->greeting.plan);
    hd_text_clean(v->greeting.run, sizeof v->greeting.run);
    v->greeted = true;
    return true;
}

HdVerdict hd_visitor_take(HdVisitor *v, const unsigned char key[HD_KEY], const HdHello *own, const char *data, size_t n,
                          bool *hello_came) {
    const size_t room = sizeof v->hello - v->have, part = n < room ? n : room;
    memcpy((char *)&v->hello + v->have, data, part);
    v->have += part;
    *hello_came = false;
    if (v->have < sizeof v->hello) return HD_VISITOR_MORE;
    if (room) { // it is complete now
        if (!hd_hello_ok(&v->hello, true)) return HD_VISITOR_STRANGER;
        *hello_came = true; // a rank of another version then knows rank 0's
        v->reader = (HdReader){.kinds = 1u << HD_GREET, .most = sizeof(HdGreeting)};
        hd_seal_link(key, v->hello.nonce, own->nonce, true, &v->reader.seal, &v->out);
    }
    if (!hd_reader_take(&v->reader, data + part, n - part, greeted, v)) return HD_VISITOR_STRANGER;
    if (!v->greeted) return HD_VISITOR_MORE;
    return v->reader.have ? HD_VISITOR_STRANGER : HD_VISITOR_GREETED; // a rank waits for the answer
}

void hd_visitor_free(HdVisitor *v) {
    free(v->reader.rest);
    v->reader.rest = NULL;
}

// --- ranks

static bool has_ended(int fd) {
    char c;
    return recv(fd, &c, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
}

// false: with the reason
static bool welcome(const Door *d, const HdGreeting *g, char *why) {
    const HdLaunch *l = d->l;
    if (strncmp(g->run, l->run, HD_RUN - 1) != 0)
        snprintf(why, HD_WHY, "rank %d belongs to another run (%s, rank 0 to %s): give one of them another HEDDLE_PORT "
                 "or MASTER_PORT", g->rank, *g->run ? g->run : "without a launcher's number",
                 *l->run ? l->run : "one without a launcher's number");
    else if (strncmp(g->plan, d->p->plan_hash, sizeof g->plan - 1) != 0)
        snprintf(why, HD_WHY,
                 "rank %d runs another program: plan %.79s, rank 0 has plan %.79s; start the same binary on every rank",
                 g->rank, g->plan, d->p->plan_hash);
    else if (g->ranks != l->ranks)
        snprintf(why, HD_WHY, "rank %d was started as one of %d ranks, rank 0 as one of %d", g->rank, g->ranks,
                 l->ranks);
    else if (g->rank < 1 || g->rank >= l->ranks || d->link[g->rank].fd >= 0)
        snprintf(why, HD_WHY, "%s rank %d in a run of %d ranks",
                 g->rank > 0 && g->rank < l->ranks ? "a second" : "there is no", g->rank, l->ranks);
    else
        return true;
    return false;
}

static void drop(Door *d, int i) { // the oldest come first
    hd_visitor_free(&d->visitor[i]);
    d->n--;
    memmove(&d->visitor[i], &d->visitor[i + 1], (size_t)(d->n - i) * sizeof *d->visitor);
    memmove(&d->own[i], &d->own[i + 1], (size_t)(d->n - i) * sizeof *d->own);
}

static void let_go(Door *d, int i) {
    close(d->visitor[i].fd);
    drop(d, i);
    d->strangers++;
}

static void refuse(Door *d, const HdVisitor *v, const char *no) {
    char out[HD_SEALED];
    const HdFrame f = {HD_ANSWER, (uint32_t)strlen(no), 0};
    const size_t size = hd_frame_seal(&v->out, f, no, out);
    if (send(v->fd, out, size, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) d->trouble = errno; // it will find the end
    close(v->fd);
    if (d->why[0]) return;
    snprintf(d->why, HD_WHY, "%s", no);
    // ranks that connect within some seconds get this answer at once instead of waiting in vain
    if (d->until > hd_now() + LAST_WORDS) d->until = hd_now() + LAST_WORDS;
}

static void take_in(Door *d, int i) {
    HdVisitor v = d->visitor[i];
    const int rank = v.greeting.rank;
    char no[HD_WHY] = "";
    drop(d, i);
    // a rank that ended before all had come, and was started again
    if (rank > 0 && rank < d->l->ranks && d->link[rank].fd >= 0 && has_ended(d->link[rank].fd)) {
        close(d->link[rank].fd);
        d->link[rank].fd = -1;
        d->here--;
    }
    d->here++;
    if (welcome(d, &v.greeting, no)) d->link[rank] = (HdLink){v.fd, v.reader.seal, v.out};
    else refuse(d, &v, no);
}

static void hear(Door *d, int i) {
    HdVisitor *v = &d->visitor[i];
    char data[2048];
    bool hello_came;
    const ssize_t n = recv(v->fd, data, sizeof data, MSG_DONTWAIT);
    if (n < 0 && (errno == EINTR || errno == EAGAIN || errno == EWOULDBLOCK)) return;
    HdVerdict verdict = HD_VISITOR_STRANGER;
    if (n > 0) {
        verdict = hd_visitor_take(v, d->l->key, &d->own[i], data, (size_t)n, &hello_came);
        if (hello_came && send(v->fd, &d->own[i], sizeof d->own[i], MSG_NOSIGNAL | MSG_DONTWAIT) !=
                              (ssize_t)sizeof d->own[i])
            verdict = HD_VISITOR_STRANGER;
    }
    if (verdict == HD_VISITOR_STRANGER) let_go(d, i);
    else if (verdict == HD_VISITOR_GREETED) take_in(d, i);
}

// --- the door

static bool is_full(const Door *d) { // and nobody can be let go yet
    return d->n == d->most && hd_now() - d->visitor[0].since < LEAST;
}

static void come_in(Door *d, int listener) {
    for (int k = 0; k < AT_ONCE && !is_full(d); k++) {
        int fd = accept(listener, NULL, NULL);
        if (fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)) {
            d->trouble = errno;
            if (d->n) let_go(d, 0);
            else usleep(20000); // other connections of this process may end
            fd = accept(listener, NULL, NULL);
        }
        if (fd < 0) return;
        hd_socket_set_up(fd);
        if (!hd_socket_same_user(fd)) {
            close(fd);
            d->strangers++;
            continue;
        }
        if (d->n == d->most) let_go(d, 0);
        d->visitor[d->n] = (HdVisitor){.fd = fd, .since = hd_now()};
        hd_hello(&d->own[d->n++]);
    }
}

static void round_of(Door *d, const int *listener, int n, struct pollfd *fds) {
    const double now = hd_now();
    while (d->n && now - d->visitor[0].since > JUDGED) let_go(d, 0);
    const int visitors = d->n, closed = is_full(d);
    for (int i = 0; i < n; i++) fds[i] = (struct pollfd){closed ? -1 : listener[i], POLLIN, 0}; // -1: is not looked at
    for (int i = 0; i < visitors; i++) fds[n + i] = (struct pollfd){d->visitor[i].fd, POLLIN, 0};
    if (poll(fds, (nfds_t)(n + visitors), 100) <= 0) return;
    for (int i = visitors - 1; i >= 0; i--) // downwards: removing one moves only visitors that had their turn
        if (fds[n + i].revents) hear(d, i);
    for (int i = 0; i < n; i++)
        if (fds[i].revents) come_in(d, listener[i]);
}

static void missing(const Door *d, double seconds) {
    const HdLaunch *l = d->l;
    char place[HD_PLACE], *why = d->why;
    size_t n = 0;
    int told = 0;
    for (int r = 1; r < l->ranks && told <= 8; r++) {
        if (d->link[r].fd >= 0) continue;
        if (told == 8) n += (size_t)snprintf(why + n, HD_WHY - n, ", ...");
        else n += (size_t)snprintf(why + n, HD_WHY - n, "%s%d", told ? ", " : "rank ", r);
        told++;
    }
    n += (size_t)snprintf(why + n, HD_WHY - n, " of %d did not come to %s within %.0f s", l->ranks,
                          hd_socket_place(l, place), seconds);
    if (d->strangers && n < HD_WHY)
        n += (size_t)snprintf(why + n, HD_WHY - n, "; %ld connection%s refused that did not prove to be of this run%s",
                              d->strangers, d->strangers == 1 ? " was" : "s were",
                              l->secret ? " (is HEDDLE_SECRET the same on every rank?)" : "");
    if (d->trouble && n < HD_WHY)
        snprintf(why + n, HD_WHY - n, "; the last connection could not be taken: %s", strerror(d->trouble));
}

// as many files as the ranks take, if the system lets this process have them; returns how many connections may be
// judged at a time
static int make_room(int ranks) {
    struct rlimit files;
    const rlim_t want = 2 * (rlim_t)ranks + 4 * SPARE;
    if (getrlimit(RLIMIT_NOFILE, &files)) return SPARE;
    if (files.rlim_cur < want && files.rlim_cur < files.rlim_max) {
        files.rlim_cur = want < files.rlim_max ? want : files.rlim_max;
        if (setrlimit(RLIMIT_NOFILE, &files)) return SPARE;
    }
    return files.rlim_cur >= want ? ranks + SPARE : SPARE;
}

bool hd_admit(const HdLaunch *l, const HdProgram *p, const int *listener, int n, HdLink *link, char why[HD_WHY]) {
    const double seconds = hd_tcp_seconds("HEDDLE_CONNECT_SECONDS", 120);
    Door d = {.l = l, .p = p, .link = link, .most = make_room(l->ranks), .here = 1, .until = hd_now() + seconds,
              .why = why};
    d.visitor = calloc((size_t)d.most, sizeof *d.visitor);
    d.own = calloc((size_t)d.most, sizeof *d.own);
    struct pollfd *fds = calloc((size_t)(d.most + n), sizeof *fds);
    if (!d.visitor || !d.own || !fds) snprintf(why, HD_WHY, "out of memory");
    else
        while (d.here < l->ranks && hd_now() < d.until) round_of(&d, listener, n, fds);
    if (d.here < l->ranks && !why[0]) missing(&d, seconds);
    while (d.n) let_go(&d, 0);
    free(d.visitor);
    free(d.own);
    free(fds);
    return !why[0];
}
