// Runs a function op by op: allocates each result, calls the op's rule, rounds the result to its dtype. Inside a kernel
// of kind `rows` values of half precision are kept in f32 until they leave it, as both code generators do; `cast`
// always rounds.
#include "ir/eval/eval.h"
#include "ir/eval/rules.h"
#include "ir/writes.h"
#include <math.h>
#include <tgmath.h>

// --- the meaning column, compiled twice
static double elt_f64(OpKind k, double a, double b, double c) {
    switch (k) {
#define R(x) ((double)(x))
#define ELT(id, mnemonic, n, traits, grad, flops, meaning)                                                             \
    case OP_##id:                                                                                                      \
        return meaning;
#include "ir/ops.def"
#undef R
    default: HD_BUG("%s is not a pointwise op", hd_op_info(k)->mnemonic);
    }
}

static float elt_f32(OpKind k, float a, float b, float c) {
    switch (k) {
#define R(x) ((float)(x))
#define ELT(id, mnemonic, n, traits, grad, flops, meaning)                                                             \
    case OP_##id:                                                                                                      \
        return meaning;
#include "ir/ops.def"
#undef R
    default: HD_BUG("%s is not a pointwise op", hd_op_info(k)->mnemonic);
    }
}

double hd_eval_elt(OpKind k, bool f32, double a, double b, double c) {
    return f32 ? (double)elt_f32(k, (float)a, (float)b, (float)c) : elt_f64(k, a, b, c);
}

// --- rounding
double hd_round(DType d, double v) {
    if (d == TY_F64) return v;
    if (d == TY_F32) return (double)(float)v;
    const DTypeInfo *t = hd_dtype_info(d);
    if (!t->exponent) return trunc(v);
    if (isnan(v) || v == 0.0) return v;
    const double beyond = copysign(t->saturates ? t->largest : (double)INFINITY, v);
    if (isinf(v)) return beyond;
    int exponent, least = 3 - (1 << (t->exponent - 1)); // of a normal number, as frexp counts
    frexp(v, &exponent);
    int unit = (exponent > least ? exponent : least) - (t->mantissa + 1);
    double r = ldexp(nearbyint(ldexp(v, -unit)), unit); // ties to even: the default rounding of nearbyint
    return fabs(r) > t->largest ? beyond : r;
}

static void round_tensor(const Eval *e, DType d, Tensor t) {
    if (e->mode == EVAL_EXACT && hd_dtype_is_float(d)) return;
    for (int64_t i = 0, n = hd_type_count(t.type); i < n; i++) t.data[i] = hd_round(d, t.data[i]);
}

// --- storage
Eval *hd_eval_new(const Module *m, EvalMode mode, Arena *a) {
    Eval *e = HD_NEW(a, Eval);
    e->module = m;
    e->mode = mode;
    e->arena = a;
    return e;
}

Tensor hd_tensor(Arena *a, const Type *t) {
    return (Tensor){t, HD_NEWN(a, double, hd_type_count(t) + 1)};
}

struct Stored *hd_eval_stored(Eval *e, const char *symbol) {
    for (int i = 0; i < e->stored.n; i++)
        if (strcmp(e->stored.at[i].name, symbol) == 0) return &e->stored.at[i];
    const Symbol *s = hd_symbol_find(e->module, symbol);
    if (!s || !s->type) HD_BUG("the evaluator was asked for @%s, which stores nothing", symbol);
    struct Stored fresh = {s->name, hd_tensor(e->arena, s->type), {s->type, NULL}};
    hd_push(e->arena, &e->stored, fresh);
    return &e->stored.at[e->stored.n - 1];
}

Tensor hd_eval_storage(Eval *e, const char *symbol) { return hd_eval_stored(e, symbol)->value; }
Tensor hd_eval_gradient(Eval *e, const char *param) { return hd_eval_stored(e, param)->grad; }

void hd_eval_clear_gradients(Eval *e) {
    for (int i = 0; i < e->stored.n; i++) e->stored.at[i].grad.data = NULL;
}

double *hd_eval_range(Eval *e, const char *symbol, int64_t offset, int64_t count) {
    Tensor t = hd_eval_stored(e, symbol)->value;
    return offset < 0 || offset > hd_type_count(t.type) - count ? NULL : t.data + offset;
}

const char *hd_eval_wrong(Eval *e, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    const char *text = hd_vsprintf(e->arena, fmt, ap);
    va_end(ap);
    return text;
}

// --- broadcasting
Steps hd_eval_steps(const Type *result, const Type *operand) {
    Steps s = {{0}};
    int64_t step = 1;
    for (int i = operand->rank - 1; i >= 0; i--) {
        int axis = i + result->rank - operand->rank;
        s.at[axis] = operand->dim[i] == 1 ? 0 : step;
        step *= operand->dim[i];
    }
    return s;
}

int64_t hd_eval_source(const Type *result, const Steps *s, int64_t index) {
    int64_t at = 0;
    for (int i = result->rank - 1; i >= 0; i--) {
        at += index % result->dim[i] * s->at[i];
        index /= result->dim[i];
    }
    return at;
}

const char *hd_eval_elementwise(Eval *e, const Op *o, const Tensor *in, Tensor *out) {
    Steps steps[3];
    for (int i = 0; i < o->n_in; i++) steps[i] = hd_eval_steps(out->type, in[i].type);
    bool f32 = e->mode == EVAL_ROUNDED && out->type->dtype != TY_F64;
    for (int64_t i = 0, n = hd_type_count(out->type); i < n; i++) {
        double x[3] = {0};
        for (int k = 0; k < o->n_in; k++) x[k] = in[k].data[hd_eval_source(out->type, &steps[k], i)];
        out->data[i] = hd_eval_elt(o->kind, f32, x[0], x[1], x[2]);
    }
    return NULL;
}

