// The sources of the arguments of a step's functions, which are those of the loss: an input for each.
#ifndef IR_INPUTS_H
#define IR_INPUTS_H
#include "ir/ir.h"

typedef struct {
    // The argument whose elements, one further on, are this one's where it has no data of its own; -1: none. So does
    // the argument after tokens, of their type, if it is called targets or the loss takes no other.
    int next;
    int64_t below; // i32: every element is from 0 to less than this,
    int64_t also;  // or this, which every op that looks up elements ignores; 0: no other
} Input;

Input hd_input(const Module *m, const Func *f, int arg);
int hd_token_argument(const Func *f); // the first that is i32[batch, seq]; -1: none is
// Why no run can fill the arguments of f, for micro-batches of `batch` sequences; NULL: it can.
const char *hd_unfed(Arena *a, Ctx *cx, const Func *f, int64_t batch);
#endif
