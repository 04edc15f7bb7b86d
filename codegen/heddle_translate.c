// heddle-translate: makes a program of a plan, or prints its text. A plan is verified first, since it may have been
// edited by hand; a test of code generation may leave that out.
#include "codegen/build.h"
#include "codegen/codegen.h"
#include "ir/base/limits.h"
#include "passes/manager/manager.h"
#include "passes/report/report.h"
#include "passes/settings.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { TO_C, TO_CUDA, TO_BINARY, N_TO };
typedef struct {
    const char *path, *output, *device;
    int to;
    bool verify, other_program, save_temps, verbose;
    Limits limits;
} Args;

static const ArgRow rows[] = {
    {"FILE.hir|-", NULL, 0, ARG_INPUT, offsetof(Args, path), NULL},
    {"--output", "FILE", 'o', ARG_TEXT, offsetof(Args, output),
     "write the result there (texts: else to standard output)"},
    {"--to", "c|cuda|binary", 0, ARG_WORD, offsetof(Args, to),
     "what to make: the host program's text, its CUDA text, or the program (default: binary with -o, else c)"},
    {"--device-model", "FILE", 0, ARG_FILE, offsetof(Args, device),
     "the table of how long things take on the device, for the program's report"},
    {"--no-verify-plan", NULL, 0, ARG_OFF, offsetof(Args, verify), "leave the plan unchecked"},
    {"--allow-other-program", NULL, 0, ARG_ON, offsetof(Args, other_program),
     "accept a plan that computes something else than the model that it was made from"},
    {"--save-temps", NULL, 0, ARG_ON, offsetof(Args, save_temps),
     "leave the C text of a binary beside it, in BINARY.c"},
    {"--verbose", NULL, 'v', ARG_ON, offsetof(Args, verbose), "print the command that builds the binary"},
    {"CC", NULL, 0, ARG_ENVIRONMENT, 0, "the C compiler, with options if need be (default: cc)"},
};

static int read_arguments(Args *args, Arena *a, int argc, char **argv) { // -1, or the exit status
    const ArgGroup groups[] = {HD_ARG_GROUP(rows, 0), hd_limit_rows(offsetof(Args, limits))};
    const Tool tool = {"heddle-translate", "makes a program of a plan",
                       "Makes a program of a plan, the last IR, or prints its text.", groups, 2, NULL};
    const int status = hd_args_read(&tool, a, argc, argv, args);
    if (status != -1) return status;
    if (!args->path) return hd_args_bad(&tool, "an input file is missing after", tool.name);
    if (args->to == N_TO) args->to = args->output ? TO_BINARY : TO_C;
    return args->to != TO_BINARY || args->output
               ? -1
               : hd_args_bad(&tool, "a binary needs a file: -o FILE after", "--to=binary");
}

// A module of another stage has no plan to verify: codegen reports it.
static bool verify(Module *m) {
    Pipeline p = {0};
    ManagerOptions options = hd_manager_defaults();
    return m->stage != STAGE_PLAN || (hd_pipeline_parse(m->cx, "verify-plan", &p) && hd_manager_run(m, &p, &options));
}

static bool make(const Args *args, Module *m, Out *text) {
    Arena *a = m->cx->arena;
    Out report = hd_out(a), table = hd_out(a), plan = hd_out(a), c = hd_out(a), cuda = hd_out(a);
    const ReportTexts texts = {.json = &report, .text = &table, .plan = &plan};
    if (m->stage == STAGE_PLAN) hd_report(m, -1, &texts); // as in heddlec: one plan makes one program
    const ProgramTexts inside = {report.text, table.text, plan.text};
    if (m->cx->diags.errors || !hd_codegen_c(m, &inside, &c, &cuda)) return false;
    *text = args->to == TO_CUDA ? cuda : c;
    const char *target = hd_word(hd_settings(m, "target"), A_TARGET, "host");
    return args->to != TO_BINARY ||
           hd_build_binary(m->cx, &(Build){target, args->output, args->save_temps, args->verbose}, &c);
}

static int run(const Args *args, Ctx *cx) {
    size_t n = 0;
    cx->max_ops = args->limits.ops;
    cx->device_path = args->device;
    cx->allow_other_program = args->other_program;
    char *text = hd_read_file(cx->arena, args->path, &n);
    if (!text) {
        hd_say(stderr, "error: cannot read '%s': %s\n", args->path, strerror(errno));
        return 1;
    }
    uint32_t base = hd_source_add(&cx->diags, args->path, text, n, 1);
    Module *m = hd_parse_module(cx, text, n, base);
    Out made = {0}, errors = hd_out(cx->arena);
    const bool good = m && hd_verify(m) && (!args->verify || verify(m)) && make(args, m, &made);
    hd_diags_print(&cx->diags, &errors);
    hd_say_text(stderr, errors.text);
    return good && (args->to == TO_BINARY || hd_args_write(args->output, &made)) ? 0 : 1;
}

int main(int argc, char **argv) {
    Args args = {.to = N_TO, .verify = true, .limits = hd_limits()};
    Ctx *cx = hd_ctx_new();
    int status = read_arguments(&args, cx->arena, argc, argv);
    hd_memory_limit((size_t)args.limits.memory);
    if (status == -1) status = run(&args, cx);
    hd_ctx_free(cx);
    return status;
}
