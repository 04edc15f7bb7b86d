// See ranges.h. Numbers are followed through what moves them and through arithmetic, which the language does in f32
// between casts, with whole numbers of up to 2^24. Rows of the op table name the rest.
#include "ir/ranges.h"
#include "ir/eval/eval.h"
#include "ir/inputs.h"
#include "ir/shapes.h"
#include <math.h>

typedef IndexRange RangeRule(const Op *o, int result, const IndexRange *in);

static const IndexRange unknown = {0};

static IndexRange from_to(int64_t low, int64_t high) {
    return low < INT32_MIN || high > INT32_MAX ? unknown : (IndexRange){true, low, high};
}
static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }
static IndexRange either(IndexRange a, IndexRange b) {
    return a.known && b.known ? from_to(least(a.low, b.low), most(a.high, b.high)) : unknown;
}

// --- by row of the op table

// Each operand's elements are in some result.
static IndexRange range_same(const Op *o, int result, const IndexRange *in) {
    (void)result;
    IndexRange r = o->n_in ? in[0] : unknown;
    for (int i = 1; i < o->n_in; i++) r = either(r, in[i]);
    return r;
}

static IndexRange range_constant(const Op *o, int result, const IndexRange *in) {
    const double x = hd_float(&o->attrs, A_VALUE, 0);
    (void)result, (void)in;
    const bool whole = x >= INT32_MIN && x <= INT32_MAX && x == (double)(int64_t)x;
    return whole ? from_to((int64_t)x, (int64_t)x) : unknown;
}

static IndexRange range_columns(const Op *o, int result, const IndexRange *in) { // places in a row
    (void)in;
    if (o->out[result]->type->dtype != TY_I32) return unknown;
    return from_to(0, hd_type_cols((o->n_in ? o->in[0] : o->out[0])->type) - 1);
}

static IndexRange range_dispatch(const Op *o, int result, const IndexRange *in) { // source, slots, counts, choice
    const int64_t tokens = hd_type_rows(o->in[0]->type), choices = hd_type_count(o->in[0]->type);
    (void)in;
    return result == 2 ? from_to(0, choices) : from_to(-1, (result ? choices : tokens) - 1);
}

static IndexRange range_route(const Op *o, int result, const IndexRange *in) { // source, slots, choices
    const int64_t tokens = hd_type_rows(o->in[0]->type);
    if (result == 2) return either(in[0], from_to(-1, -1));
    return result ? from_to(-2, hd_type_count(o->out[0]->type) - 1) : from_to(-1, tokens - 1);
}

// --- arithmetic

// The ends of a range, and 0 where it lies between them. Of the ops that whole numbers have, all but `where` are
// monotone in each operand on either side of 0, so that their bounds are results of these.
static int ends(IndexRange r, double *x) {
    x[0] = (double)r.low, x[1] = (double)r.high, x[2] = 0;
    return r.low < 0 && r.high > 0 ? 3 : 2;
}

IndexRange hd_computed_range(OpKind k, const IndexRange *in) {
    const OpInfo *op = hd_op_info(k);
    double a[3], b[3] = {0}, low = (double)INFINITY, high = -low;
    if (op->traits & TRAIT_PICKS_LATER) return either(in[1], in[2]);
    if (op->traits & TRAIT_STOPS) return in[0];
    if (!(op->traits & TRAIT_WHOLE) || !in[0].known || (op->n_in > 1 && !in[1].known)) return unknown;
    const int n = ends(in[0], a), m = op->n_in > 1 ? ends(in[1], b) : 1;
    for (int i = 0; i < n * m; i++) {
        const double y = hd_eval_elt(k, false, a[i / m], b[i % m], 0);
        if (!isfinite(y)) return unknown;
        low = fmin(low, floor(y)), high = fmax(high, ceil(y)); // a quotient may not be whole
    }
    return (IndexRange){true, (int64_t)low, (int64_t)high};
}

static bool may_count(const Type *t) { return t->dtype == TY_I32 || t->dtype == TY_F32; }

IndexRange hd_result_range(const Op *o, int result, const IndexRange *in) {
    static const struct { OpKind of; RangeRule *rule; } rules[N_OPS] = {
#define OP(id, mnemonic, n_in, n_out, attrs, fields, doc) [OP_##id] = {.of = OP_##id, fields},
#define range(x) .rule = range_##x,
#include "ir/ops.def"
    };
    if (!may_count(o->out[result]->type)) return unknown;
    if (hd_op_is(o, TRAIT_ELEMENTWISE)) {
        const IndexRange r = hd_computed_range(o->kind, in);
        return r.known ? from_to(r.low, r.high) : unknown;
    }
    return rules[o->kind].rule ? rules[o->kind].rule(o, result, in) : unknown;
}

