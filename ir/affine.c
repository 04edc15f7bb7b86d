// See affine.h.
#include "ir/affine.h"
#include "ir/eval/eval.h"

Affine hd_affine(const Op *o, Affine a, Affine b) {
    const Affine no = {0};
    if (!a.known || (o->n_in > 1 && !b.known)) return no;
    if (hd_op_is(o, TRAIT_CARRIES)) return a;
    if (hd_op_is(o, TRAIT_LINEAR))
        return (Affine){true, hd_eval_elt(o->kind, false, a.constant, b.constant, 0),
                        hd_eval_elt(o->kind, false, a.factor, b.factor, 0)};
    switch (o->kind) {
    case OP_BROADCAST: return a;
    case OP_SUM: { // its elements have this constant; x is in one of them
        const int64_t n = hd_type_count(o->out[0]->type);
        return (Affine){n > 0, n ? a.constant * (double)(hd_type_count(o->in[0]->type) / n) : 0, a.factor};
    }
    case OP_MUL:
        if (a.factor != 0 && b.factor != 0) return no;
        return (Affine){true, a.constant * b.constant, a.factor * b.constant + b.factor * a.constant};
    case OP_DIV:
        return b.factor != 0 || b.constant == 0 ? no : (Affine){true, a.constant / b.constant, a.factor / b.constant};
    default: return no;
    }
}
