// Local simplification: one walk in program order; each op is rewritten by the rules of simplify.def until none
// applies. Operands are simplified before the ops that read them, so one walk is enough.
//   %1 = neg %0        %3 = matmul %x, %w {tb}
//   %2 = neg %1    ->
//   %t = transpose %w {perm = [1, 0]}
//   %3 = matmul %2, %t
// Ops that are no longer used are left for dce.
#include "ir/affine.h"
#include "ir/eval/eval.h"
#include "ir/mesh.h"
#include "ir/shapes.h"
#include "passes/pass.h"
#include "passes/settings.h"
#include <math.h>
#include <stdlib.h>

typedef struct {
    Func *f;
    Arena *scratch;
    VEC(Value *) now; // by value id: its replacement, or NULL
    VEC(int) uses;    // by value id: at most so many readers
    Op *next;         // where the walk continues
} Simplifier;

static Value *current(const Simplifier *s, Value *v) {
    return v->id < s->now.n && s->now.at[v->id] ? s->now.at[v->id] : v;
}
static Op *producer(const Value *v, OpKind k) { return v->def && v->def->kind == k ? v->def : NULL; }

// --- patterns
static bool is_any(const Value *v) { return v != NULL; }
static bool is_none(const Value *v) { return v == NULL; }
static bool is_constant(const Value *v) { return v && producer(v, OP_CONST); }
static bool is_variable(const Value *v) { return v && !producer(v, OP_CONST); }
static bool is_neg(const Value *v) { return v && producer(v, OP_NEG); }
static bool is_reshape(const Value *v) { return v && producer(v, OP_RESHAPE); }
static bool is_broadcast(const Value *v) { return v && producer(v, OP_BROADCAST); }
static bool is_transpose(const Value *v) { return v && producer(v, OP_TRANSPOSE); }
static bool is_slice(const Value *v) { return v && producer(v, OP_SLICE); }
static bool is_convolution(const Value *v) {
    return v && v->def && hd_op_is(v->def, TRAIT_CONVOLUTION) && !hd_is_backward(v->def);
}
static bool is_iota(const Value *v) { return v && producer(v, OP_IOTA); }
static bool is_matmul(const Value *v) { return v && producer(v, OP_MATMUL); }

static double constant_of(const Value *v) { return hd_round(v->type->dtype, hd_float(&v->def->attrs, A_VALUE, 0)); }
static bool is_known(const Value *v) { return is_constant(v) && !hd_has(&v->def->attrs, A_PER_RANK); }
static bool is_zero(const Value *v) { return is_known(v) && constant_of(v) == 0; }
static bool is_one(const Value *v) { return is_known(v) && constant_of(v) == 1; }

static bool is_power_of_two(const Value *v) { // whose inverse is a normal number of every dtype: exact to multiply by
    int exponent;
    return is_known(v) && isfinite(constant_of(v)) && fabs(frexp(constant_of(v), &exponent)) == 0.5 &&
           abs(exponent - 1) <= 14;
}

static bool is_widening(const Value *v) { // a cast that loses nothing
    const Op *o = v ? producer(v, OP_CAST) : NULL;
    if (!o || !hd_dtype_is_float(o->in[0]->type->dtype)) return false;
    DType from = o->in[0]->type->dtype, to = v->type->dtype;
    return from == to || to == TY_F64 || (to == TY_F32 && from != TY_F64);
}

// --- rules: each returns the value that replaces the op's result, the result itself where it rewrote the op, or NULL
static Value *take_left(Simplifier *s HD_UNUSED, Op *o) { return o->in[0]->type == o->out[0]->type ? o->in[0] : NULL; }

// Before precision, a cast to f32 that is to stay one whatever the compute dtype changes nothing yet.
static Value *take_same(Simplifier *s, Op *o) { return hd_has(&o->attrs, A_WIDE) ? NULL : take_left(s, o); }

static Value *keep_all(Simplifier *s, Op *o) { return hd_float(&o->attrs, A_P, 0) == 0 ? take_left(s, o) : NULL; }

static Value *take_inner(Simplifier *s HD_UNUSED, Op *o) { return o->in[0]->def->in[0]; }

static Value *skip_inner(Simplifier *s HD_UNUSED, Op *o) {
    o->in[0] = o->in[0]->def->in[0];
    return o->out[0];
}

// A reshape that says which dimension is split stays: without it, or with another operand, another one would be.
static Value *take_unsaid(Simplifier *s, Op *o) { return hd_has(&o->attrs, A_DIMS) ? NULL : take_left(s, o); }

