// The plan's verifier: reads only a finished plan, and proves that its places, streams and events keep every value
// whole.
#ifndef PASSES_VERIFY_VERIFY_PLAN_H
#define PASSES_VERIFY_VERIFY_PLAN_H
#include "ir/mesh.h"
#include "passes/analysis/seam.h"

typedef struct { Span span; const char *text; } Finding;
typedef struct { Finding *at; int n, cap; } Findings;

// All errors of the plan; empty: none. `unproved`, unless NULL, receives what could be neither proved nor refuted.
Findings hd_check_plan(const Module *m, Arena *a, Findings *unproved);
// Module.proof: verify-plan has found no error in the plan as it is. The manager drops it before each pass.
typedef struct PlanProof { Findings unproved; } PlanProof;
bool hd_plan_verified(const Module *m, Arena *a, Findings *unproved); // by that proof, else by a check now

// The maximum number of units gathered at once, and of whole gradients of units alive at once, however the streams run.
typedef struct { int gathered_units, live_gradients; } PlanMaxima;
PlanMaxima hd_plan_maxima(const Module *m, Arena *a);

// --- the parts, one file each
enum { PART_MASTER, PART_STATE, PART_GRAD, PART_SUM, PART_LEVEL, PART_COMPUTE, PART_NEXT, N_PARTS };
typedef struct { // a bucket and what belongs to it
    const Symbol *symbol;
    int64_t size;                 // elements
    Axes split, copied, own;      // of the axes with several ranks: those that shard it, of equal parts, of other ones
    int64_t shards, copies;       // ranks along `split`; along those of `copied` over which gradients are summed
    const Symbol *part[N_PARTS];  // buffers that persist; NULL: none. PART_STATE: the first of the optimizer's
    VEC(const Symbol *) items;    // parameters, by offset
} BucketParts;

typedef struct {
    const Module *m;
    Arena *a;
    Findings found, unproved;
    Findings unshared; // stores of a loss that no probe compares with @eval's; proved where `shared`
    bool shared;       // the terms of the loss are those of @eval's, by the share of a micro-batch (values/program.c)
    Findings probed; // what a probe of the loss refutes (values/scale.c): wrong, unless the values are proved
    int64_t bytes[N_SPACES], persistent[N_SPACES]; // of the arenas
    int64_t guard;                                 // bytes of a storage before and after it; 0: none
    bool spaces;                                   // the plan uses more than the device
    bool cuda;                                     // of the target cuda, else of host
    bool of_model;                                 // the plan says of which model it is: it has the symbol `program`
    const Symbol **buffers;                        // that persist, by space and offset
    int n_buffers;
    Mesh mesh;
    Axes live, data; // axes with several ranks; those of them along which ranks read other sequences
    int64_t ranks;   // that read different sequences
    BucketParts *buckets;
    int n_buckets;
    int *bucket_of;         // by symbol id, of buckets, parameters and buffers: which of them, plus 1; 0: none
    int *part_of;           // by symbol id, of buffers: which part of its bucket it is; N_PARTS: none
    const Symbol *train, *eval, *logits, *decode, *call; // steps; NULL: none
    const Op **captured;        // by symbol id, of regions: the op that begins it; NULL: none so far
    Seams seams;        // of steps whose functions overlap
    const Func *f;          // the function under check
    const Joined *joined;   // it is this one's: what its first ops are; NULL: it is a function of the plan
    Op **ops;               // of it, by op id
    const int *number;      // of it, by value id: the number in the text
} PlanCheck;

