// Capture regions. A replay of a graph means what the text says if four things hold. The ends of regions are paired,
// do not overlap and are on the main stream, whose work the graph takes the place of. A stream that works in a region
// forks from the main stream inside it and joins it before its end; what it does before and after the region is ordered
// by the main stream as well, since the graph does not run on that stream. Work that the function before left running
// (analysis/seam.h) is before a region, too. An event is recorded and waited for in one region, or outside of all, or
// its end in a region is external, also where the other end is in another function. A wait comes after its record in
// program order, which is the order of issue (order.c). A region without an action is refused as well: its graph would
// do nothing, and its ends cut the work around them. A region needs no rule for addresses: all are numbers of this
// text (addresses.c), and what changes from step to step is in buffers.
#include "passes/analysis/clocks.h"
#include "passes/verify/verify_plan.h"
#include "ir/base/search.h"

typedef struct { const Op *from, *to; const char *name; int actions; } Range;
typedef struct {
    PlanCheck *c;
    VEC(Range) ranges;
    int *range_of; // by op id: its range, plus 1; 0: outside
} Regions;

static const char *name_of(const Op *o) { return hd_word(&o->attrs, A_REGION, ""); }

static void check_marker(Regions *r, const Op *o, const Op *open) {
    PlanCheck *c = r->c;
    const char *main = c->f->last->stream;
    const Op **captured = &c->captured[hd_symbol_find(c->m, name_of(o))->id];
    if (main && o->stream && strcmp(o->stream, main) != 0)
        hd_plan_wrong(c, o, o->span, "is on another stream than the return, %s, which issues the graph", main);
    if (hd_op_is(o, TRAIT_OPENS) && open)
        hd_plan_wrong(c, o, o->span, "begins region @%s inside @%s: regions do not overlap", name_of(o), name_of(open));
    if (hd_op_is(o, TRAIT_OPENS) && *captured)
        hd_plan_wrong(c, o, o->span, "begins region @%s, which has begun in @%s before", name_of(o),
                      (*captured)->func->name);
    if (hd_op_is(o, TRAIT_OPENS)) *captured = o;
    if (hd_op_is(o, TRAIT_CLOSES) && !open)
        hd_plan_wrong(c, o, o->span, "ends region @%s, which has not begun", name_of(o));
    else if (hd_op_is(o, TRAIT_CLOSES) && strcmp(name_of(open), name_of(o)) != 0)
        hd_plan_wrong(c, o, o->span, "ends region @%s inside @%s", name_of(o), name_of(open));
}

static void find_ranges(Regions *r) {
    const Op *open = NULL;
    int actions = 0;
    for (const Op *o = r->c->f->first; o; o = o->next) {
        if (!r->c->joined && hd_op_is(o, TRAIT_OPENS | TRAIT_CLOSES)) check_marker(r, o, open);
        if (open) r->range_of[o->id] = r->ranges.n + 1;
        actions = hd_op_is(o, TRAIT_OPENS) ? 0 : actions + (hd_is_action(o) && !hd_is_event(o));
        if (hd_op_is(o, TRAIT_OPENS)) open = o;
        if (!hd_op_is(o, TRAIT_CLOSES) || !open) continue;
        Range found = {open, o, name_of(open), actions};
        hd_push(r->c->a, &r->ranges, found);
        open = NULL;
    }
    if (open)
        hd_plan_wrong(r->c, open, open->span, "begins region @%s, which does not end in this function", name_of(open));
}

// --- events

static const char *place_of(const Regions *r, const Op *o) {
    int in = r->range_of[o->id];
    return in ? hd_sprintf(r->c->a, "in region @%s", r->ranges.at[in - 1].name) : "in no region";
}

