// The forms that grouping relies on. None of them changes a value:
//   attention over the parts of one value reads that value          (packed)
//   a convolution of some columns of a value reads that value        (start)
//   rope beside work on each head, such as its norm, has heads as an axis   (apart)
//   a table looked up by 0, 1, 2, ... is the table itself            (its first rows)
//   pointwise operands broadcast as a row kernel can, or explicitly
//   sums over all rows are sum_to, in f32; sums over more than the last axis start with the last axis
//   a part of a row is taken by each of its readers, where they read all parts
//   a product plus bias is added by each of its readers, or is the product's epilogue (biases.c)
#include "passes/fuse/fuse.h"
#include "ir/dropout.h"
#include "ir/shapes.h"
#include "passes/analysis/redirect.h"

// n_values: that `uses` knows; changed: since then.
typedef struct { Module *m; Func *f; PassCx *cx; Uses uses; int n_values; bool changed; } Prepare;

static void refresh(Prepare *s) {
    if (!s->changed) return;
    s->changed = false;
    hd_renumber(s->f);
    s->uses = hd_uses(s->f, s->cx->scratch);
    s->n_values = s->f->n_values;
}

// Every rule walks in program order, so that the readers of a value are still those of the last refresh when it is
// replaced.
static void replace(Prepare *s, Value *old, Value *now) {
    s->changed = true;
    if (old->id < s->n_values) hd_redirect(&s->uses, old, now);
    else hd_replace_uses(old, now);
}

static void set_out(Ctx *cx, Attrs *as, DType d) { hd_set_word(cx, as, A_OUT, hd_intern(cx, hd_dtype_text(d))); }

// --- attention
// The value of which q, k, v, the operands `qkv`, are the three parts in order, or NULL.
static Value *packed_source(const Op *o, const int *qkv) {
    Value *x = NULL;
    int64_t at = 0;
    for (int i = 0; i < 3; i++) {
        const Op *part = o->in[qkv[i]]->def;
        if (!part || part->kind != OP_SLICE || (x && part->in[0] != x)) return NULL;
        x = part->in[0];
        if (x->type->rank != 3 || hd_int(&part->attrs, A_AXIS, 0) != 2 || hd_int(&part->attrs, A_START, 0) != at)
            return NULL;
        at += part->out[0]->type->dim[2];
    }
    return at == x->type->dim[2] ? x : NULL;
}

// The concat of all results in order, when nothing else reads them.
static Op *packed_result(const Prepare *s, const Op *grad) {
    Op *join = NULL;
    for (int i = 0; i < 3; i++) {
        const Value *v = grad->out[i];
        if (s->uses.count[v->id] != 1) return NULL;
        Op *user = s->uses.users[v->id][0];
        if (user->kind != OP_CONCAT || user->n_in != 3 || user->in[i] != v || hd_int(&user->attrs, A_AXIS, 0) != 2 ||
            (join && join != user))
            return NULL;
        join = user;
    }
    return join;
}

static Op *packed(Prepare *s, Op *o, int n_in, Value *const *in) {
    Op *p = hd_op_new(s->f, o->kind, n_in, in);
    p->attrs = hd_attrs_copy(s->m->cx, &o->attrs);
    hd_set_flag(s->m->cx, &p->attrs, A_PACKED);
    p->loc = o->loc;
    p->span = o->span;
    const char *e = hd_infer(p, 0, NULL);
    if (e) HD_BUG("packed %s: %s", hd_op_info(o->kind)->mnemonic, e);
    hd_insert_before(o, p);
    return p;
}

static void pack_attention(Prepare *s, Op *o) {
    if (hd_has(&o->attrs, A_PACKED)) return;
    bool grad = hd_is_backward(o);
    Value *x = packed_source(o, (int[]){grad, grad + 1, grad + 2});
    Op *join = x && grad ? packed_result(s, o) : NULL;
    if (!x || (grad && !join)) return;
    Value *in[6] = {x}; // then the starts of documents and the key of dropout, where there are such
    int n = 1;
    if (grad) in[0] = o->in[0], in[1] = x, in[2] = o->in[4], in[3] = o->in[5], n = 4;
    for (int i = hd_attention_operands(o); i < o->n_in; i++) in[n++] = o->in[i];
    Op *p = packed(s, o, n, in);
    if (grad) {
        replace(s, join->out[0], p->out[0]);
        hd_erase(join);
    } else {
        for (int i = 0; i < 2; i++) replace(s, o->out[i], p->out[i]);
    }
    hd_erase(o);
    hd_count(s->cx, "attention operands packed", 1);
}

