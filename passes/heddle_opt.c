// heddle-opt: reads a .hir file, runs a textual pipeline over it and prints the result. Every test of a pass uses it.
// Exit status: 0 done, 1 errors in the input or missing diagnostics, 2 bad usage.
#include "ir/base/expect.h"
#include "ir/base/parts.h"
#include "ir/reference.h"
#include "passes/manager/manager_options.h"
#include "passes/pack/pack.h"
#include "passes/report/report.h"
#include "passes/manager/reproducer.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { EXIT_ERRORS = 1 };

typedef struct Arguments {
    ManagerArgs manager;
    const char *input, *output; // "-": standard input and output
    const char *pack;           // --pack: a CSV file
    int64_t capacity, seconds;  // --time-limit
    int report;                 // instead of the module
    bool split, verify_diagnostics, run_reproducer;
    bool list[4];
} Arguments;
enum { REPORT_JSON, REPORT_TEXT, REPORT_TIMELINE, NO_REPORT };

#define FIELD(f) offsetof(Arguments, f)
static void (*const lists[])(Out *) = {hd_list_ops, hd_list_attrs, hd_list_symbols, hd_pipeline_list};
enum { N_LISTS = sizeof lists / sizeof *lists };
static const ArgRow rows[] = {
    {"[FILE.hir|-]", NULL, 0, ARG_INPUT, FIELD(input), NULL},
    {"--output", "FILE", 'o', ARG_TEXT, FIELD(output), "write the module there, not to standard output"},
    {"--split-input-file", NULL, 0, ARG_ON, FIELD(split),
     "the input is several modules, separated by lines '// -----'"},
    {"--verify-diagnostics", NULL, 0, ARG_ON, FIELD(verify_diagnostics),
     "compare what is reported with the comments // expected-error @+1 {{text}}"},
    {"--start-after", "PASS", 0, ARG_TEXT, FIELD(manager.options.start_after),
     "begin the pipeline after this pass: the input is what it left"},
    {"--run-reproducer", NULL, 0, ARG_ON, FIELD(run_reproducer), "take the pipeline from the first line of the input"},
    {"--report", "json|text|timeline", 0, ARG_WORD, FIELD(report),
     "print what the plan costs, not the module; timeline is a page of HTML"},
    {"--pack", "FILE.csv", 0, ARG_FILE, FIELD(pack),
     "give the values of a file (columns id, lower, upper, size) offsets, and stop"},
    {"--capacity", "BYTES", 0, ARG_COUNT, FIELD(capacity),
     "--pack: stop as soon as they fit; exit with 1 when no such packing is found"},
    {"--time-limit", "SECONDS", 0, ARG_COUNT, FIELD(seconds),
     "--capacity: how long to search at most (default: 60)"},
    {"--list-ops", NULL, 0, ARG_ON, FIELD(list[0]), "print the reference of ops, and stop"},
    {"--list-attrs", NULL, 0, ARG_ON, FIELD(list[1]), "print the reference of attributes, and stop"},
    {"--list-symbols", NULL, 0, ARG_ON, FIELD(list[2]), "print the reference of symbols, and stop"},
    {"--list-passes", NULL, 0, ARG_ON, FIELD(list[3]), "print the reference of passes and pipelines, and stop"},
};

static int read_arguments(Arguments *args, Arena *a, int argc, char **argv) { // -1, or the exit status
    const ArgGroup groups[] = {HD_ARG_GROUP(rows, 0), hd_limit_rows(FIELD(manager.limits)),
                               hd_manager_rows(FIELD(manager))};
    const Tool tool = {"heddle-opt", "runs passes over the IR of Heddle",
                       "Reads a module, runs passes over it and prints it. Without --pass-pipeline it only checks and "
                       "prints.",
                       groups, 3, NULL};
    const int status = hd_args_read(&tool, a, argc, argv, args);
    if (status == -1 && args->run_reproducer && args->manager.pipeline)
        return hd_args_bad(&tool, "--run-reproducer brings its own pipeline, not", args->manager.pipeline);
    return status;
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
    if (args->run_reproducer && !pipeline_text)
        good = hd_error(cx, (Span){0}, "'%s' is not a reproducer: its first line does not start with '%s'", name,
                        HD_REPRODUCER_LINE);
    if (pipeline_text) good = good && hd_pipeline_parse(cx, pipeline_text, &pipeline);
    if (good && args->manager.print_pipeline) {
        hd_pipeline_print(&pipeline, 0, out);
        hd_puts(out, "\n");
        return true;
    }
    Module *m = good ? hd_parse_module(cx, text, len, base) : NULL;
    good = m && hd_manager_run(m, &pipeline, &args->manager.options);
    const ReportTexts texts = {.json = args->report == REPORT_JSON ? out : NULL,
                               .text = args->report == REPORT_TEXT ? out : NULL,
                               .page = args->report == REPORT_TIMELINE ? out : NULL};
    const bool prints = good && !args->verify_diagnostics;
    if (prints && args->report != NO_REPORT) hd_report(m, -1, &texts);
    else if (prints) hd_print_module(m, out);
    good = good && !cx->diags.errors;
    if (args->verify_diagnostics) {
        Out wrong = hd_out(cx->arena);
        good = !hd_expect_check(&cx->diags, base, &wrong);
        hd_say_text(stderr, wrong.text);
        return good;
    }
    Out diagnostics = hd_out(cx->arena);
    hd_diags_print(&cx->diags, &diagnostics);
    hd_say_text(stderr, diagnostics.text);
    return good;
}

