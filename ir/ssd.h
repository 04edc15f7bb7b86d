// The sizes of ssd and ssd_grad, from the operands and attributes. Type rules, evaluator, costs and code generators use
// these.
#ifndef IR_SSD_H
#define IR_SSD_H
#include "ir/ir.h"

// Operands: [dy,] x, dt, a, b, c[, d][, starts]; results of the gradient: dx, ddt, da, db, dc[, dd].
typedef struct {
    bool grad, skip, documents; // skip: d is there
    DType dtype;                // of x, b, c and y
    int64_t batch, seq, heads, size, groups, state, chunk, chunks; // size: of a head's x; state: of a group's b and c
} SsdShape;

enum { HD_SSD_CHUNK = 1024 }; // the longest

SsdShape hd_ssd_shape(const Op *o);  // of operands whose types are checked
Value *hd_ssd_skip(const Op *o);     // d; NULL: it has none
Value *hd_ssd_starts(const Op *o);   // of documents; NULL: it has none

// Target cuda: where the parts of the workspace begin, in f32 elements.
typedef struct {
    int64_t clock;    // [batch, heads, seq]: the sum of dt a from the start of the chunk to each position
    int64_t scores;   // [batch, chunks, groups, chunk, chunk]: c_i . b_j
    int64_t states;   // [batch, chunks, heads, size, state]: what comes into each chunk
    int64_t dstates;  // the same: the gradient of what leaves it
    int64_t dscores;  // as scores
    int64_t rows, cols; // [batch, heads, tiles, seq]: sums over a tile of the gradient of L, of that without dt
    int64_t came, left; // [batch, heads, seq]: how y reads what came in; how x, without dt, is in what leaves
    int64_t kept;     // [batch, heads, seq]: x . dy
    int64_t decays, da, dd; // [batch, chunks, heads]: <state, its gradient> of a chunk; its parts of da and dd
    int64_t all;
} SsdSpace;
enum { HD_SSD_TILE = 64 };
SsdSpace hd_ssd_space(const SsdShape *s);

// Kernels on tensor cores (codegen/cuda/templates/ssd_mma.cu) go in steps of 64 positions, whatever the chunk.
bool hd_ssd_suits_cores(const SsdShape *s);
// Their workspace: where parts begin, in f32 elements. Steps are whole.
typedef struct {
    int64_t clock, dt;       // [batch, heads, steps * 64]: the sum of dt a log2(e) from the start of the step; dt
    int64_t states, dstates; // f16 [batch, steps, heads, size, state]: that comes into a step; gradient of what leaves
    int64_t parts;           // [splits, 2, batch, seq, groups, state]: parts of db and of dc, of more than one split
    int64_t da, dd;          // [batch, steps, heads]: a step's parts
    int64_t powers;          // [2, batch, steps, heads]: what states and dstates are divided by
    int64_t all;
    int splits;              // of the heads of a group
} SsdCoreSpace;
SsdCoreSpace hd_ssd_core_space(const SsdShape *s);
#endif
