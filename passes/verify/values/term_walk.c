#include "passes/verify/values/term_walk.h"
#include "ir/writes.h"
#include "ir/eval/eval.h"
#include "ir/dropout.h"
#include "ir/shapes.h"
#include <stdlib.h>
#include <string.h>

// --- parameters

static int by_index(const void *x, const void *y) {
    const Symbol *a = *(const Symbol *const *)x, *b = *(const Symbol *const *)y;
    const int64_t i = hd_int(&a->attrs, A_INDEX, INT64_MAX), k = hd_int(&b->attrs, A_INDEX, INT64_MAX);
    return i != k ? (i < k ? -1 : 1) : a->id - b->id;
}

TermWalk hd_term_walk(const Module *m, PlanCheck *c, Arena *a) {
    TermWalk w = {.m = m, .c = c, .t = {.a = a, .cx = m->cx, .ranks = 1}, .mesh = hd_mesh(m)};
    for (const Symbol *s = m->symbols; s; s = s->next) w.n_params += s->kind == SYM_PARAM;
    w.params = HD_NEWN(a, const Symbol *, w.n_params + 1);
    w.number = HD_NEWN(a, int, m->n_symbols + 1);
    int n = 0;
    for (const Symbol *s = m->symbols; s; s = s->next)
        if (s->kind == SYM_PARAM) w.params[n++] = s;
    if (n) qsort(w.params, (size_t)n, sizeof *w.params, by_index);
    for (int i = 0; i < n; i++) w.number[w.params[i]->id] = i;
    return w;
}

// --- what buffers hold

static int number_of(const TermWalk *w, const Symbol *s) { // of either step; -1: none
    const int number = hd_step_keeps(w->c->train, s);
    return number >= 0 ? number : hd_step_keeps(w->c->eval, s);
}

static void find_buffers(TermWalk *w) {
    w->keys = NULL;
    w->gathered = HD_NEWN(w->t.a, int, w->m->n_symbols + 1);
    w->scales = HD_NEWN(w->t.a, const Op *, w->m->n_symbols + 1);
    for (const Op *o = w->f->first; w->c && o; o = o->next) {
        if (o->kind == OP_DROPOUT_KEYS) w->keys = hd_named(o, A_INTO);
        if (o->kind == OP_ALL_MAX && hd_named(o, A_INTO)) w->scales[hd_named(o, A_INTO)->id] = o;
        const int number = hd_gathers(o) ? number_of(w, hd_named(o, A_BUFFER)) : -1;
        if (number >= 0 && hd_named(o, A_INTO)) w->gathered[hd_named(o, A_INTO)->id] = 1 + number;
    }
}

// Sums of gradients on their way from one buffer to another (flow.c has proved where they go).
static bool holds_sums(const TermWalk *w, const Symbol *s) {
    const int part = w->c->part_of[s->id];
    const char *class = hd_word(&s->attrs, A_CLASS, "");
    return part == PART_GRAD || part == PART_SUM || part == PART_LEVEL ||
           (hd_has(&s->attrs, A_TRANSIENT) && (!strcmp(class, "gradients") || !strcmp(class, "staging")));
}

const Term *hd_term_losses(const TermWalk *w, int number, int64_t ranks) {
    return hd_term_leaf(&w->t, "losses", "", number, hd_type(w->t.cx, TY_F32, 1, &ranks));
}

static const Term *param(const TermWalk *w, const Symbol *p) {
    return hd_term_leaf(&w->t, "param", p->name, 0, hd_term_whole_type(w, p));
}

// Several parameters as one matrix: `n` that have the same rows, one after another.
static const Term *params(const TermWalk *w, int n, const Symbol *const *p) {
    const Term **parts = HD_NEWN(w->t.a, const Term *, n);
    Type type = *p[0]->type;
    Attrs as = {0};
    if (n == 1) return param(w, p[0]);
    for (int i = 0; i < n; i++) parts[i] = param(w, p[i]);
    for (int i = 1; i < n; i++) type.dim[0] += p[i]->type->dim[0];
    hd_set_int(w->t.cx, &as, A_AXIS, 0);
    return hd_term_plain(&w->t, OP_CONCAT, 0, hd_type(w->t.cx, type.dtype, type.rank, type.dim), &as, n, parts);
}

static const Term *params_of(const TermWalk *w, const Op *o) { // of `param`
    VEC(const Symbol *) list = {0};
    for (int i = 0; hd_op_param(o, i); i++) hd_push(w->t.a, &list, hd_op_param(o, i));
    return params(w, list.n, list.at);
}

