// Products of one operand with neighbouring weights, as one product: those of q, k and v, and those that are read by
// pointwise ops alone, such as the gate of an MLP and what it gates. Their weights lie one after another in their
// bucket, so that they are one matrix:
//
//   %q = matmul %x, %wq {tb}                         %w = param {param = @wq, also = [@wk, @wv]}
//   %k = matmul %x, %wk {tb}                         %y = matmul %x, %w {tb}
//   %v = matmul %x, %wv {tb}                         %r = rope %y {heads = 12, turned = 10}
//   %q2 = rope %q {heads = 8}                  ->    %q2 = slice %r;  %k2 = slice %r;  %v2 = slice %r
//   %k2 = rope %k {heads = 2}                        %o, %l = attention %q2, %k2, %v2
//   %o, %l = attention %q2, %k2, %v
//
// The pass `fuse` makes packed attention of it. Autodiff makes one product of the three gradients of weights, and one
// of the three parts of the gradient of %x: dq wq + dk wk + dv wv is added up inside of the product. That rounds once
// where three products and two sums round five times, so it is a setting of `train`. The merged products depend on the
// model alone (hd_bucket_adjoins), so the numbers are the same under every schedule and on every mesh.
#include "passes/tensor/merge_products.h"
#include "ir/shapes.h"
#include "passes/analysis/redirect.h"
#include "passes/fsdp/bucket_layout.h"
#include "passes/settings.h"
#include <stdlib.h>
#include <string.h>

typedef struct { Module *m; PassCx *cx; Func *f; Uses uses; int64_t merged, into; } Merger;

static bool read_once(const Merger *g, const Value *v) { return g->uses.count[v->id] == 1; }

static Op *cast_of(const Op *product) { // of its weights, to the type of compute; NULL: there is none
    Op *o = product->in[1]->def;
    return o && o->kind == OP_CAST ? o : NULL;
}

static Op *weights_of(const Op *product) { // the op that reads them; NULL: they are something else
    const Op *cast = cast_of(product);
    return (cast ? cast->in[0] : product->in[1])->def;
}

static bool is_plain_product(const Merger *g, const Op *o) { // x w' of a weight that nothing else reads
    if (!o || o->kind != OP_MATMUL || o->attrs.n != 1 || !hd_has(&o->attrs, A_TB)) return false;
    const Op *w = weights_of(o), *cast = cast_of(o);
    return w && hd_param_read(w, 0) && !hd_has(&w->attrs, A_ALSO) && w->out[0]->type->rank == 2 &&
           read_once(g, w->out[0]) && (!cast || read_once(g, cast->out[0]));
}

static bool adjoin(const Op *product, const Op *next) { // their weights
    const Op *casts[] = {cast_of(product), cast_of(next)};
    return !casts[0] == !casts[1] && product->in[1]->type->dtype == next->in[1]->type->dtype &&
           hd_bucket_adjoins(hd_op_param(weights_of(product), 0), hd_op_param(weights_of(next), 0));
}

typedef struct {
    Op *attention, *rope[2], *product[3]; // rope: of q and k, or neither has one
} Heads;

// The rotations of q and k are one: they differ in the number of heads, which is that of the attention.
static bool same_rope(const Merger *g, const Heads *h) {
    const int64_t heads[] = {hd_int(&h->attention->attrs, A_HEADS, 1),
                             hd_int(&h->attention->attrs, A_KV_HEADS, hd_int(&h->attention->attrs, A_HEADS, 1))};
    Attrs as[2];
    if (h->rope[0]->n_in != h->rope[1]->n_in || (h->rope[0]->n_in > 1 && h->rope[0]->in[1] != h->rope[1]->in[1]))
        return false;
    for (int i = 0; i < 2; i++) {
        as[i] = hd_attrs_copy(g->m->cx, &h->rope[i]->attrs);
        if (hd_int(&as[i], A_HEADS, 1) != heads[i] || hd_has(&as[i], A_TURNED)) return false;
        hd_unset(&as[i], A_HEADS);
    }
    return hd_attrs_equal(&as[0], &as[1]);
}

static int operand(const Op *attention, int i) { // of q, k and v
    return attention->kind == OP_ATTENTION_STEP ? hd_step_parts(attention).in[i] : i;
}

