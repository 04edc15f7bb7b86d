// Packing: values alive together never share bytes, alignments hold, no packing is below the lower bound, and those of
// training (long lives that nest, short ones between) come within 1 % of it.
#include "passes/pack/pack.h"
#include "tests/unit/check.h"
#include <stdbool.h>
#include <stdlib.h>

enum { MOST = 2400, MOST_STEPS = 2000 * 1000 };
static Interval values[MOST];
static int64_t offset[MOST], again[MOST];

static uint64_t state = 1;
static int64_t random_below(int64_t n) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (int64_t)((state >> 33) % (uint64_t)n);
}

static bool valid(int n) {
    for (int i = 0; i < n; i++) {
        if (offset[i] < 0 || offset[i] % values[i].align) return false;
        for (int k = 0; k < i; k++) {
            bool together = values[i].lower < values[k].upper && values[k].lower < values[i].upper;
            if (together && offset[i] < offset[k] + values[k].size && offset[k] < offset[i] + values[i].size)
                return false;
        }
    }
    return true;
}

TEST(nothing_and_one) {
    CHECK_INT(hd_pack(0, 0, values, offset, 0), 0);
    values[0] = (Interval){3, 5, 100, 256};
    CHECK_INT(hd_pack(1, 0, values, offset, 0), 0);
    CHECK_INT(offset[0], 0);
    CHECK_INT(hd_pack_height(1, values, offset), 256);
    CHECK_INT(hd_pack_lower_bound(1, values), 256);
    CHECK_INT(hd_pack(1, 0, values, offset, 255), 1);
    values[0] = (Interval){3, 3, 100, 1}; // never alive
    CHECK_INT(hd_pack_lower_bound(1, values), 0);
}

TEST(random_values) {
    for (int round = 0; round < 60; round++) {
        int n = 1 + (int)random_below(80);
        for (int i = 0; i < n; i++) {
            int64_t lower = random_below(40);
            values[i] = (Interval){lower, lower + 1 + random_below(round % 2 ? 40 : 5), random_below(1000),
                                   INT64_C(1) << random_below(9)};
        }
        hd_pack(n, 0, values, offset, 0);
        CHECK(valid(n));
        CHECK(hd_pack_height(n, values, offset) >= hd_pack_lower_bound(n, values));
    }
}

// A capacity is met when the first order meets it, and the same input gives the same offsets.
TEST(capacity_and_determinism) {
    for (int i = 0; i < 50; i++) values[i] = (Interval){i % 7, i % 7 + 3, 1 + i * 13 % 97, 1};
    CHECK_INT(hd_pack(50, 0, values, offset, 0), 0);
    CHECK_INT(hd_pack(50, 0, values, again, 0), 0);
    CHECK(memcmp(offset, again, sizeof(int64_t) * 50) == 0);
    CHECK_INT(hd_pack(50, 0, values, offset, hd_pack_height(50, values, offset)), 0);
    CHECK_INT(hd_pack(50, 0, values, offset, hd_pack_lower_bound(50, values) - 1), 1);
    CHECK(valid(50));
}

static int by_offset(const void *x, const void *y) {
    int64_t a = offset[*(const int *)x], b = offset[*(const int *)y];
    return (a > b) - (a < b);
}

// The lowest offset that all others alive with v leave it; `order`: everybody, by offset.
static int64_t lowest_for(int n, const int *order, int v) {
    int64_t top = 0, align = values[v].align;
    for (int k = 0; k < n; k++) {
        const Interval *w = &values[order[k]];
        if (order[k] == v || w->lower >= values[v].upper || values[v].lower >= w->upper) continue;
        if (offset[order[k]] - top >= (values[v].size + align - 1) / align * align) break;
        int64_t end = offset[order[k]] + (w->size + w->align - 1) / w->align * w->align;
        end = (end + align - 1) / align * align;
        if (end > top) top = end;
    }
    return top;
}

// First fit gives each value the lowest gap, and what is placed later makes none lower, however many there are. A
// capacity that everything meets keeps the packing of the first order.
TEST(first_fit_leaves_no_lower_gap) {
    int order[MOST];
    for (int round = 0; round < 8; round++) {
        int n = round < 2 ? 30 + round * 8 : 1500, span = round % 2 ? 2000 : 200;
        for (int i = 0; i < n; i++) {
            int64_t lower = random_below(span), life = i % 5 ? 1 + random_below(6) : 1 + random_below(span);
            values[i] = (Interval){lower, lower + life, 1 + random_below(i % 3 ? 100 : 3000),
                                   INT64_C(1) << (round % 3 ? 8 : random_below(9))};
            order[i] = i;
        }
        CHECK_INT(hd_pack(n, 0, values, offset, INT64_C(1) << 40), 0);
        CHECK(valid(n));
        qsort(order, (size_t)n, sizeof(int), by_offset);
        for (int v = 0; v < n; v++) CHECK_INT(lowest_for(n, order, v), offset[v]);
    }
}

