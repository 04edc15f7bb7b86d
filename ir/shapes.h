// The sizes of matrix products and of attention, from an op's operands and attributes. Type rules, evaluator, costs,
// passes and code generators use these.
#ifndef IR_SHAPES_H
#define IR_SHAPES_H
#include "ir/ir.h"

// d (m x n) = a (m x k) b (k x n), `batches` times one after another; ta, tb: a, b are stored transposed.
typedef struct {
    int64_t batches, m, n, k, b_k;
    bool ta, tb;
} Product;                       // b_k: k according to b; equal once the types are checked
Product hd_product(const Op *o); // of matmul, bmm, gemm, grouped, grouped_grad
bool hd_scales_of_rows(const Op *o); // of a scaled product: each row of a factor has a scale; else all of it has one
bool hd_scales_of_squares(const Op *o); // of one with blocks: 128 rows of b share a scale; else each row has its own

enum { HD_BLOCK = 128 }; // elements with one scale
typedef struct {
    int64_t rows, cols;             // of what is quantised
    bool squares, across;           // as the attributes of quantize_blocks
    int64_t scale_rows, scale_cols; // of the scales, as the library reads them; of squares with zeros at the end
} Blocks;
Blocks hd_blocks(const Type *x, bool squares, bool across);
Blocks hd_quantized_blocks(const Op *o); // of quantize_blocks; of quantize_both the first

typedef struct {
    bool grad, packed, causal, documents, sink;
    DType dtype;
    int64_t batch, seq, heads, kv_heads, size; // size: elements of a head
    int64_t q_stride, kv_stride, o_stride;     // elements from one position to the next
    int64_t part[3]; // first element of q, k, v (and of their gradients) in a row of their operand
    int64_t window; // positions that a query sees, itself the last of them; seq: every one up to itself, or all
    double scale, softcap; // softcap: 0: scores stay as they are
} AttentionShape;
static const double HD_MOST_SOFTCAP = 1e6;
enum { HD_ATTENTION_QUERIES = 128 };                 // on tensor cores: rows of a block of the forward pass and of dq
// rope: the angle from one position to the next of elements i and i + size/2 of a head (i < size/2)
double hd_rope_rate(const Attrs *rope, int64_t i, int64_t size);
int64_t hd_rope_columns(const Op *rope); // of its first heads, which turn
int64_t hd_rope_apart(const Op *rope);   // heads that are rows of their own; 1: they are in one row
int64_t hd_rope_seq(const Op *rope);     // positions
unsigned hd_reduced_axes(const Op *o);           // of sum, reduce_max and sum_to: a bit for each axis of the operand
void hd_strides(const Type *t, int64_t *stride); // along each axis, the elements from one index to the next
int64_t hd_index_parts(const Op *o); // of a vocabulary, each of which operand 1 indexes; 1: it is not in parts
int64_t hd_table_rows(const Op *o); // of embedding_grad: rows of the table
int64_t hd_indexed(const Op *o); // rows of a table, or logits of a row, that operand 1 indexes; -1: none
// Column sums over `rows` rows add runs of so many consecutive rows, then the sums of the runs in order: a power of two
// between HD_LEAST_PARTIAL_ROWS and HD_MOST_PARTIAL_ROWS, the largest that gives a GPU two runs a multiprocessor.
int hd_partial_rows(int64_t rows);
// Of attention_step: q, k and v are in[in[i]], from element at[i] of the row on.
typedef struct { int64_t heads, kv_heads, size, at[3]; int in[3]; } StepParts;
StepParts hd_step_parts(const Op *o);
static inline int hd_step_operands(const Op *o) { return hd_has(&o->attrs, A_PACKED) ? 2 : 4; } // without a sink
int64_t hd_cached_positions(const Op *o); // of attention_step: positions of which keys and values are kept
// conv1d and conv1d_grad: `outer` sequences; runs: of HD_CONV_RUN positions, in all of them; wide: columns of x.
typedef struct {
    bool grad, bias, silu, reverse, documents; // documents: the last operand says where they begin
    int64_t outer, seq, dim, taps, runs, wide, start;
} ConvShape;
ConvShape hd_conv_shape(const Op *o);
static inline bool hd_casts_to(const Op *o, DType d) { return o->kind == OP_CAST && o->out[0]->type->dtype == d; }
// The dispatch whose result number `result` v is; NULL: it is none.
static inline const Op *hd_dispatch_of(const Value *v, int result) {
    return v->def && v->def->kind == OP_DISPATCH && v->index == result ? v->def : NULL;
}
static inline bool hd_is_backward(const Op *o) { return hd_op_is(o, TRAIT_BACKWARD); }
static inline bool hd_attends(const Op *o) { return hd_op_is(o, TRAIT_ATTENTION) && !hd_is_backward(o); }
// The gradient of a look-up: it adds rows of one index.
static inline bool hd_adds_rows(const Op *o) { return hd_op_is(o, TRAIT_LOOKUP) && hd_is_backward(o); }
Value *hd_loss_weights(const Op *o); // of cross_entropy and cross_entropy_grad, a number a row; NULL: they have none
int64_t hd_loss_ignored(const Op *o); // the target without a loss; -1, which is none, where no target is ignored
AttentionShape hd_attention_shape(const Op *o); // of attention and attention_grad
// Pairs of a query and a key that it sees, of one head of one sequence: causal, half of seq x seq.
// Documents are not known when a program is compiled and count as one.
double hd_attention_pairs(const AttentionShape *s);
bool hd_attention_masked(const AttentionShape *s);   // by more than causality: a window or documents
int hd_attention_operands(const Op *o);             // without starts of documents, the sink, the key of its dropout
int hd_attention_sink_at(const Op *o); // of attention, attention_step, sink_grad: which operand it is; -1: it has none
Value *hd_attention_sink(const Op *o); // NULL: it has none
int hd_keys_operand(const Op *o);                   // k, and the one after it is v; -1: there is none, or it is packed
Value *hd_attention_starts(const Op *o);            // of documents; NULL: it has none
bool hd_attention_on(const Op *o, const char *impl); // whether `impl` or `else` names it
bool hd_attention_suits_tensor_cores(const AttentionShape *s);
int64_t hd_attention_tile(const AttentionShape *s);     // rows of the tile that such a block walks over
bool hd_attention_suits_wgmma(const AttentionShape *s); // on sm_90
bool hd_attention_suits_ordered(const AttentionShape *s);
// wgmma_ordered: queries of a tile, and the workspace in bytes: by tile dq in f32, lse, row sums and a counter, with
// documents the queries' first keys, and which blocks of keys meet which tiles.
int64_t hd_attention_ordered_tile(const AttentionShape *s);
int64_t hd_attention_ordered_bytes(const AttentionShape *s);
// Shared memory of a block, in bytes, of the kernel that needs most: on tensor cores and of the one for any head size.
int64_t hd_attention_shared(const AttentionShape *s, bool tensor_cores);
#endif
