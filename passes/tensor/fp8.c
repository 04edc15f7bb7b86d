// Products at the places of `train.precision.fp8` multiply numbers of one byte. Both factors are quantised with a scale
// for each row, or for all of the factor, a value once for all products that read it; the result keeps its dtype.
//   %y = matmul %x, %w {tb} : bf16[4,8]    ->    %a, %s = quantize %x {out = e4m3} : e4m3[4,16], f32[4]
//                                                %b, %t = quantize %w {out = e4m3} : e4m3[8,16], f32[8]
//                                                %y = matmul %a, %b, %s, %t {tb, scaled, fast, out = bf16} : bf16[4,8]
// With fp8_backward so do the products for the gradients of activations: the gradient of the result in that type times
// the weight, which is transposed before. A gradient is quantised where it is made, and one of equal parts part by
// part, with the scale of the whole row: so the kernel that makes it quantises it, too.
// The products for the gradients of weights read the factors as they were, or with fp8_weight_grads what is quantised
// already. They add over rows, so the scales of rows go into the gradient, which is rounded again with one scale for
// all of it; the other factor is only transposed:
//   %g = matmul %dy, %x {ta} : f32[8,16]   ->   %r = mul %s_dy, %s_x;  %t = largest of max %r, 2^-100
//                                               %f = div %r, %t;  %d = requantize %q_dy, %f {out = e4m3} : e4m3[8,4]
//                                               %v = transpose %q_x : e4m3[16,4]
//                                               %g = matmul %d, %v, %t, 1 {tb, scaled} : f32[8,16]
// With fp8_weights = once a weight has one form, that of the forward pass: the product for the gradient of activations
// adds over its rows, whose scales go into the gradient before that is quantised. The bytes are transposed. What the
// columns of a gradient were multiplied by divides the rows of the gradient of a weight that it makes:
//   %dx = matmul %dy, %w     ->     %e = mul %dy, %t : f32[4,8];  %c, %u = quantize %e {out = e4m3} : e4m3[4,8], f32[4]
//                                   %v = transpose %b : e4m3[16,8]
//                                   %dx = matmul %c, %v, %u, 1 {tb, scaled, out = bf16} : bf16[4,16]
// What makes logits, and what reads their gradient, is left to the pass fp8-heads: between the two they are cut
// (loss_chunks.c). A second run of either changes nothing.
#include "ir/machine/arch.h"
#include "ir/base/ints.h"
#include "ir/mesh.h"
#include "ir/shapes.h"
#include "passes/analysis/places.h"
#include "passes/pass.h"
#include "passes/settings.h"
#include <string.h>

enum { SIDE = 16, FIRST_ARCH = 90 }; // what the library's products need: bytes of a row, and the first architecture

typedef struct {
    Value *q, *scale;
    Value *columns; // of a gradient: what its columns were multiplied by before, the scales of a weight's rows; or NULL
} Scaled;
typedef struct {
    Module *m;
    Span train;
    Places places, except;
    bool whole, backward; // a scale for all of a factor; products of the backward pass, too
    bool weights;         // and of those for the gradients of weights
    bool once;            // a weight has one form for both passes
    bool heads;           // products of heads, too
    DType gradients;      // what those make of the gradient
    Scaled *made[2];      // by value id: in e4m3, in e5m2
    Scaled *forms[2];     // by value id: the weight of a forward product, in e4m3; transposed before
    Scaled *back[2];      // by value id: the weight of a product of the backward pass; one with tb
    Value **now;          // by value id: what replaces it, or NULL
    Uses uses;            // of the values before the pass, which have ids below
    int n_before;         // this
    bool any, changed, failed; // any: a product is at a place
} Fp8;

// --- quantised values

static Value *number(Builder *b, double x) { return hd_build_number(b, TY_F32, x); }

