// Weight gradients behind collectives of values. Where ranks share the values of a model (axes of HD_OWN_AXES), the
// main stream waits for collectives between its products. Nothing reads a gradient of weights soon, so in the backward
// pass its product waits as well, and runs while a collective does:
//   [compute] gemm %dy, %x {into = @b.grad}         [compute] %dx = gemm %dy, %w
//   [compute] %dx = gemm %dy, %w                    [tensor]  %s = reduce_scatter %dx
//   [tensor]  %s = reduce_scatter %dx          ->   [compute] gemm %dy, %x {into = @b.grad}
//   [compute] launch %s                             [compute] launch %s
//
// A product waits only as long as those that were made later do not cover the next collectives: it keeps what it reads.
// Products keep their order among each other, and none waits beyond what needs it, a fence, or the end of its capture
// region. For how many collectives products are held back, and how much longer than the table's time these are taken to
// last, is tried. Of the orders whose estimated peak rises by at most 1 %, the one is taken that ends first, at the
// table's rate and at half of it.
#include "ir/machine/device_model.h"
#include "ir/mesh.h"
#include "passes/schedule/order_graph.h"
#include "passes/schedule/region_keys.h"
#include "passes/schedule/schedule.h"

enum { MOST_BYTES_PERCENT = 1 };
// The lines of a table are of large messages, with nothing beside them: beside products they may take twice as long.
static const double SLOWEST = 2;
static const struct { int slots; double margin; } tries[] = {{2, 2}, {3, 2}, {2, 1}, {3, 1}, {4, 1}};

typedef struct {
    OrderGraph g;
    Deps deps;
    Arena *a;
    const DeviceModel *d;
    RegionKeys keys;
    RegionKey key;       // of the ops in `queue`
    Axes own;            // of the mesh, whose ranks share values
    int slots;           // collectives for which products are held back
    double margin;       // how many times the table's time a collective is taken to last
    double longest, now; // the longest collective of values; when the main stream gets to its next op
    double *end;         // by op id: when it has ended
    int *number, *reach; // by op id: of a product that may wait, counted from 1; the highest of those that it follows
    int *queue, first, last; // products that wait: queue[first] .. queue[last - 1]
    int *order, n;
} Cover;

static bool is_of_values(const Cover *x, const Op *o) {
    const Symbol *comm = hd_op_is(o, TRAIT_COLLECTIVE) && o->n_in ? hd_named(o, A_COMM) : NULL;
    return comm && x->g.side[o->id] && (hd_axes(&comm->attrs, A_OVER) & x->own);
}

static double seconds(const Cover *x, const Op *o) { // without a table a product takes as long as a collective
    const bool collective = hd_op_is(o, TRAIT_COLLECTIVE);
    const double once = x->d ? hd_model_seconds(x->d, o) : collective || hd_op_is(o, TRAIT_MATMUL);
    return once * (collective ? x->margin : 1);
}

static bool may_wait(const Cover *x, const Op *o) {
    const Symbol *b = hd_named(o, A_INTO);
    return o->kind == OP_GEMM && !o->n_out && !x->g.side[o->id] && hd_has(&o->attrs, A_BWD) && b &&
           !strcmp(hd_word(&b->attrs, A_CLASS, ""), "gradients");
}

// Which products an op follows, also by way of other streams, each of which has one order.
static bool find_reach(Cover *x) {
    const Func *f = x->g.f;
    VEC(const Op *) streams = {0};
    int n = 0;
    for (const Op *o = f->first; o; o = o->next) {
        int *reach = &x->reach[o->id];
        if (may_wait(x, o)) x->number[o->id] = ++n;
        for (int k = x->deps.start[o->id]; k < x->deps.start[o->id + 1]; k++) {
            const int p = x->deps.pred[k], to = x->number[p] ? x->number[p] : x->reach[p];
            if (to > *reach) *reach = to;
        }
        if (!x->g.side[o->id]) continue;
        int i = 0;
        while (i < streams.n && streams.at[i]->stream != o->stream) i++;
        if (i == streams.n) hd_push(x->a, &streams, o);
        if (x->reach[streams.at[i]->id] > *reach) *reach = x->reach[streams.at[i]->id];
        streams.at[i] = o;
    }
    return n;
}

static double longest(const Cover *x) {
    double most = 0;
    for (const Op *o = x->g.f->first; o; o = o->next)
        if (is_of_values(x, o) && seconds(x, o) > most) most = seconds(x, o);
    return most;
}

static void emit(Cover *x, int id) {
    x->order[x->n++] = id;
    x->now += seconds(x, x->g.ops[id]);
    x->end[id] = x->now;
}

static void emit_first(Cover *x) { emit(x, x->queue[x->first++]); }

