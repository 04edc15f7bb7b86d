// The work of one rank. All ranks run this code in step. Wherever one of them may meet something that the others cannot
// know (a bad token, a full disk, a signal), all agree before any goes on, so that all continue, stop or fail at the
// same place. A failure between two such places, such as one of the device, is announced to the other ranks at the end
// of hd_run_rank, which wakes them wherever they wait.
#include "runtime/run/run.h"
#include "runtime/run/rank.h"
#include "runtime/run/identity.h"
#include "runtime/checkpoint/history.h"
#include "runtime/checkpoint/pieces.h"
#include "runtime/run/signals.h"
#include "runtime/run/steps.h"
#include "runtime/sample/call.h"
#include "runtime/sample/logits.h"
#include "runtime/world/mesh.h"
#include "runtime/text.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// --- what the ranks agree on

// all: true when it is true on every rank; else false after hd_fail, on every rank
static bool all_ok(Run *r, bool ok) {
    const bool good = hd_world_agree(r->w, ok);
    r->agreed = !good;
    return good;
}

// all: the largest bound that an exchange of a rank has noted; 0: none was too small.
static int bound_wanted(Run *r) {
    int32_t bound = 0;
    if (r->p->bound_wanted && !r->b->read(r->x, r->p->bound_wanted, &bound, sizeof bound)) bound = 0;
    const int most = r->p->bound_wanted ? hd_world_most(r->w, bound) : 0;
    return most > 0 ? most : 0;
}

// all: a step's loss or norm is not finite, on some ranks or on all. Says which value is the first. Returns false.
static bool fail_spoilt(Run *r) {
    char why[900] = "", advice[400];
    const int bound = bound_wanted(r);
    const char *later = r->o->check           ? ""
                        : r->b->synchronous ? "; --check examines the weights before the first step, too"
                                            : "; --check examines the weights before the first step, too, and stops "
                                              "before the next one changes anything";
    const float loss = r->spoilt.loss, norm = r->spoilt.norm;
    const bool here = r->spoilt.step > 0;
    if (all_ok(r, hd_state_check(r->x, true))) hd_fail("every parameter and gradient is finite");
    snprintf(why, sizeof why, "%s", hd_failure());
    if (here)
        hd_fail("step %lld: loss %g, gradient norm %g; %s%s%s", (long long)r->spoilt.step, (double)loss, (double)norm,
                why, hd_scale_advice(r->p, loss, bound, advice, sizeof advice), later);
    r->spoilt.step = r->spoilt.step ? r->spoilt.step : -1; // other ranks know of it
    return all_ok(r, !here);
}

// Whether a checkpoint is due that no number of steps asks for: by a signal, or by rank 0's clock.
static bool save_due(const Run *r) {
    const double every = (double)r->o->save_seconds;
    return hd_signal_saves() != r->saves || (hd_run_rank_0(r) && every > 0 && hd_now() - r->saving.last >= every);
}

// all: whether every rank continues; a signal on any of them ends the run (`stopped`) or asks for a checkpoint
// (`save_now`). false as all_ok.
static bool decide(Run *r, bool ok) {
    enum { NOT_OK = 1 << 20, SPOILT = 1 << 19 }; // above any signal's number
    const int mine = 2 * hd_signal_stop() + save_due(r);
    const int most = hd_world_most(r->w, !ok ? NOT_OK : r->spoilt.step ? SPOILT : mine);
    if (most < 0) return false;
    if (most == NOT_OK) return all_ok(r, ok);
    if (most == SPOILT) return fail_spoilt(r);
    r->stopped = most / 2;
    r->save_now = most % 2;
    return true;
}

static void tell_failure(Run *r) {
    if (r->w->rank == r->w->speaker) hd_log_clear(&r->log), hd_say(stderr, "error: %s\n", hd_failure());
    if (!r->w->alive(r->w)) r->w->told = true;
    r->something_lost = true;
}

static bool told(Run *r, bool ok) { // a failure that does not end the run, unless it is that of a lost rank
    if (ok) return true;
    tell_failure(r);
    r->agreed = false; // forget this one
    return r->w->alive(r->w);
}

// --- steps

static bool at_step(const char *when, int64_t step) { // adds to a failure when it was; false
    char why[900];
    snprintf(why, sizeof why, "%s", hd_failure());
    return hd_fail("%s %lld: %s", when, (long long)step, why);
}

