// The world that processes form over TCP: gathers, bytes to rank 0, ranks that give up, die, fall silent or are of
// another program, and worlds that do not come about.
#include "tests/unit/processes.h"
#include <arpa/inet.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>

#define SECRET "HEDDLE_SECRET=0123456789abcdef" // then ranks of one host meet at a port, else at a local socket
#define REQUIRE(x)                                                        \
    do {                                                                  \
        if (!(x)) {                                                       \
            dprintf(2, "rank %d: line %d: %s\n", l->rank, __LINE__, hd_failure()); \
            return 1;                                                     \
        }                                                                 \
    } while (0)

static int talk(HdLaunch *l, const HdProgram *p) {
    HdWorld *w = hd_world_tcp(l, p);
    REQUIRE(w && w->rank == l->rank && w->ranks == l->ranks && w->local_rank == l->rank);
    int all[8], word = 0;
    for (int i = 0; i < 200; i++) {
        const int mine = 1000 * i + w->rank;
        REQUIRE(w->gather(w, &mine, sizeof mine, all));
        for (int r = 0; r < w->ranks; r++) REQUIRE(all[r] == 1000 * i + r);
    }
    REQUIRE(hd_world_barrier(w));
    word = w->rank == 0 ? 42 : 0;
    REQUIRE(w->share(w, &word, sizeof word) && word == 42);
    REQUIRE(hd_world_most(w, 10 + w->rank) == 9 + w->ranks);
    hd_fail("only rank 1 fails");
    const bool ok = hd_world_agree(w, w->rank != 1);
    REQUIRE(ok == (w->ranks < 2) && (ok || !strcmp(hd_failure(), "only rank 1 fails")));
    const size_t big = 24u << 20; // more than any buffer in between
    unsigned char *data = malloc(big);
    if (w->rank) {
        for (size_t i = 0; i < big; i++) data[i] = (unsigned char)(i * 7 + (size_t)w->rank);
        REQUIRE(w->send(w, data, big));
    } else {
        for (int r = w->ranks - 1; r > 0; r--) { // the last first: the others have to wait
            REQUIRE(w->receive(w, r, data, 1000) && w->receive(w, r, data + 1000, big - 1000));
            for (size_t i = 0; i < big; i++) REQUIRE(data[i] == (unsigned char)(i * 7 + (size_t)r));
        }
    }
    free(data);
    REQUIRE(w->alive(w));
    w->close(w);
    return 0;
}

TEST(ranks_talk) {
    for (int n = 2; n <= 8; n += 2) {
        const HdProgram p = program(n, 1);
        const Outcome o = started(&p, n, "A=1", talk);
        CHECK_INT(o.status, 0);
        CHECK_TEXT(o.text, "");
    }
}

static int report(HdWorld *w) { // as a program does: the speaker tells the failure
    if (w->rank == w->speaker) dprintf(2, "error: %s\n", hd_failure());
    w->close(w);
    return 3;
}

static int until_failure(HdWorld *w) {
    for (int i = 0; i < 12000; i++) {
        w->at(w, "step", i);
        if (!hd_world_barrier(w)) return report(w);
        usleep(50000);
    }
    return 0;
}

static int one_gives_up(HdLaunch *l, const HdProgram *p) {
    HdWorld *w = hd_world_tcp(l, p);
    REQUIRE(w);
    if (w->rank != 2) return until_failure(w);
    usleep(300000);
    w->fail(w, "out of paper");
    hd_fail("out of paper");
    return report(w);
}

static int zero_gives_up(HdLaunch *l, const HdProgram *p) {
    HdWorld *w = hd_world_tcp(l, p);
    REQUIRE(w);
    if (w->rank) {
        while (w->alive(w)) usleep(10000); // what a target does while it waits
        REQUIRE(!strcmp(hd_failure(), "rank 0: out of paper"));
        return report(w);
    }
    usleep(300000);
    w->fail(w, "out of paper");
    hd_fail("out of paper");
    return report(w);
}

static int one_dies(HdLaunch *l, const HdProgram *p) {
    HdWorld *w = hd_world_tcp(l, p);
    REQUIRE(w);
    w->at(w, "step", 17);
    // tells the step, as a beat does; of those that are slow to leave it, one may be gone again
    const bool met = hd_world_barrier(w);
    if (w->rank == 2) _exit(0);           // not a failure that the first process sees
    if (!met) return report(w);
    return until_failure(w);
}

static int zero_dies(HdLaunch *l, const HdProgram *p) {
    HdWorld *w = hd_world_tcp(l, p);
    REQUIRE(w);
    if (w->rank == 0) _exit(0);
    return until_failure(w);
}

