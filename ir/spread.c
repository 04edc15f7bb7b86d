// The column `spread` of ops.def: how an op's results are laid out, from how its operands are, along one axis. A rule
// says what is true of the op's meaning: computed on what each rank holds of its operands it gives what each rank holds
// of its results. The pass that partitions a model, the check of layouts and the proof of values read this and nothing
// else. A rule compares sizes within the op only, so it may be asked about the whole or about what a rank holds.
#include "ir/spread.h"
#include "ir/shapes.h"
#include "ir/ssd.h"
#include <string.h>

#define IN(i) (s->o->in[i]->type)
#define OUT(i) hd_result_type(s->o, i)

static const char *say(const Spread *s, int i, const char *why) {
    Ctx *cx = s->o->func->module->cx;
    const int at = s->in[i];
    const char *what = at == LAYOUT_WHOLE ? "whole" : at == LAYOUT_SUM ? "a partial sum" :
                       hd_layout_word(at) ? hd_layout_word(at) :
                       hd_internf(cx, "split along dimension %d", hd_layout_dim(at));
    return hd_internf(cx, "operand %d, %s, is %s over %s: %s", i, hd_type_text(cx, IN(i)), what, hd_axis_name(s->axis),
                      why);
}

static int split(int d) { return LAYOUT_SPLIT + d; }
static int dim_of(int at) { return at - LAYOUT_SPLIT; }
static void all_out(const Spread *s, int at) {
    const int n = s->o->n_out + hd_has(&s->o->attrs, A_INTO);
    for (int i = 0; i < n; i++) s->out[i] = at;
}

// An op without a rule computes on whole operands only.
static const char *needs_whole(const Spread *s) {
    for (int i = 0; i < s->o->n_in; i++)
        if (s->in[i] != LAYOUT_WHOLE)
            return say(s, i, hd_internf(s->o->func->module->cx, "%s takes whole operands",
                                        hd_op_info(s->o->kind)->mnemonic));
    all_out(s, LAYOUT_WHOLE);
    return NULL;
}

// --- pointwise

// A rule that is linear in all operands together: terms of sums give a term of the sum. Their gradients read none.
static bool adds_up(OpKind k) {
    static const char *const grads[N_OPS] = {
#define ELT(id, mnemonic, n, traits, grad, flops, meaning) [OP_##id] = #grad,
#include "ir/ops.def"
    };
    return grads[k] && (!strcmp(grads[k], "add") || !strcmp(grads[k], "sub") || !strcmp(grads[k], "neg"));
}

// Numpy's broadcasting to the type `to`: the dimension there of operand i's dimension d; -1: it repeats along it.
static int broadcast_to(const Type *from, const Type *to, int d) {
    const int there = d + to->rank - from->rank;
    return there >= 0 && from->dim[d] == to->dim[there] ? there : -1;
}

// A whole operand that repeats along a dimension of which a rank has a part. (The part's size may be 1, too.)
static bool repeats_along(const Type *from, const Type *to, int there) {
    const int d = there - (to->rank - from->rank);
    return d < 0 || from->dim[d] == 1;
}

static const char *spread_pointwise(const Spread *s) {
    int at = LAYOUT_WHOLE, sums = 0;
    for (int i = 0; i < s->o->n_in; i++) {
        if (s->in[i] == LAYOUT_SUM) sums++;
        if (!hd_layout_splits(s->in[i])) continue;
        const int d = broadcast_to(IN(i), OUT(0), dim_of(s->in[i]));
        if (d < 0 || (at != LAYOUT_WHOLE && at != split(d))) return say(s, i, "another operand is not split along it");
        at = split(d);
    }
    for (int i = 0; i < s->o->n_in; i++) {
        if (s->in[i] == LAYOUT_SUM && (sums < s->o->n_in || !adds_up(s->o->kind)))
            return say(s, i, "the op is not linear in it and needs the complete sum");
        if (s->in[i] == LAYOUT_WHOLE && at != LAYOUT_WHOLE && !repeats_along(IN(i), OUT(0), dim_of(at)))
            return say(s, i, "another operand is split");
    }
    all_out(s, sums ? LAYOUT_SUM : at);
    return NULL;
}