static bool find_heads(const Merger *g, Op *attention, Heads *h) {
    *h = (Heads){.attention = attention};
    if (hd_has(&attention->attrs, A_PACKED)) return false;
    for (int i = 0; i < 3; i++) {
        Op *o = attention->in[operand(attention, i)]->def;
        if (!o || !read_once(g, o->out[0])) return false;
        if (i < 2 && o->kind == OP_ROPE) {
            h->rope[i] = o;
            o = o->in[0]->def;
        }
        if (!is_plain_product(g, o) || !read_once(g, o->out[0]) || o->out[0]->type->rank != 3) return false;
        h->product[i] = o;
    }
    for (int i = 1; i < 3; i++)
        if (h->product[i]->in[0] != h->product[0]->in[0] || !adjoin(h->product[i - 1], h->product[i])) return false;
    return h->rope[0] && h->rope[1] ? same_rope(g, h) : !h->rope[0] && !h->rope[1];
}

static Value *merged_product(const Merger *g, Builder *b, int n, Op *const *products) {
    Ctx *cx = g->m->cx;
    const char *names[HD_MAX_IN];
    Attrs as = {0};
    for (int i = 0; i < n; i++) names[i] = hd_op_param(weights_of(products[i]), 0)->name;
    hd_set_word(cx, &as, A_PARAM, names[0]);
    hd_set_words(cx, &as, A_ALSO, n - 1, names + 1);
    Value *w = hd_build1(b, OP_PARAM, NULL, NULL, &as, NULL);
    if (cast_of(products[0])) w = hd_build1(b, OP_CAST, w, NULL, &cast_of(products[0])->attrs, NULL);
    return hd_build1(b, OP_MATMUL, products[0]->in[0], w, &products[0]->attrs, NULL);
}

static void erase_product(Op *product) {
    Op *w = weights_of(product), *cast = cast_of(product);
    hd_erase(product);
    if (cast) hd_erase(cast);
    hd_erase(w);
}

// The columns of `y` that are the product's, from `at` on; `at` moves behind them.
static Value *part(Builder *b, Value *y, const Op *product, int64_t *at) {
    Ctx *cx = b->f->module->cx;
    const int64_t size = hd_type_cols(product->out[0]->type);
    Attrs as = {0};
    hd_set_int(cx, &as, A_AXIS, y->type->rank - 1);
    hd_set_int(cx, &as, A_START, *at);
    hd_set_int(cx, &as, A_SIZE, size);
    b->loc = product->loc;
    b->span = product->span;
    *at += size;
    return hd_build1(b, OP_SLICE, y, NULL, &as, NULL);
}

static void merge_heads(Merger *g, const Heads *h) {
    Ctx *cx = g->m->cx;
    Builder b = hd_builder_before(h->attention);
    Value *y = merged_product(g, &b, 3, h->product);
    if (h->rope[0]) {
        const int64_t q = hd_int(&h->rope[0]->attrs, A_HEADS, 1), k = hd_int(&h->rope[1]->attrs, A_HEADS, 1);
        Attrs as = hd_attrs_copy(cx, &h->rope[0]->attrs);
        hd_set_int(cx, &as, A_HEADS, q + 2 * k);
        hd_set_int(cx, &as, A_TURNED, q + k);
        y = hd_build1(&b, OP_ROPE, y, h->rope[0]->n_in > 1 ? h->rope[0]->in[1] : NULL, &as, NULL);
    }
    int64_t at = 0;
    for (int i = 0; i < 3; i++) h->attention->in[operand(h->attention, i)] = part(&b, y, h->product[i], &at);
    for (int i = 0; i < 3; i++) {
        if (i < 2 && h->rope[i]) hd_erase(h->rope[i]);
        erase_product(h->product[i]);
    }
    g->merged += 3;
    g->into++;
}

// --- products that pointwise ops read

