// Initial values that a device makes against those of the host, bit by bit: all kinds and types, ranges that begin and
// end anywhere, in storage that is aligned to an element. For the pretended driver and for a real one.
#ifndef TESTS_GPU_DRAWS_H
#define TESTS_GPU_DRAWS_H
#include "runtime/dtypes.h"
#include "runtime/philox.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DRAWS_GUARD = 8 }; // elements on both sides that must stay as they are

// The number of elements that differ, those around the range included; -1: a call failed. `at`: of free bytes.
static inline int64_t draw_differs(HdExec *x, const HdDraw *d, HdDtype dtype, int64_t at) {
    const HdBackend *b = x->program->backend;
    const size_t one = hd_dtypes[dtype].bytes, bytes = (size_t)(d->count + 2 * DRAWS_GUARD) * one;
    float *v = malloc((size_t)d->count * sizeof *v + 1);
    unsigned char *want = malloc(bytes), *got = malloc(bytes);
    int64_t different = -1;
    if (v && want && got) {
        memset(want, 0x5a, bytes);
        hd_draw(d, v);
        hd_store_f32(dtype, v, d->count, want, DRAWS_GUARD);
        memset(got, 0x5a, bytes);
        if (b->write(x, at, got, bytes) && b->draw(x, d, dtype, at + DRAWS_GUARD * (int64_t)one) &&
            b->read(x, at, got, bytes)) {
            different = 0;
            for (size_t i = 0; i < bytes; i += one) different += memcmp(got + i, want + i, one) != 0;
        }
    }
    free(v);
    free(want);
    free(got);
    return different;
}

// Ranges of up to `most` elements; all of it is within 4 * most + 1024 bytes at `at`. Returns how many elements were
// compared; -1 when some differ, of which it tells.
static inline int64_t draws_compare(HdExec *x, int64_t at, int64_t most) {
    static const HdDtype dtypes[] = {HD_F32, HD_BF16, HD_F16};
    static const struct { int kind; double scale; } laws[] = {{HD_DRAW_NORMAL, 0.02}, {HD_DRAW_UNIFORM, 0.125},
                                                              {HD_DRAW_CONST, 1},     {HD_DRAW_NORMAL, 1},
                                                              {HD_DRAW_NORMAL, 1e-39}, {HD_DRAW_CONST, -0.3},
                                                              {HD_DRAW_TRUNCATED, 0.02}};
    const int64_t ranges[][2] = {{0, most}, {0, 1}, {1, 1}, {3, 2}, {2, 5}, {4, 4}, {1, most - 3}, {4099, 1021},
                                 {(1LL << 34) - 3, 999}, {(1LL << 40) + 1, 77}};
    int64_t all = 0;
    for (size_t l = 0; l < sizeof laws / sizeof *laws; l++)
        for (size_t t = 0; t < sizeof dtypes / sizeof *dtypes; t++)
            for (size_t r = 0; r < sizeof ranges / sizeof *ranges; r++) {
                const HdDraw d = {1 + (uint64_t)r * 0x123456789abcdefu, 7 * l + t, ranges[r][0], ranges[r][1],
                                  laws[l].scale, laws[l].kind};
                const int64_t shift = (int64_t)((r % 5) * hd_dtypes[dtypes[t]].bytes);
                const int64_t different = draw_differs(x, &d, dtypes[t], at + shift);
                if (different) {
                    printf("FAIL initial values: kind %d, scale %g, %s, %lld from %lld on: %lld differ\n", d.kind,
                           d.scale, hd_dtypes[dtypes[t]].name, (long long)d.count, (long long)d.first,
                           (long long)different);
                    return -1;
                }
                all += d.count;
            }
    return all;
}
#endif
