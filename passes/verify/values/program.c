// A tensor module's terms become the symbol `program`; a plan's are compared with it.
//
//   param @head.weight : f32[512,128] {..., declared = H, contributed = H}
//   program @program {rules = 5, settings = H, losses = [H, H], logits = H, decode = H, update = H, parameters = H}
//   program @program.blocks.0 {products = [h, ..]}
//
// Compared are the loss that every micro-batch and validation keep, what @logits and @decode return, every contribution
// to every gradient in order, the declarations of the parameters, and what the train block says. The optimizer's ops
// have the settings of config @train and the buffers of their buckets (settings.c, update.c).
//
// Trusted are what makes the tensor module (the frontend, autodiff, precision, fp8), what runs the plan (code
// generation, the runtime, libraries), and the proof that buffers hold what their views say, which comes first (flow.c,
// dropout.c).
#include "passes/verify/values/program.h"
#include "passes/analysis/access.h"
#include "passes/analysis/places.h"
#include "ir/optimizer.h"
#include "passes/settings.h"
#include "passes/verify/values/said.h"

enum { RULES = 5 }; // goes up when a rule or the form of a hash changes: older texts cannot be compared then

Symbol *hd_program(const Module *m) {
    Symbol *s = m->symbols;
    while (s && (s->kind != SYM_PROGRAM || hd_has(&s->attrs, A_PRODUCTS))) s = s->next;
    return s;
}

static const char *hash_of(const Symbol *s, AttrId id) { return hd_word(&s->attrs, id, ""); }

// --- the tensor stage

// The loss of a micro-batch, or a further result, adds its share to that of the step. Counts are added as they are.
static const char *kept_number(const TermWalk *w, int number, int64_t micro) {
    const Op *ret = hd_return(w->f);
    const Term *x = w->terms[ret->in[number]->id];
    if (micro > 1 && number <= hd_n_results(&ret->attrs)) x = hd_said_product(w, x, 1.0 / (double)micro);
    return hd_term_hash_text(w->t.a, hd_term_stored(&w->t, x, TY_F32)->hash);
}

static bool gives_loss(const Func *f) {
    const Op *ret = f ? hd_return(f) : NULL;
    return ret && ret->n_in == hd_n_numbers(&ret->attrs);
}

static Func *of_kind(const Module *m, KindId k) {
    Func *f = m->funcs;
    while (f && (f->is_kernel || hd_kind(&f->attrs) != k)) f = f->next;
    return f;
}

static Symbol *named_program(Module *m, const char *name) {
    Symbol *s = hd_symbol_find(m, name);
    return s && s->kind == SYM_PROGRAM ? s : hd_symbol_add(m, SYM_PROGRAM, hd_free_name(m, name), NULL);
}

// The layer that a product is in: blocks.0 of blocks.0.attn; "": none.
static const char *layer_of(const TermWalk *w, const Layers *layers, int product) {
    const char *path = w->products.at[product].by->loc.path;
    return hd_layer_of(layers, path ? path : "");
}

static void declare_parameters(Module *m, const TermWalk *w) {
    for (Symbol *s = m->symbols; s; s = s->next) {
        if (s->kind != SYM_PARAM) continue;
        hd_set_word(m->cx, &s->attrs, A_CONTRIBUTED, hd_said_contributions(w, &w->gradients[w->number[s->id]], false));
    }
    for (Symbol *s = m->symbols; s; s = s->next)
        if (s->kind == SYM_PARAM) hd_set_word(m->cx, &s->attrs, A_DECLARED, hd_said_declaration(w, s));
}

// A line for the products of each layer.
static void declare_products(Module *m, const TermWalk *w, Arena *scratch) {
    const int n = w->products.n;
    const Layers layers = hd_layers(m, scratch);
    const char **layer = HD_NEWN(scratch, const char *, n + 1), **list = HD_NEWN(scratch, const char *, n + 1);
    for (int i = 0; i < n; i++) layer[i] = layer_of(w, &layers, i);
    for (int i = 0; i < n; i++) {
        const char *of = layer[i];
        int found = 0;
        for (int k = i; of && k < n; k++)
            if (layer[k] == of) layer[k] = NULL, list[found++] = hd_said_short(w, w->products.at[k].term);
        if (!of) continue;
        Symbol *s = named_program(m, *of ? hd_sprintf(scratch, "program.%s", of) : "program.root");
        hd_set_words(m->cx, &s->attrs, A_PRODUCTS, found, list);
    }
}

