// Values that are affine in one number: constant + factor * x.
#pragma once
#include "ir/ir.h"

typedef struct {
    bool known; // false: it is not affine, or not known to be
    double constant, factor;
} Affine;

// An element of the result of an op with one result whose operands have elements a and b; b: as a, where it has one.
Affine hd_affine(const Op *o, Affine a, Affine b);
