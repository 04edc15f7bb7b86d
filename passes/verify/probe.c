// Probes (probe.h). Sums multiply by the number of elements that they add; other pointwise work computes one element by
// the op table's meaning. A mixed probe also computes softmax, norms and their gradients. Any other op has no number,
// nor has anything that reads it. But 0 times anything is 0, so a gradient that does not begin here stays 0 through
// every op.
#include "passes/verify/probe.h"
#include "ir/eval/eval.h"
#include "ir/shapes.h"
#include <math.h>

static bool stops(const Module *m) {
    for (const Func *f = m->funcs; f; f = f->next)
        for (const Op *o = f->is_kernel ? f->first : NULL; o; o = o->next)
            if (o->kind == OP_STOP_GRADIENT) return true;
    return false;
}

Probe hd_probe(PlanCheck *c, const Func *f, bool mixed) {
    int n = f->n_values + 1;
    Num *at = HD_NEWN(c->a, Num, n);
    return (Probe){.c = c, .f = f, .mixed = mixed, .homes = hd_homes(f, c->a), .wanted = HD_NEWN(c->a, bool, n),
                   .leaf = HD_NEWN(c->a, int, n), .at = at, .still = stops(c->m) ? HD_NEWN(c->a, Num, n) : at};
}

void hd_probe_want(Probe *p, const Value *v) { p->wanted[v->id] = true; }

// --- leaves

static bool is_copy(const Op *o) { return o->kind == OP_COPY && o->n_in && o->n_out; } // of a value, to a value

static bool is_inner(const Op *o) {
    return o && (is_copy(o) || o->kind == OP_LAUNCH || o->kind == OP_RESHAPE || o->kind == OP_TRANSPOSE ||
                 o->kind == OP_SLICE || o->kind == OP_CONCAT);
}

// The position of a weight in its bucket, whichever buffer holds it, kept or gathered.
static bool weight_at(const Probe *p, const Value *v, Leaf *leaf) {
    const Home *home = &p->homes[v->id];
    if (!home->buffer) return false;
    const BucketParts *k = hd_plan_bucket(p->c, home->buffer);
    leaf->home = k ? k->symbol : home->buffer;
    leaf->at = home->at / hd_dtype_bytes(home->buffer->type->dtype);
    return true;
}

static bool product_at(const Probe *p, const Op *o, Leaf *leaf) {
    if (o->kind != OP_GEMM || o->n_out != 1 || hd_has(&o->attrs, A_BATCHES)) return false;
    return weight_at(p, o->in[1], leaf) || weight_at(p, o->in[0], leaf);
}

static int64_t number_of(const char *text) {
    uint64_t h = 14695981039346656037u;
    for (; *text; text++) h = (h ^ (unsigned char)*text) * 1099511628211u;
    return (int64_t)(h >> 8);
}

static int64_t argument(const Value *v) { // 0: none
    while (v->def && hd_op_is(v->def, TRAIT_ALIAS)) v = v->def->in[0];
    return v->def ? 0 : number_of(v->name);
}

const Op *hd_probe_maker(const Value *v) {
    while (v->def && (hd_op_is(v->def, TRAIT_ALIAS) || is_copy(v->def))) v = v->def->in[0];
    return v->def;
}

