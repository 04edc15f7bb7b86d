// Initial values of the initialiser `orthogonal`.
#ifndef RUNTIME_CHECKPOINT_ORTHOGONAL_H
#define RUNTIME_CHECKPOINT_ORTHOGONAL_H
#include "runtime/draw.h"
#include <stdbool.h>

// Makes of the matrix of normal numbers that `d` draws, rows x columns, one whose rows (if there are fewer of them) or
// columns are orthogonal and as long as `gain`. false: there is no memory.
bool hd_orthogonal(const HdDraw *d, int64_t rows, int64_t columns, double gain, float *w);
#endif
