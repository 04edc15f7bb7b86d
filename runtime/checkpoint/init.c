// Weights at the start of a run: the values of the initialisers. Every rank makes exactly what it holds.
#include "runtime/checkpoint/pieces.h"
#include "runtime/checkpoint/state.h"
#include "runtime/parallel.h"
#include "runtime/random.h"

typedef struct { const HdParam *q; uint64_t seed, stream; int64_t first; float *out; } Fill;

static void fill(void *data, int64_t first, int64_t n) {
    const Fill *f = data;
    const HdInit init = f->q->init;
    float *out = f->out + first;
    if (init == HD_INIT_NORMAL || init == HD_INIT_UNIFORM) {
        hd_random_fill(f->seed, f->stream, f->first + first, n, init == HD_INIT_NORMAL, f->q->std, out);
        return;
    }
    const float v = init == HD_INIT_ZEROS ? 0 : init == HD_INIT_ONES ? 1 : (float)f->q->std;
    for (int64_t i = 0; i < n; i++) out[i] = v;
}

static bool init_piece(HdExec *x, int k, int64_t first, int64_t n, float *v, void *data) {
    const HdParam *q = &x->program->params[k];
    hd_parallel(n, 65536, fill, &(Fill){q, *(uint64_t *)data, (uint64_t)k, first, v});
    return hd_put_weights(x, q, first, n, v);
}

bool hd_state_init(HdExec *x, int64_t seed) {
    uint64_t s = (uint64_t)seed;
    return hd_each_piece(x, HD_COMPUTE, init_piece, &s);
}
