// Philox, and initial values on the host.
#include "runtime/philox.h"

void hd_philox(uint64_t key, uint64_t stream, uint64_t index, uint32_t out[4]) {
    hd_draw_words(&(HdDraw){.seed = key, .stream = stream}, (int64_t)index, out);
}

void hd_draw(const HdDraw *d, float *out) {
    uint32_t word[4];
    for (int64_t i = 0; i < d->count; i++) {
        const int64_t at = d->first + i;
        if (!i || at % 4 == 0) hd_draw_words(d, at / 4, word);
        out[i] = hd_draw_value(d, word[at % 4]);
    }
}
