// Changes to where ops write their results: results that say `into`, in launches and other ops.
#ifndef TESTS_UNIT_PLAN_INTO_H
#define TESTS_UNIT_PLAN_INTO_H
#include "ir/ir.h"

// One of the results that an op writes to buffers; NULL: there is none.
static Value *result_into(const Op *o, uint64_t random) {
    Value *found[HD_MAX_IN];
    int n = 0;
    for (int i = 0; i < o->n_out; i++)
        if (o->out[i]->into) found[n++] = o->out[i];
    return n ? found[random % (uint64_t)n] : NULL;
}

// Another result of the same type that goes somewhere else: of the same op or of a later one.
static Value *other_into(const Value *v) {
    for (const Op *o = v->def; o; o = o->next)
        for (int i = 0; i < o->n_out; i++) {
            Value *w = o->out[i];
            if (w->into && w->type == v->type && (w->into != v->into || w->at != v->at)) return w;
        }
    return NULL;
}

static bool exchange_into(Value *v) {
    Value *w = v ? other_into(v) : NULL;
    if (!w) return false;
    const Symbol *into = v->into;
    const int64_t at = v->at;
    hd_set_into(v, w->into, w->at);
    hd_set_into(w, into, at);
    return true;
}
#endif