static Value *skip_unsaid(Simplifier *s, Op *o) {
    return hd_has(&o->attrs, A_DIMS) || hd_has(&o->in[0]->def->attrs, A_DIMS) ? NULL : skip_inner(s, o);
}

// A parameter whose rows ranks have parts of, where values are not split by positions: a rank needs all rows, which
// the look-up adds up.
static bool has_some_rows(const Value *table) {
    while (table->def && table->def->kind == OP_CAST) table = table->def->in[0];
    const Module *m = table->def ? table->def->func->module : NULL;
    const Symbol *p = hd_param_read(table->def, 0);
    const Attr *over = p ? hd_attr(&p->attrs, A_OVER) : NULL, *dims = p ? hd_attr(&p->attrs, A_DIMS) : NULL;
    if (!over || !dims || hd_has(hd_settings(m, "schedule"), A_SEQUENCE)) return false;
    const Mesh mesh = hd_mesh(m);
    for (int i = 0; i < over->n && i < dims->n; i++) {
        const int axis = hd_axis_called(over->strs[i]);
        if (axis >= 0 && dims->ints[i] == 0 && mesh.size[axis] > 1) return true;
    }
    return false;
}

// Reads every row of a table in order, as learned positions are read: 0, 1, ... to its end.
static Value *take_table(Simplifier *s, Op *o) {
    return o->in[1]->type->rank == 1 && !has_some_rows(o->in[0]) ? take_left(s, o) : NULL;
}

// Gives the op other operands when its result type stays; undoes it otherwise.
static bool retarget(Op *o, Value *left, Value *right, const Attrs *attrs) {
    Op *probe = hd_op_new(o->func, o->kind, 2, (Value *[]){left, right});
    probe->attrs = attrs ? *attrs : o->attrs;
    if (hd_infer(probe, 0, NULL) || probe->n_out != 1 || probe->out[0]->type != o->out[0]->type) return false;
    o->in[0] = left;
    o->in[1] = right;
    o->attrs = probe->attrs;
    return true;
}

static Value *swap(Simplifier *s HD_UNUSED, Op *o) { return retarget(o, o->in[1], o->in[0], NULL) ? o->out[0] : NULL; }

static Value *constant(Op *o, const Type *t, double value) {
    Builder b = hd_builder_before(o);
    Attrs attrs = {0};
    hd_set_float(o->func->module->cx, &attrs, A_VALUE, value);
    return hd_build1(&b, OP_CONST, NULL, NULL, &attrs, t);
}

static Value *refill(Simplifier *s HD_UNUSED, Op *o) { // the op only moves or converts equal elements
    if (is_known(o->in[0]))
        return constant(o, o->out[0]->type, hd_round(o->out[0]->type->dtype, constant_of(o->in[0])));
    Builder b = hd_builder_before(o); // it is rounded when its value is known
    return hd_build1(&b, OP_CONST, NULL, NULL, &o->in[0]->def->attrs, o->out[0]->type);
}

static Value *multiply_by_inverse(Simplifier *s HD_UNUSED, Op *o) {
    Builder b = hd_builder_before(o);
    Value *inverse = constant(o, o->in[1]->type, 1 / constant_of(o->in[1]));
    return hd_build1(&b, OP_MUL, o->in[0], inverse, NULL, NULL);
}

static Value *drop_identity(Simplifier *s HD_UNUSED, Op *o) {
    const Attr *perm = hd_attr(&o->attrs, A_PERM);
    for (int i = 0; i < perm->n; i++)
        if (perm->ints[i] != i) return NULL;
    return o->in[0];
}

static Value *compose_transposes(Simplifier *s HD_UNUSED, Op *o) {
    const Op *inner = o->in[0]->def;
    const Attr *first = hd_attr(&inner->attrs, A_PERM), *second = hd_attr(&o->attrs, A_PERM);
    int64_t perm[HD_MAX_DIMS];
    for (int i = 0; i < second->n; i++) perm[i] = first->ints[second->ints[i]];
    hd_set_ints(o->func->module->cx, &o->attrs, A_PERM, second->n, perm);
    o->in[0] = inner->in[0];
    return o->out[0];
}

static Value *compose_slices(Simplifier *s HD_UNUSED, Op *o) {
    const Op *inner = o->in[0]->def;
    if (hd_int(&inner->attrs, A_AXIS, 0) != hd_int(&o->attrs, A_AXIS, 0)) return NULL;
    int64_t start = hd_int(&inner->attrs, A_START, 0) + hd_int(&o->attrs, A_START, 0);
    hd_set_int(o->func->module->cx, &o->attrs, A_START, start);
    o->in[0] = inner->in[0];
    return o->out[0];
}