static int one_stops(HdLaunch *l, const HdProgram *p) {
    HdWorld *w = hd_world_tcp(l, p);
    REQUIRE(w);
    w->at(w, "step", 17);
    REQUIRE(hd_world_barrier(w)); // tells the step
    if (w->rank == 2) raise(SIGSTOP);
    return until_failure(w);
}

static int zero_stops(HdLaunch *l, const HdProgram *p) {
    HdWorld *w = hd_world_tcp(l, p);
    REQUIRE(w);
    if (w->rank == 0) raise(SIGSTOP);
    return until_failure(w);
}

// All at once, as they mostly wait. How long a silent rank has been silent depends on how busy the machine is. Where
// none is silent, none may seem so.
#define PATIENT "HEDDLE_SILENCE_SECONDS=300"
#define IMPATIENT "HEDDLE_SILENCE_SECONDS=4 HEDDLE_GRACE_SECONDS=6" // the stopped rank is then killed
TEST(failures_are_told_once) {
    const HdProgram p = program(4, 1);
    static const struct { Work *work; const char *environment, *text, *end; } cases[] = {
        {one_gives_up, PATIENT, "error: rank 2: out of paper", "\n"},
        {zero_gives_up, PATIENT, "error: out of paper", "\n"},
        {one_dies, PATIENT, "error: rank 2 died at step 17", "\n"},
        {zero_dies, PATIENT, "error: rank 0 died ", "\n"},
        {one_stops, IMPATIENT, "error: rank 2 does not answer (for ", " s) at step 17\n"},
        {zero_stops, IMPATIENT, "error: rank 0 does not answer (for ", "\n"},
    };
    enum { CASES = sizeof cases / sizeof *cases };
    pid_t pid[CASES];
    int fd[CASES];
    for (int i = 0; i < CASES; i++)
        pid[i] = begin(&p, 4, cases[i].environment, cases[i].work, fd[i] = text_file());
    for (int i = 0; i < CASES; i++) {
        Outcome o;
        finish(&o, pid[i], fd[i]);
        CHECK_INT(o.status, 3);
        CHECK_HAS(o.text, cases[i].text);
        CHECK_HAS(o.text, cases[i].end);
        CHECK_INT(lines(o.text), 1);
    }
}

// The work that the others had under way: nothing of their own. On rank 0, which says it, the first thread is then in
// the gather, where alone it sleeps after `entering`.
static atomic_bool entering;

static bool sleeps(void) { // the first thread of this process
    char path[64], text[300] = "";
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", (int)getpid());
    FILE *f = fopen(path, "r");
    const char *state = f && fgets(text, sizeof text, f) ? strrchr(text, ')') : NULL;
    if (f) fclose(f);
    return state && state[2] == 'S';
}

static void no_collective(void *of, char *out, size_t size) {
    (void)of;
    snprintf(out, size, "%s", "");
}

static void no_collective_in_a_gather(void *of, char *out, size_t size) {
    while (!entering || !sleeps()) usleep(1000);
    no_collective(of, out, size);
}

static int one_dies_before(HdLaunch *l, const HdProgram *p, bool gathers) {
    HdWorld *w = hd_world_tcp(l, p);
    REQUIRE(w);
    w->at(w, "step", 17);
    w->waiting(w, gathers && w->rank == 0 ? no_collective_in_a_gather : no_collective, NULL);
    REQUIRE(hd_world_barrier(w)); // all know that all are at step 17
    if (w->rank == 2) _exit(0);
    entering = true;
    if (gathers) return hd_world_barrier(w) ? 1 : report(w);
    while (w->alive(w)) usleep(10000);
    return report(w);
}

static int one_misses_an_agreement(HdLaunch *l, const HdProgram *p) { return one_dies_before(l, p, true); }
static int nobody_waits_for_it(HdLaunch *l, const HdProgram *p) { return one_dies_before(l, p, false); }

TEST(a_lost_rank_is_told_with_what_misses_it) {
    const HdProgram p = program(4, 1);
    Outcome o = started(&p, 4, "A=1", one_misses_an_agreement);
    CHECK_TEXT(o.text, "error: rank 2 died at step 17; not completed: the ranks' agreement at step 17\n");
    CHECK_INT(o.status, 3);
    o = started(&p, 4, "A=1", nobody_waits_for_it);
    CHECK_TEXT(o.text, "error: rank 2 died at step 17; nothing was under way on rank 0\n");
    CHECK_INT(o.status, 3);
}

