// Several ranks on pretended GPUs, each a process: usage cuda_ranks FAKES_FOLDER SCRATCH_FOLDER [ONE_GPU_FOLDER]. Tests
// collectives, captured and direct, and ranks that cannot start, die, hang or see an error: every rank exits soon, and
// one reports what happened. With a third folder, it tests only the stand-in for NCCL there, whose ranks share GPUs.
#include "runtime/world/launch.h"
#include "tests/fake_cuda/scenarios.h"
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static char out_path[512], text[8192];
#define REQUIRE(x) do { if (!(x)) { dprintf(2, "line %d: %s: %s\n", __LINE__, #x, hd_failure()); return 1; } } while (0)

// --- a small program: a step counter; a vector of PART elements per rank is summed and gathered, in each of two
// functions
enum { COUNTER = 0, WHOLE = 4096, SUM = 8192, ALL = 12288, SECOND = 16384, IN_PLACE = 20480, ARENA = 1 << 20 };
enum { PART = 5 };
static const HdSource sources[] = {{"k.cu", "bump"}};
static const HdKernel kernels[] = {{"bump", 0, 0, false}};
static const char *const streams[] = {"compute", "gather", "reduce"};
static const HdAction actions[] = {{"record", "compute", "", "", 0, 0, 0},
                                   {"wait", "reduce", "", "", 0, 0, 0},
                                   {"reduce_scatter", "reduce", "blocks.0", "gpt.hd:3", 0, 0, 0},
                                   {"record", "reduce", "", "", 0, 0, 0},
                                   {"wait", "gather", "", "", 0, 0, 0},
                                   {"all_gather", "gather", "", "gpt.hd:4", 0, 0, 0},
                                   {"launch", "compute", "head", "", 0, 0, 0},
                                   {"record", "gather", "", "", 0, 0, 0},
                                   {"wait", "compute", "", "", 0, 0, 0}};
static HdComm comms[3];
static bool of_values; // what @comm.reduce moves
static HdAxis axes[2];
extern const HdFunc test_funcs[];

static void all_of_it(HdExec *x) {
    const HdFunc *f = &test_funcs[0];
    uint64_t at = hd_device(x, COUNTER);
    hd_action(x, f, 0);
    hd_cuda_record(x, 0, 0);
    hd_action(x, f, 1);
    hd_cuda_wait(x, 2, 0);
    hd_action(x, f, 2);
    hd_cuda_reduce_scatter(x, 2, 1, HD_F32, hd_device(x, WHOLE), hd_device(x, SUM), PART);
    hd_action(x, f, 3);
    hd_cuda_record(x, 2, 1);
    hd_action(x, f, 4);
    hd_cuda_wait(x, 1, 1);
    hd_action(x, f, 5);
    hd_cuda_all_gather(x, 1, 0, HD_F32, hd_device(x, SUM), hd_device(x, ALL), PART);
    hd_cuda_all_gather(x, 1, 2, HD_F32, hd_device(x, SUM), hd_device(x, SECOND), PART); // a group of one rank
    const uint64_t own = hd_device(x, IN_PLACE) + hd_own_part(x, 0, PART * 4); // as gathers of rounded weights are
    hd_cuda_copy(x, 1, own, hd_device(x, SUM), PART * 4);
    hd_cuda_all_gather(x, 1, 0, HD_F32, own, hd_device(x, IN_PLACE), PART);
    hd_action(x, f, 6);
    hd_cuda_launch(x, 0, 0, (HdGrid){1, 1, 1, 32, 0, {0}}, 1, &(HdArg){.word = at});
    hd_action(x, f, 7);
    hd_cuda_record(x, 1, 2);
    hd_action(x, f, 8);
    hd_cuda_wait(x, 0, 2);
}
static void micro(HdExec *x) { hd_cuda_region(x, 0); }
const HdFunc test_funcs[] = {{.name = "micro_only", .run = micro, .n_actions = 9, .actions = actions}};
static const HdRegion region = {"micro_only.step", all_of_it};

static HdProgram program(int n) {
    comms[0] = (HdComm){"comm.gather", 1, 1, false, false, false};
    comms[1] = (HdComm){"comm.reduce", 1, 2, false, of_values, false};
    comms[2] = (HdComm){"comm.outer", 2, 1, false, false, false};
    axes[0] = (HdAxis){"shard", n, true, false};
    axes[1] = (HdAxis){"replicate", 1, true, false};
    return (HdProgram){.model = "Tiny",
                       .source = "tiny.hd",
                       .target = "cuda",
                       .arch = "sm_90",
                       .plan_hash = "0",
                       .model_hash = "0",
                       .report = "{}",
                       .arena_bytes = ARENA,
                       .train_step = {.loss = -1, .norm = -1, .counter = COUNTER, .random = -1},
                       .n_funcs = 1,
                       .funcs = test_funcs,
                       .backend = &hd_cuda_backend,
                       .n_axes = 2,
                       .axes = axes,
                       .n_comms = 3,
                       .comms = comms,
                       .n_sources = 1,
                       .n_kernels = 1,
                       .sources = sources,
                       .kernels = kernels,
                       .n_streams = 3,
                       .n_events = 3,
                       .streams = streams,
                       .n_regions = 1,
                       .regions = &region};
}

