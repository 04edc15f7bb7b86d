// The interface between the reverse walk (autodiff.c) and the gradient rules (grad_rules.c).
#ifndef PASSES_TENSOR_AUTODIFF_H
#define PASSES_TENSOR_AUTODIFF_H
#include "ir/ir.h"

typedef struct { const Op *slice; Value *grad; } SliceGrad;
typedef struct {
    VEC(SliceGrad) pieces;
    int slices_left;
} Sliced; // of one value: gradients of its slices that the walk has not used yet

typedef struct Autodiff {
    Builder b; // inserts ops before the return of @micro, with the place of the forward op and the flag `bwd`
    Arena *scratch;
    int n_forward; // values of the forward pass have ids below this
    bool *active;  // by id: a parameter reaches it through differentiable ops
    Value **grad;  // by id: the sum of the contributions so far
    Sliced *sliced; // by id
} Autodiff;

// Adds the contributions that the gradient `dy` of o's first result makes to o's operands.
typedef void GradRule(Autodiff *d, const Op *o, Value *dy);
GradRule *hd_grad_rule(OpKind k);
// the rules of ops without a gradient, and of those whose gradient is zero everywhere
GradRule hd_grad_none, hd_grad_zero;

bool hd_grad_wanted(const Autodiff *d, const Value *v);
// Adds a contribution to v's gradient; it is summed over broadcast axes and cast where its type is not v's.
void hd_grad_add(Autodiff *d, Value *v, Value *contribution);
#endif
