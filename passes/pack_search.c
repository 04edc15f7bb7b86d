// Packing into a given capacity by search, for what orders and climbs (pack.c) leave open: instances whose fullest times have little
// or no slack. Values are placed bottom up: in any packing, moved down as far as it goes, every value rests on another one or at 0, so
// placing each at the lowest offset that those below it leave (`low`) reaches it, whatever order keeps the lower of two overlapping
// values first. The search uses that freedom:
//   - a section is a time at which a maximal set of values is alive. The lowest value still to come in section k lies at most at
//     capacity - rest(k), where rest(k) is what is still to come there. So the next placement may be sought among the values that can
//     be that one, and those that can lie below them (`find_choices`): all of a section's choices are a branching that misses nothing;
//   - branches start where the choices are fewest, so a place that nothing can fill ends the branch at once, wherever it is;
//   - placements that do not overlap commute: a value whose branch failed sleeps, and is no choice again, until a value that overlaps
//     it has been placed (sleep sets, Godefroid 1996). Until then its place lies above some value that it overlaps (`later`);
//   - where the lowest place left in a section and rest(k) exceed the capacity, the branch ends (section inference, as all of the
//     following after Moffitt, "MiniMalloc", ASPLOS 2023); sections that ended many branches come first in later ranks;
//   - a value whose place nobody else can use is placed at once; values alike in life and size are placed in one order;
//   - what is unplaced falls apart into spans of time that share no value; they are solved one by one;
//   - restarts in several orders of rank, with limits that double.
// The work is bounded by steps counted, so equal inputs give equal packings; a limit in seconds is for tools only.
#define _POSIX_C_SOURCE 200809L
#include "passes/pack.h"
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef enum { FOUND, NONE, STOPPED } Result;
enum { N_RANKINGS = 6, N_STRATEGIES = 3, MOST_LOOKED_AT = 4 };
static const int64_t MOST_LISTED = 8 * 1000 * 1000; // members of sections, and neighbours of values: what the search keeps in memory

// Which section to branch on: the one with the fewest choices among some whose score is least, the score being how many values may be
// lowest there plus this weight times how low that is, as a part of the capacity. The last one all but goes by offset.
static const struct { double weight; int looked_at; } strategies[N_STRATEGIES] = {{8, MOST_LOOKED_AT}, {1, 2}, {1000, 1}};

typedef struct {
    int64_t size, align;
    int64_t low, later; // the lowest offset left to it; while it sleeps, a lower one than it can get
    int first, end;     // sections in which it is alive
    int rank, twin;     // twin: the value just like it that must be placed before, or -1
    bool placed, asleep;
} Box;
typedef enum { SET_PLACED, SET_LOW, SET_LATER, SET_ASLEEP, SET_FLOOR } ChangeKind;
typedef struct { ChangeKind kind; int at; int64_t was; } Undo;
typedef struct { int n, size; int *at; } Ints;