// Below 200 values that are always alive there is room where others have died, however many.
TEST(the_room_below_many_is_found) {
    for (int dead = 1; dead < 200; dead++) {
        for (int i = 0; i < dead; i++) values[i] = (Interval){0, 10, 512, 256};
        for (int i = dead; i < dead + 200; i++) values[i] = (Interval){0, 20, 256, 256};
        values[dead + 200] = (Interval){12, 15, 512 * dead - 256, 256};
        CHECK_INT(hd_pack(dead + 201, 0, values, offset, INT64_C(1) << 40), 0);
        CHECK_INT(offset[dead], 512 * dead);
        CHECK_INT(offset[dead + 200], 0);
    }
}

// Forward and backward over many layers: per layer some values kept for the backward pass and some short ones on both
// ways.
TEST(training) {
    int n = 0, time_now = 0, layers = 200;
    int start[200][6];
    for (int l = 0; l < layers; l++)
        for (int k = 0; k < 6; k++) {
            start[l][k] = time_now++;
            values[n++] = (Interval){time_now, time_now + 2, 3000 + 1000 * (k * 7 % 5), 256};
        }
    for (int l = layers - 1; l >= 0; l--)
        for (int k = 5; k >= 0; k--) {
            time_now++;
            if (n < MOST && k < 4)
                values[n++] = (Interval){start[l][k], time_now + 1, 2000 + 512 * k + 4096 * (k == 2), 256};
            if (n < MOST && k >= 4) values[n++] = (Interval){time_now, time_now + 3, 20000, 256};
        }
    CHECK_INT(n, MOST);
    PackRoom room = {0};
    hd_pack_into(n, 0, values, offset, &room);
    CHECK(valid(n));
    int64_t height = hd_pack_height(n, values, offset), bound = hd_pack_lower_bound(n, values);
    const double gap = (double)(height - bound) / (double)bound;
    printf("%d values: %lld steps, gap %.3f %%\n", n, (long long)room.steps, 100 * gap);
    CHECK(gap <= 0.01);
    CHECK(room.steps < MOST_STEPS);
}

// The storages that several ranks add: weights gathered for each layer on both ways and gradients reduced, two of each
// live in turn, beside the inputs of all layers, kept until their backward, and what one layer computes. Sizes in units
// of 3072 bytes, times of one layer.
TEST(sharded_training) {
    enum {
        LAYERS = 80,
        FORWARD = 26,
        BACKWARD = 50,
        FULL = 4736,
        GRADIENT = 9472,
        WIDE = 256,
        HIDDEN = 192,
        NARROW = 64
    };
    static const Interval forward[] = {{0, 50, FULL, 0},    {5, 9, NARROW, 0},   {8, 10, HIDDEN, 0},
                                       {9, 12, NARROW, 0},  {11, 16, NARROW, 0}, {15, 18, NARROW, 0},
                                       {15, 24, NARROW, 0}, {17, 22, WIDE, 0}};
    static const Interval backward[] = {
        {0, 92, GRADIENT, 0}, {6, 35, NARROW, 0},  {9, 34, HIDDEN, 0},  {10, 34, NARROW, 0}, {12, 17, NARROW, 0},
        {16, 24, NARROW, 0},  {16, 28, NARROW, 0}, {18, 23, WIDE, 0},   {20, 23, WIDE, 0},   {22, 25, WIDE, 0},
        {22, 27, WIDE, 0},    {26, 28, NARROW, 0}, {27, 39, NARROW, 0}, {32, 34, NARROW, 0}, {33, 38, HIDDEN, 0},
        {37, 39, NARROW, 0},  {38, 78, NARROW, 0}, {41, 139, FULL, 0}};
    int n = 0, middle = 30 + LAYERS * FORWARD, end = middle + LAYERS * BACKWARD;
    for (int l = 0; l < LAYERS; l++) {
        int f = 12 + l * FORWARD, b = middle + (LAYERS - 1 - l) * BACKWARD;
        for (size_t k = 0; k < sizeof forward / sizeof *forward; k++)
            values[n++] = (Interval){f + forward[k].lower, f + forward[k].upper, forward[k].size, 1};
        for (size_t k = 0; k < sizeof backward / sizeof *backward; k++)
            values[n++] = (Interval){b + backward[k].lower, b + backward[k].upper, backward[k].size, 1};
        values[n++] = (Interval){f + 21, b + 39, NARROW, 1};
    }
    values[n++] = (Interval){middle - 10, end + 60, 3328, 1};
    CHECK(n <= MOST);
    PackRoom room = {0};
    hd_pack_into(n, 0, values, offset, &room);
    CHECK(valid(n));
    int64_t height = hd_pack_height(n, values, offset), bound = hd_pack_lower_bound(n, values);
    const double gap = (double)(height - bound) / (double)bound;
    printf("%d values: %lld steps, gap %.3f %%\n", n, (long long)room.steps, 100 * gap);
    CHECK(gap <= 0.01);
    CHECK(room.steps < MOST_STEPS);
}

int main(int argc, char **argv) { return run_tests(argc, argv); }
