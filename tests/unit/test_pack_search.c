// The tree search of packing, on instances with a known packing and no slack at any time, or little: a rectangle of
// time and bytes, cut in two again and again, each cut from side to side. Only a packing that leaves no byte unused at
// any time fits.
#include "passes/pack/pack.h"
#include "tests/unit/check.h"
#include <stdbool.h>

enum { MOST = 1024, UNIT = 1024, EXTENT = 1024 * UNIT };
typedef struct { int64_t lower, upper, bottom, top; } Piece;
static Piece pieces[MOST];
static Interval values[MOST];
static int64_t offset[MOST], again[MOST];

static uint64_t state;
static int64_t random_below(int64_t n) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (int64_t)((state >> 33) % (uint64_t)n);
}

// Cuts the largest of a few pieces chosen at random, until there are n; returns them shuffled, as values.
static void cut(int n, uint64_t seed, int64_t align) {
    state = seed;
    pieces[0] = (Piece){0, EXTENT, 0, EXTENT};
    for (int count = 1; count < n;) {
        int64_t largest = 0;
        int at = 0;
        for (int k = 0; k < 6; k++) {
            int i = (int)random_below(count);
            int64_t area = (pieces[i].upper - pieces[i].lower) / UNIT * ((pieces[i].top - pieces[i].bottom) / UNIT);
            if (area > largest) largest = area, at = i;
        }
        Piece *p = &pieces[at], rest = *p;
        int64_t life = (p->upper - p->lower) / UNIT, size = (p->top - p->bottom) / UNIT;
        bool in_time = random_below(2) == 0;
        if ((in_time ? life : size) < 2) continue;
        if (in_time) p->upper = rest.lower = p->lower + UNIT * (1 + random_below(life - 1));
        else p->top = rest.bottom = p->bottom + UNIT * (1 + random_below(size - 1));
        pieces[count++] = rest;
    }
    for (int i = n - 1; i >= 0; i--) {
        int k = (int)random_below(i + 1);
        Piece p = pieces[k];
        pieces[k] = pieces[i];
        pieces[i] = p;
        values[i] = (Interval){p.lower, p.upper, p.top - p.bottom, align};
    }
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

static const int64_t STEPS = 1000 * 1000 * 1000; // a second; most take milliseconds

TEST(no_slack) {
    static const int counts[] = {2, 10, 50, 100, 150, 200, 300, 400, 800};
    for (int c = 0; c < 9; c++)
        for (uint64_t seed = 1; seed <= 4; seed++) {
            int n = counts[c];
            cut(n, seed, seed % 2 ? 1 : UNIT);
            CHECK_INT(hd_pack_lower_bound(n, values), EXTENT);
            CHECK_INT(hd_pack_search(n, values, offset, EXTENT, STEPS, 0), 0);
            CHECK(valid(n));
            CHECK_INT(hd_pack_height(n, values, offset), EXTENT);
        }
}

static const int64_t FEW_STEPS = 384 * 1000 * 1000; // of packing without a capacity

// Slicing finds them in a few million steps, with room or without.
TEST(forty_of_each) {
    static const int64_t rooms[] = {EXTENT / 200, EXTENT / 100, EXTENT / 50, EXTENT / 20};
    for (int n = 400; n <= 800; n += 400)
        for (uint64_t seed = 1; seed <= 40; seed++) {
            cut(n, seed, seed % 2 ? 1 : UNIT);
            CHECK_INT(hd_pack_search(n, values, offset, EXTENT, FEW_STEPS, 0), 0);
            CHECK(valid(n));
            CHECK_INT(hd_pack_height(n, values, offset), EXTENT);
            const int64_t room = rooms[seed % 4];
            CHECK_INT(hd_pack_search(n, values, offset, EXTENT + room, FEW_STEPS, 0), 0);
            CHECK(valid(n));
            CHECK(hd_pack_height(n, values, offset) <= EXTENT + room);
        }
}

// Values at even places, and of even sizes, must stay at even places. Most are found.
TEST(alignments) {
    int found = 0;
    for (uint64_t seed = 1; seed <= 10; seed++) {
        cut(200, seed, UNIT);
        for (int i = 0; i < 200; i++)
            if ((pieces[i].bottom | values[i].size) % (2 * UNIT) == 0) values[i].align = 2 * UNIT;
        if (hd_pack_search(200, values, offset, EXTENT, FEW_STEPS / 8, 0)) continue;
        found++;
        CHECK(valid(200));
        CHECK_INT(hd_pack_height(200, values, offset), EXTENT);
    }
    CHECK(found > 5);
}

// A little slack leaves many more packings, and many more ways to fail late: one piece in `parts` is left out, or gets
// half its bytes.
static int loosen(int n, int parts, bool out) {
    int left = 0;
    for (int i = 0; i < n; i++) {
        Interval v = values[i];
        bool chosen = random_below(parts) == 0;
        if (chosen && out) continue;
        if (chosen && v.size > v.align) v.size = v.size / 2 / v.align * v.align;
        values[left++] = v;
    }
    return left;
}

TEST(some_slack) {
    static const int counts[] = {100, 125, 150}, parts[] = {4, 8, 16, 32, 64};
    static const uint64_t seeds[] = {8, 8, 4}; // beyond these, and in larger ones, some take more steps
    for (int c = 0; c < 3; c++)
        for (int k = 0; k < 5; k++)
            for (uint64_t seed = 1; seed <= seeds[c]; seed++) {
                cut(counts[c], 100 * seed, seed % 2 ? 1 : UNIT);
                int n = loosen(counts[c], parts[k], (seed - 1) / 2 % 2);
                CHECK_INT(hd_pack_search(n, values, offset, EXTENT, STEPS, 0), 0);
                CHECK(valid(n));
                CHECK(hd_pack_height(n, values, offset) <= EXTENT);
            }
}

// More room never makes the search fail: what it finds in as much room as the bound, in so many steps, it finds in any
// larger room, for the bound has steps of its own.
TEST(pieces_left_out) {
    static const int parts[] = {64, 128, 256};
    for (int k = 0; k < 3; k++)
        for (uint64_t seed = 1; seed <= 8; seed++) {
            cut(400, 100 * seed, seed % 2 ? 1 : UNIT);
            int n = loosen(400, parts[k], (seed - 1) / 2 % 2);
            CHECK_INT(hd_pack_search(n, values, offset, EXTENT, FEW_STEPS, 0), 0);
            CHECK(valid(n));
            CHECK(hd_pack_height(n, values, offset) <= EXTENT);
        }
}

TEST(more_room) {
    static const int64_t rooms[] = {EXTENT / 100, EXTENT / 20, EXTENT};
    for (int r = 0; r < 3; r++)
        for (uint64_t seed = 1; seed <= 3; seed++) {
            cut(400, seed, seed % 2 ? 1 : UNIT);
            CHECK_INT(hd_pack_search(400, values, offset, EXTENT + rooms[r], STEPS, 0), 0);
            CHECK(valid(400));
            CHECK(hd_pack_height(400, values, offset) <= EXTENT + rooms[r]);
        }
}

// Also where the steps just suffice: as few as a tight packing takes are enough with room.
TEST(more_room_in_few_steps) {
    static const int64_t rooms[] = {EXTENT / 1000, EXTENT / 100, EXTENT / 20};
    for (uint64_t seed = 1; seed <= 6; seed++) {
        cut(200, seed, seed % 2 ? 1 : UNIT);
        int64_t few = 0, enough = STEPS;
        while (enough - few > 1000) {
            const int64_t steps = few + (enough - few) / 2;
            if (hd_pack_search(200, values, offset, EXTENT, steps, 0)) few = steps;
            else enough = steps;
        }
        for (int r = 0; r < 3; r++) CHECK_INT(hd_pack_search(200, values, offset, EXTENT + rooms[r], enough, 0), 0);
    }
}

// Packing without a capacity searches as well, with fewer steps: 1 % above the bound.
TEST(packed_by_search) {
    for (int n = 400; n <= 800; n += 400)
        for (uint64_t seed = 1; seed <= 16; seed++) {
            cut(n, seed, seed % 2 ? 1 : UNIT);
            hd_pack(n, 0, values, offset, 0);
            CHECK(valid(n));
            CHECK(hd_pack_height(n, values, offset) <= EXTENT + EXTENT / 100);
        }
}

// Equal steps give equal packings, and a packing that does not exist is not found, however long the search.
TEST(determinism_and_none) {
    cut(100, 7, 1);
    CHECK_INT(hd_pack_search(100, values, offset, EXTENT, STEPS, 0), 0);
    CHECK_INT(hd_pack_search(100, values, again, EXTENT, STEPS, 0), 0);
    CHECK(memcmp(offset, again, sizeof(int64_t) * 100) == 0);
    // the middle value of 1 rests below, or above, both neighbours of 2
    const Interval knot[] = {{0, 2, 2, 1}, {1, 4, 1, 1}, {3, 5, 2, 1}, {0, 1, 1, 1}, {2, 3, 2, 1}, {4, 5, 1, 1}};
    CHECK_INT(hd_pack_search(6, knot, offset, 3, STEPS, 0), 0);
    CHECK_INT(hd_pack_search(6, knot, offset, 2, STEPS, 0), 1);
    const Interval aligned[] = {{0, 2, 1, 4}, {0, 2, 5, 8}, {1, 3, 4, 8}};
    CHECK_INT(hd_pack_search(3, aligned, offset, 20, STEPS, 0), 0);
    CHECK_INT(hd_pack_height(3, aligned, offset), 20);
    CHECK_INT(hd_pack_search(3, aligned, offset, 19, STEPS, 0), 1);
}

// A restart chains values that are alike anew, and keeps nothing of the chains before.
TEST(alike_after_restarts) {
    const Interval few[] = {{2, 3, 1, 1}, {4, 5, 1, 4}, {3, 4, 5, 4}, {0, 3, 1, 1}, {2, 4, 1, 1},
                            {4, 6, 7, 2}, {2, 4, 1, 2}, {3, 6, 5, 1}, {4, 7, 5, 2}, {3, 4, 3, 1}};
    CHECK_INT(hd_pack_search(10, few, offset, 23, STEPS, 0), 0);
    CHECK_INT(hd_pack_height(10, few, offset), 23);
    const Interval aligned[] = {{1, 4, 7, 2}, {4, 5, 7, 2}, {2, 3, 1, 4}, {2, 4, 3, 4}, {4, 6, 5, 2},
                                {1, 3, 3, 4}, {2, 5, 1, 2}, {4, 6, 3, 1}, {3, 4, 1, 4}, {4, 6, 1, 4}};
    CHECK_INT(hd_pack_search(10, aligned, offset, 23, STEPS, 0), 0);
    CHECK_INT(hd_pack_height(10, aligned, offset), 23);
}

// The least height of any packing of a few values: each in turn goes above all that it overlaps, in every order.
static int64_t least_height(int n, unsigned placed, int64_t height, int64_t best) {
    if (height >= best || placed == (1u << n) - 1) return height < best ? height : best;
    for (int i = 0; i < n; i++) {
        if (placed >> i & 1) continue;
        int64_t at = 0, align = values[i].align;
        for (int k = 0; k < n; k++) {
            bool together = values[k].lower < values[i].upper && values[i].lower < values[k].upper;
            if (together && placed >> k & 1 && again[k] > at) at = (again[k] + align - 1) / align * align;
        }
        again[i] = at + (values[i].size + align - 1) / align * align; // its end
        best = least_height(n, placed | 1u << i, again[i] > height ? again[i] : height, best);
    }
    return best;
}

// Nothing is missed: the search finds a packing of the least height, and says that there is none below it.
TEST(every_packing) {
    state = 7;
    int above_bound = 0;
    for (int round = 0; round < 4000; round++) {
        int n = 3 + (int)random_below(6), aligned = random_below(3) == 0;
        for (int i = 0; i < n; i++) {
            int64_t lower = random_below(6);
            values[i] = (Interval){lower, lower + 1 + random_below(4), 1 + random_below(5),
                                   aligned ? INT64_C(1) << random_below(3) : 1};
        }
        int64_t best = least_height(n, 0, 0, INT64_MAX);
        above_bound += best > hd_pack_lower_bound(n, values);
        CHECK_INT(hd_pack_search(n, values, offset, best, STEPS, 0), 0);
        CHECK(valid(n));
        CHECK_INT(hd_pack_search(n, values, offset, best - 1, STEPS, 0), 1);
    }
    CHECK(above_bound > 0);
}

int main(int argc, char **argv) { return run_tests(argc, argv); }
