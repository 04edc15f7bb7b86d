// Settings: steps run the functions made for them, and as many micro-batches as config @train says, the optimizer's ops
// have the settings of config @train, and every buffer has a known class, on which reports and the bounds on gathered
// weights and gradients depend.
#include "passes/settings.h"
#include "passes/verify/verify_plan.h"

// The functions that a step of each kind runs.
static KindId step_of(KindId of) {
    if (of == KIND_EVAL || of == KIND_LOGITS || of == KIND_DECODE || of == KIND_CALL) return of;
    return of == KIND_MICRO || of == KIND_UPDATE ? KIND_TRAIN : KIND_NONE;
}

// Every function with a place in a step is run by one, and micro-batches by a training step, as many as they should be.
static void check_steps(PlanCheck *c, const Attrs *train) {
    const Symbol *steps[] = {c->train, c->eval, c->logits, c->decode, c->call};
    int64_t micro = 0, alone[5] = {0}, times;
    for (int k = 0; k < 5; k++) {
        const Func *f;
        for (int i = 0; (f = hd_segment(c->m, steps[k], i, &times)); i++) {
            KindId kind = hd_kind(&f->attrs);
            micro += kind == KIND_MICRO ? times : 0;
            alone[k] += step_of(kind) == hd_kind(&steps[k]->attrs) ? times : 0;
            if (step_of(kind) != hd_kind(&steps[k]->attrs))
                hd_plan_wrong(c, NULL, steps[k]->span, "step @%s runs @%s, which is of kind %s", steps[k]->name,
                              f->name, hd_word(&f->attrs, A_KIND, "none"));
        }
    }
    for (const Func *f = c->m->funcs; f; f = f->next)
        if (!f->is_kernel && hd_has(&f->attrs, A_KIND) && !hd_runs(c->train, f) && !hd_runs(c->eval, f) &&
            !hd_runs(c->logits, f) && !hd_runs(c->decode, f) && !hd_runs(c->call, f))
            hd_plan_wrong(c, NULL, f->span, "@%s is of kind %s, and no step runs it", f->name,
                          hd_word(&f->attrs, A_KIND, ""));
    if (c->eval && alone[1] != 1)
        hd_plan_wrong(c, NULL, c->eval->span, "step @%s computes the loss of %lld batches; validation takes one",
                      c->eval->name, (long long)alone[1]);
    if (c->logits && alone[2] != 1)
        hd_plan_wrong(c, NULL, c->logits->span, "step @%s computes logits %lld times; it does so once", c->logits->name,
                      (long long)alone[2]);
    if (c->decode && alone[3] != 1)
        hd_plan_wrong(c, NULL, c->decode->span, "step @%s computes a token %lld times; it does so once",
                      c->decode->name, (long long)alone[3]);
    if (micro && hd_int(train, A_MICRO, micro) != micro)
        hd_plan_wrong(c, NULL, c->train->span, "step @%s runs %lld micro-batches, and config @train says %lld",
                      c->train->name, (long long)micro, (long long)hd_int(train, A_MICRO, 1));
}

// The history is where the declaration says: both have one, or neither.
static void check_history(PlanCheck *c, const Op *o) {
    const char *is = hd_word(&o->attrs, A_HISTORY, "nothing"), *said = hd_word(&c->train->attrs, A_HISTORY, "nothing");
    if (strcmp(is, said) != 0)
        hd_plan_wrong(c, o, o->span, "keeps the history in %s, and step @%s says %s", is, c->train->name, said);
}

// Steps are counted where the declaration says.
static void check_counter(PlanCheck *c, const Op *o) {
    const char *counter = hd_word(&c->train->attrs, A_COUNTER, NULL), *counts = hd_word(&o->attrs, A_COUNTER, "");
    if (counter && strcmp(counts, counter) != 0)
        hd_plan_wrong(c, o, o->span, "counts steps in @%s, and step @%s says @%s", counts, c->train->name, counter);
}

static const char *text_of(PlanCheck *c, const Attr *at) {
    Attrs one = {0};
    Out o = hd_out(c->a);
    if (!at) return "nothing";
    hd_set_attr(c->m->cx, &one, at);
    hd_print_attrs(&one, &o);
    return o.text;
}

static bool of_group(PlanCheck *c, const Op *o) {
    const BucketParts *k = hd_plan_bucket(c, hd_named(o, A_MASTER_WEIGHTS));
    return k && hd_has(&k->symbol->attrs, A_WEIGHT_DECAY);
}

