// Scratch memory of the ops of a plan: one rule for each name in the workspace column of ops.def. select sizes
// workspaces by it, the verifier checks them and the code generators print them.
#ifndef IR_MACHINE_WORKSPACE_H
#define IR_MACHINE_WORKSPACE_H
#include "ir/ir.h"

typedef struct {
    int64_t least, good;
} Workspace;                                    // bytes that the op needs; that serve it best, a multiple of HD_ALIGN
Workspace hd_workspace(const Op *o, bool cuda); // of a cuda program, else of a host one
bool hd_ssd_on_cores(const Op *o); // in a cuda program: whether ssd or ssd_grad runs on tensor cores
#endif
