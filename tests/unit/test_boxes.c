// Boxes of a parameter's indices in checkpoints: spans as boxes, boxes that are cut along any dimension, and
// checkpoints of older programs, whose files have flat parts of buckets. tests/unit/checkpoints/ is what programs of
// commit 631eb68 wrote: `flat` under the mesh "zero3 replicated" of state_ranks.h, `whole` under "one rank".
#define BLOCK_ROWS 4
#include "runtime/checkpoint/boxes.h"
#include "tests/unit/state_ranks.h"
#include <sys/stat.h>

#define OLDER HEDDLE_SOURCE "/tests/unit/checkpoints"

static bool resume(Rank *r) {
    Progress at;
    if (!hd_state_resume(&r->x, r->job->path, NULL, &at)) return false;
    CHECK(at.step == 5 && at.seed == 5 && at.data_tokens == 1000 && at.sequences == 77);
    return true;
}

static bool resume_under(const Mesh *mesh, const char *path, char why[300]) {
    Job j = {.path = path};
    start(&j, mesh);
    const bool ok = resumes_values(&j, resume, why);
    stop(&j);
    return ok;
}

static void resumes_under_every_mesh(const char *path) {
    char why[300];
    for (int i = 0; i < N_MESHES; i++)
        if (!resume_under(&meshes[i], path, why)) CHECK_TEXT(why, "no failure");
}

// --- spans

static void span_is_boxes(const HdParam *q, HdSpan s) {
    HdBox boxes[HD_MOST_BOXES];
    const int n = hd_span_boxes(q, s, boxes);
    const HdBox *of[HD_MOST_BOXES];
    int64_t at = s.first;
    CHECK(n <= (q->rank ? 2 * q->rank - 1 : 1));
    for (int i = 0; i < n; i++) {
        HdRun run;
        of[i] = &boxes[i];
        CHECK(hd_box_inside(&boxes[i], q));
        CHECK(hd_box_run(&boxes[i], q, 0, &run) && run.first == at && !run.at && run.count == hd_box_count(&boxes[i]));
        at += hd_box_count(&boxes[i]);
        CHECK(!hd_box_run(&boxes[i], q, at, &run));
    }
    CHECK_INT(at, s.first + s.count);
    CHECK(hd_boxes_apart(of, n, q));
}

TEST(every_span_is_a_few_boxes) {
    static const HdParam shapes[] = {{.rank = 0, .count = 1}, {.rank = 1, .dim = {5}, .count = 5},
                                     {.rank = 2, .dim = {4, 3}, .count = 12}, {.rank = 2, .dim = {1, 6}, .count = 6},
                                     {.rank = 3, .dim = {3, 2, 4}, .count = 24},
                                     {.rank = 4, .dim = {2, 3, 1, 4}, .count = 24}};
    for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++)
        for (int64_t first = 0; first <= shapes[k].count; first++)
            for (int64_t n = 0; first + n <= shapes[k].count; n++) span_is_boxes(&shapes[k], (HdSpan){first, n});
}

// --- runs, against indices counted one by one

static int64_t index_of(const HdParam *q, int64_t element, int dim) {
    for (int i = q->rank - 1; i > dim; i--) element /= q->dim[i];
    return element % q->dim[dim];
}

static bool has(const HdBox *b, const HdParam *q, int64_t element, int64_t *at) {
    bool inside = true;
    *at = 0;
    for (int i = 0; i < q->rank; i++) {
        const int64_t index = index_of(q, element, i) - b->start[i];
        inside &= index >= 0 && index < b->extent[i];
        *at = *at * b->extent[i] + index;
    }
    return inside;
}

static void runs_are_right(const HdBox *b, const HdParam *q) {
    for (int64_t from = 0; from <= q->count; from++) {
        HdRun run;
        int64_t first = from, at = 0;
        while (first < q->count && !has(b, q, first, &at)) first++;
        const bool some = hd_box_run(b, q, from, &run);
        CHECK(some == (first < q->count));
        if (!some) continue;
        CHECK(run.first == first && run.at == at && run.count > 0);
        for (int64_t i = 0, place; i < run.count; i++) CHECK(has(b, q, first + i, &place) && place == at + i);
    }
}

TEST(runs_of_every_box) {
    static const HdParam q = {.rank = 3, .dim = {3, 2, 4}, .count = 24};
    HdBox b = {.rank = 3};
    for (int64_t box = 0; box < 6 * 3 * 10; box++) { // a start and an extent of each dimension
        int64_t left = box, n = 0;
        for (int i = 0; i < 3; i++) {
            const int64_t d = q.dim[i], ways = d * (d + 1) / 2;
            int64_t way = left % ways;
            left /= ways;
            for (b.start[i] = 0; way >= d - b.start[i]; b.start[i]++) way -= d - b.start[i];
            b.extent[i] = way + 1;
            n += b.start[i] + b.extent[i] <= d;
        }
        CHECK_INT(n, 3);
        runs_are_right(&b, &q);
    }
}

// --- older programs

TEST(checkpoints_of_older_programs) {
    resumes_under_every_mesh(OLDER "/whole");
    resumes_under_every_mesh(OLDER "/flat");
}

