// Any text as a plan: it is refused with an error, or verify-plan accepts it and the C and CUDA text of its program can
// be printed, or code generation refuses it with an error.
#include "codegen/codegen.h"
#include "passes/manager/manager.h"
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void fail(const char *what, const char *text) {
    fprintf(stderr, "%s\n%s\n", what, text);
    abort();
}

static void check_errors(const Ctx *cx, bool good, const char *text) {
    if (!good && !cx->diags.errors) fail("refused without an error", text);
    Out o = hd_out(cx->arena);
    hd_diags_print(&cx->diags, &o);
}

static void print_program(Ctx *cx, const Module *m, const char *text) {
    Out c = hd_out(cx->arena), cuda = hd_out(cx->arena);
    const int before = cx->diags.errors;
    if (!hd_codegen_c(m, &(ProgramTexts){"report", "table", "timeline"}, &c, &cuda) && cx->diags.errors == before)
        fail("no program and no error", text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    Ctx *cx = hd_ctx_new();
    const char *text = hd_strndup(cx->arena, (const char *)data, size);
    Module *m = hd_parse_module(cx, text, size, hd_source_add(&cx->diags, "fuzz", text, size, 1));
    bool good = m && hd_verify(m);
    check_errors(cx, good, text);
    if (good && m->stage == STAGE_PLAN) {
        Pipeline p = {0};
        ManagerOptions options = hd_manager_defaults();
        good = hd_pipeline_parse(cx, "verify-plan", &p) && hd_manager_run(m, &p, &options);
        check_errors(cx, good, text);
        if (good) print_program(cx, m, text);
    }
    hd_ctx_free(cx);
    return 0;
}
