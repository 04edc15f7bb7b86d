// capture: marks the ranges of every function that a target may replay as one graph, as the schedule's `graph` says.
//   step    one region a function, all of it. It holds all streams: they fork from the main one and join it, as sync
//           has made them.
//   unit    the main stream's work of one unit, forward or backward
//   places  that of the listed places, forward or backward
//   [compute] %0 = gemm ...  loc(blocks.0.attn)        [compute] capture {region = @micro.blocks.0.attn}
//   [compute] record {event = 3}                         [compute] %0 = gemm ...
//   [gather] wait {event = 3}                    ->      [compute] record {event = 3, external}
//   [gather] all_gather ...                              [compute] %1 = attention %0 ...
//   [compute] %1 = attention %0 ...                    [compute] capture_end {region = @micro.blocks.0.attn}
//                                                      [gather] wait {event = 3}
//                                                      [gather] all_gather ...
// The order of each stream stays, so nothing that the plan orders changes; only the order of issue does. Work of other
// streams is not in a region of a unit or a place: its graph would have to wait for that work before its end, and
// nothing would run beside the next region. Such work is issued before the region if it does not depend on it, else
// after it. It begins on the device as early as before: the event that it waits for is recorded inside the region, and
// bytes are not counted in the order of issue (analysis/times.h). Where the rest of the region needs the result, the
// region is cut in two. A store that plan-memory makes part of the op before it (memory/straight.c) is no action: a
// region of such stores would be empty.
#include "passes/analysis/access.h"
#include "passes/analysis/place_effect.h"
#include "passes/analysis/lifetimes.h"
#include "passes/pass.h"
#include "passes/schedule/region_keys.h"
#include "passes/schedule/schedule.h"
#include "passes/settings.h"
#include <string.h>

typedef struct { int first, last, actions; RegionKey key; } Range; // of Cut.ops
typedef VEC(Op *) Ops;
typedef VEC(Range) Ranges;

typedef struct {
    Module *m;
    PassCx *cx;
    Arena *a;
    RegionKeys keys;
    // of the function at hand
    Func *f;
    const char *main;
    const bool *placed;   // by op id: a store that plan-memory makes part of the op before it, so no action of the plan
    Ops ops;              // all but aliases and the return, in order
    Ops order;            // ... in their new order, with the ends of regions
    bool *late;           // by event: it is recorded in the region at hand, or after something that is
    VEC(const char *) late_streams; // that wait for the region at hand
    int split;
} Cut;

// A graph costs the host about as much as this many launches, so a smaller part of a unit is better launched directly.
enum { LEAST_OF_UNIT = 3 };

static Op *marker(Func *f, OpKind kind, const Symbol *region, const char *stream) {
    Op *o = hd_op_new(f, kind, 0, NULL);
    hd_set_word(f->module->cx, &o->attrs, A_REGION, region->name);
    const char *wrong = hd_infer(o, 0, NULL);
    if (wrong) HD_BUG("%s: %s", hd_op_info(kind)->mnemonic, wrong);
    o->stream = stream;
    return o;
}

static Symbol *new_region(Func *f, KindId kind, RegionKey key) {
    Module *m = f->module;
    const char *name = hd_internf(m->cx, "%s.%s%s", f->name, key.place, key.bwd ? ".bwd" : "");
    Symbol *region = hd_symbol_add(m, SYM_REGION, hd_free_name(m, name), NULL);
    hd_set_kind(m->cx, &region->attrs, kind);
    if (kind != KIND_WHOLE) hd_set_word(m->cx, &region->attrs, A_PATH, hd_intern(m->cx, key.place));
    if (key.bwd) hd_set_flag(m->cx, &region->attrs, A_BWD);
    return region;
}

static void capture_step(Func *f) {
    int actions = 0;
    for (const Op *o = f->first; o; o = o->next) actions += hd_is_action(o);
    if (!actions) return;
    const Symbol *region = new_region(f, KIND_WHOLE, (RegionKey){"step", false});
    hd_insert_before(f->first, marker(f, OP_CAPTURE, region, f->last->stream));
    hd_insert_before(f->last, marker(f, OP_CAPTURE_END, region, f->last->stream));
    hd_renumber(f);
}

// --- which ops belong together

static bool is_work(const Cut *c, const Op *o) { return hd_is_action(o) && !hd_is_event(o) && !c->placed[o->id]; }
static bool on_main(const Cut *c, const Op *o) { return !strcmp(o->stream, c->main); }

static void extend(Range *r, const Range *by) {
    r->last = by->last;
    r->actions += by->actions;
}

// The runs of main-stream actions of one key. A unit's run that is too short for a graph and inside another unit's run
// becomes part of that run: the pass may have moved a kernel by a few places.
static Ranges find_runs(Cut *c) {
    Ranges runs = {0};
    for (int i = 0; i < c->ops.n; i++) {
        if (!is_work(c, c->ops.at[i]) || !on_main(c, c->ops.at[i])) continue;
        Range now = {i, i, 1, hd_region_key(&c->keys, c->ops.at[i])}, *top = runs.n ? &runs.at[runs.n - 1] : NULL;
        if (top && hd_same_region(top->key, now.key)) {
            extend(top, &now);
        } else if (c->keys.by_unit && runs.n > 1 && top->actions < LEAST_OF_UNIT &&
                   hd_same_region(top[-1].key, now.key)) {
            extend(top - 1, top);
            extend(top - 1, &now);
            runs.n--;
        } else {
            hd_push(c->a, &runs, now);
        }
    }
    return runs;
}

