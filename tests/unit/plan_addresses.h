// Mutations of a plan: finding what one changes, other places for values, workspaces and buffers, other names.
#ifndef TESTS_UNIT_PLAN_ADDRESSES_H
#define TESTS_UNIT_PLAN_ADDRESSES_H
#include "ir/base/ints.h"
#include "passes/analysis/access.h"
#include "tests/unit/plan_into.h"

// The n-th op of the plan's functions.
static Op *nth_op(Module *m, int n) {
    for (Func *f = m->funcs; f; f = f->next) {
        if (f->is_kernel) continue;
        if (n >= f->n_ops) {
            n -= f->n_ops;
            continue;
        }
        for (Op *o = f->first; o; o = o->next)
            if (n-- == 0) return o;
    }
    return NULL;
}

static Symbol *nth_symbol(Module *m, SymbolKind k, int n) {
    for (Symbol *s = m->symbols; s; s = s->next)
        if (s->kind == k && n-- == 0) return s;
    return NULL;
}

// Moves the storage of a value: itself, its aliases, and the values in its place.
static bool move_storage(const Value *v, int64_t to) {
    Arena *a = hd_arena_new();
    Home *homes = hd_homes(v->func, a);
    bool own = homes[v->id].root == v;
    for (Op *o = v->func->first; own && o; o = o->next)
        for (int i = 0; i < o->n_out; i++)
            if (homes[o->out[i]->id].root == v) o->out[i]->place.offset = to;
    hd_arena_free(a);
    return own;
}

static const Op *other_op(const Op *o, uint64_t random) {
    const Op *other = o->func->first;
    for (uint64_t k = random % (uint64_t)o->func->n_ops; k && other->next; k--) other = other->next;
    return other;
}

static bool move_onto(const Value *v, const Op *other) {
    return other->n_out && other != v->def && other->out[0]->place.offset != v->place.offset &&
           move_storage(v, other->out[0]->place.offset);
}

static bool move_workspace(Op *o, uint64_t random) {
    int64_t at = hd_int(&o->attrs, A_WORKSPACE_AT, 0);
    const Op *other = other_op(o, random);
    hd_set_int(o->func->module->cx, &o->attrs, A_WORKSPACE_AT,
               other->n_out ? other->out[0]->place.offset
               : random % 2 ? at + 256
                            : at - 256);
    return true;
}

// Views of a buffer go where it goes.
static void move_buffer(Module *m, Symbol *s, int64_t to) {
    int64_t by = to - s->place.offset;
    s->place.offset = to;
    for (Func *f = m->funcs; f; f = f->next) {
        if (f->is_kernel) continue;
        Arena *a = hd_arena_new();
        Home *homes = hd_homes(f, a);
        for (Op *o = f->first; o; o = o->next)
            for (int i = 0; i < o->n_out; i++)
                if (homes[o->out[i]->id].buffer == s) o->out[i]->place.offset += by;
        hd_arena_free(a);
    }
}

static bool swap_buffers(Module *m, Symbol *s, uint64_t random) {
    int n = 0;
    for (const Symbol *t = m->symbols; t; t = t->next) n += t->kind == SYM_BUFFER;
    Symbol *t = nth_symbol(m, SYM_BUFFER, (int)(random % (uint64_t)n));
    int64_t a = s->place.offset, b = t->place.offset;
    if (s == t || a == b) return false;
    move_buffer(m, s, b);
    move_buffer(m, t, a);
    return true;
}

// --- names

static bool is_weights(Module *m, const Symbol *s) {
    const Symbol *k = hd_symbol_find(m, hd_word(&s->attrs, A_BUCKET, ""));
    return !k || !strcmp(hd_word(&s->attrs, A_CLASS, ""), "weights") ||
           s->name == hd_word(&k->attrs, A_MASTER_WEIGHTS, NULL);
}

static const char *other_name(Module *m, const Symbol *s, uint64_t random, bool any_type, bool view) {
    const char *names[64];
    int n = 0;
    for (const Symbol *t = m->symbols; s && t && n < 64; t = t->next) {
        if (t == s || t->kind != s->kind || (!any_type && t->type != s->type)) continue;
        if (view && is_weights(m, s) && is_weights(m, t))
            continue; // equal layers with each other's weights: another model, not another plan
        names[n++] = t->name;
    }
    return n ? names[random % (uint64_t)n] : NULL;
}

static bool rename_attr(Module *m, Op *o, AttrId at, uint64_t random) {
    const Symbol *s = hd_has(&o->attrs, at) ? hd_symbol_find(m, hd_word(&o->attrs, at, "")) : NULL;
    const char *name = s && s->kind != SYM_BUCKET ? other_name(m, s, random, at == A_COMM, o->kind == OP_VIEW) : NULL;
    if (!name) return false;
    hd_set_word(m->cx, &o->attrs, at, name);
    if (o->kind == OP_VIEW) { // the same place in the other buffer
        const Symbol *b = hd_symbol_find(m, name);
        o->out[0]->place.offset += b->place.offset - s->place.offset;
    }
    return true;
}

// --- results in buffers

static bool has_names(const Op *o) { // of results that other ops may read
    for (int i = 0; i < o->n_out; i++)
        if (!o->out[i]->into) return true;
    return false;
}

static bool into_buffer(Module *m, Value *v, uint64_t random) {
    const char *name = other_name(m, v->into, random / 2, random % 2, false);
    const Symbol *b = name ? hd_symbol_find(m, name) : NULL;
    if (b) hd_set_into(v, b, random / 4 % 2 ? 0 : v->at);
    return b != NULL;
}

// Bytes of its own, at the end of the arena.
static bool out_of_buffer(Module *m, Value *v) {
    Symbol *arena = hd_space_arena(m, SPACE_DEVICE);
    const int64_t guard = hd_int(&arena->attrs, A_GUARD, 0), end = hd_align(hd_int(&arena->attrs, A_BYTES, 0));
    v->into = NULL;
    v->place = (Place){true, SPACE_DEVICE, end + guard};
    hd_set_int(m->cx, &arena->attrs, A_BYTES, end + hd_align(hd_type_bytes(v->type)) + 2 * guard);
    return true;
}

static bool into_offset(Value *v, uint64_t random) {
    const int64_t n = random % 2 ? hd_type_count(v->type) : 4;
    hd_set_into(v, v->into, random / 2 % 2 && v->at >= n ? v->at - n : v->at + n);
    return true;
}

static bool change_axes(Module *m, Symbol *s, AttrId list, uint64_t random) {
    const Axes axes = (hd_axes(&s->attrs, list) + 1 + (unsigned)random % HD_ALL_AXES) % (HD_ALL_AXES + 1);
    hd_unset(&s->attrs, list);
    if (axes) hd_set_axes(m->cx, &s->attrs, list, axes);
    return true;
}
#endif