Leaf hd_probe_leaf(const Probe *p, const Value *v) {
    const Op *o = v->def;
    Leaf leaf = {.kind = LEAF_OTHER, .value = v};
    if (!o) {
        leaf.kind = LEAF_ARGUMENT;
        leaf.at = argument(v);
    } else if ((o->kind == OP_CROSS_ENTROPY || o->kind == OP_CROSS_ENTROPY_GRAD) && v->index == 0) {
        const Op *logits = hd_probe_maker(o->in[0]);
        leaf.kind = LEAF_LOSS;
        leaf.target = argument(o->in[1]);
        if (!logits) leaf.at = argument(o->in[0]);
        else if (!product_at(p, logits, &leaf)) leaf.at = hd_type_count(o->in[0]->type);
    } else if (hd_has(&o->attrs, A_BWD) && !hd_has(&o->attrs, A_RECOMPUTED) && !hd_op_is(o, TRAIT_SOURCE)) {
        leaf.kind = LEAF_GRADIENT;
    } else if (product_at(p, o, &leaf)) {
        leaf.kind = LEAF_PRODUCT;
    } else if (hd_op_is(o, TRAIT_SOURCE) && weight_at(p, v, &leaf)) {
        leaf.kind = LEAF_WEIGHT;
    } else {
        leaf.at = number_of(hd_op_info(o->kind)->mnemonic);
    }
    return leaf;
}

bool hd_probe_same(const Leaf *x, const Leaf *y) {
    return x->kind == y->kind && x->home == y->home && x->at == y->at && x->target == y->target;
}

int hd_probe_find(const Probe *p, Leaf like) {
    for (int i = 0; i < p->leaves.n; i++)
        if (hd_probe_same(&p->leaves.at[i], &like)) return i;
    return -1;
}

static void find_leaf(Probe *p, const Value *v) {
    if (!p->wanted[v->id] || is_inner(v->def)) return;
    Leaf leaf = hd_probe_leaf(p, v);
    int i = hd_probe_find(p, leaf);
    if (i < 0) {
        i = p->leaves.n;
        hd_push(p->c->a, &p->leaves, leaf);
    }
    p->leaf[v->id] = i + 1;
}

void hd_probe_prepare(Probe *p) {
    for (const Op *o = p->f->last; o; o = o->prev)
        for (int i = 0; is_inner(o) && i < o->n_out; i++)
            for (int k = 0; p->wanted[o->out[i]->id] && k < o->n_in; k++) p->wanted[o->in[k]->id] = true;
    for (int i = 0; i < p->f->n_args; i++) find_leaf(p, p->f->args[i]);
    for (const Op *o = p->f->first; o; o = o->next)
        for (int i = 0; i < o->n_out; i++) find_leaf(p, o->out[i]);
}

// --- a run

static int64_t columns(const Type *t, int kind) { return (hd_type_cols(t) + KINDS - 1 - kind) / KINDS; }

int64_t hd_probe_count(const Probe *p, const Type *t, int kind) {
    const int64_t n = hd_type_count(t);
    if (!p->mixed || !n) return kind ? 0 : n;
    return n / hd_type_cols(t) * columns(t, kind);
}

// Different for different leaves and kinds: a 0, a 1, a root of a negative number, or two rows that differ by a
// constant would hide a scale.
static double number_for(const Leaf *leaf, int kind) {
    if (leaf->kind == LEAF_GRADIENT) return 0;
    uint64_t h = (uint64_t)(leaf->at ^ leaf->target) * 0x9e3779b97f4a7c15u + (uint64_t)leaf->kind * 0xbf58476d1ce4e5b9u;
    if (leaf->home) h ^= (uint64_t)number_of(leaf->home->name);
    h = (h ^ (h >> 31)) * 0x94d049bb133111ebu;
    for (int i = 0; i < kind; i++) h = (h ^ (h >> 29)) * 0x9e3779b97f4a7c15u;
    return 0.5 + (double)(h >> 11) / 9007199254740992.0 + 0.25 * (double)kind;
}

static Num all(double x) {
    Num y;
    for (int h = 0; h < KINDS; h++) y.of[h] = x;
    return y;
}

static bool is_one(Num x) {
    for (int h = 1; h < KINDS; h++)
        if (x.of[h] != x.of[0]) return false;
    return true;
}

static double row_mean(const Type *t, Num x) {
    double sum = 0;
    if (is_one(x)) return x.of[0];
    for (int h = 0; h < KINDS; h++) sum += x.of[h] * (double)columns(t, h);
    return sum / (double)hd_type_cols(t);
}

