#include "passes/verify/values/terms.h"
#define XXH_INLINE_ALL
#include <xxhash.h>

void hd_recipe_put(Recipe *r, const void *bytes, size_t n) {
    const unsigned char *from = bytes;
    while (n > sizeof r->bytes - r->n) { // what is there becomes its hash
        const size_t fits = sizeof r->bytes - r->n;
        memcpy(r->bytes + r->n, from, fits);
        from += fits, n -= fits;
        r->n = sizeof r->bytes;
        const TermHash h = hd_recipe_hash(r);
        memcpy(r->bytes, &h, r->n = sizeof h);
    }
    memcpy(r->bytes + r->n, from, n);
    r->n += n;
}

void hd_recipe_text(Recipe *r, const char *s) { hd_recipe_put(r, s, strlen(s) + 1); }
void hd_recipe_int(Recipe *r, int64_t v) { hd_recipe_put(r, &v, sizeof v); }

void hd_recipe_type(Recipe *r, const Type *t) {
    hd_recipe_text(r, hd_dtype_text(t->dtype));
    hd_recipe_int(r, t->rank);
    hd_recipe_put(r, t->dim, sizeof *t->dim * (size_t)t->rank);
}

void hd_recipe_attr(Recipe *r, const Attr *a) {
    const AttrInfo *info = hd_attr_info(a->id);
    hd_recipe_text(r, info->text);
    switch (info->kind) {
    case AK_FLAG: break;
    case AK_INT: hd_recipe_int(r, a->i); break;
    case AK_FLOAT: hd_recipe_put(r, &a->f, sizeof a->f); break;
    case AK_WORD: case AK_STR: case AK_SYM: hd_recipe_text(r, a->s); break;
    default:
        hd_recipe_int(r, a->n);
        if (info->kind == AK_INTS) hd_recipe_put(r, a->ints, sizeof *a->ints * (size_t)a->n);
        else if (info->kind == AK_FLOATS) hd_recipe_put(r, a->floats, sizeof *a->floats * (size_t)a->n);
        else
            for (int i = 0; i < a->n; i++) hd_recipe_text(r, a->strs[i]);
    }
}

TermHash hd_recipe_hash(Recipe *r) {
    const XXH128_hash_t h = XXH3_128bits(r->bytes, r->n);
    r->n = 0;
    return (TermHash){h.low64, h.high64};
}

const char *hd_term_hash_text(Arena *a, TermHash h) {
    char text[32]; // without a format to interpret: a plan has thousands of them
    for (int i = 0; i < 16; i++) {
        text[15 - i] = "0123456789abcdef"[h.hi >> 4 * i & 15];
        text[31 - i] = "0123456789abcdef"[h.lo >> 4 * i & 15];
    }
    return hd_strndup(a, text, sizeof text);
}

// --- sets of terms: their hashes, in slots that are found by the hash itself
struct TermSet {
    Arena *a;
    TermHash *slot; // zeros: free
    size_t n, slots;
};

TermSet *hd_term_set(Arena *a) {
    TermSet *s = HD_NEW(a, TermSet);
    *s = (TermSet){.a = a, .slot = HD_NEWN(a, TermHash, 1024), .slots = 1024};
    return s;
}

static TermHash *slot_of(const TermSet *s, TermHash h) { // where it is, or a free one where it belongs
    size_t i = (size_t)h.lo & (s->slots - 1);
    while ((s->slot[i].lo || s->slot[i].hi) && !hd_term_same(s->slot[i], h)) i = (i + 1) & (s->slots - 1);
    return &s->slot[i];
}

bool hd_term_in(const TermSet *s, const Term *x) { return hd_term_same(*slot_of(s, x->hash), x->hash); }

static void add(TermSet *s, TermHash h) {
    TermHash *at = slot_of(s, h);
    if (hd_term_same(*at, h)) return;
    *at = h;
    if (++s->n * 2 < s->slots) return;
    const TermSet old = *s;
    s->slots *= 4;
    s->slot = HD_NEWN(s->a, TermHash, s->slots);
    for (size_t i = 0; i < old.slots; i++)
        if (old.slot[i].lo || old.slot[i].hi) *slot_of(s, old.slot[i]) = old.slot[i];
}

