// Arenas, arrays and the text sink.
#include "ir/base/arena.h"
#include "ir/base/out.h"
#include "ir/base/vec.h"
#include "tests/unit/check.h"
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

TEST(arena_zeroes_and_aligns) {
    Arena *a = hd_arena_new();
    for (size_t n = 0; n < 300; n++) {
        char *p = hd_alloc(a, n);
        CHECK((size_t)p % 16 == 0);
        for (size_t i = 0; i < n; i++) CHECK(p[i] == 0);
        memset(p, 0xff, n);
    }
    CHECK(hd_arena_bytes(a) >= 300 * 299 / 2);
    hd_arena_free(a);
}

TEST(arena_rewinds) {
    Arena *a = hd_arena_new();
    char *kept = hd_strdup(a, "kept");
    ArenaMark m = hd_arena_mark(a);
    char *first = hd_alloc(a, 100);
    memset(first, 1, 100);
    for (int i = 0; i < 1000; i++) hd_alloc(a, 1000); // more chunks
    size_t most = hd_arena_bytes(a);
    hd_arena_rewind(a, m);
    CHECK(hd_arena_bytes(a) < most);
    CHECK_TEXT(kept, "kept");
    char *again = hd_alloc(a, 100);
    CHECK(again == first);
    CHECK(again[0] == 0 && again[99] == 0);
    hd_arena_free(a);
}

TEST(arena_rewinds_to_nothing) {
    Arena *a = hd_arena_new();
    ArenaMark m = hd_arena_mark(a);
    hd_alloc(a, 10);
    hd_arena_rewind(a, m);
    CHECK_INT((int64_t)hd_arena_bytes(a), 0);
    hd_alloc(a, 10);
    hd_arena_free(a);
    hd_arena_free(NULL);
}

TEST(arena_takes_large_objects) {
    Arena *a = hd_arena_new();
    char *p = hd_alloc(a, 50 << 20);
    p[(50 << 20) - 1] = 1;
    hd_arena_free(a);
}

TEST(text_on_an_arena) {
    Arena *a = hd_arena_new();
    CHECK_TEXT(hd_sprintf(a, "%s-%d", "x", 42), "x-42");
    CHECK_TEXT(hd_strndup(a, "abcdef", 3), "abc");
    CHECK_TEXT(hd_sprintf(a, "%s", ""), "");
    hd_arena_free(a);
}

TEST(vec_grows) {
    Arena *a = hd_arena_new();
    VEC(int) v = {0};
    for (int i = 0; i < 1000; i++) hd_push(a, &v, i * i);
    CHECK_INT(v.n, 1000);
    for (int i = 0; i < v.n; i++) CHECK_INT(v.at[i], i * i);
    hd_arena_free(a);
}

TEST(out_appends) {
    Arena *a = hd_arena_new();
    Out o = hd_out(a);
    CHECK_TEXT(o.text, "");
    for (int i = 0; i < 1000; i++) hd_printf(&o, "%d,", i % 10);
    CHECK_INT((int64_t)o.n, 2000);
    CHECK_INT((int64_t)strlen(o.text), 2000);
    Out long_text = hd_out(a);
    char *s = hd_alloc(a, 5001);
    memset(s, 'x', 5000);
    hd_printf(&long_text, "<%s>", s); // longer than the buffer on the stack
    CHECK_INT((int64_t)long_text.n, 5002);
    CHECK(long_text.text[5001] == '>');
    hd_arena_free(a);
}

static const char *float_text(Arena *a, double v) {
    Out o = hd_out(a);
    hd_put_float(&o, v);
    return o.text;
}

TEST(out_floats_read_back) {
    Arena *a = hd_arena_new();
    CHECK_TEXT(float_text(a, 1), "1.0");
    CHECK_TEXT(float_text(a, 0.1), "0.1");
    CHECK_TEXT(float_text(a, -0.0), "-0.0");
    CHECK_TEXT(float_text(a, 1e-5), "1e-05");
    CHECK_TEXT(float_text(a, (double)INFINITY), "inf");
    CHECK_TEXT(float_text(a, -(double)INFINITY), "-inf");
    CHECK_TEXT(float_text(a, (double)NAN), "nan");
    uint64_t bits = 88172645463325252u;
    for (int i = 0; i < 10000; i++) {
        bits ^= bits << 13, bits ^= bits >> 7, bits ^= bits << 17;
        double v;
        memcpy(&v, &bits, sizeof v);
        if (isfinite(v)) CHECK(strtod(float_text(a, v), NULL) == v);
    }
    hd_arena_free(a);
}

TEST(out_numbers) {
    Arena *a = hd_arena_new();
    const int64_t ints[] = {0, 7, -7, 10, 1234567890, INT64_MAX, INT64_MIN};
    for (size_t i = 0; i < sizeof ints / sizeof *ints; i++) {
        Out o = hd_out(a);
        hd_put_int(&o, ints[i]);
        CHECK_TEXT(o.text, hd_sprintf(a, "%" PRId64, ints[i]));
        Out hex = hd_out(a);
        hd_put_hex(&hex, (uint64_t)ints[i]);
        CHECK_TEXT(hex.text, hd_sprintf(a, "%" PRIx64, (uint64_t)ints[i]));
    }
    hd_arena_free(a);
}

