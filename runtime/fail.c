// The one pending failure message of a thread: what hd_fail remembered last.
#include "runtime/heddle.h"
#include <stdarg.h>
#include <stdio.h>

static _Thread_local char message[4096];

void hd_fail(const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(message, sizeof message, fmt, ap);
    va_end(ap);
}

const char *hd_failure(void) { return message; }
