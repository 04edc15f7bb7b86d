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

static void check(AttrId id, AttrKind a, AttrKind b, AttrKind c) {
    AttrKind k = hd_attr_info(id)->kind;
    if (k != a && k != b && k != c) HD_BUG("attribute '%s' set with a value of the wrong kind", hd_attr_info(id)->text);
}

void hd_set_flag(Ctx *cx, Attrs *as, AttrId id) {
    check(id, AK_FLAG, AK_FLAG, AK_FLAG);
    Attr a = {.id = id, .i = 1};
    hd_set_attr(cx, as, &a);
}

void hd_set_int(Ctx *cx, Attrs *as, AttrId id, int64_t v) {
    check(id, AK_INT, AK_INT, AK_INT);
    Attr a = {.id = id, .i = v};
    hd_set_attr(cx, as, &a);
}

void hd_set_float(Ctx *cx, Attrs *as, AttrId id, double v) {
    check(id, AK_FLOAT, AK_FLOAT, AK_FLOAT);
    Attr a = {.id = id, .f = v};
    hd_set_attr(cx, as, &a);
}

void hd_set_word(Ctx *cx, Attrs *as, AttrId id, const char *s) {
    check(id, AK_WORD, AK_STR, AK_SYM);
    Attr a = {.id = id, .s = hd_intern(cx, s)};
    hd_set_attr(cx, as, &a);
}

void hd_set_ints(Ctx *cx, Attrs *as, AttrId id, int n, const int64_t *v) {
    check(id, AK_INTS, AK_INTS, AK_INTS);
    int64_t *p = HD_NEWN(cx->arena, int64_t, n);
    if (n) memcpy(p, v, sizeof *v * (size_t)n);
    Attr a = {.id = id, .n = n, .ints = p};
    hd_set_attr(cx, as, &a);
}

void hd_set_floats(Ctx *cx, Attrs *as, AttrId id, int n, const double *v) {
    check(id, AK_FLOATS, AK_FLOATS, AK_FLOATS);
    double *p = HD_NEWN(cx->arena, double, n);
    if (n) memcpy(p, v, sizeof *v * (size_t)n);
    Attr a = {.id = id, .n = n, .floats = p};
    hd_set_attr(cx, as, &a);
}

void hd_set_words(Ctx *cx, Attrs *as, AttrId id, int n, const char *const *v) {
    check(id, AK_WORDS, AK_SYMS, AK_SYMS);
    const char **p = HD_NEWN(cx->arena, const char *, n);
    for (int i = 0; i < n; i++) p[i] = hd_intern(cx, v[i]);
    Attr a = {.id = id, .n = n, .strs = p};
    hd_set_attr(cx, as, &a);
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
