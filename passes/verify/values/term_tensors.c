// The terms of what ranks quantize with one scale before they send it (rule 10): those of the ops that say it of the
// whole tensor. These are built here, in a function that belongs to no module, for the rules that every op has.
#include "ir/shapes.h"
#include "passes/verify/values/terms.h"

enum { MOST_OPS = 12 };
typedef struct {
    const Terms *t;
    Builder b;
    const Term *made[MOST_OPS + 1]; // by value id
} Steps;

static Value *step(Steps *s, OpKind k, Value *x, Value *y, const Attrs *as, const Type *type) {
    Value *v = hd_build1(&s->b, k, x, y, as, type);
    const Term *in[2];
    if (v->id > MOST_OPS) HD_BUG("more than %d ops quantize a tensor", MOST_OPS);
    for (int i = 0; i < v->def->n_in; i++) in[i] = s->made[v->def->in[i]->id];
    s->made[v->id] = hd_term_of(s->t, v->def, 0, in);
    return v;
}

static Value *number(Steps *s, double x) {
    Attrs as = {0};
    hd_set_float(s->t->cx, &as, A_VALUE, x);
    return step(s, OP_CONST, NULL, NULL, &as, hd_type(s->t->cx, TY_F32, 0, NULL));
}

static Value *cast(Steps *s, Value *v, DType d) {
    Attrs as = {0};
    hd_set_word(s->t->cx, &as, A_OUT, hd_dtype_text(d));
    return v->type->dtype == d ? v : step(s, OP_CAST, v, NULL, &as, NULL);
}

static Value *largest(Steps *s, Value *v) {
    Attrs as = {0};
    int64_t axes[HD_MAX_DIMS];
    for (int i = 0; i < v->type->rank; i++) axes[i] = i;
    hd_set_ints(s->t->cx, &as, A_AXES, v->type->rank, axes);
    return cast(s, step(s, OP_REDUCE_MAX, step(s, OP_ABS, v, NULL, NULL, NULL), NULL, &as, NULL), TY_F32);
}

const Term *hd_term_tensor(const Terms *t, const Module *m, const Term *x, bool scale) {
    Func f = {.name = "tensor", .module = (Module *)m, .n_values = 1};
    Value *v = HD_NEW(t->cx->arena, Value);
    *v = (Value){.type = x->type, .func = &f};
    Steps s = {.t = t, .b = {.f = &f}, .made = {x}};
    Value *at_least = step(&s, OP_MAX, largest(&s, v), number(&s, 0x1p-100), NULL, NULL);
    Value *of = step(&s, OP_DIV, at_least, number(&s, hd_dtype_info(TY_E4M3)->largest), NULL, NULL);
    if (scale) return s.made[of->id];
    Value *inverse = step(&s, OP_DIV, number(&s, 1), of, NULL, NULL);
    return s.made[cast(&s, step(&s, OP_MUL, cast(&s, v, TY_F32), inverse, NULL, NULL), TY_E4M3)->id];
}
