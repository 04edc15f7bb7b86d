// Shared by the files of the pass `fsdp`. pieces: the root by use; sharing: which parameters share a bucket; tensors:
// which of them are quantized with one scale; buckets: layout and symbols; windows: where weights are gathered and
// read; gradients: where gradients are written and reduced; dropout: keys of random numbers; update: loss, norm and
// optimizer. fsdp.c calls them in order.
#ifndef PASSES_FSDP_FSDP_H
#define PASSES_FSDP_FSDP_H
#include "ir/layout.h"
#include "passes/fsdp/bucket_layout.h"
#include "passes/pass.h"
#include "ir/base/ptr_map.h"

typedef enum {
    FSDP_NONE,
    FSDP_ZERO1,
    FSDP_ZERO2,
    FSDP_ZERO3
} Strategy; // what is sharded: each strategy shards what the ones before it do, and more
typedef enum { COMM_GATHER, COMM_REDUCE, COMM_OUTER, COMM_WORLD, COMM_NORM, N_COMMS } Comm;

enum { HD_WHOLE_TENSORS = -1 };

// The parameters of one unit that are used in one dtype and split over the same axes (ir/layout.h). Elements:
// layout.size in all, layout.shard on each rank.
typedef struct {
    const char *unit_name, *name;
    int unit;      // units are numbered in the order of their first parameter
    DType weights; // what its parameters are used as
    bool frozen;   // they are: its only storage is `master`, in that type, and `next`
    const Func *rule; // they are buffers, which this kernel updates by the sum of what is added to them; NULL: trained
    const Func *own_kernel; // the optimizer of its group; NULL: the module's
    int64_t row;   // forward products quantize them in rows of so many elements and nothing else reads them; 0: not so;
                   // HD_WHOLE_TENSORS: each with one scale
    Axes own;      // over which each of its parameters is split, so that every rank has a bucket of other elements
    DType sent;    // of gradients that are not whole on a rank, and of what ranks send of them: f32, or bf16
    bool logged;   // one of them is a number that a run reports
    Loc loc;       // for the ops that move it as a whole
    int used;      // first used by the op of @micro at this position
    Bucket layout;
    VEC(BucketItem) items;
    Axes split, copied;     // over which it is sharded; along which ranks have the same part of it
    int64_t shards, copies; // ranks along `split`; along those of `copied` whose gradients add up
    Symbol *bucket, *master, *compute, *grad; // compute: NULL where the master weights serve
    Symbol *next; // all of the weights, kept from step to step; NULL: none
    bool early;   // a step fills `next` after its optimizer, for the next step; else the function that reads it does
    VEC(Symbol *) levels; // with `tree`: of the sums of 1, 2, 4, ... micro-batches that wait for their neighbours
    Symbol *sum;  // of this rank's shard over micro-batches, where @b.grad holds all of one; NULL: @b.grad is it
    Symbol *gradient; // in the present function: where ops write gradients, and
    Symbol *reduced;  // where this rank's part of the sum over ranks is
} FsdpBucket;

// The number that a step keeps of its micro-batches and ranks: a mean, or a sum.
typedef struct {
    const char *name;     // of a further result; NULL: the loss
    Symbol *at;           // with `sum` several numbers, the counts
    bool sum;
    VEC(Symbol *) levels; // as those of a bucket
} StepNumber;

typedef struct {
    Module *m;
    PassCx *cx;
    const Attrs *train, *schedule;
    Strategy strategy;
    DType compute, moments; // of the weights that ops read; of the optimizer's states
    DType kept;             // of the weights that the optimizer keeps, where ops read no wider ones: f32, or `compute`
    Mesh mesh;
    Axes split;            // that shard what no rank owns, those that texts name
    int64_t shards, ranks; // that share a copy of the parameters; that read different sequences
    Axes own;              // over which some parameter is split
    bool several;          // ranks have to agree on a norm
    int64_t micro, prefetch, live_grads;
    bool each; // every micro-batch is reduced, else the sum of all
    bool tree; // likewise, and sums are those of a binary tree over micro-batches of all ranks
    bool quantizes; // what forward products quantize is gathered in one byte
    int quantized;  // gathers of such weights
    PtrMap tensors; // parameters that are quantized with one scale: the read in `reads` that says of which matrix
    VEC(const Op *) reads;
    bool compensates; // weights in bf16 have a state of what they lack
    bool from_master; // weights are gathered from the master weights, and no rounded copy of them is kept
    const Func *optimizer; // its kernel
    int64_t *work;         // of ranks, with matrices that each have whole (bucket_layout.h)
    VEC(const Symbol *) comms[N_COMMS]; // of each kind, over different axes
    VEC(FsdpBucket) buckets;
    VEC(int) reduced; // buckets in the order in which the present function reduces their gradients
    int n_units, runs; // runs: the most uses of units that a function has, without those of the same unit in between
    PtrMap units, by_name; // unit names to units, names of buckets to buckets
    Symbol *norm, *step, *history; // @state.*; history NULL: no step is an outlier
    VEC(StepNumber) numbers; // the loss, its further results and, of training alone, the counts
    const Attr *counted, *counted_of; // their places, and elements; NULL: there are none
    Symbol *random; // @state.random; NULL: no dropout so far
} Fsdp;

