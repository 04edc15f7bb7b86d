// The runtime's own parts: random numbers, token files and their order, safetensors written and read.
#include "runtime/data/feed.h"
#include "runtime/heddle.h"
#include "runtime/philox.h"
#include "runtime/checkpoint/safetensors.h"
#include "tests/unit/check.h"
#include <math.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

// --- random numbers

TEST(philox_known_answers) { // of the reference implementation, for all-zero and all-one input
    uint32_t r[4];
    hd_philox(0, 0, 0, r);
    CHECK(r[0] == 0x6627e8d5 && r[1] == 0xe169c58d && r[2] == 0xbc57ac4c && r[3] == 0x9b00dbd8);
    hd_philox(UINT64_MAX, UINT64_MAX, UINT64_MAX, r);
    CHECK(r[0] == 0x408f276d && r[1] == 0x41c83b0e && r[2] == 0xa20bc7c6 && r[3] == 0x6d5451fd);
}

TEST(quantile_inverts_the_distribution) {
    for (int i = 0; i < 4000; i++) {
        // the middle, then the tail down to 2^-32
        double p = i < 3000 ? (i + 0.5) / 3000 : pow(2, -(i - 2999) / 32.0 - 1);
        double x = hd_draw_quantile(p), back = 0.5 * erfc(-x * 0.70710678118654752);
        CHECK(fabs(back - p) <= 2e-6 * p * (1 + fabs(x)));
        if (p > 1e-6) CHECK(fabs(hd_draw_quantile(1 - p) + x) <= 1e-6 * (1 + fabs(x)));
    }
    CHECK(hd_draw_quantile(0.5) == 0);
    CHECK(fabs(hd_draw_quantile(0.975) - 1.959963985) < 2e-7);
    // what fills use
    double least = hd_draw_quantile(0.5 * 0x1p-32), most = hd_draw_quantile(((double)UINT32_MAX + 0.5) * 0x1p-32);
    CHECK(isfinite(least) && isfinite(most) && least < -6 && most > 6);
}

static void fill(uint64_t seed, uint64_t stream, int64_t first, int64_t count, int kind, double scale, float *out) {
    hd_draw(&(HdDraw){seed, stream, first, count, scale, kind}, out);
}

TEST(fill_does_not_depend_on_the_cut) {
    enum { N = 1000 };
    float whole[N], part[N], other[N];
    for (int kind = HD_DRAW_UNIFORM; kind <= HD_DRAW_TRUNCATED; kind++) {
        fill(7, 3, 0, N, kind, 0.02, whole);
        for (int cut = 0; cut <= N; cut += 37) {
            fill(7, 3, 0, cut, kind, 0.02, part);
            fill(7, 3, cut, N - cut, kind, 0.02, part + cut);
            CHECK(!memcmp(whole, part, sizeof whole));
        }
        fill(7, 4, 0, N, kind, 0.02, other);
        CHECK(memcmp(whole, other, sizeof whole) != 0);
        fill(8, 3, 0, N, kind, 0.02, other);
        CHECK(memcmp(whole, other, sizeof whole) != 0);
    }
}

TEST(fill_has_its_moments) {
    enum { N = 200000 };
    float *v = malloc(sizeof *v * N);
    // 1 - 4 phi(2) / (2 Phi(2) - 1), with density phi and distribution Phi, is left by truncation at 2 of a variance
    // of 1
    const double variance[] = {[HD_DRAW_UNIFORM] = 4.0 / 3, [HD_DRAW_NORMAL] = 4,
                               [HD_DRAW_TRUNCATED] = 4 * 0.773741};
    const float most[] = {[HD_DRAW_UNIFORM] = 2, [HD_DRAW_NORMAL] = INFINITY, [HD_DRAW_TRUNCATED] = 4};
    for (int kind = HD_DRAW_UNIFORM; v && kind <= HD_DRAW_TRUNCATED; kind++) {
        double sum = 0, squares = 0;
        fill(42, 0, 0, N, kind, 2, v);
        for (int i = 0; i < N; i++) {
            sum += (double)v[i];
            squares += (double)v[i] * (double)v[i];
            CHECK(fabsf(v[i]) <= most[kind]);
        }
        CHECK(fabs(sum / N) < 0.02);
        CHECK(fabs(squares / N - variance[kind]) < 0.05);
    }
    free(v);
}

