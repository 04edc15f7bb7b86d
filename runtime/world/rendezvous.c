// How the ranks of a run meet. Rank 0 listens. Every other rank connects and sends a greeting: its rank, the number of
// ranks, the program it runs. Rank 0 answers once all have come, or with the reason why there will be no run; it
// ignores strangers.
#include "runtime/world/rendezvous.h"
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { PROTOCOL = 1, HASH = 80, ONE_ADDRESS = 5 }; // the last: seconds before the next address of a name is tried
typedef struct { char magic[8]; int32_t protocol, rank, ranks, unused; char hash[HASH]; } Greeting;
typedef struct { char magic[8]; int32_t protocol, go; char why[HD_TCP_WHY]; } Answer;
static const char magic[8] = "heddle.";

double hd_tcp_seconds(const char *name, double otherwise) {
    const char *v = getenv(name);
    const double s = v ? strtod(v, NULL) : 0;
    return s > 0 ? s : otherwise;
}

static bool wait_unless(int fd, short what, double until, const atomic_bool *stop) { // false with errno
    for (;;) {
        const double left = until - hd_now(), most = stop ? 0.1 : 1;
        if (left <= 0 || (stop && *stop)) {
            errno = left <= 0 ? ETIMEDOUT : ECANCELED;
            return false;
        }
        struct pollfd p = {fd, what, 0};
        const int n = poll(&p, 1, (int)((left > most ? most : left) * 1e3) + 1);
        if (n > 0) return true;
        if (n < 0 && errno != EINTR) return false;
    }
}

static bool wait_for(int fd, short what, double until) { return wait_unless(fd, what, until, NULL); }

bool hd_tcp_read(int fd, void *data, size_t bytes, double until) {
    char *to = data;
    while (bytes) {
        const ssize_t n = recv(fd, to, bytes, MSG_DONTWAIT);
        if (n > 0) {
            to += n;
            bytes -= (size_t)n;
        } else if (n == 0) {
            errno = ECONNRESET;
            return false;
        } else if (errno != EINTR && ((errno != EAGAIN && errno != EWOULDBLOCK) || !wait_for(fd, POLLIN, until))) {
            return false;
        }
    }
    return true;
}

bool hd_tcp_write_unless(int fd, const void *data, size_t bytes, double until, const atomic_bool *stop) {
    const char *from = data;
    while (bytes) {
        const ssize_t n = send(fd, from, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n >= 0) {
            from += n;
            bytes -= (size_t)n;
        } else if (errno != EINTR &&
                   ((errno != EAGAIN && errno != EWOULDBLOCK) || !wait_unless(fd, POLLOUT, until, stop))) {
            return false;
        }
    }
    return true;
}

bool hd_tcp_write(int fd, const void *data, size_t bytes, double until) {
    return hd_tcp_write_unless(fd, data, bytes, until, NULL);
}

static void set_up(int fd) {
    const int yes = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
    fcntl(fd, F_SETFD, FD_CLOEXEC);
}

static bool loopback(const char *host) { return !strcmp(host, "localhost") || !strncmp(host, "127.", 4); }

static int listen_at(const struct sockaddr *at, socklen_t size) { // -1 with errno
    const int yes = 1, no = 0, fd = socket(at->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (at->sa_family == AF_INET6) setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no);
    if (bind(fd, at, size) == 0 && listen(fd, SOMAXCONN) == 0) return fd;
    const int why = errno;
    close(fd);
    errno = why;
    return -1;
}

// for IPv4 and IPv6, whichever the others resolve its name to; -1 after hd_fail
static int open_listener(const HdLaunch *l) {
    const bool here = loopback(l->host);
    const struct sockaddr_in6 any = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)l->port)};
    const struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = htons((uint16_t)l->port),
                                     .sin_addr = {htonl(here ? INADDR_LOOPBACK : INADDR_ANY)}};
    int fd = here ? -1 : listen_at((const struct sockaddr *)&any, sizeof any);
    if (fd < 0 && (here || errno != EADDRINUSE))
        fd = listen_at((const struct sockaddr *)&four, sizeof four); // there may be no IPv6
    if (fd < 0)
        hd_fail("rank 0 cannot listen at port %d: %s%s", l->port, strerror(errno),
                errno == EADDRINUSE ? "; another run may be using it: choose one with HEDDLE_PORT (or MASTER_PORT)"
                                    : "");
    return fd;
}

