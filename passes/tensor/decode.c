// decode: the function of one token of a text. Of @logits, which computes the logits of every token of a window, it
// makes @decode, which computes those of one token at a position, from what it keeps of the tokens before it: the keys
// and values of every attention, a row for each position, in buffers of class kv_cache.
//
//   func @logits(%tokens: i32[1,128]) -> f32[1,128,256]
//     %k2 = rope %k {heads = 4} : f32[1,128,64]              %k2 = rope %k, %position {heads = 4} : f32[1,1,64]
//     %o, %l = attention %q2, %k2, %v {causal, heads = 4} -> %o = attention_step %q2, %position, %k2, %v
//   func @decode(%tokens: i32[1,1], %position: i32[1,1])         {keys = @cache.attn.keys, values = .., heads = 4}
//
// On cuda, products of a token whose weights are neighbours are one product (merge_products.c): a kernel reads both.
//
// That is possible where every op works on each token for itself, but for causal attention, and for rope, iota and
// tables with a row for each position, which take the position. Whether an op does is what the column `spread` of
// ops.def says: a value that a token has its part of is split along one dimension into as many parts as there are
// positions. Otherwise a warning names the op that reads along the sequence, and every token is computed from the whole
// window.
#include "ir/layout.h"
#include "ir/shapes.h"
#include "passes/pass.h"
#include "passes/settings.h"
#include "passes/tensor/merge_products.h"
#include <string.h>

typedef struct {
    Module *m;
    const Func *from;
    Func *to;
    int64_t seq;
    int *at;       // by value of `from`: split along the dimension of positions, or whole; ONLY_THERE
    Value **now;   // and what it is in `to`
    Value *position;
} Decode;

enum { ONLY_THERE = -1 }; // of a value that no token has a part of: the log-sum-exp of attention

// --- what each token has of a value

static const Type *part_of(const Decode *d, const Type *t, int at) {
    Type part = *t;
    if (!hd_layout_splits(at)) return t;
    part.dim[at - LAYOUT_SPLIT] /= d->seq;
    return hd_type(d->m->cx, part.dtype, part.rank, part.dim);
}

static bool divides(const Decode *d, const Type *t, int at) {
    return !hd_layout_splits(at) || (t->dim[at - LAYOUT_SPLIT] && t->dim[at - LAYOUT_SPLIT] % d->seq == 0);
}

static int dimension(int k) { return LAYOUT_SPLIT + k; }

// Positions along the dimension before the last, and one sequence.
static bool is_rows(const Type *t, int at) {
    return t->rank > 1 && at == dimension(t->rank - 2) && hd_type_rows(t) == t->dim[t->rank - 2];
}

// Of ops of which a token does not just have its part: true, and what it has in `out`, or why it cannot. False: the op
// is like others.
static bool parts_attention(const Decode *d HD_UNUSED, const Op *o, const int *in, int *out, const char **why) {
    *why = hd_has(&o->attrs, A_CAUSAL) ? NULL : "is not causal"; // over itself and those before it
    if (hd_has(&o->attrs, A_DOCUMENTS)) *why = "looks at documents";
    if (hd_has(&o->attrs, A_P)) *why = "has dropout";
    if (hd_attention_sink(o) && in[hd_attention_sink_at(o)] != LAYOUT_WHOLE) *why = "has a sink of positions";
    const int n = hd_attention_operands(o);
    for (int i = 0; i < n && !*why; i++)
        if (n != 3 || in[i] != dimension(1) || o->in[i]->type->dim[0] != 1)
            *why = "has operands of another form";
    out[0] = dimension(1);
    out[1] = ONLY_THERE;
    return true;
}

static bool parts_rope(const Decode *d HD_UNUSED, const Op *o, const int *in, int *out, const char **why HD_UNUSED) {
    out[0] = in[0];
    return o->n_in == 1 && is_rows(o->in[0]->type, in[0]);
}

static bool parts_iota(const Decode *d, const Op *o, const int *in HD_UNUSED, int *out, const char **why HD_UNUSED) {
    const Type *t = o->out[0]->type;
    if (t->rank == 1 && t->dim[0] == d->seq) out[0] = dimension(0);
    return true;
}

