// State over shards: a program without functions, whose arena is plain memory, under many meshes and strategies. What a rank holds, what
// comes out whole, and what goes through checkpoints may depend on none of them.
#include "runtime/safetensors.h"
#include "runtime/state.h"
#include "runtime/world.h"
#include "tests/unit/check.h"
#include <dirent.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

// --- a program: two units, of which the second has half-precision compute weights

enum { MOST = 8, N_PARAMS = 5, N_BUCKETS = 2 };
typedef struct { const char *name; int shard, replicate; bool optimizer, grad, kept; } Mesh; // which storages are shards; all weights are kept

static const HdParam params[N_PARAMS] = {
    {.name = "wte.weight", .rank = 2, .dim = {7, 3}, .count = 21, .init = HD_INIT_NORMAL, .std = 0.02, .bucket = 0, .at = 0},
    {.name = "norm", .rank = 1, .dim = {3}, .count = 3, .init = HD_INIT_ONES, .bucket = 0, .at = 21},
    {.name = "block.w", .rank = 2, .dim = {300, 41}, .count = 12300, .init = HD_INIT_UNIFORM, .std = 0.5, .bucket = 1, .at = 2},
    {.name = "block.scale", .rank = 0, .count = 1, .init = HD_INIT_CONST, .std = 3, .bucket = 1, .at = 0},
    {.name = "block.b", .rank = 1, .dim = {5}, .count = 5, .init = HD_INIT_NORMAL, .std = 1, .bucket = 1, .at = 12302}};
static const int64_t used[N_BUCKETS] = {24, 12307}; // elements, padding not counted

typedef struct { HdProgram p; HdBucket bucket[N_BUCKETS]; } Program;

static bool memory_write(HdExec *x, int64_t offset, const void *data, size_t bytes) {
    CHECK(offset >= 0 && offset + (int64_t)bytes <= x->program->arena_bytes);
    memcpy(x->base + offset, data, bytes);
    return true;
}

static bool memory_read(HdExec *x, int64_t offset, void *data, size_t bytes) {
    CHECK(offset >= 0 && offset + (int64_t)bytes <= x->program->arena_bytes);
    memcpy(data, x->base + offset, bytes);
    return true;
}

static const HdBackend memory = {.name = "memory", .threads = true, .write = memory_write, .read = memory_read};

static void make_program(Program *m, const Mesh *mesh) {
    int64_t at = 0;
    *m = (Program){.p = {.model = "Toy", .model_hash = "abc", .batch = 2, .seq = 4, .micro = 1, .shard = mesh->shard, .replicate = mesh->replicate,
                         .n_buckets = N_BUCKETS, .buckets = m->bucket, .n_params = N_PARAMS, .params = params, .loss = -1, .norm = -1, .backend = &memory}};
    for (int i = 0; i < N_BUCKETS; i++) {
        HdBucket *b = &m->bucket[i];
        *b = (HdBucket){.name = i ? "block" : "root", .optimizer_sharded = mesh->optimizer, .grad_sharded = mesh->grad};
        b->shard = (used[i] + mesh->shard - 1) / mesh->shard;
        b->size = b->shard * mesh->shard;
        b->compute_dtype = i ? HD_BF16 : HD_F32;
        const int64_t optimizer = 4 * (mesh->optimizer ? b->shard : b->size);
        b->master = at, at += optimizer;
        b->moment1 = at, at += optimizer;
        b->moment2 = at, at += optimizer;
        b->grad = at, at += 4 * (mesh->grad ? b->shard : b->size);
        b->compute = i ? at : -1; // f32: the master weights serve
        if (b->compute >= 0) at += optimizer;
        b->next = mesh->optimizer && (mesh->kept || i != mesh->shard % 2) ? at : -1; // zero3: of one of the buckets, now of f32, now of bf16
        if (b->next >= 0) at += 4 * b->size;
    }
    m->p.step = at;
    m->p.arena_bytes = at + 4;
}

