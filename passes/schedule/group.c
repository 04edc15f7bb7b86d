// An order in which the work of each capture region is in one piece. order.c moves ops for memory, one by one, and a
// gradient that frees its operands early may come to lie in another module's work. Where a schedule captures units or
// listed places, that cuts a region in two. So two runs of one region's work become one where the dependences allow it:
//   [compute] gemm             loc(blocks.0.mlp)           [compute] launch           loc(blocks.0.norm)
//   [compute] launch           loc(blocks.0.norm)    ->    [compute] gemm             loc(blocks.0.mlp)
//   [compute] gemm {into = @g} loc(blocks.0.mlp)           [compute] gemm {into = @g} loc(blocks.0.mlp)
// Either the second run comes up to the first, with what it needs of the ops between them, or the first goes down to
// the second, with what needs it. Nothing that follows the first run, by way of other streams too, may be needed by the
// second. Of both ways the one is taken that changes no overlap (order.c), then the one of the lower peak. The number
// of runs has to become smaller, and no peak may be higher than what is allowed.
//
// A fence that says that copies have left goes behind the run that it is in: in a region it would be a wait for
// something that begins there, and capture would cut.
#include "passes/analysis/access.h"
#include "passes/schedule/order_graph.h"
#include "passes/schedule/region_keys.h"
#include "passes/schedule/schedule.h"

typedef struct { int first, last, key; } Run; // of Group.full, with its ends; key: number of its region, from 1
typedef VEC(Run) Runs;
typedef VEC(int) OpList;

typedef struct {
    const OrderGraph *g;
    Arena *a;
    int n;
    int64_t most;
    const int *full; // all ops, in order
    Cost cost;
    int *key;        // by op id: number of its region; 0: of none; -1: nothing that a region counts
    int *before;     // by op id: the op before it on its stream, if that is not the main one; -1: none
    int *part;       // by op id, scratch: see Part
} Group;

typedef enum { OUTSIDE, FIRST, SECOND, BETWEEN, NEEDED, FOLLOWS } Part; // of the ops from the first run to the second

// --- runs

// Whether plan-memory will make a store part of the op before it: that has to come after the begin of the buffer's
// life. `place`: of ops, by id; `begin`: of begins, by symbol id; 0: of none.
static bool is_placed(const Op *o, const Uses *uses, const int *place, const int *begin) {
    const Symbol *b = hd_named(o, A_INTO);
    const Value *v = hd_store_may_be_in_place(o) ? o->in[0] : NULL;
    while (v && uses->count[v->id] == 1 && v->def && hd_op_is(v->def, TRAIT_ALIAS)) v = v->def->in[0];
    return v && uses->count[v->id] == 1 && v->def && !hd_is_alias(v->def) && place[v->def->id] >= begin[b->id];
}

static void find_keys(Group *x, RegionKeys *keys) {
    const Uses uses = hd_uses(x->g->f, x->a);
    PtrMap place = {0};
    int n = 0, *at = HD_NEWN(x->a, int, x->g->f->n_ops + 1), *begin = HD_NEWN(x->a, int, keys->m->n_symbols + 1);
    for (int i = 0; i < x->n; i++) {
        const int id = x->full[i];
        const Op *o = x->g->ops[id];
        const Symbol *b = hd_named(o, A_LIFE);
        at[id] = i;
        if (b) begin[b->id] = i;
        x->key[id] = -1;
        if (x->g->side[id] || !hd_is_action(o) || is_placed(o, &uses, at, begin)) continue;
        const RegionKey k = hd_region_key(keys, x->g->ops[id]);
        const char *name = k.place ? hd_intern(keys->m->cx, k.place) : NULL;
        if (name && hd_ptr_get(&place, name) < 0) hd_ptr_set(x->a, &place, name, n++);
        x->key[id] = name ? 2 * hd_ptr_get(&place, name) + k.bwd + 1 : 0;
    }
}

static Runs find_runs(const Group *x, const int *order) {
    Runs runs = {0};
    for (int i = 0; i < x->n; i++) {
        const int key = x->key[order[i]];
        if (key < 0) continue;
        Run *top = runs.n ? &runs.at[runs.n - 1] : NULL, now = {i, i, key};
        if (top && top->key == key) top->last = i;
        else hd_push(x->a, &runs, now);
    }
    int n = 0;
    for (int i = 0; i < runs.n; i++)
        if (runs.at[i].key) runs.at[n++] = runs.at[i];
    runs.n = n;
    return runs;
}

// --- what depends on what

