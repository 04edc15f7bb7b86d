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
    HdExec *lender; // whose take_memory gave it; NULL: malloc did
} StateCopy;

// Describes what a copy holds, and takes no memory for it yet. false after hd_fail.
bool hd_copy_plan(StateCopy *c, const HdExec *x);
// Takes its memory, which the device copies into at the full rate of the link where the host can lock so much; else
// *slow gets the reason, and the memory is any. `slow` has room for `room` bytes and is empty where nothing is wrong.
bool hd_copy_reserve(StateCopy *c, HdExec *x, char *slow, size_t room);
bool hd_copy_take(StateCopy *c, HdExec *x); // after hd_copy_reserve; waits for all that was issued
void hd_copy_free(StateCopy *c);
#endif
