// From a plan to the text of a program. Everything was decided before: this layer only prints.
#ifndef CODEGEN_CODEGEN_H
#define CODEGEN_CODEGEN_H
#include "ir/ir.h"

// Prints the host program of a plan-stage module for the target of its `config @target` (host when absent) into `c`,
// and the CUDA text, if any, into `cuda` as well. The program prints `report` on --report=json and `table` on --report;
// they may be "". False after reporting what the plan lacks.
bool hd_codegen_c(const Module *m, const char *report, const char *table, Out *c, Out *cuda);
#endif