// Ops that move elements keep the numbers where each column keeps its kind.
static Num carried(const Op *o, const Num *x) {
    const Type *t = o->out[0]->type, *from = o->in[0]->type;
    const int64_t cols = hd_type_cols(t), before = hd_type_cols(from), last = from->rank - 1;
    bool stay = cols == before, whole = cols % KINDS == 0;
    for (int i = 0; i < o->n_in; i++) {
        whole &= hd_type_cols(o->in[i]->type) % KINDS == 0;
        for (int h = 0; h < KINDS; h++)
            if (x[i].of[h] != x[0].of[h]) return all((double)NAN);
    }
    if (o->kind == OP_RESHAPE || o->kind == OP_CONCAT) stay |= whole;
    if (o->kind == OP_TRANSPOSE) stay = hd_attr(&o->attrs, A_PERM)->ints[last] == last;
    if (o->kind == OP_SLICE) stay |= hd_int(&o->attrs, A_START, 0) % KINDS == 0;
    return stay || is_one(x[0]) ? x[0] : all((double)NAN);
}

static Num reduced(const Op *o, Num x) {
    const Type *t = o->out[0]->type, *from = o->in[0]->type;
    const bool across = from->rank && hd_reduced_axes(o) >> (from->rank - 1) & 1;
    const double n = (double)(hd_type_count(from) / hd_type_count(t));
    if (o->kind == OP_REDUCE_MAX) return !across || is_one(x) ? x : all((double)NAN);
    if (across) return all(row_mean(from, x) * n);
    for (int h = 0; h < KINDS; h++) x.of[h] *= n;
    return x;
}

static double elementwise(const Op *o, const double *x) {
    switch (o->kind) {
    case OP_RELU_GRAD: case OP_SILU_GRAD: case OP_GELU_GRAD: case OP_GELU_ERF_GRAD:
        if (x[1] == 0) return 0;
        break;
    case OP_MUL:
        if (x[0] == 0 || x[1] == 0) return 0;
        break;
    case OP_DIV:
        if (x[0] == 0) return 0;
        break;
    default: break;
    }
    for (int i = 0; i < o->n_in; i++)
        if (isnan(x[i])) return (double)NAN;
    return hd_eval_elt(o->kind, false, x[0], x[1], x[2]);
}

// --- rows

static void softmax(const Op *o, const Num *x, Num *y) {
    const Type *t = o->in[0]->type;
    const double cols = (double)hd_type_cols(t);
    Num e;
    for (int h = 0; h < KINDS; h++) e.of[h] = o->kind == OP_SOFTMAX ? exp(x[0].of[h]) : x[0].of[h] * x[1].of[h];
    const double sum = cols * row_mean(t, e);
    for (int h = 0; h < KINDS; h++)
        y[0].of[h] = o->kind == OP_SOFTMAX ? e.of[h] / sum : x[1].of[h] * (x[0].of[h] - sum);
}

static Num logsumexp(const Op *o, Num x) {
    Num e;
    for (int h = 0; h < KINDS; h++) e.of[h] = exp(x.of[h] - x.of[0]);
    return all(x.of[0] + log((double)hd_type_cols(o->in[0]->type) * row_mean(o->in[0]->type, e)));
}

static void norm(const Op *o, const Num *x, Num *y) {
    const bool layer = o->kind == OP_LAYER_NORM;
    const Type *t = o->in[0]->type;
    const double mean = layer ? row_mean(t, x[0]) : 0;
    Num from, square;
    for (int h = 0; h < KINDS; h++) {
        from.of[h] = x[0].of[h] - mean;
        square.of[h] = from.of[h] * from.of[h];
    }
    const double r = 1 / sqrt(row_mean(t, square) + hd_float(&o->attrs, A_EPS, 0));
    for (int h = 0; h < KINDS; h++) y[0].of[h] = from.of[h] * r * x[1].of[h] + (layer ? x[2].of[h] : 0);
    y[1] = all(layer ? mean : r);
    y[2] = all(r);
}

