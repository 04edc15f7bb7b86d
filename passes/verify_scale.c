// Scales: the loss that is kept is scaled like the loss whose gradient is taken, and the mean over ranks is one [V21]. Scales are read
// out of the kernels: a value as constant + factor * another, where that can be said.
#include "passes/verify_flow.h"
#include <math.h>

typedef struct { bool known; double constant, factor; } Affine;

static Affine affine_op(const Op *o, Affine a, Affine b) {
    Affine no = {0};
    if (!a.known || (o->n_in > 1 && !b.known)) return no;
    switch (o->kind) {
    case OP_CAST: case OP_RESHAPE: case OP_BROADCAST: return a;
    case OP_SUM: { // of each element
        int64_t n = hd_type_count(o->out[0]->type);
        return (Affine){n > 0, n ? a.constant * (double)(hd_type_count(o->in[0]->type) / n) : 0, a.factor};
    }
    case OP_NEG: return (Affine){true, -a.constant, -a.factor};
    case OP_ADD: return (Affine){true, a.constant + b.constant, a.factor + b.factor};
    case OP_SUB: return (Affine){true, a.constant - b.constant, a.factor - b.factor};
    case OP_MUL:
        if (a.factor != 0 && b.factor != 0) return no;
        return (Affine){true, a.constant * b.constant, a.factor * b.constant + b.factor * a.constant};
    case OP_DIV: return b.factor != 0 || b.constant == 0 ? no : (Affine){true, a.constant / b.constant, a.factor / b.constant};
    default: return no;
    }
}

// The result of a kernel as a function of its argument `of`; unknown when it depends on another or is not affine.
static Affine kernel_result(PlanCheck *c, const Func *k, int result, int of) {
    const Op *ret = k ? hd_return(k) : NULL;
    if (!ret || result >= ret->n_in) return (Affine){0};
    Affine *at = HD_NEWN(c->a, Affine, k->n_values + 1);
    if (of >= 0 && of < k->n_args) at[k->args[of]->id] = (Affine){true, 0, 1};
    for (const Op *o = k->first; o != ret; o = o->next) {
        if (o->n_out != 1) continue;
        if (o->kind == OP_CONST) at[o->out[0]->id] = (Affine){true, hd_float(&o->attrs, A_VALUE, 0), 0};
        else if (o->n_in == 1 || o->n_in == 2) at[o->out[0]->id] = affine_op(o, at[o->in[0]->id], at[o->in[o->n_in - 1]->id]);
    }
    return at[ret->in[result]->id];
}

// v = constant + factor * source, through reshapes and launches of kernels with one argument or none.
static Affine trace(PlanCheck *c, const Value *v, const Value *source, int depth) {
    if (v == source) return (Affine){true, 0, 1};
    const Op *o = v->def;
    if (!o || depth > 16) return (Affine){0};
    if (hd_op_is(o, TRAIT_ALIAS)) return trace(c, o->in[0], source, depth + 1);
    if (o->kind != OP_LAUNCH || o->n_in > 1) return (Affine){0};
    Affine k = kernel_result(c, hd_func_find(c->m, hd_word(&o->attrs, A_KERNEL, "")), v->index, 0);
    if (!k.known || k.factor == 0 || o->n_in == 0) return k;
    Affine in = trace(c, o->in[0], source, depth + 1);
    return (Affine){in.known, k.constant + k.factor * in.constant, k.factor * in.factor};
}

static bool differ(double a, double b) { return fabs(a - b) > 1e-6 * fabs(b); }

// What one operand of launches and aliases was made of in the end: a view, or a value of another op.
static const Value *source_of(const Value *v) {
    while (v->def && v->def->n_in == 1 && (hd_op_is(v->def, TRAIT_ALIAS) || v->def->kind == OP_LAUNCH)) v = v->def->in[0];
    return v;
}

// The mean over ranks: every rank's loss once, times 1 / ranks.
static void check_mean(PlanCheck *c, const Op *store) {
    const Value *parts = source_of(store->in[0]);
    double ranks = (double)(c->shard * c->replicate);
    Affine mean = trace(c, store->in[0], parts, 0);
    if (!parts->def || parts->def->kind != OP_VIEW || (double)hd_type_count(parts->type) != ranks || !mean.known || mean.constant != 0)
        hd_plan_wrong(c, store, store->span, "stores %s as the loss of the step, which is no sum of the losses of the %g ranks",
                      hd_plan_value(c, store->in[0]), ranks);
    else if (differ(mean.factor * ranks, 1))
        hd_plan_wrong(c, store, store->span, "stores %g times the sum of the losses of %g ranks, which is not their mean", mean.factor,
                      ranks);
}

void hd_check_scale(PlanCheck *c, const Func *f, bool last) {
    double ranks = (double)(c->shard * c->replicate);
    const Op *loss = NULL, *kept = NULL, *mean = NULL;
    int losses = 0;
    for (const Op *o = f->first; o; o = o->next) {
        if (o->kind == OP_CROSS_ENTROPY_GRAD) loss = o, losses++;
        if (o->kind != OP_STORE || strcmp(hd_word(&o->attrs, A_INTO, ""), "state.loss") != 0) continue;
        if (kept && last && ranks > 1) mean = o;
        else kept = o;
    }
    if (kept && last && ranks > 1) {
        if (mean) check_mean(c, mean);
        else hd_plan_wrong(c, kept, kept->span, "keeps the loss of one rank: no op behind it stores the mean over %g ranks", ranks);
    }
    if (losses != 1 || !kept) return; // several losses: their weights are the model's business
    Affine seed = trace(c, loss->in[2], NULL, 0), share = trace(c, kept->in[0], loss->out[0], 0);
    if (!seed.known || !share.known || seed.factor != 0 || share.factor == 0 || !differ(seed.constant * ranks, share.factor)) return;
    if (ranks == 1) hd_plan_wrong(c, loss, loss->span, "takes gradients of %g times the loss, but %s stores %g times the loss",
                                  seed.constant, hd_plan_op(c, kept), share.factor);
    else hd_plan_wrong(c, loss, loss->span,
                       "takes gradients of %g times the loss, but %s stores %g times the loss, of which the mean over %g ranks is kept",
                       seed.constant, hd_plan_op(c, kept), share.factor, ranks);
}
