// Shared by the files of the passes `schedule` and `sync`. order.c: the order of one function.
#ifndef PASSES_SCHEDULE_SCHEDULE_H
#define PASSES_SCHEDULE_SCHEDULE_H
#include "passes/analysis/seam.h"
#include "passes/pass.h"

#define HD_STREAM_GRADS "grads" // the stream of weight gradients that run beside the main one

typedef struct {
    int n;
    const int *op;
    int64_t saved, peak, behind;
} Order; // ids of the ops that do work, the number of bytes by which its peak is lower, its peak, and the peak behind
         // its last fence

// The best order found for a function whose ids are dense and whose ops have their streams; ops of other streams than
// `main` come as early as their dependences allow.
Order hd_find_order(const Func *f, const char *main, Arena *a);

// The order of a function, with weight gradients beside the main stream where the schedule asks for it or `auto` finds
// that it pays: their stream, and what bounds the bytes that they keep, is set. beside.c
Order hd_order_beside(Func *f, const char *main, PassCx *cx);
bool hd_is_beside(const Op *o);
int64_t hd_persistent_bytes(const Module *m); // of buffers on the device
// Takes the squares of each gradient as soon as it is complete, on the stream `beside`. Whether it has: not where the
// gradients are not made in this function. norm.c
bool hd_norm_beside(Func *f, const char *main, const char *beside, Arena *a);

// The order with the last reduction brought forward where that hides it; else `order`. tail.c
Order hd_order_tail(Func *f, const char *main, Order order, PassCx *cx);
// The order with weight gradients moved to where the main stream waits for collectives of values; else `order`. cover.c
Order hd_order_cover(Func *f, const char *main, Order order, PassCx *cx);

// Adds waits where the order gathers more units ahead, or lets more gradients wait, than the schedule allows. Whether
// it has. bounds.c
bool hd_hold_bounds(Func *f, PassCx *cx);

// Makes `ops` the order of a function whose ids are dense: all ops but aliases and the return. An alias comes before
// its first user.
void hd_set_order(Func *f, Op *const *ops, int n, Arena *a);

// sync. A record or a wait, inserted nowhere.
Op *hd_sync_op(Func *f, OpKind kind, int64_t event, const char *stream);
// The events that cross seams, in functions that have all others. Returns the number of waits.
int hd_sync_seams(Module *m, const Seams *b, Arena *a);
#endif
