// The contents of a buffer: a partition of [0, top) into ranges with one cell each, as a sorted array with a gap.
// Cutting costs a binary search and a move from where the last cut was: plans go through buffers forwards or backwards.
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
typedef struct {
    Range *at; // `gap` ranges, room, the others: cuts next to each other move nothing
    int n, cap, gap;
    int64_t top;
    Arena *arena;
} RangeMap;

RangeMap hd_ranges(Arena *a, int64_t top, Cell all);
// Range i, of n; until the map is cut or set.
static inline Range *hd_range(const RangeMap *m, int i) { return &m->at[i < m->gap ? i : m->cap - m->n + i]; }
// Cuts so that [lo, hi) consists of whole ranges: `first`, which it returns, to end - 1. Needs 0 <= lo < hi <= top.
int hd_ranges_cut(RangeMap *m, int64_t lo, int64_t hi, int *end);
// Makes [first, end) one range with this cell.
void hd_ranges_set(RangeMap *m, int first, int end, Cell cell);
static inline int64_t hd_range_hi(const RangeMap *m, int i) { return i + 1 < m->n ? hd_range(m, i + 1)->lo : m->top; }
#endif
