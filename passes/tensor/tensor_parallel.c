// tensor-parallel: from parameters that are split along a dimension over an axis of the mesh follow the layouts of all
// values (ir/spread.c), and where an op needs the whole of a partial sum two collectives make it:
//
//   param @b.wo : f32[64,64] {over = [tensor], dims = [1]}        param @b.wo : f32[64,32] over {tensor: 1}
//   %w = param {param = @b.wo} : f32[64,64]                       %w = param {param = @b.wo} : f32[64,32] over {..: 1}
//   %y = matmul %x, %w {tb} : f32[2,8,64]                    ->   %y = matmul %x, %w {tb} : f32[2,8,64] over {..: sum}
//   %h = add %z, %y : f32[2,8,64]                                 %a = reshape %y : f32[1024] over {tensor: sum}
//                                                                 %b = reduce_scatter %a {..} : f32[512] over {..: 0}
//                                                                 %c = all_gather %b {comm = @comm.tensor} : f32[1024]
//                                                                 %d = reshape %c : f32[2,8,64]
//                                                                 %h = add %z, %d : f32[2,8,64]
//
// The forward and the backward pass are one function here, so both get theirs by the same rule: a sum is completed
// where the first op reads it that does not pass terms on, once for all that read it. So gradients of what several
// products read are added before they are summed over ranks, and the gradient of a parameter that every rank has is
// summed exactly where it is a partial sum. All values are laid out first, by their types on one device; then the types
// become those of what a rank holds.
#include "passes/tensor/tensor_parallel.h"
#include "ir/base/ints.h"
#include "ir/layout.h"
#include "ir/dropout.h"
#include "ir/shapes.h"
#include "passes/settings.h"
#include "passes/tensor/partition.h"
#include "passes/tensor/vocabulary.h"
#include "passes/verify/values/program.h"
#include <string.h>

// --- parameters

bool hd_is_partitioned(const Module *m) {
    for (const Symbol *s = m->symbols; s; s = s->next)
        if (s->kind == SYM_PARAM && s->layout) return true;
    return false;
}

static int64_t dim_over(const Symbol *p, int axis) { // -1: it is not split over that axis
    const Attr *over = hd_attr(&p->attrs, A_OVER), *dims = hd_attr(&p->attrs, A_DIMS);
    for (int i = 0; over && dims && i < over->n && i < dims->n; i++)
        if (hd_axis_called(over->strs[i]) == axis) return dims->ints[i];
    return -1;
}

static int64_t most_that_divides(int64_t n, int64_t most) { // the largest number up to `most`
    while (n % most) most--;
    return most;
}

// The vocabulary: a size of logits or of a table that the ranks do not divide, if there is one; 0: there is none. Of
// several the first that a loss reads.
static int64_t uneven_vocabulary(const Partition *p) {
    int64_t found = 0;
    for (const Func *f = p->m->funcs; f; f = f->next)
        for (const Op *o = f->is_kernel ? NULL : f->first; o; o = o->next) {
            const bool loss = hd_op_is(o, TRAIT_LOSS), table = hd_op_is(o, TRAIT_LOOKUP) && !hd_is_backward(o);
            if ((!loss && !table) || !o->in[0]->type->rank) continue;
            const int64_t size = loss ? hd_type_cols(o->in[0]->type) : o->in[0]->type->dim[0];
            if (size % p->mesh.size[p->axis] == 0) continue;
            if (loss) return size;
            if (!found) found = size;
        }
    return found;
}

// A vocabulary is split into parts that are padded, as rows of a parameter. Whether this one is.
static bool splits_unevenly(Partition *p, Symbol *s, int64_t d) {
    const int64_t size = s->type->dim[d], ranks = p->mesh.size[p->axis];
    Symbol *schedule = hd_symbol_find(p->m, "schedule");
    if (d || !schedule || HD_EXPERT_AXES >> p->axis & 1 || size != uneven_vocabulary(p)) return false;
    if (!hd_uneven_part(size, ranks) || (p->mesh.uneven && p->mesh.uneven != size)) return false;
    hd_set_int(p->m->cx, &schedule->attrs, A_UNEVEN, p->mesh.uneven = size);
    s->layout = hd_layout_with(s->layout, p->axis, LAYOUT_UNEVEN);
    return true;
}

