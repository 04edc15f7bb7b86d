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
// With fp8_weights = once a weight has one form, that of the forward pass. With one scale for all of it the bytes are
// transposed, and that is all. Where it has scales of rows, the product for the gradient of activations
// adds over its rows, whose scales go into the gradient before that is quantised. The bytes are transposed. What the
// columns of a gradient were multiplied by divides the rows of the gradient of a weight that it makes:
//   %dx = matmul %dy, %w     ->     %e = mul %dy, %t : f32[4,8];  %c, %u = quantize %e {out = e4m3} : e4m3[4,8], f32[4]
//                                   %v = transpose %b : e4m3[16,8]
//                                   %dx = matmul %c, %v, %u, 1 {tb, scaled, out = bf16} : bf16[4,16]
// With fp8_scale = block each 128 elements of a row have a scale, and of a weight each 128 x 128, so that its transpose
// is that of the bytes and of the scales. The products for the gradients of weights add over tokens: for them the
// factors are quantised in blocks along the tokens, too, from what they were, by the op that makes the rows:
//   %a, %s = quantize_blocks %x {out = e4m3} : e4m3[128,256], f32[2,128]
//   %b, %t = quantize_blocks %w {out = e4m3, squares} : e4m3[512,256], f32[4,4]
//   %y = matmul %a, %b, %s, %t {tb, scaled, blocks, out = bf16} : bf16[128,512]
//   %a, %s, %c, %u = quantize_both %x {out = e4m3} : e4m3[128,256], f32[2,128], e4m3[256,128], f32[1,256]
// What makes logits, and what reads their gradient, is left to the pass fp8-heads: between the two they are cut
// (loss_chunks.c). A second run of either changes nothing.
#include "ir/machine/arch.h"
#include "ir/base/ints.h"
#include "ir/mesh.h"
#include "ir/shapes.h"
#include "passes/analysis/places.h"
#include "passes/settings.h"
#include "passes/tensor/fp8_scales.h"
#include <string.h>

// What the library's products need: bytes of a row, and the first architecture; of those with blocks, what divides
// their rows, and the only one.
enum { SIDE = 16, FIRST_ARCH = 90, ROWS_OF_BLOCKS = 4, BLOCKS_ARCH = 90 };

typedef struct {
    Module *m;
    Span train;
    Places places, except;
    bool whole, blocks;   // a scale for all of a factor; one for each block of it
    bool backward;        // products of the backward pass, too
    bool weights;         // and of those for the gradients of weights
    bool once;            // a weight has one form for both passes
    bool heads;           // products of heads, too
    DType gradients;      // what those make of the gradient
    Scaled *made[2];      // by value id: in e4m3, in e5m2
    Scaled *across[2];    // by value id: the transpose, in blocks; in e4m3, in e5m2
    Scaled *forms[2];     // by value id: the weight of a forward product, in e4m3; transposed before. Blocks: of any
    Scaled *back[2];      // by value id: the weight of a product of the backward pass; one with tb
    Value **now;          // by value id: what replaces it, or NULL
    Uses uses;            // of the values before the pass, which have ids below
    int n_before;         // this
    bool any, changed, failed; // any: a product is at a place
} Fp8;

static Value *transposed(Op *at, Value *v) {
    Builder b = hd_builder_before(at);
    return hd_fp8_transposed(&b, v);
}

// The parameter that a factor is, through casts; NULL: none.
static const Symbol *parameter(const Value *v) {
    while (v->def && v->def->kind == OP_CAST) v = v->def->in[0];
    return v->def && hd_param_read(v->def, 0) ? hd_op_param(v->def, 0) : NULL;
}

// Of products that multiply blocks: what 128 or 4 does not divide.
static const char *no_blocks(const Fp8 *s, Product p) {
    if (p.n % HD_BLOCK || p.k % HD_BLOCK)
        return hd_internf(s->m->cx,
                          "its factors have rows of %lld and make rows of %lld, and with fp8.scale = block %d has to "
                          "divide both; with fp8.scale = row it is %d", ll(p.k), ll(p.n), HD_BLOCK, SIDE);
    if (p.m % ROWS_OF_BLOCKS == 0) return NULL;
    return hd_internf(s->m->cx, "it has %lld rows, and with fp8.scale = block %d has to divide them", ll(p.m),
                      ROWS_OF_BLOCKS);
}

// The property that a product of these factors lacks; NULL: nothing.
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
    if (s->blocks) return no_blocks(s, p);
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

// A product that adds over the rows of both factors: the gradient of a weight.
static bool sums_rows(const Op *o) {
    return o->kind == OP_MATMUL && hd_has(&o->attrs, A_TA) && !hd_has(&o->attrs, A_TB);
}

// With blocks: a value that is quantised along the tokens, too.
static bool for_weights(Fp8 *s, const Value *v) {
    bool is = false;
    for (int i = 0; v->id < s->n_before && i < s->uses.count[v->id]; i++) {
        const Op *o = s->uses.users[v->id][i];
        is |= s->weights && sums_rows(o) && is_backward(s, o) && listed(s, o);
    }
    return is && hd_type_rows(v->type) % HD_BLOCK == 0;
}

