// verify-plan against insertions [V37]: one more op that writes a buffer that outlives the function, in every function
// of a plan, into every such buffer (plan_insertions.h). An insertion that verify-plan lets through must leave all that
// the plan computed, on every rank and in every order tried (plan_machine.h): a zero of what the next op overwrites, a
// second gather of the same weights. The argument "all" tries more plans,
// places and other buffers.
#include "passes/verify/verify_plan.h"
#include "tests/unit/plan_cases.h"
#include "tests/unit/plan_insertions.h"
#include "tests/unit/plan_machine.h"

typedef struct { int tried, caught, same; } Score;
static Score scores[N_INSERTIONS];
static bool all_places;

static void complain(const char *name, const Insert *x) {
    fprintf(stderr, "%s: '%s' of @%s%s%s before op %d of @%s passes verify-plan and computes something else\n", name,
            insertion_text[x->what], x->into, x->from ? " from @" : "", x->from ? x->from : "", x->at, x->func);
    test_failures++;
}

static void judge(const char *name, const char *text, uint64_t right, const Insert *x) {
    Ctx *cx = hd_ctx_new();
    Module *m = parse(cx, text);
    if (insert(m, x)) {
        Arena *a = hd_arena_new();
        Score *s = &scores[x->what];
        bool caught = !hd_verify(m) || hd_check_plan(m, a, NULL).n > 0, same = true;
        for (int k = 0; !caught && same && k < orders_of(m); k++) same = run_plan(m, k) == right;
        s->tried++;
        s->caught += caught;
        s->same += !caught && same;
        if (!caught && !same) complain(name, x);
        hd_arena_free(a);
    }
    hd_ctx_free(cx);
}

static bool is_kept(const Symbol *s) { return s->kind == SYM_BUFFER && !hd_has(&s->attrs, A_TRANSIENT); }

// Buffers whose elements another one can take.
static int sources(const Module *m, const Symbol *into, Insertion what, const char **names) {
    int n = 0;
    for (const Symbol *s = m->symbols; s; s = s->next)
        if (is_kept(s) && s != into && (s->type->dtype == into->type->dtype || what == INSERT_GATHER))
            names[n++] = s->name;
    return n;
}

// At the end of a function, in its middle and at its beginning; one of them, unless all are wanted.
static void try_places(const char *name, const char *text, uint64_t right, Insert x, int n_ops, uint64_t random) {
    const int at[] = {n_ops - 1, n_ops / 2, 0};
    for (int i = 0; i < 3; i++) {
        x.at = at[i];
        if (all_places || (int)(random % 4 ? 0 : random / 4 % 3) == i) judge(name, text, right, &x);
    }
}

static void try_buffer(const char *name, const char *text, const Module *m, uint64_t right, const Func *f,
                       const Symbol *into) {
    const char **names = HD_NEWN(m->cx->arena, const char *, m->n_symbols + 1);
    for (int what = 0; what < N_INSERTIONS; what++) {
        Insert x = {.what = (Insertion)what, .func = f->name, .into = into->name};
        const uint64_t random = mix(mix(hash_text(f->name), hash_text(into->name)), (uint64_t)what);
        const int n = takes_another(x.what) ? sources(m, into, x.what, names) : 0;
        for (int i = 0; i < n; i++) {
            x.from = names[i];
            if (what == INSERT_GATHER || (random + (uint64_t)i) % (uint64_t)n < (all_places ? 4 : 1))
                try_places(name, text, right, x, f->n_ops, random / 64);
        }
        if (!takes_another(x.what)) try_places(name, text, right, x, f->n_ops, random / 64);
    }
}

static int tried(void) {
    int n = 0;
    for (int i = 0; i < N_INSERTIONS; i++) n += scores[i].tried;
    return n;
}

static void try_plan(const Case *c) {
    Ctx *cx = hd_ctx_new();
    const char *text = case_plan(cx, c, 0);
    Module *m = text ? parse(cx, text) : NULL;
    CHECK(m && hd_verify(m) && hd_check_plan(m, cx->arena, NULL).n == 0);
    const uint64_t right = m ? run_plan(m, 0) : 0;
    const int before = tried();
    CHECK(right != 0);
    for (const Func *f = m ? m->funcs : NULL; f; f = f->next)
        for (const Symbol *s = m->symbols; s && !f->is_kernel; s = s->next)
            if (is_kept(s) && hd_type_count(s->type)) try_buffer(c->name, text, m, right, f, s);
    printf("%-60s %5d insertions\n", c->name, tried() - before);
    hd_ctx_free(cx);
}

// The first ones are the quick test.
enum { QUICK = 5 };
static const Case cases[] = {
    {"one rank, two micro-batches", "tiny", "train.accumulate=2 schedule.graph=none", 0},
    {"zero1, 2 ranks, bf16, next", "gpt2", "schedule.fsdp=zero1 schedule.mesh.shard=2 schedule.graph=none", 0},
    {"zero3, 2 x 2 ranks, reduced last", "llama",
     "schedule.fsdp=zero3 schedule.mesh.shard=2 schedule.mesh.replicate=2 train.accumulate=2 train.reduce=last", 0},
    {"none, 2 ranks, no clipping", "tiny", "schedule.fsdp=none schedule.mesh.shard=2 train.clip=0", 0},
    {"dropout, recomputed", "gpt2", "drop=0.1 schedule.recompute=Block", 0},
    {"one rank, no clipping, f16", "tiny", "train.clip=0 train.compute=f16", 0},
    {"zero3, 2 ranks, three micro-batches, from master weights", "gpt2",
     "schedule.fsdp=zero3 schedule.mesh.shard=2 train.accumulate=3 schedule.fsdp.weights=master layers=2", 0},
    {"zero2, 2 x 2 ranks, four micro-batches, graphs of units", "tiny",
     "schedule.fsdp=zero2 schedule.mesh.shard=2 schedule.mesh.replicate=2 train.accumulate=4 schedule.graph=unit", 0},
    {"zero1, 3 ranks, reduced last, weight gradients beside", "tiny",
     "schedule.fsdp=zero1 schedule.mesh.shard=3 train.accumulate=2 train.reduce=last schedule.overlap_grads=on", 0},
    {"offload, dropout, two micro-batches", "gpt2",
     "drop=0.1 schedule.offload=Block schedule.offload.margin=0 schedule.offload.min_size=0 "
     "train.accumulate=2 schedule.graph=none layers=2", 0},
    {"two losses, zero3, 2 ranks", "losses", "schedule.fsdp=zero3 schedule.mesh.shard=2 train.accumulate=2", 0},
    {"a loss over rows", "rows", "train.accumulate=3", 0},
};

TEST(insertions) {
    const int n = all_places ? (int)(sizeof cases / sizeof *cases) : QUICK;
    for (int i = 0; i < n; i++) try_plan(&cases[i]);
    CHECK(tried() >= 1000);
}

int main(int argc, char **argv) {
    if (argc == 2 && !strcmp(argv[1], "all")) all_places = true, argc = 1;
    const int failed = run_tests(argc, argv);
    Score all = {0};
    for (int i = 0; i < N_INSERTIONS; i++) {
        const Score *s = &scores[i];
        printf("%-40s %6d insertions, %6d caught, %5d equal\n", insertion_text[i], s->tried, s->caught, s->same);
        all.tried += s->tried;
        all.caught += s->caught;
        all.same += s->same;
    }
    printf("%d kinds: %d insertions, %d caught, %d equal\n", (int)N_INSERTIONS, all.tried, all.caught, all.same);
    CHECK(all.caught > all.tried / 2);
    return failed || test_failures;
}
