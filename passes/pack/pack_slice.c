// Packings without slack that can be cut in two from side to side, in time or in bytes, and their halves again, down to
// single values ("slicing" packings, Otten 1982). With the sides that end a life as vertices and values as edges, such
// a packing is a graph (Brooks, Smith, Stone, Tutte 1940) that is series-parallel: joins shrink it to one edge (Valdes,
// Tarjan, Lawler 1982). Two joins are enough:
// - a chain: one block ends where one starts, so they have the same offset and become one;
// - a stack: two blocks start together and end together, so one can be put on the other.
// Both need to know that the blocks meet at one line, the same vertex. At most times there is only one: where one block
// ends, or one starts, all that meet there do. Where several lines share a time, joins are guesses: a chain when sizes
// are equal, which is seldom chance when they are large and few blocks meet; a stack when it leaves equal sizes.
// The likeliest guess comes first, and all joins that are sure then follow. A wrong guess leaves blocks that nothing
// joins. So the search takes back one of the joins at a time where blocks wait (as WalkSAT changes a variable of a
// clause that fails; Selman, Kautz, Cohen 1994), with those that were made of it, avoids it for some moves (Glover's
// tabu search, 1989) and guesses on. It starts again from the sure joins now and then.
// Bytes that stay unused become values of their own first. Times are right for these where a value is missing from a
// packing without slack; elsewhere the graph soon stops to shrink, and so does the search.
#include "passes/pack/pack_search.h"
#include <string.h>

enum { START, END };
enum {
    MOVES = 1000,       // until it starts again
    ANYWHERE = 20,      // one of so many moves takes back a join at any time, not where blocks wait
    AVOID = 10,         // moves for which a join that was taken back is avoided, at most
    HOPELESS = 4,       // it ends when the first guesses leave more than this part of all blocks
    WEAK = 20           // the likelihood of a stack for which nothing speaks; a chain of the whole capacity has 2^20
};
typedef enum { SINGLE, CHAIN, STACK } Kind;

typedef struct { int next, before; } Link;
typedef struct {
    int64_t size, align;
    int end[2];         // the times at which it starts and ends
    Link beside[2];     // in the list of what starts or ends there
    Kind kind;
    int part[2], whole; // the two that it joins; what it is part of, or -1
    int listed[2];      // times that list it as a join, or -1
    Link join[2];       // in their lists
} Block;

typedef struct { int64_t likelihood; int x, y; Kind kind; } Guess;

typedef struct {
    int first[2], n[2];     // lists of what starts and ends here
    int joins;              // list of the joins here: twice the block, and which of its times this is
    bool one_line;          // for sure
    bool queued;
    bool stale;             // `best` is to be found again
    Guess best;             // among chains here and stacks that start here
    int64_t avoided, until; // the size of blocks that are not joined here, before this move
} Time;

struct Slicing {
    const Interval *values;
    Block *block;
    Time *time;
    int n_times, n_leaves, n_blocks; // the leaves come first; n_blocks: what is left to join
    int *unused, n_unused;           // room for joins
    int *queue, head, n_queued;      // ring of times at which sure joins may have become possible
    int *mark, *marked, run;         // by time: the block that was seen last with this other end, in this run
    int *path;
    int64_t bound, steps, move;
    uint64_t random;
    bool sure;                       // joins are those that lose no packing: at first
    bool ended;
};

static int random_below(Slicing *s, int n) {
    s->random = s->random * 6364136223846793005u + 1442695040888963407u;
    return (int)((s->random >> 33) % (uint64_t)n);
}

// --- the graph

// Something has changed at time t.
static void enqueue(Slicing *s, int t) {
    s->time[t].stale = true;
    if (s->time[t].queued) return;
    s->time[t].queued = true;
    s->queue[(s->head + s->n_queued++) % s->n_times] = t;
}

static void add_block(Slicing *s, int b) {
    for (int side = START; side <= END; side++) {
        const int t = s->block[b].end[side], next = s->time[t].first[side];
        s->block[b].beside[side] = (Link){next, -1};
        if (next >= 0) s->block[next].beside[side].before = b;
        s->time[t].first[side] = b;
        s->time[t].n[side]++;
        enqueue(s, t);
    }
    s->n_blocks++;
    s->steps--;
}

