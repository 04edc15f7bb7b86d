// Checkpoints of sharded state: whichever mesh wrote one, every mesh resumes from it; files that are missing, cut,
// changed or of another save are refused by name; a save that fails or is killed leaves the older one.
#include "runtime/checkpoint/safetensors.h"
#include "tests/unit/state_ranks.h"
#include <dirent.h>
#include <sys/stat.h>

static bool save(Rank *r) { return hd_state_save(&r->x, "c", NULL, &r->job->at); }

static bool resume(Rank *r) {
    Progress at;
    if (!hd_state_resume(&r->x, "c", NULL, &at)) return false;
    CHECK(at.step == r->job->at.step && at.seed == r->job->at.seed && at.data_tokens == r->job->at.data_tokens &&
          at.sequences == r->job->at.sequences);
    return true;
}

static void save_under(const Mesh *mesh, int64_t step) {
    Job j = {.at = {.step = step, .seed = 5, .data_tokens = 1000, .sequences = 77}};
    start(&j, mesh);
    expect(&j, train);
    expect(&j, save);
    stop(&j);
}

static bool resume_under(const Mesh *mesh, int64_t step, char why[300]) {
    Job j = {.at = {.step = step, .seed = 5, .data_tokens = 1000, .sequences = 77}};
    start(&j, mesh);
    const bool ok = resumes_values(&j, resume, why);
    for (int r = 0; ok && r < j.ranks; r++) {
        int32_t got;
        memcpy(&got, j.rank[r].x.base + j.program.p.train_step.counter, 4);
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

    // a save of the same step of the same model, but not this one
    CHECK(!rename("c/step-9/rank-1.safetensors", "kept"));
    Job j = {.at = {.step = 9, .seed = 5, .data_tokens = 1000, .sequences = 77}};
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
        Job j = {.at = {.step = 5, .seed = 5, .data_tokens = 1000, .sequences = 77}};
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

TEST(a_layout_that_makes_no_sense_is_refused) {
    static const struct { const char *key, *value, *words;
    } cases[] = {{"shards", "0", "is inconsistent"},
                 {"shards", "-1", "is inconsistent"},
                 {"shards", NULL, "is inconsistent"},
                 {"shards", "1", "is inconsistent"},
                 {"shards", "99999999999", "is inconsistent"},
                 {"folder", "../c/step-2", "is inconsistent"},
                 {"folder", "..", "is inconsistent"},
                 {"folder", ".", "is inconsistent"},
                 {"folder", "step-2/../step-2", "is inconsistent"},
                 {"folder", "step-\033[2J", "is inconsistent"},
                 {"folder", NULL, "is inconsistent"},
                 {"param wte.weight", "[7,3] 0 [0,0]+[4,3]", "is inconsistent"},
                 {"param wte.weight", "[7,3] 0 [0,0]+[5,3] 1 [4,0]+[3,3]", "is inconsistent"},
                 {"param wte.weight", "[7,3] 0 [0,0]+[4,3] 1 [3,0]+[3,3]", "is inconsistent"},
                 {"param wte.weight", "[7,3] 1 [4,0]+[3,3] 0 [1,0]+[4,3]", "is inconsistent"},
                 {"param wte.weight", "[7,3] 0 [0,0]+[4,3] 2 [4,0]+[3,3]", "is inconsistent"},
                 {"param wte.weight", "[7,3] 0 [0,0]+[4,3] 1 [5,0]+[3,3]", "is inconsistent"},
                 {"param wte.weight", "[7,3] 0 [0,0]+[4,3] 1 [4,0]+[9,1]", "is inconsistent"},
                 {"param wte.weight", "[7,3] 0 [0,0]+[0,3] 1 [0,0]+[7,3]", "is inconsistent"},
                 {"param wte.weight", "[7,3] 0 [0]+[4] 1 [4,0]+[3,3]", "is inconsistent"},
                 {"param wte.weight", "[7,3] 0 [0,0]+[4] 1 [4,0]+[3,3]", "is inconsistent"},
                 {"param wte.weight", "[7,3] 0 [0,0]+[4,3],1 [4,0]+[3,3]", "is inconsistent"},
                 {"param wte.weight", "[7,3] 0 [0,0,0,0,0,0,0]+[1,1,1,1,1,1,1]", "is inconsistent"},
                 {"param wte.weight", "[7,3] 0 [0,99999999999999999999]+[4,3]", "is inconsistent"},
                 {"param wte.weight", "[7,3] 0 [0,-1]+[4,3] 1 [4,0]+[3,3]", "is inconsistent"},
                 {"param wte.weight", "[7,3]0 [0,0]+[7,3]", "is inconsistent"},
                 {"param norm", "[3]", "is inconsistent"},
                 {"param norm", "[3] 0 [0]+[3]", "does not hold all of 'norm[0]'"},
                 {"param norm", "[3] 1 [0]+[2] 1 [2]+[1]", "does not hold all of 'norm[0]'"},
                 {"param norm", "[4] 1 [0]+[3]", "tensor 'norm' is [4], this model's is [3]"},
                 {"param norm", "1 [0]+[3]", "tensor 'norm' is [0], this model's is [3]"},
                 {"param norm", NULL, "no tensor 'norm'"},
                 {"step", "x", "not a number"},
                 {"sequences", "-5", "not a number"},
                 {"sequences", "9223372036854775807", "not a number"},
                 {"model_hash", "abd", "another model"},
                 {"heddle_checkpoint", "4", "by a newer Heddle, in format 4"},
                 {"heddle_checkpoint", "2", "is inconsistent"},
                 {"shard 1", "5 00", "another save"},
                 {"shard 0", NULL, "another save"}};
    save_under(&meshes[6], 2);
    CHECK(!rename("c/checkpoint.safetensors", "kept"));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        change_manifest("kept", cases[i].key, cases[i].value);
        refused(&meshes[6], 2, "c/", cases[i].words);
    }
    change_manifest("kept", "sequences", "77");
    char why[300];
    CHECK(resume_under(&meshes[6], 2, why));
    change_manifest("kept", "sequences", NULL); // of an older program: two steps of one rank's batch
    Job j = {.at = {.step = 2, .seed = 5, .data_tokens = 1000, .sequences = 4}};
    start(&j, &meshes[6]);
    expect(&j, resume);
    stop(&j);
    unlink("kept");
    clean();
}

// --- another train block

static const char *resume_with;
static int64_t optimizer_start; // what a resumption under it found

static bool resume_settings(Rank *r) {
    Progress at;
    if (!hd_state_resume(&r->x, "c", &(HdResumeRules){.with = resume_with}, &at)) return false;
    CHECK(at.step == r->job->at.step && at.sequences == r->job->at.sequences);
    if (!r->x.world->rank) optimizer_start = at.optimizer_start;
    return true;
}

static void is_zero(int role, int k, int64_t i, float *at) { CHECK(role > 0 && k >= 0 && i >= 0 && *at == 0); }

static void under(Job *j, const Mesh *mesh, const char *core, const char *block) {
    start(j, mesh);
    j->program.p.model_hash = block; // it covers the train block
    j->program.p.model_core = core;
    j->program.p.train = block;
}

#define ADAMW "{clip = 1.0, betas = [0.9, 0.98], batch = 2, optimizer = adamw}"
#define OTHER "{clip = 1.0, batch = 2, optimizer = lion}"

// NULL: resumed; else why not
static const char *with(const Mesh *mesh, const char *core, const char *block, const char *names) {
    static char why[300];
    Job j = {.at = {.step = 4, .sequences = 77}};
    under(&j, mesh, core, block);
    resume_with = names;
    const bool ok = on_ranks(&j, resume_settings);
    snprintf(why, sizeof why, "%s", j.rank[0].why);
    for (int r = 0; ok && r < j.ranks; r++) {
        const bool fresh = strstr(block, "lion") != NULL;
        compute_is(&j.rank[r], want_value);
        for (int role = 1; role < 3; role++) each_element(&j.rank[r], role, fresh ? is_zero : is_value);
        int32_t counter;
        memcpy(&counter, j.rank[r].x.base + j.program.p.train_step.counter, 4);
        CHECK_INT(counter, fresh ? 0 : 4);
    }
    stop(&j);
    return ok ? NULL : why;
}

static void save_settings(const Mesh *mesh, const char *core, const char *block, Progress at) {
    Job j = {.at = at};
    under(&j, mesh, core, block);
    expect(&j, train);
    expect(&j, save);
    stop(&j);
}

static bool refused_with(const char *why, const char *a, const char *b) {
    if (why && strstr(why, a) && strstr(why, b)) return true;
    CHECK_TEXT(why ? why : "resumed", a);
    return false;
}

TEST(another_optimizer_begins_anew) {
    const Mesh *from = &meshes[6], *to = &meshes[9];
    save_settings(from, "m", ADAMW, (Progress){.step = 4, .sequences = 77});
    CHECK(refused_with(with(to, "m", OTHER, NULL), "--resume-with=betas,optimizer (or all)", "adamw there, lion in"));
    CHECK(refused_with(with(to, "m", OTHER, "clip,optimizer.lr"), "--resume-with=betas,optimizer", "none in this"));
    CHECK(refused_with(with(to, "n", OTHER, "all"), "another model", ""));
    CHECK(!with(to, "m", OTHER, "optimizer") && optimizer_start == 4);
    CHECK(!with(to, "m", ADAMW, "optimizer") && optimizer_start == 0); // nothing differs
    clean();
    // its steps are counted from there in every later checkpoint
    save_settings(from, "m", ADAMW, (Progress){.step = 9, .sequences = 77, .optimizer_start = 5});
    Job j = {.at = {.step = 9, .sequences = 77}};
    under(&j, to, "m", ADAMW);
    resume_with = NULL;
    expect(&j, resume_settings);
    int32_t counter;
    memcpy(&counter, j.rank[0].x.base + j.program.p.train_step.counter, 4);
    CHECK(counter == 4 && optimizer_start == 5);
    stop(&j);
    clean();
}

TEST(an_older_checkpoint_says_less) {
    static const char *const clips[] = {"{clip = 0.5, betas = [0.9, 0.98], batch = 2, optimizer = adamw}",
                                        "{clip = 1.0, betas = [0.9, 0.98], batch = 3, optimizer = adamw}",
                                        "{clip = 1.0, betas = [0.9, 0.98], batch = 2, optimizer = adamw, later = 0.9}"};
    for (int i = 0; i < 2; i++) { // one file, a manifest
        const Mesh *mesh = &meshes[i ? 6 : 0];
        save_settings(mesh, NULL, ADAMW, (Progress){.step = 4, .sequences = 77});
        CHECK(refused_with(with(mesh, "m", clips[0], NULL), "--resume-with=clip (or all)", "only names and shapes"));
        CHECK(!with(mesh, "m", clips[0], "clip") && !with(mesh, "m", ADAMW, NULL));
        CHECK(refused_with(with(mesh, "m", clips[2], "clip"), "--resume-with=later", "later = none there, 0.9 in"));
        CHECK(!with(mesh, "m", clips[2], "later") && !with(mesh, "m", clips[1], "all"));
    }
    CHECK(!rename("c/checkpoint.safetensors", "kept"));
    change_manifest("kept", "sequences", NULL);
    CHECK(refused_with(with(&meshes[6], "m", clips[1], "all"), "how many sequences", "train.batch"));
    change_manifest("kept", "train", NULL);
    CHECK(refused_with(with(&meshes[6], "m", clips[0], "all"), "another model or train block", ""));
    change_manifest("kept", "train", "{clip");
    CHECK(refused_with(with(&meshes[6], "m", clips[0], NULL), "--resume-with=", "another train block"));
    unlink("kept");
    clean();
}

// --- a rank 0 that names a folder elsewhere

static bool (*honest_share)(HdWorld *w, void *data, size_t bytes);
static const char *folder_sent; // "": 64 bytes without an end

static bool hostile_share(HdWorld *w, void *data, size_t bytes) {
    char folder[64];
    if (bytes != sizeof folder) return honest_share(w, data, bytes);
    memset(folder, 'x', sizeof folder);
    memcpy(folder, "step-", 5);
    if (*folder_sent) snprintf(folder, sizeof folder, "%s", folder_sent);
    return honest_share(w, folder, bytes);
}

TEST(a_folder_elsewhere_is_refused) {
    static const char *const names[] = {"", "../x", "..", "/tmp/x", "step-1/../../x", "step-", "step-\033[2J", "x"};
    const Mesh *mesh = meshes;
    while (!mesh->optimizer) mesh++;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        Job j = {.at = {.step = 1, .seed = 5, .data_tokens = 1000, .sequences = 77}};
        start(&j, mesh);
        expect(&j, train);
        honest_share = j.rank[0].x.world->share;
        j.rank[0].x.world->share = hostile_share;
        folder_sent = names[i];
        CHECK(!on_ranks(&j, save));
        CHECK_TEXT(j.rank[0].why, "rank 0 has sent something that cannot name the folder of a checkpoint's shards");
        stop(&j);
        CHECK(access("x", F_OK) != 0 && access("c/checkpoint.safetensors", F_OK) != 0);
    }
    clean();
}

int main(int argc, char **argv) { return run_state_tests(argc, argv); }
