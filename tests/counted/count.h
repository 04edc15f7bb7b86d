// The work of a program so far: the basic blocks that ran, and a sixteenth of the bytes that functions of <string.h>
// went over.
#ifndef TESTS_COUNTED_COUNT_H
#define TESTS_COUNTED_COUNT_H
#include <stdint.h>

uint64_t counted_work(void);
#endif
