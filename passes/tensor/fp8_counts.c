// What FP8 loses, counted on request (schedule.fp8_counts): of every activation and every gradient that a micro-batch
// quantises the elements that become 0 and were not, those beyond the largest number of the type, and those that were
// not finite. The counts are values of the program, read from what the quantisation reads, so that they are the same
// under every schedule:
//   %q, %s = quantize %x {out = e4m3} : e4m3[4,16], f32[4]                                           ; as before
//   %i = div 1, %s;  %y = mul %x, %i : f32[4,16];  %a = abs %y;  %n = ne %x, 0
//   %0 = le %a, 2^-10;  %1 = mul %n, %0;  %2 = sum %1 {axes = [1]} : f32[4]                          ; became 0
//   %3 = ge %a, 464...;  %4 = abs %x;  %5 = le %4, 3.4e38;  %6 = mul %3, %5;  %7 = sum %6 {axes = [1]}  ; too large
//   %8 = eq %5, 0;  %9 = sum %8 {axes = [1]}                                                         ; not finite
//   %10 = concat %2, %7, %9 : f32[3,4];  %11 = sum %10 {axes = [1]} : f32[3]
//   return %loss, %11 {counted = [blocks.0.mlp.fc.input], counted_of = [64]}
// Sums of rows are integers below 2^24, and exact; those of whole values are up to there. Weights are not counted: with
// gather = fp8 no rank has the elements that they were.
#include "ir/shapes.h"
#include "passes/tensor/fp8_scales.h"
#include "passes/settings.h"
#include <math.h>
#include <string.h>

enum { JOINED = 16 }; // values that a kernel puts one after another

typedef struct {
    Value *x, *y; // before and after its scale divides it, in f32
    DType type;   // y is rounded to it
    const char *role; // NULL: an op rounds nothing so, or a weight
} Rounded;

typedef struct {
    Module *m;
    Arena *scratch;
    VEC(const char *) names;
    VEC(Value *) counts; // f32[HD_COUNTS] each
    VEC(int64_t) of;     // so many elements
} Counts;

static Value *number(Builder *b, double x) { return hd_build_number(b, TY_F32, x); }
static Value *in_f32(Builder *b, Value *v) { return hd_build_cast(b, v, TY_F32); }

// A number for each row of x, as a column.
static Value *column(Builder *b, Value *v, const Type *x) {
    Type t = *x;
    t.dim[t.rank - 1] = 1;
    return hd_build1(b, OP_RESHAPE, v, NULL, NULL, hd_type(b->f->module->cx, TY_F32, t.rank, t.dim));
}

static const Value *origin(const Value *v) {
    for (const Op *o = v->def; o && o->n_in; o = v->def) {
        if (!hd_op_is(o, TRAIT_MOVES | TRAIT_CARRIES) && !hd_op_is(o, TRAIT_ALIAS)) break;
        v = o->in[0];
    }
    return v;
}

static const char *role_of(const Value *from) {
    const Value *v = origin(from);
    if (v->def && hd_param_read(v->def, 0)) return NULL;
    return v->def && hd_has(&v->def->attrs, A_BWD) ? "gradient" : "input";
}

// x in blocks, [rows, blocks, 128] or, across rows, [blocks, 128, columns], and 1 / scale of each.
static void blocks(Builder *b, Value *x, Blocks k, Value *scale, Rounded *r) {
    Ctx *cx = b->f->module->cx;
    Value *inverse = hd_build1(b, OP_DIV, number(b, 1), scale, NULL, NULL);
    int64_t all[] = {k.rows, k.cols / HD_BLOCK, HD_BLOCK}, of[] = {k.rows, k.cols / HD_BLOCK, 1};
    if (k.across) all[0] = of[0] = k.rows / HD_BLOCK, all[1] = HD_BLOCK, of[1] = 1, all[2] = of[2] = k.cols;
    else inverse = hd_fp8_transposed(b, inverse);
    r->x = hd_build1(b, OP_RESHAPE, in_f32(b, x), NULL, NULL, hd_type(cx, TY_F32, 3, all));
    inverse = hd_build1(b, OP_RESHAPE, inverse, NULL, NULL, hd_type(cx, TY_F32, 3, of));
    r->y = hd_build1(b, OP_MUL, r->x, inverse, NULL, NULL);
}

