// An optimizer with means of rows, columns and whole parameters (ir/optimizer.h), one parameter after another. Its
// kernels are those of codegen/cuda/templates/lines.cu.
#include "runtime/cuda/exec.h"
#include "runtime/world/mesh.h"
#include "runtime/world/world.h"

enum { THREADS = 256, FIXED = 7 };

typedef struct {
    HdExec *x;
    int stream;
    const HdLines *t;
    const HdLined *l;
    HdArg arg[FIXED + HD_STATES + HD_MEANS]; // gradient, weights, scalars, rows, cols, result, sums, states, means
    CuPtr space;
} Lined;

static HdArg word(uint64_t v) { return (HdArg){.word = v}; }
static int64_t blocks(int64_t n, int64_t each) { return (n + each - 1) / each; }

static int64_t numbers(const HdLined *l, int per) {
    return (per & HD_PER_ROW ? l->rows : 1) * (per & HD_PER_COLUMN ? l->cols : 1);
}

// The kernel of a stage, which gets as many means as come before it.
static void launch(Lined *w, int stage, int64_t gx, int64_t gy, CuPtr to) {
    const int means = stage < w->t->n_means ? stage : w->t->n_means;
    w->arg[5] = word(to);
    hd_cuda_launch(w->x, w->stream, w->t->kernel[stage][0], (HdGrid){(unsigned)gx, (unsigned)gy, 1, THREADS, 0, {0}},
                   FIXED + w->t->n_states + means, w->arg);
}

static void mean(Lined *w, int stage) {
    const HdLined *l = w->l;
    const int to = w->t->to[stage];
    const int64_t n = numbers(l, w->t->of[stage]), at = w->t->mean[stage];
    int64_t gx = l->rows, gy = 1, runs = 1, finish = 1;
    if (to == HD_PER_COLUMN) {
        gx = blocks(l->cols, 32), gy = blocks(l->rows, 32), finish = blocks(l->cols, THREADS);
        if (gy > HD_LINE_RUNS) gy = HD_LINE_RUNS;
        runs = gy;
    } else if (!to) {
        gx = blocks(n, 1024);
        if (gx > 16 * HD_LINE_RUNS) gx = 16 * HD_LINE_RUNS;
        runs = gx;
    }
    launch(w, stage, gx, gy, w->space + (CuPtr)at);
    if (to == HD_PER_ROW) return;
    const HdArg args[] = {w->arg[6], word((uint64_t)runs), w->arg[3], w->arg[4], word(w->space + (CuPtr)at)};
    hd_cuda_launch(w->x, w->stream, w->t->kernel[stage][1], (HdGrid){(unsigned)finish, 1, 1, THREADS, 0, {0}}, 5, args);
}

// All that the states of lines become, before any of them is stored.
static void states(Lined *w) {
    for (int stored = 0; stored < 2; stored++)
        for (int i = 0; i < w->t->n_states; i++) {
            const int per = w->t->per[i];
            const int64_t n = numbers(w->l, per);
            const CuPtr fresh = w->space + (CuPtr)w->t->fresh[i];
            if (per == HD_PER_ELEMENT) continue;
            if (stored) hd_cuda_copy(w->x, w->stream, w->arg[FIXED + i].word, fresh, (size_t)n * 4);
            else launch(w, w->t->n_means + 1 + i, blocks(n, THREADS), 1, fresh);
        }
}

void hd_cuda_update_lines(HdExec *x, int stream, const HdLines *t, uint64_t grad, uint64_t master,
                          const uint64_t *state, uint64_t compute, int compute_bytes, uint64_t scalars,
                          uint64_t space) {
    const int rank = hd_group_number(x->program, t->split, x->world->rank);
    for (int i = 0; i < t->n; i++) {
        const HdLined *l = &t->list[i];
        if (l->rank != rank) continue;
        Lined w = {x, stream, t, l,
                   {word(grad + 4 * (CuPtr)l->at), word(master + 4 * (CuPtr)l->at), word(scalars),
                    word((uint64_t)l->rows), word((uint64_t)l->cols), word(0), word(space + (CuPtr)t->sums)}, space};
        for (int s = 0; s < t->n_states; s++) w.arg[FIXED + s] = word(state[s] + 4 * (CuPtr)l->state[s]);
        for (int m = 0; m < t->n_means; m++) w.arg[FIXED + t->n_states + m] = word(space + (CuPtr)t->mean[m]);
        for (int m = 0; m < t->n_means; m++) mean(&w, m);
        launch(&w, t->n_means, blocks(l->rows * l->cols, THREADS), 1,
               compute ? compute + (CuPtr)(compute_bytes * l->at) : 0);
        states(&w);
    }
}
