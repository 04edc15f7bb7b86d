// The type rules of ops on storage and of collectives: the symbols that they name must exist, be of the right kind and
// be large enough.
#include "ir/type_rules.h"
#include "ir/mesh.h"

const Symbol *hd_rule_symbol(Rule *r, AttrId a, SymbolKind k) {
    const Symbol *s = hd_symbol_find(r->o->func->module, hd_word(&r->o->attrs, a, ""));
    return s && s->kind == k ? s : NULL;
}

const char *hd_rule_in_buffer(Rule *r, AttrId a, const Type *t) {
    const Symbol *s = hd_rule_symbol(r, a, SYM_BUFFER);
    if (!s) WRONG("no buffer @%s", hd_word(&r->o->attrs, a, ""));
    int64_t at = hd_int(&r->o->attrs, A_OFFSET, 0), n = hd_type_count(t);
    if (at < 0 || n > hd_type_count(s->type) - at)
        WRONG("elements [%lld, %lld) are outside buffer @%s : %s", (long long)at, (long long)(at + n), s->name,
              TEXT(s->type));
    return NULL;
}

const char *hd_rule_grad(Rule *r) {
    const Symbol *s = hd_rule_symbol(r, A_PARAM, SYM_PARAM);
    if (!s) WRONG("no parameter @%s", hd_word(&r->o->attrs, A_PARAM, ""));
    if (s->type->rank != IN(0)->rank || memcmp(s->type->dim, IN(0)->dim, sizeof(int64_t) * (size_t)s->type->rank))
        WRONG("gradient %s of parameter @%s : %s", TEXT(IN(0)), s->name, TEXT(s->type));
    return NULL;
}

const char *hd_rule_view(Rule *r) {
    const char *e = hd_rule_explicit(r);
    if (!e) e = hd_rule_in_buffer(r, A_BUFFER, r->out[0]);
    if (e) return e;
    const Symbol *s = hd_rule_symbol(r, A_BUFFER, SYM_BUFFER);
    if (s->type->dtype != r->out[0]->dtype)
        WRONG("view %s of buffer @%s : %s", TEXT(r->out[0]), s->name, TEXT(s->type));
    return NULL;
}

const char *hd_rule_store(Rule *r) {
    const char *e = hd_rule_in_buffer(r, A_INTO, IN(0));
    if (e) return e;
    const Symbol *s = hd_rule_symbol(r, A_INTO, SYM_BUFFER);
    if (s->type->dtype != IN(0)->dtype) WRONG("store of %s into buffer @%s : %s", TEXT(IN(0)), s->name, TEXT(s->type));
    return NULL;
}

const char *hd_rule_grad_norm(Rule *r) {
    const Attr *b = hd_attr(&r->o->attrs, A_BUFFERS);
    for (int i = 0; i < b->n; i++) {
        const Symbol *s = hd_symbol_find(r->o->func->module, b->strs[i]);
        if (!s || s->kind != SYM_BUFFER || s->type->dtype != TY_F32) WRONG("@%s is not an f32 buffer", b->strs[i]);
    }
    return hd_rule_give(r, hd_type(r->cx, TY_F32, 0, NULL));
}

static int64_t runs(int64_t count) { return (count + HD_NORM_BLOCK - 1) / HD_NORM_BLOCK; }

const char *hd_rule_square_sums(Rule *r) {
    const Attr *b = hd_attr(&r->o->attrs, A_BUFFERS);
    int64_t n = 0;
    for (int i = 0; i < b->n; i++) {
        const Symbol *s = hd_symbol_find(r->o->func->module, b->strs[i]);
        if (!s || s->kind != SYM_BUFFER || s->type->dtype != TY_F32) WRONG("@%s is not an f32 buffer", b->strs[i]);
        n += runs(hd_type_count(s->type));
    }
    const char *e = hd_rule_explicit(r);
    if (e) return e;
    if (r->out[0] != hd_type(r->cx, TY_F64, 1, &n))
        WRONG("the result is f64[%lld], not %s", (long long)n, TEXT(r->out[0]));
    return NULL;
}

const char *hd_rule_root_sum(Rule *r) {
    if (IN(0)->rank != 1 || IN(0)->dtype != TY_F64) WRONG("partial sums must be an f64 vector, not %s", TEXT(IN(0)));
    return hd_rule_give(r, hd_type(r->cx, TY_F32, 0, NULL));
}

static const char *after_buffers(Rule *r) {
    const Attr *after = hd_attr(&r->o->attrs, A_AFTER);
    for (int i = 0; after && i < after->n; i++) {
        const Symbol *s = hd_symbol_find(r->o->func->module, after->strs[i]);
        if (!s || s->kind != SYM_BUFFER) WRONG("after: no buffer @%s", after->strs[i]);
    }
    return NULL;
}

