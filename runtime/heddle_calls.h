// The second half of heddle.h, which includes it: the functions that generated programs call.
#ifndef RUNTIME_HEDDLE_CALLS_H
#define RUNTIME_HEDDLE_CALLS_H
#include "heddle.h" // next to this file wherever that is installed

// --- called by generated programs of both targets
static inline char *hd_pinned(HdExec *x, int64_t offset) { return x->pinned + offset; }
static inline void hd_action(HdExec *x, const HdFunc *f, int index) { // the next call is this action
    if (x->on_action) x->on_action(x, f, index);
}

// The number of elements with weight decay among the `count` that this rank updates, its part of a bucket that is split
// over these axes; the first `decayed` of the bucket have it.
int64_t hd_decayed_here(const HdExec *x, int64_t decayed, int64_t count, unsigned split);
int64_t hd_number_along(const HdExec *x, unsigned axes); // of this rank in its group over these axes
// Byte offset of this rank's part in what a communicator gathers, of so many bytes a rank.
uint64_t hd_own_part(const HdExec *x, int comm, int64_t part_bytes);

// --- called by generated programs, target host
void hd_host_start(char **argv); // first thing in main
static inline char *hd_base(HdExec *x) { return x->base; }
// Mixtures of experts (experts.c). An index outside of its table is nowhere: it reads zeros, and takes no row.
// workspace: rows * n floats
void hd_host_top_k(HdDtype dt, int64_t rows, int64_t n, int64_t k, const void *x, void *values, int32_t *places,
                   void *workspace);
void hd_host_top_k_grad(HdDtype dt, int64_t rows, int64_t n, int64_t k, const void *dy, const int32_t *places,
                        void *dx);
// n tokens, k choices of each; wanted: HdProgram.bound_wanted, NULL: none
void hd_host_route(int64_t n, int64_t k, int64_t experts, int64_t ranks, uint64_t own, int64_t capacity,
                   const int32_t *index, int32_t *source, int32_t *slots, int32_t *sent, int32_t *wanted);
// n choices, k of a token; workspace: 2 * experts integers
void hd_host_dispatch(int64_t n, int64_t k, int64_t experts, int64_t capacity, int64_t runs, int64_t rows,
                      const int32_t *index, int32_t *source, int32_t *slots, int32_t *counts, int32_t *choice,
                      void *workspace);
void hd_host_take(HdDtype dt, int64_t rows, int64_t n, int64_t cols, const void *x, const int32_t *index, void *y);
// weight NULL: all are 1
void hd_host_combine(HdDtype dt, int64_t rows, int64_t tokens, int64_t k, int64_t cols, const void *y,
                     const int32_t *slots, const float *weight, void *out, bool stepwise);
void hd_host_combine_grad(HdDtype dt, int64_t rows, int64_t tokens, int64_t k, int64_t cols, const void *dout,
                          const void *y, const int32_t *slots, const float *weight, const int32_t *choice, void *dy,
                          float *dweight);
// y [rows, n] = rows of x [rows, k] by w [groups, k, n], with tb [groups, n, k]; d [groups, m, n] = a' b by group.
// source: the rows of x are these of a table, which has `from`; they are gathered into the workspace.
void hd_host_grouped(HdDtype dt, int64_t rows, int64_t n, int64_t k, int64_t groups, bool tb, const void *x,
                     const void *w, const int32_t *counts, void *y, const int32_t *source, int64_t from,
                     void *workspace);
void hd_host_grouped_grad(HdDtype dt, HdDtype to, int64_t rows, int64_t m, int64_t n, int64_t groups, const void *a,
                          const void *b, const int32_t *counts, void *d);
void hd_host_gemm(const HdGemm *g, const void *a, const void *b, const void *bias, void *d, void *workspace);
// The same product in another order of additions, that is faster where m = 1.
void hd_host_gemm_row(const HdGemm *g, const void *a, const void *b, const void *bias, void *d, void *workspace);
void hd_host_gemm_scaled(const HdGemm *g, const void *a, const void *b, const float *scale_a, const float *scale_b,
                         void *d, void *workspace);
