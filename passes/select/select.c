// select: matrix products become gemm, with what belongs to them (a bias that no kernel took, the buffer that the
// result is stored to); library ops get their implementation and workspace.
//
//   %p = matmul %x, %w {tb}                  %s = gemm %x, %w, %b {tb, epilogue = bias}
//   %s = add %p, %b                    ->
//   %dw = matmul %dy, %x {ta}
//   store %dw {into = @g, offset = 0}        gemm %dy, %x {ta, into = @g, offset = 0}
#include "ir/shapes.h"
#include "passes/fuse/gemm_bias.h"
#include "passes/pass.h"
#include "passes/analysis/redirect.h"
#include "passes/settings.h"
#include "passes/select/workspace.h"
#include <string.h>

typedef struct { Module *m; PassCx *cx; Func *f; Uses uses; bool cuda; int64_t attention_limit; } Select;

// The gemm for a product, standing nowhere yet.
static Op *gemm_of(Select *s, const Op *p, const Value *bias) {
    Ctx *cx = s->m->cx;
    Value *in[3] = {p->in[0], p->in[1], (Value *)(uintptr_t)bias};
    Op *g = hd_op_new(s->f, OP_GEMM, bias ? 3 : 2, in);
    g->loc = p->loc;
    g->span = p->span;
    static const AttrId kept[] = {A_TA, A_TB, A_BWD, A_RECOMPUTED};
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
        if (hd_has(&p->attrs, kept[i])) hd_set_flag(cx, &g->attrs, kept[i]);
    if (p->kind == OP_BMM) hd_set_int(cx, &g->attrs, A_BATCHES, hd_product(p).batches);
    if (bias) hd_set_word(cx, &g->attrs, A_EPILOGUE, hd_intern(cx, "bias"));
    return g;
}

static void must_infer(Op *o, const Type *t) {
    const char *e = hd_infer(o, t ? 1 : 0, &t);
    if (e) HD_BUG("%s: %s", hd_op_info(o->kind)->mnemonic, e);
}

static bool overlaps(const Attrs *as, AttrId where, const char *buffer, int64_t from, int64_t count, int64_t n) {
    if (!hd_has(as, where) || strcmp(hd_word(as, where, ""), buffer)) return false;
    int64_t at = hd_int(as, A_OFFSET, 0);
    return at < from + count && from < at + n;
}

// Whether `store` may happen at `early` already: nothing in between reads or writes those elements.
static bool may_move_up(const Op *early, const Op *store) {
    const char *into = hd_word(&store->attrs, A_INTO, "");
    int64_t from = hd_int(&store->attrs, A_OFFSET, 0), count = hd_type_count(store->in[0]->type);
    for (const Op *o = store->prev; o != early; o = o->prev) {
        if (o->kind == OP_VIEW && overlaps(&o->attrs, A_BUFFER, into, from, count, hd_type_count(o->out[0]->type)))
            return false;
        if (o->kind == OP_STORE && overlaps(&o->attrs, A_INTO, into, from, count, hd_type_count(o->in[0]->type)))
            return false;
        if (o->kind == OP_GEMM && overlaps(&o->attrs, A_INTO, into, from, count, INT64_MAX / 2)) return false;
        if (o->kind == OP_ADAMW || o->kind == OP_GRAD_NORM || o->kind == OP_SQUARE_SUMS) return false;
        if (o->kind == OP_ZERO && overlaps(&o->attrs, A_INTO, into, from, count, hd_int(&o->attrs, A_SIZE, 0)))
            return false;
        bool whole = o->kind == OP_BEGIN || o->kind == OP_ALL_GATHER || o->kind == OP_REDUCE_SCATTER;
        if (whole && (!strcmp(hd_word(&o->attrs, A_INTO, ""), into) || !strcmp(hd_word(&o->attrs, A_BUFFER, ""), into)))
            return false;
    }
    return true;
}

