// One op more in a finished plan, which writes a buffer that outlives the function: zeros, another buffer's elements,
// what a kernel makes of them, a gather, or a copy of an op that writes the buffer elsewhere.
#ifndef TESTS_UNIT_PLAN_INSERTIONS_H
#define TESTS_UNIT_PLAN_INSERTIONS_H
#include "ir/mesh.h"
#include "passes/analysis/access.h"
#include "tests/unit/plan_events.h"

// INSERTION(id, text)
#define INSERTIONS                                                                                                     \
    INSERTION(ZERO, "zero of all elements")                                                                            \
    INSERTION(ZERO_LAST, "zero of the last element")                                                                   \
    INSERTION(COPY, "copy of another buffer")                                                                          \
    INSERTION(STORE, "store of another buffer's elements")                                                             \
    INSERTION(ADD, "another buffer's elements added")                                                                  \
    INSERTION(LAUNCH, "result of a kernel")                                                                            \
    INSERTION(GATHER, "gather of another buffer")                                                                      \
    INSERTION(AGAIN, "an op that writes it elsewhere")

typedef enum {
#define INSERTION(id, text) INSERT_##id,
    INSERTIONS
#undef INSERTION
    N_INSERTIONS
} Insertion;
static const char *const insertion_text[] = {
#define INSERTION(id, text) text,
    INSERTIONS
#undef INSERTION
};

typedef struct {
    Insertion what;
    const char *func, *into, *from; // `from`: a buffer whose elements are written, if the kind takes any
    int at;                         // the op of the function that it comes before
} Insert;

static bool takes_another(Insertion what) { return what >= INSERT_COPY && what <= INSERT_GATHER; }

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

// `o` before op `at`, on a stream; on another one than the function's own, both wait for each other.
static void place(Op *o, Op *at, const char *stream) {
    Func *f = o->func;
    const char *main = f->last->stream;
    const int64_t event = free_event(f);
    const bool beside = strcmp(stream, main) != 0;
    o->stream = stream;
    for (int i = 0; beside && i < 2; i++)
        hd_insert_before(at, event_op(f, i ? OP_WAIT : OP_RECORD, event, i ? stream : main));
    hd_insert_before(at, o);
    for (int i = 0; beside && i < 2; i++)
        hd_insert_before(at, event_op(f, i ? OP_WAIT : OP_RECORD, event + 1, i ? main : stream));
}

static Value *view_of(Op *at, const Symbol *b, int64_t n) {
    Module *m = at->func->module;
    Op *o = hd_op_new(at->func, OP_VIEW, 0, NULL);
    const Type *t = hd_type(m->cx, b->type->dtype, 1, &n);
    hd_set_word(m->cx, &o->attrs, A_BUFFER, b->name);
    hd_set_int(m->cx, &o->attrs, A_OFFSET, 0);
    if (hd_infer(o, 1, &t)) return NULL;
    o->out[0]->place = b->place;
    place(o, at, at->func->last->stream);
    return o->out[0];
}

static void write_to(Op *o, const Symbol *b, int64_t at) {
    hd_set_int(o->func->module->cx, &o->attrs, A_OFFSET, at);
    hd_set_word(o->func->module->cx, &o->attrs, A_INTO, b->name);
}

static bool insert_zero(Op *at, const Symbol *into, bool all) {
    const int64_t n = hd_type_count(into->type);
    Op *o = hd_op_new(at->func, OP_ZERO, 0, NULL);
    hd_set_int(at->func->module->cx, &o->attrs, A_SIZE, all ? n : 1);
    write_to(o, into, all ? 0 : n - 1);
    place(o, at, at->func->last->stream);
    return !hd_infer(o, 0, NULL);
}

static bool insert_move(Op *at, const Symbol *into, const Symbol *from, Insertion what) {
    Value *v = view_of(at, from, least(hd_type_count(into->type), hd_type_count(from->type)));
    if (!v) return false;
    Op *o = hd_op_new(at->func, what == INSERT_COPY ? OP_COPY : OP_STORE, 1, &v);
    write_to(o, into, 0);
    if (what == INSERT_ADD) hd_set_flag(at->func->module->cx, &o->attrs, A_ACCUMULATE);
    place(o, at, at->func->last->stream);
    return !hd_infer(o, 0, NULL);
}

