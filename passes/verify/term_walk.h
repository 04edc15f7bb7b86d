// The terms of a function, and what it gives away: contributions to gradients and the loss that it keeps. One walk
// serves the tensor stage, where they are `grad` and `return`, and a plan, where they are written into buffers.
#ifndef PASSES_VERIFY_TERM_WALK_H
#define PASSES_VERIFY_TERM_WALK_H
#include "passes/verify/flow.h"
#include "passes/verify/terms.h"

typedef struct {
    const Term *term;
    const Op *by;
} Given;
typedef VEC(Given) Gifts; // in program order

typedef struct {
    Terms t;
    const Module *m;
    PlanCheck *c;             // of a plan; NULL: the tensor stage
    int n_params;
    const Symbol **params;    // in the order of their `index`
    int *number;              // by symbol id, of a parameter: which of them
    // of the function at hand
    const Func *f;
    const Term **terms;       // by value id
    const Symbol *keys;       // the buffer that `random` fills; NULL: none
    const Symbol *losses;     // the buffer into which the losses of all ranks are gathered; NULL: none
    Gifts *gradients;         // by parameter
    Gifts kept;               // losses
    Gifts products;           // products and attention of the forward pass: where a difference is looked for first
} TermWalk;

TermWalk hd_term_walk(const Module *m, PlanCheck *c, Arena *a);
void hd_term_func(TermWalk *w, const Func *f);
const Term *hd_term_losses(const TermWalk *w, int64_t ranks); // the losses of all ranks, gathered
#endif
