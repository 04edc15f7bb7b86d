// Ranks that are processes: what launchers say in the environment, ranks forked here and looked after, and the world that they form
// over TCP: gathers, bytes to rank 0, ranks that give up, die, fall silent or are of another program.
#include "runtime/launch.h"
#include "tests/unit/check.h"
#include <arpa/inet.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static HdProgram program(int shard, int replicate) { return (HdProgram){.shard = shard, .replicate = replicate, .plan_hash = "0123456789abcdef"}; }

typedef int Work(HdLaunch *l, const HdProgram *p); // what a rank does -> its exit status
typedef struct { int status; double seconds; char text[4096]; } Outcome;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

// The process that a user starts, with this environment ("A=1 B=2"); what it and its ranks print is in `text`.
static pid_t begin(const HdProgram *p, int ranks, const char *environment, Work *work, int fd) {
    fflush(NULL);
    const pid_t pid = fork();
    if (pid) return pid;
    char copy[500];
    alarm(60);
    dup2(fd, 2);
    dup2(fd, 1);
    snprintf(copy, sizeof copy, "%s", environment);
    for (char *save = NULL, *v = strtok_r(copy, " ", &save); v; v = strtok_r(NULL, " ", &save)) {
        *strchr(v, '=') = 0;
        setenv(v, v + strlen(v) + 1, 1);
    }
    HdLaunch l;
    const bool go = hd_launch(p, ranks, &l);
    alarm(60);
    exit(go ? work(&l, p) : l.status);
}

static int text_file(void) {
    char path[] = "/tmp/heddle-launch-XXXXXX";
    const int fd = mkstemp(path);
    if (fd < 0) exit(1);
    unlink(path);
    fcntl(fd, F_SETFL, O_APPEND);
    return fd;
}

static void finish(Outcome *o, pid_t pid, int fd) {
    int how = 0;
    waitpid(pid, &how, 0);
    o->status = WIFEXITED(how) ? WEXITSTATUS(how) : 1000 + WTERMSIG(how);
    lseek(fd, 0, SEEK_SET);
    const ssize_t n = read(fd, o->text, sizeof o->text - 1);
    o->text[n > 0 ? n : 0] = 0;
    close(fd);
}

static Outcome started(const HdProgram *p, int ranks, const char *environment, Work *work) {
    Outcome o;
    const int fd = text_file();
    const double from = now();
    finish(&o, begin(p, ranks, environment, work, fd), fd);
    o.seconds = now() - from;
    return o;
}

#define CHECK_HAS(got, part)                                                                              \
    do {                                                                                                  \
        if (!strstr(got, part)) {                                                                         \
            fprintf(stderr, "%s:%d: failed: \"%s\" is not in: %s\n", __FILE__, __LINE__, part, got);      \
            test_failures++;                                                                              \
        }                                                                                                 \
    } while (0)

static int lines(const char *text) {
    int n = 0;
    for (; *text; text++) n += *text == '\n';
    return n;
}

// --- which rank

static int say_who(HdLaunch *l, const HdProgram *p) {
    (void)p;
    printf("%d of %d, local %d, by %s, at %s:%d\n", l->rank, l->ranks, l->local_rank, l->by ? l->by : "nobody", l->host, l->port);
    return 0;
}

