// schedule: from what is computed to when and where. Every op gets a stream and every function one total order, in which storage
// lives as short as two local moves can make it:
//   sink:  an op whose results wait long for their first user moves down to it, when the storage that this keeps alive for longer
//          is smaller than what it delays (a tie moves recomputed ops: they exist to be late);
//   hoist: an op that ends the life of more storage than it makes moves up behind the last op it depends on, so that a weight
//          gradient frees its operands before the next activation gradient is allocated.
// The result replaces program order only where its peak is lower, or equal with less storage live on average: the pass never makes
// memory worse. Dependences (deps.h) keep reads and writes of buffers in their order, so sums are added in the order written.
// Alias ops are placed before their first user. Each step is linear in ops and uses.
#include "passes/deps.h"
#include "passes/pass.h"

typedef struct {
    Func *f;
    Arena *a;
    Deps deps;
    Op **ops;        // by op id
    const Home *homes;
    int64_t *bytes;  // by value id: storage that a root takes; 0: an argument, a result that goes straight to its buffer
    int **users;     // by value id of a root: ops that read the storage
    int *n_users;
    int **succ;      // by op id
    int *n_succ;
} Graph;

typedef struct { int64_t peak; double total; } Cost; // most bytes live at once; their sum over all ops

// The stream of an op. One rank computes only; gathers, reductions and copies get streams of their own here.
static const char *stream_of(const Op *o) {
    (void)o;
    return "compute";
}

static bool is_work(const Op *o) { return !hd_is_alias(o) && o->kind != OP_RETURN; }

// A result that is only stored, and not added, is written in place by plan-memory.
static bool stored_only(const Value *v, const Uses *uses) {
    return uses->count[v->id] == 1 && uses->users[v->id][0]->kind == OP_STORE &&
           !hd_has(&uses->users[v->id][0]->attrs, A_ACCUMULATE);
}

static void find_storage(Graph *g) {
    const Func *f = g->f;
    Uses uses = hd_uses(f, g->a);
    g->homes = hd_homes(f, g->a);
    g->bytes = HD_NEWN(g->a, int64_t, f->n_values + 1);
    g->users = HD_NEWN(g->a, int *, f->n_values + 1);
    g->n_users = HD_NEWN(g->a, int, f->n_values + 1);
    int *capacity = HD_NEWN(g->a, int, f->n_values + 1);
    for (const Op *o = f->first; o; o = o->next) {
        for (int i = 0; i < o->n_out; i++) {
            const Value *v = o->out[i];
            Home h = g->homes[v->id];
            if (h.root) capacity[h.root->id] += uses.count[v->id];
            if (h.root == v && !stored_only(v, &uses)) g->bytes[v->id] = hd_type_bytes(v->type);
        }
    }
    for (int i = 0; i < f->n_values; i++) g->users[i] = HD_NEWN(g->a, int, capacity[i]);
    for (const Op *o = f->first; o; o = o->next) {
        if (hd_is_alias(o)) continue;
        for (int i = 0; i < o->n_in; i++) {
            const Value *r = g->homes[o->in[i]->id].root;
            if (!r || !r->def) continue;
            int n = g->n_users[r->id];
            if (n && g->users[r->id][n - 1] == o->id) continue;
            g->users[r->id][g->n_users[r->id]++] = o->id;
        }
    }
}

static void find_successors(Graph *g) {
    int n = g->f->n_ops;
    g->succ = HD_NEWN(g->a, int *, n + 1);
    g->n_succ = HD_NEWN(g->a, int, n + 1);
    for (int k = 0; k < g->deps.start[n]; k++) g->n_succ[g->deps.pred[k]]++;
    for (int i = 0; i < n; i++) {
        g->succ[i] = HD_NEWN(g->a, int, g->n_succ[i]);
        g->n_succ[i] = 0;
    }
    for (int i = 0; i < n; i++)
        for (int k = g->deps.start[i]; k < g->deps.start[i + 1]; k++) {
            int p = g->deps.pred[k];
            g->succ[p][g->n_succ[p]++] = i;
        }
}

static int64_t made_by(const Graph *g, const Op *o) {
    int64_t n = 0;
    for (int i = 0; i < o->n_out; i++) n += g->bytes[o->out[i]->id];
    return n;
}

// The k-th operand of `o` as storage that this function owns, once an operand; NULL otherwise.
static const Value *owned(const Graph *g, const Op *o, int k) {
    const Value *r = g->homes[o->in[k]->id].root;
    if (!r || !g->bytes[r->id]) return NULL;
    for (int i = 0; i < k; i++)
        if (g->homes[o->in[i]->id].root == r) return NULL;
    return r;
}

