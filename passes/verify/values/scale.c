// Scales: the loss that is stored is scaled like the loss whose gradient is computed, and the mean over ranks is taken
// once [V21]. The loss depends on leaves: every cross_entropy, product and weight that its launches read. The gradient
// that begins at each leaf must be the derivative of the stored loss, found by a probe (probe.h) that changes one leaf.
// @eval, which stores the whole loss, shows whether each micro-batch stores its part of it; where no probe can compare
// the two, as with rows that a router chooses, their terms do (program.c). A plan that a probe refutes is wrong unless
// the values of the plan are proved (program.c). Where one number a value is not enough, as after a softmax or a norm,
// the probe is mixed. The report lists what cannot be followed even then, such as attention.
#include "ir/affine.h"
#include "ir/shapes.h"
#include "passes/settings.h"
#include "passes/verify/values/probe.h"
#include <math.h>

typedef struct KeptLoss { // in a probe
    const Func *f;
    Write store;     // the last; op = NULL: none
    double loss;
    Leaf *leaves;    // that it is made of
    int n;
    struct KeptLoss *rows; // the same in a mixed probe; NULL: not followed, or not needed
} KeptLoss;

// The result of a kernel as a function of its argument `of`; unknown when it depends on another or is not affine.
static Affine kernel_result(PlanCheck *c, const Func *k, int result, int of) {
    const Op *ret = k ? hd_return(k) : NULL;
    if (!ret || result >= ret->n_in) return (Affine){0};
    Affine *at = HD_NEWN(c->a, Affine, k->n_values + 1);
    if (of >= 0 && of < k->n_args) at[k->args[of]->id] = (Affine){true, 0, 1};
    for (const Op *o = k->first; o != ret; o = o->next) {
        if (o->n_out != 1) continue;
        if (hd_op_is(o, TRAIT_CONSTANT)) at[o->out[0]->id] = (Affine){true, hd_float(&o->attrs, A_VALUE, 0), 0};
        else if (o->n_in == 1 || o->n_in == 2)
            at[o->out[0]->id] = hd_affine(o, at[o->in[0]->id], at[o->in[o->n_in - 1]->id]);
    }
    return at[ret->in[result]->id];
}

// v = constant + factor * source, through reshapes and launches of kernels with at most one argument.
static Affine trace(PlanCheck *c, const Value *v, const Value *source, int depth) {
    if (v == source) return (Affine){true, 0, 1};
    const Op *o = v->def;
    if (!o || depth > 16) return (Affine){0};
    if (hd_op_is(o, TRAIT_ALIAS)) return trace(c, o->in[0], source, depth + 1);
    if (o->kind == OP_TREE_SUM) {
        Affine each = trace(c, o->in[0], source, depth + 1);
        each.constant *= (double)o->in[0]->type->dim[0];
        return each;
    }
    if (!hd_op_is(o, TRAIT_LAUNCH) || o->n_in > 1) return (Affine){0};
    Affine k = kernel_result(c, hd_launched(o), v->index, 0);
    if (!k.known || k.factor == 0 || o->n_in == 0) return k;
    Affine in = trace(c, o->in[0], source, depth + 1);
    return (Affine){in.known, k.constant + k.factor * in.constant, k.factor * in.factor};
}

static bool differ(double a, double b) { return fabs(a - b) > 1e-6 * fabs(b); }

// The origin of one operand of launches and aliases: a view, or a value of another op.
static const Value *source_of(const Value *v) {
    while (v->def && v->def->n_in == 1 && (hd_op_is(v->def, TRAIT_ALIAS | TRAIT_LAUNCH) || v->def->kind == OP_TREE_SUM))
        v = v->def->in[0];
    return v;
}

// Whether v is what every rank has in the buffer of the loss: in a buffer (flow.c follows it there), or as a value.
static bool is_gathered_loss(const Value *v, const char *loss) {
    if (!v->def || hd_op_is(v->def, TRAIT_SOURCE)) return v->def != NULL;
    return hd_gathers(v->def) && !strcmp(hd_word(&v->def->attrs, A_BUFFER, ""), loss);
}

