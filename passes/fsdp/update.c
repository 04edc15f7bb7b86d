// The end of a step: the mean loss, the gradient norm, the optimizer. On one rank with several micro-batches the norm
// and the optimizer have a function of their own:
//
//   func @update() {
//     %0 = grad_norm {buffers = [@b.grad, @root.grad]};  store %0 {into = @state.norm, offset = 0}
//     %1 = step_scalars %0 {...};  update %1 {kernel = @adamw, master_weights = @b.master, ...};  update %1 {...}
//   }
//
// With one micro-batch these ops follow it, since its gradients live in no other function. With several ranks they
// follow the last micro-batch, so that the optimizer of a unit runs while the next unit is reduced or gathered. Every
// rank adds up the squares of its shards; the sums of all ranks are gathered and added in
// the order of ranks:
//
//   %0 = square_sums {buffers = [@b.grad, @root.grad]} : f64[2];  store %0 {into = @micro_only.norm.part, offset = 0}
//   all_gather {buffer = @micro_only.norm.part, into = @micro_only.norm.parts, comm = @comm.gather}
//   %1 = view {buffer = @micro_only.norm.parts, offset = 0} : f64[4];  %2 = root_sum %1
//
// Buckets of parameters that are split over an axis have an op of their own, and their sums come from the ranks along
// that axis as well: every element of every parameter counts once.
//
// With reduce = tree these sums are exact, on one rank as well, so that they do not depend on which rank has what.
//
// With clip = 0 nothing needs the norm, and a unit's optimizer waits for that unit's reduction alone, in the order of
// reductions. Otherwise units are updated in the order in which the forward pass uses them. It also writes the
// compute weights of its elements. Where these are shards, the units that the next step starts with are gathered right
// after it, while others are updated; the next step gathers the rest while it computes (windows.c):
//
//   update %1 {weights = @root.compute, ...}
//   all_gather {buffer = @root.compute, into = @root.next, comm = @comm.gather}
//   update %1 {weights = @b.compute, ...}
#include "passes/fsdp/fsdp.h"
#include "ir/bins.h"
#include "ir/optimizer.h"
#include <stdlib.h>

// --- the loss
static Value *times(Builder *b, Value *v, double by) {
    return hd_build1(b, OP_MUL, v, hd_build_number(b, v->type->dtype, by), NULL, NULL);
}

// The mean of a number that each rank has, of ranks that read other sequences, or the sum of counts, goes to `into`.
static void mean_over_ranks(Fsdp *s, Builder *b, const StepNumber *number, const Symbol *into, const Func *f) {
    Ctx *cx = s->m->cx;
    const char *name = number->name ? hd_internf(cx, "result.%s.parts", number->name) : "loss.parts";
    const int64_t each = hd_type_count(number->at->type), dim[] = {s->ranks, each};
    Symbol *parts = hd_fsdp_transient(s, f, NULL, name, "staging", TY_F32, s->ranks * each);
    const Axes data = hd_mesh_said(&s->mesh, HD_DATA_AXES);
    hd_fsdp_collective(s, b, OP_ALL_GATHER, number->at, parts, hd_fsdp_comm(s, COMM_WORLD, data));
    Attrs as = {0};
    if (!s->tree) hd_set_ints(cx, &as, A_AXES, 1, (int64_t[]){0});
    Value *all = hd_fsdp_view(s, b, parts, 0, parts->type);
    if (number->sum) all = hd_build1(b, OP_RESHAPE, all, NULL, NULL, hd_type(cx, TY_F32, 2, dim));
    Value *sum = hd_build1(b, s->tree ? OP_TREE_SUM : OP_SUM, all, NULL, &as, NULL);
    if (!number->sum) sum = times(b, sum, 1.0 / (double)s->ranks);
    hd_fsdp_store(s, b, sum, into, 0, false);
}

// As gradients are added (gradients.c).
static void keep_in_tree(Fsdp *s, Builder *b, StepFunc step, const StepNumber *x, Value *v) {
    const Symbol *into = step.done < x->levels.n ? x->levels.at[step.done] : x->at;
    hd_fsdp_store(s, b, v, s->ranks > 1 ? x->at : into, 0, false);
    if (s->ranks > 1) mean_over_ranks(s, b, x, into, step.f);
    for (int i = 0; i < step.done; i++)
        hd_fsdp_store(s, b, hd_fsdp_view(s, b, x->levels.at[i], 0, x->levels.at[i]->type), into, 0, true);
}

