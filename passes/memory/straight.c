// Stores that move nothing. The op that makes the operand of a store writes it straight into the buffer, where its
// bytes are free from then on; the store goes. See lifetimes.h.
//   %1 = gemm %x, %w : f32[8,64]                          ->  gemm %x, %w {offset = 0, into = @root.grad}
//   store %1 {into = @root.grad, offset = 0}
#include "passes/analysis/lifetimes.h"
#include "ir/base/search.h"

// Accesses of buffers, views resolved: the other reads and writes of the bytes that a storage is to get early. By
// symbol id, in order.
typedef struct { int op; int64_t lo, hi; } BufferTouch;
typedef VEC(BufferTouch) BufferTouches;

static BufferTouches *find_buffer_touches(const Lifetimes *l, Arena *a) {
    BufferTouches *all = HD_NEWN(a, BufferTouches, l->f->module->n_symbols + 1);
    Accesses list = {0};
    for (int k = 0; k < l->f->n_ops; k++) {
        const Op *o = l->ops[k];
        hd_accesses(o, a, &list);
        for (int i = 0; i < list.n; i++) {
            const Access *x = &list.at[i];
            const Home h =
                x->at == AT_VALUE ? l->homes[x->value->id] : (Home){.buffer = x->buffer, .at = x->lo};
            if (!h.buffer || x->order) continue;
            BufferTouch t = {k, h.at, x->at == AT_VALUE ? h.at + hd_type_bytes(x->value->type) : x->hi};
            hd_push(a, &all[h.buffer->id], t);
        }
    }
    return all;
}

// Whether every other access of the bytes ends before `def` starts, or starts after `store` has ended.
static bool bytes_free(const Lifetimes *l, const BufferTouches *all, int64_t lo, int64_t hi, int def, int store) {
    bool one_stream = l->clocks.n_streams == 1;
    int i = 0;
    if (one_stream) HD_FIRST(i, 0, all->n, all->at[i].op >= def); // earlier accesses are harmless: `def` follows them
    for (; i < all->n; i++) {
        const BufferTouch *t = &all->at[i];
        if (one_stream && t->op > store) break;
        if (t->op == store || t->hi <= lo || t->lo >= hi) continue;
        if (!hd_before(&l->clocks, t->op, def) && !hd_before(&l->clocks, store, t->op)) return false;
    }
    return true;
}

// Whether a buffer's life has begun when `def` starts: always, but for a transient one.
static bool has_begun(const Lifetimes *l, const Symbol *b, int def) {
    const Storage *s = hd_storage_of_buffer(l, b);
    return !s || hd_before(&l->clocks, s->from, def);
}

// The k-th operand is the only way to the storage, and covers all of it.
static bool owns(const Lifetimes *l, const Storage *s, const Value *v, int user) {
    if (!s || s->buffer || s->bytes == 0 || s->bytes != hd_type_bytes(v->type)) return false;
    const int def = l->time[l->homes[v->id].root->def->id];
    for (const Touch *t = s->touches; t; t = t->next)
        if (t->op != user && t->op != def) return false;
    return true;
}

// No op knows the value but through the store: the names of the value and of its aliases are to go.
static bool only_stored(const Uses *uses, const Value *v) {
    while (v && uses->count[v->id] == 1) {
        if (!v->def || !hd_op_is(v->def, TRAIT_ALIAS)) return true;
        v = v->def->in[0];
    }
    return false;
}

static void store_in_place(Lifetimes *l, const BufferTouches *all, const Uses *uses, Op *o) {
    if (!hd_store_may_be_in_place(o)) return;
    Storage *s = hd_storage_of(l, o->in[0]);
    if (!owns(l, s, o->in[0], l->time[o->id]) || !only_stored(uses, o->in[0])) return;
    const Op *def = l->homes[o->in[0]->id].root->def;
    if (hd_attr_allowed(hd_op_info(def->kind)->attrs, A_INTO)) return; // it says so among its attributes, by select
    const Symbol *b = hd_named(o, A_INTO);
    if (hd_space(&b->attrs) != s->space) return;
    int64_t lo = hd_int(&o->attrs, A_OFFSET, 0) * hd_dtype_bytes(b->type->dtype), hi = lo + s->bytes;
    if (l->busy && l->busy[b->id]) return;
    const int made = l->time[def->id], stored = l->time[o->id];
    if (hi > hd_type_bytes(b->type) || !has_begun(l, b, made) || !bytes_free(l, &all[b->id], lo, hi, made, stored))
        return;
    s->buffer = b;
    s->at = lo;
    s->store = o;
    l->stored++;
}

void hd_place_stores(Lifetimes *l, Arena *a) {
    const BufferTouches *all = find_buffer_touches(l, a);
    const Uses uses = hd_uses(l->f, a);
    for (Op *o = l->f->first; o; o = o->next)
        if (o->kind == OP_STORE) store_in_place(l, all, &uses, o);
}

void hd_write_straight(Lifetimes *l) {
    for (Op *o = l->f->first; o; o = o->next)
        for (int i = 0; i < o->n_out; i++) {
            Value *v = o->out[i];
            Op *store = l->homes[v->id].root == v ? l->storage[v->id].store : NULL;
            if (!store) continue;
            const Symbol *b = hd_named(store, A_INTO);
            const int64_t at = hd_int(&store->attrs, A_OFFSET, 0);
            for (Op *gone = store; gone != o; gone = store) { // the aliases, too
                store = gone->in[0]->def;
                hd_erase(gone);
            }
            hd_set_into(v, b, at);
        }
}

const bool *hd_busy_buffers(const Func *f, const Seams *seams, Arena *a) {
    bool *busy = NULL;
    Accesses list = {0};
    for (int i = 0; i < seams->n; i++) {
        if (seams->at[i].after != f) continue;
        const Joined j = hd_join(&seams->at[i], a);
        const Home *homes = hd_homes(j.f, a);
        if (!busy) busy = HD_NEWN(a, bool, f->module->n_symbols + 1);
        for (const Op *o = j.f->first; o->id < j.tail; o = o->next) {
            hd_accesses(o, a, &list);
            for (int k = 0; k < list.n; k++) {
                const Access *x = &list.at[k];
                busy[(x->at == AT_VALUE ? homes[x->value->id].buffer : x->buffer)->id] = true;
            }
        }
    }
    return busy;
}

const bool *hd_placed_stores(const Func *f, const Seams *seams, Arena *a) {
    Lifetimes l = hd_lifetimes(f, 0, a);
    l.busy = hd_busy_buffers(f, seams, a);
    hd_place_stores(&l, a);
    bool *placed = HD_NEWN(a, bool, f->n_ops + 1);
    for (int i = 0; i < l.n_storages; i++)
        if (l.storage[i].store) placed[l.storage[i].store->id] = true;
    return placed;
}