// starts: of documents, [batch, seq], which never decrease in a sequence, each at most its own position; NULL without
// documents. key: of dropout, a row of what hd_host_dropout_keys makes; NULL without dropout.
void hd_host_attention(const HdAttention *t, const void *q, const void *k, const void *v, void *o, float *lse,
                       const int32_t *starts, const float *sink, const int32_t *key, void *workspace);
void hd_host_attention_grad(const HdAttention *t, const void *dout, const void *q, const void *k, const void *v,
                            const void *o, const float *lse, void *dq, void *dk, void *dv, const int32_t *starts,
                            const int32_t *key, void *workspace);
// Causal attention of one token: k and v become rows `position` of `keys` and `values`, of kv_heads * size elements
// each; the token sees the rows up to there, at most `window` of them. softcap, sink: as of HdAttention; NULL: there is
// none. workspace: heads * positions.
typedef struct {
    HdDtype dtype;
    int64_t heads, kv_heads, size, positions, window;
    float scale, softcap;
} HdAttentionStep;
void hd_host_attention_step(const HdAttentionStep *t, const void *q, const int32_t *position, const void *k,
                            const void *v, const float *sink, void *keys, void *values, void *o, float *workspace);
typedef struct {
    HdDtype dtype, dt_dtype, a_dtype, d_dtype; // of x, b, c and y; of dt; of a; of d
    int64_t batch, seq, heads, size, groups, state, chunk;
} HdSsd;
// d, dd and starts may be NULL; starts as of attention.
void hd_host_ssd(const HdSsd *t, const void *x, const void *dt, const void *a, const void *b, const void *c,
                 const void *d, const int32_t *starts, void *y, void *workspace);
void hd_host_ssd_grad(const HdSsd *t, const void *dy, const void *x, const void *dt, const void *a, const void *b,
                      const void *c, const void *d, const int32_t *starts, void *dx, void *ddt, float *da, void *db,
                      void *dc, float *dd, void *workspace);
void hd_host_cross_entropy(HdDtype dt, int64_t rows, int64_t vocab, const void *logits, const int32_t *targets,
                           const float *weights, int32_t ignore, float *loss, void *workspace);
// workspace: rows floats. dlogits may be logits. loss: mean over rows. dlogits = dloss/rows * (softmax - onehot). With
// weights, a number a row: the sum by them, and dlogits = dloss * weight * (softmax - onehot); rows of weight 0 or of
// target `ignore` are 0.
void hd_host_cross_entropy_grad(HdDtype dt, int64_t rows, int64_t vocab, const void *logits, const int32_t *targets,
                                const float *weights, int32_t ignore, const float *dloss, float *loss, void *dlogits,
                                void *workspace);
// own[i] = index[i] - first
void hd_host_own_index(int64_t n, uint64_t first, const int32_t *index, int32_t *own);
// lse and at: `parts` times `rows`. all: the log of the sum of exp over all parts. The loss: see hd_host_cross_entropy.
void hd_host_loss_of_parts(int64_t parts, int64_t rows, const float *lse, const float *at, const int32_t *targets,
                           const float *weights, int32_t ignore, float *loss, float *all);
// workspace: vocab + rows integers.
void hd_host_embedding_grad(HdDtype dt, int64_t rows, int64_t vocab, int64_t cols, const void *dy, const int32_t *index,
                            float *out, bool accumulate, void *workspace);
