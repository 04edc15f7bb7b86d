// What units of schedule.fsdp would save of a plan's memory.
#ifndef PASSES_ANALYSIS_UNITS_H
#define PASSES_ANALYSIS_UNITS_H
#include "ir/ir.h"

// A note where a model without units takes so many bytes, and the gradients of a step are a part of them that counts.
void hd_note_units(const Module *m, int64_t bytes);
#endif
