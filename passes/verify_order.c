// Order: every event is recorded exactly once and waited for only after that; side streams start behind the function's start and are
// done before its return, both on the stream of the return, so that functions stay in sequence and can be captured.
#include "passes/clocks.h"
#include "passes/verify_plan.h"

static void check_events(PlanCheck *c) {
    int n = c->f->n_ops;
    const Op **record = HD_NEWN(c->a, const Op *, n + 1); // so far; a plan has few
    int n_records = 0;
    for (const Op *o = c->f->first; o; o = o->next) {
        if (!hd_op_is(o, TRAIT_SYNC)) continue;
        int64_t event = hd_int(&o->attrs, A_EVENT, -1);
        const Op *earlier = NULL;
        for (int i = n_records - 1; i >= 0 && !earlier; i--)
            if (hd_int(&record[i]->attrs, A_EVENT, -1) == event) earlier = record[i];
        if (event < 0) hd_plan_wrong(c, o, o->span, "names event %lld; events count from 0", (long long)event);
        if (o->kind == OP_WAIT && !earlier) hd_plan_wrong(c, o, o->span, "waits for event %lld, which no earlier op of the function records", (long long)event);
        if (o->kind == OP_RECORD && earlier) hd_plan_wrong(c, o, o->span, "records event %lld again, after %s", (long long)event, hd_plan_op(c, earlier));
        if (o->kind == OP_RECORD) record[n_records++] = o;
    }
}

void hd_check_order(PlanCheck *c) {
    check_events(c);
    Clocks k = hd_clocks(c->f, c->a);
    if (k.n_streams <= 1) return;
    const Op *end = c->f->last;
    int main = k.stream_of[end->id];
    const Op **first = HD_NEWN(c->a, const Op *, k.n_streams), **last = HD_NEWN(c->a, const Op *, k.n_streams);
    for (const Op *o = c->f->first; o; o = o->next) {
        int s = k.stream_of[o->id];
        if (!first[s] && o->kind != OP_WAIT && !hd_is_alias(o)) first[s] = o;
        last[s] = o;
    }
    for (int s = 0; s < k.n_streams; s++) {
        if (s == main) continue;
        if (first[s] && k.clock[first[s]->id * k.n_streams + main] == 0)
            hd_plan_wrong(c, first[s], first[s]->span, "may start before the function does: stream %s waits for nothing that %s records", k.stream[s], k.stream[main]);
        if (!hd_before(&k, last[s]->id, end->id))
            hd_plan_wrong(c, last[s], last[s]->span, "may run on after the return: %s waits for no later record of stream %s", k.stream[main], k.stream[s]);
    }
}
