// Inputs: what the runtime gives a step. It writes a batch into the arguments of a function by their position, with
// every number less than `vocab`. So the functions of a plan have the same arguments in the same order, and no table or
// row of logits that these numbers index is shorter than `vocab`. A program gets a setting from whichever config has
// it, a check from the config that it belongs in: what a check relies on is nowhere else.
#include "passes/verify/verify_plan.h"
#include "ir/base/ints.h"
#include "ir/shapes.h"
#include "passes/settings.h"

// --- settings

static void check_homes(PlanCheck *c) {
    static const struct { AttrId at; const char *block; } homes[] = {
        {A_VOCAB, "model"}, {A_MICRO, "train"}, {A_TARGET, "target"}, {A_ARCH, "target"}};
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
    return !f->is_kernel && (hd_runs(c->train, f) || hd_runs(c->eval, f));
}

static void check_arguments(PlanCheck *c) {
    const Func *first = NULL;
    for (const Func *f = c->m->funcs; f; f = f->next) {
        if (!in_step(c, f) || !f->n_args) continue;
        if (!first) first = f;
        else if (!same_arguments(first, f))
            hd_plan_wrong(c, NULL, f->span, "@%s takes (%s) and @%s (%s): a batch fills arguments by their position",
                          f->name, arguments_of(c, f), first->name, arguments_of(c, first));
    }
}

// --- tokens

// The rows of the table, or the logits of a row, that operand 1 of an op indexes; -1: it indexes nothing.
static int64_t indexed(const Op *o) {
    if (o->kind == OP_EMBEDDING) return o->in[0]->type->rank ? o->in[0]->type->dim[0] : 0;
    if (o->kind == OP_EMBEDDING_GRAD) return hd_table_rows(o);
    return o->kind == OP_CROSS_ENTROPY || o->kind == OP_CROSS_ENTROPY_GRAD ? hd_type_cols(o->in[0]->type) : -1;
}

static void check_bound(PlanCheck *c, const Op *o, int64_t bound, int64_t vocab) {
    if (bound < vocab)
        hd_plan_wrong(c, o, o->span, "looks up tokens among %lld, and config @model says vocab = %lld", ll(bound),
                      ll(vocab));
}

// A launch: its kernel looks up what the launch gives it.
static void check_lookups(PlanCheck *c, const Op *launch, const bool *tokens, int64_t vocab) {
    const Func *k = hd_launched(launch);
    for (const Op *o = k ? k->first : NULL; o; o = o->next) {
        const int64_t bound = indexed(o);
        const Value *v = bound >= 0 ? o->in[1] : NULL;
        if (v && !v->def && tokens[launch->in[v->index]->id]) check_bound(c, launch, bound, vocab);
    }
}

// Integers that an op makes of tokens are tokens.
static void check_tokens(PlanCheck *c, const Func *f) {
    const int64_t vocab = hd_int(hd_settings(c->m, "model"), A_VOCAB, 0); // 0: the runtime lets no token in
    bool *tokens = HD_NEWN(c->a, bool, f->n_values + 1);
    hd_plan_enter(c, f);
    for (int i = 0; i < f->n_args; i++) tokens[f->args[i]->id] = f->args[i]->type->dtype == TY_I32;
    for (const Op *o = f->first; o; o = o->next) {
        const int64_t bound = indexed(o);
        bool reads = false;
        for (int i = 0; i < o->n_in; i++) reads |= tokens[o->in[i]->id];
        if (!reads) continue;
        if (bound >= 0 && tokens[o->in[1]->id]) check_bound(c, o, bound, vocab);
        if (o->kind == OP_LAUNCH) check_lookups(c, o, tokens, vocab);
        for (int i = 0; i < o->n_out; i++) tokens[o->out[i]->id] = o->out[i]->type->dtype == TY_I32;
    }
    c->f = NULL;
}

void hd_check_inputs(PlanCheck *c) {
    check_homes(c);
    check_arguments(c);
    for (const Func *f = c->m->funcs; f; f = f->next)
        if (in_step(c, f)) check_tokens(c, f);
}
