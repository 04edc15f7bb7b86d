// How a loss depends on every leaf of a probe, in one pass from the loss back, as autodiff goes: the change of the loss
// for a change of a value follows from those of the results of the ops that read it. The derivatives of one op are
// differences of its probe rule, with the operand moved by as much as it moves when all leaves do, so that a step is
// neither lost in a large number nor large for a small one. A function that is not smooth has no derivative there
// (NaN).
#include "passes/verify/values/probe.h"
#include <math.h>

typedef struct {
    Probe *p;
    Num *base, *far, *back; // by value id: the numbers, those after all leaves moved, the change of the loss for each
} Back;

enum { MOST_RESULTS = 3 }; // of an op that a probe follows

static bool moves_whole(const Back *b, int id) { // all kinds of it at once
    if (!b->p->mixed) return true;
    for (int h = 1; h < KINDS; h++)
        if (b->base[id].of[h] != b->base[id].of[0]) return false;
    return true;
}

// The change of the loss for a change of operand i, of one kind (-1: of all), over one step of size `by`.
static double slope(const Back *b, const Op *o, const Num *x, int i, int kind, double by) {
    Num up[MOST_RESULTS], down[MOST_RESULTS], *moved = HD_NEWN(b->p->c->a, Num, o->n_in + MOST_RESULTS);
    double sum = 0;
    for (int side = 0; side < 2; side++) {
        for (int k = 0; k < o->n_in; k++) moved[k] = x[k];
        for (int h = 0; h < KINDS; h++)
            if (kind < 0 || h == kind) moved[i].of[h] += side ? -by : by;
        hd_probe_op(b->p, o, moved, side ? down : up);
    }
    for (int r = 0; r < o->n_out && r < MOST_RESULTS; r++)
        for (int h = 0; h < KINDS; h++) {
            const double weight = b->back[o->out[r]->id].of[h];
            if (weight != 0) sum += weight * (up[r].of[h] - down[r].of[h]) / (2 * by);
        }
    return sum;
}

static double settled(const Back *b, const Op *o, const Num *x, int i, int kind, double by) {
    const double coarse = slope(b, o, x, i, kind, by), fine = slope(b, o, x, i, kind, by / 2);
    return fabs(coarse - fine) <= 1e-3 * fabs(fine) + 1e-12 ? (4 * fine - coarse) / 3 : (double)NAN;
}

static bool is_reached(const Back *b, const Op *o) { // the loss depends on one of its results
    for (int r = 0; r < o->n_out; r++)
        for (int h = 0; h < KINDS; h++)
            if (b->back[o->out[r]->id].of[h] != 0) return true;
    return false;
}

// From the results of an op to its operands. stop_gradient gives what it has without the step.
static void go_back(const Back *b, const Op *o) {
    if (hd_op_is(o, TRAIT_STOPS) || !is_reached(b, o)) return;
    ArenaMark mark = hd_arena_mark(b->p->c->a);
    Num *x = HD_NEWN(b->p->c->a, Num, o->n_in + MOST_RESULTS);
    for (int i = 0; i < o->n_in; i++) x[i] = b->base[o->in[i]->id];
    for (int i = 0; i < o->n_in; i++) {
        const int id = o->in[i]->id;
        const bool whole = moves_whole(b, id);
        for (int h = 0; h < (whole ? 1 : KINDS); h++) {
            const double by = fabs(b->far[id].of[h] - b->base[id].of[h]);
            if (by > 0) b->back[id].of[h] += settled(b, o, x, i, whole ? -1 : h, by);
        }
    }
    hd_arena_rewind(b->p->c->a, mark);
}

static void forward(const Back *b, const Func *k, const Op *ret, Num *at) {
    for (const Op *o = k->first; o != ret; o = o->next) {
        Num *x = HD_NEWN(b->p->c->a, Num, o->n_in + MOST_RESULTS), y[MOST_RESULTS];
        for (int i = 0; i < o->n_in; i++) x[i] = hd_op_is(o, TRAIT_STOPS) ? b->base[o->in[i]->id] : at[o->in[i]->id];
        hd_probe_op(b->p, o, x, y);
        for (int i = 0; i < o->n_out; i++)
            at[o->out[i]->id] =
                i < MOST_RESULTS && hd_dtype_is_float(o->out[i]->type->dtype) ? y[i] : hd_probe_all((double)NAN);
    }
}

