// Random functions at stage tensor: an op of the table, random operands and attributes; what the type rule refuses is
// thrown away. Values that can grow pass through tanh before others read them, so that results stay comparable.
#ifndef TESTS_NUMERIC_RANDOM_GRAPH_H
#define TESTS_NUMERIC_RANDOM_GRAPH_H
#include "ir/mesh.h"
#include "ir/dropout.h"
#include "ir/shapes.h"
#include "tests/numeric/harness.h"

typedef struct {
    Module *m;
    Func *f;
    uint64_t state;
    DType dtype;
    Arena *arena;
    bool differentiable, params; // only ops with a gradient; operands are parameters instead of arguments
    bool large;                  // sizes that fill vectors, warps and tiles of kernels, or not quite
    VEC(Value *) pool;
    Value *key; // of dropout
} Graph;

static int below(Graph *g, int n) { return (int)uniform(&g->state, 0, n); }
static Value *any(Graph *g) { return g->pool.at[below(g, g->pool.n)]; }

static const Type *random_type(Graph *g, DType d) {
    static const int64_t small[] = {2, 4, 4, 3, 1}, large[] = {64, 8, 33, 130, 64, 3, 1, 16};
    int64_t dim[HD_MAX_DIMS];
    int rank = below(g, 4);
    for (int i = 0; i < rank; i++) dim[i] = g->large ? large[below(g, 8)] : small[below(g, 5)];
    return hd_type(g->m->cx, d, rank, dim);
}

// Ops whose domain is part of the line, whose steps would turn a rounding error into an answer, whose results index
// more than two rows, whose operands are of one dispatch or loss, that keep rows in buffers (op_cases.h has them), and
// those of other stages or of several ranks.
static bool usable(const Graph *g, OpKind k) {
    static const OpKind left_out[] = {OP_EXP,  OP_LOG, OP_SQRT,  OP_RSQRT, OP_DIV,   OP_STEP,
                                      OP_SIGN, OP_GE,  OP_LT,    OP_LE,    OP_GT,    OP_EQ,  OP_NE,
                                      OP_WHERE, OP_POW, OP_STOP_GRADIENT, OP_PARAM,
                                      OP_GRAD, OP_RETURN, OP_QUANTIZE, OP_REQUANTIZE, OP_QUANTIZE_BLOCKS,
                                      OP_QUANTIZE_BOTH, OP_TOP_K, OP_DISPATCH, OP_ROUTE, OP_COMBINE,
                                      OP_COMBINE_GRAD, OP_GROUPED, OP_SSD, OP_SSD_GRAD, OP_ALL_GATHER,
                                      OP_REDUCE_SCATTER, OP_EXCHANGE, OP_LOSS_PART_GRAD, OP_LOSS_OF_PARTS,
                                      OP_ATTENTION_STEP};
    static const bool smooth[N_OPS] = {
#define ELT(id, mnemonic, n, traits, by, ...) [OP_##id] = sizeof #by != sizeof "none" || #by[1] != 'o',
#define OP(id, mnemonic, n_in, n_out, attrs, fields, doc) [OP_##id] = sizeof("" fields) > 1 || n_in == 0,
#define grad(x) #x
#include "ir/ops.def"
    };
    for (size_t i = 0; i < sizeof left_out / sizeof *left_out; i++)
        if (left_out[i] == k) return false;
    const OpInfo *info = hd_op_info(k);
    return (info->stages & 1u << STAGE_TENSOR) && (!g->differentiable || (smooth[k] && k != OP_REDUCE_MAX));
}

