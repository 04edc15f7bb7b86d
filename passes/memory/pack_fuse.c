// Fewer values for the packing search: values of which every packing without slack has one end where the other starts,
// at the same bytes, become one. See pack_search.h.
#include "passes/memory/pack_search.h"

typedef struct { int64_t at; int value; bool start; } End; // where a life starts or ends

typedef struct {
    Fused *f;
    int *group[2], n[2]; // the values that end and that start at the time of the sweep, each once
    int *partner;        // by index in the first group: a value of the second
    int *mark, run;      // by value: the last group that it joined
} Sweep;

static int by_time(const void *x, const void *y) {
    const End *a = x, *b = y;
    if (a->at != b->at) return a->at < b->at ? -1 : 1;
    if (a->start != b->start) return a->start ? 1 : -1;
    return a->value < b->value ? -1 : a->value > b->value;
}

// The value that v is a part of now; shift[v] becomes its distance from there.
static int root_of(Fused *f, int v) {
    while (f->part_of[v] != f->part_of[f->part_of[v]]) {
        f->shift[v] += f->shift[f->part_of[v]];
        f->part_of[v] = f->part_of[f->part_of[v]];
    }
    return f->part_of[v];
}

static void join_group(Sweep *s, const End *e) {
    const int v = root_of(s->f, e->value);
    if (s->mark[v] == s->run) return;
    s->mark[v] = s->run;
    s->group[e->start][s->n[e->start]++] = v;
}

static int64_t sum(const Sweep *s, int side) {
    int64_t bytes = 0;
    for (int i = 0; i < s->n[side]; i++) bytes += s->f->all[s->group[side][i]].size;
    return bytes;
}

// Makes the values of a side parts of the only one of the other, stacked there. false: that is not without loss.
static bool fuse_side(Sweep *s, int side) {
    Interval *all = s->f->all, *into = &all[s->group[!side][0]];
    const Interval *first = &all[s->group[side][0]];
    if (s->n[!side] != 1 || s->n[side] < 1) return false;
    for (int i = 0; i < s->n[side]; i++) {
        const Interval *v = &all[s->group[side][i]];
        if (v->align != into->align || v->lower != first->lower || v->upper != first->upper) return false;
    }
    int64_t below = 0;
    for (int i = 0; i < s->n[side]; i++) {
        const int v = s->group[side][i];
        s->f->part_of[v] = s->group[!side][0];
        s->f->shift[v] = below;
        below += all[v].size;
    }
    if (side) into->upper = first->upper;
    else into->lower = first->lower;
    return true;
}

// Whether guess number `guess` joins x and y, which could as well be apart: the first two join all, the others most.
static bool joins(int guess, int x, int y) {
    if (guess <= 2) return true;
    uint64_t h = ((uint64_t)guess << 42 ^ (uint64_t)x << 21 ^ (uint64_t)y) * 0x9e3779b97f4a7c15u;
    h = (h ^ h >> 29) * 0xbf58476d1ce4e5b9u;
    return (h >> 40 & 15) < 13;
}

// The only one of a side with this size, or -1.
static int only_of_size(const Sweep *s, int side, int64_t size) {
    int only = -1;
    for (int i = 0; i < s->n[side]; i++) {
        if (s->f->all[s->group[side][i]].size != size) continue;
        if (only >= 0) return -1;
        only = s->group[side][i];
    }
    return only;
}

// Joins values that end with those of their sizes that start. Equal sizes can be chance where many values end or start
// and sizes are small; so the odd guesses join where all values are in such pairs, the even ones where few are there
// or sizes are large.
static bool join_pairs(Sweep *s, int guess, int64_t bound) {
    Interval *all = s->f->all;
    int found = 0;
    for (int i = 0; i < s->n[0]; i++) {
        const int x = s->group[0][i], y = only_of_size(s, 1, all[x].size);
        s->partner[i] = only_of_size(s, 0, all[x].size) == x && y >= 0 && all[x].align == all[y].align ? y : -1;
        found += s->partner[i] >= 0;
    }
    const bool whole = found == s->n[0] && found == s->n[1], few = s->n[0] + s->n[1] <= 4;
    bool fused = false;
    for (int i = 0; i < s->n[0]; i++) {
        const int x = s->group[0][i], y = s->partner[i];
        if (y < 0 || !(guess % 2 ? whole : few || all[x].size >= bound / 20) || !joins(guess, x, y)) continue;
        all[x].upper = all[y].upper;
        s->f->part_of[y] = x;
        fused = true;
    }
    return fused;
}

