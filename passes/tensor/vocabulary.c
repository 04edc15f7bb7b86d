// A vocabulary that is split over ranks. A rank looks up the rows of its part of a table, and the sum over ranks has
// all rows. Of its part of the logits it finds the log of the sum of exp and the logit of the target; these two numbers
// a row are gathered, and parts are added in their order:
//
//   %x = embedding %w, %t                       %i = own_index %t {over = [tensor], rows = vocab/n}
//                                               %x = take %w, %i {parts}                   // a partial sum
//   %l, %dz = cross_entropy_grad %z, %y, %d     %j = own_index %y {over = [tensor], rows = vocab/n}
//                                          ->   %s, %a = loss_part %z, %j
//                                               %S, %A = all_gather of both
//                                               %l, %s0 = loss_of_parts %S, %A, %y
//                                               %dz = loss_part_grad %z, %j, %s0, %d, %y
//
// Of a vocabulary that the ranks do not divide, ops say how long it is (uneven), and loss_part reads the targets, too.
#include "passes/tensor/vocabulary.h"
#include "ir/layout.h"
#include "ir/mesh.h"
#include "ir/shapes.h"

static Op *insert(const Vocabulary *v, Op *at, OpKind k, int n_in, Value *const *in, const Attrs *as, int n_out,
                  const Type *const *types) {
    Op *o = hd_op_new(v->f, k, n_in, in);
    o->loc = at->loc;
    o->span = at->span;
    if (as) o->attrs = hd_attrs_copy(v->m->cx, as);
    if (hd_has(&at->attrs, A_BWD)) hd_set_flag(v->m->cx, &o->attrs, A_BWD);
    hd_set_results(o, n_out, types);
    hd_insert_before(at, o);
    return o;
}

// How many rows of `size` each rank has. Where that is longer than the whole, `as` says so.
static int64_t rows_of(const Vocabulary *v, int64_t size, Attrs *as) {
    if (size % v->ranks) hd_set_int(v->m->cx, as, A_UNEVEN, size);
    return hd_part_of_size(size, v->ranks);
}

static Value *insert1(const Vocabulary *v, Op *at, OpKind k, Value *in, const Attrs *as, const Type *t) {
    return insert(v, at, k, 1, &in, as, 1, &t)->out[0];
}

static const Type *of_parts(const Vocabulary *v, DType d, const Type *each) {
    int64_t dim[HD_MAX_DIMS] = {v->ranks};
    if (each->rank >= HD_MAX_DIMS) return NULL;
    for (int i = 0; i < each->rank; i++) dim[i + 1] = each->dim[i];
    return hd_type(v->m->cx, d, each->rank + 1, dim);
}

// The index in parts of `rows` rows: once for all that read it.
static Value *own_index(Vocabulary *v, Op *at, Value *index, int64_t rows) {
    for (int i = 0; i < v->made.n; i++)
        if (v->made.at[i].index == index && v->made.at[i].rows == rows) return v->made.at[i].own;
    const Type *t = of_parts(v, TY_I32, index->type);
    if (!t) return NULL;
    Attrs as = {0};
    hd_set_axes(v->m->cx, &as, A_OVER, 1u << v->axis);
    hd_set_int(v->m->cx, &as, A_ROWS, rows);
    const OwnIndex made = {index, rows, insert1(v, at, OP_OWN_INDEX, index, &as, t)};
    hd_push(v->a, &v->made, made);
    return made.own;
}

static Value *gathered(Vocabulary *v, Op *at, Value *x) { // all parts
    const int64_t n = hd_type_count(x->type);
    const Type *flat = hd_type(v->m->cx, x->type->dtype, 1, &n);
    Attrs as = {0};
    hd_set_word(v->m->cx, &as, A_COMM, v->comm->name);
    Value *y = insert1(v, at, OP_RESHAPE, x, NULL, flat);
    v->collectives++;
    return insert1(v, at, OP_RESHAPE, insert1(v, at, OP_ALL_GATHER, y, &as, flat), NULL, x->type);
}

static int layout_of(const Vocabulary *v, const Value *x) { return hd_layout_at(x->layout, v->axis); }

static Op *replaced(Op *o, Op *first, Value *const *by) {
    for (int i = 0; i < o->n_out; i++)
        if (by[i]) hd_replace_uses(o->out[i], by[i]);
    hd_erase(o);
    return first;
}

