// A question to the column `spread` (spread.c; spread_experts.c along an axis of experts): how an op's results are laid
// out along one axis, from how its operands are.
#ifndef IR_SPREAD_H
#define IR_SPREAD_H
#include "ir/layout.h"

typedef struct {
    const Op *o;
    int axis;
    const int *in;
    int *out;
} Spread;

#endif
