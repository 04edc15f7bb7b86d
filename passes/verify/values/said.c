// See said.h.
#include "passes/verify/values/said.h"
#include "passes/settings.h"

static const char *text_of(const TermWalk *w, Recipe *r) { return hd_term_hash_text(w->t.a, hd_recipe_hash(r)); }

// Half of the hash of a product: enough to find a place by.
const char *hd_said_short(const TermWalk *w, const Term *x) {
    return hd_term_hash_text(w->t.a, x->hash) + 16;
}

// Of the weights and states that the optimizer's kernel gives; its arguments count by name and place.
const char *hd_said_update(const TermWalk *walk, const Func *k) {
    const Op *ret = hd_return(k);
    TermWalk of = *walk, *w = &of;
    Recipe r;
    r.n = 0;
    hd_term_func(w, k);
    hd_recipe_int(&r, k->n_args);
    for (int i = 0; i < ret->n_in; i++) {
        const Term *x = w->terms[ret->in[i]->id];
        hd_recipe_put(&r, &x->hash, sizeof x->hash);
    }
    return text_of(w, &r);
}

// A buffer's has what its kernel computes, and so has a parameter's whose group has an optimizer.
const char *hd_said_declaration(const TermWalk *w, const Symbol *p) {
    static const AttrId said[] = {A_INIT, A_STD, A_DECAY, A_FROZEN, A_LR_SCALE, A_WEIGHT_DECAY, A_LOGGED, A_INDEX};
    Recipe r;
    r.n = 0;
    hd_recipe_text(&r, p->name);
    hd_recipe_type(&r, hd_term_whole_type(w, p));
    for (size_t i = 0; i < sizeof said / sizeof *said; i++)
        if (hd_has(&p->attrs, said[i])) hd_recipe_attr(&r, hd_attr(&p->attrs, said[i]));
    const AttrId by = hd_has(&p->attrs, A_KERNEL) ? A_KERNEL : A_UPDATED_BY;
    const Func *rule = hd_has(&p->attrs, by) ? hd_func_find(w->m, hd_word(&p->attrs, by, "")) : NULL;
    if (rule) hd_recipe_text(&r, hd_said_update(w, rule));
    return text_of(w, &r);
}

const char *hd_said_settings(const TermWalk *w) {
    static const AttrId of_model[] = {A_SEQ, A_VOCAB, A_BOUNDS, A_IGNORED};
    const Attrs *train = hd_settings(w->m, "train"), *model = hd_settings(w->m, "model");
    Recipe r;
    r.n = 0;
    for (int i = 0; i < train->n; i++) hd_recipe_attr(&r, &train->at[i]);
    for (int i = 0; i < (int)(sizeof of_model / sizeof *of_model); i++)
        if (hd_has(model, of_model[i])) hd_recipe_attr(&r, hd_attr(model, of_model[i]));
    return text_of(w, &r);
}

// Of what the parameters say: no hash of theirs is missing, and none is one of another model.
const char *hd_said_parameters(const TermWalk *w) {
    Recipe r;
    r.n = 0;
    hd_recipe_int(&r, w->n_params);
    for (int i = 0; i < w->n_params; i++) {
        hd_recipe_text(&r, hd_word(&w->params[i]->attrs, A_DECLARED, ""));
        hd_recipe_text(&r, hd_word(&w->params[i]->attrs, A_CONTRIBUTED, ""));
    }
    return text_of(w, &r);
}

// `swapped`: the second contribution before the first.
const char *hd_said_contributions(const TermWalk *w, const Gifts *g, bool swapped) {
    Recipe r;
    r.n = 0;
    hd_recipe_int(&r, g->n);
    for (int i = 0; i < g->n; i++) {
        const Term *x = g->at[swapped && i < 2 ? 1 - i : i].term;
        hd_recipe_put(&r, &x->hash, sizeof x->hash);
    }
    return text_of(w, &r);
}

const Term *hd_said_product(const TermWalk *w, const Term *x, double factor) {
    const Terms *t = &w->t;
    Attrs as = {0};
    hd_set_float(t->cx, &as, A_VALUE, factor);
    const Type *scalar = hd_type(t->cx, x->type->dtype, 0, NULL);
    return hd_term_commuting(t, OP_MUL, x->type, x, hd_term_plain(t, OP_CONST, 0, scalar, &as, 0, NULL));
}

const char *hd_said_logits(const TermWalk *w) {
    const Op *ret = hd_return(w->f);
    return ret->n_in == 1 ? hd_term_hash_text(w->t.a, hd_term_stored(&w->t, w->terms[ret->in[0]->id], TY_F32)->hash)
                          : "";
}

// Of a function that a program runs by name: its name, the bounds of its arguments, what it returns.
const char *hd_said_call(const TermWalk *w) {
    static const AttrId said[] = {A_BOUNDS, A_IGNORED};
    const Op *ret = hd_return(w->f);
    Recipe r;
    r.n = 0;
    hd_recipe_text(&r, w->f->name);
    for (size_t i = 0; i < sizeof said / sizeof *said; i++)
        if (hd_has(&w->f->attrs, said[i])) hd_recipe_attr(&r, hd_attr(&w->f->attrs, said[i]));
    if (ret->n_in != 1) return "";
    const Term *x = hd_term_stored(&w->t, w->terms[ret->in[0]->id], TY_F32);
    hd_recipe_put(&r, &x->hash, sizeof x->hash);
    return text_of(w, &r);
}
