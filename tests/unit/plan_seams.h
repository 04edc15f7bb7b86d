// Mutations of a plan: of what runs on over the seams of the functions of a step.
#ifndef TESTS_UNIT_PLAN_SEAMS_H
#define TESTS_UNIT_PLAN_SEAMS_H
#include "tests/unit/plan_machine.h"
#include "tests/unit/plan_addresses.h"
#include "tests/unit/plan_reorder.h"

static bool has_event(const Op *o, OpKind kind, const Op *of) {
    return o->kind == kind && hd_int(&o->attrs, A_EVENT, -1) == hd_int(&of->attrs, A_EVENT, -1);
}

static bool crosses(const Op *o) {
    if (o->kind != OP_WAIT) return false;
    for (const Op *p = o->prev; p; p = p->prev)
        if (has_event(p, OP_RECORD, o)) return false;
    return true;
}

static bool ends_tail(const Op *o) {
    if (o->kind != OP_RECORD) return false;
    for (const Op *p = o->next; p; p = p->next)
        if (has_event(p, OP_WAIT, o)) return false;
    return true;
}

static const Op *crossing_wait(const Func *f) {
    for (const Op *o = f->first; o; o = o->next)
        if (crosses(o)) return o;
    return NULL;
}

// Whether an op makes a value while the function before may still work.
static bool runs_beside(const Op *o) {
    const Op *wait = o->n_out && !hd_is_alias(o) ? crossing_wait(o->func) : NULL;
    return wait && wait->id > o->id;
}

static bool move_before(Op *o, Op *to) {
    if (!to || to == o) return false;
    hd_detach(o);
    hd_insert_before(to, o);
    return true;
}

static Op *last_of_stream(const Op *before) {
    Op *p = before->prev;
    while (p && (p->stream != before->stream || hd_is_alias(p) || hd_op_is(p, TRAIT_SYNC))) p = p->prev;
    return p;
}

// The transient buffers that the ops at the end of a tail read.
static bool onto_carried(Module *m, const Value *v, uint64_t random) {
    const Symbol *carried[MOST_STREAMS];
    int n = 0;
    for (const Func *f = m->funcs; f; f = f->next)
        for (const Op *o = f->first; o && !f->is_kernel; o = o->next) {
            const Op *last = ends_tail(o) ? last_of_stream(o) : NULL;
            while (last && !is_collective(last)) last = last_of_stream(last);
            if (last && n < MOST_STREAMS) carried[n++] = hd_symbol_find(m, hd_word(&last->attrs, A_BUFFER, ""));
        }
    return n && move_storage(v, carried[random % (uint64_t)n]->place.offset);
}

static bool change_overlaps(Module *m, Symbol *s, uint64_t random) {
    static const char *const streams[] = {"gather", "reduce", "compute"};
    const char *one = hd_intern(m->cx, streams[random % 3]);
    if (!hd_has(&s->attrs, A_OVERLAPS) && random / 3 % 4 == 0) return false;
    if (random / 3 % 4 == 0) hd_unset(&s->attrs, A_OVERLAPS);
    else hd_set_words(m->cx, &s->attrs, A_OVERLAPS, 1, &one);
    return true;
}
#endif