static bool lay_out_param(Partition *p, Symbol *s) {
    Ctx *cx = p->m->cx;
    const int64_t d = dim_over(s, p->axis);
    if (d < 0) return true;
    if (d >= s->type->rank)
        return hd_error(cx, s->span, "parameter @%s : %s has no dimension %lld", s->name, hd_type_text(cx, s->type),
                        ll(d));
    const int64_t size = s->type->dim[d], ranks = p->mesh.size[p->axis];
    s->layout = hd_layout_with(s->layout, p->axis, LAYOUT_SPLIT + (int)d);
    if (size % ranks == 0 || splits_unevenly(p, s, d)) return true;
    return hd_error(cx, s->span,
                    "dimension %lld of parameter @%s, %lld, does not divide into equal parts for %lld ranks along %s: "
                    "make it %lld, or set schedule.mesh.%s to a number that divides it, such as %lld", ll(d), s->name,
                    ll(size), ll(ranks), hd_axis_name(p->axis), ll(hd_ceil_div(size, ranks) * ranks),
                    hd_axis_name(p->axis), ll(most_that_divides(size, ranks)));
}

// The first parameter that is a factor of a product, and no table; NULL: there is none.
static const Symbol *first_factor(const Partition *p) {
    Arena *a = p->cx->scratch;
    bool *factor = HD_NEWN(a, bool, p->m->n_symbols + 1), *table = HD_NEWN(a, bool, p->m->n_symbols + 1);
    for (Func *f = p->m->funcs; f; f = f->next) {
        if (f->is_kernel) continue;
        hd_renumber(f);
        const Symbol **of = HD_NEWN(a, const Symbol *, f->n_values + 1); // by value
        for (const Op *o = f->first; o; o = o->next) {
            if (hd_param_read(o, 0)) of[o->out[0]->id] = hd_op_param(o, 0);
            for (int i = 0; i < o->n_in; i++) {
                const Symbol *s = of[o->in[i]->id];
                if (!s) continue;
                if (hd_op_is(o, TRAIT_CARRIES)) of[o->out[0]->id] = s;
                factor[s->id] |= hd_op_is(o, TRAIT_MATMUL);
                table[s->id] |= hd_op_is(o, TRAIT_LOOKUP);
            }
        }
    }
    const Symbol *s = p->m->symbols;
    while (s && !(s->kind == SYM_PARAM && factor[s->id] && !table[s->id])) s = s->next;
    return s;
}

static bool lay_out_params(Partition *p) {
    bool any = false, ok = true;
    for (Symbol *s = p->m->symbols; s; s = s->next) {
        if (s->kind != SYM_PARAM) continue;
        ok &= lay_out_param(p, s);
        any |= hd_layout_at(s->layout, p->axis) != LAYOUT_WHOLE;
    }
    if (!ok || any) return ok;
    if (HD_EXPERT_AXES >> p->axis & 1) return hd_experts_refuse(p);
    const Symbol *first = first_factor(p);
    const char *axis = hd_axis_name(p->axis);
    return hd_error(p->m->cx, first ? first->span : (Span){0},
                    "the mesh has %lld ranks along %s, and no parameter is split over it%s%s%s: write "
                    "`[rows over %s, columns]` or `[rows, columns over %s]` in its declaration, `Linear(in, out over "
                    "%s)` or `Linear(in over %s, out)` where it is one of that module, or take %s = 1",
                    ll(p->mesh.size[p->axis]), axis, first ? "; the first that can be is @" : "",
                    first ? first->name : "", first ? "" : ", since there is none", axis, axis, axis, axis,
                    axis);
}

// --- sums

Value *hd_partition_build(Partition *p, const Op *at, OpKind k, Value *in, const Attrs *as, const Type *t,
                          int layout) {
    Op *o = hd_op_new(p->f, k, 1, &in);
    o->loc = at->loc;
    o->span = at->span;
    if (as) o->attrs = hd_attrs_copy(p->m->cx, as);
    if (hd_has(&at->attrs, A_BWD)) hd_set_flag(p->m->cx, &o->attrs, A_BWD);
    hd_set_results(o, 1, &t);
    o->out[0]->layout = hd_layout_with(in->layout, p->axis, layout);
    hd_insert_before((Op *)(uintptr_t)at, o);
    return o->out[0];
}

Value **hd_partition_slot(const Partition *p, ByValue *of, const Value *v) {
    while (of->n <= v->id) hd_push(p->cx->scratch, of, NULL);
    return &of->at[v->id];
}

