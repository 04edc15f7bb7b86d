// verify-plan: the proof that a plan is right, on every compile. It trusts no pass: it reads only the ops, places,
// streams, events and declarations of the finished text. The table says, for each number in the project's list of
// invariants, what is proved, in which file, and which test under tests/lit/passes/verify-plan breaks it.
// (tests/unit/test_plan_mutants.c breaks plans everywhere, test_plan_insertions.c adds writes to them; both run what is
// accepted.)
//
// V1  parameters lie inside their bucket, a vector of f32, and are of    layout, places         places, ranks, sizes
//     its unit; they are disjoint, as buffers in the arena
// V2  no row of a parameter is cut where a shard ends                   layout                 ranks
// V3  a bucket is its shards, shards divide by replicas and start at    layout                 ranks
//     16 bytes
// V4  what a rank holds of a bucket is all, its shard or its part of    layout, flow           ranks, replicas, weights
//     the shard
// V5  a step updates every element once, by buffers that exist and      update, contributions  contributions, weights,
//     leaves fresh weights wherever it found old ones, or the next one                         next, kept
//     gathers them
// V6  every element of a gradient gets as many contributions, in every  contributions,         contributions, settings
//     micro-batch; a step has the functions that its micro-batches      settings
//     need
// V7  every byte that is read holds the value that is meant; weights    contents, flow         contents, order,
//     are read whole, inside one parameter, from before the update,                            weights, next, kept
//     gathered from their own bucket
// V8  a transient buffer begins before its first use, once, and is in   contents, places       transient
//     one function
// V9  bytes get a new value only after every access to the old, by      contents               contents, order
//     streams, events
// V10 a reader on another stream than its writer is ordered after it    contents               order
// V11 a reduction reads all contributions; none comes after it          contents, flow         order, reductions
// V12 an op that reuses bytes is ordered after all earlier users     contents               transient
// V13 at most `prefetch` units are gathered before they are needed      collectives            bounds
// V14 no moment has more bytes live than the declared bound, nor that   places, collectives    places, bounds
//     than the arena; at most `live_grads` gradients of units wait for
//     their reduction
// V15 an argument has one address in all functions and is not           places, contents       places, contents
//     overwritten
// V16 every value, buffer and workspace lies inside its arena, which     places                 places, transient,
//     ends where the last of them does                                                         sizes
// V17 results and operands are disjoint, or declared in place and       places, contents       contents, transient
//     legally so; those of a collective are always disjoint
// V19 events are recorded once, and before they are waited for, also    order, regions,        order, regions,
//     where a function waits for the one before it; streams fork, join, seam                 overlaps
//     or run beside the next function of a step that says so; those
//     that cross the end of a capture region are external; a stream in
//     a region forks and joins there
// V20 the first contribution of a step overwrites or adds to zeros,     flow                   contributions
//     others add
// V21 the loss that is kept, over micro-batches and ranks, and the      scale, probe           scales, contributions,
//     loss whose gradient is taken are scaled alike, in each of its                            norm_loss, unproved
//     terms; the report lists what cannot be followed
// V22 every element is summed once over each axis, over replicas in     flow, update           reductions, replicas
//     the last micro-batch alone; the norm counts it once
// V23 what adds up over micro-batches, ranks and steps is f32, also of   layout, flow           ranks, gradients
//     gradients in bf16, which config @train declares
// V25 weight decay applies to exactly the parameters that ask for it;   layout, settings       contributions, settings
//     the optimizer's settings are those of config @train, classes of
//     buffers are known
// V26 a group's collectives have one order: one stream, one text for    collectives            transient
//     all ranks
// V30 random numbers differ in every micro-batch, step and rank, and    random                 random
//     are those of the forward pass in copies and gradients
// V27 a value that waits on the host leaves after its last write and is  contents               transfers, contents,
//     back before its first reader; bytes on either side are used again                         order
//     when the copy that reads them has ended
// V28 a storage is copied to the host once                              transfers              transfers
// V29 what is copied to the host comes back, once; the arena of the     transfers, places      transfers, spaces
//     host holds it
// V32 no wait is for a later op, so no collective waits for a later     order                  order
//     one
// -   kernels compute what their headers say; arguments, tokens and      kernels, inputs,       kernels, inputs,
//     workspaces are as large as what reads them                         places                 places
// V33 sums over ranks are reduce_scatter's, of other sums the           flow, contents         reductions, order
//     program's order; with train.reduce = tree both are one tree over                         (tests/run/tree.py)
//     micro-batches and ranks, and squares add up exactly
// V35 the plan computes the model: its losses, every contribution to    program, term_walk,    program
//     every gradient, the declarations and settings (README.md)         term_rules
// V36 where arenas have a guard, the bytes that guard a storage are its  places, contents       guard
//     own as long as it lives: no other storage has them
// V37 what outlives a function is written by what it is for alone: the  writes                 writes, random,
//     optimizer, gathers of weights, sums of gradients, the loss, the                          program
//     norm, the counter of steps, the random state; validation writes
//     its loss, and gathers weights; logits gather weights; decode
//     gathers weights, and writes its keys and values
// V38 a capture region has an action                                    regions                regions
//
// V15, V16, V18 and V31 hold in capture regions because they hold everywhere: every address of a plan is a number of
// its text, no op runs on the host, and the step's numbers and the counter of random numbers are on the device. V24 is
// the runtime's: a plan has no warm-up. V34 is a prediction: the report says how long the main stream waits for copies.
#include "passes/verify/verify_plan.h"
#include "ir/base/ints.h"
#include "passes/pass.h"
#include "passes/settings.h"
#include "passes/verify/values/program.h"