static Op *token_attention(Decode *d, const Op *o);
static Op *token_rope(Decode *d, const Op *o);
static Op *token_iota(Decode *d, const Op *o);
typedef struct {
    OpKind of;
    bool (*parts)(const Decode *, const Op *, const int *, int *, const char **);
    Op *(*of_token)(Decode *, const Op *);
} TokenRule;
static const TokenRule rules[N_OPS] = {
#define OP(id, mnemonic, n_in, n_out, attrs, fields, doc) [OP_##id] = {.of = OP_##id, fields},
#define token(name) .parts = parts_##name, .of_token = token_##name,
#include "ir/ops.def"
};

// Pointwise work of values that tokens have parts of and of a table whose rows are positions: along which dimension of
// the table; -1: it is no such table.
static int table_dimension(const Decode *d, const Op *o, const int *in, int table) {
    const Type *t = o->in[table]->type;
    if (!hd_op_is(o, TRAIT_ELEMENTWISE) || in[table] != LAYOUT_WHOLE || !hd_dtype_is_float(t->dtype)) return -1;
    for (int i = 0; i < o->n_in; i++) {
        const int k = in[i] - LAYOUT_SPLIT + t->rank - o->in[i]->type->rank;
        int64_t before = 1;
        if (!hd_layout_splits(in[i]) || k < 0 || k >= t->rank || t->dim[k] != d->seq) continue;
        for (int j = 0; j < k; j++) before *= t->dim[j];
        if (before == 1) return k;
    }
    return -1;
}

// NULL; or what the op does that no token can do for itself.
static const char *spread(const Decode *d, const Op *o, int *out) {
    int in[HD_MAX_IN];
    bool whole = true;
    for (int i = 0; i < o->n_in; i++) {
        in[i] = d->at[o->in[i]->id];
        whole &= in[i] == LAYOUT_WHOLE;
        if (in[i] == ONLY_THERE) return "reads what attention knows of all tokens";
    }
    for (int i = 0; i < o->n_out; i++) out[i] = LAYOUT_WHOLE;
    const TokenRule *own = &rules[o->kind];
    const char *why = NULL;
    if (own->parts && (!whole || !o->n_in) && own->parts(d, o, in, out, &why)) return why;
    if (whole && !hd_op_is(o, TRAIT_RETURN)) return NULL;
    if (hd_op_is(o, TRAIT_RETURN))
        return o->n_in == 1 && is_rows(o->in[0]->type, in[0]) ? NULL : "does not return a row for each token";
    int taken[HD_MAX_IN];
    for (int i = 0; i < o->n_in; i++) {
        const int k = table_dimension(d, o, in, i);
        taken[i] = k < 0 ? in[i] : dimension(k);
    }
    memcpy(in, taken, (size_t)o->n_in * sizeof *in);
    if (hd_has(&o->attrs, A_CAUSAL) || !hd_is_pure(o) || hd_spread(o, 0, in, out)) return "reads along the sequence";
    for (int i = 0; i < o->n_out; i++)
        if (out[i] == LAYOUT_SUM || !divides(d, o->out[i]->type, out[i])) return "reads along the sequence";
    return NULL;
}

// The first op of which a token cannot have its part; NULL: there is none.
static const Op *find_parts(Decode *d, const char **why) {
    d->at[d->from->args[0]->id] = dimension(1);
    for (const Op *o = d->from->first; o; o = o->next) {
        int out[HD_MAX_OUT];
        if ((*why = spread(d, o, out))) return o;
        for (int i = 0; i < o->n_out; i++) d->at[o->out[i]->id] = out[i];
    }
    return NULL;
}

// --- the function of one token

static const char *add_cache(Decode *d, const Op *o, const char *what, const Type *k) {
    Ctx *cx = d->m->cx;
    const char *of = o->loc.path && *o->loc.path ? hd_internf(cx, "cache.%s.%s", o->loc.path, what)
                                                 : hd_internf(cx, "cache.%s", what);
    const Type *type = hd_type(cx, k->dtype, 1, (int64_t[]){d->seq * hd_type_cols(k)});
    Symbol *s = type ? hd_symbol_add(d->m, SYM_BUFFER, hd_free_name(d->m, of), type) : NULL;
    if (!s) return NULL;
    hd_set_word(cx, &s->attrs, A_CLASS, "kv_cache");
    return s->name;
}

