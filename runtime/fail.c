// The pending failure message of a thread: the last one given to hd_fail.
#include "runtime/heddle.h"
#include <stdarg.h>
#include <stdio.h>

static _Thread_local char message[4096];

bool hd_fail(const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(message, sizeof message, fmt, ap);
    va_end(ap);
    return false;
}

const char *hd_failure(void) { return message; }