// A fence of the main stream that waits for copies. Every other one keeps work where it is.
static bool is_late_fence(const Group *x, int id) {
    const Op *o = x->g->ops[id];
    bool late = hd_op_is(o, TRAIT_ORDERS) && !x->g->side[id];
    for (int i = 0; late && i < o->n_in; i++) late = o->in[i]->def && x->g->side[o->in[i]->def->id];
    return late;
}

static bool follows_one(const Group *x, int id, bool first) {
    const OrderGraph *g = x->g;
    bool follows = x->before[id] >= 0 && x->part[x->before[id]] == FOLLOWS;
    for (int k = g->pred.start[id]; k < g->pred.start[id + 1] && !follows; k++)
        follows = x->part[g->pred.at[k]] == FOLLOWS || (first && x->part[g->pred.at[k]] == FIRST);
    return follows;
}

static void need(const Group *x, int id) {
    if (x->part[id] == BETWEEN) x->part[id] = NEEDED;
}

// Divides the ops between two runs. false: the second run needs something that follows the first.
static bool divide(const Group *x, const Run *r, const Run *s, bool up) {
    const OrderGraph *g = x->g;
    for (int i = 0; i < x->n; i++) x->part[x->full[i]] = OUTSIDE;
    for (int i = r->first; i <= s->last; i++) {
        const int id = x->full[i];
        x->part[id] = g->side[id] || (i > r->last && i < s->first) ? BETWEEN : i <= r->last ? FIRST : SECOND;
        if (x->part[id] != BETWEEN) continue;
        if (hd_op_is(g->ops[id], TRAIT_ORDERS) && !g->side[id] && !is_late_fence(x, id)) return false;
    }
    for (int i = s->last; i >= r->first; i--) {
        const int id = x->full[i];
        if (x->part[id] != SECOND && x->part[id] != NEEDED) continue;
        for (int k = g->pred.start[id]; k < g->pred.start[id + 1]; k++) need(x, g->pred.at[k]);
        if (x->before[id] >= 0) need(x, x->before[id]);
    }
    for (int i = r->first; i <= s->last; i++) {
        const int id = x->full[i];
        const bool follows = follows_one(x, id, true);
        if (x->part[id] == SECOND && follows_one(x, id, false)) return false;
        if (x->part[id] == NEEDED && follows) return false;
        if (x->part[id] == BETWEEN && (follows || (!up && is_late_fence(x, id)))) x->part[id] = FOLLOWS;
    }
    return true;
}

// --- orders

typedef struct { const Group *x; int *at, n; } NewOrder;

static void put(NewOrder *o, int from, int to, unsigned parts) { // ops of the main stream
    for (int i = from; i <= to; i++) {
        const int id = o->x->full[i];
        if (!o->x->g->side[id] && (parts >> o->x->part[id] & 1)) o->at[o->n++] = id;
    }
}

static const int *with_others(NewOrder *o) {
    const Group *x = o->x;
    for (int i = 0; i < x->n; i++)
        if (x->g->side[x->full[i]]) o->at[o->n++] = x->full[i];
    return hd_order_others(x->g, o->at, o->n);
}

enum {
    ALL = 1 << OUTSIDE | 1 << FIRST | 1 << SECOND | 1 << BETWEEN | 1 << NEEDED | 1 << FOLLOWS,
    MIDDLE = 1 << BETWEEN | 1 << NEEDED | 1 << FOLLOWS
};

static const int *together(const Group *x, const Run *r, const Run *s, bool up) {
    NewOrder o = {x, HD_NEWN(x->a, int, x->n + 1), 0};
    const unsigned above = up ? 1 << NEEDED : 1 << NEEDED | 1 << BETWEEN;
    put(&o, 0, r->first - 1, ALL);
    put(&o, r->first, s->last, above);
    put(&o, r->first, s->last, 1 << FIRST);
    put(&o, r->first, s->last, 1 << SECOND);
    put(&o, r->first, s->last, MIDDLE & ~above);
    put(&o, s->last + 1, x->n - 1, ALL);
    return with_others(&o);
}

// Whether a wait for another stream comes earlier, or what another stream waits for comes later.
static bool changes_overlap(const Group *x, const Run *r, const Run *s, bool up) {
    bool any[6] = {0}, waits[6] = {0}, awaited[6] = {0};
    for (int i = r->first; i <= s->last; i++) {
        const int id = x->full[i];
        if (x->g->side[id] || x->key[id] < 0) continue;
        const Part p = (Part)x->part[id];
        any[p] = true;
        waits[p] |= x->g->waits[id];
        awaited[p] |= x->g->awaited[id];
    }
    if (up)
        return waits[NEEDED] || waits[SECOND] || (awaited[FIRST] && any[NEEDED]) || awaited[BETWEEN] ||
               awaited[FOLLOWS];
    return waits[NEEDED] || waits[BETWEEN] || awaited[FIRST] || (waits[SECOND] && any[FOLLOWS]) || awaited[FOLLOWS];
}

