// Expected diagnostics, written next to their cause (after MLIR's -verify-diagnostics):
//   %0 = add %a, %b : f32[2] // expected-error {{part of the message}}
//   // expected-error @+1 {{on the next line}}     also @-2, @line 7, @unknown (no place, or in another source)
//   // expected-note, expected-warning: likewise
#ifndef IR_BASE_EXPECT_H
#define IR_BASE_EXPECT_H
#include "ir/base/diag.h"

// Compares the collected diagnostics with the comments of source `base`. Prints every missing and every unexpected one
// to `o` and returns their number. A note need not be expected.
int hd_expect_check(const Diags *d, uint32_t base, Out *o);
#endif
