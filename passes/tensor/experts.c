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
// axis, and its divisor is that of the loss alone.
#include "ir/base/ints.h"
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

// --- where routing begins

// The parameter that weights are, perhaps rounded or in another shape; NULL: something else.
static const Symbol *param_of(const Value *v) {
    const Op *o = v->def;
    while (o && (o->kind == OP_CAST || hd_op_is(o, TRAIT_ALIAS)) && o->n_in) o = o->in[0]->def;
    return o && o->kind == OP_PARAM ? hd_named(o, A_PARAM) : NULL;
}

// Marks the dispatch whose rows meet weights that ranks own. false after an error.
static bool mark_dispatch(Partition *p, const Op *o, bool *routes) {
    const Symbol *w = o->kind == OP_GROUPED ? param_of(o->in[1]) : NULL;
    if (!w || hd_layout_at(w->layout, p->axis) == LAYOUT_WHOLE) return true;
    const char *path = o->loc.path ? o->loc.path : "the model", *axis = hd_axis_name(p->axis);
    const Op *from = o->in[2]->def;
    if (!from || from->kind != OP_DISPATCH || o->in[2] != from->out[2])
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
    Value *all = moved(p, o, OP_ALL_GATHER, o->in[0], LAYOUT_EVERY);
    Attrs as = {0};
    hd_set_axes(cx, &as, A_OVER, 1u << p->axis);
    hd_set_int(cx, &as, A_ROWS, experts / ranks);
    hd_set_flag(cx, &as, A_ROUTED);
    keep_own(p, o);
    o->in[0] = hd_partition_build(p, o, OP_OWN_INDEX, all, &as, all->type, LAYOUT_ROUTED);
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

// A partial sum is completed by the first op that reads it. A value of one rank is gathered, operand by operand, until
// the rule of an op on rows of experts accepts the rest.
static bool lay_out_op(Partition *p, Op *o) {
    int out[HD_MAX_IN];
    bool experts = false;
    for (int i = 0; i < o->n_in; i++) {
        const int at = hd_layout_at(o->in[i]->layout, p->axis);
        experts |= at == LAYOUT_ROUTED;
        if (at == LAYOUT_SUM && o->kind != OP_RESHAPE)
            o->in[i] = moved(p, o, OP_REDUCE_SCATTER, o->in[i], LAYOUT_WHOLE);
    }
    const char *wrong = lay_out(p, o, out), *why = wrong;
    for (int i = 0; wrong && experts && i < o->n_in; i++) {
        Value *was = o->in[i];
        if (hd_layout_at(was->layout, p->axis) != LAYOUT_WHOLE || !was->type->rank) continue;
        o->in[i] = moved(p, o, OP_ALL_GATHER, was, LAYOUT_EVERY);
        wrong = lay_out(p, o, out);
    }
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

bool hd_experts_allowed(const Partition *p) {
    const Symbol *train = hd_symbol_find(p->m, "train");
    const char *axis = hd_axis_name(p->axis);
    if (strcmp(hd_word(hd_settings(p->m, "train"), A_REDUCTION, "each"), "tree")) return true;
    return hd_error(p->m->cx, train ? train->span : (Span){0}, "train.reduce = tree, and the mesh has %lld ranks along "
                    "%s: one product adds the gradient of an expert over the tokens of all of them, which is no tree. "
                    "Set train.reduce = each, or take %s = 1", ll(p->mesh.size[p->axis]), axis, axis);
}
