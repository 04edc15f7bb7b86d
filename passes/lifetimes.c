// Storages, sharing and lifetimes of a planned function. See lifetimes.h.
#include "passes/lifetimes.h"

static int leader(const Lifetimes *l, int id) {
    while (l->storage[id].leader != id) id = l->storage[id].leader;
    return id;
}

Storage *hd_storage_of(const Lifetimes *l, const Value *v) {
    const Value *root = l->homes[v->id].root;
    if (!root || !root->def) return NULL;
    return &l->storage[leader(l, root->id)];
}

static void touch(Lifetimes *l, Arena *a, const Value *v, int op) {
    Storage *s = hd_storage_of(l, v);
    if (!s || (s->touches && s->touches->op == op)) return;
    Touch *t = HD_NEW(a, Touch);
    *t = (Touch){op, s->touches};
    s->touches = t;
    if (op < s->from) s->from = op;
    if (op > s->to) s->to = op;
}

Lifetimes hd_lifetimes(const Func *f, Arena *a) {
    Lifetimes l = {.f = f, .homes = hd_homes(f, a), .clocks = hd_clocks(f, a), .ops = HD_NEWN(a, Op *, f->n_ops + 1)};
    l.storage = HD_NEWN(a, Storage, f->n_values + 1);
    for (int i = 0; i < f->n_values; i++) l.storage[i] = (Storage){.leader = i, .from = f->n_ops};
    for (Op *o = f->first; o; o = o->next) {
        l.ops[o->id] = o;
        for (int i = 0; i < o->n_out; i++)
            if (l.homes[o->out[i]->id].root == o->out[i]) l.storage[o->out[i]->id].bytes = hd_type_bytes(o->out[i]->type);
        if (hd_is_alias(o)) continue;
        for (int i = 0; i < o->n_in; i++) touch(&l, a, o->in[i], o->id);
        for (int i = 0; i < o->n_out; i++) touch(&l, a, o->out[i], o->id);
        Storage *s = o->kind == OP_STORE && hd_has(&o->attrs, A_INPLACE) ? hd_storage_of(&l, o->in[0]) : NULL;
        if (!s) continue;
        s->buffer = hd_symbol_find(f->module, hd_word(&o->attrs, A_INTO, ""));
        s->at = s->buffer && s->buffer->type ? hd_int(&o->attrs, A_OFFSET, 0) * hd_dtype_bytes(s->buffer->type->dtype) : 0;
    }
    return l;
}

// --- stores in place

// Accesses of buffers in program order, views resolved: what else reads or writes the bytes that a store is to own early.
typedef struct { int op; const Symbol *buffer; int64_t lo, hi; } BufferTouch;
typedef struct { BufferTouch *at; int n, cap; } BufferTouches;

static BufferTouches find_buffer_touches(const Lifetimes *l, Arena *a) {
    BufferTouches all = {0};
    Accesses list = {0};
    for (const Op *o = l->f->first; o; o = o->next) {
        hd_accesses(o, a, &list);
        for (int i = 0; i < list.n; i++) {
            const Access *x = &list.at[i];
            if (x->order) continue;
            BufferTouch t = {.op = o->id, .buffer = x->buffer, .lo = x->lo, .hi = x->hi};
            if (x->at == AT_VALUE) {
                Home h = l->homes[x->value->id];
                t = (BufferTouch){o->id, h.buffer, h.at, h.at + hd_type_bytes(x->value->type)};
            }
            if (t.buffer) hd_push(a, &all, t);
        }
    }
    return all;
}

// Whether every other access of the bytes ends before `def` starts, or starts after `store` has ended.
static bool bytes_free(const Lifetimes *l, const BufferTouches *all, const Symbol *b, int64_t lo, int64_t hi, int def, int store) {
    bool one_stream = l->clocks.n_streams == 1;
    int i = 0;
    if (one_stream) { // accesses before `def` are harmless: start behind them
        int end = all->n;
        while (i < end) {
            int mid = i + (end - i) / 2;
            if (all->at[mid].op < def) i = mid + 1;
            else end = mid;
        }
    }
    for (; i < all->n; i++) {
        const BufferTouch *t = &all->at[i];
        if (one_stream && t->op > store) break;
        if (t->op == store || t->buffer != b || t->hi <= lo || t->lo >= hi) continue;
        if (!hd_before(&l->clocks, t->op, def) && !hd_before(&l->clocks, store, t->op)) return false;
    }
    return true;
}

