// Probes send numbers through the launches of a function. All elements of a value are the same number, or, in a mixed
// probe, one of KINDS numbers by their column. The inputs of the launches (results of other ops, arguments and weights)
// are leaves. Equal leaves, such as a weight that is read twice, get the same numbers. A small change of a leaf gives
// the derivative of each result, summed over the leaf's elements or over those of one kind.
#ifndef PASSES_VERIFY_VALUES_PROBE_H
#define PASSES_VERIFY_VALUES_PROBE_H
#include "ir/writes.h"
#include "passes/verify/verify_plan.h"

typedef enum {
    LEAF_LOSS, // cross_entropy; those of one head and one target are one leaf, even where the logits are computed twice
    LEAF_PRODUCT, // of a weight; products with one weight are one leaf
    LEAF_WEIGHT,  // read by a launch
    LEAF_ARGUMENT,
    LEAF_GRADIENT, // of the backward pass: 0, so a value that reads it shows only what begins at this place
    LEAF_OTHER
} LeafKind;
typedef struct {
    LeafKind kind;
    const Symbol *home; // bucket, or buffer without one; NULL: none
    int64_t at, target; // element of it, else what distinguishes leaves; of a loss: which target
    const Value *value; // the first of them
    bool cut, hidden;   // it has no number of its own; a value without a number depends on it
} Leaf;
// The kind of an element is its column modulo KINDS. Two kinds would not do: a norm maps every row of two numbers to
// the same row.
enum { KINDS = 4 };
typedef struct { double of[KINDS]; } Num;
static inline Num hd_probe_all(double x) { // one number, of whichever kind
    Num y;
    for (int h = 0; h < KINDS; h++) y.of[h] = x;
    return y;
}
static inline int64_t hd_probe_columns(const Type *t, int kind) { // of a row, that are of a kind
    return (hd_type_cols(t) + KINDS - 1 - kind) / KINDS;
}
typedef struct {
    PlanCheck *c;
    const Func *f;
    bool mixed;           // the numbers of a leaf differ, so that what an op does along rows shows
    const Home *homes;
    bool *wanted;         // by value id
    int *leaf;            // by value id: index of its leaf, plus 1
    Num *at;              // by value id: the numbers of the last run; NaN: unknown, or not one number a kind of column
    Num *still;           // those with no leaf moved, which is what stop_gradient gives; `at` where there is none
    VEC(Leaf) leaves;
    int *chain, *slot, n_slots; // leaves by hash: the first of a slot and the next of a leaf, plus 1
} Probe;

Probe hd_probe(PlanCheck *c, const Func *f, bool mixed);
Probe hd_probe_of(PlanCheck *c, const Leaf *leaves, int n); // leaves alone, for hd_probe_find
void hd_probe_want(Probe *p, const Value *v);
void hd_probe_prepare(Probe *p);                    // call it after all wants: finds leaves
void hd_probe_cut(Probe *p); // makes values without a number leaves; call it after the first prepare, or not at all
enum { HD_ALL_LEAVES = -2 };
// Fills `at`, with one kind of a leaf moved (-1: no leaf; HD_ALL_LEAVES: all of all, this way or that). A leaf of one
// number moves as a whole.
void hd_probe_run(Probe *p, int moved, int kind, double by);
// By leaf: the change of the sum of what `stores` store for a change of each kind of it; NaN where it is not smooth.
Num *hd_probe_back(Probe *p, const Write *kept, int n); // probe_back.c
bool hd_probe_inner(const Op *o);                    // its results follow from its operands
void hd_probe_op(const Probe *p, const Op *o, const Num *x, Num *y); // probe_ops.c: y[0..2] of an op's operands x
int64_t hd_probe_count(const Probe *p, const Type *t, int kind); // elements of a kind; not mixed: all are of kind 0
int hd_probe_find(const Probe *p, Leaf like);       // an equal leaf, or -1
bool hd_probe_same(const Leaf *x, const Leaf *y);   // equal
const Op *hd_probe_maker(const Value *v);           // the value that an alias refers to
Leaf hd_probe_leaf(const Probe *p, const Value *v); // the leaf of a value
#endif
