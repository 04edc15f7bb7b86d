// The costs of a plan, for programs (JSON, as `heddlec --emit=report` prints it) and for people (a text, as
// `--emit=table` prints it and a compiled program on --report). Everything is computed from the plan.
#ifndef PASSES_REPORT_REPORT_H
#define PASSES_REPORT_REPORT_H
#include "ir/ir.h"

typedef struct {
    Out *json, *text;
    Out *plan; // what a timeline shows of the plan, for programs
    Out *page; // a timeline of the predicted step
} ReportTexts; // NULL: not wanted

// The module must be a plan with addresses. `seconds`: duration of the compilation; negative: not printed.
void hd_report(const Module *m, double seconds, const ReportTexts *texts);
#endif
