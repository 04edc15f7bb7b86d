// The dependences and storages of a function, from which order.c finds an order. See order_graph.h.
#include "passes/schedule/order_graph.h"
#include "passes/schedule/schedule.h"

typedef struct { int from, to; } Edge;

static Lists lists_of(Arena *a, int n, const Edge *edge, int n_edges) {
    Lists l = {HD_NEWN(a, int, n + 2), HD_NEWN(a, int, n_edges + 1)};
    for (int i = 0; i < n_edges; i++) l.start[edge[i].from + 2]++;
    for (int i = 0; i < n; i++) l.start[i + 2] += l.start[i + 1];
    for (int i = 0; i < n_edges; i++) l.at[l.start[edge[i].from + 1]++] = edge[i].to;
    return l;
}

static Lists reversed(Arena *a, int n, int n_to, const Lists *l) {
    Edge *edge = HD_NEWN(a, Edge, l->start[n] + 1);
    for (int i = 0, k = 0; i < n; i++)
        for (; k < l->start[i + 1]; k++) edge[k] = (Edge){l->at[k], i};
    return lists_of(a, n_to, edge, l->start[n]);
}

// --- storages

// The store of a result that nothing else reads and that may be written in place.
static const Op *only_store(const Value *v, const Uses *uses) {
    const Op *user = uses->count[v->id] == 1 ? uses->users[v->id][0] : NULL;
    return user && hd_store_may_be_in_place(user) ? user : NULL;
}

// The storage that an access touches: a root's or a transient buffer's; -1: none that this function owns.
static int storage_of(const OrderGraph *g, const Access *x, const Home *homes, const int *slots) {
    const Home h =
        x->order ? (Home){0} : x->at == AT_VALUE ? homes[x->value->id] : (Home){.buffer = x->buffer};
    if (h.root) return g->bytes[h.root->id] ? h.root->id : -1;
    return h.buffer && slots[h.buffer->id] ? g->f->n_values + slots[h.buffer->id] - 1 : -1;
}

// A slot for every transient buffer, by symbol id, counted from 1.
static int *find_slots(OrderGraph *g, const Uses *uses) {
    const Func *f = g->f;
    int *slots = HD_NEWN(g->a, int, f->module->n_symbols + 1), n = 0;
    for (const Symbol *s = f->module->symbols; s; s = s->next)
        if (s->kind == SYM_BUFFER && s->type && hd_has(&s->attrs, A_TRANSIENT)) slots[s->id] = ++n;
    g->n_storages = f->n_values + n;
    g->bytes = HD_NEWN(g->a, int64_t, g->n_storages + 1);
    for (const Symbol *s = f->module->symbols; s; s = s->next)
        if (slots[s->id]) g->bytes[f->n_values + slots[s->id] - 1] = hd_type_bytes(s->type);
    for (const Op *o = f->first; o; o = o->next)
        for (int i = 0; i < o->n_out && hd_space(&o->attrs) == SPACE_DEVICE; i++)
            if (!only_store(o->out[i], uses)) g->bytes[o->out[i]->id] = hd_type_bytes(o->out[i]->type);
    return slots;
}

typedef VEC(Edge) Edges;
typedef struct {
    OrderGraph *g;
    const Home *homes;
    const int *slots;
    int *maker, *seen; // by storage: ops, plus 1
    Edges made, used;
    int followed; // of the ops before this one, those beside the main stream have been followed
} Storages;

// That op `by` makes or uses the storages that `o` touches.
static void add_storages(Storages *s, const Op *by, const Op *o, Accesses *list) {
    hd_accesses(o, s->g->a, list);
    for (int i = 0; i < list->n; i++) {
        int k = storage_of(s->g, &list->at[i], s->homes, s->slots);
        if (k < 0 || s->seen[k] == by->id + 1) continue;
        s->seen[k] = by->id + 1;
        Edge e = {by->id, k};
        if (s->maker[k]) hd_push(s->g->a, &s->used, e);
        else hd_push(s->g->a, &s->made, e);
        if (!s->maker[k]) s->maker[k] = by->id + 1;
    }
}