static int leave_early(HdLaunch *l, const HdProgram *p) {
    HdWorld *w = hd_world_tcp(l, p);
    REQUIRE(w && hd_world_barrier(w));
    if (w->rank == 1) {
        usleep(1500000);
        REQUIRE(w->alive(w)); // that the others are done is no failure
    }
    w->close(w);
    return 0;
}

TEST(leaving_is_no_failure) {
    const HdProgram p = program(3, 1);
    const Outcome o = started(&p, 3, "A=1", leave_early);
    CHECK_INT(o.status, 0);
    CHECK_TEXT(o.text, "");
}

// The connection of rank 2 breaks off behind its last bytes, without a word of leaving.
static int break_off(HdLaunch *l, const HdProgram *p) {
    HdWorld *w = hd_world_tcp(l, p);
    char text[100] = "the last words";
    REQUIRE(w && hd_world_barrier(w));
    if (w->rank == 2) {
        REQUIRE(w->send(w, text, sizeof text));
        _exit(0);
    }
    while (w->alive(w)) usleep(10000);
    if (w->rank == 0) {
        text[0] = 0;
        REQUIRE(w->receive(w, 2, text, sizeof text) && !strcmp(text, "the last words"));
    }
    return hd_world_barrier(w) ? 1 : report(w);
}

TEST(what_came_before_a_failure_counts) {
    const HdProgram p = program(3, 1);
    const Outcome o = started(&p, 3, "A=1", break_off);
    CHECK_INT(o.status, 3);
    CHECK_HAS(o.text, "error: rank 2 died ");
    CHECK_INT(lines(o.text), 1);
}

// --- worlds that do not come about

static int connect_only(HdLaunch *l, const HdProgram *p) {
    HdWorld *w = hd_world_tcp(l, p);
    if (!w && hd_launch_speaks(l)) dprintf(2, "error: %s\n", hd_failure());
    if (w) w->close(w);
    return w ? 0 : 4;
}

static int other_hash(HdLaunch *l, const HdProgram *p) {
    HdProgram other = *p;
    if (l->rank == 2) other.plan_hash = "fedcba9876543210";
    return connect_only(l, &other);
}

TEST(another_program_is_refused) {
    const HdProgram p = program(4, 1);
    const Outcome o = started(&p, 4, "A=1", other_hash);
    CHECK_INT(o.status, 4);
    CHECK_TEXT(o.text, "error: rank 2 runs another program: plan fedcba9876543210, rank 0 has plan 0123456789abcdef; "
                       "start the same binary on every rank\n");
}

static int missing_rank(HdLaunch *l, const HdProgram *p) {
    if (l->rank == 2) {
        sleep(3);
        return 0;
    }
    return connect_only(l, p);
}

TEST(ranks_that_do_not_come) {
    const HdProgram p = program(3, 1);
    const Outcome o = started(&p, 3, "HEDDLE_CONNECT_SECONDS=5", missing_rank);
    CHECK_INT(o.status, 4);
    CHECK_HAS(o.text, "error: rank 2 of 3 did not come to 127.0.0.1:");
    CHECK_INT(lines(o.text), 1);
}

static int taken_port(int *port) { // a stranger listens there
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t size = sizeof at;
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(fd, (struct sockaddr *)&at, sizeof at) || listen(fd, 4) || getsockname(fd, (struct sockaddr *)&at, &size))
        exit(1);
    *port = ntohs(at.sin_port);
    return fd;
}

TEST(a_port_in_use) {
    const HdProgram p = program(2, 1);
    char environment[200], text[200];
    int port;
    const int fd = taken_port(&port);
    snprintf(environment, sizeof environment, "RANK=0 WORLD_SIZE=2 MASTER_PORT=%d " SECRET, port);
    Outcome o = started(&p, 0, environment, connect_only);
    CHECK_INT(o.status, 4);
    snprintf(text, sizeof text,
             "error: rank 0 cannot listen at 127.0.0.1:%d: Address already in use; another run may be using it: choose "
             "a port with HEDDLE_PORT (or MASTER_PORT)\n",
             port);
    CHECK_TEXT(o.text, text);
    snprintf(environment, sizeof environment, "HEDDLE_PORT=%d", port);
    o = started(&p, 2, environment, connect_only);
    CHECK_INT(o.status, 1);
    snprintf(text, sizeof text,
             "error: cannot listen at 127.0.0.1:%d: Address already in use; leave HEDDLE_PORT out, or choose another\n",
             port);
    CHECK_TEXT(o.text, text);
    close(fd);
}

