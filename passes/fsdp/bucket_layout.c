// Bucket layout. Parameters with weight decay come first, then the others, each kind in declaration order, so that the
// optimizer needs one boundary and no table of parameters. Invariants, which can be checked from the symbols alone:
// items are disjoint and inside the bucket; every item starts at a multiple of HD_BUCKET_ALIGN; with more than one rank
// every item also starts at a multiple of its row size, and a rank's shard is a multiple of every row size, so that no
// row is cut. With replicas a shard divides into equal parts of whole 16 bytes, one for each replica to add up; rows
// may be cut there.
//
// With `whole` a rank has all elements of an item. The largest is placed first, on the rank that has the fewest
// elements so far; of several, on the one with the least work in all buckets. A shard is as large as the largest part,
// so the others end with padding. On one rank, `alike` items are in the order of their sizes.
#include "passes/fsdp/bucket_layout.h"
#include "ir/base/ints.h"
#include <stdlib.h>
#include <string.h>

static int64_t gcd(int64_t a, int64_t b) {
    while (b) {
        int64_t r = a % b;
        a = b;
        b = r;
    }
    return a;
}

static int64_t lcm(int64_t a, int64_t b) { // 0: does not fit
    int64_t r;
    return __builtin_mul_overflow(a / gcd(a, b), b, &r) || r > (int64_t)1 << 50 ? 0 : r;
}

static int64_t row_of(const Type *t) { return t->rank && t->dim[0] > 0 ? hd_type_count(t) / t->dim[0] : 0; }

static size_t module_of(const Symbol *p) { // the length of that part of its name
    const char *dot = strrchr(p->name, '.');
    return dot ? (size_t)(dot - p->name) : 0;
}

bool hd_bucket_adjoins(const Symbol *a, const Symbol *b) {
    const int64_t row = row_of(a->type), step = row ? lcm(HD_BUCKET_ALIGN, row) : 0;
    return step && row == row_of(b->type) && hd_type_count(a->type) % step == 0 &&
           hd_int(&b->attrs, A_INDEX, -1) == hd_int(&a->attrs, A_INDEX, -1) + 1 &&
           hd_has(&a->attrs, A_DECAY) == hd_has(&b->attrs, A_DECAY) &&
           hd_has(&a->attrs, A_FROZEN) == hd_has(&b->attrs, A_FROZEN) && !hd_has(&a->attrs, A_UPDATED_BY) &&
           !hd_has(&b->attrs, A_UPDATED_BY) && module_of(a) == module_of(b) &&
           strncmp(a->name, b->name, module_of(a)) == 0;
}

// What is done with a matrix whole: products of its rows and columns.
static double work_of(const BucketItem *item) {
    const double row = (double)item->row, rows = item->row ? (double)item->count / row : 0;
    return (double)item->count * (row < rows ? row : rows);
}

static int64_t rank_for(const Bucket *b, const int64_t *end) {
    int64_t best = 0;
    for (int64_t r = 1; r < b->ranks; r++)
        if (end[r] != end[best] ? end[r] < end[best] : b->work[r] < b->work[best]) best = r;
    return best;
}

static int by_place(const void *a, const void *b) {
    const BucketItem *x = a, *y = b;
    return x->offset != y->offset ? (x->offset < y->offset ? -1 : 1) : 0;
}

// Gives each of the items a rank, and a place in that rank's shard.
static bool place_whole(Bucket *b, int64_t grid, Arena *scratch) {
    int64_t *end = HD_NEWN(scratch, int64_t, b->ranks), *rank = HD_NEWN(scratch, int64_t, b->n + 1), used = 0, most = 0;
    bool *placed = HD_NEWN(scratch, bool, b->n + 1);
    for (int k = 0; k < b->n; k++) {
        int next = -1; // the largest that is left; of equal ones the first
        for (int i = 0; i < b->n; i++)
            if (!placed[i] && (next < 0 || b->items[i].count > b->items[next].count)) next = i;
        BucketItem *item = &b->items[next];
        const int64_t step = lcm(HD_BUCKET_ALIGN, item->row), r = rank_for(b, end);
        if (!step) return false;
        placed[next] = true;
        rank[next] = r;
        item->offset = hd_round_up(end[r], step);
        end[r] = item->offset + item->count;
        b->work[r] += (int64_t)(work_of(item) / 4096) + 1;
        used += item->count;
        if (end[r] > most) most = end[r];
        grid = grid ? lcm(grid, item->row) : 0;
    }
    if (!grid) return false;
    b->shard = hd_round_up(most, grid);
    if (b->shard > ((int64_t)1 << 58) / b->ranks) return false;
    for (int i = 0; i < b->n; i++) b->items[i].offset += rank[i] * b->shard;
    qsort(b->items, (size_t)b->n, sizeof *b->items, by_place);
    b->size = b->shard * b->ranks;
    b->padding = b->size - used;
    b->decayed = b->n && b->items[0].decay ? b->size : 0;
    return true;
}

static int by_size(const void *a, const void *b) {
    const BucketItem *x = a, *y = b;
    if (x->count != y->count) return x->count > y->count ? -1 : 1;
    if (x->row != y->row) return x->row > y->row ? -1 : 1;
    return x->param->id - y->param->id;
}

bool hd_bucket_layout(Bucket *b, int64_t ranks, int64_t replicas, Arena *scratch) {
    BucketItem *sorted = HD_NEWN(scratch, BucketItem, b->n + 1);
    int n = 0;
    for (int decay = 1; decay >= 0; decay--)
        for (int i = 0; i < b->n; i++)
            if (b->items[i].decay == (decay == 1)) sorted[n++] = b->items[i];
    int64_t end = 0, used = 0,
            // grid: ranks own elements in multiples of it; 4 f32 are 16 bytes
            grid = lcm(HD_BUCKET_ALIGN, 4 * replicas);
    b->decayed = 0;
    if (b->whole && ranks > 1) {
        b->ranks = ranks;
        b->replicas = replicas;
        return grid && place_whole(b, grid, scratch);
    }
    if (b->alike && n) qsort(sorted, (size_t)n, sizeof *sorted, by_size);
    for (int i = 0; i < n; i++) {
        BucketItem *item = &sorted[i];
        int64_t step = HD_BUCKET_ALIGN;
        if (ranks > 1 && item->count) {
            step = lcm(step, item->row);
            grid = grid ? lcm(grid, item->row) : 0;
            if (!step || !grid) return false;
        }
        item->offset = hd_round_up(end, step);
        end = item->offset + item->count;
        used += item->count;
        if (item->decay) b->decayed = hd_round_up(end, HD_BUCKET_ALIGN);
        b->items[i] = *item;
    }
    if (!grid) return false;
    b->ranks = ranks;
    b->replicas = replicas;
    b->shard = hd_round_up((end + ranks - 1) / ranks, grid);
    if (b->shard > ((int64_t)1 << 58) / ranks) return false;
    b->size = b->shard * ranks;
    b->padding = b->size - used;
    return true;
}
