// The bytes that are alive at one time: what no packing is smaller than. See pack.h.
#include "passes/pack/pack_search.h"

static int by_time(const void *x, const void *y) {
    const PackEvent *a = x, *b = y;
    if (a->at != b->at) return a->at < b->at ? -1 : 1;
    if ((a->value < 0) != (b->value < 0)) return a->value < 0 ? -1 : 1; // ends before starts: lifetimes are half open
    return a->value < b->value ? -1 : a->value > b->value;
}

int hd_pack_events(PackEvent *events, int n, const Interval *values) {
    int n_events = 0;
    for (int i = 0; i < n; i++) {
        if (values[i].lower >= values[i].upper) continue;
        int64_t size = hd_align_to(values[i].size, values[i].align);
        events[n_events++] = (PackEvent){values[i].lower, size, i};
        events[n_events++] = (PackEvent){values[i].upper, -size, -1};
    }
    qsort(events, (size_t)n_events, sizeof(PackEvent), by_time);
    return n_events;
}

int64_t hd_pack_height(int n, const Interval *values, const int64_t *offset) {
    int64_t height = 0;
    for (int i = 0; i < n; i++) {
        int64_t end = offset[i] + hd_align_to(values[i].size, values[i].align);
        if (values[i].size > 0 && end > height) height = end;
    }
    return height;
}

int64_t hd_pack_lower_bound(int n, const Interval *values) {
    Arena *a = hd_arena_new();
    PackEvent *events = HD_NEWN(a, PackEvent, 2 * n + 1);
    int n_events = hd_pack_events(events, n, values);
    int64_t live = 0, most = 0;
    for (int i = 0; i < n_events; i++) {
        live += events[i].change;
        if (live > most) most = live;
    }
    hd_arena_free(a);
    return most;
}
