// Packs lifetimes into bytes. The ideas:
// - first fit in a good order: each value goes to the lowest gap (or the tightest one) among the values placed before
//   it. The best order depends on the program, so several are tried: by the contention of a value's life, which mostly
//   packs at once what is tight first, and by size, life, area, start, end;
// - blame: values that end above the target go to the front of the order and everything is packed again (squeaky-wheel
//   optimisation, Joslin & Clements 1999; TVM's hill climb is similar), keeping the best packing seen;
// - a climb by single moves, where blame goes in circles;
// - packing from both ends, where that stays more than 1 % above the bound: what lives to the end of the function, such
//   as the parts of gradients that wait for the optimizer, goes as high as a ceiling allows, and all else as low as it
//   goes. Storages that grow and storages that shrink over time then share the bytes between them. The ceiling rises
// until all fits; - the search ends at the lower bound, or within 1/2048 of it: most training plans get there at once;
// - what stays more than 1 % above it goes to a search (pack_search.c), what stays closer to a short one.
// The work is bounded by counted steps, not by a clock, so the result is the same on every machine. A step is a value
// that another one is compared with, or a block of values that is skipped.
#include "passes/pack/pack.h"
#include "passes/pack/pack_search.h"
#include "ir/base/out.h"
#include "ir/base/ints.h"
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { N_ORDERS = 9, BLOCK = 64 };
static const int64_t WORK = 16 * 1000 * 1000;         // steps of the inner loop: 30 ms at most
static const int64_t LAST_WORK = 64 * 1000 * 1000;     // the same, where nothing else has come near the bound
static const int64_t SEARCH_WORK = 384 * 1000 * 1000;  // of the tree search, all targets together: some 1 s
enum { SEARCH_TRIES = 6, SEARCH_VALUES = 500 }; // with more values a step takes longer, so there are fewer
static const int64_t BRIEF_WORK = 300 * 1000, BRIEF_EACH = 1000; // of a brief packing, and for each value
static const int64_t DEEP_WORK = 8 * 1000 * 1000; // likewise
static const int64_t ENDS_WORK = 64 * 1000 * 1000;  // of packing from both ends, all ceilings together
static const int64_t SLICES_WORK = 4 * 1000 * 1000; // of a search for slicing packings, before that
enum { ENDS_ORDERS = 4, ENDS_ROUNDS = 32 };
enum { NEAR = 400 }; // what is more than this part above the bound, and at most 1 %, has a short search

typedef struct { int64_t lower, upper, start, end; } Placed; // everything the inner loop reads, in one place
// Placed values, sorted by start. Their common facts let a value skip most blocks at once: no value there is alive
// together with it, or all are and leave no room. Over thousands of values this is the cost of first fit.
typedef struct {
    int n;
    int64_t first_lower, last_lower, first_upper, last_upper; // of their lives
    int64_t end, gap;                                         // the highest end; the widest gap between them
    Placed at[BLOCK];
} Block;
typedef struct {
    int n, fixed;
    const Interval *values;
    int64_t *size;       // rounded up to the alignment
    int64_t *offset, *best;
    int64_t height, target, work;
    Block **blocks, *pool; // the first n_blocks of the pool, in order
    int n_blocks;
    int *order;
    int64_t *key, *key2;
    int64_t *contention; // most bytes alive at one time of a value's life
    const bool *high;    // by value: placed as high as it goes below `ceiling`, where packing ends; NULL: none is
    int64_t ceiling;
    const int64_t *at;   // by fixed value: the least offset; NULL: 0
    int failed;          // where in the order the first value was that ended above the ceiling; -1: none did
} Packer;

static int64_t lesser(int64_t x, int64_t y) { return x < y ? x : y; }
static int64_t greater(int64_t x, int64_t y) { return x > y ? x : y; }