// The sequences that this rank reads in a step. They go in order to micro-batches and, within each, to the ranks that
// read different ones.
static bool read_step(Run *r, int64_t step) {
    const HdProgram *p = r->p;
    const int64_t start = r->at.sequences + (step - r->at.step - 1) * hd_step_sequences(p);
    for (int64_t m = 0; m < p->micro; m++) {
        const int64_t batch = m * hd_readers(p) + hd_reader(p, r->w->rank);
        if (!hd_feed_batch(&r->data, (uint64_t)r->at.seed, start + batch * p->batch, m)) return at_step("step", step);
    }
    return true;
}

// Each function has its arguments at addresses of its own plan.
static bool upload(Run *r, const Feed *from, const HdFunc *f, int64_t m) {
    bool ok = true;
    for (int i = 0; ok && i < f->n_args; i++)
        ok = r->b->write(r->x, f->args[i].offset, hd_feed_at(from, i, m), hd_feed_bytes(from, i));
    return ok;
}

// asynchronous: runs the functions of a step, on the batches read for it
static bool run_step(Run *r, const HdStep *s, const Feed *from) {
    int64_t m = 0;
    r->x->step = s;
    for (int i = 0; i < s->n_segments; i++)
        for (int64_t k = 0; k < s->segments[i].times; k++) {
            const HdFunc *f = s->segments[i].func;
            r->x->begins = !i && !k;
            r->x->ends = i == s->n_segments - 1 && k == s->segments[i].times - 1;
            if ((f->n_args && !upload(r, from, f, m++)) || !r->b->run(r->x, f)) return false;
        }
    return true;
}

enum { MOST_NUMBERS = 5 + HD_MOST_RESULTS }; // of a step: loss, norm, their z-scores, results, rows dropped

static bool issue_step(Run *r) { // asynchronous
    const HdStep *s = &r->p->train_step;
    int64_t numbers[MOST_NUMBERS] = {s->loss, s->norm};
    int n = 2;
    for (int i = 0; i < 2 && hd_history_kept(r->p); i++)
        numbers[n++] = s->history + (HD_HISTORY_Z + i) * (int64_t)sizeof(float);
    for (int i = 0; i < s->n_results; i++) numbers[n++] = s->results[i].offset;
    if (s->dropped >= 0) numbers[n++] = s->dropped;
    return run_step(r, s, &r->data) && r->b->post(r->x, n, numbers, sizeof(float)) &&
           (!r->counts || r->b->post(r->x, 1, &s->counts, hd_counts_bytes(s)));
}

// Number of batches of a rank in a validation: enough for the whole file, or those of --val-batches, at least one.
static int64_t val_rounds(const Run *r) {
    const int64_t batches = (r->val.rows + r->p->batch - 1) / r->p->batch, readers = hd_readers(r->p);
    if (r->o->val_batches >= batches) return (batches + readers - 1) / readers;
    return r->o->val_batches < readers ? 1 : r->o->val_batches / readers;
}

// The row that sequence i of a validation reads: all of them in order, or as many at equal distances.
static int64_t val_row(const Run *r, int64_t i) {
    const int64_t rows = r->val.rows, n = val_rounds(r) * hd_readers(r->p) * r->p->batch;
    return n >= rows ? i : i * (rows / n) + i * (rows % n) / n;
}

static bool read_val(Run *r, int64_t step, int64_t round) {
    const HdProgram *p = r->p;
    const int64_t first = (round * hd_readers(p) + hd_reader(p, r->w->rank)) * p->batch;
    for (int64_t b = 0; b < p->batch; b++)
        if (!hd_feed_row(&r->val, val_row(r, first + b), b)) return at_step("validation after step", step);
    return true;
}

static bool progress(Run *r, int64_t step, Progress *at) { // all, where there is a history
    *at = r->at;
    at->step = step;
    at->data_tokens = hd_run_elements(r);
    at->sequences += (step - r->at.step) * hd_step_sequences(r->p);
    at->scored = hd_history_kept(r->p);
    return !at->scored || all_ok(r, hd_history_read(r->x, at->history));
}

