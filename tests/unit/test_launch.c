// Ranks that are processes: what launchers say in the environment, and ranks forked here and looked after.
#include "tests/unit/processes.h"
#include <signal.h>

#define SECRET " HEDDLE_SECRET=0123456789abcdef"

// --- which rank

static int say_who(HdLaunch *l, const HdProgram *p) {
    (void)p;
    printf("%d of %d, local %d, by %s, at %s:%d\n", l->rank, l->ranks, l->local_rank, l->by ? l->by : "nobody", l->host,
           l->port);
    return 0;
}

TEST(environments) {
    static const struct { const char *environment, *text;
    } cases[] = {
        {"RANK=3 WORLD_SIZE=8 LOCAL_RANK=1 MASTER_ADDR=10.0.0.1 MASTER_PORT=2000" SECRET,
         "3 of 8, local 1, by torchrun, at 10.0.0.1:2000\n"},
        {"RANK=3 WORLD_SIZE=8 LOCAL_RANK=1 MASTER_ADDR=h MASTER_PORT=2000 TORCHELASTIC_USE_AGENT_STORE=True" SECRET,
         "3 of 8, local 1, by torchrun, at h:2001\n"},
        {"RANK=3 WORLD_SIZE=8 MASTER_PORT=2000 HEDDLE_PORT=77", "3 of 8, local 3, by torchrun, at 127.0.0.1:77\n"},
        {"OMPI_COMM_WORLD_RANK=7 OMPI_COMM_WORLD_SIZE=8 OMPI_COMM_WORLD_LOCAL_RANK=3",
         "7 of 8, local 3, by mpirun, at 127.0.0.1:29577\n"},
        {"PMI_RANK=2 PMI_SIZE=8 MPI_LOCALRANKID=2", "2 of 8, local 2, by mpiexec, at 127.0.0.1:29577\n"},
        {"SLURM_PROCID=5 SLURM_STEP_NUM_TASKS=8 SLURM_LOCALID=1 SLURM_STEP_NODELIST=gpu[07-08,12] HEDDLE_PORT=9" SECRET,
         "5 of 8, local 1, by srun, at gpu07:9\n"},
        {"SLURM_PROCID=5 SLURM_STEP_NUM_TASKS=8 SLURM_STEP_NODELIST=a1,b2 MASTER_PORT=9" SECRET,
         "5 of 8, local 5, by srun, at a1:9\n"},
        {"PMI_RANK=5 PMI_SIZE=8 SLURM_PROCID=5 SLURM_STEP_NUM_TASKS=8 SLURM_LOCALID=1 SLURM_STEP_NODELIST=a1,b2 "
         "HEDDLE_PORT=9" SECRET,
         "5 of 8, local 1, by srun, at a1:9\n"},
        {"PMI_RANK=5 PMI_SIZE=8 MPI_LOCALRANKID=1 MPI_LOCALNRANKS=4 SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=2 "
         "MASTER_ADDR=a1 HEDDLE_PORT=9" SECRET,
         "5 of 8, local 1, by mpiexec, at a1:9\n"},
        {"OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=8 OMPI_COMM_WORLD_LOCAL_RANK=0 OMPI_COMM_WORLD_LOCAL_SIZE=4",
         "error: mpirun has started 8 ranks, 4 of them here, and does not say where rank 0 is: give all of them "
         "MASTER_ADDR=HOST (mpirun -x, mpiexec -genv)\n"},
        {"OMPI_COMM_WORLD_RANK=4 OMPI_COMM_WORLD_SIZE=8 OMPI_COMM_WORLD_LOCAL_RANK=0 OMPI_COMM_WORLD_LOCAL_SIZE=4",
         ""}, // rank 0 says it
        // several hosts need a secret, of which rank 0 tells, or the word that the network is trusted
        {"RANK=0 WORLD_SIZE=8 MASTER_ADDR=h MASTER_PORT=2000",
         "error: torchrun has started ranks on several hosts, which prove to each other by a secret that they are of "
         "one run: export HEDDLE_SECRET=$(openssl rand -hex 32) before the launcher (mpirun -x HEDDLE_SECRET), or "
         "HEDDLE_TRUST_NETWORK=1 where only machines that you trust can reach h\n"},
        {"RANK=1 WORLD_SIZE=8 MASTER_ADDR=h MASTER_PORT=2000", ""},
        {"RANK=1 WORLD_SIZE=8 LOCAL_WORLD_SIZE=4 MASTER_ADDR=h MASTER_PORT=2000 HEDDLE_TRUST_NETWORK=1",
         "1 of 8, local 1, by torchrun, at h:2000\n"},
        {"RANK=1 WORLD_SIZE=8 LOCAL_WORLD_SIZE=4 MASTER_ADDR=h MASTER_PORT=2000 HEDDLE_TRUST_NETWORK=0", ""},
        {"RANK=1 WORLD_SIZE=8 LOCAL_WORLD_SIZE=4 MASTER_ADDR=h MASTER_PORT=2000 "
         "OMPI_MCA_orte_precondition_transports=da8b0e9d1f73b4e9-27d6b44267a6ff59",
         "1 of 8, local 1, by torchrun, at h:2000\n"}, // Open MPI's own secret
        {"RANK=0 WORLD_SIZE=8 MASTER_ADDR=h HEDDLE_SECRET=short",
         "error: HEDDLE_SECRET has 5 characters, at least 16 are needed: make one with `openssl rand -hex 32`\n"},
        {"RANK=1 WORLD_SIZE=8 MASTER_ADDR=h HEDDLE_SECRET=short", ""},
        // one host, whatever its name
        {"RANK=1 WORLD_SIZE=8 LOCAL_WORLD_SIZE=8 MASTER_ADDR=h MASTER_PORT=2000",
         "1 of 8, local 1, by torchrun, at 127.0.0.1:2000\n"},
        {"SLURM_PROCID=5 SLURM_STEP_NUM_TASKS=8 SLURM_STEP_NODELIST=gpu07 MASTER_PORT=9",
         "5 of 8, local 5, by srun, at 127.0.0.1:9\n"},
        {"RANK=8 WORLD_SIZE=8", "error: the environment says RANK=8: expected a number from 0 to 7\n"},
        {"RANK=x WORLD_SIZE=8", "error: the environment says RANK=x: expected a number from 0 to 7\n"},
        {"RANK=1 WORLD_SIZE=8 MASTER_PORT=70000",
         "error: the environment says MASTER_PORT=70000: expected a number from 1 to 65534\n"},
    };
    const HdProgram p = program(4, 2);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const Outcome o = started(&p, 0, cases[i].environment, say_who);
        CHECK_TEXT(o.text, cases[i].text);
        CHECK_INT(o.status, strstr(cases[i].text, " of 8, local") ? 0 : 2);
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
    // a batch script, no step
    CHECK_TEXT(started(&p, 0, "SLURM_PROCID=0 SLURM_NTASKS=4", say_who).text, "0 of 1, local 0, by nobody, at :0\n");
}