static void launch_back(const Back *b, const Op *o) {
    const Func *k = hd_launched(o);
    const Op *ret = k && k->n_args == o->n_in ? hd_return(k) : NULL;
    if (!ret || !is_reached(b, o)) return;
    Arena *a = b->p->c->a;
    ArenaMark mark = hd_arena_mark(a);
    const int n = k->n_values + 1;
    Back in = {b->p, HD_NEWN(a, Num, n), HD_NEWN(a, Num, n), HD_NEWN(a, Num, n)};
    for (int i = 0; i < o->n_in; i++) {
        in.base[k->args[i]->id] = b->base[o->in[i]->id];
        in.far[k->args[i]->id] = b->far[o->in[i]->id];
    }
    forward(&in, k, ret, in.base);
    forward(&in, k, ret, in.far);
    for (int i = 0; i < ret->n_in && i < o->n_out; i++)
        for (int h = 0; h < KINDS; h++) in.back[ret->in[i]->id].of[h] += b->back[o->out[i]->id].of[h];
    for (const Op *x = ret->prev; x; x = x->prev) go_back(&in, x);
    for (int i = 0; i < o->n_in; i++)
        for (int h = 0; h < KINDS; h++) b->back[o->in[i]->id].of[h] += in.back[k->args[i]->id].of[h];
    hd_arena_rewind(a, mark);
}

// The change of the loss when the leaf of a value moves: one kind of it, or all of it.
static void give_leaf(const Back *b, const Value *v, Num *moves) {
    const Probe *p = b->p;
    const Num *back = &b->back[v->id];
    Num *leaf = &moves[p->leaf[v->id] - 1];
    const bool several = hd_dtype_is_float(v->type->dtype) && p->mixed && hd_type_cols(v->type) > 1;
    double all = 0;
    for (int h = 0; h < KINDS; h++) all += back->of[h];
    for (int h = 0; h < KINDS; h++) leaf->of[h] += several ? back->of[h] : all;
}

static Num *numbers_of(const Probe *p, const Num *at) {
    Num *copy = HD_NEWN(p->c->a, Num, p->f->n_values + 1);
    memcpy(copy, at, sizeof *copy * (size_t)p->f->n_values);
    return copy;
}

Num *hd_probe_back(Probe *p, const Write *kept, int n) {
    Num *moves = HD_NEWN(p->c->a, Num, p->leaves.n + 1);
    const double step = 1.0 / 8192 / sqrt(1.0 + p->leaves.n);
    Back b = {.p = p, .back = HD_NEWN(p->c->a, Num, p->f->n_values + 1)};
    hd_probe_run(p, HD_ALL_LEAVES, 0, step);
    b.far = numbers_of(p, p->at);
    hd_probe_run(p, -1, 0, 0);
    b.base = numbers_of(p, p->at);
    for (int i = 0; i < n; i++) b.back[kept[i].value->id].of[0] += 1;
    for (const Op *o = p->f->last; o; o = o->prev) {
        bool leaf = false;
        for (int i = 0; i < o->n_out; i++)
            if (p->leaf[o->out[i]->id]) {
                give_leaf(&b, o->out[i], moves);
                b.back[o->out[i]->id] = (Num){{0}};
                leaf = true;
            }
        if (leaf && o->n_out == 1) continue;
        if (hd_op_is(o, TRAIT_LAUNCH)) launch_back(&b, o);
        else if (hd_probe_inner(o)) go_back(&b, o);
    }
    for (int i = 0; i < p->f->n_args; i++)
        if (p->leaf[p->f->args[i]->id]) give_leaf(&b, p->f->args[i], moves);
    return moves;
}