static void sum_up(Block *b) {
    b->first_lower = b->first_upper = INT64_MAX;
    b->last_lower = b->last_upper = b->end = INT64_MIN;
    b->gap = 0;
    for (int i = 0; i < b->n; i++) {
        const Placed *w = &b->at[i];
        if (i) b->gap = greater(b->gap, w->start - b->end);
        b->first_lower = lesser(b->first_lower, w->lower);
        b->last_lower = greater(b->last_lower, w->lower);
        b->first_upper = lesser(b->first_upper, w->upper);
        b->last_upper = greater(b->last_upper, w->upper);
        b->end = greater(b->end, w->end);
    }
}

// A new block at `at`.
static Block *add_block(Packer *p, int at) {
    Block *b = &p->pool[p->n_blocks];
    memmove(&p->blocks[at + 1], &p->blocks[at], sizeof(Block *) * (size_t)(p->n_blocks++ - at));
    b->n = 0;
    return p->blocks[at] = b;
}

// Moves the upper half of a full block to a new one after it.
static void split(Packer *p, int at) {
    Block *full = p->blocks[at], *upper = add_block(p, at + 1);
    upper->n = BLOCK / 2;
    full->n -= upper->n;
    memcpy(upper->at, &full->at[full->n], sizeof(Placed) * (size_t)upper->n);
    sum_up(full);
    sum_up(upper);
}

// The last block that starts at or below an offset, or the first.
static int block_of(const Packer *p, int64_t start) {
    int lo = 0, hi = p->n_blocks;
    while (hi - lo > 1) {
        int mid = lo + (hi - lo) / 2;
        if (p->blocks[mid]->at[0].start <= start) lo = mid;
        else hi = mid;
    }
    return lo;
}

// After all that start at the same offset or below.
static void insert(Packer *p, Placed v) {
    if (!p->n_blocks) add_block(p, 0);
    int k = block_of(p, v.start);
    if (p->blocks[k]->n == BLOCK) {
        split(p, k);
        k = block_of(p, v.start);
    }
    Block *b = p->blocks[k];
    int i = b->n++;
    for (; i > 0 && b->at[i - 1].start > v.start; i--) b->at[i] = b->at[i - 1];
    b->at[i] = v;
    sum_up(b);
}

// Gives value v the lowest gap that holds it, or the tightest when `tight`.
static void place(Packer *p, int v, bool tight) {
    int64_t lower = p->values[v].lower, upper = p->values[v].upper, size = p->size[v], align = p->values[v].align;
    int64_t top = p->at && v < p->fixed ? p->at[v] : 0, at = -1, slack = INT64_MAX;
    for (int k = 0; k < p->n_blocks && (at < 0 || tight); k++) {
        const Block *b = p->blocks[k];
        p->work--;
        if (b->last_upper <= lower || b->first_lower >= upper) continue;
        if (b->last_lower < upper && b->first_upper > lower && b->gap < size && b->at[0].start - top < size) {
            top = greater(top, hd_align_to(b->end, align));
            continue;
        }
        p->work -= b->n;
        for (int i = 0; i < b->n; i++) {
            const Placed *w = &b->at[i];
            if (w->upper <= lower || w->lower >= upper) continue;
            if (w->start - top >= size && w->start - top - size < slack) {
                at = top;
                if (!tight) break;
                slack = w->start - top - size;
            }
            top = greater(top, hd_align_to(w->end, align));
        }
    }
    if (at < 0) at = top;
    p->offset[v] = at;
    insert(p, (Placed){lower, upper, at, at + size});
}

// Gives value v, which comes before all that go low, the highest gap below the ceiling. False: there is none.
static bool place_high(Packer *p, int v) {
    const Interval *life = &p->values[v];
    int64_t size = p->size[v], at = p->ceiling - size;
    at -= at % life->align;
    for (int k = p->n_blocks - 1; k >= 0 && at >= 0; k--) {
        const Block *b = p->blocks[k];
        p->work -= b->n;
        for (int i = b->n - 1; i >= 0; i--) {
            const Placed *w = &b->at[i];
            bool apart = w->upper <= life->lower || w->lower >= life->upper || w->start >= at + size || w->end <= at;
            if (apart) continue;
            at = w->start - size;
            at -= at % life->align; // those before it in this walk start no lower, so they are not in the way now
        }
    }
    p->offset[v] = at;
    if (at >= 0) insert(p, (Placed){life->lower, life->upper, at, at + size});
    return at >= 0;
}

