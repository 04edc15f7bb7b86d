// Stand-ins for NVIDIA's libraries, so that the CUDA runtime can be tested on a machine without a GPU. Every function
// of runtime/cuda/api.def exists: it logs its name and succeeds (stubs.c); driver.c, devices.c, memory.c, nvrtc.c and
// lt.c give the ones that matter a meaning.
//
//   FAKE_CUDA_LOG=FILE        one line a call of interest
//   FAKE_CUDA_FAIL=name:k     the k-th call of `name` fails
//   FAKE_CUDA_ASYNC=1         streams run beside the program
//   FAKE_CUDA_DEVICES=0       no GPU;  FAKE_CUDA_MEMORY=BYTES  its size;  FAKE_CUDA_CC=80  its compute capability
//   CUDA_VISIBLE_DEVICES=1,0  which of the GPUs a process sees, as for the real driver (devices.c)
//   FAKE_CUDA_SIMT=FOLDER     kernels run on the CPU (tests/simt); their libraries are kept in FOLDER
//                             FAKE_CUDA_SIMT_ORDER, FAKE_CUDA_SIMT_RACES: tests/simt/engine.h
//   FAKE_CUDA_LOAD=1          products take time only; which algorithm is the fastest depends on the load (lt.c)
//   FAKE_CUDA_MIX=1           kernels of compiled programs have results, meaningless but the same everywhere (driver.c)
#ifndef TESTS_FAKE_CUDA_FAKE_H
#define TESTS_FAKE_CUDA_FAKE_H
#include "runtime/cuda/api.h"

// The exported names are those of the real libraries.
#define FN(lib, result, name, symbol, params) result fake_##name params __asm__(symbol);
#include "runtime/cuda/api.def"

int fake_call(const char *name);  // counts and logs; not 0: this call has to fail
void fake_log(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

// Of the driver, for the other libraries (found with dlsym): runs `work(data)` now, or at each replay when `stream` is
// being captured; data is copied.
typedef void FakeWork(void *data);
typedef CuResult FakeSubmit(CuStream stream, FakeWork *work, const void *data, size_t bytes, const char *what);
typedef void FakeTick(double ms); // lets device time pass
#endif
