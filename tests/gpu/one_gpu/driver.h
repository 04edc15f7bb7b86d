// Types of driver.def, beside those of runtime/cuda/api.h.
#ifndef TESTS_GPU_ONE_GPU_DRIVER_H
#define TESTS_GPU_ONE_GPU_DRIVER_H
#include "runtime/cuda/api.h"

typedef void (*CuHostFn)(void *data);
typedef union { // of cuStreamBatchMemOp
    struct { int operation; CuPtr address; uint64_t value; unsigned flags; CuPtr alias; } wait;
    uint64_t pad[6];
} CuMemOp;

enum {
#define CONST(name, value) HD_##name = value,
#include "tests/gpu/one_gpu/driver.def"
};
#endif
