// The command-line options of the pass manager, the same in heddlec and heddle-opt.
#ifndef PASSES_MANAGER_MANAGER_OPTIONS_H
#define PASSES_MANAGER_MANAGER_OPTIONS_H
#include "ir/base/args.h"
#include "ir/base/limits.h"
#include "passes/manager/manager.h"

typedef struct ManagerArgs {
    ManagerOptions options;
    Limits limits;
    const char *pipeline; // --pass-pipeline, or NULL
    bool print_pipeline;  // --print-pipeline: print the passes that would run, and stop
    const char *device;   // --device-model, or NULL
    bool other_program;   // --allow-other-program
} ManagerArgs;

ManagerArgs hd_manager_args(void);
ArgGroup hd_manager_rows(size_t base); // base: offset of the ManagerArgs in the tool's arguments
#endif
