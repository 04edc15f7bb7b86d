// What ops touch, and where values live. See access.h.
#include "passes/analysis/access.h"
#include "ir/shapes.h"

static void touch_value(Arena *a, Accesses *list, bool write, int index, const Value *v) {
    Access x = {.at = AT_VALUE, .write = write, .index = index, .value = v};
    hd_push(a, list, x);
}

static void touch_buffer(Arena *a, Accesses *list, bool write, const Symbol *b, int64_t lo, int64_t hi) {
    if (!b || lo == hi) return;
    Access x = {.at = AT_BUFFER, .write = write, .buffer = b, .lo = lo, .hi = hi};
    hd_push(a, list, x);
}

static void touch_whole(Arena *a, Accesses *list, bool write, const Symbol *b) {
    if (b && b->type) touch_buffer(a, list, write, b, 0, hd_type_bytes(b->type));
}

// Elements of the buffer `into` from `offset` on are written; an op that accumulates reads them first.
static void touch_into(const Op *o, Arena *a, Accesses *list) {
    const Symbol *b = hd_symbol_find(o->func->module, hd_word(&o->attrs, A_INTO, ""));
    if (!b || !b->type) return;
    int64_t size = hd_dtype_bytes(b->type->dtype), lo = hd_int(&o->attrs, A_OFFSET, 0) * size,
            hi = lo + hd_into_count(o) * size;
    if (hd_has(&o->attrs, A_ACCUMULATE)) touch_buffer(a, list, false, b, lo, hi);
    touch_buffer(a, list, true, b, lo, hi);
}

static const Symbol *named(const Op *o, AttrId a) { return hd_symbol_find(o->func->module, hd_word(&o->attrs, a, "")); }

static void touch_adamw(const Op *o, Arena *a, Accesses *list) {
    static const struct { AttrId part; bool read, write; } parts[] = {{A_GRADIENT, true, false},
                                                                      {A_MOMENT1, true, true},
                                                                      {A_MOMENT2, true, true},
                                                                      {A_MASTER_WEIGHTS, true, true},
                                                                      {A_WEIGHTS, false, true}};
    for (int i = 0; i < 5; i++) {
        const Symbol *b = named(o, parts[i].part);
        if (parts[i].read) touch_whole(a, list, false, b);
        if (parts[i].write) touch_whole(a, list, true, b);
    }
}

void hd_accesses(const Op *o, Arena *a, Accesses *list) {
    const Module *m = o->func->module;
    list->n = 0;
    if (hd_is_alias(o) || hd_op_is(o, TRAIT_SYNC)) return;
    for (int i = 0; i < o->n_in; i++) touch_value(a, list, false, i, o->in[i]);
    if (o->kind == OP_ADAMW) touch_adamw(o, a, list);
    if (o->kind == OP_ALL_GATHER || o->kind == OP_REDUCE_SCATTER) {
        touch_whole(a, list, false, named(o, A_BUFFER));
        touch_whole(a, list, true, named(o, A_INTO));
    } else if (hd_has(&o->attrs, A_INTO))
        touch_into(o, a, list);
    if (o->kind == OP_BEGIN) touch_whole(a, list, true, named(o, A_BUFFER));
    const Attr *after = hd_attr(&o->attrs, A_AFTER);
    for (int i = 0; after && i < after->n; i++) {
        int first = list->n;
        touch_whole(a, list, true, hd_symbol_find(m, after->strs[i]));
        if (list->n > first) list->at[first].order = true;
    }
    if (o->kind == OP_GRAD_NORM || o->kind == OP_SQUARE_SUMS) {
        const Attr *names = hd_attr(&o->attrs, A_BUFFERS);
        for (int i = 0; names && i < names->n; i++) touch_whole(a, list, false, hd_symbol_find(m, names->strs[i]));
    }
    if (o->kind == OP_STEP_SCALARS) {
        const Symbol *counter = hd_symbol_find(m, hd_word(&o->attrs, A_BUFFER, ""));
        touch_whole(a, list, false, counter);
        touch_whole(a, list, true, counter);
    }
    int64_t workspace = hd_int(&o->attrs, A_WORKSPACE_BYTES, 0);
    if (workspace > 0) {
        Access x = {.at = AT_WORKSPACE, .write = true, .hi = workspace};
        hd_push(a, list, x);
    }
    for (int i = 0; i < o->n_out; i++) touch_value(a, list, true, i, o->out[i]);
}

int hd_inplace_result(const Op *o) {
    if (!hd_has(&o->attrs, A_INPLACE)) return -1;
    return o->kind == OP_CROSS_ENTROPY_GRAD ? 1 : o->kind == OP_LAUNCH ? 0 : -1;
}

bool hd_launch_may_overwrite(const Op *o, int k) {
    if (o->kind != OP_LAUNCH || k < 0 || k >= o->n_in || o->n_out < 1) return false;
    const Func *f = hd_func_find(o->func->module, hd_word(&o->attrs, A_KERNEL, ""));
    if (!f || hd_kind(&f->attrs) != KIND_ROWS) return false;
    int64_t points = hd_int(&f->attrs, A_ROWS, 0) * hd_int(&f->attrs, A_COLS, 0);
    if (hd_type_count(o->in[k]->type) != points || hd_type_count(o->out[0]->type) != points) return false;
    if (hd_type_bytes(o->in[k]->type) != hd_type_bytes(o->out[0]->type)) return false;
    for (const Op *b = f->first; b; b = b->next) {
        bool pointwise = hd_op_is(b, TRAIT_ELEMENTWISE) || b->kind == OP_CAST || b->kind == OP_CONST ||
                         b->kind == OP_RESHAPE || b->kind == OP_RETURN;
        if (!pointwise) return false;
    }
    return true;
}

static Home home_of_result(const Op *o, int i, const Home *homes) {
    Home own = {.root = o->out[i]};
    if (hd_op_is(o, TRAIT_SOURCE)) {
        const Symbol *b = hd_symbol_find(o->func->module, hd_word(&o->attrs, A_BUFFER, ""));
        if (!b || !b->type) return own;
        return (Home){.buffer = b, .at = hd_int(&o->attrs, A_OFFSET, 0) * hd_dtype_bytes(b->type->dtype)};
    }
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
