// What a choice of recomputation comes to: all passes up to events on a copy of the module. See recompute.h.
#include "passes/tensor/recompute.h"
#include "passes/analysis/simulate.h"
#include "passes/settings.h"

Trial hd_trial(Trials *t, const bool *again, TrialKind kind, bool offload) {
    static PassFn *const passes[] = {hd_pass_fsdp,     hd_pass_fuse, hd_pass_select, hd_pass_offload,
                                     hd_pass_schedule, hd_pass_sync, hd_pass_capture};
    PassCx cx = {.scratch = hd_arena_new(), .rough = kind == TRIAL_BOUND};
    Module *m = hd_trial_copy(t);
    Trial found = {.bytes = -1};
    const Attr *listed = hd_attr(hd_settings(m, "schedule"), A_RECOMPUTE);
    const Again what = {.automatic = again != NULL, .again = again};
    bool good = !listed || !listed->n || hd_recompute_module(m, &cx, what) != FAILED;
    for (size_t i = 0; good && i < sizeof passes / sizeof *passes; i++)
        if (passes[i] != hd_pass_offload || offload) good = passes[i](m, &cx) != FAILED;
    if (good) found.bytes = hd_trial_bytes(m, &cx, kind);
    const DeviceModel *device = good ? hd_model(m) : NULL;
    const Symbol *step = device ? hd_step(m, KIND_TRAIN) : NULL;
    if (step) {
        const Simulation s = hd_simulate(m, step, device, cx.scratch);
        found.seconds = hd_step_seconds(&s);
    }
    hd_arena_free(cx.scratch);
    return found;
}