static const Mesh meshes[] = {
    {"one rank", 1, 1, false, false, false}, {"none", 2, 1, false, false, false}, {"none of 3", 3, 1, false, false, false}, {"zero1", 3, 1, true, false, true},
    {"zero2", 2, 1, true, true, true}, {"zero2 of 5", 5, 1, true, true, true}, {"zero3", 2, 1, true, true, false}, {"zero3 of 4", 4, 1, true, true, false},
    {"zero3 of 8", 8, 1, true, true, false}, {"zero3 replicated", 3, 2, true, true, false}, {"zero1 replicated", 2, 2, true, false, true},
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

static void *rank_main(void *arg) {
    Rank *r = arg;
    r->ok = hd_world_agree(r->x.world, r->job->work(r));
    if (!r->ok) snprintf(r->why, sizeof r->why, "%s", hd_failure());
    return NULL;
}

static void start(Job *j, const Mesh *mesh) {
    make_program(&j->program, mesh);
    j->ranks = mesh->shard * mesh->replicate;
    HdWorld *w = j->ranks > 1 ? hd_world_threads(j->ranks) : hd_world_alone();
    for (int r = 0; r < j->ranks; r++)
        j->rank[r] = (Rank){{&j->program.p, &w[r], r % mesh->shard, calloc(1, (size_t)j->program.p.arena_bytes), NULL}, j, false, ""};
}

static bool on_ranks(Job *j, bool (*work)(Rank *r)) { // the same outcome on all
    pthread_t thread[MOST];
    j->work = work;
    alarm(120);
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

static void stop(Job *j) {
    for (int r = 0; r < j->ranks; r++) {
        free(j->rank[r].x.base);
        j->rank[r].x.world->close(j->rank[r].x.world);
    }
}

static void expect(Job *j, bool (*work)(Rank *r)) {
    if (!on_ranks(j, work)) CHECK_TEXT(j->rank[0].why, "no failure");
}

// --- what every element should be, and what it is

static float value(int role, int64_t k, int64_t i) { return (float)(role + 1) + 0.001f * (float)k + 0.0001f * (float)i; } // of some training

static int64_t storage(const HdBucket *b, int role) { return role == 0 ? b->master : role == 1 ? b->moment1 : role == 2 ? b->moment2 : b->grad; }

// Calls fn for each element of the storage of a rank that is a parameter's, with its address.
static void each_element(Rank *r, int role, void (*fn)(int role, int k, int64_t i, float *at)) {
    const HdProgram *p = r->x.program;
    for (int k = 0; k < N_PARAMS; k++) {
        const HdBucket *b = &p->buckets[params[k].bucket];
        const bool cut = role == 3 ? b->grad_sharded : b->optimizer_sharded;
        for (int64_t i = 0; i < params[k].count; i++) {
            const int64_t e = params[k].at + i - (cut ? r->x.shard_index * b->shard : 0);
            if (e >= 0 && e < (cut ? b->shard : b->size)) fn(role, k, i, (float *)(void *)(r->x.base + storage(b, role)) + e);
        }
    }
}

static void set_value(int role, int k, int64_t i, float *at) { *at = value(role, k, i); }
static void is_value(int role, int k, int64_t i, float *at) { CHECK(*at == value(role, k, i)); }
static float initial[N_PARAMS][12300];
static void keep_initial(int role, int k, int64_t i, float *at) { (void)role; initial[k][i] = *at; }
static void is_initial(int role, int k, int64_t i, float *at) { (void)role; CHECK(!memcmp(at, &initial[k][i], 4)); }

static uint16_t rounded(float f) { // bf16
    uint32_t u;
    memcpy(&u, &f, 4);
    return (uint16_t)((u + 0x7fffu + (u >> 16 & 1)) >> 16);
}

static void rounded_are(Rank *r, bool next, float (*want)(int k, int64_t i)) {
    for (int k = 0; k < N_PARAMS; k++) {
        const HdBucket *b = &r->x.program->buckets[params[k].bucket];
        const bool cut = b->optimizer_sharded && !next;
        const int64_t home = next ? b->next : b->compute;
        for (int64_t i = 0; home >= 0 && i < params[k].count; i++) {
            const int64_t e = params[k].at + i - (cut ? r->x.shard_index * b->shard : 0);
            if (e < 0 || e >= (cut ? b->shard : b->size)) continue;
            const char *base = r->x.base + home;
            const float v = want(k, i);
            const uint16_t half = rounded(v);
            CHECK(b->compute_dtype == HD_F32 ? !memcmp(base + 4 * e, &v, 4) : !memcmp(base + 2 * e, &half, 2));
        }
    }
}

static void compute_is(Rank *r, float (*want)(int k, int64_t i)) { // what is computed with is the master's, rounded
    rounded_are(r, false, want);
    rounded_are(r, true, want);
}

static float want_initial(int k, int64_t i) { return initial[k][i]; }
static float want_value(int k, int64_t i) { return value(0, k, i); }

static bool init(Rank *r) { return hd_state_init(&r->x, 11); }

static bool train(Rank *r) { // the outcome of some steps
    for (int role = 0; role < 3; role++) each_element(r, role, set_value);
    return true;
}

TEST(initial_values_do_not_depend_on_the_mesh) {
    for (int i = 0; i < N_MESHES; i++) {
        Job j = {0};
        start(&j, &meshes[i]);
        expect(&j, init);
        if (!i) each_element(&j.rank[0], 0, keep_initial);
        for (int r = 0; r < j.ranks; r++) {
            each_element(&j.rank[r], 0, is_initial);
            compute_is(&j.rank[r], want_initial);
        }
        stop(&j);
    }
}

// --- whole parameters

static size_t slurp(const char *path, char *bytes, size_t size) {
    FILE *f = fopen(path, "rb");
    const size_t n = f ? fread(bytes, 1, size, f) : 0;
    if (f) fclose(f);
    return n;
}

static bool hashes(Rank *r) { return hd_state_hashes(&r->x, r->x.world->rank ? NULL : r->job->file); }
static bool export(Rank *r) { return hd_state_export(&r->x, r->job->path); }

TEST(digests_and_exports_do_not_depend_on_the_mesh) {
    static char first[200000], other[200000];
    size_t n = 0;
    for (int i = 0; i < N_MESHES; i++) {
        Job j = {.path = "export", .file = fopen("digest", "wb")};
        start(&j, &meshes[i]);
        expect(&j, train);
        expect(&j, hashes);
        expect(&j, export);
        fclose(j.file);
        stop(&j);
        size_t m = slurp("digest", other, sizeof other);
        m += slurp("export", other + m, sizeof other - m);
        if (!i) memcpy(first, other, n = m);
        CHECK(m > 45000 && m == n && !memcmp(first, other, n));
    }
    StFile f;
    float v[21];
    CHECK(hd_st_open(&f, "export"));
    CHECK_INT(f.n, N_PARAMS);
    CHECK(hd_st_floats(&f, hd_st_find(&f, "wte.weight"), 0, 21, v));
    for (int i = 0; i < 21; i++) CHECK(v[i] == value(0, 0, i));
    hd_st_close(&f);
}

TEST(a_full_disk_on_export_leaves_nobody_waiting) {
    unlink("full");
    if (symlink("/dev/full", "full")) return;
    Job j = {.path = "full"};
    start(&j, &meshes[7]);
    CHECK(!on_ranks(&j, export));
    CHECK_TEXT(j.rank[0].why, "cannot write full: No space left on device");
    j.path = "no/such/folder";
    CHECK(!on_ranks(&j, export) && strstr(j.rank[0].why, "no/such/folder: No such file"));
    stop(&j);
    unlink("full");
}

static bool read_fails(HdExec *x, int64_t offset, void *data, size_t bytes) {
    if (x->world->rank != 2) return memory_read(x, offset, data, bytes);
    hd_fail("the device stopped");
    return false;
}

TEST(a_device_that_stops_while_others_wait_for_it) {
    const HdBackend broken = {.write = memory_write, .read = read_fails};
    Job j = {.path = "export"};
    start(&j, &meshes[7]);
    j.program.p.backend = &broken;
    j.work = export;
    CHECK(!on_ranks(&j, export));
    CHECK_TEXT(j.rank[0].why, "rank 2: the device stopped");
    stop(&j);
}

static bool import(Rank *r) { return hd_state_import(&r->x, "weights"); }

TEST(import_reads_what_a_rank_holds) {
    Job j = {.path = "weights"};
    start(&j, &meshes[0]);
    expect(&j, train);
    expect(&j, export);
    stop(&j);
    for (int i = 0; i < N_MESHES; i++) {
        start(&j, &meshes[i]);
        expect(&j, import);
        for (int r = 0; r < j.ranks; r++) {
            each_element(&j.rank[r], 0, is_value);
            compute_is(&j.rank[r], want_value);
        }
        stop(&j);
    }
    unlink("weights");
}

// --- checkpoints

static bool save(Rank *r) { return hd_state_save(&r->x, "c", &r->job->at); }

static bool resume(Rank *r) {
    Progress at;
    if (!hd_state_resume(&r->x, "c", &at)) return false;
    CHECK(at.step == r->job->at.step && at.seed == r->job->at.seed && at.data_tokens == r->job->at.data_tokens && at.sequences == r->job->at.sequences);
    return true;
}

static void save_under(const Mesh *mesh, int64_t step) {
    Job j = {.at = {step, 5, 1000, 77}};
    start(&j, mesh);
    expect(&j, train);
    expect(&j, save);
    stop(&j);
}

static bool resume_under(const Mesh *mesh, int64_t step, char why[300]) {
    Job j = {.at = {step, 5, 1000, 77}};
    start(&j, mesh);
    const bool ok = on_ranks(&j, resume);
    snprintf(why, 300, "%s", j.rank[0].why);
    for (int r = 0; ok && r < j.ranks; r++) {
        for (int role = 0; role < 3; role++) each_element(&j.rank[r], role, is_value);
        compute_is(&j.rank[r], want_value);
        int32_t got;
        memcpy(&got, j.rank[r].x.base + j.program.p.step, 4);
        CHECK_INT(got, step);
    }
    stop(&j);
    return ok;
}

static int files_in(const char *dir) {
    DIR *d = opendir(dir);
    int n = 0;
    for (const struct dirent *e; d && (e = readdir(d));) n += e->d_name[0] != '.';
    if (d) closedir(d);
    return n;
}

static void clean(void) { CHECK(!system("rm -rf c")); }

TEST(every_checkpoint_resumes_under_every_mesh) {
    for (int a = 0; a < N_MESHES; a++) {
        save_under(&meshes[a], a + 1);
        CHECK_INT(files_in("c"), meshes[a].optimizer ? 2 : 1); // what the last one left is gone
        for (int b = 0; b < N_MESHES; b++) {
            char why[300];
            if (!resume_under(&meshes[b], a + 1, why)) CHECK_TEXT(why, "no failure");
        }
    }
    clean();
}

TEST(saving_a_step_again_does_not_touch_its_first_save) {
    char why[300];
    for (int i = 0; i < 3; i++) {
        save_under(&meshes[6], 4);
        CHECK(!access(i % 2 ? "c/step-4.1/rank-1.safetensors" : "c/step-4/rank-1.safetensors", R_OK));
        CHECK_INT(files_in("c"), 2);
        CHECK(resume_under(&meshes[6], 4, why));
    }
    clean();
}

static void refused(const Mesh *mesh, int64_t step, const char *file, const char *words) {
    char why[300];
    const bool ok = resume_under(mesh, step, why);
    if (ok || !strstr(why, file) || !strstr(why, words)) CHECK_TEXT(ok ? "resumed" : why, words);
}

static void write_bytes(const char *path, const char *bytes, size_t n) {
    FILE *f = fopen(path, "wb");
    CHECK(f && fwrite(bytes, 1, n, f) == n);
    if (f) fclose(f);
}

TEST(shards_that_are_not_of_the_checkpoint) {
    static char good[300000], other[300000];
    const Mesh *two = &meshes[6], *four = &meshes[7];
    const char *const path = "c/step-9/rank-1.safetensors";
    save_under(two, 8);
    const size_t m = slurp("c/step-8/rank-1.safetensors", other, sizeof other);
    save_under(two, 9);
    const size_t n = slurp(path, good, sizeof good);
    CHECK(m > 50000 && n > 50000);

    unlink(path);
    for (int i = 0; i < N_MESHES; i++) refused(&meshes[i], 9, path, "No such file");
    for (size_t cut = 0; cut < n; cut += n / 7) {
        write_bytes(path, good, cut);
        refused(two, 9, path, "");
    }
    write_bytes(path, other, m);
    refused(four, 9, path, "is shard 1 of 2 of step 8");
    CHECK(slurp("c/step-9/rank-0.safetensors", other, sizeof other) > 50000);
    write_bytes(path, other, n);
    refused(two, 9, path, "is shard 0 of 2 of step 9");
    write_bytes(path, good, n);
    for (size_t at = 0; at < n; at += n / 11) {
        good[at] ^= 4;
        write_bytes(path, good, n);
        refused(two, 9, path, "");
        good[at] ^= 4;
    }
    write_bytes(path, good, n);
    char why[300];
    CHECK(resume_under(four, 9, why));

    CHECK(!rename("c/step-9/rank-1.safetensors", "kept")); // a save of the same step of the same model, but not this one
    Job j = {.at = {9, 5, 1000, 77}};
    start(&j, two);
    expect(&j, init);
    CHECK(!rename("c", "d"));
    expect(&j, save);
    stop(&j);
    CHECK(!rename("c/step-9/rank-1.safetensors", "d/step-9/rank-1.safetensors"));
    clean();
    CHECK(!rename("d", "c"));
    refused(two, 9, path, "another save");
    CHECK(!rename("kept", path));
    CHECK(resume_under(two, 9, why));
    clean();
}

TEST(a_save_that_fails_on_one_rank_leaves_the_older_checkpoint) {
    char why[300];
    save_under(&meshes[7], 3);
    for (int victim = 0; victim < 4; victim++) {
        char path[60], want[120];
        mkdir("c/step-5", 0777);
        snprintf(path, sizeof path, "c/step-5/rank-%d.safetensors", victim);
        if (symlink("/dev/full", path)) return;
        Job j = {.at = {5, 5, 1000, 77}};
        start(&j, &meshes[7]);
        CHECK(!on_ranks(&j, save));
        snprintf(want, sizeof want, "cannot write %s: No space left on device", path);
        CHECK_TEXT(j.rank[0].why, want);
        stop(&j);
        CHECK_INT(files_in("c/step-5"), 1); // the link
        CHECK(!unlink(path) && !rmdir("c/step-5"));
        CHECK_INT(files_in("c"), 2);
        CHECK(resume_under(&meshes[4], 3, why));
    }
    clean();
}

TEST(what_a_killed_save_has_left_harms_nobody) {
    char why[300];
    save_under(&meshes[6], 3);
    mkdir("c/step-5", 0777);
    write_bytes("c/step-5/rank-0.safetensors", "half", 4);
    write_bytes("c/step-5/rank-1.safetensors.tmp.123", "half", 4);
    write_bytes("c/checkpoint.safetensors.tmp.123", "half", 4);
    CHECK(resume_under(&meshes[0], 3, why));
    save_under(&meshes[6], 5);
    CHECK(resume_under(&meshes[7], 5, why));
    CHECK_INT(files_in("c"), 2);
    CHECK_INT(files_in("c/step-5"), 2);
    save_under(&meshes[0], 6);
    CHECK(resume_under(&meshes[6], 6, why));
    CHECK_INT(files_in("c"), 1);
    clean();
}

// --- metadata of a checkpoint that is sound otherwise

// Writes the manifest again, with another value of `key`, or without it, and a good checksum.
static void change_manifest(const char *key, const char *value) {
    StFile f;
    StWriter w;
    StMeta meta[64];
    int n = 0;
    CHECK(hd_st_open(&f, "kept") && f.n_meta < 64);
    for (int i = 0; i < f.n_meta; i++)
        if (strcmp(f.meta[i].key, key) != 0) meta[n++] = f.meta[i];
        else if (value) meta[n++] = (StMeta){(char *)(uintptr_t)key, (char *)(uintptr_t)value};
    CHECK(n == f.n_meta - !value);
    CHECK(hd_st_create(&w, "c/checkpoint.safetensors", true));
    hd_st_begin(&w, n, meta);
    CHECK(hd_st_finish(&w));
    hd_st_close(&f);
}

TEST(a_layout_that_makes_no_sense_is_refused) {
    static const struct { const char *key, *value, *words; } cases[] = {
        {"shards", "0", "makes no sense"}, {"shards", "-1", "makes no sense"}, {"shards", NULL, "makes no sense"}, {"shards", "1", "makes no sense"},
        {"shards", "99999999999", "makes no sense"}, {"folder", "../c/step-2", "makes no sense"}, {"folder", NULL, "makes no sense"},
        {"bucket 0", "24", "makes no sense"}, {"bucket 0", "24 0 root", "makes no sense"}, {"bucket 0", "x", "makes no sense"}, {"bucket 0", "9999999 1 root", "makes no sense"},
        {"bucket 0", "20 10 root", "makes no sense"}, {"bucket 1", NULL, "makes no sense"}, {"bucket 0", "24 12 other", "does not hold all of 'other'"},
        {"param norm", "0 22 [3]", "makes no sense"}, {"param norm", "2 0 [3]", "makes no sense"}, {"param norm", "0 [3]", "makes no sense"},
        {"param norm", "0 21 [4]", "tensor 'norm' is [4], this model's is [3]"}, {"param norm", NULL, "no tensor 'norm'"}, {"step", "x", "no number"},
        {"sequences", "-5", "no number"}, {"model_hash", "abd", "another model"}, {"heddle_checkpoint", "3", "no checkpoint"}, {"shard 1", "5 00", "another save"},
        {"shard 0", NULL, "another save"}};
    save_under(&meshes[6], 2);
    CHECK(!rename("c/checkpoint.safetensors", "kept"));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        change_manifest(cases[i].key, cases[i].value);
        refused(&meshes[6], 2, "c/", cases[i].words);
    }
    change_manifest("sequences", "77");
    char why[300];
    CHECK(resume_under(&meshes[6], 2, why));
    change_manifest("sequences", NULL); // of an older program: two steps of one rank's batch
    Job j = {.at = {2, 5, 1000, 4}};
    start(&j, &meshes[6]);
    expect(&j, resume);
    stop(&j);
    unlink("kept");
    clean();
}

// --- values that are not finite

static int bad_role, bad_param;
static int64_t bad_element;

static void spoil(int role, int k, int64_t i, float *at) {
    if (role == bad_role && k == bad_param && i == bad_element) *at = NAN;
}

static bool check_all(Rank *r) { return hd_state_check(&r->x, false); }

static bool spoil_all(Rank *r) {
    for (int role = 0; role < 4; role++) each_element(r, role, spoil);
    return true;
}

TEST(a_value_that_is_not_finite_is_named_with_its_unit_storage_and_rank) {
    static const struct { int role, param; int64_t element; const char *text; } cases[] = {
        {3, 0, 20, "gradient of wte.weight (unit root): element 20 is nan"}, {0, 4, 4, "parameter block.b (unit block): element 4 is nan"},
        {1, 2, 6000, "first moment of block.w (unit block): element 6000 is nan"}, {2, 3, 0, "second moment of block.scale (unit block): element 0 is nan"}};
    for (int i = 0; i < N_MESHES; i++)
        for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
            char want[200];
            Job j = {0};
            start(&j, &meshes[i]);
            expect(&j, check_all);
            bad_role = cases[c].role, bad_param = cases[c].param, bad_element = cases[c].element;
            expect(&j, spoil_all);
            CHECK(!on_ranks(&j, check_all));
            const HdBucket *b = &j.program.p.buckets[params[bad_param].bucket];
            const bool cut = bad_role == 3 ? b->grad_sharded : b->optimizer_sharded;
            snprintf(want, sizeof want, "%s, on rank %d", cases[c].text, cut ? (int)((params[bad_param].at + bad_element) / b->shard) : 0);
            CHECK_TEXT(j.rank[0].why, j.ranks > 1 ? want : cases[c].text);
            stop(&j);
        }
}

int main(int argc, char **argv) {
    char folder[] = "state_XXXXXX";
    if (!mkdtemp(folder) || chdir(folder)) return 1;
    int status = run_tests(argc, argv);
    unlink("export");
    unlink("digest");
    if (chdir("..") || rmdir(folder)) return 1;
    return status;
}