static const HdBackend *const b = &hd_cuda_backend;

// Runs a program and returns its exit status; the speaking rank reports a failure. `trouble` comes in step 3, on rank 1
// alone.
typedef void Trouble(void);
static bool use_graphs = true;
static int n_ranks;

static int give_up(HdWorld *w, HdExec *x) {
    if (w->rank == w->speaker) dprintf(2, "error: %s\n", hd_failure());
    w->fail(w, hd_failure());
    if (x) b->close(x);
    w->close(w);
    return 3;
}

static bool step(HdWorld *w, HdExec *x, int i) {
    float whole[8 * PART], sum[PART], all[8 * PART], same[8 * PART];
    const int n = w->ranks;
    for (int k = 0; k < n * PART; k++) whole[k] = (float)(100 * i + 10 * w->rank + k);
    if (!b->write(x, WHOLE, whole, sizeof(float) * (size_t)(n * PART)) || !b->run(x, &test_funcs[0]) ||
        !b->read(x, SUM, sum, sizeof sum) || !b->read(x, ALL, all, sizeof(float) * (size_t)(n * PART)))
        return false;
    for (int k = 0; k < n * PART; k++) {
        const float expect = (float)(n * (100 * i + k) + 10 * n * (n - 1) / 2);
        if (all[k] == expect &&
            sum[k % PART] == (float)(n * (100 * i + w->rank * PART + k % PART) + 10 * n * (n - 1) / 2))
            continue;
        hd_fail("rank %d, step %d: element %d is %g, not %g", w->rank, i, k, (double)all[k], (double)expect);
        return false;
    }
    const size_t bytes = sizeof(float) * (size_t)(n * PART);
    if (!b->read(x, IN_PLACE, same, bytes)) return false;
    if (memcmp(same, all, bytes)) return hd_fail("rank %d, step %d: in place it is another gather", w->rank, i);
    return b->read(x, SECOND, all, sizeof sum) && !memcmp(all, sum, sizeof sum);
}

static void others_wait(int i) { // for this rank, in step i: each has launched its graph, by now or long ago
    for (int k = 0; k < 60000 && count_in_log("graph launch") < n_ranks * i - 1; k++) usleep(10000);
    usleep(1500000); // and this rank has said at which step it is, as it does four times a second
}

static int train(HdLaunch *l, const HdProgram *p, Trouble *trouble) {
    HdWorld *w = hd_world_tcp(l, p);
    REQUIRE(w);
    HdExec *x = b->open(p, w, &(HdOpen){.use_graphs = use_graphs});
    if (!x) return give_up(w, x);
    for (int i = 1; i <= 4; i++) {
        w->at(w, "step", i);
        if (i == 3 && w->rank == 1 && trouble) {
            others_wait(i);
            trouble();
        }
        if (!step(w, x, i)) return give_up(w, x);
    }
    b->close(x);
    w->close(w);
    return 0;
}

static int started(int n, Trouble *trouble) { // its exit status; what it said is in `text`
    int how = 0;
    n_ranks = n;
    remove(log_path);
    fflush(NULL);
    if (fork() == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); // a scenario that is too slow leaves nothing behind
        const HdProgram p = program(n);
        HdLaunch l;
        if (!freopen(out_path, "w", stderr)) exit(9);
        setvbuf(stderr, NULL, _IONBF, 0);
        exit(hd_launch(&p, n, &l) ? train(&l, &p, trouble) : l.status);
    }
    wait(&how);
    FILE *f = fopen(out_path, "r");
    const size_t got = f ? fread(text, 1, sizeof text - 1, f) : 0;
    text[got] = 0;
    if (f) fclose(f);
    return WIFEXITED(how) ? WEXITSTATUS(how) : 1000 + WTERMSIG(how);
}

static bool said(const char *part) {
    if (strstr(text, part)) return true;
    fprintf(stderr, "the ranks said: %s\n", text);
    return false;
}

static int lines(void) {
    int n = 0;
    for (const char *c = text; *c; c++) n += *c == '\n';
    return n;
}

