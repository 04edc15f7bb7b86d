// Pipelines as text, and what the manager does about passes that misbehave.
#include "passes/manager/manager.h"
#include "passes/manager/manager_options.h"
#include "passes/manager/reproducer.h"
#include "passes/verify/values/program.h"
#include "passes/verify/verify_plan.h"
#include "tests/unit/check.h"
#include "tests/unit/module.h"
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *echo(Ctx *cx, const char *text) { // parse and print; NULL when it does not parse
    Pipeline p = {0};
    if (!hd_pipeline_parse(cx, text, &p)) return NULL;
    Out o = hd_out(cx->arena);
    hd_pipeline_print(&p, 0, &o);
    return o.text;
}

TEST(pipelines_parse) {
    Ctx *cx = hd_ctx_new();
    CHECK_TEXT(echo(cx, ""), "");
    CHECK_TEXT(echo(cx, "  "), "");
    CHECK_TEXT(echo(cx, "cse"), "cse");
    CHECK_TEXT(echo(cx, " cse{ } ,\n dce"), "cse,dce");
    CHECK(!echo(cx, ","));
    CHECK(!echo(cx, "cse,,dce"));
    CHECK(!echo(cx, "cse{"));
    CHECK(!echo(cx, "cse}"));
    CHECK(!echo(cx, "cse{=1}"));
    CHECK_INT(cx->diags.errors, 5);
    hd_ctx_free(cx);
}

TEST(passes_are_unique) {
    for (int i = 0; i < hd_pass_count(); i++) CHECK(hd_pass_find(hd_pass_at(i)->name) == hd_pass_at(i));
    CHECK(!hd_pass_find("no-such"));
}

// --- passes of our own, run through a pipeline that was not parsed
static int64_t seen_int;

static Change read_options(Module *m, PassCx *cx) {
    (void)m;
    seen_int = hd_option_int(cx, "size", 7);
    hd_count(cx, "calls", 1);
    return UNCHANGED;
}

static Change leave_undefined(Module *m, PassCx *cx) { // the result of the first op is read after the op has gone
    (void)cx;
    hd_erase(m->funcs->first);
    return CHANGED;
}

static Change append_after_return(Module *m, PassCx *cx) { // an op of the pass's own: it stands in no text
    (void)cx;
    Builder b = {.f = m->funcs};
    hd_build1(&b, OP_NEG, m->funcs->args[0], NULL, NULL, NULL);
    return CHANGED;
}

static Change lie(Module *m, PassCx *cx) {
    (void)cx;
    hd_config(m, "train");
    return UNCHANGED;
}

static Change forget_stage(Module *m, PassCx *cx) {
    (void)m, (void)cx;
    return CHANGED;
}

static Change compute_something_else(Module *m, PassCx *cx) {
    (void)cx;
    hd_set_word(m->cx, &hd_program(m)->attrs, A_SETTINGS, "0");
    return CHANGED;
}

static Change refuse(Module *m, PassCx *cx) {
    (void)cx;
    hd_error(m->cx, (Span){0}, "refused");
    return FAILED;
}

static Change crash(Module *m, PassCx *cx) {
    (void)m, (void)cx;
    HD_BUG("on purpose");
}

static Change fault(Module *m, PassCx *cx) {
    (void)m, (void)cx;
    raise(SIGSEGV);
    return UNCHANGED;
}

static bool run(Ctx *cx, PassFn *fn, int out, PassOption *options, int n, ManagerOptions manager) {
    PassInfo info = {"probe", 15, out, "size:int", "", fn};
    PassCall calls[2] = {{.pass = &info, .options = options, .n_options = n}, {.pass = hd_pass_find("verify")}};
    Pipeline p = {2, calls};
    return hd_manager_run(test_module(cx, "exp.hir"), &p, &manager);
}

TEST(options_reach_the_pass) {
    Ctx *cx = hd_ctx_new();
    PassOption options[] = {{"size", "12", 12}};
    CHECK(run(cx, read_options, -1, NULL, 0, (ManagerOptions){0}));
    CHECK_INT(seen_int, 7);
    CHECK(run(cx, read_options, -1, options, 1, (ManagerOptions){.verify_each = true}));
    CHECK_INT(seen_int, 12);
    hd_ctx_free(cx);
}

