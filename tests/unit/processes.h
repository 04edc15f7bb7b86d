// For tests of runs whose ranks are processes: starts one as a user would, with what its environment says, and catches
// what it prints. A program is nothing but its mesh; what a rank does is a function of the test.
#ifndef TESTS_UNIT_PROCESSES_H
#define TESTS_UNIT_PROCESSES_H
#include "runtime/world/launch.h"
#include "tests/unit/check.h"
#include <fcntl.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static HdProgram program(int shard, int replicate) {
    static HdAxis of[33][9][2]; // by mesh: they outlive the program
    HdAxis *axes = of[shard][replicate];
    axes[0] = (HdAxis){"shard", shard, true, false};
    axes[1] = (HdAxis){"replicate", replicate, true, false};
    return (HdProgram){.n_axes = 2, .axes = axes, .plan_hash = "0123456789abcdef"};
}

typedef int Work(HdLaunch *l, const HdProgram *p); // what a rank does -> its exit status
typedef struct { int status; char text[4096]; } Outcome;

// The process that a user starts, with this environment ("A=1 B=2"); what it and its ranks print is in `text`.
static pid_t begin(const HdProgram *p, int ranks, const char *environment, Work *work, int fd) {
    fflush(NULL);
    const pid_t pid = fork();
    if (pid) return pid;
    char copy[600];
    alarm(600); // a hang, also on a busy machine
    dup2(fd, 2);
    dup2(fd, 1);
    snprintf(copy, sizeof copy, "%s", environment);
    for (char *save = NULL, *v = strtok_r(copy, " ", &save); v; v = strtok_r(NULL, " ", &save)) {
        *strchr(v, '=') = 0;
        setenv(v, v + strlen(v) + 1, 1);
    }
    HdLaunch l;
    const bool go = hd_launch(p, ranks, &l);
    alarm(600);
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

static inline Outcome started(const HdProgram *p, int ranks, const char *environment, Work *work) {
    Outcome o;
    const int fd = text_file();
    finish(&o, begin(p, ranks, environment, work, fd), fd);
    return o;
}

#define CHECK_HAS(got, part)                                                                              \
    do {                                                                                                  \
        if (!strstr(got, part)) {                                                                         \
            fprintf(stderr, "%s:%d: failed: \"%s\" is not in: %s\n", __FILE__, __LINE__, part, got);      \
            test_failures++;                                                                              \
        }                                                                                                 \
    } while (0)

static inline int lines(const char *text) {
    int n = 0;
    for (; *text; text++) n += *text == '\n';
    return n;
}

static int run_process_tests(int argc, char **argv) { // of a process that no launcher has started
    static const char *const names[] = {"RANK",
                                        "WORLD_SIZE",
                                        "LOCAL_RANK",
                                        "LOCAL_WORLD_SIZE",
                                        "MASTER_ADDR",
                                        "MASTER_PORT",
                                        "HEDDLE_PORT",
                                        "HEDDLE_SECRET",
                                        "HEDDLE_TRUST_NETWORK",
                                        "OMPI_MCA_orte_precondition_transports",
                                        "SLURM_JOB_ID",
                                        "SLURM_STEP_ID",
                                        "SLURM_PROCID",
                                        "SLURM_STEP_NUM_TASKS",
                                        "PMI_RANK",
                                        "OMPI_COMM_WORLD_RANK",
                                        "PMIX_NAMESPACE"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) unsetenv(names[i]);
    setenv("HEDDLE_GRACE_SECONDS", "300", 1); // those who end by themselves may take long
    return run_tests(argc, argv);
}
#endif
