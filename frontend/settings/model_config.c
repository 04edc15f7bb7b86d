// The facts of a model that a program must know, as config @model: name and source, the length of its sequences, the
// bounds of its integers, and the floating-point work of a micro-batch. All of it is derived from @loss.
#include "frontend/model/sema.h"
#include "ir/machine/cost.h"
#include "ir/shapes.h"
#include "ir/inputs.h"

// --- floating-point operations, for utilisation (MFU) as papers count it: two for each multiply-add of matrix products
// of attention (half of it when causal) and of ssd, three times the forward pass, less the gradients of factors that no
// trained parameter reaches; recomputation does not count.

static int64_t model_flops(Front *f) {
    bool *trained = HD_NEWN(f->scratch, bool, f->func->n_values + 1); // by value: a trained parameter reaches it
    double all = 0, flops, bytes;
    for (const Op *o = f->func->first; o; o = o->next) {
        const Symbol *p = hd_param_read(o, 0);
        int reached = 0;
        for (int i = 0; i < o->n_in; i++) reached += trained[o->in[i]->id];
        for (int i = 0; i < o->n_out; i++) trained[o->out[i]->id] = reached || (p && !hd_has(&p->attrs, A_FROZEN));
        if (!hd_op_is(o, TRAIT_MATMUL | TRAIT_ATTENTION) && o->kind != OP_SSD) continue;
        hd_cost(o, &flops, &bytes);
        all += flops * (reached && !hd_op_is(o, TRAIT_MATMUL) ? 3 : 1 + reached);
    }
    return all < 9e18 ? (int64_t)all : INT64_MAX;
}

// --- tokens

typedef struct { int64_t bound, ignored; } Lookups; // of an argument

// The smallest table or row of logits that the argument, or an integer made of it, indexes: a larger number would read
// past its end. Positions in documents and places of what was chosen are no such integers. And what all ops that look
// it up ignore; 0: nothing, or an element that it may be anyway.
static Lookups lookups_of(Front *f, const Value *arg) {
    bool *made = HD_NEWN(f->scratch, bool, f->func->n_values + 1), all = true; // by value: of the argument
    Lookups x = {(int64_t)INT32_MAX + 1, 0};                                   // of what indexes nothing
    made[arg->id] = true;
    for (const Op *o = f->func->first; o; o = o->next) {
        const int64_t n = hd_indexed(o);
        bool follows = false;
        if (n >= 0 && made[o->in[1]->id]) {
            const int64_t ignored = hd_int(&o->attrs, A_IGNORE, 0);
            all &= ignored && (!x.ignored || x.ignored == ignored);
            x.ignored = ignored;
            if (n < x.bound) x.bound = n;
        }
        for (int i = 0; i < o->n_in; i++) follows |= made[o->in[i]->id];
        for (int i = 0; i < o->n_out && o->kind != OP_DOCUMENTS && !hd_op_info(o->kind)->chosen; i++)
            made[o->out[i]->id] = follows && o->out[i]->type->dtype == TY_I32;
    }
    if (!all || (x.ignored >= 0 && x.ignored < x.bound)) x.ignored = 0;
    return x;
}

void hd_facts_bounds(Front *f) { // lookups alone: its numbers are of no vocabulary that it shares with the loss
    const Func *call = f->func;
    int64_t *bounds = HD_NEWN(f->scratch, int64_t, call->n_args), *ignored = HD_NEWN(f->scratch, int64_t, call->n_args);
    bool ignores = false;
    for (int i = 0; i < call->n_args; i++) {
        if (call->args[i]->type->dtype != TY_I32) continue;
        const Lookups x = lookups_of(f, call->args[i]);
        bounds[i] = x.bound, ignored[i] = x.ignored;
        ignores |= x.ignored != 0;
    }
    hd_set_ints(f->cx, &f->func->attrs, A_BOUNDS, call->n_args, bounds);
    if (ignores) hd_set_ints(f->cx, &f->func->attrs, A_IGNORED, call->n_args, ignored);
}

// `vocab` bounds all integers. Where it is not the bound of each, `bounds` has one an argument.
static void emit_bounds(Front *f, Attrs *attrs) {
    const Func *loss = f->func;
    int64_t *bounds = HD_NEWN(f->scratch, int64_t, loss->n_args + 1), vocab = 0;
    int64_t *ignored = HD_NEWN(f->scratch, int64_t, loss->n_args + 1);
    bool differ = false, ignores = false;
    for (int i = 0; i < loss->n_args; i++) {
        if (loss->args[i]->type->dtype != TY_I32) continue;
        const Lookups x = lookups_of(f, loss->args[i]);
        bounds[i] = x.bound, ignored[i] = x.ignored;
        ignores |= x.ignored != 0;
        differ |= vocab && bounds[i] != vocab;
        if (!vocab || bounds[i] < vocab) vocab = bounds[i];
    }
    if (vocab) hd_set_int(f->cx, attrs, A_VOCAB, vocab);
    if (differ) hd_set_ints(f->cx, attrs, A_BOUNDS, loss->n_args, bounds);
    if (ignores) hd_set_ints(f->cx, attrs, A_IGNORED, loss->n_args, ignored);
}

// Attention that sees the tokens that a position is to predict: the loss falls, and nothing is learnt.
static void warn_of_answers(Front *f) {
    const Func *loss = f->func;
    const int tokens = hd_token_argument(loss);
    int next = -1;
    for (int i = 0; i < loss->n_args; i++)
        if (hd_input(f->module, loss, i).next == tokens && tokens >= 0) next = i;
    for (const Op *o = loss->first; next >= 0 && o; o = o->next) {
        if (o->kind != OP_ATTENTION || hd_has(&o->attrs, A_CAUSAL)) continue;
        hd_warning(f->cx, hd_front_site(f, o->span),
                   "attention without causal = true sees the tokens behind a position, and '%s' of loss are the tokens "
                   "one further on, unless a file of their own gives others: the loss would read its answers",
                   loss->args[next]->name);
        return;
    }
}

void hd_facts_emit(Front *f) {
    Attrs *attrs = &hd_config(f->module, "model")->attrs;
    hd_set_word(f->cx, attrs, A_MODEL, f->model->name);
    hd_set_word(f->cx, attrs, A_SOURCE, f->file);
    emit_bounds(f, attrs);
    const int tokens = hd_token_argument(f->func);
    if (tokens >= 0) hd_set_int(f->cx, attrs, A_SEQ, f->func->args[tokens]->type->dim[1]);
    hd_set_int(f->cx, attrs, A_MODEL_FLOPS, model_flops(f));
    warn_of_answers(f);
}