// The k-th operand is the only way to the storage, and all of it.
static bool owns(const Lifetimes *l, const Storage *s, const Value *v, int user) {
    if (!s || s->buffer || s->bytes == 0 || s->bytes != hd_type_bytes(v->type)) return false;
    const Op *def = l->homes[v->id].root->def;
    for (const Touch *t = s->touches; t; t = t->next)
        if (t->op != user && t->op != def->id) return false;
    return true;
}

static void store_in_place(Lifetimes *l, const BufferTouches *all, Op *o) {
    if (hd_has(&o->attrs, A_ACCUMULATE) || hd_has(&o->attrs, A_INPLACE)) return;
    Storage *s = hd_storage_of(l, o->in[0]);
    if (!owns(l, s, o->in[0], o->id)) return;
    const Op *def = l->homes[o->in[0]->id].root->def;
    const Symbol *b = hd_symbol_find(l->f->module, hd_word(&o->attrs, A_INTO, ""));
    if (!b || !b->type || b->type->dtype != o->in[0]->type->dtype || def->kind == OP_STORE) return;
    int64_t lo = hd_int(&o->attrs, A_OFFSET, 0) * hd_dtype_bytes(b->type->dtype), hi = lo + s->bytes;
    if (lo % 16 != 0) return; // kernels and libraries may write 16 bytes at a time
    if (hi > hd_type_bytes(b->type) || !bytes_free(l, all, b, lo, hi, def->id, o->id)) return;
    s->buffer = b;
    s->at = lo;
    hd_set_int(l->f->module->cx, &o->attrs, A_INPLACE, 0);
    l->stored++;
}

// --- launches in place

static bool dies_at(const Lifetimes *l, const Storage *s, const Op *o) {
    if (s->to != o->id) return false;
    for (const Touch *t = s->touches; t; t = t->next)
        if (t->op != o->id && !hd_before(&l->clocks, t->op, o->id)) return false;
    return true;
}

static bool may_overwrite(const Lifetimes *l, const Op *o, int k) {
    Storage *s = hd_storage_of(l, o->in[k]);
    if (!s || s->buffer || s->bytes != hd_type_bytes(o->in[k]->type) || !dies_at(l, s, o)) return false;
    for (int i = 0; i < o->n_in; i++) // the same storage as another operand could be read at another element
        if (i != k && hd_storage_of(l, o->in[i]) == s && !hd_launch_may_overwrite(o, i)) return false;
    return true;
}

static void launch_in_place(Lifetimes *l, Op *o) {
    if (o->kind != OP_LAUNCH || o->n_out < 1 || hd_has(&o->attrs, A_INPLACE)) return;
    Storage *mine = hd_storage_of(l, o->out[0]);
    if (!mine || mine->buffer || mine->bytes == 0 || mine->from != o->id) return;
    for (int k = 0; k < o->n_in; k++) {
        if (!hd_launch_may_overwrite(o, k) || !may_overwrite(l, o, k)) continue;
        Storage *old = hd_storage_of(l, o->in[k]);
        hd_set_int(l->f->module->cx, &o->attrs, A_INPLACE, k);
        mine->leader = leader(l, l->homes[o->in[k]->id].root->id);
        Touch *last = mine->touches;
        while (last->next) last = last->next;
        last->next = old->touches;
        old->touches = mine->touches;
        if (mine->to > old->to) old->to = mine->to;
        l->overwritten++;
        return;
    }
}

void hd_share_storage(Lifetimes *l, Arena *a) {
    BufferTouches all = find_buffer_touches(l, a);
    for (Op *o = l->f->first; o; o = o->next)
        if (o->kind == OP_STORE) store_in_place(l, &all, o);
    for (Op *o = l->f->first; o; o = o->next) launch_in_place(l, o);
}

// --- ends

int hd_storage_end(const Lifetimes *l, const Storage *s) {
    if (l->clocks.n_streams <= 1) return s->to + 1;
    for (int end = l->f->n_ops; end > s->to + 1; end--) { // how far back is everything that starts a storage ordered after s?
        const Op *o = l->ops[end - 1];
        bool starts = hd_int(&o->attrs, A_WORKSPACE_BYTES, 0) > 0 || (o->n_out > 0 && !hd_is_alias(o));
        if (!starts) continue;
        for (const Touch *t = s->touches; t; t = t->next)
            if (!hd_before(&l->clocks, t->op, o->id)) return end;
    }
    return s->to + 1;
}
