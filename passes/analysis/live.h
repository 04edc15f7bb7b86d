// Lives of storages, read from a finished plan: the transient storages of a function in one space and the op during
// which they take the most bytes.
#ifndef PASSES_ANALYSIS_LIVE_H
#define PASSES_ANALYSIS_LIVE_H
#include "passes/analysis/lifetimes.h"

typedef struct {
    const Value *value;   // NULL: the workspace of op `by` and of others, or a transient buffer
    const Symbol *buffer; // the transient buffer, or NULL
    const Op *by;         // the op that makes it, or begins its life; NULL: an argument
    int64_t bytes;        // rounded up to the 256 bytes of a place
    // no other storage may have its bytes during ops from .. to, places in the order of analysis/times.h: its
    // lifetime, extended by happens-before
    int from, to;
} LiveItem;
typedef struct {
    int n;
    LiveItem *at;
    int64_t peak;   // most bytes live during one op
    const Op *during;
    const int *time; // by op id: its place in that order
} Live;
// `tail`: of a joined function (seam.h), whose first ops are what the function before left.
Live hd_live(const Func *f, int tail, Space space, Arena *a);
#endif
