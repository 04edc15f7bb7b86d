// The pass manager. One loop runs a pipeline and does everything around the passes.
#include "passes/manager/manager.h"
#include "passes/manager/reproducer.h"
#include "passes/tensor/tensor_parallel.h"
#include "passes/verify/values/program.h"
#include "ir/base/clock.h"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

typedef struct { const char *pass, *what; int64_t n; } Counter;
struct PassCounter { Arena *arena; VEC(Counter) list; };

void hd_count(PassCx *cx, const char *what, int64_t n) {
    struct PassCounter *c = cx->counters;
    if (!c) return; // a pass runs it to see what it does
    const char *pass = cx->call->pass->name;
    for (int i = 0; i < c->list.n; i++)
        if (c->list.at[i].pass == pass && !strcmp(c->list.at[i].what, what)) {
            c->list.at[i].n += n;
            return;
        }
    Counter fresh = {pass, what, n};
    hd_push(c->arena, &c->list, fresh);
}

Change hd_pass_verify(Module *m, PassCx *cx) {
    (void)cx;
    return hd_verify(m) ? UNCHANGED : FAILED;
}

ManagerOptions hd_manager_defaults(void) {
#ifdef HEDDLE_CHECKED
    return (ManagerOptions){.verify_each = true, .reproducer = true};
#else
    return (ManagerOptions){.reproducer = true};
#endif
}

typedef struct PipelineRun {
    Module *m;
    const Pipeline *p;
    const ManagerOptions *options;
    Arena *arena; // lives as long as the run
    struct PassCounter counters;
    double *seconds; // by pass of the pipeline
    const char *grown; // see hd_grown
    Arena *texts;    // holds `before`
    Attrs program;   // of the symbol that it was given; none: no pass has needed one
    Out before;      // the module before the first pass; under verify_each, before the present pass
} PipelineRun;

static bool names(const char *list, const char *name) {
    size_t n = strlen(name);
    for (const char *s = list; s && *s;) {
        size_t len = strcspn(s, ",");
        if (len == n && !strncmp(s, name, n)) return true;
        s += len + (s[len] == ',');
    }
    return false;
}

// Checks that every name of a comma-separated list is a pass of the pipeline, so that a misspelt flag does not silently
// print nothing.
static bool check_names(const PipelineRun *r, const char *flag, const char *list) {
    Ctx *cx = r->m->cx;
    for (const char *s = list; s && *s;) {
        size_t len = strcspn(s, ",");
        const char *name = hd_strndup(r->arena, s, len);
        bool found = false;
        for (int i = 0; i < r->p->n && !found; i++) found = !strcmp(r->p->at[i].pass->name, name);
        if (!found) {
            Out o = hd_out(r->arena);
            hd_pipeline_print(r->p, 0, &o);
            return hd_error(cx, (Span){0}, "%s names '%s', which is not in the pipeline: %s", flag, name,
                            *o.text ? o.text : "(empty)");
        }
        s += len + (s[len] == ',');
    }
    return true;
}

static Out module_text(const Module *m, Arena *a) {
    Out o = hd_out(a);
    hd_print_module(m, &o);
    return o;
}

static void dump(const PipelineRun *r, const char *when, const char *pass) {
    Arena *a = hd_arena_new();
    Out o = module_text(r->m, a);
    hd_say(stderr, "// ----- %s %s\n", when, pass);
    hd_say_text(stderr, o.text);
    hd_arena_free(a);
}

static bool dump_file(const PipelineRun *r, const char *name) {
    if (!r->options->print_dir) return true;
    Arena *a = hd_arena_new();
    Out o = module_text(r->m, a);
    const char *path = hd_sprintf(a, "%s/%s.hir", r->options->print_dir, name);
    const bool read = hd_is_source(&r->m->cx->diags, path);
    int error = read ? EEXIST : hd_write_file(path, o.text, o.n);
    if (error)
        hd_error(r->m->cx, (Span){0}, "cannot write '%s': %s", path,
                 read ? "it is a file that was read; give another --print-ir-dir" : strerror(error));
    hd_arena_free(a);
    return !error;
}