// Whether products from queue[i] on cover the next collectives.
static bool covers(const Cover *x, int i) {
    for (int slot = 0; slot < x->slots; slot++) {
        double sum = 0;
        while (i < x->last && sum < x->longest) sum += seconds(x, x->g.ops[x->queue[i++]]);
        if (sum < x->longest) return false;
    }
    return true;
}

// Of an op of another stream: when it ends, if all that it follows has run.
static void follow(Cover *x, int id, double *free) {
    double start = *free;
    for (int k = x->deps.start[id]; k < x->deps.start[id + 1]; k++)
        if (x->end[x->deps.pred[k]] > start) start = x->end[x->deps.pred[k]];
    x->end[id] = *free = start + seconds(x, x->g.ops[id]);
}

static void add_main(Cover *x, int id) {
    const Op *o = x->g.ops[id];
    const RegionKey key = hd_region_key(&x->keys, o);
    const bool ends = hd_op_is(o, TRAIT_ORDERS) || (x->keys.parts && !hd_same_region(key, x->key));
    x->key = key;
    while (x->first < x->last && (ends || x->number[x->queue[x->first]] <= x->reach[id])) emit_first(x);
    if (x->number[id]) {
        x->queue[x->last++] = id;
        while (covers(x, x->first + 1)) emit_first(x);
        return;
    }
    for (int k = x->deps.start[id]; k < x->deps.start[id + 1]; k++) {
        const Op *on = x->g.ops[x->deps.pred[k]];
        while (is_of_values(x, on) && x->first < x->last && x->now < x->end[on->id]) emit_first(x);
        if (x->g.side[on->id] && x->end[on->id] > x->now) x->now = x->end[on->id];
    }
    emit(x, id);
}

// When the ops of an order have run: each stream in its order, an op after all that it follows.
static double end_of(Cover *x, const int *order, int n, double margin) {
    typedef struct { const char *stream; double free; } Lane;
    VEC(Lane) lanes = {0};
    double end = 0;
    x->margin = margin;
    for (int i = 0; i < n; i++) {
        const Op *o = x->g.ops[order[i]];
        int k = 0;
        while (k < lanes.n && lanes.at[k].stream != o->stream) k++;
        if (k == lanes.n) hd_push(x->a, &lanes, ((Lane){o->stream, 0}));
        follow(x, o->id, &lanes.at[k].free);
        if (x->end[o->id] > end) end = x->end[o->id];
    }
    return end;
}

// The given order with products moved behind collectives.
static const int *cover(Cover *x, const Order *given) {
    double free = 0;
    x->order = HD_NEWN(x->a, int, x->g.f->n_ops + 1);
    x->n = x->first = x->last = 0;
    x->now = 0;
    x->key = (RegionKey){0};
    x->longest = longest(x);
    for (int i = 0; i < given->n; i++) {
        const int id = given->op[i];
        if (!x->g.side[id]) add_main(x, id);
        else x->order[x->n++] = id;
        if (is_of_values(x, x->g.ops[id])) follow(x, id, &free);
    }
    while (x->first < x->last) emit_first(x);
    return hd_order_others(&x->g, x->order, x->n);
}

Order hd_order_cover(Func *f, const char *main, Order order, PassCx *cx) {
    Arena *a = cx->scratch;
    const Mesh mesh = hd_mesh(f->module);
    const size_t n = (size_t)f->n_ops + 1;
    Cover x = {.a = a, .own = hd_mesh_live(&mesh) & HD_OWN_AXES, .margin = 1};
    if (!x.own) return order;
    x.g = hd_order_graph(f, main, a);
    x.deps = hd_deps(f, a);
    x.d = hd_model(f->module);
    x.keys = hd_region_keys(f->module, a);
    x.end = HD_NEWN(a, double, n);
    x.number = HD_NEWN(a, int, n);
    x.reach = HD_NEWN(a, int, n);
    x.queue = HD_NEWN(a, int, n);
    if (!find_reach(&x) || !(longest(&x) > 0)) return order;
    const int64_t most = order.peak + (hd_persistent_bytes(f->module) + order.peak) * MOST_BYTES_PERCENT / 100;
    const double before = end_of(&x, order.op, order.n, 1);
    double least = before + end_of(&x, order.op, order.n, SLOWEST);
    Order best = order;
    int moved = 0;
    for (size_t i = 0; i < sizeof tries / sizeof *tries; i++) {
        x.slots = tries[i].slots;
        x.margin = tries[i].margin;
        const int *covered = cover(&x, &order);
        const Cost c = hd_order_cost(&x.g, covered, x.n);
        const double fast = end_of(&x, covered, x.n, 1), both = fast + end_of(&x, covered, x.n, SLOWEST);
        if (c.peak > most || fast > before || both >= least) continue;
        least = both;
        moved = x.last;
        best = (Order){x.n, covered, order.saved + order.peak - c.peak, c.peak, c.behind};
    }
    if (moved) hd_count(cx, "weight gradients behind collectives", moved);
    return best;
}