// The mean over ranks: each rank's loss once, times 1 / ranks.
static void check_mean(PlanCheck *c, const Symbol *step, const Write *kept) {
    const Op *store = kept->op;
    const Value *parts = source_of(kept->value);
    double ranks = (double)c->ranks;
    Affine mean = trace(c, kept->value, parts, 0);
    if (!is_gathered_loss(parts, hd_word(&step->attrs, A_LOSS, "")) ||
        (double)hd_type_count(parts->type) != ranks || !mean.known || mean.constant != 0)
        hd_plan_wrong(c, store, store->span,
                      "stores %s as the loss of the step, which is not a sum of the losses of the %g ranks",
                      hd_plan_value(c, kept->value), ranks);
    else if (differ(mean.factor * ranks, 1))
        hd_plan_wrong(c, store, store->span,
                      "stores %g times the sum of the losses of %g ranks, which is not their mean", mean.factor, ranks);
}

// --- where gradients begin

typedef VEC(Write) Writes;
typedef struct Start { const Op *op; const Value *v; struct Start *next; } Start; // an op that begins a gradient
typedef struct {
    PlanCheck *c;
    Probe p;
    bool cut;              // the loss depends on something that cannot be followed
    int64_t steps;         // ops that probes of one leaf may still compute
    Writes stores, gradients; // of the loss, without the mean over ranks; where a gradient may begin or end
    Start **first;         // by leaf: the gradients that begin with it, in program order
} Scales;
enum { MOST_STEPS = 1 << 24 };

// A value that another function of the step has kept, or this one: flow.c proves where it goes.
static bool is_kept_loss(const Symbol *step, const Value *v) {
    v = hd_unaliased(v);
    return v->def && hd_op_is(v->def, TRAIT_SOURCE) && hd_step_keeps(step, hd_named(v->def, A_BUFFER)) == 0;
}

static Scales find_ops(PlanCheck *c, const Func *f, const Symbol *step, bool mixed, bool with_mean, Write *mean) {
    Scales s = {.c = c, .p = hd_probe(c, f, mixed), .steps = MOST_STEPS};
    for (const Op *o = f->first; o; o = o->next) {
        Write w = {.op = o};
        if (hd_op_is(o, TRAIT_LOSS) && hd_is_backward(o)) hd_push(c->a, &s.gradients, w);
        for (int i = 0; hd_next_write(o, &i, &w);) {
            const int number = w.value ? hd_step_keeps(step, w.buffer) : -1;
            if (number > 0) continue; // a further result has no gradient; what it is, program.c proves
            if (number == 0) {
                if (!is_kept_loss(step, w.value)) hd_push(c->a, &s.stores, w);
            }
            else if ((w.value || o->kind == OP_GEMM) && !hd_plan_rule(hd_plan_bucket(c, w.buffer)))
                hd_push(c->a, &s.gradients, w); // of parameters: buffers have no scale
        }
    }
    *mean = with_mean && s.stores.n > 1 ? s.stores.at[--s.stores.n] : (Write){0};
    return s;
}

// The gradient of a product's result is an operand of the products that compute the gradients of its weight and of its
// rows.
static const Value *rows_of(const Scales *s, const Op *product, const Op *weights) {
    bool second = s->p.homes[product->in[1]->id].buffer != NULL; // the weight
    return weights->in[(second ? hd_has(&product->attrs, A_TB) : !hd_has(&product->attrs, A_TA)) ? 0 : 1];
}

// The value with which the gradient of a leaf begins where `w` is written, or in the cross_entropy_grad w->op; NULL: it
// does not begin there.
static const Value *begin(const Scales *s, const Write *w, const Leaf *leaf) {
    if (!w->buffer) {
        Leaf of = hd_probe_leaf(&s->p, w->op->out[0]);
        return hd_probe_same(&of, leaf) ? w->op->in[2] : NULL;
    }
    const BucketParts *k = hd_plan_bucket(s->c, w->buffer);
    if (!k || k->symbol != leaf->home || w->at != leaf->at) return NULL;
    const Op *maker = w->value ? hd_probe_maker(w->value) : w->op;
    if (!maker || hd_op_is(maker, TRAIT_SOURCE)) return NULL; // the sum of a buffer, added to another
    if (leaf->kind == LEAF_WEIGHT) return w->value; // a product's addend belongs to the product's leaf
    return leaf->kind == LEAF_PRODUCT && maker->kind == OP_GEMM ? rows_of(s, leaf->value->def, maker) : NULL;
}

