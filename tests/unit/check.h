// Unit tests in one header. A test program is
//   TEST(grows) { CHECK(v.n == 3); CHECK_TEXT(out.text, "abc"); }
//   int main(int argc, char **argv) { return run_tests(argc, argv); }
// Each TEST registers itself; an argument names the one test to run. A failed check prints its place and the test
// continues.
#ifndef TESTS_UNIT_CHECK_H
#define TESTS_UNIT_CHECK_H
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

typedef struct TestCase { const char *name; void (*run)(void); struct TestCase *next; } TestCase;
static TestCase *test_cases;
static int test_failures;

#define TEST(id)                                                                                                       \
    static void test_##id(void);                                                                                       \
    __attribute__((constructor)) static void register_##id(void) {                                                     \
        static TestCase self = {#id, test_##id, NULL};                                                                 \
        TestCase **end = &test_cases;                                                                                  \
        while (*end) end = &(*end)->next;                                                                              \
        *end = &self;                                                                                                  \
    }                                                                                                                  \
    static void test_##id(void)

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: failed: %s\n", __FILE__, __LINE__, #condition);                                    \
            test_failures++;                                                                                           \
        }                                                                                                              \
    } while (0)

#define CHECK_INT(got, want)                                                                                           \
    do {                                                                                                               \
        int64_t got_ = (got), want_ = (want);                                                                          \
        if (got_ != want_) {                                                                                           \
            fprintf(stderr, "%s:%d: failed: %s is %" PRId64 ", not %" PRId64 "\n", __FILE__, __LINE__, #got, got_,     \
                    want_);                                                                                            \
            test_failures++;                                                                                           \
        }                                                                                                              \
    } while (0)

#define CHECK_TEXT(got, want)                                                                                          \
    do {                                                                                                               \
        const char *got_ = (got), *want_ = (want);                                                                     \
        if (!got_ || strcmp(got_, want_) != 0) {                                                                       \
            fprintf(stderr, "%s:%d: failed: %s is\n  %s\nnot\n  %s\n", __FILE__, __LINE__, #got, got_ ? got_ : "NULL", \
                    want_);                                                                                            \
            test_failures++;                                                                                           \
        }                                                                                                              \
    } while (0)

static int run_tests(int argc, char **argv) {
    int ran = 0;
    for (const TestCase *t = test_cases; t; t = t->next) {
        if (argc > 1 && strcmp(argv[1], t->name) != 0) continue;
        int before = test_failures;
        t->run();
        ran++;
        if (test_failures > before) fprintf(stderr, "test %s failed\n", t->name);
    }
    if (!ran) fprintf(stderr, "no test of that name\n");
    return test_failures || !ran ? 1 : 0;
}
#endif
