// The interface between a compiled program and the runtime. codegen prints an HdProgram and one C function for each
// planned function; hd_main does the rest. Offsets are bytes into the device arena, those of hd_pinned into the
// page-locked arena of the host. Nothing here depends on the compiler.
#ifndef RUNTIME_HEDDLE_H
#define RUNTIME_HEDDLE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum {
#define DTYPE(id, ...) HD_##id,
#include "dtypes.def" // next to this file wherever that is installed
} HdDtype;

typedef struct { const char *name; HdDtype dtype; int rank; int64_t dim[6]; int64_t offset; } HdTensor;

typedef enum {
#define INIT(id, ...) HD_INIT_##id,
#include "inits.def"
} HdInit;

enum { HD_CHOICES = 20 }; // bytes of a hash as text
enum { HD_STATES = 4, HD_MOST_RESULTS = 16 }; // the most of an optimizer; of a loss, beside itself

// The parameters of a unit as one flat vector of `size` elements. Each rank owns `shard` of them, in the order of its
// number in its group over the axes `split`. A storage holds either all elements or this rank's shard.
typedef struct {
    const char *name;
    int64_t size, shard; // elements; equal where nothing is sharded
    HdDtype compute_dtype;
    // byte offsets in the arena; -1: no such storage (compute: the master weights are used, rounded where gathered)
    int64_t master, state[HD_STATES], grad, compute;
    bool optimizer_sharded, grad_sharded; // whether each holds a shard; `optimizer`: master, states and compute
    int64_t next; // byte offset of all weights, gathered, in the compute dtype; -1: none are kept between steps
    unsigned split; // the axes whose ranks share it: a bit for each
    bool stateless; // the optimizer keeps nothing for it: master, in the compute dtype, is all that a checkpoint has
} HdBucket;

// A parameter, in canonical order. One that is split along a dimension over ranks has the sizes of the part that a rank
// has: storage counts its elements, files and initial values those of the whole (checkpoint/pieces.h).
typedef struct {
    const char *name;
    int rank;
    int64_t dim[6], count;
    HdInit init;
    double std; // normal: standard deviation; uniform: half width; const: the value
    int bucket; // HdProgram.buckets
    int64_t at; // its first element there
} HdParam;
typedef struct { // of a parameter
    unsigned over; // the axes over which it is split, a bit for each; 0: every rank has all of it
    int along;     // the dimension that they split
} HdSplit;

// data: its ranks read different sequences. owns: they also own parameters, and one rank along it is not worth saying.
typedef struct { const char *name; int ranks; bool data, owns; } HdAxis;
// Of the groups over a set of axes (mesh.h). exchanges: hd_cuda_exchange is called with it. values: what it moves is
// read by the next op, as that of ranks which share a model.
typedef struct { const char *name; unsigned over; int stream; bool exchanges, values; } HdComm;

typedef struct { // one line of the plan, for profiles, errors and traces
    const char *op, *stream, *path, *where; // "gemm", "compute", "blocks.3.mlp", "gpt2.hd:14"
    double flops, bytes;                    // floating-point work and bytes moved, by the compiler's count
    double floor; // microseconds below which the device's table says that neither can go; 0: it says nothing
} HdAction;

typedef struct { // a storage that nothing may write next to (guard.h)
    const char *name;  // "result %12" of the plan, "buffer @root.grad", "workspace", "argument %tokens"
    int64_t at, bytes; // in the device arena
    int action;        // it gets its bytes when this action begins; -1: with the function or the program
    bool pinned;       // in the page-locked arena instead
} HdGuarded;
typedef struct { int n; const HdGuarded *at; } HdGuardedList; // by their first action

typedef struct { // numbers that an action reads as indices, and that no op proves to be in range (base/indices.h)
    const char *name; // of the value, "%26" of the plan
    int64_t at, n;    // in the device arena: so many of i32
    int64_t low, high, also; // what the action takes, or `also`; 0: no other
    int action;
} HdIndexed;
typedef struct { int n; const HdIndexed *at; } HdIndexedList; // by their action

