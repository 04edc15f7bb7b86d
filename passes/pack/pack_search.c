// Packing into a given capacity by search, for instances that orders and climbs (pack.c) leave open: those whose
// fullest times have little or no slack. Values are placed bottom up. In any packing, moved down as far as it goes,
// every value rests on another one or at 0. So placing each value at the lowest offset that those below it leave
// (`low`) reaches that packing, in any order that places the lower of two overlapping values first. The search uses
// that freedom:
// - a section is a time at which a maximal set of values is alive. The lowest value still to come in section k is at
//   most at capacity - rest(k), where rest(k) is the size of all that are still to come there. So the next placement
//   can be chosen among the values that can be that one and those that can be below them (`find_choices`): all choices
//   of a section together miss no packing;
// - branches start where the choices are fewest, so a place that nothing can fill ends the branch at once;
// - placements that do not overlap commute: a value whose branch failed sleeps, and is no choice again, until a value
//   that overlaps it has been placed (sleep sets, Godefroid 1996). Until then its place is above some value that it
//   overlaps (`later`);
// - where a section cannot hold its waiting values, each above its lowest place, the branch ends (section inference,
//   which like most of the following ideas is after Moffitt, "MiniMalloc", ASPLOS 2023); sections that ended many
//   branches come first in later rankings;
// - a branch that ends has a conflict: values that alone rule out every packing. A placement that is not among them is
//   undone at once, without trying its other choices (conflict-directed backjumping, Prosser 1993);
// - a value whose place no other value can use is placed at once; values of equal life and size are placed in one
//   order;
// - unplaced values that fall into spans of time without a common value are solved span by span;
// - restarts in several rankings, with limits that double, at the bound and at sizes up to the capacity by turns
//   (pack_restart.c); at the bound, values that every packing places one after the other are one (pack_fuse.c);
// - packings without slack are often of a simple kind that another search finds sooner (pack_slice.c): both run by
//   turns.
// The work is bounded by counted steps, so equal inputs give equal packings; a limit in seconds is for tools only.
#define _POSIX_C_SOURCE 200809L
#include "passes/pack/pack_search.h"
#include <time.h>

enum { MOST_LOOKED_AT = 4 };

// Which section to branch on: the one with the fewest choices among some with the least score. The score is the number
// of values that may be lowest there plus this weight times how low that is, as a part of the capacity. The last one
// counts almost only the offset.
static const struct {
    double weight;
    int looked_at;
} strategies[N_STRATEGIES] = {{8, MOST_LOOKED_AT}, {1, 2}, {1000, 1}};

double hd_search_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int lesser(int x, int y) { return x < y ? x : y; }

static void push(Ints *v, int x) {
    v->at = hd_grow(v->at, &v->size, v->n + 1, sizeof(int));
    v->at[v->n++] = x;
}

// --- placing and taking back

static void note(Search *s, ChangeKind kind, int at, int64_t was, int other) {
    s->trail = hd_grow(s->trail, &s->trail_size, s->n_trail + 1, sizeof(Undo));
    s->trail[s->n_trail++] = (Undo){kind, at, other, was};
}

static void take_back(Search *s, int to) {
    while (s->n_trail > to) {
        const Undo *u = &s->trail[--s->n_trail];
        switch (u->kind) {
        case SET_PLACED:
            s->box[u->at].placed = false;
            for (int k = s->box[u->at].first; k < s->box[u->at].end; k++) s->rest[k] += s->box[u->at].size;
            break;
        case SET_LOW: s->box[u->at].low = u->was, s->box[u->at].under = u->other; break;
        case SET_LATER: s->box[u->at].later = u->was, s->box[u->at].conflict = u->other; break;
        case SET_ASLEEP: s->box[u->at].asleep = u->was != 0; break;
        }
    }
}

// Whether the waiting values of a section fit there, stacked in the order of lowest places.
static bool section_holds(Search *s, int section) {
    if (s->rest[section] == 0) return true;
    int *at = s->member + s->members[section], m = s->members[section + 1] - s->members[section], n = 0;
    for (int i = 0; i < m; i++) { // waiting values come to the front, sorted; most are already
        int v = at[i], k = n;
        if (s->box[v].placed) continue;
        int64_t low = hd_lowest(&s->box[v]);
        at[i] = at[n];
        for (; k > 0 && s->key[k - 1] > low; k--) at[k] = at[k - 1], s->key[k] = s->key[k - 1];
        at[k] = v;
        s->key[k] = low;
        s->steps -= n++ - k;
    }
    s->steps -= m;
    int64_t top = 0;
    int resting = 0; // the first of those that cannot sink, as they rest on each other or at their lowest places
    for (int i = 0; i < n; i++) {
        if (s->key[i] > top) top = s->key[i], resting = i;
        top += s->box[at[i]].size;
    }
    if (top <= s->capacity) return true;
    s->fails[section]++;
    hd_conflict_empty(s);
    for (int i = resting; i < n; i++) hd_conflict_blame(s, at[i]);
    return false;
}

