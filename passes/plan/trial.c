#include "passes/plan/trial.h"
#include "passes/analysis/recompute_costs.h"
#include "passes/analysis/simulate.h"
#include "passes/manager/pipeline.h"
#include "passes/settings.h"
#include <string.h>

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

// Copies are in contexts of their own: nobody reads the errors of passes on them.
static Module *copy_first(Trials *t) {
    hd_trials_end(t);
    t->first_cx = hd_ctx_within(t->m->cx);
    return t->first = hd_module_clone(t->first_cx, t->m);
}

static Module *copy(Trials *t) {
    const Module *of = t->first ? t->first : t->m;
    drop(&t->cx);
    t->cx = hd_ctx_within(of->cx);
    return hd_module_clone(t->cx, of);
}

// Offloaded values: of the function with the most.
static int offloaded(const Module *m) {
    int most = 0;
    for (const Func *f = m->funcs; f; f = f->next) {
        int n = 0;
        for (const Op *o = f->is_kernel ? NULL : f->first; o; o = o->next)
            n += o->kind == OP_COPY && !strcmp(hd_word(&o->attrs, A_ON, ""), "offload");
        most = n > most ? n : most;
    }
    return most;
}

void hd_mark_again(Func *f, const bool *again) {
    Ctx *cx = f->module->cx;
    hd_renumber(f);
    for (Op *o = f->first; o; o = o->next)
        if (again[o->id]) hd_set_flag(cx, &o->attrs, A_AGAIN);
    hd_set_flag(cx, &hd_symbol_find(f->module, "schedule")->attrs, A_CHOSEN);
}

bool hd_trial_begin(Trials *t, const bool *again) {
    PassCx cx = {.scratch = hd_arena_new()};
    Module *m = copy_first(t);
    for (Func *f = m->funcs; f && again; f = f->next)
        if (!f->is_kernel && hd_has_backward(f)) hd_mark_again(f, again);
    const bool good = hd_pipeline_try(m, &cx, "recompute", "select");
    hd_arena_free(cx.scratch);
    return good;
}

Trial hd_trial_end(Trials *t, int values, TrialKind kind, bool timed) {
    PassCx cx = {.scratch = hd_arena_new(), .trial = (int)kind};
    Module *m = copy(t);
    Trial found = {.bytes = -1};
    Attrs *schedule = &hd_symbol_find(m, "schedule")->attrs;
    if (values != HD_AS_LISTED) hd_set_int(m->cx, schedule, A_OFFLOAD_VALUES, values);
    const bool good = hd_pipeline_try(m, &cx, "choose-offload", "capture");
    if (good) hd_pipeline_try(m, &cx, "plan-memory", "plan-memory"); // may report that it does not fit
    const Symbol *arena = good ? hd_space_arena(m, SPACE_DEVICE) : NULL;
    if (arena) found.bytes = hd_int(&arena->attrs, A_BYTES, -1);
    if (found.bytes >= 0) found.bound = hd_int(&arena->attrs, A_LOWER_BOUND_BYTES, 0);
    found.values = offloaded(m);
    const DeviceModel *device = good && timed ? hd_model(m) : NULL;
    const Symbol *step = device ? hd_step(m, KIND_TRAIN) : NULL;
    if (step) {
        const Simulation s = hd_simulate(m, step, device, cx.scratch);
        found.seconds = hd_step_seconds(&s);
    }
    hd_arena_free(cx.scratch);
    return found;
}

Trial hd_trial(Trials *t, const bool *again, int values, TrialKind kind) {
    return hd_trial_begin(t, again) ? hd_trial_end(t, values, kind, true) : (Trial){.bytes = -1};
}