static int64_t row_of(const Type *t) { return t->rank && t->dim[0] ? hd_type_count(t) / t->dim[0] : 0; }

// Whole parameters of which these elements are the rows, at least two; NULL: they are something else.
static const Term *several(const TermWalk *w, const BucketParts *k, int64_t at, const Type *type) {
    const int64_t end = at + hd_type_count(type);
    VEC(const Symbol *) list = {0};
    while (at < end) {
        const Symbol *p = hd_plan_param_at(k, at, end);
        bool fits = p && hd_int(&p->attrs, A_OFFSET, 0) == at && p->type->rank == type->rank && type->rank;
        fits = fits && !p->layout;
        for (int i = 1; fits && i < type->rank; i++) fits = p->type->dim[i] == type->dim[i];
        if (!fits || hd_type_count(p->type) == 0) return NULL;
        hd_push(w->t.a, &list, p);
        at += hd_type_count(p->type);
    }
    return list.n > 1 && at == end ? params(w, list.n, list.at) : NULL;
}

static bool splits_no_rows(Layout l) {
    for (int a = 0; a < N_AXES; a++)
        if (hd_layout_at(l, a) != LAYOUT_WHOLE && hd_layout_dim(hd_layout_at(l, a)) < 1) return false;
    return true;
}

// Elements of a bucket's weights: the parameter that they are, or whole rows of it, or several parameters as one
// matrix; NULL: none of these. Another dtype than that of the master weights is a cast of them.
static const Term *weights(const TermWalk *w, const BucketParts *k, int64_t at, const Type *type, Layout *is) {
    const Symbol *p = hd_plan_param_at(k, at, at + hd_type_count(type));
    if (!p) return NULL;
    const Term *all = several(w, k, at, type);
    if (all) return hd_term_cast(&w->t, all, type->dtype);
    const Term *x = hd_term_cast(&w->t, param(w, p), type->dtype);
    at -= hd_int(&p->attrs, A_OFFSET, 0);
    const int64_t row = row_of(p->type);
    bool rows = row && type->rank == p->type->rank && at >= 0 && at % row == 0;
    for (int i = 1; rows && i < type->rank; i++) rows = type->dim[i] == p->type->dim[i];
    rows = rows && at / row + type->dim[0] <= p->type->dim[0];
    if (p->layout) { // what a rank has of it, or rows that every rank has a part of
        const bool same = rows && !at && type->dim[0] == p->type->dim[0];
        *is = same || (rows && splits_no_rows(p->layout)) ? p->layout : 0;
        return same ? x : *is ? hd_term_rows(&w->t, x, at / row, type) : NULL;
    }
    if (!at && hd_type_count(p->type) == hd_type_count(type)) return hd_term_reshape(&w->t, x, type);
    return rows ? hd_term_rows(&w->t, x, at / row, type) : NULL;
}

// Of a tensor of a bucket, all of it, quantized with one scale: its elements, of this type, or the scale.
static const Term *tensor(const TermWalk *w, const BucketParts *k, int64_t at, const Type *type, bool scale) {
    const Symbol *from = k->part[PART_COMPUTE] ? k->part[PART_COMPUTE] : k->part[PART_MASTER];
    const Attr *list = hd_attr(&k->symbol->attrs, A_TENSORS);
    int i = 0;
    while (list && i < list->n && (list->ints[i] != at || list->ints[i + 1] - at != hd_type_count(type))) i += 2;
    if (!from || !list || i >= list->n) return NULL;
    Layout is = 0;
    const Term *x = weights(w, k, at, hd_type_with(w->t.cx, from->type->dtype, type), &is);
    return x && !is ? hd_term_tensor(&w->t, w->m, x, scale) : NULL;
}

// One of the scales that an all_max of the function, and nothing else in it, finds.
static const Term *scale(const TermWalk *w, const Op *found, int64_t at) {
    const Attr *parts = hd_attr(&found->attrs, A_BUFFERS);
    for (int i = 0; i < parts->n; i++) {
        const Symbol *part = hd_symbol_find(w->m, parts->strs[i]);
        const BucketParts *k = part ? hd_plan_bucket(w->c, part) : NULL;
        const Attr *list = k ? hd_attr(&k->symbol->attrs, A_TENSORS) : NULL;
        if (!list) return NULL;
        if (at < list->n / 2) {
            const int64_t *t = list->ints + 2 * at, n = t[1] - t[0];
            const Symbol *p = hd_plan_param_at(k, t[0], t[1]); // of a matrix as it is read, or of the first of several
            if (!p || !row_of(p->type) || n % row_of(p->type)) return NULL;
            Type type = *p->type;
            type.dim[0] = n / row_of(p->type);
            return tensor(w, k, t[0], hd_type(w->t.cx, type.dtype, type.rank, type.dim), true);
        }
        at -= list->n / 2;
    }
    return NULL;
}