// The value that completes v already, of terms; or v.
static Value *known(Partition *p, Value *v) {
    if (hd_layout_at(v->layout, p->axis) != LAYOUT_SUM) return v;
    Value *part = *hd_partition_slot(p, &p->parts, v), *whole = *hd_partition_slot(p, &p->whole, v);
    return part ? part : whole ? whole : v;
}

// The sum over ranks of the terms `v`, directly before op `at`; NULL after an error.
static Value *complete(Partition *p, Value *v, const Op *at) {
    Ctx *cx = p->m->cx;
    if (known(p, v) != v) return known(p, v);
    if (hd_sequence_has(p, v->type)) {
        Value *x = hd_sequence_slices(p, v, at);
        return x ? x : hd_sequence_scatter(p, v, at);
    }
    const int64_t n = hd_type_count(v->type), ranks = p->mesh.size[p->axis];
    if (n % ranks) {
        hd_error(cx, at->span, "%s is a sum over the %lld ranks along %s: its %lld elements do not divide by them",
                 hd_type_text(cx, v->type), ll(ranks), hd_axis_name(p->axis), ll(n));
        return NULL;
    }
    Attrs as = {0};
    hd_set_word(cx, &as, A_COMM, p->comm->name);
    const Type *flat = hd_type(cx, v->type->dtype, 1, &n);
    Value *x = v->type == flat ? v : hd_partition_build(p, at, OP_RESHAPE, v, NULL, flat, LAYOUT_SUM);
    x = hd_partition_build(p, at, OP_REDUCE_SCATTER, x, &as, flat, LAYOUT_SPLIT);
    x = hd_partition_build(p, at, OP_ALL_GATHER, x, &as, flat, LAYOUT_WHOLE);
    if (v->type != flat) x = hd_partition_build(p, at, OP_RESHAPE, x, NULL, v->type, LAYOUT_WHOLE);
    p->collectives += 2;
    *hd_partition_slot(p, &p->whole, v) = x;
    return x;
}

// Dropout of a part of a value draws the numbers that the whole has there.
static void draw_part(const Partition *p, Op *o, int at) {
    const bool part = hd_layout_splits(at) && !(HD_DATA_AXES >> p->axis & 1), heads = o->kind != OP_DROPOUT;
    if (!hd_draws(o)) return;
    hd_unset(&o->attrs, A_OVER);
    hd_unset(&o->attrs, A_DIMS);
    if (!part || (heads ? at != LAYOUT_SPLIT + 2 : at == LAYOUT_SPLIT)) return;
    hd_set_axes(p->m->cx, &o->attrs, A_OVER, 1u << p->axis);
    if (!heads) hd_set_ints(p->m->cx, &o->attrs, A_DIMS, 1, (int64_t[]){at - LAYOUT_SPLIT});
}

static const char *lay_out(const Partition *p, Op *o, int *out) {
    int in[HD_MAX_IN];
    for (int i = 0; i < o->n_in; i++) in[i] = hd_layout_at(o->in[i]->layout, p->axis);
    if (o->n_in) draw_part(p, o, in[0]);
    memset(out, 0, sizeof *out * HD_MAX_IN);
    return hd_spread(o, p->axis, in, out);
}

// Values split by positions are gathered, operand by operand, until the rule of the op accepts the rest.
static const char *gather_positions(Partition *p, Op *o, const char *wrong, int *out) {
    for (int i = 0; wrong && i < o->n_in; i++) {
        if (*hd_partition_slot(p, &p->parts, o->in[i]) != o->in[i]) continue;
        o->in[i] = hd_sequence_gather(p, o->in[i], o);
        wrong = lay_out(p, o, out);
    }
    return wrong;
}

