// The context of one compilation: interned strings, interned types, diagnostics.
#include "ir/ir.h"
#include "ir/base/limits.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct StrEntry { struct StrEntry *next; uint32_t hash; const char *s; } StrEntry;
struct Interned { StrEntry **slot; uint32_t cap, n; };
typedef struct TypeEntry { struct TypeEntry *next; uint32_t hash; Type type; } TypeEntry;
struct TypeTable { TypeEntry **slot; uint32_t cap, n; };

static const DTypeInfo dtypes[] = {
#define DTYPE(id, text, bytes, mantissa, exponent, largest, saturates, computed, c, cuda, nccl, cublas, safetensors,   \
              rate)                                                                                                    \
    {#text, bytes, mantissa, exponent, largest, saturates, TY_##computed, TY_##rate, "HD_" #id, #c, #cuda},
#include "runtime/dtypes.def"
};

Ctx *hd_ctx_new(void) {
    Arena *a = hd_arena_new();
    Ctx *cx = HD_NEW(a, Ctx);
    cx->arena = a;
    cx->diags.arena = a;
    cx->strings = HD_NEW(a, struct Interned);
    cx->strings->cap = 1024;
    cx->strings->slot = HD_NEWN(a, StrEntry *, 1024);
    cx->types = HD_NEW(a, struct TypeTable);
    cx->types->cap = 512;
    cx->types->slot = HD_NEWN(a, TypeEntry *, 512);
    cx->max_ops = HD_MOST_OPS;
    return cx;
}

Ctx *hd_ctx_within(const Ctx *outer) {
    Ctx *cx = hd_ctx_new();
    cx->outer = outer;
    cx->device_path = outer->device_path;
    cx->max_ops = outer->max_ops;
    cx->device = outer->device;
    cx->device_read = outer->device_read;
    return cx;
}

void hd_ctx_free(Ctx *cx) {
    if (cx) hd_arena_free(cx->arena);
}

static uint32_t hash_text(const char *s) { // FNV-1a
    uint32_t h = 2166136261u;
    for (; *s; s++) h = (h ^ (unsigned char)*s) * 16777619u;
    return h;
}

static void rehash(Arena *a, struct Interned *t) {
    uint32_t cap = t->cap * 4;
    StrEntry **slot = HD_NEWN(a, StrEntry *, cap);
    for (uint32_t i = 0; i < t->cap; i++)
        for (StrEntry *e = t->slot[i], *next; e; e = next) {
            next = e->next;
            e->next = slot[e->hash & (cap - 1)];
            slot[e->hash & (cap - 1)] = e;
        }
    t->slot = slot;
    t->cap = cap;
}

const char *hd_intern(Ctx *cx, const char *s) {
    struct Interned *t = cx->strings;
    uint32_t h = hash_text(s);
    for (const Ctx *c = cx; c; c = c->outer)
        for (StrEntry *e = c->strings->slot[h & (c->strings->cap - 1)]; e; e = e->next)
            if (e->hash == h && !strcmp(e->s, s)) return e->s;
    if (t->n++ > t->cap) rehash(cx->arena, t);
    StrEntry *e = HD_NEW(cx->arena, StrEntry);
    e->hash = h;
    e->s = hd_strdup(cx->arena, s);
    e->next = t->slot[h & (t->cap - 1)];
    t->slot[h & (t->cap - 1)] = e;
    return e->s;
}

const char *hd_intern_part(Ctx *cx, const char *s, size_t n) {
    char buf[1024];
    if (n >= sizeof buf) return hd_internf(cx, "%.*s", (int)n, s);
    memcpy(buf, s, n);
    buf[n] = 0;
    return hd_intern(cx, buf);
}

const char *hd_internf(Ctx *cx, const char *fmt, ...) {
    char buf[1024];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(buf, sizeof buf, fmt, ap);
    va_end(ap);
    if (n < (int)sizeof buf) return hd_intern(cx, buf);
    va_start(ap, fmt);
    const char *s = hd_vsprintf(cx->arena, fmt, ap);
    va_end(ap);
    return hd_intern(cx, s);
}

bool hd_error(Ctx *cx, Span s, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    hd_diag_add(&cx->diags, SEV_ERROR, s, "%s", hd_vsprintf(cx->arena, fmt, ap));
    va_end(ap);
    return false;
}

static bool said(const Diags *d, Span s, const char *text) {
    for (int k = 0; k < d->list.n; k++) {
        const Diag *old = &d->list.at[k];
        if (old->sev == SEV_WARNING && old->span.lo == s.lo && old->span.hi == s.hi && !strcmp(old->text, text))
            return true;
    }
    return false;
}

// A warning about a place is given once, however many instances of a module have it.
void hd_warning(Ctx *cx, Span s, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    const char *text = hd_vsprintf(cx->arena, fmt, ap);
    va_end(ap);
    if (!s.hi || !said(&cx->diags, s, text)) hd_diag_add(&cx->diags, SEV_WARNING, s, "%s", text);
}

