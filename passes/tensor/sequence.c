// schedule.sequence = on: between products ranks have parts of a sequence instead of the whole. A partial sum that has
// positions is completed by a reduce-scatter alone, which leaves a rank its part of them:
//
//   %y = matmul %a, %wo {tb} : f32[1,8,64] over {tensor: sum}
//   %s = reduce_scatter of %y                   : f32[1,4,64] over {tensor: 1}
//   %h = add %z, %s                             : f32[1,4,64] over {tensor: 1}
//   %n, %r = rms_norm %h, %g                    : f32[1,4,64] over {tensor: 1}
//   %x = all_gather of %n                       : f32[1,8,64]                  // once for all products that read it
//
// A value that is split so is gathered where an op needs all positions: before the products with split weights, and
// where tables and losses are. The backward pass is in the same function, so the same rule holds there. Collectives
// move what is consecutive: behind several sequences positions are transposed to the front and back.
#include "ir/base/ints.h"
#include "ir/shapes.h"
#include "passes/settings.h"
#include "passes/tensor/partition.h"

bool hd_sequence_has(const Partition *p, const Type *t) {
    return p->sequence && t->rank > 2 && t->dim[0] == p->batch && t->dim[1] == p->positions;
}

bool hd_sequence_begin(Partition *p) {
    Ctx *cx = p->m->cx;
    p->sequence = false;
    p->whole.n = p->parts.n = 0;
    if (!hd_attr(hd_settings(p->m, "schedule"), A_SEQUENCE) || HD_DATA_AXES >> p->axis & 1) return true;
    const int64_t ranks = p->mesh.size[p->axis];
    for (int i = 0; i < p->f->n_args && !p->sequence; i++) {
        const Type *t = p->f->args[i]->type;
        if (t->rank < 2) continue;
        p->batch = t->dim[0];
        p->positions = t->dim[1];
        p->sequence = true;
    }
    if (!p->sequence || (p->positions % ranks == 0 && p->positions / ranks > 1)) return true;
    return hd_error(cx, p->f->span,
                    "schedule.sequence = on: %lld positions do not divide into equal parts of at least two for %lld "
                    "ranks along %s: take a length that is a multiple, fewer ranks, or sequence = off",
                    ll(p->positions), ll(ranks), hd_axis_name(p->axis));
}

static Value *flatten(Partition *p, const Op *at, Value *x, int layout) {
    const int64_t n = hd_type_count(x->type);
    return hd_partition_build(p, at, OP_RESHAPE, x, NULL, hd_type(p->m->cx, x->type->dtype, 1, &n), layout);
}

// Dimension d becomes the first one, or the first one dimension d.
static Value *turn(Partition *p, const Op *at, Value *x, int d, bool to_front, int layout) {
    int64_t perm[HD_MAX_DIMS], dim[HD_MAX_DIMS];
    const Type *t = x->type;
    for (int i = 0; i < t->rank; i++) {
        perm[i] = i > d ? i : to_front ? (i ? i - 1 : d) : (i < d ? i + 1 : 0);
        dim[i] = t->dim[perm[i]];
    }
    Attrs as = {0};
    hd_set_ints(p->m->cx, &as, A_PERM, t->rank, perm);
    return hd_partition_build(p, at, OP_TRANSPOSE, x, &as, hd_type(p->m->cx, t->dtype, t->rank, dim), layout);
}

static bool is_first(const Type *t, int d) { // as bytes: only dimensions of 1 stand before it
    for (int i = 0; i < d; i++)
        if (t->dim[i] != 1) return false;
    return true;
}

// A collective along dimension d. `to` is the layout that it gives along the first dimension.
static Value *along(Partition *p, const Op *at, OpKind k, Value *x, int d, int from, int to) {
    const bool turns = !is_first(x->type, d);
    const int after = to == LAYOUT_WHOLE ? to : to + d;
    Attrs as = {0};
    hd_set_word(p->m->cx, &as, A_COMM, p->comm->name);
    if (turns) x = turn(p, at, x, d, true, from);
    const Type *t = x->type;
    x = flatten(p, at, x, from);
    x = hd_partition_build(p, at, k, x, &as, x->type, to);
    x = hd_partition_build(p, at, OP_RESHAPE, x, NULL, t, turns ? to : after);
    p->collectives++;
    return turns ? turn(p, at, x, d, false, after) : x;
}

Value *hd_sequence_scatter(Partition *p, Value *terms, const Op *at) {
    Value *x = along(p, at, OP_REDUCE_SCATTER, terms, 1, LAYOUT_SUM, LAYOUT_SPLIT);
    p->by_positions++;
    *hd_partition_slot(p, &p->parts, terms) = x;
    *hd_partition_slot(p, &p->parts, x) = x;
    return x;
}

Value *hd_sequence_gather(Partition *p, Value *part, const Op *at) {
    Value *known = *hd_partition_slot(p, &p->whole, part);
    if (known) return known;
    const int d = hd_layout_at(part->layout, p->axis) - LAYOUT_SPLIT;
    Value *x = along(p, at, OP_ALL_GATHER, part, d, LAYOUT_SPLIT, LAYOUT_WHOLE);
    *hd_partition_slot(p, &p->whole, part) = x;
    return x;
}

void hd_sequence_mark(Partition *p, const Op *o) {
    bool any = false;
    for (int i = 0; i < o->n_in; i++) any |= *hd_partition_slot(p, &p->parts, o->in[i]) == o->in[i];
    for (int i = 0; any && i < o->n_out; i++)
        if (hd_layout_splits(hd_layout_at(o->out[i]->layout, p->axis)))
            *hd_partition_slot(p, &p->parts, o->out[i]) = o->out[i];
}

bool hd_sequence_refuse(Partition *p, const Op *o, const char *why) {
    return hd_error(p->m->cx, o->span,
                    "schedule.sequence = on: %s%s%s cannot compute on a rank's part of the positions: %s: split the "
                    "vocabulary and the rows of tables of positions over %s, `Embedding(rows over %s, dim)`, or set "
                    "sequence = off",
                    hd_op_info(o->kind)->mnemonic, o->loc.path ? " of " : "", o->loc.path ? o->loc.path : "", why,
                    hd_axis_name(p->axis), hd_axis_name(p->axis));
}
