// The checkpoints of a run in the folder of --save: one that is replaced, or with --keep=N the newest N, each in a
// folder checkpoint-STEP of its own, and a link `latest` to the newest; with --keep-best also the folder `best`.
#ifndef RUNTIME_CHECKPOINT_KEEP_H
#define RUNTIME_CHECKPOINT_KEEP_H
#include "runtime/checkpoint/state.h"

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
// The folder in which a state is saved: of the newest checkpoint, or `best`. The same on all ranks.
bool hd_keep_name(const Keep *k, int64_t step, bool best, char name[HD_CHECKPOINT_PATH]);
// Rank 0, when the checkpoint of a step is whole on the disk: replaces the link and removes older ones.
bool hd_keep_newest(Keep *k, int64_t step);
int64_t hd_keep_newest_in(const char *dir); // the step of the newest checkpoint-STEP in the folder; -1: it has none
double hd_best_before(const char *dir); // the validation loss of the folder's best checkpoint; infinity: there is none
#endif
