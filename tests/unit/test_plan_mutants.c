// verify-plan against mutants. Plans that are right are changed in one place (plan_mutations.h). A mutant that
// verify-plan lets through must compute what the plan computed, on every rank and in every order tried
// (plan_machine.h). Excused are only changes that make a right plan of another program, which no verifier of plans can
// know: see other_program.
#include "passes/verify/verify_plan.h"
#include "tests/unit/plan_cases.h"
#include "tests/unit/part.h"
#include "tests/unit/plan_mutations.h"

typedef struct { int mutants, caught, same, excused; } Score;
static Score scores[N_MUTATIONS];

// The same program but for whole contributions: one more or less addition to a gradient that other contributions still
// cover, where there is one micro-batch, so that no other one shows how many there are. And a plan without `program`
// does not say which of two results goes to which buffer.
static bool other_program(const Op *o, Mutation what) {
    if (what == MUTATE_RESULT_SWAP && !hd_program(o->func->module)) return true;
    if (what != MUTATE_DROP_STORE && what != MUTATE_DOUBLE_STORE) return false;
    return o && hd_has(&o->attrs, A_ACCUMULATE) && strcmp(o->func->name, "micro_only") == 0;
}

static void complain(const char *name, const char *text, Mutation what, int site, Arena *a, Ctx *cx) {
    const Op *o = mutation_info[what].at == AT_OP ? nth_op(parse(cx, text), site) : NULL; // as it was
    Out t = hd_out(a);
    const Symbol *s = symbol_kind(mutation_info[what].at) < N_SYMBOL_KINDS
                          ? nth_symbol(parse(cx, text), symbol_kind(mutation_info[what].at), site)
                          : NULL;
    if (o) hd_print_op(o, &t);
    else if (s) hd_puts(&t, s->name);
    fprintf(stderr, "%s: mutant '%s' at %d (%s) passes verify-plan and computes something else\n", name,
            mutation_info[what].text, site, t.text ? t.text : "");
    test_failures++;
}

static void judge(const char *name, const char *text, uint64_t right, Mutation what, int site, Score *all) {
    Ctx *cx = hd_ctx_new();
    Module *m = parse(cx, text);
    if (mutate(m, what, site, mix((uint64_t)site, (uint64_t)what))) {
        Arena *a = hd_arena_new();
        bool caught = !hd_verify(m) || hd_check_plan(m, a, NULL).n > 0, same = true;
        for (int k = 0; !caught && same && k < orders_of(m); k++) same = !is_claim(what) && run_plan(m, k) == right;
        bool excused = !caught && !same && other_program(nth_op(parse(cx, text), site), what);
        Score *of[] = {all, &scores[what]};
        for (int i = 0; i < 2; i++) {
            of[i]->mutants++;
            of[i]->caught += caught;
            of[i]->same += !caught && same;
            of[i]->excused += excused;
        }
        if (!caught && !same && !excused) complain(name, text, what, site, a, cx);
        hd_arena_free(a);
    }
    hd_ctx_free(cx);
}

// Under the address sanitizer a quarter of the places, and in each plan every 16th kind of mutation, the next plan's
// after those, beside the kinds that no plan had before. All are judged without sanitizers, and fuzz_plan looks for bad
// addresses when verify-plan reads other plans.
#ifdef __SANITIZE_ADDRESS__
enum { PLACES = 4, KINDS = 16 };
#else
enum { PLACES = 1, KINDS = 1 };
#endif

static bool sampled(void) { return KINDS > 1 || strcmp(test_part(), "all") != 0; }

static bool has_turn(int what) {
    static int plan, last;
    plan += what < last;
    last = what;
    const bool turn = KINDS > 1 ? what % KINDS == plan % KINDS : in_part((size_t)(what + plan));
    return turn || !scores[what].mutants; // every kind in one plan at least
}

