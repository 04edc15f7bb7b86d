// The symmetric products of an optimizer that orthogonalizes, g = x x' and h = b g + c g g (ir/optimizer.h): a kernel
// of the program computes tiles on and under the diagonal, and writes their transposes; or a library computes both.
#ifndef IR_MACHINE_SYMMETRIC_H
#define IR_MACHINE_SYMMETRIC_H

#include "ir/optimizer.h"

enum { HD_SYMMETRIC_TILE = 128 };                                       // rows and columns
bool hd_turned_symmetric(const Op *update, int64_t rows, int64_t cols); // the same for every number of them in a batch
double hd_turned_square(const Op *update, const Turned *entry);         // elements of a product that are computed
#endif
