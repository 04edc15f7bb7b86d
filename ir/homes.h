// Where the bytes of a value are: its own, those of another value, or part of a buffer.
#ifndef IR_HOMES_H
#define IR_HOMES_H
#include "ir/ir.h"

// Alias ops do no work: their result is storage that another op filled.
static inline bool hd_is_alias(const Op *o) { return hd_op_is(o, TRAIT_ALIAS | TRAIT_SOURCE); }

// The result that takes over the bytes of operand `inplace`: dlogits of cross_entropy_grad, result 0 of other ops that
// may have it; -1: none.
int hd_inplace_result(const Op *o);

// Where the bytes of a value are: `root` (an argument, or a result with storage of its own), or bytes of a buffer from
// `at` on.
typedef struct { const Value *root; const Symbol *buffer; int64_t at; } Home;
Home *hd_homes(const Func *f, Arena *a); // by value id
Home hd_home_of_view(const Op *o);
#endif
