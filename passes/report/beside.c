// Weight gradients beside the backward pass (passes/schedule/beside.c), in both forms of the report: how many actions
// of a step run on their stream, and what that is estimated to add to the peak.
#include "passes/report/facts.h"
#include "passes/settings.h"
#include <string.h>

void hd_report_beside(const Module *m, Facts *r) {
    const Symbol *step = hd_step(m, KIND_TRAIN);
    for (const Func *f = m->funcs; f; f = f->next) {
        const int64_t runs = f->is_kernel ? 0 : hd_runs(step, f);
        const char *main = f->last ? f->last->stream : NULL;
        for (const Op *o = f->first; o && runs > 0; o = o->next)
            if ((o->kind == OP_GEMM || hd_op_is(o, TRAIT_LAUNCH | TRAIT_SQUARES)) && o->stream && main &&
                strcmp(o->stream, main))
                r->beside.actions += runs;
    }
    r->beside.bytes = hd_int(hd_settings(m, "schedule"), A_OVERLAP_BYTES, 0);
}

void hd_report_beside_json(const Facts *r, Out *o) {
    if (r->beside.actions)
        hd_put_json(o, "  \"weight_gradients_beside\": {\"actions\": %lld, \"bytes\": %lld},\n",
                    (long long)r->beside.actions, (long long)r->beside.bytes);
}

void hd_report_beside_text(const Facts *r, Out *o) {
    if (r->beside.actions)
        hd_show(o,
                "\nweight gradients: %lld products and kernels run beside the backward pass; the peak is estimated "
                "to be %lld bytes higher for that\n",
                (long long)r->beside.actions, (long long)r->beside.bytes);
}