typedef struct {
    double clip, loss_scale, beta1, beta2;
    HdRate lr;
    bool skips; // a norm that is not finite makes the factor NaN, by which the optimizer leaves all as it is
    double skip_z[2]; // so does a z-score of the loss or of the norm above these; 0: none does
} HdOptimizer;
double hd_learning_rate(const HdRate *r, double step); // counted from 1
// sqrt of the sum of squares of n buffers, summed in fixed blocks of HD_HOST_NORM_BLOCK elements, then in block order,
// in f64, and divided by the scale of the loss. Generated programs check that the compiler sized the workspace for the
// same blocks.
enum { HD_HOST_NORM_BLOCK = 4096 };
void hd_host_grad_norm(int n, const float *const *buffers, const int64_t *counts, double loss_scale, float *norm,
                       void *workspace); // workspace: a double a block
// step += 1; scalars[0..5] = lr, factor of gradients, 1-beta1^t, 1-beta2^t, t, what that lacks of t. Computed in f64,
// each rounded to f32 once; factor = (clip > 0 && norm > clip ? clip / norm : 1) / loss_scale. The learning rate of
// step t = 1, 2, ... (the same text as in ir/eval/update.c):
//   t <= warmup:  peak t / warmup
//   then, with p = min(1, (t - warmup) / max(1, total - warmup)):
//   constant:     peak
//   linear:       floor + (peak - floor) (1 - p)
//   cosine:       floor + (peak - floor) (1 + cos(pi p)) / 2
//   wsd, inverse_sqrt, points: see there
// norm NULL: factor 1 / loss_scale.
void hd_host_step_scalars(const HdOptimizer *o, const float *norm, int32_t *step, float *scalars);
// Then, with a history: scores the step's norm and loss, and makes the factor NaN where skip_z says so.
void hd_host_skip_outlier(const HdOptimizer *o, const float *norm, const float *loss, float *history, float *scalars);
// The keys of a micro-batch, 8 words for each of `sites` dropouts (ir/dropout.h). `counter`: the seed and the number of
// this rank's next sequence, low words first, which goes on by `stride`.
void hd_host_dropout_keys(int32_t *counter, int64_t sites, int64_t stride, uint64_t place, int32_t *keys);
// The optimizer's update of n elements: scalars[0] is the rate, [1] the factor of gradients, [2], [3] the corrections.
typedef void HdUpdate(int64_t n, const float *scalars, float decay, const float *gradients, float *master,
                      float *const *states);
// elements [0, decayed) get weight decay; compute may be NULL or master
void hd_host_update(HdUpdate *update, int64_t count, int64_t decayed, float weight_decay, float lr_scale,
                    const float *grad, float *master, int n_states, float *const *states, void *compute,
                    HdDtype compute_dtype, const float *scalars);
// The same with states that are kept in a narrower type, and rounded to it to nearest even.
void hd_host_update_narrow(HdUpdate *update, int64_t count, int64_t decayed, float weight_decay, float lr_scale,
                           const float *grad, float *master, int n_states, HdDtype dtype, void *const *states,
                           void *compute, HdDtype compute_dtype, const float *scalars);
// How weights in bf16 are rounded at random (ir/rounding.h): by the first two words of `seed`, the second with the bits
// of `key` inverted. `before`: elements of the bucket before this rank's part; `place`: of the rank along the axes that
// split parameters.
typedef struct { int64_t at; uint32_t number; int64_t run, ranks; } HdRounded; // a parameter of the bucket
typedef struct {
    const int32_t *seed;
    uint32_t key;
    int n;
    const HdRounded *list;
    int64_t before, place;
} HdRounding;
// As hd_host_update, of master weights in bf16 and states of type `dtype`. scalars[4] + scalars[5] is the step.
// `r` NULL: to nearest even.
void hd_host_update_rounded(HdUpdate *update, int64_t count, int64_t decayed, float weight_decay, float lr_scale,
                            const float *grad, void *master, int n_states, HdDtype dtype, void *const *states,
                            const float *scalars, const HdRounding *r);