TEST(out_quotes) {
    Arena *a = hd_arena_new();
    Out o = hd_out(a);
    hd_put_quoted(&o, "a\"b\\c\n\x01");
    CHECK_TEXT(o.text, "\"a\\\"b\\\\c\\n\\x01\"");
    Out plain = hd_out(a);
    hd_put_quoted(&plain, "");
    hd_put_quoted(&plain, "gr\xc3\xbc\xc3\x9f");
    CHECK_TEXT(plain.text, "\"\"\"gr\xc3\xbc\xc3\x9f\"");
    hd_arena_free(a);
}

// Every form that a format may have: as printf writes it, where the strings are clean.
TEST(shown_as_printf) {
#define SAME(...)                                                                                                      \
    do {                                                                                                               \
        Out o = hd_out(a), json = hd_out(a);                                                                           \
        hd_show(&o, __VA_ARGS__);                                                                                      \
        hd_put_json(&json, __VA_ARGS__);                                                                               \
        CHECK_TEXT(o.text, hd_sprintf(a, __VA_ARGS__));                                                                \
        CHECK_TEXT(json.text, o.text);                                                                                 \
    } while (0)
    Arena *a = hd_arena_new();
    SAME("no arguments, 100 %% of it%%");
    SAME("%d|%5d|%-5d|%05d|%+d|% d|%.3d|%*d|%-*d|", -7, 42, 42, 42, 42, 42, 7, 6, 42, 6, 42);
    SAME("%u|%o|%x|%#X|%08x|%i|%c|%3c|%-3c|", 3000000000u, 8u, 255u, 255u, 255u, INT32_MIN, 'x', 'y', 'z');
    SAME("%ld|%lu|%lld|%llu|%20lld|%zu|%td|%jd|%016llx", LONG_MIN, ULONG_MAX, (long long)INT64_MIN,
         (unsigned long long)UINT64_MAX, 12345678901LL, SIZE_MAX, (ptrdiff_t)-1, (intmax_t)INT64_MAX, 0xabcdefULL);
    SAME("%f|%.2f|%8.3f|%-8.1f|%g|%.9g|%.17g|%e|%a|%.*f|%+.0f|%f", 1.5, 2.345, 3.14159, 2.0, 1e-9, 0.1, 0.1, 12345.678,
         0.1, 3, 2.0 / 3, 7.0, 1e300);
    SAME("%s|%10s|%-10s|%.2s|%.*s|%*.*s|%-*s|%s", "plain", "right", "left", "cut", 3, "four", 8, 2, "xyz", 7, "w", "");
    SAME("%p|%s", (void *)a, "caf\xc3\xa9 \xe2\x86\x92 \xf0\x9f\x98\x80");
    hd_arena_free(a);
}

TEST(strangers_are_shown) {
    static const struct { const char *text, *shown, *json; } cases[] = {
        {"a\nb\tc\x7f", "a?b?c?", "a\\u000ab\\u0009c\\u007f"},
        {"\"\\</script>", "\"\\</script>", "\\\"\\\\\\u003c/script>"},
        {"\xc2\x9b\xe2\x80\xae", "?????", "\\u009b\\u202e"},
        {"\xff\x9b\xc3", "???", "\\ufffd\\ufffd\\ufffd"},
        {"\xed\xa0\x80\xc0\x80", "?????", "\\ufffd\\ufffd\\ufffd\\ufffd\\ufffd"},
    };
    Arena *a = hd_arena_new();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Out shown = hd_out(a), json = hd_out(a);
        hd_show(&shown, "\n%s\n", cases[i].text);
        hd_put_json(&json, "\"%s\"", cases[i].text);
        CHECK_TEXT(shown.text, hd_sprintf(a, "\n%s\n", cases[i].shown));
        CHECK_TEXT(json.text, hd_sprintf(a, "\"%s\"", cases[i].json));
    }
    Out cut = hd_out(a); // within a character
    hd_show(&cut, "%.1s%c|", "\xc3\xa9", '\x1b');
    CHECK_TEXT(cut.text, "??|");
    hd_arena_free(a);
}

TEST(files_round_trip) {
    Arena *a = hd_arena_new();
    size_t n = 0;
    CHECK(hd_write_file("unit_base.tmp", "a\0b", 3) == 0);
    char *text = hd_read_file(a, "unit_base.tmp", &n);
    CHECK_INT((int64_t)n, 3);
    CHECK(text && !memcmp(text, "a\0b", 4));
    remove("unit_base.tmp");
    CHECK(hd_read_file(a, "unit_base.tmp", &n) == NULL);
    CHECK(hd_write_file("no/such/folder", "", 0) != 0);
    hd_arena_free(a);
}

TEST(half_a_file_is_none) { // as on a full disk
    static char text[8192];
    struct rlimit old, few = {4096, 4096};
    getrlimit(RLIMIT_FSIZE, &old);
    few.rlim_max = old.rlim_max;
    void (*was)(int) = signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &few);
    const int error = hd_write_file("unit_base.tmp", text, sizeof text);
    setrlimit(RLIMIT_FSIZE, &old);
    signal(SIGXFSZ, was);
    CHECK_INT(error, EFBIG);
    CHECK(access("unit_base.tmp", F_OK) != 0);
    CHECK(hd_write_file("/dev/full", text, sizeof text) == ENOSPC && access("/dev/full", F_OK) == 0); // no file of ours
    Arena *paths = hd_arena_new();
    CHECK(!hd_write_target(paths, "/dev/stdout") && !hd_write_target(paths, "/dev/null"));
    CHECK_TEXT(hd_write_target(paths, "/dev/shm/no such file"), "/dev/shm/no such file"); // a folder of ordinary files
    hd_arena_free(paths);
}

int main(int argc, char **argv) { return run_tests(argc, argv); }
