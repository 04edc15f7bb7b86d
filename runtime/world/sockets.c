// Sockets without blocking. See sockets.h.
#define _GNU_SOURCE // struct ucred
#include "runtime/world/sockets.h"
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
#include <sys/un.h>
#include <unistd.h>

enum { ONE_ADDRESS = 5 }; // seconds before the next address of a name is tried

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

bool hd_tcp_wait(int fd, short what, double until) { return wait_unless(fd, what, until, NULL); }

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
        } else if (errno != EINTR && ((errno != EAGAIN && errno != EWOULDBLOCK) || !hd_tcp_wait(fd, POLLIN, until))) {
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

void hd_socket_set_up(int fd) {
    const int yes = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes); // a local socket has no such option and no delay
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
    fcntl(fd, F_SETFD, FD_CLOEXEC);
}

// --- places

// A name in the kernel, not in a folder: it ends with the process that listens. Its user is part of it, and each end
// asks the kernel for the other's.
static socklen_t local_address(const HdLaunch *l, struct sockaddr_un *at) {
    *at = (struct sockaddr_un){.sun_family = AF_UNIX};
    const int n = snprintf(at->sun_path + 1, sizeof at->sun_path - 1, "heddle-%u-%d", (unsigned)geteuid(), l->port);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

const char *hd_socket_place(const HdLaunch *l, char out[HD_PLACE]) {
    struct sockaddr_un at;
    if (l->where != HD_LOCAL) snprintf(out, HD_PLACE, "%s:%d", l->host, l->port);
    else if (local_address(l, &at)) snprintf(out, HD_PLACE, "the local socket %s", at.sun_path + 1);
    return out;
}

bool hd_socket_same_user(int fd) {
    struct ucred other;
    socklen_t n = sizeof other;
    struct sockaddr_storage here = {.ss_family = AF_UNSPEC};
    socklen_t m = sizeof here;
    if (getsockname(fd, (struct sockaddr *)&here, &m)) return false;
    if (here.ss_family != AF_UNIX) return true;
    return !getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &other, &n) && other.uid == geteuid();
}

bool hd_socket_same_host(int fd) {
    struct sockaddr_storage here = {.ss_family = AF_UNSPEC}, there = {.ss_family = AF_UNSPEC};
    socklen_t n = sizeof here, m = sizeof there;
    if (getsockname(fd, (struct sockaddr *)&here, &n) || getpeername(fd, (struct sockaddr *)&there, &m) ||
        here.ss_family != there.ss_family)
        return false;
    const struct sockaddr_in6 *six[] = {(struct sockaddr_in6 *)&here, (struct sockaddr_in6 *)&there};
    const struct sockaddr_in *four[] = {(struct sockaddr_in *)&here, (struct sockaddr_in *)&there};
    if (here.ss_family == AF_UNIX) return true;
    return here.ss_family == AF_INET ? four[0]->sin_addr.s_addr == four[1]->sin_addr.s_addr
                                     : !memcmp(&six[0]->sin6_addr, &six[1]->sin6_addr, sizeof six[0]->sin6_addr);
}

// --- listening

static int listen_at(const struct sockaddr *at, socklen_t size, bool only_six) { // -1 with errno
    const int yes = 1, six = only_six, fd = socket(at->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (at->sa_family == AF_INET6) setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &six, sizeof six);
    if (bind(fd, at, size) == 0 && listen(fd, SOMAXCONN) == 0) {
        hd_socket_set_up(fd);
        return fd;
    }
    const int why = errno;
    close(fd);
    errno = why;
    return -1;
}

static bool is_loopback(const struct sockaddr *at) {
    if (at->sa_family == AF_INET)
        return ntohl(((const struct sockaddr_in *)(const void *)at)->sin_addr.s_addr) >> 24 == 127;
    const struct sockaddr_in6 *six = (const void *)at;
    return at->sa_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&six->sin6_addr);
}

