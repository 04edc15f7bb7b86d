// The host executor with several streams and ranks, driven by programs written here: events, collectives bit for bit,
// and what happens when ranks disagree, fail or leave. Nothing may hang: an alarm ends the test.
#include "runtime/heddle.h"
#include "runtime/world/mesh.h"
#include "runtime/heddle_host.h"
#include "runtime/world/world.h"
#include "tests/unit/check.h"
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

enum {
    MAX_RANKS = 8,
    MAX_COUNT = 9000,
    SLOT = 8 * MAX_COUNT * MAX_RANKS,
    PART = 0,
    WHOLE = SLOT,
    GATHERED = 2 * SLOT,
    REDUCED = 3 * SLOT,
    NUMBERS = 4 * SLOT,
    ARENA = 4 * SLOT + 64 * 8
};

static const HdComm comms[] = {
    {"shards", 1, 1, false, false, false}, {"replicas", 2, 2, false, false, false},
    {"all", 3, 1, false, false, false}};
static const char *const streams[] = {"compute", "gather", "reduce"};
static const HdFunc funcs[4];

// --- the functions: what the ranks of a run are asked to do

static struct { int comm; HdDtype dtype; int64_t count; } collective; // of the run at hand
static size_t size_of(HdDtype d) { return d == HD_F64 ? 8 : d == HD_F32 ? 4 : 2; }

static void both_gather(HdExec *x) {
    char *const base = hd_base(x);
    hd_action(x, &funcs[0], 0);
    hd_host_all_gather(x, collective.comm, base + PART, base + GATHERED,
                       (size_t)collective.count * size_of(collective.dtype));
    hd_action(x, &funcs[0], 1);
    hd_host_record(x, 0);
}

static void both_reduce(HdExec *x) {
    char *const base = hd_base(x);
    hd_action(x, &funcs[0], 2);
    hd_host_wait(x, 0);
    hd_action(x, &funcs[0], 3);
    hd_host_reduce_scatter(x, collective.comm, collective.dtype, base + WHOLE, base + REDUCED, collective.count);
}

// Three streams that hand a number round, one step each: add 1, double, add 3.
static void ring_compute(HdExec *x) {
    volatile double *n = (double *)(void *)(hd_base(x) + NUMBERS);
    hd_action(x, &funcs[1], 0);
    n[1] = n[0] + 1;
    hd_action(x, &funcs[1], 1);
    hd_host_record(x, 2);
    hd_action(x, &funcs[1], 4);
    hd_host_wait(x, 1);
    hd_action(x, &funcs[1], 5);
    n[0] = n[3];
}

static void ring_gather(HdExec *x) {
    volatile double *n = (double *)(void *)(hd_base(x) + NUMBERS);
    hd_action(x, &funcs[1], 2);
    hd_host_wait(x, 2);
    hd_action(x, &funcs[1], 2);
    n[2] = 2 * n[1];
    hd_action(x, &funcs[1], 2);
    hd_host_record(x, 0);
}

static void ring_reduce(HdExec *x) {
    volatile double *n = (double *)(void *)(hd_base(x) + NUMBERS);
    hd_action(x, &funcs[1], 3);
    hd_host_wait(x, 0);
    hd_action(x, &funcs[1], 3);
    n[3] = n[2] + 3;
    hd_action(x, &funcs[1], 3);
    hd_host_record(x, 1);
}

static void other_gather(HdExec *x) { // meets those of `both` in one communicator, for something else
    char *const base = hd_base(x);
    hd_action(x, &funcs[2], 0);
    hd_host_reduce_scatter(x, collective.comm, HD_F32, base + WHOLE, base + REDUCED, 5);
}

static void most_gather(HdExec *x) {
    hd_action(x, &funcs[3], 0);
    hd_host_all_max(x, collective.comm, collective.count, (float *)(void *)(hd_base(x) + PART));
}