static void norm_grad(const Op *o, const Num *x, Num *y) {
    const bool layer = o->kind == OP_LAYER_NORM_GRAD;
    const Type *t = o->in[0]->type;
    const double mean = layer ? x[3].of[0] : 0, r = x[layer ? 4 : 3].of[0];
    const double rows = (double)(hd_type_count(t) / hd_type_cols(t));
    Num hat, g, product;
    for (int h = 0; h < KINDS; h++) {
        hat.of[h] = (x[1].of[h] - mean) * r;
        g.of[h] = x[0].of[h] * x[2].of[h];
        product.of[h] = g.of[h] * hat.of[h];
        y[1].of[h] = rows * x[0].of[h] * hat.of[h];
        y[2].of[h] = rows * x[0].of[h];
    }
    const double shift = layer ? row_mean(t, g) : 0, along = row_mean(t, product);
    for (int h = 0; h < KINDS; h++) y[0].of[h] = r * (g.of[h] - shift - hat.of[h] * along);
}

// Ops that work on rows. Those that are not followed give no number.
static void row_op(const Probe *p, const Op *o, const Num *x, Num *y) {
    const bool grad = o->kind == OP_SOFTMAX_GRAD || o->kind == OP_LAYER_NORM_GRAD || o->kind == OP_RMS_NORM_GRAD;
    if ((grad || o->kind == OP_ROPE || o->kind == OP_DROPOUT) && x[0].of[0] == 0 && is_one(x[0]))
        y[0] = y[1] = y[2] = all(0);
    else if (!p->mixed || hd_has(&o->attrs, A_CAUSAL))
        return;
    else if (o->kind == OP_SOFTMAX || o->kind == OP_SOFTMAX_GRAD)
        softmax(o, x, y);
    else if (o->kind == OP_LAYER_NORM || o->kind == OP_RMS_NORM)
        norm(o, x, y);
    else if (grad)
        norm_grad(o, x, y);
}

static void values(const Probe *p, const Op *o, const Num *x, Num *y) {
    y[0] = y[1] = y[2] = all((double)NAN);
    if (!o->n_out || !hd_type_count(o->out[0]->type)) return;
    switch (o->kind) {
    case OP_CONST: y[0] = all(hd_float(&o->attrs, A_VALUE, 0)); return;
    case OP_CAST: case OP_COPY: y[0] = x[0]; return;
    case OP_RESHAPE: case OP_BROADCAST: case OP_TRANSPOSE: case OP_SLICE: case OP_CONCAT: y[0] = carried(o, x); return;
    case OP_SUM: case OP_SUM_TO: case OP_REDUCE_MAX: y[0] = reduced(o, x[0]); return;
    case OP_LOGSUMEXP: y[0] = logsumexp(o, x[0]); return;
    default: break;
    }
    if (!hd_op_is(o, TRAIT_ELEMENTWISE)) row_op(p, o, x, y);
    for (int h = 0; h < KINDS && hd_op_is(o, TRAIT_ELEMENTWISE); h++) {
        double operand[3] = {0};
        for (int i = 0; i < o->n_in; i++) operand[i] = x[i].of[h];
        y[0].of[h] = elementwise(o, operand);
    }
}

static void compute(const Probe *p, const Op *o, Num *at, Num *still) {
    Num *x = HD_NEWN(p->c->a, Num, o->n_in + 5), y[3];
    for (int run = still == at; run < 2; run++) {
        Num *now = run ? at : still;
        for (int i = 0; i < o->n_in; i++) x[i] = o->kind == OP_STOP_GRADIENT ? still[o->in[i]->id] : now[o->in[i]->id];
        values(p, o, x, y);
        for (int i = 0; i < o->n_out; i++)
            now[o->out[i]->id] = i < 3 && hd_dtype_is_float(o->out[i]->type->dtype) ? y[i] : all((double)NAN);
    }
}

