// Any text: the front end reports errors, or makes a module that verifies. What follows a line `// file` is a second
// text, which the first one reads by import "99".
#define _GNU_SOURCE
#include "frontend/frontend.h"
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void second_file(const char *text, size_t size) {
    enum { FILE_NUMBER = 99 };
    static bool made;
    if (!made) made = dup2(memfd_create("second", 0), FILE_NUMBER) == FILE_NUMBER;
    if (!made || ftruncate(FILE_NUMBER, 0) || pwrite(FILE_NUMBER, text, size, 0) != (ssize_t)size) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char mark[] = "\n// file\n";
    const uint8_t *const second = size ? memmem(data, size, mark, strlen(mark)) : NULL;
    const size_t first = second ? (size_t)(second - data) : size, rest = second ? first + strlen(mark) : size;
    second_file((const char *)data + rest, size - rest);
    Ctx *cx = hd_ctx_new();
    const char *text = hd_strndup(cx->arena, (const char *)data, first);
    const Module *m = hd_frontend(cx, "/proc/self/fd/fuzz", text, first, NULL, 0);
    if (m ? !hd_verify(m) : !cx->diags.errors) {
        Out o = hd_out(cx->arena);
        hd_diags_print(&cx->diags, &o);
        fprintf(stderr, "%s\n%s", m ? "the module does not verify" : "refused without an error", o.text);
        abort();
    }
    Out o = hd_out(cx->arena);
    hd_diags_print(&cx->diags, &o);
    hd_ctx_free(cx);
    return 0;
}