typedef struct {
    int n, n_sections;
    Box *box;
    int64_t *offset, *rest, *floor; // by section: bytes not yet placed; the lowest place left to those
    int64_t *full, *fails;          // by section: bytes of all its values; branches that it ended
    int *member, *members;          // members of section s: member[members[s] .. members[s + 1])
    int *neighbour, *neighbours;    // values that overlap value v, likewise
    int64_t capacity, steps, nodes, node_limit;
    double until;                   // of the monotonic clock; 0: no limit
    bool late;
    int strategy;
    Undo *trail;
    int n_trail, trail_size;
    Ints stack, queue;              // lists of waiting values and choices, one behind the other; work list of find_choices
    int64_t *most;                  // find_choices: the highest offset at which a value of the set may lie
    int *in_set, *touched;          // marks: the run of find_choices, the placement
    int run, placements;
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

static void push(Ints *v, int x) {
    v->at = grow(v->at, &v->size, v->n + 1, sizeof(int));
    v->at[v->n++] = x;
}

// --- placing and taking back

static void note(Search *s, ChangeKind kind, int at, int64_t was) {
    s->trail = grow(s->trail, &s->trail_size, s->n_trail + 1, sizeof(Undo));
    s->trail[s->n_trail++] = (Undo){kind, at, was};
}

static void take_back(Search *s, int to) {
    while (s->n_trail > to) {
        const Undo *u = &s->trail[--s->n_trail];
        switch (u->kind) {
        case SET_PLACED:
            s->box[u->at].placed = false;
            for (int k = s->box[u->at].first; k < s->box[u->at].end; k++) s->rest[k] += s->box[u->at].size;
            break;
        case SET_LOW: s->box[u->at].low = u->was; break;
        case SET_LATER: s->box[u->at].later = u->was; break;
        case SET_ASLEEP: s->box[u->at].asleep = u->was != 0; break;
        case SET_FLOOR: s->floor[u->at] = u->was; break;
        }
    }
}

static int64_t lowest(const Box *b) { return b->asleep ? b->later : b->low; }

// The floor of a section anew; false: what waits there does not fit above it.
static bool find_floor(Search *s, int section) {
    if (s->rest[section] == 0) return true;
    int64_t floor = INT64_MAX;
    for (int i = s->members[section]; i < s->members[section + 1]; i++) {
        const Box *b = &s->box[s->member[i]];
        if (!b->placed && lowest(b) < floor) floor = lowest(b);
    }
    s->steps -= s->members[section + 1] - s->members[section];
    if (floor != s->floor[section]) {
        note(s, SET_FLOOR, section, s->floor[section]);
        s->floor[section] = floor;
    }
    if (floor + s->rest[section] <= s->capacity) return true;
    s->fails[section]++;
    return false;
}

static bool find_floors(Search *s, const Box *b) {
    for (int k = b->first; k < b->end; k++) {
        if (s->touched[k] == s->placements) continue;
        s->touched[k] = s->placements;
        if (!find_floor(s, k)) return false;
    }
    return true;
}

// Places value v at its lowest offset; what overlaps it wakes up and moves above it. false: a section cannot hold the rest.
static bool place(Search *s, int v) {
    Box *b = &s->box[v];
    int64_t top = b->low + b->size;
    int from = s->n_trail;
    note(s, SET_PLACED, v, 0);
    b->placed = true;
    s->offset[v] = b->low;
    s->placements++;
    for (int k = b->first; k < b->end; k++) s->rest[k] -= b->size;
    for (int i = s->neighbours[v]; i < s->neighbours[v + 1]; i++) {
        Box *u = &s->box[s->neighbour[i]];
        if (u->placed) continue;
        if (u->asleep) note(s, SET_ASLEEP, s->neighbour[i], 1);
        u->asleep = false;
        if (u->low >= top) continue;
        note(s, SET_LOW, s->neighbour[i], u->low);
        u->low = round_up(top, u->align);
    }
    s->steps -= s->neighbours[v + 1] - s->neighbours[v];
    if (!find_floors(s, b)) return false;
    for (int i = from + 1, end = s->n_trail; i < end; i++)
        if (s->trail[i].kind != SET_FLOOR && !find_floors(s, &s->box[s->trail[i].at])) return false;
    return true;
}

// The branch of v has failed: it sleeps. false: then nothing fits any more.
static bool put_to_sleep(Search *s, int v) {
    Box *b = &s->box[v];
    int64_t later = INT64_MAX;
    for (int i = s->neighbours[v]; i < s->neighbours[v + 1]; i++) {
        const Box *u = &s->box[s->neighbour[i]];
        if (!u->placed && lowest(u) + u->size < later) later = lowest(u) + u->size;
    }
    if (later == INT64_MAX) return false; // nothing is left that could lie below it
    note(s, SET_LATER, v, b->later);
    note(s, SET_ASLEEP, v, 0);
    b->later = later > b->low ? round_up(later, b->align) : b->low;
    b->asleep = true;
    s->placements++;
    s->steps -= s->neighbours[v + 1] - s->neighbours[v];
    return find_floors(s, b);
}

// --- where to go on

static bool may_be_next(const Search *s, const Box *b) { return !b->asleep && (b->twin < 0 || s->box[b->twin].placed); }

// Adds a value that may lie at up to `most` to the set, and to the choices on the stack when it may be placed next.
static void add_to_set(Search *s, int v, int64_t most) {
    if (s->in_set[v] == s->run) {
        if (most <= s->most[v]) return;
    } else if (may_be_next(s, &s->box[v])) {
        push(&s->stack, v);
    }
    s->in_set[v] = s->run;
    s->most[v] = most;
    push(&s->queue, v);
}

// Values one of which is placed next, in every packing that this branch can reach: pushes them and returns how many. The lowest value
// still to come in the section is at capacity - rest or below; if it is not the next, then because of values that lie below it.
static int find_choices(Search *s, int section) {
    int base = s->stack.n;
    s->run++;
    s->queue.n = 0;
    for (int i = s->members[section]; i < s->members[section + 1]; i++) {
        int v = s->member[i];
        int64_t most = s->capacity - s->rest[section];
        if (!s->box[v].placed && lowest(&s->box[v]) <= most) add_to_set(s, v, most);
    }
    for (int q = 0; q < s->queue.n; q++) {
        int v = s->queue.at[q];
        for (int i = s->neighbours[v]; i < s->neighbours[v + 1]; i++) {
            const Box *u = &s->box[s->neighbour[i]];
            int64_t most = s->most[v] - u->size;
            if (!u->placed && lowest(u) <= most) add_to_set(s, s->neighbour[i], most);
        }
        s->steps -= s->neighbours[v + 1] - s->neighbours[v];
    }
    return s->stack.n - base;
}

// How little there is to choose from in a section; anything above `most` when it is no less than that.
static double score_section(Search *s, int section, double most) {
    int64_t limit = s->capacity - s->rest[section];
    double score = strategies[s->strategy].weight * (double)limit / (double)s->capacity;
    for (int i = s->members[section]; i < s->members[section + 1] && score < most; i++) {
        const Box *b = &s->box[s->member[i]];
        score += !b->placed && lowest(b) <= limit;
    }
    s->steps -= s->members[section + 1] - s->members[section];
    return score;
}

// The sections with the least scores, at most n; returns how many.
static int best_sections(Search *s, int first, int end, int *best, int n) {
    double scores[MOST_LOOKED_AT];
    int found = 0;
    for (int k = first; k < end; k++) {
        if (s->rest[k] == 0) continue;
        double score = score_section(s, k, found == n ? scores[n - 1] : 1e300);
        if (found == n && score >= scores[n - 1]) continue;
        int at = found < n ? found++ : n - 1;
        for (; at > 0 && scores[at - 1] > score; at--) scores[at] = scores[at - 1], best[at] = best[at - 1];
        scores[at] = score;
        best[at] = k;
    }
    return found;
}

static bool comes_before(const Box *a, const Box *b) { return a->low != b->low ? a->low < b->low : a->rank < b->rank; }

// The fewest choices among some promising sections, best value first, on the stack.
static int choose(Search *s, int first, int end) {
    int section[MOST_LOOKED_AT], n = best_sections(s, first, end, section, strategies[s->strategy].looked_at);
    int best = 0, fewest = INT32_MAX, base = s->stack.n;
    for (int i = 0; i < n; i++) {
        int count = find_choices(s, section[i]);
        s->stack.n = base;
        if (count < fewest) fewest = count, best = i;
    }
    int count = find_choices(s, section[best]);
    for (int i = 1; i < count; i++) {
        int *list = s->stack.at + base, v = list[i], k = i;
        for (; k > 0 && comes_before(&s->box[v], &s->box[list[k - 1]]); k--) list[k] = list[k - 1];
        list[k] = v;
    }
    return count;
}

// A value of the list whose place nobody else can use: the space from its lowest offset to its top lies below all that it overlaps.
static int find_forced(Search *s, int list, int n) {
    for (int i = 0; i < n; i++) {
        int v = s->stack.at[list + i], k = s->neighbours[v], end = s->neighbours[v + 1];
        int64_t top = s->box[v].low + s->box[v].size;
        for (; k < end; k++) {
            const Box *u = &s->box[s->neighbour[k]];
            if (!u->placed && lowest(u) < top) break;
        }
        s->steps -= k - s->neighbours[v] + 1;
        if (k == end) return v;
    }
    return -1;
}

// --- the tree

static Result solve(Search *s, int list, int n);

// The values of the list that wait, split where no value is alive on both sides; each part is solved.
static Result solve_parts(Search *s, int list, int n) {
    int start = s->stack.n, m = 0;
    for (int i = 0; i < n; i++)
        if (!s->box[s->stack.at[list + i]].placed) push(&s->stack, s->stack.at[list + i]), m++;
    Result r = FOUND;
    for (int i = 0; i < m && r == FOUND;) {
        int from = i, end = s->box[s->stack.at[start + i]].end;
        for (; i < m && s->box[s->stack.at[start + i]].first < end; i++)
            if (s->box[s->stack.at[start + i]].end > end) end = s->box[s->stack.at[start + i]].end;
        r = solve(s, start + from, i - from);
    }
    s->stack.n = start;
    return r;
}

static Result branch(Search *s, int v, int list, int n) {
    int before = s->n_trail;
    Result r = place(s, v) ? solve_parts(s, list, n) : NONE;
    take_back(s, before);
    return r;
}

// Places the n values of one span of time, sorted by their first section. What is found stays in `offset`; the marks are taken back
// either way.
static Result solve(Search *s, int list, int n) {
    s->steps -= n;
    if (s->steps <= 0 || s->late || ++s->nodes > s->node_limit) return STOPPED;
    if (s->until > 0 && (s->nodes & 255) == 0 && now() > s->until) s->late = true;
    int forced = find_forced(s, list, n);
    if (forced >= 0) return s->box[forced].asleep ? NONE : branch(s, forced, list, n);
    int first = s->box[s->stack.at[list]].first, end = 0, base = s->stack.n, before = s->n_trail;
    for (int i = 0; i < n; i++)
        if (s->box[s->stack.at[list + i]].end > end) end = s->box[s->stack.at[list + i]].end;
    int n_choices = choose(s, first, end);
    Result r = NONE;
    for (int i = 0; i < n_choices && r == NONE; i++) {
        r = branch(s, s->stack.at[base + i], list, n);
        if (r == NONE && i + 1 < n_choices && !put_to_sleep(s, s->stack.at[base + i])) break;
    }
    take_back(s, before);
    s->stack.n = base;
    return r;
}

// --- sections, neighbours and ranks

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
    s->touched = HD_NEWN(a, int, n + 1);
    s->members = HD_NEWN(a, int, n + 2);
    s->member = HD_NEWN(a, int, sum + 1);
    for (int i = 0; i < s->n; i++)
        for (int k = s->box[i].first; k < s->box[i].end; k++) s->members[k + 2]++, s->full[k] += s->box[i].size;
    for (int k = 0; k < n; k++) s->members[k + 2] += s->members[k + 1], s->rest[k] = s->full[k];
    for (int i = 0; i < s->n; i++)
        for (int k = s->box[i].first; k < s->box[i].end; k++) s->member[s->members[k + 1]++] = i;
}

