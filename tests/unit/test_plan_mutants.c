// verify-plan against mutants. Plans that are right are changed in one place: a value, workspace, buffer or view is moved, two ops change
// places, an op is dropped or doubled, a flag or a stream is changed. A mutant that verify-plan lets through must compute what the plan
// computed, in every order tried (plan_machine.h). Excused are only changes that make a right plan of another program, which no
// verifier of plans can know: a whole contribution more or less where the others of its parameter still stand (@micro_only).
#include "frontend/frontend.h"
#include "passes/manager.h"
#include "passes/verify_plan.h"
#include "tests/unit/check.h"
#include "tests/unit/plan_machine.h"

typedef enum {
    MOVE_UP, MOVE_DOWN, MOVE_ONTO, MOVE_ALIAS, MOVE_WORKSPACE, MOVE_BUFFER, MOVE_ARGUMENT, SWAP, DROP, DOUBLE, ACCUMULATE, INPLACE, RETARGET, SHRINK, STREAM, N_MUTATIONS
} Mutation;
static const char *const mutation_text[] = {
    "move up", "move down", "move onto", "move alias", "move workspace", "move buffer", "move argument", "swap", "drop", "double", "accumulate", "inplace", "retarget", "shrink", "stream"};
enum { ORDERS = 6 };

typedef struct { int mutants, caught, same, excused; } Score;

static Module *parse(Ctx *cx, const char *text) {
    uint32_t base = hd_source_add(&cx->diags, "plan", text, strlen(text), 1);
    return hd_parse_module(cx, text, strlen(text), base);
}

static const char *plan_text(Ctx *cx, Module *m, const char *pipeline) {
    Pipeline p = {0};
    ManagerOptions options = hd_manager_defaults();
    Out o = hd_out(cx->arena);
    if (!m || !hd_pipeline_parse(cx, pipeline, &p) || !hd_manager_run(m, &p, &options)) {
        hd_diags_print(&cx->diags, &o);
        fputs(o.text, stderr);
        return NULL;
    }
    hd_print_module(m, &o);
    return o.text;
}

// The n-th op of the plan's functions.
static Op *nth_op(Module *m, int n) {
    for (Func *f = m->funcs; f; f = f->next) {
        if (f->is_kernel) continue;
        for (Op *o = f->first; o; o = o->next)
            if (n-- == 0) return o;
    }
    return NULL;
}

// Moves the storage of a value: itself, its aliases, and what is in place of it.
static bool move_storage(const Value *v, int64_t to) {
    Arena *a = hd_arena_new();
    Home *homes = hd_homes(v->func, a);
    bool own = homes[v->id].root == v;
    for (Op *o = v->func->first; own && o; o = o->next)
        for (int i = 0; i < o->n_out; i++)
            if (homes[o->out[i]->id].root == v) o->out[i]->place.offset = to;
    hd_arena_free(a);
    return own;
}

static bool reads(const Op *o, const Op *def) {
    for (int i = 0; i < o->n_in; i++)
        if (o->in[i]->def == def) return true;
    return false;
}

static bool swap_with_next(Op *o) {
    Op *p = o->next;
    if (!p || p->kind == OP_RETURN || reads(p, o)) return false;
    hd_detach(o);
    hd_insert_after(p, o);
    hd_renumber(o->func);
    return true;
}

