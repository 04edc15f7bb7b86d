// A copy in host memory of the state that a rank saves. It stands for the rank's executor where a checkpoint is written
// (hd_save_write): a thread reads it while the steps go on and change the state.
#ifndef RUNTIME_CHECKPOINT_COPY_H
#define RUNTIME_CHECKPOINT_COPY_H
#include "runtime/heddle.h"

typedef struct { int64_t offset, bytes, at; } CopyPart; // a storage: where it is in the arena, and in the copy
typedef struct {
    HdExec exec; // its program's `read` reads the copy
    HdProgram program;
    HdBackend backend;
    CopyPart *part;
    int n;
    int64_t bytes;
    char *data;
} StateCopy;

// Describes what a copy holds, and takes no memory for it yet. false after hd_fail.
bool hd_copy_plan(StateCopy *c, const HdExec *x);
bool hd_copy_take(StateCopy *c, HdExec *x); // waits for all that was issued; the memory is kept for the next one
void hd_copy_free(StateCopy *c);
#endif
