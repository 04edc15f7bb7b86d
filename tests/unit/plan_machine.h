// A machine that runs finished plans on symbols instead of numbers: memory is cells of two bytes, each holding a hash, and an op writes
// hashes of what it is and of what it read. Two plans whose buffers and results end with equal hashes compute the same, whatever
// their ops mean; a byte read from the wrong place, too early or too late changes the hash. Streams run in any order that their events
// allow, so a race shows as a difference between two orders. Sums commute here: their order is not a plan's to prove.
#ifndef TESTS_UNIT_PLAN_MACHINE_H
#define TESTS_UNIT_PLAN_MACHINE_H
#include "ir/ir.h"

typedef struct { const Func *f; const Op *op; int instance; } Step; // op == NULL: the runtime fills the arguments
typedef struct {
    const Module *m;
    Arena *a;
    uint64_t *cell;
    int64_t n_cells;
    uint64_t garbage, result; // a counter; the hash of what is seen from outside
    uint64_t **key;           // by function in order, by op id: what the op is, places left out
    const Func **funcs;
    int n_funcs;
} Machine;

static uint64_t mix(uint64_t a, uint64_t b) {
    uint64_t z = (a ^ (b + 0x9e3779b97f4a7c15u + (a << 6) + (a >> 2))) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 29)) * 0x94d049bb133111ebu;
    return z ^ (z >> 32);
}

static uint64_t hash_text(const char *s) {
    uint64_t h = 14695981039346656037u;
    for (; *s; s++) h = (h ^ (unsigned char)*s) * 1099511628211u;
    return h;
}

static uint64_t fresh(Machine *x) { return mix(0x6a09e667f3bcc909u, ++x->garbage); }

static uint64_t *cells(Machine *x, int64_t at, int64_t bytes, int64_t *n) { // what lies outside the arena is nothing
    int64_t lo = at / 2, hi = (at + bytes + 1) / 2;
    *n = at >= 0 && lo <= hi && hi <= x->n_cells ? hi - lo : 0;
    return *n ? x->cell + lo : x->cell;
}

static uint64_t digest(Machine *x, int64_t at, int64_t bytes) {
    int64_t n;
    const uint64_t *c = cells(x, at, bytes, &n);
    uint64_t h = (uint64_t)n;
    for (int64_t i = 0; i < n; i++) h = mix(h, c[i]);
    return h;
}

static uint64_t digest_value(Machine *x, const Value *v) { return digest(x, v->place.offset, hd_type_bytes(v->type)); }

static void scribble(Machine *x, int64_t at, int64_t bytes) {
    int64_t n;
    uint64_t *c = cells(x, at, bytes, &n);
    for (int64_t i = 0; i < n; i++) c[i] = fresh(x);
}

static uint64_t key_of(const Op *o, Arena *a) {
    static const AttrId places[] = {A_INPLACE, A_WORKSPACE_AT, A_WORKSPACE_BYTES, A_OFFSET, A_INTO, A_ACCUMULATE, A_EVENT, A_BUFFER, A_BUFFERS, A_BUCKET};
    Attrs as = hd_attrs_copy(o->func->module->cx, &o->attrs);
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) hd_unset(&as, places[i]);
    Out t = hd_out(a);
    hd_print_attrs(&as, &t);
    return mix(hash_text(hd_op_info(o->kind)->mnemonic), hash_text(t.text));
}

static const Symbol *buffer_of(Machine *x, const Op *o, AttrId a) { return hd_symbol_find(x->m, hd_word(&o->attrs, a, "")); }

static void put(uint64_t *c, uint64_t v, bool add) { *c = add ? *c + v : v; }

// Writes `bytes` of an op's outcome into a buffer: copied from `from`, or made up of a key.
static void write_into(Machine *x, const Op *o, int64_t bytes, const Value *from, uint64_t key) {
    const Symbol *b = buffer_of(x, o, A_INTO);
    int64_t n, m, at = b->place.offset + hd_int(&o->attrs, A_OFFSET, 0) * hd_dtype_bytes(b->type->dtype);
    uint64_t *to = cells(x, at, bytes, &n), *in = from ? cells(x, from->place.offset, bytes, &m) : NULL;
    for (int64_t i = 0; i < n; i++) put(&to[i], in ? (m ? in[i] : fresh(x)) : mix(key, (uint64_t)i), hd_has(&o->attrs, A_ACCUMULATE));
}

static bool overlaps(const Value *v, const Value *w) {
    int64_t a = v->place.offset, b = w->place.offset;
    return a < b + hd_type_bytes(w->type) && b < a + hd_type_bytes(v->type);
}

