// Fewer values for the packing search: values of which every packing without slack has one end where the other starts,
// at the same bytes, become one. See pack_search.h.
#include "passes/pack/pack_search.h"

typedef struct { int64_t at; int value; bool start; } End; // where a life starts or ends

typedef struct {
    Fused *f;
    int *group[2], *mark, run;  // the values that end and start at the time of the sweep, each once; marks of these
    int n[2];
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

// One sweep over all times. Returns whether something was fused.
static bool sweep(Sweep *s, const End *ends, int n_ends, int64_t bound) {
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
        if (before == bound && live == bound) fused |= fuse_side(s, 1) || fuse_side(s, 0);
    }
    return fused;
}

void hd_fuse(Fused *f, int n, const Interval *values, int64_t bound, Arena *a) {
    End *ends = HD_NEWN(a, End, 2 * n + 1);
    Sweep s = {.f = f, .mark = HD_NEWN(a, int, n + 1)};
    int n_ends = 0;
    *f = (Fused){.all = HD_NEWN(a, Interval, n + 1), .values = HD_NEWN(a, Interval, n + 1),
                 .part_of = HD_NEWN(a, int, n + 1), .shift = HD_NEWN(a, int64_t, n + 1), .at = HD_NEWN(a, int, n + 1)};
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
    while (sweep(&s, ends, n_ends, bound)) continue;
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
