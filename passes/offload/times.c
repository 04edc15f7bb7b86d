// When offloaded values leave and return. See offload.h.
//
// A walk over the ops in program order, with one clock for the main stream and one for each direction of the link. A
// value begins to leave when it has been made. Its bytes are used again from the first op on before which, by the
// clocks, it has left: there the main stream waits for the copy, and the wait is free. It waits earlier, and stalls,
// when the value would be on its way for longer than `ahead` parts after its own, so that a slow link costs time and
// not memory. A value may come back from the beginning of the part that is `ahead` parts before that of its first
// reader. Without a table of the device nothing is known of time, and values have left at the last moment.
#include "passes/offload/offload.h"
#include <stdlib.h>

static int later(int a, int b) { return a > b ? a : b; }
static double latest(double a, double b) { return a > b ? a : b; }

// The op before which a value must have left.
static int deadline(const Offload *w, const Waiting *v) {
    int next = v->made_in + w->ahead + 1;
    return next < w->forward.n ? w->forward.at[next] : w->backward.at[0];
}

static int compare_first(const void *x, const void *y) {
    const Waiting *a = *(Waiting *const *)x, *b = *(Waiting *const *)y;
    return a->first != b->first ? a->first - b->first : a->made - b->made;
}

int hd_offload_chosen(const Offload *w, Waiting ***made, Waiting ***read) {
    int n = 0;
    *made = w->made;
    *read = w->read;
    for (int i = 0; i < w->values.n; i++)
        if (w->values.at[i].chosen) (*made)[n] = (*read)[n] = &w->values.at[i], n++;
    qsort(*read, (size_t)n, sizeof **read, compare_first);
    return n;
}

typedef struct {
    Offload *w;
    Waiting **leaving, **returning; // the chosen values in the orders of the two streams
    int n, left, returned, asked;   // so many have left, have been read, have begun to return
    double now, out, in;            // the clocks
} Walk;

static void wait_until(Walk *x, Waiting *v, double t) {
    if (t <= x->now) return;
    v->stall += t - x->now;
    x->w->stall += t - x->now;
    x->now = t;
}

static void leave(Walk *x, int op) {
    for (; x->left < x->n && x->leaving[x->left]->made < op; x->left++) {
        Waiting *v = x->leaving[x->left];
        bool due = op >= deadline(x->w, v);
        if (!due && (!x->w->model || v->gone > x->now)) return;
        v->fence = op;
        if (x->w->model) wait_until(x, v, v->gone);
    }
}

static void come_back(Walk *x, int op) {
    for (; x->asked < x->n && x->returning[x->asked]->back <= op; x->asked++) {
        Waiting *v = x->returning[x->asked];
        v->returns = latest(latest(x->now, x->in), v->gone);
        v->there = x->in = v->returns + (x->w->model ? hd_model_copy(x->w->model, COPY_TO_DEVICE, v->bytes, false) : 0);
    }
    for (; x->returned < x->n && x->returning[x->returned]->first == op; x->returned++)
        wait_until(x, x->returning[x->returned], x->returning[x->returned]->there);
}

void hd_offload_times(Offload *w) {
    Walk x = {.w = w};
    w->stall = 0;
    x.n = hd_offload_chosen(w, &x.leaving, &x.returning);
    for (int i = 0; i < x.n; i++) {
        x.leaving[i]->back = w->backward.at[later(x.leaving[i]->first_in - w->ahead, 0)];
        x.leaving[i]->stall = 0;
    }
    for (int op = 0, made = 0; op < w->n_ops; op++) {
        leave(&x, op);
        come_back(&x, op);
        x.now += w->seconds[op];
        for (; made < x.n && x.leaving[made]->made == op; made++) {
            Waiting *v = x.leaving[made];
            v->leaves = latest(x.now, x.out);
            v->gone = x.out = v->leaves + (w->model ? hd_model_copy(w->model, COPY_TO_HOST, v->bytes, false) : 0);
        }
    }
    w->end = x.now;
}