static bool mutate_op(Module *m, Op *o, Mutation what, uint64_t random) {
    Func *f = o->func;
    Ctx *cx = m->cx;
    bool into = hd_has(&o->attrs, A_INTO), alias = hd_op_is(o, TRAIT_ALIAS | TRAIT_SOURCE);
    const Value *v = o->n_out ? o->out[random % (uint64_t)o->n_out] : NULL;
    switch (what) {
    case MOVE_UP: return v && !alias && move_storage(v, v->place.offset + 256);
    case MOVE_DOWN: return v && !alias && move_storage(v, v->place.offset - 256);
    case MOVE_ONTO: {
        const Op *other = f->first;
        for (uint64_t k = random % (uint64_t)f->n_ops; k && other->next; k--) other = other->next;
        return v && !alias && other->n_out && other != o && other->out[0]->place.offset != v->place.offset && move_storage(v, other->out[0]->place.offset);
    }
    case MOVE_ALIAS:
        if (!alias) return false;
        o->out[0]->place.offset += (random % 2) ? 256 : -64;
        return true;
    case MOVE_WORKSPACE: {
        if (hd_int(&o->attrs, A_WORKSPACE_BYTES, 0) <= 0) return false;
        const Op *other = f->first;
        for (uint64_t k = random % (uint64_t)f->n_ops; k && other->next; k--) other = other->next;
        int64_t at = hd_int(&o->attrs, A_WORKSPACE_AT, 0);
        hd_set_int(cx, &o->attrs, A_WORKSPACE_AT, other->n_out ? other->out[0]->place.offset : random % 2 ? at + 256 : at - 256);
        return true;
    }
    case SWAP: return o->kind != OP_RETURN && swap_with_next(o);
    case DROP:
        if (o->n_out || o->kind == OP_RETURN) return false;
        hd_erase(o);
        hd_renumber(f);
        return true;
    case DOUBLE:
        if (o->n_out || o->kind == OP_RETURN) return false;
        hd_insert_after(o, hd_op_clone(f, o, o->in));
        o->next->stream = o->stream;
        hd_renumber(f);
        return true;
    case ACCUMULATE:
        if (!into) return false;
        if (hd_has(&o->attrs, A_ACCUMULATE)) hd_unset(&o->attrs, A_ACCUMULATE);
        else hd_set_flag(cx, &o->attrs, A_ACCUMULATE);
        return true;
    case INPLACE:
        if (hd_has(&o->attrs, A_INPLACE) && random % 2) hd_unset(&o->attrs, A_INPLACE);
        else if (hd_has(&o->attrs, A_INPLACE)) hd_set_int(cx, &o->attrs, A_INPLACE, hd_int(&o->attrs, A_INPLACE, 0) + 1);
        else if (o->kind == OP_STORE || o->kind == OP_LAUNCH || o->kind == OP_CROSS_ENTROPY_GRAD) hd_set_int(cx, &o->attrs, A_INPLACE, 0);
        else return false;
        return true;
    case RETARGET: { // elsewhere in its buffer; a view keeps its address, so the two disagree
        const Symbol *b = hd_symbol_find(m, hd_word(&o->attrs, into ? A_INTO : A_BUFFER, ""));
        if (!hd_has(&o->attrs, A_OFFSET) || !b || hd_type_count(b->type) < 128) return false;
        int64_t at = hd_int(&o->attrs, A_OFFSET, 0);
        hd_set_int(cx, &o->attrs, A_OFFSET, at >= 64 ? at - 64 : at + 64);
        return true;
    }
    case STREAM: {
        const char *other = NULL;
        for (const Symbol *s = m->symbols; s; s = s->next)
            if (s->kind == SYM_STREAM && strcmp(s->name, o->stream) != 0 && (!other || random % 2)) other = s->name;
        if (!other) return false;
        o->stream = other;
        return true;
    }
    default: return false;
    }
}

static Symbol *nth_buffer(Module *m, int n) {
    for (Symbol *s = m->symbols; s; s = s->next)
        if (s->kind == SYM_BUFFER && n-- == 0) return s;
    return NULL;
}

// Applies a mutation at one of its places. false: nothing to change there. *more: there are further places.
static bool mutate(Module *m, Mutation what, int site, uint64_t random, bool *more) {
    Symbol *arena = hd_symbol_find(m, "device");
    *more = true;
    if (what == SHRINK) {
        *more = site < 1;
        hd_set_int(m->cx, &arena->attrs, site ? A_PERSISTENT_BYTES : A_BYTES, hd_int(&arena->attrs, site ? A_PERSISTENT_BYTES : A_BYTES, 0) - 256);
        return true;
    }
    if (what == MOVE_BUFFER) {
        Symbol *s = nth_buffer(m, site);
        *more = s != NULL;
        if (s) s->place.offset += random % 2 ? 256 : -256;
        return s != NULL;
    }
    if (what == MOVE_ARGUMENT) {
        int n = site;
        for (Func *f = m->funcs; f; f = f->next) {
            if (f->is_kernel) continue;
            if (n < f->n_args) {
                f->args[n]->place.offset += random % 2 ? 256 : -256;
                return true;
            }
            n -= f->n_args;
        }
        return *more = false;
    }
    Op *o = nth_op(m, site);
    *more = o != NULL;
    return o && mutate_op(m, o, what, random);
}

