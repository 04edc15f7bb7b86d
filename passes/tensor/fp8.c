// Forward products at the places of `train.precision.fp8` multiply e4m3. Both factors are quantised by rows, a value
// once for all products that read it, and the result keeps its dtype. The backward pass reads the factors as they were.
//   %y = matmul %x, %w {tb} : bf16[4,8]    ->    %qx, %sx = quantize %x {out = e4m3} : e4m3[4,16], f32[4]
//                                                %qw, %sw = quantize %w {out = e4m3} : e4m3[8,16], f32[8]
//                                                %y = matmul %qx, %qw, %sx, %sw {tb, scaled, out = bf16} : bf16[4,8]
// A second run changes nothing.
#include "ir/arch.h"
#include "ir/base/ints.h"
#include "ir/shapes.h"
#include "passes/analysis/places.h"
#include "passes/pass.h"
#include "passes/settings.h"
#include <string.h>

enum { SIDE = 16, FIRST_ARCH = 90 }; // what the library's products need: bytes of a row, and the first architecture

typedef struct {
    Module *m;
    Span train;
    Places places;
    bool *usable; // by place: a product of the forward pass is there
    Op **made;    // by value id: the op that quantises it, or NULL
    Value **now;  // by value id: what replaces it, or NULL
    int n_before; // values of the function before the pass have ids below this
    bool changed, failed;
} Fp8;

static Op *quantised(Fp8 *s, Op *at, Value *v) {
    Op **known = v->id < s->n_before ? &s->made[v->id] : NULL;
    if (known && *known) return *known;
    Builder b = hd_builder_before(at);
    Attrs as = {0};
    hd_set_word(s->m->cx, &as, A_OUT, hd_dtype_text(TY_E4M3));
    Op *q = hd_build(&b, OP_QUANTIZE, 1, &v, &as, NULL);
    if (known) *known = q;
    return q;
}

static Value *transposed(Fp8 *s, Op *at, Value *v) {
    Builder b = hd_builder_before(at);
    Attrs as = {0};
    hd_set_ints(s->m->cx, &as, A_PERM, 2, (int64_t[]){1, 0});
    return hd_build1(&b, OP_TRANSPOSE, v, NULL, &as, NULL);
}

// What a product of these factors lacks; NULL: nothing.
static const char *unfit(const Fp8 *s, const Op *o) {
    if (o->kind == OP_BMM) return hd_internf(s->m->cx, "bmm has no kernel with scales");
    if (hd_has(&o->attrs, A_TA)) return hd_internf(s->m->cx, "its first factor is transposed");
    if (!hd_has(&o->attrs, A_TB) && o->in[1]->type->rank != 2)
        return hd_internf(s->m->cx, "its second factor is no matrix");
    const Product p = hd_product(o);
    if (p.n % SIDE == 0 && p.k % SIDE == 0) return NULL;
    return hd_internf(s->m->cx, "its factors have rows of %lld and make rows of %lld, and %d has to divide both",
                      ll(p.k), ll(p.n), SIDE);
}

static void quantise(Fp8 *s, Op *o) {
    const char *wrong = unfit(s, o);
    if (wrong) {
        hd_error(s->m->cx, o->span.lo ? o->span : s->train, "fp8 cannot multiply in %s: %s", o->loc.path, wrong);
        s->failed = true;
        return;
    }
    Value *b = hd_has(&o->attrs, A_TB) ? o->in[1] : transposed(s, o, o->in[1]);
    const Op *qa = quantised(s, o, o->in[0]), *qb = quantised(s, o, b);
    Attrs as = hd_attrs_copy(s->m->cx, &o->attrs);
    hd_set_flag(s->m->cx, &as, A_TB);
    hd_set_flag(s->m->cx, &as, A_SCALED);
    hd_set_word(s->m->cx, &as, A_OUT, hd_dtype_text(o->out[0]->type->dtype));
    Builder at = hd_builder_before(o);
    const Op *y = hd_build(&at, OP_MATMUL, 4, (Value *[]){qa->out[0], qb->out[0], qa->out[1], qb->out[1]}, &as, NULL);
    s->now[o->out[0]->id] = y->out[0];
    hd_erase(o);
    s->changed = true;
}

static void walk(Fp8 *s, Func *f, Arena *scratch) {
    s->n_before = f->n_values;
    s->made = HD_NEWN(scratch, Op *, f->n_values + 1);
    s->now = HD_NEWN(scratch, Value *, f->n_values + 1);
    for (Op *o = f->first, *next; o; o = next) {
        next = o->next;
        for (int i = 0; i < o->n_in; i++)
            if (o->in[i]->id < s->n_before && s->now[o->in[i]->id]) o->in[i] = s->now[o->in[i]->id];
        if (!hd_op_is(o, TRAIT_MATMUL) || hd_has(&o->attrs, A_BWD)) continue;
        int place = -1;
        if (!hd_place_of(&s->places, o->loc.path, &place)) continue;
        s->usable[place] = true;
        if (!hd_has(&o->attrs, A_SCALED)) quantise(s, o);
    }
    if (s->changed) hd_renumber(f);
}

static bool places_used(const Fp8 *s) {
    bool all = true;
    for (int i = 0; i < s->places.paths->n; i++) {
        if (s->usable[i]) continue;
        hd_error(s->m->cx, s->train, "fp8 %s: no matrix product of the forward pass is there",
                 s->places.paths->strs[i]);
        all = false;
    }
    return all;
}

static bool target_can(const Fp8 *s) {
    const Attrs *target = hd_settings(s->m, "target");
    if (strcmp(hd_word(target, A_TARGET, "host"), "cuda") || !hd_has(target, A_ARCH)) return true;
    const int arch = hd_target_arch(s->m).arch;
    if (arch >= FIRST_ARCH) return true;
    return hd_error(s->m->cx, s->train, "fp8 needs an architecture from sm_%d on, and the target is sm_%d", FIRST_ARCH,
                    arch);
}

static void mark_model(Module *m, const Attr *paths, Arena *scratch) { // what is rounded is another model
    const char *exact = hd_fingerprint(m);
    if (!exact) return;
    Out text = hd_out(scratch);
    hd_printf(&text, "%s with e4m3 in", exact);
    for (int i = 0; i < paths->n; i++) hd_printf(&text, " %s", paths->strs[i]);
    hd_set_word(m->cx, &hd_config(m, "model")->attrs, A_FINGERPRINT, hd_hash(scratch, text.text, strlen(text.text)));
}

Change hd_pass_fp8(Module *m, PassCx *cx) {
    const Attr *paths = hd_attr(hd_settings(m, "train"), A_FP8);
    if (!paths || !paths->n) return UNCHANGED;
    Fp8 s = {.m = m, .train = hd_symbol_find(m, "train")->span,
             .places = hd_places_of(m, paths->n, paths->strs, cx->scratch),
             .usable = HD_NEWN(cx->scratch, bool, paths->n)};
    if (!target_can(&s)) return FAILED;
    for (Func *f = m->funcs; f; f = f->next)
        if (!f->is_kernel) walk(&s, f, cx->scratch);
    if (s.failed || !places_used(&s)) return FAILED;
    if (s.changed) mark_model(m, paths, cx->scratch);
    return s.changed ? CHANGED : UNCHANGED;
}