// A pass whose result does not verify, or that left another stage than its row says, is a bug of the compiler. The user
// gets the verifier's message and a reproducer instead of an abort.
static bool check_result(PipelineRun *r, int i, Change change) {
    const PassInfo *pass = r->p->at[i].pass;
    Ctx *cx = r->m->cx;
    bool last = i + 1 == r->p->n;
    bool good = true;
    if (pass->out >= 0 && r->m->stage != (Stage)pass->out) {
        good = hd_error(cx, (Span){0}, "pass '%s' left stage %s, but should leave stage %s", pass->name,
                        hd_stage_text(r->m->stage), hd_stage_text((Stage)pass->out));
    } else if (r->program.n && (!hd_program(r->m) || !hd_attrs_equal(&hd_program(r->m)->attrs, &r->program))) {
        good = hd_error(cx, (Span){0}, "pass '%s' changed what the model is said to compute", pass->name);
    } else if ((r->options->verify_each || last) && !hd_verify(r->m)) {
        good = hd_error(cx, (Span){0}, "the module does not verify after pass '%s'", pass->name);
    } else if (r->options->verify_each && change == UNCHANGED) {
        Arena *a = hd_arena_new();
        good = !strcmp(module_text(r->m, a).text, r->before.text);
        hd_arena_free(a);
        if (!good) hd_error(cx, (Span){0}, "pass '%s' changed the module but says that it did not", pass->name);
    }
    if (!good) hd_reproducer_write();
    return good;
}

// The reproducer for a fault of pass i: the present text, and the passes to run on it.
static const Reproducer *reproducer_of(const PipelineRun *r, int i) {
    int first = r->options->verify_each ? i : 0; // the pass before which the text was rendered
    Out head = hd_out(r->arena);
    hd_puts(&head, HD_REPRODUCER_LINE);
    hd_pipeline_print(r->p, first, &head);
    hd_puts(&head, "\n");
    if (first < i) hd_printf(&head, "// fails in pass %d, '%s'\n", i + 1, r->p->at[i].pass->name);
    Reproducer *left = HD_NEW(r->arena, Reproducer);
    *left =
        (Reproducer){head.text, head.n, r->before.text, r->before.n, first < i ? hd_sprintf(r->arena, "%d", i) : NULL};
    return left;
}

// The text is rendered once, before the first pass: printing a module takes longer than most passes do. Under
// verify_each it is rendered before every pass whose input changed, and a pass that reports no change is checked.
static void arm(PipelineRun *r, int i, bool changed) {
    if (!r->options->reproducer && !r->options->verify_each) return;
    Arena *old = NULL;
    if (i == 0 || (r->options->verify_each && changed)) {
        old = r->texts;
        r->texts = hd_arena_new();
        r->before = module_text(r->m, r->texts);
    }
    if (r->options->reproducer) hd_reproducer_arm(reproducer_of(r, i));
    hd_arena_free(old);
}

static void watch_after(const PipelineRun *r, const char *name, Change change) {
    const ManagerOptions *o = r->options;
    if (o->print_after_change) {
        if (change == UNCHANGED) hd_say(stderr, "// %s (unchanged)\n", name);
        else dump(r, "after", name);
    } else if (o->print_after_all || names(o->print_after, name)) {
        dump(r, "after", name);
    }
}

// Writes down what the model computes, before parameters become storage. The end of the pipeline compares.
static void declare_program(PipelineRun *r) {
    Arena *scratch = hd_arena_new();
    if (!hd_is_partitioned(r->m)) hd_program_declare(r->m, scratch); // else tensor-parallel has
    hd_arena_free(scratch);
    if (hd_program(r->m)) r->program = hd_attrs_copy(r->m->cx, &hd_program(r->m)->attrs);
}