static Cost cost_of(const Graph *g, const int *order, int n) {
    int *left = HD_NEWN(g->a, int, g->f->n_values + 1);
    memcpy(left, g->n_users, sizeof(int) * (size_t)g->f->n_values);
    Cost c = {0};
    int64_t live = 0;
    for (int i = 0; i < n; i++) {
        const Op *o = g->ops[order[i]];
        live += made_by(g, o);
        int64_t during = live + hd_int(&o->attrs, A_WORKSPACE_BYTES, 0);
        if (during > c.peak) c.peak = during;
        c.total += (double)during;
        for (int k = 0; k < o->n_in; k++) {
            const Value *r = owned(g, o, k);
            if (r && --left[r->id] == 0) live -= g->bytes[r->id];
        }
        for (int k = 0; k < o->n_out; k++)
            if (!g->n_users[o->out[k]->id]) live -= g->bytes[o->out[k]->id];
    }
    return c;
}

// An order under moves: a doubly linked list of op ids with labels that grow along it, so that two places compare in one step. When
// two labels have no room between them all are dealt out again.
typedef struct { int n, first, *next, *prev; int64_t *label; } Line;
enum { LABEL_STEP = 1 << 20 };

static void deal_labels(Line *l) {
    int64_t k = 0;
    for (int i = l->first; i >= 0; i = l->next[i]) l->label[i] = k += LABEL_STEP;
}

