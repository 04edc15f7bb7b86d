#include "passes/memory/trial.h"
#include "passes/settings.h"
#include "ir/machine/device_model.h"

struct Trials {
    const Module *m;
    Ctx *first_cx, *cx; // of the copies
    Module *first;
};

Trials *hd_trials(const Module *m, Arena *a) {
    Trials *t = HD_NEW(a, Trials);
    hd_model(m); // is read once, for all contexts
    t->m = m;
    return t;
}

static void drop(Ctx **cx) {
    hd_ctx_free(*cx);
    *cx = NULL;
}

void hd_trials_end(Trials *t) {
    drop(&t->cx);
    drop(&t->first_cx);
    t->first = NULL;
}

Module *hd_trial_first(Trials *t) {
    hd_trials_end(t);
    t->first_cx = hd_ctx_within(t->m->cx);
    return t->first = hd_module_clone(t->first_cx, t->m);
}

Module *hd_trial_copy(Trials *t) {
    const Module *of = t->first ? t->first : t->m;
    drop(&t->cx);
    t->cx = hd_ctx_within(of->cx);
    return hd_module_clone(t->cx, of);
}

int64_t hd_trial_bytes(Module *m, PassCx *cx) {
    hd_pass_plan_memory(m, cx); // may report that it does not fit
    const Symbol *arena = hd_space_arena(m, SPACE_DEVICE);
    return arena ? hd_int(&arena->attrs, A_BYTES, -1) : -1;
}