// The numbers of a run of elements: at[0], at[step], ...
typedef struct { const float *at; int64_t step; } HdLine;
// Of n elements. in: gradient, weights, states, means. stage s below the number of means: out[0] gets what mean s
// averages; that number: out[0] the weights and out[1 + i] state i, where that is per element; 1 + i above it: out[0]
// state i.
typedef void HdLineUpdate(int stage, int64_t n, const float *scalars, float decay, const HdLine *in, float *const *out);
void hd_host_update_lines(HdExec *x, const HdLines *t, HdLineUpdate *update, float decay, float lr_scale,
                          const float *grad, float *master, float *const *states, void *compute, HdDtype compute_dtype,
                          const float *scalars, void *space);
// Makes this rank's matrices orthogonal, in place. d: its part of the bucket; space: the workspace.
void hd_host_orthogonalize(HdExec *x, const HdTurn *t, float *d, void *space);
// one a block, as hd_host_grad_norm adds
void hd_host_square_sums(int n, const float *const *buffers, const int64_t *counts, double *sums);
void hd_host_root_sum(int64_t n, const double *sums, double loss_scale, float *norm);
// The same of runs of 32 elements, by binary digits in 29 bins, which add up exactly; and their root.
void hd_host_exact_square_sums(int n, const float *const *buffers, const int64_t *counts, double *bins);
void hd_host_exact_root_sum(int64_t n, const double *bins, double loss_scale, float *norm);
// n rows of `count` elements, n a power of two: neighbours are added, then neighbouring sums.
void hd_host_tree_sum(int64_t n, int64_t count, const float *rows, float *sum);
// Collectives of communicator `comm`: block until the whole group has met. `part` and `whole` do not overlap, but for a
// part to gather that is in its place in `whole` (hd_own_part).
void hd_host_all_gather(HdExec *x, int comm, const void *part, void *whole, size_t part_bytes);
// They fail, for the whole run, when the ranks do not all come for the same action or when a rank gives up. Rank r's
// part is whole's part r summed over ranks r+1, r+2, ..., r, rounded to dt after each addition.
void hd_host_reduce_scatter(HdExec *x, int comm, HdDtype dt, const void *whole, void *part, int64_t part_count);
// The first `moved` bytes of part r of every rank's `whole`, on rank r, one part after another in the order of ranks.
void hd_host_exchange(HdExec *x, int comm, const void *whole, void *parts, size_t part_bytes, size_t moved);
// Likewise in f32, summed over ranks 0, 1, ... as hd_host_tree_sum adds.
void hd_host_reduce_tree(HdExec *x, int comm, const void *whole, void *part, int64_t part_count);
// Likewise of parts in dt, added in f32: in a tree, or over ranks r+1, r+2, ..., r.
void hd_host_reduce_wide(HdExec *x, int comm, HdDtype dt, bool tree, const void *whole, void *part, int64_t part_count);
void hd_host_record(HdExec *x, int event); // in this run of the function
void hd_host_wait(HdExec *x, int event);
void hd_host_wait_before(HdExec *x, int event); // recorded in the run before
// Rows of `cols` elements as the op quantize has them: the elements in type `to`, and the scales. NULL: not these.
void hd_host_quantize(HdDtype from, HdDtype to, int64_t rows, int64_t cols, const void *x, void *q, void *scales);
// As the op quantize_blocks has them, in blocks of so many elements; a row of scales of squares has a multiple of 4.
typedef struct { HdDtype from, to; int64_t rows, cols, block; bool squares, across; } HdBlocks;
void hd_host_quantize_blocks(const HdBlocks *b, const void *x, void *q, float *scales);
// The scale by which each of n tensors of a bucket is quantized to type `to`, as far as elements [first, first + count)
// say it, of which x has the first one; 0 for a tensor with none of them. tensors: where each begins and ends. Scales
// are `stride` numbers apart, with zeros between them.
void hd_host_tensor_scales(HdDtype from, HdDtype to, int64_t first, int64_t count, int n, const int64_t *tensors,
                           const void *x, float *scales, int stride);
// The same elements, quantized by the scales of all of their tensors; 0 where no tensor is.
void hd_host_quantize_tensors(HdDtype from, HdDtype to, int64_t first, int64_t count, int n, const int64_t *tensors,
                              const void *x, const float *scales, int stride, void *q);