static const char *spread_broadcast(const Spread *s) {
    if (s->in[0] == LAYOUT_SUM) return say(s, 0, "a broadcast needs the complete sum");
    const int d = hd_layout_splits(s->in[0]) ? broadcast_to(IN(0), OUT(0), dim_of(s->in[0])) : 0;
    if (d < 0) return say(s, 0, "the broadcast repeats it along that dimension");
    all_out(s, hd_layout_splits(s->in[0]) ? split(d) : LAYOUT_WHOLE);
    return NULL;
}

// The same elements, rounded: a term of a sum is not, unless the type holds all of its values.
static const char *spread_cast(const Spread *s) {
    const DTypeInfo *from = hd_dtype_info(IN(0)->dtype), *to = hd_dtype_info(OUT(0)->dtype);
    if (s->in[0] == LAYOUT_SUM && (to->mantissa < from->mantissa || to->exponent < from->exponent))
        return say(s, 0, "rounding needs the complete sum");
    all_out(s, s->in[0]);
    return NULL;
}

// --- moves

// The dimension of its result that a reshape says is split; -1: it says none.
static int64_t dim_said(const Spread *s) {
    const Attr *over = hd_attr(&s->o->attrs, A_OVER), *dims = hd_attr(&s->o->attrs, A_DIMS);
    for (int i = 0; over && dims && i < over->n && i < dims->n; i++)
        if (hd_axis_called(over->strs[i]) == s->axis) return dims->ints[i];
    return -1;
}

// Dimension d of one shape begins where one of the other shape does, and one of the two is a multiple of the other.
// Several can begin there if their sizes are 1. Of a whole shape none of these is split; of a rank's part one may be,
// and the op says which. Any that begins there is true: it is the same part of another whole.
static const char *spread_reshape(const Spread *s) {
    const Type *from = IN(0), *to = OUT(0);
    const int64_t said = dim_said(s);
    int64_t before = 1, upto = 1;
    if (!hd_layout_splits(s->in[0])) {
        if (said >= 0) return say(s, 0, "the op says along which dimension its result is split");
        all_out(s, s->in[0]);
        return NULL;
    }
    const int d = dim_of(s->in[0]);
    for (int i = 0; i < d; i++) before *= from->dim[i];
    for (int k = 0; k < to->rank; upto *= to->dim[k++]) {
        if (upto != before || (said < 0 && to->dim[k] == 1 && from->dim[d] != 1) || (said >= 0 && said != k)) continue;
        if (!to->dim[k] || !from->dim[d] || (to->dim[k] % from->dim[d] && from->dim[d] % to->dim[k])) break;
        s->out[0] = split(k);
        return NULL;
    }
    return say(s, 0, said < 0 ? "the new shape has no dimension that starts at the same element" :
                     "the dimension of the new shape that `dims` names does not start at the same element");
}

static const char *spread_transpose(const Spread *s) {
    const Attr *perm = hd_attr(&s->o->attrs, A_PERM);
    s->out[0] = s->in[0];
    for (int i = 0; hd_layout_splits(s->in[0]) && i < perm->n; i++)
        if (perm->ints[i] == dim_of(s->in[0])) s->out[0] = split(i);
    return NULL;
}

// slice, concat, cumsum: each index of the other dimensions for itself.
static const char *spread_along(const Spread *s) {
    const int64_t along = hd_int(&s->o->attrs, A_AXIS, 0);
    for (int i = 0; i < s->o->n_in; i++) {
        if (s->in[i] != s->in[0]) return say(s, i, "the other operands are laid out differently");
        if (hd_layout_splits(s->in[i]) && dim_of(s->in[i]) == along)
            return say(s, i, "the op runs along that dimension");
    }
    all_out(s, s->o->n_in ? s->in[0] : LAYOUT_WHOLE);
    return NULL;
}

