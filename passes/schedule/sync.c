// sync: an event for every dependence between streams that nothing else implies, and no other event. The walk in
// program order keeps for each stream how far it has certainly seen the others (vector clocks). Of the ops that the
// next op depends on, only the last of each other stream matters, and only if no other wait covers it. That is the
// transitive reduction, so no event can be removed. A function begins and ends on the stream of its return: other
// streams fork from it and join it, as stream capture requires, so functions stay in sequence whatever streams they
// use. One record serves all its waits. With one stream nothing is inserted.
//
// A stream that runs on over the seams of a step (`overlaps`) joins at the return only for the ops that touch more
// than buffers: what those touch is gone when the function has returned. sync_seam.c finds the events that cross.
//   [gather] %g = ...                  [gather] %g = ...
//   [compute] %y = gemm %g, %x   ->    [gather] record {event = 0}
//                                      [compute] wait {event = 0}
//                                      [compute] %y = gemm %g, %x
#include "passes/analysis/clocks.h"
#include "passes/analysis/deps.h"
#include "passes/pass.h"
#include "passes/schedule/schedule.h"

typedef struct { int op, on; } Edge; // `op` waits for `on`; on == -1: for the function's start
typedef struct {
    Func *f;
    Arena *a;
    const char **stream;
    int n, main;      // streams; the one of the return
    int *stream_of, *place, *after; // by op id; `after`: clock when the op has ended, n each
    int *now;         // [stream * n + stream]
    int *last;        // by stream: its last op so far that the return must wait for; -1: none
    bool *runs_on;    // by stream: over the seams of its step
    bool *started;    // by stream: it has had an op
    const Home *homes;
    int *by_place;    // scratch: the op to wait for on each stream
    VEC(Edge) edges;
} Sync;

static bool find_streams(Sync *s) {
    VEC(const char *) names = {0};
    for (const Op *o = s->f->first; o; o = o->next) {
        if (!o->stream) return false;
        int i = 0;
        while (i < names.n && strcmp(names.at[i], o->stream) != 0) i++;
        if (i == names.n) hd_push(s->a, &names, o->stream);
        s->stream_of[o->id] = i;
    }
    s->stream = names.at;
    s->n = names.n;
    s->main = s->stream_of[s->f->last->id];
    return true;
}

// Waits for the wanted ops (at most one per stream) that are not seen yet and not covered by another wanted one.
static void wait_for(Sync *s, int op) {
    int *mine = s->now + s->stream_of[op] * s->n;
    for (int t = 0; t < s->n; t++) {
        int on = s->by_place[t];
        if (on < 0 || s->place[on] <= mine[t]) continue;
        bool covered = false;
        for (int u = 0; u < s->n; u++)
            covered |= u != t && s->by_place[u] >= 0 && s->after[s->by_place[u] * s->n + t] >= s->place[on];
        if (covered) continue;
        Edge e = {op, on};
        hd_push(s->a, &s->edges, e);
    }
    for (int t = 0; t < s->n; t++)
        if (s->by_place[t] >= 0) hd_clocks_join(mine, s->after + s->by_place[t] * s->n, s->n);
}

static void find_edges(Sync *s, const Deps *deps) {
    for (const Op *o = s->f->first; o; o = o->next) {
        int own = s->stream_of[o->id], *mine = s->now + own * s->n;
        for (int t = 0; t < s->n; t++) s->by_place[t] = -1;
        for (int k = deps->start[o->id]; k < deps->start[o->id + 1]; k++) {
            int on = deps->pred[k], t = s->stream_of[on];
            if (t != own && (s->by_place[t] < 0 || s->place[on] > s->place[s->by_place[t]])) s->by_place[t] = on;
        }
        for (int t = 0; !o->next && t < s->n; t++) // the return: every stream has joined
            if (t != own && s->last[t] >= 0 && (s->by_place[t] < 0 || s->place[s->last[t]] > s->place[s->by_place[t]]))
                s->by_place[t] = s->last[t];
        wait_for(s, o->id);
        if (own != s->main && !s->started[own] && mine[s->main] == 0) { // fork: not even the function's start was seen
            Edge e = {o->id, -1};
            hd_push(s->a, &s->edges, e);
            mine[s->main] = 1;
        }
        s->place[o->id] = ++mine[own];
        s->started[own] = true;
        if (!s->runs_on[own] || !hd_touches_only_buffers(o, s->homes, s->a)) s->last[own] = o->id;
        memcpy(s->after + o->id * s->n, mine, sizeof(int) * (size_t)s->n);
    }
}

