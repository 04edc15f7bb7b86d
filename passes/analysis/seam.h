// Seams: where one function of a step ends and the next begins. A step may declare streams that run on over its
// seams (`overlaps`). The work of such a stream after its function has returned is the function's tail. It runs
// beside the function that follows, and by the end of that one the main stream has seen all of it, so only neighbours
// overlap. A tail touches nothing but buffers: values and workspaces are gone when their function returns.
#ifndef PASSES_ANALYSIS_SEAM_H
#define PASSES_ANALYSIS_SEAM_H
#include "passes/analysis/access.h"

typedef struct {
    const Symbol *step;
    Func *before, *after; // one and the same where a segment follows itself
} Seam;
typedef struct { Seam *at; int n, cap; } Seams;

// Each pair of neighbours of every step with overlaps once, in the order of the step.
Seams hd_seams(const Module *m, Arena *a);
bool hd_overlaps(const Symbol *step, const char *stream);
// Whether the stream may run on when f returns: wherever a step runs f, another function follows, and the stream
// overlaps there. Whether f finds what a stream before it left: wherever a step runs f, a function of `b` precedes it.
bool hd_runs_on(const Seams *b, const Func *f, const char *stream);
bool hd_follows(const Seams *b, const Func *f);
// A function that may follow f and waits for an event that f records; NULL: none does.
const Func *hd_waits_after(const Seams *b, const Func *f, int64_t event);
// Whether an op touches nothing but buffers, and of those that do not persist only such as are in device memory.
bool hd_touches_only_buffers(const Op *o, const Home *homes, Arena *a);

// A function that behaves as `after` does where it follows `before`: the tail of `before`, then all ops of `after`.
// Every analysis of functions can be asked about it; it is in no module's list.
typedef struct {
    const Seam *seam;
    Func *f;
    int tail;         // its first ops are those of the tail, and the views that they need,
    const int *from;  // op k of them is this op of `before`
} Joined;
Joined hd_join(const Seam *b, Arena *a); // both functions with dense ids and streams
// Transient buffers of `before` that the tail touches, each once.
typedef struct { const Symbol **at; int n, cap; } Carried;
Carried hd_carried(const Joined *j, Arena *a);
#endif
