// See homes.h.
#include "ir/homes.h"

int hd_inplace_result(const Op *o) {
    if (!hd_has(&o->attrs, A_INPLACE)) return -1;
    return hd_op_is(o, TRAIT_LOSS) ? 1 : hd_op_is(o, TRAIT_LAUNCH) ? 0 : -1;
}

Home hd_home_of_view(const Op *o) {
    const Symbol *b = hd_named(o, A_BUFFER);
    if (!b || !b->type) return (Home){.root = o->out[0]};
    return (Home){.buffer = b, .at = hd_int(&o->attrs, A_OFFSET, 0) * hd_dtype_bytes(b->type->dtype)};
}

static Home home_of_result(const Op *o, int i, const Home *homes) {
    const Value *v = o->out[i];
    Home own = {.root = v};
    if (v->into) return (Home){.buffer = v->into, .at = v->at * hd_dtype_bytes(v->type->dtype)};
    if (hd_op_is(o, TRAIT_SOURCE)) return hd_home_of_view(o);
    if (hd_op_is(o, TRAIT_ALIAS)) return homes[o->in[0]->id];
    if (i != hd_inplace_result(o)) return own;
    int64_t k = hd_int(&o->attrs, A_INPLACE, 0);
    return k >= 0 && k < o->n_in ? homes[o->in[k]->id] : own;
}

Home *hd_homes(const Func *f, Arena *a) {
    Home *homes = HD_NEWN(a, Home, f->n_values + 1);
    for (int i = 0; i < f->n_args; i++) homes[f->args[i]->id] = (Home){.root = f->args[i]};
    for (const Op *o = f->first; o; o = o->next)
        for (int i = 0; i < o->n_out; i++) homes[o->out[i]->id] = home_of_result(o, i, homes);
    return homes;
}
