// Shared by the files of the packing search. search: the tree; sections: facts about the values, found once, and their
// rankings, found for each restart; conflict: why a branch ends; fuse: values that are as good as one; restart: runs
// the tree search again and again; slice: finds packings of another kind, in another way;
// bound: the most bytes alive at one time.
#ifndef PASSES_PACK_PACK_SEARCH_H
#define PASSES_PACK_PACK_SEARCH_H
#include "passes/pack/pack.h"
#include "ir/base/ints.h"
#include <stdbool.h>
#include <stdlib.h>

// Bytes that come alive or die; `value` comes alive, or -1. By time; ends come before starts.
typedef struct { int64_t at, change; int value; } PackEvent;
int hd_pack_events(PackEvent *events, int n, const Interval *values); // events: room for 2 * n; returns how many

enum { N_RANKINGS = 6, N_STRATEGIES = 3 };
typedef enum { FOUND, NONE, STOPPED } Result;

typedef struct {
    int64_t size, align;
    int64_t low, later; // its lowest possible offset; while it sleeps, lower than it can get
    int under;          // the placed value whose top `low` is, or -1
    int conflict; // while it sleeps: index in `sets` of why its branch failed, and why nothing below `later` is
                  // possible
    int first, end;     // sections in which it is alive
    int rank, twin;     // twin: the equal value that must be placed before, or -1
    bool placed, asleep;
} Box;
typedef enum { SET_PLACED, SET_LOW, SET_LATER, SET_ASLEEP } ChangeKind;
typedef struct { ChangeKind kind; int at, other; int64_t was; } Undo; // other: the previous `under` or `conflict`
typedef struct { int n, size; int *at; } Ints;
typedef struct { int n, size; uint64_t *at; } Words;

typedef struct { int64_t key[3]; int id; } Sorted; // ascending by keys, then by id

typedef struct {
    int n, n_sections;
    const Interval *values;
    int *list, n_listed;            // the values that take part, by their first section
    Box *box;
    int64_t *offset;
    int64_t *rest, *full, *fails;   // by section: bytes not yet placed; of all its values; branches that it ended
    int *member, *members;          // members of section s: member[members[s] .. members[s + 1])
    int *neighbour, *neighbours;    // values that overlap value v, likewise
    int64_t capacity, steps, nodes, node_limit;
    Sorted *sorted;                 // for ranking
    double until;                   // of the monotonic clock; 0: no limit
    bool late;
    int strategy;
    Undo *trail;
    int n_trail, trail_size;
    Ints stack, queue; // lists of waiting values and choices, one after another; work list of find_choices
    int64_t *most;                  // find_choices: the highest offset that a value of the set may have
    int *in_set, *touched;          // marks: the run of find_choices, the placement
    int run, placements;
    int64_t *key;                   // section_holds: the lowest places of what waits in a section, ascending
    int words;                      // of a set of values, one bit each
    uint64_t *conflict;             // of the branch that ended last
    Words sets;                     // a stack of sets
    int *blamed, blames;            // marks: the run of blaming
} Search;

static inline int64_t hd_lowest(const Box *b) { return b->asleep ? b->later : b->low; }

static inline void *hd_grow(void *at, int *size, int n, size_t each) {
    if (n <= *size) return at;
    while (*size < n) *size = *size ? 2 * *size : 1024;
    at = realloc(at, (size_t)*size * each);
    if (!at) abort();
    return at;
}

// Seconds of the monotonic clock.
double hd_search_now(void);
// Searches once for a packing of the listed values into s->capacity, by s->strategy and their ranks, in at most
// s->node_limit nodes and s->steps steps.
Result hd_search_from(Search *s, const int *list, int n);
// Sections, their members and the neighbours of values; false: too many to keep.
bool hd_sections_find(Search *s, const Interval *values, Arena *a);
// Ranks the values in one of N_RANKINGS ways, and chains those that are alike in the order of their ranks.
void hd_sections_rank(Search *s, const Interval *values, int which);
// The values that take part, by their first section; returns how many.
int hd_sections_list(Search *s, int *list);

// Values that became one. At a time with no slack just before it and at it, what starts gets exactly the bytes of what
// ends: so when only one value ends and only one starts, both have the same offset in every packing. And when several
// start and have equal lives from there on, they fill the bytes of the one that ends, stacked in some order; likewise
// the other way. Alignments must be equal.
typedef struct {
    int n;             // values that are left
    Interval *values;  // these
    Interval *all;     // by original value: as it was, or grown by its parts
    int *part_of, *at; // by original value: what it is a part of, or itself; for these: index in `values`
    int64_t *shift;    // its offset in there
} Fused;
// `bound`: the most bytes alive at one time, and the capacity.
void hd_fuse(Fused *f, int n, const Interval *values, int64_t bound, Arena *a);
// The offsets of the n original values, from those of the fused ones.
void hd_unfuse(Fused *f, int n, const int64_t *fused, int64_t *offset);

// The search for a packing as high as the bound that can be cut in two from side to side, again and again, down to
// single values. It lives in the arena.
typedef struct Slicing Slicing;
Slicing *hd_slicing(int n, const Interval *values, int64_t bound, Arena *a);
// Searches on, in so many steps more. Returns whether there is a packing now.
bool hd_slice(Slicing *s, int64_t steps);
// The offsets of this packing.
void hd_sliced(const Slicing *s, int n, int64_t *offset);

// A conflict is a set of placed and waiting values. In any packing of these alone that keeps each placed value below
// the waiting ones and below those placed after it, something exceeds the capacity. So the conflict holds as long as
// its placed values are placed.
static inline void hd_conflict_add(Search *s, int v) { s->conflict[v >> 6] |= UINT64_C(1) << (v & 63); }
static inline bool hd_conflict_has(const Search *s, int v) { return s->conflict[v >> 6] >> (v & 63) & 1; }
void hd_conflict_empty(Search *s);
// Pushes a copy of it; returns its index.
int hd_conflict_push(Search *s);
void hd_conflict_unite(Search *s, int pushed);      // adds a pushed one to it
void hd_conflict_unite_into(Search *s, int pushed); // and the other way
// Adds a waiting value to the conflict, with the reason why it is no lower: the value it rests on, what that rests on,
// and so on to the ground. Values blamed since `blames` went up are not visited again.
void hd_conflict_blame(Search *s, int v);
// Blames those neighbours of v that are in the conflict and whose lowest place (with `tops`: lowest top) is above
// `most`. Returns whether there was one.
bool hd_conflict_blame_neighbours(Search *s, int v, int64_t most, bool tops);
#endif
