// Several ranks train as one: the functions after `select` run on all ranks in step, for every strategy, and after two
// steps master weights, the loss and the gradient norm are the same
//   bit for bit between the strategies that add in the same order: none and zero1, zero2 and zero3, all four where a
//   step has one micro-batch; whatever is prefetched, drained or recomputed,
//   and near those of one rank that takes all the micro-batches by itself: only the order of sums differs.
// On every rank the weights that the model reads are the master weights rounded once.
#include "ir/mesh.h"
#include "ir/optimizer.h"
#include "tests/numeric/examples.h"
#include "tests/unit/module.h"

enum { MAX_RANKS = 8, STEPS = 2 };
typedef struct { const char *compute; int shard, replicate, micro; const char *reduction; } Setup;
typedef struct { const char *fsdp; int prefetch, live_grads; bool recompute, master; } Schedule; // master: is gathered

static const Model odd = {.name = "odd"};

static Loaded parse_odd(Test *t) {
    Loaded l = {.cx = hd_ctx_new(), .arena = hd_arena_new()};
    t->arena = l.arena;
    l.m = test_module(l.cx, "odd.hir");
    if (!l.m) fail(t, "does not parse");
    return l;
}

typedef struct { Loaded l; int ranks; Eval *e[MAX_RANKS]; double loss, norm, eval; } Run; // l.m: NULL after a failure

static void set_schedule(Run *r, const Setup *mesh, const Schedule *s) {
    Ctx *cx = r->l.cx;
    Attrs *schedule = &hd_config(r->l.m, "schedule")->attrs, *train = &hd_config(r->l.m, "train")->attrs;
    hd_set_word(cx, train, A_COMPUTE, hd_intern(cx, mesh->compute));
    hd_set_int(cx, train, A_MICRO, mesh->micro);
    hd_set_word(cx, train, A_REDUCTION, mesh->reduction);
    hd_set_float(cx, train, A_LR_PEAK, 0.05);
    hd_set_int(cx, train, A_LR_WARMUP, 0);
    for (Op *o = hd_optimizer(r->l.m)->first; o; o = o->next) // a gradient that is 0 but for rounding must make no step
        if (o->kind == OP_CONST && hd_float(&o->attrs, A_VALUE, 0) == 1e-8) hd_set_float(cx, &o->attrs, A_VALUE, 1e-3);
    Mesh sizes = hd_mesh(r->l.m);
    sizes.size[AXIS_SHARD] = mesh->shard;
    sizes.size[AXIS_REPLICATE] = mesh->replicate;
    hd_set_mesh(cx, schedule, &sizes);
    hd_set_word(cx, schedule, A_FSDP, hd_intern(cx, s->fsdp));
    hd_set_int(cx, schedule, A_PREFETCH, s->prefetch);
    hd_set_int(cx, schedule, A_LIVE_GRADS, s->live_grads);
    hd_set_word(cx, schedule, A_WEIGHTS_FROM, hd_intern(cx, s->master ? "master" : "copy"));
    const char *all = hd_intern(cx, "blocks");
    hd_set_words(cx, schedule, A_RECOMPUTE, s->recompute, &all);
}

static void compile(Test *t, Run *r, bool lower) {
    Pipeline p;
    ManagerOptions options = hd_manager_defaults();
    options.verify_each = true;
    const char *pipeline = lower ? "autodiff,precision,simplify,cse,dce,recompute,fsdp,cse,dce,fuse,select"
                                 : "autodiff,simplify,cse,dce,recompute,fsdp,cse,dce,fuse,select";
    if (hd_pipeline_parse(r->l.cx, pipeline, &p) && hd_manager_run(r->l.m, &p, &options)) return;
    Out out = hd_out(r->l.arena);
    hd_diags_print(&r->l.cx->diags, &out);
    fail(t, "does not compile:\n%s", out.text);
    r->l.m = NULL;
}

// --- storage
static const Symbol *part_of(const Run *r, const Symbol *param, const char *part) {
    return hd_symbol_find(r->l.m, hd_internf(r->l.cx, "%s.%s", hd_word(&param->attrs, A_BUCKET, "?"), part));
}

// Where an element of a bucket is in one of its buffers on a rank; NULL: another rank of the shard group has it.
static double *element(const Run *r, int rank, const Symbol *buffer, int64_t at) {
    Mesh mesh = hd_mesh(r->l.m);
    int64_t mine = hd_mesh_number(&mesh, hd_axes(&buffer->attrs, A_SPLIT), rank), n = hd_type_count(buffer->type);
    int64_t size = hd_type_count(hd_symbol_find(r->l.m, hd_word(&buffer->attrs, A_BUCKET, ""))->type);
    if (n != size && at / n != mine) return NULL;
    return hd_eval_storage(r->e[rank], buffer->name).data + (n == size ? at : at % n);
}

