// The column `spread` along an axis whose ranks own experts and read other sequences (layout.h). Values that no expert
// has part in are computed by each rank from its own sequences. Choices of all ranks, less the number of a rank's first
// expert, are `routed`, and so are the rows that they lead to. The sums of combined rows are terms of a sum over ranks,
// for the tokens of all of them.
#include "ir/shapes.h"
#include "ir/spread.h"

enum { W = LAYOUT_WHOLE, P = LAYOUT_SPLIT, S = LAYOUT_SUM, E = LAYOUT_EVERY, R = LAYOUT_ROUTED,
       T = LAYOUT_SENT };

// Ops on the rows of a rank's experts.
static const struct { OpKind kind; int n_in, in[5], out[4]; } routed[] = {
    {OP_DISPATCH, 1, {R}, {R, R, P, R}},
    {OP_ROUTE, 1, {W}, {T, W, T}},
    {OP_TAKE, 2, {W, T}, {T}},
    {OP_COMBINE, 2, {T, W}, {W}},
    {OP_TAKE, 3, {E, R, R}, {R}},
    {OP_GROUPED, 3, {R, P, P}, {R}},
    {OP_GROUPED_GRAD, 3, {R, R, P}, {P}},
    {OP_GROUPED, 5, {E, P, P, R, R}, {R}},
    {OP_COMBINE, 4, {R, R, E, R}, {S}},
    {OP_COMBINE, 2, {R, R}, {S}},
    {OP_COMBINE_GRAD, 5, {E, R, R, E, R}, {R, S}},
};

bool hd_spread_on_rows(OpKind k) {
    for (size_t i = 0; i < sizeof routed / sizeof *routed; i++)
        if (routed[i].kind == k) return !hd_op_info(k)->chosen;
    return false;
}

static const char *text(const Spread *s, int at) {
    if (at == W) return "of one rank";
    if (at == S) return "a partial sum";
    if (at == E) return "of every rank";
    if (at == T) return "sent between ranks";
    if (at == R) return "routed to the experts of a rank";
    return hd_internf(s->o->func->module->cx, "split along dimension %d", at - LAYOUT_SPLIT);
}

static const char *say(const Spread *s, int i, const char *why) {
    Ctx *cx = s->o->func->module->cx;
    return hd_internf(cx, "operand %d, %s, is %s over %s: %s", i, hd_type_text(cx, s->o->in[i]->type),
                      text(s, s->in[i]), hd_axis_name(s->axis), why);
}

static const char *all_out(const Spread *s, int at) {
    const int n = s->o->n_out + hd_has(&s->o->attrs, A_INTO);
    for (int i = 0; i < n; i++) s->out[i] = at;
    return NULL;
}

// The row of the table that suits the operands, or else the last one of the op on routed rows; -1: it has none.
static int row_of(const Spread *s) {
    int found = -1;
    for (int i = 0; i < (int)(sizeof routed / sizeof *routed); i++) {
        bool fits = routed[i].kind == s->o->kind && routed[i].n_in == s->o->n_in;
        if (fits && routed[i].in[0] != T && routed[i].out[0] != T) found = i;
        for (int k = 0; fits && k < s->o->n_in; k++) fits = s->in[k] == routed[i].in[k];
        if (fits) return i;
    }
    return found;
}

static const char *spread_rows_of_experts(const Spread *s, int row) {
    for (int i = 0; i < s->o->n_in; i++)
        if (s->in[i] != routed[row].in[i])
            return say(s, i, hd_internf(s->o->func->module->cx, "%s takes what is %s there",
                                        hd_op_info(s->o->kind)->mnemonic, text(s, routed[row].in[i])));
    const int n = s->o->n_out + hd_has(&s->o->attrs, A_INTO);
    for (int i = 0; i < n; i++) s->out[i] = routed[row].out[i];
    return NULL;
}

// An element of a routed row is made of the same element of other rows, and of numbers that are no values of one rank.
static const char *spread_elements(const Spread *s) {
    for (int i = 0; i < s->o->n_in; i++) {
        const Op *def = s->o->in[i]->def;
        if (s->in[i] == R && s->o->in[i]->type->rank == hd_result_type(s->o, 0)->rank) continue;
        if (s->in[i] == W && def && hd_op_is(def, TRAIT_CONSTANT)) continue;
        return say(s, i, "other operands are rows of experts, and every rank has rows of the tokens of all");
    }
    return all_out(s, R);
}

// The same elements, rounded: a term of a sum is not, unless the type holds all of its values.
static const char *spread_rounded(const Spread *s) {
    const DTypeInfo *from = hd_dtype_info(s->o->in[0]->type->dtype);
    const DTypeInfo *to = hd_dtype_info(hd_result_type(s->o, 0)->dtype);
    if (s->in[0] == S && (to->mantissa < from->mantissa || to->exponent < from->exponent))
        return say(s, 0, "rounding needs the complete sum");
    return all_out(s, s->in[0]);
}

