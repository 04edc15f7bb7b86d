// What a plan costs, as JSON: memory by class at its peak, kernels, graphs, floating-point work.
#ifndef CODEGEN_REPORT_H
#define CODEGEN_REPORT_H
#include "ir/ir.h"

// `verified`: verify-plan accepted the plan. Times are the caller's.
void hd_report_json(const Module *m, double compile_seconds, bool verified, Out *o);
#endif