// Whether all sections of a life do.
static bool sections_hold(Search *s, const Box *b) {
    for (int k = b->first; k < b->end; k++) {
        if (s->touched[k] == s->placements) continue;
        s->touched[k] = s->placements;
        if (!section_holds(s, k)) return false;
    }
    return true;
}

// Places value v at its lowest offset; values that overlap it wake up and move above it. False: a section cannot hold
// the rest.
static bool place(Search *s, int v) {
    Box *b = &s->box[v];
    int64_t top = b->low + b->size;
    int from = s->n_trail;
    note(s, SET_PLACED, v, 0, 0);
    b->placed = true;
    s->offset[v] = b->low;
    s->placements++;
    for (int k = b->first; k < b->end; k++) s->rest[k] -= b->size;
    for (int i = s->neighbours[v]; i < s->neighbours[v + 1]; i++) {
        Box *u = &s->box[s->neighbour[i]];
        if (u->placed) continue;
        if (u->asleep) note(s, SET_ASLEEP, s->neighbour[i], 1, 0);
        u->asleep = false;
        if (u->low >= top) continue;
        note(s, SET_LOW, s->neighbour[i], u->low, u->under);
        u->low = hd_align_to(top, u->align);
        u->under = v;
    }
    s->steps -= s->neighbours[v + 1] - s->neighbours[v];
    if (!sections_hold(s, b)) return false;
    for (int i = from + 1, end = s->n_trail; i < end; i++)
        if (!sections_hold(s, &s->box[s->trail[i].at])) return false;
    return true;
}

// The branch of v has failed, with v in its conflict: it sleeps. False: nothing fits any more.
static bool put_to_sleep(Search *s, int v) {
    Box *b = &s->box[v];
    int64_t later = INT64_MAX;
    for (int i = s->neighbours[v]; i < s->neighbours[v + 1]; i++) {
        const Box *u = &s->box[s->neighbour[i]];
        if (!u->placed && hd_lowest(u) + u->size < later) later = hd_lowest(u) + u->size;
    }
    if (later == INT64_MAX) return false; // nothing is left that could be below it
    s->blames++;
    for (int i = s->neighbours[v]; later > b->low && i < s->neighbours[v + 1]; i++)
        if (!s->box[s->neighbour[i]].placed) hd_conflict_blame(s, s->neighbour[i]);
    note(s, SET_LATER, v, b->later, b->conflict);
    note(s, SET_ASLEEP, v, 0, 0);
    b->conflict = hd_conflict_push(s);
    b->later = later > b->low ? hd_align_to(later, b->align) : b->low;
    b->asleep = true;
    s->placements++;
    s->steps -= s->neighbours[v + 1] - s->neighbours[v];
    return sections_hold(s, b);
}

// --- where to continue

static bool may_be_next(const Search *s, const Box *b) { return !b->asleep && (b->twin < 0 || s->box[b->twin].placed); }

// Adds a value that may be at up to `most` to the set, and to the choices on the stack when it may be placed next.
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

// Pushes values one of which is placed next in every packing that this branch can reach, and returns their number. The
// lowest value still to come in the section is at capacity - rest or below; if it is not next, then values below it
// are. Stops at `enough`, and where the steps are spent: then the branch ends without a result.
static int find_choices(Search *s, int section, int enough) {
    int base = s->stack.n;
    s->run++;
    s->queue.n = 0;
    for (int i = s->members[section]; i < s->members[section + 1]; i++) {
        int v = s->member[i];
        int64_t most = s->capacity - s->rest[section];
        if (!s->box[v].placed && hd_lowest(&s->box[v]) <= most) add_to_set(s, v, most);
    }
    for (int q = 0; q < s->queue.n && s->steps > 0; q++) {
        int v = s->queue.at[q], i = s->neighbours[v];
        for (; i < s->neighbours[v + 1] && s->stack.n - base < enough; i++) {
            const Box *u = &s->box[s->neighbour[i]];
            int64_t most = s->most[v] - u->size;
            if (!u->placed && hd_lowest(u) <= most) add_to_set(s, s->neighbour[i], most);
        }
        s->steps -= i - s->neighbours[v];
    }
    s->steps -= s->members[section + 1] - s->members[section];
    return s->stack.n - base;
}

