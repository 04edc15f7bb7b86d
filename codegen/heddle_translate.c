// heddle-translate [--to=c|cuda] [--no-verify-plan] FILE.hir|-: prints the host program of a plan (c) or its CUDA text.
// A plan that has been edited by hand is verified first, as one that the compiler made is; a test of code generation
// alone may leave that out.
#include "codegen/codegen.h"
#include "passes/manager/manager.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

typedef struct { const char *to, *path; bool verify; } Args;

static bool parse_args(int argc, char **argv, Args *args) {
    *args = (Args){.to = "c", .verify = true};
    bool bad = false;
    for (int i = 1; i < argc; i++) {
        if (!strncmp(argv[i], "--to=", 5)) args->to = argv[i] + 5;
        else if (!strcmp(argv[i], "--no-verify-plan")) args->verify = false;
        else if (args->path || (argv[i][0] == '-' && argv[i][1])) bad = true;
        else args->path = argv[i];
    }
    return !bad && args->path && (!strcmp(args->to, "c") || !strcmp(args->to, "cuda"));
}

// A module of another stage has no plan to verify: codegen says so.
static bool verify(Module *m) {
    Pipeline p = {0};
    ManagerOptions options = hd_manager_defaults();
    return m->stage != STAGE_PLAN || (hd_pipeline_parse(m->cx, "verify-plan", &p) && hd_manager_run(m, &p, &options));
}

int main(int argc, char **argv) {
    Args args;
    if (!parse_args(argc, argv, &args)) {
        fprintf(stderr, "usage: heddle-translate [--to=c|cuda] [--no-verify-plan] FILE.hir|-\n");
        return 2;
    }
    Ctx *cx = hd_ctx_new();
    size_t n = 0;
    char *text = hd_read_file(cx->arena, args.path, &n);
    if (!text) {
        fprintf(stderr, "%s: %s\n", args.path, strerror(errno));
        return 2;
    }
    uint32_t base = hd_source_add(&cx->diags, args.path, text, n, 1);
    Module *m = hd_parse_module(cx, text, n, base);
    Out c = hd_out(cx->arena), cuda = hd_out(cx->arena);
    bool ok = m && hd_verify(m) && (!args.verify || verify(m)) && hd_codegen_c(m, "", "", &c, &cuda);
    if (ok) fputs(strcmp(args.to, "c") ? cuda.text : c.text, stdout);
    Out errors = hd_out(cx->arena);
    hd_diags_print(&cx->diags, &errors);
    fputs(errors.text, stderr);
    hd_ctx_free(cx);
    return ok ? 0 : 1;
}