Op *hd_sync_op(Func *f, OpKind kind, int64_t event, const char *stream) {
    Op *o = hd_op_new(f, kind, 0, NULL);
    hd_set_int(f->module->cx, &o->attrs, A_EVENT, event);
    const char *wrong = hd_infer(o, 0, NULL);
    if (wrong) HD_BUG("%s: %s", hd_op_info(kind)->mnemonic, wrong);
    o->stream = stream;
    return o;
}

static void insert(Sync *s) {
    Op **ops = HD_NEWN(s->a, Op *, s->f->n_ops + 1);
    int64_t *event = HD_NEWN(s->a, int64_t, s->f->n_ops + 1); // by op id: its event plus 1
    for (Op *o = s->f->first; o; o = o->next) ops[o->id] = o;
    int64_t n = 0, start = -1;
    for (int i = 0; i < s->edges.n; i++) {
        Edge e = s->edges.at[i];
        if (e.on < 0 && start < 0) {
            start = n++;
            hd_insert_before(s->f->first, hd_sync_op(s->f, OP_RECORD, start, s->stream[s->main]));
        }
        if (e.on >= 0 && !event[e.on]) {
            event[e.on] = ++n;
            Op *r = hd_sync_op(s->f, OP_RECORD, n - 1, ops[e.on]->stream);
            r->loc = ops[e.on]->loc;
            hd_insert_after(ops[e.on], r);
        }
        Op *w = hd_sync_op(s->f, OP_WAIT, e.on < 0 ? start : event[e.on] - 1, ops[e.op]->stream);
        w->loc = ops[e.op]->loc;
        hd_insert_before(ops[e.op], w);
    }
    hd_renumber(s->f);
}

static int sync_function(Func *f, const Seams *b, Arena *a) {
    hd_renumber(f);
    int n_ops = f->n_ops + 1;
    Sync s = {.f = f, .a = a, .stream_of = HD_NEWN(a, int, n_ops), .place = HD_NEWN(a, int, n_ops)};
    if (!find_streams(&s)) return -1;
    if (s.n == 1) return 0;
    s.after = HD_NEWN(a, int, (int64_t)n_ops * s.n);
    s.now = HD_NEWN(a, int, (int64_t)s.n * s.n);
    s.last = HD_NEWN(a, int, s.n);
    s.started = HD_NEWN(a, bool, s.n);
    s.runs_on = HD_NEWN(a, bool, s.n);
    s.homes = hd_homes(f, a);
    s.by_place = HD_NEWN(a, int, s.n);
    for (int i = 0; i < s.n; i++) s.last[i] = -1, s.runs_on[i] = i != s.main && hd_runs_on(b, f, s.stream[i]);
    s.now[s.main * s.n + s.main] = 1; // the function's start counts as the first op of its stream
    Deps deps = hd_deps(f, a);
    find_edges(&s, &deps);
    insert(&s);
    return s.edges.n;
}

Change hd_pass_sync(Module *m, PassCx *cx) {
    bool changed = false;
    Seams seams = hd_seams(m, cx->scratch);
    for (Func *f = m->funcs; f; f = f->next) {
        if (f->is_kernel || !f->last) continue;
        for (const Op *o = f->first; o; o = o->next)
            if (hd_op_is(o, TRAIT_SYNC)) {
                hd_error(m->cx, o->span, "@%s already has events; sync decides on all of them", f->name);
                return FAILED;
            }
        int n = sync_function(f, &seams, cx->scratch);
        if (n < 0) {
            hd_error(m->cx, f->span, "an op of @%s has no stream: run schedule first", f->name);
            return FAILED;
        }
        hd_count(cx, "waits", n);
        changed |= n > 0;
    }
    int n = hd_sync_seams(m, &seams, cx->scratch);
    hd_count(cx, "waits for the function before", n);
    return changed || n ? CHANGED : UNCHANGED;
}
