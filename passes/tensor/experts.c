// The pass tensor-parallel along an axis whose ranks own experts and read other sequences. The tokens of all ranks
// travel: what a rank takes rows from and what weighs them is gathered, a rank computes the rows of its own experts,
// and what they combine to is summed over ranks, each of which keeps the sums of its own tokens:
//
//   param @b.up : f32[8,32,16] {over = [expert], dims = [0]}     param @b.up : f32[4,32,16] over {expert: 0}
//   %s, %l, %n, %c = dispatch %chosen {experts = 8}              %e = all_gather of %chosen                 // every
//   %r = take %x, %s, %l                                    ->   %i = own_index %e {rows = 4, routed, ..}   // routed
//   %h = grouped %r, %up, %n {tb}                                %s, %l, %n, %c = dispatch %i {experts = 4}
//   %y = combine %h, %l, %w, %c                                  %r = take (all_gather of %x), %s, %l
//   %z = add %x, %y                                              %h = grouped %r, %up, %n {tb}
//                                                                %t = combine %h, %l, (all_gather of %w), %c // sum
//                                                                %z = add %x, (reduce_scatter of %t)
//
// The backward pass is in the same function, and the same rules hold there (ir/spread_experts.c). The gradient of a
// rank's experts is added over the tokens of all ranks by the product that makes it. So no collective sums it over the
// axis, and its divisor is that of the loss alone. With reduce = tree that product is a leaf of the tree: ranks of the
// axis have consecutive numbers, so it adds the same grains on every mesh with as many ranks along the axis.
#include "ir/base/ints.h"
#include "ir/shapes.h"
#include "passes/settings.h"
#include "passes/tensor/partition.h"
#include <string.h>

static Value *flat(Partition *p, const Op *at, Value *x) {
    const int64_t n = hd_type_count(x->type);
    return hd_partition_build(p, at, OP_RESHAPE, x, NULL, hd_type(p->m->cx, x->type->dtype, 1, &n),
                              hd_layout_at(x->layout, p->axis));
}

// Types are those of one rank's sequences until hd_type_part makes them those of what a rank holds.
static Value *moved(Partition *p, const Op *at, OpKind k, Value *x, int to) {
    Value **known = hd_partition_slot(p, &p->whole, x);
    if (*known) return *known;
    Attrs as = {0};
    hd_set_word(p->m->cx, &as, A_COMM, p->comm->name);
    Value *y = flat(p, at, x);
    y = hd_partition_build(p, at, k, y, &as, y->type, to);
    y = hd_partition_build(p, at, OP_RESHAPE, y, NULL, x->type, to);
    p->collectives++;
    known = hd_partition_slot(p, &p->whole, x);
    return *known = y;
}

// --- an exchange

static const Value *rows_of(const Partition *p, const Value *v) { return *hd_partition_slot(p, (ByValue *)&p->by, v); }

static void follow(Partition *p, const Value *v, const Value *by) {
    *hd_partition_slot(p, &p->by, v) = (Value *)(uintptr_t)by;
}

// What a rank receives of x, one part for each other rank.
static void count_bytes(Partition *p, const Value *x, const Value *by, bool whole) {
    const int64_t all = hd_type_bytes(x->type) * (p->mesh.size[p->axis] - 1);
    const int64_t tokens = by ? hd_type_count(by->type) : 1;
    if (hd_kind(&p->f->attrs) != KIND_MICRO) return;
    p->moved += by && !whole ? all / tokens * hd_int(&by->def->attrs, A_CAPACITY, tokens) : all;
    p->gathered += all;
}

static Value *build(Partition *p, const Op *at, OpKind k, Value *a, Value *b, const Attrs *as, const Type *t,
                    int layout) {
    Value *v = hd_partition_build(p, at, k, a, as, t, layout);
    Value *in[] = {a, b};
    if (b) v->def->in = hd_alloc(p->m->cx->arena, sizeof in), memcpy(v->def->in, in, sizeof in), v->def->n_in = 2;
    return v;
}

static Value *reshaped(Partition *p, const Op *at, Value *v, const Type *t) {
    if (v->type == t) return v;
    return build(p, at, OP_RESHAPE, v, NULL, NULL, t, hd_layout_at(v->layout, p->axis));
}

static const Type *as_rows(Partition *p, const Type *like, int64_t cols) { // the leading axes of `like`
    Type t = *like;
    t.dim[t.rank++] = cols;
    return hd_type(p->m->cx, like->dtype, t.rank, t.dim);
}

