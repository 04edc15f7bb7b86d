// Which numbers an integer can be, and which of them an op takes as an index. What ops prove needs no look at the
// numbers themselves (codegen/indices.c).
#ifndef IR_RANGES_H
#define IR_RANGES_H
#include "ir/ir.h"

typedef struct { bool known; int64_t low, high; } IndexRange; // of all elements, both included

// Whole numbers that no element of the result is below or above: of an op whose operands have these, and of pointwise
// ops that whole numbers have (trait `whole`, where). The latter's may pass those of i32.
IndexRange hd_result_range(const Op *o, int result, const IndexRange *in);
IndexRange hd_computed_range(OpKind k, const IndexRange *in);
IndexRange *hd_index_ranges(const Module *m, const Func *f, Arena *a); // by value id

typedef struct {
    int operand;       // of the op
    int64_t low, high; // what the op takes
    int64_t also;      // or this; 0: no other
} IndexUse;
typedef VEC(IndexUse) IndexUses;
// The operands of an op that are indices, of a launch those of its kernel's ops. An op of a backward pass has the
// indices of the forward pass, or those that ops made, and is left out.
IndexUses hd_index_uses(const Op *o, Arena *a);
// Whether the numbers are among those. A bound that data has by this use is the loader's to hold (ir/inputs.h).
bool hd_index_proved(const Op *o, const IndexUse *use, const IndexRange *ranges);
#endif