static bool lay_out_op(Partition *p, Op *o) {
    int out[HD_MAX_IN];
    for (int i = 0; i < o->n_in; i++) // what is complete already is not summed with other terms a second time
        o->in[i] = known(p, o->in[i]);
    const char *wrong = lay_out(p, o, out);
    for (int i = 0; wrong && i < o->n_in; i++) { // one by one, until the rule of the op accepts the rest
        if (hd_layout_at(o->in[i]->layout, p->axis) != LAYOUT_SUM) continue;
        if (!(o->in[i] = complete(p, o->in[i], o))) return false;
        wrong = lay_out(p, o, out);
    }
    if (wrong && p->sequence) {
        const char *why = wrong;
        wrong = gather_positions(p, o, wrong, out);
        if (!wrong && hd_op_is(o, TRAIT_SCALAR)) return hd_sequence_refuse(p, o, why);
    }
    for (int i = 0; !wrong && i < o->n_out; i++)
        o->out[i]->layout = hd_layout_with(o->out[i]->layout, p->axis, out[i]);
    if (!wrong && p->sequence) hd_sequence_mark(p, o);
    return !wrong || hd_error(p->m->cx, o->span, "%s%s%s cannot be split over %s here: %s",
                              hd_op_info(o->kind)->mnemonic, o->loc.path ? " of " : "", o->loc.path ? o->loc.path : "",
                              hd_axis_name(p->axis), wrong);
}

// --- what a rank holds

static const struct { AttrId at; const char *what; } counts[] = {{A_HEADS, "heads"}, {A_KV_HEADS, "kv heads"}};

// Heads are along the last dimension, so a rank has a part of them.
static bool divide_heads(Partition *p, Op *o) {
    const int at = o->n_out ? hd_layout_at(o->out[0]->layout, p->axis) : LAYOUT_WHOLE;
    const int64_t ranks = p->mesh.size[p->axis];
    if (!hd_has(&o->attrs, A_HEADS) || at != LAYOUT_SPLIT + o->out[0]->type->rank - 1) return true;
    if (hd_has(&o->attrs, A_TURNED))
        return hd_error(p->m->cx, o->span,
                        "the rotation of %s is of some heads of a merged product, which is not split over %s: set "
                        "train.products = separate", o->loc.path ? o->loc.path : "a value", hd_axis_name(p->axis));
    for (int i = 0; i < 2; i++) {
        const int64_t n = hd_int(&o->attrs, counts[i].at, 0);
        const int k = counts[i].at == A_KV_HEADS ? hd_keys_operand(o) : -1;
        if (k >= 0 && hd_layout_at(o->in[k]->layout, p->axis) == LAYOUT_WHOLE) continue; // all heads read the one
        if (k >= 0 && n == 1)
            return hd_error(p->m->cx, o->span, "%s of %s has one kv head, which %lld ranks along %s cannot split: "
                            "leave the weights of k and v whole", hd_op_info(o->kind)->mnemonic,
                            o->loc.path ? o->loc.path : "a value", ll(ranks), hd_axis_name(p->axis));
        if (n % ranks)
            return hd_error(p->m->cx, o->span, "%s of %s has %lld %s, which do not divide by the %lld ranks along %s: "
                            "set schedule.mesh.%s to a number that divides them, such as %lld",
                            hd_op_info(o->kind)->mnemonic, o->loc.path ? o->loc.path : "a value", ll(n),
                            counts[i].what, ll(ranks), hd_axis_name(p->axis), hd_axis_name(p->axis),
                            ll(most_that_divides(n, ranks)));
        if (n) hd_set_int(p->m->cx, &o->attrs, counts[i].at, n / ranks);
    }
    return true;
}

static bool divide_op(Partition *p, Op *o) {
    Ctx *cx = p->m->cx;
    for (int i = 0; i < o->n_out; i++) {
        const Layout l = hd_layout_with(0, p->axis, hd_layout_at(o->out[i]->layout, p->axis));
        const Type *part = hd_type_part(cx, o->out[i]->type, l, &p->mesh);
        if (!part)
            return hd_error(cx, o->span, "%s : %s of %s does not divide into equal parts for %lld ranks along %s",
                            hd_op_info(o->kind)->mnemonic, hd_type_text(cx, o->out[i]->type),
                            o->loc.path ? o->loc.path : "a value", ll(p->mesh.size[p->axis]), hd_axis_name(p->axis));
        o->out[i]->type = part;
    }
    return true;
}