// Whether all that is read of a convolution are parts of its columns, of which `o` is one, and no column twice.
static bool is_read_in_parts(const Simplifier *s, const Op *conv, const Op *o) {
    const Value *v = conv->out[0];
    int64_t wide = 0;
    int left = s->uses.at[v->id];
    for (; o && left > 0; o = o->next)
        for (int i = 0; i < o->n_in; i++) {
            if (current(s, o->in[i]) != v) continue;
            if (o->kind != OP_SLICE || hd_int(&o->attrs, A_AXIS, 0) != v->type->rank - 1) return false;
            wide += hd_int(&o->attrs, A_SIZE, 0);
            left--;
        }
    return !left && wide <= hd_type_cols(v->type);
}

// Columns of an operand as `o` takes them, whatever its rank; of a part the columns of the whole.
static Value *same_columns(Builder *b, const Op *o, Value *v) {
    Ctx *cx = o->func->module->cx;
    const Op *inner = producer(v, OP_SLICE);
    const bool part = inner && hd_int(&inner->attrs, A_AXIS, 0) == v->type->rank - 1;
    Attrs attrs = hd_attrs_copy(cx, &o->attrs);
    hd_set_int(cx, &attrs, A_AXIS, v->type->rank - 1);
    if (part) hd_set_int(cx, &attrs, A_START, hd_int(&attrs, A_START, 0) + hd_int(&inner->attrs, A_START, 0));
    return hd_build1(b, OP_SLICE, part ? inner->in[0] : v, NULL, &attrs, NULL);
}

// Columns of a convolution are a convolution of columns: nobody has to cut the result, nor to join its gradient.
static Value *convolve_columns(Simplifier *s, Op *o) {
    enum { MOST = 4 };
    const Op *conv = o->in[0]->def;
    Value *in[MOST];
    if (conv->n_in > MOST || hd_has(&conv->attrs, A_START) || !is_read_in_parts(s, conv, o)) return NULL;
    Builder b = hd_builder_before(o);
    for (int i = 0; i < conv->n_in; i++)
        in[i] = hd_dtype_is_float(conv->in[i]->type->dtype) ? same_columns(&b, o, conv->in[i]) : conv->in[i];
    b.loc = conv->loc, b.span = conv->span;
    s->uses.at[conv->out[0]->id]--;
    return hd_build(&b, conv->kind, conv->n_in, in, &conv->attrs, NULL)->out[0];
}

static bool swaps_two_axes(const Op *o) { // [1, 0]
    return o->kind == OP_TRANSPOSE && o->in[0]->type->rank == 2 && hd_attr(&o->attrs, A_PERM)->ints[0] == 1;
}

static void set_flag(Ctx *cx, Attrs *attrs, AttrId id, bool on) {
    if (on) hd_set_flag(cx, attrs, id);
    else hd_unset(attrs, id);
}

// A transposed matrix operand: the product reads it the other way round.
static Value *absorb(Op *o, int side) {
    const Op *t = o->in[side]->def;
    AttrId flag = side ? A_TB : A_TA;
    if (!swaps_two_axes(t) || hd_has(&o->attrs, A_SCALED)) return NULL; // its rows have the scales
    Ctx *cx = o->func->module->cx;
    Attrs attrs = hd_attrs_copy(cx, &o->attrs);
    set_flag(cx, &attrs, flag, !hd_has(&o->attrs, flag));
    return retarget(o, side ? o->in[0] : t->in[0], side ? t->in[0] : o->in[1], &attrs) ? o->out[0] : NULL;
}

static Value *absorb_left(Simplifier *s HD_UNUSED, Op *o) { return absorb(o, 0); }

static Value *absorb_right(Simplifier *s HD_UNUSED, Op *o) { return absorb(o, 1); }

