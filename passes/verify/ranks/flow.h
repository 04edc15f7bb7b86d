// The contents of a plan's buffers while the functions of a step run one after another: the state that flow.c keeps,
// and the queries that contributions.c makes.
#ifndef PASSES_VERIFY_RANKS_FLOW_H
#define PASSES_VERIFY_RANKS_FLOW_H
#include "passes/analysis/range_map.h"
#include "passes/verify/verify_plan.h"
#include "ir/writes.h"

typedef enum {
    HOLDS_NOTHING, // the life of a transient buffer has just begun
    HOLDS_OLD,     // left by the previous step
    HOLDS_SUM,     // `count` contributions of this step, added up; 0: zeros
    HOLDS_WEIGHTS, // of a bucket; `fresh`: after the optimizer
    HOLDS_STALE,   // weights that an earlier step updated and that were not gathered since
    HOLDS_SQUARES  // sums of squares of gradients
} HoldsKind;
typedef struct {
    HoldsKind kind;
    int count;
    Axes over;    // axes over which a sum has been reduced, over which squares and losses have been gathered
    Axes taken;   // axes over which an op has reduced it or gathered it since
    bool fresh;
    const Op *by; // the op that wrote it last
    const Op *squares; // of those: the op that added them up
    int run;      // Flow.run at that time
    int64_t micro, n; // of a sum in a tree: its first micro-batch, and of how many it is
    bool used;        // it was added to its neighbour
} Holding;

// The elements of a buffer, or of a value that a collective takes or gives. Where ranks hold parts of a bucket,
// positions are those of the bucket: the same op runs on every rank, so that the parts of all ranks together are one
// vector.
typedef struct {
    const char *name;     // "@b.grad", "%7"
    const Symbol *buffer; // NULL: a value
    BucketParts *bucket;  // NULL: none
    int64_t parts;       // of the bucket; 1: a rank holds all of it
    int64_t size;        // positions
    RangeMap map;        // Cell.holds: index of a Holding
    int writes;          // contributions in the present function, by op
    bool ever;           // some op wrote it
} Held;

typedef struct {
    const Op *updated;   // the optimizer's op; NULL: not yet in this step
    const Op *squared;   // the op that has added up its squares; NULL: none yet
    RangeMap given, now; // contributions so far in this step, in the present function; Cell.holds: how many
    bool used, used_now; // whether the maps are there
} BucketFlow;

typedef struct {
    PlanCheck *c;
    const Func *f;
    const Home *homes; // of f
    int run;           // functions run so far: a segment may run several times
    const Op *at;      // the op at hand
    bool last;         // f is the last micro-batch of a step, or @eval
    bool each;         // config @train has each micro-batch summed over ranks, not the sum of all of them
    bool tree;         // it has micro-batches and ranks added in a tree
    int64_t micro;     // micro-batches of the training step before this one
    bool steps;        // the plan has micro-batches, so that what the optimizer reads can be complete
    bool *left;        // by symbol id: `next` buffers that a step leaves to the one after it to fill
    Held **held;       // by symbol id
    Held **values;     // by value id of f, of roots
    BucketFlow *flow;  // by bucket
    VEC(Holding) holdings;
} Flow;

Flow hd_flow(PlanCheck *c);
void hd_flow_run(Flow *w, const Func *f, bool last); // the next function of the step
Held *hd_flow_held(Flow *w, const Symbol *s);        // NULL: a buffer without elements
Held *hd_flow_value(Flow *w, const Value *v);        // of its buffer, or its own; NULL: it has none of either
BucketFlow *hd_flow_bucket(Flow *w, const BucketParts *k);
int hd_flow_hold(Flow *w, Holding h);                         // its index in `holdings`
Holding *hd_flow_holding(Flow *w, const Held *h, int i);      // of range i
bool hd_flow_same_bucket(Flow *w, const Op *o, const Held *h, const Held *g); // false after the finding
void hd_flow_cut_alike(const Held *h, Held *g); // cuts `g` wherever `h` is cut; both have the same positions

// flow_moves.c
void hd_flow_copy(Flow *w, const Op *o);
void hd_flow_keys(Flow *w, const Op *o);    // nothing: dropout.c
void hd_flow_begin(Flow *w, const Op *o);
#define COLLECTIVE(id, inverse, moves, sums, fact, name) void hd_flow_##name(Flow *w, const Op *o);
#include "ir/collectives.def"

// update.c
void hd_flow_update(Flow *w, const Op *o);
void hd_flow_norm(Flow *w, const Op *o);    // grad_norm, square_sums
void hd_flow_scalars(Flow *w, const Op *o); // root_sum, step_scalars
void hd_flow_set(Flow *w, Held *h, Holding what); // all of a buffer
void hd_flow_set_range(Flow *w, Held *h, int64_t lo, int64_t hi, Holding what);
#endif
