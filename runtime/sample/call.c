// See call.h.
#include "runtime/sample/call.h"
#include "runtime/sample/array.h"
#include "runtime/world/mesh.h"
#include <stdlib.h>
#include <string.h>

int hd_call_find(const HdProgram *p, const char *name) {
    for (int i = 0; i < p->call_step.n_segments; i++)
        if (!strcmp(p->calls[i].name, name)) return i;
    return -1;
}

static bool fits(const HdCall *c, const HdFunc *f) {
    bool same = f->n_args == c->n_inputs && f->n_results == 1 && f->results[0].dtype == HD_F32 &&
                (!f->results[0].rank || f->results[0].dim[0] == 1);
    for (int i = 0; same && i < f->n_args; i++) {
        const HdTensor *a = &f->args[i];
        const HdInput *in = &c->inputs[i];
        same = a->dtype == in->dtype && a->rank == in->rank && !memcmp(a->dim, in->dim, sizeof a->dim) &&
               (in->dtype == HD_I32 || in->dtype == HD_F32) && in->rank > 0 && in->dim[0] == 1;
    }
    return same;
}

bool hd_calls_fit(const HdProgram *p) {
    for (int i = 0; i < p->call_step.n_segments; i++)
        if (!fits(&p->calls[i], p->call_step.segments[i].func))
            return hd_fail("the function %s of model %s does not take a row of each of its inputs, or returns no f32",
                           p->calls[i].name, p->model);
    return true;
}

static bool run_row(HdExec *x, Feed *data, const HdCallOut *to, float *room, HdArray *out) {
    const HdBackend *b = x->program->backend;
    const HdTensor *r = &to->func->results[0];
    bool ok = true;
    x->step = to->step;
    x->begins = x->ends = true;
    for (int i = 0; ok && i < to->func->n_args; i++)
        ok = b->write(x, to->func->args[i].offset, hd_feed_at(data, i, 0), data->at[i].row_bytes);
    return ok && b->run(x, to->func) && b->read(x, r->offset, room, (size_t)out->row * sizeof *room);
}

static int first_of(const HdProgram *p, int reader) { // the first rank that reads what this one of them does
    int rank = 0;
    while (hd_reader(p, rank) != reader) rank++;
    return rank;
}

// all: the rows that ranks have computed at once, in order, from row `first` on. Even after a failure to write, rank 0
// takes what others send.
static bool hand_over(HdExec *x, HdWorld *w, int64_t first, int64_t rows, float *room, HdArray *out) {
    const HdProgram *p = x->program;
    const size_t bytes = (size_t)out->row * sizeof *room;
    const int64_t left = rows - first, n = left < hd_readers(p) ? left : hd_readers(p);
    bool written = true;
    for (int i = 0; i < (int)n; i++) {
        const int from = first_of(p, i);
        if (from && w->rank == from && !w->send(w, room, bytes)) return false;
        if (w->rank) continue;
        if (from && !w->receive(w, from, room, bytes)) return false;
        if (written) written = hd_array_add(out, room);
    }
    return written;
}

bool hd_call_write(HdExec *x, HdWorld *w, Feed *data, const HdCallOut *to) {
    const HdTensor *r = &to->func->results[0];
    const int readers = hd_readers(x->program), reader = hd_reader(x->program, w->rank);
    HdArray out = {.row = 1};
    for (int i = 1; i < r->rank; i++) out.row *= r->dim[i];
    float *room = malloc((size_t)out.row * sizeof *room);
    bool ok = room || hd_fail("out of memory: what %s returns for a row", to->name);
    if (ok && !w->rank) ok = hd_array_create(&out, to->option, to->path, to->name, data->rows, r);
    ok = hd_world_agree(w, ok);
    for (int64_t i = 0; ok && i < data->rows; i += readers) {
        const int64_t row = i + reader < data->rows ? i + reader : data->rows - 1; // all take part in collectives
        w->at(w, "row", row + 1);
        ok = hd_world_agree(w, hd_feed_row(data, row, 0)) && hd_world_agree(w, run_row(x, data, to, room, &out)) &&
             hd_world_agree(w, hand_over(x, w, i, data->rows, room, &out));
    }
    if (!hd_array_close(&out, ok)) ok = false;
    free(room);
    return hd_world_agree(w, ok);
}

bool hd_call_write_run(HdExec *x, HdWorld *w, Feed *data, const char *name, const char *path) {
    const HdStep *s = &x->program->call_step;
    const HdCallOut to = {s, s->segments[hd_call_find(x->program, name)].func, name, "output", path};
    return hd_call_write(x, w, data, &to);
}