// An argument of the loss, which a run fills for every micro-batch: a row of data for each of dim[0] sequences.
typedef struct {
    const char *name;
    HdDtype dtype; // I32 or F32
    int rank;
    int64_t dim[6];
    int next;      // the argument whose elements, one further on, are its own where it has no data; -1: none
    int64_t below; // of I32: every element is from 0 to less than this,
    int64_t also;  // or this; 0: no other
} HdInput;

typedef struct HdExec HdExec;
struct HdWorld; // world.h
struct HdDraw;  // draw.h
typedef struct {
    const char *name;
    int n_args, n_results, n_actions;
    const HdTensor *args, *results;
    const HdAction *actions;
    void (*run)(HdExec *x); // issues every action in plan order; target cuda
    // target host: issues the actions of one stream, by stream index; NULL: it has none in this function
    void (*const *run_stream)(HdExec *x);
} HdFunc;

typedef struct { // a range of a function's actions that is captured as a graph once, then replayed
    const char *name;
    void (*run)(HdExec *x); // issues them in plan order; target cuda
} HdRegion;

// Losses of 128 steps, each in the place of the oldest, and how many there were (from 256 on, 128 less); the same of
// norms; the z-scores of the last step's loss and norm.
enum { HD_HISTORY_STEPS = 128, HD_HISTORY_Z = 2 * (HD_HISTORY_STEPS + 1), HD_HISTORY = HD_HISTORY_Z + 2 };

typedef struct { const HdFunc *func; int64_t times; } HdSegment;
typedef struct { const char *name; int64_t offset; } HdResult; // a further result of the loss, f32, for the log
typedef struct { // functions that run one after another, each so often before the next one
    int n_segments; // 0: the program has no such step
    const HdSegment *segments;
    int64_t loss, norm, counter; // byte offsets of f32, f32 and i32; -1: absent
    int64_t history; // of f32[HD_HISTORY]: losses and norms of the last steps; only where HdProgram.skip_z is not 0
    int64_t random; // of i32[4]: the seed, and the number of the sequence that this rank reads next; -1: absent
    unsigned overlaps; // streams, a bit for each, that may run on when a function but the last has returned
    int64_t dropped; // of f32: the rows that experts beyond their capacity left out in the step; -1: none can
    int n_results;
    const HdResult *results;
} HdStep;

typedef struct { // a matrix product, row-major: d (m x n) = a (m x k) b (k x n); ta: a is stored k x m; tb: b is stored
                 // n x k
    int64_t m, n, k;
    bool ta, tb, accumulate; // accumulate: d += a b
    HdDtype a, b, d;         // sums are f32 (f64 for f64)
    int epilogue;            // HD_EPI_*
    int64_t batch;           // 1, or the number of equal products one after another (no epilogue)
    int64_t workspace_bytes;
    int align; // every operand starts at a multiple of so many bytes: 1, 2, 4 or 8; 0: 16
    int scaled; // HD_SCALED_*: d = (a b) * scale of a * scale of b (tb): f32; no epilogue, batch 1
    bool fast;  // of scaled: sums of the tensor cores are not added in f32 every few steps
} HdGemm;
enum { HD_EPI_NONE, HD_EPI_BIAS }; // bias: n values of d's dtype
enum { HD_SCALED_NONE, HD_SCALED_ROWS, HD_SCALED_WHOLE }; // a scale for each row of both factors; one for all of each

typedef struct {
    unsigned gx, gy, gz, block, shared; // blocks; threads of a block; its dynamic shared memory
    unsigned cluster[3];                // blocks of a cluster, as the grid counts them; 0: there are none
} HdGrid;

typedef struct { int64_t cols, rows, many; } HdMatrices; // so many matrices, one after another

// An argument of a kernel: a word (an address, or a narrower value in its low bytes), or `bytes` at `data`, as a tensor
// map is.
typedef struct {
    uint64_t word;
    const void *data;
    size_t bytes;
} HdArg;

