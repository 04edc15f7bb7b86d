// See writes.h.
#include "ir/writes.h"

static bool of_attributes(const Op *o, Write *w) {
    const Symbol *b = hd_named(o, A_INTO);
    if (!b || !b->type) return false;
    const Value *value = o->kind == OP_STORE ? o->in[0] : NULL;
    *w = (Write){.op = o, .value = value, .type = value ? value->type : hd_result_type(o, 0), .buffer = b,
                 .at = hd_int(&o->attrs, A_OFFSET, 0), .adds = hd_has(&o->attrs, A_ACCUMULATE)};
    return true;
}

bool hd_next_write(const Op *o, int *i, Write *w) {
    if (*i == 0) {
        *i = 1;
        if (of_attributes(o, w)) return true;
    }
    for (; *i <= o->n_out; ++*i) {
        const Value *v = o->out[*i - 1];
        if (!v->into) continue;
        *w = (Write){.op = o, .value = v, .type = v->type, .buffer = v->into, .at = v->at};
        ++*i;
        return true;
    }
    return false;
}
