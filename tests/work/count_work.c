// Reads a .hd or .hir file as the tools do, verifies and prints it, and prints how much work that was: the basic blocks
// that ran, and a sixteenth of the bytes that functions of <string.h> went over. Errors go to standard error.
// Usage: count_work FILE
#include "frontend/frontend.h"
#include "ir/ir.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

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

static char *read_file(const char *path, size_t *len) {
    FILE *f = fopen(path, "rb");
    if (!f || fseek(f, 0, SEEK_END)) exit(2);
    *len = (size_t)ftell(f);
    rewind(f);
    char *text = calloc(*len + 1, 1);
    if (!text || fread(text, 1, *len, f) != *len) exit(2);
    fclose(f);
    return text;
}

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    size_t len;
    char *text = read_file(argv[1], &len);
    const char *dot = strrchr(argv[1], '.');
    Ctx *cx = hd_ctx_new();
    Module *m;
    if (dot && !strcmp(dot, ".hir"))
        m = hd_parse_module(cx, text, len, hd_source_add(&cx->diags, argv[1], text, len, 1));
    else m = hd_frontend(cx, argv[1], text, len, NULL, 0);
    Out out = hd_out(cx->arena);
    if (m && hd_verify(m)) hd_print_module(m, &out);
    hd_diags_print(&cx->diags, &out);
    if (cx->diags.list.n) fwrite(out.text, 1, out.n, stderr);
    printf("%" PRIu64 "\n", blocks + bytes / 16);
    hd_ctx_free(cx);
    free(text);
    return 0;
}
