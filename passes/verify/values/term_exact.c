// Which dtypes the elements of a term are values of, so that rounding to them changes no bit (rule 9 of README.md). It
// follows from the traits of ops; an op without one that says it is taken to give values of any kind.
#include "ir/eval/eval.h"
#include "passes/verify/values/terms.h"

// Every value of `narrow` is one of `wide`: as many bits of mantissa and of exponent. Subnormals and NaN are no
// exception: every format has them, and the least exponent of `wide` is not above that of `narrow`. Nor are infinities:
// no other format fits in one that saturates.
static bool holds_all_of(DType wide, DType narrow) {
    const DTypeInfo *w = hd_dtype_info(wide), *n = hd_dtype_info(narrow);
    const bool fits = n->exponent > 0 && w->mantissa >= n->mantissa && w->exponent >= n->exponent;
    return wide == narrow || (fits && !w->saturates);
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
    const uint64_t traits = hd_op_info(k)->traits;
    if (traits & (TRAIT_MOVES | TRAIT_PICKS | TRAIT_CARRIES)) return all_of(n, in);
    if (traits & TRAIT_PICKS_LATER) return all_of(n - 1, in + 1);
    if (traits & TRAIT_UNITS) return floats();
    if (traits & TRAIT_SIGNS) return in[0]->exact & floats(); // the sign is a bit of its own in every float
    if (traits & TRAIT_CONSTANT) return hd_has(as, A_PER_RANK) ? 0 : exact_number(hd_float(as, A_VALUE, 0));
    return 0;
}
