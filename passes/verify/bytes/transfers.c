// Transfers: values that are offloaded. One storage is copied to the host once, however many views of it there
// are [V28]; an op that overwrites it in place makes another value, with a copy of its own. A copied value comes back
// once [V29]. contents.c, which looks at all bytes alike, proves that the copies come after the last write and before
// the first reader, and that neither the device's nor the host's bytes are used again too early [V27].
#include "passes/verify/verify_plan.h"

typedef struct { const Op *out, *back; } Transfer;

void hd_check_transfers(PlanCheck *c) {
    const Home *homes = hd_homes(c->f, c->a);
    Transfer *all = HD_NEWN(c->a, Transfer, c->f->n_values + 1); // by value id of the storage, on either side
    for (const Op *o = c->f->first; o; o = o->next) {
        const int over = hd_inplace_result(o);
        const Value *changed = over >= 0 && over < o->n_out ? homes[o->out[over]->id].root : NULL;
        if (changed) all[changed->id].out = NULL;
        const Value *of = hd_op_is(o, TRAIT_COPIES) && o->n_in ? homes[o->in[0]->id].root : NULL;
        if (!of) continue;
        if (hd_copies_to_host(o) && of->place.space == SPACE_DEVICE) {
            if (all[of->id].out)
                hd_plan_wrong(c, o, o->span, "copies %s to the host, as %s has done", hd_plan_value(c, of),
                              hd_plan_op(c, all[of->id].out));
            all[of->id].out = all[o->out[0]->id].out = o;
        } else if (of->place.space == SPACE_HOST && !hd_copies_to_host(o)) {
            if (all[of->id].back)
                hd_plan_wrong(c, o, o->span, "copies %s back, as %s has done", hd_plan_value(c, of),
                              hd_plan_op(c, all[of->id].back));
            all[of->id].back = o;
        }
    }
    for (const Op *o = c->f->first; o; o = o->next)
        if (hd_copies_to_host(o) && all[o->out[0]->id].out && !all[o->out[0]->id].back)
            hd_plan_wrong(c, o, o->span, "copies to the host what no op copies back");
}