// all: keeps the state whose validation loss is the least so far. One that fails is reported and has no other effect.
static bool keep_best(Run *r, int64_t step, double loss) {
    Progress at;
    if (!r->o->keep_best || !(loss < r->saving.keep.best)) return true;
    if (!progress(r, step, &at)) return told(r, false);
    at.validated = true;
    at.val_loss = loss;
    return told(r, hd_saving_make_way(&r->saving, step)) && told(r, hd_saving_start(&r->saving, &at, true, false));
}

static bool validate(Run *r, int64_t step) { // all
    if (!r->o->val.n) return true;
    if (!r->p->eval_step.n_segments) {
        hd_fail("this program holds no validation step");
        return all_ok(r, false);
    }
    r->w->at(r->w, "validation after step", step);
    const int64_t rounds = val_rounds(r);
    const HdStep *s = &r->p->eval_step;
    double sum = 0, sums[HD_MOST_RESULTS] = {0};
    for (int64_t i = 0; i < rounds; i++) {
        float v; // the mean over the ranks
        if (!all_ok(r, read_val(r, step, i)) || !run_step(r, s, &r->val)) return false;
        if (!r->b->read(r->x, s->loss, &v, sizeof v)) return false;
        sum += (double)v;
        for (int k = 0; k < s->n_results; k++) {
            if (!r->b->read(r->x, s->results[k].offset, &v, sizeof v)) return false;
            sums[k] += (double)v;
        }
    }
    for (int k = 0; k < s->n_results; k++) sums[k] /= (double)rounds;
    hd_log_val(&r->log, step, sum / (double)rounds, sums);
    return keep_best(r, step, sum / (double)rounds);
}

static bool finish_step(Run *r, int64_t step) { // waits for the step's loss and reports it
    float v[MOST_NUMBERS] = {0};
    if (!r->b->collect(r->x, v) || (r->counts && !r->b->collect(r->x, r->counts))) return false;
    if (step == r->at.step + 1) hd_log_say(&r->log, "first step done %.2f s after the start", hd_now() - r->t0);
    const bool scored = hd_history_kept(r->p);
    const float *z = scored ? v + 2 : NULL, *results = v + 2 + 2 * scored;
    hd_log_step(&r->log, step, v[0], v[1], z, results, results[r->p->train_step.n_results], r->counts);
    if (hd_step_skipped(r->p, v[1], z)) {
        char scores[80] = "";
        if (z) snprintf(scores, sizeof scores, " (z-scores %.2f and %.2f)", (double)z[0], (double)z[1]);
        hd_log_say(&r->log, "step %lld  loss %g, gradient norm %g%s: skipped, the weights stay as they are",
                   (long long)step, (double)v[0], (double)v[1], scores);
        return true;
    }
    if (!r->spoilt.step && !(isfinite(v[0]) && isfinite(v[1]))) {
        r->spoilt.step = step;
        r->spoilt.loss = v[0];
        r->spoilt.norm = v[1];
    }
    return true;
}

static bool finish_steps(Run *r, int64_t *finished, int64_t until) {
    while (*finished < until)
        if (!finish_step(r, ++*finished)) return false;
    return true;
}

// all. A save that fails is reported and has no other effect: the older checkpoint is still there.
static bool save(Run *r, int64_t step, bool foreground) {
    Progress at;
    r->w->at(r->w, "saving after step", step);
    if (!progress(r, step, &at)) return told(r, false);
    return told(r, hd_saving_make_way(&r->saving, step)) &&
           told(r, hd_saving_start(&r->saving, &at, false, foreground));
}

static bool sample(Run *r, int64_t step) { // all: a text of the model as it is after a step
    double seconds;
    if (r->o->steps) hd_log_say(&r->log, "text after step %lld:", (long long)step);
    if (!hd_sample_write(&r->sample, r->x, r->w, r->o, &seconds)) return false;
    hd_log_say(&r->log, "%lld tokens in %.3f s", (long long)r->o->tokens, seconds);
    return true;
}

static bool every(int64_t n, int64_t step) { return n && step % n == 0; }

// all: what happens between two steps. `bad_data`: as in train.
static bool between(Run *r, int64_t step, bool *bad_data) {
    const bool val = every(r->o->val_every, step), saves = every(r->o->save_every, step),
               text = every(r->o->sample_every, step);
    if (step == r->o->steps || (!val && !saves && !text)) return true; // it is done at the end
    if (!decide(r, true)) return false;
    if (r->stopped) return true; // likewise
    if (val && !validate(r, step)) {
        *bad_data = r->agreed;
        return false;
    }
    if (saves && !save(r, step, false)) return false;
    if (text && !told(r, all_ok(r, sample(r, step)))) return false;
    hd_log_restart(&r->log);
    return true;
}

