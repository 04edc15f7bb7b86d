// An optimizer with means over rows, columns and whole parameters (ir/optimizer.h). The order of a sum is fixed,
// whatever shares the work: a row from its first column on, a column from its first row on, and a whole by its rows.
#include "runtime/host/host.h"
#include "runtime/host/scratch.h"
#include "runtime/world/mesh.h"
#include <string.h>

enum { RUN = 1024 }; // elements at a time

typedef struct {
    const HdLines *t;
    const HdLined *l;
    HdLineUpdate *update;
    float decay, scalars[4];
    const float *grad;
    float *master, *const *states;
    char *space;
} Lined;

static float *numbers(const Lined *x, int64_t at) { return (float *)(void *)(x->space + at); }

// `per`: of the numbers at `from`; `of`: of the elements that are asked for, `c` columns into row r.
static HdLine line(const Lined *x, float *from, int per, int of, int64_t r, int64_t c) {
    const bool rows = per & HD_PER_ROW, columns = per & HD_PER_COLUMN;
    const int64_t width = columns ? x->l->cols : 1, at = (rows ? r * width : 0) + (columns ? c : 0);
    return (HdLine){from + at, of & HD_PER_COLUMN ? columns : rows && of & HD_PER_ROW ? width : 0};
}

// n elements from row r, column c on, in the order in which those of `of` follow each other.
static void run(const Lined *x, int stage, int of, int64_t r, int64_t c, int64_t n, float *const *out) {
    HdLine in[2 + HD_STATES + HD_MEANS] = {
        line(x, (float *)(uintptr_t)x->grad + x->l->at, HD_PER_ELEMENT, of, r, c),
        line(x, x->master + x->l->at, HD_PER_ELEMENT, of, r, c)};
    for (int i = 0; i < x->t->n_states; i++)
        in[2 + i] = line(x, x->states[i] + x->l->state[i], x->t->per[i], of, r, c);
    for (int i = 0; i < x->t->n_means; i++)
        in[2 + x->t->n_states + i] = line(x, numbers(x, x->t->mean[i]), x->t->to[i], of, r, c);
    x->update(stage, n, x->scalars, x->decay, in, out);
}

static double row_sum(const Lined *x, int stage, int of, int64_t r, int64_t n) {
    float part[RUN];
    double sum = 0;
    for (int64_t at = 0; at < n; at += RUN) {
        const int64_t count = n - at < RUN ? n - at : RUN;
        run(x, stage, of, of & HD_PER_COLUMN ? r : at, of & HD_PER_COLUMN ? at : 0, count, (float *[]){part});
        for (int64_t i = 0; i < count; i++) sum += (double)part[i];
    }
    return sum;
}

static void column_means(const Lined *x, int stage, int of) {
    const int64_t cols = x->l->cols, rows = of & HD_PER_ROW ? x->l->rows : 1;
    float *const to = numbers(x, x->t->mean[stage]);
#pragma omp parallel for schedule(static) if (rows * cols > 16 * RUN)
    for (int64_t at = 0; at < cols; at += RUN) {
        const int64_t count = cols - at < RUN ? cols - at : RUN;
        float part[RUN];
        double sum[RUN] = {0};
        for (int64_t r = 0; r < rows; r++) {
            run(x, stage, of, r, at, count, (float *[]){part});
            for (int64_t i = 0; i < count; i++) sum[i] += (double)part[i];
        }
        for (int64_t i = 0; i < count; i++) to[at + i] = (float)(sum[i] / (double)rows);
    }
}

static void means(const Lined *x, int stage) {
    const int of = x->t->of[stage], to = x->t->to[stage];
    float *const mean = numbers(x, x->t->mean[stage]);
    if (to & HD_PER_COLUMN) {
        column_means(x, stage, of);
        return;
    }
    // numbers per row, and not per column, are one row of them
    const bool down = of == HD_PER_ROW;
    const int64_t rows = of == HD_PER_ELEMENT ? x->l->rows : 1, n = down ? x->l->rows : x->l->cols;
    double whole = 0;
    if (to & HD_PER_ROW) {
#pragma omp parallel for schedule(static) if (rows * n > 16 * RUN)
        for (int64_t r = 0; r < rows; r++) mean[r] = (float)(row_sum(x, stage, of, r, n) / (double)n);
        return;
    }
    for (int64_t r = 0; r < rows; r++) whole += row_sum(x, stage, of, r, n);
    mean[0] = (float)(whole / ((double)rows * (double)n));
}

static void elements(const Lined *x) {
    const HdLined *l = x->l;
#pragma omp parallel for schedule(static) if (l->rows * l->cols > 16 * RUN)
    for (int64_t r = 0; r < l->rows; r++)
        for (int64_t c = 0; c < l->cols; c += RUN) {
            float *out[1 + HD_STATES] = {x->master + l->at + r * l->cols + c};
            for (int i = 0; i < x->t->n_states; i++)
                if (x->t->per[i] == HD_PER_ELEMENT) out[1 + i] = x->states[i] + l->state[i] + r * l->cols + c;
            run(x, x->t->n_means, HD_PER_ELEMENT, r, c, l->cols - c < RUN ? l->cols - c : RUN, out);
        }
}

// All that the states of lines become, before any of them is stored.
static void states(const Lined *x) {
    for (int stored = 0; stored < 2; stored++)
        for (int i = 0; i < x->t->n_states; i++) {
            const int per = x->t->per[i];
            const int64_t n = per == HD_PER_ROW ? x->l->rows : per == HD_PER_COLUMN ? x->l->cols : 1;
            float *const fresh = numbers(x, x->t->fresh[i]);
            if (per == HD_PER_ELEMENT) continue;
            if (stored) memcpy(x->states[i] + x->l->state[i], fresh, (size_t)n * sizeof *fresh);
            else run(x, x->t->n_means + 1 + i, per, 0, 0, n, (float *[]){fresh});
        }
}

void hd_host_update_lines(HdExec *x, const HdLines *t, HdLineUpdate *update, float decay, float lr_scale,
                          const float *grad, float *master, float *const *state, void *compute,
                          HdDtype compute_dtype, const float *scalars, void *space) {
    const int rank = hd_group_number(x->program, t->split, x->world->rank);
    for (int i = 0; i < t->n; i++) {
        if (t->list[i].rank != rank) continue;
        const Lined l = {t, &t->list[i], update, decay, {scalars[0] * lr_scale, scalars[1], scalars[2], scalars[3]},
                         grad, master, state, space};
        for (int k = 0; k < t->n_means; k++) means(&l, k);
        elements(&l);
        states(&l);
        const int64_t at = l.l->at, n = l.l->rows * l.l->cols;
        if (compute && compute != (void *)master) hd_store_f32(compute_dtype, master + at, n, compute, at);
    }
}