static void fill(Run *r) {
    static const char *const parts[] = {"master", "compute", "next"};
    for (int k = 0; k < r->ranks; k++) r->e[k] = hd_eval_new(r->l.m, EVAL_ROUNDED, r->l.arena);
    for (const Symbol *s = r->l.m->symbols; s; s = s->next)
        for (int p = 0; s->kind == SYM_PARAM && p < 3; p++) {
            const Symbol *buffer = part_of(r, s, parts[p]);
            for (int64_t i = 0; buffer && i < hd_type_count(s->type); i++)
                for (int k = 0; k < r->ranks; k++) {
                    double *to = element(r, k, buffer, hd_int(&s->attrs, A_OFFSET, 0) + i);
                    if (to) *to = parameter(s, i);
                }
        }
}

// --- steps
// Micro-batch `number` of the whole run, counted over ranks first.
static void fill_micro(const Run *r, const Func *f, int number, Tensor *in) {
    uint64_t state = 7 + (uint64_t)number * 1000;
    double vocab = (double)hd_int(&hd_config(r->l.m, "model")->attrs, A_VOCAB, 2);
    for (int i = 0; i < f->n_args; i++) {
        in[i] = hd_tensor(r->l.arena, f->args[i]->type);
        for (int64_t k = 0, n = hd_type_count(in[i].type); k < n; k++) in[i].data[k] = floor(uniform(&state, 0, vocab));
    }
}

static bool call(Test *t, Run *r, const char *name, int number) {
    const Func *f = hd_func_find(r->l.m, name);
    if (!f) {
        fail(t, "there is no @%s", name);
        return false;
    }
    Tensor in[MAX_RANKS][4], out[MAX_RANKS][HD_MAX_OUT];
    const Tensor *ins[MAX_RANKS];
    Tensor *outs[MAX_RANKS];
    for (int k = 0; k < r->ranks; k++) {
        fill_micro(r, f, number + k, in[k]);
        ins[k] = in[k], outs[k] = out[k];
    }
    const char *wrong = hd_eval_ranks(r->e, r->ranks, f, ins, outs);
    if (wrong) fail(t, "@%s: %s", name, wrong);
    return !wrong;
}

static double state(Test *t, const Run *r, const char *name) {
    double v = hd_eval_storage(r->e[0], name).data[0];
    for (int k = 1; k < r->ranks; k++)
        if (hd_eval_storage(r->e[k], name).data[0] != v) fail(t, "@%s is not the same on all ranks", name);
    return v;
}

static bool train(Test *t, Run *r, int micro, int batches) {
    for (int i = 0; i < STEPS * micro; i++) {
        int k = i % micro;
        const char *f = micro == 1 ? "micro_only" : k == 0 ? "micro_first" : k < micro - 1 ? "micro" : "micro_last";
        if (!call(t, r, f, i * r->ranks)) return false;
        if (k == micro - 1 && r->ranks == 1 && !call(t, r, "update", 0)) return false;
    }
    r->loss = state(t, r, "state.loss");
    r->norm = state(t, r, "state.norm");
    for (int i = 0; i < batches; i += r->ranks) {
        if (!call(t, r, "eval", 1000 + i)) return false;
        r->eval += state(t, r, "state.loss") * r->ranks / batches;
    }
    return true;
}

// batches: of one evaluation
static Run run(Test *t, const Model *model, const Setup *mesh, const Schedule *s, int batches) {
    Run r = {.ranks = mesh->shard * mesh->replicate};
    r.l = model->file ? load(t, model, "schedule.fsdp.unit=Block", "simplify") : parse_odd(t);
    if (r.l.m) set_schedule(&r, mesh, s);
    if (r.l.m) compile(t, &r, model->file != NULL);
    if (!r.l.m) return r;
    fill(&r);
    if (!train(t, &r, mesh->micro, batches)) r.l.m = NULL;
    return r;
}

// --- what comes out
static double master(Test *t, const Run *r, const Symbol *param, int64_t i) {
    const Symbol *s = part_of(r, param, "master");
    double v = (double)NAN;
    for (int k = 0; k < r->ranks; k++) {
        const double *at = element(r, k, s, hd_int(&param->attrs, A_OFFSET, 0) + i);
        if (at && !isnan(v) && *at != v) fail(t, "@%s[%lld] is not the same on all ranks", param->name, (long long)i);
        if (at) v = *at;
    }
    return v;
}

static bool check_rounded(Test *t, const Run *r, const Symbol *s, const Symbol *buffer) {
    for (int64_t i = 0; buffer && i < hd_type_count(s->type); i++)
        for (int k = 0; k < r->ranks; k++) {
            const double *at = element(r, k, buffer, hd_int(&s->attrs, A_OFFSET, 0) + i);
            const double want = hd_round(buffer->type->dtype, master(t, r, s, i));
            t->compared++;
            if (!at || *at == want) continue;
            fail(t, "@%s[%lld]: rank %d computes with %a in @%s, not %a", s->name, (long long)i, k, *at, buffer->name,
                 want);
            return false;
        }
    return true;
}