void hd_program_declare(Module *m, Arena *scratch) {
    Func *f[] = {of_kind(m, KIND_MICRO), of_kind(m, KIND_EVAL)}, *logits = of_kind(m, KIND_LOGITS),
         *decode = of_kind(m, KIND_DECODE);
    if (!gives_loss(f[0]) || (f[1] && !gives_loss(f[1]))) return; // fsdp says what is wrong with it
    TermWalk w = hd_term_walk(m, NULL, scratch);
    const Mesh mesh = hd_mesh(m);
    const Attrs *results = &hd_return(f[0])->attrs;
    const int n[] = {hd_n_numbers(results), f[1] ? hd_n_numbers(&hd_return(f[1])->attrs) : 0}; // of a step
    const char **losses = HD_NEWN(scratch, const char *, n[0] + n[1]);
    TermSet *made = hd_term_set(m->cx->arena);
    Attrs as = {0};
    w.t.ranks = hd_mesh_readers(&mesh);
    w.t.made = made;
    if (logits) {
        hd_renumber(logits);
        hd_term_func(&w, logits);
        hd_set_word(m->cx, &as, A_LOGITS, hd_said_logits(&w));
    }
    if (decode) {
        hd_renumber(decode);
        hd_term_func(&w, decode);
        hd_set_word(m->cx, &as, A_DECODE, hd_said_logits(&w));
    }
    VEC(const char *) calls = {0};
    for (Func *g = m->funcs; g; g = g->next) {
        if (hd_kind(&g->attrs) != KIND_CALL) continue;
        hd_renumber(g);
        hd_term_func(&w, g);
        hd_push(scratch, &calls, hd_said_call(&w));
    }
    if (calls.n) hd_set_words(m->cx, &as, A_FUNCTIONS, calls.n, calls.at);
    for (int i = 1; i >= 0; i--) { // the micro-batch last, for its gradients
        if (!f[i]) continue;
        hd_renumber(f[i]);
        hd_term_func(&w, f[i]);
        for (int k = 0; k < n[i]; k++)
            losses[i * n[0] + k] = kept_number(&w, k, i ? 1 : hd_int(hd_settings(m, "train"), A_MICRO, 1));
    }
    const Func *optimizer = hd_optimizer(m);
    hd_set_int(m->cx, &as, A_RULES, RULES);
    hd_set_word(m->cx, &as, A_SETTINGS, hd_said_settings(&w));
    hd_set_words(m->cx, &as, A_LOSSES, n[0] + n[1], losses);
    if (hd_n_results(results)) hd_set_attr(m->cx, &as, hd_attr(results, A_NAMES));
    if (hd_n_counts(results)) hd_set_attr(m->cx, &as, hd_attr(results, A_COUNTED));
    declare_parameters(m, &w);
    hd_set_word(m->cx, &as, A_PARAMETERS, hd_said_parameters(&w));
    if (optimizer && !hd_optimizer_wrong(optimizer)) hd_set_word(m->cx, &as, A_UPDATE, hd_said_update(&w, optimizer));
    Symbol *s = hd_program(m);
    if (!s) s = hd_symbol_add(m, SYM_PROGRAM, hd_free_name(m, "program"), NULL);
    s->attrs = as;
    declare_products(m, &w, scratch);
    m->cx->model_terms = made;
}

// --- a plan

typedef struct {
    PlanCheck *c;
    const Symbol *is;
    TermWalk w;
    const TermSet *known; // terms of the model; NULL: none are known
    bool all_known;       // those of the gradients are among them
    const Term *loss[2];  // that a micro-batch keeps, that @eval keeps; NULL: not compared
    int64_t ranks;
} Compare;

static const char *word_at(const Symbol *s, AttrId list, int i) {
    const Attr *a = hd_attr(&s->attrs, list);
    return a && i < a->n ? a->strs[i] : "";
}