// (a b)^T = b^T a^T, where nobody else reads a b.
static Value *transpose_product(Simplifier *s, Op *o) {
    const Op *product = o->in[0]->def;
    if (!swaps_two_axes(o) || s->uses.at[product->out[0]->id] != 1 || hd_has(&product->attrs, A_SCALED)) return NULL;
    Ctx *cx = o->func->module->cx;
    Op *fresh = hd_op_new(o->func, OP_MATMUL, 2, (Value *[]){product->in[1], product->in[0]});
    fresh->attrs = hd_attrs_copy(cx, &product->attrs);
    set_flag(cx, &fresh->attrs, A_TA, !hd_has(&product->attrs, A_TB));
    set_flag(cx, &fresh->attrs, A_TB, !hd_has(&product->attrs, A_TA));
    fresh->loc = product->loc;
    fresh->span = product->span;
    if (hd_infer(fresh, 0, NULL) || fresh->out[0]->type != o->out[0]->type) return NULL;
    hd_insert_before(o, fresh);
    return fresh->out[0];
}

// A pointwise op of constants, computed as the evaluator and both targets compute it. fsdp divides a per_rank constant
// by the number of ranks, and the result of folding it must be divided as well. So it may only be scaled, or added to
// another one.
static Value *fold(Op *o) {
    double x[3] = {0};
    int per_rank = 0;
    Affine in[3] = {{0}};
    if (!hd_op_is(o, TRAIT_ELEMENTWISE)) return NULL;
    for (int i = 0; i < o->n_in; i++) {
        if (!is_constant(o->in[i])) return NULL;
        x[i] = constant_of(o->in[i]);
        in[i] = is_known(o->in[i]) ? (Affine){true, x[i], 0} : (Affine){true, 0, 1};
        per_rank += !is_known(o->in[i]);
    }
    const Affine sum = hd_affine(o, in[0], in[1]);
    if (per_rank && (!sum.known || sum.constant != 0)) return NULL;
    DType d = o->out[0]->type->dtype;
    Value *v = constant(o, o->out[0]->type, hd_round(d, hd_eval_elt(o->kind, d != TY_F64, x[0], x[1], x[2])));
    if (per_rank) hd_set_flag(o->func->module->cx, &v->def->attrs, A_PER_RANK);
    return v;
}

typedef struct {
    OpKind op;
    bool (*left)(const Value *), (*right)(const Value *);
    Value *(*apply)(Simplifier *, Op *);
} Rule;
static const Rule rules[] = {
#define RULE(op, left, right, rule) {OP_##op, is_##left, is_##right, rule},
#include "passes/tensor/simplify.def"
#undef RULE
};

static Value *apply_rules(Simplifier *s, Op *o) {
    Value *v = fold(o);
    const Value *left = o->n_in > 0 ? o->in[0] : NULL, *right = o->n_in > 1 ? o->in[1] : NULL;
    for (size_t i = 0; !v && i < sizeof rules / sizeof *rules; i++)
        if (rules[i].op == o->kind && rules[i].left(left) && rules[i].right(right)) v = rules[i].apply(s, o);
    return v;
}

// Grows the tables for the values that rules made; those replace `old` and have no more readers than it had.
static void grow(Simplifier *s, const Value *old) {
    int uses = old && old->id < s->uses.n ? s->uses.at[old->id] : 0;
    while (s->now.n < s->f->n_values) {
        hd_push(s->scratch, &s->now, NULL);
        hd_push(s->scratch, &s->uses, uses);
    }
}

static int simplify_op(Simplifier *s, Op *o) {
    int fired = 0;
    for (int i = 0; i < o->n_in; i++) o->in[i] = current(s, o->in[i]);
    for (;;) {
        Value *old = o->n_out == 1 ? o->out[0] : NULL, *v = old ? apply_rules(s, o) : NULL;
        grow(s, old);
        if (!v) return fired;
        fired++;
        if (v == old) continue;
        s->now.at[old->id] = v;
        hd_erase(o);
        if (!v->def || v->def->next != s->next) return fired;
        o = v->def; // a new op in its place: more rules may apply
    }
}

static int simplify_func(Func *f, Arena *scratch) {
    int fired = 0;
    Simplifier s = {.f = f, .scratch = scratch};
    Uses uses = hd_uses(f, scratch);
    for (int i = 0; i < f->n_values; i++) {
        hd_push(scratch, &s.now, NULL);
        hd_push(scratch, &s.uses, uses.count[i]);
    }
    for (Op *o = f->first; o; o = s.next) {
        s.next = o->next;
        fired += simplify_op(&s, o);
    }
    hd_renumber(f);
    return fired;
}

Change hd_pass_simplify(Module *m, PassCx *cx) {
    int fired = 0;
    for (Func *f = m->funcs; f; f = f->next)
        if (!f->is_kernel) fired += simplify_func(f, cx->scratch);
    hd_count(cx, "rules applied", fired);
    return fired ? CHANGED : UNCHANGED;
}
