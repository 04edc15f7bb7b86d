// The host target: how each op of a plan becomes a statement of C.
#include "codegen/emit.h"

static void kernels(Emit *e) { (void)e; }
static const char *const prologue[] = {"char *const base = hd_base(x);", NULL};
static EmitOp *const ops[N_OPS] = {0};

const Target hd_host_target = {.name = "host", .backend = "hd_host_backend", .kernels = kernels, .prologue = prologue, .op = ops};