static void random_attr(Graph *g, Op *o, AttrId id, bool optional) {
    Ctx *cx = g->m->cx;
    const Type *t = o->n_in ? o->in[0]->type : NULL;
    int rank = t && t->rank ? t->rank : 1;
    int64_t ints[HD_MAX_DIMS];
    int n = 0;
    if (optional && below(g, 2)) return;
    switch (id) {
    case A_AXIS: hd_set_int(cx, &o->attrs, id, below(g, rank)); break;
    case A_START: hd_set_int(cx, &o->attrs, id, below(g, 3)); break;
    case A_SIZE: hd_set_int(cx, &o->attrs, id, 1 + below(g, 3)); break;
    case A_HEADS: hd_set_int(cx, &o->attrs, id, 1 << below(g, 2)); break;
    case A_KV_HEADS: hd_set_int(cx, &o->attrs, id, 1); break;
    case A_WINDOW: hd_set_int(cx, &o->attrs, id, 1 + below(g, 3)); break;
    case A_THETA: hd_set_float(cx, &o->attrs, id, 10); break;
    case A_EPS: hd_set_float(cx, &o->attrs, id, 0.125); break;
    case A_SCALE: hd_set_float(cx, &o->attrs, id, 0.5); break;
    case A_P: hd_set_float(cx, &o->attrs, id, 0.25); break;
    case A_SITE: hd_set_int(cx, &o->attrs, id, below(g, 3)); break;
    case A_OVER: hd_set_axes(cx, &o->attrs, id, HD_OWN_AXES); break; // one rank: its part is the first
    case A_ROWS: hd_set_int(cx, &o->attrs, id, 1 + below(g, 3)); break;
    case A_BATCH: hd_set_int(cx, &o->attrs, id, t && t->rank ? t->dim[0] : 1); break;
    case A_VALUE: hd_set_float(cx, &o->attrs, id, below(g, 5) * 0.5 - 1); break;
    case A_AXES:
        for (int i = 0; i < rank; i++)
            if (below(g, 2)) ints[n++] = i;
        hd_set_ints(cx, &o->attrs, id, n, ints);
        break;
    case A_PERM:
        for (; n < rank; n++) ints[n] = n;
        for (int i = rank - 1; i > 0; i--) {
            int k = below(g, i + 1);
            int64_t swapped = ints[i];
            ints[i] = ints[k];
            ints[k] = swapped;
        }
        hd_set_ints(cx, &o->attrs, id, t ? t->rank : 0, ints);
        break;
    case A_OUT:
        if (!optional || (o->kind != OP_CAST && t->dtype == TY_F32))
            hd_set_word(cx, &o->attrs, id, hd_dtype_text(g->dtype));
        break;
    default:
        if (hd_attr_info(id)->kind == AK_FLAG) hd_set_flag(cx, &o->attrs, id);
    }
}

static void random_attrs(Graph *g, Op *o) {
    for (int id = 0; id < N_ATTRS; id++) {
        int allowed = hd_attr_allowed(hd_op_info(o->kind)->attrs, (AttrId)id);
        if (allowed && id != A_IMPL && id != A_ELSE && id != A_PER_RANK && id != A_ALIGN && id != A_DOCUMENTS &&
            id != A_INPLACE && id != A_WORKSPACE_BYTES && id != A_WORKSPACE_AT)
            random_attr(g, o, (AttrId)id, allowed == 1);
    }
}

static const Type *random_declared(Graph *g, const Op *o) {
    if (!hd_op_is(o, TRAIT_EXPLICIT)) return NULL;
    if (o->kind == OP_IOTA && below(g, 2)) return hd_type(g->m->cx, TY_I32, 1, (int64_t[]){2});
    DType d = g->dtype;
    if (o->kind == OP_RESHAPE && below(g, 2)) { // two neighbouring axes as one
        Type t = *o->in[0]->type;
        if (t.rank < 2) return o->in[0]->type;
        int at = below(g, t.rank - 1);
        t.dim[at] *= t.dim[at + 1];
        for (int i = at + 1; i + 1 < t.rank; i++) t.dim[i] = t.dim[i + 1];
        return hd_type(g->m->cx, t.dtype, t.rank - 1, t.dim);
    }
    return below(g, 2) ? random_type(g, d) : hd_type_with(g->m->cx, d, any(g)->type);
}

// Integers are 0 and 1, as arguments or as an iota, but those made of where documents begin are positions: the number
// of rows that a table of such indices has.
static int64_t index_bound(const Value *v) {
    int64_t bound = 2;
    if (!v->def) return bound;
    if (v->def->kind == OP_DOCUMENTS) return hd_type_cols(v->type);
    for (int i = 0; i < v->def->n_in; i++) {
        const int64_t of = index_bound(v->def->in[i]);
        bound = of > bound ? of : bound;
    }
    return bound;
}