// --- token files

static const char *file(const char *name, const void *data, size_t bytes) {
    FILE *f = fopen(name, "wb");
    CHECK(f && fwrite(data, 1, bytes, f) == bytes);
    if (f) fclose(f);
    return name;
}

typedef struct { HdInput inputs[2]; HdProgram p; } Toy; // what takes (tokens, targets)

static bool open_one(Feed *d, Toy *t, const char *name, int64_t batch, int64_t seq, int64_t vocab) {
    for (int i = 0; i < 2; i++)
        t->inputs[i] = (HdInput){i ? "targets" : "tokens", HD_I32, 2, {batch, seq}, i - 1, vocab, 0};
    t->p = (HdProgram){.model = "Toy", .batch = batch, .seq = seq, .n_inputs = 2, .inputs = t->inputs};
    const HdInputs inputs = hd_inputs(&t->p);
    return hd_feed_open(d, &inputs, "data", (Names){1, &name}, (Names){0}, 1);
}

static const int32_t *at(const Feed *d, int input) { return hd_feed_at(d, input, 0); }

static void expect_epochs(int64_t windows) { // of sequences of one token; every epoch reads each window once
    enum { SEQ = 1 };
    static uint16_t tokens[5001];
    for (int i = 0; i < 5001; i++) tokens[i] = (uint16_t)i;
    Feed d;
    Toy t;
    CHECK(open_one(&d, &t, file("order.bin", tokens, (size_t)(windows + 1) * 2), 1, SEQ, 65536));
    CHECK_INT(d.rows, windows);
    int seen[5001] = {0};
    int64_t same = 0, previous[5001];
    for (int64_t epoch = 0; epoch < 3; epoch++)
        for (int64_t i = 0; i < windows; i++) {
            CHECK(hd_feed_batch(&d, 5, epoch * windows + i, 0));
            const int32_t token = *at(&d, 0), target = *at(&d, 1);
            CHECK(token >= 0 && token < windows && target == token + 1 && seen[token] == epoch);
            seen[token]++;
            same += epoch && previous[i] == token;
            previous[i] = token;
        }
    if (windows > 100) CHECK(same < windows / 10); // each epoch has an order of its own
    hd_feed_close(&d);
}

TEST(order_is_a_permutation) {
    static const int64_t windows[] = {1,  2,   3,   4,   5,   7,    15,   16,   17,   63,  64,
                                      65, 100, 255, 256, 257, 1000, 4095, 4096, 4097, 5000};
    for (size_t i = 0; i < sizeof windows / sizeof *windows; i++) expect_epochs(windows[i]);
}

TEST(batches_are_the_sequences_one_by_one) {
    enum { SEQ = 3, BATCH = 4 };
    unsigned char text[100];
    for (int i = 0; i < 100; i++) text[i] = (unsigned char)i;
    const char *name = file("order.txt", text, sizeof text);
    Feed d, one;
    Toy t, single;
    CHECK(open_one(&d, &t, name, BATCH, SEQ, 256) && open_one(&one, &single, name, 1, SEQ, 256));
    CHECK_INT(d.rows, 33);
    for (int64_t first = 0; first < 200; first += BATCH) {
        CHECK(hd_feed_batch(&d, 1, first, 0));
        for (int b = 0; b < BATCH; b++) {
            const int32_t *tokens = at(&one, 0), *next = at(&one, 1);
            CHECK(hd_feed_batch(&one, 1, first + b, 0));
            CHECK(!memcmp(tokens, at(&d, 0) + b * SEQ, SEQ * 4) && !memcmp(next, at(&d, 1) + b * SEQ, SEQ * 4));
            CHECK(tokens[1] == tokens[0] + 1 && next[0] == tokens[1] && next[2] == tokens[0] + 3);
            CHECK(tokens[0] % SEQ == 0);
        }
    }
    hd_feed_close(&d);
    hd_feed_close(&one);
    CHECK(open_one(&d, &t, name, 1, SEQ, 50) && !hd_feed_row(&d, 20, 0));
    CHECK_TEXT(hd_failure(), "order.txt: token 60 at position 60 is outside the vocabulary of 50");
    hd_feed_close(&d);
}

// --- safetensors