static void remove_block(Slicing *s, int b) {
    for (int side = START; side <= END; side++) {
        const Link l = s->block[b].beside[side];
        Time *t = &s->time[s->block[b].end[side]];
        if (l.before >= 0) s->block[l.before].beside[side].next = l.next;
        else t->first[side] = l.next;
        if (l.next >= 0) s->block[l.next].beside[side].before = l.before;
        t->n[side]--;
    }
    s->n_blocks--;
    s->steps--;
}

// Where joins are looked for when blocks wait: chains where the parts meet, stacks where several lines may be.
static void list_join(Slicing *s, int b, int which, int at) {
    Block *x = &s->block[b];
    x->listed[which] = at;
    if (at < 0) return;
    const int next = s->time[at].joins;
    x->join[which] = (Link){next, -1};
    if (next >= 0) s->block[next / 2].join[next % 2].before = 2 * b + which;
    s->time[at].joins = 2 * b + which;
}

static void unlist_join(Slicing *s, int b, int which) {
    const int at = s->block[b].listed[which];
    if (at < 0) return;
    const Link l = s->block[b].join[which];
    if (l.before >= 0) s->block[l.before / 2].join[l.before % 2].next = l.next;
    else s->time[at].joins = l.next;
    if (l.next >= 0) s->block[l.next / 2].join[l.next % 2].before = l.before;
}

// Whether two blocks may be stacked: each must keep its alignment, one of them at the bottom.
static bool stackable(const Block *x, const Block *y) { return x->size % y->align == 0 || y->size % x->align == 0; }

// Makes blocks x and y one.
static void join(Slicing *s, int x, int y, Kind kind) {
    if (kind == STACK && s->block[x].size % s->block[y].align != 0) {
        const int other = x;
        x = y;
        y = other;
    }
    const Block *a = &s->block[x], *b = &s->block[y];
    const int at = s->unused[--s->n_unused], middle = a->end[END];
    remove_block(s, x);
    remove_block(s, y);
    s->block[x].whole = s->block[y].whole = at;
    s->block[at] = (Block){.size = a->size + (kind == STACK ? b->size : 0), .kind = kind, .part = {x, y}, .whole = -1,
                           .align = a->align > b->align ? a->align : b->align, .end = {a->end[START], b->end[END]}};
    for (int side = START; side <= END; side++) {
        const int t = kind == CHAIN ? (side == START ? middle : -1) : a->end[side];
        list_join(s, at, side, !s->sure && t >= 0 && !(kind == STACK && s->time[t].one_line) ? t : -1);
    }
    add_block(s, at);
    if (kind == CHAIN) enqueue(s, middle);
}

// Takes a join back, and all that were made of it.
static void take_apart(Slicing *s, int b) {
    int n = 0;
    for (int i = b; i >= 0; i = s->block[i].whole) s->path[n++] = i;
    while (n-- > 0) {
        const int whole = s->path[n];
        remove_block(s, whole);
        for (int i = 0; i < 2; i++) {
            const int part = s->block[whole].part[i];
            unlist_join(s, whole, i);
            s->block[part].whole = -1;
            add_block(s, part);
        }
        s->unused[s->n_unused++] = whole;
    }
}

// --- joins that are sure, or follow from the guesses so far

static bool at_one_line(const Slicing *s, int t) {
    const Time *at = &s->time[t];
    return at->one_line || at->n[START] <= 1 || at->n[END] <= 1;
}

static bool is_avoided(const Slicing *s, int t, int64_t size) {
    return s->time[t].until > s->move && s->time[t].avoided == size;
}

// Stacks two blocks of one side of a time that also meet at one line at their other ends, if there are two.
static bool stack_two(Slicing *s, int t, int side) {
    s->run++;
    for (int b = s->time[t].first[side]; b >= 0; b = s->block[b].beside[side].next) {
        const int other = s->block[b].end[!side];
        s->steps--;
        if (!at_one_line(s, other)) continue;
        if (s->marked[other] == s->run && stackable(&s->block[s->mark[other]], &s->block[b])) {
            join(s, s->mark[other], b, STACK);
            return true;
        }
        s->marked[other] = s->run;
        s->mark[other] = b;
    }
    return false;
}

