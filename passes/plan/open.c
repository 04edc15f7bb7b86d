// The ops among which recompute auto may choose. See choose.h.
#include "passes/plan/choose.h"
#include "passes/analysis/places.h"
#include <string.h>

static const char **find_regions(const Func *f, const Layers *layers, Arena *a) {
    const char **region = HD_NEWN(a, const char *, f->n_ops + 1);
    for (const Op *o = f->first; o; o = o->next) {
        const char *path = o->loc.path;
        bool same = o->prev && o->prev->loc.path == path;
        region[o->id] = same ? region[o->prev->id] : path ? hd_layer_of(layers, path) : NULL;
    }
    return region;
}

// Results that leave a layer and are read stay, so that no value is recomputed from far away and
// every layer is a choice of its own. So does what `keep` and `offload` list.
bool *hd_recompute_open(Func *f, bool dear, Arena *a) {
    Places kept = hd_places(f->module, A_KEPT, a), offloaded = hd_places(f->module, A_OFFLOAD, a);
    const Layers layers = hd_layers(f->module, a);
    const char **region = find_regions(f, &layers, a);
    bool *may = HD_NEWN(a, bool, f->n_ops + 1);
    for (const Op *o = f->first; o; o = o->next) {
        const char *path = o->loc.path;
        may[o->id] = hd_recompute_possible(o) && (dear || hd_recompute_cheap(o));
        may[o->id] &= !path || (!hd_place_of(&kept, path, NULL) && !hd_place_of(&offloaded, path, NULL));
        for (int i = 0; i < o->n_in && !hd_has(&o->attrs, A_BWD); i++)
            if (o->in[i]->def && region[o->in[i]->def->id] != region[o->id]) may[o->in[i]->def->id] = false;
    }
    return may;
}

int *hd_recompute_instances(const Func *f, Arena *a) {
    const Layers layers = hd_layers(f->module, a);
    const char **region = find_regions(f, &layers, a);
    int *number = HD_NEWN(a, int, f->n_ops + 1);
    for (const Op *o = f->first; o; o = o->next)
        number[o->id] = region[o->id] ? hd_layer_number(&layers, region[o->id]) : -1;
    return number;
}
