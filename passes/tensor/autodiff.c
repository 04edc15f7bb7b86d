// Reverse mode. The function of kind loss becomes that of kind eval; the one of kind micro is a copy of it followed by
// its backward pass, in reverse program order:
//   func @loss(%x, %y) { %w = param @w; %z = matmul %x, %w; %l = cross_entropy %z, %y; return %l }
//   func @micro(%x, %y) { %w = param @w; %z = matmul %x, %w; %d = const scale/micro {per_rank, bwd}
//                         %l, %dz = cross_entropy_grad %z, %y, %d {bwd}
//                         %dw = matmul %x, %dz {ta, bwd}; grad %dw {param = @w, bwd}; return %l }
// Only values that a parameter reaches get a gradient; a frozen one and a buffer count as data. A gradient that is
// added to a buffer is a `grad` of the forward pass, which the function of kind micro alone keeps. Every contribution
// to a parameter is a `grad` op of its own, made as soon as it is known: a weight gradient never waits for the end of
// the pass.
#include "passes/tensor/autodiff.h"
#include "ir/optimizer.h"
#include "ir/dropout.h"
#include "ir/shapes.h"
#include "passes/pass.h"
#include "passes/settings.h"
#include "passes/tensor/loss_scale.h"
#include "passes/tensor/merge_products.h"

bool hd_grad_wanted(const Autodiff *d, const Value *v) { return v->id < d->n_forward && d->active[v->id]; }

static Value *fit(Autodiff *d, Value *dv, const Type *t) {
    Ctx *cx = d->b.f->module->cx;
    const Type *same = hd_type_with(cx, dv->type->dtype, t);
    if (dv->type != same) dv = hd_build1(&d->b, OP_SUM_TO, dv, NULL, NULL, same);
    return hd_build_cast(&d->b, dv, t->dtype);
}

void hd_grad_add(Autodiff *d, Value *v, Value *contribution) {
    if (!hd_grad_wanted(d, v)) return;
    Value *dv = fit(d, contribution, v->type), **sum = &d->grad[v->id];
    if (hd_param_read(v->def, 0)) {
        Attrs as = {0};
        const Attr *also = hd_attr(&v->def->attrs, A_ALSO);
        hd_set_word(d->b.f->module->cx, &as, A_PARAM, hd_word(&v->def->attrs, A_PARAM, ""));
        if (also) hd_set_attr(d->b.f->module->cx, &as, also);
        hd_build(&d->b, OP_GRAD, 1, &dv, &as, NULL);
    } else {
        *sum = *sum ? hd_build1(&d->b, OP_ADD, *sum, dv, NULL, NULL) : dv;
    }
}

// --- slices
static int64_t start_of(const SliceGrad *p) { return hd_int(&p->slice->attrs, A_START, 0); }
static int64_t end_of(const SliceGrad *p) { return start_of(p) + hd_int(&p->slice->attrs, A_SIZE, 0); }
static int64_t axis_of(const SliceGrad *p) { return hd_int(&p->slice->attrs, A_AXIS, 0); }

static Value *zeros(Autodiff *d, const Type *like, int64_t axis, int64_t size) {
    Type t = *like;
    t.dim[axis] = size;
    Attrs as = {0};
    hd_set_float(d->b.f->module->cx, &as, A_VALUE, 0.0);
    return hd_build1(&d->b, OP_CONST, NULL, NULL, &as, hd_type(d->b.f->module->cx, t.dtype, t.rank, t.dim));
}