static void collectives(void) {
    for (int n = 1; n <= 4; n *= 2) {
        CHECK(started(n, NULL) == 0 && said(""));
        CHECK(text[0] == 0 && count_in_log("graph launch") == 4 * n && count_in_log("capture begins") == n);
        CHECK(count_in_log("comm of") == (n > 1 ? 2 * n : 0) &&
              count_in_log("comm finalized") == count_in_log("comm of"));
    }
    CHECK(count_in_log("at most 16 blocks") == 8 && count_in_log("and at least") == 0);
    of_values = true;
    CHECK(started(4, NULL) == 0 && said(""));
    CHECK(count_in_log("at most 16 blocks") == 4 && count_in_log("at most 32 blocks and at least") == 4);
    of_values = false;
    setenv("HEDDLE_NCCL_CTAS", "4", 1);
    use_graphs = false;
    CHECK(started(4, NULL) == 0 && said(""));
    CHECK(count_in_log("graph") == 0 && count_in_log("at most 4 blocks") == 8);
}

static void gpus(void) {
    setenv("FAKE_CUDA_DEVICES", "1", 1);
    CHECK(started(2, NULL) == 3 && said("error: ranks 0 and 1 are both on GPU 0000:00:00.0 of ") && lines() == 1);
    setenv("FAKE_CUDA_DEVICES", "2", 1);
    CHECK(started(3, NULL) == 3 &&
          said("error: rank 2 is number 3 of this host, which has 2 GPUs: start at most one rank a GPU\n") &&
          lines() == 1);
    setenv("FAKE_CUDA_DEVICES", "8", 1);
    setenv("CUDA_VISIBLE_DEVICES", "5", 1);
    CHECK(started(2, NULL) == 3 && said("error: ranks 0 and 1 are both on GPU 0000:05:00.0 of ") && lines() == 1);
    setenv("CUDA_VISIBLE_DEVICES", "5,2", 1);
    CHECK(started(2, NULL) == 0 && said(""));
}

