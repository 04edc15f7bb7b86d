// What a plan costs, for programs (JSON, as `heddlec --emit=report` prints it) and for people. Everything is computed from the plan.
#ifndef PASSES_REPORT_H
#define PASSES_REPORT_H
#include "ir/ir.h"

// `seconds`: how long the compilation took; negative: not said. The module must be a plan with addresses.
void hd_report_json(const Module *m, double seconds, Out *o);
void hd_report_text(const Module *m, double seconds, Out *o);
#endif
