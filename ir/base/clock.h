// Time.
#ifndef IR_BASE_CLOCK_H
#define IR_BASE_CLOCK_H
#include <time.h>

static inline double hd_now(void) { // seconds of a clock that only goes forward
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
#endif