// Packs in p->order and keeps the packing when it is the lowest so far; returns its height.
static int64_t pack_in_order(Packer *p, bool tight) {
    int64_t height = 0;
    p->n_blocks = 0;
    for (int v = 0; v < p->fixed; v++) place(p, v, false);
    for (int i = 0; p->high && i < p->n; i++)
        if (p->high[p->order[i]] && !place_high(p, p->order[i])) return INT64_MAX;
    for (int i = 0; i < p->n; i++) {
        int v = p->order[i];
        if (v >= p->fixed && !(p->high && p->high[v])) place(p, v, tight);
        if (p->offset[v] + p->size[v] > height) height = p->offset[v] + p->size[v];
        if (p->high && height > p->ceiling) {
            p->failed = i;
            return INT64_MAX;
        }
    }
    p->work -= p->n;
    if (height < p->height) {
        p->height = height;
        memcpy(p->best, p->offset, sizeof(int64_t) * (size_t)p->n);
    }
    return height;
}

// Bottom-up merge sort of the order by descending key, then descending key2: stable, so equal keys keep the order they
// had.
static void sort_order(Packer *p, int *scratch) {
    for (int width = 1; width < p->n; width *= 2) {
        for (int lo = 0; lo < p->n; lo += 2 * width) {
            int mid = lo + width < p->n ? lo + width : p->n, hi = lo + 2 * width < p->n ? lo + 2 * width : p->n;
            int a = lo, b = mid;
            for (int k = lo; k < hi; k++) {
                bool left = a < mid;
                if (left && b < hi) {
                    int x = p->order[a], y = p->order[b];
                    left = p->key[x] > p->key[y] || (p->key[x] == p->key[y] && p->key2[x] >= p->key2[y]);
                }
                scratch[k] = left ? p->order[a++] : p->order[b++];
            }
        }
        memcpy(p->order, scratch, sizeof(int) * (size_t)p->n);
    }
}

// The first of n times that is not before `at`.
static int first_from(const int64_t *times, int n, int64_t at) {
    int lo = 0, hi = n;
    while (lo < hi) {
        int mid = lo + (hi - lo) / 2;
        if (times[mid] < at) lo = mid + 1;
        else hi = mid;
    }
    return lo;
}

// The times at which lives start are enough: only there more bytes come alive. The most among consecutive ones comes
// from a table of the most among 1, 2, 4, ... of them.
static void find_contention(Packer *p, Arena *a) {
    PackEvent *events = HD_NEWN(a, PackEvent, 2 * p->n + 1);
    int n_events = hd_pack_events(events, p->n, p->values), n = 0, levels = 1;
    int64_t *times = HD_NEWN(a, int64_t, p->n + 1), live = 0;
    while (1 << levels <= p->n) levels++;
    int64_t **most = HD_NEWN(a, int64_t *, levels);
    for (int k = 0; k < levels; k++) most[k] = HD_NEWN(a, int64_t, p->n + 1);
    for (int i = 0; i < n_events; i++) {
        live += events[i].change;
        if (events[i].value < 0) continue;
        if (!n || times[n - 1] != events[i].at) times[n++] = events[i].at;
        most[0][n - 1] = live;
    }
    for (int k = 1; k < levels; k++)
        for (int i = 0; i + (1 << k) <= n; i++) {
            int64_t left = most[k - 1][i], right = most[k - 1][i + (1 << (k - 1))];
            most[k][i] = left > right ? left : right;
        }
    for (int i = 0; i < p->n; i++) {
        int from = first_from(times, n, p->values[i].lower), to = first_from(times, n, p->values[i].upper), k = 0;
        if (from >= to) continue;
        while (2 << k <= to - from) k++;
        int64_t left = most[k][from], right = most[k][to - (1 << k)];
        p->contention[i] = left > right ? left : right;
    }
}