// What a rank holds may leave open which dimension of a reshape is split, where the whole does not: of f32[4,12] to
// f32[4,2,6] a rank of two has f32[4,6] to f32[4,1,6]. The op says it then.
static void say_dimension(const Partition *p, Op *o, int axis) {
    if (!hd_op_is(o, TRAIT_ALIAS) || o->n_in != 1 || HD_EXPERT_AXES >> axis & 1) return;
    const int in = hd_layout_at(o->in[0]->layout, axis), is = hd_layout_at(o->out[0]->layout, axis);
    int seems = LAYOUT_WHOLE, n = 0;
    if (!hd_layout_splits(is) || (!hd_spread(o, axis, &in, &seems) && seems == is)) return;
    const Axes over = hd_axes(&o->attrs, A_OVER) | 1u << axis;
    int64_t dims[N_AXES];
    for (int a = 0; a < N_AXES; a++)
        if (over >> a & 1) dims[n++] = hd_layout_at(o->out[0]->layout, a) - LAYOUT_SPLIT;
    hd_set_axes(p->m->cx, &o->attrs, A_OVER, over);
    hd_set_ints(p->m->cx, &o->attrs, A_DIMS, n, dims);
}

// --- the pass

static bool partition_experts(Partition *p) {
    bool ok = hd_partition_experts(p);
    for (Op *o = p->f->first; ok && o; o = o->next) ok = divide_op(p, o);
    hd_renumber(p->f);
    return ok;
}

// Nothing reads the gradient of a parameter soon, and the next collective of values would wait for those that complete
// it. So where its terms are to be added over ranks it comes directly before the next gradient of the same unit.
// Whether it has moved there.
static bool comes_later(const Partition *p, Op *o) {
    if (!hd_param_added(o, 0) || hd_layout_at(o->in[0]->layout, p->axis) != LAYOUT_SUM) return false;
    Op *next = o->next;
    while (next && !hd_param_added(next, 0)) next = next->next;
    if (!next || next == o->next) return false;
    const char *of = hd_word(&hd_named(o, A_PARAM)->attrs, A_UNIT, ""),
               *its = hd_word(&hd_named(next, A_PARAM)->attrs, A_UNIT, "");
    if (strcmp(of, its)) return false;
    hd_detach(o);
    hd_insert_before(next, o);
    return true;
}

static bool partition_func(Partition *p, Func *f) {
    p->f = f;
    hd_renumber(f);
    p->by = (ByValue){0};
    if (!hd_sequence_begin(p)) return false;
    if (HD_EXPERT_AXES >> p->axis & 1) return partition_experts(p);
    Vocabulary v = {.m = p->m, .f = f, .a = p->cx->scratch, .axis = p->axis, .ranks = p->mesh.size[p->axis],
                    .comm = p->comm};
    bool ok = true;
    for (Op *o = f->first, *next; ok && o; o = next) {
        next = o->next;
        if (comes_later(p, o)) continue;
        o = hd_split_vocabulary(&v, o);
        ok = lay_out_op(p, o);
        next = o->next;
    }
    hd_sequence_end(p);
    p->collectives += v.collectives;
    for (int attend = 1; attend >= 0; attend--) // attention first: it says of heads whose they are
        for (Op *o = f->first; ok && o; o = o->next) ok = hd_attends(o) != attend || divide_heads(p, o);
    for (Op *o = f->first; ok && o; o = o->next) ok = divide_op(p, o);
    hd_renumber(f);
    return ok;
}

// Nothing is wrong then, and ranks do the same work.
static void warn_of_whole_attention(const Partition *p) {
    for (Func *f = p->m->funcs; f; f = f->next)
        for (const Op *o = f->is_kernel ? NULL : f->first; o; o = o->next) {
            if (!hd_attends(o) || hd_layout_splits(hd_layout_at(o->in[0]->layout, p->axis))) continue;
            hd_warning(p->m->cx, o->span,
                       "every rank along %s computes all %lld heads of the attention of %s: split the weights of q, k "
                       "and v, `[rows over %s, columns]` or `Linear(in, out over %s)`; what packs all three into one "
                       "parameter cannot be split", hd_axis_name(p->axis), ll(hd_int(&o->attrs, A_HEADS, 1)),
                       o->loc.path ? o->loc.path : "a value", hd_axis_name(p->axis), hd_axis_name(p->axis));
            return;
        }
}

static bool add_comm(Partition *p) {
    Ctx *cx = p->m->cx;
    const char *axis = hd_axis_name(p->axis), *name = hd_internf(cx, "comm.%s", axis);
    Symbol *s = hd_symbol_add(p->m, SYM_COMM, name, NULL);
    if (!s)
        return hd_error(cx, hd_symbol_find(p->m, name)->span,
                        "@%s is the name of a group of ranks; rename the module or the parameter", name);
    hd_set_axes(cx, &s->attrs, A_OVER, 1u << p->axis);
    hd_set_word(cx, &s->attrs, A_ON, hd_intern(cx, axis));
    p->comm = s;
    return true;
}