static void check_wait(Regions *r, const Op *o, const Op *record) {
    int in = r->range_of[o->id];
    bool external = hd_has(&o->attrs, A_EXTERNAL);
    if (in && r->range_of[record->id] != in && !external)
        hd_plan_wrong(r->c, o, o->span,
                      "waits %s for %s, which is %s, and is not external: a graph cannot wait for that", place_of(r, o),
                      hd_plan_op(r->c, record), place_of(r, record));
    if (external && (!in || r->range_of[record->id] == in))
        hd_plan_wrong(r->c, o, o->span, "is external, but is %s and waits for %s, %s", place_of(r, o),
                      hd_plan_op(r->c, record), place_of(r, record));
}

static void check_wait_before(Regions *r, const Op *o) {
    bool in = r->range_of[o->id] > 0, external = hd_has(&o->attrs, A_EXTERNAL);
    if (in && !external)
        hd_plan_wrong(r->c, o, o->span,
                      "waits %s for the function before, and is not external: a graph cannot wait for that",
                      place_of(r, o));
    if (!in && external) hd_plan_wrong(r->c, o, o->span, "is external, but is in no region");
}

static void check_record_after(Regions *r, const Op *o, const Func *after) {
    bool in = r->range_of[o->id] > 0, external = hd_has(&o->attrs, A_EXTERNAL);
    if (in && !external)
        hd_plan_wrong(r->c, o, o->span, "is %s and not external, and @%s waits for it: a replay would not record it",
                      place_of(r, o), after->name);
    if (!in && external) hd_plan_wrong(r->c, o, o->span, "is external, but is in no region");
}

static void check_record(Regions *r, const Op *o, const Op *inside, const Op *outside) {
    int in = r->range_of[o->id];
    bool external = hd_has(&o->attrs, A_EXTERNAL);
    if (in && outside && !external)
        hd_plan_wrong(r->c, o, o->span,
                      "is %s and not external, and %s, %s, waits for it: a replay would not record it", place_of(r, o),
                      hd_plan_op(r->c, outside), place_of(r, outside));
    if (external && (!in || !outside))
        hd_plan_wrong(r->c, o, o->span, "is external, but is %s, and nothing outside of it waits for it",
                      place_of(r, o));
    if (external && inside)
        hd_plan_wrong(r->c, o, o->span, "is external, and %s in the same region waits for it",
                      hd_plan_op(r->c, inside));
}

typedef struct { const Op *record, *inside, *outside; } Event; // waits: in the region of the record, elsewhere

static void check_events(Regions *r) {
    VEC(Event) events = {0};
    for (const Op *o = r->c->f->first; o; o = o->next) {
        int64_t e = hd_int(&o->attrs, A_EVENT, -1);
        if (e < 0 || e >= 1 << 20) continue;
        while (events.n <= e) hd_push(r->c->a, &events, (Event){0});
        Event *at = &events.at[e];
        if (hd_op_is(o, TRAIT_RECORDS) && !at->record) at->record = o;
        if (hd_op_is(o, TRAIT_WAITS) && !at->record) check_wait_before(r, o);
        if (!hd_op_is(o, TRAIT_WAITS) || !at->record) continue;
        check_wait(r, o, at->record);
        const Op **wait = r->range_of[o->id] == r->range_of[at->record->id] ? &at->inside : &at->outside;
        if (!*wait) *wait = o;
    }
    for (int e = 0; e < events.n; e++) {
        const Event *at = &events.at[e];
        const Func *after = at->record ? hd_waits_after(&r->c->seams, r->c->f, e) : NULL;
        if (after) check_record_after(r, at->record, after);
        else if (at->record) check_record(r, at->record, at->inside, at->outside);
    }
}

// --- streams

typedef struct { const Op *before, *first, *last, *after; } Visit; // of a stream to a range: around and in it