// All work is in some unit: a run that is still too short joins the one before it, and the first one the next.
static Ranges join_short(Cut *c, const Ranges *runs) {
    Ranges joined = {0};
    for (int i = 0; i < runs->n; i++) {
        Range now = runs->at[i], *last = joined.n ? &joined.at[joined.n - 1] : NULL;
        bool short_last = last && last->actions < LEAST_OF_UNIT;
        if (short_last) last->key = now.key;
        if (last && (short_last || hd_same_region(last->key, now.key) || now.actions < LEAST_OF_UNIT))
            extend(last, &now);
        else hd_push(c->a, &joined, now);
    }
    return joined;
}

// --- cutting

static int64_t event_of(const Op *o) { return hd_int(&o->attrs, A_EVENT, 0); }

static bool stream_is_late(const Cut *c, const char *stream) {
    for (int i = 0; i < c->late_streams.n; i++)
        if (!strcmp(c->late_streams.at[i], stream)) return true;
    return false;
}

static void put(Cut *c, const Ops *ops, int from, int to) {
    for (int i = from; i < to; i++) hd_push(c->a, &c->order, ops->at[i]);
}

typedef struct { Ops before, body, after; } Part; // ops of other streams; of the main one; of other streams
typedef struct { Part p; int from; } Open;        // from: its first op in Cut.ops

// The key of a part: that of its run, unless the part holds nothing but a short run that joined this one.
static RegionKey own_key(Cut *c, const Ops *body, int lo, int hi, RegionKey run) {
    for (int i = lo; i < hi; i++)
        if (is_work(c, body->at[i]) && hd_same_region(hd_region_key(&c->keys, body->at[i]), run)) return run;
    return lo < hi ? hd_region_key(&c->keys, body->at[lo]) : run;
}

// Makes a region of the open one, without the actions at its ends that need not be in it. Nothing changes if it is too
// short. `to`: the op after it.
static void close_part(Cut *c, Open *open, int to, RegionKey key) {
    const Ops *body = &open->p.body;
    int lo = 0, hi = body->n, actions = 0;
    while (lo < hi && !is_work(c, body->at[lo])) lo++;
    while (hi > lo && !is_work(c, body->at[hi - 1])) hi--;
    for (int i = lo; i < hi; i++) actions += is_work(c, body->at[i]);
    key = own_key(c, body, lo, hi, key);
    if (actions < (c->keys.by_unit ? LEAST_OF_UNIT : 1)) {
        put(c, &c->ops, open->from, to);
    } else {
        const Symbol *region = new_region(c->f, c->keys.by_unit ? KIND_UNIT : KIND_PLACE, key);
        put(c, &open->p.before, 0, open->p.before.n);
        put(c, body, 0, lo);
        hd_push(c->a, &c->order, marker(c->f, OP_CAPTURE, region, c->main));
        put(c, body, lo, hi);
        hd_push(c->a, &c->order, marker(c->f, OP_CAPTURE_END, region, c->main));
        put(c, body, hi, body->n);
        put(c, &open->p.after, 0, open->p.after.n);
    }
    for (int i = open->from; i < to; i++)
        if (hd_is_event(c->ops.at[i])) c->late[event_of(c->ops.at[i])] = false;
    c->late_streams.n = 0;
    *open = (Open){.from = to};
}

static void cut_run(Cut *c, const Range *run) {
    Open open = {.from = run->first};
    for (int i = run->first; i <= run->last; i++) {
        Op *o = c->ops.at[i];
        bool main = on_main(c, o), waits = hd_op_is(o, TRAIT_WAITS) && c->late[event_of(o)];
        if (main && waits) close_part(c, &open, i, run->key), c->split++;
        if (!main && waits) hd_push(c->a, &c->late_streams, o->stream);
        bool late = !main && stream_is_late(c, o->stream);
        if (hd_op_is(o, TRAIT_RECORDS) && (main || late)) c->late[event_of(o)] = true;
        hd_push(c->a, main ? &open.p.body : late ? &open.p.after : &open.p.before, o);
    }
    close_part(c, &open, run->last + 1, run->key);
}

// Marks the events of which the record and a wait are not in one region.
static void mark_external(Cut *c, int64_t n_events) {
    const Op **region_of = HD_NEWN(c->a, const Op *, n_events + 1), *in = NULL; // by event: that of its record
    Op **record = HD_NEWN(c->a, Op *, n_events + 1);
    for (int i = 0; i < c->order.n; i++) {
        Op *o = c->order.at[i];
        in = hd_op_is(o, TRAIT_OPENS) ? o : hd_op_is(o, TRAIT_CLOSES) ? NULL : in;
        if (hd_op_is(o, TRAIT_RECORDS)) record[event_of(o)] = o, region_of[event_of(o)] = in;
        if (!hd_op_is(o, TRAIT_WAITS) || region_of[event_of(o)] == in) continue;
        if (in) hd_set_flag(c->m->cx, &o->attrs, A_EXTERNAL);
        if (region_of[event_of(o)]) hd_set_flag(c->m->cx, &record[event_of(o)]->attrs, A_EXTERNAL);
    }
}

