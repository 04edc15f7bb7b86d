// Bucket layout. Parameters with weight decay come first, then the others, each kind in declaration order, so that the
// optimizer needs one boundary and no table of parameters. Invariants, which can be checked from the symbols alone:
// items are disjoint and inside the bucket; every item starts at a multiple of HD_BUCKET_ALIGN; with more than one rank
// every item also starts at a multiple of its row size, and a rank's shard is a multiple of every row size, so that no
// row is cut. With replicas a shard divides into equal parts of whole 16 bytes, one for each replica to add up; rows
// may be cut there.
#include "passes/fsdp/bucket_layout.h"
#include "ir/base/ints.h"
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
           hd_has(&a->attrs, A_FROZEN) == hd_has(&b->attrs, A_FROZEN) && module_of(a) == module_of(b) &&
           strncmp(a->name, b->name, module_of(a)) == 0;
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