static void add_start(Scales *s, Start ***last, const Write *w, Leaf like) {
    const int i = hd_probe_find(&s->p, like);
    const Value *v = i >= 0 ? begin(s, w, &s->p.leaves.at[i]) : NULL;
    if (!v) return;
    *last[i] = HD_NEW(s->c->a, Start);
    **last[i] = (Start){w->op, v, NULL};
    last[i] = &(*last[i])->next;
}

static void find_starts(Scales *s) {
    Start ***last = HD_NEWN(s->c->a, Start **, s->p.leaves.n + 1);
    s->first = HD_NEWN(s->c->a, Start *, s->p.leaves.n + 1);
    for (int i = 0; i < s->p.leaves.n; i++) last[i] = &s->first[i];
    for (int k = 0; k < s->gradients.n; k++) {
        const Write *w = &s->gradients.at[k];
        const BucketParts *to = hd_plan_bucket(s->c, w->buffer);
        Leaf like = {.kind = LEAF_WEIGHT, .home = to ? to->symbol : NULL, .at = w->at};
        if (!w->buffer) add_start(s, last, w, hd_probe_leaf(&s->p, w->op->out[0]));
        if (!to) continue;
        add_start(s, last, w, like);
        like.kind = LEAF_PRODUCT;
        add_start(s, last, w, like);
    }
}

// --- the loss of one function

static double loss(const Scales *s) {
    double sum = 0;
    for (int i = 0; i < s->stores.n; i++) sum += s->p.at[s->stores.at[i].value->id].of[0];
    return sum;
}

static double moves_by(Scales *s, int leaf, int kind, double step) {
    hd_probe_run(&s->p, leaf, kind, step);
    const double up = loss(s);
    hd_probe_run(&s->p, leaf, kind, -step);
    return (up - loss(s)) / (2 * step);
}

// The change of the loss for a small change of all elements of a leaf, or, in a mixed probe, of those of one kind: the
// limit of three steps, NaN where they do not agree about it.
static double derivative(Scales *s, int leaf, int kind) {
    s->steps -= (s->p.mixed ? 6 : 2) * (int64_t)s->p.f->n_ops;
    if (s->steps < 0) return (double)NAN;
    if (!s->p.mixed) return moves_by(s, leaf, kind, 1.0 / 8192);
    double d[3];
    for (int i = 0; i < 3; i++) d[i] = moves_by(s, leaf, kind, 1.0 / (64 << i));
    const double coarse = (4 * d[1] - d[0]) / 3, fine = (4 * d[2] - d[1]) / 3, limit = (16 * fine - coarse) / 15;
    return fabs(limit - fine) <= 3e-7 * fabs(limit) + 1e-11 ? limit : (double)NAN;
}

// Constants of 16 bits have been rounded, and there may be a few of them.
static bool agree(double a, double b, const Value *v, const Value *w) {
    double most = hd_dtype_bytes(v->type->dtype) < 4 || hd_dtype_bytes(w->type->dtype) < 4 ? 1.0 / 64 : 1e-6;
    return fabs(a - b) <= most * fabs(b) || fabs(a - b) < 1e-12;
}

static double loss_scale(const PlanCheck *c) { return (double)hd_int(hd_settings(c->m, "train"), A_LOSS_SCALE, 1); }

static const char *of_step(const PlanCheck *c) {
    const long long ranks = c->ranks, scale = (long long)loss_scale(c);
    const char *mean = "", *scaled = "";
    if (ranks > 1) mean = hd_sprintf(c->a, ", of which the mean over %lld ranks is kept", ranks);
    if (scale > 1) scaled = hd_sprintf(c->a, ", and by config @train gradients have the loss scale %lld", scale);
    return hd_sprintf(c->a, "%s%s", mean, scaled);
}

static const char not_followed[] = "is part of the loss, and the scale of its gradient cannot be followed";

// The gradients that begin with a leaf, added up, next to how the loss moves with it.
typedef struct { double taken, moves; const Op *from; const Value *by; bool mismatched; } Judged;

static Judged judge(const Scales *s, int i, int kind, double moves) {
    const Leaf *leaf = &s->p.leaves.at[i];
    Judged j = {.moves = moves, .by = leaf->value};
    for (const Start *g = s->first[i]; g; g = g->next) {
        j.from = g->op, j.by = g->v;
        j.taken += s->p.at[g->v->id].of[kind] * (double)hd_probe_count(&s->p, g->v->type, kind);
        // its columns are not those of the leaf
        if (hd_type_cols(g->v->type) != hd_type_cols(leaf->value->type)) j.mismatched = true;
    }
    return j;
}

