// The numbers of a report, computed from the finished plan alone.
#ifndef PASSES_REPORT_FACTS_H
#define PASSES_REPORT_FACTS_H
#include "ir/machine/device_model.h"
#include "ir/layout.h"
#include "passes/analysis/seam.h"
#include "passes/analysis/live.h"
#include "passes/analysis/simulate.h"
#include "passes/verify/verify_plan.h"

#define HD_REPORT_CLASSES(X)                                                                                           \
    X(SHARDS, "shards") X(OPTIMIZER, "optimizer") X(WEIGHTS, "weights") X(GRADIENTS, "gradients")                      \
    X(KV_CACHE, "kv_cache") X(ACTIVATIONS, "activations") X(WORKSPACES, "workspaces") X(STAGING, "staging")            \
    X(UNUSED, "unused")
typedef enum {
#define X(id, text) CLASS_##id,
    HD_REPORT_CLASSES(X)
#undef X
    N_CLASSES
} ReportClass;
extern const char *const hd_report_class_text[N_CLASSES];

typedef struct { const char *name; int64_t count, bytes, exposed; } Traffic; // of one rank and step
typedef struct { Traffic *at; int n, cap; } Traffics;
// Attention ops of one kind that the plan gives to one implementation; `otherwise`: to which where cuDNN cannot run, or
// NULL.
typedef struct {
    const char *op, *impl, *otherwise;
    int64_t count; // in a step
    bool drops;    // so that only kernels of ours, which draw the numbers of ir/dropout.h, can run it
} Implemented;
typedef struct { Implemented *at; int n, cap; } ImplementedList;

typedef struct { // a capture region of a function of a step
    const Func *func;
    const char *name, *kind, *path;
    const Op *begin;
    const char *cut; // why it is not part of the one before it of its place and direction; NULL: it is the first
    bool bwd;
    int actions, external; // without events; events that it shares with what is outside of it
} RegionFact;
typedef struct { const char *name; int64_t bytes; } PieceFact; // of the root: its bucket, and the bytes of its gradient
typedef struct { const char *stream, *why; int64_t actions; } Outside; // of all regions, without events

// Gathers of a step that round master weights: how many, the bytes that one rank reads and writes for that, the seconds
// of that alone (0 without a device), and the bytes of the copies that there are none of. why: the schedule asks for
// them and there are none, since ...; NULL: otherwise.
typedef struct { int64_t gathers, moved, saved; double seconds; const char *why; } Rounded;

// Of gathered weights of units in a training step (pools.c): bytes that the plan has for them, those in use with so
// many units ahead, those of two buffers of the largest unit and of a buffer for each position of a unit's buckets. All
// 0: none is gathered.
enum { HD_POOL_DEPTHS = 4 };
typedef struct { int64_t prefetch, planned, in_use[HD_POOL_DEPTHS], two, positions; } Pools;

// Of grouped products: elements of their parameters on all ranks; bytes of one rank that persist for these, by class,
// and those of dispatched rows that one micro-batch keeps for its backward pass. gathered, moved: what a rank receives
// of tokens in a micro-batch if they are gathered, and as they travel; 0: nobody asked for an exchange. exchanged: they
// travel by one, and `why`.
typedef struct {
    int64_t parameters, bytes[N_CLASSES], rows, gathered, moved;
    bool exchanged;
    const char *why;
} Experts;

