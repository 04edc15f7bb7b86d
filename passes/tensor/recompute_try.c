// What a choice of recomputation comes to: all passes up to events on a copy of the module. See recompute.h.
#include "passes/tensor/recompute.h"
#include "passes/analysis/simulate.h"
#include "passes/memory/plan_memory.h"
#include "passes/settings.h"

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

static Module *copy(Trials *t) {
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

static int64_t packed(Module *m, PassCx *cx) {
    hd_pass_plan_memory(m, cx);
    const Symbol *arena = hd_space_arena(m, SPACE_DEVICE);
    return arena ? hd_int(&arena->attrs, A_BYTES, -1) : -1;
}

Trial hd_trial(Trials *t, const bool *again, TrialKind kind, bool offload) {
    static PassFn *const passes[] = {hd_pass_fsdp,     hd_pass_fuse, hd_pass_select, hd_pass_offload,
                                     hd_pass_schedule, hd_pass_sync, hd_pass_capture};
    PassCx cx = {.scratch = hd_arena_new()};
    Module *m = copy(t);
    Trial found = {.bytes = -1};
    const Attr *listed = m ? hd_attr(hd_settings(m, "schedule"), A_RECOMPUTE) : NULL;
    const Again what = {.automatic = again != NULL, .again = again};
    bool good = m && (!listed || !listed->n || hd_recompute_module(m, &cx, what) != FAILED);
    for (size_t i = 0; good && i < sizeof passes / sizeof *passes; i++)
        if (passes[i] != hd_pass_offload || offload) good = passes[i](m, &cx) != FAILED;
    if (good) found.bytes = kind == TRIAL_BOUND ? hd_memory_bound(m, &cx) : packed(m, &cx);
    const DeviceModel *device = good ? hd_model(m) : NULL;
    const Symbol *step = device ? hd_step(m, KIND_TRAIN) : NULL;
    if (step) {
        const Simulation s = hd_simulate(m, step, device, cx.scratch);
        found.seconds = hd_step_seconds(&s);
    }
    hd_arena_free(cx.scratch);
    return found;
}