static Scaled of_blocks(Fp8 *s, Builder *b, Value *v, DType d) {
    if (!for_weights(s, v)) return hd_fp8_of_blocks(b, v, d, OF_ROWS);
    return hd_fp8_of_both(b, v, d, &s->across[d == TY_E5M2][v->id]);
}

// A gradient is quantised where it is made: nothing that reads it before `at` keeps the two from being one kernel.
static Scaled quantised(Fp8 *s, Op *at, Value *v, DType d) {
    Scaled *known = v->id < s->n_before ? &s->made[d == TY_E5M2][v->id] : NULL;
    if (known && known->q) return *known;
    Builder b = hd_builder_before(at);
    if (known && v->def && hd_has(&v->def->attrs, A_BWD)) b.before = v->def->next;
    Value *columns = known && !s->whole && is_gradient(v) ? columns_of(s, v) : NULL;
    const Scaled made = s->blocks  ? of_blocks(s, &b, v, d)
                        : s->whole ? hd_fp8_of_tensor(&b, v, d)
                                   : hd_fp8_of_rows(&b, v, columns, d);
    if (known) *known = made;
    return made;
}

// Along the tokens, for the gradient of a weight: with what the other products read, of an activation in the forward
// pass, so that it can be kept instead of the activation; else for this product.
static Scaled quantised_across(Fp8 *s, Op *at, Value *v, DType d) {
    Scaled own = {0}, *known = v->id < s->n_before ? &s->across[d == TY_E5M2][v->id] : &own;
    for (int i = 0; !known->q && v->id < s->n_before && i < s->uses.count[v->id]; i++) {
        const Op *o = s->uses.users[v->id][i];
        if (o->in[0] == v && of_activations(s, o)) quantised(s, at, v, d);
    }
    Builder b = hd_builder_before(at);
    if (!known->q) *known = hd_fp8_of_blocks(&b, v, d, OF_COLUMNS);
    return *known;
}

// The second factor of a product in 128 x 128 blocks, from one quantisation for all products.
static Scaled squares(Fp8 *s, Op *o) {
    Value *w = o->in[1];
    const bool tb = hd_has(&o->attrs, A_TB);
    Builder b = hd_builder_before(o);
    if (w->id >= s->n_before) {
        const Scaled own = hd_fp8_of_blocks(&b, w, TY_E4M3, OF_SQUARES);
        return tb ? own : hd_fp8_turned(&b, own);
    }
    Scaled *stored = &s->forms[0][w->id], *turned = &s->forms[1][w->id];
    if (!stored->q) *stored = hd_fp8_of_blocks(&b, w, TY_E4M3, OF_SQUARES);
    if (!tb && !turned->q) *turned = hd_fp8_turned(&b, *stored);
    return tb ? *stored : *turned;
}

// --- products

// With `once`: dy times a weight in the form of the forward pass.
static void serve(Fp8 *s, Op *o, Scaled w, Value **in) {
    Scaled dy = quantised(s, o, o->in[0], s->gradients);
    Builder b = hd_builder_before(o);
    if (!s->whole && dy.columns != w.scale) // another weight multiplies it, too
        dy = hd_fp8_of_rows(&b, o->in[0], w.scale, s->gradients);
    in[0] = dy.q, in[2] = dy.scale;
    Scaled *back = &s->back[hd_has(&o->attrs, A_TB)][o->in[1]->id];
    if (!back->q) {
        back->q = transposed(o, w.q);
        b = hd_builder_before(o);
        back->scale = s->whole ? w.scale : hd_fp8_constant(&b, 1, hd_type_rows(back->q->type));
    }
    in[1] = back->q, in[3] = back->scale;
}

// Both factors along what the product adds over; the second one for all products of a pass once, also those of chunks.
static void factors(Fp8 *s, Op *o, bool backward, Value **in) {
    const bool tb = hd_has(&o->attrs, A_TB);
    Value *w = o->in[1];
    Scaled own = {0}, *known = w->id >= s->n_before ? &own : backward ? &s->back[tb][w->id] : &s->forms[!tb][w->id];
    Value *b = known->q || tb ? w : transposed(o, w);
    const Scaled qa = quantised(s, o, o->in[0], backward ? s->gradients : TY_E4M3);
    if (!known->q) *known = quantised(s, o, b, TY_E4M3);
    in[0] = qa.q, in[1] = known->q, in[2] = qa.scale, in[3] = known->scale;
}

static void blocks(Fp8 *s, Op *o, bool backward, Value **in) {
    const Scaled a = quantised(s, o, o->in[0], backward ? s->gradients : TY_E4M3), b = squares(s, o);
    in[0] = a.q, in[1] = b.q, in[2] = a.scale, in[3] = b.scale;
}

// The attributes of a product of rows with scales in place of `o`.
static Attrs scaled(const Fp8 *s, const Op *o) {
    Attrs as = hd_attrs_copy(s->m->cx, &o->attrs);
    hd_unset(&as, A_TA);
    hd_set_flag(s->m->cx, &as, A_TB);
    hd_set_flag(s->m->cx, &as, A_SCALED);
    if (s->blocks) hd_set_flag(s->m->cx, &as, A_BLOCKS);
    return as;
}

