// See writes.h.
#include "ir/writes.h"

bool hd_next_write(const Op *o, int *i, Write *w) {
    const Symbol *b = *i == 0 ? hd_named(o, A_INTO) : NULL;
    if (!b || !b->type) return false;
    ++*i;
    const Value *value = o->kind == OP_STORE ? o->in[0] : NULL;
    *w = (Write){.op = o, .value = value, .type = value ? value->type : hd_result_type(o, 0), .buffer = b,
                 .at = hd_int(&o->attrs, A_OFFSET, 0), .adds = hd_has(&o->attrs, A_ACCUMULATE)};
    return true;
}
