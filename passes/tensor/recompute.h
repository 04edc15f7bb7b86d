// Declarations that the files of the recompute pass share. recompute.c: the pass; recompute_rows.c: recomputed values,
// for the report; recompute_effect.c: places without effect.
#ifndef PASSES_TENSOR_RECOMPUTE_H
#define PASSES_TENSOR_RECOMPUTE_H
#include "passes/analysis/recompute_costs.h"

// Declares the recomputed values, for the report: `copied`, by op id. `c`: of all ops, before any was copied.
void hd_recompute_declare(Module *m, const Costs *c, const bool *copied);

// Warns of places that change nothing: of `recompute` after it, and of `keep`; `chosen`: there is a limit of memory.
void hd_recompute_effect(Module *m, Arena *a);
void hd_keep_effect(Module *m, bool chosen, Arena *a);
#endif
