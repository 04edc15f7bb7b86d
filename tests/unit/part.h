// Tests that take long by nature are cut into seven parts: HEDDLE_TEST_PART=N in the environment has one of them run,
// as in tests/run/part.py.
#ifndef TESTS_UNIT_PART_H
#define TESTS_UNIT_PART_H
#include <stdlib.h>
#include <string.h>

static inline const char *test_part(void) { // for a message: how to run the same again
    const char *text = getenv("HEDDLE_TEST_PART");
    return text ? text : "all";
}

static inline int in_part(size_t i) { // whether the i-th of a list that does not change has its turn
    enum { PARTS = 7 };
    const char *text = test_part();
    return !strcmp(text, "all") || ((size_t)atoi(text) + PARTS - 1) % PARTS == i % PARTS;
}
#endif
