// See ssd.h.
#include "ir/ssd.h"
#include "ir/base/ints.h"
#include "ir/shapes.h"

Value *hd_ssd_starts(const Op *o) { return hd_has(&o->attrs, A_DOCUMENTS) ? o->in[o->n_in - 1] : NULL; }

Value *hd_ssd_skip(const Op *o) {
    const int at = 5 + hd_is_backward(o);
    return o->n_in - hd_has(&o->attrs, A_DOCUMENTS) > at ? o->in[at] : NULL;
}

SsdShape hd_ssd_shape(const Op *o) {
    SsdShape s = {.grad = hd_is_backward(o), .skip = hd_ssd_skip(o), .documents = hd_ssd_starts(o)};
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

bool hd_ssd_suits_cores(const SsdShape *s) {
    const bool steps = s->chunk % HD_SSD_TILE == 0 || s->chunk >= s->seq; // of 64 within chunks
    return s->dtype == TY_BF16 && s->size == 64 && (s->state == 64 || s->state == 128) && steps;
}

// Enough blocks for the multiprocessors of any GPU to have two each, if there are so many heads.
static int splits_of(const SsdShape *s, int64_t steps) {
    enum { ENOUGH = 264 };
    const int64_t items = s->batch * steps * s->groups, share = s->heads / s->groups;
    const int64_t most = hd_ceil_div(ENOUGH, items > 0 ? items : 1);
    return (int)(most < share ? most : share);
}

SsdCoreSpace hd_ssd_core_space(const SsdShape *s) {
    const int64_t steps = hd_ceil_div(s->seq, HD_SSD_TILE), heads = s->batch * steps * s->heads;
    const int64_t states = heads * s->size * s->state / 2;
    SsdCoreSpace w = {.dt = heads * HD_SSD_TILE, .splits = splits_of(s, steps)};
    w.states = w.all = 2 * w.dt;
    if (!s->grad) return w;
    w.dstates = w.states + states;
    w.parts = w.dstates + states;
    w.da = w.parts + (w.splits > 1 ? 2 * w.splits * s->batch * s->seq * s->groups * s->state : 0);
    w.dd = w.da + heads;
    w.powers = w.dd + heads;
    w.all = w.powers + 2 * heads;
    return w;
}