// The parts of all ranks are one behind the other, and stay so. Rows stay rows.
static const char *spread_shape(const Spread *s) {
    const Type *from = s->o->in[0]->type, *to = hd_result_type(s->o, 0);
    if (s->in[0] == W) return all_out(s, W);
    if (s->in[0] == R && (!to->rank || hd_type_cols(from) != hd_type_cols(to)))
        return say(s, 0, "rows of experts keep their length");
    if (hd_layout_splits(s->in[0]) && (s->in[0] != P || !to->rank || from->dim[0] != to->dim[0]))
        return say(s, 0, "a part keeps its dimension");
    return to->rank ? all_out(s, s->in[0]) : say(s, 0, "the new shape has no dimension");
}

// Parts of rows, or rows side by side: they stay rows of the same experts.
static const char *spread_columns(const Spread *s) {
    const Type *t = hd_result_type(s->o, 0);
    const bool columns = t->rank > 1 && hd_int(&s->o->attrs, A_AXIS, 0) == t->rank - 1;
    bool rows = false;
    for (int i = 0; i < s->o->n_in; i++) rows |= s->in[i] != W;
    if (!rows) return all_out(s, W);
    for (int i = 0; i < s->o->n_in; i++)
        if (s->in[i] != R || !columns) return say(s, i, "rows of experts are cut and joined along their columns alone");
    return all_out(s, R);
}

static const char *spread_moved(const Spread *s, const Symbol *comm) {
    const CollectiveInfo *does = hd_collective(s->o);
    const bool over = hd_axes(&comm->attrs, A_OVER) >> s->axis & 1;
    const int from = !over || does->gathers ? W : S;
    if (!s->o->n_in) return all_out(s, W);
    if (over && does->exchanges && s->in[0] == T) return all_out(s, E);
    if (over && does->exchanges && s->in[0] == S) return all_out(s, T);
    if (s->in[0] != from)
        return say(s, 0, hd_internf(s->o->func->module->cx, "%s takes what is %s there",
                                    hd_op_info(s->o->kind)->mnemonic, text(s, from)));
    return all_out(s, over && does->gathers ? E : W);
}

static const char *spread_own_index(const Spread *s) {
    const bool over = hd_axes(&s->o->attrs, A_OVER) >> s->axis & 1;
    if (s->in[0] != (over ? E : W))
        return say(s, 0, over ? "choices are those of every rank" : "it takes an index whole");
    if (over && !hd_has(&s->o->attrs, A_ROUTED)) return "an index of experts is `routed`";
    return all_out(s, over ? R : W);
}

static const char *spread_parameter(const Spread *s) {
    const Symbol *p = hd_named(s->o, A_PARAM);
    int at = p ? hd_layout_at(p->layout, s->axis) : W;
    for (int i = 1; hd_op_param(s->o, i); i++)
        if (at != W || hd_layout_at(hd_op_param(s->o, i)->layout, s->axis) != W)
            return "split parameters cannot be merged into one matrix: set train.products = separate";
    if (s->o->n_out) return all_out(s, at);
    if (s->in[0] == at) return NULL;
    return say(s, 0, at == W ? "each rank gives the gradient of its own sequences"
                             : "it is the gradient of the parts that the rank owns");
}

static const char *spread_copy(const Spread *s) { return all_out(s, s->o->n_in ? s->in[0] : W); }

static const struct { OpKind of; const char *(*rule)(const Spread *); } rules[N_OPS] = {
#define OP(id, mnemonic, n_in, n_out, attrs, fields, doc) [OP_##id] = {.of = OP_##id, fields},
#define experts(name) .rule = spread_##name,
#include "ir/ops.def"
};

const char *hd_spread_experts(const Op *o, int axis, const int *in, int *out) {
    const Spread s = {o, axis, in, out};
    const Symbol *comm = hd_op_is(o, TRAIT_COLLECTIVE) ? hd_named(o, A_COMM) : NULL;
    int other = -1;
    bool rows = false;
    for (int i = o->n_in - 1; i >= 0; i--) {
        if (in[i] != W) other = i;
        rows |= in[i] == R;
    }
    if (rules[o->kind].rule) return rules[o->kind].rule(&s);
    if (comm) return spread_moved(&s, comm);
    const int row = row_of(&s);
    const bool routes = hd_has(&o->attrs, A_EXPERTS) && hd_axes(&o->attrs, A_OVER) >> axis & 1;
    if (other < 0 && !routes) return all_out(&s, W);
    if (row >= 0) return spread_rows_of_experts(&s, row);
    if (hd_op_is(o, TRAIT_ELEMENTWISE) && rows) return spread_elements(&s);
    return say(&s, other, hd_internf(o->func->module->cx, "%s computes on the values of one rank only",
                                     hd_op_info(o->kind)->mnemonic));
}
