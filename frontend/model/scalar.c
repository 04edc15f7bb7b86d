// Numbers known at compile time: sizes, attributes, factors. Integers are exact and checked for overflow; an integer
// division with a remainder gives a fraction, which is an error where an integer is needed.
#include "frontend/model/sema.h"
#include <math.h>

Val hd_val_int(int64_t i) { return (Val){.kind = VAL_INT, .i = i}; }
Val hd_val_float(double v) { return (Val){.kind = VAL_FLOAT, .f = v}; }
bool hd_val_is_number(Val v) { return v.kind == VAL_INT || v.kind == VAL_FLOAT; }
double hd_val_number(Val v) { return v.kind == VAL_INT ? (double)v.i : v.f; }

static const char *where(Front *f, const Instance *i) {
    return i->path[0] ? i->path : hd_sprintf(f->arena, "the model %s", i->decl->name);
}

const char *hd_val_text(Front *f, Val v) {
    Out o = hd_out(f->arena);
    switch (v.kind) {
    case VAL_BAD: return "nothing";
    case VAL_INT: return hd_sprintf(f->arena, "the integer %lld", (long long)v.i);
    case VAL_FLOAT:
        hd_puts(&o, "the number ");
        hd_put_float(&o, v.f);
        return o.text;
    case VAL_TEXT:
        return v.n <= 40 ? hd_sprintf(f->arena, "the text \"%s\"", v.text)
                         : hd_sprintf(f->arena, "the text \"%.40s...\" of %d characters", v.text, v.n);
    case VAL_LIST: return hd_sprintf(f->arena, "a list of %d value%s", v.n, v.n == 1 ? "" : "s");
    case VAL_TENSOR: return hd_sprintf(f->arena, "a tensor %s", hd_type_text(f->cx, v.tensor->type));
    case VAL_INSTANCE: return hd_sprintf(f->arena, "the module %s", where(f, v.instance));
    case VAL_REPEAT: return hd_sprintf(f->arena, "%d repeated modules", v.n);
    case VAL_FN: return hd_sprintf(f->arena, "the function %s", v.fn->name);
    }
    return "nothing";
}

static Val overflow(Front *f, Span s, Operator op, Val l, Val r) {
    hd_front_error(f, s, "integer overflow: %lld %s %lld exceeds 64 bits", (long long)l.i, hd_operator_text(op),
                   (long long)r.i);
    return (Val){0};
}

static Val divide(Front *f, Span s, Operator op, Val l, Val r) {
    if (r.i == 0) {
        hd_front_error(f, s, "division by zero: %lld %s 0", (long long)l.i, hd_operator_text(op));
        return (Val){0};
    }
    if (l.i == INT64_MIN && r.i == -1) return overflow(f, s, op, l, r);
    if (op == BIN_REM) return hd_val_int(l.i % r.i);
    if (l.i % r.i == 0) return hd_val_int(l.i / r.i);
    return (Val){.kind = VAL_FLOAT, .inexact = true, .f = (double)l.i / (double)r.i, .num = l.i, .den = r.i};
}

static Val integers(Front *f, Span s, Operator op, Val l, Val r) {
    int64_t i = 0;
    switch (op) {
    case BIN_ADD: return __builtin_add_overflow(l.i, r.i, &i) ? overflow(f, s, op, l, r) : hd_val_int(i);
    case BIN_SUB: return __builtin_sub_overflow(l.i, r.i, &i) ? overflow(f, s, op, l, r) : hd_val_int(i);
    case BIN_MUL: return __builtin_mul_overflow(l.i, r.i, &i) ? overflow(f, s, op, l, r) : hd_val_int(i);
    default: return divide(f, s, op, l, r);
    }
}

static int three_way(Val l, Val r) {
    if (l.kind == VAL_INT && r.kind == VAL_INT) return (l.i > r.i) - (l.i < r.i);
    double a = hd_val_number(l), b = hd_val_number(r);
    return (a > b) - (a < b);
}

static bool is_zero(Val v) { return three_way(v, hd_val_int(0)) == 0; }

static bool compare(Operator op, Val l, Val r) {
    int order = three_way(l, r);
    switch (op) {
    case BIN_EQ: return order == 0;
    case BIN_NE: return order != 0;
    case BIN_LT: return order < 0;
    case BIN_LE: return order <= 0;
    case BIN_GT: return order > 0;
    case BIN_GE: return order >= 0;
    case BIN_AND: return !is_zero(l) && !is_zero(r);
    default: return !is_zero(l) || !is_zero(r);
    }
}

Val hd_scalar_binary(Front *f, Span s, Operator op, Val l, Val r) {
    if (op <= BIN_GE) return hd_val_int(compare(op, l, r));
    if (l.kind == VAL_INT && r.kind == VAL_INT) return integers(f, s, op, l, r);
    double a = hd_val_number(l), b = hd_val_number(r);
    if (op == BIN_REM) {
        hd_front_error(f, s, "%% needs two integers, not %s and %s", hd_val_text(f, l), hd_val_text(f, r));
        return (Val){0};
    }
    Val v = hd_val_float(op == BIN_ADD ? a + b : op == BIN_SUB ? a - b : op == BIN_MUL ? a * b : a / b);
    if (!isfinite(v.f)) {
        hd_front_error(f, s, "%s %s %s is not a finite number", hd_val_text(f, l), hd_operator_text(op),
                       hd_val_text(f, r));
        return (Val){0};
    }
    const Val *part = l.inexact ? &l : &r; // a fraction stays one, so that a message can name the division
    v.inexact = part->inexact;
    if (v.inexact) v.num = part->num, v.den = part->den;
    return v;
}

bool hd_val_truth(Front *f, Span s, Val v, bool *truth) {
    if (v.kind == VAL_BAD) return false;
    if (!hd_val_is_number(v))
        return hd_front_error(f, s, "a condition must be a number known at compile time, not %s%s", hd_val_text(f, v),
                              v.kind == VAL_TENSOR ? "; for each element, write where(condition, a, b)" : "");
    *truth = !is_zero(v);
    return true;
}

Val hd_scalar_unary(Front *f, Span s, Operator op, Val v) {
    bool truth;
    if (op == UN_NOT) return hd_val_truth(f, s, v, &truth) ? hd_val_int(!truth) : (Val){0};
    if (v.kind == VAL_INT) return integers(f, s, BIN_SUB, hd_val_int(0), v);
    v.f = -v.f;
    return v;
}

// The meaning column of ops.def in f64: `sqrt(2*layers)` gives at compile time what the op computes at run time.
#define R(x) ((double)(x))
#define ELT(id, mnemonic, n_in, traits, grad, flops, meaning)                                                          \
    static double scalar_##id(double a, double b, double c) { (void)b, (void)c; return meaning; }
#include "ir/ops.def"
#undef R

bool hd_scalar_op(OpKind k, int n, const Val *args, Val *result) {
    static double (*const scalar[N_OPS])(double, double, double) = {
#define ELT(id, ...) [OP_##id] = scalar_##id,
#include "ir/ops.def"
    };
    if (!scalar[k]) return false;
    const Val a = args[0], b = args[n > 1], c = args[n > 2 ? 2 : 0];
    double v = scalar[k](hd_val_number(a), hd_val_number(b), hd_val_number(c));
    bool whole =
        a.kind == VAL_INT && b.kind == VAL_INT && (k == OP_MAX || k == OP_MIN || k == OP_ABS) && fabs(v) < 0x1p53;
    *result = whole ? hd_val_int((int64_t)v) : hd_val_float(v);
    return true;
}
