// The meaning of ssd: the plain recurrence, position by position.
#include "ir/eval/rules.h"
#include "ir/ssd.h"
#include <math.h>
#include <string.h>

typedef struct {
    SsdShape h;
    const double *x, *dt, *a, *b, *c, *d, *starts;
} Ssd;

static Ssd ssd_of(const Op *o, const Tensor *in) {
    Ssd s = {.h = hd_ssd_shape(o)};
    in += s.h.grad;
    s.x = in[0].data, s.dt = in[1].data, s.a = in[2].data, s.b = in[3].data, s.c = in[4].data;
    if (s.h.skip) s.d = in[5].data;
    if (s.h.documents) s.starts = in[5 + s.h.skip].data;
    return s;
}

// Of head `head` at position `at` of all sequences: where x, dt and b begin.
static int64_t x_at(const Ssd *s, int64_t at, int64_t head) { return (at * s->h.heads + head) * s->h.size; }
static int64_t dt_at(const Ssd *s, int64_t at, int64_t head) { return at * s->h.heads + head; }
static int64_t b_at(const Ssd *s, int64_t at, int64_t head) {
    return (at * s->h.groups + head / (s->h.heads / s->h.groups)) * s->h.state;
}

// The share of the state that is left before a position: exp(dt a), and nothing where a document begins.
static double kept(const Ssd *s, int64_t at, int64_t head) {
    const int64_t position = at % s->h.seq;
    if (!position || (s->starts && s->starts[at] >= (double)position)) return 0;
    return exp(s->dt[dt_at(s, at, head)] * s->a[head]);
}

// The state after a position: kept(before) + dt x b'.
static void advance(const Ssd *s, int64_t at, int64_t head, const double *before, double *state) {
    const double keep = kept(s, at, head), dt = s->dt[dt_at(s, at, head)];
    const double *x = s->x + x_at(s, at, head), *b = s->b + b_at(s, at, head);
    for (int64_t p = 0; p < s->h.size; p++)
        for (int64_t n = 0; n < s->h.state; n++) {
            const int64_t i = p * s->h.state + n;
            state[i] = (keep != 0 ? keep * before[i] : 0) + dt * x[p] * b[n];
        }
}

const char *hd_eval_ssd(Eval *e, const Op *o, const Tensor *in, Tensor *out) {
    const Ssd s = ssd_of(o, in);
    double *state = HD_NEWN(e->arena, double, s.h.size * s.h.state);
    for (int64_t q = 0; q < s.h.batch * s.h.heads; q++)
        for (int64_t t = 0; t < s.h.seq; t++) {
            const int64_t at = q / s.h.heads * s.h.seq + t, head = q % s.h.heads;
            const double *c = s.c + b_at(&s, at, head), *x = s.x + x_at(&s, at, head);
            double *y = out->data + x_at(&s, at, head);
            advance(&s, at, head, state, state);
            for (int64_t p = 0; p < s.h.size; p++) {
                for (int64_t n = 0; n < s.h.state; n++) y[p] += state[p * s.h.state + n] * c[n];
                if (s.d) y[p] += s.d[head] * x[p];
            }
        }
    return NULL;
}

// Backwards through the recurrence. `after` is the state after the position, `before` the one before it; `grad`, the
// gradient of the state after it, becomes that of the one before.
static void retreat(const Ssd *s, int64_t at, int64_t head, const double *dy, const double *before,
                    const double *after, double *grad, Tensor *out) {
    const double keep = kept(s, at, head), dt = s->dt[dt_at(s, at, head)], a = s->a[head];
    const int64_t to_x = x_at(s, at, head), to_b = b_at(s, at, head);
    const double *x = s->x + to_x, *b = s->b + to_b, *c = s->c + to_b;
    double *dx = out[0].data + to_x, *db = out[3].data + to_b, *dc = out[4].data + to_b, ddt = 0, shrunk = 0;
    for (int64_t p = 0; p < s->h.size; p++) {
        if (s->d) dx[p] += s->d[head] * dy[p], out[5].data[head] += x[p] * dy[p];
        for (int64_t n = 0; n < s->h.state; n++) {
            const int64_t i = p * s->h.state + n;
            grad[i] += dy[p] * c[n];
            dc[n] += dy[p] * after[i];
            dx[p] += dt * grad[i] * b[n];
            db[n] += dt * grad[i] * x[p];
            ddt += grad[i] * x[p] * b[n];
            if (keep != 0) shrunk += keep * grad[i] * before[i];
            grad[i] = keep != 0 ? keep * grad[i] : 0;
        }
    }
    out[1].data[dt_at(s, at, head)] = ddt + a * shrunk;
    out[2].data[head] += dt * shrunk;
}

const char *hd_eval_ssd_grad(Eval *e, const Op *o, const Tensor *in, Tensor *out) {
    const Ssd s = ssd_of(o, in);
    const int64_t n = s.h.size * s.h.state;
    double *states = HD_NEWN(e->arena, double, n * (s.h.seq + 1)), *grad = HD_NEWN(e->arena, double, n);
    for (int64_t q = 0; q < s.h.batch * s.h.heads; q++) {
        const int64_t first = q / s.h.heads * s.h.seq, head = q % s.h.heads;
        for (int64_t t = 0; t < s.h.seq; t++) advance(&s, first + t, head, states + t * n, states + (t + 1) * n);
        memset(grad, 0, sizeof *grad * (size_t)n);
        for (int64_t t = s.h.seq; t-- > 0;)
            retreat(&s, first + t, head, in[0].data + x_at(&s, first + t, head), states + t * n, states + (t + 1) * n,
                    grad, out);
    }
    return NULL;
}