TEST(a_local_socket_in_use) {
    const HdProgram p = program(2, 1);
    char environment[200], text[300];
    int port;
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    const int number = taken_port(&port), fd = socket(AF_UNIX, SOCK_STREAM, 0); // a number that no other test takes
    const int n = snprintf(at.sun_path + 1, sizeof at.sun_path - 1, "heddle-%u-%d", (unsigned)geteuid(), port);
    CHECK(!bind(fd, (struct sockaddr *)&at, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n)));
    CHECK(!listen(fd, 4));
    snprintf(environment, sizeof environment, "RANK=0 WORLD_SIZE=2 MASTER_PORT=%d HEDDLE_CONNECT_SECONDS=1", port);
    Outcome o = started(&p, 0, environment, connect_only);
    CHECK_INT(o.status, 4);
    snprintf(text, sizeof text,
             "error: rank 0 cannot listen at the local socket heddle-%u-%d: Address already in use; another run may be "
             "using it: choose a port with HEDDLE_PORT (or MASTER_PORT)\n",
             (unsigned)geteuid(), port);
    CHECK_TEXT(o.text, text);
    environment[5] = '1'; // and what listens there says nothing to rank 1
    o = started(&p, 0, environment, connect_only);
    CHECK_INT(o.status, 4);
    snprintf(text, sizeof text,
             "error: rank 1: no proper answer at the local socket heddle-%u-%d within 1 s: rank 0 of this run is not "
             "there", (unsigned)geteuid(), port);
    CHECK_HAS(o.text, text);
    close(fd);
    close(number);
}

static int no_sockets(HdLaunch *l, const HdProgram *p) {
    struct rlimit was;
    getrlimit(RLIMIT_NOFILE, &was);
    setrlimit(RLIMIT_NOFILE, &(struct rlimit){3, was.rlim_max});
    const int status = connect_only(l, p);
    setrlimit(RLIMIT_NOFILE, &was); // a sanitizer opens files at the end
    return status;
}

// Rank 1 without a rank 0: a stranger accepts and says nothing; nobody listens; it gets no socket. All at once, as they
// mostly wait.
TEST(nobody_is_rank_zero) {
    const HdProgram p = program(2, 1);
    static const struct { Work *work; const char *what, *why;
    } cases[] = {{connect_only, "no proper answer", ""},
                 {connect_only, "nobody answers", " (Connection refused)"},
                 {no_sockets, "nobody answers", " (Too many open files)"}};
    enum { CASES = sizeof cases / sizeof *cases };
    char environment[200], text[400];
    int port[CASES], fd[CASES];
    pid_t pid[CASES];
    const int stranger = taken_port(&port[0]);
    for (int i = 1; i < CASES; i++) close(taken_port(&port[i]));
    for (int i = 0; i < CASES; i++) {
        snprintf(environment, sizeof environment,
                 "RANK=1 WORLD_SIZE=2 MASTER_PORT=%d HEDDLE_CONNECT_SECONDS=1 " SECRET, port[i]);
        pid[i] = begin(&p, 0, environment, cases[i].work, fd[i] = text_file());
    }
    for (int i = 0; i < CASES; i++) {
        Outcome o;
        finish(&o, pid[i], fd[i]);
        CHECK_INT(o.status, 4);
        snprintf(text, sizeof text,
                 "error: rank 1: %s at 127.0.0.1:%d within 1 s%s: rank 0 of this run is not there (MASTER_ADDR, "
                 "MASTER_PORT and HEDDLE_PORT say where%s)\n",
                 cases[i].what, port[i], cases[i].why,
                 i ? "" : "; HEDDLE_SECRET must be the same on every rank");
        CHECK_TEXT(o.text, text);
    }
    close(stranger);
}

static int stranger_first(HdLaunch *l, const HdProgram *p) {
    if (l->rank == 1) { // someone scans ports before rank 1 comes
        struct sockaddr_in at = {
            .sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}, .sin_port = htons((uint16_t)l->port)};
        const int fd = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(fd, (struct sockaddr *)&at, sizeof at) || write(fd, "GET / HTTP/1.1\r\n\r\n", 18) != 18) return 1;
        close(fd);
    }
    return talk(l, p);
}

TEST(strangers_are_let_go) {
    const HdProgram p = program(2, 1);
    const Outcome o = started(&p, 2, "A=1", stranger_first);
    CHECK_INT(o.status, 0);
    CHECK_TEXT(o.text, "");
}

int main(int argc, char **argv) { return run_process_tests(argc, argv); }
