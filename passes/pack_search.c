// Packing into a given capacity by search, for what orders and climbs (pack.c) leave open: instances whose fullest times have little
// or no slack. After Moffitt, "MiniMalloc: A Lightweight Memory Allocator for Hardware-Accelerated Machine Learning" (ASPLOS 2023):
//   - canonical packings only: values are placed by ascending offset (ties by a fixed rank), each at 0 or on top of another one;
//   - a section is a time at which a maximal set of values is alive; where the lowest place left in a section and the sum of what is
//     still to come there exceed the capacity, the branch ends;
//   - a place above which some waiting value would have fitted is never needed: lowering that one gives a packing as good;
//   - values alike in life and size are placed in one order;
//   - what is unplaced falls apart into spans of time that share no value; they are solved one by one, and one that has no
//     solution ends the branch;
//   - restarts in several orders of rank, with limits that double; sections that ended many branches come first in later ranks.
// The work is bounded by steps counted, so equal inputs give equal packings; a limit in seconds is for tools only.
#define _POSIX_C_SOURCE 200809L
#include "passes/pack.h"
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef enum { FOUND, NONE, STOPPED } Result;
enum { N_RANKINGS = 6 };
static const int64_t MOST_MEMBERS = 8 * 1000 * 1000; // of all sections together: what the search keeps in memory

typedef struct {
    int64_t size, align, low;  // low: the lowest offset left to it, above everything placed that it overlaps
    int first, end;            // sections in which it is alive
    int rank, twin;            // twin: the value just like it that must be placed before, or -1
    bool placed;
} Box;
typedef struct { int box; int64_t low; } LowChange;
typedef struct { int section; int64_t floor; } FloorChange;

typedef struct {
    int n, n_sections;
    Box *box;
    int64_t *offset, *rest, *floor; // by section: bytes not yet placed; the lowest `low` of those
    int64_t *full, *fails;          // by section: bytes of all its values; branches that it ended
    int *member, *members;          // members of section s: member[members[s] .. members[s + 1])
    int64_t capacity, steps, all_steps;
    double until;                   // of the monotonic clock; 0: no limit
    bool late;
    int *dirty;                     // by section: the last placement after which its floor was computed anew
    int placements;
    int *stack;                     // lists of waiting values and candidates, one behind the other
    int stack_top, stack_size;
    LowChange *lows;
    FloorChange *floors;
    int n_lows, n_floors, lows_size, floors_size;
} Search;

static int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) & ~(to - 1); }

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void *grow(void *at, int *size, int n, size_t each) {
    if (n <= *size) return at;
    while (*size < n) *size = *size ? 2 * *size : 1024;
    at = realloc(at, (size_t)*size * each);
    if (!at) abort();
    return at;
}

// --- placing and taking back

static void recompute_floor(Search *s, int section) {
    if (s->dirty[section] == s->placements || s->rest[section] == 0) return;
    s->dirty[section] = s->placements;
    int64_t floor = INT64_MAX;
    for (int i = s->members[section]; i < s->members[section + 1]; i++) {
        const Box *b = &s->box[s->member[i]];
        if (!b->placed && b->low < floor) floor = b->low;
    }
    s->steps -= s->members[section + 1] - s->members[section];
    if (floor == s->floor[section] || floor == INT64_MAX) return;
    s->floors = grow(s->floors, &s->floors_size, s->n_floors + 1, sizeof(FloorChange));
    s->floors[s->n_floors++] = (FloorChange){section, s->floor[section]};
    s->floor[section] = floor;
}

// Places value v at its lowest offset; `list` are the values that wait in its span of time.
static void place(Search *s, int v, const int *list, int n) {
    Box *b = &s->box[v];
    int64_t top = b->low + b->size;
    b->placed = true;
    s->offset[v] = b->low;
    s->placements++;
    for (int k = b->first; k < b->end; k++) s->rest[k] -= b->size;
    int from = s->n_lows;
    s->lows = grow(s->lows, &s->lows_size, s->n_lows + n, sizeof(LowChange));
    for (int i = 0; i < n; i++) {
        Box *u = &s->box[list[i]];
        if (u->placed || u->low >= top || u->end <= b->first || u->first >= b->end) continue;
        s->lows[s->n_lows++] = (LowChange){list[i], u->low};
        u->low = round_up(top, u->align);
    }
    for (int k = b->first; k < b->end; k++)
        if (s->floor[k] == b->low) recompute_floor(s, k);
    for (int i = from; i < s->n_lows; i++) {
        const Box *u = &s->box[s->lows[i].box];
        for (int k = u->first; k < u->end; k++)
            if (s->floor[k] == s->lows[i].low) recompute_floor(s, k);
        s->steps -= u->end - u->first;
    }
    s->steps -= 2 * n;
}

