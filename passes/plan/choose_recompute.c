// choose-recompute: decides what `recompute auto` computes again, but for what `keep` and `offload` list, and writes
// `again` into these ops. Without a limit of memory that is a least cut (cut.c). Under --device-memory it tries plans
// (fit.c), and decides how many values are offloaded and whether ranks keep rounded copies of weights (weights.c).
// The decision is text: a module that was dumped after this pass can be edited, and a pipeline from `recompute` on does
// what it says.
#include "passes/pass.h"
#include "passes/plan/choose.h"
#include "passes/settings.h"
#include <string.h>

static void decide(Func *f, PassCx *cx, const bool *fitted, double slower) {
    hd_renumber(f);
    const bool *may = hd_recompute_open(f, fitted != NULL, cx->scratch);
    const Costs c = hd_recompute_costs(f, may, fitted != NULL, cx->scratch);
    const bool *again = fitted ? fitted : hd_recompute_auto(&c, slower).again;
    double seconds = 0;
    for (const Op *o = f->first; o; o = o->next)
        if (again[o->id]) seconds += c.seconds[o->id];
    hd_count(cx, "bytes not kept", (int64_t)(hd_recompute_kept(&c, NULL) - hd_recompute_kept(&c, again)));
    hd_count(cx, "millionths of the time for it", c.products > 0 ? (int64_t)(1e6 * seconds / c.products) : 0);
    hd_mark_again(f, again);
}

Change hd_pass_choose_recompute(Module *m, PassCx *cx) {
    const Attrs *schedule = hd_settings(m, "schedule");
    const Attr *listed = hd_attr(schedule, A_RECOMPUTE);
    const double slower = hd_float(schedule, A_SLOWER, 0);
    const int64_t limit = hd_int(hd_settings(m, "target"), A_DEVICE_MEMORY_BYTES, 0);
    const int errors = m->cx->diags.errors;
    if (!listed || !listed->n || strcmp(listed->strs[0], "auto") != 0)
        return limit && hd_weights_fit(m, cx, limit) ? CHANGED : UNCHANGED;
    const bool *again = limit ? hd_recompute_fit(m, cx, slower, limit) : NULL;
    for (Func *f = m->funcs; f; f = f->next)
        if (!f->is_kernel && hd_has_backward(f)) decide(f, cx, again, slower);
    hd_set_flag(m->cx, &hd_symbol_find(m, "schedule")->attrs, A_CHOSEN);
    return m->cx->diags.errors > errors ? FAILED : CHANGED; // the table of the device cannot be read
}