// Along `n` axes from `first` on; with `keep` they stay as axes of 1.
static Value *highest(Builder *b, Value *v, int first, int n, bool keep) {
    Ctx *cx = b->f->module->cx;
    int64_t axes[HD_MAX_DIMS];
    Attrs as = {0};
    for (int i = 0; i < n; i++) axes[i] = first + i;
    hd_set_ints(cx, &as, A_AXES, n, axes);
    if (keep) hd_set_flag(cx, &as, A_KEEP);
    return hd_build1(b, OP_REDUCE_MAX, v, NULL, &as, NULL);
}

// The largest |x|, in f32.
static Value *largest(Builder *b, Value *v, int first, int n, bool keep) {
    return hd_build_cast(b, highest(b, hd_build1(b, OP_ABS, v, NULL, NULL, NULL), first, n, keep), TY_F32);
}

// As quantize does it for a row.
static Value *scale_of(Builder *b, Value *most, DType d) {
    Value *least = number(b, 0x1p-100), *limit = number(b, hd_dtype_info(d)->largest);
    return hd_build1(b, OP_DIV, hd_build1(b, OP_MAX, most, least, NULL, NULL), limit, NULL, NULL);
}

static Value *inverse_of(Builder *b, Value *scale) {
    Value *one = number(b, 1);
    return hd_build1(b, OP_DIV, one, scale, NULL, NULL);
}

static Value *constant(Builder *b, double x, int64_t n) { // a vector
    Attrs as = {0};
    hd_set_float(b->f->module->cx, &as, A_VALUE, x);
    return hd_build1(b, OP_CONST, NULL, NULL, &as, hd_type(b->f->module->cx, TY_F32, 1, &n));
}

static Value *divided(Builder *b, Value *v, Value *inverse, DType d) {
    Value *x = hd_build_cast(b, v, TY_F32);
    return hd_build_cast(b, hd_build1(b, OP_MUL, x, inverse, NULL, NULL), d);
}

static Scaled of_tensor(Builder *b, Value *v, DType d) {
    Value *scale = scale_of(b, largest(b, v, 0, v->type->rank, false), d), *inverse = inverse_of(b, scale);
    return (Scaled){divided(b, v, inverse, d), scale, NULL};
}

// Of equal rows of pointwise work: one kernel makes all of them, and finds the largest of a row on the way.
static bool in_parts(const Value *v) {
    const Op *o = v->def;
    if (!o || o->kind != OP_CONCAT || v->type->rank < 2 || hd_int(&o->attrs, A_AXIS, 0) != v->type->rank - 1)
        return false;
    for (int i = 0; i < o->n_in; i++) {
        const Value *part = o->in[i];
        if (part->type != o->in[0]->type || !part->def || !hd_op_is(part->def, TRAIT_ELEMENTWISE)) return false;
    }
    return true;
}

// The op from which pointwise work of the backward pass makes a value.
static Op *source_of(const Value *v) {
    Op *o = v->def;
    for (int i = 0; i < o->n_in && hd_op_is(o, TRAIT_ELEMENTWISE); i++) {
        Op *def = o->in[i]->def;
        if (def && hd_has(&def->attrs, A_BWD) && !hd_op_is(def, TRAIT_CONSTANT)) o = def, i = -1;
    }
    return o;
}

// Part i of n of what the columns are multiplied by, times the columns, in f32. The part is taken before the work of
// which the columns are, which stays one kernel.
static Value *times_columns(Builder *b, Value *v, Value *columns, int i, int n) {
    const int64_t all = hd_type_count(columns->type);
    Attrs as = {0};
    hd_set_int(b->f->module->cx, &as, A_AXIS, 0);
    hd_set_int(b->f->module->cx, &as, A_START, all / n * i);
    hd_set_int(b->f->module->cx, &as, A_SIZE, all / n);
    if (n > 1) {
        Builder before = *b;
        before.before = source_of(v);
        columns = hd_build1(&before, OP_SLICE, columns, NULL, &as, NULL);
    }
    return hd_build1(b, OP_MUL, hd_build_cast(b, v, TY_F32), columns, NULL, NULL);
}

