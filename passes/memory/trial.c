#include "passes/memory/trial.h"
#include "passes/memory/plan_memory.h"
#include "passes/settings.h"
#include "ir/device_model.h"

enum { RUNS = 32 }; // in a context of their own, which is then freed

struct Trials {
    const Module *m;
    Out text;
    Ctx *cx;
    int runs;
};

Trials *hd_trials(const Module *m, Arena *a) {
    Trials *t = HD_NEW(a, Trials);
    *t = (Trials){.m = m, .text = hd_out(a)};
    hd_print_module(m, &t->text);
    hd_model(m); // is read once, for all contexts
    return t;
}

void hd_trials_end(Trials *t) {
    hd_ctx_free(t->cx);
    t->cx = NULL;
}

Module *hd_trial_copy(Trials *t) {
    if (t->runs++ % RUNS == 0) {
        hd_trials_end(t);
        t->cx = hd_ctx_new();
        t->cx->max_ops = t->m->cx->max_ops;
        t->cx->device_path = t->m->cx->device_path;
        t->cx->device = t->m->cx->device;
        t->cx->device_read = t->m->cx->device_read;
    }
    return hd_parse_module(t->cx, t->text.text, t->text.n, 0);
}

int64_t hd_trial_bytes(Module *m, PassCx *cx, TrialKind kind) {
    if (kind == TRIAL_BOUND) return hd_memory_bound(m, cx);
    hd_pass_plan_memory(m, cx); // may report that it does not fit
    const Symbol *arena = hd_space_arena(m, SPACE_DEVICE);
    return arena ? hd_int(&arena->attrs, A_BYTES, -1) : -1;
}
