// hd_main: the command line of every compiled program. Opens the target, sets the state up, trains, and leaves things behind.
#include "runtime/data.h"
#include "runtime/log.h"
#include "runtime/state.h"
#include "runtime/world.h"
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    const HdProgram *p;
    const HdBackend *b;
    const Options *o;
    HdExec *x;
    Data data, val;
    Log log;
    int32_t *tokens, *targets;
    Progress at;
    const HdFunc *only, *first, *middle, *last, *update, *eval;
    double t0;
    bool data_failed, something_lost; // the data could not be read; a save or another output failed, which was told
} Run;

static volatile sig_atomic_t interrupted;

static void on_signal(int s) { interrupted = s; }

// The first of these signals ends the run after the step at hand, with everything saved; a second one ends it at once, unless it
// only says once more that nobody reads our lines. A full disk is an error of the write.
static void catch_signals(void) {
    static const int stops[] = {SIGINT, SIGTERM, SIGHUP, SIGPIPE};
    struct sigaction act = {.sa_handler = on_signal}, old;
    for (size_t i = 0; i < sizeof stops / sizeof *stops; i++) {
        act.sa_flags = SA_RESTART | (stops[i] == SIGPIPE ? 0 : (int)SA_RESETHAND);
        if (!sigaction(stops[i], NULL, &old) && old.sa_handler != SIG_IGN) sigaction(stops[i], &act, NULL);
    }
    signal(SIGXFSZ, SIG_IGN);
}

static const HdFunc *func(const HdProgram *p, const char *name) {
    for (int i = 0; i < p->n_funcs; i++)
        if (!strcmp(p->funcs[i].name, name)) return &p->funcs[i];
    return NULL;
}

static bool takes_batch(const HdProgram *p, const HdFunc *f) { // (tokens, targets), both i32[batch, seq]
    if (f->n_args != 2) return false;
    for (int i = 0; i < 2; i++)
        if (f->args[i].dtype != HD_I32 || f->args[i].rank != 2 || f->args[i].dim[0] != p->batch || f->args[i].dim[1] != p->seq) return false;
    return true;
}

static bool find_functions(Run *r) {
    const HdProgram *p = r->p;
    r->only = func(p, "micro_only");
    r->first = func(p, "micro_first");
    r->middle = func(p, "micro");
    r->last = func(p, "micro_last");
    r->update = func(p, "update");
    r->eval = func(p, "eval");
    bool whole = r->only || (r->first && r->last && (p->micro <= 2 || r->middle));
    if (!whole || !r->update || p->loss < 0 || p->norm < 0) {
        hd_fail("this program holds no training step");
        return false;
    }
    const HdFunc *with_batch[] = {r->only, r->first, r->middle, r->last, r->eval};
    for (int i = 0; i < 5; i++)
        if (with_batch[i] && !takes_batch(p, with_batch[i])) {
            hd_fail("@%s does not take (tokens: i32[%lld,%lld], targets): only such models can be trained from token files", with_batch[i]->name,
                    (long long)p->batch, (long long)p->seq);
            return false;
        }
    return true;
}

static bool upload(Run *r, const HdFunc *f) { // each function has its arguments where its own plan puts them
    size_t bytes = (size_t)(r->p->batch * r->p->seq) * sizeof *r->tokens;
    return r->b->write(r->x, f->args[0].offset, r->tokens, bytes) && r->b->write(r->x, f->args[1].offset, r->targets, bytes);
}

static const HdFunc *micro_func(const Run *r, int64_t m) {
    if (r->only) return r->only;
    return m == 0 ? r->first : m == r->p->micro - 1 ? r->last : r->middle;
}

static bool issue_step(Run *r, int64_t step) { // asynchronous
    const HdProgram *p = r->p;
    for (int64_t m = 0; m < p->micro; m++) {
        int64_t sequence = ((step - 1) * p->micro + m) * p->batch;
        r->data_failed = !hd_data_batch(&r->data, p->vocab, p->batch, p->seq, (uint64_t)r->at.seed, sequence, r->tokens, r->targets);
        if (r->data_failed) return false;
        if (!upload(r, micro_func(r, m)) || !r->b->run(r->x, micro_func(r, m))) return false;
    }
    return (!r->update || r->b->run(r->x, r->update)) && r->b->post(r->x, 2, (int64_t[]){p->loss, p->norm}, sizeof(float));
}