static const HdAction both_actions[] = {{"all_gather", "gather", "blocks.0", "a.hd:1", 0, 0, 0},
                                        {"record", "gather", "", "", 0, 0, 0},
                                        {"wait", "reduce", "", "", 0, 0, 0},
                                        {"reduce_scatter", "reduce", "blocks.1", "a.hd:2", 0, 0, 0}};
static const HdAction ring_actions[] = {{"launch", "compute", "", "", 0, 0, 0}, {"record", "compute", "", "", 0, 0, 0},
                                        {"launch", "gather", "", "", 0, 0, 0},  {"launch", "reduce", "", "", 0, 0, 0},
                                        {"wait", "compute", "", "", 0, 0, 0},   {"launch", "compute", "", "", 0, 0, 0}};
static const HdAction other_actions[] = {{"reduce_scatter", "gather", "blocks.2", "a.hd:3", 0, 0, 0}};
static const HdAction most_actions[] = {{"all_max", "gather", "blocks.3", "a.hd:4", 0, 0, 0}};
static void (*const most_streams[])(HdExec *) = {NULL, most_gather, NULL};
static void (*const both_streams[])(HdExec *) = {NULL, both_gather, both_reduce};
static void (*const ring_streams[])(HdExec *) = {ring_compute, ring_gather, ring_reduce};
static void (*const other_streams[])(HdExec *) = {NULL, other_gather, NULL};
static const HdFunc funcs[] = {
    {.name = "both", .n_actions = 4, .actions = both_actions, .run_stream = both_streams},
    {.name = "micro_only", .n_actions = 6, .actions = ring_actions, .run_stream = ring_streams},
    {.name = "other", .n_actions = 1, .actions = other_actions, .run_stream = other_streams},
    {.name = "most", .n_actions = 1, .actions = most_actions, .run_stream = most_streams}};

// --- ranks as threads

typedef struct Rank Rank;
typedef void Job(Rank *r);
struct Rank {
    HdProgram program;
    HdWorld *world;
    HdExec *x;
    Job *job;
    const char *profile;
    int failures;
    char why[1200];
};

static bool run(Rank *r, int func) {
    const bool ok = hd_host_backend.run(r->x, &funcs[func]);
    if (!ok) snprintf(r->why, sizeof r->why, "%s", hd_failure());
    return ok;
}

static void *rank_main(void *p) {
    Rank *r = p;
    r->x = hd_host_backend.open(&r->program, r->world, &(HdOpen){.profile = r->profile});
    if (r->x) r->job(r);
    else snprintf(r->why, sizeof r->why, "%s", hd_failure());
    hd_host_backend.close(r->x);
    r->world->close(r->world);
    return NULL;
}

// Opens shard x replicate ranks, does the job on each, and closes them.
static void on_ranks(Rank *r, int shard, int replicate, Job *job, const char *profile) {
    const int n = shard * replicate;
    pthread_t thread[MAX_RANKS];
    const HdAxis axes[] = {{"shard", shard, true, false}, {"replicate", replicate, true, false}};
    HdWorld *alone = hd_world_alone(), *w = n > 1 ? hd_world_threads(n) : alone;
    CHECK(w != NULL);
    for (int i = 0; i < n; i++) {
        r[i] = (Rank){.world = w + i, .job = job, .profile = profile};
        r[i].program = (HdProgram){.arena_bytes = ARENA,
                                   .n_axes = 2,
                                   .axes = axes,
                                   .n_comms = 3,
                                   .comms = comms,
                                   .n_funcs = 4,
                                   .funcs = funcs,
                                   .backend = &hd_host_backend,
                                   .n_streams = 3,
                                   .n_events = 3,
                                   .streams = streams};
        CHECK(!pthread_create(&thread[i], NULL, rank_main, &r[i]));
    }
    for (int i = 0; i < n; i++) pthread_join(thread[i], NULL);
    for (int i = 0; i < n; i++) test_failures += r[i].failures;
}

// --- collectives bit for bit

static uint32_t noise(uint32_t *state) { return *state = *state * 1664525u + 1013904223u; }