static void keep_number(Fsdp *s, Builder *b, StepFunc step, int64_t micro, const StepNumber *x, Value *v) {
    if (micro > 1 && !x->sum) v = times(b, v, 1.0 / (double)micro);
    if (hd_fsdp_in_levels(s) && !step.alone) {
        keep_in_tree(s, b, step, x, v);
        return;
    }
    hd_fsdp_store(s, b, v, x->at, 0, !step.first);
    if (s->ranks > 1 && step.last) mean_over_ranks(s, b, x, x->at, step.f);
}

// The loss of micro-batch i of `micro` adds loss/micro to @state.loss, which therefore ends as the mean over the step.
// So do its further results. Counts add up.
void hd_fsdp_loss(Fsdp *s, StepFunc step, int64_t micro) {
    Func *f = step.f;
    Op *ret = hd_return(f);
    Builder b = {.f = f, .before = ret, .loc = ret->loc, .span = ret->span};
    for (int i = 0; i < ret->n_in; i++) keep_number(s, &b, step, micro, &s->numbers.at[i], ret->in[i]);
    hd_build(&b, OP_RETURN, 0, NULL, NULL, NULL);
    hd_erase(ret);
}

// --- the norm
// Readers of gradients divide by the scale of the loss, which the seed of the backward pass has (autodiff).
static void set_scale(const Fsdp *s, Attrs *as) {
    const int64_t scale = hd_int(s->train, A_LOSS_SCALE, 1);
    if (scale != 1) hd_set_int(s->m->cx, as, A_LOSS_SCALE, scale);
}

static bool is_counted(const FsdpBucket *b) { return !b->frozen && !b->rule; }

static Value *norm_of_one_rank(Fsdp *s, Builder *b) {
    const char **grads = HD_NEWN(s->cx->scratch, const char *, s->buckets.n);
    int n = 0;
    for (int i = 0; i < s->buckets.n; i++)
        if (is_counted(&s->buckets.at[i])) grads[n++] = s->buckets.at[i].grad->name;
    Attrs as = {0};
    hd_set_words(s->m->cx, &as, A_BUFFERS, n, grads);
    set_scale(s, &as);
    return hd_build1(b, OP_GRAD_NORM, NULL, NULL, &as, NULL);
}

// The sums of squares of the buckets that are split over the axes `own`; NULL: there are none.
static Value *squares(Fsdp *s, Builder *b, Axes own) {
    Ctx *cx = s->m->cx;
    const char **grads = HD_NEWN(s->cx->scratch, const char *, s->buckets.n + 1);
    int64_t n = 0;
    int found = 0;
    for (int i = 0; i < s->buckets.n; i++) {
        const Symbol *part = s->buckets.at[i].reduced;
        if (s->buckets.at[i].own != own || !is_counted(&s->buckets.at[i])) continue;
        grads[found++] = part->name;
        n += (hd_type_count(part->type) + HD_NORM_BLOCK - 1) / HD_NORM_BLOCK;
    }
    if (!found) return NULL;
    Attrs as = {0};
    hd_set_words(cx, &as, A_BUFFERS, found, grads);
    if (s->tree) hd_set_flag(cx, &as, A_EXACT), n = HD_BINS;
    return hd_build1(b, OP_SQUARE_SUMS, NULL, NULL, &as, hd_type(cx, TY_F64, 1, &n));
}

// The elements that a rank gives to others that have other elements; NULL: there are none.
static Symbol *own_squares(Fsdp *s, const Builder *b, const Value *sums, Axes over) {
    if (!sums || hd_mesh_ranks(&s->mesh, over) == 1) return NULL;
    return hd_fsdp_transient(s, b->f, NULL, "norm.part", "staging", TY_F64, hd_type_count(sums->type));
}

