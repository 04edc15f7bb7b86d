// Modules of tests: text in files, not in C.
#ifndef TESTS_UNIT_MODULE_H
#define TESTS_UNIT_MODULE_H
#include "ir/base/out.h"
#include "ir/ir.h"
#include <stdio.h>

// The text of tests/unit/ir/<name>; NULL: there is no such file.
static inline const char *test_text(Arena *a, const char *name, size_t *n) {
    char path[400];
    snprintf(path, sizeof path, HEDDLE_SOURCE "/tests/unit/ir/%s", name);
    return hd_read_file(a, path, n);
}

// Its module, verified; NULL after printing what is wrong with it.
static inline Module *test_module(Ctx *cx, const char *name) {
    size_t n;
    const char *text = test_text(cx->arena, name, &n);
    if (!text) return fprintf(stderr, "cannot read tests/unit/ir/%s\n", name), NULL;
    uint32_t base = hd_source_add(&cx->diags, name, text, n, 1);
    Module *m = hd_parse_module(cx, text, n, base);
    if (m && hd_verify(m)) return m;
    Out o = hd_out(cx->arena);
    hd_diags_print(&cx->diags, &o);
    fputs(o.text, stderr);
    return NULL;
}
#endif
