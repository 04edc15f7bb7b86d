// heddlec: the compiler. Reads a .hd file, runs the passes and writes what --emit asks for.
// Exit status: 0 done, 1 errors in the input, 2 bad usage.
#include "codegen/build.h"
#include "codegen/codegen.h"
#include "frontend/frontend.h"
#include "ir/base/expect.h"
#include "ir/base/parts.h"
#include "passes/manager/manager_options.h"
#include "passes/report/report.h"
#include "passes/manager/reproducer.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { EXIT_ERRORS = 1, EXIT_USAGE = 2 };
typedef enum { EMIT_AST, EMIT_IR, EMIT_PLAN, EMIT_C, EMIT_CUDA, EMIT_REPORT, EMIT_TABLE, EMIT_BINARY, N_EMITS } Emit;
static const char *const emits[N_EMITS] = {"ast", "ir", "plan", "c", "cuda", "report", "table", "binary"};

typedef struct Arguments {
    ManagerArgs manager;
    const char *input, *output, *target, *arch, *memory;
    int64_t memory_bytes;
    Emit emit;
    VEC(SetOption) sets;
    bool split, verify_diagnostics;
} Arguments;

static void usage(FILE *to) {
    Arena *a = hd_arena_new();
    Out o = hd_out(a);
    hd_puts(
        &o,
        "usage: heddlec FILE.hd [OPTION]...\n"
        "Compiles a model description into a training program.\n\n"
        "  -o FILE                      write the result there (default: a binary named after the input, texts to "
        "standard output)\n"
        "  --emit=KIND                  ast, ir, plan, c, cuda, report (JSON), table (the report to read) or binary\n"
        "  --target=host|cuda           where the program runs (default: host)\n"
        "  --arch=sm_90                 architecture of the cuda target\n"
        "  --set KEY=VALUE              a model argument (layers=2) or a setting (train.batch=4, schedule.graph=none)\n"
        "  --device-memory=SIZE         refuse a plan that needs more, such as 80GiB\n"
        "  --split-input-file           the input is several files, separated by lines '// -----'\n"
        "  --verify-diagnostics         compare what is reported with the comments // expected-error @+1 {{text}}\n");
    hd_manager_usage(&o);
    hd_puts(&o, "  --help                       print this, and stop\n");
    fputs(o.text, to);
    hd_arena_free(a);
}

static bool bad_usage(const char *what, const char *arg) {
    fprintf(stderr, "error: %s '%s'; heddlec --help lists the options\n", what, arg);
    return false;
}

enum { WITH_EMIT, WITH_TARGET, WITH_ARCH, WITH_MEMORY, WITH_SET, WITH_OUTPUT, N_WITH_VALUE };
static const char *const with_value[N_WITH_VALUE] = {"--emit", "--target", "--arch", "--device-memory", "--set", "-o"};

// Which of these stands at argv[*i], as NAME=VALUE or NAME VALUE: *v is the value, NULL when it is missing. -1: none of
// them.
static int option(int argc, char **argv, int *i, const char **v) {
    for (int k = 0; k < N_WITH_VALUE; k++) {
        const size_t n = strlen(with_value[k]);
        const char *rest = argv[*i] + n;
        if (strncmp(argv[*i], with_value[k], n) != 0 || (*rest && *rest != '=')) continue;
        *v = *rest ? rest + 1 : *i + 1 < argc ? argv[++*i] : NULL;
        return k;
    }
    return -1;
}

static bool parse_size(const char *text, int64_t *bytes) {
    static const struct { const char *unit; double factor;
    } units[] = {{"", 1},     {"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30}, {"TiB", 0x1p40},
                 {"KB", 1e3}, {"MB", 1e6},     {"GB", 1e9},     {"TB", 1e12}};
    char *end;
    double v = strtod(text, &end);
    for (size_t k = 0; end != text && k < sizeof units / sizeof *units; k++) {
        double total = v * units[k].factor;
        if (strcmp(end, units[k].unit) || !(total >= 1 && total < 0x1p60)) continue;
        *bytes = (int64_t)total;
        return true;
    }
    return false;
}

static bool read_emit(const char *text, Emit *emit) {
    for (int k = 0; k < N_EMITS; k++)
        if (!strcmp(emits[k], text)) {
            *emit = (Emit)k;
            return true;
        }
    return bad_usage("--emit takes ast, ir, plan, c, cuda, report, table or binary, not", text);
}

static bool read_arguments(Arguments *args, Arena *a, int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        const char *arg = argv[i], *v = NULL;
        OptionResult r = hd_manager_option(&args->manager, argc, argv, &i);
        if (r == OPTION_BAD) return false;
        if (r == OPTION_TAKEN) continue;
        const int k = option(argc, argv, &i, &v);
        if (k >= 0 && !v) return bad_usage("a value is missing after", arg);
        if (k == WITH_EMIT) {
            if (!read_emit(v, &args->emit)) return false;
        } else if (k == WITH_TARGET) {
            args->target = v;
            if (strcmp(v, "host") && strcmp(v, "cuda")) return bad_usage("--target takes host or cuda, not", v);
        } else if (k == WITH_ARCH) {
            args->arch = v;
        } else if (k == WITH_MEMORY) {
            if (!parse_size(v, &args->memory_bytes))
                return bad_usage("--device-memory takes a size such as 80GiB, not", v);
        } else if (k == WITH_SET) {
            hd_push(a, &args->sets, (SetOption){v});
        } else if (k == WITH_OUTPUT) {
            args->output = v;
        } else if (!strcmp(arg, "--split-input-file")) {
            args->split = true;
        } else if (!strcmp(arg, "--verify-diagnostics")) {
            args->verify_diagnostics = true;
        } else if (arg[0] == '-' && arg[1]) {
            return bad_usage("no option is called", arg);
        } else if (args->input) {
            return bad_usage("more than one input file:", arg);
        } else {
            args->input = arg;
        }
    }
    if (args->arch && strncmp(args->arch, "sm_", 3))
        return bad_usage("--arch takes a name such as sm_90, not", args->arch);
    if (args->emit == N_EMITS)
        args->emit = args->manager.pipeline ? EMIT_IR : EMIT_BINARY; // passes by hand: to look at what they do
    if (args->emit == EMIT_CUDA && strcmp(args->target, "cuda"))
        return bad_usage("--emit=cuda needs --target=cuda, not", args->target);
    return args->input || args->manager.print_pipeline || bad_usage("an input file is missing after", "heddlec");
}

