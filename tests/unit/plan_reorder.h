// Changes to a plan's order: ops, collectives and events that come earlier, later, twice or not at all.
#ifndef TESTS_UNIT_PLAN_REORDER_H
#define TESTS_UNIT_PLAN_REORDER_H
#include "passes/analysis/access.h"
#include "tests/unit/plan_events.h"
#include "tests/unit/plan_addresses.h"

static bool reads(const Op *o, const Op *def) {
    for (int i = 0; i < o->n_in; i++)
        if (o->in[i]->def == def) return true;
    return false;
}

static bool may_pass(const Op *first, const Op *second) {
    return second && second->kind != OP_RETURN && first->kind != OP_RETURN && !reads(second, first);
}

static bool move_later(Op *o, int steps) {
    int moved = 0;
    while (moved < steps && may_pass(o, o->next)) {
        Op *p = o->next;
        hd_detach(o);
        hd_insert_after(p, o);
        moved++;
    }
    if (moved) hd_renumber(o->func);
    return moved > 0;
}

static bool move_earlier(Op *o, int steps) {
    int moved = 0;
    while (moved < steps && o->prev && may_pass(o->prev, o)) {
        Op *p = o->prev;
        hd_detach(o);
        hd_insert_before(p, o);
        moved++;
    }
    if (moved) hd_renumber(o->func);
    return moved > 0;
}

static bool is_collective(const Op *o) { return hd_has(&o->attrs, A_COMM); }

static bool swap_collectives(Op *o) {
    Op *p = o->next;
    while (p && !(is_collective(p) && p->stream == o->stream)) p = p->next;
    if (!is_collective(o) || !p) return false;
    Op *behind = p->prev == o ? NULL : p->prev;
    hd_detach(p);
    hd_insert_before(o, p);
    hd_detach(o);
    hd_insert_after(behind ? behind : p, o);
    hd_renumber(o->func);
    return true;
}

// All waits stay as before, except that the first op that waited for it now comes first, and it waits for that op.
static bool too_late(Op *o) {
    Op *record = o->next;
    while (record && (record->stream != o->stream || hd_is_alias(record))) record = record->next;
    if (!record || record->kind != OP_RECORD) return false;
    Op *wait = record->next;
    while (wait && !(wait->kind == OP_WAIT && hd_int(&wait->attrs, A_EVENT, -1) == hd_int(&record->attrs, A_EVENT, -1)))
        wait = wait->next;
    Op *user = wait ? wait->next : NULL;
    while (user && (user->stream != wait->stream || hd_is_alias(user) || hd_op_is(user, TRAIT_SYNC))) user = user->next;
    if (!user || user->kind == OP_RETURN) return false;
    const int64_t event = free_event(o->func);
    Op *moved[] = {wait, record, o};
    for (int i = 0; i < 3; i++) {
        hd_detach(moved[i]);
        hd_insert_after(user, moved[i]);
    }
    hd_insert_after(user, event_op(o->func, OP_WAIT, event, o->stream));
    hd_insert_after(user, event_op(o->func, OP_RECORD, event, user->stream));
    hd_renumber(o->func);
    return true;
}

static bool erase(Op *o) {
    Func *f = o->func;
    if (has_names(o) || o->kind == OP_RETURN) return false;
    hd_erase(o);
    hd_renumber(f);
    return true;
}

static bool twice(Op *o) {
    if (has_names(o) || o->kind == OP_RETURN) return false;
    hd_insert_after(o, hd_op_clone(o->func, o, o->in));
    o->next->stream = o->stream;
    hd_renumber(o->func);
    return true;
}

static bool drop_event(Op *o) {
    Func *f = o->func;
    int64_t event = hd_int(&o->attrs, A_EVENT, -1);
    for (Op *p = f->first, *next; p; p = next) {
        next = p->next;
        if ((p->kind == OP_RECORD || p->kind == OP_WAIT) && hd_int(&p->attrs, A_EVENT, -1) == event) hd_erase(p);
    }
    hd_renumber(f);
    return true;
}

static bool swap_waits(Op *o) {
    Op *p = o->next;
    while (p && p->kind != OP_WAIT) p = p->next;
    if (o->kind != OP_WAIT || !p) return false;
    Ctx *cx = o->func->module->cx;
    int64_t a = hd_int(&o->attrs, A_EVENT, -1), b = hd_int(&p->attrs, A_EVENT, -1);
    hd_set_int(cx, &o->attrs, A_EVENT, b);
    hd_set_int(cx, &p->attrs, A_EVENT, a);
    return a != b;
}

static Op *end_op(Func *f, OpKind kind, const char *region, const char *stream) {
    Op *o = hd_op_new(f, kind, 0, NULL);
    hd_set_word(f->module->cx, &o->attrs, A_REGION, region);
    o->stream = stream;
    return o;
}

// The region that `o` is in ends before it, and another one begins there.
static bool cut_region(Module *m, Op *o) {
    Op *from = o, *to = o;
    while (from && from->kind != OP_CAPTURE && from->kind != OP_CAPTURE_END) from = from->prev;
    while (to && to->kind != OP_CAPTURE_END) to = to->next;
    if (!from || from->kind != OP_CAPTURE || !to || from == o || to == o) return false;
    Symbol *s = hd_symbol_add(m, SYM_REGION, hd_free_name(m, "cut"), NULL);
    hd_set_kind(m->cx, &s->attrs, KIND_UNIT);
    hd_insert_before(o, end_op(o->func, OP_CAPTURE_END, hd_word(&from->attrs, A_REGION, ""), from->stream));
    hd_insert_before(o, end_op(o->func, OP_CAPTURE, s->name, from->stream));
    hd_set_word(m->cx, &to->attrs, A_REGION, s->name);
    hd_renumber(o->func);
    return true;
}

// A region begins and ends before `o`.
static bool empty_region(Module *m, Op *o) {
    if (o->stream != o->func->last->stream) return false;
    Symbol *s = hd_symbol_add(m, SYM_REGION, hd_free_name(m, "empty"), NULL);
    hd_set_kind(m->cx, &s->attrs, KIND_UNIT);
    hd_insert_before(o, end_op(o->func, OP_CAPTURE, s->name, o->stream));
    hd_insert_before(o, end_op(o->func, OP_CAPTURE_END, s->name, o->stream));
    hd_renumber(o->func);
    return true;
}

// A wait of the stream of weight gradients, or for an event of it.
static bool waits_beside(const Op *o) {
    if (o->kind != OP_WAIT) return false;
    const Op *r = o->prev;
    while (r && (r->kind != OP_RECORD || hd_int(&r->attrs, A_EVENT, -1) != hd_int(&o->attrs, A_EVENT, -1))) r = r->prev;
    return !strcmp(o->stream, "grads") || (r && !strcmp(r->stream, "grads"));
}

// The previous op on the same stream is no longer covered by the event.
static bool record_earlier(Op *o) {
    Op *p = o->prev;
    while (p && (p->stream != o->stream || hd_is_alias(p))) p = p->prev;
    if (o->kind != OP_RECORD || !p) return false;
    hd_detach(o);
    hd_insert_before(p, o);
    hd_renumber(o->func);
    return true;
}
#endif