static StMeta meta[] = {{(char *)"quote\"back\\slash", (char *)"line\nend\x01"}, {(char *)"empty", (char *)""}};

static bool write_file(const char *path, bool checksum, const float *v) {
    StWriter w;
    if (!hd_st_create(&w, path, checksum)) return false;
    hd_st_declare(&w, "a", 2, (int64_t[]){2, 3});
    hd_st_declare(&w, "scalar", 0, NULL);
    hd_st_begin(&w, 2, meta);
    hd_st_put(&w, v, 6 * sizeof *v);
    hd_st_put(&w, v + 6, sizeof *v);
    return hd_st_finish(&w);
}

TEST(safetensors_round_trip) {
    const float v[7] = {1, -2, 3.5f, 0, -0.0f, 1e-40f, 7};
    float got[6];
    for (int checksum = 0; checksum < 2; checksum++) {
        StFile f;
        CHECK(write_file("round.safetensors", checksum, v));
        CHECK(hd_st_open(&f, "round.safetensors"));
        const StTensor *a = hd_st_find(&f, "a"), *s = hd_st_find(&f, "scalar");
        CHECK(a && a->rank == 2 && a->dim[0] == 2 && a->dim[1] == 3 && s && s->rank == 0);
        CHECK(hd_st_floats(&f, a, 0, 6, got) && !memcmp(got, v, sizeof got));
        CHECK(hd_st_floats(&f, a, 4, 2, got) && !memcmp(got, v + 4, 8));
        CHECK(hd_st_floats(&f, s, 0, 1, got) && got[0] == 7);
        CHECK_TEXT(hd_st_meta(&f, meta[0].key), meta[0].value);
        CHECK_TEXT(hd_st_meta(&f, "empty"), "");
        CHECK(!hd_st_meta(&f, "absent") && !hd_st_find(&f, "absent"));
        CHECK(hd_st_checksum_ok(&f) == checksum);
        CHECK_INT(f.n, 2 + checksum);
        hd_st_close(&f);
    }
}

TEST(every_changed_byte_and_every_cut_is_found) {
    static unsigned char bytes[4096], changed[4096];
    const float v[7] = {1, 2, 3, 4, 5, 6, 7};
    CHECK(write_file("whole.safetensors", true, v));
    FILE *in = fopen("whole.safetensors", "rb");
    size_t n = in ? fread(bytes, 1, sizeof bytes, in) : 0;
    if (in) fclose(in);
    CHECK(n > 100 && n < sizeof bytes);
    for (size_t i = 0; i < n; i++) {
        StFile f;
        memcpy(changed, bytes, n);
        changed[i] ^= (unsigned char)(1u << i % 8);
        bool good = hd_st_open(&f, file("changed.safetensors", changed, n));
        CHECK(!good || !hd_st_checksum_ok(&f));
        if (good) hd_st_close(&f);
        good = hd_st_open(&f, file("changed.safetensors", bytes, i));
        CHECK(!good);
        if (good) hd_st_close(&f);
    }
}

static bool accepted(const char *header, size_t data) {
    unsigned char bytes[1024] = {0};
    size_t n = strlen(header);
    for (int i = 0; i < 8; i++) bytes[i] = (unsigned char)((uint64_t)n >> (8 * i));
    memcpy(bytes + 8, header, n);
    StFile f;
    bool good = hd_st_open(&f, file("header.safetensors", bytes, 8 + n + data));
    if (good) hd_st_close(&f);
    return good;
}