typedef struct {
    int64_t peak, bound, persistent, pinned, classes[N_CLASSES];
    const Func *at; // the function that holds the peak
    Live live;      // of it
    const bool *gradient; // its values on their way into a gradient buffer, by id
    int kernels, buckets;
    int gathered_max, gradients_max; // gathered units and whole gradients of units alive at once
    int64_t parameters, actions, padding, ranks;
    Mesh mesh;
    const char *strategy, *reduction;
    const Attr *merged; // products of the loss that became one with others, and how many they are now; NULL: as written
    int64_t loss_scale;          // that the gradients have
    int64_t chunks, chunk_bytes; // of logits: how many, and the size of one; 0: logits are as the model has them,
    const char *whole;           // and where they are large, why
    int64_t kept; // bytes of gradients that outlive a micro-batch
    const Attr *overlaps; // streams of a training step that run on over the ends of its functions; NULL: none
    int64_t held;         // bytes that one function's tail holds at the start of the next, at most
    double flops, model_flops;
    Traffics kinds, streams; // collectives by kind; by the stream they run on
    Rounded rounded;
    struct { int64_t half, f32; } sums;            // elements of gradients that a rank sends with grad = bf16, by type
    struct { int64_t gathers, others; } quantized; // of weights in a step, with gather = fp8
    Experts experts;
    Pools pools;
    struct { int64_t actions, bytes; } beside; // weight gradients on a stream of their own: in a step; estimated
    int64_t tokens;            // that all ranks read in a step; 0: unknown
    const DeviceModel *device; // NULL: there is no table for this target
    Simulation sim;            // of a training step on that device
    ImplementedList attention;
    const char *graph; // what the schedule asks to capture
    VEC(RegionFact) regions;
    VEC(Outside) outside;
    int64_t captured; // actions of regions in a step
    int64_t guard, guards; // bytes that guard a storage on each side; all of them at the peak
    VEC(PieceFact) pieces; // where what no unit owns moves in several; empty: it moves whole
    bool verified;
    Findings unproved; // what the verifier can neither prove nor refute
} Facts;

Facts hd_report_facts(const Module *m, Arena *a);
// Live item i of the function at the peak: its class, and whether it is alive during the peak's op.
ReportClass hd_report_class(const Facts *r, int i);
bool hd_report_at_peak(const Facts *r, int i);
// Adds the collectives of a function that runs `runs` times a step.
void hd_report_traffic(const Func *f, int64_t runs, const Seams *b, Facts *r, Arena *a);
void hd_report_beside(const Module *m, Facts *r);            // fills r->beside
void hd_report_beside_json(const Facts *r, Out *o);          // both put nothing where no weight gradient is there
void hd_report_beside_text(const Facts *r, Out *o);
void hd_report_rounded(const Module *m, Facts *r, Arena *a); // fills r->rounded
void hd_report_rounded_json(const Facts *r, Out *o);         // a member of a JSON object; nothing where none rounds
void hd_report_rounded_text(const Facts *r, Out *o);
void hd_report_pools(const Module *m, Facts *r, Arena *a); // fills r->pools
void hd_report_pools_json(const Facts *r, Out *o);         // both put nothing where no unit is gathered
void hd_report_pools_text(const Facts *r, Out *o);
void hd_report_experts(const Module *m, Facts *r, Arena *a); // fills r->experts
void hd_report_experts_json(const Facts *r, Out *o);         // both put nothing where there are no experts
void hd_report_experts_text(const Facts *r, Out *o);
// Adds the capture regions of such a function.
void hd_report_regions(const Func *f, int64_t runs, Facts *r, Arena *a);
void hd_report_capture(const Facts *r, Out *o); // a member of a JSON object
void hd_report_capture_text(const Facts *r, Out *o);
// The predicted time: members of a JSON object, and lines to read.
void hd_report_predicted(const Facts *r, Out *o);
void hd_report_predicted_text(const Facts *r, Out *o);
// The axes of the step's collectives: ranks, link, seconds. With a device alone; nothing where there is none.
void hd_report_links_json(const Facts *r, Out *o);
void hd_report_links_text(const Facts *r, Out *o);
enum { HD_LINK_NOTES = N_LINKS + 1 };
int hd_report_link_notes(const Facts *r, Arena *a, const char **notes); // what the table does not say
// Recomputed values, likewise; without any, nothing is printed.
void hd_report_recomputed(const Facts *r, Out *o);
void hd_report_recomputed_text(const Facts *r, Out *o);
// The values that are offloaded, likewise.
void hd_report_offloaded(const Facts *r, Out *o);
void hd_report_offloaded_text(const Facts *r, Out *o);
#endif
