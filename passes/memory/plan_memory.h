// How much memory a plan will need, before it has addresses.
#ifndef PASSES_MEMORY_PLAN_MEMORY_H
#define PASSES_MEMORY_PLAN_MEMORY_H
#include "passes/pass.h"

// The least bytes of device memory that plan-memory can give a plan with events: what persists, and the most that is
// live. Decides what is in place, like that pass, so the module is for nothing else. -1 after an error.
int64_t hd_memory_bound(Module *m, PassCx *cx);
#endif
