// The matrices of an optimizer become orthogonal (ir/optimizer.h). Tiles have a fixed number of rows, so results do not
// depend on how many threads share them.
#include "runtime/host/blas.h"
#include "runtime/host/host.h"
#include "runtime/host/scratch.h"
#include "runtime/world/mesh.h"
#include <math.h>
#include <string.h>

enum { TILE = 64 }; // rows

typedef struct { bool ta, tb; int64_t m, n, k; float alpha, beta; } Turning;

static float rounded(HdDtype dt, float v) { return dt == HD_BF16 ? hd_from_bf16(hd_to_bf16(v)) : v; }

// d = alpha a b + beta c; c NULL: without it. In f32 that holds numbers of type `dt`.
static void product(HdDtype dt, Turning s, const float *a, const float *b, const float *c, float *d) {
#pragma omp parallel for schedule(static) if (s.m > TILE)
    for (int64_t row = 0; row < s.m; row += TILE) {
        const int64_t rows = s.m - row < TILE ? s.m - row : TILE;
        float *const to = d + row * s.n;
        const HostProduct p = {s.ta, s.tb, rows, s.n, s.k, s.ta ? s.m : s.k, s.tb ? s.k : s.n, s.n};
        if (c) memcpy(to, c + row * s.n, (size_t)(rows * s.n) * sizeof *to);
        hd_host_product(&p, s.alpha, s.ta ? a + row : a + row * s.k, b, c ? s.beta : 0.0f, to);
        for (int64_t i = 0; dt != HD_F32 && i < rows * s.n; i++) to[i] = rounded(dt, to[i]);
    }
}

// The divisor of a matrix whose elements are rounded on the way.
static float norm_of(HdDtype dt, float *d, int64_t n, double *sums) {
    const int64_t runs = (n + HD_HOST_NORM_BLOCK - 1) / HD_HOST_NORM_BLOCK;
    double total = 0;
    for (int64_t i = 0; dt != HD_F32 && i < n; i++) d[i] = rounded(dt, d[i]);
    hd_host_square_sums(1, (const float *const[]){d}, (const int64_t[]){n}, sums);
    for (int64_t i = 0; i < runs; i++) total += sums[i];
    const float norm = (float)sqrt(total);
    return norm > HD_TURN_LEAST || norm != norm ? norm : HD_TURN_LEAST;
}

static void turn(HdDtype dt, const HdTurned *m, float *d, float *x, float *g, float *h, double *sums) {
    const bool tall = m->rows > m->cols;
    const int64_t least = tall ? m->cols : m->rows, n = m->rows * m->cols;
    const float norm = norm_of(dt, d, n, sums);
    for (int64_t i = 0; i < n; i++) x[i] = rounded(dt, d[i] / norm);
    for (int k = 0; k < HD_TURN_STEPS; k++) {
        const float s = k == HD_TURN_STEPS - 1 ? m->scale : 1;
        float *const from = k % 2 ? d : x, *const to = k % 2 ? x : d;
        product(dt, (Turning){tall, !tall, least, least, tall ? m->rows : m->cols, 1, 0}, from, from, NULL, g);
        product(dt, (Turning){false, false, least, least, least, HD_TURN_C, HD_TURN_B}, g, g, g, h);
        product(dt, (Turning){false, false, m->rows, m->cols, least, s, s * HD_TURN_A}, tall ? from : h,
                tall ? h : from, from, to);
    }
}
_Static_assert(HD_TURN_STEPS % 2 == 1, "the last of them writes where the operand was");

void hd_host_orthogonalize(HdExec *x, const HdTurn *t, float *d, void *space) {
    const int rank = hd_group_number(x->program, t->split, x->world->rank);
    char *const at = space;
    for (int i = 0; i < t->n; i++)
        if (t->list[i].rank == rank)
            turn(t->dtype, &t->list[i], d + t->list[i].at, (float *)(void *)(at + t->x), (float *)(void *)(at + t->g),
                 (float *)(void *)(at + t->h), (double *)(void *)(at + t->sums));
}
