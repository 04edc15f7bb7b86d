// Packing: byte offsets for values whose lifetimes are known (dynamic storage allocation, NP-hard). Values whose
// lifetimes overlap get disjoint bytes. Also reads and writes the CSV files of the MiniMalloc benchmarks.
#ifndef PASSES_PACK_PACK_H
#define PASSES_PACK_PACK_H
#include "ir/base/arena.h"
#include <stdint.h>

typedef struct { int64_t lower, upper, size, align; } Interval; // alive in [lower, upper); align: a power of two

// Fills offset[0..n). Stops as soon as everything fits into `capacity`; 0: packs as tightly as it finds. Returns 0, or
// 1 when the best packing found is larger than the capacity. The first `fixed` values are placed before all others, in
// this order, each as low as those before it leave.
int hd_pack(int n, int fixed, const Interval *values, int64_t *offset, int64_t capacity);
// The same for a part of an arena. `base`: the bytes below it; where both together are within 1 % of the least that
// they can take, the search for better ones is short. `early`: steps of a search for a packing into the capacity before
// packing from both ends; 0: none. `steps` grows by the steps of inner loops.
// `effort`: by stages, it packs with few steps, in proportion to the values, then with some more, then with all; and
// stops before a stage where at most `enough` bytes are needed. `at`: by fixed value, the least offset it may have;
// NULL: none has one.
typedef enum { PACK_AT_ONCE, PACK_BRIEF, PACK_DEEP, PACK_BY_STAGES } PackEffort;
typedef struct {
    int64_t capacity, base, early, enough, steps;
    PackEffort effort;
    const int64_t *at;
} PackRoom;
int hd_pack_into(int n, int fixed, const Interval *values, int64_t *offset, PackRoom *room);
// Searches for a packing into `capacity` (pack_search.c): in `steps` steps of inner loops at the lower bound and as
// many at larger sizes, counted so that equal inputs give equal packings; what it finds at the bound it finds with any
// larger capacity as well. And within `seconds` unless that is 0. Returns 0, or 1 when there is none or none was
// found; then `offset` stays as it was.
int hd_pack_search(int n, const Interval *values, int64_t *offset, int64_t capacity, int64_t steps, double seconds);
// Searches for a packing as high as the lower bound that can be cut in two from side to side, again and again, down to
// single values; in `steps` steps (pack_slice.c). Returns 0, or 1 when none was found; then `offset` stays as it was.
int hd_pack_slices(int n, const Interval *values, int64_t *offset, int64_t steps);
// No packing is smaller: the most bytes alive at one time, each size rounded up to its alignment.
int64_t hd_pack_lower_bound(int n, const Interval *values);
// Bytes that a packing takes.
int64_t hd_pack_height(int n, const Interval *values, const int64_t *offset);

// Packs the values of a CSV text with a header that names the columns id, lower, upper, size (any order; other columns
// are ignored) and writes the same with a column `offset`. Returns NULL, or what is wrong with the text. height and
// bound may be NULL. With a capacity it searches until everything fits, until no packing can exist, or for `seconds`
// (0: no limit).
struct Out;
const char *hd_pack_csv(Arena *a, const char *text, int64_t capacity, double seconds, struct Out *out, int64_t *height,
                        int64_t *bound);
#endif
