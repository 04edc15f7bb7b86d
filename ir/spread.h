// A question to the column `spread` (spread.c; spread_experts.c along an axis of experts; spread_uneven.c of parts
// that are not equal): how an op's results are laid
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

typedef const char *SpreadRule(const Spread *s);
bool hd_spread_is_uneven(const Spread *s); // whether the op computes on uneven parts, but for gradients as they are
// By the rule for equal parts. moves: it is one of pointwise ops, moves, sums and products.
const char *hd_spread_uneven(const Spread *s, SpreadRule *rule, bool moves);

#endif
