// schedule.sequence.slices: a product whose sum over ranks leaves each rank some positions, in slices of columns. While
// the terms of one slice are added up, the next slice is multiplied:
//
//   %y = matmul %a, %w {tb}     : f32[1,8,64] over {tensor: sum}        %w0 = slice %w {axis = 0, start = 0, size = 32}
//   %s = reduce_scatter of %y   : f32[1,4,64] over {tensor: 1}     ->   %y0 = matmul %a, %w0 {tb} : f32[1,8,32] over ..
//                                                                       %s0 = reduce_scatter of %y0
//                                                                       ..
//                                                                       %s = concat %s0, %s1 {axis = 2}
//
// A rank has the same positions then, each element is the sum of the same terms in the same order, and a product in
// slices has the algorithm of the whole (`columns`): no number of slices changes a bit. Rows of a weight are a view of
// its storage, so nothing is copied but the sums, which are short. `auto` takes the number whose last sum is complete
// first by the device's table, with slices of at least LEAST columns. Backward, gradients of weights run beside the
// sums (schedule/cover.c).
#include "ir/machine/device_model.h"
#include "ir/shapes.h"
#include "passes/settings.h"
#include "passes/tensor/partition.h"

enum { LEAST = 1024, MOST = 8 };

static Op *op(Partition *p, const Op *like, OpKind k, int n, Value *const *in, const Attrs *as, const Type *t) {
    Op *o = hd_op_new(p->f, k, n, in);
    o->loc = like->loc;
    o->span = like->span;
    if (as) o->attrs = hd_attrs_copy(p->m->cx, as);
    hd_set_results(o, 1, &t);
    return o;
}

static Value *insert(Op *o, const Op *at, Layout layout) {
    o->out[0]->layout = layout;
    hd_insert_before((Op *)(uintptr_t)at, o);
    return o->out[0];
}

static const Type *with_dim(const Partition *p, const Type *t, int d, int64_t size) {
    Type part = *t;
    part.dim[d] = size;
    return hd_type(p->m->cx, part.dtype, part.rank, part.dim);
}

// --- how many

static Value *local(const Partition *p, const Value *v, const Type *t) { // what a rank holds of it
    Value *x = HD_NEW(p->cx->scratch, Value);
    *x = *v;
    x->type = hd_type_part(p->m->cx, t, hd_layout_with(0, p->axis, hd_layout_at(v->layout, p->axis)), &p->mesh);
    return x->type ? x : NULL;
}

// When the last of n sums is complete; negative: nothing says it.
static double seconds(Partition *p, const Op *o, const DeviceModel *d, int n) {
    const int64_t cols = o->out[0]->type->dim[2] / n;
    const Type *t = with_dim(p, o->out[0]->type, 2, cols);
    Value *a = local(p, o->in[0], o->in[0]->type), *w = local(p, o->in[1], with_dim(p, o->in[1]->type, 0, cols));
    if (!a || !w) return -1;
    const Op *product = op(p, o, o->kind, 2, (Value *[]){a, w}, &o->attrs, t);
    const int64_t all = hd_type_count(t), own = all / p->mesh.size[p->axis];
    Value terms = {.type = hd_type(p->m->cx, t->dtype, 1, &all)}, *of = &terms;
    Attrs as = {0};
    hd_set_word(p->m->cx, &as, A_COMM, p->comm->name);
    const Op *sum = op(p, o, OP_REDUCE_SCATTER, 1, &of, &as, hd_type(p->m->cx, t->dtype, 1, &own));
    const double multiplied = hd_model_seconds(d, product), added = hd_model_seconds(d, sum);
    double end = 0;
    for (int i = 1; i <= n; i++) end = (end > i * multiplied ? end : i * multiplied) + added;
    const double copied = 2.0 * n * (double)hd_type_bytes(sum->out[0]->type); // by the concat
    return end + (n > 1 ? hd_model_rows(d, copied) : 0);
}

static int slices_of(Partition *p, const Op *o) {
    const int64_t cols = o->out[0]->type->dim[2], set = hd_int(hd_settings(p->m, "schedule"), A_SLICES, 0);
    if (set) return cols % set ? 1 : (int)set;
    const DeviceModel *d = hd_model(p->m);
    int best = 1;
    double least = d ? seconds(p, o, d, 1) : -1;
    for (int n = 2; n <= MOST && cols % n == 0 && cols / n >= LEAST; n *= 2) {
        const double s = d ? seconds(p, o, d, n) : -1;
        if (s >= 0 && s < least) least = s, best = n;
    }
    return best;
}

// --- the slices

// Whether an op reads the terms, which slices would leave in pieces.
static bool is_read_before(const Value *v, const Op *at) {
    for (const Op *o = v->def->next; o != at; o = o->next)
        for (int i = 0; i < o->n_in; i++)
            if (o->in[i] == v) return true;
    return false;
}

static bool may_be_cut(const Value *terms, const Op *at) {
    const Op *o = terms->def;
    return o && o->kind == OP_MATMUL && o->n_in == 2 && !hd_has(&o->attrs, A_BWD) && !hd_has(&at->attrs, A_BWD) &&
           !hd_has(&o->attrs, A_TA) && hd_has(&o->attrs, A_TB) && terms->type->rank == 3 && o->in[1]->type->rank == 2 &&
           !is_read_before(terms, at);
}

Value *hd_sequence_slices(Partition *p, Value *terms, const Op *at) {
    Ctx *cx = p->m->cx;
    const Op *o = terms->def;
    const int n = may_be_cut(terms, at) ? slices_of(p, o) : 1;
    if (n == 1) return NULL;
    const int64_t cols = terms->type->dim[2], size = cols / n;
    Attrs rows = {0}, columns = hd_attrs_copy(cx, &o->attrs), joined = {0};
    hd_set_int(cx, &rows, A_AXIS, 0);
    hd_set_int(cx, &rows, A_SIZE, size);
    hd_set_int(cx, &columns, A_COLUMNS, cols);
    hd_set_int(cx, &joined, A_AXIS, 2);
    Value *parts[HD_MAX_SLICES], *w = o->in[1];
    for (int i = 0; i < n; i++) {
        hd_set_int(cx, &rows, A_START, i * size);
        Op *part = op(p, o, OP_SLICE, 1, &w, &rows, with_dim(p, w->type, 0, size));
        Value *in[] = {o->in[0], insert(part, at, w->layout)};
        Op *product = op(p, o, OP_MATMUL, 2, in, &columns, with_dim(p, terms->type, 2, size));
        parts[i] = hd_sequence_scatter(p, insert(product, at, terms->layout), at);
    }
    Op *join = op(p, o, OP_CONCAT, n, parts, &joined, with_dim(p, parts[0]->type, 2, cols));
    Value *x = insert(join, at, parts[0]->layout);
    *hd_partition_slot(p, &p->parts, terms) = x;
    *hd_partition_slot(p, &p->parts, x) = x;
    hd_push(p->cx->scratch, &p->cut, (Op *)(uintptr_t)o);
    hd_count(p->cx, "products in slices", 1);
    return x;
}

// The products as they were, which nothing reads any more.
void hd_sequence_end(Partition *p) {
    for (int i = 0; i < p->cut.n; i++) hd_erase(p->cut.at[i]);
    p->cut.n = 0;
}