TEST(older_layouts_that_make_no_sense) {
    static const struct { const char *key, *value, *words; } cases[] = {
        {"bucket 0", "24", "is inconsistent"},          {"bucket 0", "24 0 root", "is inconsistent"},
        {"bucket 0", "x", "is inconsistent"},           {"bucket 0", "9999999 1 root", "is inconsistent"},
        {"bucket 0", "20 10 root", "is inconsistent"},  {"bucket 1", NULL, "is inconsistent"},
        {"bucket 0", "24 8 other", "does not hold all of 'other'"},
        {"bucket 0", "24 12 root", "does not hold all of 'root'"},
        {"param norm", "0 22 [3]", "is inconsistent"},  {"param norm", "2 0 [3]", "is inconsistent"},
        {"param norm", "0 [3]", "is inconsistent"},
        {"param norm", "0 21 [4]", "tensor 'norm' is [4], this model's is [3]"},
        {"heddle_checkpoint", "3", "is inconsistent"},  {"shard 1", "5 00", "another save"}};
    char why[300];
    CHECK(!system("cp -r '" OLDER "/flat' c"));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        change_manifest(OLDER "/flat/checkpoint.safetensors", cases[i].key, cases[i].value);
        const bool ok = resume_under(&meshes[6], "c", why);
        if (ok || !strstr(why, cases[i].words)) CHECK_TEXT(ok ? "resumed" : why, cases[i].words);
    }
    CHECK(!system("rm -r c"));
}

// --- parameters that are cut along their last dimension

static HdBox half(const HdParam *q, int file) { // empty: the second one of a scalar
    HdBox b = {.rank = q->rank};
    for (int i = 0; i < q->rank; i++) b.extent[i] = q->dim[i];
    if (!q->rank) return b;
    const int64_t n = q->dim[q->rank - 1], cut = n / 2;
    b.start[q->rank - 1] = file ? cut : 0;
    b.extent[q->rank - 1] = file ? n - cut : cut;
    return b;
}

static bool is_there(const HdParam *q, int file) { return q->rank || !file; }

static void write_half(int file, char said[80]) {
    static const char *const prefix[] = {"", "moment1.", "moment2."};
    StMeta meta[] = {{"heddle_checkpoint", "shard"}, {"model_hash", "abc"}, {"step", "5"}, {"seed", "5"},
                     {"shard", file ? "1" : "0"},    {"shards", "2"}};
    StWriter w;
    CHECK(hd_st_create(&w, file ? "c/step-5/rank-1.safetensors" : "c/step-5/rank-0.safetensors", true));
    for (int pass = 0; pass < 2; pass++) { // the declarations, the data
        for (int role = 0; role < 3; role++)
            for (int k = 0; k < N_PARAMS; k++) {
                const HdBox b = half(&params[k], file);
                char of[80], name[100];
                hd_box_name(of, sizeof of, params[k].name, &b);
                snprintf(name, sizeof name, "%s%s", prefix[role], of);
                if (!is_there(&params[k], file)) continue;
                if (!pass) hd_st_declare(&w, name, b.rank, b.extent);
                for (int64_t i = 0, at; pass && i < params[k].count; i++) {
                    const float v = value(role, k, i);
                    if (has(&b, &params[k], i, &at)) hd_st_put(&w, &v, sizeof v);
                }
            }
        if (!pass) hd_st_begin(&w, sizeof meta / sizeof *meta, meta);
    }
    CHECK(hd_st_finish(&w));
    int n = snprintf(said, 80, "%lld ", (long long)w.written);
    for (int i = 0; i < 16; i++) n += snprintf(said + n, 80 - (size_t)n, "%02x", w.digest[i]);
}

static void write_columns(void) {
    char said[2][80], key[N_PARAMS][80], where[N_PARAMS][2 * HD_BOX_TEXT];
    StMeta meta[11 + N_PARAMS] = {{"heddle_checkpoint", "3"}, {"model", "Toy"},       {"model_hash", "abc"},
                                  {"step", "5"},              {"seed", "5"},          {"data_tokens", "1000"},
                                  {"sequences", "77"},        {"folder", "step-5"},   {"shards", "2"},
                                  {"shard 0", said[0]},       {"shard 1", said[1]}};
    StWriter w;
    CHECK(!mkdir("c", 0777) && !mkdir("c/step-5", 0777));
    for (int file = 0; file < 2; file++) write_half(file, said[file]);
    for (int k = 0; k < N_PARAMS; k++) {
        snprintf(key[k], sizeof key[k], "param %s", params[k].name);
        hd_shape_text(where[k], sizeof where[k], params[k].rank, params[k].dim);
        for (int file = 1; file >= 0; file--) { // in any order
            char text[HD_BOX_TEXT];
            const HdBox b = half(&params[k], file);
            const size_t n = strlen(where[k]);
            hd_box_text(text, sizeof text, &b);
            if (is_there(&params[k], file)) snprintf(where[k] + n, sizeof where[k] - n, " %d %s", file, text);
        }
        meta[11 + k] = (StMeta){key[k], where[k]};
    }
    CHECK(hd_st_create(&w, "c/checkpoint.safetensors", true));
    hd_st_begin(&w, 11 + N_PARAMS, meta);
    CHECK(hd_st_finish(&w));
}

TEST(a_parameter_may_be_cut_along_any_dimension) {
    write_columns();
    resumes_under_every_mesh("c");
    CHECK(!system("rm -r c"));
}

int main(int argc, char **argv) { return run_state_tests(argc, argv); }
