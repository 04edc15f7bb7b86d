// Modules, symbols, functions and the op list.
#include "ir/ir.h"
#include <ctype.h>

enum { RECENT = 256 };

static unsigned slot_of(int slots, const char *name) {
    unsigned h = 2166136261u;
    for (; *name; name++) h = (h ^ (unsigned char)*name) * 16777619u;
    return h & (unsigned)(slots - 1);
}

static void chain_symbol(Module *m, Symbol *s) {
    Symbol **slot = &m->table[slot_of(m->n_slots, s->name)];
    s->chain = *slot;
    *slot = s;
}

static void size_table(Module *m, int slots) {
    m->n_slots = slots;
    m->table = HD_NEWN(m->cx->arena, Symbol *, slots);
    for (Symbol *s = m->symbols; s; s = s->next) chain_symbol(m, s);
}

static void chain_func(Module *m, Func *f) {
    Func **slot = &m->func_table[slot_of(m->n_func_slots, f->name)];
    f->chain = *slot;
    *slot = f;
}

static void unchain_func(Module *m, Func *f) {
    Func **slot = &m->func_table[slot_of(m->n_func_slots, f->name)];
    while (*slot != f) slot = &(*slot)->chain;
    *slot = f->chain;
}

static void size_func_table(Module *m, int slots) {
    m->n_func_slots = slots;
    m->func_table = HD_NEWN(m->cx->arena, Func *, slots);
    for (Func *f = m->funcs; f; f = f->next) chain_func(m, f);
}

Module *hd_module_new(Ctx *cx, Stage stage) {
    Module *m = HD_NEW(cx->arena, Module);
    m->cx = cx;
    m->stage = stage;
    m->recent = HD_NEWN(cx->arena, Symbol *, RECENT);
    size_table(m, 64);
    size_func_table(m, 64);
    return m;
}

// Most names come from symbols. Symbols live as long as their module and keep their names, so an equal address is an
// equal name.
Symbol *hd_symbol_find(const Module *m, const char *name) {
    Symbol **recent = &m->recent[((uintptr_t)name >> 3) % RECENT];
    if (*recent && (*recent)->name == name) return *recent;
    for (Symbol *s = m->table[slot_of(m->n_slots, name)]; s; s = s->chain)
        if (s->name == name || !strcmp(s->name, name)) return *recent = s;
    return NULL;
}

Symbol *hd_named(const Op *o, AttrId a) { return hd_symbol_find(o->func->module, hd_word(&o->attrs, a, "")); }

const Symbol *hd_state(const Module *m, const Attrs *as, int i) {
    const Attr *states = hd_attr(as, A_STATES);
    return states && i < states->n ? hd_symbol_find(m, states->strs[i]) : NULL;
}

const Symbol *hd_op_param(const Op *o, int i) {
    const Attr *also = hd_attr(&o->attrs, A_ALSO);
    if (!i) return hd_named(o, A_PARAM);
    return also && i <= also->n ? hd_symbol_find(o->func->module, also->strs[i - 1]) : NULL;
}

const Symbol *hd_param_read(const Op *o, int i) { return o && o->kind == OP_PARAM ? hd_op_param(o, i) : NULL; }
const Symbol *hd_param_added(const Op *o, int i) { return o && o->kind == OP_GRAD ? hd_op_param(o, i) : NULL; }

Symbol *hd_symbol_add(Module *m, SymbolKind kind, const char *name, const Type *type) {
    if (hd_symbol_find(m, name) || hd_func_find(m, name)) return NULL;
    Symbol *s = HD_NEW(m->cx->arena, Symbol);
    s->kind = kind;
    s->name = hd_intern(m->cx, name);
    s->type = type;
    s->id = m->n_symbols++;
    if (m->last_symbol) m->last_symbol->next = s;
    else m->symbols = s;
    m->last_symbol = s;
    if (m->n_symbols > m->n_slots) size_table(m, 2 * m->n_slots);
    else chain_symbol(m, s);
    return s;
}

