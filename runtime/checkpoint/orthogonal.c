// The orthogonal factor Q of a QR decomposition whose R has a positive diagonal, as torch.nn.init.orthogonal_ takes it.
// By Householder's reflections in doubles. A vector (a column of A, or of Q) passes through the reflections one after
// another, whichever thread it is on and whichever other vectors go with it, and sums are added up in one order: every
// rank, number of threads and machine makes the same bits. They are compiled without contraction.
#include "runtime/checkpoint/orthogonal.h"
#include "runtime/base/parallel.h"
#include "runtime/philox.h"
#include <stdlib.h>

enum { LANES = 4, TOGETHER = 4 };     // partial sums; vectors that a reflection is read for
enum { PANEL = 32, LEAST = 1 << 18 }; // vectors; products from which threads pay

typedef struct {
    int64_t length, count; // of the vectors; there are no more of them than they are long
    double *v;             // them one after another; vector k becomes reflection k, in elements k, k + 1, ...
    double *factor, *sign; // 2 / (v v) of each reflection; the sign of R's diagonal
    int64_t first, panel;  // the vectors that are worked on begin with panel
    bool turned;           // w has the vectors as columns
    double gain;
    float *w;
    _Atomic bool failed;
} Work;

static double dot(const double *a, const double *b, int64_t n) {
    double s[LANES] = {0}, rest = 0;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int l = 0; l < LANES; l++) s[l] += a[i + l] * b[i + l];
    for (; i < n; i++) rest += a[i] * b[i];
    return (s[0] + s[2]) + (s[1] + s[3]) + rest;
}

// As dot, of each of several vectors.
static void dots(const double *a, double *const *x, int64_t n, double *sum) {
    double s[TOGETHER][LANES] = {0}, rest[TOGETHER] = {0};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int t = 0; t < TOGETHER; t++)
            for (int l = 0; l < LANES; l++) s[t][l] += a[i + l] * x[t][i + l];
    for (; i < n; i++)
        for (int t = 0; t < TOGETHER; t++) rest[t] += a[i] * x[t][i];
    for (int t = 0; t < TOGETHER; t++) sum[t] = (s[t][0] + s[t][2]) + (s[t][1] + s[t][3]) + rest[t];
}

// Vectors through reflection k.
static void reflect(const Work *q, int64_t k, int64_t count, double *first) {
    const double *v = q->v + k * q->length + k;
    const int64_t n = q->length - k;
    int64_t j = 0;
    for (; j + TOGETHER <= count; j += TOGETHER) {
        double *x[TOGETHER], by[TOGETHER];
        for (int t = 0; t < TOGETHER; t++) x[t] = first + (j + t) * q->length + k;
        dots(v, x, n, by);
        for (int t = 0; t < TOGETHER; t++) by[t] = q->factor[k] * by[t];
        for (int64_t i = 0; i < n; i++)
            for (int t = 0; t < TOGETHER; t++) x[t][i] -= by[t] * v[i];
    }
    for (; j < count; j++) {
        double *x = first + j * q->length + k;
        const double by = q->factor[k] * dot(v, x, n);
        for (int64_t i = 0; i < n; i++) x[i] -= by * v[i];
    }
}

// Vectors of a panel pass through the reflections before it, each of which is read once for all of them.
static void pass_panel(void *data, int64_t first, int64_t n) {
    const Work *q = data;
    for (int64_t k = 0; k < q->panel; k++) reflect(q, k, n, q->v + (q->panel + first) * q->length);
}

static void make_reflection(Work *q, int64_t k) {
    double *v = q->v + k * q->length;
    const double norm = sqrt(dot(v + k, v + k, q->length - k)), to = v[k] > 0 ? -norm : norm;
    v[k] -= to;
    const double square = dot(v + k, v + k, q->length - k);
    q->factor[k] = square > 0 ? 2 / square : 0;
    q->sign[k] = to < 0 ? -1 : 1;
}

static void decompose(Work *q) {
    for (q->panel = 0; q->panel < q->count; q->panel += PANEL) {
        const int64_t n = q->count - q->panel < PANEL ? q->count - q->panel : PANEL;
        hd_parallel(n, n * q->panel * q->length < LEAST ? n + 1 : 1, pass_panel, q);
        for (int64_t j = q->panel; j < q->panel + n; j++) {
            for (int64_t k = q->panel; k < j; k++) reflect(q, k, 1, q->v + j * q->length);
            make_reflection(q, j);
        }
    }
}

// Vectors of Q: the unit vectors, through the reflections in reverse order.
static void make_vectors(void *data, int64_t first, int64_t n) {
    Work *q = data;
    double *x = malloc((size_t)(PANEL * q->length) * sizeof *x);
    if (!x) {
        q->failed = true;
        return;
    }
    for (int64_t j = first; j < first + n; j += PANEL) {
        const int64_t end = j + PANEL < first + n ? j + PANEL : first + n;
        memset(x, 0, (size_t)(PANEL * q->length) * sizeof *x);
        for (int64_t i = j; i < end; i++) x[(i - j) * q->length + i] = q->sign[i];
        for (int64_t k = end - 1; k >= 0; k--) {
            const int64_t from = k > j ? k : j; // a reflection leaves the unit vectors before it as they are
            reflect(q, k, end - from, x + (from - j) * q->length);
        }
        for (int64_t i = j; i < end; i++)
            for (int64_t e = 0; e < q->length; e++)
                q->w[q->turned ? e * q->count + i : i * q->length + e] =
                    (float)(q->gain * x[(i - j) * q->length + e]);
    }
    free(x);
}

bool hd_orthogonal(const HdDraw *d, int64_t rows, int64_t columns, double gain, float *w) {
    Work q = {.turned = rows >= columns, .gain = gain, .w = w};
    q.length = q.turned ? rows : columns;
    q.count = q.turned ? columns : rows;
    q.v = malloc((size_t)(q.length * q.count + 2 * q.count) * sizeof *q.v);
    if (!q.v) return false;
    q.factor = q.v + q.length * q.count;
    q.sign = q.factor + q.count;
    HdDraw all = *d;
    all.first = 0;
    all.count = rows * columns;
    hd_draw(&all, w);
    for (int64_t k = 0; k < q.count; k++)
        for (int64_t e = 0; e < q.length; e++)
            q.v[k * q.length + e] = (double)w[q.turned ? e * q.count + k : k * q.length + e];
    decompose(&q);
    hd_parallel(q.count, q.count * q.count * q.length < LEAST ? q.count + 1 : 1, make_vectors, &q);
    free(q.v);
    return !q.failed;
}