// The sums of all of those, gathered into elements of `parts` from `at` on.
static void gather_squares(Fsdp *s, Builder *b, Value *sums, Axes over, const Symbol *part, const Symbol *parts,
                           int64_t at) {
    hd_fsdp_store(s, b, sums, part ? part : parts, part ? 0 : at, false);
    if (!part) return;
    const Comm comm = over == s->split ? COMM_GATHER : COMM_NORM;
    Op *o = hd_fsdp_collective(s, b, OP_ALL_GATHER, part, parts, hd_fsdp_comm(s, comm, over));
    if (at) hd_set_int(s->m->cx, &o->attrs, A_OFFSET, at);
}

static Value *norm_of_ranks(Fsdp *s, Builder *b) {
    Value *sums[HD_ALL_AXES + 1];
    const Symbol *part[HD_ALL_AXES + 1];
    int64_t at[HD_ALL_AXES + 2] = {0};
    for (Axes own = 0; own <= HD_ALL_AXES; own++) {
        sums[own] = squares(s, b, own);
        part[own] = own_squares(s, b, sums[own], s->split | own);
        at[own + 1] = at[own];
        if (sums[own]) at[own + 1] += hd_type_count(sums[own]->type) * hd_mesh_ranks(&s->mesh, s->split | own);
    }
    Value *all = sums[0];
    if (s->shards > 1 || s->own) {
        const Symbol *parts = hd_fsdp_transient(s, b->f, NULL, "norm.parts", "staging", TY_F64, at[HD_ALL_AXES + 1]);
        Attrs as = {0};
        hd_set_word(s->m->cx, &as, A_LIFE, parts->name);
        if (s->own) hd_build(b, OP_BEGIN, 0, NULL, &as, NULL); // several ops write it
        for (Axes own = 0; own <= HD_ALL_AXES; own++)
            if (sums[own]) gather_squares(s, b, sums[own], s->split | own, part[own], parts, at[own]);
        all = hd_fsdp_view(s, b, parts, 0, parts->type);
    }
    Attrs as = {0};
    set_scale(s, &as);
    if (s->tree) hd_set_flag(s->m->cx, &as, A_EXACT);
    return hd_build1(b, OP_ROOT_SUM, all, NULL, &as, NULL);
}

static Value *norm(Fsdp *s, Builder *b) {
    Value *v = s->several || s->tree ? norm_of_ranks(s, b) : norm_of_one_rank(s, b);
    hd_fsdp_store(s, b, v, s->norm, 0, false);
    return v;
}

// --- the optimizer
static void set_betas(const Fsdp *s, Attrs *as) {
    static const double defaults[] = {HD_DEFAULT_BETA1, HD_DEFAULT_BETA2};
    const Attr *betas = hd_attr(s->train, A_BETAS);
    if (!betas && hd_has(s->train, A_OPTIMIZER)) return; // one without
    hd_set_floats(s->m->cx, as, A_BETAS, 2, betas && betas->n == 2 ? betas->floats : defaults);
}

static Value *step_scalars(Fsdp *s, Builder *b, Value *norm) {
    Ctx *cx = s->m->cx;
    Attrs as = {0};
    Value *in[2] = {norm};
    int n = norm != NULL;
    if (s->history) {
        in[n++] = hd_fsdp_view(s, b, s->numbers.at[0].at, 0, hd_type(cx, TY_F32, 0, NULL));
        hd_set_word(cx, &as, A_HISTORY, s->history->name);
    }
    hd_set_word(cx, &as, A_COUNTER, s->step->name);
    hd_set_float(cx, &as, A_CLIP, hd_float(s->train, A_CLIP, 0));
    set_scale(s, &as);
    set_betas(s, &as);
    hd_set_word(cx, &as, A_LR, hd_word(s->train, A_LR, hd_intern(cx, "constant")));
    hd_set_float(cx, &as, A_LR_PEAK, hd_float(s->train, A_LR_PEAK, HD_DEFAULT_LR));
    static const AttrId schedule[] = {A_LR_FLOOR, A_LR_WARMUP, A_LR_TOTAL, A_LR_DECAY,
                                      A_LR_SHAPE, A_LR_STEPS,  A_LR_RATES, A_ON_NAN,
                                      A_SKIP_LOSS_Z, A_SKIP_NORM_Z};
    for (size_t i = 0; i < sizeof schedule / sizeof *schedule; i++)
        if (hd_has(s->train, schedule[i])) hd_set_attr(cx, &as, hd_attr(s->train, schedule[i]));
    return hd_build(b, OP_STEP_SCALARS, n, in, &as, NULL)->out[0];
}

