// How the ranks of a run meet. See rendezvous.h.
#include "runtime/world/rendezvous.h"
#include "runtime/world/sockets.h"
#include "runtime/text.h"
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { HELLO_SECONDS = 10 }; // for rank 0 to say hello; then it may wait for other ranks
static const char magic[8] = "heddle.";

void hd_hello(HdHello *h) {
    *h = (HdHello){.protocol = HD_PROTOCOL};
    memcpy(h->magic, magic, sizeof magic);
    hd_secret_random(h->nonce, sizeof h->nonce);
}

bool hd_hello_ok(const HdHello *h, bool any_protocol) {
    return !memcmp(h->magic, magic, sizeof magic) && (any_protocol || h->protocol == HD_PROTOCOL);
}

// --- rank 0

static void answer(HdLink *link, bool go, const char *why) {
    char out[HD_SEALED];
    const HdFrame f = {HD_ANSWER, (uint32_t)strlen(why), go};
    hd_tcp_write(link->fd, out, hd_frame_seal(&link->out, f, why, out), hd_now() + 5);
    link->out.count++;
}

static bool be_center(HdLaunch *l, const HdProgram *p, HdLink *link) {
    char why[HD_WHY] = "";
    int listener[HD_LISTENERS] = {l->listener}, n = 1;
    if (l->listener < 0) n = hd_socket_listen(l, listener);
    else hd_socket_set_up(l->listener);
    if (!n) return false;
    const bool ok = hd_admit(l, p, listener, n, link, why);
    for (int r = 1; r < l->ranks; r++) {
        if (link[r].fd < 0) continue;
        answer(&link[r], ok, why);
        if (ok) continue;
        close(link[r].fd);
        link[r].fd = -1;
    }
    for (int i = 0; i < n; i++) close(listener[i]);
    l->listener = -1;
    if (!ok) hd_fail("%s", why);
    return ok;
}

// --- the others

typedef struct { bool came, go; char why[HD_WHY]; } Answer;

static bool answered(void *of, const HdFrame *f, char *body) {
    Answer *a = of;
    if (a->came) return false;
    a->came = true;
    a->go = f->step == 1;
    memcpy(a->why, body, f->bytes + 1);
    hd_text_clean(a->why, sizeof a->why);
    return true;
}

static bool await_answer(HdLink *link, double until, Answer *a) {
    HdReader reader = {.seal = link->in, .kinds = 1u << HD_ANSWER, .most = HD_WHY - 1};
    char data[HD_WHY + HD_MAC];
    bool ok = true;
    while (ok && !a->came) { // what follows the answer belongs to the world
        const ssize_t n = recv(link->fd, data, hd_reader_left(&reader), MSG_DONTWAIT);
        if (n > 0) ok = hd_reader_take(&reader, data, (size_t)n, answered, a);
        else ok = n < 0 && (errno == EINTR || ((errno == EAGAIN || errno == EWOULDBLOCK) &&
                                               hd_tcp_wait(link->fd, POLLIN, until)));
    }
    link->in = reader.seal;
    free(reader.rest);
    return ok && a->came;
}

// false: nobody of this run is there (yet)
static bool greet(const HdLaunch *l, const HdProgram *p, HdLink *link, double until, Answer *a, char *why,
                  size_t size) {
    const double soon = hd_now() + HELLO_SECONDS < until ? hd_now() + HELLO_SECONDS : until;
    HdHello mine, theirs;
    HdGreeting g = {.rank = l->rank, .ranks = l->ranks};
    char out[HD_SEALED];
    hd_hello(&mine);
    if (!hd_socket_same_user(link->fd)) {
        snprintf(why, size, "another user listens there");
        return false;
    }
    if (!hd_tcp_write(link->fd, &mine, sizeof mine, soon) || !hd_tcp_read(link->fd, &theirs, sizeof theirs, soon) ||
        !hd_hello_ok(&theirs, true))
        return false;
    if (!hd_hello_ok(&theirs, false)) {
        snprintf(why, size, "built with another version of the runtime: protocol %d, this rank has %d", theirs.protocol,
                 HD_PROTOCOL);
        return false;
    }
    hd_seal_link(l->key, mine.nonce, theirs.nonce, false, &link->in, &link->out);
    snprintf(g.plan, sizeof g.plan, "%s", p->plan_hash);
    snprintf(g.run, sizeof g.run, "%s", l->run);
    const size_t bytes = hd_frame_seal(&link->out, (HdFrame){HD_GREET, sizeof g, 0}, &g, out);
    link->out.count++;
    return hd_tcp_write(link->fd, out, bytes, until) && await_answer(link, until, a);
}

static bool nobody(const HdLaunch *l, bool stranger, bool ever, double seconds, const char *why) {
    char place[HD_PLACE];
    return hd_fail(
        "rank %d: %s at %s within %.0f s%s%s%s: rank 0 of this run is not there (MASTER_ADDR, MASTER_PORT and "
        "HEDDLE_PORT say where%s)",
        l->rank, stranger ? "no proper answer" : "nobody answers", hd_socket_place(l, place), seconds,
        *why ? " (" : "", why, *why ? ")" : "",
        ever && l->secret ? "; HEDDLE_SECRET must be the same on every rank" : "");
}

// A connection that closes without an answer was to somebody else, or to a run that is over, or rank 0 had too many
// others to judge: rank 0 may still come.
static bool be_one(HdLaunch *l, const HdProgram *p, HdLink *link) {
    const double seconds = hd_tcp_seconds("HEDDLE_CONNECT_SECONDS", 120), until = hd_now() + seconds + 5;
    bool stranger = false, ever = false; // somebody else answers, at the last attempt or at one before
    char why[120] = "";
    while (hd_now() < until) {
        Answer a = {.go = false};
        *link = (HdLink){.fd = hd_socket_connect(l, until, why, sizeof why)};
        stranger = link->fd >= 0;
        if (stranger) *why = 0;
        ever = ever || stranger;
        if (stranger && greet(l, p, link, until, &a, why, sizeof why)) {
            if (a.go) {
                l->speaker = l->local_rank == (hd_socket_same_host(link->fd) ? 1 : 0) ? l->rank : 0;
                return true;
            }
            close(link->fd);
            link->fd = -1;
            return hd_fail("%s", a.why);
        }
        if (stranger) close(link->fd);
        link->fd = -1;
        usleep(100000);
    }
    if (l->rank == 1 || l->local_rank == 0) l->speaker = l->rank; // nobody reached rank 0: each host reports it
    return nobody(l, stranger, ever, seconds, why);
}

bool hd_tcp_connect(HdLaunch *l, const HdProgram *p, HdLink *link) {
    for (int r = 0; r < l->ranks; r++) link[r].fd = -1;
    return hd_secret_ready() && (l->rank == 0 ? be_center(l, p, link) : be_one(l, p, link));
}
