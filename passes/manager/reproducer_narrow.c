// Reproducers, in the process that a failing one starts. It reads FILE, runs the passes before the failing one and
// writes the rest of the pipeline with the module that results. See reproducer.h.
//   // pipeline: simplify,cse,dce       // pipeline: dce
//   // fails in pass 3, 'dce'       ->  func @f() { ... }   what simplify and cse made of it
//   func @f() { ... }
#include "passes/manager/manager.h"
#include "passes/manager/reproducer.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool narrow(Ctx *cx, const char *path, int passed) {
    size_t n = 0, at = strlen(HD_REPRODUCER_LINE);
    const char *text = hd_read_file(cx->arena, path, &n);
    if (!text || strncmp(text, HD_REPRODUCER_LINE, at) != 0) return false;
    Pipeline all = {0};
    if (!hd_pipeline_parse(cx, hd_strndup(cx->arena, text + at, strcspn(text + at, "\n")), &all)) return false;
    if (passed < 1 || passed >= all.n) return false;
    Module *m = hd_parse_module(cx, text, n, hd_source_add(&cx->diags, path, text, n, 1));
    Pipeline before = {passed, all.at};
    if (!m || !hd_manager_run(m, &before, &(ManagerOptions){0})) return false;
    Out o = hd_out(cx->arena);
    hd_puts(&o, HD_REPRODUCER_LINE);
    hd_pipeline_print(&all, passed, &o);
    hd_puts(&o, "\n");
    hd_print_module(m, &o);
    const char *part = hd_sprintf(cx->arena, "%s.part", path); // so that FILE is whole whatever happens
    if (!hd_write_file(part, o.text, o.n) && !rename(part, path)) return true;
    remove(part);
    return false;
}

bool hd_reproducer_main(int argc, char **argv, int *status) {
    if (argc != 4 || strcmp(argv[1], HD_NARROW_OPTION) != 0) {
        hd_reproducer_may_narrow();
        return false;
    }
    Ctx *cx = hd_ctx_new();
    *status = narrow(cx, argv[2], atoi(argv[3])) ? 0 : 1;
    hd_ctx_free(cx);
    return true;
}
