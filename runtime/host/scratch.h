// Sizes of the fixed tiles in which the host runtime works. They are constants, so results do not depend on how many
// threads share the tiles.
#ifndef RUNTIME_HOST_SCRATCH_H
#define RUNTIME_HOST_SCRATCH_H
#include "runtime/dtypes.h"
#include "runtime/heddle_host.h"
#include <stddef.h>

// dst += src, rounded to dt: of a sum over ranks
void hd_host_add(HdDtype dt, const void *src, void *dst, int64_t index, int64_t n);
// Bytes that the calling thread keeps, aligned for vectors; not zeroed. Each user always asks for the same size.
// Without memory the program ends.
typedef enum { HD_SCRATCH_GEMM, HD_SCRATCH_ATTENTION, HD_SCRATCH_SSD, HD_SCRATCH_SUMS, HD_SCRATCH_MOST,
               HD_SCRATCHES } HdScratch;
void *hd_host_scratch(HdScratch user, size_t bytes);
enum { HD_HOST_MAX_HEAD = 512 }; // the largest attention head
#endif
