// Counts the work of a program compiled with -fsanitize-coverage=trace-pc. At its end the program writes the count to
// the file that HEDDLE_COUNT names.
#include "tests/counted/count.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t blocks, bytes;

void __sanitizer_cov_trace_pc(void);
void __sanitizer_cov_trace_pc(void) { blocks++; } // the compiler calls it in every basic block

void *__real_memcpy(void *to, const void *from, size_t n);
void *__wrap_memcpy(void *to, const void *from, size_t n);
void *__wrap_memcpy(void *to, const void *from, size_t n) {
    bytes += n;
    return __real_memcpy(to, from, n);
}

void *__real_memset(void *at, int c, size_t n);
void *__wrap_memset(void *at, int c, size_t n);
void *__wrap_memset(void *at, int c, size_t n) {
    bytes += n;
    return __real_memset(at, c, n);
}

int __real_memcmp(const void *a, const void *b, size_t n);
int __wrap_memcmp(const void *a, const void *b, size_t n);
int __wrap_memcmp(const void *a, const void *b, size_t n) {
    bytes += n;
    return __real_memcmp(a, b, n);
}

size_t __real_strlen(const char *s);
size_t __wrap_strlen(const char *s);
size_t __wrap_strlen(const char *s) {
    const size_t n = __real_strlen(s);
    bytes += n;
    return n;
}

static size_t common(const char *a, const char *b, size_t most) {
    size_t n = 0;
    while (n < most && a[n] && a[n] == b[n]) n++;
    return n;
}

int __real_strcmp(const char *a, const char *b);
int __wrap_strcmp(const char *a, const char *b);
int __wrap_strcmp(const char *a, const char *b) {
    bytes += common(a, b, SIZE_MAX);
    return __real_strcmp(a, b);
}

int __real_strncmp(const char *a, const char *b, size_t n);
int __wrap_strncmp(const char *a, const char *b, size_t n);
int __wrap_strncmp(const char *a, const char *b, size_t n) {
    bytes += common(a, b, n);
    return __real_strncmp(a, b, n);
}

uint64_t counted_work(void) { return blocks + bytes / 16; }

__attribute__((destructor)) static void write_count(void) {
    const char *path = getenv("HEDDLE_COUNT");
    FILE *f = path ? fopen(path, "w") : NULL;
    if (!f) return;
    fprintf(f, "%" PRIu64 "\n", counted_work());
    fclose(f);
}