// all: a checkpoint that a signal asked for, of the steps issued so far. As a save of --save-every.
static bool save_asked(Run *r, int64_t *finished, int64_t done) {
    r->save_now = false;
    const bool saves = r->o->save && done > r->at.step;
    if (saves && (!finish_steps(r, finished, done) || !decide(r, true))) return false; // is it still worth saving?
    if (!r->o->save) hd_log_say(&r->log, "a signal asks for a checkpoint, and there is no --save=DIR");
    if (saves && !r->stopped && !save(r, done, false)) return false;
    r->saves = hd_signal_saves(); // what came meanwhile asked for the same
    r->save_now = false;
    hd_log_restart(&r->log);
    return true;
}

// all. Where the device works on its own, one step runs while the next is being issued, so that reading the loss never
// leaves it idle. With --check each step is examined before the next one changes its gradients. `bad_data`: the failure
// is bad data, and every earlier step is finished.
static bool train(Run *r, int64_t *done, bool *bad_data) {
    const Options *o = r->o;
    const bool alone = r->b->synchronous || o->check;
    int64_t finished = r->at.step;
    while (*done < o->steps && !r->stopped) {
        r->w->at(r->w, "step", *done + 1);
        if (!decide(r, read_step(r, *done + 1))) {
            char why[900];
            snprintf(why, sizeof why, "%s", hd_failure());
            *bad_data = !r->spoilt.step && r->agreed && finish_steps(r, &finished, *done);
            if (*bad_data) hd_fail("%s", why);
            return false;
        }
        if (!told(r, hd_saving_go_on(&r->saving, false))) return false;
        if (r->save_now && !save_asked(r, &finished, *done)) return false;
        if (r->stopped) break;
        if (!issue_step(r)) return false;
        ++*done;
        const bool stop = alone || *done == o->steps || every(o->save_every, *done) || every(o->val_every, *done) ||
                          every(o->sample_every, *done);
        if (!finish_steps(r, &finished, *done - !stop) || (finished == *done && !between(r, *done, bad_data)))
            return false;
    }
    return finish_steps(r, &finished, *done);
}

// --- before and after

static bool say_run(Run *r) {
    hd_log_say(&r->log, "%s of %lld row%s: %s", r->o->run, (long long)r->data.rows, r->data.rows == 1 ? "" : "s",
               r->o->output);
    return true;
}

// all: after the last step, writes everything that was asked for, even when some of it fails.
static bool leave_behind(Run *r, int64_t step) {
    const Options *o = r->o;
    if (!decide(r, true)) return told(r, false);
    const bool nothing_new = r->stopped && step == r->at.step; // an older checkpoint may be worth more
    const bool alive =
        (nothing_new || !o->save ? told(r, hd_saving_go_on(&r->saving, true))
                                 : save(r, step, true)) && // first, since the sender of a signal may not wait long
        (r->stopped || told(r, validate(r, step))) &&
        (r->stopped || !hd_sample_wanted(o) || told(r, all_ok(r, sample(r, step)))) &&
        (r->stopped || !o->logits || told(r, all_ok(r, hd_logits_write(r->x, r->w, &r->data, o->logits)))) &&
        (r->stopped || !o->run ||
         told(r, all_ok(r, hd_call_write_run(r->x, r->w, &r->data, o->run, o->output)) && say_run(r))) &&
        told(r, hd_saving_go_on(&r->saving, true)) && // the best so far
        (!o->digest || told(r, all_ok(r, hd_state_hashes(r->x, r->log.digest)))) &&
        (!o->export_to || told(r, all_ok(r, hd_run_export(r->x, o, hd_run_rank_0(r))))) &&
        (!o->profile || told(r, all_ok(r, r->b->write_profile(r->x, o->profile)))) &&
        (!o->timeline || told(r, all_ok(r, r->b->write_timeline(r->x, o->timeline))));
    if (r->stopped && step < o->steps)
        hd_log_say(&r->log, "stopped by signal %d after step %lld", r->stopped, (long long)step);
    return alive;
}

