// Weights at the start of a run: the values of the initialisers. Every rank makes exactly what it holds, on the device
// where that can draw, else on all cores of the host; both make the same bits (draw.h).
#include "runtime/checkpoint/orthogonal.h"
#include "runtime/checkpoint/pieces.h"
#include "runtime/checkpoint/state.h"
#include "runtime/base/parallel.h"
#include "runtime/philox.h"
#include "runtime/world/world.h"
#include <stdlib.h>
#include <string.h>

static HdDraw draw_of(const HdProgram *p, int k, HdSpan s, int64_t seed) {
    const HdParam *q = &p->params[k];
    const double STD = q->std;
    const struct { int kind; double scale; } inits[] = {
#define INIT(id, word, name, takes, what, draw, scale) {HD_DRAW_##draw, scale},
#include "runtime/inits.def"
    };
    if (s.first < 0) return (HdDraw){(uint64_t)seed, (uint64_t)k, 0, s.count, 0, HD_DRAW_CONST}; // no file has these
    return (HdDraw){(uint64_t)seed, (uint64_t)k, s.first, s.count, inits[q->init].scale, inits[q->init].kind};
}

// --- on the device: each storage gets its part of each parameter in its own type

static bool draw_there(HdExec *x, int64_t seed) {
    const HdProgram *p = x->program;
    HdRole roles[HD_WEIGHT_ROLES];
    const int count = hd_weight_roles(p, roles);
    for (int k = 0; k < p->n_params; k++)
        for (int i = 0; i < count; i++) {
            const HdParam *q = &p->params[k];
            if (q->init == HD_INIT_ORTHOGONAL) continue; // the host makes it
            const HdRole role = roles[i];
            const HdSpan s = hd_span(x, q, role);
            const HdDtype dtype = hd_stored_as(p, &p->buckets[q->bucket], role);
            for (int64_t at = 0; at < s.count;) {
                const HdSpan run = hd_whole_run(p, q, hd_part(p, q, x->world->rank), s.first + at, s.count - at);
                const HdDraw d = draw_of(p, k, run, seed);
                if (!p->backend->draw(x, &d, dtype, hd_place(x, q, role, s.first + at))) return false;
                at += run.count;
            }
        }
    return true;
}

// --- on the host

typedef struct { HdDraw draw; float *out; } Fill;
typedef struct {
    int64_t seed;
    bool orthogonal_alone; // the device has made the others
    int made;              // the parameter that is in `whole`; -1: none is
    float *whole;
} Start;

static void fill(void *data, int64_t first, int64_t n) {
    const Fill *f = data;
    HdDraw d = f->draw;
    d.first += first;
    d.count = n;
    hd_draw(&d, f->out + first);
}

// The whole of it, whichever part the rank has: no element is known before all are.
static bool make_orthogonal(const HdProgram *p, int k, Start *s) {
    const HdParam q = hd_whole(p, &p->params[k]);
    if (s->made == k) return true;
    s->made = k;
    free(s->whole);
    s->whole = malloc((size_t)q.count * sizeof *s->whole);
    const HdDraw d = draw_of(p, k, (HdSpan){0, q.count}, s->seed);
    return (s->whole && hd_orthogonal(&d, q.dim[0], q.dim[1], q.std, s->whole)) ||
           hd_fail("no memory for the orthogonal matrix %s, %lld x %lld in f64", q.name, (long long)q.dim[0],
                   (long long)q.dim[1]);
}

static bool init_piece(HdExec *x, int k, int64_t first, int64_t n, float *v, void *data) {
    const HdProgram *p = x->program;
    const HdParam *q = &p->params[k];
    Start *s = data;
    const bool whole = q->init == HD_INIT_ORTHOGONAL;
    if (s->orthogonal_alone && !whole) return true;
    if (whole && !make_orthogonal(p, k, s)) return false;
    for (int64_t at = 0; at < n;) {
        const HdSpan run = hd_whole_run(p, q, hd_part(p, q, x->world->rank), first + at, n - at);
        if (whole && run.first < 0) memset(v + at, 0, (size_t)run.count * sizeof *v);
        else if (whole) memcpy(v + at, s->whole + run.first, (size_t)run.count * sizeof *v);
        else hd_parallel(run.count, 65536, fill, &(Fill){draw_of(p, k, run, s->seed), v + at});
        at += run.count;
    }
    return hd_put_weights(x, &p->params[k], first, n, v);
}

static bool has_orthogonal(const HdProgram *p) {
    for (int k = 0; k < p->n_params; k++)
        if (p->params[k].init == HD_INIT_ORTHOGONAL) return true;
    return false;
}

bool hd_state_init(HdExec *x, int64_t seed) {
    const bool there = x->program->backend->draw != NULL;
    if (there && !draw_there(x, seed)) return false;
    if (there && !has_orthogonal(x->program)) return true;
    Start s = {.seed = seed, .orthogonal_alone = there, .made = -1};
    const bool ok = hd_each_piece(x, HD_COMPUTE, init_piece, &s);
    free(s.whole);
    return ok;
}