// --- sums

static const char *spread_reduced(const Spread *s) {
    const unsigned axes = hd_reduced_axes(s->o);
    const bool adds = !hd_op_is(s->o, TRAIT_PICKS);
    if (s->in[0] == LAYOUT_SUM && !adds) return say(s, 0, "a maximum needs the complete sum");
    s->out[0] = s->in[0];
    if (!hd_layout_splits(s->in[0])) return NULL;
    const int d = dim_of(s->in[0]), dropped = IN(0)->rank - OUT(0)->rank;
    if (axes >> d & 1) {
        if (!adds) return say(s, 0, "a maximum over ranks has no collective");
        s->out[0] = LAYOUT_SUM;
        return NULL;
    }
    int there = d;
    if (dropped && s->o->kind == OP_SUM_TO) there = d - dropped;
    else if (dropped)
        for (int i = 0; i < d; i++) there -= (int)(axes >> i & 1);
    s->out[0] = split(there);
    return NULL;
}

// --- products

typedef enum { OUTER, INNER } Side; // of an operand's dimension: of the result, or the one that is added over

// d = a b, flattened to matrices: all dimensions but the last, and the last. *at: where the dimension begins: itself
// where it is one of several that are flattened, 0 where it is the first or the only one.
static Side side_of(const Type *t, int d, bool last_is_inner, int *at) {
    const bool last = d == t->rank - 1;
    *at = last ? 0 : d;
    return last == last_is_inner ? INNER : OUTER;
}

static const char *spread_product(const Spread *s) {
    const bool ta = hd_has(&s->o->attrs, A_TA), tb = hd_has(&s->o->attrs, A_TB);
    const int bias = hd_operand_of(s->o, ROLE_BIAS);
    const int a = s->in[0], b = s->in[1];
    int in_a = 0, in_b = 0, at = LAYOUT_WHOLE;
    if (hd_int(&s->o->attrs, A_BATCHES, 1) > 1 || hd_has(&s->o->attrs, A_SCALED)) return needs_whole(s);
    const Side of_a = hd_layout_splits(a) ? side_of(IN(0), dim_of(a), !ta, &in_a) : OUTER;
    const Side of_b = hd_layout_splits(b) ? side_of(IN(1), dim_of(b), tb, &in_b) : OUTER;
    const int last = OUT(0)->rank - 1;
    if (a == LAYOUT_SUM || b == LAYOUT_SUM) { // linear in each of them
        if (a != LAYOUT_WHOLE && b != LAYOUT_WHOLE) return say(s, 0, "both factors are not whole");
        at = LAYOUT_SUM;
    } else if (hd_layout_splits(a) && of_a == INNER) {
        if (!hd_layout_splits(b) || of_b != INNER || in_a != in_b)
            return say(s, 0, "the other factor is not split along the inner dimension: split the columns of these "
                             "weights, `[rows, columns over AXIS]` or `Linear(in over AXIS, out)`");
        at = LAYOUT_SUM;
    } else if (hd_layout_splits(b) && of_b == INNER) {
        return say(s, 1, "the other factor is not split along the inner dimension: split the rows of the weights that "
                         "made it, or leave these weights whole");
    } else if (hd_layout_splits(a)) {
        if (b != LAYOUT_WHOLE) return say(s, 1, "the other factor is split as well");
        at = split(ta ? 0 : dim_of(a));
    } else if (hd_layout_splits(b)) {
        if (in_b) return say(s, 1, "it is one of several that are columns of the result");
        at = split(last);
    }
    if (bias >= 0 && s->in[bias] != (at == split(last) ? split(IN(bias)->rank - 1) : LAYOUT_WHOLE))
        return say(s, bias, "the matmul has another layout");
    if (bias >= 0 && at == LAYOUT_SUM) return say(s, bias, "every rank would add it");
    all_out(s, at);
    return NULL;
}

// --- rows, by the letters of `classes`

