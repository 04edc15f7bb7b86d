// A schedule never changes a bit: with every value rounded to its dtype, losses and gradients of a step after fuse and
// select are compared, bit for bit, between random sets of recomputed modules (and none), in f32 and in bf16.
#include "tests/numeric/examples.h"

static const char head[] = "simplify,cse,autodiff,precision,simplify,cse,dce";
static const char tail[] = "choose-recompute,recompute,fsdp,fuse,select";
enum { MAX_PATHS = 64, TRIALS = 12 };

typedef struct { const char *at[MAX_PATHS]; int n; } Paths;

static void add_path(Paths *p, const char *path) {
    for (int i = 0; i < p->n; i++)
        if (!strcmp(p->at[i], path)) return;
    if (p->n < MAX_PATHS) p->at[p->n++] = path;
}

// Every module instance of the forward pass that computes something, and the modules around it.
static Paths module_paths(const Loaded *l) {
    Paths p = {0};
    for (const Op *o = hd_func_find(l->m, "micro")->first; o; o = o->next) {
        if (hd_has(&o->attrs, A_BWD) || !o->loc.path || !o->n_out) continue;
        add_path(&p, o->loc.path);
        for (const char *dot = strchr(o->loc.path, '.'); dot; dot = strchr(dot + 1, '.'))
            add_path(&p, hd_internf(l->cx, "%.*s", (int)(dot - o->loc.path), o->loc.path));
    }
    return p;
}

static int choose(Loaded *l, uint64_t seed) {
    Paths all = module_paths(l), some = {0};
    uint64_t state = seed;
    double density = seed % 3 == 0 ? 0.1 : seed % 3 == 1 ? 0.3 : 0.7;
    for (int i = 0; i < all.n && seed; i++)
        if (uniform(&state, 0, 1) < density) some.at[some.n++] = all.at[i];
    hd_set_words(l->cx, &hd_config(l->m, "schedule")->attrs, A_RECOMPUTE, some.n, some.at);
    return some.n;
}

static bool lower(Test *t, Loaded *l) {
    Pipeline p;
    ManagerOptions options = hd_manager_defaults();
    options.verify_each = true;
    if (hd_pipeline_parse(l->cx, tail, &p) && hd_manager_run(l->m, &p, &options)) return true;
    Out out = hd_out(l->arena);
    hd_diags_print(&l->cx->diags, &out);
    fail(t, "does not compile:\n%s", out.text);
    return false;
}

// One step from the same parameters and batch.
static bool step(Test *t, Loaded *l) {
    static const char *const order[] = {"micro_only", "micro_first", "micro", "micro_last"};
    l->e = hd_eval_new(l->m, EVAL_ROUNDED, l->arena);
    for (const Symbol *s = l->m->symbols; s; s = s->next) {
        if (s->kind != SYM_PARAM) continue;
        static const char *const roles[] = {"master", "compute"};
        for (int r = 0; r < 2; r++) {
            const char *name = hd_internf(l->cx, "%s.%s", hd_word(&s->attrs, A_BUCKET, ""), roles[r]);
            if (!hd_symbol_find(l->m, name)) continue;
            double *to = hd_eval_storage(l->e, name).data + hd_int(&s->attrs, A_OFFSET, 0);
            for (int64_t k = 0, n = hd_type_count(s->type); k < n; k++) to[k] = parameter(s, k);
        }
    }
    fill_batch(l, hd_func_find(l->m, "eval"));
    for (int i = 0; i < 4; i++) {
        Tensor out[HD_MAX_OUT];
        const Func *f = hd_func_find(l->m, order[i]);
        const char *wrong = f ? hd_eval(l->e, f, l->in, out) : NULL;
        if (wrong) {
            fail(t, "@%s: %s", order[i], wrong);
            return false;
        }
    }
    return true;
}

static void compare(Test *t, const Loaded *want, const Loaded *got) {
    for (const Symbol *s = want->m->symbols; s; s = s->next) {
        bool gradient = !hd_has(&s->attrs, A_TRANSIENT) && !strcmp(hd_word(&s->attrs, A_CLASS, ""), "gradients");
        if (s->kind != SYM_BUFFER || (!gradient && strcmp(s->name, "state.loss")))
            continue;
        Tensor a = hd_eval_storage(want->e, s->name), b = hd_eval_storage(got->e, s->name);
        for (int64_t i = 0; i < hd_type_count(a.type); i++) {
            t->compared++;
            if (!memcmp(&a.data[i], &b.data[i], sizeof a.data[i])) continue;
            fail(t, "@%s[%lld] is %a, not %a", s->name, (long long)i, b.data[i], a.data[i]);
            break;
        }
    }
}

int main(void) {
    static const char *const settings[] = {"train.precision.compute=f32", "train.precision.compute=bf16",
                                           "train.accumulate=3"};
    Test t = {0};
    for (int i = 0; i < N_MODELS; i++)
        for (size_t k = 0; k < sizeof settings / sizeof *settings; k++) {
            char name[200];
            snprintf(name, sizeof name, "%s, %s, nothing recomputed", models[i].name, settings[k]);
            t.name = name;
            Loaded want = load(&t, &models[i], settings[k], head);
            if (want.m) choose(&want, 0);
            bool ok = want.m && lower(&t, &want) && step(&t, &want);
            for (uint64_t seed = 1; ok && seed <= TRIALS; seed++) {
                Loaded got = load(&t, &models[i], settings[k], head);
                snprintf(name, sizeof name, "%s, %s, recompute set %d", models[i].name, settings[k], (int)seed);
                if (got.m && choose(&got, seed) && lower(&t, &got) && step(&t, &got)) compare(&t, &want, &got);
                unload(&got);
            }
            unload(&want);
        }
    printf("%d elements compared, %d failures\n", t.compared, t.failures);
    return t.failures != 0;
}
