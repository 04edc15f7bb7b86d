// choose-offload: how many values `offload auto` takes under --device-memory, where choose-recompute has not decided
// it: `offload_values` in config @schedule. It is the fewest with which the plan fits. Where the schedule lists nothing
// to offload and the plan does not fit, values are offloaded as with auto.
#include "passes/pass.h"
#include "passes/plan/narrow.h"
#include "passes/plan/trial.h"
#include "passes/settings.h"
#include "ir/machine/device_model.h"
#include <string.h>

// The bytes of the plan with so many values offloaded. cost: how many they are.
static Plan try_with(Trials *t, int most, TrialKind kind) {
    const Trial got = hd_trial_end(t, most, kind, false);
    if (got.bytes < 0) HD_BUG("a trial of offload failed");
    return (Plan){.bytes = got.bytes, .cost = got.values};
}

// A quarter, a half or three quarters of the way.
static bool try_between(void *trials, const Plan *more, const Plan *less, int which, Plan *got) {
    const int parts[] = {2, 1, 3}, few = (int)more->cost, many = (int)less->cost;
    if (which >= 3 || many - few < 2) return false;
    const int k = few + (many - few) * parts[which] / 4;
    *got = k > few ? try_with(trials, k, TRIAL_BRIEF) : (Plan){.bytes = -1};
    return true;
}

// The fewest values in host memory with which the plan fits: of a few numbers the neighbours of the limit, then numbers
// between them (narrow.h). Where none fits, `bytes` is the least that was seen.
static Plan fewest(const Module *m, Arena *a, int64_t limit) {
    enum { PARTS = 4 };
    Trials *t = hd_trials(m, a);
    Plan tried[PARTS + 1] = {try_with(t, 0, TRIAL_DEEP)}, found = tried[0];
    if (found.bytes > limit) {
        const Plan whole = try_with(t, 0, TRIAL_WHOLE);
        if (whole.bytes <= limit) found = whole;
    }
    if (found.bytes > limit) {
        const Plan all = tried[PARTS] = try_with(t, HD_ALL, TRIAL_DEEP);
        const Narrow narrow = {.limit = limit, .data = t, .between = try_between};
        Plan more = found;
        for (int i = 1; i < PARTS; i++) tried[i] = try_with(t, (int)all.cost * i / PARTS, TRIAL_DEEP);
        for (int i = 1; i <= PARTS; i++) {
            if (tried[i].bytes < found.bytes) found = tried[i];
            if (found.bytes <= limit) break;
            more = found;
        }
        if (found.bytes <= limit && found.cost > more.cost) found = hd_narrow(&narrow, more, found);
    }
    hd_trials_end(t);
    return found;
}

Change hd_pass_choose_offload(Module *m, PassCx *cx) {
    const Attrs *settings = hd_settings(m, "schedule");
    const Attr *listed = hd_attr(settings, A_OFFLOAD);
    const bool lists = listed && listed->n, automatic = lists && !strcmp(listed->strs[0], "auto");
    const int64_t limit = hd_int(hd_settings(m, "target"), A_DEVICE_MEMORY_BYTES, 0);
    const int errors = m->cx->diags.errors;
    if (!limit || hd_has(settings, A_OFFLOAD_VALUES) || hd_has(settings, A_NO_OFFLOAD) || (lists && !automatic))
        return UNCHANGED;
    if (!hd_model(m)) return m->cx->diags.errors > errors ? FAILED : UNCHANGED; // offload reports that auto needs one
    const Plan found = fewest(m, cx->scratch, limit);
    const int most = found.bytes <= limit || automatic ? (int)found.cost : 0;
    Attrs *schedule = &hd_symbol_find(m, "schedule")->attrs;
    if (found.bytes > limit)
        hd_set_int(m->cx, &hd_symbol_find(m, "target")->attrs, A_LEAST_BYTES, found.bytes);
    if (most) hd_set_int(m->cx, schedule, A_OFFLOAD_VALUES, most);
    else if (automatic) hd_set_flag(m->cx, schedule, A_NO_OFFLOAD);
    return CHANGED;
}
