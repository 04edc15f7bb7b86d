// heddlec: the compiler. Reads a .hd file, runs the passes and writes what --emit asks for.
// Exit status: 0 done, 1 errors in the input, 2 bad usage.
#include "codegen/build.h"
#include "codegen/codegen.h"
#include "frontend/frontend.h"
#include "frontend/hub/from_hf.h"
#include "ir/machine/arch.h"
#include "ir/base/expect.h"
#include "ir/base/parts.h"
#include "passes/manager/manager_options.h"
#include "passes/report/report.h"
#include "passes/settings.h"
#include "passes/manager/reproducer.h"
#include "ir/base/clock.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { EXIT_ERRORS = 1, GUARD = 256 }; // bytes of --guard without a size
enum { // as in rows
    EMIT_AST, EMIT_IR, EMIT_PLAN, EMIT_C, EMIT_CUDA, EMIT_REPORT, EMIT_TABLE, EMIT_TIMELINE, EMIT_BINARY, N_EMITS
};

typedef struct Arguments {
    ManagerArgs manager;
    const char *input, *output, *arch, *from_hf;
    int64_t memory, host_memory, guard;
    int emit, target;
    ArgList sets;
    bool split, verify_diagnostics, save_temps, verbose;
} Arguments;

#define FIELD(f) offsetof(Arguments, f)
static const ArgRow rows[] = {
    {"FILE.hd", NULL, 0, ARG_INPUT, FIELD(input), NULL},
    {"--output", "FILE", 'o', ARG_TEXT, FIELD(output),
     "write the result there (default: a binary named after the input, texts to standard output)"},
    {"--emit", "ast|ir|plan|c|cuda|report|table|timeline|binary", 0, ARG_WORD, FIELD(emit),
     "what to write; report is JSON, table is the report to read, timeline a page of HTML with the predicted step "
     "(default: binary)"},
    {"--target", "host|cuda", 0, ARG_WORD, FIELD(target), "where the program runs (default: host)"},
    {"--arch", "sm_90", 0, ARG_TEXT, FIELD(arch), "architecture of the cuda target"},
    {"--set", "KEY=VALUE", 0, ARG_LIST, FIELD(sets),
     "a model argument (layers=2) or a setting (train.batch=4, schedule.graph=none)"},
    {"--from-hf", "DIR", 0, ARG_TEXT, FIELD(from_hf),
     "write the .hd file of a model of Hugging Face, from DIR/config.json, and stop"},
    {"--device-memory", "SIZE", 0, ARG_SIZE, FIELD(memory), "refuse a plan that needs more, such as 80GiB"},
    {"--host-memory", "SIZE", 0, ARG_SIZE, FIELD(host_memory),
     "refuse a plan that needs more page-locked memory of the host for each rank"},
    {"--guard", "[=SIZE]", 0, ARG_MAYBE_SIZE, FIELD(guard),
     "bytes (default: 256) before and after every value, buffer and workspace; a program's --check finds what writes "
     "there"},
    {"--split-input-file", NULL, 0, ARG_ON, FIELD(split),
     "the input is several files, separated by lines '// -----'"},
    {"--verify-diagnostics", NULL, 0, ARG_ON, FIELD(verify_diagnostics),
     "compare what is reported with the comments // expected-error @+1 {{text}}"},
    {"--save-temps", NULL, 0, ARG_ON, FIELD(save_temps), "leave the C text of a binary beside it, in BINARY.c"},
    {"--verbose", NULL, 'v', ARG_ON, FIELD(verbose), "print the command that builds the binary"},
    {"CC", NULL, 0, ARG_ENVIRONMENT, 0, "the C compiler, with options if need be (default: cc)"},
    {"HEDDLE_HOME", NULL, 0, ARG_ENVIRONMENT, 0,
     "folder of the runtime that programs link (default: found from where heddlec is)"},
};

static const char *word(const Arguments *args, Arena *a, size_t field) { // of --emit or --target
    const ArgRow *r = rows;
    while (r->kind != ARG_WORD || r->field != field) r++;
    return hd_args_word(a, r, *(const int *)(const void *)((const char *)args + field));
}