static bool insert_launch(Op *at, const Symbol *into, const Symbol *from) {
    Module *m = at->func->module;
    const int64_t n = least(hd_type_count(into->type), hd_type_count(from->type));
    Value *v = hd_dtype_is_float(from->type->dtype) ? view_of(at, from, n) : NULL;
    Func *k = v ? hd_func_add(m, hd_free_name(m, "inserted"), true) : NULL;
    if (!k) return false;
    hd_set_kind(m->cx, &k->attrs, KIND_ROWS);
    hd_set_int(m->cx, &k->attrs, A_ROWS, 1);
    hd_set_int(m->cx, &k->attrs, A_COLS, n);
    Builder b = {.f = k};
    Value *y = hd_build1(&b, OP_NEG, hd_arg_add(k, v->type, hd_intern(m->cx, "x")), NULL, NULL, NULL);
    hd_build(&b, OP_RETURN, 1, &y, NULL, NULL);
    hd_renumber(k);
    Op *o = hd_op_new(at->func, OP_LAUNCH, 1, &v);
    hd_set_word(m->cx, &o->attrs, A_KERNEL, k->name);
    if (hd_infer(o, 1, &v->type)) return false;
    hd_set_into(o->out[0], into, 0);
    place(o, at, at->func->last->stream);
    return true;
}

static bool insert_gather(Op *at, const Symbol *into, const Symbol *from) {
    Module *m = at->func->module;
    const Mesh mesh = hd_mesh(m);
    for (const Symbol *s = m->symbols; s; s = s->next) {
        if (s->kind != SYM_COMM ||
            hd_type_count(from->type) * hd_mesh_ranks(&mesh, hd_axes(&s->attrs, A_OVER)) != hd_type_count(into->type))
            continue;
        Op *o = hd_op_new(at->func, OP_ALL_GATHER, 0, NULL);
        hd_set_word(m->cx, &o->attrs, A_BUFFER, from->name);
        hd_set_word(m->cx, &o->attrs, A_INTO, into->name);
        hd_set_word(m->cx, &o->attrs, A_COMM, s->name);
        place(o, at, hd_word(&s->attrs, A_ON, ""));
        return !hd_infer(o, 0, NULL);
    }
    return false;
}

static bool writes(const Op *o, const Symbol *b, Arena *a) {
    Accesses list = {0};
    hd_accesses(o, a, &list);
    for (int i = 0; i < list.n; i++)
        if (list.at[i].write && !list.at[i].order && list.at[i].at == AT_BUFFER && list.at[i].buffer == b) return true;
    return false;
}

// Only an op without operands can be anywhere.
static bool insert_again(Op *at, const Symbol *into) {
    Arena *a = hd_arena_new();
    Op *found = NULL;
    for (Func *f = at->func->module->funcs; f; f = f->next)
        for (Op *o = f->first; !f->is_kernel && o && !found; o = o->next)
            if (!o->n_in && o->kind != OP_ZERO && writes(o, into, a)) found = o;
    hd_arena_free(a);
    if (!found) return false;
    Op *o = hd_op_clone(at->func, found, NULL);
    for (int i = 0; i < o->n_out; i++) {
        o->out[i]->place = found->out[i]->place;
        if (found->out[i]->into) hd_set_into(o->out[i], found->out[i]->into, found->out[i]->at);
    }
    place(o, at, found->stream);
    return true;
}

static bool insert(Module *m, const Insert *x) {
    Func *f = hd_func_find(m, x->func);
    const Symbol *into = hd_symbol_find(m, x->into), *from = x->from ? hd_symbol_find(m, x->from) : NULL;
    Op *at = f->first;
    for (int i = 0; i < x->at; i++) at = at->next;
    bool done = false;
    switch (x->what) {
    case INSERT_ZERO: case INSERT_ZERO_LAST: done = insert_zero(at, into, x->what == INSERT_ZERO); break;
    case INSERT_COPY: case INSERT_STORE: case INSERT_ADD: done = insert_move(at, into, from, x->what); break;
    case INSERT_LAUNCH: done = insert_launch(at, into, from); break;
    case INSERT_GATHER: done = insert_gather(at, into, from); break;
    case INSERT_AGAIN: done = insert_again(at, into); break;
    default: break;
    }
    hd_renumber(f);
    return done;
}
#endif
