// Bucket layouts: the invariants on random parameters for 1 to 8 ranks, and the cases that have a known answer.
#include "passes/fsdp/bucket_layout.h"
#include "tests/unit/check.h"

static uint64_t next_random(uint64_t *s) { return (*s = *s * 6364136223846793005u + 1442695040888963407u) >> 33; }

static void check_layout(const Bucket *b) {
    int64_t end = 0, used = 0;
    bool others = false;
    for (int i = 0; i < b->n; i++) {
        const BucketItem *item = &b->items[i];
        CHECK(item->offset >= end && item->offset % HD_BUCKET_ALIGN == 0);
        end = item->offset + item->count;
        used += item->count;
        CHECK(!(item->decay && others));
        others |= !item->decay;
        CHECK(item->decay ? end <= b->decayed : item->offset >= b->decayed);
        if (b->ranks == 1 || !item->count) continue;
        CHECK(item->offset % item->row == 0);
        for (int r = 1; r < b->ranks; r++) { // a boundary inside the item lies between two rows
            int64_t boundary = r * b->shard;
            if (boundary > item->offset && boundary < end) CHECK((boundary - item->offset) % item->row == 0);
        }
    }
    CHECK(end <= b->size && b->size == b->shard * b->ranks && b->shard % HD_BUCKET_ALIGN == 0);
    CHECK(b->padding == b->size - used);
    CHECK(b->shard % (4 * b->replicas) == 0);
}

TEST(random_layouts) {
    static const int64_t rows[] = {1, 2, 3, 5, 7, 32, 48, 64, 100, 768, 3072};
    Arena *a = hd_arena_new();
    uint64_t seed = 1;
    for (int trial = 0; trial < 400; trial++) {
        Bucket b = {.n = 1 + (int)(next_random(&seed) % 9)};
        b.items = HD_NEWN(a, BucketItem, b.n);
        int64_t ranks = 1 + (int64_t)(next_random(&seed) % 8), replicas = 1 + (int64_t)(next_random(&seed) % 5);
        for (int i = 0; i < b.n; i++) {
            int64_t row = rows[next_random(&seed) % 11];
            b.items[i] = (BucketItem){
                .row = row, .count = row * (int64_t)(next_random(&seed) % 40), .decay = next_random(&seed) % 2};
        }
        CHECK(hd_bucket_layout(&b, ranks, replicas, a));
        check_layout(&b);
    }
    hd_arena_free(a);
}

TEST(one_rank_pads_to_the_alignment_only) {
    Arena *a = hd_arena_new();
    BucketItem items[] = {
        {.row = 1, .count = 7}, {.row = 5, .count = 35, .decay = true}, {.row = 3, .count = 3, .decay = true}};
    Bucket b = {.items = items, .n = 3};
    CHECK(hd_bucket_layout(&b, 1, 1, a));
    CHECK(items[0].row == 5 && items[0].offset == 0 && items[1].row == 3 && items[1].offset == 64 &&
          items[2].offset == 96);
    CHECK(b.size == 128 && b.decayed == 96 && b.padding == 128 - 45);
    hd_arena_free(a);
}

TEST(more_ranks_than_elements) {
    Arena *a = hd_arena_new();
    BucketItem items[] = {{.row = 1, .count = 3}, {.row = 5, .count = 10, .decay = true}};
    Bucket b = {.items = items, .n = 2};
    CHECK(hd_bucket_layout(&b, 64, 1, a));
    CHECK(b.shard == 160 && b.size == 64 * 160 && b.padding == b.size - 13);
    hd_arena_free(a);
}

TEST(the_number_of_ranks_costs_nothing) { // a layout knows items, not ranks: the largest mesh takes no longer
    Arena *a = hd_arena_new();
    BucketItem items[] = {{.row = 768, .count = 768 * 768, .decay = true}, {.row = 1, .count = 768}};
    Bucket b = {.items = items, .n = 2};
    CHECK(hd_bucket_layout(&b, 65536, 65536, a));
    CHECK(b.shard % (4 * 65536) == 0 && b.size == 65536 * b.shard);
    hd_arena_free(a);
}

TEST(rows_without_common_factors_are_refused) {
    Arena *a = hd_arena_new();
    BucketItem items[] = {{.row = 999999937, .count = 999999937}, {.row = 999999929, .count = 999999929}};
    Bucket b = {.items = items, .n = 2};
    CHECK(!hd_bucket_layout(&b, 2, 1, a));
    CHECK(hd_bucket_layout(&b, 1, 1, a));
    hd_arena_free(a);
}

// Neighbours that hd_bucket_adjoins finds lie without a gap in every layout, whatever comes before and after them.
TEST(neighbours_adjoin) {
    static const int64_t cols[] = {1, 3, 8, 24, 32, 40, 96};
    Ctx *cx = hd_ctx_new();
    Arena *a = cx->arena;
    uint64_t seed = 3;
    int found = 0;
    for (int trial = 0; trial < 300; trial++) {
        Module *m = hd_module_new(cx, STAGE_TENSOR);
        Bucket b = {.n = 2 + (int)(next_random(&seed) % 6)};
        const int64_t few = cols[next_random(&seed) % 7];
        b.items = HD_NEWN(a, BucketItem, b.n);
        for (int i = 0; i < b.n; i++) {
            const int64_t dim[] = {(1 + (int64_t)(next_random(&seed) % 8)) * (next_random(&seed) % 2 ? 32 : 5),
                                   next_random(&seed) % 3 ? few : cols[next_random(&seed) % 7]};
            Symbol *p = hd_symbol_add(m, SYM_PARAM, hd_internf(cx, "m%d.p%d", (int)(next_random(&seed) % 4 / 3), i),
                                      hd_type(cx, TY_F32, 2, dim));
            const bool decay = next_random(&seed) % 4;
            hd_set_int(cx, &p->attrs, A_INDEX, i);
            if (decay) hd_set_flag(cx, &p->attrs, A_DECAY);
            b.items[i] = (BucketItem){.param = p, .row = dim[1], .count = dim[0] * dim[1], .decay = decay};
        }
        CHECK(hd_bucket_layout(&b, 1 + (int64_t)(next_random(&seed) % 8), 1 + (int64_t)(next_random(&seed) % 3), a));
        for (int i = 0; i < b.n; i++)
            for (int k = 0; k < b.n; k++) {
                if (!hd_bucket_adjoins(b.items[i].param, b.items[k].param)) continue;
                CHECK(b.items[k].offset == b.items[i].offset + b.items[i].count);
                found++;
            }
    }
    CHECK(found > 100);
    hd_ctx_free(cx);
}

int main(int argc, char **argv) { return run_tests(argc, argv); }