static const char *last_error(const Ctx *cx) {
    return cx->diags.list.n ? cx->diags.list.at[cx->diags.list.n - 1].text : "";
}

TEST(what_the_model_computes_stays) {
    Ctx *cx = hd_ctx_new();
    PassInfo info = {"probe", 15, -1, "", "", compute_something_else};
    PassCall calls[] = {{.pass = hd_pass_find("autodiff")}, {.pass = hd_pass_find("fsdp")}, {.pass = &info}};
    Pipeline p = {2, calls};
    const ManagerOptions plain = {0};
    Module *m = test_module(cx, "odd.hir");
    CHECK(m && !hd_program(m) && hd_manager_run(m, &p, &plain) && hd_program(m));
    p.n = 3;
    m = test_module(cx, "odd.hir");
    CHECK(m && !hd_manager_run(m, &p, &plain));
    CHECK_TEXT(last_error(cx), "pass 'probe' changed what the model is said to compute");
    hd_ctx_free(cx);
}

TEST(a_proof_of_the_plan_ends_with_the_next_pass) {
    Ctx *cx = hd_ctx_new();
    Pipeline p = {0};
    const ManagerOptions plain = {0};
    Module *m = test_module(cx, "exp.hir");
    CHECK(m && hd_pipeline_parse(cx, "simplify", &p));
    m->proof = HD_NEW(cx->arena, PlanProof);
    CHECK(hd_manager_run(m, &p, &plain) && !m->proof);
    hd_ctx_free(cx);
}

TEST(misbehaving_passes_are_named) {
    Ctx *cx = hd_ctx_new();
    ManagerOptions checked = {.verify_each = true};
    CHECK(!run(cx, leave_undefined, -1, NULL, 0, checked));
    CHECK_TEXT(last_error(cx), "the module does not verify after pass 'probe'");
    CHECK_TEXT(cx->diags.list.at[0].text, "operand 0 is not defined before this op");
    cx->diags.list.n = 0;
    CHECK(!run(cx, append_after_return, -1, NULL, 0, checked));
    CHECK_TEXT(cx->diags.list.at[1].text,
               "in @f: %2 = neg %x : f32[4]: return must be the last op, and the last op a return");
    CHECK(!run(cx, lie, -1, NULL, 0, checked));
    CHECK_TEXT(last_error(cx), "pass 'probe' changed the module but says that it did not");
    CHECK(!run(cx, forget_stage, STAGE_PLAN, NULL, 0, checked));
    CHECK_TEXT(last_error(cx), "pass 'probe' left stage tensor, but should leave stage plan");
    CHECK(!run(cx, refuse, -1, NULL, 0, checked));
    CHECK_TEXT(last_error(cx), "refused");
    hd_ctx_free(cx);
}

// Calls `fn` in a child process in a folder of its own and reads the reproducer that the child leaves, and nothing
// else.
static const char *left_by(Arena *a, bool (*fn)(const void *), const void *data, int *status) {
    char folder[] = "unit_manager.XXXXXX";
    if (!mkdtemp(folder)) return NULL;
    pid_t child = fork();
    if (!child) {
        if (chdir(folder) || !freopen("/dev/null", "w", stderr)) _exit(9);
        for (int s = SIGABRT; s; s = s == SIGABRT ? SIGSEGV : 0) signal(s, SIG_DFL);
        _exit(fn(data) ? 0 : 1);
    }
    waitpid(child, status, 0);
    size_t n = 0;
    const char *path = hd_sprintf(a, "%s/heddle-reproducer-0.hir", folder);
    const char *got = hd_read_file(a, path, &n);
    remove(path);
    CHECK_INT(remove(folder), 0);
    return got;
}

typedef struct { PassFn *fn; const ManagerOptions *options; } Probe;
static bool run_probe(const void *data) {
    const Probe *p = data;
    return run(hd_ctx_new(), p->fn, -1, NULL, 0, *p->options);
}

static const char *reproducer_of(Arena *a, PassFn *fn, const ManagerOptions *options, int *status) {
    Probe p = {fn, options};
    return left_by(a, run_probe, &p, status);
}

// A reproducer of `pipeline` over a file of tests/unit/ir.
static const char *reproducer(Arena *a, const char *pipeline, const char *file) {
    size_t n;
    return hd_sprintf(a, "// pipeline: %s\n%s", pipeline, test_text(a, file, &n));
}