static bool validate(Run *r, int64_t step) {
    const HdProgram *p = r->p;
    if (!r->val.map) return true;
    if (!r->eval) {
        hd_fail("this program holds no @eval");
        return false;
    }
    int64_t windows = hd_data_windows(&r->val, p->seq), batches = (windows + p->batch - 1) / p->batch;
    if (batches > r->o->val_batches) batches = r->o->val_batches;
    double sum = 0;
    for (int64_t i = 0; i < batches; i++) {
        for (int64_t b = 0; b < p->batch; b++)
            if (!hd_data_window(&r->val, p->vocab, p->seq, i * p->batch + b, r->tokens + b * p->seq, r->targets + b * p->seq)) return false;
        float loss;
        if (!upload(r, r->eval) || !r->b->run(r->x, r->eval) || !r->b->read(r->x, p->loss, &loss, sizeof loss)) return false;
        sum += (double)loss;
    }
    hd_log_val(&r->log, step, sum / (double)batches);
    return true;
}

static bool finish_step(Run *r, int64_t step) { // waits for the step's loss and tells it
    float v[2];
    if (!r->b->collect(r->x, v)) return false;
    if (step == r->at.step + 1) hd_log_say(&r->log, "first step done %.2f s after the start", hd_now() - r->t0);
    hd_log_step(&r->log, step, v[0], v[1]);
    if (!r->o->check || (v[0] - v[0] == 0 && v[1] - v[1] == 0)) return true;
    if (hd_state_check(r->x, r->p)) hd_fail("every parameter and gradient is finite");
    char why[900];
    snprintf(why, sizeof why, "%s", hd_failure());
    hd_fail("step %lld: loss %g, gradient norm %g; %s", (long long)step, (double)v[0], (double)v[1], why);
    return false;
}

static bool save(Run *r, int64_t step) {
    Progress at = {step, r->at.seed, r->data.count};
    if (!hd_state_save(r->x, r->p, r->o->save, &at)) return false;
    hd_log_say(&r->log, "step %lld  saved %s/checkpoint.safetensors", (long long)step, r->o->save);
    return true;
}

static bool every(int64_t n, int64_t step) { return n && step % n == 0; }

static void tell_failure(Run *r) {
    fprintf(stderr, "%serror: %s\n", r->log.terminal ? "\r\x1b[K" : "", hd_failure());
    r->something_lost = true;
}

static bool finish_steps(Run *r, int64_t *told, int64_t until) {
    while (*told < until)
        if (!finish_step(r, ++*told)) return false;
    return true;
}

// What stands between two steps. A failed save is told and costs the run nothing else: the older checkpoint is still there.
static bool between(Run *r, int64_t step) {
    const bool val = every(r->o->val_every, step), saves = every(r->o->save_every, step);
    if (step == r->o->steps || interrupted) return true; // then it is done at the end
    if (val && !validate(r, step)) return false;
    if (saves && !save(r, step)) tell_failure(r);
    if (val || saves) hd_log_restart(&r->log);
    return true;
}

// Where the device works on its own, one step is in flight behind the one being issued, so that reading the loss never leaves it
// idle. With --check each step is looked at before the next one changes its gradients.
static bool train(Run *r, int64_t *done) {
    const Options *o = r->o;
    const bool alone = r->b->synchronous || o->check;
    int64_t told = r->at.step;
    while (*done < o->steps && !interrupted) {
        if (!issue_step(r, *done + 1)) {
            if (r->data_failed) finish_steps(r, &told, *done);
            return false;
        }
        ++*done;
        const bool stop = alone || interrupted || *done == o->steps || every(o->save_every, *done) || every(o->val_every, *done);
        if (!finish_steps(r, &told, *done - !stop) || (told == *done && !between(r, *done))) return false;
    }
    return finish_steps(r, &told, *done);
}

// After the last step: all that was asked for, also when one of them fails.
static void leave_behind(Run *r, int64_t step) {
    const bool nothing_new = interrupted && step == r->at.step; // an older checkpoint may be worth more
    if (r->o->save && !nothing_new && !save(r, step)) tell_failure(r); // first: who sent a signal may not wait long
    if (!interrupted && !validate(r, step)) tell_failure(r);
    if (r->log.digest && !hd_state_hashes(r->x, r->p, r->log.digest)) tell_failure(r);
    if (r->o->export_to && !hd_state_export(r->x, r->p, r->o->export_to)) tell_failure(r);
    if (r->o->profile && !r->b->write_profile(r->x, r->o->profile)) tell_failure(r);
    if (interrupted && step < r->o->steps) hd_log_say(&r->log, "stopped by signal %d after step %lld", (int)interrupted, (long long)step);
}

