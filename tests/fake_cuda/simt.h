// Kernels that run for real, on the CPU (tests/simt): modules are shared libraries, FAKE_CUDA_SIMT (fake.h).
#ifndef TESTS_FAKE_CUDA_SIMT_H
#define TESTS_FAKE_CUDA_SIMT_H
#include "tests/fake_cuda/fake.h"
#include <stdbool.h>

typedef struct Simt Simt; // a module, or one of its kernels
bool simt_open(const char *image, Simt **module); // *module NULL: an image of another kind. False: it cannot be loaded
Simt *simt_find(const Simt *module, const char *kernel); // NULL: there is none
size_t simt_bytes(const Simt *kernel, size_t param);     // 0: there is none
CuResult simt_submit(const Simt *kernel, const CuLaunch *launch, void **args);
#endif