// Storages that an op beside the main stream touches stay until the main stream follows it, or one behind it.
static void add_followed(Storages *s, const Op *o, const Deps *deps, Accesses *list) {
    const OrderGraph *g = s->g;
    int last = -1;
    for (int k = deps->start[o->id]; k < deps->start[o->id + 1] && !g->side[o->id]; k++)
        if (hd_is_beside(g->ops[deps->pred[k]]) && deps->pred[k] > last) last = deps->pred[k];
    for (; s->followed <= last; s->followed++)
        if (hd_is_beside(g->ops[s->followed])) add_storages(s, o, g->ops[s->followed], list);
}

static void find_storage(OrderGraph *g, const Uses *uses, const Deps *deps) {
    const Func *f = g->f;
    Storages s = {.g = g, .homes = hd_homes(f, g->a), .slots = find_slots(g, uses)};
    s.maker = HD_NEWN(g->a, int, g->n_storages + 1);
    s.seen = HD_NEWN(g->a, int, g->n_storages + 1);
    Accesses list = {0};
    for (const Op *o = f->first; o; o = o->next) {
        add_storages(&s, o, o, &list);
        // what another stream reads stays until a fence says that it has been read
        for (int i = 0; hd_op_is(o, TRAIT_ORDERS) && !g->side[o->id] && i < o->n_in; i++)
            if (o->in[i]->def && g->side[o->in[i]->def->id]) add_storages(&s, o, o->in[i]->def, &list);
        add_followed(&s, o, deps, &list);
        const int64_t workspace = hd_is_beside(o) ? hd_int(&o->attrs, A_WORKSPACE_BYTES, 0) : 0;
        if (workspace > g->beside) g->beside = workspace;
    }
    for (const Symbol *b = f->module->symbols; b; b = b->next) {
        const Edge kept = {f->last->id, f->n_values + s.slots[b->id] - 1};
        if (s.slots[b->id] && s.maker[kept.to] && hd_stays(f->module, b)) hd_push(g->a, &s.used, kept);
    }
    const Edges made = s.made, used = s.used;
    g->made = lists_of(g->a, f->n_ops, made.at, made.n);
    g->used = lists_of(g->a, f->n_ops, used.at, used.n);
    g->users = reversed(g->a, f->n_ops, g->n_storages, &g->used);
}

// --- dependences

// The conditions that keep overlap (see above), as edges: around each op of another stream, the first op that waits for
// it comes before the other waiting ops, and the last op that it waits for comes after the others.
static void keep_overlap(OrderGraph *g, Edges *edges) {
    for (int y = 0; y < g->f->n_ops; y++) {
        if (!g->side[y]) continue;
        int first = -1, last = -1;
        for (int k = g->succ.start[y]; k < g->succ.start[y + 1]; k++) {
            int o = g->succ.at[k];
            if (!g->side[o] && (first < 0 || o < first)) first = o;
        }
        for (int k = g->pred.start[y]; k < g->pred.start[y + 1]; k++) {
            int o = g->pred.at[k];
            if (!g->side[o] && o > last) last = o;
        }
        for (int k = g->succ.start[y]; k < g->succ.start[y + 1]; k++) {
            Edge e = {g->succ.at[k], first};
            if (!g->side[e.from] && e.from != first) hd_push(g->a, edges, e);
        }
        for (int k = g->pred.start[y]; k < g->pred.start[y + 1]; k++) {
            Edge e = {last, g->pred.at[k]};
            if (!g->side[e.to] && e.to != last) hd_push(g->a, edges, e);
        }
        if (first >= 0) g->waits[first] = true;
        if (last >= 0) g->awaited[last] = true;
    }
}

