// Hashes, as text, of what a program computes and of what it declares, by which a plan is compared with its model.
#ifndef PASSES_VERIFY_VALUES_SAID_H
#define PASSES_VERIFY_VALUES_SAID_H
#include "passes/verify/values/term_walk.h"

// Half of the hash of a product: enough to find a place by.
const char *hd_said_short(const TermWalk *w, const Term *x);
const char *hd_said_update(const TermWalk *walk, const Func *k); // of the weights and states that the kernel gives
const char *hd_said_declaration(const TermWalk *w, const Symbol *p); // of a parameter or a buffer
const char *hd_said_settings(const TermWalk *w);
const char *hd_said_parameters(const TermWalk *w); // of the attributes `declared` and `contributed` of all
// Of the contributions to a gradient. `swapped`: the second before the first.
const char *hd_said_contributions(const TermWalk *w, const Gifts *g, bool swapped);
const Term *hd_said_product(const TermWalk *w, const Term *x, double factor); // x times a number
// Of what the function returns that was walked last: logits; of a function that a program runs by name. "": not one.
const char *hd_said_logits(const TermWalk *w);
const char *hd_said_call(const TermWalk *w);
#endif