static bool process_parts(const Arguments *args, const char *name, const char *text, size_t len, Out *out) {
    const char *end = text + len, *s = text;
    bool good = true;
    int line = 1;
    for (bool first = true;; first = false) {
        const char *e = args->split ? hd_part_end(s, end) : end;
        if (!first && !args->verify_diagnostics) hd_puts(out, "// -----\n");
        Ctx *cx = hd_ctx_new();
        cx->max_ops = args->manager.limits.ops;
        cx->device_path = args->manager.device;
        cx->allow_other_program = args->manager.other_program;
        const char *part = hd_strndup(cx->arena, s, (size_t)(e - s)); // NUL-terminated
        good = process(cx, args, name, part, (size_t)(e - s), line, out) && good;
        hd_ctx_free(cx);
        if (e == end) return good;
        for (; s < e; s++) line += *s == '\n';
        s = hd_part_next(s, end, &line);
    }
}

// --pack: false after reporting that the text is not such a table, or that the values do not fit.
static bool pack(const Arguments *args, const char *path, const char *text, Out *out) {
    int64_t height = 0, bound = 0;
    const char *wrong = hd_pack_csv(out->arena, text, args->capacity, (double)args->seconds, out, &height, &bound);
    if (wrong) hd_say(stderr, "%s: error: %s\n", path, wrong);
    else
        hd_say(stderr, "height %lld, lower bound %lld, gap %.3f %%\n", (long long)height, (long long)bound,
               bound ? 100.0 * (double)(height - bound) / (double)bound : 0.0);
    if (wrong || !args->capacity || height <= args->capacity) return !wrong;
    hd_say(stderr, "%s: error: no packing into %lld bytes was found\n", path, (long long)args->capacity);
    return false;
}

static int run(const Arguments *args, Arena *a) {
    Out out = hd_out(a);
    bool good = true;
    int list = 0;
    while (list < N_LISTS && !args->list[list]) list++;
    if (list < N_LISTS) {
        lists[list](&out);
    } else {
        size_t len = 0;
        const char *path = args->pack ? args->pack : args->input ? args->input : "-";
        bool needs_input = !args->manager.print_pipeline || args->run_reproducer;
        const char *text = needs_input ? hd_read_file(a, path, &len) : "";
        if (!text) {
            hd_say(stderr, "error: cannot read '%s': %s\n", path, strerror(errno));
            return EXIT_ERRORS;
        }
        if (len >= UINT32_MAX / 2) {
            hd_say(stderr, "error: '%s' is larger than 2 GiB\n", path);
            return EXIT_ERRORS;
        }
        const char *name = strcmp(path, "-") ? path : "<stdin>";
        good = args->pack ? pack(args, name, text, &out) : process_parts(args, name, text, len, &out);
    }
    const bool to_file = args->output && strcmp(args->output, "-") != 0; // keeps its errors where the input is wrong
    return ((to_file && !good) || hd_args_write(args->output, &out)) && good ? 0 : EXIT_ERRORS;
}

int main(int argc, char **argv) {
    int narrowed;
    if (hd_reproducer_main(argc, argv, &narrowed)) return narrowed;
    Arguments args = {.manager = hd_manager_args(), .seconds = 60, .report = NO_REPORT};
    Arena *a = hd_arena_new();
    int status = read_arguments(&args, a, argc, argv);
    hd_memory_limit((size_t)args.manager.limits.memory);
    if (status == -1) status = run(&args, a);
    hd_arena_free(a);
    return status;
}
