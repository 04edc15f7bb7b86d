// The number of chunks of a loss. See loss_chunks.h.
#include "passes/tensor/loss_chunks.h"
#include "passes/settings.h"

int64_t hd_loss_chunks(const Module *m, const Type *logits, int64_t width) {
    const int64_t rows = hd_type_rows(logits), bytes = hd_type_bytes(logits);
    const double flops = (double)hd_int(hd_settings(m, "model"), A_MODEL_FLOPS, 0);
    const double again = 8.0 * (double)width * (double)hd_type_cols(logits); // bytes that one more chunk moves
    int64_t n = 1;
    while (n < HD_MOST_LOSS_CHUNKS) {
        const int64_t more = 2 * n;
        if (bytes / more < HD_LOSS_CHUNK_BYTES || rows % more || rows / more < HD_LEAST_LOSS_ROWS) break;
        if ((double)(more - 1) * again * HD_FLOPS_A_BYTE > 0.005 * flops) break;
        n = more;
    }
    return n;
}