// Whether all blocks of one side have the same other end: they fill the place of the only one of the other side.
static bool is_level(const Slicing *s, int t, int side) {
    const int first = s->time[t].first[side];
    for (int b = first; b >= 0; b = s->block[b].beside[side].next)
        if (s->block[b].end[!side] != s->block[first].end[!side]) return false;
    return true;
}

static void join_at(Slicing *s, int t) {
    Time *at = &s->time[t];
    if (s->sure && (at->n[START] <= 1 || at->n[END] <= 1)) at->one_line = true;
    while (at_one_line(s, t) && s->steps > 0 && (stack_two(s, t, START) || stack_two(s, t, END))) continue;
    for (int side = START; side <= END; side++) {
        const int first = at->first[side];
        if (at->n[!side] != 1 || at->n[side] < 1) continue;
        if (at->n[side] == 1) {
            if (!is_avoided(s, t, s->block[first].size)) join(s, at->first[END], at->first[START], CHAIN);
            return;
        }
        const int second = s->block[first].beside[side].next;
        if (is_level(s, t, side) && stackable(&s->block[first], &s->block[second])) join(s, first, second, STACK);
        s->steps -= at->n[side];
    }
}

static void join_sure(Slicing *s) {
    while (s->n_queued > 0 && s->steps > 0) {
        const int t = s->queue[s->head];
        s->head = (s->head + 1) % s->n_times;
        s->n_queued--;
        s->time[t].queued = false;
        join_at(s, t);
    }
}

// --- guesses

// Sizes that are equal by chance are small, and many blocks meet where they are.
static int64_t likelihood(const Slicing *s, int t, int64_t size) {
    const int64_t unit = s->bound >> 20, part = unit ? size / unit : (size << 20) / s->bound;
    return part / ((int64_t)s->time[t].n[START] * s->time[t].n[END]);
}

static void consider(Slicing *s, int t, Guess g) {
    g.likelihood *= 256 + random_below(s, 128);
    if (g.likelihood > s->time[t].best.likelihood) s->time[t].best = g;
}

static bool has_size(Slicing *s, int t, int side, int64_t size) {
    for (int b = s->time[t].first[side]; b >= 0; b = s->block[b].beside[side].next) {
        s->steps--;
        if (s->block[b].size == size) return true;
    }
    return false;
}

static void consider_chains(Slicing *s, int t) {
    for (int x = s->time[t].first[END]; x >= 0; x = s->block[x].beside[END].next) {
        const int64_t size = s->block[x].size;
        const bool avoided = is_avoided(s, t, size);
        s->time[t].stale |= avoided;
        for (int y = s->time[t].first[START]; y >= 0 && !avoided; y = s->block[y].beside[START].next) {
            s->steps--;
            if (s->block[y].size == size) consider(s, t, (Guess){likelihood(s, t, size), x, y, CHAIN});
        }
    }
}

// The likelihood that blocks x and y, which start together and end together, are a stack.
static void consider_stack(Slicing *s, int x, int y) {
    const int *at = s->block[x].end;
    const int64_t size = s->block[x].size + s->block[y].size;
    if (is_avoided(s, at[START], size) || is_avoided(s, at[END], size)) {
        s->time[at[START]].stale = true;
        return;
    }
    int64_t most = WEAK;
    for (int side = START; side <= END; side++) {
        if (s->time[at[side]].one_line || !has_size(s, at[side], !side, size)) continue;
        if (likelihood(s, at[side], size) > most) most = likelihood(s, at[side], size);
    }
    consider(s, at[START], (Guess){most, x, y, STACK});
}