static bool is_said_product(const Compare *x, const char *is) {
    for (const Symbol *s = x->c->m->symbols; s; s = s->next) {
        const Attr *said = s->kind == SYM_PROGRAM ? hd_attr(&s->attrs, A_PRODUCTS) : NULL;
        for (int k = 0; said && k < said->n; k++)
            if (!strcmp(said->strs[k], is)) return true;
    }
    return false;
}

// The first product or attention of the forward pass that the model has not; NULL: it has all of them, or says nothing.
static const Op *first_other_product(const Compare *x) {
    bool any = false;
    for (const Symbol *s = x->c->m->symbols; s; s = s->next)
        any |= s->kind == SYM_PROGRAM && hd_has(&s->attrs, A_PRODUCTS);
    for (int i = 0; any && i < x->w.products.n; i++)
        if (!is_said_product(x, hd_said_short(&x->w, x->w.products.at[i].term))) return x->w.products.at[i].by;
    return NULL;
}

// The first op with a result that the model has not, made of what it has; NULL: there is none. Numbers that depend on
// nothing are taken as the model's, unless there is no other op.
static const Op *first_other(const Compare *x, bool numbers) {
    for (const Op *o = x->w.f->first; o; o = o->next) {
        bool from_known = hd_op_is(o, TRAIT_PURE) && (hd_op_is(o, TRAIT_SOURCE) || !hd_is_alias(o)), other = false;
        if (!o->n_in && !hd_op_is(o, TRAIT_SOURCE) && !numbers) continue;
        for (int i = 0; i < o->n_in; i++) {
            const Op *def = o->in[i]->def;
            const bool number = def && !def->n_in && !hd_op_is(def, TRAIT_SOURCE) && !numbers;
            from_known &= number || hd_term_in(x->known, x->w.terms[o->in[i]->id]);
        }
        for (int i = 0; i < o->n_out; i++) other |= !hd_term_in(x->known, x->w.terms[o->out[i]->id]);
        if (from_known && other) return o;
    }
    return numbers ? NULL : first_other(x, true);
}

// `gradient`: what is wrong is one, else a loss or a declaration.
static void other_program(Compare *x, const Op *o, Span span, const char *what, bool gradient) {
    const Op *first = x->known && x->w.f && (x->all_known || !gradient) ? first_other(x, false) : NULL;
    const Op *product = first || !x->w.f || gradient ? NULL : first_other_product(x);
    const char *place = "";
    if (first && first != o) place = hd_sprintf(x->c->a, "; %s is the first that differs", hd_plan_op(x->c, first));
    else if (product)
        place = hd_sprintf(x->c->a, "; %s is the first product that differs", hd_plan_op(x->c, product));
    hd_plan_wrong(x->c, o, span, "%s: the plan computes another program%s (--allow-other-program accepts it)", what,
                  place);
}

// Compares what the module declares.
static void compare_declarations(Compare *x) {
    const TermWalk *w = &x->w;
    const int before = x->c->found.n;
    for (int i = 0; i < w->n_params; i++)
        if (strcmp(hd_said_declaration(w, w->params[i]), hash_of(w->params[i], A_DECLARED)) != 0)
            other_program(x, NULL, w->params[i]->span,
                          hd_sprintf(x->c->a, "parameter @%s has another name, type, index, initial value or decay",
                                     w->params[i]->name),
                          false);
    if (x->c->found.n == before && strcmp(hd_said_parameters(w), hash_of(x->is, A_PARAMETERS)) != 0)
        other_program(x, NULL, x->is->span,
                      hd_sprintf(x->c->a, "the parameters of @%s are others, or say another `contributed`",
                                 x->is->name), false);
    const Symbol *train = hd_symbol_find(x->c->m, "train");
    if (strcmp(hd_said_settings(w), hash_of(x->is, A_SETTINGS)) != 0)
        other_program(x, NULL, train ? train->span : x->is->span,
                      "config @train, or seq or vocab of config @model, is another one", false);
}

