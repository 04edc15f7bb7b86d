// Groups become kernel functions and launches, and the function is rebuilt in the order of their positions.
#include "ir/eval/eval.h"
#include "passes/fuse/fuse.h"
#include "passes/settings.h"
#include <stdlib.h>

typedef struct {
    Fusion *s;
    KernelTexts *kernels;
    Value **base;    // by value id: hd_unaliased, before operands change
    Value **now;     // by value id: the value in the new order of the function
    Value **inside;  // by value id, for the present kernel: its value there
    Value **rounded; // ... rounded to its dtype
    VEC(int) touched;
} Emitter;

typedef struct {
    Func *k;
    VEC(Value *) args, results; // of the launch, as the function knows them
    VEC(RowReads) reads;        // by argument
    VEC(Value *) returned;      // as the kernel knows them
    VEC(Value *) twins;         // values of the function that equal an earlier result in the kernel,
    VEC(int) twin_of;           // and which
} Kernel;

// --- a kernel function
static Kernel open_kernel(Emitter *e, KindId kind) {
    return (Kernel){.k = hd_kernel_open(e->kernels, e->s->m, kind)};
}

static const char *close_kernel(Emitter *e, Kernel *k) {
    bool fresh;
    const char *name = hd_kernel_close(e->kernels, k->k, k->returned.n, k->returned.at, &fresh);
    if (fresh) hd_count(e->s->cx, "kernels", 1);
    return name;
}

static void bind(Emitter *e, const Value *v, Value *in_kernel) {
    e->inside[v->id] = in_kernel;
    hd_push(e->s->cx->scratch, &e->touched, v->id);
}

// An argument is loaded in one way: a value that an op reads both as numbers of rows and as numbers of columns is two
// arguments.
static Value *argument(Emitter *e, Kernel *k, Value *v, const Op *o, int operand) {
    const RowSpace space = {hd_int(&k->k->attrs, A_ROWS, 1), hd_int(&k->k->attrs, A_COLS, 1)};
    const RowReads own = hd_row_reads(o, operand, space);
    for (int i = 0; i < k->args.n; i++) {
        RowReads *known = &k->reads.at[i], both = {known->row || own.row, known->column || own.column};
        if (k->args.at[i] != v || !hd_row_reads_agree(both, space)) continue;
        *known = both;
        return k->k->args[i];
    }
    hd_push(e->s->cx->scratch, &k->args, v);
    hd_push(e->s->cx->scratch, &k->reads, own);
    return hd_arg_add(k->k, v->type, hd_internf(e->s->m->cx, "x%d", k->args.n - 1));
}

// The value that one op of the kernel reads of another: rounded to its dtype.
static Value *reread(Emitter *e, Kernel *k, const Value *v) {
    DType d = v->type->dtype;
    const OpKind kind = v->def->kind;
    const double value = hd_float(&v->def->attrs, A_VALUE, 0);
    const bool exact = kind == OP_CAST || kind == OP_EMBEDDING || kind == OP_SLICE ||
                       (hd_op_is(v->def, TRAIT_CONSTANT) && hd_round(d, value) == value);
    if (!hd_dtype_is_narrow(d) || exact) return e->inside[v->id];
    if (!e->rounded[v->id]) {
        Builder b = {.f = k->k};
        Attrs as = {0};
        hd_set_word(e->s->m->cx, &as, A_OUT, hd_intern(e->s->m->cx, hd_dtype_text(d)));
        e->rounded[v->id] = hd_build1(&b, OP_CAST, e->inside[v->id], NULL, &as, NULL);
    }
    return e->rounded[v->id];
}

static Value *constant(Emitter *e, Kernel *k, const Value *v) {
    if (!e->inside[v->id]) {
        Builder b = {.f = k->k};
        bind(e, v, hd_build1(&b, OP_CONST, NULL, NULL, &v->def->attrs, v->type));
        hd_unset(&e->inside[v->id]->def->attrs, A_BWD);
        hd_unset(&e->inside[v->id]->def->attrs, A_RECOMPUTED);
    }
    return reread(e, k, v);
}

// `w`, which is what v is an alias of, in the shape of v.
static Value *shaped(const Emitter *e, Kernel *k, const Value *v, Value *w) {
    static const AttrId says[] = {A_OVER, A_DIMS};
    Builder b = {.f = k->k};
    Attrs as = {0};
    for (int i = 0; i < 2; i++)
        if (hd_has(&v->def->attrs, says[i])) hd_set_attr(e->s->m->cx, &as, hd_attr(&v->def->attrs, says[i]));
    return v->type == w->type && !as.n ? w : hd_build1(&b, OP_RESHAPE, w, NULL, &as, v->type);
}