static void take_back(Search *s, int v, int n_lows, int n_floors) {
    Box *b = &s->box[v];
    while (s->n_floors > n_floors) s->n_floors--, s->floor[s->floors[s->n_floors].section] = s->floors[s->n_floors].floor;
    while (s->n_lows > n_lows) s->n_lows--, s->box[s->lows[s->n_lows].box].low = s->lows[s->n_lows].low;
    for (int k = b->first; k < b->end; k++) s->rest[k] += b->size;
    b->placed = false;
}

// --- the tree

// Whether all sections of the span can still hold what waits there, given that nothing is placed below `at` any more.
static bool holds(Search *s, int first, int end, int64_t at) {
    for (int k = first; k < end; k++) {
        int64_t floor = s->floor[k] > at ? s->floor[k] : at;
        if (s->rest[k] > 0 && floor + s->rest[k] > s->capacity) {
            s->fails[k]++;
            return false;
        }
    }
    return true;
}

static bool comes_before(const Box *a, const Box *b) { return a->low != b->low ? a->low < b->low : a->rank < b->rank; }

// The values that may be placed next, best first, on the stack; returns how many.
static int find_candidates(Search *s, const int list, int n, int64_t at, int rank, int first, int end) {
    int64_t limit = INT64_MAX; // whatever is placed at or above it wastes something that is needed
    for (int i = 0; i < n; i++) {
        const Box *b = &s->box[s->stack[list + i]];
        if (b->low + b->size - 1 < limit) limit = b->low + b->size - 1;
    }
    for (int k = first; k < end; k++)
        if (s->rest[k] > 0 && s->capacity - s->rest[k] < limit) limit = s->capacity - s->rest[k];
    s->stack = grow(s->stack, &s->stack_size, s->stack_top + n, sizeof(int));
    int *out = s->stack + s->stack_top, n_out = 0;
    for (int i = 0; i < n; i++) {
        int v = s->stack[list + i];
        const Box *b = &s->box[v];
        if (b->low > limit || b->low < at || (b->low == at && b->rank < rank)) continue;
        if (b->twin >= 0 && !s->box[b->twin].placed) continue;
        int k = n_out++;
        for (; k > 0 && comes_before(b, &s->box[out[k - 1]]); k--) out[k] = out[k - 1];
        out[k] = v;
    }
    s->stack_top += n_out;
    s->steps -= 2 * n + (end - first);
    return n_out;
}

static Result solve(Search *s, int list, int n, int64_t at, int rank);

// The values of the list that wait, split where no value is alive on both sides; each part is solved.
static Result solve_parts(Search *s, int list, int n, int64_t at, int rank) {
    s->stack = grow(s->stack, &s->stack_size, s->stack_top + n, sizeof(int));
    int start = s->stack_top, m = 0;
    for (int i = 0; i < n; i++)
        if (!s->box[s->stack[list + i]].placed) s->stack[start + m++] = s->stack[list + i];
    s->stack_top += m;
    Result r = FOUND;
    for (int i = 0; i < m && r == FOUND;) {
        int from = i, end = s->box[s->stack[start + i]].end;
        for (; i < m && s->box[s->stack[start + i]].first < end; i++)
            if (s->box[s->stack[start + i]].end > end) end = s->box[s->stack[start + i]].end;
        r = solve(s, start + from, i - from, at, rank);
    }
    s->stack_top = start;
    return r;
}

