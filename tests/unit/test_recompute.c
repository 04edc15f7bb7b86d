// recompute auto under a limit of device memory, against every choice there is: on small models each set of the ops
// that may be recomputed is compiled, and what the search takes must be within 2 % of the fastest one that fits. Less
// memory is never faster.
#include "frontend/frontend.h"
#include "passes/manager/manager.h"
#include "passes/plan/choose.h"
#include "tests/unit/check.h"
#include <stdlib.h>

enum { MOST_OPEN = 13, LIMITS = 4 };
typedef struct { bool again[200]; Trial got; } Choice;
static Choice *all;
static int n_all;

static void print_diagnostics(Ctx *cx) {
    Out o = hd_out(cx->arena);
    hd_diags_print(&cx->diags, &o);
    fputs(o.text, stderr);
}

// A model of tests/unit/recompute as the recompute pass gets it; NULL after printing what is wrong with it.
static Module *load(Ctx *cx, const char *name, const char *setting) {
    size_t n;
    const char *path = hd_sprintf(cx->arena, HEDDLE_SOURCE "/tests/unit/recompute/%s.hd", name);
    const char *text = hd_read_file(cx->arena, path, &n);
    cx->device_path = HEDDLE_SOURCE "/devices/h100.dev";
    const SetOption set = {setting};
    Module *m = text ? hd_frontend(cx, path, text, n, &set, 1) : NULL;
    if (m) {
        Symbol *target = hd_config(m, "target");
        hd_set_word(cx, &target->attrs, A_TARGET, hd_intern(cx, "cuda"));
        hd_set_word(cx, &target->attrs, A_ARCH, hd_intern(cx, "sm_90"));
    }
    const ManagerOptions options = hd_manager_defaults();
    Pipeline p = {0};
    bool good = m && hd_pipeline_parse(cx, "simplify,cse,autodiff,precision,simplify,cse,dce,loss-chunks", &p) &&
                hd_manager_run(m, &p, &options);
    if (!good) print_diagnostics(cx);
    return good ? m : NULL;
}

static Func *trained(Module *m) {
    Func *f = m->funcs;
    while (f->is_kernel || !hd_has_backward(f)) f = f->next;
    hd_renumber(f);
    return f;
}

// Compiles every set of the ops that may be recomputed and take bytes or time.
static void try_all(Module *m, Arena *a) {
    Func *f = trained(m);
    const Costs c = hd_recompute_costs(f, hd_recompute_open(f, true, a), true, a);
    int open[MOST_OPEN], n = 0;
    for (const Op *o = f->first; o; o = o->next) {
        if (c.seconds[o->id] < 0 || hd_op_is(o, TRAIT_ALIAS)) continue;
        CHECK(n < MOST_OPEN);
        if (n < MOST_OPEN) open[n++] = o->id;
    }
    CHECK(n >= 6);
    CHECK(f->n_ops <= 200);
    n_all = 1 << n;
    all = calloc((size_t)n_all, sizeof *all);
    Trials *t = hd_trials(m, a);
    for (int i = 0; i < n_all; i++) {
        for (const Op *o = f->first; o; o = o->next)
            all[i].again[o->id] = hd_op_is(o, TRAIT_ALIAS) && c.seconds[o->id] >= 0;
        for (int k = 0; k < n; k++) all[i].again[open[k]] = i >> k & 1;
        all[i].got = hd_trial(t, all[i].again, 0, TRIAL_WHOLE);
        CHECK(all[i].got.bytes > 0);
    }
    hd_trials_end(t);
}

// The plan that the search takes for this limit.
static Trial found(Module *m, int64_t limit, Arena *a) {
    const double slower = 0.025;
    PassCx cx = {.scratch = a};
    Func *f = trained(m);
    const Costs c = hd_recompute_costs(f, hd_recompute_open(f, false, a), false, a);
    const bool *given = hd_recompute_auto(&c, slower).again;
    Symbol *target = hd_config(m, "target");
    hd_set_int(m->cx, &target->attrs, A_DEVICE_MEMORY_BYTES, limit);
    const bool *again = hd_recompute_fit(m, &cx, slower, limit);
    Trials *t = hd_trials(m, a);
    const Trial got = hd_trial(t, again ? again : given, HD_AS_LISTED, TRIAL_WHOLE);
    hd_trials_end(t);
    hd_unset(&target->attrs, A_DEVICE_MEMORY_BYTES);
    hd_unset(&hd_config(m, "schedule")->attrs, A_OFFLOAD_VALUES);
    return got;
}

static int by_bytes(const void *x, const void *y) {
    const Choice *a = x, *b = y;
    if (a->got.bytes != b->got.bytes) return a->got.bytes < b->got.bytes ? -1 : 1;
    return a->got.seconds < b->got.seconds ? -1 : a->got.seconds > b->got.seconds;
}

// With as many bytes as each of the choices takes that no other one beats, from the largest down.
static void compare(const char *name, const char *sets) {
    Ctx *cx = hd_ctx_new();
    Module *m = load(cx, name, sets);
    CHECK(m != NULL);
    if (!m) return;
    Arena *a = hd_arena_new();
    try_all(m, a);
    qsort(all, (size_t)n_all, sizeof *all, by_bytes);
    double before = 0, best = all[0].got.seconds;
    int n = 0, limits = 0;
    for (int i = 0; i < n_all; i++) // choices that no other one beats come to the front
        if (i == 0 || all[i].got.seconds < best) best = all[i].got.seconds, all[n++] = all[i];
    for (int left = n < LIMITS ? n : LIMITS; left > 0; left--) {
        const int i = n < LIMITS ? left - 1 : (n - 1) * (left - 1) / (LIMITS - 1);
        const Trial got = found(m, all[i].got.bytes, a);
        CHECK(got.bytes <= all[i].got.bytes);
        CHECK(got.seconds <= 1.02 * all[i].got.seconds);
        CHECK(got.seconds >= before);
        before = got.seconds;
        limits++;
    }
    CHECK(limits >= 2);
    free(all);
    hd_arena_free(a);
    hd_ctx_free(cx);
}

static const char *gated_layers = "layers=1"; // with two there are 8192 choices

TEST(gated) { compare("gated", gated_layers); }
TEST(stack) { compare("stack", "layers=3"); }
TEST(attend) { compare("attend", "train.batch=16"); }
TEST(uneven) { compare("uneven", "train.batch=32"); }

int main(int argc, char **argv) {
    if (argc < 2 || strcmp(argv[1], "more") != 0) return run_tests(argc, argv);
    gated_layers = "layers=2";
    return run_tests(2, (char *[]){argv[0], "gated", NULL});
}
