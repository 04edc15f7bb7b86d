// Arithmetic and comparison of i32 tensors: places, slots, counts and positions. It is done in f32, which holds every
// whole number up to 2^24, between a cast there and one back:
//
//   chosen + 8 * iota(n)      cast to f32, mul, add, cast to i32
//
// So that no number is ever rounded, each value has a range that follows from the op that made it, and what may pass
// 2^24 is an error. A comparison gives f32 of 0 and 1, as one of f32 does; a whole number of any size may be compared
// with one that is less than 2^24.
#include "frontend/model/sema.h"
#include "ir/ranges.h"
#include <math.h>

static const Val bad = {0};
static const double most = 1 << 24;
static const Range whole = {-0x1p31, 0x1p31};

static bool within(Range r) { return r.lo >= -most && r.hi <= most; }
static IndexRange index_range(Range r) {
    return r.lo <= whole.lo || r.hi >= whole.hi ? (IndexRange){0} : (IndexRange){true, (int64_t)r.lo, (int64_t)r.hi};
}
static Range numbers(IndexRange r) { return r.known ? (Range){(double)r.low, (double)r.high} : whole; }

// --- ranges

// Of an i32 tensor; `whole` where nothing is known, as of an argument of the loss.
static Range range_of(const Front *f, const Value *v) {
    const int known = hd_ptr_get(&f->range_of, v);
    const Op *o = v->def;
    IndexRange in[HD_MAX_IN];
    if (known >= 0) return f->ranges.at[known];
    for (int i = 0; o && i < o->n_in; i++)
        in[i] = o->in[i]->type->dtype == TY_I32 ? index_range(range_of(f, o->in[i])) : (IndexRange){0};
    return o ? numbers(hd_result_range(o, v->index, in)) : whole;
}

static void say(Front *f, const Value *v, Range r) {
    hd_ptr_set(f->arena, &f->range_of, v, f->ranges.n);
    hd_push(f->arena, &f->ranges, r);
}

// The range of what an op makes of operands with these; false: whole numbers do not have the op.
static bool result_of(OpKind k, const Range *r, Range *out) {
    const IndexRange in[] = {index_range(r[0]), index_range(r[1]), index_range(r[2])};
    *out = numbers(hd_computed_range(k, in));
    return hd_op_info(k)->traits & (TRAIT_WHOLE | TRAIT_PICKS_LATER);
}

// --- ops

static bool compares(OpKind k) { return hd_op_info(k)->traits & TRAIT_UNITS && hd_op_info(k)->n_in == 2; }

static Value *cast(Front *f, Span s, Value *v, const char *to) {
    Attrs as = {0};
    hd_set_word(f->cx, &as, A_OUT, hd_intern(f->cx, to));
    return v ? hd_emit(f, s, OP_CAST, 1, &v, &as, NULL) : NULL;
}

bool hd_integers(int n, const Val *args) {
    bool any = false;
    for (int i = 0; i < n; i++) any |= args[i].kind == VAL_TENSOR && args[i].tensor->type->dtype == TY_I32;
    return any;
}

// An operand in f32, and its range. The condition of `where` is any number.
static bool operand(Front *f, Span s, const char *what, bool condition, Val v, Value **x, Range *r) {
    const bool tensor = v.kind == VAL_TENSOR;
    *r = tensor ? whole : (Range){hd_val_number(v), hd_val_number(v)};
    if (tensor && v.tensor->type->dtype == TY_I32) {
        *r = range_of(f, v.tensor);
        return (*x = cast(f, s, v.tensor, "f32")) != NULL;
    }
    if (!condition && (tensor || v.kind != VAL_INT))
        return hd_front_error(f, s, "%s of i32 and %s: float(x) makes f32 of whole numbers", what, hd_val_text(f, v));
    return (*x = hd_emit_tensor(f, s, v)) != NULL;
}

static bool too_large(Front *f, Span s, const char *what, Range r) {
    if (r.lo <= whole.lo || r.hi >= whole.hi)
        return hd_front_error(f, s, "%s: nothing bounds a whole number that it takes, such as one of the data; i32 is "
                                    "computed with up to 2^24, and any may be compared with a smaller one; float(x) "
                                    "computes in f32", what);
    return hd_front_error(f, s, "%s: whole numbers from %.0f to %.0f; i32 is computed with up to 2^24", what, r.lo,
                          r.hi);
}

static bool may_divide(Front *f, Span s, Range by) {
    return by.lo > 0 || by.hi < 0 ||
           hd_front_error(f, s, "division by whole numbers from %.0f to %.0f, which may be 0", by.lo, by.hi);
}

static Val made(Front *f, Value *v, Range r) {
    if (!v) return bad;
    say(f, v, r);
    return (Val){.kind = VAL_TENSOR, .tensor = v};
}

Val hd_emit_integers(Front *f, Span s, OpKind k, int n, const Val *args) {
    const char *what = hd_op_info(k)->mnemonic;
    const bool picks = hd_op_info(k)->traits & TRAIT_PICKS_LATER; // by a condition
    Value *x[3] = {NULL};
    Range r[3] = {whole, whole, whole}, out;
    if (!compares(k) && !result_of(k, r, &out))
        return hd_front_bad(f, s, "%s of whole numbers (i32): they have + - * / %%, min, max, neg, abs, sign, where "
                                  "and comparisons; float(x) makes f32 of them", what);
    for (int i = 0; i < n; i++)
        if (!operand(f, s, what, picks && !i, args[i], &x[i], &r[i])) return bad;
    if (compares(k)) {
        const bool exact = fabs(r[0].lo) < most ? fabs(r[0].hi) < most : false;
        if (!exact && !(fabs(r[1].lo) < most && fabs(r[1].hi) < most)) too_large(f, s, what, whole);
        else if ((x[0] = hd_emit(f, s, k, n, x, NULL, NULL))) return (Val){.kind = VAL_TENSOR, .tensor = x[0]};
        return bad;
    }
    for (int i = picks; i < n; i++)
        if (!within(r[i])) return too_large(f, s, what, r[i]), bad;
    if (k == OP_DIV && !may_divide(f, s, r[1])) return bad;
    result_of(k, r, &out);
    if (!within(out)) return too_large(f, s, what, out), bad;
    return made(f, cast(f, s, hd_emit(f, s, k, n, x, NULL, NULL), "i32"), out);
}

// The remainder of a division: with the sign of a, as in C.
Val hd_emit_remainder(Front *f, Span s, Val a, Val b) {
    const Val q = hd_emit_integers(f, s, OP_DIV, 2, (Val[]){a, b});
    if (q.kind == VAL_BAD) return bad;
    Value *x, *y, *t = cast(f, s, q.tensor, "f32");
    Range r, by;
    if (!t || !operand(f, s, "%", false, a, &x, &r) || !operand(f, s, "%", false, b, &y, &by)) return bad;
    const double largest = fmax(fabs(by.lo), fabs(by.hi)) - 1;
    t = hd_emit(f, s, OP_MUL, 2, (Value *[]){t, y}, NULL, NULL); // at most |a|
    if (t) t = hd_emit(f, s, OP_SUB, 2, (Value *[]){x, t}, NULL, NULL);
    return made(f, cast(f, s, t, "i32"),
                (Range){r.lo < 0 ? fmax(r.lo, -largest) : 0, r.hi > 0 ? fmin(r.hi, largest) : 0});
}
