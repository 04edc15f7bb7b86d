// What a choice of recomputation comes to: all passes up to the addresses on a copy of the module, and a simulated
// step. See recompute.h.
#include "passes/tensor/recompute.h"
#include "passes/analysis/simulate.h"
#include "passes/pack/pack.h"
#include "passes/settings.h"
#include <string.h>

static bool run(PassFn *const *passes, int n, Module *m, PassCx *cx) {
    for (int i = 0; i < n; i++)
        if (passes[i](m, cx) == FAILED) return false;
    return true;
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

bool hd_trial_begin(Trials *t, const bool *again) {
    static PassFn *const passes[] = {hd_pass_fsdp, hd_pass_fuse, hd_pass_select};
    PassCx cx = {.scratch = hd_arena_new()};
    Module *m = hd_trial_first(t);
    const Attr *listed = hd_attr(hd_settings(m, "schedule"), A_RECOMPUTE);
    const Again what = {.automatic = again != NULL, .again = again};
    const bool good = (!listed || !listed->n || hd_recompute_module(m, &cx, what) != FAILED) &&
                      run(passes, sizeof passes / sizeof *passes, m, &cx);
    hd_arena_free(cx.scratch);
    return good;
}

Trial hd_trial_end(Trials *t, int values, TrialKind kind) {
    static PassFn *const passes[] = {hd_pass_offload, hd_pass_schedule, hd_pass_sync, hd_pass_capture};
    PassCx cx = {.scratch = hd_arena_new(), .trial = (int)kind};
    Module *m = hd_trial_copy(t);
    Trial found = {.bytes = -1};
    Attrs *schedule = &hd_symbol_find(m, "schedule")->attrs;
    if (values != HD_AS_LISTED) hd_set_int(m->cx, schedule, A_OFFLOAD_VALUES, values);
    const bool good = run(passes, sizeof passes / sizeof *passes, m, &cx);
    if (good) found.bytes = hd_trial_bytes(m, &cx);
    if (found.bytes >= 0) found.bound = hd_int(&hd_space_arena(m, SPACE_DEVICE)->attrs, A_LOWER_BOUND_BYTES, 0);
    found.values = offloaded(m);
    const DeviceModel *device = good ? hd_model(m) : NULL;
    const Symbol *step = device ? hd_step(m, KIND_TRAIN) : NULL;
    if (step) {
        const Simulation s = hd_simulate(m, step, device, cx.scratch);
        found.seconds = hd_step_seconds(&s);
    }
    hd_arena_free(cx.scratch);
    return found;
}

Trial hd_trial(Trials *t, const bool *again, int values, TrialKind kind) {
    return hd_trial_begin(t, again) ? hd_trial_end(t, values, kind) : (Trial){.bytes = -1};
}
