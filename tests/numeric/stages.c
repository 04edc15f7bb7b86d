// A step of training means the same after every pass: the evaluator runs the functions of each stage on the same
// parameters and batch, and losses, gradients and updated parameters are compared with what autodiff says at stage
// tensor. In exact arithmetic only the order of sums differs between stages, so the bound is 1e-11 of the largest
// element.
#include "tests/numeric/examples.h"

static const char head[] = "simplify,cse,autodiff,precision,simplify,cse,dce";
static const char *const tail[] = {"loss-chunks", "choose-recompute,recompute", "fsdp", "fuse", "select",
                                   "schedule",    "sync",                       "plan-memory", "verify-plan"};

typedef struct { Loaded tensor; const char *setting; int micro; double loss, norm; } Reference;

static void run_func(Test *t, Loaded *l, const char *name) {
    Tensor out[HD_MAX_OUT];
    const Func *f = hd_func_find(l->m, name);
    const char *wrong = f ? hd_eval(l->e, f, l->in, out) : "is missing";
    if (wrong) fail(t, "@%s: %s", name, wrong);
}

static Reference reference(Test *t, const Model *model, const char *setting) {
    Reference r = {.setting = setting, .tensor = load(t, model, setting, "simplify,autodiff")};
    Loaded *l = &r.tensor;
    if (!l->m) return r;
    fill_parameters(l, EVAL_EXACT);
    r.micro = (int)hd_int(&hd_config(l->m, "train")->attrs, A_MICRO, 1);
    for (int i = 0; i < r.micro; i++) r.loss = loss_at(t, l->e, hd_func_find(l->m, "micro"), l->in);
    for (const Symbol *s = l->m->symbols; s; s = s->next) {
        if (s->kind != SYM_PARAM) continue;
        Tensor g = hd_eval_gradient(l->e, s->name);
        for (int64_t i = 0; i < hd_type_count(g.type); i++) r.norm += g.data[i] * g.data[i];
    }
    r.norm = sqrt(r.norm);
    return r;
}

// A parameter's elements in one of its bucket's buffers; NULL where the bucket has no such buffer.
static double *in_bucket(Test *t, Loaded *l, const Symbol *s, const char *role) {
    const char *name = hd_sprintf(l->arena, "%s.%s", hd_word(&s->attrs, A_BUCKET, "?"), role);
    if (!hd_symbol_find(l->m, name)) {
        if (strcmp(role, "compute") != 0) fail(t, "@%s is missing", name);
        return NULL;
    }
    Tensor b = hd_eval_storage(l->e, name);
    int64_t at = hd_int(&s->attrs, A_OFFSET, -1);
    if (at < 0 || at + hd_type_count(s->type) > hd_type_count(b.type)) {
        fail(t, "@%s does not lie in @%s", s->name, name);
        return NULL;
    }
    return b.data + at;
}

static void near(Test *t, const char *what, int64_t n, const double *got, const double *want) {
    double largest = 1e-3;
    for (int64_t i = 0; i < n; i++) largest = fmax(largest, fabs(want[i]));
    for (int64_t i = 0; got && i < n; i++) {
        t->compared++;
        if (fabs(got[i] - want[i]) <= 1e-11 * largest) continue;
        fail(t, "%s[%lld] is %.15g, not %.15g", what, (long long)i, got[i], want[i]);
        return;
    }
}