// At most `most` mutants of each kind, evenly spread over its places, from the first to the last: the end of a step is
// for the next one.
static void try_mutants(const char *name, const char *text, int most) {
    CHECK(text != NULL);
    if (!text) return;
    most = (most + PLACES - 1) / PLACES;
    Ctx *cx = hd_ctx_new();
    Module *m = parse(cx, text);
    CHECK(m && hd_verify(m) && hd_check_plan(m, cx->arena, NULL).n == 0);
    uint64_t right = run_plan(m, 0);
    CHECK(right != 0);
    for (int k = 1; k < orders_of(m); k++) CHECK(run_plan(m, k) == right); // every order that the plan allows
    Score score = {0};
    for (int what = 0; what < N_MUTATIONS; what++) {
        if (!has_turn(what)) continue;
        int *places, n = find_places(m, (Mutation)what, cx->arena, &places), tries = n < most ? n : most;
        for (int i = 0; i < tries; i++)
            judge(name, text, right, (Mutation)what, places[tries > 1 ? (int)((int64_t)i * (n - 1) / (tries - 1)) : 0],
                  &score);
    }
    hd_ctx_free(cx);
    printf("%-40s %5d mutants, %5d caught, %4d equal, %d excused\n", name, score.mutants, score.caught, score.same,
           score.excused);
    CHECK(sampled() || score.caught > score.mutants / 2); // a few kinds alone may all leave the bits as they are
    CHECK(score.excused <= 4);
}

// --- plans