// Of what is quantised again along the tokens, for the gradient of a weight.
static const char *role_across(const Value *from) {
    const char *role = role_of(from);
    return !role || strcmp(role, "gradient") ? "weight_input" : "weight_gradient";
}

// `second`: of the results of quantize_both the last two.
static Rounded rounded(Builder *b, Op *o, bool second) {
    Rounded r = {0};
    if (!o->n_out || !hd_dtype_is_fp8(o->out[0]->type->dtype)) return r;
    r.type = o->out[0]->type->dtype;
    if (o->kind == OP_QUANTIZE) {
        if (!(r.role = role_of(o->in[0]))) return r;
        r.x = in_f32(b, o->in[0]);
        Value *inverse = hd_build1(b, OP_DIV, number(b, 1), o->out[1], NULL, NULL);
        r.y = hd_build1(b, OP_MUL, r.x, column(b, inverse, r.x->type), NULL, NULL);
    } else if (o->kind == OP_QUANTIZE_BLOCKS || o->kind == OP_QUANTIZE_BOTH) {
        const bool across = hd_has(&o->attrs, A_ACROSS) || second;
        if (hd_has(&o->attrs, A_SQUARES)) return r; // of a weight
        r.role = across ? role_across(o->in[0]) : role_of(o->in[0]);
        if (r.role) blocks(b, o->in[0], hd_blocks(o->in[0]->type, false, across), o->out[second ? 3 : 1], &r);
    } else if (o->kind == OP_REQUANTIZE) {
        r.role = "weight_gradient";
        r.x = in_f32(b, o->in[0]);
        r.y = hd_build1(b, OP_MUL, r.x, column(b, o->in[1], r.x->type), NULL, NULL);
    } else if (o->kind == OP_CAST && o->in[0]->def && o->in[0]->def->kind == OP_MUL) { // fp8.c divides so
        r.y = o->in[0], r.x = r.y->def->in[0];
        r.role = role_of(r.x);
    }
    return r;
}

// Of each row: how many elements of a mask are 1.
static Value *ones(Builder *b, Value *mask, int64_t rows) {
    Attrs as = {0};
    hd_set_ints(b->f->module->cx, &as, A_AXES, 1, (int64_t[]){mask->type->rank - 1});
    Value *sums = hd_build1(b, OP_SUM, mask, NULL, &as, NULL);
    return hd_build1(b, OP_RESHAPE, sums, NULL, NULL, hd_type(b->f->module->cx, TY_F32, 2, (int64_t[]){1, rows}));
}

// The least number that would be rounded to more than the largest one, and half of the least one.
static double beyond(DType d) {
    const DTypeInfo *t = hd_dtype_info(d);
    int exponent;
    frexp(t->largest, &exponent);
    const double step = ldexp(1, exponent - 1 - t->mantissa), middle = t->largest + step / 2;
    const bool odd = fmod(t->largest / step, 2) != 0; // the middle is rounded to the even neighbour
    return odd ? middle : (double)nextafterf((float)middle, INFINITY);
}

static double half_of_least(DType d) {
    const DTypeInfo *t = hd_dtype_info(d);
    return ldexp(1, 1 - (1 << (t->exponent - 1)) - t->mantissa);
}