bool hd_plan_wrong(PlanCheck *c, const Op *o, Span span, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    const char *what = hd_vsprintf(c->a, fmt, ap);
    va_end(ap);
    const char *after = c->joined ? hd_sprintf(c->a, " after @%s", c->joined->seam->before->name) : "";
    const char *in = c->f ? hd_sprintf(c->a, "in @%s%s: ", c->f->name, after) : "";
    const char *who = o ? hd_sprintf(c->a, "%s ", hd_plan_op(c, o)) : "";
    Finding f = {o ? o->span : span, hd_sprintf(c->a, "%s%s%s", in, who, what)};
    hd_push(c->a, &c->found, f);
    return false;
}

// Once for the text of an op: the functions of a step are copies of each other.
void hd_plan_unproved(PlanCheck *c, const Op *o, const char *text) {
    const char *who = o ? hd_sprintf(c->a, "%s %s", hd_op_info(o->kind)->mnemonic, text) : text;
    if (o && o->loc.file)
        who = hd_sprintf(c->a, "%s (%s, %s:%d) %s", hd_op_info(o->kind)->mnemonic, o->loc.path ? o->loc.path : "-",
                         o->loc.file, o->loc.line, text);
    for (int i = 0; i < c->unproved.n; i++)
        if (strcmp(c->unproved.at[i].text, who) == 0) return;
    Finding f = {o ? o->span : (Span){0}, who};
    hd_push(c->a, &c->unproved, f);
}

const char *hd_plan_number(const PlanCheck *c, const Op *o) {
    const Joined *j = c->joined;
    if (j && o->id < j->tail) return hd_sprintf(c->a, "%d of @%s", j->from[o->id], j->seam->before->name);
    return hd_sprintf(c->a, "%d", o->id - (j ? j->tail : 0));
}

const char *hd_plan_op(const PlanCheck *c, const Op *o) {
    const char *text = hd_sprintf(c->a, "op %s [%s] %s", hd_plan_number(c, o), o->stream ? o->stream : "no stream",
                                  hd_op_info(o->kind)->mnemonic);
    if (o->loc.file)
        return hd_sprintf(c->a, "%s (%s, %s:%d)", text, o->loc.path ? o->loc.path : "-", o->loc.file, o->loc.line);
    return o->loc.path ? hd_sprintf(c->a, "%s (%s)", text, o->loc.path) : text;
}

static const char *space_text(const PlanCheck *c, Space s) {
    return s ? hd_sprintf(c->a, "%s:", hd_space_text(s)) : "";
}

const char *hd_plan_at(const PlanCheck *c, Space s, int64_t at) {
    return hd_sprintf(c->a, "%s0x%llx", space_text(c, s), ll(at));
}

const char *hd_plan_range(const PlanCheck *c, Space s, int64_t lo, int64_t hi) {
    return hd_sprintf(c->a, "%s[0x%llx, 0x%llx)", space_text(c, s), ll(lo), ll(hi));
}

const char *hd_plan_value(const PlanCheck *c, const Value *v) {
    if (v->into) return hd_sprintf(c->a, "result %d of op %s", v->index, hd_plan_number(c, v->def));
    return v->def ? hd_sprintf(c->a, "%%%d", c->number[v->id]) : hd_sprintf(c->a, "%%%s", v->name);
}

void hd_plan_join(PlanCheck *c, const Joined *j) {
    hd_plan_enter(c, j->f);
    c->joined = j;
    int *number = HD_NEWN(c->a, int, j->f->n_values + 1), n = 0;
    for (const Op *o = j->f->first; o; o = o->next)
        for (int i = 0; i < o->n_out && o->id >= j->tail; i++) number[o->out[i]->id] = o->out[i]->into ? -1 : n++;
    c->number = number;
}

void hd_plan_enter(PlanCheck *c, const Func *f) {
    c->f = f;
    c->joined = NULL;
    c->ops = HD_NEWN(c->a, Op *, f->n_ops + 1);
    int *number = HD_NEWN(c->a, int, f->n_values + 1), n = 0;
    for (Op *o = f->first; o; o = o->next) {
        c->ops[o->id] = o;
        for (int i = 0; i < o->n_out; i++) number[o->out[i]->id] = o->out[i]->into ? -1 : n++;
    }
    c->number = number;
}

