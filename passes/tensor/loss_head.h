// What loss-chunks cuts: logits, their loss and all that is computed of them row by row.
#ifndef PASSES_TENSOR_LOSS_HEAD_H
#define PASSES_TENSOR_LOSS_HEAD_H
#include "ir/ir.h"

enum { HD_MOST_HEAD_READERS = 16 };

typedef VEC(Op *) OpList;

// Values as large as the logits come from `product` and from the gradient that the loss gives. Ops that keep their rows
// and columns (casts, a cap, a bias, and the gradients of these) are `body`. What makes something smaller of them is a
// reader: a product, or a sum over all rows.
typedef struct {
    Op *product, *loss; // loss: cross_entropy or cross_entropy_grad
    OpList body;        // with product and loss, in program order
    Op *readers[HD_MOST_HEAD_READERS]; // in program order
    int large[HD_MOST_HEAD_READERS];   // the operand of the logits' size
    bool sums[HD_MOST_HEAD_READERS];   // adds over rows, the gradient of a weight or bias; else it keeps them
    int n_readers;
    int64_t rows, chunks;
    const char *why; // it cannot be cut; NULL: it can
} LossHead;

// Fills in the head of h->loss; returns why it cannot be cut, NULL: it can. f is numbered; texts and lists live in a.
const char *hd_loss_head(Arena *a, const Func *f, LossHead *h);
#endif