static bool holds(const Scales *s, int i, const Judged *j) {
    const Leaf *leaf = &s->p.leaves.at[i];
    if (leaf->kind == LEAF_OTHER) return j->moves == 0;
    return agree(j->taken * (double)s->c->ranks / loss_scale(s->c), j->moves, leaf->value, j->by);
}

static void report(const Scales *s, int i, const Judged *j) {
    PlanCheck *c = s->c;
    const Leaf leaf = s->p.leaves.at[i];
    const Op *last = s->stores.at[s->stores.n - 1].op, *from = j->from;
    const Value *by = j->by;
    const char *what = leaf.value->def ? hd_plan_op(c, leaf.value->def) : "";
    bool mismatched = j->mismatched;
    if (s->p.mixed) mismatched |= hd_dtype_bytes(by->type->dtype) < 4 || hd_dtype_bytes(leaf.value->type->dtype) < 4;
    if (!isfinite(j->taken) || !isfinite(j->moves) || leaf.kind == LEAF_OTHER || (s->p.mixed && mismatched))
        hd_plan_unproved(c, leaf.value->def, not_followed);
    else if (!from)
        hd_plan_wrong(c, leaf.value->def, c->f->span,
                      "is part of the loss that %s stores, and no op takes its gradient", hd_plan_op(c, last));
    else if (leaf.kind == LEAF_LOSS)
        hd_plan_wrong(c, from, from->span, "takes gradients of %g times the loss, but %s stores %g times the loss%s",
                      j->taken, hd_plan_op(c, last), j->moves, of_step(c));
    else
        hd_plan_wrong(c, from, from->span,
                      "takes %s for the gradient of %s, whose elements add up to %g in a probe, but the loss that %s "
                      "stores moves by %g%s",
                      hd_plan_value(c, by), what, j->taken, hd_plan_op(c, last), j->moves, of_step(c));
}

static void check_unkept(Scales *s) {
    for (int k = 0; k < s->gradients.n; k++) {
        const Op *o = s->gradients.at[k].op;
        if (s->gradients.at[k].buffer || hd_probe_find(&s->p, hd_probe_leaf(&s->p, o->out[0])) >= 0) continue;
        hd_plan_wrong(
            s->c, o, o->span,
            "takes the gradient of a loss that is not in the loss of the step: no store of that loss reads it");
    }
}

static bool has_kind(const Scales *s, const Leaf *l, int kind) { return hd_probe_count(&s->p, l->value->type, kind); }

// How the loss moves with each leaf. One pass back finds it for all of them. Where its result does not agree with the
// gradients that the function takes, or a 0 matters, the leaf is moved by itself.
static Num *find_moves(Scales *s, int n) {
    Num *moves = hd_probe_back(&s->p, s->stores.at, s->stores.n);
    for (int i = 0; i < n; i++) {
        const Leaf *l = &s->p.leaves.at[i];
        double most = 0;
        for (int kind = 0; kind < KINDS; kind++) most = fmax(most, fabs(moves[i].of[kind]));
        const bool small = s->p.mixed && most < 1e-6 && l->kind != LEAF_ARGUMENT && l->kind != LEAF_GRADIENT;
        const bool matters = (l->kind == LEAF_OTHER || l->cut) && !(most == 0);
        for (int kind = 0; kind < KINDS; kind++)
            if (!has_kind(s, l, kind)) moves[i].of[kind] = 0;
            else if (small || matters || isnan(moves[i].of[kind])) moves[i].of[kind] = derivative(s, i, kind);
        s->cut |= l->cut && moves[i].of[0] != 0;
    }
    return moves;
}

// Integers and what launches compute of them alone, such as the places that a router chooses, have no gradient.
static bool is_discrete(const Value *v) {
    if (!hd_dtype_is_float(v->type->dtype)) return true;
    if (!v->def || !hd_op_is(v->def, TRAIT_LAUNCH | TRAIT_ALIAS) || hd_op_is(v->def, TRAIT_SOURCE)) return false;
    for (int i = 0; i < v->def->n_in; i++)
        if (!is_discrete(v->def->in[i])) return false;
    return true;
}