static void check_weights(Test *t, const Run *r) {
    for (const Symbol *s = r->l.m->symbols; s; s = s->next)
        if (s->kind == SYM_PARAM)
            for (int p = 0; p < 2; p++)
                if (!check_rounded(t, r, s, part_of(r, s, p ? "next" : "compute"))) return;
}

// bound 0: bit for bit
static void number(Test *t, const char *what, double got, double want, double bound) {
    t->compared++;
    if (!(fabs(got - want) <= bound)) fail(t, "%s is %a, not %a", what, got, want);
}

static void compare(Test *t, const Run *want, const Run *got, double bound) {
    number(t, "the loss", got->loss, want->loss, bound * want->loss);
    number(t, "the norm", got->norm, want->norm, bound * want->norm);
    number(t, "the loss of @eval", got->eval, want->eval, bound * want->eval);
    for (const Symbol *s = want->l.m->symbols; s; s = s->next) {
        if (s->kind != SYM_PARAM) continue;
        const Symbol *mine = hd_symbol_find(got->l.m, s->name);
        int failures = t->failures;
        for (int64_t i = 0; i < hd_type_count(s->type) && t->failures == failures; i++)
            number(t, hd_sprintf(got->l.arena, "@%s[%lld]", s->name, (long long)i), master(t, got, mine, i),
                   master(t, want, s, i), bound);
    }
}

// --- the matrix
static const Schedule schedules[] = {
    {"none", 1, 2, false, false}, {"zero1", 1, 2, false, false}, {"zero2", 1, 2, false, false},
    {"zero3", 1, 2, false, false}, {"zero3", 0, 1, false, true}, {"zero3", 3, 3, false, false},
    {"zero2", 0, 1, true, true},  {"zero3", 2, 1, true, true},  {"none", 0, 2, true, true},
};
enum { N_SCHEDULES = sizeof schedules / sizeof *schedules };

static void check_mesh(Test *t, const Model *model, const Setup *mesh) {
    char name[200];
    t->name = name;
    snprintf(name, sizeof name, "%s, %s, one rank", model->name, mesh->compute);
    Setup one = {mesh->compute, 1, 1, mesh->micro * mesh->shard * mesh->replicate, "each"};
    Run alone = run(t, model, &one, &schedules[0], mesh->shard * mesh->replicate),
        want = {.ranks = 0};
    // Every micro-batch computes the same on one rank; what differs is the order in which their f32 gradients add up.
    // In bf16 a weight near the middle of two values may then round to the other one, which is 2^-8 of it in the second
    // step.
    double bound = strcmp(mesh->compute, "f32") ? 1e-3 : 2e-6;
    for (int i = 0; i < N_SCHEDULES && alone.l.m; i++) {
        const Schedule *s = &schedules[i];
        snprintf(name, sizeof name,
                 "%s, %s, %d x %d ranks, accumulate %d, reduce %s, %s, prefetch %d, live_grads %d%s%s", model->name,
                 mesh->compute, mesh->shard, mesh->replicate, mesh->micro, mesh->reduction, s->fsdp,
                 s->prefetch, s->live_grads, s->recompute ? ", recomputed" : "",
                 s->master ? ", gathered from master weights" : "");
        Run got = run(t, model, mesh, s, mesh->shard * mesh->replicate);
        if (got.l.m) check_weights(t, &got);
        if (got.l.m) compare(t, want.l.m ? &want : &alone, &got, want.l.m ? 0 : bound);
        if (got.l.m && !want.l.m) want = got;
        else unload(&got.l);
    }
    if (want.l.m) unload(&want.l);
    unload(&alone.l);
}

int main(void) {
    static const Setup meshes[] = {
        {"f32", 2, 1, 1, "each"},  {"bf16", 2, 1, 3, "each"}, {"bf16", 2, 1, 3, "last"},
        {"bf16", 3, 1, 1, "each"}, {"f32", 1, 2, 2, "last"},  {"bf16", 2, 2, 1, "last"},
        {"f32", 2, 3, 2, "each"},  {"f32", 2, 3, 2, "last"},  {"f32", 8, 1, 1, "each"}};
    Test t = {0};
    for (size_t k = 0; k < sizeof meshes / sizeof *meshes; k++) {
        for (int i = 0; i < N_MODELS; i++) check_mesh(&t, &models[i], &meshes[k]);
        check_mesh(&t, &odd, &meshes[k]);
    }
    printf("%d elements compared, %d failures\n", t.compared, t.failures);
    return t.failures != 0;
}
