// Events of a plan, for tests that add some.
#ifndef TESTS_UNIT_PLAN_EVENTS_H
#define TESTS_UNIT_PLAN_EVENTS_H
#include "ir/ir.h"

static Op *event_op(Func *f, OpKind kind, int64_t event, const char *stream) {
    Op *o = hd_op_new(f, kind, 0, NULL);
    hd_set_int(f->module->cx, &o->attrs, A_EVENT, event);
    o->stream = stream;
    return o;
}

// The first number above those of the function's events.
static int64_t free_event(const Func *f) {
    int64_t event = 0;
    for (const Op *o = f->first; o; o = o->next)
        if (hd_int(&o->attrs, A_EVENT, -1) >= event) event = hd_int(&o->attrs, A_EVENT, -1) + 1;
    return event;
}
#endif