static Value *operand(Emitter *e, Kernel *k, int g, const Op *o, int i) {
    Value *v = o->in[i], *base = e->base[v->id];
    if (hd_row_external(o, i)) return argument(e, k, v, o, i);
    if (g >= 0 && base == v && base->def && hd_op_is(base->def, TRAIT_CONSTANT)) return constant(e, k, v);
    if (!base->def || g < 0 || e->s->group[base->def->id] != g) return argument(e, k, v, o, i);
    Value *w = reread(e, k, base);
    return v == base ? w : shaped(e, k, v, w);
}

static bool same_op(const Op *a, const Op *b) {
    if (a->kind != b->kind || a->n_in != b->n_in || !hd_attrs_equal(&a->attrs, &b->attrs)) return false;
    for (int i = 0; i < a->n_in; i++)
        if (a->in[i] != b->in[i]) return false;
    for (int i = 0; i < a->n_out; i++)
        if (a->out[i]->type != b->out[i]->type) return false;
    return true;
}

static void give_result(Emitter *e, Kernel *k, Value *v, Value *in_kernel) {
    Arena *a = e->s->cx->scratch;
    for (int i = 0; i < k->returned.n; i++)
        if (k->returned.at[i] == in_kernel) {
            hd_push(a, &k->twins, v);
            hd_push(a, &k->twin_of, i);
            return;
        }
    hd_push(a, &k->results, v);
    hd_push(a, &k->returned, in_kernel);
}

static void kernel_op(Emitter *e, Kernel *k, int g, const Op *o) {
    Value *in[HD_MAX_IN];
    for (int i = 0; i < o->n_in; i++) in[i] = operand(e, k, g, o, i);
    Op *c = hd_op_clone(k->k, o, in), *known = k->k->first;
    hd_unset(&c->attrs, A_BWD);
    hd_unset(&c->attrs, A_RECOMPUTED);
    c->loc = (Loc){0};
    while (known && !same_op(known, c)) known = known->next;
    if (known) c = known;
    else hd_append(k->k, c);
    for (int i = 0; i < o->n_out; i++) {
        bind(e, o->out[i], c->out[i]);
        if (hd_fuse_read_outside(e->s, o->out[i], g)) give_result(e, k, o->out[i], c->out[i]);
    }
}

// --- the function
static Value *value_now(Emitter *e, Value *v);

// For offload, which lists values by their places.
static void set_places(Emitter *e, const Kernel *k, Op *launch) {
    const char *places[HD_MAX_IN];
    bool differ = false;
    for (int i = 0; i < k->results.n; i++) {
        places[i] = k->results.at[i]->def->loc.path;
        if (!places[i]) return;
        differ |= places[i] != launch->loc.path;
    }
    if (differ && hd_attr(hd_settings(e->s->m, "schedule"), A_OFFLOAD))
        hd_set_words(e->s->m->cx, &launch->attrs, A_PLACES, k->results.n, places);
}

// `like`: whose place in the source the launch has.
static void launch(Emitter *e, Kernel *k, const Op *like, bool bwd, bool recomputed) {
    Fusion *s = e->s;
    const char *name = close_kernel(e, k);
    const Type *types[HD_MAX_IN];
    for (int i = 0; i < e->touched.n; i++) e->inside[e->touched.at[i]] = e->rounded[e->touched.at[i]] = NULL;
    e->touched.n = 0; // before an operand may need a kernel of its own
    for (int i = 0; i < k->args.n; i++) k->args.at[i] = value_now(e, k->args.at[i]);
    for (int i = 0; i < k->results.n; i++) types[i] = k->results.at[i]->type;
    Op *l = hd_op_new(s->f, OP_LAUNCH, k->args.n, k->args.at);
    hd_set_word(s->m->cx, &l->attrs, A_KERNEL, name);
    if (bwd) hd_set_flag(s->m->cx, &l->attrs, A_BWD);
    if (recomputed) hd_set_flag(s->m->cx, &l->attrs, A_RECOMPUTED);
    l->loc = like->loc;
    l->span = like->span;
    const char *wrong = hd_infer(l, k->results.n, types);
    if (wrong) HD_BUG("launch of @%s: %s", name, wrong);
    if (!bwd) set_places(e, k, l);
    hd_append(s->f, l);
    for (int i = 0; i < k->results.n; i++) e->now[k->results.at[i]->id] = l->out[i];
    for (int i = 0; i < k->twins.n; i++) e->now[k->twins.at[i]->id] = l->out[k->twin_of.at[i]];
}

static void set_space(Emitter *e, Func *k, RowSpace s) {
    hd_set_int(e->s->m->cx, &k->attrs, A_ROWS, s.rows);
    hd_set_int(e->s->m->cx, &k->attrs, A_COLS, s.cols);
}

// The op that names a group: its last row operation, or else its last op.
static const Op *face_of(const Group *g) {
    for (int i = g->ops.n - 1; i >= 0; i--)
        if (!hd_op_is(g->ops.at[i], TRAIT_SCALAR) && g->ops.at[i]->kind != OP_SUM_TO && !hd_in_parts(g->ops.at[i]))
            return g->ops.at[i];
    return g->ops.at[g->ops.n - 1];
}

