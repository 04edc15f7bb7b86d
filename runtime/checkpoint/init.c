// Weights at the start of a run: the values of the initialisers. Every rank makes exactly what it holds.
#include "runtime/checkpoint/pieces.h"
#include "runtime/random.h"
#include "runtime/checkpoint/state.h"
#include <pthread.h>
#include <string.h>
#include <unistd.h>

typedef struct { const HdParam *q; uint64_t seed, stream; int64_t first, count; float *out; } Fill;

static void *fill(void *arg) {
    const Fill *f = arg;
    if (f->q->init == HD_INIT_NORMAL || f->q->init == HD_INIT_UNIFORM) {
        hd_random_fill(f->seed, f->stream, f->first, f->count, f->q->init == HD_INIT_NORMAL, f->q->std, f->out);
        return NULL;
    }
    float v = f->q->init == HD_INIT_ZEROS ? 0 : f->q->init == HD_INIT_ONES ? 1 : (float)f->q->std;
    for (int64_t i = 0; i < f->count; i++) f->out[i] = v;
    return NULL;
}

static void fill_parallel(Fill all) { // the values are the same however the work is divided
    enum { MOST = 16 };
    Fill part[MOST];
    pthread_t thread[MOST];
    bool started[MOST];
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    int n = all.count < 65536 || cores < 2 ? 1 : cores > MOST ? MOST : (int)cores;
    for (int i = 0; i < n; i++) {
        int64_t lo = all.count * i / n, hi = all.count * (i + 1) / n;
        part[i] = all;
        part[i].first += lo;
        part[i].out += lo;
        part[i].count = hi - lo;
        started[i] = i + 1 < n && !pthread_create(&thread[i], NULL, fill, &part[i]);
        if (!started[i]) fill(&part[i]);
    }
    for (int i = 0; i < n; i++)
        if (started[i]) pthread_join(thread[i], NULL);
}

static bool init_piece(HdExec *x, int k, int64_t first, int64_t n, float *v, void *data) {
    const HdParam *q = &x->program->params[k];
    fill_parallel((Fill){q, *(uint64_t *)data, (uint64_t)k, first, n, v});
    return hd_put_weights(x, q, first, n, v);
}

bool hd_state_init(HdExec *x, int64_t seed) {
    uint64_t s = (uint64_t)seed;
    return hd_each_piece(x, HD_COMPUTE, init_piece, &s);
}
