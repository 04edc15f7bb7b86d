// Values as terms: an op, its attributes, its type and the terms of its operands. Terms that mean the same
// numbers have one normal form (term_rules.c), whatever ops, kernels and buffers a stage has made of them. A term is
// known by a hash of 128 bits of all that it is made of: two terms are one where their hashes are equal.
#ifndef PASSES_VERIFY_VALUES_TERMS_H
#define PASSES_VERIFY_VALUES_TERMS_H
#include "ir/ir.h"

typedef struct { uint64_t lo, hi; } TermHash;
typedef struct Term {
    TermHash hash;
    OpKind kind;           // N_OPS: of no op, such as an argument
    const Type *type;
    unsigned axes;         // of sum and reduce_max: a bit for each axis that is summed over; they stay, with size 1
    unsigned exact;        // a bit for each dtype that every element is a value of: a cast to it changes nothing
    const struct Term *of; // operand 0, where there is one
    const struct Term *with; // operand 1, where there is one
    const struct Term *by; // what is sent between ranks: by which rows; NULL: any other
    const Op *made;        // rows by which tokens are sent: the op
} Term;

typedef struct TermSet TermSet;
typedef struct {
    Arena *a;
    Ctx *cx;
    int64_t ranks; // that read different sequences, by which a constant for one rank is divided, in the tensor stage
    TermSet *made; // gets every term; NULL: nobody asks
} Terms;

// --- terms.c: what a hash is made of
typedef struct {
    unsigned char bytes[1024];
    size_t n;
} Recipe;
void hd_recipe_put(Recipe *r, const void *bytes, size_t n);
void hd_recipe_text(Recipe *r, const char *s);
void hd_recipe_int(Recipe *r, int64_t v);
void hd_recipe_type(Recipe *r, const Type *t);
void hd_recipe_attr(Recipe *r, const Attr *a);
TermHash hd_recipe_hash(Recipe *r);
const char *hd_term_hash_text(Arena *a, TermHash h); // 32 hexadecimal digits
static inline bool hd_term_fits(const Term *x, DType d) { return x->exact >> d & 1; }
static inline bool hd_term_is_unrounded(const Term *x) { return x->kind == N_OPS && x->of; }
static inline const Term *hd_term_bare(const Term *x) { return x->kind == OP_RESHAPE ? x->of : x; }
static inline bool hd_term_same(TermHash x, TermHash y) { return x.lo == y.lo && x.hi == y.hi; }

// A term of no op: an argument, a parameter, the key of a dropout.
const Term *hd_term_leaf(const Terms *t, const char *what, const char *name, int64_t number, const Type *type);
// Result `index` of an op of this kind, as it is: no rule is applied. `as` may be NULL.
const Term *hd_term_plain(const Terms *t, OpKind k, int index, const Type *type, const Attrs *as, int n,
                          const Term *const *in);
const Term *hd_term_unrounded(const Terms *t, const Term *x); // what a kernel reads before it is rounded
const Term *hd_term_summed(const Terms *t, OpKind k, const Type *type, unsigned axes, const Term *x);
TermSet *hd_term_set(Arena *a);
bool hd_term_in(const TermSet *s, const Term *x);

// --- term_exact.c: the dtypes that all elements of a term are values of
unsigned hd_exact_values(DType d); // of values of dtype d, whatever they are: d and every dtype that holds all of it
// The same for the result of an op over these operands, before anything rounds it. as: may be NULL
unsigned hd_exact_result(OpKind k, const Attrs *as, int n, const Term *const *in);

// --- term_columns.c: what a concat of `n` terms along its last axis is, where these are all columns of one product, in
// order; NULL: something else
const Term *hd_term_columns(const Terms *t, int64_t axis, const Type *type, int n, const Term *const *in);

// --- term_tensors.c: weights quantized to e4m3 with one scale for all of them, or with `scale` that
const Term *hd_term_tensor(const Terms *t, const Module *m, const Term *x, bool scale);

// --- term_rules.c: normal forms
const Term *hd_term_reshape(const Terms *t, const Term *x, const Type *type);
const Term *hd_term_cast(const Terms *t, const Term *x, DType d);
const Term *hd_term_rows(const Terms *t, const Term *x, int64_t start, const Type *type); // its rows from `start` on
const Term *hd_term_stored(const Terms *t, const Term *x, DType d); // flat, in the dtype of the buffer
const Term *hd_term_commuting(const Terms *t, OpKind k, const Type *type, const Term *a, const Term *b);
// Result `index` of an op, over the terms of its operands. An op with `into` has its result 0 there.
const Term *hd_term_exchanged(const Terms *t, const Op *o, const Term *x); // what an exchange of x gives
const Term *hd_term_of(const Terms *t, const Op *o, int index, const Term *const *in);
#endif