TEST(environments) {
    static const struct { const char *environment, *text; } cases[] = {
        {"RANK=3 WORLD_SIZE=8 LOCAL_RANK=1 MASTER_ADDR=10.0.0.1 MASTER_PORT=2000", "3 of 8, local 1, by torchrun, at 10.0.0.1:2000\n"},
        {"RANK=3 WORLD_SIZE=8 LOCAL_RANK=1 MASTER_ADDR=h MASTER_PORT=2000 TORCHELASTIC_USE_AGENT_STORE=True", "3 of 8, local 1, by torchrun, at h:2001\n"},
        {"RANK=3 WORLD_SIZE=8 MASTER_PORT=2000 HEDDLE_PORT=77", "3 of 8, local 3, by torchrun, at 127.0.0.1:77\n"},
        {"OMPI_COMM_WORLD_RANK=7 OMPI_COMM_WORLD_SIZE=8 OMPI_COMM_WORLD_LOCAL_RANK=3", "7 of 8, local 3, by mpirun, at 127.0.0.1:29577\n"},
        {"PMI_RANK=2 PMI_SIZE=8 MPI_LOCALRANKID=2", "2 of 8, local 2, by mpiexec, at 127.0.0.1:29577\n"},
        {"SLURM_PROCID=5 SLURM_STEP_NUM_TASKS=8 SLURM_LOCALID=1 SLURM_STEP_NODELIST=gpu[07-08,12] HEDDLE_PORT=9", "5 of 8, local 1, by srun, at gpu07:9\n"},
        {"SLURM_PROCID=5 SLURM_STEP_NUM_TASKS=8 SLURM_STEP_NODELIST=a1,b2 MASTER_PORT=9", "5 of 8, local 5, by srun, at a1:9\n"},
        {"RANK=8 WORLD_SIZE=8", "error: the environment says RANK=8: expected a number from 0 to 7\n"},
        {"RANK=x WORLD_SIZE=8", "error: the environment says RANK=x: expected a number from 0 to 7\n"},
        {"RANK=1 WORLD_SIZE=8 MASTER_PORT=70000", "error: the environment says MASTER_PORT=70000: expected a number from 1 to 65534\n"},
    };
    const HdProgram p = program(4, 2);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const Outcome o = started(&p, 0, cases[i].environment, say_who);
        CHECK_TEXT(o.text, cases[i].text);
        CHECK_INT(o.status, cases[i].text[0] == 'e' ? 2 : 0);
    }
}

TEST(ports_of_jobs_differ) {
    const HdProgram p = program(2, 1);
    const Outcome a = started(&p, 0, "SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=2 SLURM_JOB_ID=1 SLURM_STEP_ID=0", say_who);
    const Outcome b = started(&p, 0, "SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=2 SLURM_JOB_ID=1 SLURM_STEP_ID=1", say_who);
    const Outcome c = started(&p, 0, "SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=2 SLURM_JOB_ID=1 SLURM_STEP_ID=0", say_who);
    CHECK(strcmp(a.text, b.text) != 0 && !strcmp(a.text, c.text));
}

TEST(one_rank_needs_nobody) {
    const HdProgram p = program(1, 1), old = {.plan_hash = ""};
    CHECK_TEXT(started(&p, 0, "A=1", say_who).text, "0 of 1, local 0, by nobody, at :0\n");
    CHECK_TEXT(started(&old, 1, "RANK=0", say_who).text, "0 of 1, local 0, by nobody, at :0\n");
    CHECK_TEXT(started(&p, 0, "RANK=0 WORLD_SIZE=1", say_who).text, "0 of 1, local 0, by torchrun, at :0\n");
    CHECK_TEXT(started(&p, 0, "SLURM_PROCID=0 SLURM_NTASKS=4", say_who).text, "0 of 1, local 0, by nobody, at :0\n"); // a batch script, no step
}

TEST(wrong_number_of_ranks) {
    const HdProgram p = program(4, 2), one = program(1, 1);
    Outcome o = started(&p, 2, "A=1", say_who);
    CHECK_TEXT(o.text, "error: the program is compiled for 8 ranks (mesh 4 x 2), 2 were started: use --ranks=8 on one host, mpirun -n 8, "
                       "srun -n 8, or torchrun --no-python --nproc-per-node=8\n");
    CHECK_INT(o.status, 2);
    CHECK_HAS(started(&p, 0, "A=1", say_who).text, "compiled for 8 ranks (mesh 4 x 2), 1 was started: use --ranks=8");
    CHECK_HAS(started(&p, 0, "RANK=0 WORLD_SIZE=3", say_who).text, "3 were started by torchrun: use");
    CHECK_TEXT(started(&p, 0, "RANK=1 WORLD_SIZE=3", say_who).text, ""); // rank 0 says it
    CHECK_HAS(started(&one, 4, "A=1", say_who).text, "compiled for 1 rank (mesh 1 x 1), 4 were started: start one, or compile it with --set shard=4");
    CHECK_TEXT(started(&p, 8, "RANK=0 WORLD_SIZE=3", say_who).text, "error: torchrun has started 3 ranks, --ranks=8 says otherwise: leave it out\n");
}