// Removes a set of disjoint pieces along one axis from the list and returns their concat, with zeros where no slice
// was.
static void give_pieces(Autodiff *d, Value *v, Sliced *s) {
    int64_t axis = axis_of(&s->pieces.at[0]), at = 0, size = v->type->dim[axis];
    VEC(Value *) parts = {0};
    while (at < size) {
        int next = -1; // the first piece from `at` on; the earliest slice where several start together
        for (int i = 0; i < s->pieces.n; i++) {
            const SliceGrad *p = &s->pieces.at[i];
            if (axis_of(p) == axis && start_of(p) >= at && end_of(p) > at &&
                (next < 0 || start_of(p) <= start_of(&s->pieces.at[next])))
                next = i;
        }
        int64_t gap_end = next < 0 ? size : start_of(&s->pieces.at[next]);
        if (gap_end > at) hd_push(d->scratch, &parts, zeros(d, v->type, axis, gap_end - at));
        at = gap_end;
        if (next < 0) break;
        hd_push(d->scratch, &parts, s->pieces.at[next].grad);
        at = end_of(&s->pieces.at[next]);
        for (int i = next + 1; i < s->pieces.n; i++) s->pieces.at[i - 1] = s->pieces.at[i];
        s->pieces.n--;
    }
    Attrs as = {0};
    hd_set_int(d->b.f->module->cx, &as, A_AXIS, axis);
    hd_grad_add(d, v, parts.n == 1 ? parts.at[0] : hd_build(&d->b, OP_CONCAT, parts.n, parts.at, &as, NULL)->out[0]);
}

static void end_slice(Autodiff *d, const Op *o) {
    Sliced *s = &d->sliced[o->in[0]->id];
    if (--s->slices_left > 0) return;
    while (s->pieces.n) give_pieces(d, o->in[0], s);
}

// --- the walk
static bool is_trained(const Symbol *param) {
    return !hd_has(&param->attrs, A_FROZEN) && !hd_has(&param->attrs, A_KERNEL);
}

static void find_active(Autodiff *d, const Func *f) {
    for (const Op *o = f->first; o; o = o->next) {
        bool active = hd_param_read(o, 0) && is_trained(hd_op_param(o, 0));
        for (int i = 0; i < o->n_in; i++) active |= d->active[o->in[i]->id];
        for (int i = 0; i < o->n_out; i++)
            d->active[o->out[i]->id] =
                active && hd_dtype_is_float(o->out[i]->type->dtype) && hd_grad_rule(o->kind) != hd_grad_zero;
        if (o->kind == OP_SLICE) d->sliced[o->in[0]->id].slices_left++;
    }
}

// false after reporting that the gradient cannot pass
static bool walk_op(Autodiff *d, const Op *o) {
    Ctx *cx = o->func->module->cx;
    const char *name = hd_op_info(o->kind)->mnemonic;
    for (int i = 1; i < o->n_out; i++)
        if (d->grad[o->out[i]->id]) {
            hd_error(cx, o->span, "the loss depends on result %d of %s; only result 0 has a gradient", i, name);
            return false;
        }
    Value *dy = o->n_out ? d->grad[o->out[0]->id] : NULL;
    if (dy && hd_grad_rule(o->kind) == hd_grad_none) {
        hd_error(cx, o->span, "the loss depends on a parameter through %s, which has no gradient", name);
        return false;
    }
    const Value *weights = hd_loss_weights(o);
    if (dy && weights && d->active[weights->id])
        return hd_error(cx, o->span,
                        "the loss depends on a parameter through the weights of %s, which have no gradient; give it "
                        "stop_gradient(weights)", name);
    d->b.loc = o->loc;
    d->b.span = o->span;
    if (dy) hd_grad_rule(o->kind)(d, o, dy);
    if (o->kind == OP_SLICE) end_slice(d, o);
    return true;
}

