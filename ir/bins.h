// Sums that have the same bits in every order: a number is cut into runs of HD_BIN_BITS binary digits, and each run
// adds up in a bin of its own. All that a bin holds is a multiple of its unit and less than 2^53 of them, so no
// addition rounds. A bin has room for 2^33 numbers. Only numbers of at least 0 are added; one that is not finite spoils
// the sum.
//
// The addends are sums of squares of HD_BIN_RUN consecutive elements of f32, each in f64. Parameters and the parts
// of ranks start at multiples of so many elements (passes/fsdp/bucket_layout.h), so runs are the same for any number
// of ranks, and so is the sum of all.
#ifndef IR_BINS_H
#define IR_BINS_H
enum {
    HD_BIN_RUN = 32,
    HD_BIN_BITS = 20,
    HD_BIN_LEAST = -300, // exponent of the unit of bin 0: a square of f32 is a multiple of 2^-298
    HD_BINS = 29         // the last one has the digits from 2^260 on: a run is less than 2^261
};
#endif