static void consider_stacks(Slicing *s, int t) {
    for (int x = s->time[t].first[START]; x >= 0; x = s->block[x].beside[START].next)
        for (int y = s->block[x].beside[START].next; y >= 0; y = s->block[y].beside[START].next) {
            s->steps--;
            if (s->block[x].end[END] == s->block[y].end[END] && stackable(&s->block[x], &s->block[y]))
                consider_stack(s, x, y);
        }
}

// Joins as long as there is something to join; true when all is one.
static bool join_all(Slicing *s) {
    join_sure(s);
    while (s->n_blocks > 1 && s->steps > 0) {
        Guess best = {0};
        for (int t = 0; t < s->n_times; t++) {
            Time *at = &s->time[t];
            s->steps--;
            if (at->stale) {
                at->stale = false;
                at->best = (Guess){0};
                consider_chains(s, t);
                consider_stacks(s, t);
            }
            if (at->best.likelihood > best.likelihood) best = at->best;
        }
        if (best.likelihood == 0) break;
        join(s, best.x, best.y, best.kind);
        join_sure(s);
    }
    return s->n_blocks == 1;
}

// Takes one join back where blocks wait. False: there is none.
static bool move(Slicing *s) {
    const bool anywhere = random_below(s, ANYWHERE) == 0;
    int at = -1, taken = -1, n_waiting = 0, n_others = 0, n = 0;
    for (int t = 0; t < s->n_times; t++, s->steps--) {
        const Time *x = &s->time[t];
        if (x->joins < 0) continue;
        const bool waiting = anywhere || (x->n[START] > 0 && x->n[END] > 0);
        if (waiting ? random_below(s, ++n_waiting) == 0 : !n_waiting && random_below(s, ++n_others) == 0) at = t;
    }
    if (at < 0) return false;
    for (int j = s->time[at].joins; j >= 0; j = s->block[j / 2].join[j % 2].next)
        if (random_below(s, ++n) == 0) taken = j / 2;
    s->time[at].avoided = s->block[taken].size;
    s->time[at].until = ++s->move + 1 + random_below(s, AVOID);
    take_apart(s, taken);
    return true;
}

static void start_again(Slicing *s) {
    for (int t = 0; t < s->n_times; t++)
        while (s->time[t].joins >= 0) take_apart(s, s->time[t].joins / 2);
}

bool hd_slice(Slicing *s, int64_t steps) {
    if (s->ended) return false;
    s->steps += steps;
    if (s->sure) join_sure(s);
    s->sure &= s->n_queued > 0;
    while (s->steps > 0 && !s->ended) {
        if (join_all(s)) return true;
        if (s->steps <= 0) break;
        if (s->move == 0) s->ended = s->n_blocks > s->n_leaves / HOPELESS;
        if (s->move % MOVES == MOVES - 1) {
            start_again(s);
            s->move++;
        } else if (!s->ended) {
            s->ended = !move(s);
        }
    }
    return false;
}

// --- from values to blocks and back

static int by_keys(const void *x, const void *y) {
    const Sorted *a = x, *b = y;
    if (a->key[0] != b->key[0]) return a->key[0] < b->key[0] ? -1 : 1;
    return a->id < b->id ? -1 : a->id > b->id;
}

static void add_leaf(Slicing *s, int from, int to, int64_t size, int64_t align) {
    s->block[s->n_leaves++] = (Block){.size = size, .align = align, .end = {from, to}, .part = {-1, -1}, .whole = -1};
}

// Blocks for the bytes between what is live and the bound. change[t]: by how much more is live from time t on. What
// falls by as much as it rose before is the same block; otherwise the latest go first.
static void fill(Slicing *s, const int64_t *change, Arena *a) {
    typedef struct { int64_t size; int from; } Open;
    Open *open = HD_NEWN(a, Open, s->n_times + 1);
    int n = 0;
    for (int t = 0; t < s->n_times; t++) {
        int64_t less = change[t] - (t == 0 ? s->bound : 0) + (t == s->n_times - 1 ? s->bound : 0);
        if (less < 0) open[n++] = (Open){-less, t};
        int same = n - 1;
        while (less > 0 && same >= 0 && open[same].size != less) same--;
        if (less > 0 && same >= 0) {
            add_leaf(s, open[same].from, t, less, 1);
            memmove(&open[same], &open[same + 1], sizeof(Open) * (size_t)(n-- - same - 1));
            continue;
        }
        while (less > 0) {
            Open *last = &open[n - 1];
            const int64_t size = last->size < less ? last->size : less;
            add_leaf(s, last->from, t, size, 1);
            less -= size;
            last->size -= size;
            n -= last->size == 0;
        }
    }
}

