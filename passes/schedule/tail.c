// The last reduction of a backward pass. Its sum is complete only when the gradients of activations have come
// all the way back, as is that of the embedding, and nothing is left to run beside it: the norm needs it. But gradients
// of weights of the unit before may wait. So what this reduction needs comes first, and then, beside it, the other work
// of that unit, whose own reduction comes last instead. Fences keep the work behind what the reduction needs.
//   [compute] gemm %dy, %x {into = @b.gradient}         [compute] %dx = gemm %dy, %w
//   [compute] %dx = gemm %dy, %w                        [compute] embedding_grad %dx, %t {into = @root.gradient}
//   [compute] embedding_grad %dx, %t               ->   [reduce]  reduce_scatter {buffer = @root.gradient}
//   [reduce]  reduce_scatter {buffer = @b.gradient}     [compute] fence %dx
//   [reduce]  reduce_scatter {buffer = @root.gradient}  [compute] gemm %dy, %x {into = @b.gradient}
//                                                       [reduce]  reduce_scatter {buffer = @b.gradient}
//
// This is done where the device's table says that less of both reductions is exposed then, and where at most half of
// the estimated peak is live from then on: work that waits keeps what it reads.
#include "ir/machine/device_model.h"
#include "passes/analysis/deps.h"
#include "passes/schedule/schedule.h"
#include <string.h>

typedef struct {
    Func *f;
    Arena *a;
    const char *main;
    Op **ops;         // by op id
    Deps deps;
    int n_ops;
    const Op *last, *other; // the last reduction, and the one before it
    int from, to;     // main ops whose ids are in (from, to] change places; `to`: the last that `last` needs
    bool *early;      // by op id: `last` needs it
} Tail;

static bool on_main(const Tail *t, const Op *o) { return o->stream == t->main && !hd_is_alias(o); }

// The last op of the main stream that a reduction follows; -1: none.
static int trigger(const Tail *t, const Op *o) {
    int last = -1;
    for (int k = t->deps.start[o->id]; k < t->deps.start[o->id + 1]; k++)
        if (t->deps.pred[k] > last && on_main(t, t->ops[t->deps.pred[k]])) last = t->deps.pred[k];
    return last;
}

// The last two reductions of one stream, and what lies between the one before them and the last. False: there are none.
// Sums that ops read, as those over tensor, are not among them.
static bool find_reductions(Tail *t) {
    const Op *before = NULL;
    for (int i = 0; i < t->n_ops; i++) {
        const Op *o = t->ops[i];
        if (o->kind != OP_REDUCE_SCATTER || o->n_out || o->stream == t->main) continue;
        before = t->other;
        t->other = t->last;
        t->last = o;
    }
    if (!t->other || t->other->stream != t->last->stream) return false;
    t->from = before ? trigger(t, before) : -1;
    t->to = trigger(t, t->last);
    return trigger(t, t->other) > t->from;
}

static void find_early(Tail *t) {
    t->early[t->last->id] = true;
    for (int i = t->last->id; i > t->from; i--) {
        // a gradient that is being written when another one begins does not count as one that waits (live_grads)
        if (hd_op_is(t->ops[i], TRAIT_BEGINS) && i <= t->to) t->early[i] = true;
        for (int k = t->deps.start[i]; t->early[i] && k < t->deps.start[i + 1]; k++)
            if (i != t->last->id || t->deps.pred[k] != t->other->id) // that order is what changes
                t->early[t->deps.pred[k]] = true;
    }
    for (int i = t->from + 1; i <= t->to; i++) { // ops of other streams keep their order among each other
        bool ready = t->ops[i]->stream != t->main && t->ops[i] != t->other;
        for (int k = t->deps.start[i]; ready && k < t->deps.start[i + 1]; k++)
            ready = t->deps.pred[k] <= t->from || t->early[t->deps.pred[k]];
        if (ready) t->early[i] = true;
    }
}

