// One rank of a run, from open files to its outputs.
#ifndef RUNTIME_RUN_RUN_H
#define RUNTIME_RUN_RUN_H
#include "runtime/run/options.h"
#include "runtime/world/world.h"

typedef struct {
    HdExec *x;  // to be closed when every rank of this process has returned; NULL: it was never open
    int status; // the program's exit status, the same on all ranks unless one was lost
} RankResult;

// all: trains and saves as the options say. Rank 0 reports progress; a failure is reported once.
RankResult hd_run_rank(const HdProgram *p, const Options *o, HdWorld *w);
// export.c, all: the weights as --export and --as say. false after hd_fail.
bool hd_run_export(HdExec *x, const Options *o, bool rank_0);
#endif