static bool is_judged(const Scales *s, const Leaf *l) {
    if (l->kind == LEAF_ARGUMENT || l->kind == LEAF_GRADIENT || is_discrete(l->value)) return false;
    return !(l->hidden && s->cut); // else reported for the op that hides it
}

static void check_gradients(Scales *s, KeptLoss *kept) {
    PlanCheck *c = s->c;
    const int n = kept->n;
    Num *moves = find_moves(s, n);
    find_starts(s);
    for (int i = 0; i < n; i++)
        for (const Start *g = s->first[i]; g; g = g->next) hd_probe_want(&s->p, g->v);
    hd_probe_prepare(&s->p);
    hd_probe_run(&s->p, -1, 0, 0);
    Judged *judged = HD_NEWN(c->a, Judged, (int64_t)n * KINDS + 1);
    for (int i = 0; i < n; i++)
        for (int kind = 0; kind < KINDS; kind++) judged[i * KINDS + kind] = judge(s, i, kind, moves[i].of[kind]);
    for (int i = 0; i < n; i++) {
        const Leaf *l = &kept->leaves[i];
        double most = 0;
        if (!is_judged(s, l)) continue;
        for (int kind = 0; kind < KINDS; kind++) {
            Judged *j = &judged[i * KINDS + kind];
            if (has_kind(s, l, kind) && !holds(s, i, j)) {
                j->moves = derivative(s, i, kind);
                if (!holds(s, i, j)) report(s, i, j);
            }
            most = fmax(most, fabs(j->moves));
        }
        if (s->p.mixed && most < 1e-9) hd_plan_unproved(c, l->value->def, not_followed); // 0 has any scale
    }
}

static void keep_loss(Scales *s, KeptLoss *kept) {
    for (int i = 0; i < s->stores.n; i++) hd_probe_want(&s->p, s->stores.at[i].value);
    hd_probe_prepare(&s->p);
    hd_probe_cut(&s->p);
    kept->f = s->p.f;
    kept->store = s->stores.n ? s->stores.at[s->stores.n - 1] : (Write){0};
    kept->loss = kept->store.op ? loss(s) : 0;
    kept->leaves = HD_NEWN(s->c->a, Leaf, s->p.leaves.n + 1);
    kept->n = s->p.leaves.n;
    for (int i = 0; i < kept->n; i++) kept->leaves[i] = s->p.leaves.at[i];
}

// Follows the loss once more, by a mixed probe. Its findings replace those from `unproved` on where it leaves fewer.
static void follow_rows(PlanCheck *c, const Func *f, const Symbol *step, bool with_mean, bool gradients, int unproved,
                        KeptLoss *kept) {
    PlanCheck trial = *c;
    Write mean;
    trial.found = trial.unproved = (Findings){0};
    Scales s = find_ops(&trial, f, step, true, with_mean, &mean);
    KeptLoss *rows = HD_NEW(c->a, KeptLoss);
    keep_loss(&s, rows);
    if (gradients) check_gradients(&s, rows);
    if (gradients && trial.unproved.n >= c->unproved.n - unproved) return;
    kept->rows = rows;
    c->unproved.n = unproved;
    for (int i = 0; i < trial.unproved.n; i++) hd_push(c->a, &c->unproved, trial.unproved.at[i]);
    for (int i = 0; i < trial.found.n; i++) hd_push(c->a, &c->found, trial.found.at[i]);
}

static void set_aside(PlanCheck *c, int from) { // findings that rest on a probe
    for (int i = from; i < c->found.n; i++) hd_push(c->a, &c->probed, c->found.at[i]);
    c->found.n = from;
}

