// offload auto: which values, best first. See offload.h.
//
// A link moves a byte in the same time whatever it belongs to, and all that waits between the two passes is there at
// their border, where most is live. So the best value is the one with the most bytes for its two copies: the largest,
// and of equal ones the first, which waits longest. Each is taken if all copies are then still hidden behind what the
// main stream does. A limit on device memory that needs more than that gets the others, in the same order, though they
// stall. It gets the fewest that fit, so less memory never means fewer values.
#include "passes/offload/offload.h"
#include "passes/memory/plan_memory.h"
#include <stdlib.h>

static int compare_bytes(const void *x, const void *y) {
    const Waiting *a = *(Waiting *const *)x, *b = *(Waiting *const *)y;
    if (a->bytes != b->bytes) return a->bytes < b->bytes ? 1 : -1;
    return a->made != b->made ? a->made - b->made : a->root->index - b->root->index;
}

int hd_offload_best(Offload *w, const bool *free, double most_bytes, Waiting ***best, int *hidden) {
    Waiting **all = HD_NEWN(w->a, Waiting *, w->values.n + 1), **late = HD_NEWN(w->a, Waiting *, w->values.n + 1);
    *best = HD_NEWN(w->a, Waiting *, w->values.n + 1);
    int n = 0, n_late = 0;
    double sum = 0, taken = 0;
    *hidden = 0;
    for (int i = 0; i < w->values.n; i++) {
        w->values.at[i].chosen = false;
        if (free[i]) sum += w->values.at[i].bytes, all[n++] = &w->values.at[i];
    }
    qsort(all, (size_t)n, sizeof *all, compare_bytes);
    for (int i = 0; i < n && all[i]->bytes * 1000 >= sum; i++) { // the rest is not worth its actions
        if (taken + all[i]->bytes > most_bytes) continue;
        all[i]->chosen = true;
        hd_offload_times(w);
        if (w->stall > 0) {
            all[i]->chosen = false;
            late[n_late++] = all[i];
        } else {
            taken += all[i]->bytes;
            (*best)[(*hidden)++] = all[i];
        }
    }
    n = *hidden;
    for (int i = 0; i < n_late; i++) {
        late[i]->chosen = taken + late[i]->bytes <= most_bytes;
        if (late[i]->chosen) taken += late[i]->bytes, (*best)[n++] = late[i];
    }
    return n;
}
