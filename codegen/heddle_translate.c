// heddle-translate: prints the host program of a plan, or its CUDA text. A plan that has been edited by hand is
// verified first, as one that the compiler made is; a test of code generation alone may leave that out.
#include "codegen/codegen.h"
#include "ir/base/args.h"
#include "passes/manager/manager.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { TO_C, TO_CUDA };
typedef struct { const char *path; int to; bool verify; } Args;

static const ArgRow rows[] = {
    {"FILE.hir|-", NULL, 0, ARG_INPUT, offsetof(Args, path), NULL},
    {"--to", "c|cuda", 0, ARG_WORD, offsetof(Args, to), "print the host program (the default) or its CUDA text"},
    {"--no-verify-plan", NULL, 0, ARG_OFF, offsetof(Args, verify), "leave the plan unchecked"},
};

static int read_arguments(Args *args, Arena *a, int argc, char **argv) { // -1, or the exit status
    const ArgGroup group = HD_ARG_GROUP(rows, 0);
    const Tool tool = {"heddle-translate", "prints the program of a plan", "Prints the program of a plan, the last IR.",
                       &group, 1};
    const int status = hd_args_read(&tool, a, argc, argv, args);
    return status != -1 || args->path ? status : hd_args_bad(&tool, "an input file is missing after", tool.name);
}

// A module of another stage has no plan to verify: codegen says so.
static bool verify(Module *m) {
    Pipeline p = {0};
    ManagerOptions options = hd_manager_defaults();
    return m->stage != STAGE_PLAN || (hd_pipeline_parse(m->cx, "verify-plan", &p) && hd_manager_run(m, &p, &options));
}

static int run(const Args *args, Ctx *cx) {
    size_t n = 0;
    char *text = hd_read_file(cx->arena, args->path, &n);
    if (!text) {
        fprintf(stderr, "error: cannot read '%s': %s\n", args->path, strerror(errno));
        return 1;
    }
    uint32_t base = hd_source_add(&cx->diags, args->path, text, n, 1);
    Module *m = hd_parse_module(cx, text, n, base);
    Out c = hd_out(cx->arena), cuda = hd_out(cx->arena), errors = hd_out(cx->arena);
    bool ok = m && hd_verify(m) && (!args->verify || verify(m)) && hd_codegen_c(m, "", "", &c, &cuda);
    if (ok) fputs(args->to == TO_C ? c.text : cuda.text, stdout);
    hd_diags_print(&cx->diags, &errors);
    fputs(errors.text, stderr);
    return ok ? 0 : 1;
}

int main(int argc, char **argv) {
    Args args = {.verify = true};
    Ctx *cx = hd_ctx_new();
    int status = read_arguments(&args, cx->arena, argc, argv);
    if (status == -1) status = run(&args, cx);
    hd_ctx_free(cx);
    return status;
}
