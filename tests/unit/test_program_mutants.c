// verify-plan against mutants of what plans compute. Plans that are right are changed in one place
// (program_mutations.h). Every mutant then runs on the reference evaluator, all ranks in step: two steps of training
// and a validation. One that verify-plan lets through must leave the same bits as the plan. One that it calls another
// program and that leaves the same bits is a false alarm: each is printed, and there may be few of them. (The evaluator
// knows no addresses: what else verify-plan refuses may well be wrong in memory.)
//
// Every kind of mutation at some places of each plan, spread evenly; the argument `all` takes many more, of which
// HEDDLE_TEST_PART=N takes each seventh.
#include "frontend/frontend.h"
#include "ir/eval/eval.h"
#include "ir/mesh.h"
#include "passes/manager/manager.h"
#include "passes/verify/verify_plan.h"
#include "tests/unit/check.h"
#include "tests/unit/hashes.h"
#include "tests/unit/part.h"
#include "tests/unit/program_mutations.h"
#include <math.h>

typedef struct { int mutants, caught, same, alarms; } Score;
static Score scores[N_MUTATIONS];
// Of the present case: no data show all that it computes, so an equal result of a mutant that is refused is no alarm.
// Scales are exact maxima, so that no element saturates, whatever the kernels that count such elements compare.
static bool blind;
static int places_of_kind = 3; // at most, in each plan
static bool in_turns;          // whether places are parted

static double uniform(uint64_t h) { return (double)(mix(h, 1) >> 11) * 0x1p-52 - 1; } // -1 to 1

// --- the machine

enum { MOST_RANKS = 4, MOST_ARGUMENTS = 4 };
typedef struct {
    const Module *m;
    Arena *a;
    Eval *e[MOST_RANKS];
    int ranks, batch;
} Run;

// The start values of a program depend on how a parameter is declared.
static double initial(const Symbol *p, int64_t i) {
    const uint64_t h = mix(mix((uint64_t)hd_int(&p->attrs, A_INDEX, 0), (uint64_t)i), hash_text(p->name));
    const char *init = hd_word(&p->attrs, A_INIT, "");
    const double by = hd_float(&p->attrs, A_STD, 1);
    const double v = !strcmp(init, "zeros") ? 0.01 : !strcmp(init, "ones") ? 1 : 0;
    return (double)(float)(v + (0.1 + by) * uniform(h));
}

static void fill_part(Run *r, const Symbol *p, const Symbol *bucket, AttrId part, int rank) {
    const Symbol *b = hd_symbol_find(r->m, hd_word(&bucket->attrs, part, ""));
    const Mesh mesh = hd_mesh(r->m);
    if (!b) return;
    const int64_t n = hd_type_count(b->type), first = hd_int(&p->attrs, A_OFFSET, 0);
    const int64_t number = hd_mesh_number(&mesh, hd_axes(&b->attrs, A_SPLIT), rank);
    const int64_t from = n == hd_type_count(bucket->type) ? 0 : number * n;
    double *to = hd_eval_storage(r->e[rank], b->name).data;
    for (int64_t i = 0; i < hd_type_count(p->type); i++)
        if (first + i >= from && first + i < from + n)
            to[first + i - from] = hd_round(b->type->dtype, initial(p, i));
}

static void fill_weights(Run *r) {
    static const AttrId parts[] = {A_MASTER_WEIGHTS, A_WEIGHTS, A_NEXT};
    for (const Symbol *p = r->m->symbols; p; p = p->next) {
        const Symbol *bucket = p->kind == SYM_PARAM ? hd_symbol_find(r->m, hd_word(&p->attrs, A_BUCKET, "")) : NULL;
        for (int i = 0; bucket && i < 3 * r->ranks; i++) fill_part(r, p, bucket, parts[i % 3], i / 3);
    }
}

static bool call(Run *r, const Func *f) { // each argument by its name
    Tensor in[MOST_RANKS][MOST_ARGUMENTS], out[MOST_RANKS][HD_MAX_OUT];
    const Tensor *ins[MOST_RANKS];
    Tensor *outs[MOST_RANKS];
    if (f->n_args > MOST_ARGUMENTS) return false;
    for (int k = 0; k < r->ranks; k++) {
        r->batch += f->n_args > 0;
        for (int i = 0; i < f->n_args; i++) {
            const uint64_t h = mix(hash_text(f->args[i]->name), (uint64_t)r->batch);
            const bool whole = !hd_dtype_is_float(f->args[i]->type->dtype);
            in[k][i] = hd_tensor(r->a, f->args[i]->type);
            for (int64_t j = 0; j < hd_type_count(f->args[i]->type); j++) {
                const uint64_t at = mix(h, (uint64_t)j);
                in[k][i].data[j] = whole ? (double)(at % 16) : (double)(float)uniform(at);
            }
        }
        ins[k] = in[k], outs[k] = out[k];
    }
    return hd_eval_ranks(r->e, r->ranks, f, ins, outs) == NULL;
}