// The values that overlap each value: those of its first section, and those that start in its later ones. false: too many to keep.
static bool find_neighbours(Search *s, Arena *a) {
    int64_t sum = 0;
    for (int pass = 0; pass < 2; pass++) { // count, then fill
        int at = 0;
        for (int v = 0; v < s->n; v++) {
            const Box *b = &s->box[v];
            if (pass) s->neighbours[v] = at;
            for (int k = b->first; k < b->end; k++)
                for (int i = s->members[k]; i < s->members[k + 1]; i++) {
                    int u = s->member[i];
                    if (u == v || (k > b->first && s->box[u].first < k)) continue;
                    if (pass) s->neighbour[at++] = u;
                    else sum++;
                }
        }
        if (sum > MOST_LISTED) return false;
        if (!pass) s->neighbours = HD_NEWN(a, int, s->n + 1), s->neighbour = HD_NEWN(a, int, sum + 1);
        else s->neighbours[s->n] = at;
    }
    return true;
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
    for (int i = 0; i < s->n; i++) {
        const Sorted *y = &sorted[i], *x = i > 0 ? y - 1 : y;
        bool alike = x != y && x->key[0] == y->key[0] && x->key[1] == y->key[1] && s->box[x->id].align == s->box[y->id].align;
        s->box[y->id].twin = alike ? x->id : -1;
    }
}

