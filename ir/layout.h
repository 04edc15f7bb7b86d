// Layouts: how a value, a parameter or a buffer is spread over the ranks of the mesh. Its type is what one rank holds;
// its layout says, for each axis, how the whole is made of that: every rank has all of it, ranks have equal parts along
// a dimension, or ranks have terms of a sum. Absent from a text: whole along every axis.
//
// Of a vocabulary that the ranks do not divide, parts are `uneven`: they are as long as hd_uneven_part says, together
// longer than the whole, and what lies behind the end of the whole is 0 in each value that is laid out so. So a sum
// over the dimension is that of the whole. A mesh has one such size (Mesh.uneven).
//
// Along an axis whose ranks own experts and read other sequences (axes.def: BOTH) the whole is what one rank computes
// of its own sequences, and that is what is absent from a text. Every other layout there says what a rank has of all
// ranks, one behind the other along the first dimension, which is as many times as long: `every` all of it; `routed`
// the rows that belong to its experts; `sum` terms of a sum; `sent` rows of its own tokens, for each rank or from
// each. A part along a dimension is one of a parameter, or of what
// is added over the sequences of all ranks, such as its gradient.
#ifndef IR_LAYOUT_H
#define IR_LAYOUT_H
#include "ir/mesh.h"

enum { // along one axis; LAYOUT_SPLIT + d: split along dimension d
    LAYOUT_WHOLE,
    LAYOUT_SPLIT,
    LAYOUT_SUM = LAYOUT_SPLIT + HD_MAX_DIMS,
    LAYOUT_EVERY,
    LAYOUT_ROUTED,
    LAYOUT_SENT,
    LAYOUT_UNEVEN, // LAYOUT_UNEVEN + d: along dimension d
    LAYOUT_BITS = 5
};
_Static_assert(LAYOUT_UNEVEN + HD_MAX_DIMS <= 1 << LAYOUT_BITS && LAYOUT_BITS * N_AXES <= 64, "a layout is one word");

static inline int hd_layout_at(Layout l, int axis) {
    return (int)(l >> LAYOUT_BITS * axis & ((1u << LAYOUT_BITS) - 1));
}
static inline bool hd_layout_splits(int at) { return at >= LAYOUT_SPLIT && at < LAYOUT_SUM; } // into equal parts
static inline bool hd_layout_uneven(int at) { return at >= LAYOUT_UNEVEN; }
static inline int hd_layout_dim(int at) { // that is split; -1: none is
    return hd_layout_splits(at) ? at - LAYOUT_SPLIT : hd_layout_uneven(at) ? at - LAYOUT_UNEVEN : -1;
}
// Whether a rank's first dimension is that of all ranks.
static inline bool hd_layout_stacks(int axis, int at) {
    return HD_EXPERT_AXES >> axis & 1 && at >= LAYOUT_SUM && !hd_layout_uneven(at);
}
Layout hd_layout_with(Layout l, int axis, int at); // the same but for one axis
Axes hd_layout_axes(Layout l);                     // along which it is not whole
const char *hd_layout_word(int at);                 // sum, every, routed, sent; NULL: another
// How long the parts are of `size` rows for so many ranks, which do not divide them; 0: a rank would have none. Where
// that is a small share of them, parts are multiples of 64, for products.
int64_t hd_uneven_part(int64_t size, int64_t ranks);
int64_t hd_part_of_size(int64_t size, int64_t ranks); // equal, where the ranks divide it
const char *hd_layout_text(Arena *a, Layout l);    // "over {tensor: 0}"; "whole"
// The type of the whole where a rank holds `part`; NULL: it exceeds what a type may be.
const Type *hd_type_whole(Ctx *cx, const Type *part, Layout l, const Mesh *mesh);
// The part of `whole` that a rank holds; NULL: a dimension that it splits does not divide, or there is none of that
// number.
const Type *hd_type_part(Ctx *cx, const Type *whole, Layout l, const Mesh *mesh);

// The column `spread` of ops.def: where the operands of an op are so along one axis (in[i], for operand i), how its
// results are (out[i]). NULL; or what is wrong: no rule computes the op so on what each rank holds.
const char *hd_spread(const Op *o, int axis, const int *in, int *out);
bool hd_spread_on_rows(OpKind k); // whether it computes on rows that a dispatch has made
const char *hd_spread_experts(const Op *o, int axis, const int *in, int *out); // along an axis of HD_EXPERT_AXES
// Whether the layouts that the tensor stage says follow from the ops, and are possible on the mesh; reports what is
// wrong.
void hd_layout_check(const Module *m);
#endif
