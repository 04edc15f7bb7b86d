// Which dtypes the elements of a term are values of, so that rounding to them changes no bit (rule 9 of README.md). It
// follows from the ops' definitions in ir/ops.def; an op that is not named here is taken to give values of any kind.
#include "ir/eval/eval.h"
#include "passes/verify/terms.h"

// Every value of `narrow` is one of `wide`: as many bits of mantissa and of exponent. Subnormals, infinities and NaN
// are no exception: every format has them, and the least exponent of `wide` is not above that of `narrow`.
static bool holds_all_of(DType wide, DType narrow) {
    const DTypeInfo *w = hd_dtype_info(wide), *n = hd_dtype_info(narrow);
    return wide == narrow || (n->exponent > 0 && w->mantissa >= n->mantissa && w->exponent >= n->exponent);
}

unsigned hd_exact_values(DType d) {
    unsigned exact = 0;
    for (int k = 0; k < N_DTYPES; k++)
        if (holds_all_of((DType)k, d)) exact |= 1u << k;
    return exact;
}

static unsigned floats(void) {
    unsigned exact = 0;
    for (int k = 0; k < N_DTYPES; k++)
        if (hd_dtype_is_float((DType)k)) exact |= 1u << k;
    return exact;
}

static unsigned exact_number(double v) {
    unsigned exact = 0;
    for (int k = 0; k < N_DTYPES; k++)
        if (hd_dtype_is_float((DType)k) && hd_round((DType)k, v) == v) exact |= 1u << k;
    return exact;
}

static unsigned all_of(int n, const Term *const *in) {
    unsigned exact = ~0u;
    for (int i = 0; i < n; i++) exact &= in[i]->exact;
    return n ? exact : 0;
}

unsigned hd_exact_result(OpKind k, const Attrs *as, int n, const Term *const *in) {
    if (hd_op_info(k)->traits & TRAIT_MOVES) return all_of(n, in); // elements of the operands, no others
    switch (k) {
    case OP_CONST: return hd_has(as, A_PER_RANK) ? 0 : exact_number(hd_float(as, A_VALUE, 0));
    case OP_CAST: return in[0]->exact;
    case OP_GE: case OP_LT: case OP_LE: case OP_GT: case OP_EQ: case OP_NE: case OP_SIGN: case OP_STEP:
        return floats(); // 0, 1 or -1
    case OP_NEG: case OP_ABS: // the sign is a bit of its own in every float
    case OP_RELU: // an element or 0
        return in[0]->exact & floats();
    case OP_MAX: case OP_MIN: case OP_REDUCE_MAX: case OP_BROADCAST: case OP_STOP_GRADIENT: // some of the elements
        return all_of(n, in);
    case OP_RELU_GRAD: return in[1]->exact & floats(); // b or 0
    case OP_WHERE: return all_of(2, in + 1); // b or c; what a is does not matter
    default: return 0;
    }
}
