// Dinic's algorithm: shortest augmenting paths, all of one length together. See min_cut.h.
#include "passes/plan/min_cut.h"
#include <string.h>

MinCut hd_min_cut(Arena *a, int n_nodes) {
    MinCut c = {.a = a, .n_nodes = n_nodes, .room = 8 * n_nodes + 16};
    size_t n = (size_t)n_nodes + 1;
    c.edge = HD_NEWN(a, struct MinCutEdge, c.room);
    c.first = HD_NEWN(a, int, n);
    c.level = HD_NEWN(a, int, n);
    c.at = HD_NEWN(a, int, n);
    c.queue = HD_NEWN(a, int, n);
    for (int i = 0; i < n_nodes; i++) c.first[i] = -1;
    return c;
}

static void half(MinCut *c, int from, int to, int64_t capacity) {
    c->edge[c->n_edges] = (struct MinCutEdge){to, c->first[from], capacity};
    c->first[from] = c->n_edges++;
}

void hd_min_cut_edge(MinCut *c, int from, int to, int64_t capacity) {
    if (c->n_edges + 2 > c->room) {
        struct MinCutEdge *more = HD_NEWN(c->a, struct MinCutEdge, 2 * c->room);
        memcpy(more, c->edge, sizeof *more * (size_t)c->n_edges);
        c->edge = more;
        c->room *= 2;
    }
    half(c, from, to, capacity);
    half(c, to, from, 0);
}

// Distances from the source; whether the sink can still be reached.
static bool find_levels(MinCut *c, int source, int sink) {
    int n = 0;
    for (int i = 0; i < c->n_nodes; i++) c->level[i] = -1;
    c->level[source] = 0;
    c->queue[n++] = source;
    for (int i = 0; i < n; i++)
        for (int e = c->first[c->queue[i]]; e >= 0; e = c->edge[e].next) {
            int to = c->edge[e].to;
            if (c->edge[e].left <= 0 || c->level[to] >= 0) continue;
            c->level[to] = c->level[c->queue[i]] + 1;
            c->queue[n++] = to;
        }
    return c->level[sink] >= 0;
}

// One path along growing levels, found without recursion: models have thousands of ops in a row. `path`: its edges.
static bool augment(MinCut *c, int source, int sink, int *path) {
    int n = 0, node = source;
    while (node != sink) {
        int e = c->at[node];
        while (e >= 0 && (c->edge[e].left <= 0 || c->level[c->edge[e].to] != c->level[node] + 1)) e = c->edge[e].next;
        c->at[node] = e;
        if (e >= 0) {
            path[n++] = e;
            node = c->edge[e].to;
        } else if (n == 0) {
            return false;
        } else { // a dead end: take the next edge of the node before
            e = path[--n];
            node = c->edge[e ^ 1].to;
            c->at[node] = c->edge[e].next;
        }
    }
    int64_t least = HD_NEVER_CUT;
    for (int i = 0; i < n; i++)
        if (c->edge[path[i]].left < least) least = c->edge[path[i]].left;
    for (int i = 0; i < n; i++) {
        c->edge[path[i]].left -= least;
        c->edge[path[i] ^ 1].left += least;
    }
    return true;
}

bool *hd_min_cut_solve(MinCut *c, int source, int sink) {
    int *path = HD_NEWN(c->a, int, c->n_nodes + 1), n = 0;
    while (find_levels(c, source, sink)) {
        memcpy(c->at, c->first, sizeof *c->at * (size_t)c->n_nodes);
        while (augment(c, source, sink, path)) {}
    }
    bool *reaches = HD_NEWN(c->a, bool, c->n_nodes + 1);
    reaches[sink] = true;
    c->queue[n++] = sink;
    for (int i = 0; i < n; i++)
        for (int e = c->first[c->queue[i]]; e >= 0; e = c->edge[e].next) {
            int from = c->edge[e].to;
            if (reaches[from] || c->edge[e ^ 1].left <= 0) continue;
            reaches[from] = true;
            c->queue[n++] = from;
        }
    return reaches;
}
