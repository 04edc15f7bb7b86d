// heddle-opt: reads a .hir file, runs a textual pipeline over it and prints the result. The tool of every test of a
// pass. Exit status: 0 done, 1 errors in the input or missing diagnostics, 2 bad usage.
#include "ir/base/expect.h"
#include "ir/base/parts.h"
#include "ir/reference.h"
#include "passes/manager/manager_options.h"
#include "passes/memory/pack.h"
#include "passes/report/report.h"
#include "passes/manager/reproducer.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { EXIT_ERRORS = 1, EXIT_USAGE = 2 };

typedef struct Arguments {
    ManagerArgs manager;
    const char *input, *output; // "-": standard input and output
    const char *pack;           // --pack: a CSV file
    int64_t capacity, seconds;  // --time-limit
    bool json, table;           // --report: instead of the module
    bool split, verify_diagnostics, run_reproducer;
    void (*list)(Out *);
} Arguments;

static const struct { const char *name; void (*list)(Out *); const char *doc; } lists[] = {
    {"--list-ops", hd_list_ops, "print the reference of ops, and stop"},
    {"--list-attrs", hd_list_attrs, "print the reference of attributes, and stop"},
    {"--list-symbols", hd_list_symbols, "print the reference of symbols, and stop"},
    {"--list-passes", hd_pipeline_list, "print the reference of passes and pipelines, and stop"},
};
enum { N_LISTS = sizeof lists / sizeof *lists };

static void usage(FILE *to) {
    Arena *a = hd_arena_new();
    Out o = hd_out(a);
    hd_puts(
        &o,
        "usage: heddle-opt [FILE.hir|-] [OPTION]...\n"
        "Reads a module, runs passes over it and prints it. Without --pass-pipeline it only checks and prints.\n\n");
    hd_puts(
        &o,
        "  -o FILE                      write the module there, not to standard output\n"
        "  --split-input-file           the input is several modules, separated by lines '// -----'\n"
        "  --verify-diagnostics         compare what is reported with the comments // expected-error @+1 {{text}}\n"
        "  --run-reproducer             take the pipeline from the first line of the input\n"
        "  --report=json|text           print what the plan costs, not the module\n"
        "  --pack=FILE.csv              give the values of a file (columns id, lower, upper, size) offsets, and stop\n"
        "  --capacity=BYTES             --pack: stop as soon as they fit; exit with 1 when no such packing is found\n"
        "  --time-limit=SECONDS         --capacity: how long to search at most (default: 60)\n");
    hd_manager_usage(&o);
    for (int i = 0; i < N_LISTS; i++) hd_printf(&o, "  %-28s %s\n", lists[i].name, lists[i].doc);
    hd_puts(&o, "  --help                       print this, and stop\n");
    fputs(o.text, to);
    hd_arena_free(a);
}

static bool bad_usage(const char *what, const char *arg) {
    fprintf(stderr, "error: %s '%s'; heddle-opt --help lists the options\n", what, arg);
    return false;
}

static bool read_count(const char *text, int64_t *n) {
    char *end;
    errno = 0;
    *n = strtoll(text, &end, 10);
    return end != text && !*end && errno == 0 && *n > 0;
}

static bool read_arguments(Arguments *args, int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        const char *arg = argv[i];
        OptionResult r = hd_manager_option(&args->manager, argc, argv, &i);
        if (r == OPTION_BAD) return false;
        if (r == OPTION_TAKEN) continue;
        int list = 0;
        while (list < N_LISTS && strcmp(lists[list].name, arg) != 0) list++;
        if (list < N_LISTS) args->list = lists[list].list;
        else if (!strcmp(arg, "--split-input-file")) args->split = true;
        else if (!strcmp(arg, "--verify-diagnostics")) args->verify_diagnostics = true;
        else if (!strcmp(arg, "--run-reproducer")) args->run_reproducer = true;
        else if (!strcmp(arg, "--report=json")) args->json = true;
        else if (!strcmp(arg, "--report=text")) args->table = true;
        else if (!strncmp(arg, "--pack=", 7)) args->pack = arg + 7;
        else if (!strncmp(arg, "--capacity=", 11)) {
            if (!read_count(arg + 11, &args->capacity)) return bad_usage("a number of bytes must follow the = of", arg);
        } else if (!strncmp(arg, "--time-limit=", 13)) {
            if (!read_count(arg + 13, &args->seconds))
                return bad_usage("a number of seconds must follow the = of", arg);
        } else if (!strcmp(arg, "-o") && i + 1 < argc) args->output = argv[++i];
        else if (!strcmp(arg, "-o")) return bad_usage("a file name must follow", arg);
        else if (arg[0] == '-' && arg[1]) return bad_usage("no option is called", arg);
        else if (args->input) return bad_usage("more than one input file:", arg);
        else args->input = arg;
    }
    if (args->run_reproducer && args->manager.pipeline)
        return bad_usage("--run-reproducer brings its own pipeline, not", args->manager.pipeline);
    return true;
}

// The pipeline in the first line of a reproducer, or NULL.
static const char *reproducer_pipeline(Ctx *cx, const char *text) {
    size_t n = strlen(HD_REPRODUCER_LINE);
    if (strncmp(text, HD_REPRODUCER_LINE, n) != 0) return NULL;
    return hd_strndup(cx->arena, text + n, strcspn(text + n, "\r\n"));
}