static void select_product(Select *s, Op *p) {
    Ctx *cx = s->m->cx;
    Value *v = p->out[0];
    Op *user = s->uses.count[v->id] == 1 ? s->uses.users[v->id][0] : NULL;
    int product = user ? hd_gemm_bias(user, &s->uses) : -1;
    if (product >= 0) {
        Op *g = gemm_of(s, p, user->in[1 - product]);
        if (user->loc.path) g->loc = user->loc;
        must_infer(g, user->out[0]->type);
        hd_insert_before(user, g);
        hd_redirect(&s->uses, user->out[0], g->out[0]);
        hd_erase(user);
        hd_count(s->cx, "bias epilogues", 1);
    } else if (user && user->kind == OP_STORE) {
        Op *g = gemm_of(s, p, NULL);
        hd_set_word(cx, &g->attrs, A_INTO, hd_word(&user->attrs, A_INTO, NULL));
        hd_set_int(cx, &g->attrs, A_OFFSET, hd_int(&user->attrs, A_OFFSET, 0));
        if (hd_has(&user->attrs, A_ACCUMULATE)) hd_set_flag(cx, &g->attrs, A_ACCUMULATE);
        must_infer(g, NULL);
        hd_insert_before(may_move_up(p, user) ? p : user, g);
        hd_erase(user);
        hd_count(s->cx, "stores folded", 1);
    } else {
        Op *g = gemm_of(s, p, NULL);
        must_infer(g, v->type);
        hd_insert_before(p, g);
        hd_redirect(&s->uses, v, g->out[0]);
    }
    hd_erase(p);
}

// The value whose bytes v is a part of.
static const Value *storage_of(const Value *v) {
    while (v->def && v->def->kind == OP_RESHAPE) v = v->def->in[0];
    return v;
}

static bool read_after(const Select *s, const Value *v, const Op *o) {
    for (int i = 0; i < s->uses.count[v->id]; i++) {
        const Op *user = s->uses.users[v->id][i];
        if (user->kind == OP_RESHAPE ? read_after(s, user->out[0], o) : user->id > o->id) return true;
    }
    return false;
}

// dlogits may take the place of the logits when those are a value of this function that nobody reads afterwards.
static void select_cross_entropy_grad(Select *s, Op *o) {
    const Value *base = storage_of(o->in[0]);
    if (o->in[0]->type == o->out[1]->type && base->def && !hd_op_is(base->def, TRAIT_SOURCE) && !read_after(s, base, o))
        hd_set_int(s->m->cx, &o->attrs, A_INPLACE, 0);
}

static void select_attention(Select *s, Op *o) {
    Ctx *cx = s->m->cx;
    AttentionShape t = hd_attention_shape(o);
    bool fits = s->cuda && (t.dtype == TY_BF16 || t.dtype == TY_F16) && t.seq % 128 == 0 &&
                (t.size == 64 || t.size == 128) && hd_workspace_cudnn(o) <= s->attention_limit;
    hd_set_word(cx, &o->attrs, A_IMPL, hd_intern(cx, fits ? "cudnn" : "generated"));
    int64_t bytes = fits ? hd_workspace_cudnn(o) : hd_workspace_bytes(o, s->cuda);
    if (bytes) hd_set_int(cx, &o->attrs, A_WORKSPACE_BYTES, bytes);
}

static void select_func(Select *s) {
    hd_renumber(s->f);
    s->uses = hd_uses(s->f, s->cx->scratch);
    for (Op *o = s->f->first, *next; o; o = next) {
        next = o->next;
        if (o->kind != OP_MATMUL && o->kind != OP_BMM) continue;
        bool folds = next && next->kind != OP_MATMUL &&
                     next->kind != OP_BMM; // the only reader may go with it; a product is its own
        if (folds && s->uses.count[o->out[0]->id] == 1 && s->uses.users[o->out[0]->id][0] == next) next = next->next;
        select_product(s, o);
    }
    hd_renumber(s->f);
    s->uses = hd_uses(s->f, s->cx->scratch);
    for (Op *o = s->f->first; o; o = o->next) {
        if (o->kind == OP_ATTENTION || o->kind == OP_ATTENTION_GRAD) {
            select_attention(s, o);
            continue;
        }
        if (o->kind == OP_CROSS_ENTROPY_GRAD) select_cross_entropy_grad(s, o);
        int64_t bytes = hd_workspace_bytes(o, s->cuda);
        if (bytes) hd_set_int(s->m->cx, &o->attrs, A_WORKSPACE_BYTES, bytes);
    }
}

Change hd_pass_select(Module *m, PassCx *cx) {
    const char *target = hd_word(hd_settings(m, "target"), A_TARGET, "host");
    if (strcmp(target, "host") && strcmp(target, "cuda")) {
        hd_error(m->cx, (Span){0}, "target = %s: programs are made for host and for cuda", target);
        return FAILED;
    }
    Select s = {.m = m,
                .cx = cx,
                .cuda = !strcmp(target, "cuda"),
                .attention_limit = hd_option_int(cx, "attention_mib", 1024) << 20};
    for (Func *f = m->funcs; f; f = f->next) {
        if (f->is_kernel) continue;
        s.f = f;
        select_func(&s);
    }
    return CHANGED;
}
