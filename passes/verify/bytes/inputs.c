// Inputs: what the runtime gives a step. It writes a batch into the arguments of a function by their position, with
// every integer below the bound of its argument: `vocab`, or what `bounds` says. So the functions of a plan have the
// same arguments in the same order, and no table or row of logits that these numbers index is shorter than the bound. A
// program gets a setting from whichever config has it, a check from the config that it belongs in: what a check relies
// on is nowhere else. Integers may also be what `ignored` says of their argument: then a cross_entropy that ignores it
// is all that looks them up.
#include "passes/verify/verify_plan.h"
#include "ir/base/ints.h"
#include "ir/shapes.h"
#include "ir/inputs.h"
#include "passes/settings.h"

// --- settings

static void check_homes(PlanCheck *c) {
    static const struct { AttrId at; const char *block; } homes[] = {
        {A_VOCAB, "model"}, {A_BOUNDS, "model"}, {A_IGNORED, "model"}, {A_MICRO, "train"}, {A_TARGET, "target"},
        {A_ARCH, "target"}};
    for (const Symbol *s = c->m->symbols; s; s = s->next)
        for (size_t i = 0; s->kind == SYM_CONFIG && i < sizeof homes / sizeof *homes; i++)
            if (hd_has(&s->attrs, homes[i].at) && strcmp(s->name, homes[i].block) != 0)
                hd_plan_wrong(c, NULL, s->span, "config @%s has %s, which belongs in config @%s", s->name,
                              hd_attr_info(homes[i].at)->text, homes[i].block);
}

// --- arguments

static const char *arguments_of(PlanCheck *c, const Func *f) {
    Out o = hd_out(c->a);
    for (int i = 0; i < f->n_args; i++)
        hd_printf(&o, "%s%%%s: %s", i ? ", " : "", f->args[i]->name, hd_type_text(c->m->cx, f->args[i]->type));
    return o.text;
}

static bool same_arguments(const Func *f, const Func *g) {
    bool same = f->n_args == g->n_args;
    for (int i = 0; same && i < f->n_args; i++)
        same = f->args[i]->name == g->args[i]->name && f->args[i]->type == g->args[i]->type;
    return same;
}

static bool in_step(const PlanCheck *c, const Func *f) {
    return !f->is_kernel && (hd_runs(c->train, f) || hd_runs(c->eval, f) || hd_runs(c->logits, f) ||
                             hd_runs(c->decode, f) || hd_runs(c->call, f));
}

static bool of_text(const PlanCheck *c, const Func *f) { return hd_runs(c->logits, f) || hd_runs(c->decode, f); }

// The first argument alone, of one sequence.
static bool takes_sequence(const Func *f, const Func *of) {
    const Value *v = f->n_args == 1 ? f->args[0] : NULL, *batch = of->args[0];
    return v && v->name == batch->name && v->type->dtype == batch->type->dtype && v->type->rank == 2 &&
           batch->type->rank == 2 && v->type->dim[0] == 1 && v->type->dim[1] == batch->type->dim[1];
}

// One row of each argument, of its own data.
static bool takes_rows(const Func *f) {
    bool rows = f->n_args > 0;
    for (int i = 0; i < f->n_args; i++) {
        const Type *t = f->args[i]->type;
        rows &= (t->dtype == TY_I32 || t->dtype == TY_F32) && t->rank > 0 && t->dim[0] == 1;
    }
    return rows;
}

// A token of the first argument, and its position.
static bool takes_token(const Func *f, const Func *of) {
    if (f->n_args != 2 || f->args[0]->name != of->args[0]->name) return false;
    for (int i = 0; i < 2; i++) {
        const Type *t = f->args[i]->type;
        if (t->dtype != TY_I32 || t->rank != 2 || t->dim[0] != 1 || t->dim[1] != 1) return false;
    }
    return of->args[0]->type->dtype == TY_I32 && of->args[0]->type->rank == 2;
}

static void check_arguments(PlanCheck *c) {
    const Func *first = NULL;
    for (const Func *f = c->m->funcs; f && !first; f = f->next)
        if (in_step(c, f) && f->n_args && !of_text(c, f) && !hd_runs(c->call, f)) first = f;
    for (const Func *f = c->m->funcs; f; f = f->next) {
        if (!in_step(c, f) || (!f->n_args && !of_text(c, f) && !hd_runs(c->call, f)) || f == first) continue;
        if (hd_runs(c->call, f)) {
            if (!takes_rows(f))
                hd_plan_wrong(c, NULL, f->span, "@%s takes (%s): a function that a program runs by name takes one row "
                              "of each argument, f32 or i32", f->name, arguments_of(c, f));
        } else if (hd_runs(c->decode, f)) {
            if (first && !takes_token(f, first))
                hd_plan_wrong(c, NULL, f->span,
                              "@%s takes (%s) and @%s (%s): decode takes a token of the first argument and its "
                              "position, both i32[1,1]", f->name, arguments_of(c, f), first->name,
                              arguments_of(c, first));
        } else if (hd_runs(c->logits, f)) {
            if (first && !takes_sequence(f, first))
                hd_plan_wrong(c, NULL, f->span,
                              "@%s takes (%s) and @%s (%s): logits are of one sequence of the first argument", f->name,
                              arguments_of(c, f), first->name, arguments_of(c, first));
        }
        else if (!same_arguments(first, f))
            hd_plan_wrong(c, NULL, f->span, "@%s takes (%s) and @%s (%s): a batch fills arguments by their position",
                          f->name, arguments_of(c, f), first->name, arguments_of(c, first));
    }
}