// One AdamW step from zero moments: the direction is g/c / (|g|/c' + eps) with the bias corrections in place, so near
// sign(g).
static void check_update(Test *t, const Reference *r, Loaded *l) {
    const Attrs *train = &hd_config(l->m, "train")->attrs;
    double clip = hd_float(train, A_CLIP, 0), factor = clip > 0 && r->norm > clip ? clip / r->norm : 1;
    double rate = hd_float(train, A_LR_PEAK, 0) / (double)hd_int(train, A_LR_WARMUP, 1),
           eps = hd_float(train, A_EPS, 1e-8);
    if (r->micro > 1) run_func(t, l, "update"); // else the only micro-batch ends with it
    near(t, "@state.norm", 1, hd_eval_storage(l->e, "state.norm").data, &r->norm);
    for (const Symbol *s = l->m->symbols; s; s = s->next) {
        if (s->kind != SYM_PARAM) continue;
        int64_t n = hd_type_count(s->type);
        double *want = HD_NEWN(l->arena, double, n),
               decay = hd_has(&s->attrs, A_DECAY) ? hd_float(train, A_WEIGHT_DECAY, 0) : 0;
        const double *gradient = hd_eval_gradient(r->tensor.e, s->name).data;
        for (int64_t i = 0; i < n; i++) {
            double p = parameter(s, i), g = factor * gradient[i];
            want[i] = p - rate * (g / (fabs(g) + eps) + decay * p);
        }
        const char *what = hd_sprintf(l->arena, "@%s after the update", s->name);
        near(t, what, n, in_bucket(t, l, s, "master"), want);
        near(t, what, n, in_bucket(t, l, s, "compute"), want);
    }
}

static void check_stage(Test *t, const Model *model, const Reference *r, const char *pipeline) {
    Loaded l = load(t, model, r->setting, pipeline);
    if (l.m) {
        l.e = hd_eval_new(l.m, EVAL_EXACT, l.arena);
        for (const Symbol *s = l.m->symbols; s; s = s->next) {
            double *master = s->kind == SYM_PARAM ? in_bucket(t, &l, s, "master") : NULL;
            double *compute = s->kind == SYM_PARAM ? in_bucket(t, &l, s, "compute") : NULL;
            for (int64_t i = 0; master && i < hd_type_count(s->type); i++) {
                master[i] = parameter(s, i);
                if (compute) compute[i] = master[i];
            }
        }
        fill_batch(&l, hd_func_find(l.m, "eval"));
        run_func(t, &l, "eval");
        near(t, "@state.loss of @eval", 1, hd_eval_storage(l.e, "state.loss").data, &r->loss);
        for (int i = 0; i < r->micro; i++)
            run_func(t, &l,
                     r->micro == 1      ? "micro_only"
                     : i == 0           ? "micro_first"
                     : i < r->micro - 1 ? "micro"
                                        : "micro_last");
        near(t, "@state.loss", 1, hd_eval_storage(l.e, "state.loss").data, &r->loss);
        for (const Symbol *s = l.m->symbols; s; s = s->next)
            if (s->kind == SYM_PARAM)
                near(t, hd_sprintf(l.arena, "the gradient of @%s", s->name), hd_type_count(s->type),
                     in_bucket(t, &l, s, "grad"), hd_eval_gradient(r->tensor.e, s->name).data);
        check_update(t, r, &l);
    }
    unload(&l);
}

int main(void) {
    static const char *const settings[] = {"train.precision.compute=f32", "train.precision.compute=bf16",
                                           "train.accumulate=3", "train.loss_chunks=2"};
    Test t = {0};
    for (int i = 0; i < N_MODELS; i++)
        for (size_t k = 0; k < sizeof settings / sizeof *settings; k++) {
            t.name = models[i].name;
            Reference r = reference(&t, &models[i], settings[k]);
            char pipeline[400];
            strcpy(pipeline, head);
            for (size_t p = 0; r.tensor.m && p < sizeof tail / sizeof *tail; p++) {
                strcat(strcat(pipeline, ","), tail[p]);
                char name[500];
                snprintf(name, sizeof name, "%s, %s, after %s", models[i].name, settings[k], tail[p]);
                t.name = name;
                const bool tensor = p < 2; // still at that stage
                if (!tensor) check_stage(&t, &models[i], &r, pipeline);
            }
            unload(&r.tensor);
        }
    printf("%d elements compared, %d failures\n", t.compared, t.failures);
    return t.failures != 0;
}