static const char *spread_rows(const Spread *s) {
    int at = LAYOUT_WHOLE;
    for (int i = 0; i < s->o->n_in; i++) {
        const char class = hd_operand_class(s->o, i);
        if (s->in[i] == LAYOUT_WHOLE) continue;
        if (s->in[i] == LAYOUT_SUM) return say(s, i, "the op is not linear in it and needs the complete sum");
        const bool rows = class == 'd' || class == 's' || class == 'i';
        if (!rows || (class == 'd' && dim_of(s->in[i]) == IN(i)->rank - 1))
            return say(s, i, rows ? "the op reads each row whole: leave the weights that made it whole"
                                  : "every row needs all of it");
        if (at != LAYOUT_WHOLE && at != s->in[i]) return say(s, i, "other operands are split along another dimension");
        at = s->in[i];
    }
    for (int i = 0; at != LAYOUT_WHOLE && i < s->o->n_in; i++) {
        const char class = hd_operand_class(s->o, i);
        if (s->in[i] == LAYOUT_WHOLE && (class == 'd' || class == 's' || class == 'i'))
            return say(s, i, "other operands are split");
    }
    for (int i = 0; i < s->o->n_out; i++)
        s->out[i] = at != LAYOUT_WHOLE && hd_class_of_result(s->o->kind, i) == 'c' ? LAYOUT_SUM : at;
    return NULL;
}

static bool draws_for_parts(const Spread *s) { return hd_axes(&s->o->attrs, A_OVER) >> s->axis & 1; }

// A rank draws what the whole has in its part, if the op says which one that is.
static const char *spread_dropout(const Spread *s) {
    const Attr *dims = hd_attr(&s->o->attrs, A_DIMS);
    for (int i = 1; i < s->o->n_in; i++)
        if (s->in[i] != LAYOUT_WHOLE) return needs_whole(s);
    if (!draws_for_parts(s) || !dims) return needs_whole(s);
    if (s->in[0] != split((int)dims->ints[0]))
        return say(s, 0, "dropout draws numbers for a part of another dimension");
    all_out(s, s->in[0]);
    return NULL;
}

// Heads stand one after another along the last dimension; the one before it is that of positions.
static const char *spread_heads(const Spread *s) {
    if (s->o->n_in > 1) return needs_whole(s);
    if (s->in[0] == LAYOUT_SUM) return say(s, 0, "the rotation needs the complete sum");
    if (hd_layout_splits(s->in[0]) && dim_of(s->in[0]) == IN(0)->rank - 2 - hd_has(&s->o->attrs, A_APART))
        return say(s, 0, "a rank would count positions from 0");
    s->out[0] = s->in[0];
    return NULL;
}

// By sequences, or by heads: along the last dimension of q, k, v, o and their gradients, along the heads of the lse.
// Where all heads read one kv head, k and v are whole, and a rank has terms of their gradients.
static const char *spread_attention(const Spread *s) {
    const int n = hd_attention_operands(s->o), lse = hd_is_backward(s->o) ? n - 1 : -1, at = s->in[0];
    const int k = hd_keys_operand(s->o);
    const bool packed = hd_has(&s->o->attrs, A_PACKED);
    const bool heads = at == split(2);
    if (draws_for_parts(s) != (heads && hd_has(&s->o->attrs, A_P)))
        return say(s, 0, heads ? "its dropout draws numbers for all heads"
                                : "its dropout draws numbers for some heads");
    if (heads && hd_has(&s->o->attrs, A_P) && hd_int(&s->o->attrs, A_BATCH, 0) != IN(0)->dim[0])
        return say(s, 0, "its dropout counts heads of several sequences together: set the dropout of attention to 0, "
                         "or leave the weights of q, k and v whole");
    if (at == LAYOUT_WHOLE)
        for (int i = 1; i < s->o->n_in; i++)
            if (hd_layout_splits(s->in[i]))
                return say(s, i, i == hd_attention_sink_at(s->o) ? "q is whole: leave the sink whole, or split both" :
                                 "operand 0 is whole: split the weights of q, k and v alike");
    if (!hd_layout_splits(at) || at == split(1) || (!heads && hd_has(&s->o->attrs, A_P))) return needs_whole(s);
    if (heads && packed) return say(s, 0, "q, k and v are packed in it");
    const bool shared = heads && hd_int(&s->o->attrs, A_KV_HEADS, 0) == 1 && s->in[k] == LAYOUT_WHOLE;
    for (int i = 0; i < s->o->n_in; i++) {
        const bool whole = i >= n || (shared && (i == k || i == k + 1)), sink = i == hd_attention_sink_at(s->o);
        const int is = sink && heads ? split(0) : sink ? LAYOUT_WHOLE : !heads ? split(0) : i == lse ? split(1) :
                       whole ? LAYOUT_WHOLE : split(2);
        if (s->in[i] != is && sink)
            return say(s, i, heads ? "a rank has some of the heads: split the sink alike, which has one logit for each"
                                   : "a rank has all heads: leave the sink whole");
        if (s->in[i] != is) return say(s, i, "other operands have another layout");
    }
    all_out(s, at);
    if (lse < 0) s->out[1] = split(heads ? 1 : 0);
    for (int i = 1; shared && lse >= 0 && i < s->o->n_out; i++) s->out[i] = LAYOUT_SUM;
    return NULL;
}