static bool run_declared(Run *r, KindId kind) {
    const Symbol *step = hd_step(r->m, kind);
    const Func *f;
    int64_t times;
    bool good = true;
    for (int i = 0; (f = hd_segment(r->m, step, i, &times)); i++)
        for (int64_t k = 0; good && k < times; k++) good = call(r, f);
    return good;
}

static uint64_t digest(const Run *r) {
    uint64_t h = 1;
    for (const Symbol *s = r->m->symbols; s; s = s->next) {
        const bool kept = s->kind == SYM_BUFFER && !hd_has(&s->attrs, A_TRANSIENT);
        for (int k = 0; kept && k < r->ranks; k++) {
            const Tensor t = hd_eval_storage(r->e[k], s->name);
            for (int64_t i = 0; i < hd_type_count(t.type); i++) {
                uint64_t bits;
                memcpy(&bits, &t.data[i], sizeof bits);
                h = mix(h, bits);
            }
        }
    }
    const Symbol *model = hd_symbol_find(r->m, "model");
    return mix(mix(h, (uint64_t)hd_int(&model->attrs, A_VOCAB, 0)), (uint64_t)hd_int(&model->attrs, A_SEQ, 0));
}

// Of all that two steps and a validation leave; 0: the plan does not run.
static uint64_t run_plan(const Module *m) {
    Run r = {.m = m, .a = hd_arena_new()};
    const Mesh mesh = hd_mesh(m);
    uint64_t h = 0;
    r.ranks = (int)hd_mesh_ranks(&mesh, HD_ALL_AXES);
    for (int k = 0; k < r.ranks; k++) r.e[k] = hd_eval_new(m, EVAL_ROUNDED, r.a);
    fill_weights(&r);
    if (run_declared(&r, KIND_TRAIN) && run_declared(&r, KIND_TRAIN)) {
        h = digest(&r);
        h = run_declared(&r, KIND_EVAL) ? mix(h, digest(&r)) : 0;
    }
    hd_arena_free(r.a);
    return h;
}

// --- mutants

static Module *parse(Ctx *cx, const char *text) {
    uint32_t base = hd_source_add(&cx->diags, "plan", text, strlen(text), 1);
    return hd_parse_module(cx, text, strlen(text), base);
}

static void show(const char *name, const char *text, Mutation what, int site, const char *says) {
    Ctx *cx = hd_ctx_new();
    const Module *m = parse(cx, text);
    const MutationPlace at = mutation_info[what].at;
    const Op *o = at == AT_OP || at == AT_KERNEL_OP ? nth_op(m, at == AT_KERNEL_OP, site) : NULL;
    Out t = hd_out(cx->arena);
    if (o) hd_printf(&t, "@%s: ", o->func->name), hd_print_op(o, &t);
    fprintf(stderr, "%s: mutant '%s' at %d (%s) %s\n", name, mutation_info[what].text, site, t.text ? t.text : "",
            says);
    hd_ctx_free(cx);
}

// Of a plan and what it leaves. A copy in which a mutation found no place serves for the next one.
typedef struct {
    const char *name, *text;
    uint64_t right;
    Ctx *cx;
    Module *copy;
    Score score;
} Plan;

// Whether the mutation fits there.
static bool judge(Plan *p, Mutation what, int site) {
    if (!p->copy) p->copy = parse(p->cx = hd_ctx_new(), p->text);
    Module *m = p->copy;
    if (!mutate(m, what, site, mix((uint64_t)site, (uint64_t)what))) return false;
    for (Func *f = m->funcs; f; f = f->next) hd_renumber(f);
    const bool valid = hd_verify(m);
    const Findings found = valid ? hd_check_plan(m, p->cx->arena, NULL) : (Findings){0};
    const bool caught = !valid || found.n, same = valid && run_plan(m) == p->right;
    const bool alarm = same && !blind && found.n && strstr(found.at[0].text, "computes another program");
    Score *of[] = {&p->score, &scores[what]};
    for (int i = 0; i < 2; i++) {
        of[i]->mutants++;
        of[i]->caught += caught;
        of[i]->same += same && !caught;
        of[i]->alarms += alarm;
    }
    if (!caught && !same) {
        show(p->name, p->text, what, site, "passes verify-plan and computes something else");
        test_failures++;
    }
    if (alarm) show(p->name, p->text, what, site, "is refused and computes the same");
    hd_ctx_free(p->cx);
    p->copy = NULL;
    return true;
}