static bool indices_fit(const Op *o) {
    if (o->kind != OP_EMBEDDING && o->kind != OP_EMBEDDING_GRAD && o->kind != OP_CROSS_ENTROPY &&
        o->kind != OP_CROSS_ENTROPY_GRAD)
        return true;
    const Type *t = o->kind == OP_EMBEDDING_GRAD ? o->out[0]->type : o->in[0]->type;
    const bool table = o->kind == OP_EMBEDDING || o->kind == OP_EMBEDDING_GRAD;
    return (table ? t->dim[0] : hd_type_cols(t)) >= index_bound(o->in[1]);
}

static bool grows(OpKind k) {
    return k == OP_MUL || k == OP_SQUARE || k == OP_MATMUL || k == OP_BMM || k == OP_SUM || k == OP_SUM_TO ||
           k == OP_IOTA || k == OP_ADD || k == OP_SUB || k == OP_CROSS_ENTROPY || k == OP_LAYER_NORM ||
           k == OP_RMS_NORM || k > OP_MATMUL;
}

// attention_grad fits its attention only: one that the function has, with the output as its gradient.
static Op *random_attention_grad(Graph *g) {
    VEC(const Op *) all = {0};
    for (const Op *o = g->f->first; o; o = o->next)
        if (o->kind == OP_ATTENTION) hd_push(g->arena, &all, o);
    if (!all.n) return NULL;
    const Op *forward = all.at[below(g, all.n)];
    Value *in[8] = {forward->out[0], forward->in[0]};
    int n = 1;
    for (int i = 0; i < hd_attention_operands(forward); i++) in[n++] = forward->in[i];
    for (int i = 0; i < 2; i++) in[n++] = forward->out[i];
    if (hd_attention_starts(forward)) in[n++] = hd_attention_starts(forward);
    if (hd_key(forward)) in[n++] = hd_key(forward);
    Op *o = hd_op_new(g->f, OP_ATTENTION_GRAD, n, in);
    o->attrs = hd_attrs_copy(g->m->cx, &forward->attrs);
    return o;
}

// Where documents begin in the sequences of x, if the function has that.
static Value *random_starts(Graph *g, const Value *x) {
    const Type *t = x->type;
    for (int i = 0; i < g->pool.n && t->rank == 3 && below(g, 4); i++) {
        Value *v = g->pool.at[i];
        const bool made = v->def && v->def->kind == OP_DOCUMENTS && !hd_has(&v->def->attrs, A_WITHIN);
        if (made && v->type == hd_type(g->m->cx, TY_I32, 2, t->dim)) return v;
    }
    return NULL;
}

static int random_count(Graph *g, OpKind k) { // of operands, for an op whose number varies
    switch (k) {
    case OP_DROPOUT: case OP_ROPE: return 1; // rope with positions: op_cases.h
    case OP_CONCAT: case OP_MATMUL: case OP_TAKE: case OP_LOSS_PART: return 2; // padded parts: op_cases.h
    case OP_CROSS_ENTROPY: return g->differentiable ? 2 : 2 + below(g, 2); // weights have no gradient
    case OP_CROSS_ENTROPY_GRAD: return 3 + below(g, 2);
    default: return 1 + 2 * below(g, 2);
    }
}

static Op *random_op(Graph *g, OpKind k) {
    if (k == OP_ATTENTION_GRAD) return random_attention_grad(g);
    Value *in[6], *starts = NULL;
    int n = hd_op_info(k)->n_in;
    if (n < 0) n = random_count(g, k);
    for (int i = 0; i < n; i++) in[i] = any(g);
    const bool draws = k == OP_DROPOUT || (k == OP_ATTENTION && below(g, 2));
    if (k == OP_ATTENTION && (starts = random_starts(g, in[0]))) in[n++] = starts;
    if (draws) in[n++] = g->key;
    Op *o = hd_op_new(g->f, k, n, in);
    random_attrs(g, o);
    if (k == OP_ATTENTION) {
        hd_unset(&o->attrs, A_PACKED);
        if (starts) hd_set_flag(g->m->cx, &o->attrs, A_CAUSAL), hd_set_flag(g->m->cx, &o->attrs, A_DOCUMENTS);
        if (!hd_has(&o->attrs, A_CAUSAL)) hd_unset(&o->attrs, A_WINDOW);
        if (n - !!starts - draws == 1) hd_set_flag(g->m->cx, &o->attrs, A_PACKED);
        if (draws) random_attr(g, o, A_P, false), random_attr(g, o, A_BATCH, false);
        else hd_unset(&o->attrs, A_P);
    }
    return o;
}