static bool backward(Func *f, Arena *scratch, double share) {
    Op *ret = hd_return(f);
    Value *loss = ret->in[0];
    Autodiff d = {.b = {.f = f, .before = ret, .bwd = true}, .scratch = scratch, .n_forward = f->n_values};
    d.active = HD_NEWN(scratch, bool, f->n_values);
    d.grad = HD_NEWN(scratch, Value *, f->n_values);
    d.sliced = HD_NEWN(scratch, Sliced, f->n_values);
    find_active(&d, f);
    if (!hd_grad_wanted(&d, loss)) return true; // every parameter is reported
    const int64_t scale = hd_loss_scale(f, d.active, scratch);
    if (!scale) return false;
    Op *last = ret->prev;
    Attrs as = {0};
    hd_set_float(f->module->cx, &as, A_VALUE, (double)scale * share);
    hd_set_flag(f->module->cx, &as, A_PER_RANK);
    d.b.loc = loss->def->loc;
    d.b.span = loss->def->span;
    hd_grad_add(&d, loss, hd_build1(&d.b, OP_CONST, NULL, NULL, &as, loss->type));
    for (Op *o = last; o; o = o->prev)
        if (!walk_op(&d, o)) return false;
    return true;
}

// --- the loss out of cross_entropy_grad cross_entropy_grad also computes the loss. Where its inputs do not need the
// forward loss, the forward op is removed. Then one op alone reads the logits and may overwrite them with their
// gradient. Ops that read the loss move after it.
static void fuse_loss(Op *forward, Op *grad, Arena *scratch) {
    Func *f = forward->func;
    bool *late = HD_NEWN(scratch, bool, f->n_values);
    VEC(Op *) moved = {0};
    late[forward->out[0]->id] = true;
    for (Op *o = forward->next; o != grad->next; o = o->next) {
        bool reads = false;
        for (int i = 0; i < o->n_in; i++) reads |= late[o->in[i]->id];
        if (!reads) continue;
        if (o == grad || !hd_op_is(o, TRAIT_PURE)) return;
        for (int i = 0; i < o->n_out; i++) late[o->out[i]->id] = true;
        hd_push(scratch, &moved, o);
    }
    Op *at = grad;
    for (int i = 0; i < moved.n; i++) {
        hd_detach(moved.at[i]);
        hd_insert_after(at, moved.at[i]);
        at = moved.at[i];
    }
    hd_replace_uses(forward->out[0], grad->out[0]);
    hd_erase(forward);
}

static bool same_loss(const Op *o, const Op *grad) {
    return hd_op_is(grad, TRAIT_LOSS) && hd_is_backward(grad) && grad->in[0] == o->in[0] && grad->in[1] == o->in[1] &&
           hd_loss_weights(grad) == hd_loss_weights(o) && hd_loss_ignored(grad) == hd_loss_ignored(o);
}

static void fuse_losses(Func *f, Arena *scratch) {
    for (Op *o = f->first, *next; o; o = next) {
        next = o->next;
        if (!hd_op_is(o, TRAIT_LOSS) || hd_is_backward(o)) continue;
        Op *grad = o->next;
        while (grad && !same_loss(o, grad)) grad = grad->next;
        if (grad) fuse_loss(o, grad, scratch);
    }
}

// --- ops that stop the gradient
// It is left only where it costs nothing and the verifier needs it: before pointwise and row ops of the forward pass of
// @micro, whose kernels have it inside. A part or a transpose is taken first.
static bool keeps_stop(const Op *reader, int operand) {
    const char c = hd_operand_class(reader, operand);
    return (reader->kind == OP_CONCAT || hd_op_info(reader->kind)->row) && (c == 'd' || c == 's');
}

static void move_stop(Op *stop, Op *reader) { // reader(stop(x)) -> stop(reader(x))
    Builder b = {.f = stop->func, .before = reader->next, .loc = stop->loc, .span = stop->span};
    reader->in[0] = stop->in[0];
    Op *moved = hd_build(&b, stop->kind, 1, reader->out, NULL, NULL);
    hd_replace_uses(reader->out[0], moved->out[0]);
    moved->in[0] = reader->out[0];
}

