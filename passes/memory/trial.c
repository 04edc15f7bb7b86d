#include "passes/memory/trial.h"
#include "passes/memory/plan_memory.h"
#include "passes/settings.h"
#include "ir/device_model.h"

struct Trials {
    const Module *m;
    Ctx *cx; // of the last copy
};

Trials *hd_trials(const Module *m, Arena *a) {
    Trials *t = HD_NEW(a, Trials);
    hd_model(m); // is read once, for all contexts
    t->m = m;
    return t;
}

void hd_trials_end(Trials *t) {
    hd_ctx_free(t->cx);
    t->cx = NULL;
}

Module *hd_trial_copy(Trials *t) {
    hd_trials_end(t);
    t->cx = hd_ctx_within(t->m->cx);
    return hd_module_clone(t->cx, t->m);
}

int64_t hd_trial_bytes(Module *m, PassCx *cx, TrialKind kind) {
    if (kind == TRIAL_BOUND) return hd_memory_bound(m, cx);
    hd_pass_plan_memory(m, cx); // may report that it does not fit
    const Symbol *arena = hd_space_arena(m, SPACE_DEVICE);
    return arena ? hd_int(&arena->attrs, A_BYTES, -1) : -1;
}