static void choose_order(Packer *p, int which, int *scratch) {
    for (int i = 0; i < p->n; i++) {
        const Interval *v = &p->values[i];
        int64_t life = v->upper - v->lower, size = p->size[i];
        int64_t area = size > INT64_MAX / (life + 1) ? INT64_MAX : size * life;
        const int64_t keys[N_ORDERS][2] = {{p->contention[i], size},
                                           {p->contention[i], life},
                                           {p->contention[i], area},
                                           {size, life},
                                           {life, size},
                                           {area, size},
                                           {-v->lower, life},
                                           {v->upper, life},
                                           {-v->upper, -life}};
        p->key[i] = keys[which][0];
        p->key2[i] = keys[which][1];
        p->order[i] = i;
    }
    sort_order(p, scratch);
}

// Moves the values that end above `level` to the front, keeping the order within both parts. False: every one is at the
// front already.
static bool blame(Packer *p, int64_t level, int *scratch) {
    int n = 0, front = 0;
    for (int i = 0; i < p->n; i++) {
        int v = p->order[i];
        if (p->offset[v] + p->size[v] <= level) continue;
        if (i != n) front++;
        scratch[n++] = v;
    }
    if (!front) return false;
    for (int i = 0; i < p->n; i++) {
        int v = p->order[i];
        if (p->offset[v] + p->size[v] <= level) scratch[n++] = v;
    }
    memcpy(p->order, scratch, sizeof(int) * (size_t)p->n);
    return true;
}

// Moves one value, mostly one of those that end highest, to another place in the order; keeps the move unless the
// packing grows. Ties are kept, so the search drifts over plateaus. The generator always has the same seed.
static void climb(Packer *p, int64_t height, bool tight, int64_t until, int *saved) {
    uint64_t random = 0x9e3779b97f4a7c15u;
    while (p->height > p->target && p->work > until) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        uint64_t pick = random >> 33;
        int from = (int)(pick % (uint64_t)p->n);
        if (pick & 0x40000000) // the next one from there on that sticks out
            for (int k = 0; k < p->n && p->offset[p->order[from]] + p->size[p->order[from]] < height; k++)
                from = (from + 1) % p->n;
        random = random * 6364136223846793005u + 1442695040888963407u;
        int to = (int)((random >> 33) % (uint64_t)p->n), v = p->order[from];
        memcpy(saved, p->order, sizeof(int) * (size_t)p->n);
        if (to < from) memmove(&p->order[to + 1], &p->order[to], sizeof(int) * (size_t)(from - to));
        else memmove(&p->order[from], &p->order[from + 1], sizeof(int) * (size_t)(to - from));
        p->order[to] = v;
        int64_t now = pack_in_order(p, tight);
        if (now <= height) height = now;
        else memcpy(p->order, saved, sizeof(int) * (size_t)p->n);
    }
}

static void search(Packer *p, int *scratch) {
    int64_t height[N_ORDERS][2];
    for (int i = 0; i < N_ORDERS; i++) {
        for (int tight = 0; tight < 2; tight++) {
            choose_order(p, i, scratch);
            height[i][tight] = pack_in_order(p, tight);
            if (p->height <= p->target || p->work <= 0) return;
        }
    }
    // Improves each start in turn, best first, with an equal share of the remaining work.
    bool done[N_ORDERS][2] = {{false}};
    int64_t share = p->work / 6;
    for (int round = 0; round < 2 * N_ORDERS && p->work > 0; round++) {
        int bi = -1, bt = 0;
        for (int i = 0; i < N_ORDERS; i++)
            for (int t = 0; t < 2; t++)
                if (!done[i][t] && (bi < 0 || height[i][t] < height[bi][bt])) bi = i, bt = t;
        done[bi][bt] = true;
        choose_order(p, bi, scratch);
        int64_t h = pack_in_order(p, bt), until = p->work - share;
        while (p->height > p->target && p->work > until + share / 2 && p->work > 0) {
            int64_t level = h - 1 < p->height - 1 ? h - 1 : p->height - 1;
            if (level < p->target) level = p->target;
            if (!blame(p, level, scratch)) break;
            h = pack_in_order(p, bt);
        }
        climb(p, h, bt, until > 0 ? until : 0, scratch);
        if (p->height <= p->target) return;
    }
}

