// The terms of a function, and what it gives away: contributions to gradients and the loss that it keeps. One walk
// serves the tensor stage, where they are `grad` and `return`, and a plan, where they are written into buffers.
#ifndef PASSES_VERIFY_VALUES_TERM_WALK_H
#define PASSES_VERIFY_VALUES_TERM_WALK_H
#include "ir/layout.h"
#include "passes/verify/values/terms.h"
#include "passes/verify/verify_plan.h"

typedef struct {
    const Term *term;
    const Op *by;
    int number; // of a loss or a further result: which of a step (hd_step_keeps)
} Given;
typedef VEC(Given) Gifts; // in program order

typedef struct {
    Terms t;
    const Module *m;
    PlanCheck *c;             // of a plan; NULL: the tensor stage
    int n_params;
    const Symbol **params;    // in the order of their `index`
    int *number;              // by symbol id, of a parameter: which of them
    Mesh mesh;
    // of the function at hand
    const Func *f;
    const Term **terms;       // by value id, of the whole of it, and
    Layout *layouts;          // how the whole is made of what a rank has
    const Op *whole;          // the op at hand, as it is on whole values
    Layout given;             // of what the op at hand writes into its buffer
    bool misplaced;           // some op reads what is laid out otherwise: reported
    const Symbol *keys;       // the buffer that `dropout_keys` fills; NULL: none
    int *gathered;            // by symbol id: one more than the number of a step that is gathered there of all ranks
    const Op **scales;        // by symbol id: the all_max that finds the scales there; NULL: none
    Gifts *gradients;         // by parameter
    Gifts kept;               // losses and their further results
    Gifts products;           // products and attention of the forward pass: where a difference is looked for first
} TermWalk;

TermWalk hd_term_walk(const Module *m, PlanCheck *c, Arena *a);
void hd_term_func(TermWalk *w, const Func *f);

// --- term_layout.c
const Type *hd_term_whole_type(const TermWalk *w, const Symbol *p); // of a parameter
// A collective of values over an axis whose ranks share the values of a model: it changes their layout alone.
bool hd_term_moves_layout(const TermWalk *w, const Op *o);
// The layouts of an op's results from those of its operands, and the op as it is on whole values: `o` itself where all
// are whole. by: the op of the plan that runs it, to report a layout that the op does not take.
const Op *hd_term_lay_out(TermWalk *w, const Op *o, const Op *by, const Layout *in, Layout *out);
void hd_term_check_given(TermWalk *w, const Op *by, const char *what, Layout is, Layout wanted);

const Term *hd_term_losses(const TermWalk *w, int number, int64_t ranks); // a number of all ranks, gathered
#endif