static void launch(Probe *p, const Op *o) {
    const Func *k = hd_launched(o);
    const Op *ret = k && k->n_args == o->n_in ? hd_return(k) : NULL;
    Num *at = ret ? HD_NEWN(p->c->a, Num, k->n_values + 1) : NULL, *still = at;
    if (ret && p->still != p->at) still = HD_NEWN(p->c->a, Num, k->n_values + 1);
    for (int i = 0; ret && i < o->n_in; i++) {
        at[k->args[i]->id] = p->at[o->in[i]->id];
        still[k->args[i]->id] = p->still[o->in[i]->id];
    }
    for (const Op *x = ret ? k->first : NULL; x != ret; x = x->next) compute(p, x, at, still);
    for (int i = 0; i < o->n_out; i++) {
        const bool known = ret && i < ret->n_in;
        p->at[o->out[i]->id] = known ? at[ret->in[i]->id] : all((double)NAN);
        p->still[o->out[i]->id] = known ? still[ret->in[i]->id] : all((double)NAN);
    }
}

static bool any_wanted(const Probe *p, const Op *o) {
    for (int i = 0; i < o->n_out; i++)
        if (p->wanted[o->out[i]->id]) return true;
    return false;
}

static void place(Probe *p, const Value *v, int moved, int kind, double by) {
    const int leaf = p->leaf[v->id] - 1;
    // tokens get one number: a mask over the rows stays one, too
    const bool several = hd_dtype_is_float(v->type->dtype) && p->mixed && hd_type_cols(v->type) > 1;
    for (int h = 0; h < KINDS && leaf >= 0; h++) {
        const double x = number_for(&p->leaves.at[leaf], several ? h : 0);
        p->still[v->id].of[h] = x;
        p->at[v->id].of[h] = x + (leaf == moved && (!several || h == kind) ? by : 0);
    }
}

static void run_op(Probe *p, const Op *o, int moved, int kind, double by) {
    if (!any_wanted(p, o)) return;
    if (o->kind == OP_LAUNCH) launch(p, o);
    else if (is_inner(o)) compute(p, o, p->at, p->still);
    for (int i = 0; i < o->n_out; i++) place(p, o->out[i], moved, kind, by);
}

void hd_probe_run(Probe *p, int moved, int kind, double by) {
    for (int i = 0; i < p->f->n_args; i++) place(p, p->f->args[i], moved, kind, by);
    for (const Op *o = p->f->first; o; o = o->next) run_op(p, o, moved, kind, by);
}

// An operand that is cut off hides how the loss depends on its leaves.
static void find_hidden(Probe *p) {
    bool *hidden = HD_NEWN(p->c->a, bool, p->f->n_values + 1);
    for (const Op *o = p->f->last; o; o = o->prev)
        for (int i = 0; is_inner(o) && i < o->n_out; i++)
            for (int k = 0; (hidden[o->out[i]->id] || p->leaf[o->out[i]->id]) && k < o->n_in; k++) {
                int leaf = p->leaf[o->in[k]->id] - 1;
                hidden[o->in[k]->id] = true;
                if (leaf >= 0) p->leaves.at[leaf].hidden = true;
            }
}

void hd_probe_cut(Probe *p) {
    for (int i = 0; i < p->f->n_args; i++) place(p, p->f->args[i], -1, 0, 0);
    for (const Op *o = p->f->first; o; o = o->next) {
        run_op(p, o, -1, 0, 0);
        for (int i = 0; i < o->n_out; i++) {
            const Value *v = o->out[i];
            if (!p->wanted[v->id] || !isnan(p->at[v->id].of[0])) continue;
            Leaf leaf = {.kind = LEAF_OTHER, .at = v->id, .value = v, .cut = true};
            hd_push(p->c->a, &p->leaves, leaf);
            p->leaf[v->id] = p->leaves.n;
            place(p, v, -1, 0, 0);
        }
    }
    find_hidden(p);
}
