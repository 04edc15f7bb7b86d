// Common to every fake library: all of its functions, and the call log. Compiled once per library with -DFAKE_<LIB>.
#include "tests/fake_cuda/fake.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void fake_log(const char *fmt, ...) {
    const char *path = getenv("FAKE_CUDA_LOG");
    FILE *f = path ? fopen(path, "a") : NULL;
    if (!f) return;
    va_list ap;
    va_start(ap, fmt);
    vfprintf(f, fmt, ap);
    va_end(ap);
    fputc('\n', f);
    fclose(f);
}

int fake_call(const char *name) {
    static int count;
    static char counted[128]; // the count starts again when another failure is asked for
    const char *fail = getenv("FAKE_CUDA_FAIL"), *colon = fail ? strchr(fail, ':') : NULL;
    if (!colon || strncmp(fail, name, (size_t)(colon - fail)) != 0 || name[colon - fail]) return 0;
    if (strcmp(counted, fail) != 0) {
        snprintf(counted, sizeof counted, "%s", fail);
        count = 0;
    }
    return ++count == atoi(colon + 1);
}

#define DEFINE(result, name, params)                                                                                   \
    __attribute__((weak)) result fake_##name params { return (result)(size_t)(fake_call(#name) ? 999 : 0); }
#define SKIP(result, name, params)
#ifdef FAKE_DRIVER
#define OF_DRIVER DEFINE
#else
#define OF_DRIVER SKIP
#endif
#ifdef FAKE_NVRTC
#define OF_NVRTC DEFINE
#else
#define OF_NVRTC SKIP
#endif
#ifdef FAKE_LT
#define OF_LT DEFINE
#else
#define OF_LT SKIP
#endif
#ifdef FAKE_CUDNN
#define OF_CUDNN DEFINE
#else
#define OF_CUDNN SKIP
#endif
#ifdef FAKE_NCCL
#define OF_NCCL DEFINE
#else
#define OF_NCCL SKIP
#endif
#define FN(lib, result, name, symbol, params) OF_##lib(result, name, params)
#include "runtime/cuda/api.def"