static void check_skips(PlanCheck *c, const Attrs *train, const Op *o) {
    static const AttrId limits[] = {A_SKIP_LOSS_Z, A_SKIP_NORM_Z};
    for (int i = 0; i < 2; i++)
        if (hd_float(&o->attrs, limits[i], 0) != hd_float(train, limits[i], 0))
            hd_plan_wrong(c, o, o->span, "has %s = %g, and config @train says %g", hd_attr_info(limits[i])->text,
                          hd_float(&o->attrs, limits[i], 0), hd_float(train, limits[i], 0));
    if (hd_has(&o->attrs, A_ON_NAN) != hd_has(train, A_ON_NAN))
        hd_plan_wrong(c, o, o->span, "%s a step whose gradient norm is not finite, and config @train says %s",
                      hd_has(&o->attrs, A_ON_NAN) ? "skips" : "does not skip",
                      hd_has(train, A_ON_NAN) ? "on_nan = skip" : "no on_nan");
}

static void check_op(PlanCheck *c, const Attrs *train, const Op *o) {
    static const AttrId scalars[] = {A_CLIP,     A_BETAS,    A_LR,       A_LR_PEAK,  A_LR_FLOOR, A_LR_WARMUP,
                                     A_LR_TOTAL, A_LR_DECAY, A_LR_SHAPE, A_LR_STEPS, A_LR_RATES},
                        update[] = {A_WEIGHT_DECAY};
    const bool counts = o->kind == OP_STEP_SCALARS;
    const AttrId *list = counts ? scalars : update;
    const int n = counts ? (int)(sizeof scalars / sizeof *scalars) : o->kind == OP_UPDATE;
    for (int i = 0; i < n; i++) {
        const Attr *said = hd_attr(train, list[i]), *mine = hd_attr(&o->attrs, list[i]);
        const char *is = text_of(c, mine), *should = text_of(c, said);
        if (list[i] == A_WEIGHT_DECAY && of_group(c, o)) continue; // update.c compares it with the bucket
        if (said && strcmp(is, should) != 0) hd_plan_wrong(c, o, o->span, "has %s, and config @train %s", is, should);
    }
}

// Readers of gradients divide by the scale of the loss: by what config @train says, once.
static void check_loss_scale(PlanCheck *c, const Attrs *train, const Op *o) {
    const long long should = hd_int(train, A_LOSS_SCALE, 1), is = hd_int(&o->attrs, A_LOSS_SCALE, 1);
    if (is != should && hd_attr_allowed(hd_op_info(o->kind)->attrs, A_LOSS_SCALE))
        hd_plan_wrong(c, o, o->span,
                      "divides by the loss scale %lld, and by config @train gradients have the loss scale %lld", is,
                      should);
}

static void check_class(PlanCheck *c, const Symbol *s) {
    static const struct { const char *class; bool kept, transient; } classes[] = {{"shards", true, false},
                                                                                  {"optimizer", true, false},
                                                                                  {"weights", true, true},
                                                                                  {"gradients", true, true},
                                                                                  {"kv_cache", true, false},
                                                                                  {"staging", false, true}};
    enum { CLASSES = sizeof classes / sizeof *classes };
    const char *class = hd_word(&s->attrs, A_CLASS, NULL);
    bool transient = hd_has(&s->attrs, A_TRANSIENT);
    int i = 0;
    while (class && i < CLASSES && strcmp(class, classes[i].class) != 0) i++;
    if (!class) return;
    if (i == CLASSES)
        hd_plan_wrong(c, NULL, s->span, "buffer @%s has class %s, and no class has that name", s->name, class);
    else if (transient ? !classes[i].transient : !classes[i].kept)
        hd_plan_wrong(c, NULL, s->span, "buffer @%s %s; class %s is for buffers that %s", s->name,
                      transient ? "is transient" : "persists", class, transient ? "persist" : "are transient");
}

void hd_check_settings(PlanCheck *c) {
    const Attrs *train = hd_settings(c->m, "train");
    check_steps(c, train);
    for (const Symbol *s = c->m->symbols; s; s = s->next)
        if (s->kind == SYM_BUFFER) check_class(c, s);
    for (const Func *f = c->m->funcs; f; f = f->next) {
        if (f->is_kernel) continue;
        hd_plan_enter(c, f);
        for (const Op *o = f->first; o; o = o->next) {
            check_op(c, train, o);
            if (!c->train) continue;
            check_loss_scale(c, train, o);
            if (o->kind != OP_STEP_SCALARS) continue;
            check_skips(c, train, o);
            check_counter(c, o);
            check_history(c, o);
        }
    }
    c->f = NULL;
}
