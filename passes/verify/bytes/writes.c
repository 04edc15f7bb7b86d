// Writes [V37]: what outlives a function is written by the ops that it is for, in the functions that it is for, and by
// nothing else. A check of what is read finds no such write: nothing in the plan may read those bytes before the next
// step does, or the host.
//
//   master weights, states, compute weights    the optimizer's, which update.c compares with the bucket's
//   next                                       gathers of its own bucket's weights, which every rank holds already; so
//                                              validation and logits may gather, too
//   gradient, gradient_sum, levels             micro-batches, until the optimizer has read them (flow.c adds them up)
//   loss                                       what computes one; nothing moves other numbers there
//   norm                                       ops that compute the norm of gradients
//   counter, history                           step_scalars, once in a step
//   dropout_keys                               random state
//   keys and values (caches)                   attention_step, in the function of kind decode
//
// A step names its loss, norm, counter, history, random state and caches; the others are parts of buckets. So
// validation writes its loss and gathers weights, logits gather weights, decode gathers weights and writes its keys and
// values, and the optimizer's function writes what the optimizer does. In the plan of a model, which says `program`,
// nothing writes a buffer that persists and that neither a bucket nor the step names.
// In a text by hand such a buffer is what its author wants to see.
#include "passes/analysis/access.h"
#include "passes/verify/verify_plan.h"

typedef struct {
    PlanCheck *c;
    bool of_model;         // the plan is one
    const Symbol *step;    // that runs the function at hand
    const Op **updated;    // by bucket: the optimizer's op in this step; NULL: none yet
    const Op *counts;      // that has counted this step; NULL: none yet
    const Op *o;           // the op at hand
    const Symbol *buffer;  // that it writes
} Writes;

typedef enum { FOR_UPDATE, FOR_WEIGHTS, FOR_GRADIENT, FOR_LOSS, FOR_NORM, FOR_COUNTER, FOR_HISTORY, FOR_RANDOM,
               FOR_CACHE,               N_PURPOSES } Purpose;

static const Purpose of_part[N_PARTS] = {
    [PART_MASTER] = FOR_UPDATE, [PART_STATE] = FOR_UPDATE,   [PART_COMPUTE] = FOR_UPDATE,
    [PART_GRAD] = FOR_GRADIENT, [PART_SUM] = FOR_GRADIENT,   [PART_NEXT] = FOR_WEIGHTS,
    [PART_LEVEL] = FOR_GRADIENT,
};

// --- ops that may write

static bool is_update(const Writes *w) { return w->o->kind == OP_UPDATE; }
static bool counts(const Writes *w) { return w->o->kind == OP_STEP_SCALARS; }
static bool draws(const Writes *w) { return w->o->kind == OP_DROPOUT_KEYS; }
static bool attends(const Writes *w) { return w->o->kind == OP_ATTENTION_STEP; }

// The buffer that an op reads, by name or through views that are its operand.
static const Symbol *source(const Op *o) {
    const Op *by = o;
    while (by && !hd_named(by, A_BUFFER))
        by = by->n_in && (by == o || hd_op_is(by, TRAIT_ALIAS)) ? by->in[0]->def : NULL;
    return by ? hd_named(by, A_BUFFER) : NULL;
}

static bool gathers_weights(const Writes *w) {
    const Symbol *from = hd_gathers(w->o) ? source(w->o) : NULL;
    return from && hd_plan_bucket(w->c, from) == hd_plan_bucket(w->c, w->buffer) && hd_plan_is_weights(w->c, from);
}

// Moves what is somewhere already, or writes numbers that do not depend on anything.
static bool moves(const Op *o) { return hd_op_is(o, TRAIT_COPIES) || o->kind == OP_ZERO || hd_has(&o->attrs, A_COMM); }

static bool is_norm(const Writes *w) {
    const Op *by = w->o->kind == OP_STORE ? w->o->in[0]->def : w->o;
    return by && (by->kind == OP_GRAD_NORM || by->kind == OP_ROOT_SUM);
}

static bool computes(const Writes *w) {
    return !moves(w->o) && !is_update(w) && !counts(w) && !draws(w) && !attends(w) && !is_norm(w);
}

// A contribution, zeros, or what moves another sum of the same bucket.
static bool adds_up(const Writes *w) {
    const Symbol *from = hd_named(w->o, A_BUFFER);
    const int part = from ? w->c->part_of[from->id] : N_PARTS;
    const bool sum = part == N_PARTS ? !from || !hd_plan_is_weights(w->c, from) : of_part[part] == FOR_GRADIENT;
    return moves(w->o) ? sum : computes(w);
}

// --- what buffers are for

#define IN(kind) (1u << (kind))
enum { IN_TRAINING = IN(KIND_MICRO) | IN(KIND_UPDATE) };
enum { IN_OTHERS = IN(KIND_EVAL) | IN(KIND_LOGITS) | IN(KIND_DECODE) | IN(KIND_CALL) };

static const struct {
    const char *by;               // what may write it
    bool (*may)(const Writes *w);
    unsigned kinds;               // of functions
} purposes[N_PURPOSES] = {
    [FOR_UPDATE] = {"update", is_update, IN_TRAINING},
    [FOR_WEIGHTS] = {"a gather of its bucket's weights", gathers_weights, IN_TRAINING | IN_OTHERS},
    [FOR_GRADIENT] = {"what adds up gradients", adds_up, IN(KIND_MICRO)},
    [FOR_LOSS] = {"what computes a loss", computes, IN(KIND_MICRO) | IN(KIND_EVAL)},
    [FOR_NORM] = {"grad_norm or root_sum", is_norm, IN_TRAINING},
    [FOR_COUNTER] = {"step_scalars", counts, IN_TRAINING},
    [FOR_HISTORY] = {"step_scalars", counts, IN_TRAINING},
    [FOR_RANDOM] = {"dropout_keys", draws, IN(KIND_MICRO)},
    [FOR_CACHE] = {"attention_step", attends, IN(KIND_DECODE)},
};

