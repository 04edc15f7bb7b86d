// Type rules: one short function for each name in the type column of the op table, from operands, attributes and (for
// EXPLICIT ops) the written types to the types of the results. A rule returns NULL or what is wrong, saying both
// values. Only ir/type_*.c include this.
#ifndef IR_TYPE_RULES_H
#define IR_TYPE_RULES_H
#include "ir/ir.h"

typedef struct {
    Ctx *cx;
    const Op *o;
    int n_declared;
    const Type *const *declared;
    int n;
    const Type *out[HD_MAX_IN];
} Rule;
typedef const char *TypeRule(Rule *r);

#define OP(id, mnemonic, n_in, n_out, attrs, fields, doc) fields
#define type(x) TypeRule hd_rule_##x;
#include "ir/ops.def"

#define IN(i) (r->o->in[i]->type)
#define WRONG(...) return hd_internf(r->cx, __VA_ARGS__)
#define TEXT(t) hd_type_text(r->cx, t)

static inline const char *hd_rule_give(Rule *r, const Type *t) { // the type of the next result
    if (!t) return "result too large: more than 2^60 bytes, or more than 6 axes";
    r->out[r->n++] = t;
    return NULL;
}

const char *hd_rule_floating(Rule *r, int operand); // the operand's elements are floating-point numbers
DType hd_rule_out(Rule *r, DType otherwise); // attribute `out`, checked by the verifier
// With `into`, of what is written there: a matrix in the dtype of the buffer.
const Type *hd_rule_matrix_into(Rule *r, int64_t rows, int64_t cols);
const Symbol *hd_rule_symbol(Rule *r, AttrId a, SymbolKind k); // the symbol an attribute names, of this kind; else NULL
const char *hd_rule_take_parts(Rule *r); // of `take` with parts
const char *hd_rule_parts_wrong(Rule *r, const Type *index, int64_t rows); // why it is no index into parts of them
const char *hd_rule_params(Rule *r, const Type **type); // of the parameters that param or grad names, as one matrix
// as many elements as t has, from `offset` on, are in the buffer
const char *hd_rule_in_buffer(Rule *r, AttrId a, const Type *t);
#endif
