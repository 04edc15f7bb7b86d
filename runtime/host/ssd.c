// State-space duality by chunks of positions, in tiles of 64 rows. Of a head and a chunk, with clock_i the sum of dt a
// up to position i of the chunk, L_ij = exp(clock_i - clock_j) for i >= j, e_i = exp(clock_i), f_j = exp(clock_last -
// clock_j) and S the state that comes in:
//   M_ij = (c_i . b_j) L_ij dt_j,   y = M x + e (c S') + d x,   S of the next chunk = exp(clock_last) S + (f dt x)' b
// Backward, dS being the gradient of the state that leaves the chunk:
//   dM = dy x',  V = (M / dt)' dy + f (b dS'),  dx = dt V + d dy,
//   dc = sum over heads of e (dy S) + dG b,  db = sum over heads of f dt (x dS) + dG' c,  dG = sum of dM L dt,
//   dclock = rowsum(dM M) - colsum(dM M) + e rowsum(dy (c S')) - f dt rowsum(x (b dS')), and at the last position also
//   sum(f dt rowsum(x (b dS'))) + exp(clock_last) <dS, S>;  g = sums of dclock from each position to the end,
//   ddt = rowsum(x V) + a g,  da = sum(dt g),  dd = sum(x dy),  dS of the chunk before = exp(clock_last) dS + (e dy)' c
// With documents a pair i, j in two of them, a state that comes in for a position of a later one and what a position
// adds to a state of a later one count 0. Every sum has one order, whatever the number of threads.
#include "runtime/host/blas.h"
#include "runtime/host/scratch.h"

enum { ROWS = 64, CHUNK = 1024, SIZE = HD_HOST_MAX_HEAD, STATE = HD_HOST_MAX_HEAD };

typedef struct { // of a chunk and a head
    float x[ROWS * SIZE], dy[ROWS * SIZE], sum[ROWS * SIZE], b[ROWS * STATE], c[ROWS * STATE], part[ROWS * STATE],
        m[ROWS * ROWS], dm[ROWS * ROWS], dt[CHUNK], clock[CHUNK], in[CHUNK], out[CHUNK], rows[CHUNK], cols[CHUNK],
        left[CHUNK];
} SsdTiles;
static SsdTiles *tiles(void) { return hd_host_scratch(HD_SCRATCH_SSD, sizeof(SsdTiles)); }

typedef struct {
    const HdSsd *t;
    const void *dy, *x, *dt, *a, *b, *c, *d;
    const int32_t *starts;
    void *y, *dx, *ddt, *db, *dc;
    float *da, *dd, *states, *dstates, *scores, *dscores, *sum_b, *sum_c, *part_a, *part_d;
} Ssd;
typedef struct { int64_t batch, chunk, first, n; } Span; // first: the position in all sequences

