// The matrices of an optimizer become orthogonal, by products of cuBLASLt, or of the program (ir/optimizer.h).
#include "runtime/cuda/gemm.h"
#include "runtime/world/mesh.h"
#include "runtime/world/world.h"

typedef struct { CuPtr d, x, g, h, sums; } Places;

static HdArg word(uint64_t v) { return (HdArg){.word = v}; }

// x = d / |d|, of each matrix of a batch
static void divide(HdCuda *x, int stream, const HdTurn *t, const HdTurned *m, const Places *at) {
    enum { RUN = 4096, THREADS = 256 };
    const int64_t n = m->rows * m->cols, runs = (n + RUN - 1) / RUN;
    const HdGrid grid = {(unsigned)(runs < HD_TURN_RUNS ? runs : HD_TURN_RUNS), (unsigned)m->batch, 1, THREADS, 0, {0}};
    hd_cuda_launch(&x->head, stream, t->squares, grid, 3,
                   (const HdArg[]){word(at->d), word((uint64_t)n), word(at->sums)});
    hd_cuda_launch(&x->head, stream, t->scale, grid, 4,
                   (const HdArg[]){word(at->d), word((uint64_t)n), word(at->sums), word(at->x)});
}

static void turn(HdCuda *x, int stream, const HdTurn *t, const HdTurned *m, const Places *at) {
    const bool tall = m->rows > m->cols;
    const int64_t least = tall ? m->cols : m->rows;
    const HdMatrices whole = {m->cols, m->rows, m->batch}, square = {least, least, m->batch};
    divide(x, stream, t, m, at);
    for (int k = 0; k < HD_TURN_STEPS; k++) {
        const float s = k == HD_TURN_STEPS - 1 ? m->scale : 1;
        const CuPtr from = k % 2 ? at->d : at->x, to = k % 2 ? at->x : at->d;
        if (m->own[0].shared) hd_cuda_symmetric(x, stream, &m->own[0], t->dtype, whole, tall, from, at->g);
        else hd_gemm_run(x, stream, m->product[0], &(HdGemmOperands){.a = from, .b = from, .d = at->g});
        if (m->own[1].shared) hd_cuda_symmetric(x, stream, &m->own[1], t->dtype, square, false, at->g, at->h);
        else
            hd_gemm_run(x, stream, m->product[1], &(HdGemmOperands){.a = at->g, .b = at->g, .c = at->g, .d = at->h,
                                                                 .alpha = HD_TURN_C, .beta = HD_TURN_B});
        hd_gemm_run(x, stream, m->product[2], &(HdGemmOperands){.a = tall ? from : at->h, .b = tall ? at->h : from,
                                                             .c = from, .d = to, .alpha = s, .beta = s * HD_TURN_A});
    }
}
_Static_assert(HD_TURN_STEPS % 2 == 1, "the last of them writes where the operand was");

// Lane 0 is the stream itself; the others begin with what it has done so far, and it waits for them.
void hd_cuda_orthogonalize(HdExec *h, int stream, const HdTurn *t, uint64_t d) {
    HdCuda *x = (HdCuda *)h;
    const int rank = hd_group_number(h->program, t->split, h->world->rank), events = h->program->n_events;
    const CuPtr bytes = (CuPtr)hd_dtypes[t->dtype].bytes;
    int mine = 0, used = 0;
    for (int i = 0; i < t->n; i++) mine += t->list[i].rank == rank;
    const int lanes = mine < t->lanes ? mine : t->lanes;
    if (lanes > 1) hd_cuda_record(h, stream, events);
    for (int i = 1; i < lanes; i++) hd_cuda_wait(h, HD_MAX_STREAMS + i, events);
    for (int i = 0; i < t->n; i++) {
        const HdTurned *m = &t->list[i];
        if (m->rank != rank) continue;
        const int lane = used++ % lanes;
        const CuPtr space = d + (CuPtr)lane * (CuPtr)t->lane;
        const Places at = {d + (CuPtr)m->at * bytes, space + (CuPtr)t->x,    space + (CuPtr)t->g,
                           space + (CuPtr)t->h,      space + (CuPtr)t->sums};
        turn(x, lane ? HD_MAX_STREAMS + lane : stream, t, m, &at);
    }
    for (int i = 1; i < lanes; i++) {
        hd_cuda_record(h, HD_MAX_STREAMS + i, events + i);
        hd_cuda_wait(h, stream, events + i);
    }
}
