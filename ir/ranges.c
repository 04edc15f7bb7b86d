// See ranges.h. Numbers are followed through what moves them and through arithmetic, which the language does in f32
// between casts, with whole numbers of up to 2^24. Rows of the op table name the rest.
#include "ir/ranges.h"
#include "ir/inputs.h"
#include "ir/shapes.h"

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
    return o->kind == OP_TOP_K && !result ? unknown
                                          : from_to(0, hd_type_cols((o->n_in ? o->in[0] : o->out[0])->type) - 1);
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

static IndexRange product(IndexRange a, IndexRange b) {
    const int64_t p[] = {a.low * b.low, a.low * b.high, a.high * b.low, a.high * b.high};
    return from_to(least(least(p[0], p[1]), least(p[2], p[3])), most(most(p[0], p[1]), most(p[2], p[3])));
}

static IndexRange arithmetic(const Op *o, const IndexRange *x) {
    for (int i = o->kind == OP_WHERE; i < o->n_in; i++)
        if (!x[i].known) return unknown;
    switch (o->kind) {
    case OP_ADD: return from_to(x[0].low + x[1].low, x[0].high + x[1].high);
    case OP_SUB: return from_to(x[0].low - x[1].high, x[0].high - x[1].low);
    case OP_MUL: return product(x[0], x[1]);
    case OP_DIV: // rounded toward zero
        return x[1].low > 0 ? from_to(least(0, x[0].low), most(0, x[0].high)) : unknown;
    case OP_NEG: return from_to(-x[0].high, -x[0].low);
    case OP_MAX: return from_to(most(x[0].low, x[1].low), most(x[0].high, x[1].high));
    case OP_MIN: return from_to(least(x[0].low, x[1].low), least(x[0].high, x[1].high));
    case OP_WHERE: return either(x[1], x[2]);
    case OP_STOP_GRADIENT: return x[0];
    default: return unknown;
    }
}

static bool may_count(const Type *t) { return t->dtype == TY_I32 || t->dtype == TY_F32; }

static IndexRange range_of(const Op *o, int result, const IndexRange *in) {
    static const struct { OpKind of; RangeRule *rule; } rules[N_OPS] = {
#define OP(id, mnemonic, n_in, n_out, attrs, fields, doc) [OP_##id] = {.of = OP_##id, fields},
#define range(x) .rule = range_##x,
#include "ir/ops.def"
    };
    if (!may_count(o->out[result]->type)) return unknown;
    if (hd_op_is(o, TRAIT_ELEMENTWISE)) return arithmetic(o, in);
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
        for (int i = 0; i < o->n_out; i++) at[o->out[i]->id] = range_of(o, i, in);
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
    switch (o->kind) {
    case OP_TAKE:
    case OP_EMBEDDING:
    case OP_CROSS_ENTROPY:
        *use = (IndexUse){1, o->kind == OP_TAKE ? -1 : 0, hd_indexed(o) - 1,
                          hd_has(&o->attrs, A_IGNORE) ? hd_loss_ignored(o) : 0};
        return hd_indexed(o) > 0;
    case OP_DISPATCH:
    case OP_ROUTE:
        *use = (IndexUse){0, -1, hd_int(&o->attrs, A_EXPERTS, 0) - 1, 0};
        return !o->in[0]->def || o->in[0]->def->kind != OP_OWN_INDEX; // those of other ranks are outside
    default: return false;
    }
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
    if (argument && o->kind != OP_DISPATCH && o->kind != OP_ROUTE) return true;
    return r.known && r.low >= use->low && r.high <= use->high;
}