static void pack_attention_step(Prepare *s, Op *o) {
    if (hd_has(&o->attrs, A_PACKED)) return;
    Value *x = packed_source(o, hd_step_parts(o).in), *in[3] = {x, o->in[1]};
    int n = 2;
    if (!x) return;
    for (int i = hd_step_operands(o); i < o->n_in; i++) in[n++] = o->in[i];
    replace(s, o->out[0], packed(s, o, n, in)->out[0]);
    hd_erase(o);
    hd_count(s->cx, "attention operands packed", 1);
}

// --- convolutions
static void convolve_in_place(Prepare *s, Op *o) {
    Value **x = &o->in[hd_is_backward(o)];
    const Op *part = (*x)->def;
    if (!part || part->kind != OP_SLICE || hd_has(&o->attrs, A_START) ||
        hd_int(&part->attrs, A_AXIS, 0) != (*x)->type->rank - 1)
        return;
    *x = part->in[0];
    hd_set_int(s->m->cx, &o->attrs, A_START, hd_int(&part->attrs, A_START, 0));
    s->changed = true;
}

// --- rope
// Whether a value is [.., heads, size] of the heads of a rope, in which its row has all of them.
static bool has_heads(const Op *rope, const Type *t) {
    const Type *row = rope->in[0]->type;
    const int64_t heads = hd_int(&rope->attrs, A_HEADS, 1);
    return t->rank == row->rank + 1 && t->dim[t->rank - 2] == heads && hd_type_cols(t) * heads == hd_type_cols(row);
}

// A reshape that does not depend on how its operand is spread.
static bool plain_reshape(const Op *o) {
    return o && o->kind == OP_RESHAPE && !hd_has(&o->attrs, A_OVER) && !hd_has(&o->attrs, A_DIMS);
}

static bool on_heads(const Op *rope, const Op *o) { // row work on each head
    RowSpace own;
    return o && !hd_op_is(o, TRAIT_SCALAR | TRAIT_ALIAS) && hd_row_natural(o, &own) &&
           own.cols * hd_int(&rope->attrs, A_HEADS, 1) == hd_type_cols(rope->in[0]->type);
}

static bool read_on_heads(const Prepare *s, const Op *rope, const Value *v) {
    for (int i = 0; i < s->uses.count[v->id]; i++)
        if (on_heads(rope, s->uses.users[v->id][i])) return true;
    return false;
}

// y = rope(reshape(norm(x))), and for its gradient norm_grad(reshape(rope(dy)), ..): one space of rows.
static void turn_apart(Prepare *s, Op *o) {
    if (o->n_in > 1 || hd_int(&o->attrs, A_HEADS, 1) < 2 || hd_has(&o->attrs, A_TURNED)) return;
    Op *before = o->in[0]->def, *after = s->uses.count[o->out[0]->id] == 1 ? s->uses.users[o->out[0]->id][0] : NULL;
    const bool made = plain_reshape(before) && has_heads(o, before->in[0]->type) &&
                      on_heads(o, before->in[0]->def);
    const bool read = plain_reshape(after) && has_heads(o, after->out[0]->type) &&
                      read_on_heads(s, o, after->out[0]);
    if (!made && !read) return;
    Builder b = hd_builder_before(o);
    Attrs as = hd_attrs_copy(s->m->cx, &o->attrs);
    hd_set_flag(s->m->cx, &as, A_APART);
    const Type *type = made ? before->in[0]->type : after->out[0]->type;
    Value *x = made ? before->in[0] : hd_build1(&b, OP_RESHAPE, o->in[0], NULL, NULL, type);
    Value *y = hd_build1(&b, OP_ROPE, x, NULL, &as, NULL);
    replace(s, o->out[0], hd_build1(&b, OP_RESHAPE, y, NULL, NULL, o->out[0]->type));
    if (read) replace(s, after->out[0], y);
    hd_erase(o);
    hd_count(s->cx, "rotations of heads apart", 1);
}

// --- lookups by position
static Value *first_rows(Prepare *s, Op *o, Value *table, const Type *t) {
    Builder b = hd_builder_before(o);
    if (table->type == t) return table;
    const Op *view = table->def && hd_op_is(table->def, TRAIT_SOURCE) ? table->def : NULL;
    if (view) return hd_build1(&b, OP_VIEW, NULL, NULL, &view->attrs, t);
    Attrs as = {0};
    hd_set_int(s->m->cx, &as, A_AXIS, 0);
    hd_set_int(s->m->cx, &as, A_START, 0);
    hd_set_int(s->m->cx, &as, A_SIZE, t->dim[0]);
    return hd_build1(&b, OP_SLICE, table, NULL, &as, NULL);
}