// Each number becomes the largest of all ranks, and NaN where one has it. They are not negative.
void hd_host_all_max(HdExec *x, int comm, int64_t n, float *numbers);
void hd_host_copy(HdDtype from, HdDtype to, int64_t count, const void *src, void *dst, bool accumulate);

// --- called by generated programs, target cuda. The backend's next function returns a failure of these.
uint64_t hd_device(HdExec *x, int64_t offset); // device address
void hd_cuda_launch(HdExec *x, int stream, int kernel, HdGrid grid, int n, const HdArg *args);
void hd_cuda_gemm(HdExec *x, int stream, int gemm, uint64_t a, uint64_t b, uint64_t bias, uint64_t d,
                  uint64_t workspace);
void hd_cuda_gemm_scaled(HdExec *x, int stream, int gemm, uint64_t a, uint64_t b, uint64_t scale_a, uint64_t scale_b,
                         uint64_t d, uint64_t workspace);
void hd_cuda_update_lines(HdExec *x, int stream, const HdLines *t, uint64_t grad, uint64_t master,
                          const uint64_t *state, uint64_t compute, int compute_bytes, uint64_t scalars,
                          uint64_t space);
void hd_cuda_orthogonalize(HdExec *x, int stream, const HdTurn *t, uint64_t d); // d: of t->dtype; the workspace
void hd_cuda_attention(HdExec *x, int stream, const HdAttention *t, uint64_t q, uint64_t k, uint64_t v, uint64_t o,
                       uint64_t lse, uint64_t starts, uint64_t sink, uint64_t key, uint64_t workspace);
void hd_cuda_attention_grad(HdExec *x, int stream, const HdAttention *t, uint64_t dout, uint64_t q, uint64_t k,
                            uint64_t v, uint64_t o, uint64_t lse, uint64_t dq, uint64_t dk, uint64_t dv,
                            uint64_t starts, uint64_t key, uint64_t workspace);
// A product by groups of rows, by a kernel that reads both operands and writes the result through tensor maps. dtype:
// of the operands; to: of the result. source: rows of a are gathered by it; 0: none are.
void hd_cuda_grouped(HdExec *x, int stream, int kernel, HdGrid grid, HdDtype dtype, HdDtype to, HdMatrices ta,
                     HdMatrices tb, HdMatrices td, uint64_t a, uint64_t b, uint64_t counts, uint64_t d,
                     uint64_t source);
void hd_cuda_zero(HdExec *x, int stream, uint64_t d, size_t bytes);
void hd_cuda_copy(HdExec *x, int stream, uint64_t d, uint64_t s, size_t bytes);
void hd_cuda_all_gather(HdExec *x, int stream, int comm, HdDtype dt, uint64_t part, uint64_t whole, int64_t part_count);
void hd_cuda_reduce_scatter(HdExec *x, int stream, int comm, HdDtype dt, uint64_t whole, uint64_t part,
                            int64_t part_count);
// On each rank the largest of all ranks, in their place.
void hd_cuda_all_max(HdExec *x, int stream, int comm, HdDtype dt, uint64_t numbers, int64_t count);
// Rank r receives the first `count` elements of part r of every rank's `whole`, in the order of ranks. Parts begin
// `stride` elements after each other.
void hd_cuda_exchange(HdExec *x, int stream, int comm, HdDtype dt, uint64_t whole, uint64_t parts, int64_t count,
                      int64_t stride);
void hd_cuda_record(HdExec *x, int stream, int event);
void hd_cuda_wait(HdExec *x, int stream, int event);
void hd_cuda_record_external(HdExec *x, int stream, int event); // in a region, for a wait outside of it
void hd_cuda_wait_external(HdExec *x, int stream, int event);   // in a region, for a record outside of it
void hd_cuda_region(HdExec *x, int region);                     // all actions of HdProgram.regions[region]
#endif