static double value_of(HdDtype d, const void *at, int64_t i) {
    if (d == HD_F64) return ((const double *)at)[i];
    if (d == HD_F32) return (double)((const float *)at)[i];
    return (double)(d == HD_BF16 ? hd_from_bf16 : hd_from_f16)(((const uint16_t *)at)[i]);
}

static void put(HdDtype d, void *at, int64_t i, double v) {
    if (d == HD_F64) ((double *)at)[i] = v;
    else if (d == HD_F32) ((float *)at)[i] = (float)v;
    else ((uint16_t *)at)[i] = (d == HD_BF16 ? hd_to_bf16 : hd_to_f16)((float)v);
}

// The numbers of rank `rank`: numbers whose sums need rounding.
static void *brings(int rank, int what, int64_t count) {
    uint32_t state = (uint32_t)(rank * 2 + what) * 2654435761u + 7u;
    char *data = calloc((size_t)count + 1, 8);
    for (int64_t i = 0; data && i < count; i++)
        put(collective.dtype, data, i, ((double)noise(&state) - 2147483648.0) / 1e8 * (noise(&state) >> 28 ? 1 : 1e-4));
    return data;
}

static void fill(Rank *r, int64_t offset, int what, int64_t count) {
    void *data = brings(r->world->rank, what, count);
    if (!data || !hd_host_backend.write(r->x, offset, data, (size_t)count * size_of(collective.dtype))) r->failures++;
    free(data);
}

// Rank i of this rank's group, as a rank of the run.
static int member(const Rank *r, int i) {
    const int rank = r->world->rank, shard = hd_group_ranks(&r->program, 1);
    return collective.comm == 0 ? rank - rank % shard + i : collective.comm == 1 ? rank % shard + i * shard : i;
}

static void expect_gathered(Rank *r, int n) {
    const size_t bytes = (size_t)collective.count * size_of(collective.dtype);
    char *got = malloc(bytes + 1);
    for (int i = 0; i < n; i++) {
        void *want = brings(member(r, i), 0, collective.count);
        if (!hd_host_backend.read(r->x, GATHERED + (int64_t)((size_t)i * bytes), got, bytes) ||
            memcmp(got, want, bytes))
            r->failures++;
        free(want);
    }
    free(got);
}

static void expect_reduced(Rank *r, int n, int mine) {
    const HdDtype d = collective.dtype;
    const int64_t count = collective.count;
    char *got = malloc((size_t)count * 8 + 1), *want = calloc((size_t)count + 1, 8);
    for (int k = 1; k <= n; k++) {
        void *theirs = brings(member(r, (mine + k) % n), 1, count * n);
        for (int64_t i = 0; i < count; i++) { // in f64 the sum of two of these is exact, so there is one rounding
            const double v = value_of(d, theirs, mine * count + i);
            put(d, want, i,
                k == 1        ? v
                : d == HD_F64 ? value_of(d, want, i) + v
                              : (double)((float)value_of(d, want, i) + (float)v));
        }
        free(theirs);
    }
    if (!hd_host_backend.read(r->x, REDUCED, got, (size_t)count * size_of(d)) ||
        memcmp(got, want, (size_t)count * size_of(d)))
        r->failures++;
    free(got);
    free(want);
}

static void collectives(Rank *r) {
    const HdProgram *p = &r->program;
    const int rank = r->world->rank, n = hd_group_ranks(p, p->comms[collective.comm].over);
    const int shard = hd_group_ranks(p, 1);
    const int mine = collective.comm == 0 ? rank % shard : collective.comm == 1 ? rank / shard : rank;
    fill(r, PART, 0, collective.count);
    fill(r, WHOLE, 1, collective.count * n);
    for (int again = 0; again < 3; again++) {
        if (!run(r, 0)) r->failures++;
        expect_gathered(r, n);
        expect_reduced(r, n, mine);
    }
}

