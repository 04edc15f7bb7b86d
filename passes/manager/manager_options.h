// The command-line options of the pass manager, the same in heddlec and heddle-opt.
#ifndef PASSES_MANAGER_MANAGER_OPTIONS_H
#define PASSES_MANAGER_MANAGER_OPTIONS_H
#include "passes/manager/manager.h"

typedef struct ManagerArgs {
    ManagerOptions options;
    const char *pipeline; // --pass-pipeline, or NULL
    bool print_pipeline;  // --print-pipeline: print the passes that would run, and stop
} ManagerArgs;

ManagerArgs hd_manager_args(void);

typedef enum { OPTION_OTHER, OPTION_TAKEN, OPTION_BAD } OptionResult;
// Reads argv[*i] when it is one of ours; a value may follow `=` or be the next argument, which is then skipped as well.
// OPTION_BAD after saying on stderr what is wrong with it.
OptionResult hd_manager_option(ManagerArgs *args, int argc, char *const *argv, int *i);
void hd_manager_usage(Out *o); // one line an option
#endif