// A score, lower for fewer choices in a section; anything above `most` when it is no less than that.
static double score_section(Search *s, int section, double most) {
    int64_t limit = s->capacity - s->rest[section];
    double score = strategies[s->strategy].weight * (double)limit / (double)s->capacity;
    for (int i = s->members[section]; i < s->members[section + 1] && score < most; i++) {
        const Box *b = &s->box[s->member[i]];
        score += !b->placed && hd_lowest(b) <= limit;
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

// The fewest choices among some promising sections, best value first, on the stack. Some have hundreds, which take long
// to find; so the choices of all are counted up to a few, then up to more.
static int choose(Search *s, int first, int end, int *chosen) {
    int section[MOST_LOOKED_AT], n = best_sections(s, first, end, section, strategies[s->strategy].looked_at);
    int best = 0, fewest = INT32_MAX, base = s->stack.n;
    for (int most = 2; fewest == INT32_MAX && s->steps > 0; most *= 4)
        for (int i = 0; i < n; i++) {
            const int enough = lesser(fewest, most), count = find_choices(s, section[i], enough);
            s->stack.n = base;
            if (count < enough) fewest = count, best = i;
        }
    *chosen = section[best];
    int count = find_choices(s, *chosen, INT32_MAX);
    for (int i = 1; i < count; i++) {
        int *list = s->stack.at + base, v = list[i], k = i;
        for (; k > 0 && comes_before(&s->box[v], &s->box[list[k - 1]]); k--) list[k] = list[k - 1];
        list[k] = v;
        s->steps -= i - k;
    }
    return count;
}

// Adds to the conflict why a section had no other choices: its waiting values, what could be below them, and why every
// other value of the conflict could not.
static void blame_choices(Search *s, int section) {
    int base = s->stack.n;
    find_choices(s, section, INT32_MAX);
    s->stack.n = base;
    s->blames++;
    for (int i = s->members[section]; i < s->members[section + 1]; i++) {
        int v = s->member[i];
        if (s->box[v].placed) continue;
        if (hd_lowest(&s->box[v]) > s->capacity - s->rest[section]) hd_conflict_blame(s, v);
        else hd_conflict_add(s, v);
    }
    for (int q = 0; q < s->queue.n; q++) {
        const Box *b = &s->box[s->queue.at[q]];
        hd_conflict_add(s, s->queue.at[q]);
        if (b->twin >= 0 && !s->box[b->twin].placed) hd_conflict_add(s, b->twin);
        if (b->asleep) hd_conflict_unite(s, b->conflict);
    }
    for (bool more = true; more;) {
        more = false;
        for (int q = 0; q < s->queue.n; q++)
            more |= hd_conflict_blame_neighbours(s, s->queue.at[q], s->most[s->queue.at[q]], true);
    }
}

// A value of the list whose place no other value can use: the space from its lowest offset to its top is below all that
// overlap it.
static int find_forced(Search *s, int list, int n) {
    for (int i = 0; i < n; i++) {
        int v = s->stack.at[list + i], k = s->neighbours[v], end = s->neighbours[v + 1];
        int64_t top = s->box[v].low + s->box[v].size;
        for (; k < end; k++) {
            const Box *u = &s->box[s->neighbour[k]];
            if (!u->placed && hd_lowest(u) < top) break;
        }
        s->steps -= k - s->neighbours[v] + 1;
        if (k == end) return v;
    }
    return -1;
}

// --- the tree

static Result solve(Search *s, int list, int n);

// The waiting values of the list, split where no value is alive on both sides; each part is solved.
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

// Places a value whose place no other value can use. Its conflict is that of the rest, and the reason why the place is
// free.
static Result branch_forced(Search *s, int v, int list, int n) {
    const Box *b = &s->box[v];
    if (b->asleep) {
        hd_conflict_empty(s);
        hd_conflict_add(s, v);
        hd_conflict_unite(s, b->conflict);
    } else {
        Result r = branch(s, v, list, n);
        if (r != NONE || !hd_conflict_has(s, v)) return r;
    }
    s->blames++;
    while (hd_conflict_blame_neighbours(s, v, b->low + b->size - 1, false)) continue;
    return NONE;
}

// Places the n values of one span of time, sorted by their first section. A packing that is found stays in `offset`;
// the marks are undone either way.
static Result solve(Search *s, int list, int n) {
    s->steps -= n;
    if (s->steps <= 0 || s->late || ++s->nodes > s->node_limit) return STOPPED;
    if (s->until > 0 && (s->nodes & 255) == 0 && hd_search_now() > s->until) s->late = true;
    int forced = find_forced(s, list, n);
    if (forced >= 0) return branch_forced(s, forced, list, n);
    int first = s->box[s->stack.at[list]].first, end = 0, base = s->stack.n, before = s->n_trail;
    for (int i = 0; i < n; i++)
        if (s->box[s->stack.at[list + i]].end > end) end = s->box[s->stack.at[list + i]].end;
    int section, n_choices = choose(s, first, end, &section);
    hd_conflict_empty(s);
    int all = hd_conflict_push(s); // of all choices so far
    bool whole = true;             // the branch ends only when all of them fail
    Result r = NONE;
    for (int i = 0; i < n_choices && r == NONE && whole && s->steps > 0; i++) {
        int v = s->stack.at[base + i];
        r = branch(s, v, list, n);
        if (r != NONE) break;
        whole = hd_conflict_has(s, v);
        if (!whole) break;
        hd_conflict_unite_into(s, all);
        if (i + 1 < n_choices) whole = put_to_sleep(s, v);
    }
    take_back(s, before);
    s->stack.n = base;
    if (r == NONE && whole && s->steps > 0) {
        hd_conflict_empty(s);
        hd_conflict_unite(s, all);
        blame_choices(s, section);
    }
    s->sets.n = all;
    return r == NONE && s->steps <= 0 ? STOPPED : r;
}

Result hd_search_from(Search *s, const int *list, int n) {
    s->nodes = 0;
    s->stack.n = 0;
    for (int i = 0; i < n; i++) push(&s->stack, list[i]);
    return solve_parts(s, 0, n);
}