static void expect_collectives(int shard, int replicate, int comm) {
    static const HdDtype dtypes[] = {HD_F32, HD_BF16, HD_F16, HD_F64};
    static const int64_t counts[] = {0, 1, 7, 4097, MAX_COUNT};
    Rank r[MAX_RANKS];
    for (int d = 0; d < 4; d++)
        for (int c = 0; c < 5; c++) {
            const int before = test_failures;
            collective.comm = comm;
            collective.dtype = dtypes[d];
            collective.count = counts[c];
            on_ranks(r, shard, replicate, collectives, NULL);
            if (test_failures > before)
                fprintf(stderr, "shard %d, replicate %d, comm %s, dtype %d, %d elements: %s\n", shard, replicate,
                        comms[comm].name, d, (int)counts[c], r[0].why);
        }
}

TEST(collectives_of_one_axis) {
    static const int ranks[] = {1, 2, 3, 4, 8};
    for (int i = 0; i < 5; i++) expect_collectives(ranks[i], 1, 0);
}

TEST(collectives_of_two_axes) {
    for (int comm = 0; comm < 3; comm++) {
        expect_collectives(2, 2, comm);
        expect_collectives(3, 2, comm);
        expect_collectives(1, 4, comm);
    }
}

// Numbers that are not negative: zeros, an infinity, and a NaN of one rank, in more tiles than one.
static float compared(int rank, int64_t i) {
    if (i % 7 == 0) return 0;
    if (i % 11 == 0) return rank == 1 ? __builtin_nanf("") : rank ? 3e38f : 1;
    return i % 13 == 0 && rank == 0 ? __builtin_inff() : (float)((i * 31 + rank * 17) % 101) * 0x1p-120f;
}

static void largest(Rank *r) {
    const int n = hd_group_ranks(&r->program, comms[collective.comm].over);
    float *x = malloc((size_t)collective.count * sizeof *x);
    for (int again = 0; again < 2; again++) {
        for (int64_t i = 0; i < collective.count; i++) x[i] = compared(r->world->rank, i);
        const size_t bytes = (size_t)collective.count * sizeof *x;
        bool ok = hd_host_backend.write(r->x, PART, x, bytes) && run(r, 3);
        ok = ok && hd_host_backend.read(r->x, PART, x, bytes);
        for (int64_t i = 0; ok && i < collective.count; i++) {
            float want = 0;
            for (int k = 0; k < n; k++) {
                const float y = compared(member(r, k), i);
                if (!(y <= want) && want == want) want = y; // a NaN stays
            }
            ok = want == want ? x[i] == want : x[i] != x[i];
        }
        r->failures += !ok;
    }
    free(x);
}

TEST(largest_of_all_ranks) {
    Rank r[MAX_RANKS];
    for (int comm = 0; comm < 3; comm++) {
        collective.comm = comm;
        collective.count = 2500;
        on_ranks(r, 2, 2, largest, NULL);
        on_ranks(r, 3, 1, largest, NULL);
    }
}

// --- events

static void rings(Rank *r) {
    double v = 0, want = 0;
    bool ok = true;
    for (int i = 0; i < 40; i++, want = (want + 1) * 2 + 3) {
        if (want > 1e12) want = v = 0, ok &= hd_host_backend.write(r->x, NUMBERS, &v, sizeof v);
        ok &= run(r, 1);
    }
    ok &= hd_host_backend.read(r->x, NUMBERS, &v, sizeof v);
    r->failures += !ok || v != want;
}

TEST(events_order_streams) {
    Rank r[MAX_RANKS];
    setenv("HEDDLE_DELAY", "300", 1);
    on_ranks(r, 1, 1, rings, NULL);
    on_ranks(r, 3, 1, rings, NULL);
    unsetenv("HEDDLE_DELAY");
    on_ranks(r, 4, 2, rings, NULL);
}

// --- failures

static void disagree(Rank *r) {
    const int func = r->world->rank == 1 ? 2 : 0;
    r->failures += run(r, func) + run(r, 0); // once failed, nothing goes on
}

