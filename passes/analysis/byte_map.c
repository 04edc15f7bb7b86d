// Ranges of bytes in blocks. See byte_map.h.
#include "passes/analysis/byte_map.h"
#include "ir/base/search.h"

static void insert_block(ByteMap *m, int at, ByteBlock *b) {
    hd_push(m->arena, &m->blocks, b);
    memmove(&m->blocks.at[at + 1], &m->blocks.at[at], sizeof(ByteBlock *) * (size_t)(m->blocks.n - at - 1));
    m->blocks.at[at] = b;
}

ByteMap hd_bytes(Arena *a, int64_t top, Cell all) {
    ByteMap m = {.top = top, .arena = a};
    ByteBlock *b = HD_NEW(a, ByteBlock);
    b->at[b->n++] = (Range){0, all};
    insert_block(&m, 0, b);
    return m;
}

// The range that holds byte `at`.
static BytePos find(const ByteMap *m, int64_t at) {
    int block, i; // the first that begin after it
    HD_FIRST(block, 1, m->blocks.n, m->blocks.at[block]->at[0].lo > at);
    const ByteBlock *b = m->blocks.at[block - 1];
    HD_FIRST(i, 1, b->n, b->at[i].lo > at);
    return (BytePos){block - 1, i - 1};
}

// Splits a full block into two half-full ones.
static void split(ByteMap *m, int block) {
    ByteBlock *b = m->blocks.at[block], *upper = HD_NEW(m->arena, ByteBlock);
    upper->n = b->n / 2;
    b->n -= upper->n;
    memcpy(upper->at, &b->at[b->n], sizeof(Range) * (size_t)upper->n);
    insert_block(m, block + 1, upper);
}

// Makes a range start at `at`.
static void cut(ByteMap *m, int64_t at) {
    if (at >= m->top) return;
    BytePos p = find(m, at);
    if (hd_bytes_range(m, p)->lo == at) return;
    if (m->blocks.at[p.block]->n == BYTE_BLOCK) {
        split(m, p.block);
        p = find(m, at);
    }
    ByteBlock *b = m->blocks.at[p.block];
    memmove(&b->at[p.i + 1], &b->at[p.i], sizeof(Range) * (size_t)(b->n - p.i));
    b->at[p.i + 1].lo = at;
    b->n++;
}

BytePos hd_bytes_cut(ByteMap *m, int64_t lo, int64_t hi) {
    cut(m, lo);
    cut(m, hi);
    return find(m, lo);
}

void hd_bytes_set(ByteMap *m, int64_t lo, int64_t hi, Cell cell) {
    BytePos first = hd_bytes_cut(m, lo, hi), p = hd_bytes_next(m, first);
    hd_bytes_range(m, first)->cell = cell;
    while (!hd_bytes_at_end(m, p) && hd_bytes_range(m, p)->lo < hi) {
        ByteBlock *b = m->blocks.at[p.block];
        int end = p.i;
        while (end < b->n && b->at[end].lo < hi) end++;
        memmove(&b->at[p.i], &b->at[end], sizeof(Range) * (size_t)(b->n - end));
        b->n -= end - p.i;
        if (b->n == 0) {
            memmove(&m->blocks.at[p.block], &m->blocks.at[p.block + 1],
                    sizeof(ByteBlock *) * (size_t)(m->blocks.n - p.block - 1));
            m->blocks.n--;
        } else if (p.i == b->n) {
            p = (BytePos){p.block + 1, 0};
        }
    }
}