typedef struct { // attention over [batch, seq, heads*size] with row strides in elements; forward and backward are two
                 // descriptors
    int64_t batch, seq, heads, kv_heads, size;
    int64_t q_stride, k_stride, v_stride, o_stride; // of q/dq, k/dk, v/dv, o/do
    bool causal, grad;                              // grad: this one is for hd_*_attention_grad
    float scale;
    HdDtype dtype;
    int64_t workspace_bytes;
    int64_t window; // positions that a query sees, itself the last of them; 0: as many as there are
    bool documents; // a query sees its own document only: `starts` says for each position where that begins
    float softcap;  // a score s becomes softcap * tanh(s / softcap); 0: it stays as it is
    bool sink;      // forward: the sum of exponentials of a row has exp(sink[head]) as well
    // dropout: batches of a sequence (0: there is none), what a word must reach for its element to be kept, the factor
    int64_t each;
    uint32_t threshold;
    float factor;
    bool part; // of more heads than these: the key says which part
    // target cuda: the kernels for what the library does not run. Indices into HdProgram.kernels; -1: no such kernel.
    //   forward  kernel[0](q, k, v, o, lse[, starts][, sink][, key])
    //   backward kernel[0..2], as many as there are, in this order, each with (dout, q, k, v, o, lse, dq, dk, dv,
    //   workspace[, starts][, key]). The first batch*heads*seq*4 bytes of the workspace are rowsum(dout * o), f32
    //   [batch, heads, seq], but for kernels that add dq up there.
    //   Where `boxes` are not 0, forward takes tensor maps instead of q, k and v. Their boxes are 64 elements of one
    //   head at boxes[0] positions of q and boxes[1] of k and v, in rows of 128 bytes swizzled as wgmma reads them.
    unsigned boxes[2];
    int impl; // HD_ATTENTION_*
    int kernel[3];
    HdGrid grid[3];
} HdAttention;
// CUDNN: cuDNN where it is installed, repeatable on this GPU and fits the workspace, else the kernels, as a note on
// stderr says; where there are no kernels, the program does not start. cuDNN's repeatable backward needs
//   batch*heads*seq*4 (as above) + 1024 + batch*heads*seq*seq*2
//   + (kv_heads < heads ? 4*batch*heads*seq*size : 0) bytes, the forward 1024.
enum { HD_ATTENTION_CUDNN, HD_ATTENTION_KERNEL };

typedef struct { const char *name, *text; } HdSource; // a CUDA translation unit
typedef struct {
    const char *name;
    int source, shared_bytes; // dynamic shared memory it needs
    bool waits; // its first statement waits for the kernels before it: it may be launched while they end
} HdKernel;

// What an optimizer that takes whole matrices does with those of a rank (ir/optimizer.h): the matrix begins with
// element `at` of the rank's part of a bucket and becomes `scale` times an orthogonal one. product: the three of a
// step, indices into HdProgram.gemms; target cuda.
typedef struct { int64_t rank, at, rows, cols; float scale; int product[3]; } HdTurned;
typedef struct {
    unsigned split; // the axes over which ranks are numbered
    HdDtype dtype;  // that is computed in
    int n;
    const HdTurned *list;
    int64_t x, g, h, sums, offered; // byte offsets in the workspace, of lane 0
    int lanes;    // so many matrices at once, on streams of their own; target cuda
    int64_t lane; // bytes from one lane to the next
    int squares, scale;         // indices into HdProgram.kernels; target cuda
} HdTurn;
enum { HD_TURN_LANES = 4, HD_TURN_STEPS = 5, HD_TURN_RUNS = 1024 }; // the most sums of squares of a matrix; target cuda
#define HD_TURN_LEAST 1e-7f
#define HD_TURN_A 3.4445f
#define HD_TURN_B (-4.7750f)
#define HD_TURN_C 2.0315f