// An op whose result is written straight to a buffer stays after the ops that its store must follow, if it was after
// them before: otherwise the bytes would not be free yet, and the result would need bytes of its own.
static void keep_in_place(OrderGraph *g, const Uses *uses, Edges *edges) {
    for (const Op *o = g->f->first; o; o = o->next)
        for (int i = 0; i < o->n_out && !hd_is_alias(o); i++) {
            const Op *store = only_store(o->out[i], uses);
            for (int k = store ? g->pred.start[store->id] : 0; store && k < g->pred.start[store->id + 1]; k++) {
                Edge e = {o->id, g->pred.at[k]};
                if (e.to < o->id) hd_push(g->a, edges, e);
            }
        }
}

// A gradient that is being written when another one begins is not counted among those that wait for their reduction
// (live_grads), and nothing keeps it from waiting from then on. So its last write stays after that begin.
static void keep_written(OrderGraph *g, Edges *edges) {
    const Func *f = g->f;
    const int n = f->module->n_symbols;
    int *last = HD_NEWN(g->a, int, n + 1), *open = HD_NEWN(g->a, int, n + 1), n_open = 0; // last: ops, plus 1
    Accesses list = {0};
    for (const Op *o = f->first; o; o = o->next) {
        hd_accesses(o, g->a, &list);
        for (int i = 0; i < list.n; i++)
            if (list.at[i].at == AT_BUFFER && list.at[i].write && !list.at[i].order)
                last[list.at[i].buffer->id] = o->id + 1;
    }
    for (const Op *o = f->first; o; o = o->next) {
        const Symbol *b = hd_named(o, A_LIFE);
        if (!b || hd_stays(f->module, b)) continue;
        int written = 0;
        for (int i = 0; i < n_open; i++) {
            if (last[open[i]] - 1 <= o->id) continue;
            Edge e = {last[open[i]] - 1, o->id};
            hd_push(g->a, edges, e);
            open[written++] = open[i];
        }
        n_open = written;
        open[n_open++] = b->id;
    }
}

static void find_dependences(OrderGraph *g, const Uses *uses, const Deps *deps) {
    int n = g->f->n_ops;
    Edges edges = {0}; // from an op to one that it follows
    for (int i = 0; i < n; i++)
        for (int k = deps->start[i]; k < deps->start[i + 1]; k++) {
            Edge e = {i, deps->pred[k]};
            hd_push(g->a, &edges, e);
        }
    g->pred = lists_of(g->a, n, edges.at, edges.n);
    g->succ = reversed(g->a, n, n, &g->pred);
    keep_overlap(g, &edges);
    keep_in_place(g, uses, &edges);
    keep_written(g, &edges);
    g->pred = lists_of(g->a, n, edges.at, edges.n);
    g->succ = reversed(g->a, n, n, &g->pred);
}

// --- costs

int64_t hd_order_made(const OrderGraph *g, int op) {
    int64_t n = 0;
    for (int k = g->made.start[op]; k < g->made.start[op + 1]; k++) n += g->bytes[g->made.at[k]];
    return n;
}

Cost hd_order_cost(const OrderGraph *g, const int *order, int n) {
    int *left = HD_NEWN(g->a, int, g->n_storages + 1);
    for (int i = 0; i < g->n_storages; i++) left[i] = g->users.start[i + 1] - g->users.start[i];
    Cost c = {0};
    int64_t live = 0;
    int fence = -1;
    for (int i = 0; g->fences[i] >= 0; i++) fence = g->fences[i];
    int beside = 0; // ops beside the main stream that are still to come, once the first has
    for (int i = 0; i < n && g->beside; i++) beside += hd_is_beside(g->ops[order[i]]);
    const int all_beside = beside;
    for (int i = 0; i < n; i++) {
        int o = order[i];
        live += hd_order_made(g, o);
        const bool is_beside = hd_is_beside(g->ops[o]), among = beside && (is_beside || beside < all_beside);
        int64_t during = live + (among ? g->beside : 0) +
                         (is_beside ? 0 : hd_int(&g->ops[o]->attrs, A_WORKSPACE_BYTES, 0));
        beside -= is_beside && g->beside;
        if (during > c.peak) c.peak = during;
        if (o == fence) c.behind = 0;
        if (during > c.behind) c.behind = during;
        c.total += (double)during;
        for (int k = g->used.start[o]; k < g->used.start[o + 1]; k++)
            if (--left[g->used.at[k]] == 0) live -= g->bytes[g->used.at[k]];
        for (int k = g->made.start[o]; k < g->made.start[o + 1]; k++)
            if (!left[g->made.at[k]]) live -= g->bytes[g->made.at[k]];
    }
    return c;
}

