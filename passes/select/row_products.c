// Kernels of kind `product`: the product of one row, as of a token that is written, together with the kernel that makes
// the row (a norm, what is added before it) and with the kernel that reads the result: pointwise work (an activation, a
// gate, a cast of logits) or a rotation by positions. Such a product waits for the kernels before it longer than it
// computes, so fewer kernels are less time; every block makes the row for itself, which is a few KB. The values are
// those of the kernels alone: what was stored between them is rounded as the store did.
//
//   %h, %y = launch %p, %b, %x, .. {kernel = @k6}     kernel @k12(%x0: .., ..) -> .. with {kind = product} {
//   %z = gemm %y, %w {tb, impl = gemv}           ->     ... %4, %5 = rms_norm ..   %6 = cast %4 {out = bf16}
//   %a = launch %z {kernel = @k7}                       %7 = gemm %6, %x3 {tb, impl = gemv}   %8 = cast %7
//                                                       %9 = gelu %8   return %9, %2 }
//                                                     %a, %h = launch %p, %b, %x, %w .. {kernel = @k12}
#include "passes/select/row_products.h"
#include "ir/row_product.h"
#include "passes/analysis/kernel_texts.h"

typedef struct {
    Func *f;
    PassCx *cx;
    Uses uses;
    KernelTexts *kernels;
} Products;

// The op that reads v, through reshapes, if there is one.
static Op *only_reader(const Products *p, const Value *v) {
    if (p->uses.count[v->id] != 1) return NULL;
    Op *o = p->uses.users[v->id][0];
    return hd_op_is(o, TRAIT_ALIAS) ? only_reader(p, o->out[0]) : o;
}

static bool read_before(const Products *p, const Value *v, const Op *but, const Op *at) { // by an op before `at`
    for (int i = 0; i < p->uses.count[v->id]; i++) {
        const Op *o = p->uses.users[v->id][i];
        if (hd_op_is(o, TRAIT_ALIAS) ? read_before(p, o->out[0], but, at) : o != but && o->id < at->id) return true;
    }
    return false;
}

// Between two ops nothing writes to a buffer, which one of them may read.
static bool quiet(const Op *from, const Op *to) {
    for (const Op *o = from->next; o && o != to; o = o->next)
        if (!hd_is_pure(o) && !hd_op_is(o, TRAIT_SOURCE)) return false;
    return true;
}

static Op *finisher_of(const Products *p, const Op *g) { // the launch that reads the result of g and can go with it
    Op *l = only_reader(p, g->out[0]);
    if (!l || !hd_op_is(l, TRAIT_LAUNCH)) return NULL;
    int at = -1;
    for (int i = 0; i < l->n_in; i++)
        if (hd_unaliased(l->in[i]) == g->out[0]) at = i;
    return hd_row_finisher(hd_launched(l), at, g) && quiet(g, l) ? l : NULL;
}

static bool finishes(const Products *p, const Op *l) { // another product
    for (int i = 0; i < l->n_in; i++) {
        const Op *g = hd_unaliased(l->in[i])->def;
        if (g && hd_row_product(g) && finisher_of(p, g) == l) return true;
    }
    return false;
}

// The launch that makes the row of g and can go with it. What can go with the product before it does so: there each
// number is computed once, and not by every block.
static Op *maker_of(const Products *p, const Op *g) {
    Op *l = hd_unaliased(g->in[0])->def;
    if (!l || !hd_op_is(l, TRAIT_LAUNCH) || only_reader(p, hd_unaliased(g->in[0])) != g) return NULL;
    if (finishes(p, l)) return NULL;
    return hd_row_maker(hd_launched(l), hd_unaliased(g->in[0])->index, hd_type_cols(g->in[0]->type)) ? l : NULL;
}

// The maker can go to where `at` is: what it reads is still there, and nothing between them reads its results.
static bool may_sink(const Products *p, const Op *maker, const Op *g, const Op *at) {
    if (!quiet(maker, at)) return false;
    for (int i = 0; i < maker->n_out; i++)
        if (read_before(p, maker->out[i], g, at)) return false;
    for (int i = 0; i < at->n_in; i++)
        if (at != g && hd_unaliased(at->in[i])->def == maker) return false;
    return true;
}

// --- the kernel

typedef struct {
    Products *p;
    Func *k;
    VEC(Value *) args;     // of the launch
    VEC(Value *) returned; // of the kernel
    VEC(Value *) results;  // of the function
} Kernel;

static Value *argument(Kernel *k, Value *v) {
    for (int i = 0; i < k->args.n; i++)
        if (k->args.at[i] == v) return k->k->args[i];
    hd_push(k->p->cx->scratch, &k->args, v);
    return hd_arg_add(k->k, v->type, hd_internf(k->k->module->cx, "x%d", k->args.n - 1));
}

static Value *rounded(Kernel *k, Value *v) { // as a store rounds it; a value of a kernel is not
    Builder b = {.f = k->k};
    Attrs as = {0};
    if (!v->def || v->def->kind == OP_CAST || !hd_dtype_is_narrow(v->type->dtype)) return v;
    hd_set_word(k->k->module->cx, &as, A_OUT, hd_intern(k->k->module->cx, hd_dtype_text(v->type->dtype)));
    return hd_build1(&b, OP_CAST, v, NULL, &as, NULL);
}

static Value *in_type(Kernel *k, Value *v, const Type *t) {
    Builder b = {.f = k->k};
    return v->type == t ? v : hd_build1(&b, OP_RESHAPE, v, NULL, NULL, t);
}

