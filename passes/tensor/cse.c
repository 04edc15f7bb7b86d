// Common subexpressions: one walk in program order with a hash table of the pure ops so far; a later equal op is
// replaced by the earlier one.
//   %1 = mul %a, %b         %1 = mul %a, %b
//   %2 = mul %b, %a    ->   return %1, %1
//   return %1, %2
// Equal ops have the same kind, operands (in either order where the op commutes), attributes and result types, apart
// from `bwd`. A recomputed op equals only recomputed ones: sharing it with its original would undo the schedule's
// request. A buffer has a version that every write to it increases; an op that reads the buffer through a view equals
// only ops that read the same version.
#include "passes/pass.h"

typedef struct Entry { struct Entry *next; Op *op; uint64_t version; } Entry;

typedef struct {
    const Module *m;
    Arena *scratch;
    Entry **slots;
    uint32_t n_slots; // a power of two
    Value **now;      // by value id: its replacement, or NULL
    const Symbol **source; // by value id: the buffer whose bytes it shares, or NULL
    struct BufferVersion { const Symbol *buffer; uint64_t n; } *versions;
    int n_versions;
} Sharing;

static const Symbol *buffer_named(const Sharing *s, const Op *o, AttrId a) {
    const char *name = hd_word(&o->attrs, a, NULL);
    return name ? hd_symbol_find(s->m, name) : NULL;
}

static void write_buffer(Sharing *s, const Symbol *buffer) {
    for (int i = 0; i < s->n_versions; i++)
        if (s->versions[i].buffer == buffer) s->versions[i].n++;
}

static uint64_t version_of(const Sharing *s, const Symbol *buffer) {
    for (int i = 0; i < s->n_versions; i++)
        if (s->versions[i].buffer == buffer) return s->versions[i].n;
    return 0;
}

// Another version of every buffer that an op writes.
static void note_effect(Sharing *s, const Op *o) {
    for (int i = 0; i < o->attrs.n; i++) {
        const char *const *names;
        bool writes = hd_operand_uses(o->attrs.at[i].id) & (USE_WRITE | USE_RESULT);
        for (int k = writes ? hd_names(&o->attrs.at[i], &names) : 0; k-- > 0;)
            write_buffer(s, hd_symbol_find(s->m, names[k]));
    }
}

static void note_sources(Sharing *s, const Op *o) {
    if (hd_op_is(o, TRAIT_SOURCE)) s->source[o->out[0]->id] = buffer_named(s, o, A_BUFFER);
    else if (hd_op_is(o, TRAIT_ALIAS)) s->source[o->out[0]->id] = s->source[o->in[0]->id];
}

// Grows with every write to a buffer that the op reads: an equal sum means equal bytes.
static uint64_t version_read(const Sharing *s, const Op *o) {
    uint64_t sum = 0;
    for (int i = 0; i < o->n_in; i++)
        if (s->source[o->in[i]->id]) sum += version_of(s, s->source[o->in[i]->id]);
    return sum;
}

static uint64_t mix(uint64_t h, uint64_t x) { return (h ^ x) * 0x9e3779b97f4a7c15u ^ h >> 29; }

static uint64_t hash_attr(uint64_t h, const Attr *a) {
    h = mix(h, (uint64_t)a->id * 64 + (uint64_t)a->n);
    switch (hd_attr_info(a->id)->kind) {
    case AK_FLAG: return h;
    case AK_FLOAT: return mix(h, (uint64_t)(int64_t)(a->f * 4096 < 1e18 && a->f * 4096 > -1e18 ? a->f * 4096 : 0));
    case AK_INT: return mix(h, (uint64_t)a->i);
    case AK_INTS:
        for (int i = 0; i < a->n; i++) h = mix(h, (uint64_t)a->ints[i]);
        return h;
    case AK_WORD:
    case AK_STR:
    case AK_SYM:
        for (const char *c = a->s; *c; c++) h = mix(h, (unsigned char)*c);
        return h;
    default: return h; // lists of names and numbers are rare
    }
}