static const Case cases[] = {
    {"one rank", "tiny", "", 16},
    {"one rank, three micro-batches", "tiny", "train.accumulate=3", 16},
    {"one rank, weight gradients beside", "tiny", "schedule.overlap_grads=on layers=2", 16},
    {"three micro-batches, weight gradients beside", "gpt2", "schedule.overlap_grads=on train.accumulate=3 layers=2",
     SOME},
    {"zero3, 2 ranks, weight gradients beside", "gpt2",
     "schedule.overlap_grads=on schedule.fsdp=zero3 schedule.mesh.shard=2 layers=2", SOME},
    {"none, 2 ranks", "tiny", "schedule.fsdp=none schedule.mesh.shard=2 layers=2", SOME},
    {"none, 2 x 2 ranks, four micro-batches", "tiny",
     "schedule.fsdp=none schedule.mesh.shard=2 schedule.mesh.replicate=2 train.accumulate=4", SOME},
    {"zero1, 3 ranks, no clipping", "tiny", "schedule.fsdp=zero1 schedule.mesh.shard=3 train.clip=0 layers=2", SOME},
    {"none, 2 ranks, three micro-batches, reduced last", "tiny",
     "schedule.fsdp=none schedule.mesh.shard=2 train.accumulate=3 train.reduce=last layers=2", SOME},
    {"zero1, 2 ranks, two micro-batches, reduced last", "tiny",
     "schedule.fsdp=zero1 schedule.mesh.shard=2 train.accumulate=2 train.reduce=last layers=2", SOME},
    {"zero2, 2 ranks, two micro-batches, no clipping", "tiny",
     "schedule.fsdp=zero2 schedule.mesh.shard=2 train.accumulate=2 train.clip=0 layers=2", SOME},
    {"zero2, 2 x 2 ranks", "tiny", "schedule.fsdp=zero2 schedule.mesh.shard=2 schedule.mesh.replicate=2 layers=2",
     SOME},
    {"zero2, replicas only", "tiny", "schedule.fsdp=zero2 schedule.mesh.replicate=2 train.accumulate=2", SOME},
    {"zero3, 2 ranks", "tiny", "schedule.fsdp=zero3 schedule.mesh.shard=2 layers=3", SOME},
    {"zero3, 2 ranks, gathers in one byte", "llama",
     "schedule.fsdp=zero3 schedule.mesh.shard=2 layers=3 dim=32 hidden=48 train.fp8=Block train.gather=fp8",
     SOME},
    {"zero3, 2 x 2 ranks, gathers in one byte with a scale for each weight", "llama",
     "schedule.fsdp=zero3 schedule.mesh.shard=2 schedule.mesh.replicate=2 layers=3 dim=32 hidden=48 train.fp8=Block "
     "train.gather=fp8 train.fp8.scale=tensor train.fp8.backward=e4m3 train.fp8.weights=once",
     SOME},
    {"zero3, 2 ranks, gradients in bf16, two micro-batches", "llama",
     "schedule.fsdp=zero3 schedule.mesh.shard=2 train.accumulate=2 layers=3 train.compute=bf16 train.grad=bf16 "
     "train.precision.reduce=bf16",
     SOME},
    {"zero3, 4 ranks, no clipping, prefetch 0", "tiny",
     "schedule.fsdp=zero3 schedule.mesh.shard=4 train.clip=0 schedule.fsdp.prefetch=0 schedule.fsdp.live_grads=1 "
     "layers=2",
     SOME},
    {"zero3, 2 x 2 ranks, three micro-batches", "tiny",
     "schedule.fsdp=zero3 schedule.mesh.shard=2 schedule.mesh.replicate=2 train.accumulate=3 layers=2", SOME},
    {"zero3, 2 ranks, four micro-batches that overlap", "tiny",
     "schedule.fsdp=zero3 schedule.mesh.shard=2 train.accumulate=4 schedule.graph=none layers=2", 8},
    {"zero2, 2 x 2 ranks, two micro-batches that overlap, live_grads 1", "tiny",
     "schedule.fsdp=zero2 schedule.mesh.shard=2 schedule.mesh.replicate=2 train.accumulate=2 schedule.graph=none "
     "schedule.fsdp.live_grads=1 layers=2",
     SOME},
    {"zero3, 2 ranks, two micro-batches, reduced last", "tiny",
     "schedule.fsdp=zero3 schedule.mesh.shard=2 train.accumulate=2 train.reduce=last layers=2", SOME},
    {"tree, one rank, four micro-batches", "tiny", "train.reduce=tree train.accumulate=4", 8},
    {"tree, zero3, 2 ranks, four micro-batches", "tiny",
     "train.reduce=tree train.accumulate=4 schedule.fsdp=zero3 schedule.mesh.shard=2 schedule.graph=none", SOME},
    {"tree, none, 2 x 2 ranks, two micro-batches", "tiny",
     "train.reduce=tree train.accumulate=2 schedule.mesh.shard=2 schedule.mesh.replicate=2", SOME},
    {"zero3, bf16, units inside units", "gpt2",
     "schedule.fsdp=zero3 schedule.mesh.shard=2 schedule.fsdp.unit=Block,Mlp layers=2", SOME},
    {"zero3, bf16, from master weights", "gpt2",
     "schedule.fsdp=zero3 schedule.mesh.shard=2 schedule.fsdp.weights=master schedule.fsdp.unit=Block layers=2", SOME},
    {"zero1, bf16, from master weights, 2 x 2 ranks, two micro-batches", "gpt2",
     "schedule.fsdp=zero1 schedule.mesh.shard=2 schedule.mesh.replicate=2 schedule.fsdp.weights=master "
     "train.accumulate=2 schedule.graph=none layers=2",
     SOME},
    {"zero3, own head, two micro-batches", "llama",
     "schedule.fsdp=zero3 schedule.mesh.shard=2 train.accumulate=2 schedule.fsdp.prefetch=2 layers=2", SOME},
    {"zero2, own head, 3 ranks", "llama", "schedule.fsdp=zero2 schedule.mesh.shard=3 layers=1", SOME},
    {"zero3, 2 ranks, two micro-batches, graphs of units", "tiny",
     "schedule.fsdp=zero3 schedule.mesh.shard=2 train.accumulate=2 schedule.graph=unit layers=2", 2 * SOME},
    {"zero3, 2 ranks, graphs of places", "gpt2",
     "schedule.fsdp=zero3 schedule.mesh.shard=2 schedule.graph=Block.attn,Block.mlp schedule.fsdp.prefetch=0 layers=2",
     SOME},
    {"zero1, 2 x 2 ranks, graphs of units", "tiny",
     "schedule.fsdp=zero1 schedule.mesh.shard=2 schedule.mesh.replicate=2 schedule.graph=unit layers=2", SOME},
    {"f16, zero2, 2 ranks", "tiny",
     "train.compute=f16 schedule.fsdp=zero2 schedule.mesh.shard=2 train.accumulate=2", SOME},
    {"outliers, one rank, two micro-batches", "tiny", "train.skip_loss_z=5 train.accumulate=2 train.clip=0", SOME},
    {"outliers, zero3, 2 ranks", "tiny",
     "train.skip_norm_z=5 schedule.fsdp=zero3 schedule.mesh.shard=2 train.accumulate=2 schedule.graph=none", SOME},
    {"two losses, three micro-batches", "losses", "train.accumulate=3", 16},
    {"two losses, zero3, 2 ranks", "losses", "schedule.fsdp=zero3 schedule.mesh.shard=2 train.accumulate=2", SOME},
    {"two losses, bf16, zero1, 2 x 2 ranks", "losses",
     "train.compute=bf16 schedule.fsdp=zero1 schedule.mesh.shard=2 schedule.mesh.replicate=2", SOME},
    {"a loss over rows, three micro-batches", "rows", "train.accumulate=3", 16},
    {"a loss over rows, zero3, 2 ranks", "rows", "schedule.fsdp=zero3 schedule.mesh.shard=2", SOME},
    {"offload, two micro-batches", "tiny",
     "schedule.offload=Block schedule.margin=0 schedule.min_size=0 train.accumulate=2 layers=2", 12},
    {"offload and recomputation, zero3, 2 ranks", "gpt2",
     "schedule.offload=Block.attn,Block.ln2 schedule.recompute=Block schedule.margin=0 schedule.min_size=0 "
     "schedule.fsdp=zero3 schedule.mesh.shard=2 layers=3",
     SOME},
    {"dropout", "gpt2", "drop=0.1 schedule.recompute=none layers=2", 16},
    {"dropout, computed again, two micro-batches", "gpt2",
     "drop=0.1 schedule.recompute=Block train.accumulate=2 layers=2", 16},
    {"dropout, computed again in part, zero3, 2 ranks", "gpt2",
     "drop=0.1 schedule.recompute=Block.attn schedule.fsdp=zero3 schedule.mesh.shard=2 layers=2", SOME},
    {"zero1, bf16, 2 x 2 ranks", "gpt2", "schedule.fsdp=zero1 schedule.mesh.shard=2 schedule.mesh.replicate=2 layers=1",
     SOME},
};

