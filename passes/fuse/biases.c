// Biases of matrix products. Either every reader of a sum product + bias is row work and does the addition itself, so
// that only the product is stored, or the sum is the product's epilogue, and the two become a gemm:
//
//   %s = add %p, %b                %s1 = add %p, %b
//   %h = gelu %s            ->     %h = gelu %s1
//   %d = mul %s, %g                %s2 = add %p, %b
//                                  %d = mul %s2, %g
//
// The two round differently, so one choice is made for all sums with the same bias, wherever the bias is stored: a
// recomputed sum, or one under another schedule, has the bits of the first one. A reader takes a gathered bias from the
// window that is open at that reader; a reader outside of all windows reads the stored sum.
#include "passes/fuse/fuse.h"
#include "passes/fuse/gemm_bias.h"
#include "ir/base/ptr_map.h"
#include "passes/analysis/redirect.h"
#include <stdlib.h>

// --- the choice
static bool readers_can_add(const Value *sum, const Uses *uses) {
    RowSpace space;
    if (!hd_row_natural(sum->def, &space)) return false;
    for (int i = 0; i < uses->count[sum->id]; i++) {
        const Op *u = uses->users[sum->id][i];
        if (!hd_row_fits(u, space)) return false;
        for (int j = 0; j < u->n_in; j++)
            if (u->in[j] == sum && hd_row_external(u, j)) return false;
    }
    return true;
}

typedef struct {
    int bucket, value;
    int64_t offset;
} Stored; // a bias: a part of some bucket, in whichever buffer

static int by_place(const void *a, const void *b) {
    const Stored *x = a, *y = b;
    if (x->bucket != y->bucket) return x->bucket < y->bucket ? -1 : 1;
    if (x->offset != y->offset) return x->offset < y->offset ? -1 : 1;
    return x->value - y->value;
}

// A number for the storage that a view is part of: the bucket, or the buffer when it has no bucket.
static int owner_of(const Module *m, const Op *view, PtrMap *numbers, Arena *a) {
    const char *name = hd_word(&view->attrs, A_BUFFER, "");
    const Symbol *buffer = hd_symbol_find(m, name);
    const char *owner = buffer ? hd_word(&buffer->attrs, A_BUCKET, name) : name;
    int n = hd_ptr_get(numbers, owner);
    if (n < 0) hd_ptr_set(a, numbers, owner, n = numbers->n);
    return n;
}

static void one_choice(bool *epilogue, Stored *stored, int n) {
    if (n) qsort(stored, (size_t)n, sizeof *stored, by_place);
    for (int from = 0, to; from < n; from = to) {
        bool any = false;
        for (to = from; to < n && stored[to].bucket == stored[from].bucket && stored[to].offset == stored[from].offset;
             to++)
            any |= epilogue[stored[to].value];
        for (int i = from; i < to; i++) epilogue[stored[i].value] = any;
    }
}

bool *hd_fuse_epilogue_biases(const Func *f, const Uses *uses, Arena *a) {
    bool *epilogue = HD_NEWN(a, bool, f->n_values + 1);
    PtrMap numbers = {0};
    VEC(Stored) stored = {0};
    for (const Op *o = f->first; o; o = o->next) {
        int product = hd_gemm_bias(o, uses);
        if (product < 0) continue;
        Value *bias = o->in[1 - product];
        const Op *view = hd_unaliased(bias)->def;
        if (!readers_can_add(o->out[0], uses)) epilogue[bias->id] = true;
        if (!view || !hd_op_is(view, TRAIT_SOURCE)) continue;
        Stored s = {owner_of(f->module, view, &numbers, a), bias->id, hd_int(&view->attrs, A_OFFSET, 0)};
        hd_push(a, &stored, s);
    }
    one_choice(epilogue, stored.at, stored.n);
    return epilogue;
}

// --- windows of gathered weights
typedef struct { int from, to; const Symbol *buffer; } Window; // op ids: gathered, read last

typedef struct {
    const Module *m;
    Arena *a;
    PtrMap buffers, buckets; // names of gathered buffers to `all`; of buckets to `of_bucket`
    VEC(Window) all;
    VEC(struct OfBucket { VEC(int) spans; }) of_bucket; // in program order
} Gathered;

