// Rows in FP8 with a scale for each block of their elements (the op quantize_blocks).
#include "runtime/host/scratch.h"
#include "runtime/bits.h"

enum { MOST = 128 }; // elements of a block

// Row r of a tile, in f32: columns c .. c + n.
static void load_row(const HdBlocks *b, const void *x, int64_t r, int64_t c, int64_t n, float *row) {
    hd_load_f32(b->from, x, r * b->cols + c, n, row);
}

static float larger(float x, float most) { // a NaN stays
    const float a = x < 0 ? -x : x;
    return a > most || a != a ? a : most;
}

static float scale_of(const HdBlocks *b, float most) { return most / (float)hd_dtypes[b->to].largest; }

// One block of a row, or of `block` rows, with one scale.
static float square(const HdBlocks *b, const void *x, int64_t r, int64_t rows, int64_t c, void *q) {
    float row[MOST], most = 0x1p-100f;
    for (int64_t i = r; i < r + rows; i++) {
        load_row(b, x, i, c, b->block, row);
        for (int64_t k = 0; k < b->block; k++) most = larger(row[k], most);
    }
    const float scale = scale_of(b, most), inverse = 1 / scale;
    for (int64_t i = r; q && i < r + rows; i++) {
        load_row(b, x, i, c, b->block, row);
        for (int64_t k = 0; k < b->block; k++) row[k] *= inverse;
        hd_store_f32(b->to, row, b->block, q, i * b->cols + c);
    }
    return scale;
}

// `block` rows of n columns, each column with a scale; they become rows.
static void columns(const HdBlocks *b, const void *x, int64_t r, int64_t c, int64_t n, void *q, float *scales) {
    float tile[MOST * MOST], most[MOST], row[MOST];
    for (int64_t k = 0; k < n; k++) most[k] = 0x1p-100f;
    for (int64_t i = 0; i < b->block; i++) {
        load_row(b, x, r + i, c, n, tile + i * n);
        for (int64_t k = 0; k < n; k++) most[k] = larger(tile[i * n + k], most[k]);
    }
    for (int64_t k = 0; k < n; k++) {
        const float scale = scale_of(b, most[k]), inverse = 1 / scale;
        if (scales) scales[r / b->block * b->cols + c + k] = scale;
        for (int64_t i = 0; i < b->block; i++) row[i] = tile[i * n + k] * inverse;
        if (q) hd_store_f32(b->to, row, b->block, q, (c + k) * b->rows + r);
    }
}

void hd_host_quantize_blocks(const HdBlocks *b, const void *x, void *q, float *scales) {
    const int64_t tall = b->squares || b->across ? b->block : 1, across = (b->cols + b->block - 1) / b->block,
                  line = b->squares ? (across + 3) / 4 * 4 : across, tiles = b->rows / tall * line;
#pragma omp parallel for schedule(static) if (b->rows * b->cols > 16384)
    for (int64_t i = 0; i < tiles; i++) {
        const int64_t r = i / line * tall, c = i % line * b->block;
        if (b->across) {
            columns(b, x, r, c, b->cols - c < b->block ? b->cols - c : b->block, q, scales);
        } else {
            const float scale = c < b->cols ? square(b, x, r, tall, c, q) : 0;
            if (scales) scales[b->squares ? i : c / b->block * b->rows + r] = scale;
        }
    }
}
