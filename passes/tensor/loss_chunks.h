// How many chunks `train { loss_chunks = auto; }` cuts logits into.
#ifndef PASSES_TENSOR_LOSS_CHUNKS_H
#define PASSES_TENSOR_LOSS_CHUNKS_H
#include "ir/ir.h"

// A rule on sizes alone, so that it is the same for every target and schedule: 1 where the logits take less than
// HD_LOSS_CHUNK_BYTES. Else the largest power of two up to HD_MOST_LOSS_CHUNKS whose chunks take at least as much, have
// equally many rows, at least HD_LEAST_LOSS_ROWS, and cost at most 0.5 % of a step. Each chunk but the first
// reads and writes the f32 gradient of the head's weights, `width` x vocabulary, once more. In the time in which a GPU
// moves a byte it does about HD_FLOPS_A_BYTE of a step's operations: an H200 about 450e12 a second (GPT-2 124M, Llama
// 1.24B; tests/bench/RESULTS.md) and 4.3e12 bytes.
enum { HD_LOSS_CHUNK_BYTES = 64 << 20, HD_MOST_LOSS_CHUNKS = 16, HD_LEAST_LOSS_ROWS = 1024, HD_FLOPS_A_BYTE = 100 };
int64_t hd_loss_chunks(const Module *m, const Type *logits, int64_t width);
#endif
