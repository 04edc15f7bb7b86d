// Parts of a vocabulary that the ranks do not divide (layout.h): what lies behind the end of the whole is 0 in every
// value that is split so. An op is computed on such parts as on equal ones, by its rule in spread.c, if its results
// have zeros there, too, and sums add none but zeros. Losses and look-ups leave these rows out by themselves (uneven).
#include "ir/eval/eval.h"
#include "ir/spread.h"
#include <string.h>

enum { NOWHERE = -1 };

static bool is_said(const Op *o) { return hd_has(&o->attrs, A_UNEVEN); }

bool hd_spread_is_uneven(const Spread *s) {
    bool any = is_said(s->o) && s->o->n_in > 1 && hd_layout_splits(s->in[1]); // the index is along this axis
    for (int i = 0; i < s->o->n_in; i++) any |= hd_layout_uneven(s->in[i]);
    return any && !hd_param_added(s->o, 0);
}

static const char *grad_of(OpKind k) {
    static const char *const grads[N_OPS] = {
#define ELT(id, mnemonic, n, traits, grad, flops, meaning) [OP_##id] = #grad,
#include "ir/ops.def"
    };
    return grads[k] ? grads[k] : "";
}

// Whether a pointwise op gives 0 where the operands that are split are 0.
static bool gives_zero(const Spread *s) {
    const char *grad = grad_of(s->o->kind);
    bool all = true;
    for (int i = 0; i < s->o->n_in; i++) all &= hd_layout_uneven(s->in[i]);
    if (all) return hd_eval_elt(s->o->kind, false, 0, 0, 0) == 0;
    return !strcmp(grad, "mul") || (!strcmp(grad, "div") && hd_layout_uneven(s->in[0]));
}

static const char *wrong(const Spread *s, const char *why) {
    return hd_internf(s->o->func->module->cx, "the ranks along %s do not divide the vocabulary, and %s",
                      hd_axis_name(s->axis), why);
}

const char *hd_spread_uneven(const Spread *s, SpreadRule *rule, bool moves) {
    const Op *o = s->o;
    const bool loss = o->kind == OP_LOSS_PART || o->kind == OP_LOSS_PART_GRAD, parts = hd_has(&o->attrs, A_PARTS);
    const bool looks_up = loss || parts;
    int in[HD_MAX_IN];
    int64_t size = NOWHERE;
    Spread equal = *s;
    equal.in = in;
    for (int i = 0; i < o->n_in; i++) {
        const int d = hd_layout_dim(s->in[i]);
        in[i] = hd_layout_uneven(s->in[i]) ? LAYOUT_SPLIT + d : s->in[i];
        if (hd_layout_uneven(s->in[i]) && d < o->in[i]->type->rank) size = o->in[i]->type->dim[d];
        if (hd_layout_splits(s->in[i]) && !(looks_up && i == 1))
            return wrong(s, "another operand is split into equal parts");
    }
    if (loss && (!is_said(o) || size == NOWHERE))
        return wrong(s, "its loss has to leave out what follows the last row");
    if (!looks_up && !moves)
        return wrong(s, hd_internf(o->func->module->cx, "%s could not tell its last row from what follows it: take a "
                                   "size that they divide, or leave it whole", hd_op_info(o->kind)->mnemonic));
    if (hd_op_is(o, TRAIT_ELEMENTWISE) && !gives_zero(s))
        return wrong(s, hd_internf(o->func->module->cx, "%s of 0 is not 0, as it has to be behind the last row: take a "
                                   "size that they divide", hd_op_info(o->kind)->mnemonic));
    const char *e = rule(&equal);
    for (int i = 0; !e && i < o->n_out + hd_has(&o->attrs, A_INTO); i++) {
        if (!hd_layout_splits(s->out[i]) || o->kind == OP_LOSS_PART) continue;
        const int d = hd_layout_dim(s->out[i]);
        if (size != NOWHERE && hd_result_type(o, i)->dim[d] != size) return wrong(s, "the op changes that dimension");
        s->out[i] = LAYOUT_UNEVEN + d;
    }
    return e;
}
