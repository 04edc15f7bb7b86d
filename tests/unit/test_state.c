// State over shards: initial values, digests, exports and imports, and values that are not finite, the same under every
// mesh.
#include "runtime/checkpoint/history.h"
#include "runtime/checkpoint/safetensors.h"
#include "tests/unit/state_ranks.h"

// --- the values that training begins with

static float initial[N_PARAMS][12300];
static void keep_initial(int role, int k, int64_t i, float *at) { (void)role; initial[k][i] = *at; }
static void is_initial(int role, int k, int64_t i, float *at) { (void)role; CHECK(!memcmp(at, &initial[k][i], 4)); }
static float want_initial(int k, int64_t i) { return initial[k][i]; }

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

static bool hashes(Rank *r) { return hd_state_hashes(&r->x, r->x.world->rank ? NULL : r->job->file); }
static bool export(Rank *r) { return hd_state_export(&r->x, r->job->path, HD_F32, false); }

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

static bool import(Rank *r) { return hd_state_import(&r->x, "weights", NULL); }

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

// --- values that are not finite

static int bad_role, bad_param;
static int64_t bad_element;

static void spoil(int role, int k, int64_t i, float *at) {
    if (role == bad_role && k == bad_param && i == bad_element) *at = NAN;
}

static bool check_all(Rank *r) { return hd_state_check(&r->x, true); }

static bool spoil_all(Rank *r) {
    for (int role = 0; role < 4; role++) each_element(r, role, spoil);
    return true;
}

TEST(a_value_that_is_not_finite_is_named_with_its_unit_storage_and_rank) {
    static const struct { int role, param; int64_t element; const char *text;
    } cases[] = {{3, 0, 20, "gradient of wte.weight (unit root): element 20 is nan"},
                 {0, 4, 4, "parameter block.b (unit block): element 4 is nan"},
                 {1, 2, 6000, "moment1 of block.w (unit block): element 6000 is nan"},
                 {2, 3, 0, "moment2 of block.scale (unit block): element 0 is nan"}};
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
            snprintf(want, sizeof want, "%s, on rank %d", cases[c].text,
                     cut ? (int)((params[bad_param].at + bad_element) / b->shard) : 0);
            CHECK_TEXT(j.rank[0].why, j.ranks > 1 ? want : cases[c].text);
            stop(&j);
        }
}

// --- losses and norms of the last steps, in a checkpoint

TEST(a_history_is_text_and_back_and_nothing_else_is) {
    static char text[HD_HISTORY_TEXT], bad[HD_HISTORY_TEXT + 40];
    float out[HD_HISTORY_Z], in[HD_HISTORY_Z];
    const HdProgram p = {.backend = &memory, .arena_bytes = sizeof out, .skip_z = {0, 5}};
    HdExec x = {.program = &p, .base = (char *)out};
    for (int i = 0; i < HD_HISTORY_Z; i++) in[i] = (float)(i - 100) * 1.2345678e-20f;
    in[HD_HISTORY_STEPS] = 255;
    in[HD_HISTORY_Z - 1] = 3;
    hd_history_text(in, text);
    CHECK(hd_history_kept(&p) && hd_history_write(&x, "c", text) && !memcmp(in, out, sizeof in));
    CHECK(hd_history_read(&x, in) && !memcmp(in, out, sizeof in));
    static const struct { const char *before; int n; const char *after; } wrong[] = {
        {"", HD_HISTORY_TEXT, " 1"}, {"x", HD_HISTORY_TEXT, ""}, {"nan", HD_HISTORY_TEXT, ""}, {"", 2000, ""},
        {"", 0, ""}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        snprintf(bad, sizeof bad, "%s%.*s%s", wrong[i].before, wrong[i].n, text, wrong[i].after);
        CHECK(!hd_history_write(&x, "c", bad) && strstr(hd_failure(), "c: its history is not 128 losses and norms"));
    }
    static const float counts[] = {256, -1, 1.5f};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        in[HD_HISTORY_Z - 1] = counts[i];
        hd_history_text(in, text);
        CHECK(!hd_history_write(&x, "c", text));
    }
    CHECK(out[HD_HISTORY_Z - 1] == 3);
}

int main(int argc, char **argv) { return run_state_tests(argc, argv); }