static bool counts_up(const Value *index) {
    return index->def && index->def->kind == OP_IOTA && index->type->rank == 1;
}

static void simplify_lookup(Prepare *s, Op *o) {
    Value *now = NULL;
    if (!counts_up(o->in[1])) return;
    if (o->kind == OP_EMBEDDING) {
        if (o->in[1]->type->dim[0] <= o->in[0]->type->dim[0]) now = first_rows(s, o, o->in[0], o->out[0]->type);
    } else if (hd_type_count(o->in[0]->type) == hd_type_count(o->out[0]->type)) { // every row of the table exactly once
        Builder b = hd_builder_before(o);
        now = hd_build_cast(&b, o->in[0], o->out[0]->type->dtype);
        if (now->type != o->out[0]->type) now = hd_build1(&b, OP_RESHAPE, now, NULL, NULL, o->out[0]->type);
    }
    if (!now) return;
    replace(s, o->out[0], now);
    hd_erase(o);
}

// --- broadcasting
// The shape of a pointwise result over these operands is still that of `o`.
static bool keeps_shape(Prepare *s, const Op *o) {
    const Type *t = o->in[0]->type;
    for (int i = 1; t && i < o->n_in; i++) t = hd_type_broadcast(s->m->cx, t, o->in[i]->type);
    return t && hd_type_with(s->m->cx, o->out[0]->type->dtype, t) == o->out[0]->type;
}

// An explicit broadcast is not needed where its reader broadcasts anyway.
static void unfold_broadcasts(Prepare *s, Op *o) {
    for (int i = 0; i < o->n_in; i++) {
        const Op *wide = o->in[i]->def;
        if (!wide || wide->kind != OP_BROADCAST) continue;
        Value *was = o->in[i];
        RowSpace space;
        o->in[i] = wide->in[0];
        if (!keeps_shape(s, o) || !hd_row_natural(o, &space)) o->in[i] = was;
        else s->changed = true;
    }
}

// An operand that cannot be read in place is broadcast by an op of its own.
static void fold_operands(Prepare *s, Op *o) {
    RowSpace space;
    if (hd_row_natural(o, &space)) return;
    Builder b = hd_builder_before(o);
    for (int i = 0; i < o->n_in; i++) {
        const Type *t = hd_type_with(s->m->cx, o->in[i]->type->dtype, o->out[0]->type);
        if (o->in[i]->type == t || hd_type_count(o->in[i]->type) == 1) continue;
        o->in[i] = hd_build1(&b, OP_BROADCAST, o->in[i], NULL, NULL, t);
        s->changed = true;
    }
}

// --- sums
static DType sum_dtype(const Value *v) { return v->type->dtype == TY_F64 ? TY_F64 : TY_F32; }

static void replace_sum(Prepare *s, Op *o, Value *now) {
    if (now->type != o->out[0]->type) HD_BUG("a sum changed its type");
    replace(s, o->out[0], now);
    hd_erase(o);
}

static bool all_but_last(const Op *o) {
    int rank = o->in[0]->type->rank;
    return rank > 1 && hd_reduced_axes(o) == (1u << (rank - 1)) - 1;
}

// Column sums are sum_to in f32, cast afterwards.
static void columns(Prepare *s, Op *o) {
    const Type *x = o->in[0]->type, *y = o->out[0]->type;
    if (!hd_dtype_is_float(x->dtype) || !x->rank || hd_type_cols(x) == 1 || hd_type_count(y) != hd_type_cols(x) ||
        hd_type_rows(x) == 1)
        return;
    bool to = o->kind == OP_SUM_TO && hd_type_cols(y) == hd_type_cols(x);
    if (!to && !(o->kind == OP_SUM && all_but_last(o))) return;
    DType d = sum_dtype(o->in[0]);
    if (to && y->dtype == d) return;
    Builder b = hd_builder_before(o);
    Attrs as = {0};
    set_out(s->m->cx, &as, d);
    Value *v = hd_build1(&b, OP_SUM_TO, o->in[0], NULL, &as, hd_type_with(s->m->cx, d, y));
    replace_sum(s, o, hd_build_cast(&b, v, y->dtype));
}

