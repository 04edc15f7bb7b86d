// The results that an op writes to buffers by `into`: result 0, where its attributes say so, and each result that says
// so. The verifier, reports and the evaluator read it from here and nowhere else.
#ifndef IR_WRITES_H
#define IR_WRITES_H
#include "ir/ir.h"

typedef struct {
    const Op *op;
    const Value *value;   // what goes there: the operand of a store, or a result; NULL: the result that `into` among an
                          // op's attributes takes away
    const Type *type;     // of what goes there; NULL: the op's types are wrong
    const Symbol *buffer;
    int64_t at;           // the first element
    bool adds;            // to what is there
} Write;

// The writes of an op, in order: `*i` is 0 at first and goes on by itself; false after the last one.
bool hd_next_write(const Op *o, int *i, Write *w);

// Whether what goes there was made by an op before this one: a store moves it.
static inline bool hd_moves(const Write *w) { return w->value && w->value->def != w->op; }
// The op that makes what goes there; NULL: it is an argument.
static inline const Op *hd_writer(const Write *w) { return hd_moves(w) ? w->value->def : w->op; }
#endif