static bool run_pass(PipelineRun *r, int i, Change *change) {
    const PassCall *call = &r->p->at[i];
    const char *name = call->pass->name;
    Ctx *cx = r->m->cx;
    if (names(r->options->print_before, name)) dump(r, "before", name);
    if (call->pass->out == STAGE_SHARDED) declare_program(r);
    arm(r, i, *change == CHANGED);

    PassCx pass = {.scratch = hd_arena_new(), .call = call, .counters = &r->counters};
    int errors = cx->diags.errors;
    hd_memory_used_by("pass '%s' on %lld operations%s", name, (long long)hd_count_ops(r->m), r->grown);
    double start = hd_now();
    r->m->proof = NULL;
    *change = call->pass->run(r->m, &pass);
    r->seconds[i] = hd_now() - start;
    hd_arena_free(pass.scratch);
    if (*change == FAILED) {
        if (cx->diags.errors == errors) HD_BUG("pass '%s' failed without an error", name);
        return false;
    }
    if (cx->diags.errors != errors) HD_BUG("pass '%s' reported an error but did not fail", name);

    watch_after(r, name, *change);
    if (*change == CHANGED && !hd_check_ops(r->m, hd_sprintf(r->arena, "pass '%s'", name))) return false;
    if (!dump_file(r, hd_sprintf(r->arena, "%02d-%s", i, name))) return false;
    return check_result(r, i, *change);
}

static void print_times(const PipelineRun *r) {
    double total = 0;
    for (int i = 0; i < r->p->n; i++) total += r->seconds[i];
    hd_say(stderr, "// time by pass\n");
    for (int i = 0; i < r->p->n; i++)
        hd_say(stderr, "//  %10.6f s %5.1f %%  %s\n", r->seconds[i], total > 0 ? 100 * r->seconds[i] / total : 0,
               r->p->at[i].pass->name);
    hd_say(stderr, "//  %10.6f s 100.0 %%  total\n", total);
}

static void print_statistics(const PipelineRun *r) {
    hd_say(stderr, "// statistics\n");
    for (int i = 0; i < r->counters.list.n; i++) {
        const Counter *c = &r->counters.list.at[i];
        hd_say(stderr, "//  %10" PRId64 "  %s: %s\n", c->n, c->pass, c->what);
    }
}

// The position after the first pass of that name; it must be in the pipeline.
static int after(const Pipeline *p, const char *pass) {
    int n = 0;
    while (strcmp(p->at[n++].pass->name, pass) != 0) continue;
    return n;
}

// The part of the pipeline that runs. False after an error.
static bool cut_pipeline(PipelineRun *r, Pipeline *cut) {
    const ManagerOptions *o = r->options;
    if (!check_names(r, "--start-after", o->start_after) || !check_names(r, "--stop-after", o->stop_after))
        return false;
    const int first = o->start_after ? after(r->p, o->start_after) : 0;
    const int end = o->stop_after ? after(r->p, o->stop_after) : r->p->n;
    if (end < first)
        return hd_error(r->m->cx, (Span){0}, "--stop-after=%s ends the pipeline before --start-after=%s begins it",
                        o->stop_after, o->start_after);
    *cut = (Pipeline){end - first, r->p->at + first};
    r->p = cut;
    return true;
}

static bool prepare(PipelineRun *r, Pipeline *cut) {
    const ManagerOptions *o = r->options;
    if (!check_names(r, "--print-ir-before", o->print_before) || !check_names(r, "--print-ir-after", o->print_after) ||
        !cut_pipeline(r, cut) || !hd_pipeline_check(r->m->cx, r->p, r->m->stage))
        return false;
    if (o->print_dir && mkdir(o->print_dir, 0777) && errno != EEXIST)
        return hd_error(r->m->cx, (Span){0}, "cannot make folder '%s': %s", o->print_dir, strerror(errno));
    return hd_verify(r->m) && dump_file(r, "input");
}

bool hd_manager_run(Module *m, const Pipeline *p, const ManagerOptions *options) {
    PipelineRun r = {.m = m, .p = p, .options = options, .arena = hd_arena_new()};
    r.counters.arena = r.arena;
    Pipeline cut;
    bool good = prepare(&r, &cut);
    r.seconds = HD_NEWN(r.arena, double, r.p->n + 1);
    r.grown = hd_grown(m, r.arena);
    Change change = CHANGED;
    for (int i = 0; good && i < r.p->n; i++) good = run_pass(&r, i, &change);
    hd_reproducer_arm(NULL);
    if (good && options->time_passes) print_times(&r);
    if (good && options->statistics) print_statistics(&r);
    hd_arena_free(r.texts);
    hd_arena_free(r.arena);
    return good;
}
