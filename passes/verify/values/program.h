// A plan computes what the model computes: the plan's functions have the terms of those of the tensor stage.
#ifndef PASSES_VERIFY_VALUES_PROGRAM_H
#define PASSES_VERIFY_VALUES_PROGRAM_H
#include "ir/ir.h"

// Before fsdp: adds the symbol `program`, hashes of what the functions of kind micro and eval compute, of the
// parameters and of the settings of training. Replaces one that is there. A module without a function of kind micro
// gets none.
void hd_program_declare(Module *m, Arena *scratch);
Symbol *hd_program(const Module *m); // the symbol; NULL: there is none
#endif