static void update(Fsdp *s, Builder *b, FsdpBucket *k, Value *scalars) {
    Ctx *cx = s->m->cx;
    Attrs as = {0};
    if (k->frozen) return;
    hd_set_word(cx, &as, A_GRADIENT, (s->strategy == FSDP_NONE ? k->grad : k->reduced)->name);
    if (hd_has(&k->bucket->attrs, A_STATES)) hd_set_attr(cx, &as, hd_attr(&k->bucket->attrs, A_STATES));
    hd_set_word(cx, &as, A_MASTER_WEIGHTS, k->master->name);
    if (k->compute) hd_set_word(cx, &as, A_WEIGHTS, k->compute->name);
    if (k->master->type->dtype != TY_F32 && !s->compensates)
        hd_set_word(cx, &as, A_ROUNDING, hd_fsdp_random_state(s)->name);
    hd_set_int(cx, &as, A_DECAYED, k->layout.decayed);
    if (s->strategy != FSDP_NONE) hd_set_int(cx, &as, A_RANKS, k->shards);
    hd_set_word(cx, &as, A_KERNEL, (k->rule ? k->rule : k->own_kernel ? k->own_kernel : s->optimizer)->name);
    hd_set_float(cx, &as, A_WEIGHT_DECAY, hd_float(s->train, A_WEIGHT_DECAY, HD_DEFAULT_WEIGHT_DECAY));
    for (int i = 0; i < HD_GROUP_RATES; i++)
        if (hd_has(&k->bucket->attrs, hd_group_rates[i]))
            hd_set_attr(cx, &as, hd_attr(&k->bucket->attrs, hd_group_rates[i]));
    if (s->several || s->micro == 1) b->loc = k->loc;
    hd_build(b, OP_UPDATE, 1, &scalars, &as, NULL);
    k->early |= k->logged && hd_fsdp_gathers(s, k); // every rank can report it
    if (k->early) hd_fsdp_collective(s, b, OP_ALL_GATHER, hd_fsdp_shard(k), hd_fsdp_next(s, k),
                                      hd_fsdp_comm(s, COMM_GATHER, k->split));
}

typedef struct { int used, bucket; } Turn;

static int by_use(const void *a, const void *b) {
    const Turn *x = a, *y = b;
    return x->used != y->used ? (x->used < y->used ? -1 : 1) : x->bucket - y->bucket;
}

// Buckets in the order in which the forward pass of a step uses them.
static const Turn *forward_order(Fsdp *s) {
    Turn *turns = HD_NEWN(s->cx->scratch, Turn, s->buckets.n);
    for (int i = 0; i < s->buckets.n; i++) turns[i] = (Turn){s->buckets.at[i].used, i};
    qsort(turns, (size_t)s->buckets.n, sizeof *turns, by_use);
    return turns;
}

const Func *hd_fsdp_update(Fsdp *s, Func *last) {
    const bool waits = hd_float(s->train, A_CLIP, 0) > 0 || hd_has(s->train, A_ON_NAN) || s->history; // for the norm
    Func *f = s->several || s->micro == 1 ? last : hd_func_add(s->m, hd_free_name(s->m, "update"), false);
    if (f != last) hd_set_kind(s->m->cx, &f->attrs, KIND_UPDATE);
    Builder b = {.f = f, .before = hd_return(f)};
    if (f != last) {
        Value *scalars = step_scalars(s, &b, norm(s, &b));
        for (int i = 0; i < s->buckets.n; i++) update(s, &b, &s->buckets.at[i], scalars);
        hd_build(&b, OP_RETURN, 0, NULL, NULL, NULL);
    } else {
        Value *scalars = step_scalars(s, &b, waits ? norm(s, &b) : NULL);
        const Turn *turns = forward_order(s);
        for (int i = 0; i < s->buckets.n; i++)
            if (waits || i < s->reduced.n)
                update(s, &b, &s->buckets.at[waits ? turns[i].bucket : s->reduced.at[i]], scalars);
        b.loc = (Loc){0};
        if (!waits) norm(s, &b);
    }
    hd_renumber(f);
    return f;
}
