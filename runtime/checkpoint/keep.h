// The checkpoints of a run in the folder of --save: one that is replaced, or with --keep=N the newest N, each in a
// folder checkpoint-STEP of its own, and a link `latest` to the newest; with --keep-best also the folder `best`.
#ifndef RUNTIME_CHECKPOINT_KEEP_H
#define RUNTIME_CHECKPOINT_KEEP_H
#include "runtime/checkpoint/state.h"

enum { HD_CHECKPOINT_PATH = 4096 };

// The checkpoint that --resume means: `name` itself where it is a file, else in the folder `name` the one that `latest`
// links to, or checkpoint.safetensors. `dir`: the folder that holds it. Whether it is there.
bool hd_checkpoint_find(const char *name, char dir[HD_CHECKPOINT_PATH], char path[HD_CHECKPOINT_PATH]);
// Whether the checkpoint of --resume is one of those in the folder of --save.
bool hd_checkpoint_continues(const char *save, const char *resume);
bool hd_checkpoint_free(const char *save); // false after hd_fail: the folder holds a checkpoint

typedef struct {
    const char *dir;
    int64_t keep;  // 0: one checkpoint, which is replaced
    bool fresh;    // the folder's older checkpoints are of another run; the first save removes them
    double best;   // least validation loss so far; infinity: none
} Keep;
// all: saves as `keep` says. name: room for the name of the folder.
bool hd_keep_save(HdExec *x, Keep *k, const HdLock *lock, const Progress *at, char name[HD_CHECKPOINT_PATH]);
bool hd_keep_best(HdExec *x, Keep *k, const HdLock *lock, const Progress *at, char name[HD_CHECKPOINT_PATH]);
double hd_best_before(const char *dir); // the validation loss of the folder's best checkpoint; infinity: there is none
#endif