// A sum over the last axis and others: rows first, by a row kernel, then one number a row.
static void rows_first(Prepare *s, Op *o) {
    const Attr *axes = hd_attr(&o->attrs, A_AXES);
    int rank = o->in[0]->type->rank;
    if (axes->n < 2 || !(hd_reduced_axes(o) >> (rank - 1) & 1) || !hd_dtype_is_float(o->in[0]->type->dtype)) return;
    int64_t others[HD_MAX_DIMS];
    int n = 0;
    for (int i = 0; i < axes->n; i++)
        if (axes->ints[i] != rank - 1) others[n++] = axes->ints[i];
    Builder b = hd_builder_before(o);
    Attrs as = {0};
    hd_set_ints(s->m->cx, &as, A_AXES, 1, (int64_t[]){rank - 1});
    set_out(s->m->cx, &as, sum_dtype(o->in[0]));
    bool keep = hd_has(&o->attrs, A_KEEP);
    if (keep) hd_set_flag(s->m->cx, &as, A_KEEP);
    Value *v = hd_build1(&b, o->kind, o->in[0], NULL, &as, NULL);
    hd_set_ints(s->m->cx, &as, A_AXES, n, others);
    set_out(s->m->cx, &as, o->out[0]->type->dtype);
    Value *rest = hd_build1(&b, o->kind, v, NULL, &as, NULL);
    replace_sum(s, o, rest);
    rows_first(s, rest->def);
}

// sum_to one number is a sum over all axes.
static void sum_to_number(Prepare *s, Op *o) {
    const Type *x = o->in[0]->type, *y = o->out[0]->type;
    if (hd_type_count(y) != 1 || x->rank < 2 || hd_type_count(x) == 1) return;
    Builder b = hd_builder_before(o);
    Attrs as = {0};
    int64_t axes[HD_MAX_DIMS];
    for (int i = 0; i < x->rank; i++) axes[i] = i;
    hd_set_ints(s->m->cx, &as, A_AXES, x->rank, axes);
    set_out(s->m->cx, &as, y->dtype);
    Value *v = hd_build1(&b, OP_SUM, o->in[0], NULL, &as, NULL);
    Op *sum = v->def;
    if (v->type != y) v = hd_build1(&b, OP_RESHAPE, v, NULL, NULL, y);
    replace_sum(s, o, v);
    rows_first(s, sum);
}

// Rows of a weight whose product is in slices are a view of them.
static void view_rows(Prepare *s, Op *o) {
    const Op *view = o->kind == OP_SLICE ? o->in[0]->def : NULL;
    if (!view || view->kind != OP_VIEW || hd_int(&o->attrs, A_AXIS, 0) || !hd_has(&view->attrs, A_BUFFER)) return;
    for (int i = 0; i < s->uses.count[o->out[0]->id]; i++)
        if (!hd_has(&s->uses.users[o->out[0]->id][i]->attrs, A_COLUMNS)) return;
    const Type *t = o->in[0]->type;
    const int64_t row = hd_type_count(t) / t->dim[0], start = hd_int(&o->attrs, A_START, 0);
    Builder b = hd_builder_before(o);
    Attrs as = hd_attrs_copy(s->m->cx, &view->attrs);
    hd_set_int(s->m->cx, &as, A_OFFSET, hd_int(&as, A_OFFSET, 0) + start * row);
    replace(s, o->out[0], hd_build1(&b, OP_VIEW, NULL, NULL, &as, o->out[0]->type));
    hd_erase(o);
}

// --- parts
static bool is_part(const Op *o) {
    RowSpace space;
    return o->kind == OP_SLICE && hd_row_natural(o, &space);
}

// Kernels of arithmetic over these rows read a value, perhaps as another shape of the same rows.
static bool arithmetic_reads(const Prepare *s, const Value *v, RowSpace own) {
    for (int k = 0; k < s->uses.count[v->id]; k++) {
        const Op *u = s->uses.users[v->id][k];
        RowSpace reader;
        if (u->kind == OP_RESHAPE && hd_type_cols(u->out[0]->type) == own.cols) {
            if (!arithmetic_reads(s, u->out[0], own)) return false;
        } else if (!hd_op_is(u, TRAIT_SCALAR) || !hd_row_natural(u, &reader) || reader.cols != own.cols ||
                   reader.rows != own.rows) {
            return false;
        }
    }
    return true;
}