static uint64_t hash_op(const Op *o, uint64_t version) {
    uint64_t h = mix((uint64_t)o->kind, version);
    bool commutes = hd_op_is(o, TRAIT_COMMUTES) && o->n_in == 2;
    if (commutes) h = mix(h, (uint64_t)o->in[0]->id + (uint64_t)o->in[1]->id);
    else
        for (int i = 0; i < o->n_in; i++) h = mix(h, (uint64_t)o->in[i]->id);
    for (int i = 0; i < o->attrs.n; i++)
        if (o->attrs.at[i].id != A_BWD) h = hash_attr(h, &o->attrs.at[i]);
    for (int i = 0; i < o->n_out; i++) {
        const Type *t = o->out[i]->type;
        h = mix(h, (uint64_t)t->dtype);
        for (int k = 0; k < t->rank; k++) h = mix(h, (uint64_t)t->dim[k]);
    }
    return h ^ h >> 32;
}

static bool same_operands(const Op *a, const Op *b) {
    if (a->n_in != b->n_in) return false;
    bool same = true;
    for (int i = 0; i < a->n_in && same; i++) same = a->in[i] == b->in[i];
    if (same || !hd_op_is(a, TRAIT_COMMUTES) || a->n_in != 2) return same;
    return a->in[0] == b->in[1] && a->in[1] == b->in[0];
}

static bool same_attrs(Ctx *cx, const Op *a, const Op *b) {
    if (hd_attrs_equal(&a->attrs, &b->attrs)) return true;
    if (hd_has(&a->attrs, A_BWD) == hd_has(&b->attrs, A_BWD)) return false;
    Attrs x = hd_attrs_copy(cx, &a->attrs), y = hd_attrs_copy(cx, &b->attrs);
    hd_unset(&x, A_BWD);
    hd_unset(&y, A_BWD);
    return hd_attrs_equal(&x, &y);
}

static bool equal(Ctx *cx, const Op *a, const Op *b) {
    if (a->kind != b->kind || a->n_out != b->n_out || !same_operands(a, b)) return false;
    for (int i = 0; i < a->n_out; i++)
        if (a->out[i]->type != b->out[i]->type) return false;
    return same_attrs(cx, a, b);
}

// The earlier op that this one equals; NULL after entering it into the table.
static Op *find_or_enter(Sharing *s, Op *o) {
    uint64_t version = version_read(s, o);
    Entry **slot = &s->slots[hash_op(o, version) & (s->n_slots - 1)];
    for (Entry *e = *slot; e; e = e->next)
        if (e->version == version && equal(s->m->cx, e->op, o)) return e->op;
    Entry *e = HD_NEW(s->scratch, Entry);
    *e = (Entry){*slot, o, version};
    *slot = e;
    return NULL;
}

static void prepare(Sharing *s, const Func *f) {
    for (s->n_slots = 16; s->n_slots < (uint32_t)f->n_ops * 2; s->n_slots *= 2) continue;
    s->slots = HD_NEWN(s->scratch, Entry *, s->n_slots);
    s->now = HD_NEWN(s->scratch, Value *, f->n_values + 1);
    s->source = HD_NEWN(s->scratch, const Symbol *, f->n_values + 1);
    int n = 0;
    for (const Symbol *b = s->m->symbols; b; b = b->next) n += b->kind == SYM_BUFFER;
    s->versions = HD_NEWN(s->scratch, struct BufferVersion, n + 1);
    for (const Symbol *b = s->m->symbols; b; b = b->next)
        if (b->kind == SYM_BUFFER) s->versions[s->n_versions++].buffer = b;
}

static int share_func(const Module *m, Func *f, Arena *scratch) {
    Sharing s = {.m = m, .scratch = scratch};
    prepare(&s, f);
    int shared = 0;
    for (Op *o = f->first, *next; o; o = next) {
        next = o->next;
        for (int i = 0; i < o->n_in; i++)
            if (s.now[o->in[i]->id]) o->in[i] = s.now[o->in[i]->id];
        note_effect(&s, o);
        if (!hd_is_pure(o) || !o->n_out || hd_has(&o->attrs, A_INPLACE)) continue;
        note_sources(&s, o);
        const Op *same = find_or_enter(&s, o);
        if (!same) continue;
        for (int i = 0; i < o->n_out; i++) s.now[o->out[i]->id] = same->out[i];
        hd_erase(o);
        shared++;
    }
    hd_renumber(f);
    return shared;
}

Change hd_pass_cse(Module *m, PassCx *cx) {
    int shared = 0;
    for (Func *f = m->funcs; f; f = f->next)
        if (!f->is_kernel) shared += share_func(m, f, cx->scratch);
    hd_count(cx, "ops shared", shared);
    return shared ? CHANGED : UNCHANGED;
}
