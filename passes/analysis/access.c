// The accesses of ops. See access.h.
#include "passes/analysis/access.h"
#include "ir/shapes.h"

static void touch_value(Arena *a, Accesses *list, bool write, int index, const Value *v) {
    Access x = {.at = AT_VALUE, .write = write, .index = index, .value = v};
    hd_push(a, list, x);
}

// `order`: follows the op that made the value, and reads nothing.
static void follow_value(Arena *a, Accesses *list, int index, const Value *v) {
    Access x = {.at = AT_VALUE, .write = true, .order = true, .index = index, .value = v};
    hd_push(a, list, x);
}

static void touch_buffer(Arena *a, Accesses *list, bool write, const Symbol *b, int64_t lo, int64_t hi) {
    if (!b || lo == hi) return;
    Access x = {.at = AT_BUFFER, .write = write, .buffer = b, .lo = lo, .hi = hi};
    hd_push(a, list, x);
}

// The buffer that an attribute names: all of it, or with `into` the elements that result 0 takes, which are read first
// when it is added to them.
static void touch_named(const Op *o, Arena *a, Accesses *list, unsigned uses, const char *name) {
    const Symbol *b = hd_symbol_find(o->func->module, name);
    if (!b || !b->type) return;
    int64_t lo = 0, hi = hd_type_bytes(b->type);
    if (uses & USE_RESULT) {
        const Type *t = hd_result_type(o, 0);
        lo = hd_int(&o->attrs, A_OFFSET, 0) * hd_dtype_bytes(b->type->dtype);
        hi = lo + (t ? hd_type_count(t) : 0) * hd_dtype_bytes(b->type->dtype);
        uses = hd_has(&o->attrs, A_ACCUMULATE) ? USE_READ | USE_WRITE : USE_WRITE;
    }
    if (uses & USE_READ) touch_buffer(a, list, false, b, lo, hi);
    if (uses & USE_WRITE) touch_buffer(a, list, true, b, lo, hi);
    if (!(uses & USE_ORDER)) return;
    int first = list->n;
    touch_buffer(a, list, true, b, lo, hi);
    if (list->n > first) list->at[first].order = true;
}

void hd_accesses(const Op *o, Arena *a, Accesses *list) {
    list->n = 0;
    if (hd_is_alias(o) || hd_op_is(o, TRAIT_SYNC)) return;
    for (int i = 0; i < o->n_in; i++) {
        if (hd_op_is(o, TRAIT_ORDERS)) follow_value(a, list, i, o->in[i]);
        else touch_value(a, list, false, i, o->in[i]);
    }
    for (int i = 0; i < o->attrs.n; i++) {
        unsigned uses = hd_operand_uses(o->attrs.at[i].id);
        const char *const *names;
        for (int k = 0, n = uses ? hd_names(&o->attrs.at[i], &names) : 0; k < n; k++)
            touch_named(o, a, list, uses, names[k]);
    }
    int64_t workspace = hd_int(&o->attrs, A_WORKSPACE_BYTES, 0);
    if (workspace > 0) {
        Access x = {.at = AT_WORKSPACE, .write = true, .hi = workspace};
        hd_push(a, list, x);
    }
    for (int i = 0; i < o->n_out; i++) {
        const Value *v = o->out[i];
        const int64_t lo = v->at * hd_dtype_bytes(v->type->dtype);
        if (v->into) touch_buffer(a, list, true, v->into, lo, lo + hd_type_bytes(v->type));
        else touch_value(a, list, true, i, v);
    }
}

bool hd_launch_may_overwrite(const Op *o, int k) {
    if (!hd_op_is(o, TRAIT_LAUNCH) || k < 0 || k >= o->n_in || o->n_out < 1) return false;
    const Func *f = hd_launched(o);
    if (!f || hd_kind(&f->attrs) != KIND_ROWS) return false;
    int64_t points = hd_int(&f->attrs, A_ROWS, 0) * hd_int(&f->attrs, A_COLS, 0);
    if (hd_type_count(o->in[k]->type) != points || hd_type_count(o->out[0]->type) != points) return false;
    if (hd_type_bytes(o->in[k]->type) != hd_type_bytes(o->out[0]->type)) return false;
    for (const Op *b = f->first; b; b = b->next) {
        bool pointwise = hd_op_is(b, TRAIT_SCALAR | TRAIT_ALIAS | TRAIT_RETURN | TRAIT_CONSTANT) || hd_in_parts(b);
        if (!pointwise) return false;
    }
    return true;
}

bool hd_store_may_be_in_place(const Op *store) {
    if (store->kind != OP_STORE || hd_has(&store->attrs, A_ACCUMULATE)) return false;
    const Symbol *b = hd_named(store, A_INTO);
    const Value *v = store->in[0];
    if (!b || !b->type || b->type->dtype != v->type->dtype) return false;
    if (v->def && (v->def->kind == OP_STORE || hd_space(&v->def->attrs) != hd_space(&b->attrs))) return false;
    if (v->def && hd_op_is(v->def, TRAIT_SQUARES)) return true; // which writes one number at a time
    // kernels and libraries may write 16 bytes at a time
    return hd_int(&store->attrs, A_OFFSET, 0) * hd_dtype_bytes(b->type->dtype) % 16 == 0;
}

bool hd_stays(const Module *m, const Symbol *b) {
    const Symbol *bucket = hd_symbol_find(m, hd_word(&b->attrs, A_BUCKET, ""));
    return hd_has(&b->attrs, A_TRANSIENT) && bucket && !strcmp(hd_word(&bucket->attrs, A_GRADIENT, ""), b->name);
}
