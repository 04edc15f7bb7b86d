// Ranges of bytes and their contents. See range_map.h.
#include "passes/analysis/range_map.h"
#include "ir/base/search.h"

RangeMap hd_ranges(Arena *a, int64_t top, Cell all) {
    enum { FEW = 8 };
    RangeMap m = {.at = HD_NEWN(a, Range, FEW), .n = 1, .cap = FEW, .gap = 1, .top = top, .arena = a};
    m.at[0] = (Range){0, all};
    return m;
}

// The range that holds byte `at`.
static int find(const RangeMap *m, int64_t at) {
    int after;
    HD_FIRST(after, 1, m->n, hd_range(m, after)->lo > at);
    return after - 1;
}

static void move_gap(RangeMap *m, int to) {
    const int room = m->cap - m->n;
    if (to < m->gap) memmove(&m->at[room + to], &m->at[to], sizeof(Range) * (size_t)(m->gap - to));
    else memmove(&m->at[m->gap], &m->at[room + m->gap], sizeof(Range) * (size_t)(to - m->gap));
    m->gap = to;
}

static void grow(RangeMap *m) {
    Range *at = HD_NEWN(m->arena, Range, 2 * (int64_t)m->cap);
    move_gap(m, m->n);
    memcpy(at, m->at, sizeof(Range) * (size_t)m->n);
    m->at = at;
    m->cap *= 2;
}

// Makes a range start at `at` and returns it; the number of ranges when `at` is the top.
static int cut(RangeMap *m, int64_t at) {
    if (at >= m->top) return m->n;
    const int i = find(m, at);
    if (hd_range(m, i)->lo == at) return i;
    const Range r = {at, hd_range(m, i)->cell};
    if (m->n == m->cap) grow(m);
    move_gap(m, i + 1);
    m->at[m->gap++] = r;
    m->n++;
    return i + 1;
}

int hd_ranges_cut(RangeMap *m, int64_t lo, int64_t hi, int *end) {
    int first = cut(m, lo);
    *end = cut(m, hi);
    return first;
}

void hd_ranges_set(RangeMap *m, int first, int end, Cell cell) {
    hd_range(m, first)->cell = cell;
    if (end - first < 2) return;
    move_gap(m, first + 1);
    m->n -= end - first - 1; // the gap is closed
}