// What an optimizer with means of rows and columns (ir/optimizer.h) does with a parameter of a rank: `state`: where the
// numbers of its states begin in those of the rank.
typedef struct { int64_t rank, at, rows, cols, state[HD_STATES]; } HdLined;
// Of a value: whether it differs from row to row (1) and from column to column (2).
enum { HD_PER_ROW = 1, HD_PER_COLUMN = 2, HD_PER_ELEMENT = 3, HD_MEANS = 8 };
typedef struct {
    unsigned split; // the axes over which ranks are numbered
    int n, n_states, n_means;
    const HdLined *list;
    int per[HD_STATES];              // of states
    int of[HD_MEANS], to[HD_MEANS];  // of what is averaged, and of the means
    int64_t mean[HD_MEANS], fresh[HD_STATES], sums; // byte offsets in the workspace
    // Indices into HdProgram.kernels; target cuda: of each mean, of the elements, of each state of lines; -1: none. The
    // second adds up what the first has summed.
    int kernel[HD_MEANS + 1 + HD_STATES][2];
} HdLines;
enum { HD_LINE_RUNS = 64 };

typedef struct { // a schedule of learning rates
    int kind, shape;  // HD_LR_*, HD_FALL_*
    int64_t warmup, total, decay;
    double peak, floor;
    int points;
    const double *steps, *rates; // of the points
} HdRate;
enum { HD_LR_CONSTANT, HD_LR_LINEAR, HD_LR_COSINE, HD_LR_WSD, HD_LR_INVERSE_SQRT, HD_LR_POINTS };
enum { HD_FALL_LINEAR, HD_FALL_COSINE, HD_FALL_SQRT };

typedef struct { // a function of the model that --run names
    const char *name;
    int n_inputs;
    const HdInput *inputs;
} HdCall;

typedef struct HdBackend HdBackend;
typedef struct {
    const char *model, *source, *target, *arch; // "GPT2", "gpt2.hd", "cuda", "sm_90"
    // model_hash: of parameters and training numbers, not of the schedule: a checkpoint must match it
    const char *plan_hash, *model_hash;
    const char *model_core; // the same without the numbers, the batch and the precision of the train block
    const char *train; // "{eps = 1e-08, clip = 1.0, ...}" without accumulate and loss_scale (checkpoint/settings.h)
    const char *report, *report_text;   // JSON, as --emit=report prints it, and for people, as --emit=table does
    const char *timeline;               // JSON: what a page of a timeline shows of the plan (timeline.h)
    int64_t arena_bytes, pinned_bytes;  // of the device; page-locked, of the host
    int64_t batch, seq, micro;          // of one micro-batch; seq 0: no argument holds tokens
    int n_inputs;
    const HdInput *inputs;
    double model_flops;                 // per step: forward and backward, causal attention at half
    HdRate lr; // for the log; a peak below 0: unknown
    bool skips;                         // train.on_nan = skip
    // The first exchange of tokens that its bound is too small for notes what would do: byte offset of i32[3], the
    // bound in percent, whether an op has noted it, blocks that have ended; 0: no exchange of the program has a bound.
    // And the bound that has room for every token.
    int64_t bound_wanted;
    int bound_of_all;
    double skip_z[2];                   // train.skip_loss_z and skip_norm_z; 0: none is skipped for it
    int64_t seed;                       // train.seed: what --seed replaces
    int64_t loss_scale;                 // that gradients have: a power of two; 0: 1
    int n_axes, n_comms;
    const HdAxis *axes;                 // of the mesh, the innermost first
    const HdComm *comms;
    int n_buckets, n_states;
    const char *const *states; // names of the optimizers'; a bucket has those of its own
    HdDtype state_dtype; // of all of them
    int average; // the state, from 1, that is an average of the weights and begins as they do; 0: none is
    const HdBucket *buckets;
    int n_params;
    const HdParam *params; // and behind them n_lines more: states with a number for each row, column or parameter
    int n_lines;
    const HdSplit *splits; // of each parameter; NULL: none is split
    const char *const *file_names; // of each parameter in files of weights; NULL: it, or all of them, have their own
    const unsigned char *file_turned; // of each parameter: its file has its axes the other way round; NULL: none has
    const char *hub_config;           // JSON: what config.json of Hugging Face says of the model; NULL: unknown
    HdStep train_step, eval_step;
    HdStep logits_step; // of one function: i32[1, seq] of the first input to its result, f32[1, seq, vocab]
    // of one function: a token i32[1, 1] of the first input and its position i32[1, 1], below seq, to f32[1, 1, vocab];
    // it keeps what the tokens after it read of this one
    HdStep decode_step;
    HdStep call_step; // functions of the model that run one at a time, each on a row of its own inputs: segment i is
    const HdCall *calls; // calls[i]
    int n_funcs;
    const HdFunc *funcs; // else, one with arguments takes a micro-batch of all inputs, in their order
    const HdBackend *backend;
    int n_sources, n_kernels, n_gemms;
    const HdSource *sources;
    const HdKernel *kernels;
    const HdGemm *gemms;
    // streams by index (0, "compute", is the one that copies and graphs go to), number of events, attention descriptors
    // (hd_cuda_attention gets a pointer into this table)
    int n_streams, n_events, n_attentions;
    const char *const *streams;
    int lanes; // the most of an HdTurn; 0: 1
    unsigned computing; // streams beside the first that run products and kernels, a bit for each: others go before them
    const HdAttention *attentions;
    int n_regions;
    const HdRegion *regions;
    int64_t guard; // bytes before and after every storage that belong to it and that nothing may write; 0: none
    HdGuardedList guarded;           // buffers that persist
    const HdGuardedList *guarded_in; // by function: its arguments, results, workspaces and transient buffers
    const HdIndexedList *indexed_in; // by function; NULL: all indices are proved to be in range
} HdProgram;

