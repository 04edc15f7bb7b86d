// What a plan costs, for programs (JSON, as `heddlec --emit=report` prints it) and for people (a text, as
// `--emit=table` prints it and a compiled program on --report). Everything is computed from the plan.
#ifndef PASSES_REPORT_REPORT_H
#define PASSES_REPORT_REPORT_H
#include "ir/ir.h"

// The module must be a plan with addresses. `seconds`: duration of the compilation; negative: not printed. Either text
// may be NULL.
void hd_report(const Module *m, double seconds, Out *json, Out *text);
#endif
