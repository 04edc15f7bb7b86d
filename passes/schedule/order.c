// Orders of a function's ops in which storage is live for a short time. Storages are the results of ops and the
// transient buffers that the function uses. Two local moves change program order:
//   sink:  an op whose results wait long for their first user moves down to it, if the storage that this keeps alive
//          for longer is smaller than the storage it delays (on a tie recomputed ops move: they are meant to be late);
//   hoist: an op that ends the life of more storage than it makes moves up, right after the last op it depends on, so
//          that a weight gradient frees its operands before the next activation gradient is allocated.
// The result replaces program order only where its peak is lower, or equal with less storage live on average. Where the
// schedule captures places or units, their work is then put together (group.c), which may cost 1 % of memory.
//
// Overlap does not get worse either. Only ops of the main stream move. A wait never comes earlier, and an op that
// another stream waits for never comes later: of the ops that wait for one op of another stream the first stays first,
// of the ops that it waits for the last stays last, and both keep their places. No op passes a fence, whose place was
// chosen by the time that the ops before it take. Ops of other streams are then placed directly after the last op they
// depend on, in their streams' order. They may start there, so their buffers take memory from there on. Each step is
// linear in ops, uses and dependences.
#include "passes/schedule/order_graph.h"
#include "passes/schedule/schedule.h"

// --- moves

// An order that can change: a doubly linked list of op ids with labels that grow along it, so that two positions
// compare in one step. When there is no room between two labels, all are assigned again.
typedef struct { int first, *next, *prev; int64_t *label; } Line;
enum { LABEL_STEP = 1 << 20 };

static void deal_labels(Line *l) {
    int64_t k = 0;
    for (int i = l->first; i >= 0; i = l->next[i]) l->label[i] = k += LABEL_STEP;
}

static Line line_of(const OrderGraph *g, const int *order, int n) {
    size_t ids = (size_t)g->f->n_ops + 1;
    Line l = {n ? order[0] : -1, HD_NEWN(g->a, int, ids), HD_NEWN(g->a, int, ids), HD_NEWN(g->a, int64_t, ids)};
    for (int i = 0; i < n; i++) {
        l.next[order[i]] = i + 1 < n ? order[i + 1] : -1;
        l.prev[order[i]] = i ? order[i - 1] : -1;
    }
    deal_labels(&l);
    l.label[g->f->last->id] = INT64_MAX; // the return
    return l;
}

static void move_behind(Line *l, int op, int to) { // to == -1: to the front
    if (l->prev[op] >= 0) l->next[l->prev[op]] = l->next[op];
    else l->first = l->next[op];
    if (l->next[op] >= 0) l->prev[l->next[op]] = l->prev[op];
    int after = to >= 0 ? l->next[to] : l->first;
    l->prev[op] = to;
    l->next[op] = after;
    if (to >= 0) l->next[to] = op;
    else l->first = op;
    if (after >= 0) l->prev[after] = op;
    int64_t lo = to >= 0 ? l->label[to] : 0, hi = after >= 0 ? l->label[after] : lo + 2 * (int64_t)LABEL_STEP;
    if (hi - lo < 2) deal_labels(l);
    else l->label[op] = lo + (hi - lo) / 2;
}

// Whether an op other than `o` after `label` uses the storage. Late users are last in the list, so the answer mostly
// comes at once.
static bool used_behind(const OrderGraph *g, int storage, int o, const Line *l, int64_t label) {
    for (int k = g->users.start[storage + 1] - 1; k >= g->users.start[storage]; k--)
        if (g->users.at[k] != o && l->label[g->users.at[k]] > label) return true;
    return false;
}

// Bytes of the storages that `o` uses and that no other op uses after `label`.
static int64_t ends_at(const OrderGraph *g, int o, const Line *l, int64_t label) {
    int64_t n = 0;
    for (int k = g->used.start[o]; k < g->used.start[o + 1]; k++)
        if (!used_behind(g, g->used.at[k], o, l, label)) n += g->bytes[g->used.at[k]];
    return n;
}