TEST(headers) {
    static const char *const good[] = {
        "{}",
        " { } ",
        "{\"__metadata__\":{}}",
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[1,1],\"data_offsets\":[0,4]}}",
        "{\"a\":{\"data_offsets\":[2,4],\"dtype\":\"BF16\",\"shape\":[]}, \"__metadata__\":{\"k\":\"v\"}}\n ",
        "{\"\\u0061\\n\\\"\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[4,4]}}",
        "{\"a\":{\"dtype\":\"F999\",\"shape\":[7],\"data_offsets\":[0,1]}}",
        "{\"a\":{\"dtype\":\"BF16\",\"shape\":[1],\"data_offsets\":[2,4]},"
        "\"z\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[2,2]},"
        "\"b\":{\"dtype\":\"BF16\",\"shape\":[1],\"data_offsets\":[0,2]}}"};
    static const char *const bad[] = {
        "",
        "{",
        "}",
        "[]",
        "{}x",
        "{\"a\"}",
        "{\"a\":}",
        "{\"a\":1}",
        "{\"a\":{}}",
        "{\"a",
        "{\"a\\",
        "{\"a\\\"",
        "{\"\\u12\":{}}",
        "{\"\\q\":{}}",
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},}",
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,8]}}",
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4]}}",
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,0]}}",
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,4]}}",
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0]}}",
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,4]}}",
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296,1],\"data_offsets\":[0,0]}}",
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[99999999999999999999],\"data_offsets\":[0,4]}}",
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[18446744073709551612,0]}}",
        "{\"a\":{\"dtype\":\"BF16\",\"shape\":[1],\"data_offsets\":[1,3]},"
        "\"b\":{\"dtype\":\"BF16\",\"shape\":[1],\"data_offsets\":[0,2]}}",
        "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[3,4]},"
        "\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[3,4]}}",
        "{\"__metadata__\":{\"k\":1}}",
        "{\"__metadata__\":{\"k\"}}"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        if (!accepted(good[i], 4)) CHECK_TEXT(good[i], "accepted");
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (accepted(bad[i], 4)) CHECK_TEXT(bad[i], "refused");
}

TEST(half_precision_is_read_exactly) {
    static unsigned char bytes[8 + 80 + 65536 * 2];
    static float v[65536];
    for (int brain = 0; brain < 2; brain++) {
        memset(bytes, ' ', 88);
        for (int i = 0; i < 8; i++) bytes[i] = i ? 0 : 80;
        int n =
            snprintf((char *)bytes + 8, 80, "{\"h\":{\"dtype\":\"%s\",\"shape\":[65536],\"data_offsets\":[0,131072]}}",
                     brain ? "BF16" : "F16");
        bytes[8 + n] = ' ';
        for (int i = 0; i < 65536; i++) {
            bytes[88 + 2 * i] = (unsigned char)i;
            bytes[89 + 2 * i] = (unsigned char)(i >> 8);
        }
        StFile f;
        CHECK(hd_st_open(&f, file("half.safetensors", bytes, sizeof bytes)));
        CHECK(hd_st_floats(&f, hd_st_find(&f, "h"), 0, 65536, v));
        const int fraction = brain ? 7 : 10, bias = brain ? 127 : 15, top = brain ? 255 : 31;
        for (int i = 0; i < 65536; i++) {
            int e = (i & 0x7fff) >> fraction, m = i & ((1 << fraction) - 1);
            double want = e == top ? ((double)(m ? NAN : INFINITY))
                                   : ldexp(m + (e ? 1 << fraction : 0), (e ? e : 1) - bias - fraction);
            if (isnan(want)) CHECK(isnan(v[i]));
            else CHECK((double)v[i] == (i & 0x8000 ? -want : want) && !signbit(v[i]) == !(i & 0x8000));
        }
        hd_st_close(&f);
    }
}

TEST(a_file_that_cannot_be_written_leaves_nothing) {
    const float v[7] = {0};
    StWriter w;
    CHECK(!hd_st_create(&w, "no/such/folder/x", true));
    CHECK(strstr(hd_failure(), "no/such/folder/x: No such file") != NULL);
    mkdir("a_folder", 0777);
    CHECK(!hd_st_create(&w, "a_folder", true));
    rmdir("a_folder");
    unlink("full");
    if (symlink("/dev/full", "full")) return; // a device is written in place, not replaced
    CHECK(!write_file("full", true, v));
    CHECK_TEXT(hd_failure(), "cannot write full: No space left on device");
    struct stat st;
    CHECK(!lstat("full", &st) && S_ISLNK(st.st_mode));
    unlink("full");
}

int main(int argc, char **argv) {
    char folder[] = "runtime_XXXXXX";
    if (!mkdtemp(folder) || chdir(folder)) return 1;
    int status = run_tests(argc, argv);
    static const char *const made[] = {"order.bin",         "order.txt",           "round.safetensors",
                                       "whole.safetensors", "changed.safetensors", "header.safetensors",
                                       "half.safetensors"};
    for (size_t i = 0; i < sizeof made / sizeof *made; i++) unlink(made[i]);
    if (chdir("..") || rmdir(folder)) return 1;
    return status;
}
