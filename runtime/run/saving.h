// The checkpoints that a run writes: in the background, from a copy of the state in host memory, while the steps go on.
// One is under way at a time. Every rank calls each function marked `all`; when one fails it has failed on all ranks,
// or a rank is gone.
#ifndef RUNTIME_RUN_SAVING_H
#define RUNTIME_RUN_SAVING_H
#include "runtime/checkpoint/copy.h"
#include "runtime/checkpoint/keep.h"
#include "runtime/log/log.h"
#include "runtime/run/options.h"
#include <pthread.h>
#include <stdatomic.h>

typedef enum { HD_SAVES_NOTHING, HD_SAVES_STATE, HD_SAVES_MANIFEST } SavingStage;

typedef struct {
    const Options *o;
    HdExec *x;
    Log *log;
    HdLock lock; // rank 0's, of the save folder
    Keep keep;
    StateCopy copy;
    double last;        // when the last one began, for --save-every with a time
    bool planned, fits; // the copy is described; every host has memory for its ranks' copies
    // the one under way
    SavingStage stage;
    HdSave save;
    bool background, best;
    double best_before; // keep.best where this one fails
    char name[HD_CHECKPOINT_PATH];
    // the work of its stage on this rank
    pthread_t thread;
    bool threaded, good;
    atomic_bool done;
    char why[900];
} Saving;

// Rank 0, before anything slow: takes the folder of --save. false after hd_fail: it is another run's.
bool hd_saving_open(Saving *s, const Options *o, bool rank_0);
// all, before the first step: takes the memory for copies where saves in the background are due, which a step would
// wait for.
bool hd_saving_prepare(Saving *s);
// all: writes a checkpoint, and with `foreground` waits for it; else it goes on in the background where there is memory
// for the copy. None may be under way. best: it is the state of the least validation loss, which `at` says.
bool hd_saving_start(Saving *s, const Progress *at, bool best, bool foreground);
// all, between steps: goes on with what is under way as far as it can without waiting, or to its end.
bool hd_saving_go_on(Saving *s, bool wait);
// all: as that to its end, before the checkpoint of a later step, and says so.
bool hd_saving_make_way(Saving *s, int64_t step);
// This rank alone: waits for its own thread and frees everything. A checkpoint that is not whole is left to the next
// save.
void hd_saving_close(Saving *s);
#endif