static void drop_stops(Func *f, bool all) {
    for (Op *o = f->first, *next; o; o = next) {
        next = o->next;
        if (!hd_op_is(o, TRAIT_STOPS)) continue;
        bool kept = false;
        for (Op *u = o->next; u; u = u->next)
            for (int i = 0; i < u->n_in; i++) {
                if (u->in[i] != o->out[0]) continue;
                const bool forward = !all && !hd_has(&u->attrs, A_BWD);
                if (forward && (u->kind == OP_TRANSPOSE || u->kind == OP_SLICE)) move_stop(o, u);
                else if (forward && keeps_stop(u, i)) kept = true;
                else u->in[i] = o->in[0];
            }
        next = o->next;
        if (!kept) hd_erase(o);
    }
}

// --- dropout: validation has none
static void drop_dropouts(Func *f) {
    for (Op *o = f->first, *next; o; o = next) {
        next = o->next;
        if (!hd_draws(o)) continue;
        if (o->kind == OP_DROPOUT) {
            hd_replace_uses(o->out[0], o->in[0]);
            hd_erase(o);
            continue;
        }
        o->n_in = hd_without_key(o);
        static const AttrId attrs[] = {A_P, A_SITE, A_BATCH};
        for (size_t i = 0; i < sizeof attrs / sizeof *attrs; i++) hd_unset(&o->attrs, attrs[i]);
    }
}

// --- the pass
static bool check_loss(Module *m, const Func *loss) {
    Func *eval, *micro;
    if (!hd_func_of_kind(m, KIND_EVAL, &eval) || !hd_func_of_kind(m, KIND_MICRO, &micro)) return false;
    if (!loss) {
        hd_error(m->cx, (Span){0, 0}, "there is no function of kind loss to differentiate");
        return false;
    }
    if (eval || micro) {
        hd_error(m->cx, loss->span, "autodiff makes functions of kind eval and micro of @%s, but @%s is one already",
                 loss->name, (eval ? eval : micro)->name);
        return false;
    }
    const Op *ret = hd_return(loss);
    const char *wrong = !ret || ret->n_in == 0                        ? "nothing"
                        : ret->n_in != 1 + hd_n_results(&ret->attrs) ? "several values"
                                                                      : NULL;
    for (int i = 0; !wrong && i < ret->n_in; i++)
        if (ret->in[i]->type->rank != 0 || !hd_dtype_is_float(ret->in[i]->type->dtype))
            wrong = hd_type_text(m->cx, ret->in[i]->type);
    return !wrong || hd_error(m->cx, loss->span, "@%s must return one number%s, not %s", loss->name,
                              ret && hd_n_results(&ret->attrs) ? ", and one for each name" : "", wrong);
}

static bool check_parameters(const Module *m, const Func *micro, Arena *scratch) {
    bool *found = HD_NEWN(scratch, bool, m->n_symbols + 1), ok = true; // by symbol id
    bool *read = HD_NEWN(scratch, bool, m->n_symbols + 1);
    for (const Op *o = micro->first; o; o = o->next) {
        for (int i = 0; hd_param_added(o, i); i++) found[hd_op_param(o, i)->id] = true;
        for (int i = 0; hd_param_read(o, i); i++) read[hd_op_param(o, i)->id] = true;
    }
    for (const Symbol *s = m->symbols; s; s = s->next) {
        if (s->kind != SYM_PARAM || found[s->id] || (read[s->id] && hd_has(&s->attrs, A_FROZEN))) continue;
        hd_error(m->cx, s->span, "parameter @%s gets no gradient: %s; use it or remove it", s->name,
                 read[s->id] ? "the loss reads it only through operations that have none, such as stop_gradient or ge"
                             : "the loss does not depend on it");
        ok = false;
    }
    return ok;
}

// A step minimises the mean over every micro-batch of every rank. Each adds its share, so gradients are only summed,
// never divided. How many ranks there are is for fsdp to say (per_rank).
static bool find_share(const Module *m, double *share) {
    int64_t micro = hd_int(hd_settings(m, "train"), A_MICRO, 1);
    *share = 1.0 / (double)micro;
    if (micro < 1)
        hd_error(m->cx, hd_symbol_find(m, "train")->span, "micro is %lld; it must be at least 1", (long long)micro);
    return micro >= 1;
}