static bool wants_down(const OrderGraph *g, int o, const Line *l, int to) {
    int64_t made = hd_order_made(g, o);
    if (!made) return false;
    int64_t kept = ends_at(g, o, l, l->label[to] - 1);
    return kept < made || (kept == made && hd_has(&g->ops[o]->attrs, A_RECOMPUTED));
}

static void sink(const OrderGraph *g, Line *l) {
    int last = l->first, stop = g->f->last->id;
    while (last >= 0 && l->next[last] >= 0) last = l->next[last];
    for (int op = last, before; op >= 0; op = before) {
        before = l->prev[op];
        if (g->side[op] || g->awaited[op]) continue;
        int to = -1;
        for (int k = g->succ.start[op]; k < g->succ.start[op + 1]; k++)
            if (to < 0 || l->label[g->succ.at[k]] < l->label[to]) to = g->succ.at[k];
        int fence = g->fences[g->part[op]];
        if (to >= 0 && fence >= 0 && l->label[fence] < l->label[to]) to = fence;
        if (to < 0 || to == stop || l->next[op] == to || !wants_down(g, op, l, to)) continue;
        move_behind(l, op, l->prev[to]);
    }
}

static void hoist(const OrderGraph *g, Line *l) {
    int *tail =
        // the op that was last moved after an op, plus 1: moved ops keep their order
        HD_NEWN(g->a, int, g->f->n_ops + 1);
    for (int op = l->first, after; op >= 0; op = after) {
        after = l->next[op];
        if (g->side[op] || g->waits[op]) continue;
        int to = -1;
        for (int k = g->pred.start[op]; k < g->pred.start[op + 1]; k++)
            if (to < 0 || l->label[g->pred.at[k]] > l->label[to]) to = g->pred.at[k];
        int fence = g->part[op] ? g->fences[g->part[op] - 1] : -1;
        if (to >= 0 && fence >= 0 && l->label[fence] > l->label[to]) to = fence;
        if (to < 0 || l->next[to] == op || ends_at(g, op, l, l->label[to]) <= hd_order_made(g, op)) continue;
        int behind = tail[to] ? tail[to] - 1 : to;
        tail[to] = op + 1;
        if (l->next[behind] != op) move_behind(l, op, behind);
    }
}

static const int *order_of_line(const OrderGraph *g, const Line *l, int n) {
    int *out = HD_NEWN(g->a, int, n + 1), k = 0;
    for (int i = l->first; i >= 0; i = l->next[i]) out[k++] = i;
    return hd_order_others(g, out, n);
}

// Memory that may be spent for regions in one piece.
enum { MOST_BYTES_PERCENT = 1 };

Order hd_find_order(const Func *f, const char *main, Arena *a) {
    const OrderGraph g = hd_order_graph(f, main, a);
    int n = 0, *given = HD_NEWN(a, int, f->n_ops + 1);
    for (const Op *o = f->first; o; o = o->next)
        if (!hd_is_alias(o) && !hd_op_is(o, TRAIT_RETURN)) given[n++] = o->id;
    const int *start = hd_order_others(&g, given, n), *best = start;
    Cost before = hd_order_cost(&g, start, n), least = before;
    // the order of the moves matters: an op that moved down may have kept another from moving up
    for (int i = 0; i < 2; i++) {
        Line line = line_of(&g, start, n);
        for (int k = 0; k < 2; k++) {
            if (i == k) sink(&g, &line);
            else hoist(&g, &line);
            const int *moved = order_of_line(&g, &line, n);
            Cost c = hd_order_cost(&g, moved, n);
            if (hd_order_better(c, least)) best = moved, least = c;
        }
    }
    const int64_t most = least.peak + (hd_persistent_bytes(f->module) + least.peak) * MOST_BYTES_PERCENT / 100;
    best = hd_group_regions(&g, best, n, most, &least);
    return (Order){n, best, before.peak - least.peak, least.peak, least.behind};
}