const Attr *hd_tensors(const Module *m, const Symbol *buffer) {
    const Symbol *k = hd_symbol_find(m, hd_word(&buffer->attrs, A_BUCKET, ""));
    return k ? hd_attr(&k->attrs, A_TENSORS) : NULL;
}

int64_t hd_elements_each(const Symbol *buffer) {
    return buffer->type->dtype == TY_F32 ? hd_int(&buffer->attrs, A_QUANTIZED, 1) : 1;
}

Symbol *hd_space_arena(const Module *m, Space s) {
    Symbol *a = m->symbols;
    while (a && (a->kind != SYM_ARENA || hd_space(&a->attrs) != s)) a = a->next;
    return a;
}

Symbol *hd_config(Module *m, const char *name) {
    Symbol *s = hd_symbol_find(m, name);
    if (!s) s = hd_symbol_add(m, SYM_CONFIG, name, NULL);
    if (!s || s->kind != SYM_CONFIG) HD_BUG("@%s is not a config", name);
    return s;
}

Func *hd_func_find(const Module *m, const char *name) {
    for (Func *f = m->func_table[slot_of(m->n_func_slots, name)]; f; f = f->chain)
        if (f->name == name || !strcmp(f->name, name)) return f;
    return NULL;
}

Func *hd_launched(const Op *o) {
    return hd_op_is(o, TRAIT_LAUNCH) ? hd_func_find(o->func->module, hd_word(&o->attrs, A_KERNEL, "")) : NULL;
}

const char *hd_kernel_text(Arena *a, const Func *k) {
    const char *name[2] = {NULL, NULL};
    int n = 0;
    const bool map = hd_kind(&k->attrs) == KIND_MAP; // parts of rows are no work of a kernel over rows
    for (const Op *o = k->first; o; o = o->next)
        if (!hd_op_is(o, TRAIT_ELEMENTWISE | TRAIT_CARRIES) && (map || !hd_op_is(o, TRAIT_MOVES)) &&
            !hd_op_is(o, TRAIT_RETURN | TRAIT_CONSTANT) && n < 2)
            name[n++] = hd_op_info(o->kind)->mnemonic;
    for (const Op *o = k->last; o && n < 2; o = o->prev)
        if (hd_op_is(o, TRAIT_ELEMENTWISE) && (!n || strcmp(name[0], hd_op_info(o->kind)->mnemonic) != 0))
            name[n++] = hd_op_info(o->kind)->mnemonic;
    if (!n) name[n++] = "copy";
    if (n == 2 && !strcmp(name[0], name[1])) n = 1;
    char *text = hd_sprintf(a, n == 2 ? "%s_%s_%s" : "%s_%s", k->name, name[0], name[1]);
    for (char *s = text; *s; s++)
        if (!isalnum((unsigned char)*s)) *s = '_';
    return text;
}

bool hd_func_of_kind(const Module *m, KindId k, Func **f) {
    *f = NULL;
    for (Func *g = m->funcs; g; g = g->next) {
        if (hd_kind(&g->attrs) != k) continue;
        if (*f)
            hd_error(m->cx, g->span, "@%s and @%s are both of kind %s, and only one function can be", (*f)->name,
                     g->name, hd_word(&g->attrs, A_KIND, ""));
        if (*f) return false;
        *f = g;
    }
    return true;
}

const Symbol *hd_step(const Module *m, KindId k) {
    for (const Symbol *s = m->symbols; s; s = s->next)
        if (s->kind == SYM_STEP && hd_kind(&s->attrs) == k) return s;
    return NULL;
}

Func *hd_segment(const Module *m, const Symbol *step, int i, int64_t *times) {
    const Attr *segments = step ? hd_attr(&step->attrs, A_SEGMENTS) : NULL;
    if (!segments || i >= segments->n) return NULL;
    if (times) *times = hd_attr(&step->attrs, A_TIMES)->ints[i];
    return hd_func_find(m, segments->strs[i]);
}

int hd_n_results(const Attrs *as) {
    const Attr *names = hd_attr(as, A_NAMES);
    return names ? names->n : 0;
}