// The scale of a row is that of the largest element of all its parts.
static Scaled of_parts(Builder *b, Value *v, Value *columns, DType d) {
    const Op *o = v->def;
    const int last = v->type->rank - 1;
    Value *most = NULL, *q[HD_MAX_IN];
    for (int i = 0; i < o->n_in; i++) {
        q[i] = columns ? times_columns(b, o->in[i], columns, i, o->n_in) : o->in[i];
        Value *m = largest(b, q[i], last, 1, true);
        most = most ? hd_build1(b, OP_MAX, most, m, NULL, NULL) : m;
    }
    Value *scale = scale_of(b, most, d), *inverse = inverse_of(b, scale);
    for (int i = 0; i < o->n_in; i++) q[i] = divided(b, q[i], inverse, d);
    Attrs as = {0};
    hd_set_int(b->f->module->cx, &as, A_AXIS, last);
    Value *rows = hd_build1(b, OP_RESHAPE, scale, NULL, NULL,
                            hd_type(b->f->module->cx, TY_F32, last, v->type->dim));
    return (Scaled){hd_build(b, OP_CONCAT, o->n_in, q, &as, NULL)->out[0], rows, columns};
}

static Scaled of_rows(Builder *b, Value *v, Value *columns, DType d) {
    if (in_parts(v)) return of_parts(b, v, columns, d);
    if (columns) v = times_columns(b, v, columns, 0, 1);
    Attrs as = {0};
    hd_set_word(b->f->module->cx, &as, A_OUT, hd_dtype_text(d));
    const Op *q = hd_build(b, OP_QUANTIZE, 1, &v, &as, NULL);
    return (Scaled){q->out[0], q->out[1], columns};
}

static Value *transposed(Fp8 *s, Op *at, Value *v) { // as a matrix
    Builder b = hd_builder_before(at);
    Attrs as = {0};
    hd_set_ints(s->m->cx, &as, A_PERM, 2, (int64_t[]){1, 0});
    const int64_t dim[] = {hd_type_rows(v->type), hd_type_cols(v->type)};
    if (v->type->rank != 2) v = hd_build1(&b, OP_RESHAPE, v, NULL, NULL, hd_type(s->m->cx, v->type->dtype, 2, dim));
    return hd_build1(&b, OP_TRANSPOSE, v, NULL, &as, NULL);
}

// The property that a product of these factors lacks; NULL: nothing.
// The parameter that a factor is, through casts; NULL: none.
static const Symbol *parameter(const Value *v) {
    while (v->def && v->def->kind == OP_CAST) v = v->def->in[0];
    return v->def && hd_param_read(v->def, 0) ? hd_op_param(v->def, 0) : NULL;
}

static const char *unfit(const Fp8 *s, const Op *o) {
    if (o->kind != OP_MATMUL)
        return hd_internf(s->m->cx, "%s has no kernel with scales", hd_op_info(o->kind)->mnemonic);
    const Symbol *weight = parameter(o->in[1]);
    const Mesh mesh = hd_mesh(s->m);
    const Axes over = weight ? hd_axes(&weight->attrs, A_OVER) : 0;
    if (over && hd_mesh_ranks(&mesh, over) > 1)
        return hd_internf(s->m->cx, "ranks split @%s over %s, and its products have no scales unless "
                                    "schedule.mesh.%s = 1", weight->name, hd_axes_text(s->m->cx->arena, over),
                          hd_axes_text(s->m->cx->arena, over & -over));
    if (hd_has(&o->attrs, A_TA)) return hd_internf(s->m->cx, "its first factor is transposed");
    if (!hd_has(&o->attrs, A_TB) && o->in[1]->type->rank != 2)
        return hd_internf(s->m->cx, "its second factor is no matrix");
    const Product p = hd_product(o);
    if (p.n % SIDE == 0 && p.k % SIDE == 0) return NULL;
    return hd_internf(s->m->cx, "its factors have rows of %lld and make rows of %lld, and %d has to divide both",
                      ll(p.k), ll(p.n), SIDE);
}

// The innermost place around a product decides; of one that is in both lists, `except` does.
static bool listed(Fp8 *s, const Op *o) {
    const int inside = hd_place_of(&s->places, o->loc.path, NULL);
    const bool it_is = inside && hd_place_of(&s->except, o->loc.path, NULL) < inside;
    s->any |= it_is;
    return it_is;
}