// About 5/13 of n places, with no factor in common with n: steps of it reach each place once.
static int step_over(int n) {
    int step = n * 5 / 13 + 1, a, b;
    do {
        step++;
        for (a = n, b = step; b;) {
            const int rest = a % b;
            a = b, b = rest;
        }
    } while (a > 1);
    return step;
}

static void try_mutants(const char *name, const char *text) {
    Ctx *cx = hd_ctx_new();
    const Module *m = text ? parse(cx, text) : NULL;
    CHECK(m && hd_verify(m) && hd_check_plan(m, cx->arena, NULL).n == 0);
    Plan p = {.name = name, .text = text, .right = m ? run_plan(m) : 0};
    CHECK(p.right != 0);
    for (int what = 0; m && what < N_MUTATIONS; what++) {
        // places are tried in an order that jumps through the plan, until enough of them fit
        const int n = count_places(m, (Mutation)what), step = step_over(n);
        const int64_t start = n ? (int64_t)(mix(hash_text(name), (uint64_t)what) % (uint64_t)n) : 0;
        for (int i = 0, found = 0; i < n && found < places_of_kind; i++)
            if (!in_turns || in_part((size_t)i + (size_t)what))
                found += judge(&p, (Mutation)what, (int)((start + (int64_t)i * step) % n));
    }
    const Score score = p.score;
    if (p.copy) hd_ctx_free(p.cx);
    hd_ctx_free(cx);
    printf("%-46s %5d mutants, %5d caught, %4d equal, %d alarms\n", name, score.mutants, score.caught, score.same,
           score.alarms);
    CHECK(score.caught > score.mutants / 2);
}

// --- plans

enum { MOST_SETS = 16 };
typedef struct { const char *name, *example, *sets; } Case;
static const Case cases[] = {
    {"one rank", "tiny", "layers=2"},
    {"one rank, four micro-batches", "tiny", "train.accumulate=4"},
    {"bf16, tied head", "gpt2", "layers=2"},
    {"bf16, own head, rope", "llama", "train.accumulate=2"},
    {"bf16, window", "llama", "window=2 train.accumulate=2"},
    {"merged products", "llama", "train.products=merged"},
    {"merged products, zero3, 2 ranks", "llama",
     "train.products=merged schedule.fsdp=zero3 schedule.mesh.shard=2 schedule.recompute=Block.attn"},
    {"zero3, 2 ranks, three micro-batches", "tiny", "schedule.fsdp=zero3 schedule.mesh.shard=2 train.accumulate=3"},
    {"zero2, bf16, 2 ranks", "gpt2", "schedule.fsdp=zero2 schedule.mesh.shard=2"},
    {"none, 2 x 2 ranks", "tiny", "schedule.fsdp=none schedule.mesh.shard=2 schedule.mesh.replicate=2"},
    {"dropout, computed again", "gpt2", "drop=0.1 schedule.recompute=Block layers=2"},
    {"offload and recomputation", "gpt2",
     "schedule.offload=Block.attn,Block.ln2 schedule.recompute=Block schedule.margin=0 schedule.min_size=0 layers=2"},
    {"two losses, two micro-batches", "losses", "train.accumulate=2"},
    {"further results, two micro-batches, 2 ranks", "results",
     "train.accumulate=2 schedule.fsdp=zero2 schedule.mesh.shard=2"},
    {"documents", "packed", ""},
    {"documents, bf16, two micro-batches", "packed", "train.compute=bf16 train.accumulate=2"},
    {"a loss over rows", "rows", "train.compute=bf16"},
    {"experts", "mixture", ""},
    {"experts, bf16, two micro-batches, 2 ranks", "mixture",
     "train.compute=bf16 train.accumulate=2 schedule.fsdp=zero2 schedule.mesh.shard=2"},
    {"values moved about", "moves", ""},
    {"values moved about, bf16, zero1, 2 ranks", "moves",
     "train.compute=bf16 schedule.fsdp=zero1 schedule.mesh.shard=2"},
    {"e4m3 products, bf16", "gpt2", "dim=16 train.fp8=Block.mlp,Block.attn"},
    {"e4m3 products, counted, two micro-batches, 2 ranks", "gpt2",
     "dim=16 train.fp8=Block.mlp train.fp8.backward=e5m2 train.accumulate=2 schedule.fp8_counts=on "
     "schedule.fsdp=zero2 schedule.mesh.shard=2"},
    {"e4m3 products, scales of tensors, e5m2 gradients", "gpt2",
     "dim=16 train.fp8=Block train.fp8.scale=tensor train.fp8.backward=e5m2"},
    {"e4m3 products, zero3, 2 ranks, computed again", "llama",
     "dim=16 hidden=16 train.compute=bf16 train.fp8=Block train.fp8.except=Block.attn train.fp8.backward=e4m3 "
     "train.products=merged schedule.fsdp=zero3 schedule.mesh.shard=2 "
     "schedule.recompute=Block.mlp"},
    {"e4m3 products, gradients of weights too, merged", "llama",
     "dim=32 hidden=16 train.batch=4 train.compute=bf16 train.fp8=Block train.fp8.backward=e4m3 "
     "train.fp8.weight_grads=fp8 train.products=merged"},
    {"e4m3 products, a weight in one form, merged, zero3, 2 ranks", "llama",
     "dim=32 hidden=16 train.batch=4 train.compute=bf16 train.fp8=Block train.fp8.backward=e4m3 "
     "train.fp8.weights=once train.fp8.weight_grads=fp8 train.products=merged schedule.fsdp=zero3 "
     "schedule.mesh.shard=2"},
    {"e4m3 products, gradients of weights too, scales of tensors", "gpt2",
     "dim=16 train.batch=4 train.compute=bf16 train.fp8=Block.mlp train.fp8.scale=tensor train.fp8.backward=e4m3 "
     "train.fp8.weight_grads=fp8 train.fp8.weights=once train.accumulate=2 train.gather=fp8 layers=2 "
     "schedule.fsdp=zero3 schedule.mesh.shard=2"},
    {"e4m3 products, scales of blocks", "blocks", "dim=128 train.batch=32"},
};

