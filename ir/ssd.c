// See ssd.h.
#include "ir/ssd.h"
#include "ir/base/ints.h"

Value *hd_ssd_starts(const Op *o) { return hd_has(&o->attrs, A_DOCUMENTS) ? o->in[o->n_in - 1] : NULL; }

Value *hd_ssd_skip(const Op *o) {
    const int at = 5 + (o->kind == OP_SSD_GRAD);
    return o->n_in - hd_has(&o->attrs, A_DOCUMENTS) > at ? o->in[at] : NULL;
}

SsdShape hd_ssd_shape(const Op *o) {
    SsdShape s = {.grad = o->kind == OP_SSD_GRAD, .skip = hd_ssd_skip(o), .documents = hd_ssd_starts(o)};
    const Type *x = o->in[s.grad]->type, *b = o->in[s.grad + 3]->type;
    s.dtype = x->dtype;
    s.batch = x->dim[0], s.seq = x->dim[1], s.heads = x->dim[2], s.size = x->dim[3];
    s.groups = b->dim[2], s.state = b->dim[3];
    s.chunk = hd_int(&o->attrs, A_CHUNK, 1);
    s.chunks = hd_ceil_div(s.seq, s.chunk);
    return s;
}

SsdSpace hd_ssd_space(const SsdShape *s) {
    const int64_t positions = s->batch * s->heads * s->seq, chunks = s->batch * s->chunks;
    const int64_t states = chunks * s->heads * s->size * s->state, scores = chunks * s->groups * s->chunk * s->chunk;
    const int64_t tiles = hd_ceil_div(s->chunk, HD_SSD_TILE) * positions;
    SsdSpace w = {.scores = positions};
    w.states = w.scores + scores;
    w.all = w.states + states;
    if (!s->grad) return w;
    w.dstates = w.all;
    w.dscores = w.dstates + states;
    w.rows = w.dscores + scores;
    w.cols = w.rows + tiles;
    w.came = w.cols + tiles;
    w.left = w.came + positions;
    w.kept = w.left + positions;
    w.decays = w.kept + positions;
    w.da = w.decays + chunks * s->heads;
    w.dd = w.da + chunks * s->heads;
    w.all = w.dd + chunks * s->heads;
    return w;
}