// The losses that a function keeps, or its further results of one name: its own and, in the last one of a step, the
// mean over ranks.
static bool compare_number(Compare *x, int number, const char *said) {
    const Gifts *kept = &x->w.kept;
    const bool counts = number > hd_n_results(&x->is->attrs);
    const int64_t each = counts ? hd_n_counts(&x->is->attrs) : 1;
    const char *what = counts ? "count" : number ? "result" : "loss", *sums = counts ? "sum" : "mean";
    int n = 0;
    for (int i = 0; i < kept->n; i++) {
        if (kept->at[i].number != number) continue;
        if (!n++) {
            if (!number) x->loss[hd_kind(&x->w.f->attrs) == KIND_EVAL] = kept->at[i].term;
            if (!strcmp(hd_term_hash_text(x->c->a, kept->at[i].term->hash), said)) continue;
            other_program(x, kept->at[i].by, kept->at[i].by->span,
                          hd_sprintf(x->c->a, "keeps another %s than the model's", what), false);
            return false;
        }
        const Terms *t = &x->w.t;
        const Type *one = hd_type(t->cx, TY_F32, counts, &each);
        const Term *losses = hd_term_losses(&x->w, number, x->ranks * each);
        if (counts) losses = hd_term_reshape(t, losses, hd_type(t->cx, TY_F32, 2, (int64_t[]){x->ranks, each}));
        const Type *kept_axes = hd_type(t->cx, TY_F32, 1 + counts, (int64_t[]){1, each});
        const Term *sum = hd_term_summed(t, OP_SUM, kept_axes, 1, losses);
        sum = hd_term_reshape(t, sum, one);
        if (!strcmp(hd_word(hd_settings(x->c->m, "train"), A_REDUCTION, ""), "tree"))
            sum = hd_term_plain(t, OP_TREE_SUM, 0, one, &(Attrs){0}, 1, &losses);
        if (!counts) sum = hd_said_product(&x->w, sum, 1.0 / (double)x->ranks);
        const Term *mean = hd_term_stored(t, sum, TY_F32);
        if (n == 2 && hd_term_same(mean->hash, kept->at[i].term->hash)) continue;
        other_program(x, kept->at[i].by, kept->at[i].by->span,
                      hd_sprintf(x->c->a, "keeps something else than the %s %s of all ranks", sums, what), false);
        return false;
    }
    if (!n) other_program(x, NULL, x->c->f->span, hd_sprintf(x->c->a, "it keeps no %s", what), false);
    return n > 0;
}

// b NULL: there is no such list.
static bool same_words(const Attrs *a, const Attrs *b, AttrId list) {
    const Attr *x = hd_attr(a, list), *y = b ? hd_attr(b, list) : NULL;
    bool same = !x == !y && (!x || x->n == y->n);
    for (int i = 0; same && x && i < x->n; i++) same = !strcmp(x->strs[i], y->strs[i]);
    return same;
}

static bool compare_losses(Compare *x, bool eval) {
    const Symbol *step = eval ? x->c->eval : x->c->train;
    const int all = hd_n_numbers(&x->is->attrs), n = eval ? 1 + hd_n_results(&x->is->attrs) : all;
    if (step && (!hd_same_results(&step->attrs, &x->is->attrs) ||
                 !same_words(&step->attrs, eval ? NULL : &x->is->attrs, A_COUNTED))) {
        other_program(x, NULL, step->span, hd_sprintf(x->c->a, "step @%s has results of other names than the model",
                                                      step->name), false);
        return false;
    }
    bool same = true;
    for (int k = 0; same && k < n; k++) same = compare_number(x, k, word_at(x->is, A_LOSSES, eval * all + k));
    return same;
}

// The first two contributions to a gradient may change places where nothing was there before them.
static bool same_gradient(const Compare *x, int param) {
    const Gifts *g = &x->w.gradients[param];
    const char *said = hash_of(x->w.params[param], A_CONTRIBUTED);
    return !strcmp(hd_said_contributions(&x->w, g, false), said) ||
           (g->n > 1 && !hd_has(&g->at[0].by->attrs, A_ACCUMULATE) &&
            !strcmp(hd_said_contributions(&x->w, g, true), said));
}

static const Op *last_of(const Gifts *g) { return g->n ? g->at[g->n - 1].by : NULL; }

