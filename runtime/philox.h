// Counter-based random numbers: a value depends on (key, stream, index) alone.
#ifndef RUNTIME_PHILOX_H
#define RUNTIME_PHILOX_H
#include "runtime/draw.h"

// Philox 4x32-10 (bits.h).
void hd_philox(uint64_t key, uint64_t stream, uint64_t index, uint32_t out[4]);
// Initial values, d->count of them (draw.h).
void hd_draw(const HdDraw *d, float *out);
#endif
