// Random functions mean the same before and after passes: the evaluator runs both. In f64 only the order of sums may
// differ; in f32 constants are folded with f32 roundings. Their gradients are compared with finite differences. An op
// that no function used fails the test.
#include "passes/manager/manager.h"
#include "tests/numeric/finite.h"
#include "tests/numeric/random_graph.h"
#include <stdlib.h>

static const char *const pipelines[] = {"simplify,cse,dce", "fuse,select",
                                        "simplify,cse,dce,fuse,select,schedule,sync,plan-memory,verify-plan"};

static Tensor *results(Test *t, const Graph *g, const Func *f) {
    Eval *e = hd_eval_new(g->m, EVAL_EXACT, g->arena);
    Tensor *in = HD_NEWN(g->arena, Tensor, f->n_args + 1), *out = HD_NEWN(g->arena, Tensor, hd_return(f)->n_in + 1);
    uint64_t state = 5;
    for (int i = 0; i < f->n_args; i++) {
        in[i] = hd_tensor(g->arena, f->args[i]->type);
        for (int64_t k = 0, n = hd_type_count(in[i].type); k < n; k++)
            in[i].data[k] = in[i].type->dtype == TY_I32 ? floor(uniform(&state, 0, 2)) : uniform(&state, -1, 1);
    }
    const char *wrong = hd_eval(e, f, in, out);
    if (wrong) fail(t, "%s", wrong);
    return wrong ? NULL : out;
}

static void compare_results(Test *t, const Tensor *got, const Tensor *want, int n, double bound) {
    for (int r = 0; r < n; r++)
        for (int64_t i = 0; i < hd_type_count(want[r].type); i++) {
            t->compared++;
            if (fabs(got[r].data[i] - want[r].data[i]) <= bound * fmax(1, fabs(want[r].data[i]))) continue;
            fail(t, "result %d[%lld] is %.15g, not %.15g", r, (long long)i, got[r].data[i], want[r].data[i]);
            return;
        }
}

// false after printing what was wrong
static bool run_seed(Test *t, uint64_t seed, const char *pipeline) {
    Ctx *cx = hd_ctx_new();
    Arena *a = hd_arena_new();
    DType dtype = seed % 2 ? TY_F64 : TY_F32;
    Graph g = random_graph(cx, a, "f", seed, dtype, false, 25, 8);
    for (const Op *o = g.f->first; o; o = o->next) t->covered[o->kind] = true;
    Out before = hd_out(a), after = hd_out(a);
    hd_print_module(g.m, &before);
    int failures = t->failures, n = hd_return(g.f)->n_in;
    const Tensor *want = results(t, &g, g.f);
    Pipeline p;
    ManagerOptions options = {.verify_each = true};
    if (!hd_pipeline_parse(cx, pipeline, &p) || !hd_manager_run(g.m, &p, &options)) {
        hd_diags_print(&cx->diags, &after);
        fail(t, "%s fails", pipeline);
    } else {
        const Tensor *got = results(t, &g, hd_func_find(g.m, "f"));
        if (want && got) compare_results(t, got, want, n, dtype == TY_F64 ? 1e-9 : 1e-4);
        hd_print_module(g.m, &after);
    }
    bool ok = t->failures == failures;
    if (!ok) fprintf(stderr, "%s// after %s:\n%s", before.text, pipeline, after.text);
    hd_arena_free(a);
    hd_ctx_free(cx);
    return ok;
}

// --- gradients
// Makes a loss of the results: the sum of their elements, and something of every parameter, so that each has a
// gradient.
static void sum_results(Graph *g) {
    Op *ret = hd_return(g->f);
    Builder b = {.f = g->f, .before = ret};
    VEC(Value *) terms = {0};
    for (int i = 0; i < ret->n_in; i++) hd_push(g->arena, &terms, ret->in[i]);
    for (const Op *o = g->f->first; o; o = o->next)
        if (o->kind == OP_PARAM) hd_push(g->arena, &terms, hd_build1(&b, OP_SIN, o->out[0], NULL, NULL, NULL));
    Value *loss = NULL;
    for (int i = 0; i < terms.n; i++) {
        static const int64_t axes[HD_MAX_DIMS] = {0, 1, 2, 3, 4, 5};
        Attrs as = {0};
        hd_set_ints(g->m->cx, &as, A_AXES, terms.at[i]->type->rank, axes);
        Value *sum = hd_build1(&b, OP_SUM, terms.at[i], NULL, &as, NULL);
        loss = loss ? hd_build1(&b, OP_ADD, loss, sum, NULL, NULL) : sum;
    }
    hd_erase(ret);
    hd_append(g->f, hd_op_new(g->f, OP_RETURN, 1, &loss));
    hd_renumber(g->f);
}

typedef struct { Graph g; Eval *e; Tensor in[8]; double loss; Out text; } Step;