// --- rank 0

// false: with the reason
static bool welcome(const HdLaunch *l, const HdProgram *p, const Greeting *g, const int *fd, char *why) {
    if (g->protocol != PROTOCOL)
        snprintf(why, HD_TCP_WHY, "rank %d was built with another version of the runtime (protocol %d, rank 0 has %d)",
                 g->rank, g->protocol, PROTOCOL);
    else if (strncmp(g->hash, p->plan_hash, HASH - 1) != 0)
        snprintf(why, HD_TCP_WHY,
                 "rank %d runs another program: plan %.79s, rank 0 has plan %.79s; start the same binary on every rank",
                 g->rank, g->hash, p->plan_hash);
    else if (g->ranks != l->ranks)
        snprintf(why, HD_TCP_WHY, "rank %d was started as one of %d ranks, rank 0 as one of %d", g->rank, g->ranks,
                 l->ranks);
    else if (g->rank < 1 || g->rank >= l->ranks || fd[g->rank] >= 0)
        snprintf(why, HD_TCP_WHY, "%s rank %d in a run of %d ranks",
                 g->rank > 0 && g->rank < l->ranks ? "a second" : "there is no", g->rank, l->ranks);
    else
        return true;
    return false;
}

static void answer(int fd, bool go, const char *why) {
    Answer a = {.protocol = PROTOCOL, .go = go};
    memcpy(a.magic, magic, sizeof magic);
    snprintf(a.why, sizeof a.why, "%s", why);
    hd_tcp_write(fd, &a, sizeof a, hd_now() + 5);
}

static void missing(const HdLaunch *l, const int *fd, double seconds, char *why) {
    size_t n = 0;
    int told = 0;
    for (int r = 1; r < l->ranks && told <= 8; r++) {
        if (fd[r] >= 0) continue;
        if (told == 8) n += (size_t)snprintf(why + n, HD_TCP_WHY - n, ", ...");
        else n += (size_t)snprintf(why + n, HD_TCP_WHY - n, "%s%d", told ? ", " : "rank ", r);
        told++;
    }
    snprintf(why + n, HD_TCP_WHY - n, " of %d did not come to %s:%d within %.0f s", l->ranks, l->host, l->port,
             seconds);
}

// `why` says why there will be no run. Ranks that still connect within some seconds get this answer at once instead of
// waiting in vain.
static bool gather_ranks(const HdLaunch *l, const HdProgram *p, int listener, int *fd, char *why) {
    const double seconds = hd_tcp_seconds("HEDDLE_CONNECT_SECONDS", 120);
    double until = hd_now() + seconds;
    for (int here = 1; here < l->ranks;) {
        if (!wait_for(listener, POLLIN, until)) {
            if (!why[0]) missing(l, fd, seconds, why);
            return false;
        }
        const int one = accept(listener, NULL, NULL);
        Greeting g;
        if (one < 0) continue;
        set_up(one);
        if (!hd_tcp_read(one, &g, sizeof g, hd_now() + 2) || memcmp(g.magic, magic, sizeof magic) != 0) { // a stranger
            close(one);
            continue;
        }
        g.hash[HASH - 1] = 0;
        here++;
        char no[HD_TCP_WHY] = "";
        if (welcome(l, p, &g, fd, no)) {
            fd[g.rank] = one;
            continue;
        }
        answer(one, false, no);
        close(one);
        if (!why[0]) {
            memcpy(why, no, sizeof no);
            until = hd_now() + 3;
        }
    }
    return !why[0];
}

static bool be_center(const HdLaunch *l, const HdProgram *p, int *fd) {
    char why[HD_TCP_WHY] = "";
    const int listener = l->listener >= 0 ? l->listener : open_listener(l);
    if (listener < 0) return false;
    fcntl(listener, F_SETFL, fcntl(listener, F_GETFL) | O_NONBLOCK);
    const bool ok = gather_ranks(l, p, listener, fd, why);
    for (int r = 1; r < l->ranks; r++) {
        if (fd[r] < 0) continue;
        answer(fd[r], ok, why);
        if (ok) continue;
        close(fd[r]);
        fd[r] = -1;
    }
    close(listener);
    if (!ok) hd_fail("%s", why);
    return ok;
}

// --- the others

