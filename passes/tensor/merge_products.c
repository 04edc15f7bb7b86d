// Products of one operand with neighbouring weights, as one product. The weights of q, k and v lie one after another in
// their bucket, so that they are one matrix:
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
// where three products and two sums round five times, so it is a setting of `train`. What is merged depends on the
// model alone (hd_bucket_adjoins), so the numbers are the same under every schedule and on every mesh.
#include "passes/tensor/merge_products.h"
#include "passes/fsdp/bucket_layout.h"
#include "passes/settings.h"
#include <string.h>

typedef struct { Module *m; PassCx *cx; Func *f; Uses uses; int64_t merged, into; } Merger;

static bool read_once(const Merger *g, const Value *v) { return g->uses.count[v->id] == 1; }

static bool is_plain_product(const Merger *g, const Op *o) { // x w' of a weight that nothing else reads
    return o && o->kind == OP_MATMUL && o->attrs.n == 1 && hd_has(&o->attrs, A_TB) && o->out[0]->type->rank == 3 &&
           read_once(g, o->out[0]) && o->in[1]->def && o->in[1]->def->kind == OP_PARAM &&
           !hd_has(&o->in[1]->def->attrs, A_ALSO) && o->in[1]->type->rank == 2 && read_once(g, o->in[1]);
}

static bool adjoin(const Op *product, const Op *next) { // their weights
    return hd_bucket_adjoins(hd_op_param(product->in[1]->def, 0), hd_op_param(next->in[1]->def, 0));
}

typedef struct {
    Op *attention, *rope[2], *product[3]; // rope: of q and k, or neither has one
} Heads;

// The rotations of q and k are one: they differ in the number of heads, which is that of the attention.
static bool same_rope(const Merger *g, const Heads *h) {
    const int64_t heads[] = {hd_int(&h->attention->attrs, A_HEADS, 1),
                             hd_int(&h->attention->attrs, A_KV_HEADS, hd_int(&h->attention->attrs, A_HEADS, 1))};
    Attrs as[2];
    for (int i = 0; i < 2; i++) {
        as[i] = hd_attrs_copy(g->m->cx, &h->rope[i]->attrs);
        if (hd_int(&as[i], A_HEADS, 1) != heads[i] || hd_has(&as[i], A_TURNED)) return false;
        hd_unset(&as[i], A_HEADS);
    }
    return hd_attrs_equal(&as[0], &as[1]);
}

static bool find_heads(const Merger *g, Op *attention, Heads *h) {
    *h = (Heads){.attention = attention};
    if (hd_has(&attention->attrs, A_PACKED)) return false;
    for (int i = 0; i < 3; i++) {
        Op *o = attention->in[i]->def;
        if (!o || !read_once(g, o->out[0])) return false;
        if (i < 2 && o->kind == OP_ROPE) {
            h->rope[i] = o;
            o = o->in[0]->def;
        }
        if (!is_plain_product(g, o)) return false;
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
    for (int i = 0; i < n; i++) names[i] = hd_op_param(products[i]->in[1]->def, 0)->name;
    hd_set_word(cx, &as, A_PARAM, names[0]);
    hd_set_words(cx, &as, A_ALSO, n - 1, names + 1);
    Value *w = hd_build1(b, OP_PARAM, NULL, NULL, &as, NULL);
    return hd_build1(b, OP_MATMUL, products[0]->in[0], w, &products[0]->attrs, NULL);
}

static void erase_product(Op *product) {
    Op *w = product->in[1]->def;
    hd_erase(product);
    hd_erase(w);
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
        y = hd_build1(&b, OP_ROPE, y, NULL, &as, NULL);
    }
    int64_t at = 0;
    for (int i = 0; i < 3; i++) {
        const int64_t size = h->product[i]->out[0]->type->dim[2];
        Attrs as = {0};
        hd_set_int(cx, &as, A_AXIS, 2);
        hd_set_int(cx, &as, A_START, at);
        hd_set_int(cx, &as, A_SIZE, size);
        b.loc = h->product[i]->loc;
        b.span = h->product[i]->span;
        h->attention->in[i] = hd_build1(&b, OP_SLICE, y, NULL, &as, NULL);
        at += size;
    }
    for (int i = 0; i < 3; i++) {
        if (i < 2 && h->rope[i]) hd_erase(h->rope[i]);
        erase_product(h->product[i]);
    }
    g->merged += 3;
    g->into++;
}

void hd_merge_products(Module *m, Func *loss, PassCx *cx) {
    Merger g = {.m = m, .cx = cx, .f = loss};
    if (strcmp(hd_word(hd_settings(m, "train"), A_PRODUCT_FORM, "separate"), "merged") != 0) return;
    hd_renumber(loss);
    g.uses = hd_uses(loss, cx->scratch);
    VEC(Op *) attentions = {0};
    for (Op *o = loss->first; o; o = o->next)
        if (o->kind == OP_ATTENTION) hd_push(cx->scratch, &attentions, o);
    for (int i = 0; i < attentions.n; i++) {
        Heads h;
        if (find_heads(&g, attentions.at[i], &h)) merge_heads(&g, &h);
    }
    hd_count(cx, "products merged", g.merged);
    hd_set_ints(m->cx, &hd_symbol_find(m, "train")->attrs, A_MERGED, 2, (int64_t[]){g.merged, g.into});
    hd_renumber(loss);
}
