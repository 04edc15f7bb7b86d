// Runs a pipeline over a module: checks, dumps, timing, statistics and reproducers, so that no pass has to.
#ifndef PASSES_MANAGER_MANAGER_H
#define PASSES_MANAGER_MANAGER_H
#include "passes/manager/pipeline.h"

typedef struct ManagerOptions {
    bool verify_each;                          // verify after every pass; the end is always verified
    const char *print_before, *print_after;    // comma-separated passes, or NULL
    bool print_after_all, print_after_change;  // ..._change: only a line where a pass changed nothing
    const char *print_dir;                     // a folder that gets input.hir, 00-autodiff.hir, ...; or NULL
    const char *start_after, *stop_after;      // passes, or NULL: the pipeline begins after the first of that name
    bool time_passes, statistics;
    bool reproducer;                           // write heddle-reproducer-<n>.hir after an internal error
} ManagerOptions;

ManagerOptions hd_manager_defaults(void);

// Checks the pipeline and the options against each other and against the stage of the module, then runs it. Dumps go to
// stderr. False after reporting errors; the module is unusable then.
bool hd_manager_run(Module *m, const Pipeline *p, const ManagerOptions *options);
#endif