static bool of_parameter(const Fp8 *s, const Value *v) {
    bool grad = false;
    for (int i = 0; i < s->uses.count[v->id]; i++) grad |= hd_param_added(s->uses.users[v->id][i], 0) != NULL;
    return grad;
}

// The loss of whose logits a value is the only use, through casts; NULL: it is none.
static const Op *loss_of(const Fp8 *s, const Value *v) {
    while (v->id < s->n_before && s->uses.count[v->id] == 1) {
        const Op *o = s->uses.users[v->id][0];
        if (hd_op_is(o, TRAIT_LOSS)) return o->in[0] == v ? o : NULL;
        if (o->kind != OP_CAST) return NULL;
        v = o->out[0];
    }
    return NULL;
}

// A product that makes logits or reads their gradient.
static bool of_head(const Fp8 *s, const Op *o) {
    if (loss_of(s, o->out[0])) return true;
    for (int i = 0; i < 2; i++) {
        const Value *v = o->in[i];
        while (v->def && v->def->kind == OP_CAST) v = v->def->in[0];
        if (v->def && hd_op_is(v->def, TRAIT_LOSS)) return true;
    }
    return false;
}

// Chunks of a loss compute its logits, too, between gradients.
static bool is_backward(const Fp8 *s, const Op *o) { return hd_has(&o->attrs, A_BWD) && !loss_of(s, o->out[0]); }

// Rows of a chunk are a part of what the forward pass has made.
static bool is_gradient(const Value *v) {
    while (v->def && (v->def->kind == OP_SLICE || hd_op_is(v->def, TRAIT_ALIAS))) v = v->def->in[0];
    return v->def && hd_has(&v->def->attrs, A_BWD);
}

// A product of the backward pass for the gradient of an activation, at a place.
static bool of_activations(Fp8 *s, const Op *o) {
    return o->kind == OP_MATMUL && is_backward(s, o) && !hd_has(&o->attrs, A_SCALED) && listed(s, o) &&
           !hd_has(&o->attrs, A_TA) && !of_parameter(s, o->out[0]) && !unfit(s, o);
}

// With `once`: the weight of such a product, as the forward pass quantised it: its rows are what the product adds over.
// q NULL: it has not.
static Scaled form_of(const Fp8 *s, const Op *o) {
    const Value *w = o->in[1];
    return s->once && w->id < s->n_before ? s->forms[hd_has(&o->attrs, A_TB)][w->id] : (Scaled){0};
}

// What the columns of a gradient are multiplied by: the scales of the first weight that multiplies it. NULL: none does.
static Value *columns_of(Fp8 *s, const Value *dy) {
    for (int i = 0; s->once && i < s->uses.count[dy->id]; i++) {
        const Op *o = s->uses.users[dy->id][i];
        if (o->in[0] != dy || !of_activations(s, o)) continue;
        const Scaled w = form_of(s, o);
        if (w.q) return w.scale;
    }
    return NULL;
}

// A gradient is quantised where it is made: nothing that reads it before `at` keeps the two from being one kernel.
static Scaled quantised(Fp8 *s, Op *at, Value *v, DType d) {
    Scaled *known = v->id < s->n_before ? &s->made[d == TY_E5M2][v->id] : NULL;
    if (known && known->q) return *known;
    Builder b = hd_builder_before(at);
    if (known && v->def && hd_has(&v->def->attrs, A_BWD)) b.before = v->def->next;
    Value *columns = known && is_gradient(v) ? columns_of(s, v) : NULL;
    const Scaled made = s->whole ? of_tensor(&b, v, d) : of_rows(&b, v, columns, d);
    if (known) *known = made;
    return made;
}

// --- products

