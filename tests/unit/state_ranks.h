// For tests of state over shards: a program without functions, whose arena is plain memory, under many meshes and
// strategies; its ranks, as threads; and what every element should be. The parts that a rank holds, the values that
// come out whole, and what goes through checkpoints may depend on no mesh.
#ifndef TESTS_UNIT_STATE_RANKS_H
#define TESTS_UNIT_STATE_RANKS_H
#include "runtime/checkpoint/safetensors.h"
#include "runtime/checkpoint/state.h"
#include "runtime/world/mesh.h"
#include "runtime/world/world.h"
#include "tests/unit/check.h"
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

// --- a program: two units, of which the second has half-precision compute weights

#ifndef BLOCK_ROWS
#define BLOCK_ROWS 300
#endif
enum { MOST = 8, N_PARAMS = 5, N_BUCKETS = 2, N_STATES = 2 };
static const char *const states[N_STATES] = {"moment1", "moment2"};
typedef struct {
    const char *name;
    int shard, replicate;
    bool optimizer, grad, kept;
} Mesh; // which storages are shards; all weights are kept

static const HdParam params[N_PARAMS] = {
    {.name = "wte.weight",
     .rank = 2,
     .dim = {7, 3},
     .count = 21,
     .init = HD_INIT_NORMAL,
     .std = 0.02,
     .bucket = 0,
     .at = 0},
    {.name = "norm", .rank = 1, .dim = {3}, .count = 3, .init = HD_INIT_ONES, .bucket = 0, .at = 21},
    {.name = "block.w",
     .rank = 2,
     .dim = {BLOCK_ROWS, 41},
     .count = 41 * BLOCK_ROWS,
     .init = HD_INIT_UNIFORM,
     .std = 0.5,
     .bucket = 1,
     .at = 2},
    {.name = "block.scale", .rank = 0, .count = 1, .init = HD_INIT_CONST, .std = 3, .bucket = 1, .at = 0},
    {.name = "block.b",
     .rank = 1,
     .dim = {5},
     .count = 5,
     .init = HD_INIT_NORMAL,
     .std = 1,
     .bucket = 1,
     .at = 41 * BLOCK_ROWS + 2}};
static const int64_t used[N_BUCKETS] = {24, 41 * BLOCK_ROWS + 7}; // elements, padding not counted

typedef struct { HdProgram p; HdAxis axes[2]; HdBucket bucket[N_BUCKETS]; } Program;

static inline bool memory_write(HdExec *x, int64_t offset, const void *data, size_t bytes) {
    CHECK(offset >= 0 && offset + (int64_t)bytes <= x->program->arena_bytes);
    memcpy(x->base + offset, data, bytes);
    return true;
}

static inline bool memory_read(HdExec *x, int64_t offset, void *data, size_t bytes) {
    CHECK(offset >= 0 && offset + (int64_t)bytes <= x->program->arena_bytes);
    memcpy(data, x->base + offset, bytes);
    return true;
}

static const HdBackend memory = {.name = "memory", .threads = true, .write = memory_write, .read = memory_read};

static inline void make_program(Program *m, const Mesh *mesh) {
    int64_t at = 0;
    *m = (Program){.axes = {{"shard", mesh->shard, true, false}, {"replicate", mesh->replicate, true, false}},
                   .p = {.model = "Toy",
                         .model_hash = "abc",
                         .batch = 2,
                         .seq = 4,
                         .micro = 1,
                         .n_axes = 2,
                         .axes = m->axes,
                         .n_buckets = N_BUCKETS,
                         .buckets = m->bucket,
                         .n_states = N_STATES,
                         .states = states,
                         .n_params = N_PARAMS,
                         .params = params,
                         .backend = &memory}};
    for (int i = 0; i < N_BUCKETS; i++) {
        HdBucket *b = &m->bucket[i];
        *b = (HdBucket){.name = i ? "block" : "root", .optimizer_sharded = mesh->optimizer, .grad_sharded = mesh->grad,
                         .split = 1};
        b->shard = (used[i] + mesh->shard - 1) / mesh->shard;
        b->size = b->shard * mesh->shard;
        b->compute_dtype = i ? HD_BF16 : HD_F32;
        const int64_t optimizer = 4 * (mesh->optimizer ? b->shard : b->size);
        b->master = at, at += optimizer;
        for (int k = 0; k < HD_STATES; k++) b->state[k] = -1;
        for (int k = 0; k < N_STATES; k++) b->state[k] = at, at += optimizer;
        b->grad = at, at += 4 * (mesh->grad ? b->shard : b->size);
        b->compute = i ? at : -1; // f32: the master weights serve
        if (b->compute >= 0) at += optimizer;
        b->next = mesh->optimizer && (mesh->kept || i != mesh->shard % 2)
                      ? at
                      : -1; // zero3: of one of the buckets, now of f32, now of bf16
        if (b->next >= 0) at += 4 * b->size;
    }
    m->p.train_step.counter = at;
    m->p.train_step.random = -1;
    m->p.arena_bytes = at + 4;
}