static int read_arguments(Arguments *args, Arena *a, int argc, char **argv) { // -1, or the exit status
    const ArgGroup groups[] = {HD_ARG_GROUP(rows, 0), hd_limit_rows(FIELD(manager.limits)),
                               hd_manager_rows(FIELD(manager))};
    const Tool tool = {"heddlec", "compiles a model description into a training program",
                       "Compiles a model description into a training program.", groups, 3,
                       "sizes and settings are --set NAME=VALUE"};
    const int status = hd_args_read(&tool, a, argc, argv, args);
    if (status != -1) return status;
    if (args->arch && hd_arch_number(args->arch) < 0)
        return hd_args_bad(&tool, "--arch takes a name such as sm_90, not", args->arch);
    if (args->arch && hd_arch_number(args->arch) < HD_OLDEST_ARCH)
        return hd_args_bad(&tool, hd_sprintf(a, "--arch takes sm_%d or a newer architecture, not", HD_OLDEST_ARCH),
                           args->arch);
    if (args->emit == N_EMITS)
        args->emit = args->manager.pipeline ? EMIT_IR : EMIT_BINARY; // passes by hand, to look at what they do
    if (args->emit == EMIT_CUDA && !args->target)
        return hd_args_bad(&tool, "--emit=cuda needs --target=cuda, not", "host");
    if (args->input && args->from_hf)
        return hd_args_bad(&tool, "--from-hf writes a file and reads none, unlike", args->input);
    if (args->from_hf && (args->sets.n || args->emit != EMIT_BINARY || args->target || args->memory))
        return hd_args_bad(&tool, "settings, targets and --emit are for the file that --from-hf writes, not beside",
                           args->from_hf);
    if (!args->input && !args->manager.print_pipeline && !args->from_hf)
        return hd_args_bad(&tool, "an input file is missing after", "heddlec");
    return -1;
}

static void target_config(const Arguments *args, int64_t memory, Module *m) {
    Attrs *attrs = &hd_config(m, "target")->attrs;
    hd_set_word(m->cx, attrs, A_TARGET, word(args, m->cx->arena, FIELD(target)));
    if (args->target) hd_set_word(m->cx, attrs, A_ARCH, args->arch ? args->arch : "sm_90");
    if (memory) hd_set_int(m->cx, attrs, A_DEVICE_MEMORY_BYTES, memory);
    if (args->host_memory) hd_set_int(m->cx, attrs, A_HOST_MEMORY_BYTES, args->host_memory);
}

// The pipeline to run: the one asked for; none for the IR of the front end; otherwise the whole compilation.
static bool choose_pipeline(Ctx *cx, const Arguments *args, Pipeline *p) {
    const char *text = args->manager.pipeline;
    if (!text && args->emit > EMIT_IR) text = "train";
    if (text && !hd_pipeline_parse(cx, text, p)) return false;
    return !args->guard || hd_pipeline_option(cx, p, "plan-memory", "guard", args->guard < 0 ? GUARD : args->guard);
}

static Ctx *new_context(const Arguments *args) {
    Ctx *cx = hd_ctx_new();
    cx->max_ops = args->manager.limits.ops;
    cx->device_path = args->manager.device;
    cx->allow_other_program = args->manager.other_program;
    return cx;
}

// --- advice: said only of a plan that was made, and fits

typedef struct {
    const Arguments *args;
    const char *text;
    size_t len;
    int first_line;
    Arena *a;
} Advice;

static int64_t bytes_in(const Module *m, Space space) {
    const Symbol *arena = hd_space_arena(m, space);
    return arena ? hd_int(&arena->attrs, A_BYTES, -1) : -1;
}

// The bytes of device memory of the plan with one more setting (may be NULL) and under a limit of memory (0: none); -1:
// there is no such plan.
static int64_t plan_bytes(const Advice *v, const char *setting, int64_t memory) {
    Ctx *cx = new_context(v->args);
    Pipeline pipeline = {0};
    VEC(SetOption) sets = {0};
    const ManagerOptions options = hd_manager_defaults();
    for (int i = 0; i < v->args->sets.n; i++) hd_push(cx->arena, &sets, (SetOption){v->args->sets.at[i]});
    if (setting) hd_push(cx->arena, &sets, (SetOption){setting});
    Module *m = choose_pipeline(cx, v->args, &pipeline)
                    ? hd_frontend_part(cx, v->args->input, v->text, v->len, v->first_line, sets.at, sets.n)
                    : NULL;
    if (m) target_config(v->args, memory, m);
    const int64_t bytes = m && hd_manager_run(m, &pipeline, &options) ? bytes_in(m, SPACE_DEVICE) : -1;
    hd_ctx_free(cx);
    return bytes;
}