int hd_n_counts(const Attrs *as) {
    const Attr *counted = hd_attr(as, A_COUNTED);
    return counted ? HD_COUNTS * counted->n : 0;
}

int hd_n_numbers(const Attrs *as) { return 1 + hd_n_results(as) + (hd_n_counts(as) > 0); }

bool hd_same_results(const Attrs *a, const Attrs *b) {
    const Attr *x = hd_attr(a, A_NAMES), *y = hd_attr(b, A_NAMES);
    bool same = hd_n_results(a) == hd_n_results(b);
    for (int i = 0; same && x && i < x->n; i++) same = !strcmp(x->strs[i], y->strs[i]);
    return same;
}

int64_t hd_runs(const Symbol *step, const Func *f) {
    int64_t runs = 0, times;
    const Func *g;
    for (int i = 0; (g = hd_segment(f->module, step, i, &times)); i++) runs += g == f ? times : 0;
    return runs;
}

const char *hd_free_name(const Module *m, const char *name) {
    const char *free = name;
    for (int i = 2; hd_symbol_find(m, free) || hd_func_find(m, free); i++) free = hd_internf(m->cx, "%s.%d", name, i);
    return free;
}

Func *hd_func_add(Module *m, const char *name, bool is_kernel) {
    if (hd_func_find(m, name) || hd_symbol_find(m, name)) return NULL;
    Func *f = HD_NEW(m->cx->arena, Func);
    f->name = hd_intern(m->cx, name);
    f->is_kernel = is_kernel;
    f->module = m;
    if (m->last_func) m->last_func->next = f;
    else m->funcs = f;
    m->last_func = f;
    if (++m->n_funcs > m->n_func_slots) size_func_table(m, 2 * m->n_func_slots);
    else chain_func(m, f);
    return f;
}

void hd_func_remove(Module *m, Func *f) {
    Func *prev = NULL;
    for (Func *p = m->funcs; p && p != f; p = p->next) prev = p;
    if (prev) prev->next = f->next;
    else m->funcs = f->next;
    if (m->last_func == f) m->last_func = prev;
    unchain_func(m, f);
    m->n_funcs--;
}

void hd_func_rename(Func *f, const char *name) {
    unchain_func(f->module, f);
    f->name = hd_intern(f->module->cx, name);
    chain_func(f->module, f);
}

static Value *new_value(Func *f, const Type *t, Op *def, int index) {
    Value *v = HD_NEW(f->module->cx->arena, Value);
    v->type = t;
    v->def = def;
    v->func = f;
    v->index = index;
    v->id = f->n_values++;
    return v;
}

Value *hd_arg_add(Func *f, const Type *t, const char *name) {
    const int n = f->n_args;
    if (!(n & (n - 1))) { // there is room up to the next power of two
        Value **args = HD_NEWN(f->module->cx->arena, Value *, n ? 2 * n : 1);
        if (n) memcpy(args, f->args, sizeof *args * (size_t)n);
        f->args = args;
    }
    Value *v = f->args[f->n_args++] = new_value(f, t, NULL, n);
    v->name = hd_intern(f->module->cx, name);
    return v;
}

Op *hd_return(const Func *f) { return f->last && hd_op_is(f->last, TRAIT_RETURN) ? f->last : NULL; }

Op *hd_op_new(Func *f, OpKind k, int n_in, Value *const *in) {
    Arena *a = f->module->cx->arena;
    Op *o = HD_NEW(a, Op);
    o->kind = k;
    o->id = f->n_ops++;
    o->func = f;
    o->n_in = n_in;
    if (n_in) {
        o->in = HD_NEWN(a, Value *, n_in);
        memcpy(o->in, in, sizeof *in * (size_t)n_in);
    }
    return o;
}

void hd_set_results(Op *o, int n, const Type *const *types) {
    if (o->n_out < n) {
        Value **out = HD_NEWN(o->func->module->cx->arena, Value *, n);
        for (int i = 0; i < n; i++) out[i] = i < o->n_out ? o->out[i] : new_value(o->func, types[i], o, i);
        o->out = out;
    }
    o->n_out = n;
    for (int i = 0; i < n; i++) o->out[i]->type = types[i];
}