// --- from both ends

// Storages that go high come first, then long lives, then the rest.
static void choose_ends_order(Packer *p, int which, int64_t is_long, int *scratch) {
    const int64_t LONG = INT64_C(1) << 61, MOST = LONG - 1;
    for (int i = 0; i < p->n; i++) {
        const Interval *v = &p->values[i];
        int64_t life = v->upper - v->lower, size = p->size[i];
        int64_t area = size > MOST / (life + 1) ? MOST : size * life;
        const int64_t keys[ENDS_ORDERS][2] = {{area, size}, {size, v->lower}, {size, -v->lower}, {size, life}};
        p->key[i] = lesser(keys[which][0], MOST);
        p->key2[i] = keys[which][1];
        if (p->high[i] || life > is_long) p->key[i] = LONG + lesser(life, MOST);
        p->order[i] = i;
    }
    sort_order(p, scratch);
}

// The first value that ends above the ceiling goes to the front of the order, and packing starts again.
static bool packs_under(Packer *p) {
    for (int round = 0; round < ENDS_ROUNDS && p->work > 0; round++) {
        p->failed = -1;
        if (pack_in_order(p, false) <= p->ceiling) return true;
        if (p->failed < 0) return false;
        int v = p->order[p->failed];
        memmove(&p->order[1], &p->order[0], sizeof(int) * (size_t)p->failed);
        p->order[0] = v;
    }
    return false;
}

static void pack_from_ends(Packer *p, int64_t bound, int *scratch, Arena *a) {
    int64_t first = INT64_MAX, last = INT64_MIN;
    bool *high = HD_NEWN(a, bool, p->n), found = false;
    for (int i = 0; i < p->n; i++) {
        first = lesser(first, p->values[i].lower);
        last = greater(last, p->values[i].upper);
    }
    for (int i = 0; i < p->n; i++) high[i] = p->values[i].upper >= last - (last - first) / 64;
    p->high = high;
    for (p->ceiling = p->target; p->ceiling < p->height && p->work > 0 && !found; p->ceiling += bound / 1024 + 1)
        for (int i = 0; i < ENDS_ORDERS && p->work > 0 && !found; i++) {
            choose_ends_order(p, i, (last - first) / 14, scratch);
            found = packs_under(p);
        }
    p->high = NULL;
}

// Searches for lower packings than the best one: first at the bound or the capacity, by most of the work, then 1 %
// above it, then halfway between sizes that were found and sizes that were not. Where the whole arena is within 1 % of
// the least, it has an eighth of the work.
static void search_deeper(Packer *p, int64_t bound, PackRoom *room) {
    int64_t below = bound, at = greater(room->capacity, bound);
    for (int i = 0; i < SEARCH_TRIES && p->height > p->target && p->height - bound > bound / 100; i++) {
        const int64_t most = SEARCH_WORK / (1 + p->n / SEARCH_VALUES);
        const int64_t all = p->height - bound > (room->base + bound) / 100 ? most : most / 8;
        const int64_t work = i ? all / 4 / (SEARCH_TRIES - 1) : all / 4 * 3;
        const bool done = i == 0 && room->early; // it failed before
        if (done || hd_pack_search(p->n, p->values, p->best, at, work, 0)) below = at;
        else p->height = hd_pack_height(p->n, p->values, p->best);
        at = i ? below + (p->height - below) / 2 : lesser(p->height - 1, at + bound / 100);
        room->steps += work;
    }
}

// Packings that the searches find soon, before packing from both ends takes longer.
static void search_early(Packer *p, PackRoom *room) {
    const bool found = !hd_pack_slices(p->n, p->values, p->best, SLICES_WORK) ||
                       (room->early && !hd_pack_search(p->n, p->values, p->best, room->capacity, room->early, 0));
    if (found) p->height = hd_pack_height(p->n, p->values, p->best);
    room->steps += SLICES_WORK + room->early;
}