// A half of the batch, or a quarter, ... for which the plan without a limit, which is made soon, is small enough: under
// the limit it is taken as it is, or a faster one.
static void advise_batch(const Advice *v, Ctx *cx, int64_t batch) {
    for (int64_t n = batch / 2; n > 0; n /= 2) {
        const char *setting = hd_sprintf(v->a, "train.batch=%lld", (long long)n);
        const int64_t bytes = plan_bytes(v, setting, 0);
        if (bytes < 0 || bytes > v->args->memory) continue;
        hd_note(cx, (Span){0}, "%s fits: that plan takes %lld bytes", setting, (long long)bytes);
        return;
    }
}

static void advise_host(const Advice *v, Ctx *cx, double fraction, int64_t bytes) {
    const int percent = (int)(100 * fraction * ((double)v->args->host_memory / (double)bytes));
    const char *setting = hd_sprintf(v->a, "schedule.offload.fraction=%d.%02d", percent / 100, percent % 100);
    if (percent > 0 && plan_bytes(v, setting, v->args->memory) >= 0)
        hd_note(cx, (Span){0}, "%s fits", setting);
}

// After a plan that does not fit. Of a large model no other is made: that takes long.
static void advise(const Advice *v, const Module *m) {
    enum { MOST_OPS = 20000 };
    const int64_t device = bytes_in(m, SPACE_DEVICE), host = bytes_in(m, SPACE_HOST);
    const Arguments *args = v->args;
    int ops = 0;
    for (const Func *f = m->funcs; f; f = f->next) ops += f->n_ops;
    if (m->stage != STAGE_PLAN || args->manager.pipeline || ops > MOST_OPS) return;
    if (args->memory && device > args->memory)
        advise_batch(v, m->cx, hd_int(hd_settings(m, "train"), A_BATCH, 0));
    else if (args->host_memory && host > args->host_memory)
        advise_host(v, m->cx, hd_float(hd_settings(m, "schedule"), A_FRACTION, 1), host);
}

// gpt2.hd -> gpt2
static const char *binary_name(const Arguments *args, Arena *a) {
    if (args->output) return args->output;
    const char *slash = strrchr(args->input, '/'), *base = slash ? slash + 1 : args->input;
    const char *dot = strrchr(base, '.');
    return dot && dot > base ? hd_strndup(a, base, (size_t)(dot - base)) : hd_sprintf(a, "%s.out", base);
}

// The outputs that can be made of a plan: its report, the text of the program, or the program.
static bool emit_program(const Arguments *args, Module *m, double start, Out *out) {
    Arena *a = m->cx->arena;
    Out report = hd_out(a), table = hd_out(a), plan = hd_out(a);
    if (args->emit == EMIT_REPORT || args->emit == EMIT_TABLE || args->emit == EMIT_TIMELINE) {
        hd_report(m, hd_now() - start,
                  &(ReportTexts){.json = args->emit == EMIT_REPORT ? out : NULL,
                                 .text = args->emit == EMIT_TABLE ? out : NULL,
                                 .page = args->emit == EMIT_TIMELINE ? out : NULL});
        return !m->cx->diags.errors;
    }
    // no times of this compilation in programs: equal inputs make equal ones
    hd_report(m, -1, &(ReportTexts){.json = &report, .text = &table, .plan = &plan});
    if (m->cx->diags.errors) return false; // of the device table
    Out c = hd_out(a), cuda = hd_out(a);
    if (!hd_codegen_c(m, &(ProgramTexts){report.text, table.text, plan.text}, &c, &cuda)) return false;
    if (args->emit == EMIT_BINARY)
        return hd_build_binary(
            m->cx, &(Build){word(args, a, FIELD(target)), binary_name(args, a), args->save_temps, args->verbose}, &c);
    const Out *text = args->emit == EMIT_C ? &c : &cuda;
    hd_putn(out, text->text, text->n);
    return true;
}