// A function of a step: whether it is the first and the last of its step. Validation is both: it cannot know what ran
// before it.
// `done`: with `tree`, the number of sums that its micro-batch completes, of 2, 4, ... micro-batches.
typedef struct { Func *f; bool first, last, alone; int done; } StepFunc;

// --- buckets
// Parameters of the root become units of their own, by where `micro` uses them (pieces.c).
void hd_fsdp_divide_root(Fsdp *s, const Func *micro);
bool hd_fsdp_collect(Fsdp *s);          // the parameters of each bucket; false after an error
bool hd_fsdp_place_buckets(Fsdp *s);    // likewise
bool hd_fsdp_adjoin(const Func *f);     // false after the error about parameters that are no matrix there
bool hd_fsdp_gathers(const Fsdp *s, const FsdpBucket *b); // a rank holds its shard alone, between steps
// The persistent gradient holds all elements, not a shard.
bool hd_fsdp_grad_is_whole(const Fsdp *s, const FsdpBucket *b);
Symbol *hd_fsdp_next(Fsdp *s, FsdpBucket *b); // declared when first asked for
static inline Axes hd_fsdp_summed(const FsdpBucket *b) {
    return b->copied & HD_DATA_AXES;
} // over which copies of its gradients add up
static inline const Symbol *hd_fsdp_shard(const FsdpBucket *b) {
    return b->compute ? b->compute : b->master;
} // of its weights: what is gathered
// A transient buffer of a function; `b` NULL: of no bucket.
Symbol *hd_fsdp_transient(Fsdp *s, const Func *f, const FsdpBucket *b, const char *part, const char *class, DType d,
                          int64_t n);
// of the parameter that a `param` or `grad` op names
FsdpBucket *hd_fsdp_owner(const Fsdp *s, const Op *o, const Symbol **param);
bool hd_fsdp_in_levels(const Fsdp *s);  // micro-batches are added in a tree
int hd_fsdp_levels(const Fsdp *s);      // how many sums wait at most, each of twice as many as the one before
bool hd_fsdp_add_state(Fsdp *s, const Func *micro); // false after the error about a name that this pass needs
const Symbol *hd_fsdp_comm(Fsdp *s, Comm c, Axes over); // declared when first asked for
Symbol *hd_fsdp_random_state(Fsdp *s); // likewise

// --- tensors: what the pass fp8 makes of a weight with fp8.scale = tensor, of which only the last two are read
typedef enum {
    FORM_NONE = -1, // it is not of a weight, or something else of it
    FORM_WEIGHT,
    FORM_ROWS, FORM_ROW_SCALES,                       // results of quantize
    FORM_ABS, FORM_MOST, FORM_AT_LEAST, FORM_INVERSE, // on the way to the scale, and from there
    FORM_WIDE, FORM_TIMES,                            // and to what is quantized
    FORM_SCALE, FORM_TENSOR
} WeightForm;
WeightForm hd_fsdp_form(const Op *o, const WeightForm *in); // of the result, from those of the operands
void hd_fsdp_find_tensors(Fsdp *s);                         // s->tensors
void hd_fsdp_set_tensors(const Fsdp *s, const FsdpBucket *b); // `tensors` of its symbol, once it is laid out
int hd_fsdp_tensor_at(const FsdpBucket *b, int64_t offset);   // the number of the tensor that begins there

// --- building
// Rounds what it gathers to the dtype of `into`, or quantizes it where `into` holds that. The op that it adds.
Op *hd_fsdp_collective(Fsdp *s, Builder *b, OpKind k, const Symbol *from, const Symbol *into, const Symbol *comm);
// A reduce_scatter in the order that config @train says.
void hd_fsdp_sum(Fsdp *s, Builder *b, const Symbol *from, const Symbol *into, const Symbol *comm);
void hd_fsdp_store(Fsdp *s, Builder *b, Value *v, const Symbol *into, int64_t offset, bool accumulate);
Value *hd_fsdp_view(Fsdp *s, Builder *b, const Symbol *buffer, int64_t offset, const Type *shape);

// --- passes over one function
void hd_fsdp_dropout(Fsdp *s, Func *f);
void hd_fsdp_weights(Fsdp *s, StepFunc f);
void hd_fsdp_gradients(Fsdp *s, StepFunc f);
void hd_fsdp_loss(Fsdp *s, StepFunc f, int64_t micro); // micro-batches that the loss is the mean of; its results, too
// Appends to `last`, the last micro-batch, where several ranks update or it is the only one; else one rank gets a
// function of its own. Returns which of the two.
const Func *hd_fsdp_update(Fsdp *s, Func *last);
#endif