TEST(wrong_number_of_ranks) {
    const HdProgram p = program(4, 2), one = program(1, 1);
    Outcome o = started(&p, 2, "A=1", say_who);
    CHECK_TEXT(o.text, "error: the program is compiled for 8 ranks (mesh shard 4 x replicate 2), 2 were started: use "
                       "--ranks=8 on one host, mpirun -n 8, "
                       "srun -n 8, or torchrun --no-python --nproc-per-node=8\n");
    CHECK_INT(o.status, 2);
    CHECK_HAS(started(&p, 0, "A=1", say_who).text, "(mesh shard 4 x replicate 2), 1 was started: use --ranks=8");
    CHECK_HAS(started(&p, 0, "RANK=0 WORLD_SIZE=3", say_who).text, "3 were started by torchrun: use");
    CHECK_TEXT(started(&p, 0, "RANK=1 WORLD_SIZE=3", say_who).text, ""); // rank 0 says it
    CHECK_HAS(started(&one, 4, "A=1", say_who).text,
              "1 rank (mesh shard 1 x replicate 1), 4 were started: start one, or compile it "
              "with --set schedule.mesh.shard=4");
    CHECK_TEXT(started(&p, 8, "RANK=0 WORLD_SIZE=3", say_who).text,
               "error: torchrun has started 3 ranks, --ranks=8 says otherwise: leave it out\n");
}

// --- ranks started here

static int exit_by_rank(HdLaunch *l, const HdProgram *p) {
    (void)p;
    if (l->rank == 1) return 7;
    sleep(600); // until it is ended
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
    o = started(&p, 3, "HEDDLE_GRACE_SECONDS=1", exit_by_rank);
    CHECK_INT(o.status, 7);
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
    for (int i = 0; i < 6000 && !caught; i++) usleep(100000);
    usleep(300000 * (unsigned)l->rank);
    return caught == SIGTERM ? 128 + SIGTERM : 1;
}

static bool wait_for_lines(int fd, int n) {
    char text[4096];
    for (int i = 0; i < 6000; i++, usleep(100000)) {
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

int main(int argc, char **argv) { return run_process_tests(argc, argv); }