static Op *token_attention(Decode *d, const Op *o) {
    static const AttrId same[] = {A_HEADS, A_KV_HEADS, A_WINDOW, A_SCALE, A_SOFTCAP, A_SINK};
    const Value *sink = hd_attention_sink(o);
    Value *in[] = {d->now[o->in[0]->id], d->position, d->now[o->in[1]->id], d->now[o->in[2]->id],
                   sink ? d->now[sink->id] : NULL};
    const char *keys = add_cache(d, o, "keys", in[2]->type), *values = add_cache(d, o, "values", in[2]->type);
    Op *now = hd_op_new(d->to, OP_ATTENTION_STEP, sink ? 5 : 4, in);
    for (size_t i = 0; i < sizeof same / sizeof *same; i++)
        if (hd_has(&o->attrs, same[i])) hd_set_attr(d->m->cx, &now->attrs, hd_attr(&o->attrs, same[i]));
    hd_set_word(d->m->cx, &now->attrs, A_KEYS, keys ? keys : "");
    hd_set_word(d->m->cx, &now->attrs, A_VALUES, values ? values : "");
    return now;
}

static Op *token_rope(Decode *d, const Op *o) { // at its position
    Value *in[] = {d->now[o->in[0]->id], d->position};
    Op *now = hd_op_new(d->to, OP_ROPE, 2, in);
    now->attrs = hd_attrs_copy(d->m->cx, &o->attrs);
    return now;
}

// The number of this position, in the type of the numbers.
static Op *token_iota(Decode *d, const Op *o) {
    Builder b = {.f = d->to, .loc = o->loc, .span = o->span};
    const DType t = o->out[0]->type->dtype;
    Attrs as = {0};
    hd_set_word(d->m->cx, &as, A_OUT, hd_intern(d->m->cx, hd_dtype_text(t)));
    Value *v = t == TY_I32 ? d->position : hd_build1(&b, OP_CAST, d->position, NULL, &as, NULL);
    return hd_op_new(d->to, OP_RESHAPE, 1, &v);
}

static Value *row_of_table(Decode *d, const Op *o, const Value *table, int dim) {
    Ctx *cx = d->m->cx;
    Builder b = {.f = d->to, .loc = o->loc, .span = o->span};
    const int64_t n = hd_type_count(table->type) / d->seq;
    const Type *rows = hd_type(cx, table->type->dtype, 2, (int64_t[]){d->seq, n});
    Value *all = d->now[table->id], *at = d->position;
    if (all->type != rows) all = hd_build1(&b, OP_RESHAPE, all, NULL, NULL, rows);
    at = hd_build1(&b, OP_RESHAPE, at, NULL, NULL, hd_type(cx, TY_I32, 1, (int64_t[]){1}));
    const Type *part = part_of(d, table->type, dimension(dim));
    Value *row = hd_build1(&b, OP_EMBEDDING, all, at, NULL, NULL);
    return row->type == part ? row : hd_build1(&b, OP_RESHAPE, row, NULL, NULL, part);
}

static Op *copy_of(Decode *d, const Op *o) {
    Value *in[HD_MAX_IN];
    int at[HD_MAX_IN];
    for (int i = 0; i < o->n_in; i++) at[i] = d->at[o->in[i]->id];
    for (int i = 0; i < o->n_in; i++) {
        const int k = table_dimension(d, o, at, i);
        in[i] = k < 0 ? d->now[o->in[i]->id] : row_of_table(d, o, o->in[i], k);
    }
    return hd_op_clone(d->to, o, in);
}