static const struct { AttrId at; const char *text; Purpose purpose; } of_step[] = {
    {A_LOSS, "loss", FOR_LOSS},
    {A_NORM, "norm", FOR_NORM},
    {A_COUNTER, "counter", FOR_COUNTER},
    {A_HISTORY, "history", FOR_HISTORY},
    {A_RANDOM, "random state", FOR_RANDOM},
    {A_CACHES, "keys or values", FOR_CACHE}};

static bool step_names(const Symbol *step, AttrId as, const char *name) {
    const Attr *a = hd_attr(&step->attrs, as);
    const char *const *names;
    for (int i = 0, n = a ? hd_names(a, &names) : 0; i < n; i++)
        if (!strcmp(names[i], name)) return true;
    return false;
}

// The purpose of the buffer, and in `what` that in words; N_PURPOSES: nothing that the step at hand knows of.
static Purpose purpose_of(const Writes *w, const char **what) {
    const int part = w->c->part_of[w->buffer->id];
    if (part != N_PARTS) {
        *what = hd_sprintf(w->c->a, "%s of bucket @%s", hd_plan_part_text(part),
                           hd_plan_bucket(w->c, w->buffer)->symbol->name);
        return of_part[part];
    }
    for (size_t i = 0; i < sizeof of_step / sizeof *of_step; i++) {
        const bool number = of_step[i].purpose == FOR_LOSS && hd_step_keeps(w->step, w->buffer) >= 0;
        if (!number && !step_names(w->step, of_step[i].at, w->buffer->name)) continue;
        *what = hd_sprintf(w->c->a, "%s of step @%s", of_step[i].text, w->step->name);
        return of_step[i].purpose;
    }
    return N_PURPOSES;
}

// Whether the op that has counted the step compares its loss, in the buffer at hand, with those before.
static bool reads_loss(const Writes *w) {
    return hd_has(&w->counts->attrs, A_HISTORY) && step_names(w->step, A_LOSS, w->buffer->name);
}

static void check_write(Writes *w) {
    PlanCheck *c = w->c;
    const char *what = NULL, *name = w->buffer->name;
    const Op *o = w->o;
    const Purpose p = purpose_of(w, &what);
    const KindId kind = hd_kind(&c->f->attrs);
    const BucketParts *k = hd_plan_bucket(c, w->buffer);
    const Op *updated = k && p == FOR_GRADIENT ? w->updated[k - c->buckets] : NULL;
    if (p == N_PURPOSES && !w->of_model) return;
    if (p == N_PURPOSES)
        hd_plan_wrong(c, o, o->span, "writes @%s, which persists, and neither a bucket nor step @%s names it", name,
                      w->step->name);
    else if (!purposes[p].may(w))
        hd_plan_wrong(c, o, o->span, "writes @%s, the %s, which only %s may write", name, what, purposes[p].by);
    else if (!(purposes[p].kinds & IN(kind)))
        hd_plan_wrong(c, o, o->span, "writes @%s, the %s, in a function of kind %s", name, what,
                      hd_word(&c->f->attrs, A_KIND, "none"));
    else if (updated)
        hd_plan_wrong(c, o, o->span, "writes @%s, the %s, which %s has read", name, what, hd_plan_op(c, updated));
    else if (p == FOR_LOSS && w->counts && reads_loss(w))
        hd_plan_wrong(c, o, o->span, "writes @%s, the %s, which step_scalars has read", name, what);
    else if (p == FOR_COUNTER && w->counts)
        hd_plan_wrong(c, o, o->span, "counts the step a second time, in @%s", name);
    if (p == FOR_COUNTER) w->counts = o;
}

// --- the walk

static bool is_kept(const PlanCheck *c, const Symbol *s) {
    return !hd_has(&s->attrs, A_TRANSIENT) || c->part_of[s->id] != N_PARTS;
}

static void run_func(Writes *w, const Func *f, Accesses *list) {
    hd_plan_enter(w->c, f);
    for (const Op *o = f->first; o; o = o->next) {
        w->o = o;
        hd_accesses(o, w->c->a, list);
        for (int i = 0; i < list->n; i++) {
            const Access *x = &list->at[i];
            if (!x->write || x->order || x->at != AT_BUFFER || !is_kept(w->c, x->buffer)) continue;
            w->buffer = x->buffer;
            check_write(w);
        }
        const BucketParts *k = hd_plan_bucket(w->c, hd_named(o, A_MASTER_WEIGHTS));
        if (k) w->updated[k - w->c->buckets] = o;
    }
}

void hd_check_writes(PlanCheck *c) {
    const Symbol *steps[] = {c->train, c->eval, c->logits, c->decode, c->call};
    Accesses list = {0};
    const Func *f;
    for (size_t k = 0; k < sizeof steps / sizeof *steps; k++) {
        Writes w = {.c = c, .of_model = c->of_model, .step = steps[k]};
        w.updated = HD_NEWN(c->a, const Op *, c->n_buckets + 1);
        int64_t times = 1;
        for (int i = 0; (f = hd_segment(c->m, steps[k], i, &times)); i++) {
            const Op *before = w.counts;
            run_func(&w, f, &list);
            if (w.counts != before && times > 1)
                hd_plan_wrong(c, w.counts, w.counts->span, "counts the step %lld times: its function runs that often",
                              (long long)times);
        }
    }
    c->f = NULL;
}
