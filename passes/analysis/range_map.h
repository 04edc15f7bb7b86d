// The contents of a buffer: a partition of [0, top) into ranges with one cell each, as a sorted array. Cutting costs a
// binary search and a move, which is faster than a tree for the few thousand ranges of a plan.
#ifndef PASSES_ANALYSIS_RANGE_MAP_H
#define PASSES_ANALYSIS_RANGE_MAP_H
#include "ir/base/vec.h"
#include <stdint.h>

typedef struct Reader { int op; struct Reader *next; } Reader;
typedef struct {
    int writer;      // the op that wrote it last; -1: none yet
    int holds;       // what it wrote: a number that only the user of the map understands
    Reader *readers; // since then, latest first
} Cell;
typedef struct { int64_t lo; Cell cell; } Range; // up to the next range's lo
typedef struct { VEC(Range) v; int64_t top; Arena *arena; } RangeMap;

RangeMap hd_ranges(Arena *a, int64_t top, Cell all);
// Cuts so that [lo, hi) consists of whole ranges: v.at[first] to v.at[end - 1]. Needs 0 <= lo < hi <= top.
int hd_ranges_cut(RangeMap *m, int64_t lo, int64_t hi, int *end);
// Makes [first, end) one range with this cell.
void hd_ranges_set(RangeMap *m, int first, int end, Cell cell);
static inline int64_t hd_range_hi(const RangeMap *m, int i) { return i + 1 < m->v.n ? m->v.at[i + 1].lo : m->top; }
#endif