// Reports the gradient that is completed first: those of earlier layers follow from those of later ones.
static void compare_gradients(Compare *x) {
    const TermWalk *w = &x->w;
    int bad = -1, n = 0;
    for (int i = 0; i < w->n_params; i++) {
        if (same_gradient(x, i)) continue;
        const Op *last = last_of(&w->gradients[i]), *first = bad < 0 ? NULL : last_of(&w->gradients[bad]);
        if (!n++ || (last && first && last->id < first->id)) bad = i;
    }
    if (bad < 0) return;
    const Op *by = last_of(&w->gradients[bad]);
    const char *others = n > 1 ? hd_sprintf(x->c->a, " (nor are those of %d others)", n - 1) : "";
    other_program(x, by, by ? by->span : x->c->f->span,
                  hd_sprintf(x->c->a, "%sthe gradient of @%s, of %d contribution%s, is not the model's%s",
                             by ? "is the last to contribute to a gradient: " : "", w->params[bad]->name,
                             w->gradients[bad].n, w->gradients[bad].n == 1 ? "" : "s", others),
                  true);
}

// Facts about products are of a batch: they find no place in a function of one sequence.
static void compare_logits(Compare *x, AttrId of) {
    const Op *ret = hd_return(x->w.f);
    if (strcmp(hd_said_logits(&x->w), hash_of(x->is, of)) || ret->in[0]->type->dtype != TY_F32)
        other_program(x, ret, ret->span, "returns other logits than the model's", true);
}

static void compare_call(Compare *x) {
    const Op *ret = hd_return(x->w.f);
    const Attr *said = hd_attr(&x->is->attrs, A_FUNCTIONS);
    const char *is = hd_said_call(&x->w);
    bool same = false;
    for (int i = 0; said && i < said->n; i++) same |= !strcmp(said->strs[i], is);
    if (!same || ret->in[0]->type->dtype != TY_F32)
        other_program(x, ret, ret->span, "returns other values than the model's function", true);
}

// The optimizer's function, and those of logits, keep no loss and give no gradient.
static void compare_update(Compare *x) {
    const Gifts *kept = &x->w.kept;
    for (int i = 0; i < x->w.n_params; i++)
        if (x->w.gradients[i].n) kept = &x->w.gradients[i];
    const Op *by = kept->n ? kept->at[0].by : NULL;
    if (by) other_program(x, by, by->span, "adds to a loss or a gradient of the step", true);
}

static void compare_scalars(Compare *x, const Func *f) {
    for (const Op *o = f->first; o; o = o->next) {
        if (o->kind != OP_UPDATE) continue;
        const Op *def = o->in[0]->def;
        while (def && hd_op_is(def, TRAIT_ALIAS)) def = def->in[0]->def;
        if (!def || def->kind != OP_STEP_SCALARS)
            other_program(x, o, o->span, "takes numbers of the step that step_scalars has not made", true);
    }
}

// Whether an update is by what the declarations of its params say.
static bool is_declared(const PlanCheck *c, const Op *o) {
    const BucketParts *k = hd_plan_bucket(c, hd_named(o, A_MASTER_WEIGHTS));
    return hd_is_rule(hd_update_kernel(o)) || (k && hd_has(&k->symbol->attrs, A_UPDATED_BY));
}

// Every update does what the model's optimizer does, or what the declarations of its params say (update.c).
static void compare_updates(Compare *x) {
    for (const Func *f = x->c->m->funcs; f; f = f->next) {
        if (f->is_kernel) continue;
        hd_plan_enter(x->c, f);
        for (const Op *o = f->first; o; o = o->next)
            if (o->kind == OP_UPDATE && !is_declared(x->c, o) &&
                strcmp(hd_said_update(&x->w, hd_update_kernel(o)), hash_of(x->is, A_UPDATE)) != 0)
                hd_plan_wrong(x->c, o, o->span,
                              "kernel @%s is another optimizer than the model's: the plan computes another program "
                              "(--allow-other-program accepts it)", hd_update_kernel(o)->name);
    }
}

static bool is_compared(const Func *f) {
    const KindId k = f->is_kernel ? KIND_NONE : hd_kind(&f->attrs);
    return k == KIND_MICRO || k == KIND_EVAL || k == KIND_UPDATE || k == KIND_LOGITS || k == KIND_DECODE ||
           k == KIND_CALL;
}

