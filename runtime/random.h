// Counter-based random numbers: a value depends on (key, stream, index) alone.
#ifndef RUNTIME_RANDOM_H
#define RUNTIME_RANDOM_H
#include <stdint.h>

// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011).
void hd_philox(uint64_t key, uint64_t stream, uint64_t index, uint32_t out[4]);
// The standard normal quantile of p in (0, 1): Wichura's algorithm AS 241 (PPND7), relative error about 1e-7.
double hd_normal_quantile(double p);
// Element `i` of a parameter's initial value, standard normal or uniform in (-1, 1).
void hd_random_fill(uint64_t seed, uint64_t stream, int64_t first, int64_t count, int normal, double scale, float *out);
#endif