// Of a buffer whose gather has quantized rows: the rows that they are of, quantized, or their scales.
static const Term *quantized(const TermWalk *w, const BucketParts *k, const Symbol *s, int64_t at, const Type *type) {
    const Symbol *from = k->part[PART_COMPUTE] ? k->part[PART_COMPUTE] : k->part[PART_MASTER];
    const int64_t row = hd_int(&s->attrs, A_QUANTIZED, 0), each = hd_elements_each(s);
    if (!row) return tensor(w, k, at, type, false);
    const bool scales = each == row, fits = from && (scales ? type->rank == 1 : type->rank == 2 && type->dim[1] == row);
    Layout is = 0;
    Attrs as = {0};
    if (!fits) return NULL;
    const Type *rows = hd_type(w->t.cx, from->type->dtype, 2, (int64_t[]){type->dim[0], row});
    const Term *x = rows ? weights(w, k, at * each, rows, &is) : NULL;
    hd_set_word(w->t.cx, &as, A_OUT, hd_dtype_text(TY_E4M3));
    return x && !is ? hd_term_plain(&w->t, OP_QUANTIZE, scales, type, &as, 1, &x) : NULL;
}

static const Term *view(TermWalk *w, const Op *o) {
    const Symbol *s = hd_named(o, A_BUFFER);
    const Type *type = o->out[0]->type;
    const int64_t at = hd_int(&o->attrs, A_OFFSET, 0);
    const Term *x = NULL;
    const int number = s ? w->gathered[s->id] - 1 : -1;
    if (number >= 0 && !at && type == s->type) x = hd_term_losses(w, number, hd_type_count(type));
    if (s && s == w->keys && at % HD_KEY == 0) x = hd_term_leaf(&w->t, "key", "", at / HD_KEY, type);
    const BucketParts *k = w->c ? hd_plan_bucket(w->c, s) : NULL;
    const Op *found = w->c && s ? w->scales[s->id] : NULL;
    const int64_t in_scales = found ? at - hd_int(&found->attrs, A_OFFSET, 0) : -1;
    if (in_scales >= 0 && !type->rank && in_scales % HD_SCALE_STRIDE == 0)
        x = scale(w, found, in_scales / HD_SCALE_STRIDE);
    if (k && hd_has(&s->attrs, A_QUANTIZED)) x = quantized(w, k, s, at, type);
    else if (k && !holds_sums(w, s)) x = weights(w, k, at, type, &w->layouts[o->out[0]->id]);
    return x ? x : hd_term_leaf(&w->t, "buffer", s ? s->name : "", at, type);
}

// --- kernels

// Inside of a kernel a value of 16 bits is rounded by nothing but a cast to its own dtype. (A cast, a look-up in a
// table from outside and what gives values of that dtype anyway have nothing to round.)
static bool is_unrounded(const Op *o, const Type *type, const Term *const *in) {
    if (!hd_dtype_is_narrow(type->dtype)) return false;
    if (o->kind == OP_CAST || o->kind == OP_EMBEDDING) return false;
    return !(hd_exact_result(o->kind, &o->attrs, o->n_in, in) >> type->dtype & 1);
}

typedef struct { const Term **terms; Layout *layouts; bool *unrounded; } Inside; // by value id

