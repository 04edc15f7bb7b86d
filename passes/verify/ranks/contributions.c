// Contributions: the functions of a step as a whole. They run one after another, as the declaration of the step says;
// validation is a step of its own, which only reads weights and stores a loss. Each op changes what the buffers hold
// (flow.c). Proved are:
// - every parameter gets its whole gradient, equally often in every micro-batch [V6], and so does the loss;
// - every bucket is updated once in a step, from its complete gradient [V5];
// - a step leaves fresh weights wherever it found old ones. This also holds for the `next` of a bucket into which
//   something is gathered after the update. A `next` that a step leaves stale must be gathered before it is read in the
//   next step and in validation, whatever ran before. The text shows which kind it is.
#include "passes/verify/ranks/flow.h"
#include "ir/base/ints.h"

// The least and the most contributions of the present function to elements [from, from + count) of a bucket.
static void count_now(Flow *w, const BucketParts *k, int64_t from, int64_t count, int *least, int *most) {
    BucketFlow *b = hd_flow_bucket(w, k);
    int end, first = hd_ranges_cut(&b->now, from, from + count, &end);
    *least = INT32_MAX;
    *most = 0;
    for (int i = first; i < end; i++) {
        int n = hd_range(&b->now, i)->cell.holds;
        if (n < *least) *least = n;
        if (n > *most) *most = n;
    }
}

// `first`: by parameter's symbol id, contributions in the first micro-batch, of function `start`.
static void check_parameters(Flow *w, int *first, const Func *start) {
    PlanCheck *c = w->c;
    for (const Symbol *p = c->m->symbols; p; p = p->next) {
        BucketParts *k = p->kind == SYM_PARAM ? hd_plan_bucket(c, p) : NULL;
        int64_t count = k ? hd_type_count(p->type) : 0;
        if (!count || hd_has(&p->attrs, A_FROZEN)) continue; // it has none: layout.c
        int least, most;
        count_now(w, k, hd_int(&p->attrs, A_OFFSET, 0), count, &least, &most);
        if (least == 0) hd_plan_wrong(c, NULL, c->f->span, "parameter @%s: %s of its gradient is written", p->name,
            most ? "not all" : "nothing");
        else if (least != most) hd_plan_wrong(c, NULL, c->f->span,
            "parameter @%s: some elements of its gradient get %d contributions and some %d", p->name, least, most);
        else if (w->f != start && first[p->id] && least != first[p->id])
            hd_plan_wrong(c, NULL, c->f->span, "parameter @%s gets %d contributions to its gradient, and %d in @%s",
                          p->name, least, first[p->id], start->name);
        if (w->f == start) first[p->id] = least;
    }
}

// Whether the training step says that a buffer holds its loss or a result, its norm or the number of steps.
static bool is_state(const PlanCheck *c, const Symbol *s) {
    static const AttrId numbers[] = {A_NORM, A_COUNTER};
    const int number = hd_step_keeps(c->train, s);
    bool found = number >= 0 && hd_step_kept_at(c->m, c->train, number) == s;
    for (int i = 0; i < 2 && c->train; i++) found |= strcmp(hd_word(&c->train->attrs, numbers[i], ""), s->name) == 0;
    return found;
}

// State that the first micro-batch writes, such as the loss, is written equally often by every other one.
static void check_state(Flow *w, int *first, const Func *start) {
    for (const Symbol *s = w->c->m->symbols; s; s = s->next) {
        Held *h = is_state(w->c, s) ? hd_flow_held(w, s) : NULL;
        if (w->tree && hd_step_keeps(w->c->train, s) >= 0) continue; // check_loss
        if (h && w->f == start) first[s->id] = h->writes;
        else if (h && first[s->id] && h->writes != first[s->id])
            hd_plan_wrong(w->c, NULL, w->f->span,
                          "writes buffer @%s %d times, where the first micro-batch does %d times", s->name, h->writes,
                          first[s->id]);
    }
}

// After the last function of a step: every bucket is updated, and no buffer has old weights.
static void check_end(Flow *w) {
    PlanCheck *c = w->c;
    bool alone = c->ranks == 1 && hd_kind(&w->f->attrs) != KIND_UPDATE;
    for (int i = 0; i < c->n_buckets; i++) {
        const BucketParts *k = &c->buckets[i];
        const Op *updated = w->flow[i].updated;
        if (updated && hd_has(&k->symbol->attrs, A_FROZEN))
            hd_plan_wrong(c, updated, updated->span, "updates bucket @%s, which is frozen", k->symbol->name);
        if (k->size == 0 || (!k->part[PART_GRAD] && !updated)) continue;
        const bool part = alone && !k->part[PART_STATE] && !hd_plan_rule(k); // of a plan, without an optimizer
        if (!updated && part) continue;
        if (!updated) {
            hd_plan_wrong(c, NULL, w->f->span, "no op updates bucket @%s", k->symbol->name);
            continue;
        }
        const Symbol *weights[] = {k->part[PART_MASTER], k->part[PART_COMPUTE], k->part[PART_NEXT]};
        for (int j = 0; j < 3; j++) {
            Held *h = weights[j] && !w->left[weights[j]->id] ? hd_flow_held(w, weights[j]) : NULL;
            for (int r = 0; h && r < h->map.n; r++) {
                const Holding *was = &w->holdings.at[hd_range(&h->map, r)->cell.holds];
                if (was->kind == HOLDS_WEIGHTS && was->fresh) continue;
                hd_plan_wrong(
                    c, NULL, w->f->span,
                    "ends the step with old weights in elements [%lld, %lld) of @%s, though %s has updated bucket @%s",
                    ll(hd_range(&h->map, r)->lo), ll(hd_range_hi(&h->map, r)), weights[j]->name, hd_plan_op(c, updated),
                    k->symbol->name);
                break;
            }
        }
    }
}

