// Scratch memory of ops: one formula per op, so that planner, code and runtime agree.
#ifndef PASSES_SELECT_WORKSPACE_H
#define PASSES_SELECT_WORKSPACE_H
#include "ir/ir.h"

int64_t hd_workspace_bytes(const Op *o, bool cuda); // 0: none
int64_t hd_workspace_cudnn(const Op *o);            // attention and attention_grad through cuDNN
#endif
