// Why the work of one place and direction is in several capture regions. See cuts.h.
#include "passes/report/cuts.h"
#include "passes/analysis/places.h"
#include <string.h>

Cuts hd_report_cuts(const Func *f, Arena *a) {
    Cuts c = {.f = f, .a = a, .ops = HD_NEWN(a, const Op *, f->n_ops + 1), .deps = hd_deps(f, a),
              .clocks = hd_clocks(f, a), .follows = HD_NEWN(a, bool, f->n_ops + 1),
              .needed = HD_NEWN(a, bool, f->n_ops + 1)};
    for (const Op *o = f->first; o; o = o->next) c.ops[o->id] = o;
    return c;
}

static const Op *end_of(const Op *begin) {
    while (!hd_op_is(begin, TRAIT_CLOSES)) begin = begin->next;
    return begin;
}

static bool inside(const Op *o, const Op *begin, const Op *end) { return o->id > begin->id && o->id < end->id; }
static bool is_work(const Op *o) { return hd_is_action(o) && !hd_is_event(o); }
static bool on_main(const Cuts *c, const Op *o) { return !strcmp(o->stream, c->f->last->stream); }

static const char *named(const Cuts *c, const Op *o) {
    Ctx *cx = c->f->module->cx;
    const char *what = hd_op_info(o->kind)->mnemonic, *path = o->loc.path ? hd_place_pattern(cx, o->loc.path) : NULL;
    if (!on_main(c, o)) return hd_sprintf(c->a, "%s of stream %s", what, o->stream);
    return path ? hd_sprintf(c->a, "%s (%s)", path, what) : what;
}

// An op that needs what the region before makes and makes what this one needs; NULL: there is none.
static const Op *between_both(Cuts *c, const Op *p, const Op *p_end, const Op *n, const Op *n_end) {
    for (int i = p->id; i < n_end->id; i++) {
        bool follows = false;
        for (int k = c->deps.start[i]; k < c->deps.start[i + 1]; k++) {
            const Op *on = c->ops[c->deps.pred[k]];
            follows |= on->id > p->id && (c->follows[on->id] || inside(on, p, p_end));
        }
        c->follows[i] = follows && !inside(c->ops[i], p, p_end);
        c->needed[i] = false;
    }
    for (int i = n_end->id - 1; i > p->id; i--)
        for (int k = c->deps.start[i]; k < c->deps.start[i + 1] && (c->needed[i] || inside(c->ops[i], n, n_end)); k++)
            c->needed[c->deps.pred[k]] = true;
    const Op *other = NULL; // of another stream
    for (int i = p->id; i < n_end->id; i++) {
        const Op *o = c->ops[i];
        if (!c->follows[i] || !c->needed[i] || !is_work(o) || inside(o, n, n_end)) continue;
        if (on_main(c, o)) return o;
        if (!other) other = o;
    }
    return other;
}

// The op before a record on its stream.
static const Op *recorded_op(const Op *record) {
    const Op *o = record->prev;
    while (o && (o->stream != record->stream || !is_work(o))) o = o->prev;
    return o;
}

// The work that the main stream waits for between two regions, if that starts after the first has begun; NULL: nothing.
static const Op *awaited(const Cuts *c, const Op *p, const Op *p_end, const Op *n) {
    const Op *first = p->next;
    while (first != p_end && !(is_work(first) && on_main(c, first))) first = first->next;
    for (const Op *w = p_end; w != n; w = w->next) {
        if (!hd_op_is(w, TRAIT_WAITS) || !on_main(c, w)) continue;
        const Op *r = w->prev;
        while (r && (!hd_op_is(r, TRAIT_RECORDS) || hd_int(&r->attrs, A_EVENT, -1) != hd_int(&w->attrs, A_EVENT, -2)))
            r = r->prev;
        const Op *o = r && !on_main(c, r) ? recorded_op(r) : NULL;
        if (o && hd_before(&c->clocks, first->id, o->id)) return o;
    }
    return NULL;
}

static const Op *first_between(const Cuts *c, const Op *p_end, const Op *n) {
    for (const Op *o = p_end; o != n; o = o->next)
        if (on_main(c, o) && is_work(o)) return o;
    return NULL;
}

// A fence of the main stream after its own work: what comes behind it is to run beside another stream (tail.c).
static bool has_fence(const Cuts *c, const Op *p_end, const Op *n) {
    for (const Op *o = p_end; o != n; o = o->next)
        if (hd_op_is(o, TRAIT_ORDERS) && on_main(c, o) && o->in[0]->def && on_main(c, o->in[0]->def)) return true;
    return false;
}

const char *hd_report_cut(Cuts *c, const Op *before, const Op *now) {
    const Op *p_end = end_of(before), *n_end = end_of(now), *o = between_both(c, before, p_end, now, n_end);
    if (o) return hd_sprintf(c->a, "%s needs what the region before makes, and this one needs it", named(c, o));
    o = awaited(c, before, p_end, now);
    if (o) return hd_sprintf(c->a, "%s begins during the region before, and has to end before this one", named(c, o));
    if (has_fence(c, p_end, now)) return "the work of this one waits, to run beside the last reduction";
    o = first_between(c, p_end, now);
    if (o) return hd_sprintf(c->a, "in one piece they would take more memory or overlap less with other streams: "
                                   "%s is between", named(c, o));
    return "the text of the plan begins a new region here";
}