// One sweep over all times. Returns whether something was fused.
static bool sweep(Sweep *s, const End *ends, int n_ends, int64_t bound, int guess) {
    int64_t live = 0;
    bool fused = false;
    for (int i = 0; i < n_ends;) {
        const int64_t at = ends[i].at, before = live;
        s->n[0] = s->n[1] = 0;
        for (s->run++; i < n_ends && ends[i].at == at && !ends[i].start; i++) join_group(s, &ends[i]);
        for (s->run++; i < n_ends && ends[i].at == at; i++) join_group(s, &ends[i]);
        for (int side = 0; side < 2; side++)
            for (int k = s->n[side] - 1; k >= 0; k--) { // fused at an earlier time, these live on
                const Interval *v = &s->f->all[s->group[side][k]];
                if ((side ? v->lower : v->upper) != at) s->group[side][k] = s->group[side][--s->n[side]];
            }
        live += sum(s, 1) - sum(s, 0);
        if (before != bound || live != bound) continue;
        for (int side = 0; side < 2; side++)
            for (int k = 0; k < s->n[side] && s->n[!side] == 1; k++) s->f->beside_one[s->group[side][k]] = true;
        fused |= fuse_side(s, 1) || fuse_side(s, 0) || (guess && join_pairs(s, guess, bound));
    }
    return fused;
}

static int by_life(const void *x, const void *y) {
    const Sorted *a = x, *b = y;
    for (int i = 0; i < 3; i++)
        if (a->key[i] != b->key[i]) return a->key[i] < b->key[i] ? -1 : 1;
    return a->id < b->id ? -1 : a->id > b->id;
}

// Stacks values of equal lives. Returns whether there were some.
static bool stack(Fused *f, int n, int guess, Sorted *sorted) {
    int m = 0, bottom = 0;
    bool fused = false;
    for (int v = 0; v < n; v++) {
        const Interval *x = &f->all[v];
        if (root_of(f, v) == v && f->beside_one[v])
            sorted[m++] = (Sorted){{x->lower, x->upper, x->align}, v};
    }
    qsort(sorted, (size_t)m, sizeof(Sorted), by_life);
    for (int i = 1; i < m; i++) {
        const Sorted *x = &sorted[bottom], *y = &sorted[i];
        if (x->key[0] != y->key[0] || x->key[1] != y->key[1] || x->key[2] != y->key[2] ||
            !joins(guess, x->id, y->id)) {
            bottom = i;
            continue;
        }
        f->part_of[y->id] = x->id;
        f->shift[y->id] = f->all[x->id].size;
        f->all[x->id].size += f->all[y->id].size;
        fused = true;
    }
    return fused;
}

void hd_fuse(Fused *f, int n, const Interval *values, int64_t bound, int guess, Arena *a) {
    End *ends = HD_NEWN(a, End, 2 * n + 1);
    Sorted *sorted = HD_NEWN(a, Sorted, n + 1);
    Sweep s = {.f = f, .mark = HD_NEWN(a, int, n + 1)};
    int n_ends = 0;
    *f = (Fused){.all = HD_NEWN(a, Interval, n + 1), .values = HD_NEWN(a, Interval, n + 1),
                 .part_of = HD_NEWN(a, int, n + 1), .shift = HD_NEWN(a, int64_t, n + 1), .at = HD_NEWN(a, int, n + 1),
                 .beside_one = HD_NEWN(a, bool, n + 1)};
    s.partner = HD_NEWN(a, int, n + 1);
    for (int side = 0; side < 2; side++) s.group[side] = HD_NEWN(a, int, n + 1);
    for (int v = 0; v < n; v++) {
        f->all[v] = values[v];
        f->all[v].size = hd_align_to(values[v].size, values[v].align);
        f->part_of[v] = v;
        if (values[v].size <= 0 || values[v].lower >= values[v].upper) continue;
        ends[n_ends++] = (End){values[v].lower, v, true};
        ends[n_ends++] = (End){values[v].upper, v, false};
    }
    qsort(ends, (size_t)n_ends, sizeof(End), by_time);
    while (sweep(&s, ends, n_ends, bound, guess) || (guess && stack(f, n, guess, sorted))) continue;
    for (int v = 0; v < n; v++) {
        if (root_of(f, v) != v) continue;
        f->at[v] = f->n;
        f->values[f->n++] = f->all[v];
    }
}

void hd_unfuse(Fused *f, int n, const int64_t *fused, int64_t *offset) {
    for (int v = 0; v < n; v++) {
        const int root = root_of(f, v);
        offset[v] = fused[f->at[root]] + f->shift[v];
    }
}