static void quantise(Fp8 *s, Op *o) {
    const bool backward = is_backward(s, o);
    const Scaled form = backward ? form_of(s, o) : (Scaled){0};
    Value *in[4];
    if (s->blocks) blocks(s, o, backward, in);
    else if (form.q) serve(s, o, form, in);
    else factors(s, o, backward, in);
    Attrs as = scaled(s, o);
    if (!backward && !s->blocks) hd_set_flag(s->m->cx, &as, A_FAST);
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
    Value *both = hd_build1(&b, OP_MUL, dy_row, x_row, NULL, NULL), *least = hd_build_number(&b, TY_F32, 0x1p-100);
    Value *scale = hd_fp8_highest(&b, hd_build1(&b, OP_MAX, both, least, NULL, NULL), 1, 1, true);
    Value *factors = shaped(&b, hd_build1(&b, OP_DIV, both, scale, NULL, NULL), dy.scale->type);
    Attrs as = {0};
    hd_set_word(cx, &as, A_OUT, hd_dtype_text(dy.q->type->dtype));
    Value *q = hd_build1(&b, OP_REQUANTIZE, dy.q, factors, &as, NULL);
    scale = shaped(&b, scale, hd_type(cx, TY_F32, 0, NULL));
    if (dy.columns) scale = hd_build1(&b, OP_DIV, scale, dy.columns, NULL, NULL);
    return (Scaled){q, scale, dy.columns};
}

static bool weights_fit(Fp8 *s, const Op *o, Product p) {
    const bool tokens = s->blocks && p.k % HD_BLOCK;
    if (p.m % SIDE == 0 && p.n % SIDE == 0 && p.k % SIDE == 0 && !tokens) return true;
    s->failed = true;
    return hd_error(s->m->cx, o->span.lo ? o->span : s->train,
                    "fp8.weight_grads cannot multiply in %s: the gradient of weights of %lld x %lld adds up %lld rows, "
                    "and %d has to divide %s; choose train.batch and seq so, or leave the place out by fp8.except",
                    o->loc.path, ll(p.m), ll(p.n), ll(p.k), tokens ? HD_BLOCK : SIDE,
                    tokens ? "them with fp8.scale = block" : "all three");
}

// Of a factor x transposed and dy, or of dy transposed and x.
static void weights_gradient(Fp8 *s, Op *o) {
    const Product p = hd_product(o);
    if (!weights_fit(s, o, p)) return;
    const int dy = is_gradient(o->in[0]) ? 0 : 1;
    Scaled q[2];
    Builder at = hd_builder_before(o);
    if (s->blocks) {
        for (int i = 0; i < 2; i++) q[i] = quantised_across(s, o, o->in[i], i == dy ? s->gradients : TY_E4M3);
    } else {
        q[dy] = quantised(s, o, o->in[dy], s->gradients), q[!dy] = quantised(s, o, o->in[!dy], TY_E4M3);
        if (s->whole) {
            q[dy].q = transposed(o, q[dy].q);
        } else {
            q[dy] = of_columns(o, q[dy], q[!dy]);
            q[!dy].scale = q[dy].columns ? hd_fp8_constant(&at, 1, dy ? p.m : p.n) : hd_build_number(&at, TY_F32, 1);
        }
        q[!dy].q = transposed(o, q[!dy].q);
    }
    Attrs as = scaled(s, o);
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
    for (int d = 0; d < 2; d++) s->across[d] = HD_NEWN(scratch, Scaled, f->n_values + 1);
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
            if (sums_rows(o) && s->weights) weights_gradient(s, o);
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
    if (arch >= FIRST_ARCH && s->blocks && arch != BLOCKS_ARCH)
        return hd_error(s->m->cx, s->train,
                        "fp8.scale = block needs the architecture sm_%d: cuBLASLt multiplies blocks of %d elements "
                        "with scales for no other, and the target is sm_%d; set fp8.scale = row", BLOCKS_ARCH, HD_BLOCK,
                        arch);
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
    if (s->blocks) hd_puts(&text, " by blocks");
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
    s.blocks = !strcmp(hd_word(train, A_FP8_SCALE, "row"), "block");
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
    if (s.once && !s.backward) {
        hd_error(m->cx, s.train, "fp8.weights = once is for the products of the backward pass that read weights, and "
                                 "they are not fp8: set fp8.backward to e4m3 or e5m2");
        return FAILED;
    }
    if (s.blocks && !strcmp(hd_word(train, A_GATHER, "compute"), "fp8")) {
        hd_error(m->cx, s.train, "gather = fp8 sends rows or whole weights with one scale each, and with fp8.scale = "
                                 "block 128 rows share the scales of their blocks: set fp8.scale = row or tensor, or "
                                 "gather = compute");
        return FAILED;
    }
    if (s.blocks) s.once = false; // one form in any case
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