typedef struct {
    bool use_graphs, profile;
    const char *choices; // of --choices: the file of the algorithms that libraries run; NULL: none
} HdOpen;

// How a target does things. Functions return false after describing the failure with hd_fail.
struct HdBackend {
    const char *name;
    bool synchronous; // `run` returns when the work is done: issuing ahead would gain nothing
    bool threads;     // the ranks of a run are threads of one process; else each is a process
    // all (world.h): NULL on failure. Everything is compiled, loaded and connected, memory is zeroed. `w` outlives the
    // executor.
    HdExec *(*open)(const HdProgram *p, struct HdWorld *w, const HdOpen *how);
    // into the device arena; ordered before later runs; may be called by several threads at once
    bool (*write)(HdExec *x, int64_t offset, const void *data, size_t bytes);
    // Makes initial values where they stay, of type F32, BF16 or F16; ordered as `write`. NULL: the host makes them.
    bool (*draw)(HdExec *x, const struct HdDraw *d, HdDtype dtype, int64_t offset);
    // Greedy text: the first of the largest of n logits becomes the i32 at `token`, and the one at `position` grows by
    // 1, so that the next run of the function of a token reads both. The first logit becomes that i32 as well, or -1
    // where a logit is not finite. Ordered as a run. NULL: the host chooses.
    bool (*choose)(HdExec *x, int64_t logits, int64_t n, int64_t token, int64_t position);
    bool (*read)(HdExec *x, int64_t offset, void *data, size_t bytes);         // waits for everything issued so far
    // Host memory, clear, into which `read` copies at the full rate of the link, until give_memory. NULL after hd_fail.
    // The two functions are NULL where any memory does.
    void *(*take_memory)(HdExec *x, size_t bytes);
    void (*give_memory)(HdExec *x, void *memory, size_t bytes);
    // Asynchronous, unless said above. HdExec.step, begins and ends give the run its place in a step. Between two runs
    // of a step its overlapping streams go on; all other streams, and all of them between steps, have ended.
    bool (*run)(HdExec *x, const HdFunc *f);
    // post copies `bytes` at each of the n offsets to the host as part of the stream of work; `collect` waits for the
    // oldest such copy.
    bool (*post)(HdExec *x, int n, const int64_t *offsets, size_t bytes);
    bool (*collect)(HdExec *x, void *data);
    bool (*sync)(HdExec *x);
    // Chrome trace of the last step run with profiling on, with one process per rank and one thread per stream. Where
    // ranks are threads, `all`: rank 0 writes the file with every rank's events; else each rank writes its own.
    bool (*write_profile)(HdExec *x, const char *path);
    bool (*write_timeline)(HdExec *x, const char *path); // likewise, as a page of HTML (timeline.h)
    void (*close)(HdExec *x);
    double (*peak_flops)(HdExec *x); // dense rate for MFU; 0: unknown
    const char *(*device)(HdExec *x); // its name
};
extern const HdBackend hd_host_backend, hd_cuda_backend;

