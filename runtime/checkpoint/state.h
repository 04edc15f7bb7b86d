// The training state of a program: initial values, checkpoints, exported weights, digests, all in canonical order. Each
// function returns false after hd_fail. Every rank calls the functions marked `all`; when one fails on a rank, it fails
// on all ranks or the run has ended (world.h, fail).
#ifndef RUNTIME_CHECKPOINT_STATE_H
#define RUNTIME_CHECKPOINT_STATE_H
#include "runtime/checkpoint/lock.h"
#include "runtime/data/files.h"
#include "runtime/heddle.h"
#include <stdio.h>

// data_tokens: size of the training data; 0: unknown. sequences: how many all ranks together have read.
// val_loss: of a state that was kept for it. optimizer_start: the step after which the optimizer began, with its first.
typedef struct {
    int64_t step, seed, data_tokens, sequences;
    bool validated;
    double val_loss;
    int64_t optimizer_start;
    bool scored; // the program keeps a history (history.h), which is
    float history[HD_HISTORY_Z];
} Progress;

// Initialises the part of every parameter that this rank holds: element i of parameter k depends on (seed, k, i) alone.
bool hd_state_init(HdExec *x, int64_t seed);
// --init: a safetensors file, an index of several (.json), or a folder that holds either as model.safetensors or as
// model.safetensors.index.json
typedef struct {
    Names ignore, rename; // patterns of tensors to leave out; FROM=TO, in their order
    bool fresh, speaks;   // what has no tensor starts from its initialiser; this rank prints the notes
    int64_t seed;         // of the initialisers
} HdInitRules;
bool hd_state_import(HdExec *x, const char *path, const HdInitRules *rules); // rules NULL: none
// --export; all. dtype: of every tensor of the file, F32, BF16 or F16; values are rounded to nearest even. averaged: of
// weights that have an average, that one
bool hd_state_export(HdExec *x, const char *path, HdDtype dtype, bool averaged);
// all. lock: rank 0's on the folder; NULL: none. Nothing is replaced or removed once another process has it.
bool hd_state_save(HdExec *x, const char *dir, const HdLock *lock, const Progress *at);

// The same in parts, so that two of them can run beside the steps (saving.h): begin (all), write (each rank alone, any
// thread), gather (all; ok: of this rank's write), commit (rank 0 alone, any thread), end. Of one file `write` on rank
// 0 does everything. x: whose state is read, by `write` alone; its world and program are used by all. After a failure
// the older checkpoint stays.
enum { HD_CHECKPOINT_PATH = 4096 };
typedef struct { int64_t bytes; unsigned char digest[16]; } HdShardFile; // a file as the manifest describes it
typedef struct {
    HdExec *x;
    const HdLock *lock;
    Progress at;
    bool sharded, writes; // writes: this rank has a file
    char dir[HD_CHECKPOINT_PATH], path[HD_CHECKPOINT_PATH], place[HD_CHECKPOINT_PATH]; // path: the checkpoint itself
    char folder[64]; // of shards, inside dir; `place` is its path
    HdShardFile mine, *all;
} HdSave;
bool hd_save_writes(const HdProgram *p, int rank); // the rank has a file
bool hd_save_begin(HdSave *s, HdExec *x, const char *dir, const HdLock *lock, const Progress *at);
bool hd_save_write(HdSave *s);
bool hd_save_gather(HdSave *s, bool ok);
bool hd_save_commit(HdSave *s);
void hd_save_end(HdSave *s);
// all. Every rank reads the same checkpoint, also while another run replaces it. A rank on which it succeeds returns
// true although another one fails. name: a folder, or its file (keep.h). rules NULL: none
typedef struct {
    const char *with; // of --resume-with (settings.h), or NULL
    bool averaged;    // --weights=ema: the average takes the place of the weights
} HdResumeRules;
bool hd_state_resume(HdExec *x, const char *name, const HdResumeRules *rules, Progress *at);
// all: rank 0 writes one line per parameter: name and 128-bit hash of its f32 bytes
bool hd_state_hashes(HdExec *x, FILE *f);
// Names the first value on this rank that is not finite: its parameter, unit, storage and rank and, after a step, an
// action to look at.
bool hd_state_check(HdExec *x, bool after_step);
#endif