static void kernel_op(TermWalk *w, const Op *o, const Op *by, const Inside *k) {
    const Term *in[HD_MAX_IN];
    Layout from[HD_MAX_IN], to[HD_MAX_IN];
    const bool rounds = o->kind == OP_CAST && o->out[0]->type->dtype == o->in[0]->type->dtype;
    for (int i = 0; i < o->n_in; i++) {
        in[i] = k->terms[o->in[i]->id];
        if (k->unrounded[o->in[i]->id] && !rounds && !hd_op_is(o, TRAIT_ALIAS)) in[i] = hd_term_unrounded(&w->t, in[i]);
    }
    for (int i = 0; i < o->n_in; i++) from[i] = k->layouts[o->in[i]->id];
    const Op *whole = hd_term_lay_out(w, o, by, from, to);
    for (int i = 0; i < o->n_out; i++) {
        const int id = o->out[i]->id;
        k->layouts[id] = to[i];
        k->terms[id] = hd_term_of(&w->t, whole, i, in);
        if (hd_term_is_unrounded(k->terms[id])) k->terms[id] = k->terms[id]->of; // an operand as it is
        k->unrounded[id] =
            hd_op_is(o, TRAIT_ALIAS) ? k->unrounded[o->in[0]->id] : is_unrounded(o, o->out[i]->type, in);
    }
}

static void launch(TermWalk *w, const Op *o, const Term *const *in) {
    const Func *f = hd_launched(o);
    const Inside k = {HD_NEWN(w->t.a, const Term *, f->n_values + 1), HD_NEWN(w->t.a, Layout, f->n_values + 1),
                      HD_NEWN(w->t.a, bool, f->n_values + 1)};
    for (int i = 0; i < f->n_args; i++) {
        k.terms[f->args[i]->id] = in[i];
        k.layouts[f->args[i]->id] = w->layouts[o->in[i]->id];
    }
    for (const Op *x = f->first; x; x = x->next)
        if (!hd_op_is(x, TRAIT_RETURN)) kernel_op(w, x, o, &k);
    const Op *ret = hd_return(f);
    for (int i = 0; i < o->n_out; i++) {
        w->terms[o->out[i]->id] = k.terms[ret->in[i]->id];
        w->layouts[o->out[i]->id] = k.layouts[ret->in[i]->id];
    }
}

// --- functions

// A store of a buffer that holds sums, or of a sum over ranks.
static bool moves_sum(const TermWalk *w, const Write *x) {
    const Op *def = hd_moves(x) ? x->value->def : NULL;
    while (def && hd_op_is(def, TRAIT_ALIAS)) def = def->in[0]->def;
    if (def && def->kind == OP_REDUCE_SCATTER) return true;
    const Symbol *s = def && hd_op_is(def, TRAIT_SOURCE) ? hd_named(def, A_BUFFER) : NULL;
    return s && (number_of(w, s) >= 0 || (hd_plan_bucket(w->c, s) && holds_sums(w, s)));
}

// The gradient of a parameter, from element `at` of what is given: all of it, or so many of its rows.
static void give_rows(const TermWalk *w, const Symbol *p, Given given, int64_t at) {
    const Type *t = given.term->type;
    const int64_t row = row_of(p->type);
    if (hd_type_count(t) != hd_type_count(hd_term_whole_type(w, p))) {
        const bool rows = row && row_of(t) == row && at % row == 0;
        given.term = rows ? hd_term_stored(&w->t, hd_term_rows(&w->t, given.term, at / row, p->type), TY_F32)
                          : hd_term_leaf(&w->t, "part", p->name, at, t);
    }
    hd_push(w->t.a, &w->gradients[w->number[p->id]], given);
}

static void give(TermWalk *w, const Write *to, const Term *const *in) {
    const Symbol *s = to->buffer;
    const BucketParts *k = hd_plan_bucket(w->c, s);
    const int number = number_of(w, s);
    if ((number < 0 && !k) || moves_sum(w, to)) return;
    // the operand, or a result
    const Term *is = to->value ? w->terms[to->value->id] : hd_term_of(&w->t, w->whole, 0, in);
    const Term *x = hd_term_stored(&w->t, is, s->type->dtype);
    if (k && hd_dtype_is_narrow(s->type->dtype)) x = hd_term_stored(&w->t, x, TY_F32); // the numbers that are added up
    const Given given = {x, to->op, number};
    const Layout laid = to->value ? w->layouts[to->value->id] : w->given;
    if (!k) {
        hd_term_check_given(w, to->op, number ? "a result of the loss" : "the loss", laid, 0);
        hd_push(w->t.a, &w->kept, given);
        return;
    }
    const int64_t at = to->at, end = at + hd_type_count(to->type);
    for (int64_t lo = at; lo < end;) {
        const Symbol *p = hd_plan_param_at(k, lo, end);
        if (!p) return; // contributions.c reports it
        const int64_t from = hd_int(&p->attrs, A_OFFSET, 0), next = from + hd_type_count(p->type);
        const bool whole = from == lo && next <= end; // the gradient
        hd_term_check_given(w, to->op, hd_sprintf(w->t.a, "the gradient of @%s", p->name), laid, p->layout);
        const Given part = {whole ? x : hd_term_leaf(&w->t, "part", p->name, at, x->type), to->op, 0};
        if (whole) give_rows(w, p, part, lo - at);
        else hd_push(w->t.a, &w->gradients[w->number[p->id]], part);
        lo = next;
    }
}

