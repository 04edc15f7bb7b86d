// Weights at the start of a run: the values of the initialisers. Every rank makes exactly what it holds, on the device
// where that can draw, else on all cores of the host; both make the same bits (draw.h).
#include "runtime/checkpoint/pieces.h"
#include "runtime/checkpoint/state.h"
#include "runtime/base/parallel.h"
#include "runtime/philox.h"
#include "runtime/world/world.h"

static HdDraw draw_of(const HdProgram *p, int k, HdSpan s, int64_t seed) {
    const HdParam *q = &p->params[k];
    const double STD = q->std;
    const struct { int kind; double scale; } inits[] = {
#define INIT(id, word, name, takes, what, draw, scale) {HD_DRAW_##draw, scale},
#include "runtime/inits.def"
    };
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

static void fill(void *data, int64_t first, int64_t n) {
    const Fill *f = data;
    HdDraw d = f->draw;
    d.first += first;
    d.count = n;
    hd_draw(&d, f->out + first);
}

static bool init_piece(HdExec *x, int k, int64_t first, int64_t n, float *v, void *data) {
    const HdProgram *p = x->program;
    const HdParam *q = &p->params[k];
    for (int64_t at = 0; at < n;) {
        const HdSpan run = hd_whole_run(p, q, hd_part(p, q, x->world->rank), first + at, n - at);
        hd_parallel(run.count, 65536, fill, &(Fill){draw_of(p, k, run, *(int64_t *)data), v + at});
        at += run.count;
    }
    return hd_put_weights(x, &p->params[k], first, n, v);
}

bool hd_state_init(HdExec *x, int64_t seed) {
    return x->program->backend->draw ? draw_there(x, seed) : hd_each_piece(x, HD_COMPUTE, init_piece, &seed);
}