// The body of the kernel that `l` launches, of these operands; `now`: by its values, those of the new kernel.
static Value **take_body(Kernel *k, const Op *l, Value *const *in) {
    const Func *body = hd_launched(l);
    Value **now = HD_NEWN(k->p->cx->scratch, Value *, body->n_values + 1);
    for (int i = 0; i < l->n_in; i++) now[body->args[i]->id] = in[i];
    for (const Op *o = body->first; o && !hd_op_is(o, TRAIT_RETURN); o = o->next) {
        Value *x[HD_MAX_IN];
        for (int i = 0; i < o->n_in; i++) x[i] = now[o->in[i]->id];
        Op *c = hd_op_clone(k->k, o, x);
        hd_append(k->k, c);
        for (int i = 0; i < o->n_out; i++) now[o->out[i]->id] = c->out[i];
    }
    return now;
}

static void give(Kernel *k, Value *in_kernel, Value *v) {
    hd_push(k->p->cx->scratch, &k->returned, in_kernel);
    hd_push(k->p->cx->scratch, &k->results, v);
}

static Value *make_row(Kernel *k, const Op *maker, const Op *g) {
    if (!maker) return in_type(k, argument(k, hd_unaliased(g->in[0])), g->in[0]->type);
    Value *in[HD_MAX_IN];
    for (int i = 0; i < maker->n_in; i++) in[i] = argument(k, maker->in[i]);
    Value **now = take_body(k, maker, in);
    const Op *ret = hd_return(hd_launched(maker));
    for (int i = 0; i < maker->n_out; i++)
        if (maker->out[i] != hd_unaliased(g->in[0])) give(k, now[ret->in[i]->id], maker->out[i]);
    return in_type(k, rounded(k, now[ret->in[hd_unaliased(g->in[0])->index]->id]), g->in[0]->type);
}

static void finish(Kernel *k, const Op *finisher, const Op *g, Value *y) {
    if (!finisher) {
        give(k, y, g->out[0]);
        return;
    }
    Value *in[HD_MAX_IN];
    y = rounded(k, y);
    for (int i = 0; i < finisher->n_in; i++)
        in[i] = hd_unaliased(finisher->in[i]) == g->out[0] ? in_type(k, y, finisher->in[i]->type)
                                                           : argument(k, finisher->in[i]);
    Value **now = take_body(k, finisher, in);
    const Op *ret = hd_return(hd_launched(finisher));
    for (int i = 0; i < finisher->n_out; i++) give(k, now[ret->in[i]->id], finisher->out[i]);
}

static void fuse(Products *p, Op *maker, Op *g, Op *finisher) {
    Module *m = p->f->module;
    Kernel k = {.p = p, .k = hd_kernel_open(p->kernels, m, KIND_PRODUCT)};
    Value *in[HD_MAX_IN];
    in[0] = make_row(&k, maker, g);
    for (int i = 1; i < g->n_in; i++) in[i] = argument(&k, g->in[i]);
    Op *product = hd_op_clone(k.k, g, in);
    product->loc = (Loc){0};
    hd_append(k.k, product);
    finish(&k, finisher, g, product->out[0]);
    bool fresh;
    const char *name = hd_kernel_close(p->kernels, k.k, k.returned.n, k.returned.at, &fresh);
    if (fresh) hd_count(p->cx, "row products with what is around them", 1);
    Op *l = hd_op_new(p->f, OP_LAUNCH, k.args.n, k.args.at), *last = finisher ? finisher : g;
    const Type *types[HD_MAX_OUT];
    for (int i = 0; i < k.results.n; i++) types[i] = k.results.at[i]->type;
    hd_set_word(m->cx, &l->attrs, A_KERNEL, name);
    l->loc = g->loc;
    l->span = g->span;
    const char *wrong = hd_infer(l, k.results.n, types);
    if (wrong) HD_BUG("launch of @%s: %s", name, wrong);
    hd_insert_before(last, l);
    for (int i = 0; i < k.results.n; i++) hd_replace_uses(k.results.at[i], l->out[i]);
    Op *between = g->in[0]->def, *after = NULL; // reshapes that nothing reads any more
    if (finisher)
        for (int i = 0; i < finisher->n_in; i++)
            if (hd_unaliased(finisher->in[i]) == g->out[0]) after = finisher->in[i]->def;
    if (finisher) hd_erase(finisher);
    while (after && after != g) {
        Op *before = after->in[0]->def;
        hd_erase(after);
        after = before;
    }
    hd_erase(g);
    while (maker && between != maker) {
        Op *before = between->in[0]->def;
        hd_erase(between);
        between = before;
    }
    if (maker) hd_erase(maker);
}

static void start(Products *p) {
    hd_renumber(p->f);
    p->uses = hd_uses(p->f, p->cx->scratch);
}

// From the end, so that the last of several products takes what reads them all.
void hd_select_row_products(Func *f, PassCx *cx) {
    Products p = {.f = f, .cx = cx, .kernels = hd_kernel_texts(cx->scratch)};
    start(&p);
    for (Op *g = f->last, *prev; g; g = prev) {
        prev = g->prev;
        if (!hd_row_product(g)) continue;
        Op *finisher = finisher_of(&p, g), *maker = maker_of(&p, g);
        if (maker && !may_sink(&p, maker, g, finisher ? finisher : g)) maker = NULL;
        if (!maker && !finisher) continue;
        while (prev && (prev == maker || (hd_op_is(prev, TRAIT_ALIAS) && maker))) prev = prev->prev;
        const int n = (maker ? maker->n_in : 1) + (finisher ? finisher->n_in : 1) + g->n_in;
        const int results = (maker ? maker->n_out - 1 : 0) + (finisher ? finisher->n_out : 1);
        if (n > HD_MAX_IN || results > HD_MAX_OUT) continue;
        fuse(&p, maker, g, finisher);
        start(&p);
    }
}
