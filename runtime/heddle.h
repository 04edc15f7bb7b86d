// The interface between a compiled program and the runtime. codegen prints an HdProgram and one C function for each
// planned function; hd_main does the rest. The functions that those call are in heddle_calls.h. Offsets are bytes into
// the device arena, those of hd_pinned into the page-locked arena of the host. Nothing here depends on the compiler.
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
enum { HD_COUNTS_EACH = 3 };
enum { HD_STATES = 4, HD_MOST_RESULTS = 16 }; // the most of an optimizer; of a loss, beside itself

// The parameters of a unit as one flat vector of `size` elements. Each rank owns `shard` of them, in the order of its
// number in its group over the axes `split`. A storage holds either all elements or this rank's shard.
typedef struct {
    const char *name;
    int64_t size, shard; // elements; equal where nothing is sharded
    HdDtype compute_dtype, master_dtype;
    // byte offsets in the arena; -1: no such storage (compute: the master weights are used, rounded where gathered)
    int64_t master, state[HD_STATES], grad, compute;
    bool optimizer_sharded, grad_sharded; // whether each holds a shard; `optimizer`: master, states and compute
    int64_t next; // byte offset of all weights, gathered, in the compute dtype; -1: none are kept between steps
    unsigned split; // the axes whose ranks share it: a bit for each
    bool stateless; // the optimizer keeps nothing for it: master is all that a checkpoint has
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
    int64_t size;  // of that dimension, which is the first, where parts are longer together; 0: it has equal parts
} HdSplit;

// data: its ranks read different sequences. owns: they also own parameters, and one rank along it is not worth saying.
typedef struct { const char *name; int ranks; bool data, owns; } HdAxis;
// Of the groups over a set of axes (mesh.h). exchanges: hd_cuda_exchange is called with it. values: what it moves is
// read by the next op, as that of ranks which share a model. compares: hd_cuda_all_max is called with it.
typedef struct { const char *name; unsigned over; int stream; bool exchanges, values, compares; } HdComm;

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
    // What FP8 loses of n_counted values, HD_COUNTS_EACH numbers each, f32 from `counts` on: elements that became 0,
    // those beyond the largest number, those that were not finite.
    int n_counted;
    const char *const *counted;
    const int64_t *counted_of; // elements of each in a micro-batch of a rank
    int64_t counts;
} HdStep;

static inline size_t hd_counts_bytes(const HdStep *s) {
    return (size_t)s->n_counted * HD_COUNTS_EACH * sizeof(float);
}

typedef struct { // a matrix product, row-major: d (m x n) = a (m x k) b (k x n); ta: a is stored k x m; tb: b is stored
                 // n x k
    int64_t m, n, k;
    bool ta, tb, accumulate; // accumulate: d += a b
    HdDtype a, b, d;         // sums are f32 (f64 for f64)
    int epilogue;            // HD_EPI_*
    int64_t batch;           // 1, or the number of equal products one after another (no epilogue)
    int64_t like;            // the algorithm is that of so many of them, whatever `batch` is; 0: `batch`
    int64_t columns;         // the algorithm is that of so many columns, whatever n is; 0: n
    int64_t workspace_bytes;
    int align; // every operand starts at a multiple of so many bytes: 1, 2, 4 or 8; 0: 16
    int scaled; // HD_SCALED_*: d = (a b) * scale of a * scale of b (tb): f32; no epilogue, batch 1
    int64_t block; // of HD_SCALED_BLOCKS and HD_SCALED_SQUARES
    bool fast;  // of scaled: sums of the tensor cores are not added in f32 every few steps
} HdGemm;
enum { HD_EPI_NONE, HD_EPI_BIAS }; // bias: n values of d's dtype
enum { // a scale for each row of both factors; one for all of each; one for each `block` elements of a row of both,
       // [k / block][m] and [k / block][n]; so of a, and of b for `block` rows, [n / block][k / block], with zeros at
       // the end of a row up to a multiple of 4
    HD_SCALED_NONE, HD_SCALED_ROWS, HD_SCALED_WHOLE, HD_SCALED_BLOCKS, HD_SCALED_SQUARES
};

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

// What an optimizer that takes whole matrices does with those of a rank (ir/optimizer.h): `batch` matrices (1 on target
// host) begin with element `at` of the rank's part of a bucket, one after another, and each becomes `scale` times an
// orthogonal one. product: the three of a step, indices into HdProgram.gemms; target cuda. The first two are
// symmetric: where `own` has shared memory, a kernel of the program computes one instead.
typedef struct { int kernel, shared; } HdSymmetric; // index into HdProgram.kernels; dynamic bytes of a block
typedef struct { int64_t rank, at, batch, rows, cols; float scale; int product[3]; HdSymmetric own[2]; } HdTurned;
typedef struct {
    unsigned split; // the axes over which ranks are numbered
    HdDtype dtype;  // that is computed in
    int n;
    const HdTurned *list;
    int64_t x, g, h, sums; // byte offsets in the workspace, of lane 0
    int lanes;    // so many of the list at once, on streams of their own; target cuda
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

// How a token is chosen, as runtime/sample/choose.h says: temperature 0: the first of the largest logits. `at`: the
// position of this token in [0, 1).
typedef struct {
    double temperature, top_p, at;
    int64_t top_k;
} HdPick;
enum { HD_MOST_CHOSEN = 1 << 20 };

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
    int compensation; // likewise, of what the weights in bf16 lack
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
    // Text: the token that is chosen by n logits, at most HD_MOST_CHOSEN, becomes the i32 at `token`, and the one at
    // `position` grows by 1, so that the next run of the function of a token reads both. The first logit becomes that
    // i32 as well, or -1 where a logit is not finite. Ordered as a run. NULL: the host chooses.
    bool (*choose)(HdExec *x, const HdPick *how, int64_t logits, int64_t n, int64_t token, int64_t position);
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

#include "heddle_calls.h" // next to this file, too
#endif