// By sequences, or by heads.
static const char *spread_sink_grad(const Spread *s) {
    const int at = s->in[0];
    if (at != split(0) && at != split(2)) return needs_whole(s);
    const int want[] = {at, at, at == split(0) ? at : split(1), at == split(0) ? LAYOUT_WHOLE : split(0)};
    for (int i = 1; i < s->o->n_in; i++)
        if (s->in[i] != want[i]) return say(s, i, "other operands have another layout");
    s->out[0] = at;
    return NULL;
}

// By sequences, or by heads, which are dimension 2 of x, dt, b and c and the only one of a and d. Where all heads read
// one group, b and c are whole, and a rank has terms of their gradients.
static const char *spread_ssd(const Spread *s) {
    const SsdShape h = hd_ssd_shape(s->o);
    const int x = h.grad, at = s->in[x];
    if (at == LAYOUT_WHOLE || at == LAYOUT_SUM || (at != split(0) && at != split(2))) return needs_whole(s);
    const bool heads = at == split(2), shared = heads && s->in[x + 3] == LAYOUT_WHOLE && h.groups == 1;
    if (heads && s->in[x + 3] == LAYOUT_WHOLE && !shared)
        return say(s, x + 3, "the heads of x are split, and each group belongs to some of them: split the weights that "
                             "made b and c by groups, or have one group");
    int want[8];
    const int rates = heads ? split(0) : LAYOUT_WHOLE, group = shared ? LAYOUT_WHOLE : at;
    const int each[] = {at, at, rates, group, group, rates};
    const int n = s->o->n_in - h.documents;
    for (int i = 0; i < n; i++) want[i] = i < x ? at : each[i - x];
    if (h.documents) want[n] = heads ? LAYOUT_WHOLE : at;
    for (int i = 0; i < s->o->n_in; i++)
        if (s->in[i] != want[i])
            return say(s, i, "x has another layout: all operands of ssd are split by heads, or none");
    for (int i = 0; i < s->o->n_out; i++) s->out[i] = each[i];
    for (int i = 2; x && !heads && i < s->o->n_out; i += 3) s->out[i] = LAYOUT_SUM; // da, dd: over all sequences
    if (x && shared) s->out[3] = s->out[4] = LAYOUT_SUM;
    return NULL;
}

