// Shared by order.c and group.c: what an order of a function's ops has to keep, and what it costs. See order.c.
#ifndef PASSES_SCHEDULE_ORDER_GRAPH_H
#define PASSES_SCHEDULE_ORDER_GRAPH_H
#include "passes/analysis/deps.h"

typedef struct { int *start, *at; } Lists; // of i: at[start[i]] .. at[start[i + 1] - 1]

typedef struct {
    const Func *f;
    Arena *a;
    Op **ops;        // by op id
    bool *side;      // by op id: runs on another stream than the main one
    bool *waits, *awaited; // by op id: the first that waits for an op of another stream; the last that an op of another
                           // stream waits for
    Lists pred, succ;      // of ops, by op id
    int *fences, *part;    // fences of the main stream, in order; by op id: how many come before it
    int n_storages;  // roots by value id, then transient buffers
    int64_t *bytes;  // by storage; 0: an argument, a result that is written straight to its buffer
    Lists made;      // storages that an op makes: its results, and the buffers whose first access it is
    Lists used;      // storages that an op uses and does not make, each once
    Lists users;     // ops that use a storage and do not make it, in program order
    int64_t beside;  // the largest workspace of an op beside the main stream
} OrderGraph;

// Most bytes live at once, in all and behind the last fence of the main stream; their sum over all ops.
typedef struct { int64_t peak, behind; double total; } Cost;

OrderGraph hd_order_graph(const Func *f, const char *main, Arena *a);
int64_t hd_order_made(const OrderGraph *g, int op); // bytes of the storages that it makes
Cost hd_order_cost(const OrderGraph *g, const int *order, int n);
// Places every op of another stream after the last op that it, or an op before it on its stream, depends on.
const int *hd_order_others(const OrderGraph *g, const int *order, int n);
bool hd_order_better(Cost a, Cost b);

// The order with the work of each capture region together, where the dependences allow that and the peak stays below
// `most`; else `order`. group.c
const int *hd_group_regions(const OrderGraph *g, const int *order, int n, int64_t most, Cost *cost);
#endif
