// The power of two by which the gradient of the loss is multiplied (`train.loss_scale`). Readers of gradients divide
// by it, so that only gradients have it.
#ifndef PASSES_TENSOR_LOSS_SCALE_H
#define PASSES_TENSOR_LOSS_SCALE_H
#include "ir/ir.h"

// Of the loss that `f` returns; `active`, by value id: values that a parameter reaches. A scale that is chosen is
// written to config @train. 0 after reporting that the one there is not a power of two.
int64_t hd_loss_scale(Func *f, const bool *active, Arena *scratch);
#endif