static const Mesh meshes[] = {{"one rank", 1, 1, false, false, false},
                              {"none", 2, 1, false, false, false},
                              {"none of 3", 3, 1, false, false, false},
                              {"zero1", 3, 1, true, false, true},
                              {"zero2", 2, 1, true, true, true},
                              {"zero2 of 5", 5, 1, true, true, true},
                              {"zero3", 2, 1, true, true, false},
                              {"zero3 of 4", 4, 1, true, true, false},
                              {"zero3 of 8", 8, 1, true, true, false},
                              {"zero3 replicated", 3, 2, true, true, false},
                              {"zero1 replicated", 2, 2, true, false, true},
                              {"none replicated", 1, 3, false, false, false}};
enum { N_MESHES = sizeof meshes / sizeof *meshes };

// --- running all ranks of a mesh

typedef struct Job Job;
typedef struct { HdExec x; Job *job; bool ok; char why[300]; } Rank;
struct Job {
    Program program;
    int ranks;
    bool (*work)(Rank *r);
    const char *path;
    FILE *file;
    Progress at;
    Rank rank[MOST];
};

static inline void *rank_main(void *arg) {
    Rank *r = arg;
    r->ok = hd_world_agree(r->x.world, r->job->work(r));
    if (!r->ok) snprintf(r->why, sizeof r->why, "%s", hd_failure());
    return NULL;
}

static inline void start(Job *j, const Mesh *mesh) {
    make_program(&j->program, mesh);
    j->ranks = mesh->shard * mesh->replicate;
    HdWorld *w = j->ranks > 1 ? hd_world_threads(j->ranks) : hd_world_alone();
    for (int r = 0; r < j->ranks; r++)
        j->rank[r] = (Rank){
            .x = {.program = &j->program.p,
                  .world = &w[r],
                  .base = calloc(1, (size_t)j->program.p.arena_bytes)},
            .job = j};
}

static inline bool on_ranks(Job *j, bool (*work)(Rank *r)) { // the same outcome on all
    pthread_t thread[MOST];
    j->work = work;
    alarm(600);
    for (int r = 0; r < j->ranks; r++)
        if (pthread_create(&thread[r], NULL, rank_main, &j->rank[r])) exit(1);
    for (int r = 0; r < j->ranks; r++) pthread_join(thread[r], NULL);
    alarm(0);
    for (int r = 1; r < j->ranks; r++) {
        CHECK(j->rank[r].ok == j->rank[0].ok);
        if (!j->rank[0].ok) CHECK_TEXT(j->rank[r].why, j->rank[0].why);
    }
    return j->rank[0].ok;
}

static inline void stop(Job *j) {
    for (int r = 0; r < j->ranks; r++) {
        free(j->rank[r].x.base);
        j->rank[r].x.world->close(j->rank[r].x.world);
    }
}

static inline void expect(Job *j, bool (*work)(Rank *r)) {
    if (!on_ranks(j, work)) CHECK_TEXT(j->rank[0].why, "no failure");
}

// --- what every element should be, and what it is

static inline float value(int role, int64_t k, int64_t i) {
    return (float)(role + 1) + 0.001f * (float)k + 0.0001f * (float)i;
} // of some training

static inline int64_t storage(const HdBucket *b, int role) {
    return role == 0 ? b->master : role <= N_STATES ? b->state[role - 1] : b->grad;
}