// Whether less of the two reductions would be exposed.
static bool pays(const Tail *t, const DeviceModel *d) {
    const double other = hd_model_seconds(d, t->other), last = hd_model_seconds(d, t->last);
    const int begins = trigger(t, t->other);
    double between = 0, late = 0;
    for (int i = t->from + 1; i <= t->to; i++) {
        const Op *o = t->ops[i];
        if (t->early[i] || hd_is_alias(o) || o == t->other) {
            if (i > begins && on_main(t, o)) between += hd_model_seconds(d, o);
            continue;
        }
        if (!on_main(t, o)) return false; // of a stream that would wait behind it
        late += hd_model_seconds(d, o);
        if (i > begins) between += hd_model_seconds(d, o);
    }
    if (late <= 0 || t->early[begins] || t->early[t->other->id]) return false;
    const double now = (other > between ? other - between : 0) + last, then = other + (last > late ? last - late : 0);
    return then < now;
}

// The last value that is made on the main stream before the op that the last reduction follows.
static Value *made_last(const Tail *t) {
    for (int i = t->to - 1; i > t->from; i--) {
        const Op *o = t->ops[i];
        for (int k = 0; t->early[i] && on_main(t, o) && k < o->n_out; k++)
            if (!hd_space(&o->attrs)) return o->out[k];
    }
    return NULL;
}

static Op *fence(const Tail *t, Value *made) { // its place comes with the order
    Builder b = {.f = t->f, .before = t->f->last, .bwd = true, .loc = t->last->loc, .span = t->last->span};
    Op *o = hd_build(&b, OP_FENCE, 1, &made, NULL, NULL);
    o->stream = t->main;
    return o;
}

// The first fence keeps gradients that have begun from beginning only when the last reduction waits: see find_early.
static void apply(const Tail *t, Value *made) {
    Op *begun = fence(t, made), *done = fence(t, made), **order = HD_NEWN(t->a, Op *, t->n_ops + 2);
    hd_renumber(t->f); // the others keep their numbers
    int n = 0;
    const int end = t->n_ops - 1; // the return
    for (int i = 0; i <= t->to; i++) {
        if (i == t->to) order[n++] = begun;
        if (!hd_is_alias(t->ops[i]) && (i <= t->from || t->early[i])) order[n++] = t->ops[i];
    }
    order[n++] = t->ops[t->last->id];
    order[n++] = done;
    for (int i = t->from + 1; i <= t->to; i++)
        if (!hd_is_alias(t->ops[i]) && !t->early[i] && t->ops[i] != t->other) order[n++] = t->ops[i];
    order[n++] = t->ops[t->other->id];
    for (int i = t->to + 1; i < end; i++)
        if (!hd_is_alias(t->ops[i]) && t->ops[i] != t->other && t->ops[i] != t->last) order[n++] = t->ops[i];
    hd_set_order(t->f, order, n, t->a);
    hd_renumber(t->f);
}

static void take_back(const Tail *t) {
    Op **order = HD_NEWN(t->a, Op *, t->n_ops + 1);
    int n = 0;
    for (Op *o = t->f->first, *next; o; o = next) {
        next = o->next;
        bool mine = hd_op_is(o, TRAIT_ORDERS);
        for (int i = 0; mine && i < t->n_ops; i++) mine = t->ops[i] != o;
        if (mine) hd_erase(o);
    }
    hd_renumber(t->f);
    for (int i = 0; i < t->n_ops - 1; i++)
        if (!hd_is_alias(t->ops[i])) order[n++] = t->ops[i];
    hd_set_order(t->f, order, n, t->a);
    hd_renumber(t->f);
}

Order hd_order_tail(Func *f, const char *main, Order order, PassCx *cx) {
    const DeviceModel *d = hd_model(f->module);
    Arena *a = cx->scratch;
    Tail t = {.f = f, .a = a, .main = main, .deps = hd_deps(f, a), .n_ops = f->n_ops,
              .ops = HD_NEWN(a, Op *, f->n_ops + 1), .early = HD_NEWN(a, bool, f->n_ops + 1)};
    for (Op *o = f->first; o; o = o->next) t.ops[o->id] = o;
    if (!d || !find_reductions(&t)) return order;
    find_early(&t);
    Value *made = pays(&t, d) ? made_last(&t) : NULL;
    if (!made) return order;
    apply(&t, made);
    const Order moved = hd_find_order(f, main, a);
    if (moved.peak <= order.peak && moved.behind <= order.peak / 2) {
        hd_count(cx, "last reductions brought forward", 1);
        return moved;
    }
    take_back(&t);
    return hd_find_order(f, main, a);
}