static Line line_of(const Graph *g, const int *order, int n) {
    size_t ids = (size_t)g->f->n_ops + 1;
    Line l = {n, n ? order[0] : -1, HD_NEWN(g->a, int, ids), HD_NEWN(g->a, int, ids), HD_NEWN(g->a, int64_t, ids)};
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

static void write_order(const Line *l, int *out) {
    int k = 0;
    for (int i = l->first; i >= 0; i = l->next[i]) out[k++] = i;
}

// The label of the last user of `r` other than `o`, or of its definition.
static int64_t last_other_use(const Graph *g, const Value *r, const Op *o, const Line *l) {
    int64_t last = l->label[r->def->id];
    for (int i = 0; i < g->n_users[r->id]; i++) {
        int u = g->users[r->id][i];
        if (u != o->id && l->label[u] > last) last = l->label[u];
    }
    return last;
}

static bool wants_down(const Graph *g, const Op *o, const Line *l, int to) {
    int64_t made = made_by(g, o), kept = 0;
    if (!made) return false;
    for (int i = 0; i < o->n_in; i++) {
        const Value *r = owned(g, o, i);
        if (r && last_other_use(g, r, o, l) < l->label[to]) kept += g->bytes[r->id];
    }
    return kept < made || (kept == made && hd_has(&o->attrs, A_RECOMPUTED));
}

static void sink(const Graph *g, Line *l) {
    int last = l->first, stop = g->f->last->id;
    while (last >= 0 && l->next[last] >= 0) last = l->next[last];
    for (int op = last, before; op >= 0; op = before) {
        before = l->prev[op];
        int to = -1;
        for (int k = 0; k < g->n_succ[op]; k++)
            if (to < 0 || l->label[g->succ[op][k]] < l->label[to]) to = g->succ[op][k];
        if (to < 0 || to == stop || l->next[op] == to || !wants_down(g, g->ops[op], l, to)) continue;
        move_behind(l, op, l->prev[to]);
    }
}

static bool wants_up(const Graph *g, const Op *o, const Line *l, int to) {
    int64_t freed = 0;
    for (int i = 0; i < o->n_in; i++) {
        const Value *r = owned(g, o, i);
        if (r && last_other_use(g, r, o, l) <= l->label[to]) freed += g->bytes[r->id];
    }
    return freed > made_by(g, o);
}

static void hoist(const Graph *g, Line *l) {
    int *tail = HD_NEWN(g->a, int, g->f->n_ops + 1); // the op moved last behind an op, plus 1: moved ops keep their order
    for (int op = l->first, after; op >= 0; op = after) {
        after = l->next[op];
        int to = -1;
        for (int k = g->deps.start[op]; k < g->deps.start[op + 1]; k++)
            if (to < 0 || l->label[g->deps.pred[k]] > l->label[to]) to = g->deps.pred[k];
        if (to < 0 || l->next[to] == op || !wants_up(g, g->ops[op], l, to)) continue;
        int behind = tail[to] ? tail[to] - 1 : to;
        tail[to] = op + 1;
        if (l->next[behind] != op) move_behind(l, op, behind);
    }
}

static void emit_aliases(const Op *o, Func *f, bool *placed);

static void place(Op *o, Func *f, bool *placed) {
    if (placed[o->id]) return;
    placed[o->id] = true;
    emit_aliases(o, f, placed);
    hd_detach(o);
    hd_append(f, o);
}

static void emit_aliases(const Op *o, Func *f, bool *placed) {
    for (int i = 0; i < o->n_in; i++)
        if (o->in[i]->def && hd_is_alias(o->in[i]->def)) place(o->in[i]->def, f, placed);
}

static bool reorder(Graph *g, const int *order, int n) {
    Func *f = g->f;
    int n_ops = f->n_ops;
    bool *placed = HD_NEWN(g->a, bool, n_ops + 1), changed = false;
    Op *end = f->last;
    for (int i = 0; i < n; i++) place(g->ops[order[i]], f, placed);
    for (int i = 0; i < n_ops; i++) // aliases that only the return reads, or nobody
        if (g->ops[i] != end) place(g->ops[i], f, placed);
    hd_detach(end);
    hd_append(f, end);
    int i = 0;
    for (const Op *o = f->first; o; o = o->next) changed |= o->id != i++;
    hd_renumber(f);
    return changed;
}

static bool better(Cost a, Cost b) { return a.peak < b.peak || (a.peak == b.peak && a.total < b.total); }

static bool schedule_function(Func *f, PassCx *cx) {
    hd_renumber(f);
    Graph g = {.f = f, .a = cx->scratch, .deps = hd_deps(f, cx->scratch)};
    g.ops = HD_NEWN(g.a, Op *, f->n_ops + 1);
    int n = 0, *order = HD_NEWN(g.a, int, f->n_ops + 1);
    for (Op *o = f->first; o; o = o->next) {
        g.ops[o->id] = o;
        o->stream = hd_intern(f->module->cx, stream_of(o));
        if (is_work(o)) order[n++] = o->id;
    }
    find_storage(&g);
    find_successors(&g);
    const int *best = order;
    Cost least = cost_of(&g, order, n), before = least;
    for (int i = 0; i < 2; i++) { // which move goes first matters: an op moved down may have been what kept another from moving up
        Line line = line_of(&g, order, n);
        for (int k = 0; k < 2; k++) {
            if (i == k) sink(&g, &line);
            else hoist(&g, &line);
            int *moved = HD_NEWN(g.a, int, n + 1);
            write_order(&line, moved);
            Cost c = cost_of(&g, moved, n);
            if (better(c, least)) best = moved, least = c;
        }
    }
    hd_count(cx, "bytes off the peaks of functions", before.peak - least.peak);
    return reorder(&g, best, n);
}

// Declares the streams that ops run on, in order of first use.
static void declare_streams(Module *m) {
    for (Func *f = m->funcs; f; f = f->next) {
        if (f->is_kernel) continue;
        for (const Op *o = f->first; o; o = o->next) {
            const Symbol *s = hd_symbol_find(m, o->stream);
            if (!s) hd_symbol_add(m, SYM_STREAM, o->stream, NULL);
        }
    }
}

Change hd_pass_schedule(Module *m, PassCx *cx) {
    const char *graph = hd_word(&hd_config(m, "schedule")->attrs, A_GRAPH, "none");
    if (strcmp(graph, "none") != 0 && strcmp(graph, "step") != 0) {
        hd_error(m->cx, hd_config(m, "schedule")->span, "schedule.graph is %s; this version captures whole steps: step or none", graph);
        return FAILED;
    }
    for (Symbol *s = m->symbols; s; s = s->next) {
        if (s->kind != SYM_STREAM && strcmp(s->name, "compute") == 0) {
            hd_error(m->cx, s->span, "@compute names a stream in every plan; this %s needs another name", hd_symbol_keyword(s->kind));
            return FAILED;
        }
    }
    for (Func *f = m->funcs; f; f = f->next) {
        if (f->is_kernel) continue;
        if (!hd_return(f)) {
            hd_error(m->cx, f->span, "@%s has no return", f->name);
            return FAILED;
        }
        hd_count(cx, "functions reordered", schedule_function(f, cx));
        hd_set_word(m->cx, &f->attrs, A_GRAPH, graph);
    }
    m->stage = STAGE_PLAN;
    declare_streams(m);
    return CHANGED;
}
