// Work on a range of elements, divided among the cores.
#ifndef RUNTIME_BASE_PARALLEL_H
#define RUNTIME_BASE_PARALLEL_H
#include <stdint.h>

// Calls fn for parts of [0, count) that cover it, on several threads where it has at least `least` elements. fn must do
// the same to an element in whichever part it is.
void hd_parallel(int64_t count, int64_t least, void (*fn)(void *data, int64_t first, int64_t n), void *data);
#endif