// --- other streams

typedef struct { const char *stream; VEC(int) ops; int next; } Queue;
typedef VEC(Queue) Queues;

static Queue *queue_of(const OrderGraph *g, Queues *queues, int op) {
    for (int i = 0; i < queues->n; i++)
        if (queues->at[i].stream == g->ops[op]->stream) return &queues->at[i];
    Queue q = {.stream = g->ops[op]->stream};
    hd_push(g->a, queues, q);
    return &queues->at[queues->n - 1];
}

const int *hd_order_others(const OrderGraph *g, const int *order, int n) {
    Queues queues = {0};
    for (int i = 0; i < n; i++)
        if (g->side[order[i]]) {
            Queue *q = queue_of(g, &queues, order[i]);
            hd_push(g->a, &q->ops, order[i]);
        }
    if (!queues.n) return order;
    bool *placed = HD_NEWN(g->a, bool, g->f->n_ops + 1);
    int *out = HD_NEWN(g->a, int, n + 1), n_out = 0;
    for (int i = -1; i < n; i++) { // -1: before the first op
        if (i >= 0 && g->side[order[i]]) continue;
        if (i >= 0) placed[out[n_out++] = order[i]] = true;
        for (int k = 0; k < queues.n; k++) {
            Queue *q = &queues.at[k];
            bool ready = q->next < q->ops.n;
            for (int e = ready ? g->pred.start[q->ops.at[q->next]] : 0;
                 ready && e < g->pred.start[q->ops.at[q->next] + 1]; e++)
                ready = placed[g->pred.at[e]];
            if (!ready) continue;
            placed[out[n_out++] = q->ops.at[q->next++]] = true;
            k = -1; // it may have been waited for by another
        }
    }
    if (n_out != n) HD_BUG("@%s: an op of another stream follows a later one", g->f->name);
    return out;
}

bool hd_order_better(Cost a, Cost b) { return a.peak < b.peak || (a.peak == b.peak && a.total < b.total); }

OrderGraph hd_order_graph(const Func *f, const char *main, Arena *a) {
    OrderGraph g = {.f = f, .a = a, .ops = HD_NEWN(a, Op *, f->n_ops + 1), .side = HD_NEWN(a, bool, f->n_ops + 1),
                    .waits = HD_NEWN(a, bool, f->n_ops + 1), .awaited = HD_NEWN(a, bool, f->n_ops + 1),
                    .fences = HD_NEWN(a, int, f->n_ops + 2), .part = HD_NEWN(a, int, f->n_ops + 1)};
    int fences = 0;
    for (Op *o = f->first; o; o = o->next) {
        g.ops[o->id] = o;
        g.side[o->id] = strcmp(o->stream, main) != 0;
        g.part[o->id] = fences;
        if (hd_op_is(o, TRAIT_ORDERS) && !g.side[o->id]) g.fences[fences++] = o->id;
        g.fences[fences] = -1;
    }
    const Uses uses = hd_uses(f, a);
    const Deps deps = hd_deps(f, a);
    find_storage(&g, &uses, &deps);
    find_dependences(&g, &uses, &deps);
    return g;
}