static Gathered find_gathered(const Func *f, Arena *a) {
    Gathered g = {.m = f->module, .a = a};
    for (const Op *o = f->first; o; o = o->next) {
        const Symbol *into = hd_gathers(o) ? hd_named(o, A_INTO) : NULL;
        const char *bucket = into ? hd_word(&into->attrs, A_BUCKET, NULL) : NULL;
        if (bucket && hd_has(&into->attrs, A_TRANSIENT)) {
            int k = hd_ptr_get(&g.buckets, bucket);
            if (k < 0) {
                hd_ptr_set(a, &g.buckets, bucket, k = g.of_bucket.n);
                hd_push(a, &g.of_bucket, (struct OfBucket){{0}});
            }
            Window s = {o->id, o->id, into};
            hd_ptr_set(a, &g.buffers, into->name, g.all.n);
            hd_push(a, &g.of_bucket.at[k].spans, g.all.n);
            hd_push(a, &g.all, s);
        }
        for (int i = 0; i < o->n_in; i++) {
            const Op *view = hd_unaliased(o->in[i])->def;
            int k = view && hd_op_is(view, TRAIT_SOURCE) ? hd_ptr_get(&g.buffers, hd_word(&view->attrs, A_BUFFER, ""))
                                                         : -1;
            if (k >= 0) g.all.at[k].to = o->id;
        }
    }
    return g;
}

// The bias at op `u`: itself, a view of the window that is open there, or NULL: in no window.
static Value *bias_at(const Gathered *g, Value *bias, Op *u) {
    const Op *view = hd_unaliased(bias)->def;
    int own = view && hd_op_is(view, TRAIT_SOURCE) ? hd_ptr_get(&g->buffers, hd_word(&view->attrs, A_BUFFER, "")) : -1;
    if (own < 0) return bias;
    int k = hd_ptr_get(&g->buckets, hd_word(&g->all.at[own].buffer->attrs, A_BUCKET, "")), open = own;
    for (int i = 0; i < g->of_bucket.at[k].spans.n; i++) {
        int s = g->of_bucket.at[k].spans.at[i];
        if (g->all.at[s].from < u->id) open = s;
    }
    if (g->all.at[open].to < u->id) return NULL;
    if (open == own) return bias;
    if (view != bias->def) return NULL;
    Builder b = {.f = u->func, .before = u, .loc = view->loc, .span = view->span, .bwd = hd_has(&u->attrs, A_BWD)};
    Attrs as = hd_attrs_copy(g->m->cx, &view->attrs);
    hd_set_word(g->m->cx, &as, A_BUFFER, g->all.at[open].buffer->name);
    return hd_build1(&b, OP_VIEW, NULL, NULL, &as, bias->type);
}

// --- one addition for each reader; readers in one kernel share one again
static bool add_for_each_reader(const Gathered *g, const Uses *uses, Op *add, int product) {
    Ctx *cx = g->m->cx;
    int id = add->out[0]->id;
    bool changed = false;
    for (int i = 0; i < uses->count[id]; i++) {
        Op *u = uses->users[id][i];
        if (i && u == uses->users[id][i - 1]) continue;
        Value *bias = bias_at(g, add->in[1 - product], u), *in[2];
        if (!bias) continue;
        in[product] = add->in[product];
        in[1 - product] = bias;
        Op *own = hd_op_clone(add->func, add, in);
        if (hd_has(&u->attrs, A_BWD)) hd_set_flag(cx, &own->attrs, A_BWD);
        if (hd_has(&u->attrs, A_BWD) && !hd_has(&add->attrs, A_BWD)) hd_set_flag(cx, &own->attrs, A_RECOMPUTED);
        hd_insert_before(u, own);
        for (int j = 0; j < u->n_in; j++)
            if (u->in[j] == add->out[0]) u->in[j] = own->out[0];
        changed = true;
    }
    return changed;
}

bool hd_fuse_add_for_readers(Func *f, const Uses *uses, Arena *a) {
    const bool *epilogue = hd_fuse_epilogue_biases(f, uses, a);
    Gathered g = find_gathered(f, a);
    VEC(Op *) adds = {0}; // chosen before the first change: values made here have no place in `epilogue` and `uses`
    bool changed = false;
    for (Op *o = f->first; o; o = o->next) {
        const int product = hd_gemm_bias(o, uses);
        if (product < 0 || epilogue[o->in[1 - product]->id] || uses->count[o->out[0]->id] < 2) continue;
        hd_push(a, &adds, o);
    }
    for (int i = 0; i < adds.n; i++)
        changed |= add_for_each_reader(&g, uses, adds.at[i], hd_gemm_bias(adds.at[i], uses));
    return changed;
}

// --- what no kernel took
void hd_fuse_epilogues(Func *f, PassCx *cx) {
    const Uses uses = hd_uses(f, cx->scratch);
    for (Op *add = f->first, *next; add; add = next) {
        next = add->next;
        const int product = hd_gemm_bias(add, &uses);
        if (product < 0) continue;
        Op *p = add->in[product]->def, *g = hd_gemm_of(p, add->in[1 - product]);
        if (add->loc.path) g->loc = add->loc;
        const char *wrong = hd_infer(g, 1, (const Type *const[]){add->out[0]->type});
        if (wrong) HD_BUG("gemm: %s", wrong);
        hd_insert_before(add, g);
        hd_redirect(&uses, add->out[0], g->out[0]);
        hd_erase(add);
        hd_erase(p);
        hd_count(cx, "bias epilogues", 1);
    }
    hd_renumber(f);
}
