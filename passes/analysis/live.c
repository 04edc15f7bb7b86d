// Live transient bytes of a planned function. See live.h.
#include "passes/analysis/live.h"
#include "ir/base/ints.h"

static void add(Live *live, const Lifetimes *l, const Value *v, const Storage *s) {
    live->at[live->n++] =
        (LiveItem){v, s->transient, l->ops[s->from], hd_align(s->bytes), s->from, hd_storage_end(l, s) - 1};
}

Live hd_live(const Func *f, int tail, Space space, Arena *a) {
    Lifetimes l = hd_lifetimes(f, tail, a);
    Live live = {.at = HD_NEWN(a, LiveItem, l.n_storages + f->n_ops + 1), .during = f->first, .time = l.time};
    for (int i = 0; i < f->n_args && space == SPACE_DEVICE; i++)
        live.at[live.n++] =
            (LiveItem){f->args[i], NULL, NULL, hd_align(hd_type_bytes(f->args[i]->type)), 0, f->n_ops - 1};
    for (const Op *o = f->first; o; o = o->next) {
        for (int i = 0; i < o->n_out; i++) {
            const Storage *s = hd_storage_of(&l, o->out[i]);
            if (s && l.homes[o->out[i]->id].root == o->out[i] && !s->buffer && s->bytes > 0 && s->space == space)
                add(&live, &l, o->out[i], s);
        }
    }
    const WorkAreas areas = space == SPACE_DEVICE ? hd_work_areas(&l, a) : (WorkAreas){0};
    for (int i = 0; i < areas.n; i++) {
        const WorkArea *w = &areas.at[i];
        live.at[live.n++] = (LiveItem){NULL, NULL, w->by.at[0], hd_align(w->bytes), w->from, w->end - 1};
    }
    for (int i = f->n_values; i < l.n_storages; i++)
        if (l.storage[i].transient && l.storage[i].touches && l.storage[i].space == space)
            add(&live, &l, NULL, &l.storage[i]);
    int64_t *change = HD_NEWN(a, int64_t, f->n_ops + 2), now = 0;
    for (int i = 0; i < live.n; i++) {
        change[live.at[i].from] += live.at[i].bytes;
        change[live.at[i].to + 1] -= live.at[i].bytes;
    }
    for (int i = 0; i < f->n_ops; i++) {
        now += change[i];
        if (now > live.peak) live.peak = now, live.during = l.ops[i];
    }
    return live;
}
