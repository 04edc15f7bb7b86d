// One row an option.
#include "passes/manager/manager_options.h"
#include <stddef.h>

#define FIELD(f) offsetof(ManagerArgs, f)

static const ArgRow rows[] = {
    {"--pass-pipeline", "TEXT", 0, ARG_ANY_TEXT, FIELD(pipeline), "the passes to run: a,b{key=value},train"},
    {"--print-pipeline", NULL, 0, ARG_ON, FIELD(print_pipeline), "print the passes that would run, and stop"},
    {"--device-model", "FILE", 0, ARG_FILE, FIELD(device),
     "the table of how long things take on the device (default: that of --arch in the folder devices)"},
    {"--allow-other-program", NULL, 0, ARG_ON, FIELD(other_program),
     "accept a plan that computes something else than the model that it was made from"},
    {"--stop-after", "PASS", 0, ARG_TEXT, FIELD(options.stop_after), "end the pipeline after this pass"},
    {"--verify-each", NULL, 0, ARG_ON, FIELD(options.verify_each), "verify after every pass (default in debug builds)"},
    {"--no-verify-each", NULL, 0, ARG_OFF, FIELD(options.verify_each), "verify the first and the last module only"},
    {"--print-ir-before", "PASS,..", 0, ARG_TEXT, FIELD(options.print_before), "print the module before these passes"},
    {"--print-ir-after", "PASS,..", 0, ARG_TEXT, FIELD(options.print_after), "print the module after these passes"},
    {"--print-ir-after-all", NULL, 0, ARG_ON, FIELD(options.print_after_all), "print the module after every pass"},
    {"--print-ir-after-change", NULL, 0, ARG_ON, FIELD(options.print_after_change),
     "print it after every pass that changed it"},
    {"--print-ir-dir", "DIR", 0, ARG_TEXT, FIELD(options.print_dir),
     "write it to DIR/input.hir, DIR/00-<pass>.hir, ..."},
    {"--time-passes", NULL, 0, ARG_ON, FIELD(options.time_passes), "print the time of every pass"},
    {"--pass-statistics", NULL, 0, ARG_ON, FIELD(options.statistics), "print what the passes counted"},
    {"--no-reproducer", NULL, 0, ARG_OFF, FIELD(options.reproducer),
     "leave no heddle-reproducer-<n>.hir behind on a fault"},
};

ArgGroup hd_manager_rows(size_t base) { return (ArgGroup)HD_ARG_GROUP(rows, base); }
ManagerArgs hd_manager_args(void) { return (ManagerArgs){.options = hd_manager_defaults(), .limits = hd_limits()}; }
