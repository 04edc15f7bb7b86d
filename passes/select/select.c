// select: matrix products become gemm, together with the buffer that the result is stored to; library ops get their
// implementation and workspace. Products with a bias are gemm already (fuse).
//
//   %p = matmul %x, %w {tb}            ->    %p = gemm %x, %w {tb}
//   %dw = matmul %dy, %x {ta}
//   store %dw {into = @g, offset = 0}  ->    gemm %dy, %x {ta, into = @g, offset = 0}
//   %dt = embedding_grad %dy, %i
//   store %dt {into = @g, offset = 0}        embedding_grad %dy, %i {rows = 96, into = @g, offset = 0}
//
// Products by groups gather rows of a take (gathered_rows.c). On cuda, products of one row become kernels with what is
// around them (row_products.c).
#include "ir/machine/arch.h"
#include "ir/dropout.h"
#include "ir/shapes.h"
#include "ir/machine/workspace.h"
#include "passes/analysis/access.h"
#include "passes/fuse/gemm_bias.h"
#include "passes/pass.h"
#include "passes/analysis/redirect.h"
#include "passes/select/gathered_rows.h"
#include "passes/select/row_products.h"
#include "passes/settings.h"
#include <string.h>

typedef struct { Module *m; PassCx *cx; Func *f; Uses uses; bool cuda; int64_t attention_limit; } Select;

static void must_infer(Op *o, const Type *t) {
    const char *e = hd_infer(o, t ? 1 : 0, &t);
    if (e) HD_BUG("%s: %s", hd_op_info(o->kind)->mnemonic, e);
}

// Whether `store` may already happen at `early`: no op in between names those elements.
static bool may_move_up(const Op *early, const Op *store, Arena *a) {
    const Symbol *into = hd_named(store, A_INTO);
    int64_t lo = hd_int(&store->attrs, A_OFFSET, 0) * hd_dtype_bytes(into->type->dtype);
    int64_t hi = lo + hd_type_bytes(store->in[0]->type);
    Accesses list = {0};
    for (const Op *o = store->prev; o != early; o = o->prev) {
        Home view = {0};
        if (hd_op_is(o, TRAIT_SOURCE)) view = hd_home_of_view(o);
        if (view.buffer == into && view.at < hi && lo < view.at + hd_type_bytes(o->out[0]->type)) return false;
        hd_accesses(o, a, &list);
        for (int i = 0; i < list.n; i++) {
            const Access *x = &list.at[i];
            if (x->buffer == into && !x->order && x->lo < hi && lo < x->hi) return false;
        }
    }
    return true;
}

// `g` writes the bytes that `store` would write, and the store goes.
static void fold_store(Select *s, Op *p, Op *g, Op *store) {
    static const AttrId kept[] = {A_INTO, A_OFFSET, A_ACCUMULATE};
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
        if (hd_has(&store->attrs, kept[i])) hd_set_attr(s->m->cx, &g->attrs, hd_attr(&store->attrs, kept[i]));
    must_infer(g, NULL);
    hd_insert_before(may_move_up(p, store, s->cx->scratch) ? p : store, g);
    hd_erase(store);
    hd_count(s->cx, "stores folded", 1);
}

static Op *only_user(const Select *s, const Value *v) {
    return s->uses.count[v->id] == 1 ? s->uses.users[v->id][0] : NULL;
}

static void select_embedding_grad(Select *s, Op *p) {
    Op *store = only_user(s, p->out[0]);
    if (!store || store->kind != OP_STORE) return;
    Op *g = hd_op_new(s->f, OP_EMBEDDING_GRAD, 2, p->in);
    g->loc = p->loc, g->span = p->span, g->attrs = hd_attrs_copy(s->m->cx, &p->attrs);
    hd_set_int(s->m->cx, &g->attrs, A_ROWS, hd_table_rows(p));
    fold_store(s, p, g, store);
    hd_erase(p);
}

static void select_product(Select *s, Op *p) {
    Value *v = p->out[0];
    Op *user = only_user(s, v);
    const bool store = user && user->kind == OP_STORE;
    const bool scaled = hd_has(&p->attrs, A_SCALED); // then all that is added up is scaled
    if (store && !(scaled && hd_has(&user->attrs, A_ACCUMULATE))) {
        fold_store(s, p, hd_gemm_of(p, NULL), user);
    } else {
        Op *g = hd_gemm_of(p, NULL);
        must_infer(g, v->type);
        hd_insert_before(p, g);
        hd_redirect(&s->uses, v, g->out[0]);
    }
    hd_erase(p);
}

static bool read_after(const Select *s, const Value *v, const Op *o) {
    for (int i = 0; i < s->uses.count[v->id]; i++) {
        const Op *user = s->uses.users[v->id][i];
        if (hd_op_is(user, TRAIT_ALIAS) ? read_after(s, user->out[0], o) : user->id > o->id) return true;
    }
    return false;
}

// dlogits may overwrite the logits when these are a value of this function that nothing reads afterwards.
static void select_cross_entropy_grad(Select *s, Op *o) {
    const Value *base = hd_unaliased(o->in[0]);
    if (o->in[0]->type == o->out[1]->type && base->def && !hd_op_is(base->def, TRAIT_SOURCE) && !read_after(s, base, o))
        hd_set_int(s->m->cx, &o->attrs, A_INPLACE, 0);
}