static int64_t chunks_of(const HdSsd *t) { return (t->seq + t->chunk - 1) / t->chunk; }
static int64_t lesser(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t group_of(const HdSsd *t, int64_t head) { return head / (t->heads / t->groups); }

static Span span_of(const HdSsd *t, int64_t batch, int64_t chunk) {
    return (Span){batch, chunk, batch * t->seq + chunk * t->chunk, lesser(t->chunk, t->seq - chunk * t->chunk)};
}

static float number(HdDtype dt, const void *p, int64_t at) {
    float v;
    hd_load_f32(dt, p, at, 1, &v);
    return v;
}

static float *state_of(const Ssd *w, float *states, const Span *s, int64_t head) {
    const HdSsd *t = w->t;
    return states + ((s->batch * chunks_of(t) + s->chunk) * t->heads + head) * t->size * t->state;
}

static float *scores_of(const Ssd *w, float *scores, const Span *s, int64_t group) {
    const HdSsd *t = w->t;
    return scores + ((s->batch * chunks_of(t) + s->chunk) * t->groups + group) * t->chunk * t->chunk;
}

// n rows from row `from` of the span on, of head or group `of`.
static void load(HdDtype dt, const void *src, const Span *s, int64_t from, int64_t n, int64_t wide, int64_t of,
                 int64_t size, float *to) {
    for (int64_t r = 0; r < n; r++)
        hd_load_f32(dt, src, ((s->first + from + r) * wide + of) * size, size, to + r * size);
}
static void load_x(const Ssd *w, const void *src, const Span *s, int64_t from, int64_t n, int64_t head, float *to) {
    load(w->t->dtype, src, s, from, n, w->t->heads, head, w->t->size, to);
}
static void load_b(const Ssd *w, const void *src, const Span *s, int64_t from, int64_t n, int64_t group, float *to) {
    load(w->t->dtype, src, s, from, n, w->t->groups, group, w->t->state, to);
}

// d (m x n) = a b + beta d, all rows dense. ta: a is stored k x m; tb: b is stored n x k.
static void product(bool ta, bool tb, int64_t m, int64_t n, int64_t k, const float *a, const float *b, float beta,
                    float *d) {
    hd_host_product(&(HostProduct){ta, tb, m, n, k, ta ? m : k, tb ? k : n, n}, 1, a, b, beta, d);
}

static int64_t start_of(const Ssd *w, const Span *s, int64_t row) { // of the row's document, from the span's first row
    return w->starts ? w->starts[s->first + row] - s->chunk * w->t->chunk : -s->chunk * w->t->chunk;
}

// dt, clock, in = e and out = f of a head; the result is what is left of the state from one chunk to the next.
static float clocks(const Ssd *w, const Span *s, int64_t head) {
    const HdSsd *t = w->t;
    SsdTiles *z = tiles();
    const float a = number(t->a_dtype, w->a, head);
    float now = 0;
    for (int64_t i = 0; i < s->n; i++) {
        z->dt[i] = number(t->dt_dtype, w->dt, (s->first + i) * t->heads + head);
        z->clock[i] = now += z->dt[i] * a;
        z->in[i] = start_of(w, s, i) < 0 ? hd_exp(now) : 0;
    }
    const int64_t last = start_of(w, s, s->n - 1);
    for (int64_t i = 0; i < s->n; i++) z->out[i] = i >= last ? hd_exp(now - z->clock[i]) : 0;
    return last < 0 ? hd_exp(now) : 0;
}

// L of rows i and columns j from `from` and `to` on.
static float decay(const Ssd *w, const Span *s, const float *clock, int64_t i, int64_t j) {
    return j <= i && j >= start_of(w, s, i) ? hd_exp(clock[i] - clock[j]) : 0;
}

static void scale_rows(float *x, int64_t n, int64_t size, const float *by, const float *also) {
    for (int64_t r = 0; r < n; r++)
        for (int64_t c = 0; c < size; c++) x[r * size + c] *= also ? by[r] * also[r] : by[r];
}

// The states that come into the chunks of a head; backward too.
static void states_of(const Ssd *w, int64_t batch, int64_t head) {
    const HdSsd *t = w->t;
    SsdTiles *z = tiles();
    const int64_t size = t->size * t->state;
    for (int64_t k = 0; k < chunks_of(t); k++) {
        const Span s = span_of(t, batch, k);
        float *state = state_of(w, w->states, &s, head), *next = state + t->heads * size;
        if (!k) memset(state, 0, (size_t)size * sizeof(float));
        if (k + 1 == chunks_of(t)) return;
        const float keep = clocks(w, &s, head);
        for (int64_t i = 0; i < size; i++) next[i] = keep * state[i];
        for (int64_t j = 0; j < s.n; j += ROWS) {
            const int64_t n = lesser(ROWS, s.n - j);
            load_x(w, w->x, &s, j, n, head, z->x);
            load_b(w, w->b, &s, j, n, group_of(t, head), z->b);
            scale_rows(z->x, n, t->size, z->out + j, z->dt + j);
            product(true, false, t->size, t->state, n, z->x, z->b, 1, next);
        }
    }
}

// The gradients of the states that leave the chunks of a head.
static void dstates_of(const Ssd *w, int64_t batch, int64_t head) {
    const HdSsd *t = w->t;
    SsdTiles *z = tiles();
    const int64_t size = t->size * t->state;
    for (int64_t k = chunks_of(t); k-- > 0;) {
        const Span s = span_of(t, batch, k);
        float *grad = state_of(w, w->dstates, &s, head), *before = grad - t->heads * size;
        if (k + 1 == chunks_of(t)) memset(grad, 0, (size_t)size * sizeof(float));
        if (!k) return;
        const float keep = clocks(w, &s, head);
        for (int64_t i = 0; i < size; i++) before[i] = keep * grad[i];
        for (int64_t j = 0; j < s.n; j += ROWS) {
            const int64_t n = lesser(ROWS, s.n - j);
            load_x(w, w->dy, &s, j, n, head, z->dy);
            load_b(w, w->c, &s, j, n, group_of(t, head), z->c);
            scale_rows(z->dy, n, t->size, z->in + j, NULL);
            product(true, false, t->size, t->state, n, z->dy, z->c, 1, before);
        }
    }
}

// scores = c_i b_j' of tile i, j, dense.
static void score(const Ssd *w, const Span *s, int64_t group, int64_t i, int64_t j, float *to) {
    const int64_t m = lesser(ROWS, s->n - i), n = lesser(ROWS, s->n - j);
    SsdTiles *z = tiles();
    load_b(w, w->c, s, i, m, group, z->c);
    load_b(w, w->b, s, j, n, group, z->b);
    product(false, true, m, n, w->t->state, z->c, z->b, 0, to);
}

static void forward_rows(const Ssd *w, const Span *s, int64_t head, int64_t i) {
    const HdSsd *t = w->t;
    SsdTiles *z = tiles();
    const int64_t m = lesser(ROWS, s->n - i), group = group_of(t, head);
    load_b(w, w->c, s, i, m, group, z->c);
    product(false, true, m, t->size, t->state, z->c, state_of(w, w->states, s, head), 0, z->sum);
    scale_rows(z->sum, m, t->size, z->in + i, NULL);
    for (int64_t j = 0; j <= i; j += ROWS) {
        const int64_t n = lesser(ROWS, s->n - j);
        score(w, s, group, i, j, z->m);
        for (int64_t r = 0; r < m; r++)
            for (int64_t c = 0; c < n; c++) z->m[r * n + c] *= decay(w, s, z->clock, i + r, j + c) * z->dt[j + c];
        load_x(w, w->x, s, j, n, head, z->x);
        product(false, false, m, t->size, n, z->m, z->x, 1, z->sum);
    }
    const float d = w->d ? number(t->d_dtype, w->d, head) : 0; // x: that of the last tile, which is i
    for (int64_t k = 0; w->d && k < m * t->size; k++) z->sum[k] += d * z->x[k];
    for (int64_t r = 0; r < m; r++)
        hd_store_f32(t->dtype, z->sum + r * t->size, t->size, w->y, ((s->first + i + r) * t->heads + head) * t->size);
}

void hd_host_ssd(const HdSsd *t, const void *x, const void *dt, const void *a, const void *b, const void *c,
                 const void *d, const int32_t *starts, void *y, void *workspace) {
    const Ssd w = {.t = t, .x = x, .dt = dt, .a = a, .b = b, .c = c, .d = d, .starts = starts, .y = y,
                   .states = workspace};
    const int64_t heads = t->batch * t->heads, all = heads * chunks_of(t);
    hd_host_blas_start();
#pragma omp parallel if (all > 1)
    {
#pragma omp for schedule(static, 1)
        for (int64_t q = 0; q < heads; q++) states_of(&w, q / t->heads, q % t->heads);
#pragma omp for schedule(static, 1)
        for (int64_t q = 0; q < all; q++) {
            const Span s = span_of(t, q / t->heads / chunks_of(t), q / t->heads % chunks_of(t));
            clocks(&w, &s, q % t->heads);
            for (int64_t i = 0; i < s.n; i += ROWS) forward_rows(&w, &s, q % t->heads, i);
        }
    }
}

// --- backward, of a chunk and a group

// Of tile i, j and a head: dm = dM, m = M / dt; adds to rows and columns of dM M, to dG and to V.
static void pair(const Ssd *w, const Span *s, int64_t i, int64_t j, float *scores, float *dscores) {
    const HdSsd *t = w->t;
    SsdTiles *z = tiles();
    const int64_t m = lesser(ROWS, s->n - i), n = lesser(ROWS, s->n - j);
    product(false, true, m, n, t->size, z->dy, z->x, 0, z->dm);
    for (int64_t r = 0; r < m; r++)
        for (int64_t c = 0; c < n; c++) {
            const int64_t at = (i + r) * t->chunk + j + c;
            const float l = decay(w, s, z->clock, i + r, j + c), gl = scores[at] * l, dm = z->dm[r * n + c];
            z->m[r * n + c] = gl;
            z->rows[i + r] += dm * gl * z->dt[j + c];
            z->cols[j + c] += dm * gl;
            dscores[at] += dm * l * z->dt[j + c];
        }
    product(true, false, n, t->size, m, z->m, z->dy, 1, z->sum);
}

// dx, db and what x has to do with the state that leaves, of the tile of rows j. The result is its part of dd.
static float columns(const Ssd *w, const Span *s, int64_t head, int64_t j, float *scores, float *dscores) {
    const HdSsd *t = w->t;
    SsdTiles *z = tiles();
    const int64_t n = lesser(ROWS, s->n - j), group = group_of(t, head);
    const float *grad = state_of(w, w->dstates, s, head), d = w->d ? number(t->d_dtype, w->d, head) : 0;
    float kept = 0, *sum_b = w->sum_b;
    load_x(w, w->x, s, j, n, head, z->x);
    load_b(w, w->b, s, j, n, group, z->b);
    product(false, true, n, t->size, t->state, z->b, grad, 0, z->sum);
    scale_rows(z->sum, n, t->size, z->out + j, NULL);
    for (int64_t r = 0; r < n; r++) z->left[j + r] = hd_row_dot(z->sum + r * t->size, z->x + r * t->size, t->size);
    product(false, false, n, t->state, t->size, z->x, grad, 0, z->part);
    for (int64_t r = 0; r < n; r++)
        for (int64_t k = 0; k < t->state; k++)
            sum_b[((s->first + j + r) * t->groups + group) * t->state + k] +=
                z->out[j + r] * z->dt[j + r] * z->part[r * t->state + k];
    for (int64_t i = j; i < s->n; i += ROWS) {
        load_x(w, w->dy, s, i, lesser(ROWS, s->n - i), head, z->dy);
        pair(w, s, i, j, scores, dscores);
    }
    load_x(w, w->dy, s, j, n, head, z->dy);
    for (int64_t r = 0; r < n; r++) {
        float *v = z->sum + r * t->size;
        kept += hd_row_dot(z->x + r * t->size, z->dy + r * t->size, t->size);
        for (int64_t k = 0; k < t->size; k++) v[k] = z->dt[j + r] * v[k] + d * z->dy[r * t->size + k];
        hd_store_f32(t->dtype, v, t->size, w->dx, ((s->first + j + r) * t->heads + head) * t->size);
    }
    return kept;
}

// dc, and what y reads of the state that came in, of the tile of rows i.
static void rows_in(const Ssd *w, const Span *s, int64_t head, int64_t i) {
    const HdSsd *t = w->t;
    SsdTiles *z = tiles();
    const int64_t m = lesser(ROWS, s->n - i), group = group_of(t, head);
    load_x(w, w->dy, s, i, m, head, z->dy);
    load_b(w, w->c, s, i, m, group, z->c);
    product(false, false, m, t->state, t->size, z->dy, state_of(w, w->states, s, head), 0, z->part);
    scale_rows(z->part, m, t->state, z->in + i, NULL);
    for (int64_t r = 0; r < m; r++) {
        const float *part = z->part + r * t->state;
        float *sum = w->sum_c + ((s->first + i + r) * t->groups + group) * t->state;
        z->rows[i + r] += hd_row_dot(part, z->c + r * t->state, t->state);
        for (int64_t k = 0; k < t->state; k++) sum[k] += part[k];
    }
}

// ddt of a chunk, and its part of da.
static float times(const Ssd *w, const Span *s, int64_t head, float keep) {
    const HdSsd *t = w->t;
    SsdTiles *z = tiles();
    const float a = number(t->a_dtype, w->a, head);
    const int64_t size = t->size * t->state;
    float da = 0, now = keep * hd_row_dot(state_of(w, w->states, s, head), state_of(w, w->dstates, s, head), size);
    for (int64_t i = 0; i < s->n; i++) now += z->dt[i] * z->left[i];
    for (int64_t i = s->n; i-- > 0;) {
        now += z->rows[i] - z->dt[i] * (z->cols[i] + z->left[i]);
        da += now * z->dt[i];
        const float ddt = z->cols[i] + z->left[i] + now * a;
        hd_store_f32(t->dt_dtype, &ddt, 1, w->ddt, (s->first + i) * t->heads + head);
    }
    return da;
}

// The shares of a chunk's scores in db and dc, and all of both to their places.
static void finish(const Ssd *w, const Span *s, int64_t group, const float *dscores) {
    const HdSsd *t = w->t;
    SsdTiles *z = tiles();
    for (int64_t i = 0; i < s->n; i++) {
        const int64_t at = ((s->first + i) * t->groups + group) * t->state;
        float *db = w->sum_b + at, *dc = w->sum_c + at;
        for (int64_t j = 0; j < s->n; j++) {
            if (j <= i) load_b(w, w->b, s, j, 1, group, z->b);
            else load_b(w, w->c, s, j, 1, group, z->b);
            const float by = dscores[j <= i ? i * t->chunk + j : j * t->chunk + i];
            float *to = j <= i ? dc : db;
            for (int64_t k = 0; k < t->state; k++) to[k] += by * z->b[k];
        }
        load_b(w, w->c, s, i, 1, group, z->c); // of the diagonal
        for (int64_t k = 0; k < t->state; k++) db[k] += dscores[i * t->chunk + i] * z->c[k];
        hd_store_f32(t->dtype, db, t->state, w->db, at);
        hd_store_f32(t->dtype, dc, t->state, w->dc, at);
    }
}

static void backward_group(const Ssd *w, const Span *s, int64_t group) {
    const HdSsd *t = w->t;
    SsdTiles *z = tiles();
    float *scores = scores_of(w, w->scores, s, group), *dscores = scores_of(w, w->dscores, s, group);
    const int64_t each = t->heads / t->groups;
    for (int64_t i = 0; i < s->n; i++) {
        const size_t bytes = (size_t)t->state * sizeof(float);
        memset(dscores + i * t->chunk, 0, (size_t)t->chunk * sizeof(float));
        memset(w->sum_b + ((s->first + i) * t->groups + group) * t->state, 0, bytes);
        memset(w->sum_c + ((s->first + i) * t->groups + group) * t->state, 0, bytes);
    }
    for (int64_t i = 0; i < s->n; i += ROWS)
        for (int64_t j = 0; j <= i; j += ROWS) {
            const int64_t m = lesser(ROWS, s->n - i), n = lesser(ROWS, s->n - j);
            score(w, s, group, i, j, z->m);
            for (int64_t r = 0; r < m; r++)
                memcpy(scores + (i + r) * t->chunk + j, z->m + r * n, (size_t)n * sizeof(float));
        }
    for (int64_t head = group * each; head < (group + 1) * each; head++) {
        const float keep = clocks(w, s, head);
        const int64_t at = (s->batch * chunks_of(t) + s->chunk) * t->heads + head;
        memset(z->rows, 0, sizeof z->rows);
        memset(z->cols, 0, sizeof z->cols);
        w->part_d[at] = 0;
        for (int64_t j = 0; j < s->n; j += ROWS) w->part_d[at] += columns(w, s, head, j, scores, dscores);
        for (int64_t i = 0; i < s->n; i += ROWS) rows_in(w, s, head, i);
        w->part_a[at] = times(w, s, head, keep);
    }
    finish(w, s, group, dscores);
}

void hd_host_ssd_grad(const HdSsd *t, const void *dy, const void *x, const void *dt, const void *a, const void *b,
                      const void *c, const void *d, const int32_t *starts, void *dx, void *ddt, float *da, void *db,
                      void *dc, float *dd, void *workspace) {
    Ssd w = {t, dy, x, dt, a, b, c, d, starts, NULL, dx, ddt, db, dc, .da = da, .dd = dd, .states = workspace};
    const int64_t chunks = t->batch * chunks_of(t), states = chunks * t->heads * t->size * t->state;
    const int64_t scores = chunks * t->groups * t->chunk * t->chunk, rows = t->batch * t->seq * t->groups * t->state;
    w.dstates = w.states + states;
    w.scores = w.dstates + states;
    w.dscores = w.scores + scores;
    w.sum_b = w.dscores + scores;
    w.sum_c = w.sum_b + rows;
    w.part_a = w.sum_c + rows;
    w.part_d = w.part_a + chunks * t->heads;
    hd_host_blas_start();
#pragma omp parallel if (chunks * t->groups > 1)
    {
#pragma omp for schedule(static, 1)
        for (int64_t q = 0; q < 2 * t->batch * t->heads; q++)
            (q % 2 ? dstates_of : states_of)(&w, q / 2 / t->heads, q / 2 % t->heads);
#pragma omp for schedule(static, 1)
        for (int64_t q = 0; q < chunks * t->groups; q++) {
            const Span s = span_of(t, q / t->groups / chunks_of(t), q / t->groups % chunks_of(t));
            backward_group(&w, &s, q % t->groups);
        }
    }
    for (int64_t head = 0; head < t->heads; head++) {
        float sum_a = 0, sum_d = 0;
        for (int64_t k = 0; k < chunks; k++)
            sum_a += w.part_a[k * t->heads + head], sum_d += w.part_d[k * t->heads + head];
        da[head] = sum_a;
        if (dd) dd[head] = sum_d;
    }
}
