// The contents of an arena: a partition of [0, top) into ranges with one cell each, for maps of many thousand ranges of
// which an access touches few. Ranges are kept in blocks of bounded size: finding one is a binary search; cutting and
// merging move only one block. For maps of a few ranges range_map.h is simpler.
#ifndef PASSES_ANALYSIS_BYTE_MAP_H
#define PASSES_ANALYSIS_BYTE_MAP_H
#include "passes/analysis/range_map.h"
#include <stdbool.h>

enum { BYTE_BLOCK = 64 };
typedef struct { int n; Range at[BYTE_BLOCK]; } ByteBlock;
typedef struct { VEC(ByteBlock *) blocks; int64_t top; Arena *arena; } ByteMap;
typedef struct { int block, i; } BytePos;

ByteMap hd_bytes(Arena *a, int64_t top, Cell all);
// Cuts at both ends, so that [lo, hi) consists of whole ranges, and returns the first of them. Needs 0 <= lo < hi <=
// top.
BytePos hd_bytes_cut(ByteMap *m, int64_t lo, int64_t hi);
// Makes [lo, hi) one range with this cell.
void hd_bytes_set(ByteMap *m, int64_t lo, int64_t hi, Cell cell);
static inline bool hd_bytes_at_end(const ByteMap *m, BytePos p) { return p.block == m->blocks.n; }
static inline Range *hd_bytes_range(const ByteMap *m, BytePos p) { return &m->blocks.at[p.block]->at[p.i]; }
static inline bool hd_bytes_before(const ByteMap *m, BytePos p, int64_t at) {
    return !hd_bytes_at_end(m, p) && hd_bytes_range(m, p)->lo < at;
}
static inline BytePos hd_bytes_next(const ByteMap *m, BytePos p) {
    return p.i + 1 < m->blocks.at[p.block]->n ? (BytePos){p.block, p.i + 1} : (BytePos){p.block + 1, 0};
}
static inline int64_t hd_bytes_hi(const ByteMap *m, BytePos p) {
    BytePos next = hd_bytes_next(m, p);
    return hd_bytes_at_end(m, next) ? m->top : hd_bytes_range(m, next)->lo;
}
#endif
