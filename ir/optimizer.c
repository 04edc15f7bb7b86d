// Kernels of kind optimizer.
#include "ir/optimizer.h"

const AttrId hd_group_rates[] = {A_LR_SCALE, A_WEIGHT_DECAY};

const char *hd_optimizer_argument(int i) {
    static const char *const names[OPT_STATE] = {"gradient", "weights", "lr", "decay", "correction1", "correction2"};
    return names[i];
}

bool hd_is_rule(const Func *k) { return k->n_args && !strcmp(k->args[OPT_GRADIENT]->name, "total"); }

Func *hd_optimizer(const Module *m) {
    Func *f = m->funcs;
    while (f && (!f->is_kernel || hd_kind(&f->attrs) != KIND_OPTIMIZER || hd_is_rule(f))) f = f->next;
    return f;
}

Func *hd_update_kernel(const Op *o) {
    return hd_func_find(o->func->module, hd_word(&o->attrs, A_KERNEL, ""));
}

static bool is_number(const Value *v) { return v->type->dtype == TY_F32 && v->type->rank == 0; }

const char *hd_optimizer_wrong(const Func *k) {
    const Op *ret = hd_return(k);
    const int states = k->n_args - OPT_STATE;
    if (states < 0 || states > HD_MAX_STATES) return "takes six numbers and at most four states";
    if (states && hd_is_rule(k)) return "that takes total has no states";
    for (int i = hd_is_rule(k); i < OPT_STATE; i++)
        if (strcmp(k->args[i]->name, hd_optimizer_argument(i)) != 0)
            return "takes gradient, weights, lr, decay, correction1, correction2, and then its states";
    if (!ret || ret->n_in != 1 + states) return "gives the weights and its states";
    for (const Op *o = k->first; o; o = o->next) {
        if (!hd_op_is(o, TRAIT_ELEMENTWISE) && o->kind != OP_CONST && o->kind != OP_RETURN)
            return "is made of pointwise ops and constants";
        for (int i = 0; i < o->n_out; i++)
            if (!is_number(o->out[i])) return "computes with single numbers of f32";
    }
    for (int i = 0; i < k->n_args; i++)
        if (!is_number(k->args[i])) return "computes with single numbers of f32";
    return NULL;
}
