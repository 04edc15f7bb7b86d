// Sizes of the fixed tiles in which the host runtime works. They depend on nothing but these numbers, so results do not
// depend on how many threads share the tiles.
#ifndef RUNTIME_HOST_SCRATCH_H
#define RUNTIME_HOST_SCRATCH_H
#include "runtime/heddle.h"
#include "runtime/heddle_host.h"

// `n` elements between a dtype and float; index in elements.
void hd_host_load(HdDtype from, const void *src, int64_t index, int64_t n, float *dst);
void hd_host_store(HdDtype to, const float *src, int64_t n, void *dst, int64_t index);
void hd_host_add(HdDtype dt, const void *src, void *dst, int64_t index,
                 int64_t n);     // dst += src, rounded to dt: of a sum over ranks
size_t hd_host_bytes(HdDtype d); // of one element
enum { HD_HOST_MAX_HEAD = 512 }; // the largest attention head
#endif