// One module: parse, verify, run, print to `out`. false when it has errors.
static bool process(Ctx *cx, const Arguments *args, const char *name, const char *text, size_t len, int first_line,
                    Out *out) {
    uint32_t base = hd_source_add(&cx->diags, name, text, len, first_line);
    const char *pipeline_text = args->run_reproducer ? reproducer_pipeline(cx, text) : args->manager.pipeline;
    Pipeline pipeline = {0};
    bool good = true;
    if (args->run_reproducer && !pipeline_text) {
        hd_error(cx, (Span){0}, "'%s' is no reproducer: its first line does not start with '%s'", name,
                 HD_REPRODUCER_LINE);
        good = false;
    }
    if (pipeline_text) good = good && hd_pipeline_parse(cx, pipeline_text, &pipeline);
    if (good && args->manager.print_pipeline) {
        hd_pipeline_print(&pipeline, 0, out);
        hd_puts(out, "\n");
        return true;
    }
    Module *m = good ? hd_parse_module(cx, text, len, base) : NULL;
    good = m && hd_manager_run(m, &pipeline, &args->manager.options);
    if (args->verify_diagnostics) {
        Out wrong = hd_out(cx->arena);
        good = !hd_expect_check(&cx->diags, base, &wrong);
        fputs(wrong.text, stderr);
        return good;
    }
    Out diagnostics = hd_out(cx->arena);
    hd_diags_print(&cx->diags, &diagnostics);
    fputs(diagnostics.text, stderr);
    if (!good) return false;
    if (args->json || args->table) hd_report(m, -1, args->json ? out : NULL, args->json ? NULL : out);
    else hd_print_module(m, out);
    return true;
}

static bool process_parts(const Arguments *args, const char *name, const char *text, size_t len, Out *out) {
    const char *end = text + len, *s = text;
    bool good = true;
    int line = 1;
    for (bool first = true;; first = false) {
        const char *e = args->split ? hd_part_end(s, end) : end;
        if (!first && !args->verify_diagnostics) hd_puts(out, "// -----\n");
        Ctx *cx = hd_ctx_new();
        const char *part = hd_strndup(cx->arena, s, (size_t)(e - s)); // NUL-terminated
        good = process(cx, args, name, part, (size_t)(e - s), line, out) && good;
        hd_ctx_free(cx);
        if (e == end) return good;
        for (; s < e; s++) line += *s == '\n';
        s = hd_part_next(s, end, &line);
    }
}

// --pack: false after reporting that the text is no such table, or that the values do not fit.
static bool pack(const Arguments *args, const char *path, const char *text, Out *out) {
    int64_t height = 0, bound = 0;
    const char *wrong = hd_pack_csv(out->arena, text, args->capacity, (double)args->seconds, out, &height, &bound);
    if (wrong) fprintf(stderr, "%s: error: %s\n", path, wrong);
    else
        fprintf(stderr, "height %lld, lower bound %lld, gap %.3f %%\n", (long long)height, (long long)bound,
                bound ? 100.0 * (double)(height - bound) / (double)bound : 0.0);
    if (wrong || !args->capacity || height <= args->capacity) return !wrong;
    fprintf(stderr, "%s: error: no packing into %lld bytes was found\n", path, (long long)args->capacity);
    return false;
}

static int run(const Arguments *args, Arena *a) {
    Out out = hd_out(a);
    bool good = true;
    if (args->list) {
        args->list(&out);
    } else {
        size_t len = 0;
        const char *path = args->pack ? args->pack : args->input ? args->input : "-";
        bool needs_input = !args->manager.print_pipeline || args->run_reproducer;
        const char *text = needs_input ? hd_read_file(a, path, &len) : "";
        if (!text) {
            fprintf(stderr, "error: cannot read '%s': %s\n", path, strerror(errno));
            return EXIT_ERRORS;
        }
        if (len >= UINT32_MAX / 2) {
            fprintf(stderr, "error: '%s' is larger than 2 GiB\n", path);
            return EXIT_ERRORS;
        }
        const char *name = strcmp(path, "-") ? path : "<stdin>";
        good = args->pack ? pack(args, name, text, &out) : process_parts(args, name, text, len, &out);
    }
    int error = 0;
    if (args->output && strcmp(args->output, "-")) {
        if (good) error = hd_write_file(args->output, out.text, out.n);
    } else if (fwrite(out.text, 1, out.n, stdout) != out.n || fflush(stdout)) {
        error = errno;
    }
    if (error)
        fprintf(stderr, "error: cannot write '%s': %s\n", args->output ? args->output : "standard output",
                strerror(error));
    return good && !error ? 0 : EXIT_ERRORS;
}

int main(int argc, char **argv) {
    int narrowed;
    if (hd_reproducer_main(argc, argv, &narrowed)) return narrowed;
    Arguments args = {.manager = hd_manager_args(), .seconds = 60};
    for (int i = 1; i < argc; i++)
        if (!strcmp(argv[i], "--help")) {
            usage(stdout);
            return 0;
        }
    if (!read_arguments(&args, argc, argv)) return EXIT_USAGE;
    Arena *a = hd_arena_new();
    int status = run(&args, a);
    hd_arena_free(a);
    return status;
}