static Value *exchanged(Partition *p, const Op *at, Value *x, const Value *by, bool whole, int to) {
    Attrs as = {0};
    hd_set_word(p->m->cx, &as, A_COMM, p->comm->name);
    const int64_t most = hd_int(&by->def->attrs, A_CAPACITY, 0);
    if (most && !whole) hd_set_int(p->m->cx, &as, A_CAPACITY, most);
    p->collectives++;
    return build(p, at, OP_EXCHANGE, x, NULL, &as, x->type, to);
}

// The rows of x whose tokens have a choice among the experts of a rank, on that rank. NULL after an error.
static Value *send(Partition *p, const Op *at, Value *x, const Value *by) {
    Value **known = hd_partition_slot(p, &p->whole, x);
    if (*known && rows_of(p, *known) == by) return *known;
    if (hd_type_rows(x->type) != hd_type_count(by->type) || !hd_dtype_is_float(x->type->dtype)) {
        hd_error(p->m->cx, at->span, "%s is no row for each of the %lld tokens that travel by exchange: set "
                 "schedule.experts = gather", hd_type_text(p->m->cx, x->type), ll(hd_type_count(by->type)));
        return NULL;
    }
    count_bytes(p, x, by, false);
    const Type *t = hd_type_with(p->m->cx, x->type->dtype, as_rows(p, by->type, hd_type_cols(x->type)));
    Value *y = build(p, at, OP_TAKE, x, (Value *)(uintptr_t)by, NULL, t, LAYOUT_SENT);
    y = reshaped(p, at, exchanged(p, at, y, by, false, LAYOUT_EVERY), x->type);
    follow(p, y, by);
    *hd_partition_slot(p, &p->whole, x) = y;
    return y;
}

// The terms of each token's sum, back on its rank and added as a reduce-scatter adds them.
static Value *receive(Partition *p, const Op *at, Value *x, const Value *by) {
    Value **known = hd_partition_slot(p, &p->whole, x), *slots = by->def->out[1];
    if (*known) return *known;
    count_bytes(p, x, by, false);
    const int64_t cols = hd_type_cols(x->type), rows[] = {hd_type_rows(x->type), cols};
    Attrs as = {0};
    hd_set_flag(p->m->cx, &as, A_STEPWISE);
    Value *y = exchanged(p, at, x, by, false, LAYOUT_SENT);
    y = reshaped(p, at, y, hd_type(p->m->cx, x->type->dtype, 2, rows));
    const Type *t = hd_type_with(p->m->cx, x->type->dtype, as_rows(p, by->type, cols));
    y = reshaped(p, at, build(p, at, OP_COMBINE, y, slots, &as, t, LAYOUT_WHOLE), x->type);
    *hd_partition_slot(p, &p->whole, x) = y;
    return y;
}

// Choices of all ranks among the experts of this one; where an exchange moves fewer bytes, only the tokens with such.
static Value *choices(Partition *p, Op *o, int64_t experts) {
    Ctx *cx = p->m->cx;
    const Type *t = o->in[0]->type;
    const int64_t tokens = hd_type_rows(t), k = hd_type_cols(t), ranks = p->mesh.size[p->axis];
    const int64_t share = hd_ceil_div(tokens * (k < ranks ? k : ranks) * p->bound, ranks * 100);
    if (!p->bound || (share >= tokens && !p->always)) {
        count_bytes(p, o->in[0], NULL, true);
        return moved(p, o, OP_ALL_GATHER, o->in[0], LAYOUT_EVERY);
    }
    Op *r = hd_op_new(p->f, OP_ROUTE, 1, o->in);
    r->loc = o->loc, r->span = o->span;
    hd_set_int(cx, &r->attrs, A_EXPERTS, experts);
    hd_set_axes(cx, &r->attrs, A_OVER, 1u << p->axis);
    if (share < tokens) hd_set_int(cx, &r->attrs, A_CAPACITY, share);
    Type slots = *t;
    slots.dim[slots.rank - 1] = ranks;
    const Type *types[] = {hd_type(cx, TY_I32, t->rank - 1, t->dim), hd_type(cx, TY_I32, slots.rank, slots.dim), t};
    hd_set_results(r, 3, types);
    for (int i = 0; i < 3; i++)
        r->out[i]->layout = hd_layout_with(o->in[0]->layout, p->axis, i == 1 ? LAYOUT_WHOLE : LAYOUT_SENT);
    hd_insert_before(o, r);
    count_bytes(p, o->in[0], r->out[0], true);
    Value *all = exchanged(p, o, r->out[2], r->out[0], true, LAYOUT_EVERY);
    follow(p, all, r->out[0]);
    return all;
}

// --- where routing begins

// The parameter that weights are, perhaps rounded or in another shape; NULL: something else.
static const Symbol *param_of(const Value *v) {
    const Op *o = v->def;
    while (o && hd_op_is(o, TRAIT_CARRIES)) o = o->in[0]->def;
    return hd_param_read(o, 0);
}