static KeptLoss check_scale(PlanCheck *c, const Func *f, const Symbol *step, bool last, bool gradients) {
    bool several = c->ranks > 1;
    Write mean;
    last |= hd_has(&step->attrs, A_LEVELS); // in a tree each micro-batch stores a mean
    Scales s = find_ops(c, f, step, false, last && several, &mean);
    KeptLoss kept = {0};
    if (mean.op) check_mean(c, step, &mean);
    else if (s.stores.n && last && several)
        hd_plan_wrong(c, s.stores.at[0].op, s.stores.at[0].op->span,
                      "keeps the loss of one rank: no op after it stores the mean over %lld ranks",
                      (long long)c->ranks);
    keep_loss(&s, &kept);
    const int unproved = c->unproved.n, found = c->found.n;
    if (gradients) check_unkept(&s);
    if (gradients && kept.store.op)
        check_gradients(&s, &kept);
    else if (gradients && s.gradients.n)
        hd_plan_unproved(c, NULL, "the scale of any gradient: no op of a micro-batch stores the loss of the step");
    bool followed = c->unproved.n == unproved;
    for (int i = 0; i < kept.n; i++) followed &= !kept.leaves[i].cut;
    if (!followed && kept.store.op) follow_rows(c, f, step, last && several, gradients, unproved, &kept);
    set_aside(c, found);
    return kept;
}

// --- the loss of a step

static bool same_leaves(PlanCheck *c, const KeptLoss *a, const KeptLoss *b) {
    const Probe others = hd_probe_of(c, b->leaves, b->n);
    for (int i = 0; i < a->n; i++)
        if (hd_probe_find(&others, a->leaves[i]) < 0) return false;
    return a->n == b->n;
}

static void leave_to_terms(PlanCheck *c, const Op *store) {
    const Findings unproved = c->unproved;
    c->unproved = c->unshared;
    hd_plan_unproved(c, store, "stores a loss that cannot be compared with what @eval stores");
    c->unshared = c->unproved;
    c->unproved = unproved;
}

// The loss of one micro-batch, times their number in a step, is the loss that @eval stores for the same numbers.
static void check_share(PlanCheck *c, const KeptLoss *micro, const KeptLoss *eval) {
    int64_t n = hd_int(hd_settings(c->m, "train"), A_MICRO, 1);
    const Op *store = micro->store.op;
    const Value *v = micro->store.value;
    if (!store || !eval->store.op) return;
    const bool same = same_leaves(c, micro, eval), known = isfinite(micro->loss) && isfinite(eval->loss);
    if (!same && micro->rows && eval->rows)
        check_share(c, micro->rows, eval->rows);
    else if (!same || !known)
        leave_to_terms(c, store);
    else if (!agree(micro->loss * (double)n, eval->loss, v, v)) {
        const int found = c->found.n;
        hd_plan_wrong(
            c, store, store->span,
            "stores %g of the loss that @eval stores, and a step has %lld micro-batches: each stores 1 / %lld",
            micro->loss / eval->loss, (long long)n, (long long)n);
        set_aside(c, found);
    }
}

// The parts of the loss that the micro-batches of a step keep, by segment; returns how many segments the step has.
static int check_training(PlanCheck *c, KeptLoss *kept) {
    const int last = hd_plan_last_micro(c);
    const Func *f;
    int n = 0;
    for (; (f = hd_segment(c->m, c->train, n, NULL)); n++) {
        if (hd_kind(&f->attrs) != KIND_MICRO) continue;
        hd_plan_enter(c, f);
        kept[n] = check_scale(c, f, c->train, n == last, true);
        if (!kept[n].store.op && hd_has(&c->train->attrs, A_LOSS))
            hd_plan_wrong(c, NULL, f->span, "stores no loss into @%s, where step @%s says it is",
                          hd_word(&c->train->attrs, A_LOSS, ""), c->train->name);
    }
    c->f = NULL;
    return n;
}

void hd_check_scales(PlanCheck *c) {
    const Attr *segments = c->train ? hd_attr(&c->train->attrs, A_SEGMENTS) : NULL;
    KeptLoss *kept = HD_NEWN(c->a, KeptLoss, segments ? segments->n : 1), whole = {0};
    const int n = check_training(c, kept);
    bool any = false;
    for (int i = 0; i < n; i++) any |= kept[i].store.op != NULL;
    if (!c->eval && any)
        hd_plan_unproved(c, NULL, "that micro-batches store their parts of the loss: no step validates, which "
                                  "would store all of it");
    const Func *f;
    for (int i = 0; (f = hd_segment(c->m, c->eval, i, NULL)); i++) {
        hd_plan_enter(c, f);
        whole = check_scale(c, f, c->eval, true, false);
    }
    for (int i = 0; c->eval && i < n; i++) {
        if (!kept[i].f) continue;
        hd_plan_enter(c, kept[i].f);
        check_share(c, &kept[i], &whole);
    }
    c->f = NULL;
}