static void capture_parts(Cut *c, const bool *placed) {
    int64_t n_events = 0;
    c->placed = placed;
    c->main = c->f->last->stream;
    c->ops.n = c->order.n = 0;
    for (Op *o = c->f->first; o; o = o->next) {
        if (!hd_op_is(o, TRAIT_ALIAS | TRAIT_SOURCE) && o->next) hd_push(c->a, &c->ops, o);
        if (hd_is_event(o) && event_of(o) >= n_events) n_events = event_of(o) + 1;
    }
    c->late = HD_NEWN(c->a, bool, n_events + 1);
    Ranges runs = find_runs(c);
    if (c->keys.by_unit) runs = join_short(c, &runs);
    int at = 0;
    for (int i = 0; i < runs.n; i++) {
        if (!runs.at[i].key.place) continue;
        put(c, &c->ops, at, runs.at[i].first);
        cut_run(c, &runs.at[i]);
        at = runs.at[i].last + 1;
    }
    put(c, &c->ops, at, c->ops.n);
    mark_external(c, n_events);
    for (int i = 0; i < c->order.n; i++)
        if (hd_op_is(c->order.at[i], TRAIT_OPENS | TRAIT_CLOSES))
            hd_insert_before(c->f->last, c->order.at[i]);
    hd_renumber(c->f);
    hd_set_order(c->f, c->order.at, c->order.n, c->a);
    hd_renumber(c->f);
}

// false after reporting what is listed and has no action of its own in any instance.
static bool places_captured(const Cut *c) {
    const Places *p = &c->keys.places;
    bool all = true;
    PtrMap seen = {0}; // pattern to 1 (reported), 2 (captured)
    for (int i = 0; p->paths && i < p->paths->n; i++)
        if (p->found[i]) hd_ptr_set(c->a, &seen, hd_place_pattern(c->m->cx, p->paths->strs[i]), 2);
    for (int i = 0; p->paths && i < p->paths->n; i++) {
        const char *path = p->paths->strs[i], *pattern = hd_place_pattern(c->m->cx, path), *dot = strrchr(path, '.');
        if (hd_ptr_get(&seen, pattern) > 0) continue;
        hd_ptr_set(c->a, &seen, pattern, 1);
        all = false;
        hd_error(c->m->cx, hd_config(c->m, "schedule")->span,
                 "graph %s: no action of the plan is there; what it computes is part of actions of other places, and a "
                 "region does not cut an action: %s%.*s",
                 path, dot ? "list the module around it, " : "write graph step", dot ? (int)(dot - path) : 0, path);
    }
    return all;
}

// Of each function: what hd_placed_stores says, before any of them changes.
static const bool **find_placed(Module *m, Arena *a) {
    int n = 0;
    for (Func *f = m->funcs; f; f = f->next)
        if (!f->is_kernel) hd_renumber(f), n++;
    const bool **placed = HD_NEWN(a, const bool *, n + 1);
    const Seams seams = hd_seams(m, a);
    n = 0;
    for (const Func *f = m->funcs; f; f = f->next)
        if (!f->is_kernel) placed[n++] = hd_placed_stores(f, &seams, a);
    return placed;
}

static bool has_no_regions(Module *m) {
    for (const Func *f = m->funcs; f; f = f->next)
        for (const Op *o = f->first; o; o = o->next)
            if (hd_op_is(o, TRAIT_OPENS | TRAIT_CLOSES))
                return hd_error(m->cx, o->span, "@%s already has regions; capture decides on all of them", f->name);
    return true;
}

Change hd_pass_capture(Module *m, PassCx *cx) {
    const char *graph = hd_word(hd_settings(m, "schedule"), A_GRAPH, "none");
    if (!strcmp(graph, "none")) return UNCHANGED;
    if (!has_no_regions(m)) return FAILED;
    Cut c = {.m = m, .cx = cx, .a = cx->scratch, .keys = hd_region_keys(m, cx->scratch)};
    const bool step = !strcmp(graph, "step"), **placed = step ? NULL : find_placed(m, c.a);
    for (c.f = m->funcs; c.f; c.f = c.f->next) {
        if (c.f->is_kernel) continue;
        if (step) capture_step(c.f);
        else capture_parts(&c, *placed++);
    }
    if (!places_captured(&c)) return FAILED;
    hd_places_warn_inside(&c.keys.places, 0, NULL,
                          "another place of the list is around it, whose region holds all that is in it", c.a);
    for (const Symbol *s = m->symbols; s; s = s->next) hd_count(cx, "capture regions", s->kind == SYM_REGION);
    hd_count(cx, "regions cut for another stream", c.split);
    return CHANGED;
}