static const Term *made(const Terms *t, Recipe *r, Term as) {
    Term *fresh = HD_NEW(t->a, Term);
    *fresh = as;
    fresh->hash = hd_recipe_hash(r);
    if (t->made) add(t->made, fresh->hash);
    return fresh;
}

const Term *hd_term_leaf(const Terms *t, const char *what, const char *name, int64_t number, const Type *type) {
    Recipe r;
    r.n = 0;
    hd_recipe_text(&r, what);
    hd_recipe_text(&r, name);
    hd_recipe_int(&r, number);
    hd_recipe_type(&r, type);
    return made(t, &r, (Term){.kind = N_OPS, .type = type, .exact = hd_exact_values(type->dtype)});
}

// Whether an attribute says how an op is done, where its result is written or how large it is, rather than what it
// computes. The type of a result is in its term.
static bool is_manner(AttrId id) {
    switch (id) {
    case A_BWD: case A_RECOMPUTED: case A_INPLACE: case A_ALIGN: case A_WORKSPACE_BYTES: case A_WORKSPACE_AT:
    case A_IMPL: case A_ELSE: case A_PLACES: case A_ON: case A_AFTER: case A_INTO: case A_OFFSET: case A_ACCUMULATE:
    case A_ROWS: case A_OUT: case A_SPLIT: case A_SITE: case A_COLUMNS:
        return true;
    default: return false;
    }
}

// A term stands for the result as it is rounded to its dtype. Where that changes nothing, what was true of it before
// still is. (Else it need not be: 65504 is a value of f16, and 65536, to which bf16 rounds it, is none.)
static unsigned exact_of(OpKind k, const Type *type, const Attrs *as, int n, const Term *const *in) {
    const unsigned before = hd_exact_result(k, as, n, in);
    return hd_exact_values(type->dtype) | (before >> type->dtype & 1 ? before : 0);
}

const Term *hd_term_plain(const Terms *t, OpKind k, int index, const Type *type, const Attrs *as, int n,
                          const Term *const *in) {
    Recipe r;
    r.n = 0;
    hd_recipe_text(&r, hd_op_info(k)->mnemonic);
    hd_recipe_int(&r, index);
    hd_recipe_type(&r, type);
    for (int i = 0; as && i < as->n; i++)
        if (!is_manner(as->at[i].id)) hd_recipe_attr(&r, &as->at[i]);
    hd_recipe_int(&r, n);
    for (int i = 0; i < n; i++) hd_recipe_put(&r, &in[i]->hash, sizeof in[i]->hash);
    const unsigned exact = k == OP_RESHAPE ? in[0]->exact : exact_of(k, type, as, n, in);
    return made(t, &r, (Term){.kind = k, .type = type, .exact = exact, .of = n ? in[0] : NULL,
                              .with = n > 1 ? in[1] : NULL});
}

const Term *hd_term_summed(const Terms *t, OpKind k, const Type *type, unsigned axes, const Term *x) {
    Recipe r;
    r.n = 0;
    hd_recipe_text(&r, hd_op_info(k)->mnemonic);
    hd_recipe_type(&r, type);
    hd_recipe_int(&r, axes);
    hd_recipe_put(&r, &x->hash, sizeof x->hash);
    const unsigned exact = exact_of(k, type, NULL, 1, &x);
    return made(t, &r, (Term){.kind = k, .type = type, .axes = axes, .exact = exact, .of = x});
}

const Term *hd_term_unrounded(const Terms *t, const Term *x) {
    Recipe r;
    r.n = 0;
    hd_recipe_text(&r, "unrounded");
    hd_recipe_put(&r, &x->hash, sizeof x->hash);
    return made(t, &r, (Term){.kind = N_OPS, .type = x->type, .exact = hd_exact_values(TY_F32), .of = x});
}
