// What the files of the CUDA target share: a piece of CUDA text with its launch, and the registry of kernels of a program.
#ifndef CODEGEN_CUDA_CUDA_H
#define CODEGEN_CUDA_CUDA_H
#include "codegen/emit.h"

typedef enum { CUDA_IN, CUDA_OUT, CUDA_WORKSPACE } CudaArgKind;
typedef struct { CudaArgKind kind; int index; } CudaArg; // an operand, a result or the workspace of the launch

typedef struct {
    const char *name, *text; // the kernel's identifier and its whole text
    unsigned gx, gy, gz, block, shared; // shared: bytes of dynamic shared memory
    VEC(CudaArg) args;
} CudaLaunch;
typedef VEC(CudaLaunch) CudaLaunches;

// The launches, in order, that run a kernel function; names start with `name`. `widest`: the widest vector in elements that the
// alignment of its operands allows (8, or 1 when an address is not a multiple of 16 bytes).
CudaLaunches hd_cuda_rows(const Func *kernel, const char *name, int widest, Arena *a);
CudaLaunches hd_cuda_map(const Func *kernel, const char *name, int widest, Arena *a);

const char *hd_cuda_type(DType d);    // the stored type: "bf16", "float"
const char *hd_cuda_compute(DType d); // the type in which it is computed: "float", "double", "int"
#endif
