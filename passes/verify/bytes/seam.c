// Seams of steps that declare overlaps: what they say can hold, and a function's tail has ended when the function
// after it returns. So only neighbours overlap, and what is proved for each pair of them is proved for the step.
#include "passes/analysis/clocks.h"
#include "passes/verify/verify_plan.h"

static void check_stream(PlanCheck *c, const Symbol *step, const char *name) {
    const Symbol *stream = hd_symbol_find(c->m, name);
    const Func *f = hd_segment(c->m, step, 0, NULL);
    if (!stream || stream->kind != SYM_STREAM)
        hd_plan_wrong(c, NULL, step->span, "step @%s overlaps %s, which is no stream of the plan", step->name, name);
    else if (f && f->last->stream && strcmp(f->last->stream, name) == 0)
        hd_plan_wrong(c, NULL, step->span, "step @%s: stream %s cannot overlap, since @%s returns on it", step->name,
                      name, f->name);
}

void hd_check_overlaps(PlanCheck *c) {
    for (const Symbol *s = c->m->symbols; s; s = s->next) {
        const Attr *streams = s->kind == SYM_STEP ? hd_attr(&s->attrs, A_OVERLAPS) : NULL;
        for (int i = 0; streams && i < streams->n; i++) check_stream(c, s, streams->strs[i]);
    }
}

void hd_check_seam(PlanCheck *c) {
    const Func *f = c->f;
    Clocks k = hd_clocks(f, c->a);
    const Op **last = HD_NEWN(c->a, const Op *, k.n_streams + 1); // of the tail, by stream
    for (const Op *o = f->first; o->id < c->joined->tail; o = o->next)
        if (!hd_is_alias(o)) last[k.stream_of[o->id]] = o;
    for (int s = 0; s < k.n_streams; s++)
        if (last[s] && !hd_before(&k, last[s]->id, f->last->id))
            hd_plan_wrong(c, last[s], last[s]->span,
                          "may run on when @%s has returned, beside the function after it: record an event on %s after "
                          "op %s and wait for it on %s before op %s",
                          f->name, last[s]->stream, hd_plan_number(c, last[s]), f->last->stream,
                          hd_plan_number(c, f->last));
}