// Places the n values of one span of time, sorted by their first section, at `at` or above. What is found stays placed in `offset`;
// the marks are taken back either way.
static Result solve(Search *s, int list, int n, int64_t at, int rank) {
    if (s->steps <= 0 || s->late) return STOPPED;
    if (s->until > 0 && (s->placements & 255) == 0 && now() > s->until) s->late = true;
    int first = s->box[s->stack[list]].first, end = 0, base = s->stack_top;
    for (int i = 0; i < n; i++)
        if (s->box[s->stack[list + i]].end > end) end = s->box[s->stack[list + i]].end;
    int n_candidates = find_candidates(s, list, n, at, rank, first, end);
    Result r = NONE;
    for (int c = 0; c < n_candidates && r == NONE; c++) {
        int v = s->stack[base + c], n_lows = s->n_lows, n_floors = s->n_floors;
        int64_t low = s->box[v].low;
        place(s, v, s->stack + list, n);
        if (holds(s, first, end, low)) r = solve_parts(s, list, n, low, s->box[v].rank);
        take_back(s, v, n_lows, n_floors);
    }
    s->stack_top = base;
    return r;
}

// --- sections and ranks

typedef struct { int64_t key[3]; int id; } Sorted; // ascending by keys, then by id

static int by_keys(const void *x, const void *y) {
    const Sorted *a = x, *b = y;
    for (int i = 0; i < 3; i++)
        if (a->key[i] != b->key[i]) return a->key[i] < b->key[i] ? -1 : 1;
    return a->id < b->id ? -1 : a->id > b->id;
}

// A section stands where a start is followed by an end: the values alive there are a maximal set, and two values overlap when they
// share a section. Values without bytes or without a life stay out. Returns the sum of the sections' sizes.
static int64_t find_sections(Search *s, Arena *a, const Interval *values) {
    Sorted *events = HD_NEWN(a, Sorted, 2 * s->n + 1);
    int n = 0, section = -1;
    for (int i = 0; i < s->n; i++) {
        s->box[i] = (Box){.size = round_up(values[i].size, values[i].align), .align = values[i].align, .twin = -1};
        if (values[i].size <= 0 || values[i].lower >= values[i].upper) continue;
        events[n++] = (Sorted){{values[i].lower, 1, 0}, i};
        events[n++] = (Sorted){{values[i].upper, 0, 0}, i}; // ends before starts: lives are half open
    }
    qsort(events, (size_t)n, sizeof(Sorted), by_keys);
    int64_t sum = 0;
    for (int i = 0; i < n; i++) {
        Box *b = &s->box[events[i].id];
        if (!events[i].key[1]) {
            b->end = section + 1;
            sum += b->end - b->first;
            continue;
        }
        if (i == 0 || !events[i - 1].key[1]) section++;
        b->first = section;
    }
    s->n_sections = section + 1;
    return sum;
}

static void fill_sections(Search *s, Arena *a, int64_t sum) {
    int n = s->n_sections;
    s->rest = HD_NEWN(a, int64_t, n + 1);
    s->floor = HD_NEWN(a, int64_t, n + 1);
    s->full = HD_NEWN(a, int64_t, n + 1);
    s->fails = HD_NEWN(a, int64_t, n + 1);
    s->dirty = HD_NEWN(a, int, n + 1);
    s->members = HD_NEWN(a, int, n + 2);
    s->member = HD_NEWN(a, int, (int)sum + 1);
    for (int i = 0; i < s->n; i++)
        for (int k = s->box[i].first; k < s->box[i].end; k++) s->members[k + 2]++, s->full[k] += s->box[i].size;
    for (int k = 0; k < n; k++) s->members[k + 2] += s->members[k + 1], s->rest[k] = s->full[k];
    for (int i = 0; i < s->n; i++)
        for (int k = s->box[i].first; k < s->box[i].end; k++) s->member[s->members[k + 1]++] = i;
}