typedef struct { const int *order; Cost cost; bool strict; } Choice;

static void consider(Group *x, const Run *r, const Run *s, bool up, int n_runs, Choice *best) {
    if (!divide(x, r, s, up)) return;
    Choice now = {together(x, r, s, up), .strict = !changes_overlap(x, r, s, up)};
    if (find_runs(x, now.order).n >= n_runs) return;
    now.cost = hd_order_cost(x->g, now.order, x->n);
    if (now.cost.peak > x->most || (best->order && best->strict > now.strict)) return;
    if (!best->order || now.strict > best->strict || hd_order_better(now.cost, best->cost)) *best = now;
}

// Makes one run of the i-th and the next of its region. Whether it has.
static bool join_next(Group *x, const Runs *runs, int i) {
    int k = i + 1;
    while (k < runs->n && runs->at[k].key != runs->at[i].key) k++;
    if (k == runs->n) return false;
    Choice best = {0};
    consider(x, &runs->at[i], &runs->at[k], true, runs->n, &best);
    consider(x, &runs->at[i], &runs->at[k], false, runs->n, &best);
    if (!best.order) return false;
    x->full = best.order;
    x->cost = best.cost;
    return true;
}

// A run that has become longer may be in the way of others no more, so all are tried again then.
static void join_all(Group *x) {
    for (bool joined = true; joined;) {
        joined = false;
        Runs runs = find_runs(x, x->full);
        for (int i = 0; i < runs.n; i++) {
            if (!join_next(x, &runs, i)) continue;
            joined = true;
            runs = find_runs(x, x->full);
            i--;
        }
    }
}

// --- fences

// Whether an op of the run after `from` has to follow the op there.
static bool followed(const Group *x, const Run *r, int from) {
    for (int i = from + 1; i <= r->last; i++)
        for (int k = x->g->pred.start[x->full[i]]; k < x->g->pred.start[x->full[i] + 1]; k++)
            if (x->g->pred.at[k] == x->full[from]) return true;
    return false;
}

static void move_fences(Group *x) {
    const Runs runs = find_runs(x, x->full);
    for (int i = 0; i < runs.n; i++) {
        const Run *r = &runs.at[i];
        NewOrder o = {x, HD_NEWN(x->a, int, x->n + 1), 0};
        OpList late = {0};
        for (int k = 0; k < x->n; k++) {
            const int id = x->full[k];
            if (x->g->side[id]) continue;
            if (k > r->first && k < r->last && is_late_fence(x, id) && !followed(x, r, k)) hd_push(x->a, &late, id);
            else o.at[o.n++] = id;
            for (int j = 0; k == r->last && j < late.n; j++) o.at[o.n++] = late.at[j];
        }
        if (!late.n) continue;
        const int *order = with_others(&o);
        const Cost cost = hd_order_cost(x->g, order, x->n);
        if (cost.peak > x->most) continue;
        x->full = order;
        x->cost = cost;
        move_fences(x);
        return;
    }
}

static void find_streams(Group *x) {
    VEC(int) last = {0}; // of each other stream
    for (int i = 0; i < x->n; i++) {
        const int id = x->full[i];
        x->before[id] = -1;
        if (!x->g->side[id]) continue;
        int k = 0;
        while (k < last.n && x->g->ops[last.at[k]]->stream != x->g->ops[id]->stream) k++;
        if (k == last.n) hd_push(x->a, &last, id);
        else x->before[id] = last.at[k], last.at[k] = id;
    }
}

const int *hd_group_regions(const OrderGraph *g, const int *order, int n, int64_t most, Cost *cost) {
    RegionKeys keys = hd_region_keys(g->f->module, g->a);
    if (!keys.parts) return order;
    const int ids = g->f->n_ops + 1;
    Group x = {.g = g, .a = g->a, .n = n, .most = most, .full = order, .cost = *cost, .key = HD_NEWN(g->a, int, ids),
               .before = HD_NEWN(g->a, int, ids), .part = HD_NEWN(g->a, int, ids)};
    find_keys(&x, &keys);
    find_streams(&x);
    join_all(&x);
    move_fences(&x);
    *cost = x.cost;
    return x.full;
}