// With `once`: dy times a weight in the form of the forward pass.
static void serve(Fp8 *s, Op *o, Scaled w, Value **in) {
    Scaled dy = quantised(s, o, o->in[0], s->gradients);
    Builder b = hd_builder_before(o);
    if (dy.columns != w.scale) dy = of_rows(&b, o->in[0], w.scale, s->gradients); // another weight multiplies it, too
    in[0] = dy.q, in[2] = dy.scale;
    Scaled *back = &s->back[hd_has(&o->attrs, A_TB)][o->in[1]->id];
    if (!back->q) {
        back->q = transposed(s, o, w.q);
        b = hd_builder_before(o);
        back->scale = constant(&b, 1, hd_type_rows(back->q->type));
    }
    in[1] = back->q, in[3] = back->scale;
}

// Both factors along what the product adds over; the second one for all products of a pass once, also those of chunks.
static void factors(Fp8 *s, Op *o, bool backward, Value **in) {
    const bool tb = hd_has(&o->attrs, A_TB);
    Value *w = o->in[1];
    Scaled own = {0}, *known = w->id >= s->n_before ? &own : backward ? &s->back[tb][w->id] : &s->forms[!tb][w->id];
    Value *b = known->q || tb ? w : transposed(s, o, w);
    const Scaled qa = quantised(s, o, o->in[0], backward ? s->gradients : TY_E4M3);
    if (!known->q) *known = quantised(s, o, b, TY_E4M3);
    in[0] = qa.q, in[1] = known->q, in[2] = qa.scale, in[3] = known->scale;
}

static void quantise(Fp8 *s, Op *o) {
    const bool backward = is_backward(s, o);
    const Scaled form = backward ? form_of(s, o) : (Scaled){0};
    Value *in[4];
    if (form.q) serve(s, o, form, in);
    else factors(s, o, backward, in);
    Attrs as = hd_attrs_copy(s->m->cx, &o->attrs);
    hd_set_flag(s->m->cx, &as, A_TB);
    hd_set_flag(s->m->cx, &as, A_SCALED);
    if (!backward) hd_set_flag(s->m->cx, &as, A_FAST);
    hd_set_word(s->m->cx, &as, A_OUT, hd_dtype_text(o->out[0]->type->dtype));
    Builder at = hd_builder_before(o);
    const Op *y = hd_build(&at, OP_MATMUL, 4, in, &as, NULL);
    s->now[o->out[0]->id] = y->out[0];
    hd_erase(o);
    s->changed = true;
}

static Value *shaped(Builder *b, Value *v, const Type *t) {
    return v->type == t ? v : hd_build1(b, OP_RESHAPE, v, NULL, NULL, t);
}

// The gradient with the scales of both factors' rows in it, as columns, and one scale for all of it, or, where the
// columns were multiplied before, one for each. The scales of rows are one row, so that one kernel finds the largest
// and divides by it.
static Scaled of_columns(Op *at, Scaled dy, Scaled x) {
    Builder b = hd_builder_before(at);
    Ctx *cx = b.f->module->cx;
    const Type *row = hd_type(cx, TY_F32, 2, (int64_t[]){1, hd_type_count(dy.scale->type)});
    Value *dy_row = shaped(&b, dy.scale, row), *x_row = shaped(&b, x.scale, row);
    Value *both = hd_build1(&b, OP_MUL, dy_row, x_row, NULL, NULL), *least = number(&b, 0x1p-100);
    Value *scale = highest(&b, hd_build1(&b, OP_MAX, both, least, NULL, NULL), 1, 1, true);
    Value *factors = shaped(&b, hd_build1(&b, OP_DIV, both, scale, NULL, NULL), dy.scale->type);
    Attrs as = {0};
    hd_set_word(cx, &as, A_OUT, hd_dtype_text(dy.q->type->dtype));
    Value *q = hd_build1(&b, OP_REQUANTIZE, dy.q, factors, &as, NULL);
    scale = shaped(&b, scale, hd_type(cx, TY_F32, 0, NULL));
    if (dy.columns) scale = hd_build1(&b, OP_DIV, scale, dy.columns, NULL, NULL);
    return (Scaled){q, scale, dy.columns};
}