// The type of a value that follows from the batch, without it: the factor `batch` of its first axis is not written.
static void put_type_but_batch(const Module *m, Out *o, const Type *t, int64_t batch) {
    if (!t->rank || batch < 1 || t->dim[0] % batch) {
        hd_puts(o, hd_type_text(m->cx, t));
        return;
    }
    hd_printf(o, "%s[batch*%lld", hd_dtype_text(t->dtype), (long long)(t->dim[0] / batch));
    for (int i = 1; i < t->rank; i++) hd_printf(o, ",%lld", (long long)t->dim[i]);
    hd_puts(o, "]");
}

// number: of values, by id; NULL: their ids
static void put_computation(Out *o, const Op *op, const int *number) {
    static const Attrs none;
    const bool ends = number && hd_op_is(op, TRAIT_RETURN); // with the loss: further results are no part of the model
    hd_puts(o, hd_op_info(op->kind)->mnemonic);
    for (int i = 0; i < (ends ? 1 : op->n_in); i++)
        hd_printf(o, " %d", number ? number[op->in[i]->id] : op->in[i]->id);
    hd_print_attrs(ends ? &none : &op->attrs, o);
}

// A table looked up by 0, 1, 2, .. to its end. Where it is split over ranks `simplify` leaves it, else it is the table:
// both are one computation.
static bool looks_up_all(const Op *o) {
    return o->kind == OP_EMBEDDING && o->in[1]->def && o->in[1]->def->kind == OP_IOTA &&
           o->in[0]->type == o->out[0]->type;
}

// Numbers of values, by id, without those of ops that only a further result of the loss needs; -1: of such an op.
static int *numbers_of(const Func *loss, Arena *a) {
    bool *other = HD_NEWN(a, bool, loss->n_values + 1), *needed = HD_NEWN(a, bool, loss->n_values + 1);
    int *number = HD_NEWN(a, int, loss->n_values + 1), n = 0;
    for (const Op *o = loss->last; o; o = o->prev) {
        const bool ends = hd_op_is(o, TRAIT_RETURN);
        bool by_loss = !ends && !o->n_out, by_other = false; // an op without a result leaves something
        for (int i = 0; i < o->n_out; i++) by_loss |= needed[o->out[i]->id], by_other |= other[o->out[i]->id];
        if (by_other && !by_loss)
            for (int i = 0; i < o->n_out; i++) number[o->out[i]->id] = -1;
        for (int i = 0; i < o->n_in; i++) {
            if (by_loss || (ends && i == 0)) needed[o->in[i]->id] = true;
            else if (by_other || ends) other[o->in[i]->id] = true;
        }
    }
    for (int i = 0; i < loss->n_args; i++) number[loss->args[i]->id] = n++;
    for (const Op *o = loss->first; o; o = o->next)
        for (int i = 0; i < o->n_out; i++)
            if (number[o->out[i]->id] >= 0)
                number[o->out[i]->id] = looks_up_all(o) ? number[o->in[0]->id] : n++;
    return number;
}

static bool of_loss(const Op *o, const int *number) {
    return !o->n_out || (number[o->out[0]->id] >= 0 && !looks_up_all(o));
}

// Two models whose parameters have the same shapes may still differ, in a number of heads or in an activation: the loss
// that is differentiated tells them apart. Names and lines of its text do not count.
static const char *fingerprint(const Module *m, const Func *loss, const int *number, Arena *a) {
    Out text = hd_out(a);
    for (int i = 0; i < loss->n_args; i++) hd_printf(&text, "%s\n", hd_type_text(m->cx, loss->args[i]->type));
    for (const Op *o = loss->first; o; o = o->next) {
        if (!of_loss(o, number)) continue;
        put_computation(&text, o, number);
        for (int i = 0; i < o->n_out; i++)
            hd_printf(&text, " %d: %s", number[o->out[i]->id], hd_type_text(m->cx, o->out[i]->type));
        hd_puts(&text, "\n");
    }
    for (const Func *k = m->funcs; k; k = k->next)
        for (const Op *o = k->is_kernel && hd_is_rule(k) ? k->first : NULL; o; o = o->next)
            put_computation(&text, o, NULL), hd_puts(&text, "\n");
    return hd_hash(a, text.text, text.n);
}

