// The pending failure message of a thread: the last one given to hd_fail. And the clock.
#include "runtime/heddle.h"
#include "runtime/text.h"
#include <stdarg.h>
#include <stdio.h>
#include <time.h>

static _Thread_local char message[4096];

bool hd_fail(const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(message, sizeof message, fmt, ap);
    va_end(ap);
    hd_text_clean(message, sizeof message); // it may quote a file; it is one line
    return false;
}

const char *hd_failure(void) { return message; }

double hd_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}