static void follow(const Func *f, IndexRange *at, Arena *a);

static void launch(const Op *o, IndexRange *at, Arena *a) {
    const Func *k = hd_launched(o);
    const Op *ret = k && k->n_args == o->n_in ? hd_return(k) : NULL;
    if (!ret) return;
    IndexRange *inside = HD_NEWN(a, IndexRange, k->n_values + 1);
    for (int i = 0; i < o->n_in; i++) inside[k->args[i]->id] = at[o->in[i]->id];
    follow(k, inside, a);
    for (int i = 0; i < o->n_out && i < ret->n_in; i++) at[o->out[i]->id] = inside[ret->in[i]->id];
}

static bool any_counts(const Op *o) {
    for (int i = 0; i < o->n_out; i++)
        if (may_count(o->out[i]->type)) return true;
    return false;
}

static void follow(const Func *f, IndexRange *at, Arena *a) {
    for (const Op *o = f->first; o; o = o->next) {
        if (!any_counts(o)) continue;
        if (hd_op_is(o, TRAIT_LAUNCH)) {
            launch(o, at, a);
            continue;
        }
        IndexRange *in = HD_NEWN(a, IndexRange, o->n_in + 1);
        for (int i = 0; i < o->n_in; i++) in[i] = at[o->in[i]->id];
        for (int i = 0; i < o->n_out; i++) at[o->out[i]->id] = hd_result_range(o, i, in);
    }
}

IndexRange *hd_index_ranges(const Module *m, const Func *f, Arena *a) {
    IndexRange *at = HD_NEWN(a, IndexRange, f->n_values + 1);
    for (int i = 0; i < f->n_args; i++) {
        const Input s = hd_input(m, f, i);
        if (s.below > 0) at[f->args[i]->id] = from_to(least(0, s.also), most(s.below - 1, s.also));
    }
    follow(f, at, a);
    return at;
}

// --- uses

// -1 stands for no row, and a choice or a row of -1 is none.
static bool use_of(const Op *o, IndexUse *use) {
    *use = (IndexUse){0};
    if (hd_has(&o->attrs, A_BWD)) return false;
    if (hd_has(&o->attrs, A_EXPERTS)) {
        *use = (IndexUse){0, -1, hd_int(&o->attrs, A_EXPERTS, 0) - 1, 0};
        return !o->in[0]->def || o->in[0]->def->kind != OP_OWN_INDEX; // those of other ranks are outside
    }
    const bool takes = o->kind == OP_TAKE;
    if (!takes && (!hd_op_is(o, TRAIT_LOOKUP | TRAIT_LOSS) || hd_is_backward(o))) return false;
    *use = (IndexUse){1, takes ? -1 : 0, hd_indexed(o) - 1, hd_has(&o->attrs, A_IGNORE) ? hd_loss_ignored(o) : 0};
    return hd_indexed(o) > 0;
}

IndexUses hd_index_uses(const Op *o, Arena *a) {
    IndexUses list = {0};
    IndexUse use;
    const Func *k = hd_op_is(o, TRAIT_LAUNCH) && !hd_has(&o->attrs, A_BWD) ? hd_launched(o) : NULL;
    if (!k && use_of(o, &use)) hd_push(a, &list, use);
    for (const Op *x = k ? k->first : NULL; x; x = x->next) {
        if (!use_of(x, &use) || x->in[use.operand]->def || x->in[use.operand]->index >= o->n_in) continue;
        use.operand = x->in[use.operand]->index;
        hd_push(a, &list, use);
    }
    return list;
}

static const Value *origin(const Value *v) {
    while (v->def && hd_op_is(v->def, TRAIT_ALIAS) && v->def->n_in == 1) v = v->def->in[0];
    return v;
}

bool hd_index_proved(const Op *o, const IndexUse *use, const IndexRange *ranges) {
    const IndexRange r = ranges[o->in[use->operand]->id];
    const bool argument = !origin(o->in[use->operand])->def;
    if (argument && !hd_has(&o->attrs, A_EXPERTS)) return true;
    return r.known && r.low >= use->low && r.high <= use->high;
}