// The same whatever the batch. Only types that no operand implies are written, those of parameters and those of ops
// such as reshape, whose first axis may hold the batch where an argument is read.
static const char *identity(const Module *m, const Func *loss, const int *number, Arena *a) {
    const int64_t batch = hd_int(hd_settings(m, "train"), A_BATCH, 0);
    bool *fed = HD_NEWN(a, bool, loss->n_values + 1); // by value: whether it follows from an argument
    Out text = hd_out(a);
    for (int i = 0; i < loss->n_args; i++) {
        fed[loss->args[i]->id] = true;
        put_type_but_batch(m, &text, loss->args[i]->type, batch);
        hd_puts(&text, "\n");
    }
    for (const Op *o = loss->first; o; o = o->next) {
        bool follows = false;
        if (!of_loss(o, number)) continue;
        for (int i = 0; i < o->n_in; i++) follows |= fed[o->in[i]->id];
        put_computation(&text, o, number);
        for (int i = 0; i < o->n_out; i++) {
            fed[o->out[i]->id] = follows;
            hd_printf(&text, " %d: ", number[o->out[i]->id]);
            if (hd_op_is(o, TRAIT_EXPLICIT)) put_type_but_batch(m, &text, o->out[i]->type, follows ? batch : 0);
        }
        hd_puts(&text, "\n");
    }
    return hd_hash(a, text.text, text.n);
}

static void set_fingerprint(Module *m, Func *loss, Arena *a) {
    Symbol *model = hd_symbol_find(m, "model");
    if (!model || model->kind != SYM_CONFIG) return;
    hd_renumber(loss);
    const int *number = numbers_of(loss, a);
    hd_set_word(m->cx, &model->attrs, A_FINGERPRINT, fingerprint(m, loss, number, a));
    hd_set_word(m->cx, &model->attrs, A_IDENTITY, identity(m, loss, number, a));
}

static void drop_totals(Func *f) {
    for (Op *o = f->first, *next; o; o = next) {
        next = o->next;
        if (hd_param_added(o, 0)) hd_erase(o);
    }
}

static void evaluates(Func *f) { // nothing is trained by it
    drop_totals(f);
    drop_dropouts(f);
    drop_stops(f, true);
    hd_renumber(f);
}

Change hd_pass_autodiff(Module *m, PassCx *cx) {
    Func *loss, *logits;
    if (!hd_func_of_kind(m, KIND_LOSS, &loss) || !check_loss(m, loss)) return FAILED;
    if (!hd_func_of_kind(m, KIND_LOGITS, &logits)) return FAILED;
    double share;
    if (!find_share(m, &share)) return FAILED;
    set_fingerprint(m, loss, cx->scratch); // the model's, whatever form its products take
    hd_merge_products(m, loss, cx);
    Func *f = hd_func_clone(m, loss, hd_free_name(m, "micro"));
    hd_set_kind(m->cx, &f->attrs, KIND_MICRO);
    hd_func_rename(loss, hd_free_name(m, "eval"));
    hd_set_kind(m->cx, &loss->attrs, KIND_EVAL);
    if (!backward(f, cx->scratch, share) || !check_parameters(m, f, cx->scratch)) return FAILED;
    fuse_losses(f, cx->scratch);
    evaluates(loss);
    if (logits) evaluates(logits);
    for (Func *g = m->funcs; g; g = g->next)
        if (hd_kind(&g->attrs) == KIND_CALL) evaluates(g);
    drop_stops(f, false);
    hd_renumber(f);
    return CHANGED;
}
