// What loss-chunks cuts: logits, their loss and all that is computed of them row by row.
#ifndef PASSES_TENSOR_LOSS_HEAD_H
#define PASSES_TENSOR_LOSS_HEAD_H
#include "ir/ir.h"

enum { HD_MOST_HEAD_READERS = 16 };

typedef VEC(Op *) OpList;

// Values as large as the logits come from `product` and from the gradient that the loss gives. Ops that keep their rows
// and columns (casts, a cap, a bias, and the gradients of these) are `body`. So are ops that make a number of each row
// of the logits (logsumexp), and what is computed of such numbers row by row. What makes something else of these values
// is a reader: a product, or a sum over all rows. Ops before the loss may depend on such sums: `later`.
typedef struct {
    Op *product, *loss; // loss: cross_entropy or cross_entropy_grad
    OpList body;        // with product and loss, in program order
    OpList later;       // in program order
    Op *readers[HD_MOST_HEAD_READERS]; // in program order
    int large[HD_MOST_HEAD_READERS];   // the operand of the logits' size, or of numbers of rows
    bool sums[HD_MOST_HEAD_READERS];   // adds over rows, the gradient of a weight or bias; else it keeps them
    int n_readers;
    int64_t rows, chunks;
    const char *why; // it cannot be cut; NULL: it can
} LossHead;

// Of a value with rows of the loss: a number of each, in the logits' leading dimensions and perhaps a last one of 1.
bool hd_of_lines(const LossHead *h, const Type *t);
// Fills in the head of h->loss; returns why it cannot be cut, NULL: it can. f is numbered; texts and lists live in a.
const char *hd_loss_head(Arena *a, const Func *f, LossHead *h);
#endif
