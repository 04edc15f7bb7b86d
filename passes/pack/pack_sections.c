// Facts about the values for the packing search: sections, neighbours, ranks. See pack_search.h.
#include "passes/pack/pack_search.h"

// members of sections and neighbours of values that the search keeps in memory
static const int64_t MOST_LISTED = 8 * 1000 * 1000;

static int by_keys(const void *x, const void *y) {
    const Sorted *a = x, *b = y;
    for (int i = 0; i < 3; i++)
        if (a->key[i] != b->key[i]) return a->key[i] < b->key[i] ? -1 : 1;
    return a->id < b->id ? -1 : a->id > b->id;
}

// A section is where a start is followed by an end: the values alive there are a maximal set, and two values overlap
// when they share a section. Values without bytes or without a life take no part. Returns the sum of the sections'
// sizes.
static int64_t find_sections(Search *s, Arena *a, const Interval *values) {
    Sorted *events = HD_NEWN(a, Sorted, 2 * s->n + 1);
    int n = 0, section = -1;
    for (int i = 0; i < s->n; i++) {
        s->box[i] = (Box){
            .size = hd_align_to(values[i].size, values[i].align), .align = values[i].align, .under = -1, .twin = -1};
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

// By section: the values that start there. at[from[k]] to at[from[k + 1]].
typedef struct { int *from, *at; } Starts;

static Starts find_starts(const Search *s, Arena *a) {
    Starts t = {HD_NEWN(a, int, s->n_sections + 2), HD_NEWN(a, int, s->n + 1)};
    for (int i = 0; i < s->n; i++)
        if (s->box[i].end > 0) t.from[s->box[i].first + 2]++;
    for (int k = 0; k < s->n_sections; k++) t.from[k + 2] += t.from[k + 1];
    for (int i = 0; i < s->n; i++)
        if (s->box[i].end > 0) t.at[t.from[s->box[i].first + 1]++] = i;
    return t;
}

// The values that overlap each value: those of its first section, and those that start in its later ones. The work is
// in proportion to how many they are. false: too many to keep.
static bool find_neighbours(Search *s, Arena *a) {
    const Starts starts = find_starts(s, a);
    int64_t sum = 0;
    int at = 0;
    for (int v = 0; v < s->n; v++) {
        const Box *b = &s->box[v];
        if (b->end > 0) sum += s->members[b->first + 1] - s->members[b->first] - 1 + starts.from[b->end] -
                               starts.from[b->first + 1];
    }
    if (sum > MOST_LISTED) return false;
    s->neighbours = HD_NEWN(a, int, s->n + 1);
    s->neighbour = HD_NEWN(a, int, sum + 1);
    for (int v = 0; v < s->n; v++) {
        const Box *b = &s->box[v];
        s->neighbours[v] = at;
        if (b->end <= 0) continue;
        for (int i = s->members[b->first]; i < s->members[b->first + 1]; i++)
            if (s->member[i] != v) s->neighbour[at++] = s->member[i];
        for (int i = starts.from[b->first + 1]; i < starts.from[b->end]; i++) s->neighbour[at++] = starts.at[i];
    }
    s->neighbours[s->n] = at;
    return true;
}

// Ranks by three keys, largest first. T: the fullest section of a life; W: how many sections it has; A: its area; S:
// the size; F: the fails at its worst section.
static void rank_boxes(Search *s, const Interval *values, int which) {
    enum { T, W, A, S, F };
    Sorted *sorted = s->sorted;
    static const int rankings[N_RANKINGS][3] = {{T, W, A}, {W, A, T}, {T, A, W}, {A, W, T}, {F, A, W}, {T, S, W}};
    for (int i = 0; i < s->n; i++) {
        const Box *b = &s->box[i];
        int64_t life = values[i].upper - values[i].lower, key[] = {0, b->end - b->first, 0, b->size, 0};
        key[A] = b->size > INT64_MAX / (life + 1) ? INT64_MAX : b->size * life;
        s->steps -= b->end - b->first;
        for (int k = b->first; k < b->end; k++) {
            if (s->full[k] > key[T]) key[T] = s->full[k];
            if (s->fails[k] > key[F]) key[F] = s->fails[k];
        }
        for (int k = 0; k < 3; k++) sorted[i].key[k] = -key[rankings[which][k]];
        sorted[i].id = i;
    }
    qsort(sorted, (size_t)s->n, sizeof(Sorted), by_keys);
    for (int i = 0; i < s->n; i++) s->box[sorted[i].id].rank = i;
    for (int k = 0; k < s->n_sections; k++) s->fails[k] /= 2; // recent failures count most
}

// Chains equal values in the order of their ranks.
static void find_twins(Search *s) {
    Sorted *sorted = s->sorted;
    for (int i = 0; i < s->n; i++) {
        const Box *b = &s->box[i];
        sorted[i] = (Sorted){{((int64_t)b->first << 32) | b->end, b->size, b->rank}, i};
    }
    qsort(sorted, (size_t)s->n, sizeof(Sorted), by_keys);
    for (int i = 0; i < s->n; i++) {
        const Sorted *y = &sorted[i], *x = i > 0 ? y - 1 : y;
        bool alike =
            x != y && x->key[0] == y->key[0] && x->key[1] == y->key[1] && s->box[x->id].align == s->box[y->id].align;
        s->box[y->id].twin = alike ? x->id : -1;
    }
}

bool hd_sections_find(Search *s, const Interval *values, Arena *a) {
    s->sorted = HD_NEWN(a, Sorted, s->n + 1);
    int64_t sum = find_sections(s, a, values);
    if (sum > MOST_LISTED) return false;
    fill_sections(s, a, sum);
    return find_neighbours(s, a);
}

void hd_sections_rank(Search *s, const Interval *values, int which) {
    rank_boxes(s, values, which);
    find_twins(s);
}

int hd_sections_list(Search *s, int *list) {
    int n = 0;
    for (int i = 0; i < s->n; i++) s->sorted[i] = (Sorted){{s->box[i].first, 0, 0}, i};
    qsort(s->sorted, (size_t)s->n, sizeof(Sorted), by_keys);
    for (int i = 0; i < s->n; i++)
        if (s->box[s->sorted[i].id].end > 0) list[n++] = s->sorted[i].id;
    return n;
}