// --- functions
static const struct { OpKind of; EvalRule *rule; } rules[N_OPS] = {
#define ELT(id, ...) [OP_##id] = {.rule = hd_eval_elementwise},
#define OP(id, mnemonic, n_in, n_out, attrs, fields, doc) [OP_##id] = {.of = OP_##id, fields},
#define eval(x) .rule = hd_eval_##x,
#include "ir/ops.def"
};

// Writes a result to its buffer, or adds it there: one rounding either way.
static const char *write_into(Eval *e, const Write *w, Tensor t) {
    int64_t n = hd_type_count(t.type);
    double *to = hd_eval_range(e, w->buffer->name, w->at, n);
    if (!to) return hd_eval_wrong(e, "it leaves @%s", w->buffer->name);
    for (int64_t i = 0; i < n; i++) to[i] = w->adds ? to[i] + t.data[i] : t.data[i];
    round_tensor(e, t.type->dtype, (Tensor){t.type, to});
    return NULL;
}

static const char *run_op(Eval *e, const Op *o, Tensor *values) {
    Tensor in[HD_MAX_IN], out[HD_MAX_IN];
    int into = hd_has(&o->attrs, A_INTO);
    for (int i = 0; i < o->n_in; i++) in[i] = values[o->in[i]->id];
    for (int i = 0; i < o->n_out + into; i++) out[i] = hd_tensor(e->arena, hd_result_type(o, i));
    const char *wrong = rules[o->kind].rule ? rules[o->kind].rule(e, o, in, out) : NULL;
    Write w;
    for (int i = 0; !wrong && hd_next_write(o, &i, &w);)
        wrong = write_into(e, &w, out[w.value && !hd_moves(&w) ? w.value->index : 0]);
    const KindId kernel = o->func->is_kernel ? hd_kind(&o->func->attrs) : KIND_NONE;
    bool wide = (kernel == KIND_ROWS || kernel == KIND_PRODUCT) && o->kind != OP_CAST;
    for (int i = 0; i < o->n_out; i++) {
        Tensor t = out[i + into];
        DType d = t.type->dtype;
        if (wide && hd_dtype_is_float(d) && d != TY_F64) d = TY_F32;
        if (!hd_op_is(o, TRAIT_SOURCE)) round_tensor(e, d, t);
        values[o->out[i]->id] = t;
    }
    return wrong;
}

// The values of a function about to run; NULL with `wrong` set when an argument does not fit.
static Tensor *enter(Eval *e, const Func *f, const Tensor *in, const char **wrong) {
    Tensor *values = HD_NEWN(e->arena, Tensor, f->n_values + 1);
    for (int i = 0; i < f->n_args; i++) {
        if (in[i].type != f->args[i]->type) {
            *wrong =
                hd_eval_wrong(e, "argument %%%s of @%s is %s, but a %s was given", f->args[i]->name, f->name,
                              hd_type_text(e->module->cx, f->args[i]->type), hd_type_text(e->module->cx, in[i].type));
            return NULL;
        }
        values[f->args[i]->id] = in[i];
    }
    return values;
}

static void leave(Eval *e, const Func *f, const Tensor *values, Tensor *out) {
    const Op *ret = hd_return(f);
    for (int i = 0; ret && i < ret->n_in; i++) {
        out[i] = values[ret->in[i]->id];
        if (f->is_kernel) round_tensor(e, out[i].type->dtype, out[i]);
    }
}

const char *hd_eval_ranks(Eval *const *e, int n, const Func *f, const Tensor *const *in, Tensor *const *out) {
    const char *wrong = NULL;
    Tensor **values = HD_NEWN(e[0]->arena, Tensor *, n);
    for (int r = 0; r < n; r++) {
        if (!(values[r] = enter(e[r], f, in[r], &wrong))) return wrong;
        if (n > 1) e[r]->ranks = e, e[r]->rank = r, e[r]->n_ranks = n;
    }
    for (const Op *o = f->first; o; o = o->next) {
        for (int r = 0; r < n; r++) e[r]->values = values[r];
        for (int r = 0; r < n; r++)
            if ((wrong = run_op(e[r], o, values[r])))
                return hd_eval_wrong(e[r], "%s in @%s: %s", hd_op_info(o->kind)->mnemonic, f->name, wrong);
    }
    for (int r = 0; r < n; r++) leave(e[r], f, values[r], out[r]);
    return NULL;
}

const char *hd_eval(Eval *e, const Func *f, const Tensor *in, Tensor *out) {
    return hd_eval_ranks(&e, 1, f, &in, &out);
}

const char *hd_eval_launch(Eval *e, const Op *o, const Tensor *in, Tensor *out) {
    const char *name = hd_word(&o->attrs, A_KERNEL, "");
    const Func *f = hd_func_find(e->module, name);
    if (!f || !f->is_kernel) return hd_eval_wrong(e, "there is no kernel @%s", name);
    if (e->depth > 0) return hd_eval_wrong(e, "kernel @%s is launched from inside a kernel", name);
    e->depth++;
    const char *wrong = hd_eval(e, f, in, out);
    e->depth--;
    return wrong;
}