// --- ranks started here

static int exit_by_rank(HdLaunch *l, const HdProgram *p) {
    (void)p;
    if (l->rank == 1) return 7;
    sleep(30);
    return 0;
}

static int all_well(HdLaunch *l, const HdProgram *p) {
    (void)p;
    usleep(50000 * (unsigned)l->rank);
    return 0;
}

static int kill_self(HdLaunch *l, const HdProgram *p) {
    (void)p;
    if (l->rank == 2) raise(SIGKILL);
    return 0;
}

TEST(the_first_failure_ends_all) {
    const HdProgram p = program(3, 1);
    Outcome o = started(&p, 3, "A=1", all_well);
    CHECK_INT(o.status, 0);
    o = started(&p, 3, "A=1", exit_by_rank);
    CHECK_INT(o.status, 7);
    CHECK(o.seconds < 15);
    CHECK_TEXT(o.text, "");
    o = started(&p, 3, "A=1", kill_self);
    CHECK_INT(o.status, 128 + SIGKILL);
    CHECK_HAS(o.text, "error: rank 2 (process ");
    CHECK_HAS(o.text, "was ended by signal 9 (Killed)");
}

static volatile sig_atomic_t caught;
static void on_signal(int s) { caught = caught + s; }

static int wait_for_signal(HdLaunch *l, const HdProgram *p) {
    (void)p;
    signal(SIGTERM, on_signal);
    dprintf(1, "rank %d is process %d\n", l->rank, (int)getpid());
    for (int i = 0; i < 300 && !caught; i++) usleep(100000);
    usleep(300000 * (unsigned)l->rank);
    return caught == SIGTERM ? 128 + SIGTERM : 1;
}

static bool wait_for_lines(int fd, int n) {
    char text[4096];
    for (int i = 0; i < 100; i++, usleep(100000)) {
        const ssize_t got = pread(fd, text, sizeof text - 1, 0);
        text[got > 0 ? got : 0] = 0;
        if (lines(text) >= n) return true;
    }
    return false;
}

TEST(signals_are_passed_on_once) {
    const HdProgram p = program(2, 1);
    Outcome o;
    const int fd = text_file();
    const pid_t pid = begin(&p, 2, "A=1", wait_for_signal, fd);
    CHECK(wait_for_lines(fd, 2));
    kill(pid, SIGTERM);
    usleep(50000);
    kill(pid, SIGTERM);
    finish(&o, pid, fd);
    CHECK_INT(o.status, 128 + SIGTERM);
}

static bool runs(int pid) { // and does not only wait for being buried
    char path[64], text[200] = "";
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE *f = fopen(path, "r");
    const char *state = f && fgets(text, sizeof text, f) ? strrchr(text, ')') : NULL;
    if (f) fclose(f);
    return state && state[2] != 'Z' && state[2] != 'X';
}

TEST(nobody_outlives_the_first_process) {
    const HdProgram p = program(2, 1);
    Outcome o;
    const int fd = text_file();
    const pid_t pid = begin(&p, 2, "A=1", wait_for_signal, fd);
    CHECK(wait_for_lines(fd, 2));
    kill(pid, SIGKILL);
    finish(&o, pid, fd);
    usleep(300000);
    for (const char *at = o.text; (at = strstr(at, "process ")) != NULL; at++) CHECK(!runs(atoi(at + 8)));
}

// --- the world over TCP

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
    REQUIRE(hd_world_broadcast(w, &word, sizeof word) && word == 42);
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
    for (int i = 0; i < 300; i++) {
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
    return report(w);
}

static int one_dies(HdLaunch *l, const HdProgram *p) {
    HdWorld *w = hd_world_tcp(l, p);
    REQUIRE(w);
    w->at(w, "step", 17);
    usleep(600000);
    if (w->rank == 2) _exit(0); // not a failure that the first process sees
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
    usleep(600000);
    if (w->rank == 2) raise(SIGSTOP);
    return until_failure(w);
}

