// verify-plan: the proof that stands between a plan and its execution. It believes no pass: only the ops, places, streams, events and
// declarations of the finished text. Numbers in brackets are the invariants of the project's list.
//   verify_places.c:        arenas, buffers and buckets fit and are disjoint [V1, V14, V16]; every value has a legal place
//   verify_order.c:         events are recorded once and before they are waited for; streams fork and join [V19]
//   verify_contents.c:      an abstract run: each byte read holds the value that is meant, and every pair of accesses of which one
//                           writes is ordered by streams and events [V7-V11, V15, V17]
//   verify_contributions.c: gradients and loss are written once and then added to, each parameter is updated once, scales agree
//                           [V5, V6, V20, V21]
#include "passes/verify_plan.h"
#include "passes/pass.h"

void hd_plan_wrong(PlanCheck *c, const Op *o, Span span, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    const char *what = hd_vsprintf(c->a, fmt, ap);
    va_end(ap);
    const char *in = c->f ? hd_sprintf(c->a, "in @%s: ", c->f->name) : "";
    const char *who = o ? hd_sprintf(c->a, "%s ", hd_plan_op(c, o)) : "";
    Finding f = {o ? o->span : span, hd_sprintf(c->a, "%s%s%s", in, who, what)};
    hd_push(c->a, &c->found, f);
}

const char *hd_plan_op(const PlanCheck *c, const Op *o) {
    const char *text = hd_sprintf(c->a, "op %d [%s] %s", o->id, o->stream ? o->stream : "no stream", hd_op_info(o->kind)->mnemonic);
    if (o->loc.file) return hd_sprintf(c->a, "%s (%s, %s:%d)", text, o->loc.path ? o->loc.path : "-", o->loc.file, o->loc.line);
    return o->loc.path ? hd_sprintf(c->a, "%s (%s)", text, o->loc.path) : text;
}

const char *hd_plan_value(const PlanCheck *c, const Value *v) {
    return v->def ? hd_sprintf(c->a, "%%%d", c->number[v->id]) : hd_sprintf(c->a, "%%%s", v->name);
}

static void enter(PlanCheck *c, const Func *f) {
    c->f = f;
    c->ops = HD_NEWN(c->a, Op *, f->n_ops + 1);
    int *number = HD_NEWN(c->a, int, f->n_values + 1), n = 0;
    for (Op *o = f->first; o; o = o->next) {
        c->ops[o->id] = o;
        for (int i = 0; i < o->n_out; i++) number[o->out[i]->id] = n++;
    }
    c->number = number;
}

Findings hd_check_plan(const Module *m, Arena *a) {
    PlanCheck c = {.m = m, .a = a};
    hd_check_places(&c);
    if (c.found.n) return c.found; // later parts count on arenas and buffers
    for (const Func *f = m->funcs; f; f = f->next) {
        if (f->is_kernel) continue;
        int before = c.found.n;
        enter(&c, f);
        hd_check_values(&c);
        hd_check_order(&c);
        if (c.found.n == before) hd_check_contents(&c);
    }
    c.f = NULL;
    if (!c.found.n) hd_check_contributions(&c);
    return c.found;
}

Change hd_pass_verify_plan(Module *m, PassCx *cx) {
    for (Func *f = m->funcs; f; f = f->next) {
        if (!hd_return(f)) HD_BUG("@%s has no return", f->name);
        hd_renumber(f);
    }
    Findings found = hd_check_plan(m, cx->scratch);
    for (int i = 0; i < found.n; i++) hd_error(m->cx, found.at[i].span, "%s", found.at[i].text);
    return found.n ? FAILED : UNCHANGED;
}
