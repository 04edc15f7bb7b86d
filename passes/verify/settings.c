// Settings: a step has the functions that its number of micro-batches needs, the optimizer's ops have the settings of
// config @train, and every buffer has a known class, on which reports and the bounds on gathered weights and gradients
// depend.
#include "passes/settings.h"
#include "passes/verify/verify_plan.h"

static const Func *function(const PlanCheck *c, const char *name) {
    const Func *f = hd_func_find(c->m, name);
    return f && !f->is_kernel ? f : NULL;
}

static void check_functions(PlanCheck *c, const Attrs *train) {
    static const struct { const char *name; int64_t least, most; } needed[] = { // for how many micro-batches
        {"micro_only", 1, 1}, {"micro_first", 2, INT64_MAX}, {"micro", 3, INT64_MAX}, {"micro_last", 2, INT64_MAX}};
    int64_t n = hd_int(train, A_MICRO, 1);
    bool any = false;
    for (int i = 0; i < 4; i++) any |= function(c, needed[i].name) != NULL;
    for (int i = 0; any && hd_has(train, A_MICRO) && i < 4; i++) {
        const Func *f = function(c, needed[i].name);
        bool need = n >= needed[i].least && n <= needed[i].most;
        if (need && !f)
            hd_plan_wrong(c, NULL, hd_symbol_find(c->m, "train")->span,
                          "a step of %lld micro-batches runs @%s, which the plan does not have", (long long)n,
                          needed[i].name);
        else if (f && !need)
            hd_plan_wrong(c, NULL, f->span,
                          "@%s does not belong to the step of %lld micro-batches that config @train declares", f->name,
                          (long long)n);
    }
}

static const char *text_of(PlanCheck *c, const Attr *at) {
    Attrs one = {0};
    Out o = hd_out(c->a);
    if (!at) return "nothing";
    hd_set_attr(c->m->cx, &one, at);
    hd_print_attrs(&one, &o);
    return o.text;
}

static void check_op(PlanCheck *c, const Attrs *train, const Op *o) {
    static const AttrId scalars[] = {A_CLIP, A_BETAS, A_LR, A_LR_PEAK, A_LR_FLOOR, A_LR_WARMUP, A_LR_TOTAL},
                        update[] = {A_BETAS, A_EPS, A_WEIGHT_DECAY};
    const AttrId *list = o->kind == OP_STEP_SCALARS ? scalars : update;
    int n = o->kind == OP_STEP_SCALARS ? 7 : o->kind == OP_ADAMW ? 3 : 0;
    for (int i = 0; i < n; i++) {
        const Attr *said = hd_attr(train, list[i]), *mine = hd_attr(&o->attrs, list[i]);
        const char *is = text_of(c, mine), *should = text_of(c, said);
        if (said && strcmp(is, should) != 0) hd_plan_wrong(c, o, o->span, "has %s, and config @train %s", is, should);
    }
}

static void check_class(PlanCheck *c, const Symbol *s) {
    static const struct { const char *class; bool kept, transient; } classes[] = {{"shards", true, false},
                                                                                  {"optimizer", true, false},
                                                                                  {"weights", true, true},
                                                                                  {"gradients", true, true},
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
        hd_plan_wrong(c, NULL, s->span, "buffer @%s has class %s, and it %s", s->name, class,
                      transient ? "is transient" : "persists");
}

void hd_check_settings(PlanCheck *c) {
    const Attrs *train = hd_settings(c->m, "train");
    check_functions(c, train);
    for (const Symbol *s = c->m->symbols; s; s = s->next)
        if (s->kind == SYM_BUFFER) check_class(c, s);
    for (const Func *f = c->m->funcs; f; f = f->next) {
        if (f->is_kernel) continue;
        hd_plan_enter(c, f);
        for (const Op *o = f->first; o; o = o->next) check_op(c, train, o);
    }
    c->f = NULL;
}
