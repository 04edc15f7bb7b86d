// Declarations that the files of the pretended driver share.
#ifndef TESTS_FAKE_CUDA_DRIVER_H
#define TESTS_FAKE_CUDA_DRIVER_H
#include "tests/fake_cuda/fake.h"
#include "tests/simt/launch.h"
#include <stdbool.h>

// Calls that only the stand-in for NCCL of tests/gpu/one_gpu uses.
#include "tests/gpu/one_gpu/driver.h"
#define FN(result, name, symbol, params) result fake_##name params __asm__(symbol);
#include "tests/gpu/one_gpu/driver.def"

enum {
    INVALID = 1,
    OUT_OF_MEMORY = 2,
    NO_DEVICE = 100,
    BAD_IMAGE = 200,
    NOT_FOUND = 500,
    LAUNCH_FAILED = 719,
    UNJOINED = 904,
    ISOLATION = 905,
    CAPTURED = 907,
    INJECTED = 999
};
#define CALL(name) \
    if (fake_call(name)) return INJECTED

long long fake_number(const char *variable, long long otherwise); // of the environment
bool fake_capturing(void);

// Memory that kernels may use, by address: of the device, and of the host where it is pinned or registered. The caller
// frees it.
SimtRange *fake_memory(unsigned *n);
#endif