TEST(ranks_that_disagree_are_named) {
    Rank r[MAX_RANKS];
    collective.comm = 0;
    collective.dtype = HD_F32;
    collective.count = 10;
    on_ranks(r, 3, 1, disagree, NULL);
    for (int i = 0; i < 3; i++)
        CHECK_TEXT(
            r[i].why,
            "ranks disagree in communicator shards: rank 0 with all_gather of 40 bytes, action 0 of @both (blocks.0), "
            "rank 1 with reduce_scatter of 20 bytes, action 0 of @other (blocks.2)");
}

static void one_gives_up(Rank *r) {
    if (r->world->rank == 1) {
        usleep(30000); // the others wait for it by then
        r->world->fail(r->world, "the data is gone");
        usleep(300000); // it need not close to be missed
    } else {
        r->failures += run(r, 0);
    }
}

TEST(a_rank_that_gives_up_is_named) {
    Rank r[MAX_RANKS];
    on_ranks(r, 3, 1, one_gives_up, NULL);
    CHECK_TEXT(r[0].why, "rank 1: the data is gone");
    CHECK_TEXT(r[2].why, "rank 1: the data is gone");
}

static void one_leaves(Rank *r) {
    if (r->world->rank == 1) {
        hd_fail("no more tokens");
        return;
    }
    usleep(r->world->rank ? 20000 : 0); // one waits already, the others come late
    run(r, 0);
}

TEST(a_rank_that_leaves_is_named) {
    Rank r[MAX_RANKS];
    collective.comm = 2;
    on_ranks(r, 2, 2, one_leaves, NULL);
    for (int i = 0; i < 4; i++)
        if (i != 1) CHECK_TEXT(r[i].why, "rank 1 has left the run: no more tokens");
    collective.comm = 0; // now only rank 0 needs it
    on_ranks(r, 2, 2, one_leaves, NULL);
    CHECK_TEXT(r[0].why, "rank 1 has left the run: no more tokens");
    CHECK_TEXT(r[2].why, "");
    CHECK_TEXT(r[3].why, "");
}

static void nothing(Rank *r) { (void)r; }

TEST(a_mesh_of_another_size_is_refused) {
    Rank r = {.world = hd_world_alone(), .job = nothing};
    const HdAxis four = {"shard", 4, true, false};
    r.program = (HdProgram){.n_axes = 1, .axes = &four, .arena_bytes = 64};
    rank_main(&r);
    CHECK_TEXT(r.why, "the program is for 4 ranks, the run has 1");
    r.program = (HdProgram){.arena_bytes = INT64_MAX / 2};
    rank_main(&r);
    CHECK(strstr(r.why, "out of memory: the program needs 4611686018427387903 bytes, this machine has"));
}

// --- profile

static void profiled(Rank *r) {
    r->x->step = &r->program.train_step;
    r->x->begins = true;
    r->failures += !run(r, 1);
    r->failures += !hd_host_backend.write_profile(r->x, r->profile);
}

static int occurrences(const char *text, const char *part) {
    int n = 0;
    for (; (text = strstr(text, part)); text++) n++;
    return n;
}

TEST(profile_of_ranks_and_streams) {
    enum { SIZE = 1 << 16 };
    static char text[SIZE];
    Rank r[MAX_RANKS];
    on_ranks(r, 2, 1, profiled, "host_ranks_profile.json");
    FILE *f = fopen("host_ranks_profile.json", "r");
    CHECK(f && fread(text, 1, SIZE - 1, f) > 0);
    if (f) fclose(f);
    CHECK_INT(occurrences(text, "\"thread_name\""), 6);
    CHECK_INT(occurrences(text, "\"name\": \"rank 1, "), 1);
    CHECK_INT(occurrences(text, "\"ph\": \"X\""), 2 * 10);
    CHECK_INT(occurrences(text, "\"pid\": 1, \"tid\": 2, \"ts\""), 3);
    remove("host_ranks_profile.json");
}

int main(int argc, char **argv) {
    alarm(600);
    return run_tests(argc, argv);
}
