// Shared by the files of the pass `fuse`. prepare: the forms that grouping relies on, biases among them; storage: which
// ops may not move past which; groups: which ops make one kernel, and its position; kernels: kernel functions and
// launches.
#ifndef PASSES_FUSE_FUSE_H
#define PASSES_FUSE_FUSE_H
#include "passes/pass.h"
#include "passes/analysis/kernel_texts.h"
#include "passes/analysis/row_space.h"

typedef struct { int after, before; } Bounds; // ids of the ops that a kernel must follow and precede

typedef struct {
    RowSpace space;
    double pos;      // the kernel's position in the new order of the function
    VEC(Op *) ops;   // in program order
    bool gone;       // merged into another group
    Bounds bounds;   // by the storage that it reads
} Group;

// Ops by id; values by id. Ids are dense and in program order when grouping starts.
typedef struct {
    Module *m;
    PassCx *cx;
    Func *f;
    Uses uses;
    VEC(Group) groups;
    int *group;      // by op: its group, or -1
    double *pos;     // by op that is in no group
    Bounds *bounds;  // by op
    bool *busy;      // by position: an op was moved to just before it
} Fusion;

void hd_fuse_prepare(Module *m, Func *f, PassCx *cx);
Bounds *hd_fuse_bounds(const Func *f, Arena *a);
bool hd_fuse_add_for_readers(Func *f, const Uses *uses, Arena *a); // whether it changed something
// by value: a bias that its product's gemm adds
bool *hd_fuse_epilogue_biases(const Func *f, const Uses *uses, Arena *a);
void hd_fuse_epilogues(Func *f, PassCx *cx); // after kernels have taken theirs
void hd_fuse_group(Fusion *s);
bool hd_fuse_read_outside(const Fusion *s, const Value *v, int g); // by an op that is not in group g
void hd_fuse_emit(Fusion *s, KernelTexts *kernels);

// Values that are available to every group.
static inline bool hd_fuse_is_source(const Value *v) {
    return !v->def || hd_op_is(v->def, TRAIT_CONSTANT | TRAIT_SOURCE);
}
#endif
