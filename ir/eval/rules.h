// The evaluator's rules: one function for each name in the eval column of the op table. Results are allocated and
// zeroed before a rule runs, and rounded to their dtype after it. Only ir/eval*.c includes this.
#ifndef IR_EVAL_RULES_H
#define IR_EVAL_RULES_H
#include "ir/eval/eval.h"

struct Stored { const char *name; Tensor value, grad; };
struct Eval {
    const Module *module;
    EvalMode mode;
    Arena *arena;
    int depth; // of kernel launches
    uint32_t random[4]; // hd_eval_seed
    Eval *const *ranks; // all ranks of a run in step; NULL: this is the only one
    int rank, n_ranks;
    const Tensor *values; // of the function that runs, by id
    VEC(struct Stored) stored;
};

typedef const char *EvalRule(Eval *e, const Op *o, const Tensor *in, Tensor *out); // NULL, or what is wrong

#define OP(id, mnemonic, n_in, n_out, attrs, fields, doc) fields
#define eval(x) EvalRule hd_eval_##x;
#include "ir/ops.def"

struct Stored *hd_eval_stored(Eval *e, const char *symbol);
// The elements from `offset` on of a symbol's storage; NULL when fewer than `count` are left.
double *hd_eval_range(Eval *e, const char *symbol, int64_t offset, int64_t count);
// The words that an op with dropout draws by: its key, or NULL.
void hd_eval_key(const Eval *e, const Op *o, const Tensor *key, uint32_t *words);
const char *hd_eval_wrong(Eval *e, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

// Quantizes a row to numbers of type d that are not yet rounded to it; `q` NULL: nothing. Returns the scale.
double hd_eval_quantized(const Eval *e, DType d, const double *x, int64_t n, double *q);
void hd_eval_take_parts(const Tensor *in, Tensor *out); // take with `parts`

// Element steps of `operand` along the axes of `result`: 0 where numpy broadcasting repeats it.
typedef struct { int64_t at[HD_MAX_DIMS]; } Steps;
Steps hd_eval_steps(const Type *result, const Type *operand);
// the operand's element for that element of the result
int64_t hd_eval_source(const Type *result, const Steps *s, int64_t index);
#endif