static void run_update(Machine *x, const Op *o) {
    static const char *const roles[] = {"grad", "master", "moment1", "moment2", "compute"};
    uint64_t scalars = digest_value(x, o->in[0]), *c[5] = {NULL};
    int64_t n[5] = {0}, count = 0;
    for (const Symbol *s = x->m->symbols; s; s = s->next)
        for (int i = 0; s->kind == SYM_BUFFER && i < 5; i++)
            if (!strcmp(hd_word(&s->attrs, A_ROLE, ""), roles[i]) && !strcmp(hd_word(&s->attrs, A_BUCKET, ""), hd_word(&o->attrs, A_BUCKET, ""))) {
                c[i] = cells(x, s->place.offset, hd_type_bytes(s->type), &n[i]);
                count = hd_type_count(s->type);
            }
    for (int64_t i = 0; i < count; i++) {
        uint64_t h = scalars;
        for (int k = 0; k < 4; k++)
            for (int j = 0; j < 2; j++) h = mix(h, n[k] ? c[k][2 * i + j] : fresh(x));
        for (int k = 1; k < 4; k++)
            for (int j = 0; j < 2; j++)
                if (n[k]) c[k][2 * i + j] = mix(h, (uint64_t)(2 * k + j));
        if (n[4]) c[4][i] = mix(h, 99);
    }
}

static void run_op(Machine *x, const Op *o, uint64_t key) {
    int64_t workspace = hd_int(&o->attrs, A_WORKSPACE_BYTES, 0), at = hd_int(&o->attrs, A_WORKSPACE_AT, -1);
    if (hd_op_is(o, TRAIT_ALIAS | TRAIT_SOURCE | TRAIT_SYNC)) return;
    if (workspace > 0) scribble(x, at, workspace);
    for (int i = 0; i < o->n_in; i++) key = mix(key, digest_value(x, o->in[i]));
    if (o->kind == OP_RETURN) x->result = o->n_in ? mix(x->result, key) : x->result;
    if (o->kind == OP_STORE && !hd_has(&o->attrs, A_INPLACE)) write_into(x, o, hd_type_bytes(o->in[0]->type), o->in[0], 0);
    if (o->kind == OP_GEMM && hd_has(&o->attrs, A_INTO)) {
        const Type *a = o->in[0]->type, *b = o->in[1]->type;
        int64_t k = hd_int(&o->attrs, A_BATCHES, 1), rows = hd_has(&o->attrs, A_TA) ? hd_type_cols(a) : hd_type_rows(a) / k;
        int64_t cols = hd_has(&o->attrs, A_TB) ? hd_type_rows(b) / k : hd_type_cols(b);
        write_into(x, o, k * rows * cols * hd_dtype_bytes(buffer_of(x, o, A_INTO)->type->dtype), NULL, key);
    }
    const Attr *list = hd_attr(&o->attrs, A_BUFFERS);
    for (int i = 0; list && i < list->n; i++) {
        const Symbol *b = hd_symbol_find(x->m, list->strs[i]);
        key = mix(key, digest(x, b->place.offset, hd_type_bytes(b->type)));
    }
    if (o->kind == OP_STEP_SCALARS) {
        const Symbol *b = buffer_of(x, o, A_BUFFER);
        int64_t n;
        uint64_t *c = cells(x, b->place.offset, hd_type_bytes(b->type), &n);
        for (int64_t i = 0; i < n; i++) key = mix(key, c[i] = mix(c[i], 7));
    }
    if (o->kind == OP_ADAMW) run_update(x, o);
    for (int i = 0; i < o->n_out; i++) {
        const Value *v = o->out[i];
        bool torn = false; // written while it is read
        for (int k = 0; k < o->n_in; k++) torn |= overlaps(v, o->in[k]) && !(hd_int(&o->attrs, A_INPLACE, -1) >= 0 && v->place.offset == o->in[k]->place.offset);
        int64_t n;
        uint64_t *c = cells(x, v->place.offset, hd_type_bytes(v->type), &n);
        for (int64_t j = 0; j < n; j++) c[j] = torn ? fresh(x) : mix(mix(key, (uint64_t)i), (uint64_t)j);
    }
    if (workspace > 0) scribble(x, at, workspace);
}

static void run_step(Machine *x, const Step *s) {
    int f = 0;
    while (x->funcs[f] != s->f) f++;
    if (s->op) {
        run_op(x, s->op, x->key[f][s->op->id]);
        if (s->op->kind == OP_RETURN) // what the runtime reads after a function
            for (const Symbol *b = x->m->symbols; b; b = b->next)
                if (b->kind == SYM_BUFFER && !strcmp(hd_word(&b->attrs, A_ROLE, ""), "state")) x->result = mix(x->result, digest(x, b->place.offset, hd_type_bytes(b->type)));
        return;
    }
    for (int i = 0; i < s->f->n_args; i++) {
        const Value *v = s->f->args[i];
        int64_t n;
        uint64_t *c = cells(x, v->place.offset, hd_type_bytes(v->type), &n);
        for (int64_t j = 0; j < n; j++) c[j] = mix(mix(hash_text(v->name), (uint64_t)s->instance), (uint64_t)j);
    }
}