// A random loss and its gradient after `pipeline`, computed in `compute`. e is NULL after failing the test.
static Step random_step(Test *t, Ctx *cx, uint64_t seed, DType dtype, const char *compute, const char *pipeline) {
    Step s = {.g = random_graph(cx, t->arena, "loss", seed, dtype, true, 15, 4), .text = hd_out(t->arena)};
    hd_set_word(cx, &hd_config(s.g.m, "train")->attrs, A_COMPUTE, compute);
    sum_results(&s.g);
    hd_set_kind(cx, &s.g.m->funcs->attrs, KIND_LOSS);
    hd_print_module(s.g.m, &s.text);
    Pipeline p;
    ManagerOptions options = {.verify_each = true};
    if (!hd_pipeline_parse(cx, pipeline, &p) || !hd_manager_run(s.g.m, &p, &options)) {
        hd_diags_print(&cx->diags, &s.text);
        fail(t, "%s fails", pipeline);
        return s;
    }
    hd_print_module(s.g.m, &s.text);
    s.e = hd_eval_new(s.g.m, EVAL_EXACT, t->arena);
    const Func *micro = hd_func_find(s.g.m, "micro");
    uint64_t state = seed;
    for (int i = 0; i < micro->n_args; i++) {
        s.in[i] = hd_tensor(t->arena, micro->args[i]->type);
        for (int64_t k = 0; k < hd_type_count(s.in[i].type); k++) s.in[i].data[k] = floor(uniform(&state, 0, 2));
    }
    for (const Symbol *p_ = s.g.m->symbols; p_; p_ = p_->next)
        if (p_->kind == SYM_PARAM)
            for (int64_t k = 0; k < hd_type_count(p_->type); k++)
                hd_eval_storage(s.e, p_->name).data[k] = uniform(&state, -1, 1);
    s.loss = loss_at(t, s.e, micro, s.in);
    return s;
}

// One element of each parameter; it is skipped where the difference is not that of a smooth function: two step sizes
// disagree (a kink of max, relu or abs).
static void compare_gradients(Test *t, Step *s, int *skipped) {
    const Func *eval = differentiated(s->g.m);
    for (const Symbol *p = s->g.m->symbols; p; p = p->next) {
        if (p->kind != SYM_PARAM) continue;
        int64_t i = below(&s->g, (int)hd_type_count(p->type));
        double *x = &hd_eval_storage(s->e, p->name).data[i];
        double got = gradient_of(t, s->e, s->g.m, s->in, p->name).data[i];
        double want = difference(t, s->e, eval, s->in, x, STEP), check = difference(t, s->e, eval, s->in, x, STEP / 3);
        double scale = fmax(1, fmax(fabs(want), fabs(s->loss)));
        t->compared++;
        if (fabs(want - check) > 1e-8 * scale) ++*skipped;
        else if (!(fabs(got - want) <= 1e-7 * scale))
            fail(t, "@%s[%lld]: gradient %.12g, difference %.12g", p->name, (long long)i, got, want);
    }
}

// Where nothing rounds, a lower compute dtype changes no bit of meaning.
static void compare_dtypes(Test *t, const Step *low, const Step *full) {
    if (!(fabs(low->loss - full->loss) <= 1e-9 * fmax(1, fabs(full->loss))))
        fail(t, "the loss is %.15g, not %.15g", low->loss, full->loss);
    for (const Symbol *p = full->g.m->symbols; p; p = p->next) {
        if (p->kind != SYM_PARAM) continue;
        Tensor got = hd_eval_gradient(low->e, p->name), want = hd_eval_gradient(full->e, p->name);
        compare_results(t, &got, &want, 1, 1e-9);
    }
}

static void run_gradient_seed(Test *t, uint64_t seed, int *skipped) {
    Ctx *cx = hd_ctx_new();
    t->arena = hd_arena_new();
    int failures = t->failures;
    Step exact = random_step(t, cx, seed, TY_F64, "f32", "autodiff,simplify,cse,dce");
    Step full = random_step(t, cx, seed, TY_F32, "f32", "autodiff");
    Step low = random_step(t, cx, seed, TY_F32, "bf16", "autodiff,precision");
    if (exact.e) compare_gradients(t, &exact, skipped);
    if (full.e && low.e) compare_dtypes(t, &low, &full);
    if (t->failures != failures) fprintf(stderr, "%s// in bf16:\n%s", exact.text.text, low.text.text);
    hd_arena_free(t->arena);
    hd_ctx_free(cx);
}

int main(int argc, char **argv) { // random [FIRST_SEED COUNT]
    Test t = {0};
    uint64_t first = argc > 2 ? strtoull(argv[1], NULL, 10) : 1, count = argc > 2 ? strtoull(argv[2], NULL, 10) : 300;
    for (size_t k = 0; k < sizeof pipelines / sizeof *pipelines; k++) {
        for (uint64_t seed = first; seed < first + count && t.failures < 3; seed++) {
            char name[60];
            snprintf(name, sizeof name, "seed %llu", (unsigned long long)seed);
            t.name = name;
            run_seed(&t, seed, pipelines[k]);
        }
    }
    int before = t.compared, skipped = 0;
    for (uint64_t seed = first; seed < first + count && t.failures < 3; seed++) {
        char name[60];
        snprintf(name, sizeof name, "gradient, seed %llu", (unsigned long long)seed);
        t.name = name;
        run_gradient_seed(&t, seed, &skipped);
    }
    t.name = "ops.def";
    if (skipped * 20 > t.compared - before)
        fail(&t, "%d of %d differences are not smooth", skipped, t.compared - before);
    Graph all = {0};
    for (int k = 0; k < N_OPS; k++)
        if (usable(&all, (OpKind)k) && !t.covered[k] && count >= 300)
            fail(&t, "no random function uses %s", hd_op_info((OpKind)k)->mnemonic);
    printf("%d elements compared, %d failures\n", t.compared, t.failures);
    return t.failures != 0;
}