// all: trains and writes the outputs. When the data turns out to be bad, the state before it is saved.
static bool work(Run *r) {
    int64_t done = r->at.step;
    bool bad_data = false;
    if (train(r, &done, &bad_data)) {
        if (!leave_behind(r, done)) r->agreed = true; // it was reported
        return true;
    }
    if (!r->agreed) return false;
    char why[900];
    snprintf(why, sizeof why, "%s", hd_failure());
    if (!bad_data || !r->o->save || done == r->at.step) told(r, hd_saving_go_on(&r->saving, true));
    else if (!decide(r, true)) tell_failure(r);
    else save(r, done, true);
    r->agreed = true;
    return hd_fail("%s", why);
}

static bool go(Run *r) { // all
    const Options *o = r->o;
    if (!all_ok(r, hd_run_prepare(r)) || !all_ok(r, hd_identity_same(r->w, r->p, r->o))) return false;
    if (o->keep_best && !all_ok(r, r->w->share(r->w, &r->saving.keep.best, sizeof r->saving.keep.best))) return false;
    const bool profile = o->profile || o->timeline;
    const double checked = hd_now();
    const bool each = o->check && (r->p->guard || r->p->indexed_in); // looks at something at each action
    const HdOpen how = {!o->no_graph && !profile && !each, profile, o->choices};
    const bool chosen = o->choices && access(o->choices, F_OK); // here and now
    r->x = r->b->open(r->p, r->w, &how);
    if (r->x) r->x->check = o->check;
    r->saving.x = r->x;
    r->saving.log = &r->log;
    const double opened = hd_now();
    if (r->x && !hd_identity_choices(r->w, r->x->choices)) return false;
    if (!r->x || !all_ok(r, hd_run_weights(r) && hd_run_start_random(r) &&
                            (!hd_run_tells_phases(r) || r->b->sync(r->x))))
        return false;
    const double loaded = hd_now();
    if (o->check && !all_ok(r, hd_state_check(r->x, false))) return false;
    if (r->p->train_step.n_counted && !(r->counts = malloc(hd_counts_bytes(&r->p->train_step))))
        hd_fail("out of memory: no room for what FP8 loses in a step");
    if (!all_ok(r, !r->p->train_step.n_counted || r->counts)) return false;
    const Data *data = hd_feed_first(&r->data);
    const LogStart start = {&r->at, r->b->peak_flops(r->x), r->b->device(r->x), data ? data->name : NULL,
                            hd_run_elements(r), r->x->choices};
    if (!all_ok(r, hd_log_open(&r->log, r->p, o, hd_run_rank_0(r), &start))) return false;
    hd_run_tell_start(r);
    if (o->choices)
        hd_log_say(&r->log, "algorithms of libraries: choices %s, %s %s", r->x->choices,
                   chosen ? "written to" : "read from", o->choices);
    hd_run_tell_phases(r, checked, opened, loaded);
    return hd_saving_prepare(&r->saving) && work(r);
}

// A failure that the other ranks do not know of ends them too.
static void announce(Run *r) {
    char why[900];
    snprintf(why, sizeof why, "%s", hd_failure());
    if (!r->agreed && r->w->alive(r->w)) r->w->fail(r->w, why);
    hd_fail("%s", why);
}

RankResult hd_run_rank(const HdProgram *p, const Options *o, HdWorld *w) {
    Run r = {.p = p, .b = p->backend, .o = o, .w = w, .t0 = hd_now()};
    if (!go(&r)) {
        announce(&r);
        tell_failure(&r);
    }
    if (!hd_log_close(&r.log)) tell_failure(&r);
    enum { LOST = 1 << 20 }; // above any signal's number
    const int end = hd_world_most(w, r.something_lost ? LOST : hd_signal_stop());
    if (end < 0 && !r.something_lost) {
        // where rank 0 is not there to report it, the others may have their answer and have ended well
        if (w->speaker != 0) w->speaker = w->rank;
        tell_failure(&r);
    }
    hd_saving_close(&r.saving);
    hd_feed_close(&r.data);
    hd_feed_close(&r.val);
    hd_sample_close(&r.sample);
    free(r.counts);
    return (RankResult){r.x, end < 0 || end == LOST ? 1 : end ? 128 + end : 0};
}