// A product, also with the bias that a gemm may add to it, attention or state-space duality.
static bool is_forward_product(const Op *o) {
    if (hd_has(&o->attrs, A_BWD)) return false;
    for (int i = 0; o->kind == OP_ADD && i < 2; i++)
        if (o->in[i]->def && o->in[i]->def->kind == OP_MATMUL) return true;
    return hd_op_is(o, TRAIT_MATMUL) || hd_attends(o) || o->kind == OP_SSD;
}

static void function_op(TermWalk *w, const Op *o) {
    const Term *in[HD_MAX_IN];
    Layout from[HD_MAX_IN], to[HD_MAX_IN];
    for (int i = 0; i < o->n_in; i++) in[i] = w->terms[o->in[i]->id], from[i] = w->layouts[o->in[i]->id];
    if (hd_param_added(o, 0)) {
        const Given given = {hd_term_stored(&w->t, in[0], TY_F32), o, 0};
        const Symbol *p;
        int64_t at = 0;
        for (int i = 0; (p = hd_op_param(o, i)); at += hd_type_count(p->type), i++) give_rows(w, p, given, at);
    } else if (hd_param_read(o, 0)) {
        w->terms[o->out[0]->id] = params_of(w, o);
    } else if (hd_op_is(o, TRAIT_SOURCE)) {
        w->terms[o->out[0]->id] = view(w, o);
    } else if (hd_op_is(o, TRAIT_LAUNCH)) {
        launch(w, o, in);
    } else if (hd_gathers(o) && o->n_out && w->c && number_of(w, hd_named(o, A_BUFFER)) >= 0) {
        const int number = number_of(w, hd_named(o, A_BUFFER));
        w->terms[o->out[0]->id] = hd_term_losses(w, number, hd_type_count(o->out[0]->type));
    } else {
        const int first = hd_has(&o->attrs, A_INTO);
        const bool moves = hd_term_moves_layout(w, o);
        w->whole = hd_term_lay_out(w, o, o, from, to);
        w->given = to[0];
        for (int i = 0; i < o->n_out; i++) {
            w->layouts[o->out[i]->id] = to[i + first];
            w->terms[o->out[i]->id] = moves && hd_collective(o)->exchanges ? hd_term_exchanged(&w->t, o, in[0])
                                      : moves                              ? in[0]
                                                                           : hd_term_of(&w->t, w->whole, i + first, in);
        }
        if (!is_forward_product(o) || !o->n_out) return;
        const Term *x = w->terms[o->out[0]->id];
        const Given product = {hd_term_bare(x), o, 0};
        hd_push(w->t.a, &w->products, product);
    }
}

// The terms that an op computes and gives to the step.
static void given_op(TermWalk *w, const Op *o) {
    const Term *in[HD_MAX_IN];
    const bool moves =
        hd_has(&o->attrs, A_COMM) || hd_op_is(o, TRAIT_COPIES) || o->kind == OP_ZERO || o->kind == OP_DROPOUT_KEYS;
    w->given = 0;
    w->whole = o;
    function_op(w, o);
    Write to;
    for (int i = 0; w->c && !moves && hd_next_write(o, &i, &to);) {
        for (int k = 0; k < o->n_in; k++) in[k] = w->terms[o->in[k]->id];
        give(w, &to, in);
    }
}

void hd_term_func(TermWalk *w, const Func *f) {
    w->f = f;
    w->terms = HD_NEWN(w->t.a, const Term *, f->n_values + 1);
    w->layouts = HD_NEWN(w->t.a, Layout, f->n_values + 1);
    w->misplaced = false;
    w->gradients = HD_NEWN(w->t.a, Gifts, w->n_params + 1);
    w->kept = w->products = (Gifts){0};
    find_buffers(w);
    for (int i = 0; i < f->n_args; i++)
        w->terms[f->args[i]->id] = hd_term_leaf(&w->t, "argument", f->args[i]->name, i, f->args[i]->type);
    for (const Op *o = f->first; o; o = o->next) given_op(w, o);
}