// Whether kernels of arithmetic and convolutions read all parts of a value, and nothing reads it besides: then it may
// live in their place.
static bool is_read_in_parts(const Prepare *s, const Value *v) {
    int64_t covered = 0;
    for (int i = 0; i < s->uses.count[v->id]; i++) {
        const Op *part = s->uses.users[v->id][i];
        const bool again = hd_has(&part->attrs, A_RECOMPUTED); // the same part as in the forward pass
        RowSpace own;
        const bool convolves = hd_op_is(part, TRAIT_CONVOLUTION), backward = hd_is_backward(part);
        if (convolves && backward && part->in[1] == v && part->in[0] != v) continue;
        if (convolves && !backward && part->in[0] == v) {
            if (!again) covered += hd_type_cols(part->out[0]->type);
            continue;
        }
        if (!is_part(part) || !hd_row_natural(part, &own) || !arithmetic_reads(s, part->out[0], own)) return false;
        if (!again) covered += own.cols;
    }
    return covered == hd_type_cols(v->type);
}

// Each reader takes its part by itself, so that a kernel of the backward pass reads the whole value again instead of a
// part that a kernel of the forward pass has stored.
static void part_for_each_reader(Prepare *s, Op *o) {
    const int id = o->out[0]->id;
    for (int i = 1; i < s->uses.count[id]; i++) {
        Op *u = s->uses.users[id][i];
        if (u == s->uses.users[id][i - 1]) continue;
        s->changed = true;
        Op *own = hd_op_clone(s->f, o, o->in);
        if (hd_has(&u->attrs, A_BWD)) hd_set_flag(s->m->cx, &own->attrs, A_BWD);
        if (hd_has(&u->attrs, A_BWD) && !hd_has(&o->attrs, A_BWD)) hd_set_flag(s->m->cx, &own->attrs, A_RECOMPUTED);
        hd_insert_before(u, own);
        for (int j = 0; j < u->n_in; j++)
            if (u->in[j] == o->out[0]) u->in[j] = own->out[0];
    }
}

static void take_parts(Prepare *s) {
    VEC(Op *) parts = {0};
    for (Op *o = s->f->first; o; o = o->next)
        if (is_part(o) && is_read_in_parts(s, o->in[0])) hd_push(s->cx->scratch, &parts, o);
    for (int i = 0; i < parts.n; i++) part_for_each_reader(s, parts.at[i]);
}

static void remove_dead(Prepare *s) {
    refresh(s);
    for (Op *o = s->f->last, *prev; o; o = prev) {
        prev = o->prev;
        bool dead = hd_op_is(o, TRAIT_PURE);
        for (int i = 0; i < o->n_out; i++) dead &= s->uses.count[o->out[i]->id] == 0;
        if (!dead) continue;
        for (int i = 0; i < o->n_in; i++) s->uses.count[o->in[i]->id]--;
        hd_erase(o);
        s->changed = true;
    }
    refresh(s);
}

void hd_fuse_prepare(Module *m, Func *f, PassCx *cx) {
    Prepare s = {.m = m, .f = f, .cx = cx, .changed = true};
    refresh(&s);
    for (Op *o = f->first, *next; o; o = next) { // gradients first: they come later and disappear with their concat
        next = o->next;
        if (next && next->kind == OP_CONCAT) next = next->next;
        if (hd_op_is(o, TRAIT_ATTENTION)) pack_attention(&s, o);
        else if (o->kind == OP_ATTENTION_STEP) pack_attention_step(&s, o);
    }
    refresh(&s);
    for (Op *o = f->first, *next; o; o = next) {
        next = o->next;
        if (hd_op_is(o, TRAIT_LOOKUP)) simplify_lookup(&s, o);
        view_rows(&s, o);
        if (hd_op_is(o, TRAIT_CONVOLUTION)) convolve_in_place(&s, o);
    }
    remove_dead(&s);
    for (Op *o = f->first, *next; o; o = next) {
        next = o->next;
        if (o->kind == OP_ROPE) turn_apart(&s, o);
    }
    remove_dead(&s);
    for (Op *o = f->first, *next; o; o = next) {
        next = o->next;
        if (o->kind == OP_SUM_TO) sum_to_number(&s, o);
        else if (o->kind == OP_SUM || o->kind == OP_REDUCE_MAX) rows_first(&s, o);
    }
    refresh(&s);
    for (Op *o = f->first, *next; o; o = next) {
        next = o->next;
        if (hd_op_is(o, TRAIT_ADDS)) columns(&s, o);
        else if (hd_op_is(o, TRAIT_ELEMENTWISE)) unfold_broadcasts(&s, o);
    }
    for (Op *o = f->first; o; o = o->next)
        if (hd_op_is(o, TRAIT_ELEMENTWISE)) fold_operands(&s, o);
    remove_dead(&s);
    s.changed = hd_fuse_add_for_readers(f, &s.uses, cx->scratch);
    remove_dead(&s);
    take_parts(&s);
    refresh(&s);
}