// Adds a finding; returns false.
bool hd_plan_wrong(PlanCheck *c, const Op *o, Span span, const char *fmt, ...) __attribute__((format(printf, 4, 5)));
void hd_plan_unproved(PlanCheck *c, const Op *o, const char *text);
const char *hd_plan_op(const PlanCheck *c, const Op *o);       // "op 12 [compute] gemm (blocks.3, gpt.hd:14)"
const char *hd_plan_number(const PlanCheck *c, const Op *o);   // "12", "30 of @micro" of the function before
const char *hd_plan_value(const PlanCheck *c, const Value *v); // "%7"
// An address and a range as the text has them: "0x1e00" and "host:0x1e00", "[0x0, 0x100)" and "host:[0x0, 0x100)".
const char *hd_plan_at(const PlanCheck *c, Space s, int64_t at);
const char *hd_plan_range(const PlanCheck *c, Space s, int64_t lo, int64_t hi);
static inline BucketParts *hd_plan_bucket(const PlanCheck *c, const Symbol *s) { // that a symbol belongs to; NULL: none
    return s && c->bucket_of[s->id] ? &c->buckets[c->bucket_of[s->id] - 1] : NULL;
}
static inline Axes hd_plan_summed(const PlanCheck *c, const BucketParts *k) { // over which copies of gradients add up
    return k->copied & c->data;
}
// The parameter that contains elements [lo, hi) of a bucket; NULL: none, they are padding.
const Symbol *hd_plan_param_at(const BucketParts *k, int64_t lo, int64_t hi);
// The number of parts into which the elements of a bucket are divided over ranks by the `split` of `b`: 1, its shards
// or parts of them for the sum over copies; 0: it is none of these, or `b` has another number of elements.
int64_t hd_plan_parts(const PlanCheck *c, const BucketParts *k, const Symbol *b);
const char *hd_plan_part_text(int part);                        // "master_weights", "state"
// Which number of a step a buffer keeps, or a level of it: 0 the loss, 1.. its further results; -1: none.
int hd_step_keeps(const Symbol *step, const Symbol *s);
const Symbol *hd_step_kept_at(const Module *m, const Symbol *step, int number); // its buffer
// The kernel of a bucket of buffers of the model; NULL: it has parameters.
static inline const char *hd_plan_rule(const BucketParts *k) {
    return k ? hd_word(&k->symbol->attrs, A_KERNEL, NULL) : NULL;
}
bool hd_plan_is_weights(const PlanCheck *c, const Symbol *s); // a buffer that holds weights, kept or gathered
// Bytes [lo, hi) and what guards them: all that belongs to a storage.
void hd_plan_guarded(const PlanCheck *c, int64_t *lo, int64_t *hi);
int hd_plan_last_micro(const PlanCheck *c); // the segment of a step that is its last micro-batch; -1: it has none
void hd_plan_enter(PlanCheck *c, const Func *f); // makes it c->f
void hd_plan_join(PlanCheck *c, const Joined *j); // likewise
void hd_check_layout(PlanCheck *c); // of the module: mesh, comms, buckets and their contents; fills the tables above
void hd_check_addresses(PlanCheck *c);        // of the module: arenas, buffers, arguments
void hd_check_sizes(PlanCheck *c);         // of the module: no arena is larger than needed
void hd_check_kernels(PlanCheck *c);       // of the module: kernel functions
void hd_check_inputs(PlanCheck *c);        // of the module: arguments, tokens, homes of settings
void hd_check_settings(PlanCheck *c);      // of the module: steps, settings of the optimizer, classes
void hd_check_values(PlanCheck *c);        // of c->f: every value, alias and workspace
void hd_check_live(PlanCheck *c);           // of c->f: no more bytes are alive at once than the declared lower bound
void hd_check_order(PlanCheck *c);         // of c->f: events, forks and joins
void hd_check_regions(PlanCheck *c);       // of c->f: capture regions, and the events that cross their ends
void hd_check_overlaps(PlanCheck *c);      // of the module: what steps say of overlaps
void hd_check_seam(PlanCheck *c);        // of c->joined: the tail has ended when the function has
void hd_check_streams(PlanCheck *c);       // of c->f: which stream a collective belongs to
void hd_check_alive(PlanCheck *c);         // of c->f: how many gathered weights and gradients are alive
void hd_check_contents(PlanCheck *c);      // of c->f: what every byte holds when it is read; races
void hd_check_transfers(PlanCheck *c);     // of c->f: copies to the host and back
void hd_check_writes(PlanCheck *c);        // of the module: who writes what outlives a function
void hd_check_dropout(PlanCheck *c);        // of the module: the keys of dropout
void hd_check_contributions(PlanCheck *c); // of the module: gradients and optimizer, over the functions of a step
void hd_check_scales(PlanCheck *c);        // of the module: the loss that each function of a step keeps, by probes
bool hd_check_program(PlanCheck *c);       // of the module: it computes what the tensor stage computes; false: it does
                                           // not, or cannot be compared
#endif
