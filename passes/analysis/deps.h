// Which ops an op must follow: the writers of what it reads, and the readers and writers of what it overwrites, over
// values and over the bytes of buffers. Program order is the meaning, so every edge goes from an earlier op to a later
// one.
#ifndef PASSES_ANALYSIS_DEPS_H
#define PASSES_ANALYSIS_DEPS_H
#include "passes/analysis/access.h"

typedef struct {
    const int *start; // of op i: pred[start[i]] .. pred[start[i + 1] - 1], ids of ops, each once
    const int *pred;
} Deps;
// Needs dense op and value ids (hd_renumber). Alias ops have no edges: their users depend on who filled the storage.
Deps hd_deps(const Func *f, Arena *a);
#endif