// Ranks by three keys, largest first. T: the fullest section of a life; W: how many sections it has; A: its area; S: the size;
// F: the fails at its worst section.
static void rank_boxes(Search *s, const Interval *values, Sorted *sorted, int which) {
    enum { T, W, A, S, F };
    static const int rankings[N_RANKINGS][3] = {{T, W, A}, {W, A, T}, {T, A, W}, {A, W, T}, {F, A, W}, {T, S, W}};
    for (int i = 0; i < s->n; i++) {
        const Box *b = &s->box[i];
        int64_t life = values[i].upper - values[i].lower, key[] = {0, b->end - b->first, 0, b->size, 0};
        key[A] = b->size > INT64_MAX / (life + 1) ? INT64_MAX : b->size * life;
        for (int k = b->first; k < b->end; k++) {
            if (s->full[k] > key[T]) key[T] = s->full[k];
            if (s->fails[k] > key[F]) key[F] = s->fails[k];
        }
        for (int k = 0; k < 3; k++) sorted[i].key[k] = -key[rankings[which][k]];
        sorted[i].id = i;
    }
    qsort(sorted, (size_t)s->n, sizeof(Sorted), by_keys);
    for (int i = 0; i < s->n; i++) s->box[sorted[i].id].rank = i;
    for (int k = 0; k < s->n_sections; k++) s->fails[k] /= 2; // what failed lately counts most
}

// Chains values that are alike in the order of their ranks.
static void find_twins(Search *s, Sorted *sorted) {
    for (int i = 0; i < s->n; i++) {
        const Box *b = &s->box[i];
        sorted[i] = (Sorted){{((int64_t)b->first << 32) | b->end, b->size, b->rank}, i};
    }
    qsort(sorted, (size_t)s->n, sizeof(Sorted), by_keys);
    for (int i = 1; i < s->n; i++) {
        const Sorted *x = &sorted[i - 1], *y = &sorted[i];
        bool alike = x->key[0] == y->key[0] && x->key[1] == y->key[1] && s->box[x->id].align == s->box[y->id].align;
        s->box[y->id].twin = alike ? x->id : -1;
    }
}

static Result search(Search *s, const Interval *values, Arena *a) {
    Sorted *sorted = HD_NEWN(a, Sorted, s->n);
    int *list = HD_NEWN(a, int, s->n), n = 0;
    for (int i = 0; i < s->n; i++) sorted[i] = (Sorted){{s->box[i].first, 0, 0}, i};
    qsort(sorted, (size_t)s->n, sizeof(Sorted), by_keys);
    for (int i = 0; i < s->n; i++)
        if (s->box[sorted[i].id].end > 0) list[n++] = sorted[i].id;
    int64_t share = 64 * (int64_t)s->n * s->n;
    if (share > s->all_steps / (2 * N_RANKINGS)) share = s->all_steps / (2 * N_RANKINGS) + 1; // each ranking is to have its turn
    for (int round = 0; s->all_steps > 0 && !s->late; round++) {
        if (round > 0 && round % N_RANKINGS == 0) share *= 2;
        rank_boxes(s, values, sorted, round % N_RANKINGS);
        find_twins(s, sorted);
        int64_t given = s->steps = share < s->all_steps ? share : s->all_steps;
        s->stack_top = s->n_lows = s->n_floors = 0;
        s->stack = grow(s->stack, &s->stack_size, n, sizeof(int));
        memcpy(s->stack, list, sizeof(int) * (size_t)n);
        s->stack_top = n;
        Result r = solve_parts(s, 0, n, 0, -1);
        if (r != STOPPED) return r;
        s->all_steps -= given - s->steps;
    }
    return STOPPED;
}

int hd_pack_search(int n, const Interval *values, int64_t *offset, int64_t capacity, int64_t steps, double seconds) {
    if (hd_pack_lower_bound(n, values) > capacity) return 1;
    Arena *a = hd_arena_new();
    Search s = {.n = n, .capacity = capacity, .all_steps = steps, .until = seconds > 0 ? now() + seconds : 0};
    s.box = HD_NEWN(a, Box, n + 1);
    s.offset = HD_NEWN(a, int64_t, n + 1);
    int64_t sum = find_sections(&s, a, values);
    Result r = STOPPED;
    if (sum <= MOST_MEMBERS) {
        fill_sections(&s, a, sum);
        r = search(&s, values, a);
    }
    if (r == FOUND) memcpy(offset, s.offset, sizeof(int64_t) * (size_t)n);
    free(s.stack);
    free(s.lows);
    free(s.floors);
    hd_arena_free(a);
    return r != FOUND;
}