static int try_connect(const HdLaunch *l, double until, char *why, size_t size) { // -1 with the reason: not yet
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list = NULL;
    char port[16];
    int fd = -1;
    snprintf(port, sizeof port, "%d", l->port);
    const int unknown = getaddrinfo(l->host, port, &hints, &list);
    if (unknown) snprintf(why, size, "the name: %s", gai_strerror(unknown));
    if (unknown) return -1;
    for (const struct addrinfo *a = list; a && fd < 0; a = a->ai_next) {
        const double now = hd_now(), give_up = now + ONE_ADDRESS < until ? now + ONE_ADDRESS : until;
        int error = 0;
        socklen_t bytes = sizeof error;
        fd = socket(a->ai_family, a->ai_socktype, a->ai_protocol);
        if (fd >= 0) set_up(fd);
        bool ok = fd >= 0 && connect(fd, a->ai_addr, a->ai_addrlen) == 0;
        if (fd >= 0 && !ok && errno == EINPROGRESS && wait_for(fd, POLLOUT, give_up)) {
            getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &bytes);
            ok = !error;
            errno = error;
        }
        if (ok) break;
        snprintf(why, size, "%s", strerror(errno));
        if (fd >= 0) close(fd);
        fd = -1;
    }
    freeaddrinfo(list);
    return fd;
}

static bool greet(const HdLaunch *l, const HdProgram *p, int fd, double until, Answer *a) {
    Greeting g = {.protocol = PROTOCOL, .rank = l->rank, .ranks = l->ranks};
    memcpy(g.magic, magic, sizeof magic);
    snprintf(g.hash, sizeof g.hash, "%s", p->plan_hash);
    return hd_tcp_write(fd, &g, sizeof g, until) && hd_tcp_read(fd, a, sizeof *a, until) &&
           !memcmp(a->magic, magic, sizeof magic);
}

static bool beside_zero(int fd) { // on its host, where both ends of a connection have one address
    struct sockaddr_storage here = {.ss_family = AF_UNSPEC}, there = {.ss_family = AF_UNSPEC};
    socklen_t n = sizeof here, m = sizeof there;
    if (getsockname(fd, (struct sockaddr *)&here, &n) || getpeername(fd, (struct sockaddr *)&there, &m) ||
        here.ss_family != there.ss_family)
        return false;
    const struct sockaddr_in6 *six[] = {(struct sockaddr_in6 *)&here, (struct sockaddr_in6 *)&there};
    const struct sockaddr_in *four[] = {(struct sockaddr_in *)&here, (struct sockaddr_in *)&there};
    return here.ss_family == AF_INET ? four[0]->sin_addr.s_addr == four[1]->sin_addr.s_addr
                                     : !memcmp(&six[0]->sin6_addr, &six[1]->sin6_addr, sizeof six[0]->sin6_addr);
}

// A connection that closes without an answer was to somebody else, or to a run that is over: rank 0 may still come.
static bool be_one(HdLaunch *l, const HdProgram *p, int *fd) {
    const double seconds = hd_tcp_seconds("HEDDLE_CONNECT_SECONDS", 120), until = hd_now() + seconds + 5;
    bool stranger = false;
    char why[120] = "";
    while (hd_now() < until) {
        Answer a = {.go = 0};
        const int one = try_connect(l, until, why, sizeof why);
        if (one >= 0 && greet(l, p, one, until, &a)) {
            if (a.go) {
                fd[0] = one;
                l->speaker = l->local_rank == (beside_zero(one) ? 1 : 0) ? l->rank : 0;
                return true;
            }
            close(one);
            a.why[HD_TCP_WHY - 1] = 0;
            return hd_fail("%s", a.why);
        }
        stranger = one >= 0;
        if (one >= 0) close(one);
        usleep(100000);
    }
    if (l->rank == 1 || l->local_rank == 0) l->speaker = l->rank; // nobody reached rank 0: each host reports it
    return hd_fail(
        "rank %d: %s at %s:%d within %.0f s%s%s%s: rank 0 of this run is not there (MASTER_ADDR, MASTER_PORT and "
        "HEDDLE_PORT say where)",
        l->rank, stranger ? "no proper answer" : "nobody answers", l->host, l->port, seconds, stranger ? "" : " (",
        stranger ? "" : why, stranger ? "" : ")");
}

bool hd_tcp_connect(HdLaunch *l, const HdProgram *p, int *fd) {
    for (int r = 0; r < l->ranks; r++) fd[r] = -1;
    return l->rank == 0 ? be_center(l, p, fd) : be_one(l, p, fd);
}
