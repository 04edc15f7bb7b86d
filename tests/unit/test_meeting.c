// How ranks meet when there are many of them, when they come twice, and when rank 0 runs out of files. MEETING_RANKS=N:
// so many ranks instead of 256.
#include "runtime/world/rendezvous.h"
#include "runtime/world/sockets.h"
#include "tests/unit/processes.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/socket.h>

enum { MANY = 256, STACK = 1 << 20 };

typedef struct { HdLaunch l; const HdProgram *p; HdLink *link; bool ok; char why[200]; pthread_t thread; } One;

static void *meet(void *arg) {
    One *o = arg;
    o->ok = hd_tcp_connect(&o->l, o->p, o->link);
    if (!o->ok) snprintf(o->why, sizeof o->why, "%s", hd_failure());
    return NULL;
}

static int listen_somewhere(HdLaunch *l) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t size = sizeof at;
    l->listener = socket(AF_INET, SOCK_STREAM, 0);
    if (l->listener < 0 || bind(l->listener, (struct sockaddr *)&at, sizeof at) || listen(l->listener, SOMAXCONN) ||
        getsockname(l->listener, (struct sockaddr *)&at, &size))
        exit(1);
    l->where = HD_LOOPBACK;
    snprintf(l->host, sizeof l->host, "127.0.0.1");
    return l->port = ntohs(at.sin_port);
}

static int how_many(void) { // as many as the system has files for, two for each connection
    const char *text = getenv("MEETING_RANKS");
    const int want = text ? atoi(text) : MANY;
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files)) return 8;
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    return files.rlim_max / 2 > (rlim_t)want + 100 ? want : 8;
}

static void all_meet(HdWhere where) {
    const int n = how_many();
    const HdProgram p = {.plan_hash = "0123456789abcdef"};
    One *one = calloc((size_t)n, sizeof *one);
    HdLink *zero = calloc((size_t)n, sizeof *zero), *others = calloc((size_t)n * (size_t)n, sizeof *others);
    HdLaunch l = {.ranks = n, .listener = -1, .where = where, .port = 100000 + (int)getpid()};
    pthread_attr_t small;
    if (!one || !zero || !others) exit(1);
    if (where == HD_LOOPBACK) listen_somewhere(&l);
    hd_secret_key("a secret of this test", l.key);
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, STACK);
    for (int r = n - 1; r >= 0; r--) { // rank 0 comes last
        one[r] = (One){.l = l, .p = &p, .link = r ? others + (size_t)r * (size_t)n : zero};
        one[r].l.rank = one[r].l.local_rank = r;
        if (r) one[r].l.listener = -1;
        if (pthread_create(&one[r].thread, &small, meet, &one[r])) exit(1);
    }
    for (int r = 0; r < n; r++) {
        pthread_join(one[r].thread, NULL);
        if (!one[r].ok) CHECK_TEXT(one[r].why, "no failure");
    }
    for (int r = 1; r < n; r++) {
        CHECK(zero[r].fd >= 0 && one[r].link[0].fd >= 0);
        CHECK(!memcmp(&zero[r].in, &one[r].link[0].out, sizeof zero[r].in) && zero[r].in.count == 1);
        CHECK(!memcmp(&zero[r].out, &one[r].link[0].in, sizeof zero[r].out) && zero[r].out.count == 1);
        CHECK(r == 1 || memcmp(zero[r].in.key, zero[r - 1].in.key, HD_KEY) != 0);
        close(zero[r].fd);
        close(one[r].link[0].fd);
    }
    free(one);
    free(zero);
    free(others);
}

TEST(many_ranks_meet_at_a_port) { all_meet(HD_LOOPBACK); }
TEST(many_ranks_meet_at_a_local_socket) { all_meet(HD_LOCAL); }

// --- rank 0 without files to spare

static int few_files(HdLaunch *l, const HdProgram *p) {
    int silent[10];
    if (l->rank == 1) { // strangers come first, and stay
        struct sockaddr_in at = {
            .sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}, .sin_port = htons((uint16_t)l->port)};
        for (int i = 0; i < 10; i++) {
            silent[i] = socket(AF_INET, SOCK_STREAM, 0);
            if (connect(silent[i], (struct sockaddr *)&at, sizeof at)) return 1;
        }
    } else {
        const int top = dup(2); // room for the connection and for what a world opens
        close(top);
        setrlimit(RLIMIT_NOFILE, &(struct rlimit){(rlim_t)top + 4, (rlim_t)top + 4});
    }
    HdWorld *w = hd_world_tcp(l, p);
    if (!w) dprintf(2, "rank %d: %s\n", l->rank, hd_failure());
    const bool ok = w && hd_world_barrier(w);
    if (w) w->close(w);
    return ok ? 0 : 1;
}

TEST(strangers_take_all_files) {
    const HdProgram p = program(2, 1);
    const Outcome o = started(&p, 2, "A=1", few_files);
    CHECK_INT(o.status, 0);
    CHECK_TEXT(o.text, "");
}

// --- a rank that comes twice

// The work of a rank up to its greeting; then it ends.
static void greet_and_end(HdLaunch l, int rank) {
    char why[100], sealed[HD_SEALED];
    HdHello mine, theirs;
    HdSeal in, out;
    HdGreeting g = {.rank = rank, .ranks = l.ranks, .plan = "0123456789abcdef"};
    const double until = hd_now() + 600;
    const int fd = hd_socket_connect(&l, until, why, sizeof why);
    hd_hello(&mine);
    CHECK(fd >= 0 && hd_tcp_write(fd, &mine, sizeof mine, until) && hd_tcp_read(fd, &theirs, sizeof theirs, until));
    hd_seal_link(l.key, mine.nonce, theirs.nonce, false, &in, &out);
    CHECK(hd_tcp_write(fd, sealed, hd_frame_seal(&out, (HdFrame){HD_GREET, sizeof g, 0}, &g, sealed), until));
    close(fd);
}

TEST(a_rank_that_was_started_again_takes_its_place) {
    const HdProgram p = {.plan_hash = "0123456789abcdef"};
    HdLaunch l = {.ranks = 3, .listener = -1};
    HdLink link[3][3] = {{{.fd = -1}}};
    One one[3];
    listen_somewhere(&l);
    hd_secret_key("a secret of this test", l.key);
    for (int r = 0; r < 3; r++) {
        const HdSeal before = link[0][1].in;
        one[r] = (One){.l = l, .p = &p, .link = link[r]};
        one[r].l.rank = r;
        if (r) one[r].l.listener = -1;
        if (pthread_create(&one[r].thread, NULL, meet, &one[r])) exit(1);
        if (!r) greet_and_end(l, 1);
        // rank 2 would complete the run: it comes when rank 0 has seen the second rank 1
        for (int i = 0; r < 2 && i < 30000 && !memcmp(&before, &link[0][1].in, sizeof before); i++) usleep(20000);
    }
    for (int r = 0; r < 3; r++) {
        pthread_join(one[r].thread, NULL);
        if (!one[r].ok) CHECK_TEXT(one[r].why, "no failure");
    }
    for (int r = 1; r < 3; r++) {
        close(link[0][r].fd);
        close(link[r][0].fd);
    }
}

int main(int argc, char **argv) { return run_process_tests(argc, argv); }