// The same program but for whole contributions: one more or less addition to a gradient that other contributions still cover.
static bool other_program(const char *text, Mutation what, int site) {
    if (what != DROP && what != DOUBLE) return false;
    Ctx *cx = hd_ctx_new();
    const Op *o = nth_op(parse(cx, text), site);
    bool excused = hd_has(&o->attrs, A_ACCUMULATE) && strcmp(o->func->name, "micro_only") == 0;
    hd_ctx_free(cx);
    return excused;
}

static void judge(const char *name, const char *text, const uint64_t *right, int orders, Mutation what, int site, uint64_t random, bool *more, Score *score) {
    Ctx *cx = hd_ctx_new();
    Module *m = parse(cx, text);
    if (mutate(m, what, site, random, more)) {
        score->mutants++;
        Arena *a = hd_arena_new();
        bool caught = hd_check_plan(m, a).n > 0;
        bool same = true;
        for (int k = 0; !caught && same && k < orders; k++) same = run_plan(m, k) == *right;
        score->caught += caught;
        score->same += !caught && same;
        if (!caught && !same && other_program(text, what, site)) score->excused++;
        else if (!caught && !same) {
            const Op *o = nth_op(parse(cx, text), site); // as it was
            Out t = hd_out(a);
            if (o) hd_print_op(o, &t);
            fprintf(stderr, "%s: mutant '%s' at %d (%s) passes verify-plan and computes something else\n", name, mutation_text[what], site, t.text);
            test_failures++;
        }
        hd_arena_free(a);
    }
    hd_ctx_free(cx);
}

static void try_mutants(const char *name, const char *text, int orders) {
    CHECK(text != NULL);
    if (!text) return;
    Ctx *cx = hd_ctx_new();
    Module *m = parse(cx, text);
    CHECK(m && hd_check_plan(m, cx->arena).n == 0);
    uint64_t right = run_plan(m, 0);
    CHECK(right != 0);
    for (int k = 1; k < orders; k++) CHECK(run_plan(m, k) == right); // every order that the plan allows
    hd_ctx_free(cx);
    Score score = {0};
    for (int what = 0; what < N_MUTATIONS; what++) {
        bool more = true;
        for (int site = 0; more; site++) judge(name, text, &right, orders, (Mutation)what, site, mix((uint64_t)site, (uint64_t)what), &more, &score);
    }
    printf("%s: %d mutants, %d caught, %d equal, %d excused\n", name, score.mutants, score.caught, score.same, score.excused);
    CHECK(score.caught > score.mutants / 2);
    CHECK(score.excused <= 4);
}

static const char *train_plan(Ctx *cx, const char *path, int n_sets, const SetOption *sets) {
    size_t n = 0;
    const char *text = hd_read_file(cx->arena, path, &n);
    CHECK(text != NULL);
    return text ? plan_text(cx, hd_frontend(cx, path, text, n, sets, n_sets), "train") : NULL;
}

TEST(training_one_micro_batch) {
    Ctx *cx = hd_ctx_new();
    static const SetOption sets[] = {{"layers=1"}, {"dim=16"}, {"heads=2"}, {"seq=8"}, {"vocab=32"}, {"train.batch=2"}};
    try_mutants("tiny", train_plan(cx, HEDDLE_SOURCE "/examples/tiny/tiny.hd", 6, sets), 1);
    hd_ctx_free(cx);
}

TEST(training_three_micro_batches) {
    Ctx *cx = hd_ctx_new();
    static const SetOption sets[] = {{"layers=1"}, {"dim=16"}, {"heads=2"}, {"seq=8"}, {"vocab=32"}, {"train.batch=2"}, {"train.accumulate=3"}};
    try_mutants("tiny, accumulating", train_plan(cx, HEDDLE_SOURCE "/examples/tiny/tiny.hd", 7, sets), 1);
    hd_ctx_free(cx);
}

TEST(three_streams) {
    Ctx *cx = hd_ctx_new();
    size_t n = 0;
    const char *text = hd_read_file(cx->arena, HEDDLE_SOURCE "/tests/unit/plans/streams.hir", &n);
    CHECK(text != NULL);
    if (text) try_mutants("streams", plan_text(cx, parse(cx, text), "sync,plan-memory,verify-plan"), ORDERS);
    hd_ctx_free(cx);
}

int main(int argc, char **argv) { return run_tests(argc, argv); }