int hd_plan_last_micro(const PlanCheck *c) {
    const Func *f;
    int last = -1;
    for (int i = 0; (f = hd_segment(c->m, c->train, i, NULL)); i++)
        if (hd_kind(&f->attrs) == KIND_MICRO) last = i;
    return last;
}

// A function beside what the one before it left running.
static void check_seam(PlanCheck *c, const Seam *b) {
    Joined j = hd_join(b, c->a);
    if (!j.tail) return; // the barrier is whole
    hd_plan_join(c, &j);
    hd_check_contents(c); // first: it names the bytes that an event is missing for
    if (!c->found.n) hd_check_seam(c);
    if (c->found.n) return;
    hd_check_regions(c);
    hd_check_live(c);
    hd_check_alive(c);
}

// A probe tries a loss at one point, where a smooth model may look otherwise than in its limit. It does not refute a
// plan whose gradients are those of the model, term by term.
static void judge_probes(PlanCheck *c, bool proved) {
    for (int i = 0; i < c->probed.n; i++) {
        const Finding *f = &c->probed.at[i];
        if (!proved) hd_push(c->a, &c->found, *f);
        else hd_plan_unproved(c, NULL, hd_sprintf(c->a, "that a probe of the loss agrees: %s", f->text));
    }
}

Findings hd_check_plan(const Module *m, Arena *a, Findings *unproved) {
    PlanCheck c = {.m = m, .a = a, .train = hd_step(m, KIND_TRAIN), .eval = hd_step(m, KIND_EVAL),
                   .logits = hd_step(m, KIND_LOGITS), .decode = hd_step(m, KIND_DECODE),
                   .call = hd_step(m, KIND_CALL)};
    c.captured = HD_NEWN(a, const Op *, m->n_symbols + 1);
    c.of_model = hd_program(m) != NULL;
    c.cuda = !strcmp(hd_word(hd_settings(m, "target"), A_TARGET, "host"), "cuda");
    hd_check_addresses(&c);
    hd_check_layout(&c);
    hd_check_settings(&c);
    hd_check_kernels(&c);
    hd_check_inputs(&c);
    c.seams = hd_seams(m, a);
    hd_check_overlaps(&c);
    if (c.found.n) return c.found; // later parts rely on arenas and buffers
    for (const Func *f = m->funcs; f; f = f->next) {
        if (f->is_kernel) continue;
        int before = c.found.n;
        hd_plan_enter(&c, f);
        hd_check_values(&c);
        hd_check_order(&c);
        hd_check_regions(&c);
        hd_check_streams(&c);
        if (c.found.n > before) continue; // without it, what is ordered means little
        hd_check_contents(&c);
        hd_check_transfers(&c);
        // after races: a missing event also leaves too much alive at once, but the event is what is wrong
        hd_check_live(&c);
        hd_check_alive(&c);
    }
    for (int i = 0; i < c.seams.n && !c.found.n; i++) check_seam(&c, &c.seams.at[i]);
    c.f = NULL;
    c.joined = NULL;
    if (!c.found.n) hd_check_dropout(&c);
    if (!c.found.n) {
        hd_check_contributions(&c);
        hd_check_scales(&c);
    }
    if (!c.found.n) hd_check_writes(&c);
    if (!c.found.n) hd_check_sizes(&c);
    judge_probes(&c, !c.found.n && hd_check_program(&c)); // relies on all that is proved of buffers and steps
    for (int i = 0; !c.shared && i < c.unshared.n; i++) hd_push(a, &c.unproved, c.unshared.at[i]);
    if (unproved) *unproved = c.unproved;
    return c.found;
}

bool hd_plan_verified(const Module *m, Arena *a, Findings *unproved) {
    if (!m->proof) return hd_check_plan(m, a, unproved).n == 0;
    *unproved = m->proof->unproved;
    return true;
}

static const PlanProof *proof(Ctx *cx, const Findings *unproved) { // which outlives the pass
    PlanProof *p = HD_NEW(cx->arena, PlanProof);
    for (int i = 0; i < unproved->n; i++) {
        const Finding *f = &unproved->at[i];
        hd_push(cx->arena, &p->unproved, ((Finding){f->span, hd_strdup(cx->arena, f->text)}));
    }
    return p;
}

Change hd_pass_verify_plan(Module *m, PassCx *cx) {
    for (Func *f = m->funcs; f; f = f->next) {
        if (!hd_return(f)) HD_BUG("@%s has no return", f->name);
        hd_renumber(f);
    }
    Findings unproved = {0}; // which the report says
    const Findings found = hd_check_plan(m, cx->scratch, &unproved);
    if (!found.n) m->proof = proof(m->cx, &unproved);
    for (int i = 0; i < found.n; i++) hd_error(m->cx, found.at[i].span, "%s", found.at[i].text);
    return found.n ? FAILED : UNCHANGED;
}
