// One row an option: reading and the help text come from the same table.
#include "passes/manager/manager_options.h"
#include <stddef.h>
#include <stdio.h>
#include <string.h>

typedef enum { FLAG_ON, FLAG_OFF, TEXT } Kind;
typedef struct { const char *name, *value; Kind kind; size_t field; const char *doc; } Row;
#define FIELD(f) offsetof(ManagerArgs, f)

static const Row rows[] = {
    {"--pass-pipeline", "TEXT", TEXT, FIELD(pipeline), "the passes to run: a,b{key=value},train"},
    {"--print-pipeline", NULL, FLAG_ON, FIELD(print_pipeline), "print the passes that would run, and stop"},
    {"--stop-after", "PASS", TEXT, FIELD(options.stop_after), "end the pipeline after this pass"},
    {"--verify-each", NULL, FLAG_ON, FIELD(options.verify_each), "verify after every pass (default in debug builds)"},
    {"--no-verify-each", NULL, FLAG_OFF, FIELD(options.verify_each), "verify the first and the last module only"},
    {"--print-ir-before", "PASS,..", TEXT, FIELD(options.print_before), "print the module before these passes"},
    {"--print-ir-after", "PASS,..", TEXT, FIELD(options.print_after), "print the module after these passes"},
    {"--print-ir-after-all", NULL, FLAG_ON, FIELD(options.print_after_all), "print the module after every pass"},
    {"--print-ir-after-change", NULL, FLAG_ON, FIELD(options.print_after_change),
     "print it after every pass that changed it"},
    {"--print-ir-dir", "DIR", TEXT, FIELD(options.print_dir), "write it to DIR/input.hir, DIR/00-<pass>.hir, ..."},
    {"--time-passes", NULL, FLAG_ON, FIELD(options.time_passes), "print the time of every pass"},
    {"--pass-statistics", NULL, FLAG_ON, FIELD(options.statistics), "print what the passes counted"},
    {"--no-reproducer", NULL, FLAG_OFF, FIELD(options.reproducer),
     "leave no heddle-reproducer-<n>.hir behind on a fault"},
};
enum { N_ROWS = sizeof rows / sizeof *rows };

ManagerArgs hd_manager_args(void) { return (ManagerArgs){.options = hd_manager_defaults()}; }

OptionResult hd_manager_option(ManagerArgs *args, int argc, char *const *argv, int *i) {
    const char *arg = argv[*i];
    size_t n = strcspn(arg, "=");
    for (int k = 0; k < N_ROWS; k++) {
        const Row *r = &rows[k];
        if (strlen(r->name) != n || strncmp(r->name, arg, n) != 0) continue;
        char *field = (char *)args + r->field;
        if (r->kind != TEXT) {
            bool on = r->kind == FLAG_ON;
            if (arg[n]) {
                fprintf(stderr, "error: %s takes no value\n", r->name);
                return OPTION_BAD;
            }
            memcpy(field, &on, sizeof on);
            return OPTION_TAKEN;
        }
        const char *value = arg[n] ? arg + n + 1 : *i + 1 < argc ? argv[++*i] : NULL;
        if (!value || (!*value && k > 0)) { // an empty pipeline is a pipeline
            fprintf(stderr, "error: %s needs a value: %s=%s\n", r->name, r->name, r->value);
            return OPTION_BAD;
        }
        memcpy(field, &value, sizeof value);
        return OPTION_TAKEN;
    }
    return OPTION_OTHER;
}

void hd_manager_usage(Out *o) {
    for (int k = 0; k < N_ROWS; k++) {
        const char *text =
            hd_sprintf(o->arena, "%s%s%s", rows[k].name, rows[k].value ? "=" : "", rows[k].value ? rows[k].value : "");
        hd_printf(o, "  %-28s %s\n", text, rows[k].doc);
    }
}