// --- orders

typedef struct { Step *at; int n, cap; } Steps;

static void add_function(Machine *x, Steps *steps, const char *name, int *instance) {
    for (int i = 0; i < x->n_funcs; i++) {
        if (strcmp(x->funcs[i]->name, name) != 0) continue;
        Step fill = {x->funcs[i], NULL, (*instance)++};
        hd_push(x->a, steps, fill);
        for (const Op *o = x->funcs[i]->first; o; o = o->next) {
            Step s = {x->funcs[i], o, fill.instance};
            hd_push(x->a, steps, s);
        }
    }
}

static const char *stream_of(const Step *s) { return s->op ? s->op->stream : s->f->last->stream; }

// Whether a wait may go on: its event was recorded, or no earlier op of the function records it at all.
static bool may_go(const Step *s, const Steps *steps, const bool *done) {
    if (!s->op || s->op->kind != OP_WAIT) return true;
    for (const Step *p = s; p >= steps->at && p->instance == s->instance; p--)
        if (p->op && p->op->kind == OP_RECORD && hd_int(&p->op->attrs, A_EVENT, -1) == hd_int(&s->op->attrs, A_EVENT, -1)) return done[p - steps->at];
    return true;
}

static uint64_t run_order(Machine *x, const Steps *steps, int order) {
    bool *done = HD_NEWN(x->a, bool, steps->n + 1);
    uint64_t random = (uint64_t)order;
    for (int ran = 0; ran < steps->n; ran++) {
        int pick = -1, heads = 0;
        for (int i = 0; i < steps->n; i++) { // the head of each stream
            if (done[i]) continue;
            bool head = true;
            for (int k = 0; k < i && head; k++) head = done[k] || strcmp(stream_of(&steps->at[k]), stream_of(&steps->at[i])) != 0;
            if (!head || !may_go(&steps->at[i], steps, done)) continue;
            heads++;
            if (order == 0) { pick = i; break; }
            random = mix(random, 3);
            if (order == 1 || random % (uint64_t)heads == 0) pick = i; // order 1: whoever is furthest ahead
        }
        if (pick < 0) return 0; // stuck
        done[pick] = true;
        run_step(x, &steps->at[pick]);
    }
    return x->result;
}

// What a plan computes in two steps and an evaluation, in one of the orders that its streams allow: 0 is program order.
static uint64_t run_plan(const Module *m, int order) {
    Machine x = {.m = m, .a = hd_arena_new()};
    const Symbol *arena = hd_symbol_find(m, "device");
    x.n_cells = hd_int(&arena->attrs, A_BYTES, 0) / 2;
    x.cell = HD_NEWN(x.a, uint64_t, x.n_cells + 1);
    for (const Func *f = m->funcs; f; f = f->next) x.n_funcs += !f->is_kernel;
    x.funcs = HD_NEWN(x.a, const Func *, x.n_funcs + 1);
    x.key = HD_NEWN(x.a, uint64_t *, x.n_funcs + 1);
    int n = 0, instance = 0;
    for (const Func *f = m->funcs; f; f = f->next) {
        if (f->is_kernel) continue;
        x.funcs[n] = f;
        x.key[n] = HD_NEWN(x.a, uint64_t, f->n_ops + 1);
        for (const Op *o = f->first; o; o = o->next) x.key[n][o->id] = key_of(o, x.a);
        n++;
    }
    scribble(&x, 0, 2 * x.n_cells);
    for (const Symbol *s = m->symbols; s; s = s->next) {
        if (s->kind != SYM_BUFFER) continue;
        int64_t count;
        uint64_t *c = cells(&x, s->place.offset, hd_type_bytes(s->type), &count);
        for (int64_t i = 0; i < count; i++) c[i] = mix(hash_text(s->name), (uint64_t)i);
    }
    Steps steps = {0};
    static const char *const names[] = {"micro_only", "micro_first", "micro", "micro_last", "update", "f", "eval"};
    for (int round = 0; round < 2; round++)
        for (size_t i = 0; i < sizeof names / sizeof *names; i++) add_function(&x, &steps, names[i], &instance);
    uint64_t h = run_order(&x, &steps, order);
    for (const Symbol *s = m->symbols; h && s; s = s->next)
        if (s->kind == SYM_BUFFER) h = mix(h, digest(&x, s->place.offset, hd_type_bytes(s->type)));
    hd_arena_free(x.a);
    return h;
}
#endif