void hd_set_into(Value *result, const Symbol *buffer, int64_t at) {
    result->into = buffer;
    result->at = at;
    result->place = buffer->place;
    const uint64_t bytes = buffer->type ? (uint64_t)at * (uint64_t)hd_dtype_bytes(buffer->type->dtype) : 0;
    result->place.offset = (int64_t)((uint64_t)buffer->place.offset + bytes); // of a text that is not verified yet
}

void hd_insert_before(Op *at, Op *o) {
    o->next = at;
    o->prev = at->prev;
    if (at->prev) at->prev->next = o;
    else at->func->first = o;
    at->prev = o;
}

void hd_insert_after(Op *at, Op *o) {
    o->prev = at;
    o->next = at->next;
    if (at->next) at->next->prev = o;
    else at->func->last = o;
    at->next = o;
}

void hd_append(Func *f, Op *o) {
    if (f->last) {
        hd_insert_after(f->last, o);
    } else {
        o->prev = o->next = NULL;
        f->first = f->last = o;
    }
}

void hd_detach(Op *o) {
    if (o->prev) o->prev->next = o->next;
    else o->func->first = o->next;
    if (o->next) o->next->prev = o->prev;
    else o->func->last = o->prev;
    o->prev = o->next = NULL;
}

void hd_erase(Op *o) { hd_detach(o); }

Op *hd_op_clone(Func *f, const Op *o, Value *const *in) {
    Op *c = hd_op_new(f, o->kind, o->n_in, in);
    const Type *types[HD_MAX_IN + HD_MAX_OUT];
    if (o->n_out > (int)(sizeof types / sizeof *types))
        HD_BUG("%s has %d results", hd_op_info(o->kind)->mnemonic, o->n_out);
    for (int i = 0; i < o->n_out; i++) types[i] = o->out[i]->type;
    hd_set_results(c, o->n_out, types);
    for (int i = 0; i < o->n_out; i++)
        if (c->out[i]->layout = o->out[i]->layout, o->out[i]->into)
            hd_set_into(c->out[i], o->out[i]->into, o->out[i]->at);
    c->attrs = hd_attrs_copy(f->module->cx, &o->attrs);
    c->stream = o->stream;
    c->loc = o->loc;
    c->span = o->span;
    return c;
}

Func *hd_func_clone(Module *m, const Func *f, const char *name) {
    Func *c = hd_func_add(m, name, f->is_kernel);
    if (!c) HD_BUG("the name @%s is taken", name);
    Arena *scratch = hd_arena_new();
    Value **map = HD_NEWN(scratch, Value *, f->n_values);
    c->attrs = hd_attrs_copy(m->cx, &f->attrs);
    c->span = f->span;
    for (int i = 0; i < f->n_args; i++) map[f->args[i]->id] = hd_arg_add(c, f->args[i]->type, f->args[i]->name);
    for (const Op *o = f->first; o; o = o->next) {
        Value **in = HD_NEWN(scratch, Value *, o->n_in);
        for (int i = 0; i < o->n_in; i++) in[i] = map[o->in[i]->id];
        Op *k = hd_op_clone(c, o, in);
        for (int i = 0; i < o->n_out; i++) map[o->out[i]->id] = k->out[i];
        hd_append(c, k);
    }
    hd_arena_free(scratch);
    return c;
}

static void clone_symbols(Module *c, const Module *m) {
    for (const Symbol *s = m->symbols; s; s = s->next) {
        Symbol *k = hd_symbol_add(c, s->kind, s->name, s->type);
        k->attrs = hd_attrs_copy(c->cx, &s->attrs);
        k->layout = s->layout;
        k->place = s->place;
        k->loc = s->loc;
        k->span = s->span;
    }
}

