// Declarations that the files of the offload pass share: the values of a function that wait for its backward pass, and
// when each may be copied out and back.
#ifndef PASSES_OFFLOAD_OFFLOAD_H
#define PASSES_OFFLOAD_OFFLOAD_H
#include "ir/machine/device_model.h"
#include "passes/analysis/access.h"
#include "passes/analysis/places.h"

// The storage of a result of the forward pass that ops of the backward pass read, and that takes work to make.
typedef struct {
    Value *root;
    double bytes;
    const char *place;     // of the model, where it is made
    int made, first;       // ids of ops: the one that makes it, the first of the backward pass that reads it
    int made_in, first_in; // the parts of the forward and of the backward pass to which these belong
    bool chosen;           // to be offloaded
    int fence, back;       // ids of ops: before which it has left; before which it may begin to come back
    double leaves, gone, returns, there; // seconds: copied out from .. to, copied back from .. to
    double stall;          // for how long its copies keep the main stream waiting
    Op *copy;              // that makes the value that the backward pass reads
} Waiting;

// A pass is cut into parts: what comes before the first layer (places.h), be it nothing, then each layer, with what
// follows it. Where there is no layer, the members of the model are the parts.
typedef VEC(int) Parts; // the op with which each begins, by id

typedef struct {
    Func *f;
    Arena *a;
    const Home *homes;
    int n_ops;
    Op **ops;             // by id
    double *seconds;      // by op id; 0: another stream runs it, or it does nothing
    VEC(Waiting) values;  // in the order in which they are made
    Waiting **made, **read; // room for hd_offload_chosen
    Layers layers;
    Parts forward, backward;
    int ahead;            // parts for which a value may be on its way
    const DeviceModel *model; // NULL: nothing is known of time
    double end, stall;    // seconds of the function and how many of them are stalls, after hd_offload_times
} Offload;

// Needs dense ids. No values: the function has no backward pass.
Offload hd_offload_find(Func *f, int64_t ahead, Arena *a);
// The chosen values in the order in which they are made and in that in which they are read, until the next call; how
// many.
int hd_offload_chosen(const Offload *w, Waiting ***made, Waiting ***read);
// Decides when the chosen values leave and return, and how long the main stream waits for them.
void hd_offload_times(Offload *w);
void hd_offload_insert(Offload *w); // the copies and fences of the chosen values
// Lists the values that are `free`, the best first, up to so many bytes together. Returns how many. The first `hidden`
// of them stall nothing.
int hd_offload_best(Offload *w, const bool *free, double most_bytes, Waiting ***best, int *hidden);
#endif