// Of a factor x transposed and dy, or of dy transposed and x.
static void weights_gradient(Fp8 *s, Op *o) {
    const Product p = hd_product(o);
    if (p.m % SIDE || p.n % SIDE || p.k % SIDE) {
        hd_error(s->m->cx, o->span.lo ? o->span : s->train,
                 "fp8.weight_grads cannot multiply in %s: the gradient of weights of %lld x %lld adds up %lld rows, "
                 "and %d has to divide all three; choose train.batch and seq so, or leave the place out by fp8.except",
                 o->loc.path, ll(p.m), ll(p.n), ll(p.k), SIDE);
        s->failed = true;
        return;
    }
    const int dy = is_gradient(o->in[0]) ? 0 : 1;
    Scaled q[2];
    q[dy] = quantised(s, o, o->in[dy], s->gradients), q[!dy] = quantised(s, o, o->in[!dy], TY_E4M3);
    Builder at = hd_builder_before(o);
    if (s->whole) {
        q[dy].q = transposed(s, o, q[dy].q);
    } else {
        q[dy] = of_columns(o, q[dy], q[!dy]);
        q[!dy].scale = q[dy].columns ? constant(&at, 1, dy ? p.m : p.n) : number(&at, 1);
    }
    q[!dy].q = transposed(s, o, q[!dy].q);
    Attrs as = hd_attrs_copy(s->m->cx, &o->attrs);
    hd_unset(&as, A_TA);
    hd_set_flag(s->m->cx, &as, A_TB);
    hd_set_flag(s->m->cx, &as, A_SCALED);
    hd_set_word(s->m->cx, &as, A_OUT, hd_dtype_text(o->out[0]->type->dtype));
    const Op *y = hd_build(&at, OP_MATMUL, 4, (Value *[]){q[0].q, q[1].q, q[0].scale, q[1].scale}, &as, NULL);
    s->now[o->out[0]->id] = y->out[0];
    hd_erase(o);
    s->changed = true;
}

static void forward_product(Fp8 *s, Op *o) {
    const char *wrong = unfit(s, o);
    if (!wrong) {
        quantise(s, o);
        return;
    }
    hd_error(s->m->cx, o->span.lo ? o->span : s->train, "fp8 cannot multiply in %s: %s; fp8.except leaves places out",
             o->loc.path, wrong);
    s->failed = true;
}

static void walk(Fp8 *s, Func *f, Arena *scratch) {
    s->n_before = f->n_values;
    s->uses = hd_uses(f, scratch);
    for (int d = 0; d < 2; d++) s->made[d] = HD_NEWN(scratch, Scaled, f->n_values + 1);
    for (int t = 0; t < 2; t++) s->forms[t] = HD_NEWN(scratch, Scaled, f->n_values + 1);
    for (int t = 0; t < 2; t++) s->back[t] = HD_NEWN(scratch, Scaled, f->n_values + 1);
    s->now = HD_NEWN(scratch, Value *, f->n_values + 1);
    for (Op *o = f->first, *next; o; o = next) {
        next = o->next;
        for (int i = 0; i < o->n_in; i++)
            if (o->in[i]->id < s->n_before && s->now[o->in[i]->id]) o->in[i] = s->now[o->in[i]->id];
        if (!hd_op_is(o, TRAIT_MATMUL)) continue;
        const bool at_place = (s->backward || !is_backward(s, o)) && listed(s, o) && !hd_has(&o->attrs, A_SCALED);
        if (!at_place || (!s->heads && of_head(s, o))) continue;
        if (!is_backward(s, o)) {
            forward_product(s, o);
        } else {
            const bool sums_rows = hd_has(&o->attrs, A_TA) && !hd_has(&o->attrs, A_TB) && o->kind == OP_MATMUL;
            if (sums_rows && s->weights) weights_gradient(s, o);
            else if (of_activations(s, o)) quantise(s, o);
        }
    }
    if (s->changed) hd_renumber(f);
}

// --- the pass

