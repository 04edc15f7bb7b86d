// The training state of a program: initial values, checkpoints, exported weights, digests. All of it in canonical
// order. Each function returns false after hd_fail. Those marked `all` are called by all ranks; one that fails on some
// rank fails on all of them or has ended the run (world.h, fail).
#ifndef RUNTIME_CHECKPOINT_STATE_H
#define RUNTIME_CHECKPOINT_STATE_H
#include "runtime/heddle.h"
#include <stdio.h>

// data_tokens: size of the data it was trained on; 0: unknown. sequences: how many were read by all ranks together.
typedef struct { int64_t step, seed, data_tokens, sequences; } Progress;

// What this rank holds of every parameter by its initialiser: element i of parameter number k depends on (seed, k, i)
// alone.
bool hd_state_init(HdExec *x, int64_t seed);
bool hd_state_import(HdExec *x, const char *path); // --init
bool hd_state_export(HdExec *x, const char *path); // --export; all
bool hd_state_save(HdExec *x, const char *dir, const Progress *at); // all
bool hd_state_resume(HdExec *x, const char *dir, Progress *at);
bool hd_state_hashes(HdExec *x, FILE *f); // all: a line a parameter on rank 0: name and 128-bit hash of its f32 bytes
// Names the first value here that is not finite: its parameter, unit, storage and rank, and after a step an action to
// look at.
bool hd_state_check(HdExec *x, bool after_step);
#endif
