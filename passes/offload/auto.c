// offload auto: which values, best first. See offload.h.
//
// A link moves a byte in the same time whatever it belongs to, and all that waits between the two passes is there at
// their border, where most is live. So the best value is the one with the most bytes for its two copies: the largest,
// and of equal ones the first, which waits longest. Each is taken if all copies are then still hidden behind what the
// main stream does. A limit on device memory that needs more than that gets the others, in the same order, though they
// stall.
//
// Of many values as many are tried together as the last ones that stalled nothing, and then twice as many. Where that
// stalls, half as many are tried. Once the work is spent, all others count as values that stall.
#include "passes/offload/offload.h"
#include <stdlib.h>

enum { WORK = 4 << 20 };                // ops of all walks together
enum { PARTS = 1000, SMALLER = 8 };      // a value that is less of all and of the largest is not worth its actions

static int compare_bytes(const void *x, const void *y) {
    const Waiting *a = *(Waiting *const *)x, *b = *(Waiting *const *)y;
    if (a->bytes != b->bytes) return a->bytes < b->bytes ? 1 : -1;
    return a->made != b->made ? a->made - b->made : a->root->index - b->root->index;
}

// Whether so many values, from the first on, stall nothing beside those that are chosen. They stay chosen then.
static bool all_hidden(Offload *w, Waiting **values, int n) {
    for (int i = 0; i < n; i++) values[i]->chosen = true;
    hd_offload_times(w);
    for (int i = 0; i < n && w->stall > 0; i++) values[i]->chosen = false;
    return w->stall <= 0;
}

typedef struct { Waiting **at; int n; double bytes; } Taken;

static void take(Taken *t, Waiting *v) {
    t->at[t->n++] = v;
    t->bytes += v->bytes;
}

// Sorts n values, best first, into hidden ones, up to `most` bytes together, and such as would stall.
static void find_hidden(Offload *w, Waiting **all, int n, double most, Taken *hidden, Taken *late) {
    int64_t work = WORK;
    for (int i = 0, step = 1; i < n;) {
        double bytes = 0;
        step = step < n - i ? step : n - i;
        for (int k = i; k < i + step; k++) bytes += all[k]->bytes;
        const bool small = hidden->bytes + bytes <= most;
        if (small) work -= w->n_ops;
        if (small && work > 0 && all_hidden(w, all + i, step)) {
            for (int k = 0; k < step; k++) take(hidden, all[i++]);
            step *= 2;
        } else if (step > 1) {
            step /= 2;
        } else {
            if (small) take(late, all[i]);
            i++;
        }
    }
}

int hd_offload_best(Offload *w, const bool *free, double most_bytes, Waiting ***best, int *hidden) {
    Waiting **all = HD_NEWN(w->a, Waiting *, w->values.n + 1);
    Taken taken = {.at = HD_NEWN(w->a, Waiting *, w->values.n + 1)};
    Taken late = {.at = HD_NEWN(w->a, Waiting *, w->values.n + 1)};
    int n = 0, worth = 0;
    double sum = 0;
    for (int i = 0; i < w->values.n; i++) {
        w->values.at[i].chosen = false;
        if (free[i]) sum += w->values.at[i].bytes, all[n++] = &w->values.at[i];
    }
    qsort(all, (size_t)n, sizeof *all, compare_bytes);
    while (worth < n && (all[worth]->bytes * PARTS >= sum || all[worth]->bytes * SMALLER >= all[0]->bytes)) worth++;
    find_hidden(w, all, worth, most_bytes, &taken, &late);
    *hidden = taken.n;
    for (int i = 0; i < late.n; i++) {
        late.at[i]->chosen = taken.bytes + late.at[i]->bytes <= most_bytes;
        if (late.at[i]->chosen) take(&taken, late.at[i]);
    }
    *best = taken.at;
    return taken.n;
}
