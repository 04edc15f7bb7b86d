// Sizes of the fixed tiles in which the host runtime works. They are constants, so results do not depend on how many
// threads share the tiles.
#ifndef RUNTIME_HOST_SCRATCH_H
#define RUNTIME_HOST_SCRATCH_H
#include "runtime/dtypes.h"
#include "runtime/heddle_host.h"

// dst += src, rounded to dt: of a sum over ranks
void hd_host_add(HdDtype dt, const void *src, void *dst, int64_t index, int64_t n);
enum { HD_HOST_MAX_HEAD = 512 }; // the largest attention head
#endif