static Value *counted(Builder *b, const Rounded *r) {
    Ctx *cx = b->f->module->cx;
    const int64_t rows = hd_type_rows(r->y->type);
    Value *size = hd_build1(b, OP_ABS, r->y, NULL, NULL, NULL);
    Value *is = hd_build1(b, OP_NE, r->x, number(b, 0), NULL, NULL);
    Value *small = hd_build1(b, OP_LE, size, number(b, half_of_least(r->type)), NULL, NULL);
    Value *large = hd_build1(b, OP_GE, size, number(b, beyond(r->type)), NULL, NULL);
    Value *before = hd_build1(b, OP_ABS, r->x, NULL, NULL, NULL);
    Value *finite = hd_build1(b, OP_LE, before, number(b, hd_dtype_info(TY_F32)->largest), NULL, NULL);
    Value *other = hd_build1(b, OP_EQ, finite, number(b, 0), NULL, NULL);
    Value *of_rows[HD_COUNTS] = {ones(b, hd_build1(b, OP_MUL, is, small, NULL, NULL), rows),
                                 ones(b, hd_build1(b, OP_MUL, large, finite, NULL, NULL), rows), ones(b, other, rows)};
    Attrs along = {0}, across = {0};
    hd_set_int(cx, &along, A_AXIS, 0);
    hd_set_ints(cx, &across, A_AXES, 1, (int64_t[]){1});
    Value *all = hd_build(b, OP_CONCAT, HD_COUNTS, of_rows, &along, NULL)->out[0];
    return hd_build1(b, OP_SUM, all, NULL, &across, NULL);
}

// Chunks of a loss count at one place.
static void add(Counts *s, Builder *b, const char *name, Value *counts, int64_t of) {
    int i = 0;
    while (i < s->names.n && s->names.at[i] != name) i++;
    if (i < s->names.n) {
        s->counts.at[i] = hd_build1(b, OP_ADD, s->counts.at[i], counts, NULL, NULL);
        s->of.at[i] += of;
        return;
    }
    hd_push(s->scratch, &s->names, name);
    hd_push(s->scratch, &s->counts, counts);
    hd_push(s->scratch, &s->of, of);
}

static void walk(Counts *s, Func *f) {
    for (Op *o = f->first, *next; o; o = next) {
        next = o->next;
        Builder b = hd_builder_before(o);
        b.before = next;
        for (int i = 0; i < (o->kind == OP_QUANTIZE_BOTH ? 2 : 1); i++) {
            const Rounded r = rounded(&b, o, i);
            if (!r.role) continue;
            add(s, &b, hd_internf(s->m->cx, "%s.%s", o->loc.path, r.role), counted(&b, &r), hd_type_count(r.y->type));
        }
    }
}

static Value *joined(Builder *b, int n, Value **parts) {
    Attrs as = {0};
    hd_set_int(b->f->module->cx, &as, A_AXIS, 0);
    while (n > 1) {
        int made = 0;
        for (int at = 0; at < n; at += JOINED) {
            const int some = n - at < JOINED ? n - at : JOINED;
            parts[made++] = some == 1 ? parts[at] : hd_build(b, OP_CONCAT, some, parts + at, &as, NULL)->out[0];
        }
        n = made;
    }
    return parts[0];
}

Change hd_pass_fp8_counts(Module *m, PassCx *cx) {
    Counts s = {.m = m, .scratch = cx->scratch};
    Func *micro;
    if (strcmp(hd_word(hd_settings(m, "schedule"), A_FP8_COUNTS, "off"), "on") != 0) return UNCHANGED;
    if (!hd_func_of_kind(m, KIND_MICRO, &micro)) return FAILED;
    if (!micro || hd_n_counts(&hd_return(micro)->attrs)) return UNCHANGED;
    walk(&s, micro);
    if (!s.names.n) return UNCHANGED;
    Op *ret = hd_return(micro);
    Builder b = hd_builder_before(ret);
    Value **in = HD_NEWN(cx->scratch, Value *, ret->n_in + 1);
    for (int i = 0; i < ret->n_in; i++) in[i] = ret->in[i];
    in[ret->n_in] = joined(&b, s.counts.n, s.counts.at);
    Attrs as = hd_attrs_copy(m->cx, &ret->attrs);
    hd_set_words(m->cx, &as, A_COUNTED, s.names.n, s.names.at);
    hd_set_ints(m->cx, &as, A_COUNTED_OF, s.of.n, s.of.at);
    hd_build(&b, OP_RETURN, ret->n_in + 1, in, &as, NULL);
    hd_erase(ret);
    hd_renumber(micro);
    return CHANGED;
}