// The backward pass of wgmma that is faster (tests/bench/RESULTS.md): the one of five products, where it was measured
// so and its workspace is not too large, else that of seven.
static const char *which_wgmma(const Select *s, const AttentionShape *t) {
    const bool ordered = t->causal && t->size == 64 && t->seq % 128 == 0 && t->seq >= 512 &&
                         hd_attention_ordered_bytes(t) <= s->attention_limit;
    return ordered ? "wgmma_ordered" : "wgmma";
}

// On sm_90 the backward pass is the compiler's own: as fast as cuDNN's repeatable one or faster, without its matrix of
// scores; so is the forward pass over long sequences, where it is faster than cuDNN's (tests/bench/RESULTS.md). Else
// cuDNN, unless it would need too much workspace or has no such mask, softcap or sink, and else kernels of the
// compiler's: on wgmma or on tensor cores where they suit.
static void select_attention(Select *s, Op *o) {
    Ctx *cx = s->m->cx;
    AttentionShape t = hd_attention_shape(o);
    bool cores = s->cuda && hd_attention_suits_tensor_cores(&t) &&
                 hd_attention_shared(&t, true) <= hd_shared_bytes(s->m);
    const bool wgmma = s->cuda && !hd_draws(o) && hd_target_arch(s->m).arch == 90 && hd_attention_suits_wgmma(&t);
    if (wgmma && (t.grad || (t.causal && t.seq >= 2048))) {
        hd_set_word(cx, &o->attrs, A_IMPL, hd_intern(cx, t.grad ? which_wgmma(s, &t) : "wgmma"));
        return;
    }
    const bool plain = !hd_draws(o) && !hd_attention_masked(&t) && t.softcap == 0 && !t.sink;
    bool fits = s->cuda && plain && hd_dtype_is_half(t.dtype) &&
                t.seq % 128 == 0 && (t.size == 64 || t.size == 128);
    if (fits) hd_set_word(cx, &o->attrs, A_IMPL, hd_intern(cx, "cudnn"));
    fits = fits && hd_workspace(o, true).good <= s->attention_limit;
    const char *own = wgmma ? "wgmma" : cores ? "tensor_cores" : "generated";
    hd_set_word(cx, &o->attrs, fits ? A_ELSE : A_IMPL, hd_intern(cx, own));
}

// One row, as of a token that is written: the time of a product is that of reading the matrix, for which the library's
// tiles leave most of the device idle.
static void select_gemv(Select *s, Op *o) {
    const Product p = hd_product(o);
    if (s->cuda && p.m == 1 && !p.ta && p.batches == 1 && !hd_has(&o->attrs, A_SCALED) &&
        !hd_has(&o->attrs, A_INTO) && hd_dtype_in_f32(o->in[0]->type->dtype))
        hd_set_word(s->m->cx, &o->attrs, A_IMPL, hd_intern(s->m->cx, "gemv"));
}

static bool has_destination(const Op *o) { // a result that may be written straight into a buffer
    return o->kind == OP_MATMUL || o->kind == OP_BMM || (hd_adds_rows(o) && o->n_out);
}

static void select_func(Select *s) {
    hd_select_gathered_rows(s->f, s->cx);
    hd_renumber(s->f);
    s->uses = hd_uses(s->f, s->cx->scratch);
    for (Op *o = s->f->first, *next; o; o = next) {
        next = o->next;
        if (!has_destination(o)) continue;
        // The only reader may go with it, but for one that is selected itself.
        if (next && !has_destination(next) && only_user(s, o->out[0]) == next) next = next->next;
        if (hd_adds_rows(o))
            select_embedding_grad(s, o);
        else
            select_product(s, o);
    }
    hd_renumber(s->f);
    s->uses = hd_uses(s->f, s->cx->scratch);
    for (Op *o = s->f->first; o; o = o->next) {
        if (hd_op_is(o, TRAIT_ATTENTION)) select_attention(s, o);
        if (o->kind == OP_GEMM) select_gemv(s, o);
        if (hd_op_is(o, TRAIT_LOSS) && hd_is_backward(o)) select_cross_entropy_grad(s, o);
        int64_t bytes = hd_workspace(o, s->cuda).good;
        if (bytes) hd_set_int(s->m->cx, &o->attrs, A_WORKSPACE_BYTES, bytes);
    }
    if (s->cuda && hd_kind(&s->f->attrs) == KIND_DECODE) hd_select_row_products(s->f, s->cx);
}

Change hd_pass_select(Module *m, PassCx *cx) {
    const char *target = hd_word(hd_settings(m, "target"), A_TARGET, "host");
    if (strcmp(target, "host") && strcmp(target, "cuda")) {
        hd_error(m->cx, (Span){0}, "target = %s: programs are made for host and for cuda", target);
        return FAILED;
    }
    Select s = {.m = m, .cx = cx,
                .cuda = !strcmp(target, "cuda"),
                .attention_limit = hd_option_int(cx, "attention_mib", 1024) << 20};
    for (Func *f = m->funcs; f; f = f->next) {
        if (f->is_kernel) continue;
        s.f = f;
        select_func(&s);
    }
    return CHANGED;
}
