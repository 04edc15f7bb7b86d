// Weights that the optimizer keeps in bf16 are rounded up or down at random, so that their mean is what the update has
// computed: steps that are smaller than a rounding still add up. The random numbers are those of Philox (ir/dropout.h),
// and depend on the seed, the step, the parameter and the element alone, not on which rank has the element, or when:
//
//   key      low word of the seed, high word of the seed with the bits of HD_ROUNDING_KEY inverted: no number of
//            dropout or of initial values is one of them
//   counter  low and high word of element / 4, number of the parameter among those of the module, step
//   word     element % 4 of the four; its upper half is added to the number's bits, and the lower half of the sum is
//            left out
//
// `element` is row-major in the whole parameter, also where ranks have parts of it: of a part with E elements from its
// dimension on, at place p of n, element i is i / E * E n + p E + i % E of the whole. A number that bf16 holds stays;
// so does a NaN.
#ifndef IR_ROUNDING_H
#define IR_ROUNDING_H
#include "ir/mesh.h"

enum { HD_ROUNDING_KEY = 0x726f756e };

// A parameter of the bucket: it begins at element `at`. run, ranks: E and n; ranks is 1 where it is not split.
typedef struct { int64_t at, run, ranks; uint32_t number; } RoundedParam;
// Those of a bucket in the order of their elements; how many there are.
int hd_rounded_params(const Module *m, const Symbol *bucket, Arena *a, const RoundedParam **list);
Axes hd_rounded_over(const Module *m, const Symbol *bucket); // the axes along which p counts
uint32_t hd_rounding_word(const uint32_t seed[2], uint32_t step, const RoundedParam *p, int64_t place, int64_t i);
double hd_round_by(double x, uint32_t word); // a number of f32
#endif