TEST(crashes_leave_a_reproducer) {
    Arena *a = hd_arena_new();
    const char *expected = reproducer(a, "probe,verify", "exp.hir");
    for (int each = 0; each < 2; each++) {
        const ManagerOptions on = {.reproducer = true, .verify_each = each};
        int status = 0;
        CHECK_TEXT(reproducer_of(a, crash, &on, &status), expected);
        CHECK(WIFSIGNALED(status) || WEXITSTATUS(status));
        CHECK_TEXT(reproducer_of(a, fault, &on, &status), expected);
        CHECK(!reproducer_of(a, refuse, &on, &status)); // an error of the user's is none of ours
    }
    const ManagerOptions checked = {.reproducer = true, .verify_each = true};
    int status = 0;
    CHECK_TEXT(reproducer_of(a, leave_undefined, &checked, &status), expected);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 1);
    hd_arena_free(a);
}

// cse, which changes the module, then a pass that fails under some name, then verify.
typedef struct { const char *name; PassFn *fn; bool verify_each; Stage out; } Second;
static bool run_second(const void *data) {
    const Second *s = data;
    Ctx *cx = hd_ctx_new();
    Module *m = test_module(cx, "two_exps.hir");
    PassInfo info = {s->name, 15, (int)s->out, "", "", s->fn};
    PassCall calls[3] = {{.pass = hd_pass_find("cse")}, {.pass = &info}, {.pass = hd_pass_find("verify")}};
    Pipeline p = {3, calls};
    return hd_manager_run(m, &p, &(ManagerOptions){.reproducer = true, .verify_each = s->verify_each});
}

static const char *second_of(Arena *a, Second s) {
    int status = 0;
    const char *got = left_by(a, run_second, &s, &status);
    CHECK(WIFSIGNALED(status) || WEXITSTATUS(status));
    return got;
}

// The process that fails has only the text before the first pass. This test binary is a driver: another process of it
// knows cse, and the name `dce`; there it is a pass that does not fail.
TEST(a_process_of_its_own_narrows_the_reproducer) {
    Arena *a = hd_arena_new();
    const char *narrow = reproducer(a, "dce,verify", "one_exp.hir");
    CHECK_TEXT(second_of(a, (Second){"dce", crash, false, STAGE_TENSOR}), narrow);
    CHECK_TEXT(second_of(a, (Second){"dce", fault, false, STAGE_TENSOR}), narrow);
    CHECK_TEXT(second_of(a, (Second){"dce", forget_stage, false, STAGE_PLAN}), narrow); // not a crash
    CHECK_TEXT(second_of(a, (Second){"dce", crash, true, STAGE_TENSOR}), narrow); // here the text was at hand
    hd_arena_free(a);
}

// Another process cannot run `probe`, not even read the pipeline.
TEST(what_cannot_be_narrowed_is_kept) {
    Arena *a = hd_arena_new();
    const char *wide = reproducer(a, "cse,probe,verify\n// fails in pass 2, 'probe'", "two_exps.hir");
    CHECK_TEXT(second_of(a, (Second){"probe", crash, false, STAGE_TENSOR}), wide);
    CHECK_TEXT(second_of(a, (Second){"probe", fault, false, STAGE_TENSOR}), wide);
    CHECK_TEXT(second_of(a, (Second){"probe", crash, true, STAGE_TENSOR}),
               reproducer(a, "probe,verify", "one_exp.hir"));
    hd_arena_free(a);
}

TEST(no_reproducer_leaves_none) {
    Arena *a = hd_arena_new();
    ManagerArgs args = hd_manager_args();
    const ArgGroup group = hd_manager_rows(0);
    char *argv[] = {"heddle-opt", "--no-reproducer"};
    int status = 0;
    CHECK(args.options.reproducer);
    CHECK_INT(hd_args_read(&(Tool){.name = "heddle-opt", .groups = &group, .n_groups = 1}, a, 2, argv, &args), -1);
    CHECK(!reproducer_of(a, crash, &args.options, &status));
    CHECK(WIFSIGNALED(status) || WEXITSTATUS(status));
    hd_arena_free(a);
}

int main(int argc, char **argv) {
    int narrowed;
    return hd_reproducer_main(argc, argv, &narrowed) ? narrowed : run_tests(argc, argv);
}