// A collective between a part on every rank and the whole.
static const char *collective(Rule *r, AttrId part_at, AttrId whole_at) {
    const Symbol *comm = hd_rule_symbol(r, A_COMM, SYM_COMM), *part = hd_rule_symbol(r, part_at, SYM_BUFFER),
                 *whole = hd_rule_symbol(r, whole_at, SYM_BUFFER);
    if (!comm) WRONG("no comm @%s", hd_word(&r->o->attrs, A_COMM, ""));
    if (!part || !whole) WRONG("no buffer @%s", hd_word(&r->o->attrs, part ? whole_at : part_at, ""));
    Mesh mesh = hd_mesh(r->o->func->module);
    int64_t ranks = hd_mesh_ranks(&mesh, hd_axes(&comm->attrs, A_OVER));
    if (part->type->dtype != whole->type->dtype || hd_type_count(whole->type) % ranks ||
        hd_type_count(whole->type) / ranks != hd_type_count(part->type))
        WRONG("@%s : %s on each of %lld ranks does not make @%s : %s", part->name, TEXT(part->type), (long long)ranks,
              whole->name, TEXT(whole->type));
    return after_buffers(r);
}

const char *hd_rule_all_gather(Rule *r) { return collective(r, A_BUFFER, A_INTO); }

const char *hd_rule_reduce_scatter(Rule *r) {
    const Symbol *s = hd_rule_symbol(r, A_BUFFER, SYM_BUFFER);
    if (s && !hd_dtype_is_float(s->type->dtype)) WRONG("a sum over ranks needs floating point, not %s", TEXT(s->type));
    return collective(r, A_INTO, A_BUFFER);
}

const char *hd_rule_buffer(Rule *r) {
    const Symbol *s = hd_rule_symbol(r, A_BUFFER, SYM_BUFFER);
    if (!s || !hd_has(&s->attrs, A_TRANSIENT)) WRONG("no transient buffer @%s", hd_word(&r->o->attrs, A_BUFFER, ""));
    return after_buffers(r);
}

const char *hd_rule_zero(Rule *r) {
    int64_t n = hd_int(&r->o->attrs, A_SIZE, 0);
    const Type *t = n < 0 ? NULL : hd_type(r->cx, TY_U8, 1, &n);
    return t ? hd_rule_in_buffer(r, A_INTO, t) : "size must not be negative";
}

const char *hd_rule_step_scalars(Rule *r) {
    const Symbol *s = hd_rule_symbol(r, A_BUFFER, SYM_BUFFER);
    if (r->o->n_in > 1) WRONG("step_scalars takes the gradient norm or nothing, not %d operands", r->o->n_in);
    if (!s || s->type->dtype != TY_I32) WRONG("no i32 buffer @%s", hd_word(&r->o->attrs, A_BUFFER, ""));
    if (r->o->n_in && (IN(0)->rank || IN(0)->dtype != TY_F32))
        WRONG("the gradient norm must be f32, not %s", TEXT(IN(0)));
    return hd_rule_give(r, hd_type(r->cx, TY_F32, 1, (int64_t[]){8}));
}

const char *hd_rule_adamw(Rule *r) {
    static const AttrId parts[] = {A_MASTER_WEIGHTS, A_GRADIENT, A_MOMENT1, A_MOMENT2, A_WEIGHTS};
    const Symbol *first = NULL;
    for (int i = 0; i < 5; i++) {
        const Symbol *s = hd_rule_symbol(r, parts[i], SYM_BUFFER);
        if (i == 4 && !hd_has(&r->o->attrs, A_WEIGHTS)) break;
        if (!s) WRONG("no buffer @%s", hd_word(&r->o->attrs, parts[i], ""));
        if (!i) first = s;
        if (i == 4 ? !hd_dtype_is_float(s->type->dtype) : s->type->dtype != TY_F32)
            WRONG("@%s : %s is not %s", s->name, TEXT(s->type), i == 4 ? "floating point" : "f32");
        if (hd_type_count(s->type) != hd_type_count(first->type))
            WRONG("@%s : %s updates @%s : %s", s->name, TEXT(s->type), first->name, TEXT(first->type));
    }
    if (hd_int(&r->o->attrs, A_DECAYED, 0) < 0 || hd_int(&r->o->attrs, A_RANKS, 1) < 1)
        return "decayed must not be negative, and ranks starts at 1";
    if (IN(0) != hd_type(r->cx, TY_F32, 1, (int64_t[]){8})) WRONG("step scalars must be f32[8], not %s", TEXT(IN(0)));
    return NULL;
}