static Result search(Search *s, const Interval *values, Arena *a) {
    Sorted *sorted = HD_NEWN(a, Sorted, s->n + 1);
    int *list = HD_NEWN(a, int, s->n + 1), n = 0;
    for (int i = 0; i < s->n; i++) sorted[i] = (Sorted){{s->box[i].first, 0, 0}, i};
    qsort(sorted, (size_t)s->n, sizeof(Sorted), by_keys);
    for (int i = 0; i < s->n; i++)
        if (s->box[sorted[i].id].end > 0) list[n++] = sorted[i].id;
    int64_t share = 4 * (int64_t)s->n;
    for (int round = 0; s->steps > 0 && !s->late; round++) {
        if (round > 0 && round % (N_RANKINGS * N_STRATEGIES) == 0) share *= 2;
        rank_boxes(s, values, sorted, round % N_RANKINGS);
        find_twins(s, sorted);
        s->strategy = round / N_RANKINGS % N_STRATEGIES;
        s->nodes = 0;
        s->node_limit = share;
        s->stack.n = 0;
        for (int i = 0; i < n; i++) push(&s->stack, list[i]);
        Result r = solve_parts(s, 0, n);
        if (r != STOPPED) return r;
    }
    return STOPPED;
}

int hd_pack_search(int n, const Interval *values, int64_t *offset, int64_t capacity, int64_t steps, double seconds) {
    if (hd_pack_lower_bound(n, values) > capacity) return 1;
    Arena *a = hd_arena_new();
    Search s = {.n = n, .capacity = capacity, .steps = steps, .until = seconds > 0 ? now() + seconds : 0};
    s.box = HD_NEWN(a, Box, n + 1);
    s.offset = HD_NEWN(a, int64_t, n + 1);
    s.most = HD_NEWN(a, int64_t, n + 1);
    s.in_set = HD_NEWN(a, int, n + 1);
    int64_t sum = find_sections(&s, a, values);
    Result r = STOPPED;
    if (sum <= MOST_LISTED) {
        fill_sections(&s, a, sum);
        if (find_neighbours(&s, a)) r = search(&s, values, a);
    }
    if (r == FOUND) memcpy(offset, s.offset, sizeof(int64_t) * (size_t)n);
    free(s.trail);
    free(s.stack.at);
    free(s.queue.at);
    hd_arena_free(a);
    return r != FOUND;
}