static int split(Arena *a, const char *text, SetOption *sets, int n) {
    while (*text) {
        const size_t len = strcspn(text, " ");
        if (len && n < MOST_SETS) sets[n++] = (SetOption){hd_sprintf(a, "%.*s", (int)len, text)};
        text += len + (text[len] == ' ');
    }
    return n;
}

static const char *plan_of(Ctx *cx, const Case *c) {
    const bool llama = !strcmp(c->example, "llama"), gpt = !strcmp(c->example, "gpt2") || !strcmp(c->example, "tiny");
    const bool own = !llama && !gpt;
    const char *path = own ? hd_sprintf(cx->arena, HEDDLE_SOURCE "/tests/unit/plans/%s.hd", c->example)
                           : hd_sprintf(cx->arena, HEDDLE_SOURCE "/examples/%s/%s.hd", c->example, c->example);
    SetOption sets[MOST_SETS];
    int n = split(cx->arena, llama ? "layers=1 dim=8 heads=2 kv_heads=1 hidden=8" : "layers=1 dim=8 heads=2", sets, 0);
    n = split(cx->arena, "seq=4 vocab=16 train.batch=2 train.warmup=0 schedule.fsdp.unit=Block", sets, n);
    n = split(cx->arena, c->sets, sets, n);
    size_t len = 0;
    const char *text = hd_read_file(cx->arena, path, &len);
    Module *m = text ? hd_frontend(cx, path, text, len, sets, n) : NULL;
    Pipeline p = {0};
    const ManagerOptions options = hd_manager_defaults();
    Out o = hd_out(cx->arena);
    if (m && hd_pipeline_parse(cx, "train", &p) && hd_manager_run(m, &p, &options)) {
        hd_print_module(m, &o);
        return o.text;
    }
    hd_diags_print(&cx->diags, &o);
    fputs(o.text, stderr);
    return NULL;
}

TEST(programs) {
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Ctx *cx = hd_ctx_new();
        blind = strstr(cases[i].sets, "fp8_counts") || !strcmp(cases[i].example, "blocks"); // zeros that nothing reads
        try_mutants(cases[i].name, plan_of(cx, &cases[i]));
        hd_ctx_free(cx);
    }
}

int main(int argc, char **argv) {
    if (argc == 2 && !strcmp(argv[1], "all")) {
        in_turns = strcmp(test_part(), "all") != 0;
        places_of_kind = in_turns ? 6 : 40;
        argc = 1;
    }
    const int failed = run_tests(argc, argv);
    Score all = {0};
    for (int i = 0; i < N_MUTATIONS; i++) {
        const Score *s = &scores[i];
        printf("%-62s %5d mutants, %5d caught, %4d equal, %d alarms\n", mutation_info[i].text, s->mutants, s->caught,
               s->same, s->alarms);
        all.mutants += s->mutants;
        all.caught += s->caught;
        all.same += s->same;
        all.alarms += s->alarms;
    }
    // One in a hundred of all. A seventh is a sample: twice the standard deviation of its share may come on top.
    const double share = all.mutants / 100.0;
    CHECK(all.alarms < share + (in_turns ? 2 * sqrt(share) : 0));
    printf("%d kinds: %d mutants, %d caught, %d equal, %d alarms\n", (int)N_MUTATIONS, all.mutants, all.caught,
           all.same, all.alarms);
    if (in_turns && (failed || test_failures)) fprintf(stderr, "part %s; HEDDLE_TEST_PART names one\n", test_part());
    return failed || test_failures;
}