static void check_visit(Regions *r, const Clocks *k, const Range *at, const Visit *v) {
    PlanCheck *c = r->c;
    const char *main = at->from->stream;
    if (!hd_before(k, at->from->id, v->first->id))
        hd_plan_wrong(c, v->first, v->first->span,
                      "is in region @%s, and stream %s has not forked from %s there: wait in the region, before op %s, "
                      "for an event that %s records in it",
                      at->name, v->first->stream, main, hd_plan_number(c, v->first), main);
    else if (!hd_before(k, v->last->id, at->to->id))
        hd_plan_wrong(c, v->last, v->last->span,
                      "is in region @%s, and stream %s does not join %s before its end: record an event after op %s "
                      "and wait for it on %s before op %s",
                      at->name, v->last->stream, main, hd_plan_number(c, v->last), main, hd_plan_number(c, at->to));
    else if (v->before && !hd_before(k, v->before->id, at->from->id))
        hd_plan_wrong(c, v->before, v->before->span,
                      "may run during region @%s, in which stream %s works too: a graph does not wait for its streams, "
                      "so %s must wait for it before op %s",
                      at->name, v->before->stream, main, hd_plan_number(c, at->from));
    else if (v->after && !hd_before(k, at->to->id, v->after->id))
        hd_plan_wrong(c, v->after, v->after->span,
                      "may run during region @%s, in which stream %s works too: it must wait for an event that %s "
                      "records after op %s",
                      at->name, v->after->stream, main, hd_plan_number(c, at->to));
}

// The ops of every stream in program order, without those that do nothing: of stream s at[start[s]] and on.
typedef struct { const Op **at; int *start; } StreamOps;

static StreamOps stream_ops(PlanCheck *c, const Clocks *k) {
    StreamOps s = {HD_NEWN(c->a, const Op *, c->f->n_ops + 1), HD_NEWN(c->a, int, k->n_streams + 2)};
    const unsigned idle = TRAIT_ALIAS | TRAIT_SOURCE;
    for (const Op *o = c->f->first; o; o = o->next) s.start[k->stream_of[o->id] + 2] += !hd_op_is(o, idle);
    for (int i = 2; i < k->n_streams + 2; i++) s.start[i] += s.start[i - 1];
    for (const Op *o = c->f->first; o; o = o->next)
        if (!hd_op_is(o, idle)) s.at[s.start[k->stream_of[o->id] + 1]++] = o;
    return s;
}

static int first_from(const StreamOps *s, int stream, int id) { // the first op of a stream with this number or a higher
    int i;
    HD_FIRST(i, s->start[stream], s->start[stream + 1], s->at[i]->id >= id);
    return i;
}

static void check_streams(Regions *r, const Clocks *k, const StreamOps *ops, const Range *at) {
    for (int s = 0; s < k->n_streams; s++) {
        const int from = first_from(ops, s, at->from->id + 1), to = first_from(ops, s, at->to->id);
        if (s == k->stream_of[at->from->id] || from == to) continue;
        const Visit v = {from > ops->start[s] ? ops->at[from - 1] : NULL, ops->at[from], ops->at[to - 1],
                         to < ops->start[s + 1] ? ops->at[to] : NULL};
        check_visit(r, k, at, &v);
    }
}

static void check_actions(PlanCheck *c, const Range *at) {
    if (!at->actions)
        hd_plan_wrong(c, at->from, at->from->span, "begins region @%s, which is empty: no action is between it and %s",
                      at->name, hd_plan_op(c, at->to));
}

void hd_check_regions(PlanCheck *c) {
    Regions r = {.c = c, .range_of = HD_NEWN(c->a, int, c->f->n_ops + 1)};
    int before = c->found.n;
    find_ranges(&r);
    if (c->found.n > before) return; // what is inside is not known
    if (!c->joined) check_events(&r);
    for (int i = 0; i < r.ranges.n && !c->joined && c->found.n == before; i++) check_actions(c, &r.ranges.at[i]);
    if (!r.ranges.n) return;
    const Clocks k = hd_clocks(c->f, c->a);
    const StreamOps ops = stream_ops(c, &k);
    for (int i = 0; i < r.ranges.n && k.n_streams > 1; i++) check_streams(&r, &k, &ops, &r.ranges.at[i]);
}