static bool target_can(const Fp8 *s) {
    const Attrs *target = hd_settings(s->m, "target");
    if (strcmp(hd_word(target, A_TARGET, "host"), "cuda") || !hd_has(target, A_ARCH)) return true;
    const int arch = hd_target_arch(s->m).arch;
    if (arch >= FIRST_ARCH) return true;
    return hd_error(s->m->cx, s->train, "fp8 needs an architecture from sm_%d on, and the target is sm_%d", FIRST_ARCH,
                    arch);
}

static void add_paths(Out *text, const char *word, const Attr *paths) {
    if (paths) hd_printf(text, " %s", word);
    for (int i = 0; paths && i < paths->n; i++) hd_printf(text, " %s", paths->strs[i]);
}

static void mark_model(const Fp8 *s, Arena *scratch) { // what is rounded is another model
    const char *exact = hd_fingerprint(s->m);
    if (!exact) return;
    Out text = hd_out(scratch);
    hd_printf(&text, "%s with e4m3%s", exact, s->heads ? " in heads" : "");
    add_paths(&text, "in", s->places.paths);
    add_paths(&text, "except", s->except.paths);
    if (s->whole) hd_puts(&text, " by tensors");
    if (s->backward) hd_printf(&text, " backward %s", hd_dtype_text(s->gradients));
    if (s->weights) hd_puts(&text, " weights");
    if (s->once) hd_puts(&text, " once");
    hd_set_word(s->m->cx, &hd_config(s->m, "model")->attrs, A_FINGERPRINT,
                hd_hash(scratch, text.text, strlen(text.text)));
}

static Change change(Module *m, PassCx *cx, bool heads) {
    const Attrs *train = hd_settings(m, "train");
    const char *gradients = hd_word(train, A_FP8_BACKWARD, "");
    Fp8 s = {.m = m, .places = hd_train_places(m, A_FP8, cx->scratch),
             .except = hd_train_places(m, A_EXCEPT, cx->scratch),
             .whole = !strcmp(hd_word(train, A_FP8_SCALE, "row"), "tensor"), .heads = heads};
    if (!s.places.paths) return UNCHANGED;
    s.train = hd_symbol_find(m, "train")->span;
    s.backward = *gradients && hd_dtype_parse(gradients, &s.gradients);
    if (*gradients && (!s.backward || !hd_dtype_is_fp8(s.gradients))) {
        hd_error(m->cx, s.train, "fp8_backward = %s: gradients are multiplied in e4m3 or e5m2", gradients);
        return FAILED;
    }
    s.weights = strcmp(hd_word(train, A_FP8_WEIGHT_GRADS, "compute"), "compute") != 0;
    if (s.weights && !s.backward) {
        hd_error(m->cx, s.train, "fp8.weight_grads = fp8 multiplies gradients in the type that fp8.backward names: set "
                                 "fp8.backward to e4m3 or e5m2");
        return FAILED;
    }
    s.once = strcmp(hd_word(train, A_FP8_WEIGHTS, "each"), "each") != 0;
    if (s.once && (s.whole || !s.backward)) {
        hd_error(m->cx, s.train, s.whole ? "fp8.weights = once moves the scales of rows of weights into gradients, and "
                                           "with fp8.scale = tensor rows have none: set fp8.scale = row"
                                         : "fp8.weights = once is for the products of the backward pass that read "
                                           "weights, and they are not fp8: set fp8.backward to e4m3 or e5m2");
        return FAILED;
    }
    if (!target_can(&s)) return FAILED;
    for (Func *f = m->funcs; f; f = f->next)
        if (!f->is_kernel) walk(&s, f, cx->scratch);
    if (s.failed || !hd_places_found(&s.places, "it has no matmul of the forward pass") ||
        !hd_places_found(&s.except, "it has no matmul of a place of fp8"))
        return FAILED;
    if (!s.any) {
        hd_error(m->cx, s.train, "fp8.except leaves out every matmul of the places of fp8");
        return FAILED;
    }
    if (s.changed) mark_model(&s, cx->scratch);
    return s.changed ? CHANGED : UNCHANGED;
}

Change hd_pass_fp8(Module *m, PassCx *cx) { return change(m, cx, false); }
Change hd_pass_fp8_heads(Module *m, PassCx *cx) { return change(m, cx, true); }
