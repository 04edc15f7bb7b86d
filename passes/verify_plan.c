// verify-plan: the proof that stands between a plan and its execution. It believes no pass: only the ops, places, streams, events and
// declarations of the finished text. What it proves, by the numbers of the project's list of invariants, in which file, and the test
// under tests/lit/passes/verify-plan that breaks it (tests/unit/test_plan_mutants.c breaks plans everywhere and runs what gets through):
//
//   V1   parameters lie inside their bucket and are disjoint, as buffers in the arena   verify_layout, _places places, contributions
//   V5   @update updates every bucket exactly once, by buffers that exist               verify_contributions  contributions
//   V6   every element of a gradient gets as many contributions, in every micro-batch   verify_contributions  contributions
//   V7   every byte that is read holds the value that is meant                          verify_contents       contents, order
//   V9   bytes get a new value only after every access to the old, by streams, events   verify_contents       contents, order
//   V10  a reader on another stream than its writer is ordered after it                 verify_contents       order
//   V14  no moment has more bytes live than the declared bound, nor that than the arena verify_places         places
//   V15  an argument has one address in all functions and is not overwritten            verify_places, _contents  places, contents
//   V16  every value, buffer and workspace lies inside its arena                        verify_places         places
//   V17  results and operands are disjoint, or declared in place and legally so         verify_places, _contents  contents
//   V19  events are recorded once, and before they are waited for; streams fork, join   verify_order          order
//   V20  the first contribution of a step overwrites, all others add                    verify_contributions  contributions
//   V21  the loss that is kept and the loss whose gradient is taken are scaled alike    verify_contributions  contributions
//   V25  weight decay applies to exactly the parameters that ask for it                 verify_layout         contributions
//
// V18, V30 and V31 hold by the ops that a plan may have: none of them runs on the host or draws numbers, and the step's numbers are
// a value on the device. The others speak of ranks, collectives, prefetch and offload, of which today's plans have none.
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

void hd_plan_enter(PlanCheck *c, const Func *f) {
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
    hd_check_layout(&c);
    if (c.found.n) return c.found; // later parts count on arenas and buffers
    for (const Func *f = m->funcs; f; f = f->next) {
        if (f->is_kernel) continue;
        int before = c.found.n;
        hd_plan_enter(&c, f);
        hd_check_values(&c);
        hd_check_order(&c);
        hd_check_streams(&c);
        if (c.found.n > before) continue; // what is ordered and what is not means little then
        hd_check_contents(&c);
        hd_check_live(&c); // behind the races: without an event too much is alive at once, but that is not what is wrong
        hd_check_alive(&c);
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