// Whether kernels can take their parts of rows: nothing else reads them, and no sum with a bias becomes an epilogue.
static bool read_pointwise(const Merger *g, const Op *product) {
    const Value *v = product->out[0];
    for (int i = 0; i < g->uses.count[v->id]; i++) {
        const Op *u = g->uses.users[v->id][i];
        if (!hd_op_is(u, TRAIT_ELEMENTWISE) || u->out[0]->type != v->type) return false;
        for (int k = 0; k < u->n_in; k++)
            if (u->kind == OP_ADD && u->in[k]->type != v->type) return false;
    }
    return g->uses.count[v->id] > 0 && v->type->rank >= 2;
}

// The products from `first` on that become one: `n` at most. Each has the weights behind those of the one before.
static int siblings(const Merger *g, Op *const *first, int n) {
    int k = 1;
    if (!read_pointwise(g, first[0])) return 1;
    while (k < n && k < HD_MAX_IN && first[k]->in[0] == first[0]->in[0] &&
           first[k]->out[0]->type == first[0]->out[0]->type && adjoin(first[k - 1], first[k]) &&
           read_pointwise(g, first[k]))
        k++;
    return k;
}

static void merge_siblings(Merger *g, int n, Op *const *products) {
    Op *first = products[0];
    for (int i = 1; i < n; i++)
        if (products[i]->id < first->id) first = products[i];
    Builder b = hd_builder_before(first); // and so before what reads any of them
    int64_t at = 0;
    Value *y = merged_product(g, &b, n, products);
    for (int i = 0; i < n; i++) {
        Value *now = part(&b, y, products[i], &at);
        hd_redirect(&g->uses, products[i]->out[0], now);
    }
    for (int i = 0; i < n; i++) erase_product(products[i]);
    g->merged += n;
    g->into++;
}

static int by_weight(const void *x, const void *y) {
    const Op *a = *(Op *const *)x, *b = *(Op *const *)y;
    const int64_t i = hd_int(&hd_op_param(weights_of(a), 0)->attrs, A_INDEX, 0),
                  k = hd_int(&hd_op_param(weights_of(b), 0)->attrs, A_INDEX, 0);
    return i < k ? -1 : i > k;
}

static void merge_pointwise(Merger *g) {
    VEC(Op *) products = {0};
    for (Op *o = g->f->first; o; o = o->next)
        if (is_plain_product(g, o)) hd_push(g->cx->scratch, &products, o);
    if (products.n) qsort(products.at, (size_t)products.n, sizeof *products.at, by_weight);
    for (int i = 0, n; i < products.n; i += n) {
        n = siblings(g, products.at + i, products.n - i);
        if (n > 1) merge_siblings(g, n, products.at + i);
    }
}

static void merge(Merger *g) {
    Arena *a = g->cx->scratch;
    hd_renumber(g->f);
    g->uses = hd_uses(g->f, a);
    VEC(Op *) attentions = {0};
    for (Op *o = g->f->first; o; o = o->next)
        if (hd_attends(o) || o->kind == OP_ATTENTION_STEP) hd_push(a, &attentions, o);
    for (int i = 0; i < attentions.n; i++) {
        Heads h;
        if (find_heads(g, attentions.at[i], &h)) merge_heads(g, &h);
    }
    hd_renumber(g->f);
    g->uses = hd_uses(g->f, a);
    merge_pointwise(g);
    hd_renumber(g->f);
}

void hd_merge_token_products(Module *m, Func *decode, PassCx *cx) {
    Merger g = {.m = m, .cx = cx, .f = decode};
    if (strcmp(hd_word(hd_settings(m, "target"), A_TARGET, "host"), "cuda") != 0) return;
    merge(&g);
    hd_count(cx, "products of a token merged", g.merged);
}

void hd_merge_products(Module *m, Func *loss, PassCx *cx) {
    Merger g = {.m = m, .cx = cx, .f = loss};
    if (strcmp(hd_word(hd_settings(m, "train"), A_PRODUCT_FORM, "separate"), "merged") != 0) return;
    merge(&g);
    hd_count(cx, "products merged", g.merged);
    if (!g.merged)
        hd_warning(m->cx, hd_symbol_find(m, "train")->span,
                   "train.products = merged changes nothing: no products of one operand with weights of one dtype can "
                   "become one");
    hd_set_ints(m->cx, &hd_symbol_find(m, "train")->attrs, A_MERGED, 2, (int64_t[]){g.merged, g.into});
}