static void one_cannot_open(void) { // all fail, with one message
    static const struct { const char *call, *words;
    } cases[] = {
        {"cuModuleLoadData:1", "error: cannot load the kernels of k.cu"},
        {"ncclCommInitRankConfig:1",
         "error: NCCL: cannot connect (comm.gather over 2 ranks): no error; a pretended failure\n"},
        {"ncclGetUniqueId:1", "error: NCCL: cannot start (comm.gather over 2 ranks)"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        setenv("FAKE_CUDA_FAIL", cases[i].call, 1);
        CHECK(started(2, NULL) == 3 && said(cases[i].words) && lines() == 1);
    }
}

static void die(void) { _exit(0); }
static void linger(void) {}
static void hang(void) { sleep(600); }
static void stop(void) { raise(SIGSTOP); }
static void be_impatient(const char *variable) { // with a rank that never moves again, and must be killed
    setenv(variable, "5", 1);
    setenv("HEDDLE_GRACE_SECONDS", "6", 1);
}
static void fail_captures(void) { setenv("FAKE_CUDA_FAIL", "cuGraphLaunch:1", 1); }

static void a_rank_is_gone(void) {
    CHECK(started(4, die) == 3 &&
          said("error: rank 1 died at step 3; not completed: reduce_scatter blocks.0 (comm.reduce)\n"));
    CHECK(lines() == 1 && count_in_log("comm aborted") == 2 * 3);
    be_impatient("HEDDLE_SILENCE_SECONDS");
    CHECK(started(4, stop) == 3 && said("error: rank 1 does not answer (for ") &&
          said(" s) at step 3; not completed: reduce_scatter blocks.0 (comm.reduce)\n"));
    CHECK(lines() == 1);
}

static void a_rank_hangs(void) { // and lives: nothing moves
    be_impatient("HEDDLE_STALL_SECONDS");
    CHECK(started(4, hang) == 3 && said("error: ") &&
          said("no collective has completed for 5 s at step 3 (HEDDLE_STALL_SECONDS=N waits longer)"));
    CHECK(said("; not completed: reduce_scatter blocks.0 (comm.reduce)") && lines() == 1);
}

static void a_rank_fails(void) { // it says itself what is wrong
    CHECK(
        started(4, fail_captures) == 3 &&
        said("error: rank 1: micro_only: cannot launch the graph: CUDA_ERROR_INJECTED (999: a pretended failure)\n") &&
        lines() == 1);
}

static void nccl_reports_an_error(void) {
    setenv("FAKE_NCCL_ERROR", "9", 1); // of the eight in the warm-up and the one after
    CHECK(started(2, linger) == 3 && said("NCCL: ") && said("over 2 ranks") &&
          said("remote process exited or there was a network error") && lines() == 1);
}

static void ranges(void) {
    char path[600];
    snprintf(path, sizeof path, "%s/libnvtx_injection.so", getenv("HEDDLE_CUDA_PATH"));
    setenv("NVTX_INJECTION64_PATH", path, 1);
    CHECK(started(2, NULL) == 0 && said(""));
    CHECK(count_in_log("range blocks.0 reduce_scatter") == 2 && count_in_log("range head launch") == 2 &&
          count_in_log("range ends") == 2 * 9);
}

static void skipped(void) { // to see what they cost: its own part stands for the others'
    setenv("HEDDLE_SKIP_COLLECTIVES", "1", 1);
    CHECK(started(2, NULL) == 3 && said("note: HEDDLE_SKIP_COLLECTIVES=1: the ranks do not exchange their "
                                              "parts, the numbers mean nothing\n"));
    CHECK(said(", not 210")); // whichever rank finds out first: 100 on rank 0, 110 on rank 1
    setenv("HEDDLE_SKIP_COLLECTIVES", "large", 1); // these have a few numbers each
    CHECK(started(2, NULL) == 0 && said("note: HEDDLE_SKIP_COLLECTIVES=large: "));
}

static void memory(void) {
    setenv("HEDDLE_VERBOSE", "1", 1);
    CHECK(started(2, NULL) == 0 &&
          said("device memory of rank 0: 1.0 MiB planned, 1.0 MiB used (arena 1.0, context 0.0,") &&
          said("device memory of rank 1: "));
    CHECK(said("comms: 2 communicators by NCCL 2.28.9, rank 0 of 2"));
}

static const char sharing[] = "note: HEDDLE_SHARE_GPUS=1: ranks may share a GPU, for tests; NCCL itself refuses that, "
                              "tests/gpu/one_gpu has a stand-in that does not\n";

static void one_gpu(void) { // for 2, 4 and 8 ranks; three GPUs for four
    setenv("HEDDLE_SHARE_GPUS", "1", 1);
    for (int n = 2; n <= 8; n *= 2) {
        setenv("FAKE_CUDA_DEVICES", n == 4 ? "3" : "1", 1);
        CHECK(started(n, NULL) == 0 && said(sharing) && lines() == 1);
        CHECK(count_in_log("graph launch") == 4 * n && count_in_log("capture begins") == n);
    }
    use_graphs = false;
    CHECK(started(4, NULL) == 0 && said(sharing) && lines() == 1 && count_in_log("graph") == 0);
}

static void one_gpu_failures(void) { // the streams of those that are left are let go
    setenv("FAKE_CUDA_DEVICES", "1", 1);
    setenv("HEDDLE_SHARE_GPUS", "1", 1);
    CHECK(started(4, die) == 3 &&
          said("error: rank 1 died at step 3; not completed: reduce_scatter blocks.0 (comm.reduce)\n"));
    CHECK(lines() == 2);
    be_impatient("HEDDLE_STALL_SECONDS");
    CHECK(started(4, hang) == 3 && said("no collective has completed for 5 s at step 3") && lines() == 2);
}

static const Scenario with_nccl[] = {SCENARIO(collectives),
                                     SCENARIO(gpus),
                                     SCENARIO(one_cannot_open),
                                     SCENARIO(a_rank_is_gone),
                                     SCENARIO(a_rank_hangs),
                                     SCENARIO(a_rank_fails),
                                     SCENARIO(nccl_reports_an_error),
                                     SCENARIO(ranges),
                                     SCENARIO(skipped),
                                     SCENARIO(memory)};
static const Scenario with_stand_in[] = {SCENARIO(one_gpu), SCENARIO(one_gpu_failures)};

int main(int argc, char **argv) {
    char path[1024];
    if (argc != 3 && argc != 4) return 2;
    snprintf(path, sizeof path, "%s%s%s", argc > 3 ? argv[3] : "", argc > 3 ? ":" : "", argv[1]);
    setenv("HEDDLE_CUDA_PATH", path, 1);
    setenv("FAKE_CUDA_DEVICES", "8", 1);
    setenv("HEDDLE_CACHE", "off", 1);
    setenv("HEDDLE_GRACE_SECONDS", "300", 1); // on a busy machine they need long to say what happened
    setenv("HEDDLE_SILENCE_SECONDS", "300", 1);
    open_log(argv[2], "cuda_ranks");
    snprintf(out_path, sizeof out_path, "%s/cuda_ranks.out", argv[2]);
    if (argc > 3) return run_scenarios(with_stand_in, sizeof with_stand_in / sizeof *with_stand_in, NULL);
    return run_scenarios(with_nccl, sizeof with_nccl / sizeof *with_nccl, NULL);
}