// --- tokens

static int64_t vocabulary(const PlanCheck *c) { // 0: the runtime lets no token in
    return hd_int(hd_settings(c->m, "model"), A_VOCAB, 0);
}

static bool bounds_arguments(const PlanCheck *c, int64_t below) { // an argument of its own bound has this one
    const Attr *bounds = hd_attr(hd_settings(c->m, "model"), A_BOUNDS);
    for (int i = 0; bounds && i < bounds->n; i++)
        if (bounds->ints[i] == below) return true;
    return false;
}

// `below`: every index is.
static void check_bound(PlanCheck *c, const Op *o, int64_t bound, int64_t below) {
    const int64_t vocab = vocabulary(c);
    if (bound >= below) return;
    if (bounds_arguments(c, below))
        hd_plan_wrong(c, o, o->span, "looks up an argument among %lld, and config @model bounds it by %lld", ll(bound),
                      ll(below));
    else if (below == vocab)
        hd_plan_wrong(c, o, o->span, "looks up tokens among %lld, and config @model says vocab = %lld", ll(bound),
                      ll(vocab));
    else
        hd_plan_wrong(c, o, o->span, "looks up positions among %lld, and documents have up to %lld", ll(bound),
                      ll(below));
}

// The bounds of all elements of a value. below -1: it is no index.
typedef struct { int64_t below, also; } Integers;

static void check_lookup(PlanCheck *c, const Op *o, int64_t bound, Integers x) {
    check_bound(c, o, bound, x.below);
    if (x.also && !(hd_has(&o->attrs, A_IGNORE) && hd_loss_ignored(o) == x.also))
        hd_plan_wrong(c, o, o->span, "looks up an argument that may be %lld by config @model, and does not ignore it",
                      ll(x.also));
}

// A launch: its kernel looks up what the launch gives it.
static void check_lookups(PlanCheck *c, const Op *launch, const Integers *at) {
    const Func *k = hd_launched(launch);
    for (const Op *o = k ? k->first : NULL; o; o = o->next) {
        const int64_t bound = hd_indexed(o);
        const Value *v = bound >= 0 ? o->in[1] : NULL;
        if (v && !v->def) check_lookup(c, launch, bound, at[launch->in[v->index]->id]);
    }
}

// Where documents begin, and positions in them: the length of a sequence, else -1.
static int64_t positions(const Op *o) {
    const Func *k = hd_launched(o);
    const Op *made = k && k->first ? k->first : o;
    return made->kind == OP_DOCUMENTS ? hd_type_cols(made->out[0]->type) : -1;
}

// Integers that an op makes of tokens are tokens, but for positions.
static Integers made_of(const Op *o, const Integers *at) {
    Integers x = {-1, 0};
    for (int i = 0; i < o->n_in; i++) {
        const Integers *in = &at[o->in[i]->id];
        if (in->below > x.below) x.below = in->below;
        if (in->also) x.also = x.also && x.also != in->also ? INT64_MAX : in->also; // two: no op ignores them
    }
    return x;
}

// Positions of a text are below the length of a sequence.
static int64_t window(const PlanCheck *c) {
    const Func *f = hd_segment(c->m, c->logits, 0, NULL);
    return f && f->n_args && f->args[0]->type->rank == 2 ? f->args[0]->type->dim[1] : INT64_MAX;
}

static void check_tokens(PlanCheck *c, const Func *f) {
    Integers *at = HD_NEWN(c->a, Integers, f->n_values + 1); // by value
    hd_plan_enter(c, f);
    for (int i = 0; i <= f->n_values; i++) at[i].below = -1;
    for (int i = 0; i < f->n_args; i++) {
        if (i && hd_runs(c->decode, f)) { // the position
            at[f->args[i]->id] = (Integers){window(c), 0};
            continue;
        }
        const Input s = hd_input(c->m, f, i);
        if (f->args[i]->type->dtype == TY_I32) at[f->args[i]->id] = (Integers){s.below, s.also};
    }
    for (const Op *o = f->first; o; o = o->next) {
        const int64_t bound = hd_indexed(o);
        Integers x = made_of(o, at);
        if (x.below < 0) continue;
        if (bound >= 0) check_lookup(c, o, bound, at[o->in[1]->id]);
        if (hd_op_is(o, TRAIT_LAUNCH)) check_lookups(c, o, at);
        if (hd_op_info(o->kind)->chosen) continue; // places of what was chosen
        if (positions(o) >= 0) x = (Integers){positions(o), 0};
        for (int i = 0; i < o->n_out; i++)
            if (o->out[i]->type->dtype == TY_I32) at[o->out[i]->id] = x;
    }
    c->f = NULL;
}

void hd_check_inputs(PlanCheck *c) {
    check_homes(c);
    check_arguments(c);
    for (const Func *f = c->m->funcs; f; f = f->next)
        if (in_step(c, f)) check_tokens(c, f);
}
