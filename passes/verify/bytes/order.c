// Order: every event is recorded exactly once and waited for only after that; where a function waits before it records,
// or does not record, every function that may run before it does (analysis/seam.h). Side streams start after the
// function's start and end before its return, both on the stream of the return, which is the same for all functions, so
// that functions run in sequence and can be captured. Streams that overlap need not end before the return, if the ops
// that they leave running touch nothing but buffers: seam.c follows them into the next function.
#include "passes/analysis/clocks.h"
#include "passes/verify/verify_plan.h"
#include "ir/base/search.h"
#include <stdlib.h>

typedef struct { int64_t event; const Op *op; } Record;

static int by_event(const void *a, const void *b) {
    const Record *x = a, *y = b;
    return x->event != y->event ? (x->event < y->event ? -1 : 1) : x->op->id - y->op->id;
}

// The first op that records an event, or NULL.
static const Op *record_of(const Record *records, int n, int64_t event) {
    int i;
    HD_FIRST(i, 0, n, records[i].event >= event);
    return i < n && records[i].event == event ? records[i].op : NULL;
}

static bool records(const Func *f, int64_t event) {
    for (const Op *o = f->first; o; o = o->next)
        if (hd_op_is(o, TRAIT_RECORDS) && hd_int(&o->attrs, A_EVENT, -1) == event) return true;
    return false;
}

// Why nothing answers a wait that no earlier op of its function does; NULL: every function before it records the event.
static const char *unanswered(PlanCheck *c, int64_t event, const Op *later) {
    bool any = false;
    for (int i = 0; i < c->seams.n; i++) {
        const Seam *b = &c->seams.at[i];
        if (b->after != c->f) continue;
        if (!records(b->before, event))
            return hd_sprintf(c->a, "nor does @%s, which may run before it", b->before->name);
        any = true;
    }
    if (any && hd_follows(&c->seams, c->f)) return NULL;
    if (any) return hd_sprintf(c->a, "@%s may be the first function of a step", c->f->name);
    return later ? hd_sprintf(c->a, "%s does, after it", hd_plan_op(c, later)) : "nor does a later one";
}

static void check_events(PlanCheck *c) {
    Record *recorded = HD_NEWN(c->a, Record, c->f->n_ops + 1);
    int n = 0;
    for (const Op *o = c->f->first; o; o = o->next)
        if (hd_op_is(o, TRAIT_RECORDS)) recorded[n++] = (Record){hd_int(&o->attrs, A_EVENT, -1), o};
    qsort(recorded, (size_t)n, sizeof *recorded, by_event);
    for (const Op *o = c->f->first; o; o = o->next) {
        if (!hd_op_is(o, TRAIT_RECORDS | TRAIT_WAITS)) continue;
        int64_t event = hd_int(&o->attrs, A_EVENT, -1);
        const Op *earlier = record_of(recorded, n, event);
        if (earlier && earlier->id >= o->id) earlier = NULL;
        if (event < 0) hd_plan_wrong(c, o, o->span, "names event %lld; events count from 0", (long long)event);
        const char *why =
            hd_op_is(o, TRAIT_WAITS) && !earlier ? unanswered(c, event, record_of(recorded, n, event)) : NULL;
        if (why)
            hd_plan_wrong(c, o, o->span, "waits for event %lld, which no earlier op of the function records: %s",
                          (long long)event, why);
        if (hd_op_is(o, TRAIT_RECORDS) && earlier)
            hd_plan_wrong(c, o, o->span, "records event %lld again, after %s", (long long)event,
                          hd_plan_op(c, earlier));
    }
}

// All functions return on one stream, so that one has ended on all its streams when the next one starts.
static void check_return(PlanCheck *c) {
    const Func *f = c->m->funcs;
    while (f->is_kernel) f = f->next;
    const char *first = f->last->stream, *mine = c->f->last->stream;
    if (first && mine && strcmp(first, mine) != 0)
        hd_plan_wrong(c, c->f->last, c->f->last->span,
                      "is on another stream than the return of @%s, on %s: nothing keeps the two functions apart",
                      f->name, first);
}

void hd_check_order(PlanCheck *c) {
    check_events(c);
    check_return(c);
    Clocks k = hd_clocks(c->f, c->a);
    if (k.n_streams <= 1) return;
    const Op *end = c->f->last;
    int main = k.stream_of[end->id];
    const Op **first = HD_NEWN(c->a, const Op *, k.n_streams), **last = HD_NEWN(c->a, const Op *, k.n_streams);
    const Home *homes = c->seams.n ? hd_homes(c->f, c->a) : NULL;
    for (const Op *o = c->f->first; o; o = o->next) {
        int s = k.stream_of[o->id];
        if (!first[s] && !hd_op_is(o, TRAIT_WAITS) && !hd_is_alias(o)) first[s] = o;
        bool runs_on = c->seams.n && s != main && !hd_is_alias(o) && hd_runs_on(&c->seams, c->f, o->stream);
        if (!runs_on || !hd_touches_only_buffers(o, homes, c->a)) last[s] = o;
    }
    for (int s = 0; s < k.n_streams; s++) {
        if (s == main || !*k.stream[s] || !*k.stream[main]) continue; // no stream: already reported
        if (first[s] && k.clock[first[s]->id * k.n_streams + main] == 0)
            hd_plan_wrong(c, first[s], first[s]->span,
                          "may start before the function does: stream %s waits for nothing that %s records; "
                          "wait on %s before op %d for an event that %s records",
                          k.stream[s], k.stream[main], k.stream[s], first[s]->id, k.stream[main]);
        if (last[s] && !hd_before(&k, last[s]->id, end->id))
            hd_plan_wrong(c, last[s], last[s]->span,
                          "may run on after the return: %s waits for no later record of stream %s; "
                          "record an event on %s after op %d and wait for it on %s before op %d",
                          k.stream[main], k.stream[s], k.stream[s], last[s]->id, k.stream[main], end->id);
    }
}
