// From a plan to the text of a program. Everything was decided before: this layer only prints.
#ifndef CODEGEN_CODEGEN_H
#define CODEGEN_CODEGEN_H
#include "ir/ir.h"

// Prints the host program of a plan-stage module for the target of its `config @target` (host when absent) into `c`,
// and the CUDA text, if any, into `cuda` as well. False after reporting what the plan lacks.
typedef struct {
    const char *report, *table; // for --report=json and --report
    const char *timeline;       // for --timeline
} ProgramTexts; // that a program holds; each may be ""
bool hd_codegen_c(const Module *m, const ProgramTexts *texts, Out *c, Out *cuda);
#endif