// Weights of which each rank has all, beside others of the same rows, which are split. false after an error.
static bool split_alike(Partition *p, const Op *o, const bool *routes, int n) {
    const Symbol *w = o->kind == OP_GROUPED ? param_of(o->in[1]) : NULL;
    const Op *from = w && hd_layout_at(w->layout, p->axis) == LAYOUT_WHOLE ? hd_dispatch_of(o->in[2], 2) : NULL;
    if (!from || from->out[2]->id >= n || !routes[from->out[2]->id]) return true;
    return hd_error(p->m->cx, w->span, "@%s is not split over %s, and other weights that the rows of its dispatch meet "
                    "are: write `[experts over %s, ..]` in its declaration, too", w->name, hd_axis_name(p->axis),
                    hd_axis_name(p->axis));
}

// Marks the dispatch whose rows meet weights that ranks own. false after an error.
static bool mark_dispatch(Partition *p, const Op *o, bool *routes) {
    const Symbol *w = o->kind == OP_GROUPED ? param_of(o->in[1]) : NULL;
    if (!w || hd_layout_at(w->layout, p->axis) == LAYOUT_WHOLE) return true;
    const char *path = o->loc.path ? o->loc.path : "the model", *axis = hd_axis_name(p->axis);
    const Op *from = hd_dispatch_of(o->in[2], 2);
    if (!from)
        return hd_error(p->m->cx, o->span, "grouped of %s multiplies @%s, which is split over %s: its counts must be "
                        "those of a dispatch, which says what rows other ranks send", path, w->name, axis);
    routes[from->out[2]->id] = true;
    return true;
}

// What is not computed by rows, such as how many choices were dropped, reads the choices of one rank's tokens alone.
static void keep_own(Partition *p, Op *o) {
    Op *own = NULL;
    for (Op *u = o->next; u; u = u->next)
        for (int i = 0; i < u->n_in && !hd_spread_on_rows(u->kind); i++)
            for (int k = 0; k < o->n_out; k++) {
                if (u->in[i] != o->out[k]) continue;
                if (!own) hd_insert_before(o, own = hd_op_clone(p->f, o, o->in));
                u->in[i] = own->out[k];
                break;
            }
}

// Choices of all ranks, counted from the rank's first expert.
static bool route(Partition *p, Op *o) {
    Ctx *cx = p->m->cx;
    const int64_t experts = hd_int(&o->attrs, A_EXPERTS, 0), ranks = p->mesh.size[p->axis];
    if (experts % ranks)
        return hd_error(cx, o->span, "dispatch of %s has %lld experts, which do not divide by the %lld ranks along %s: "
                        "take a number of ranks that divides them", o->loc.path ? o->loc.path : "the model",
                        ll(experts), ll(ranks), hd_axis_name(p->axis));
    if (o->in[0]->type->rank < 2)
        return hd_error(cx, o->span, "dispatch of %s cannot be split over %s: its choices, %s, are those of one token, "
                        "which cannot travel apart. Choices of many tokens are [tokens, choices], such as "
                        "reshape(chosen, [%lld, 1])", o->loc.path ? o->loc.path : "the model", hd_axis_name(p->axis),
                        hd_type_text(cx, o->in[0]->type), ll(hd_type_count(o->in[0]->type)));
    Value *all = choices(p, o, experts);
    Attrs as = {0};
    hd_set_axes(cx, &as, A_OVER, 1u << p->axis);
    hd_set_int(cx, &as, A_ROWS, experts / ranks);
    hd_set_flag(cx, &as, A_ROUTED);
    keep_own(p, o);
    o->in[0] = hd_partition_build(p, o, OP_OWN_INDEX, all, &as, all->type, LAYOUT_ROUTED);
    follow(p, o->in[0], rows_of(p, all));
    if (hd_has(&o->attrs, A_CAPACITY)) hd_set_int(cx, &o->attrs, A_RUNS, ranks);
    hd_set_int(cx, &o->attrs, A_EXPERTS, experts / ranks);
    return true;
}

// --- layouts

static const char *lay_out(const Partition *p, const Op *o, int *out) {
    int in[HD_MAX_IN];
    for (int i = 0; i < o->n_in; i++) in[i] = hd_layout_at(o->in[i]->layout, p->axis);
    memset(out, 0, sizeof *out * HD_MAX_IN);
    return hd_spread(o, p->axis, in, out);
}

static Value *gather(Partition *p, const Op *at, Value *x) {
    if (!*hd_partition_slot(p, &p->whole, x)) count_bytes(p, x, NULL, true);
    return moved(p, at, OP_ALL_GATHER, x, LAYOUT_EVERY);
}