static void emit_group(Emitter *e, int id) {
    const Group *g = &e->s->groups.at[id];
    Kernel k = open_kernel(e, KIND_ROWS);
    bool bwd = true, recomputed = true;
    set_space(e, k.k, g->space);
    for (int i = 0; i < g->ops.n; i++) {
        kernel_op(e, &k, id, g->ops.at[i]);
        bwd &= hd_has(&g->ops.at[i]->attrs, A_BWD);
        recomputed &= hd_has(&g->ops.at[i]->attrs, A_RECOMPUTED);
    }
    launch(e, &k, face_of(g), bwd, recomputed);
}

static void emit_map(Emitter *e, const Op *o) {
    Kernel k = open_kernel(e, KIND_MAP);
    kernel_op(e, &k, -1, o);
    launch(e, &k, o, hd_has(&o->attrs, A_BWD), hd_has(&o->attrs, A_RECOMPUTED));
}

// A constant that something other than a kernel reads.
static void emit_constant(Emitter *e, Value *v) {
    Kernel k = open_kernel(e, KIND_ROWS);
    set_space(e, k.k, (RowSpace){hd_type_rows(v->type), hd_type_cols(v->type)});
    give_result(e, &k, v, constant(e, &k, v));
    launch(e, &k, v->def, hd_has(&v->def->attrs, A_BWD), false);
}

// A value in the new order; views, reshapes and constants are inserted when they are first wanted.
static Value *value_now(Emitter *e, Value *v) {
    if (!v->def || e->now[v->id]) return v->def ? e->now[v->id] : v;
    Op *o = v->def;
    if (hd_op_is(o, TRAIT_CONSTANT)) {
        emit_constant(e, v);
    } else if (hd_op_is(o, TRAIT_ALIAS | TRAIT_SOURCE)) {
        if (o->n_in) o->in[0] = value_now(e, o->in[0]);
        hd_append(e->s->f, o);
        e->now[v->id] = v;
    } else {
        HD_BUG("@%s: %s is read before it is made", e->s->f->name, hd_op_info(o->kind)->mnemonic);
    }
    return e->now[v->id];
}

static void emit_op(Emitter *e, Op *o) {
    if (hd_op_info(o->kind)->map) {
        emit_map(e, o);
        return;
    }
    for (int i = 0; i < o->n_in; i++) o->in[i] = value_now(e, o->in[i]);
    hd_append(e->s->f, o);
    for (int i = 0; i < o->n_out; i++) e->now[o->out[i]->id] = o->out[i];
}

typedef struct { double pos; int id, group; Op *op; } Node; // group: -1 for an op by itself

static int compare_nodes(const void *x, const void *y) {
    const Node *a = x, *b = y;
    if (a->pos != b->pos) return a->pos < b->pos ? -1 : 1;
    return a->id < b->id ? -1 : a->id > b->id;
}

void hd_fuse_emit(Fusion *s, KernelTexts *kernels) {
    Arena *a = s->cx->scratch;
    int n_values = s->f->n_values, n = 0;
    Emitter e = {.s = s, .kernels = kernels};
    e.now = HD_NEWN(a, Value *, n_values + 1);
    e.inside = HD_NEWN(a, Value *, n_values + 1);
    e.rounded = HD_NEWN(a, Value *, n_values + 1);
    e.base = HD_NEWN(a, Value *, n_values + 1);
    for (int i = 0; i < s->f->n_args; i++) e.base[s->f->args[i]->id] = s->f->args[i];
    for (Op *o = s->f->first; o; o = o->next)
        for (int i = 0; i < o->n_out; i++) e.base[o->out[i]->id] = hd_unaliased(o->out[i]);
    Node *nodes = HD_NEWN(a, Node, s->f->n_ops + 1);
    for (Op *o = s->f->first, *next; o; o = next) {
        next = o->next;
        if (s->group[o->id] < 0 && !hd_op_is(o, TRAIT_ALIAS | TRAIT_SOURCE | TRAIT_CONSTANT))
            nodes[n++] = (Node){s->pos[o->id], o->id, -1, o};
        hd_detach(o);
    }
    for (int i = 0; i < s->groups.n; i++)
        if (!s->groups.at[i].gone) nodes[n++] = (Node){s->groups.at[i].pos, s->groups.at[i].ops.at[0]->id, i, NULL};
    qsort(nodes, (size_t)n, sizeof *nodes, compare_nodes);
    for (int i = 0; i < n; i++) {
        if (nodes[i].group >= 0) emit_group(&e, nodes[i].group);
        else emit_op(&e, nodes[i].op);
    }
    hd_renumber(s->f);
}