// By sequences, or by columns, which are the last dimension of x, dy, the taps and the bias.
static const char *spread_conv1d(const Spread *s) {
    const ConvShape h = hd_conv_shape(s->o);
    const int x = h.grad, at = s->in[x], last = IN(x)->rank - 1;
    const bool columns = at == split(last);
    if (at == LAYOUT_WHOLE && hd_layout_splits(s->in[x + 1]))
        return say(s, x + 1, "x is whole: split the weights that made x alike, or leave the taps whole");
    if (at == LAYOUT_SUM) return say(s, x, "a convolution with a bias or SiLU needs the complete sum");
    if (at == split(last - 1)) return say(s, x, "a rank would need positions of another one");
    if (at == LAYOUT_WHOLE || (!columns && at != split(0))) return needs_whole(s);
    if (columns && hd_has(&s->o->attrs, A_START)) return say(s, x, "the columns are a part of it");
    for (int i = 0; i < s->o->n_in; i++) {
        const bool taps = i == x + 1 || (h.bias && i == x + 2);
        const int want = i <= x ? at : columns == taps ? split(columns ? IN(i)->rank - 1 : 0) : LAYOUT_WHOLE;
        if (s->in[i] == want) continue;
        return say(s, i, columns ? taps ? "x is split by columns: split the taps and the bias alike, `[k, dim over "
                                          "AXIS]` and `[dim over AXIS]`" : "x is split by columns" :
                                   "x is split by sequences");
    }
    s->out[0] = at;
    for (int i = 1; h.grad && i < s->o->n_out; i++) s->out[i] = columns ? split(3 - i) : split(0); // runs come first
    return NULL;
}

// --- tables

static const char *spread_own_index(const Spread *s) {
    if (s->in[0] != LAYOUT_WHOLE) return needs_whole(s);
    const bool over = hd_axes(&s->o->attrs, A_OVER) >> s->axis & 1;
    if (over && hd_has(&s->o->attrs, A_ROUTED)) return say(s, 0, "ranks along it own no experts");
    s->out[0] = over ? split(0) : LAYOUT_WHOLE;
    return NULL;
}

// A rank looks up rows of its own part, so the sum over ranks has all rows.
static const char *spread_take(const Spread *s) {
    if (!hd_has(&s->o->attrs, A_PARTS) || s->in[0] == LAYOUT_WHOLE) return needs_whole(s);
    if (s->in[0] != split(0) || s->in[1] != split(0)) return say(s, 1, "it is not that of the parts of the table");
    s->out[0] = LAYOUT_SUM;
    return NULL;
}

static const char *spread_embedding(const Spread *s) {
    const int table = s->in[0], index = s->in[1];
    if (table == LAYOUT_WHOLE && index != LAYOUT_SUM) s->out[0] = index;
    else if (index == LAYOUT_WHOLE && table == split(1)) s->out[0] = split(IN(1)->rank);
    else return say(s, table == LAYOUT_WHOLE, "a rank would look up rows of another rank: leave the rows of the table "
                                              "whole");
    return NULL;
}

static const char *spread_embedding_grad(const Spread *s) {
    const int rows = s->in[0], index = s->in[1];
    if (hd_has(&s->o->attrs, A_PARTS)) {
        if (rows != LAYOUT_WHOLE || (index != split(0) && index != LAYOUT_WHOLE))
            return say(s, rows == LAYOUT_WHOLE, "every part of the table needs all rows, and its own index");
        all_out(s, index);
        return NULL;
    }
    if (index == LAYOUT_WHOLE && (rows == LAYOUT_WHOLE || rows == LAYOUT_SUM)) all_out(s, rows);
    else if (index == LAYOUT_WHOLE && rows == split(IN(0)->rank - 1)) all_out(s, split(1));
    else if (hd_layout_splits(index) && rows == index) all_out(s, LAYOUT_SUM);
    else return say(s, 0, "the rows and their indices have different layouts");
    return NULL;
}

// Columns of logits: a rank has those of its part of the vocabulary.
static const char *columns_of_parts(const Spread *s, bool *parts) {
    *parts = s->in[0] == split(IN(0)->rank - 1) && s->in[1] == split(0);
    for (int i = *parts ? 2 : 0; i < s->o->n_in; i++)
        if (s->in[i] != LAYOUT_WHOLE)
            return say(s, i, "logits are split by their columns, their index by parts, and what is left is whole");
    return NULL;
}