static int zero_stops(HdLaunch *l, const HdProgram *p) {
    HdWorld *w = hd_world_tcp(l, p);
    REQUIRE(w);
    if (w->rank == 0) raise(SIGSTOP);
    return until_failure(w);
}

TEST(failures_are_told_once) {
    const HdProgram p = program(4, 1);
    static const struct { Work *work; const char *text; } cases[] = {
        {one_gives_up, "error: rank 2: out of paper\n"},
        {zero_gives_up, ""},
        {one_dies, "error: rank 2 died at step 17\n"},
        {zero_dies, "error: rank 0 died "},
        {one_stops, "error: rank 2 does not answer (for 2 s) at step 17\n"},
        {zero_stops, "error: rank 0 does not answer (for 3 s) "},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const Outcome o = started(&p, 4, "HEDDLE_SILENCE_SECONDS=2", cases[i].work);
        CHECK_INT(o.status, 3);
        CHECK_HAS(o.text, cases[i].text);
        CHECK_INT(lines(o.text), 1);
        CHECK(o.seconds < 20);
    }
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
    CHECK_TEXT(o.text, "error: rank 2 runs another program: plan fedcba9876543210, rank 0 has plan 0123456789abcdef; start the same binary on every rank\n");
    CHECK(o.seconds < 10);
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
    const Outcome o = started(&p, 3, "HEDDLE_CONNECT_SECONDS=1", missing_rank);
    CHECK_INT(o.status, 4);
    CHECK_HAS(o.text, "error: rank 2 of 3 did not come to 127.0.0.1:");
    CHECK_INT(lines(o.text), 1);
}

static int taken_port(int *port) { // a stranger listens there
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t size = sizeof at;
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(fd, (struct sockaddr *)&at, sizeof at) || listen(fd, 4) || getsockname(fd, (struct sockaddr *)&at, &size)) exit(1);
    *port = ntohs(at.sin_port);
    return fd;
}

TEST(a_port_in_use) {
    const HdProgram p = program(2, 1);
    char environment[200], text[200];
    int port;
    const int fd = taken_port(&port);
    snprintf(environment, sizeof environment, "RANK=0 WORLD_SIZE=2 MASTER_PORT=%d", port);
    Outcome o = started(&p, 0, environment, connect_only);
    CHECK_INT(o.status, 4);
    snprintf(text, sizeof text, "error: rank 0 cannot listen at port %d: Address already in use; another run may be using it: choose one with HEDDLE_PORT (or MASTER_PORT)\n", port);
    CHECK_TEXT(o.text, text);
    snprintf(environment, sizeof environment, "HEDDLE_PORT=%d", port);
    o = started(&p, 2, environment, connect_only);
    CHECK_INT(o.status, 1);
    snprintf(text, sizeof text, "error: cannot listen at 127.0.0.1:%d: Address already in use\n", port);
    CHECK_TEXT(o.text, text);
    snprintf(environment, sizeof environment, "RANK=1 WORLD_SIZE=2 MASTER_PORT=%d HEDDLE_CONNECT_SECONDS=1", port);
    o = started(&p, 0, environment, connect_only); // the stranger accepts and says nothing
    CHECK_INT(o.status, 4);
    CHECK_HAS(o.text, "error: rank 1: no proper answer at 127.0.0.1:");
    close(fd);
    o = started(&p, 0, environment, connect_only);
    CHECK_HAS(o.text, "error: rank 1: nobody answers at 127.0.0.1:");
    CHECK_HAS(o.text, "within 1 s: rank 0 of this run is not there (MASTER_ADDR, MASTER_PORT and HEDDLE_PORT say where)");
}

static int stranger_first(HdLaunch *l, const HdProgram *p) {
    if (l->rank == 1) { // someone scans ports before rank 1 comes
        struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}, .sin_port = htons((uint16_t)l->port)};
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

int main(int argc, char **argv) {
    static const char *const names[] = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", "HEDDLE_PORT", "SLURM_JOB_ID", "SLURM_STEP_ID",
                                        "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "PMI_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_NAMESPACE"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) unsetenv(names[i]);
    setenv("HEDDLE_GRACE_SECONDS", "1.5", 1);
    return run_tests(argc, argv);
}