static bool try_op(Graph *g, OpKind k) {
    Op *o = random_op(g, k);
    if (!o) return false;
    const Type *declared = random_declared(g, o);
    if (hd_infer(o, declared ? 1 : 0, &declared) || !indices_fit(o) || hd_index_parts(o) != 1) return false;
    for (int i = 0; i < o->n_out; i++)
        if (!hd_type_count(o->out[i]->type) || hd_type_count(o->out[i]->type) > (g->large ? 40000 : 256)) return false;
    hd_append(g->f, o);
    int readable = g->differentiable ? 1 : o->n_out; // statistics have no gradient
    for (int i = 0; i < readable; i++) {
        Value *v = o->out[i];
        Builder b = {.f = g->f};
        if (hd_dtype_is_float(v->type->dtype) && grows(k)) v = hd_build1(&b, OP_TANH, v, NULL, NULL, NULL);
        hd_push(g->arena, &g->pool, v);
    }
    return true;
}

static void add_operand(Graph *g, const Type *t, int index) {
    char name[16];
    if (t->dtype == TY_I32) snprintf(name, sizeof name, "i2"); // integers below 2: tests/numeric/op_cases.h
    else snprintf(name, sizeof name, "x%d", index);
    if (!g->params || t->dtype == TY_I32) {
        hd_push(g->arena, &g->pool, hd_arg_add(g->f, t, name));
        return;
    }
    hd_symbol_add(g->m, SYM_PARAM, name, t);
    Builder b = {.f = g->f};
    Attrs as = {0};
    hd_set_word(g->m->cx, &as, A_PARAM, name);
    hd_push(g->arena, &g->pool, hd_build1(&b, OP_PARAM, NULL, NULL, &as, NULL));
}

// A function @name of `n_ops` ops over six operands. It returns every value that nothing reads, up to `n_results`.
static Graph random_graph_of(Ctx *cx, Arena *a, const char *name, uint64_t seed, DType dtype, bool gradients,
                             bool large, int n_ops, int n_results) {
    Graph g = {.m = hd_module_new(cx, STAGE_TENSOR),
               .state = seed,
               .dtype = dtype,
               .arena = a,
               .differentiable = gradients,
               .params = gradients,
               .large = large};
    g.f = hd_func_add(g.m, name, false);
    for (int i = 0; i < 5; i++) add_operand(&g, random_type(&g, dtype), i);
    const Type *numbers = random_type(&g, TY_I32);
    for (int i = 0; i < g.pool.n; i++) // a number for each position of sequences
        if (g.pool.at[i]->type->rank == 3 && below(&g, 2))
            numbers = hd_type(cx, TY_I32, 2, g.pool.at[i]->type->dim);
    add_operand(&g, numbers, 5);
    g.key = hd_arg_add(g.f, hd_type(cx, TY_I32, 1, (int64_t[]){HD_KEY}), "key");
    OpKind kinds[N_OPS]; // so that ops of other stages change no function
    int n_kinds = 0;
    for (int k = 0; k < N_OPS; k++)
        if (usable(&g, (OpKind)k)) kinds[n_kinds++] = (OpKind)k;
    for (int made = 0, tries = 0; made < n_ops && tries < 20000;) {
        OpKind k = kinds[below(&g, n_kinds)];
        bool ok = false;
        for (int i = 0; i < 60 && !ok; i++, tries++) ok = try_op(&g, k);
        made += ok;
    }
    Uses uses = hd_uses(g.f, a);
    VEC(Value *) results = {0};
    for (const Op *o = g.f->first; o; o = o->next)
        for (int i = 0; i < o->n_out && results.n < n_results; i++)
            if (!uses.count[o->out[i]->id] && hd_dtype_is_float(o->out[i]->type->dtype) && (!gradients || i == 0))
                hd_push(a, &results, o->out[i]);
    hd_append(g.f, hd_op_new(g.f, OP_RETURN, results.n, results.at));
    hd_renumber(g.f);
    return g;
}
static inline Graph random_graph(Ctx *cx, Arena *a, const char *name, uint64_t seed, DType dtype, bool gradients,
                                 int n_ops, int n_results) {
    return random_graph_of(cx, a, name, seed, dtype, gradients, false, n_ops, n_results);
}
#endif
