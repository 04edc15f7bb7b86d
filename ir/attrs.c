// Attribute lists: sorted by id, so that equal lists print alike; values live on the context's arena.
#include "ir/ir.h"

static int find(const Attrs *as, AttrId id) { // its index, or the index where it would be
    int i = 0;
    while (i < as->n && as->at[i].id < id) i++;
    return i;
}

const Attr *hd_attr(const Attrs *as, AttrId id) {
    int i = find(as, id);
    return i < as->n && as->at[i].id == id ? &as->at[i] : NULL;
}

bool hd_has(const Attrs *as, AttrId id) { return hd_attr(as, id) != NULL; }

int64_t hd_int(const Attrs *as, AttrId id, int64_t otherwise) {
    const Attr *a = hd_attr(as, id);
    return a ? a->i : otherwise;
}

double hd_float(const Attrs *as, AttrId id, double otherwise) {
    const Attr *a = hd_attr(as, id);
    return a ? a->f : otherwise;
}

const char *hd_word(const Attrs *as, AttrId id, const char *otherwise) {
    const Attr *a = hd_attr(as, id);
    return a ? a->s : otherwise;
}

void hd_set_attr(Ctx *cx, Attrs *as, const Attr *a) {
    int i = find(as, a->id);
    if (i < as->n && as->at[i].id == a->id) {
        as->at[i] = *a;
        return;
    }
    if (as->n == as->cap) {
        int cap = as->cap ? as->cap * 2 : 4;
        Attr *at = HD_NEWN(cx->arena, Attr, cap);
        if (as->n) memcpy(at, as->at, sizeof *at * (size_t)as->n);
        as->at = at;
        as->cap = cap;
    }
    memmove(as->at + i + 1, as->at + i, sizeof *as->at * (size_t)(as->n - i));
    as->at[i] = *a;
    as->n++;
}

// kind: the attribute's; words are also the strings and symbols of one attribute, or of a list
static void set(Ctx *cx, Attrs *as, AttrKind kind, Attr a) {
    AttrKind k = hd_attr_info(a.id)->kind;
    if (k == AK_STR || k == AK_SYM) k = AK_WORD;
    if (k == AK_SYMS) k = AK_WORDS;
    if (k != kind) HD_BUG("attribute '%s' set with a value of the wrong kind", hd_attr_info(a.id)->text);
    hd_set_attr(cx, as, &a);
}

static void *copy(Ctx *cx, const void *v, int n, size_t size) {
    void *p = hd_alloc(cx->arena, size * (size_t)n);
    if (n) memcpy(p, v, size * (size_t)n);
    return p;
}

void hd_set_flag(Ctx *cx, Attrs *as, AttrId id) { set(cx, as, AK_FLAG, (Attr){.id = id, .i = 1}); }

void hd_set_int(Ctx *cx, Attrs *as, AttrId id, int64_t v) { set(cx, as, AK_INT, (Attr){.id = id, .i = v}); }

void hd_set_float(Ctx *cx, Attrs *as, AttrId id, double v) { set(cx, as, AK_FLOAT, (Attr){.id = id, .f = v}); }

void hd_set_word(Ctx *cx, Attrs *as, AttrId id, const char *s) {
    set(cx, as, AK_WORD, (Attr){.id = id, .s = hd_intern(cx, s)});
}

void hd_set_ints(Ctx *cx, Attrs *as, AttrId id, int n, const int64_t *v) {
    set(cx, as, AK_INTS, (Attr){.id = id, .n = n, .ints = copy(cx, v, n, sizeof *v)});
}

void hd_set_floats(Ctx *cx, Attrs *as, AttrId id, int n, const double *v) {
    set(cx, as, AK_FLOATS, (Attr){.id = id, .n = n, .floats = copy(cx, v, n, sizeof *v)});
}

void hd_set_words(Ctx *cx, Attrs *as, AttrId id, int n, const char *const *v) {
    const char **p = HD_NEWN(cx->arena, const char *, n);
    for (int i = 0; i < n; i++) p[i] = hd_intern(cx, v[i]);
    set(cx, as, AK_WORDS, (Attr){.id = id, .n = n, .strs = p});
}

void hd_unset(Attrs *as, AttrId id) {
    int i = find(as, id);
    if (i == as->n || as->at[i].id != id) return;
    memmove(as->at + i, as->at + i + 1, sizeof *as->at * (size_t)(as->n - i - 1));
    as->n--;
}

Attrs hd_attrs_copy(Ctx *cx, const Attrs *as) {
    Attrs c = {as->n, as->n, NULL};
    if (!as->n) return c;
    c.at = HD_NEWN(cx->arena, Attr, as->n);
    memcpy(c.at, as->at, sizeof *c.at * (size_t)as->n);
    return c;
}

static bool equal(const Attr *a, const Attr *b) {
    if (a->id != b->id || a->n != b->n) return false;
    size_t n = (size_t)a->n;
    switch (hd_attr_info(a->id)->kind) {
    case AK_FLAG: return true;
    case AK_INT: return a->i == b->i;
    case AK_FLOAT: return !memcmp(&a->f, &b->f, sizeof a->f);
    case AK_WORD: case AK_STR: case AK_SYM: return a->s == b->s;
    case AK_INTS: return !n || !memcmp(a->ints, b->ints, n * sizeof *a->ints);
    case AK_FLOATS: return !n || !memcmp(a->floats, b->floats, n * sizeof *a->floats);
    case AK_WORDS: case AK_SYMS: return !n || !memcmp(a->strs, b->strs, n * sizeof *a->strs);
    }
    return false;
}

bool hd_attrs_equal(const Attrs *a, const Attrs *b) {
    if (a->n != b->n) return false;
    for (int i = 0; i < a->n; i++)
        if (!equal(&a->at[i], &b->at[i])) return false;
    return true;
}