TEST(training) {
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Ctx *cx = hd_ctx_new();
        try_mutants(cases[i].name, case_plan(cx, &cases[i], 0), cases[i].most);
        hd_ctx_free(cx);
    }
}

// Every storage has bytes of its own before and after it.
TEST(guarded) {
    static const Case guarded[] = {
        {"guard, one rank, two micro-batches", "tiny", "train.accumulate=2", SOME},
        {"guard, zero3, 2 ranks, two micro-batches that overlap", "tiny",
         "schedule.fsdp=zero3 schedule.mesh.shard=2 train.accumulate=2 schedule.graph=none layers=2", SOME},
        {"guard, offload", "tiny", "schedule.offload=Block schedule.margin=0 schedule.min_size=0 layers=2", SOME},
    };
    for (int i = 0; i < 3; i++) {
        Ctx *cx = hd_ctx_new();
        try_mutants(guarded[i].name, case_plan(cx, &guarded[i], 256 << i), guarded[i].most);
        hd_ctx_free(cx);
    }
}

static void try_file(const char *name, const char *path, const char *pipeline) {
    Ctx *cx = hd_ctx_new();
    size_t n = 0;
    const char *text = hd_read_file(cx->arena, path, &n);
    CHECK(text != NULL);
    if (text) try_mutants(name, plan_text(cx, parse(cx, text), pipeline, 0), 16);
    hd_ctx_free(cx);
}

TEST(three_streams) {
    try_file("streams written by hand", HEDDLE_SOURCE "/tests/unit/plans/streams.hir", "sync,plan-memory,verify-plan");
}

TEST(collectives_of_values) {
    try_file("collectives of values", HEDDLE_SOURCE "/tests/unit/plans/values.hir",
             "schedule,sync,plan-memory,verify-plan");
}

TEST(odd_addresses) {
    try_file("odd addresses", HEDDLE_SOURCE "/tests/unit/plans/odd.hir", "schedule,sync,plan-memory,verify-plan");
}

int main(int argc, char **argv) {
    int failed = run_tests(argc, argv);
    Score all = {0};
    for (int i = 0; i < N_MUTATIONS; i++) {
        const Score *s = &scores[i];
        printf("%-46s %5d mutants, %5d caught, %4d equal, %d excused\n", mutation_info[i].text, s->mutants, s->caught,
               s->same, s->excused);
        all.mutants += s->mutants;
        all.caught += s->caught;
        all.same += s->same;
    }
    printf("%d kinds: %d mutants, %d caught, %d equal\n", (int)N_MUTATIONS, all.mutants, all.caught, all.same);
    if (failed) fprintf(stderr, "part %s; HEDDLE_TEST_PART names one\n", test_part());
    return failed;
}
