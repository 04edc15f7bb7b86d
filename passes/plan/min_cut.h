// The least cut between two nodes of a directed graph (Dinic 1970, Ford and Fulkerson's theorem).
#ifndef PASSES_PLAN_MIN_CUT_H
#define PASSES_PLAN_MIN_CUT_H
#include "ir/base/arena.h"
#include <stdbool.h>
#include <stdint.h>

#define HD_NEVER_CUT ((int64_t)1 << 56) // the capacity of an edge that no cut contains

typedef struct {
    Arena *a;
    int n_nodes, n_edges, room;
    struct MinCutEdge { int to, next; int64_t left; } *edge; // edge i ^ 1 goes back
    int *first, *level, *at, *queue;                         // by node
} MinCut;

MinCut hd_min_cut(Arena *a, int n_nodes);
void hd_min_cut_edge(MinCut *c, int from, int to, int64_t capacity); // bytes, or what else is to be least
// By node: whether it is on the sink's side. If several cuts are least, it is the one nearest the sink. Every path from
// source to sink needs an edge below HD_NEVER_CUT. Uses up the capacities.
bool *hd_min_cut_solve(MinCut *c, int source, int sink);
#endif