// Calls fn for each element of the storage of a rank that is a parameter's, with its address.
static inline void each_element(Rank *r, int role, void (*fn)(int role, int k, int64_t i, float *at)) {
    const HdProgram *p = r->x.program;
    for (int k = 0; k < N_PARAMS; k++) {
        const HdBucket *b = &p->buckets[params[k].bucket];
        const bool cut = role == 3 ? b->grad_sharded : b->optimizer_sharded;
        for (int64_t i = 0; i < params[k].count; i++) {
            const int64_t e = params[k].at + i - (cut ? hd_shard(&r->x, b) * b->shard : 0);
            if (e >= 0 && e < (cut ? b->shard : b->size))
                fn(role, k, i, (float *)(void *)(r->x.base + storage(b, role)) + e);
        }
    }
}

static inline void set_value(int role, int k, int64_t i, float *at) { *at = value(role, k, i); }
static inline void is_value(int role, int k, int64_t i, float *at) { CHECK(*at == value(role, k, i)); }

static inline uint16_t rounded(float f) { // bf16
    uint32_t u;
    memcpy(&u, &f, 4);
    return (uint16_t)((u + 0x7fffu + (u >> 16 & 1)) >> 16);
}

static inline void rounded_are(Rank *r, bool next, float (*want)(int k, int64_t i)) {
    for (int k = 0; k < N_PARAMS; k++) {
        const HdBucket *b = &r->x.program->buckets[params[k].bucket];
        const bool cut = b->optimizer_sharded && !next;
        const int64_t home = next ? b->next : b->compute;
        for (int64_t i = 0; home >= 0 && i < params[k].count; i++) {
            const int64_t e = params[k].at + i - (cut ? hd_shard(&r->x, b) * b->shard : 0);
            if (e < 0 || e >= (cut ? b->shard : b->size)) continue;
            const char *base = r->x.base + home;
            const float v = want(k, i);
            const uint16_t half = rounded(v);
            CHECK(b->compute_dtype == HD_F32 ? !memcmp(base + 4 * e, &v, 4) : !memcmp(base + 2 * e, &half, 2));
        }
    }
}

// what is computed with is the master's, rounded
static inline void compute_is(Rank *r, float (*want)(int k, int64_t i)) {
    rounded_are(r, false, want);
    rounded_are(r, true, want);
}

static inline float want_value(int k, int64_t i) { return value(0, k, i); }

// Whether all ranks resume; each then has every value and its rounded copies. `why`: the failure of rank 0.
static inline bool resumes_values(Job *j, bool (*resume)(Rank *r), char why[300]) {
    const bool ok = on_ranks(j, resume);
    snprintf(why, 300, "%s", j->rank[0].why);
    for (int r = 0; ok && r < j->ranks; r++) {
        for (int role = 0; role < 3; role++) each_element(&j->rank[r], role, is_value);
        compute_is(&j->rank[r], want_value);
    }
    return ok;
}

static inline bool init(Rank *r) { return hd_state_init(&r->x, 11); }

static inline bool train(Rank *r) { // the outcome of some steps
    for (int role = 0; role < 3; role++) each_element(r, role, set_value);
    return true;
}

static inline size_t slurp(const char *path, char *bytes, size_t size) {
    FILE *f = fopen(path, "rb");
    const size_t n = f ? fread(bytes, 1, size, f) : 0;
    if (f) fclose(f);
    return n;
}

// Writes the manifest `kept` again as c/checkpoint.safetensors, with another value of `key`, or without it, and a good
// checksum.
static inline void change_manifest(const char *kept, const char *key, const char *value) {
    StFile f;
    StWriter w;
    StMeta meta[64];
    int n = 0;
    CHECK(hd_st_open(&f, kept) && f.n_meta < 64);
    for (int i = 0; i < f.n_meta; i++)
        if (strcmp(f.meta[i].key, key) != 0) meta[n++] = f.meta[i];
        else if (value) meta[n++] = (StMeta){(char *)(uintptr_t)key, (char *)(uintptr_t)value};
    CHECK(n == f.n_meta - !value);
    CHECK(hd_st_create(&w, "c/checkpoint.safetensors", true));
    hd_st_begin(&w, n, meta);
    CHECK(hd_st_finish(&w));
    hd_st_close(&f);
}

static int run_state_tests(int argc, char **argv) { // in a folder of their own
    char folder[] = "state_XXXXXX";
    if (!mkdtemp(folder) || chdir(folder)) return 1;
    int status = run_tests(argc, argv);
    unlink("export");
    unlink("digest");
    if (chdir("..") || rmdir(folder)) return 1;
    return status;
}
#endif