static bool partition(Partition *p) {
    if (!lay_out_params(p) || !add_comm(p)) return false;
    p->bound = p->gathered = p->moved = 0;
    if (HD_EXPERT_AXES >> p->axis & 1) hd_experts_transport(p);
    for (Func *f = p->m->funcs; f; f = f->next)
        if (!f->is_kernel && !partition_func(p, f)) return false;
    if (!(HD_EXPERT_AXES >> p->axis & 1)) warn_of_whole_attention(p);
    Symbol *schedule = hd_symbol_find(p->m, "schedule");
    if (p->bound && schedule) hd_set_ints(p->m->cx, &schedule->attrs, A_MOVED, 2, (int64_t[]){p->gathered, p->moved});
    for (Symbol *s = p->m->symbols; s; s = s->next)
        if (s->kind == SYM_PARAM)
            s->type = hd_type_part(p->m->cx, s->type,
                                   hd_layout_with(0, p->axis, hd_layout_at(s->layout, p->axis)), &p->mesh);
    return true;
}

// Logits would stay split over the vocabulary, and what a function returns by its layout; a program reads them whole.
static bool no_logits(const Module *m) {
    Func *f;
    if (!hd_func_of_kind(m, KIND_LOGITS, &f)) return false;
    const Mesh mesh = hd_mesh(m);
    const char *own = hd_axes_text(m->cx->arena, hd_mesh_live(&mesh) & HD_OWN_AXES);
    const Func *call = m->funcs;
    while (call && hd_kind(&call->attrs) != KIND_CALL) call = call->next;
    if (call)
        return hd_error(m->cx, call->span,
                        "schedule.functions has '%s', and a mesh with several ranks along %s leaves each of them a "
                        "part of its values: compile another program for it, with one rank along %s; it reads the same "
                        "checkpoints", call->name, own, own);
    return !f || hd_error(m->cx, f->span,
                          "schedule.logits = on, and a mesh with several ranks along %s leaves each of them a part of "
                          "the logits: compile another program for what the model writes, with one rank along %s; it "
                          "reads the same checkpoints", own, own);
}

// schedule.sequence = on, which splits nothing here.
static bool no_sequence(const Partition *p, Axes own) {
    const Attr *on = hd_attr(hd_settings(p->m, "schedule"), A_SEQUENCE);
    if (!on || p->by_positions) return true;
    if (!own)
        return hd_error(p->m->cx, (Span){0}, "schedule.sequence = on splits positions over the ranks along tensor, and "
                        "the mesh has one: set schedule.mesh.tensor, or sequence = off");
    return hd_error(p->m->cx, (Span){0}, "schedule.sequence = on, and no value [batch, positions, ..] of the model is "
                    "a sum over ranks, which it would split: set sequence = off");
}

Change hd_pass_tensor_parallel(Module *m, PassCx *cx) {
    Partition p = {.m = m, .cx = cx, .mesh = hd_mesh(m)};
    const Axes own = hd_mesh_live(&p.mesh) & HD_OWN_AXES;
    bool changed = own != 0;
    if (own && !no_logits(m)) return FAILED;
    if (own) hd_program_declare(m, cx->scratch); // what the plan of a rank has to compute together with the others
    for (p.axis = 0; p.axis < N_AXES; p.axis++)
        if (own >> p.axis & 1 && !partition(&p)) return FAILED;
    if (!no_sequence(&p, own & ~(Axes)HD_DATA_AXES)) return FAILED;
    for (Func *f = m->funcs; f; f = f->next)
        for (Op *o = f->is_kernel ? NULL : f->first; o; o = o->next)
            for (int a = 0; a < N_AXES; a++)
                if (own >> a & 1) say_dimension(&p, o, a);
    for (Symbol *s = m->symbols; s; s = s->next) {
        if (s->kind != SYM_PARAM || !hd_has(&s->attrs, A_DIMS)) continue;
        hd_unset(&s->attrs, A_OVER);
        hd_unset(&s->attrs, A_DIMS);
        changed = true;
    }
    hd_count(cx, "collectives", p.collectives);
    return changed ? CHANGED : UNCHANGED;
}