static Value *complete(Partition *p, const Op *at, Value *x) {
    const Value *by = rows_of(p, x);
    if (by) return receive(p, at, x, by);
    if (!*hd_partition_slot(p, &p->whole, x)) count_bytes(p, x, NULL, true);
    return moved(p, at, OP_REDUCE_SCATTER, x, LAYOUT_WHOLE);
}

// A partial sum is completed by the first op that reads it. A value of one rank is gathered, operand by operand, until
// the rule of an op on rows of experts accepts the rest.
static bool lay_out_op(Partition *p, Op *o) {
    int out[HD_MAX_IN];
    bool experts = false;
    const Value *by = NULL; // of what is computed by rows
    for (int i = 0; i < o->n_in; i++) {
        const int at = hd_layout_at(o->in[i]->layout, p->axis);
        experts |= at == LAYOUT_ROUTED;
        if (!by) by = rows_of(p, o->in[i]);
        if (at == LAYOUT_SUM && o->kind != OP_RESHAPE) o->in[i] = complete(p, o, o->in[i]);
    }
    const char *wrong = lay_out(p, o, out), *why = wrong;
    for (int i = 0; wrong && experts && i < o->n_in; i++) {
        Value *was = o->in[i];
        if (hd_layout_at(was->layout, p->axis) != LAYOUT_WHOLE || !was->type->rank) continue;
        o->in[i] = by ? send(p, o, was, by) : gather(p, o, was);
        if (!o->in[i]) return false;
        wrong = lay_out(p, o, out);
    }
    for (int i = 0; !wrong && i < o->n_out; i++)
        if (out[i] == LAYOUT_ROUTED || out[i] == LAYOUT_SUM || out[i] == LAYOUT_EVERY) follow(p, o->out[i], by);
    for (int i = 0; !wrong && i < o->n_out; i++)
        o->out[i]->layout = hd_layout_with(o->out[i]->layout, p->axis, out[i]);
    return !wrong || hd_error(p->m->cx, o->span, "%s%s%s cannot be split over %s: %s", hd_op_info(o->kind)->mnemonic,
                              o->loc.path ? " of " : "", o->loc.path ? o->loc.path : "", hd_axis_name(p->axis), why);
}

bool hd_partition_experts(Partition *p) {
    bool *routes = HD_NEWN(p->cx->scratch, bool, p->f->n_values + 1); // by value id
    for (const Op *o = p->f->first; o; o = o->next)
        if (!mark_dispatch(p, o, routes)) return false;
    const int n = p->f->n_values;
    for (const Op *o = p->f->first; o; o = o->next)
        if (!split_alike(p, o, routes, n)) return false;
    for (Op *o = p->f->first; o; o = o->next) {
        const bool routed = o->kind == OP_DISPATCH && o->out[2]->id < n && routes[o->out[2]->id];
        if ((routed && !route(p, o)) || !lay_out_op(p, o)) return false;
    }
    return true;
}

// --- what the axis does not go with

static const Symbol *first_of_experts(const Module *m) {
    for (const Func *f = m->funcs; f; f = f->next)
        for (const Op *o = f->first; o && !f->is_kernel; o = o->next)
            if (o->kind == OP_GROUPED && param_of(o->in[1])) return param_of(o->in[1]);
    return NULL;
}

bool hd_experts_refuse(const Partition *p) {
    Ctx *cx = p->m->cx;
    const char *axis = hd_axis_name(p->axis);
    const int64_t ranks = p->mesh.size[p->axis];
    const Symbol *w = first_of_experts(p->m), *schedule = hd_symbol_find(p->m, "schedule");
    if (!w)
        return hd_error(cx, schedule ? schedule->span : (Span){0},
                        "the mesh has %lld ranks along %s, and the model has no product `grouped` by the rows of "
                        "experts: take %s = 1 and %lld times as many ranks along shard", ll(ranks), axis, axis,
                        ll(ranks));
    return hd_error(cx, w->span, "the mesh has %lld ranks along %s, and no parameter is split over it; the first that "
                    "can be is @%s: write `[experts over %s, ..]` in the declarations of all weights that `grouped` "
                    "multiplies, or take %s = 1", ll(ranks), axis, w->name, axis, axis);
}

void hd_experts_transport(Partition *p) {
    const Attrs *as = hd_settings(p->m, "schedule");
    const char *how = hd_word(as, A_TRANSPORT, NULL);
    p->bound = how ? hd_int(as, A_SHARE_BOUND, 150) : 0;
    p->always = how && !strcmp(how, "exchange");
}