// Compares one function; returns whether it computes what it should.
static bool compare_func(Compare *x, const Func *f) {
    const int before = x->c->found.n;
    hd_plan_enter(x->c, f);
    hd_term_func(&x->w, f);
    const KindId k = hd_kind(&f->attrs);
    compare_scalars(x, f);
    if (k == KIND_LOGITS) compare_logits(x, A_LOGITS);
    if (k == KIND_DECODE) compare_logits(x, A_DECODE);
    if (k == KIND_CALL) compare_call(x);
    if (k == KIND_UPDATE || k == KIND_LOGITS || k == KIND_DECODE || k == KIND_CALL) compare_update(x);
    else if (compare_losses(x, k == KIND_EVAL) && k == KIND_MICRO) compare_gradients(x);
    return x->c->found.n == before;
}

// The first op that differs is found by the terms of the functions that are right, where this process has not made
// those of the model itself. So functions that are wrong are compared once more.
static void compare_again(Compare *x, const bool *right) {
    TermSet *made = NULL;
    bool gradients = false;
    int i = 0;
    for (const Func *f = x->c->m->funcs; f; f = f->next, i++) {
        if (!is_compared(f) || !right[i] || hd_kind(&f->attrs) == KIND_UPDATE) continue;
        x->w.t.made = made = made ? made : hd_term_set(x->c->a);
        gradients |= hd_kind(&f->attrs) == KIND_MICRO;
        hd_term_func(&x->w, f);
    }
    x->w.t.made = NULL;
    if (made && !x->known) x->known = made, x->all_known = gradients;
    x->c->found.n = 0;
    i = 0;
    for (const Func *f = x->c->m->funcs; f; f = f->next, i++)
        if (is_compared(f) && !right[i]) compare_func(x, f);
}

// A text that somebody has written has no `program`. A plan that heddlec made has one, and its seal says whether it was
// edited: who edits a plan must not get past the comparison by leaving out what it is compared with.
static bool is_edited(const Module *m) {
    return !strncmp(hd_word(hd_settings(m, "model"), A_FINGERPRINT, ""), "edited", 6);
}

// The loss of one micro-batch is its share of what @eval keeps, term by term.
static bool is_share(const Compare *x) {
    const int64_t n = hd_int(hd_settings(x->c->m, "train"), A_MICRO, 1);
    const Term *whole = x->loss[1];
    if (!x->loss[0] || !whole) return false;
    if (n > 1) whole = hd_term_stored(&x->w.t, hd_said_product(&x->w, whole, 1.0 / (double)n), TY_F32);
    return hd_term_same(x->loss[0]->hash, whole->hash);
}

bool hd_check_program(PlanCheck *c) {
    Compare x = {.c = c, .is = hd_program(c->m), .ranks = c->ranks};
    x.known = c->m->cx->model_terms;
    x.all_known = x.known != NULL;
    const bool allowed = c->m->cx->allow_other_program;
    const char *why = !c->train ? NULL : !x.is ? "the text has no `program`" :
                      hd_int(&x.is->attrs, A_RULES, 0) != RULES ? "`program` is of another version of heddlec" :
                      allowed ? "--allow-other-program leaves it open" : NULL;
    if (why && !allowed && is_edited(c->m))
        hd_plan_wrong(c, NULL, hd_symbol_find(c->m, "model")->span,
                      "the plan was edited, and nothing shows that it still computes the model: %s; put back the lines "
                      "`program` of this plan, or compile the model again (--allow-other-program accepts it)", why);
    else if (why)
        hd_plan_unproved(c, NULL, hd_sprintf(c->a, "that the plan computes the model: %s", why));
    if (why || !x.is) return false;
    x.w = hd_term_walk(c->m, c, c->a);
    compare_declarations(&x);
    if (c->found.n) return false;
    int n = 0, wrong = 0;
    for (const Func *f = c->m->funcs; f; f = f->next) n++;
    bool *right = HD_NEWN(c->a, bool, n + 1);
    n = 0;
    for (const Func *f = c->m->funcs; f; f = f->next, n++)
        if (is_compared(f)) wrong += !(right[n] = compare_func(&x, f));
    if (wrong) compare_again(&x, right);
    else compare_updates(&x);
    c->f = NULL;
    c->shared = !c->found.n && is_share(&x);
    return !c->found.n;
}
