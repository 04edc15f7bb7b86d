// The CUDA target: how each op of a plan becomes a statement of the C host program, and kernels become CUDA text.
#include "codegen/emit.h"

static void kernels(Emit *e) { (void)e; }
static const char *const prologue[] = {NULL};
static EmitOp *const ops[N_OPS] = {0};

const Target hd_cuda_target = {.name = "cuda", .backend = "hd_cuda_backend", .kernels = kernels, .prologue = prologue, .op = ops};
