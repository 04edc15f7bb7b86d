// The norm of the gradients beside the backward pass. grad_norm reads every gradient once more when the last of them is
// complete. Its sums of squares, one for each run of elements, can be taken of each gradient as soon as that one is
// complete; only their sum is left for the end. They are added in the same order, so the norm has the same bits.
//   gemm %dy, %x {into = @b.grad}                 gemm %dy, %x {into = @b.grad}
//   ...                                           %s = square_sums {buffers = [@b.grad]} : f64[9]
//   ...                                    ->     store %s {into = @f.norm.part, offset = 4}
//   ...                                           ...
//   %n = grad_norm {buffers = [@a.grad, @b.grad]} %v = view {buffer = @f.norm.part, offset = 0} : f64[13]
//                                                 %n = root_sum %v
#include "ir/base/ints.h"
#include "passes/analysis/access.h"
#include "passes/analysis/redirect.h"
#include "passes/schedule/schedule.h"

static Op *find_norm(const Func *f) {
    for (Op *o = f->first; o; o = o->next)
        if (o->kind == OP_GRAD_NORM) return o;
    return NULL;
}

// By symbol id: the last op before `end` that writes a buffer.
static Op **last_writers(Func *f, const Op *end, Arena *a) {
    Op **last = HD_NEWN(a, Op *, f->module->n_symbols + 1);
    Accesses list = {0};
    for (Op *o = f->first; o != end; o = o->next) {
        hd_accesses(o, a, &list);
        for (int i = 0; i < list.n; i++)
            if (list.at[i].at == AT_BUFFER && list.at[i].write && !list.at[i].order) last[list.at[i].buffer->id] = o;
    }
    return last;
}

static int64_t squares_of(const Symbol *b) { return hd_ceil_div(hd_type_count(b->type), HD_NORM_BLOCK); }

static Symbol *add_parts(Func *f, int64_t n) {
    Module *m = f->module;
    Symbol *s = hd_symbol_add(m, SYM_BUFFER, hd_free_name(m, hd_internf(m->cx, "%s.norm.part", f->name)), NULL);
    s->type = hd_type(m->cx, TY_F64, 1, &n);
    hd_set_word(m->cx, &s->attrs, A_CLASS, "staging");
    hd_set_flag(m->cx, &s->attrs, A_TRANSIENT);
    return s;
}

// The life of the sums begins before the first of them.
static void begin(Op *before, const Symbol *parts, const char *stream) {
    Builder b = hd_builder_before(before);
    Attrs as = {0};
    hd_set_word(before->func->module->cx, &as, A_LIFE, parts->name);
    hd_build(&b, OP_BEGIN, 0, NULL, &as, NULL)->stream = stream;
}

// The sums of one gradient, directly after the op that completes it.
static void add_squares(Op *after, const Symbol *grad, const Symbol *parts, int64_t offset, const char *stream) {
    Func *f = after->func;
    Ctx *cx = f->module->cx;
    Builder b = {.f = f, .before = after->next, .loc = after->loc, .span = after->span, .bwd = true};
    Attrs as = {0};
    const int64_t n = squares_of(grad);
    hd_set_words(cx, &as, A_BUFFERS, 1, (const char *[]){grad->name});
    Value *sums = hd_build1(&b, OP_SQUARE_SUMS, NULL, NULL, &as, hd_type(cx, TY_F64, 1, &n));
    as = (Attrs){0};
    hd_set_int(cx, &as, A_OFFSET, offset);
    hd_set_word(cx, &as, A_INTO, parts->name);
    Op *store = hd_build(&b, OP_STORE, 1, &sums, &as, NULL);
    store->stream = sums->def->stream = stream;
}

bool hd_norm_beside(Func *f, const char *main, const char *beside, Arena *a) {
    Op *norm = find_norm(f);
    const Attr *list = norm ? hd_attr(&norm->attrs, A_BUFFERS) : NULL;
    Op **last = norm ? last_writers(f, norm, a) : NULL;
    Module *m = f->module;
    Op *first = norm;
    int64_t n = 0;
    for (int i = 0; list && i < list->n; i++) {
        const Symbol *b = hd_symbol_find(m, list->strs[i]);
        if (!b || !hd_stays(m, b) || !last[b->id]) return false;
        if (last[b->id]->id < first->id) first = last[b->id];
        n += squares_of(b);
    }
    if (!n) return false;
    const Symbol *parts = add_parts(f, n);
    begin(first, parts, beside);
    int64_t at = 0;
    for (int i = 0; i < list->n; i++) {
        const Symbol *b = hd_symbol_find(m, list->strs[i]);
        add_squares(last[b->id], b, parts, at, beside);
        at += squares_of(b);
    }
    const Uses uses = hd_uses(f, a);
    Builder b = hd_builder_before(norm);
    Attrs as = {0};
    hd_set_word(m->cx, &as, A_BUFFER, parts->name);
    hd_set_int(m->cx, &as, A_OFFSET, 0);
    Value *all = hd_build1(&b, OP_VIEW, NULL, NULL, &as, parts->type);
    const Attr *scale = hd_attr(&norm->attrs, A_LOSS_SCALE);
    as = (Attrs){0};
    if (scale) hd_set_attr(m->cx, &as, scale);
    Value *root = hd_build1(&b, OP_ROOT_SUM, all, NULL, &as, NULL);
    all->def->stream = root->def->stream = main;
    hd_redirect(&uses, norm->out[0], root);
    hd_erase(norm);
    hd_renumber(f);
    return true;
}