void hd_note(Ctx *cx, Span s, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    hd_diag_add(&cx->diags, SEV_NOTE, s, "%s", hd_vsprintf(cx->arena, fmt, ap));
    va_end(ap);
}

static void (*bug_hook)(void *);
static void *bug_hook_data;

void hd_bug_hook(void (*fn)(void *), void *data) {
    bug_hook = fn;
    bug_hook_data = data;
}

_Noreturn void hd_bug(const char *file, int line, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    hd_say(stderr, "heddle: internal error at %s:%d: ", file, line);
    hd_vsay(stderr, fmt, ap);
    hd_say(stderr, "\n");
    va_end(ap);
    void (*hook)(void *) = bug_hook;
    bug_hook = NULL;
    if (hook) hook(bug_hook_data);
    abort();
}

static void rehash_types(Arena *a, struct TypeTable *t) {
    const uint32_t cap = t->cap * 4;
    TypeEntry **slot = HD_NEWN(a, TypeEntry *, cap);
    for (uint32_t i = 0; i < t->cap; i++)
        for (TypeEntry *e = t->slot[i], *next; e; e = next) {
            next = e->next;
            e->next = slot[e->hash & (cap - 1)];
            slot[e->hash & (cap - 1)] = e;
        }
    t->slot = slot;
    t->cap = cap;
}

const Type *hd_type(Ctx *cx, DType dt, int rank, const int64_t *dim) {
    if (rank < 0 || rank > HD_MAX_DIMS) return NULL;
    int64_t limit = (int64_t)1 << 60, count = 1;
    uint32_t h = (uint32_t)dt * 31u + (uint32_t)rank;
    for (int i = 0; i < rank; i++) {
        if (dim[i] < 0 || dim[i] > limit) return NULL;
        if (dim[i] && count > limit / dtypes[dt].bytes / dim[i]) return NULL;
        if (dim[i]) count *= dim[i];
        h = h * 2654435761u + (uint32_t)dim[i] + (uint32_t)(dim[i] >> 32);
    }
    h ^= h >> 15; // a last axis of a power of two would leave few of the low bits
    struct TypeTable *t = cx->types;
    for (const Ctx *c = cx; c; c = c->outer)
        for (TypeEntry *e = c->types->slot[h & (c->types->cap - 1)]; e; e = e->next)
            if (e->hash == h && e->type.dtype == dt && e->type.rank == rank &&
                (!rank || !memcmp(e->type.dim, dim, sizeof *dim * (size_t)rank)))
                return &e->type;
    if (t->n++ > t->cap) rehash_types(cx->arena, t);
    TypeEntry *e = HD_NEW(cx->arena, TypeEntry);
    e->hash = h;
    e->type.dtype = dt;
    e->type.rank = rank;
    if (rank) memcpy(e->type.dim, dim, sizeof *dim * (size_t)rank);
    e->next = t->slot[h & (t->cap - 1)];
    t->slot[h & (t->cap - 1)] = e;
    return &e->type;
}

const Type *hd_type_with(Ctx *cx, DType dt, const Type *shape) { return hd_type(cx, dt, shape->rank, shape->dim); }

int64_t hd_type_count(const Type *t) {
    int64_t n = 1;
    for (int i = 0; i < t->rank; i++) n *= t->dim[i];
    return n;
}

int64_t hd_type_bytes(const Type *t) { return hd_type_count(t) * dtypes[t->dtype].bytes; }
int64_t hd_type_cols(const Type *t) { return t->rank ? t->dim[t->rank - 1] : 1; }

int64_t hd_type_rows(const Type *t) {
    int64_t n = 1;
    for (int i = 0; i + 1 < t->rank; i++) n *= t->dim[i];
    return n;
}

const DTypeInfo *hd_dtype_info(DType d) { return &dtypes[d]; }

bool hd_dtype_parse(const char *text, DType *d) {
    for (int i = 0; i < N_DTYPES; i++)
        if (!strcmp(dtypes[i].text, text)) {
            *d = (DType)i;
            return true;
        }
    return false;
}

const char *hd_type_text(Ctx *cx, const Type *t) {
    if (!t) return "(no type)";
    char buf[256];
    Out text = {cx->arena, buf, 0, sizeof buf};
    hd_puts(&text, dtypes[t->dtype].text);
    for (int i = 0; i < t->rank; i++) {
        hd_puts(&text, i ? "," : "[");
        hd_put_int(&text, t->dim[i]);
    }
    if (t->rank) hd_puts(&text, "]");
    return hd_intern(cx, text.text);
}

const Type *hd_type_broadcast(Ctx *cx, const Type *a, const Type *b) {
    int64_t dim[HD_MAX_DIMS];
    int rank = a->rank > b->rank ? a->rank : b->rank;
    for (int i = 0; i < rank; i++) { // i counts from the last axis
        int64_t da = i < a->rank ? a->dim[a->rank - 1 - i] : 1, db = i < b->rank ? b->dim[b->rank - 1 - i] : 1;
        if (da != db && da != 1 && db != 1) return NULL;
        dim[rank - 1 - i] = da == 1 ? db : da;
    }
    return hd_type(cx, a->dtype, rank, dim);
}