static bool compile(Ctx *cx, const Arguments *args, const char *text, size_t len, int first_line, Out *out) {
    if (args->emit == EMIT_AST) {
        const Node *ast = hd_frontend_ast(cx, args->input, text, len, first_line);
        if (ast) hd_ast_print(ast, out);
        return ast != NULL;
    }
    double start = hd_now();
    Pipeline pipeline = {0};
    if (!choose_pipeline(cx, args, &pipeline)) return false;
    if (args->manager.print_pipeline) {
        hd_pipeline_print(&pipeline, 0, out);
        hd_puts(out, "\n");
        return true;
    }
    VEC(SetOption) sets = {0};
    for (int i = 0; i < args->sets.n; i++) hd_push(cx->arena, &sets, (SetOption){args->sets.at[i]});
    Module *m = hd_frontend_part(cx, args->input, text, len, first_line, sets.at, sets.n);
    if (!m) return false;
    if (args->output && hd_is_source(&cx->diags, args->output)) // also one that was imported
        return hd_error(cx, (Span){0}, "the output would overwrite '%s', which was read; give another --output",
                        args->output);
    target_config(args, args->memory, m);
    if (!hd_manager_run(m, &pipeline, &args->manager.options)) {
        advise(&(Advice){args, text, len, first_line, out->arena}, m);
        return false;
    }
    if (args->emit <= EMIT_PLAN || args->manager.options.stop_after) {
        hd_print_module(m, out);
        return true;
    }
    if (m->stage != STAGE_PLAN)
        return hd_error(m->cx, (Span){0}, "the passes end at stage %s; --emit=%s needs a plan", hd_stage_text(m->stage),
                        word(args, cx->arena, FIELD(emit)));
    return emit_program(args, m, start, out);
}

// Compiles one text and prints its diagnostics. False when it has errors, or not the expected ones.
static bool process(const Arguments *args, const char *text, size_t len, int first_line, Out *out) {
    Ctx *cx = new_context(args);
    Out said = hd_out(out->arena);
    bool good = compile(cx, args, text, len, first_line, out);
    if (args->verify_diagnostics) {
        uint32_t base = 0;
        for (int k = 0; k < cx->diags.sources.n; k++)
            if (cx->diags.sources.at[k].text == text) base = cx->diags.sources.at[k].base;
        good = !hd_expect_check(&cx->diags, base, &said);
        out->n = 0;
    } else {
        hd_diags_print(&cx->diags, &said);
    }
    hd_say_text(stderr, said.text);
    hd_ctx_free(cx);
    return good;
}

static bool process_parts(const Arguments *args, const char *text, size_t len, Out *out) {
    const char *end = text + len, *s = text;
    bool good = true;
    for (int line = 1;;) {
        const char *e = args->split ? hd_part_end(s, end) : end;
        const char *part = hd_strndup(out->arena, s, (size_t)(e - s)); // NUL-terminated
        good = process(args, part, (size_t)(e - s), line, out) && good;
        if (e == end) return good;
        for (; s < e; s++) line += *s == '\n';
        s = hd_part_next(s, end, &line);
    }
}

static int from_hf(const Arguments *args, Arena *a) {
    Ctx *cx = hd_ctx_new();
    Out out = hd_out(a), said = hd_out(a);
    const bool ok = hd_from_hf(cx, args->from_hf, &out);
    hd_diags_print(&cx->diags, &said);
    hd_say_text(stderr, said.text);
    hd_ctx_free(cx);
    return ok && hd_args_write(args->output, &out) ? 0 : EXIT_ERRORS;
}

static int run(const Arguments *args, Arena *a) {
    size_t len = 0;
    if (args->from_hf) return from_hf(args, a);
    const char *text = args->input ? hd_read_file(a, args->input, &len) : "";
    if (!text) {
        hd_say(stderr, "error: cannot read '%s': %s\n", args->input, strerror(errno));
        return EXIT_ERRORS;
    }
    Out out = hd_out(a);
    if (!process_parts(args, text, len, &out)) return EXIT_ERRORS;
    if (args->emit == EMIT_BINARY && !out.n) return 0; // the place where the binary is wanted
    return hd_args_write(args->output, &out) ? 0 : EXIT_ERRORS;
}

int main(int argc, char **argv) {
    int narrowed;
    if (hd_reproducer_main(argc, argv, &narrowed)) return narrowed;
    Arguments args = {.manager = hd_manager_args(), .emit = N_EMITS};
    Arena *a = hd_arena_new();
    int status = read_arguments(&args, a, argc, argv);
    hd_memory_limit((size_t)args.manager.limits.memory);
    if (status == -1) status = run(&args, a);
    hd_arena_free(a);
    return status;
}
