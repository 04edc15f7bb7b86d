// A pass is a function from a module to a module. It keeps no state between runs and reads its options from PassCx.
// It allocates what stays on m->cx->arena, everything else on cx->scratch. Order, verification, dumps and timing belong
// to the manager.
#ifndef PASSES_PASS_H
#define PASSES_PASS_H
#include "ir/ir.h"

typedef enum { UNCHANGED, CHANGED, FAILED } Change; // FAILED: errors were reported

struct PassCall;
typedef struct PassCx {
    Arena *scratch;              // freed after the pass
    const struct PassCall *call; // the pass and its options in this run; NULL: a trial inside another pass
    struct PassCounter *counters;
    int trial;                   // a trial: the effort of packing (pack/pack.h); 0: none is
} PassCx;
typedef Change PassFn(Module *m, PassCx *cx);

// The value of an option that the pass's row declares; `otherwise` when the pipeline does not give it.
int64_t hd_option_int(const PassCx *cx, const char *key, int64_t otherwise);
// Adds n to a number that --pass-statistics prints, e.g. hd_count(cx, "ops removed", 3).
void hd_count(PassCx *cx, const char *what, int64_t n);

#define PASS(id, ...) PassFn hd_pass_##id;
#include "passes/passes.def"
#endif