// Every backend's executor begins with this.
struct HdExec {
    const HdProgram *program;
    struct HdWorld *world;
    const HdStep *step; // whose functions run
    bool begins, ends;  // the run at hand is the first of the step, the last one
    bool check;         // before a graph is replayed, what it would be captured with is compared with what it was
    char choices[HD_CHOICES];  // hash of the algorithms that libraries run (cuda/choices.h); "": the target has none
    char *base;         // the device arena; host only
    char *pinned;       // the page-locked arena of the host
    // NULL unless profiling: the action `index` of f is issued next
    void (*on_action)(HdExec *x, const HdFunc *f, int index);
};

int hd_main(int argc, char **argv, const HdProgram *p); // the binary's command line
// Keeps one message (printf form) without what a terminal could take for a command; hd_failure() returns it.
// Thread-local. Returns false.
bool hd_fail(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
const char *hd_failure(void);
double hd_now(void); // seconds, of a clock that never jumps

// A function whose actions a GPU's graph captures runs once. To optimise it gains nothing, and takes nine tenths of the
// C compiler's time.
#if defined(__clang__)
#define HD_CAPTURED __attribute__((optnone, noinline))
#elif defined(__GNUC__)
#define HD_CAPTURED __attribute__((optimize("O0"), noinline))
#else
#define HD_CAPTURED
#endif

// --- called by generated programs of both targets
static inline char *hd_pinned(HdExec *x, int64_t offset) { return x->pinned + offset; }
static inline void hd_action(HdExec *x, const HdFunc *f, int index) { // the next call is this action
    if (x->on_action) x->on_action(x, f, index);
}

// The number of elements with weight decay among the `count` that this rank updates, its part of a bucket that is split
// over these axes; the first `decayed` of the bucket have it.
int64_t hd_decayed_here(const HdExec *x, int64_t decayed, int64_t count, unsigned split);
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
// y [rows, n] = rows of x [rows, k] by w [groups, k, n], with tb [groups, n, k]; d [groups, m, n] = a' b by group
void hd_host_grouped(HdDtype dt, int64_t rows, int64_t n, int64_t k, int64_t groups, bool tb, const void *x,
                     const void *w, const int32_t *counts, void *y);
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
// step += 1; scalars[0..4] = lr, factor of gradients, 1-beta1^t, 1-beta2^t, t. Computed in f64, each rounded to f32
// once; factor = (clip > 0 && norm > clip ? clip / norm : 1) / loss_scale. The learning rate of step t = 1, 2, ... (the
// same text as in ir/eval/update.c):
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
// of the operands; to: of the result.
void hd_cuda_grouped(HdExec *x, int stream, int kernel, HdGrid grid, HdDtype dtype, HdDtype to, HdMatrices ta,
                     HdMatrices tb, HdMatrices td, uint64_t a, uint64_t b, uint64_t counts, uint64_t d);
void hd_cuda_zero(HdExec *x, int stream, uint64_t d, size_t bytes);
void hd_cuda_copy(HdExec *x, int stream, uint64_t d, uint64_t s, size_t bytes);
void hd_cuda_all_gather(HdExec *x, int stream, int comm, HdDtype dt, uint64_t part, uint64_t whole, int64_t part_count);
void hd_cuda_reduce_scatter(HdExec *x, int stream, int comm, HdDtype dt, uint64_t whole, uint64_t part,
                            int64_t part_count);
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
