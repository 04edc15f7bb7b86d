// The reference evaluator: naive loops that define what each op means. Both targets, every pass and every gradient are
// checked against it. Elements are doubles whatever their dtype; `mode` says how arithmetic rounds.
#ifndef IR_EVAL_EVAL_H
#define IR_EVAL_EVAL_H
#include "ir/ir.h"

typedef enum {
    EVAL_EXACT,  // f64 throughout, no rounding to the dtype of a value: for finite differences
    EVAL_ROUNDED // pointwise arithmetic in f32 (f64 for f64), sums in f64; every result of an op is rounded once to its
                 // dtype
} EvalMode;

typedef struct { const Type *type; double *data; } Tensor;
typedef struct Eval Eval; // the storage of a module: parameters, their gradients, buffers. Zero until written

Eval *hd_eval_new(const Module *m, EvalMode mode, Arena *a);
Tensor hd_tensor(Arena *a, const Type *t); // zeroed
// The elements of a parameter or buffer, to read and to write. The symbol must exist and have a type.
Tensor hd_eval_storage(Eval *e, const char *symbol);
// The sum of the operands of `grad` ops for a parameter; data is NULL when there was none.
Tensor hd_eval_gradient(Eval *e, const char *param);
void hd_eval_clear_gradients(Eval *e);
// Sets the seed and the number of the first sequence, by which dropout without a key draws. Both are 0 at first.
void hd_eval_seed(Eval *e, int64_t seed, int64_t sequence);
// Runs a function. `in` has one tensor an argument; `out` receives one a result. Returns NULL, or what is wrong with
// the inputs (a wrong type, an index outside its table).
const char *hd_eval(Eval *e, const Func *f, const Tensor *in, Tensor *out);
// Runs a function on n ranks in step, op by op: e[r] is the storage of rank r, in[r] and out[r] its arguments and
// results. The ranks are numbered along the mesh of the module (ir/mesh.h).
const char *hd_eval_ranks(Eval *const *e, int n, const Func *f, const Tensor *const *in, Tensor *const *out);

// Rounds to the nearest value of a dtype, ties to even; overflow gives an infinity as the hardware does. Integers:
// toward zero.
double hd_round(DType d, double v);
// One element of a pointwise op in f64 or in f32: the compiled text of the op table's meaning column.
double hd_eval_elt(OpKind k, bool f32, double a, double b, double c);
#endif