static void drop_unread(Decode *d, Arena *scratch) { // tables of which a row is taken, positions
    hd_renumber(d->to);
    Uses uses = hd_uses(d->to, scratch);
    for (Op *o = d->to->last, *prev; o; o = prev) {
        bool read = !hd_is_pure(o) || !o->n_out;
        prev = o->prev;
        for (int i = 0; i < o->n_out; i++) read |= uses.count[o->out[i]->id] > 0;
        for (int i = 0; !read && i < o->n_in; i++) uses.count[o->in[i]->id]--;
        if (!read) hd_erase(o);
    }
    hd_renumber(d->to);
}

// Adds what a token does for an op; false: the op's rule has other results than `spread` says.
static bool add(Decode *d, const Op *o) {
    const bool parts = o->n_out && hd_layout_splits(d->at[o->out[0]->id]);
    Op *now = parts && rules[o->kind].of_token ? rules[o->kind].of_token(d, o) : copy_of(d, o);
    const Type *types[HD_MAX_OUT];
    int n = o->n_out;
    while (n && d->at[o->out[n - 1]->id] == ONLY_THERE) n--;
    for (int i = 0; i < n; i++) types[i] = part_of(d, o->out[i]->type, d->at[o->out[i]->id]);
    now->loc = o->loc;
    now->span = o->span;
    hd_append(d->to, now);
    if (!hd_op_is(o, TRAIT_RETURN) && hd_infer(now, hd_op_is(now, TRAIT_EXPLICIT) ? n : 0, types)) return false;
    for (int i = 0; i < n; i++) {
        if (now->out[i]->type != types[i]) return false;
        d->now[o->out[i]->id] = now->out[i];
    }
    return true;
}

static bool build(Decode *d, Arena *scratch) {
    Ctx *cx = d->m->cx;
    const Value *tokens = d->from->args[0];
    const Type *one = hd_type(cx, TY_I32, 2, (int64_t[]){1, 1});
    const char *position = hd_intern(cx, "position");
    d->to = hd_func_add(d->m, hd_free_name(d->m, "decode"), false);
    d->to->span = d->from->span;
    hd_set_kind(cx, &d->to->attrs, KIND_DECODE);
    d->now[tokens->id] = hd_arg_add(d->to, one, tokens->name);
    d->position = hd_arg_add(d->to, one, tokens->name == position ? hd_intern(cx, "at") : position);
    for (const Op *o = d->from->first; o; o = o->next)
        if (!add(d, o)) return false;
    drop_unread(d, scratch);
    return true;
}

static bool takes_sequence(const Func *f) {
    const Type *t = f->n_args == 1 ? f->args[0]->type : NULL;
    return t && t->dtype == TY_I32 && t->rank == 2 && t->dim[0] == 1 && t->dim[1] > 0;
}

static Change left(const Decode *d, const Op *o, const char *why) {
    const char *path = o->loc.path && *o->loc.path ? hd_internf(d->m->cx, " of %s", o->loc.path) : "";
    hd_warning(d->m->cx, d->from->span,
               "texts are written without a cache of keys and values, and each token costs a window of %lld: %s%s %s "
               "(schedule.logits = whole says so)",
               (long long)d->seq, hd_op_info(o->kind)->mnemonic, path, why);
    return UNCHANGED;
}

Change hd_pass_decode(Module *m, PassCx *cx) {
    Func *logits, *decode;
    const char *why = NULL;
    if (!hd_func_of_kind(m, KIND_LOGITS, &logits) || !hd_func_of_kind(m, KIND_DECODE, &decode)) return FAILED;
    if (!logits || decode || strcmp(hd_word(hd_settings(m, "schedule"), A_LOGITS, "off"), "on")) return UNCHANGED;
    if (!takes_sequence(logits)) return UNCHANGED;
    hd_renumber(logits);
    Decode d = {.m = m, .from = logits, .seq = logits->args[0]->type->dim[1],
                .at = HD_NEWN(cx->scratch, int, logits->n_values + 1),
                .now = HD_NEWN(cx->scratch, Value *, logits->n_values + 1)};
    const Op *bad = find_parts(&d, &why);
    if (bad) return left(&d, bad, why);
    if (!build(&d, cx->scratch)) HD_BUG("@%s: an op has no part for each token", logits->name);
    hd_merge_token_products(m, d.to, cx);
    hd_count(cx, "functions of one token", 1);
    return CHANGED;
}
