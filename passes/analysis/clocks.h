// Happens-before in a function of a plan: ops of one stream run in order; a wait continues when its event has been
// recorded. Vector clocks (Fidge, Mattern 1988): for each op, how many ops of every other stream have certainly ended
// when it starts.
#ifndef PASSES_ANALYSIS_CLOCKS_H
#define PASSES_ANALYSIS_CLOCKS_H
#include "passes/analysis/deps.h"

typedef struct {
    int n_streams;
    const char **stream;  // names, in order of first use
    const int *stream_of; // by op id
    const int *place;     // by op id: 1, 2, ... in its stream
    const int *clock;     // [op id * n_streams + stream]: ops of that stream that have ended when the op starts
} Clocks;
// Needs dense ids and a stream for every op. A wait is for the last record before it; where there is none, it adds
// nothing.
Clocks hd_clocks(const Func *f, Arena *a);
// The same of a function without events: as if each dependence between streams had one, as it has after sync.
Clocks hd_clocks_of_deps(const Func *f, const Deps *deps, Arena *a);
// The larger of each of n counts.
void hd_clocks_join(int *into, const int *from, int n);
// Whether op a has certainly ended before op b starts.
static inline bool hd_before(const Clocks *c, int a, int b) {
    return a != b && c->place[a] <= c->clock[b * c->n_streams + c->stream_of[a]];
}
#endif
