// Under --device-memory: whether `weights = auto` keeps rounded copies of the weights that ranks gather (fsdp.h). It
// does where the fastest plan that fits is not predicted to be faster without them.
#include "passes/plan/choose.h"
#include "ir/mesh.h"
#include "passes/settings.h"
#include <string.h>

bool hd_may_drop_copies(const Module *m) {
    const Attrs *schedule = hd_settings(m, "schedule");
    const Mesh mesh = hd_mesh(m);
    const char *fsdp = hd_word(schedule, A_FSDP, "none");
    return !strcmp(hd_word(schedule, A_WEIGHTS_FROM, ""), "auto") && strcmp(fsdp, "none") && strcmp(fsdp, "zero0") &&
           strcmp(hd_word(hd_settings(m, "train"), A_COMPUTE, "f32"), "f32") &&
           !strcmp(hd_word(hd_settings(m, "train"), A_MASTER, "f32"), "f32") &&
           hd_mesh_ranks(&mesh, HD_SPLIT_AXES) > 1;
}

void hd_drop_copies(Module *m, bool drop) {
    hd_set_word(m->cx, &hd_symbol_find(m, "schedule")->attrs, A_WEIGHTS_FROM,
                hd_intern(m->cx, drop ? "master" : "auto"));
}

void hd_say_dropped(Module *m, int64_t limit, int64_t saved) {
    hd_warning(m->cx, hd_symbol_find(m, "schedule")->span,
               "weights = auto: to fit into %lld bytes, ranks gather their master weights and round them each time. "
               "That saves %lld bytes of rounded copies",
               (long long)limit, (long long)saved);
}

static Trial try_listed(Module *m, PassCx *cx, int values) {
    Trials *t = hd_trials(m, cx->scratch);
    const Trial got = hd_trial(t, NULL, values, TRIAL_WHOLE);
    hd_trials_end(t);
    return got;
}

static bool fits(const Trial *got, int64_t limit) { return got->bytes >= 0 && got->bytes <= limit; }

bool hd_weights_fit(Module *m, PassCx *cx, int64_t limit) {
    if (!hd_may_drop_copies(m)) return false;
    const Attr *listed = hd_attr(hd_settings(m, "schedule"), A_OFFLOAD);
    const bool places = listed && listed->n && strcmp(listed->strs[0], "auto") != 0; // are offloaded in any case
    const int first = places ? HD_AS_LISTED : 0;
    const Trial copies = try_listed(m, cx, first);
    const Trial helped = fits(&copies, limit) ? copies : try_listed(m, cx, HD_AS_LISTED);
    if (copies.bytes < 0) return false; // it has errors
    hd_drop_copies(m, true);
    const Trial without = try_listed(m, cx, first);
    const Trial best = fits(&without, limit) ? without : try_listed(m, cx, HD_AS_LISTED);
    const bool faster = fits(&copies, limit) ? best.seconds < helped.seconds : best.seconds <= helped.seconds;
    const bool pays = without.bytes >= 0 && without.bytes < copies.bytes &&
                      (!fits(&helped, limit) || (fits(&best, limit) && faster));
    if (pays && !fits(&copies, limit)) hd_say_dropped(m, limit, copies.bytes - without.bytes);
    if (!pays) hd_drop_copies(m, false);
    return pays;
}