static void target_config(const Arguments *args, Module *m) {
    Attrs *attrs = &hd_config(m, "target")->attrs;
    hd_set_word(m->cx, attrs, A_TARGET, args->target);
    if (!strcmp(args->target, "cuda")) hd_set_word(m->cx, attrs, A_ARCH, args->arch ? args->arch : "sm_90");
    if (args->memory_bytes) hd_set_int(m->cx, attrs, A_DEVICE_MEMORY_BYTES, args->memory_bytes);
}

// What runs: the pipeline asked for; else none for the IR of the front end, and the whole compilation for all that
// follows.
static bool choose_pipeline(Ctx *cx, const Arguments *args, Pipeline *p) {
    const char *text = args->manager.pipeline;
    if (!text && args->emit > EMIT_IR) text = "train";
    return !text || hd_pipeline_parse(cx, text, p);
}

static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

// gpt2.hd -> gpt2
static const char *binary_name(const Arguments *args, Arena *a) {
    if (args->output) return args->output;
    const char *slash = strrchr(args->input, '/'), *base = slash ? slash + 1 : args->input;
    const char *dot = strrchr(base, '.');
    return dot && dot > base ? hd_strndup(a, base, (size_t)(dot - base)) : hd_sprintf(a, "%s.out", base);
}

// From a plan on: its report, the text of the program, or the program.
static bool emit_program(const Arguments *args, Module *m, double start, Out *out) {
    Arena *a = m->cx->arena;
    Out report = hd_out(a), table = hd_out(a);
    if (args->emit == EMIT_REPORT || args->emit == EMIT_TABLE) {
        bool json = args->emit == EMIT_REPORT;
        hd_report(m, seconds() - start, json ? out : NULL, json ? NULL : out);
        return true;
    }
    hd_report(m, -1, &report, &table); // no times in programs: equal inputs make equal ones
    Out c = hd_out(a), cuda = hd_out(a);
    if (!hd_codegen_c(m, report.text, table.text, &c, &cuda)) return false;
    if (args->emit == EMIT_BINARY) return hd_build_binary(m->cx, args->target, &c, binary_name(args, a));
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
    double start = seconds();
    Pipeline pipeline = {0};
    if (!choose_pipeline(cx, args, &pipeline)) return false;
    if (args->manager.print_pipeline) {
        hd_pipeline_print(&pipeline, 0, out);
        hd_puts(out, "\n");
        return true;
    }
    Module *m = hd_frontend_part(cx, args->input, text, len, first_line, args->sets.at, args->sets.n);
    if (!m) return false;
    target_config(args, m);
    if (!hd_manager_run(m, &pipeline, &args->manager.options)) return false;
    if (args->emit <= EMIT_PLAN || args->manager.options.stop_after) {
        hd_print_module(m, out);
        return true;
    }
    if (m->stage != STAGE_PLAN) {
        hd_error(m->cx, (Span){0}, "the passes end at stage %s; --emit=%s needs a plan", hd_stage_text(m->stage),
                 emits[args->emit]);
        return false;
    }
    return emit_program(args, m, start, out);
}

// One text: compile it and say what is wrong with it. false when it has errors, or not those that it expects.
static bool process(const Arguments *args, const char *text, size_t len, int first_line, Out *out) {
    Ctx *cx = hd_ctx_new();
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
    fputs(said.text, stderr);
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

static int run(const Arguments *args, Arena *a) {
    size_t len = 0;
    const char *text = args->input ? hd_read_file(a, args->input, &len) : "";
    if (!text) {
        fprintf(stderr, "error: cannot read '%s': %s\n", args->input, strerror(errno));
        return EXIT_ERRORS;
    }
    Out out = hd_out(a);
    int error = 0;
    if (!process_parts(args, text, len, &out)) return EXIT_ERRORS;
    if (args->emit == EMIT_BINARY && !out.n) return 0; // the binary is where it belongs
    if (args->output && strcmp(args->output, "-")) error = hd_write_file(args->output, out.text, out.n);
    else if (fwrite(out.text, 1, out.n, stdout) != out.n || fflush(stdout)) error = errno;
    if (error)
        fprintf(stderr, "error: cannot write '%s': %s\n", args->output ? args->output : "standard output",
                strerror(error));
    return error ? EXIT_ERRORS : 0;
}

int main(int argc, char **argv) {
    int narrowed;
    if (hd_reproducer_main(argc, argv, &narrowed)) return narrowed;
    Arguments args = {.manager = hd_manager_args(), .target = "host", .emit = N_EMITS};
    for (int i = 1; i < argc; i++)
        if (!strcmp(argv[i], "--help")) {
            usage(stdout);
            return 0;
        }
    Arena *a = hd_arena_new();
    int status = read_arguments(&args, a, argc, argv) ? run(&args, a) : EXIT_USAGE;
    hd_arena_free(a);
    return status;
}
