// The ops that an op must follow: the writers of what it reads, and the readers and writers of what it overwrites, for
// values and for the bytes of buffers. Program order defines the meaning, so every edge goes from an earlier op to a
// later one.
#ifndef PASSES_ANALYSIS_DEPS_H
#define PASSES_ANALYSIS_DEPS_H
#include "passes/analysis/access.h"

typedef struct {
    const int *start; // of op i: pred[start[i]] .. pred[start[i + 1] - 1], ids of ops, each once
    const int *pred;
} Deps;
// Needs dense op and value ids (hd_renumber). Alias ops have no edges: their users depend on the op that filled the
// storage.
Deps hd_deps(const Func *f, Arena *a);
#endif