static Op *look_up(Vocabulary *v, Op *o) {
    Op *before = o->prev;
    Attrs as = {0};
    Value *in[] = {o->in[0], own_index(v, o, o->in[1], hd_part_of_size(o->in[0]->type->dim[0], v->ranks))};
    if (!in[1]) return o;
    hd_set_flag(v->m->cx, &as, A_PARTS);
    const Type *t = o->out[0]->type;
    Value *x = insert(v, o, OP_TAKE, 2, in, &as, 1, &t)->out[0];
    return replaced(o, before ? before->next : v->f->first, &x);
}

static Op *add_rows(Vocabulary *v, Op *o) {
    Op *before = o->prev;
    Attrs uneven = {0};
    Value *own = own_index(v, o, o->in[1], rows_of(v, o->out[0]->type->dim[0], &uneven));
    if (!own) return o;
    if (uneven.n) hd_set_int(v->m->cx, &o->attrs, A_UNEVEN, o->out[0]->type->dim[0]);
    o->in[1] = own;
    hd_set_flag(v->m->cx, &o->attrs, A_PARTS);
    return before ? before->next : v->f->first;
}

static Op *lose(Vocabulary *v, Op *o) {
    Ctx *cx = v->m->cx;
    Op *before = o->prev;
    Value *z = o->in[0], *y = o->in[1], *weights = hd_loss_weights(o), *by[2] = {0};
    const DType d = o->out[0]->type->dtype;
    Attrs uneven = {0}, ignore = {0};
    Value *own = own_index(v, o, y, rows_of(v, hd_type_cols(z->type), &uneven));
    if (!own) return o;
    if (hd_has(&o->attrs, A_IGNORE)) hd_set_int(cx, &ignore, A_IGNORE, hd_int(&o->attrs, A_IGNORE, 0));
    const Type *part = of_parts(v, d, y->type), *each = hd_type_with(cx, d, y->type);
    const Op *said = insert(v, o, OP_LOSS_PART, uneven.n ? 3 : 2, (Value *[]){z, own, y}, &uneven, 2,
                            (const Type *[]){part, part});
    Value *in[] = {gathered(v, o, said->out[0]), gathered(v, o, said->out[1]), y, weights};
    const Op *loss = insert(v, o, OP_LOSS_OF_PARTS, weights ? 4 : 3, in, &ignore, 2,
                            (const Type *[]){o->out[0]->type, each});
    by[0] = loss->out[0];
    if (hd_is_backward(o)) {
        Value *all[] = {z, own, loss->out[1], o->in[2], y, weights};
        Op *grad = insert(v, o, OP_LOSS_PART_GRAD, weights ? 6 : 5, all, &ignore, 1, &z->type);
        if (uneven.n) hd_set_int(cx, &grad->attrs, A_UNEVEN, hd_type_cols(z->type));
        by[1] = grad->out[0];
    }
    return replaced(o, before ? before->next : v->f->first, by);
}

// Whether x is the gradient of a parameter that is split by rows.
static bool of_split_table(const Vocabulary *v, const Value *x) {
    for (const Op *o = x->def->next; o; o = o->next) {
        if (!o->n_in || o->in[0] != x) continue;
        if (hd_param_added(o, 0)) return hd_layout_dim(hd_layout_at(hd_op_param(o, 0)->layout, v->axis)) == 0;
        if (hd_op_is(o, TRAIT_CARRIES)) return of_split_table(v, o->out[0]);
    }
    return false;
}

static int split_along(const Vocabulary *v, const Value *x) { return hd_layout_dim(layout_of(v, x)); }

Op *hd_split_vocabulary(Vocabulary *v, Op *o) {
    if (o->kind == OP_EMBEDDING && split_along(v, o->in[0]) == 0 && layout_of(v, o->in[1]) == LAYOUT_WHOLE)
        return look_up(v, o);
    if (hd_adds_rows(o) && layout_of(v, o->in[1]) == LAYOUT_WHOLE && of_split_table(v, o->out[0]))
        return add_rows(v, o);
    if (hd_op_is(o, TRAIT_LOSS) && split_along(v, o->in[0]) == o->in[0]->type->rank - 1)
        return lose(v, o);
    return o;
}