static Packer packer(int n, int fixed, const Interval *values, Arena *a) {
    Packer p = {.n = n, .fixed = fixed, .values = values, .height = INT64_MAX};
    p.size = HD_NEWN(a, int64_t, n);
    p.offset = HD_NEWN(a, int64_t, n);
    p.best = HD_NEWN(a, int64_t, n);
    int most_blocks = n / (BLOCK / 2) + 1; // all but one are half full at least
    p.blocks = HD_NEWN(a, Block *, most_blocks);
    p.pool = HD_NEWN(a, Block, most_blocks);
    p.order = HD_NEWN(a, int, n);
    p.key = HD_NEWN(a, int64_t, n);
    p.key2 = HD_NEWN(a, int64_t, n);
    p.contention = HD_NEWN(a, int64_t, n);
    for (int i = 0; i < n; i++) p.size[i] = hd_align_to(values[i].size, values[i].align);
    find_contention(&p, a);
    return p;
}

static void search_within(Packer *p, int64_t work, int *scratch, PackRoom *room) {
    p->work = work;
    search(p, scratch);
    room->steps += work - p->work;
}

// Packings that stay far above the bound are searched for as well.
static void search_deep(Packer *p, int64_t bound, PackRoom *room) {
    if (p->fixed || p->height <= p->target || p->height - bound <= bound / 100) return;
    const int64_t work = DEEP_WORK / (1 + p->n / SEARCH_VALUES);
    if (!hd_pack_search(p->n, p->values, p->best, greater(room->capacity, bound), work, 0))
        p->height = hd_pack_height(p->n, p->values, p->best);
    room->steps += work;
}

// A packing at most 1 % above the bound, so that a plan with graphs, whose bound is higher, is within 1 % of one
// without.
static void search_near(Packer *p, int64_t bound, PackRoom *room) {
    const int64_t work = SEARCH_WORK / 8 / (1 + p->n / SEARCH_VALUES);
    if (p->height <= p->target || p->height - bound <= bound / NEAR || p->height - bound > bound / 100) return;
    if (!hd_pack_search(p->n, p->values, p->best, greater(room->capacity, bound + bound / NEAR), work, 0))
        p->height = hd_pack_height(p->n, p->values, p->best);
    room->steps += work;
}

static void search_long(Packer *p, int64_t bound, int *scratch, PackRoom *room, Arena *a) {
    search_within(p, WORK, scratch, room);
    if (p->fixed) return; // with fixed values the rest takes long, and finds nothing
    search_near(p, bound, room);
    if (p->height > p->target && p->height - bound > bound / 100) search_early(p, room);
    if (p->height > p->target && p->height - bound > bound / 100) {
        p->work = ENDS_WORK;
        pack_from_ends(p, bound, scratch, a);
        room->steps += ENDS_WORK - p->work;
    }
    search_deeper(p, bound, room);
    if (p->height > p->target && p->height - bound > bound / 100) search_within(p, LAST_WORK, scratch, room);
}

int hd_pack_into(int n, int fixed, const Interval *values, int64_t *offset, PackRoom *room) {
    if (n == 0) return 0;
    Arena *a = hd_arena_new();
    const int64_t bound = hd_pack_lower_bound(n, values);
    int *scratch = HD_NEWN(a, int, n);
    Packer p = packer(n, fixed, values, a);
    p.at = room->at;
    p.target = room->capacity > bound ? room->capacity : bound + bound / 2048;
    if (room->effort) search_within(&p, BRIEF_WORK + BRIEF_EACH * n, scratch, room);
    if (room->effort > PACK_BRIEF && p.height > room->enough) search_deep(&p, bound, room);
    const bool more = room->effort == PACK_AT_ONCE || room->effort == PACK_BY_STAGES;
    if (more && p.height > p.target && p.height > room->enough) search_long(&p, bound, scratch, room, a);
    memcpy(offset, p.best, sizeof(int64_t) * (size_t)n);
    hd_arena_free(a);
    return room->capacity > 0 && p.height > room->capacity;
}

int hd_pack(int n, int fixed, const Interval *values, int64_t *offset, int64_t capacity) {
    return hd_pack_into(n, fixed, values, offset, &(PackRoom){.capacity = capacity});
}
