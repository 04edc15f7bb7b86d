// Probes (probe.h): what is followed, and runs over a function. How an op is followed is in probe_ops.c.
#include "passes/verify/values/probe.h"
#include <math.h>

static bool stops(const Module *m) {
    for (const Func *f = m->funcs; f; f = f->next)
        for (const Op *o = f->is_kernel ? f->first : NULL; o; o = o->next)
            if (hd_op_is(o, TRAIT_STOPS)) return true;
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

static bool is_copy(const Op *o) { return hd_op_is(o, TRAIT_COPIES) && o->n_in && o->n_out; } // of a value, to a value

bool hd_probe_inner(const Op *o) {
    return o && (is_copy(o) || hd_op_is(o, TRAIT_LAUNCH | TRAIT_MOVES));
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

// The slice that a kernel of kind map makes of its only argument, or NULL.
static const Op *slice_of(const Op *o) {
    const Func *k = hd_op_is(o, TRAIT_LAUNCH) && o->n_in == 1 ? hd_launched(o) : NULL;
    return k && k->first && k->first->kind == OP_SLICE && k->first->next == hd_return(k) ? k->first : NULL;
}

// An argument, or some rows of it: a chunk of a loss has a part of the targets.
static int64_t argument(const Value *v) { // 0: none
    int64_t rows = 0;
    for (const Op *o; (o = v->def) != NULL; v = o->in[0]) {
        const Op *slice = slice_of(o);
        if (!hd_op_is(o, TRAIT_ALIAS) && !slice) return 0;
        if (!slice) continue;
        rows = rows * 31 + (1 + hd_int(&slice->attrs, A_START, 0)) * 8191 + hd_int(&slice->attrs, A_SIZE, 0);
    }
    return number_of(v->name) ^ rows;
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
    } else if (hd_op_is(o, TRAIT_LOSS) && v->index == 0) {
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

static unsigned hash_of(const Leaf *l) {
    uint64_t h = (uint64_t)l->at * 0x9e3779b97f4a7c15u ^ (uint64_t)l->target * 0xbf58476d1ce4e5b9u;
    h ^= ((uint64_t)l->kind << 32) + (l->home ? (uint64_t)(unsigned)l->home->id : UINT32_MAX);
    return (unsigned)((h ^ (h >> 29)) * 0x94d049bb133111ebu >> 33);
}

int hd_probe_find(const Probe *p, Leaf like) {
    if (!p->n_slots) return -1;
    for (int i = p->slot[hash_of(&like) % (unsigned)p->n_slots]; i; i = p->chain[i - 1])
        if (hd_probe_same(&p->leaves.at[i - 1], &like)) return i - 1;
    return -1;
}

static void link_leaf(Probe *p, int i) {
    int *slot = &p->slot[hash_of(&p->leaves.at[i]) % (unsigned)p->n_slots];
    p->chain[i] = *slot;
    *slot = i + 1;
}

static int add_leaf(Probe *p, Leaf leaf) {
    hd_push(p->c->a, &p->leaves, leaf);
    if (p->leaves.n > p->n_slots) {
        p->n_slots = p->n_slots ? 2 * p->n_slots : 64;
        p->slot = HD_NEWN(p->c->a, int, p->n_slots);
        p->chain = HD_NEWN(p->c->a, int, p->n_slots);
        for (int i = 0; i < p->leaves.n; i++) link_leaf(p, i);
    } else {
        link_leaf(p, p->leaves.n - 1);
    }
    return p->leaves.n - 1;
}

Probe hd_probe_of(PlanCheck *c, const Leaf *leaves, int n) {
    Probe p = {.c = c};
    for (int i = 0; i < n; i++) add_leaf(&p, leaves[i]);
    return p;
}

static void find_leaf(Probe *p, const Value *v) {
    if (!p->wanted[v->id] || hd_probe_inner(v->def)) return;
    Leaf leaf = hd_probe_leaf(p, v);
    int i = hd_probe_find(p, leaf);
    p->leaf[v->id] = (i < 0 ? add_leaf(p, leaf) : i) + 1;
}

void hd_probe_prepare(Probe *p) {
    for (const Op *o = p->f->last; o; o = o->prev)
        for (int i = 0; hd_probe_inner(o) && i < o->n_out; i++)
            for (int k = 0; p->wanted[o->out[i]->id] && k < o->n_in; k++) p->wanted[o->in[k]->id] = true;
    for (int i = 0; i < p->f->n_args; i++) find_leaf(p, p->f->args[i]);
    for (const Op *o = p->f->first; o; o = o->next)
        for (int i = 0; i < o->n_out; i++) find_leaf(p, o->out[i]);
}

// --- a run

int64_t hd_probe_count(const Probe *p, const Type *t, int kind) {
    const int64_t n = hd_type_count(t);
    if (!p->mixed || !n) return kind ? 0 : n;
    return n / hd_type_cols(t) * hd_probe_columns(t, kind);
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

static void compute(const Probe *p, const Op *o, Num *at, Num *still) {
    Num *x = HD_NEWN(p->c->a, Num, o->n_in + 5), y[3];
    for (int run = still == at; run < 2; run++) {
        Num *now = run ? at : still;
        for (int i = 0; i < o->n_in; i++) x[i] = hd_op_is(o, TRAIT_STOPS) ? still[o->in[i]->id] : now[o->in[i]->id];
        hd_probe_op(p, o, x, y);
        for (int i = 0; i < o->n_out; i++)
            now[o->out[i]->id] = i < 3 && hd_dtype_is_float(o->out[i]->type->dtype) ? y[i] : hd_probe_all((double)NAN);
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
        p->at[o->out[i]->id] = known ? at[ret->in[i]->id] : hd_probe_all((double)NAN);
        p->still[o->out[i]->id] = known ? still[ret->in[i]->id] : hd_probe_all((double)NAN);
    }
}

static bool any_wanted(const Probe *p, const Op *o) {
    for (int i = 0; i < o->n_out; i++)
        if (p->wanted[o->out[i]->id]) return true;
    return false;
}

static double any_way(int leaf, int kind) { // a part of a step, this way or that: they do not cancel
    const uint32_t h = ((uint32_t)leaf * 4 + (uint32_t)kind + 1) * 2654435761u;
    return (h & 1u << 20 ? -1 : 1) * (0.5 + (double)(h >> 22) / 2048);
}

static void place(Probe *p, const Value *v, int moved, int kind, double by) {
    const int leaf = p->leaf[v->id] - 1;
    // tokens get one number: a mask over the rows stays one, too
    const bool several = hd_dtype_is_float(v->type->dtype) && p->mixed && hd_type_cols(v->type) > 1;
    for (int h = 0; h < KINDS && leaf >= 0; h++) {
        const double x = number_for(&p->leaves.at[leaf], several ? h : 0);
        p->still[v->id].of[h] = x;
        const bool moves = leaf == moved && (!several || h == kind);
        p->at[v->id].of[h] = x + (moves ? by : moved == HD_ALL_LEAVES ? by * any_way(leaf, several ? h : 0) : 0);
    }
}

static void run_op(Probe *p, const Op *o, int moved, int kind, double by) {
    if (!any_wanted(p, o)) return;
    ArenaMark mark = hd_arena_mark(p->c->a);
    if (hd_op_is(o, TRAIT_LAUNCH)) launch(p, o);
    else if (hd_probe_inner(o)) compute(p, o, p->at, p->still);
    hd_arena_rewind(p->c->a, mark);
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
        for (int i = 0; hd_probe_inner(o) && i < o->n_out; i++)
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
            p->leaf[v->id] = add_leaf(p, leaf) + 1;
            place(p, v, -1, 0, 0);
        }
    }
    find_hidden(p);
}