// The addresses that rank 0's name has and this host holds. 0 with errno 0: its name says nothing about this host's
// interfaces (it is unknown here, is 127.0.1.1 as on Debian, or is an address that a router translates).
static int listen_by_name(const HdLaunch *l, int fd[HD_LISTENERS]) {
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE}, *list = NULL;
    char port[16];
    int n = 0, why = 0;
    snprintf(port, sizeof port, "%d", l->port);
    if (getaddrinfo(l->host, port, &hints, &list)) list = NULL;
    for (const struct addrinfo *a = list; a && n < HD_LISTENERS; a = a->ai_next) {
        if (is_loopback(a->ai_addr)) continue;
        const int one = listen_at(a->ai_addr, a->ai_addrlen, true);
        if (one >= 0) fd[n++] = one;
        else if (errno != EADDRNOTAVAIL) why = errno;
    }
    if (list) freeaddrinfo(list);
    errno = n ? 0 : why;
    return n;
}

static int listen_everywhere(const HdLaunch *l) { // for IPv4 and IPv6; -1 with errno
    const struct sockaddr_in6 any = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)l->port)};
    const struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = htons((uint16_t)l->port)};
    const int fd = listen_at((const struct sockaddr *)&any, sizeof any, false);
    if (fd >= 0 || errno == EADDRINUSE) return fd;
    return listen_at((const struct sockaddr *)&four, sizeof four, false); // there may be no IPv6
}

int hd_socket_listen(const HdLaunch *l, int fd[HD_LISTENERS]) {
    const struct sockaddr_in loopback = {.sin_family = AF_INET, .sin_port = htons((uint16_t)l->port),
                                         .sin_addr = {htonl(INADDR_LOOPBACK)}};
    struct sockaddr_un local;
    int n = 0;
    if (l->where == HD_LOCAL) {
        const socklen_t size = local_address(l, &local);
        fd[0] = listen_at((const struct sockaddr *)&local, size, false);
    } else if (l->where == HD_LOOPBACK) {
        fd[0] = listen_at((const struct sockaddr *)&loopback, sizeof loopback, false);
    } else {
        n = listen_by_name(l, fd);
        if (!n) fd[0] = errno ? -1 : listen_everywhere(l);
    }
    if (n || fd[0] >= 0) return n ? n : 1;
    char place[HD_PLACE];
    hd_fail("rank 0 cannot listen at %s: %s%s", hd_socket_place(l, place), strerror(errno),
            errno != EADDRINUSE ? ""
                                : "; another run may be using it: choose a port with HEDDLE_PORT (or MASTER_PORT)");
    return 0;
}

// --- connecting

static int connect_to(int family, const struct sockaddr *at, socklen_t size, double until) { // -1 with errno
    int error = 0;
    socklen_t bytes = sizeof error;
    const int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return -1;
    hd_socket_set_up(fd);
    bool ok = connect(fd, at, size) == 0;
    if (!ok && (errno == EINPROGRESS || errno == EINTR) && hd_tcp_wait(fd, POLLOUT, until)) {
        if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &bytes)) error = errno;
        ok = !error;
        errno = error;
    }
    if (ok) return fd;
    error = errno;
    close(fd);
    errno = error;
    return -1;
}

int hd_socket_connect(const HdLaunch *l, double until, char *why, size_t size) {
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list = NULL;
    struct sockaddr_un local;
    char port[16];
    int fd = -1;
    if (l->where == HD_LOCAL) {
        const socklen_t bytes = local_address(l, &local);
        fd = connect_to(AF_UNIX, (const struct sockaddr *)&local, bytes, until);
        if (fd < 0) snprintf(why, size, "%s", strerror(errno));
        return fd;
    }
    snprintf(port, sizeof port, "%d", l->port);
    const int unknown = getaddrinfo(l->host, port, &hints, &list);
    if (unknown) snprintf(why, size, "the name: %s", gai_strerror(unknown));
    if (unknown) return -1;
    for (const struct addrinfo *a = list; a && fd < 0; a = a->ai_next) {
        const double now = hd_now();
        fd = connect_to(a->ai_family, a->ai_addr, a->ai_addrlen, now + ONE_ADDRESS < until ? now + ONE_ADDRESS : until);
        if (fd < 0) snprintf(why, size, "%s", strerror(errno));
    }
    freeaddrinfo(list);
    return fd;
}