// Trains, and leaves things behind. When the data turns out to be bad, what was learnt until then is saved.
static bool work(Run *r) {
    int64_t done = r->at.step;
    if (train(r, &done)) {
        leave_behind(r, done);
        return true;
    }
    if (!r->data_failed || !r->o->save || done == r->at.step) return false;
    char why[900];
    snprintf(why, sizeof why, "%s", hd_failure());
    if (!save(r, done)) tell_failure(r);
    hd_fail("%s", why);
    return false;
}

static bool set_up(Run *r) { // the weights, by one of three ways
    r->at.seed = r->o->seed;
    if (r->o->resume) {
        if (!hd_state_resume(r->x, r->p, r->o->resume, &r->at)) return false;
        if (r->o->seed_given && r->o->seed != r->at.seed) {
            hd_fail("--seed=%lld: the checkpoint %s was made with seed %lld and goes on with it; leave --seed out", (long long)r->o->seed,
                    r->o->resume, (long long)r->at.seed);
            return false;
        }
        if (r->data.map && r->at.data_tokens && r->at.data_tokens != r->data.count)
            fprintf(stderr, "note: %s holds %lld tokens, the checkpoint's data %lld: going on with other data\n", r->data.path,
                    (long long)r->data.count, (long long)r->at.data_tokens);
        return true;
    }
    return hd_state_init(r->x, r->p, r->at.seed) && (!r->o->init || hd_state_import(r->x, r->p, r->o->init));
}

static bool go(Run *r) {
    const Options *o = r->o;
    const HdProgram *p = r->p;
    if (!find_functions(r) || !hd_paths_check(o)) return false;
    if (o->data && !hd_data_open(&r->data, o->data, p->seq)) return false; // before anything slow
    if (o->val && !hd_data_open(&r->val, o->val, p->seq)) return false;
    r->tokens = malloc((size_t)(p->batch * p->seq) * sizeof *r->tokens);
    r->targets = malloc((size_t)(p->batch * p->seq) * sizeof *r->targets);
    if (!r->tokens || !r->targets) {
        hd_fail("out of memory");
        return false;
    }
    r->x = r->b->open(p, hd_world_alone(), !o->no_graph && !o->profile, o->profile);
    if (!r->x || !set_up(r)) return false;
    if (o->check && !hd_state_check(r->x, p)) return false;
    if (!hd_log_open(&r->log, p, o, r->at.step, r->b->peak_flops(r->x))) return false;
    int64_t n = 0;
    for (int k = 0; k < p->n_params; k++) n += p->params[k].count;
    hd_log_say(&r->log, "%s from %s on %s: %lld parameters in %d tensors, %.2f GiB planned, %lld tokens a step", p->model, p->source,
               r->b->device(r->x), (long long)n, p->n_params, (double)p->arena_bytes / 0x1p30, (long long)(p->batch * p->seq * p->micro));
    if (r->at.step >= o->steps && o->resume && o->steps) hd_log_say(&r->log, "the checkpoint is at step %lld already", (long long)r->at.step);
    return work(r);
}

static bool print_report(const char *report) {
    if (fputs(report, stdout) != EOF && !fflush(stdout)) return true;
    fprintf(stderr, "error: cannot write the report: %s\n", strerror(errno));
    return false;
}

int hd_main(int argc, char **argv, const HdProgram *p) {
    Options o;
    int usage = hd_options_parse(argc, argv, p, &o);
    if (usage) return usage == 1 ? 0 : 2;
    if (o.report || o.report_json) return print_report(o.report ? p->report_text : p->report) ? 0 : 1;
    Run r = {.p = p, .b = p->backend, .o = &o, .t0 = hd_now()};
    catch_signals();
    if (!go(&r)) tell_failure(&r);
    if (!hd_log_close(&r.log)) tell_failure(&r);
    if (r.x) r.b->close(r.x);
    hd_data_close(&r.data);
    hd_data_close(&r.val);
    free(r.tokens);
    free(r.targets);
    return r.something_lost ? 1 : interrupted ? 128 + (int)interrupted : 0;
}