// In a tree: the loss of the step, or a further result, is that of all micro-batches and ranks.
static void check_loss(Flow *w, int number) {
    PlanCheck *c = w->c;
    const Symbol *s = hd_step_kept_at(c->m, c->train, number);
    const Held *h = hd_flow_held(w, s);
    const Holding *is = h ? hd_flow_holding(w, h, 0) : NULL;
    if (!is || (is->kind == HOLDS_SUM && !is->micro && is->n == w->micro && (is->over & c->data) == c->data)) return;
    hd_plan_wrong(c, NULL, w->f->span, "ends the step with @%s, its %s, of micro-batches [%lld, %lld) over %s, and "
                  "there are %lld over %s", s->name, number ? "result" : "loss", ll(is->micro), ll(is->micro + is->n),
                  hd_axes_text(c->a, is->over), ll(w->micro), hd_axes_text(c->a, c->data));
}

static bool updates(const Flow *w) {
    for (int i = 0; i < w->c->n_buckets; i++)
        if (w->flow[i].updated) return true;
    return false;
}

// Some function writes every buffer that a step declares and, with `sums`, the gradients of every bucket.
static void check_written(Flow *w, bool sums) {
    for (const Symbol *s = w->c->m->symbols; s; s = s->next) {
        int part = w->c->part_of[s->id];
        if (!is_state(w->c, s) && (!sums || (part != PART_GRAD && part != PART_SUM && part != PART_LEVEL))) continue;
        if (hd_flow_held(w, s) && !w->held[s->id]->ever)
            hd_plan_wrong(w->c, NULL, s->span, "no function of a step writes buffer @%s", s->name);
    }
}

// The `next` buffers that no op of a step gathers into after the update of their bucket.
static void find_left(Flow *w) {
    PlanCheck *c = w->c;
    bool *updated = HD_NEWN(c->a, bool, c->m->n_symbols + 1);
    for (int i = 0; i < c->n_buckets; i++)
        if (c->buckets[i].part[PART_NEXT] && !hd_has(&c->buckets[i].symbol->attrs, A_FROZEN))
            w->left[c->buckets[i].part[PART_NEXT]->id] = true;
    const Func *f;
    for (int i = 0; (f = hd_segment(c->m, c->train, i, NULL)); i++)
        for (const Op *o = f->first; o; o = o->next) {
            const Symbol *master = hd_named(o, A_MASTER_WEIGHTS), *s = master ? master : hd_named(o, A_INTO);
            const BucketParts *k = hd_plan_bucket(c, s);
            if (k && master) updated[k->symbol->id] = true;
            if (k && hd_gathers(o) && updated[k->symbol->id]) w->left[s->id] = false;
        }
}

// Runs a training step. A segment that runs several times does so twice here: that shows what it does to what it has
// left itself.
static void run_training(Flow *w) {
    PlanCheck *c = w->c;
    int *first = HD_NEWN(c->a, int, c->m->n_symbols + 1), n = 0, last = hd_plan_last_micro(c);
    const Func *start = NULL, *f;
    int64_t times;
    find_left(w);
    w->steps = last >= 0;
    for (; (f = hd_segment(c->m, c->train, n, &times)); n++) {
        bool micro = hd_kind(&f->attrs) == KIND_MICRO;
        hd_plan_enter(c, f);
        if (micro && !start) start = f;
        if (micro && w->tree && times > 1)
            hd_plan_wrong(c, NULL, f->span, "runs %lld times in a row, and in a tree neighbours add up other sums",
                          ll(times));
        for (int run = times > 1 ? 0 : 1; run < 2; run++) {
            hd_flow_run(w, f, n >= last && run == 1);
            if (micro) check_parameters(w, first, start);
            if (micro) check_state(w, first, start);
            w->micro += micro;
        }
    }
    if (n) check_end(w);
    for (int i = 0; n && w->tree && w->micro && i < hd_n_numbers(&c->train->attrs); i++) check_loss(w, i);
    c->f = NULL;
    bool all = n > 1 || (n && c->ranks > 1); // else perhaps only a part of a plan
    if (all || updates(w)) check_written(w, all);
}

// Logits, and those of a token, read weights as validation does: from before the next step, whatever ran before them.
static void run_logits(const Flow *training, const Symbol *step) {
    PlanCheck *c = training->c;
    Flow w = hd_flow(c);
    const Func *f;
    w.left = training->left;
    for (int i = 0; (f = hd_segment(c->m, step, i, NULL)); i++) {
        hd_plan_enter(c, f);
        hd_flow_run(&w, f, true);
    }
    c->f = NULL;
}

void hd_check_contributions(PlanCheck *c) {
    Flow w = hd_flow(c);
    run_training(&w);
    run_logits(&w, c->logits);
    run_logits(&w, c->decode);
    run_logits(&w, c->call);
    Flow e = hd_flow(c);
    const Func *f;
    e.left = w.left;
    for (int i = 0; (f = hd_segment(c->m, c->eval, i, NULL)); i++) {
        hd_plan_enter(c, f);
        hd_flow_run(&e, f, true);
    }
    c->f = NULL;
}
