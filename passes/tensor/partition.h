// Declarations that the files of the pass `tensor-parallel` share.
#ifndef PASSES_TENSOR_PARTITION_H
#define PASSES_TENSOR_PARTITION_H
#include "ir/layout.h"
#include "passes/pass.h"

typedef VEC(Value *) ByValue; // by value id

typedef struct {
    Module *m;
    PassCx *cx;
    Mesh mesh;
    int axis;
    const Symbol *comm;
    Func *f;
    ByValue whole;       // the complete sum of a partial one; all positions of a value that is split by them
    ByValue parts;       // the complete sum of a partial one, split by positions; of a value that is split so: itself
    bool sequence;       // values are split by positions where an op can compute so
    int64_t batch, positions;
    int64_t bound;       // rows of an exchange in percent of an equal share; 0: tokens are gathered
    bool always;         // also where that moves as many bytes
    ByValue by;          // the rows by which tokens of a value of the experts are sent (route); NULL: gathered
    int64_t gathered, moved; // bytes of tokens that a rank receives in a micro-batch: if gathered, as they travel
    VEC(Op *) cut;       // products that slices replace
    int64_t collectives, by_positions; // those of them that leave a rank some positions
} Partition;

enum { HD_MAX_SLICES = 16 }; // of schedule.sequence.slices

// A new op before `at` with one operand and one result, which is laid out so along the axis.
Value *hd_partition_build(Partition *p, const Op *at, OpKind k, Value *in, const Attrs *as, const Type *t, int layout);
Value **hd_partition_slot(const Partition *p, ByValue *of, const Value *v); // NULL in it: nothing yet

// --- experts.c: along an axis of HD_EXPERT_AXES
bool hd_partition_experts(Partition *p);      // lays out p->f; false after an error
void hd_experts_transport(Partition *p);      // reads how tokens travel
bool hd_experts_refuse(const Partition *p);   // reports that no parameter is split over it

// --- slices.c
Value *hd_sequence_slices(Partition *p, Value *terms, const Op *at); // as hd_sequence_scatter; NULL: not in slices
void hd_sequence_end(Partition *p);                                  // of a function

// --- sequence.c
bool hd_sequence_begin(Partition *p);                                 // of a function; false after an error
bool hd_sequence_has(const Partition *p, const Type *t);              // [batch, positions, ..]
Value *hd_sequence_scatter(Partition *p, Value *terms, const Op *at); // the sum of terms, split by positions
Value *hd_sequence_gather(Partition *p, Value *part, const Op *at);   // all positions
void hd_sequence_mark(Partition *p, const Op *o);                     // that results are split as operands are
bool hd_sequence_refuse(Partition *p, const Op *o, const char *why);  // an op that would need all positions again
#endif