static const char *spread_loss_part(const Spread *s) {
    bool parts;
    const char *e = columns_of_parts(s, &parts);
    all_out(s, parts ? split(0) : LAYOUT_WHOLE);
    return e;
}

static const char *spread_loss_part_grad(const Spread *s) {
    bool parts;
    const char *e = columns_of_parts(s, &parts);
    all_out(s, parts ? s->in[0] : LAYOUT_WHOLE);
    return e;
}

// Rows of logits: the sum of exponentials is over all of the vocabulary.
static const char *spread_loss(const Spread *s) {
    if (hd_layout_splits(s->in[0]))
        return say(s, 0, "the loss reads all logits of a row: leave the weights that make the logits whole");
    return needs_whole(s);
}

// --- storage

static const char *spread_copy(const Spread *s) {
    all_out(s, s->o->n_in ? s->in[0] : LAYOUT_WHOLE);
    return NULL;
}

// --- parameters

static const char *same_layout(const Spread *s, int *at) {
    const Symbol *p = hd_named(s->o, A_PARAM);
    *at = p ? hd_layout_at(p->layout, s->axis) : LAYOUT_WHOLE;
    for (int i = 1; hd_op_param(s->o, i); i++)
        if (*at != LAYOUT_WHOLE || hd_layout_at(hd_op_param(s->o, i)->layout, s->axis) != LAYOUT_WHOLE)
            return "split parameters cannot be merged into one matrix: set train.products = separate";
    return NULL;
}

static const char *spread_param(const Spread *s) { return same_layout(s, &s->out[0]); }

static const char *spread_grad(const Spread *s) {
    int at;
    const char *e = same_layout(s, &at);
    if (e || s->in[0] == at) return e;
    return say(s, 0, at == LAYOUT_WHOLE ? "every rank holds the whole parameter and needs its whole gradient"
                                        : "it is the gradient of a part of the parameter");
}

// --- collectives, of values: along the first dimension (collectives.def)

static const char *spread_collective(const Spread *s) {
    const CollectiveInfo *does = hd_collective(s->o);
    const Symbol *comm = hd_named(s->o, A_COMM);
    const bool over = comm && hd_axes(&comm->attrs, A_OVER) >> s->axis & 1;
    if (!s->o->n_in) return needs_whole(s);
    const int from = !over ? s->in[0] : does->gathers ? split(0) : does->sums ? LAYOUT_SUM : LAYOUT_WHOLE;
    if (s->in[0] != from)
        return say(s, 0, hd_internf(s->o->func->module->cx, "%s takes %s there", hd_op_info(s->o->kind)->mnemonic,
                                    does->gathers ? "what is split along dimension 0" : "a partial sum"));
    all_out(s, !over ? from : does->gathers ? LAYOUT_WHOLE : split(0));
    return NULL;
}

static const struct { OpKind of; SpreadRule *rule; } rules[N_OPS] = {
#define ELT(id, ...) [OP_##id] = {.rule = spread_pointwise},
#define OP(id, mnemonic, n_in, n_out, attrs, fields, doc) [OP_##id] = {.of = OP_##id, fields},
#define spread(x) .rule = spread_##x,
#include "ir/ops.def"
};

// Rules by which zeros stay zeros, but for pointwise ops, which differ.
static bool moves_zeros(SpreadRule *r) {
    return r == spread_pointwise || r == spread_cast || r == spread_reshape || r == spread_transpose ||
           r == spread_reduced || r == spread_product || r == spread_copy;
}

const char *hd_spread(const Op *o, int axis, const int *in, int *out) {
    const Spread s = {o, axis, in, out};
    SpreadRule *rule = rules[o->kind].rule ? rules[o->kind].rule : needs_whole;
    if (HD_EXPERT_AXES >> axis & 1) return hd_spread_experts(o, axis, in, out);
    return hd_spread_is_uneven(&s) ? hd_spread_uneven(&s, rule, moves_zeros(rule)) : rule(&s);
}