static bool takes_part(const Interval *v) { return v->size > 0 && v->lower < v->upper; }

// The times, and a block for each value that takes part, in their order; then blocks for the bytes that stay unused.
static void find_blocks(Slicing *s, int n, const Interval *values, Arena *a) {
    Sorted *ends = HD_NEWN(a, Sorted, 2 * n + 1);
    int m = 0, (*at)[2] = hd_alloc(a, sizeof(int[2]) * (size_t)(n + 1));
    for (int v = 0; v < n; v++) {
        if (!takes_part(&values[v])) continue;
        ends[m++] = (Sorted){{values[v].lower}, 2 * v};
        ends[m++] = (Sorted){{values[v].upper}, 2 * v + 1};
    }
    qsort(ends, (size_t)m, sizeof(Sorted), by_keys);
    int64_t *change = HD_NEWN(a, int64_t, m + 1);
    for (int i = 0; i < m; i++) {
        const int v = ends[i].id / 2, side = ends[i].id % 2;
        s->n_times += i == 0 || ends[i].key[0] != ends[i - 1].key[0];
        at[v][side] = s->n_times - 1;
        change[s->n_times - 1] += (side ? -1 : 1) * hd_align_to(values[v].size, values[v].align);
    }
    s->block = HD_NEWN(a, Block, 2 * (n + 2 * s->n_times) + 1);
    for (int v = 0; v < n; v++)
        if (takes_part(&values[v]))
            add_leaf(s, at[v][0], at[v][1], hd_align_to(values[v].size, values[v].align), values[v].align);
    fill(s, change, a);
}

Slicing *hd_slicing(int n, const Interval *values, int64_t bound, Arena *a) {
    Slicing *s = HD_NEW(a, Slicing);
    *s = (Slicing){.values = values, .bound = bound, .random = 0x9e3779b97f4a7c15u, .sure = true, .ended = bound <= 0};
    find_blocks(s, n, values, a);
    s->time = HD_NEWN(a, Time, s->n_times + 1);
    s->queue = HD_NEWN(a, int, s->n_times + 1);
    s->mark = HD_NEWN(a, int, s->n_times + 1);
    s->marked = HD_NEWN(a, int, s->n_times + 1);
    s->unused = HD_NEWN(a, int, s->n_leaves + 1);
    s->path = HD_NEWN(a, int, 2 * s->n_leaves + 1);
    for (int t = 0; t < s->n_times; t++) s->time[t] = (Time){.first = {-1, -1}, .joins = -1};
    for (int i = 0; i < s->n_leaves; i++) s->unused[s->n_unused++] = 2 * s->n_leaves - 1 - i;
    for (int i = 0; i < s->n_leaves; i++) add_block(s, i);
    return s;
}

static int64_t offset_of(const Slicing *s, int b) {
    int64_t offset = 0;
    for (; s->block[b].whole >= 0; b = s->block[b].whole) {
        const Block *whole = &s->block[s->block[b].whole];
        if (whole->kind == STACK && whole->part[1] == b) offset += s->block[whole->part[0]].size;
    }
    return offset;
}

void hd_sliced(const Slicing *s, int n, int64_t *offset) {
    for (int v = 0, b = 0; v < n; v++) offset[v] = takes_part(&s->values[v]) ? offset_of(s, b++) : 0;
}

int hd_pack_slices(int n, const Interval *values, int64_t *offset, int64_t steps) {
    Arena *a = hd_arena_new();
    Slicing *s = hd_slicing(n, values, hd_pack_lower_bound(n, values), a);
    const bool found = hd_slice(s, steps);
    if (found) hd_sliced(s, n, offset);
    hd_arena_free(a);
    return !found;
}
