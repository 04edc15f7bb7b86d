// Ranges of bytes and their contents. See range_map.h.
#include "passes/analysis/range_map.h"

RangeMap hd_ranges(Arena *a, int64_t top, Cell all) {
    RangeMap m = {.top = top, .arena = a};
    Range r = {0, all};
    hd_push(a, &m.v, r);
    return m;
}

// The range that holds byte `at`.
static int find(const RangeMap *m, int64_t at) {
    int lo = 0, hi = m->v.n;
    while (hi - lo > 1) {
        int mid = lo + (hi - lo) / 2;
        if (m->v.at[mid].lo <= at) lo = mid;
        else hi = mid;
    }
    return lo;
}

// Makes a range start at `at` and returns it; the number of ranges when `at` is the top.
static int cut(RangeMap *m, int64_t at) {
    if (at >= m->top) return m->v.n;
    int i = find(m, at);
    if (m->v.at[i].lo == at) return i;
    Range r = {at, m->v.at[i].cell};
    hd_push(m->arena, &m->v, r);
    memmove(&m->v.at[i + 2], &m->v.at[i + 1], sizeof(Range) * (size_t)(m->v.n - i - 2));
    m->v.at[i + 1] = r;
    return i + 1;
}

int hd_ranges_cut(RangeMap *m, int64_t lo, int64_t hi, int *end) {
    int first = cut(m, lo);
    *end = cut(m, hi);
    return first;
}

void hd_ranges_set(RangeMap *m, int first, int end, Cell cell) {
    m->v.at[first].cell = cell;
    int gone = end - first - 1;
    if (gone <= 0) return;
    memmove(&m->v.at[first + 1], &m->v.at[end], sizeof(Range) * (size_t)(m->v.n - end));
    m->v.n -= gone;
}