// The part that hd_func_clone leaves out, where symbols and values keep their places.
static void clone_places(Func *c, const Func *f) {
    for (int i = 0; i < f->n_args; i++) c->args[i]->place = f->args[i]->place;
    Op *k = c->first;
    for (const Op *o = f->first; o; o = o->next, k = k->next)
        for (int i = 0; i < o->n_out; i++) {
            k->out[i]->place = o->out[i]->place;
            if (o->out[i]->into) k->out[i]->into = hd_symbol_find(c->module, o->out[i]->into->name);
        }
}

Module *hd_module_clone(Ctx *cx, const Module *m) {
    Module *c = hd_module_new(cx, m->stage);
    clone_symbols(c, m);
    for (const Func *f = m->funcs; f; f = f->next) clone_places(hd_func_clone(c, f, f->name), f);
    return c;
}

void hd_replace_uses(Value *old, Value *now) {
    for (Op *o = old->def ? old->def->next : old->func->first; o; o = o->next)
        for (int i = 0; i < o->n_in; i++)
            if (o->in[i] == old) o->in[i] = now;
}

void hd_renumber(Func *f) {
    int v = 0, k = 0;
    for (int i = 0; i < f->n_args; i++) f->args[i]->id = v++;
    for (Op *o = f->first; o; o = o->next) {
        o->id = k++;
        for (int i = 0; i < o->n_out; i++) o->out[i]->id = v++;
    }
    f->n_values = v;
    f->n_ops = k;
}

Uses hd_uses(const Func *f, Arena *a) {
    Uses u = {HD_NEWN(a, int, f->n_values + 1), HD_NEWN(a, Op **, f->n_values + 1)};
    int total = 0;
    for (const Op *o = f->first; o; o = o->next)
        for (int i = 0; i < o->n_in; i++) u.count[o->in[i]->id]++, total++;
    Op **pool = HD_NEWN(a, Op *, total + 1);
    for (int i = 0; i < f->n_values; i++) {
        u.users[i] = pool;
        pool += u.count[i];
        u.count[i] = 0;
    }
    for (Op *o = f->first; o; o = o->next)
        for (int i = 0; i < o->n_in; i++) u.users[o->in[i]->id][u.count[o->in[i]->id]++] = o;
    return u;
}

Builder hd_builder_before(Op *o) {
    return (Builder){.f = o->func, .before = o, .loc = o->loc, .span = o->span, .bwd = hd_has(&o->attrs, A_BWD)};
}

Op *hd_build(Builder *b, OpKind k, int n_in, Value *const *in, const Attrs *attrs, const Type *declared) {
    Op *o = hd_op_new(b->f, k, n_in, in);
    Ctx *cx = b->f->module->cx;
    if (attrs) o->attrs = hd_attrs_copy(cx, attrs);
    if (b->bwd) hd_set_flag(cx, &o->attrs, A_BWD);
    o->loc = b->loc;
    o->span = b->span;
    const char *wrong = hd_infer(o, declared ? 1 : 0, &declared);
    if (wrong) HD_BUG("built a wrong %s: %s", hd_op_info(k)->mnemonic, wrong);
    if (b->before) hd_insert_before(b->before, o);
    else hd_append(b->f, o);
    return o;
}

Value *hd_build1(Builder *b, OpKind k, Value *a, Value *c, const Attrs *attrs, const Type *declared) {
    Value *in[2] = {a, c};
    return hd_build(b, k, a ? c ? 2 : 1 : 0, in, attrs, declared)->out[0];
}

Value *hd_build_number(Builder *b, DType d, double x) {
    Attrs as = {0};
    hd_set_float(b->f->module->cx, &as, A_VALUE, x);
    return hd_build1(b, OP_CONST, NULL, NULL, &as, hd_type(b->f->module->cx, d, 0, NULL));
}

Value *hd_build_cast(Builder *b, Value *v, DType d) {
    Ctx *cx = b->f->module->cx;
    Attrs as = {0};
    hd_set_word(cx, &as, A_OUT, hd_intern(cx, hd_dtype_text(d)));
    return v->type->dtype == d ? v : hd_build1(b, OP_CAST, v, NULL, &as, NULL);
}
