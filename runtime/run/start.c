// What a rank does before its first step: it checks the options and opens the data, takes its weights from one of three
// places, and says what runs.
#include "runtime/run/rank.h"
#include "runtime/checkpoint/hub.h"
#include "runtime/checkpoint/pieces.h"
#include "runtime/checkpoint/settings.h"
#include "runtime/run/steps.h"
#include "runtime/sample/logits.h"
#include "runtime/world/mesh.h"
#include "runtime/text.h"
#include <stdlib.h>
#include <string.h>

bool hd_run_rank_0(const Run *r) { return r->w->rank == 0; }

int64_t hd_run_elements(const Run *r) { // of the data of the first input that has some
    const Data *d = hd_feed_first(&r->data);
    return d ? d->count : 0;
}

static bool resume(Run *r) {
    const HdResumeRules rules = {r->o->resume_with, r->o->weights && r->o->steps <= 0};
    if (!hd_state_resume(r->x, r->o->resume, &rules, &r->at)) return false;
    const bool trains = r->o->steps > r->at.step || !hd_sample_wanted(r->o); // else the seed is that of a text
    const bool other_seed = r->o->seed_given && r->o->seed != r->at.seed && trains;
    if (other_seed && !hd_setting_may_change(r->o->resume_with, "seed"))
        return hd_fail("--seed=%lld: the checkpoint %s was made with seed %lld and continues with it; leave --seed "
                       "out, or let it change with --resume-with=seed",
                       (long long)r->o->seed, r->o->resume, (long long)r->at.seed);
    if (other_seed && hd_run_rank_0(r))
        hd_say(stderr, "note: resumed with another setting, --seed: %lld -> %lld\n", (long long)r->at.seed,
               (long long)r->o->seed);
    if (other_seed) r->at.seed = r->o->seed;
    if (hd_run_rank_0(r) && r->o->steps > r->at.step && r->at.data_tokens && r->at.data_tokens != hd_run_elements(r))
        hd_say(stderr, "note: %s holds %lld tokens, the checkpoint's data %lld: continuing with other data\n",
               hd_feed_first(&r->data)->name, (long long)hd_run_elements(r), (long long)r->at.data_tokens);
    if (hd_run_rank_0(r) && r->at.sequences != r->at.step * hd_step_sequences(r->p))
        hd_say(stderr, "note: the checkpoint has read %lld sequences in %lld steps, from now on a step reads %lld, the "
                       "next one from sequence %lld on\n",
               (long long)r->at.sequences, (long long)r->at.step, (long long)hd_step_sequences(r->p),
               (long long)r->at.sequences + 1);
    return true;
}

bool hd_run_weights(Run *r) { // by one of three ways
    r->at.seed = r->o->seed;
    if (r->o->resume) return resume(r);
    const HdInitRules rules = {r->o->init_ignore, r->o->init_rename, r->o->init_missing != NULL, hd_run_rank_0(r),
                               r->at.seed};
    return r->o->init ? hd_state_import(r->x, r->o->init, &rules) : hd_state_init(r->x, r->at.seed); // either sets all
}

// The random state follows from how far the run is: a checkpoint holds nothing of it.
bool hd_run_start_random(Run *r) {
    const int64_t next = r->at.sequences + hd_reader(r->p, r->w->rank) * r->p->batch;
    const uint64_t at[] = {(uint64_t)r->at.seed, (uint64_t)next};
    const int64_t offset = r->p->train_step.random;
    uint32_t words[4];
    for (int i = 0; i < 4; i++) words[i] = (uint32_t)(at[i / 2] >> i % 2 * 32);
    return offset < 0 || r->b->write(r->x, offset, words, sizeof words);
}

bool hd_run_prepare(Run *r) { // before anything slow
    const Options *o = r->o;
    const HdProgram *p = r->p;
    const bool speaks = hd_run_rank_0(r);
    if (!hd_steps_check(p) || (speaks && !hd_paths_check(p, o))) return false;
    if (speaks && ((o->as && !hd_hub_prepare(p, o->export_to, o->init)) || (o->init && !hd_hub_compare(p, o->init))))
        return false;
    if (!hd_saving_open(&r->saving, o, speaks)) return false;
    const HdInputs of_data = hd_options_inputs(p, o), of_loss = hd_inputs(p);
    if (o->data.n && !hd_feed_open(&r->data, &of_data, "data", o->data, o->formats, p->micro)) return false;
    if (o->val.n && !hd_feed_open(&r->val, &of_loss, "val", o->val, o->formats, 1)) return false;
    if ((o->logits && !hd_logits_there(p, "logits")) || !hd_sample_open(&r->sample, p, o)) return false;
    return hd_feed_same_kind(&r->data, &r->val);
}

// The files that each input reads, where its data is named; documents, where an index counts them.
static void tell_data(Run *r) {
    const Data *first = hd_feed_first(&r->data);
    for (int i = 0; r->data.n > 1 && i < r->data.n; i++) {
        const FeedSource *s = &r->data.at[i], *of = &r->data.at[s->of];
        if (r->data.n == 2 && r->data.at[1].of == 0) break; // tokens and targets
        hd_log_say(&r->log, "%s: %s%s", s->input->name, of->data.name, s->of == i ? "" : ", one element further on");
    }
    if (first && first->documents)
        hd_log_say(&r->log, "%s: %lld tokens, %lld document%s by the index", first->name, (long long)first->count,
                   (long long)first->documents, first->documents == 1 ? "" : "s");
    const Data *val = hd_feed_first(&r->val);
    if (first && val && !strcmp(first->name, val->name) && r->o->steps > r->at.step)
        hd_log_say(&r->log, "--val reads what --data does: the validation loss is of rows that are trained on");
}

void hd_run_tell_start(Run *r) {
    const HdProgram *p = r->p;
    char ranks[HD_MESH_TEXT + 40] = "", mesh[HD_MESH_TEXT];
    if (r->w->ranks > 1)
        snprintf(ranks, sizeof ranks, "%d ranks (%s) of ", r->w->ranks, hd_mesh_say(p, " ", ", ", mesh, sizeof mesh));
    hd_log_say(&r->log, "%s from %s on %s%s: %lld parameters in %d tensors, %.2f GiB planned%s, %lld %s a step",
               p->model, p->source, ranks, r->b->device(r->x), (long long)hd_model_size(p), p->n_params,
               (double)p->arena_bytes / 0x1p30, *ranks ? " a rank" : "", (long long)hd_step_tokens(p),
               p->seq ? "tokens" : "rows");
    tell_data(r);
    const Options *o = r->o;
    const bool asked = o->save || o->export_to || o->val.n || o->digest || o->log || o->tensorboard || o->logits ||
                       o->run || hd_sample_wanted(o) || o->profile || o->timeline || o->choices || o->check;
    if (o->steps <= r->at.step && !asked)
        hd_log_say(&r->log, "nothing is trained, and nothing is written: --steps=N, --val, --export, --sample and "
                            "others ask for something");
    if (r->at.step >= r->o->steps && r->o->resume && r->o->steps)
        hd_log_say(&r->log, "the checkpoint is already at step %lld; --steps counts from the beginning of the run",
                   (long long)r->at.step);
}

// With --profile or HEDDLE_VERBOSE=1: how long each part of the start took.
bool hd_run_tells_phases(const Run *r) {
    const char *verbose = getenv("HEDDLE_VERBOSE");
    return r->o->profile || (verbose && *verbose && strcmp(verbose, "0"));
}

void hd_run_tell_phases(Run *r, double checked, double opened, double loaded) {
    const char *where = r->o->resume || r->o->init ? "read from files"
                        : r->b->draw               ? "made by the device"
                                                   : "made by the host";
    if (hd_run_tells_phases(r))
        hd_log_say(&r->log, "start: data and options %.2f s, device and kernels %.2f s, weights %.2f s (%s)",
                   checked - r->t0, opened - checked, loaded - opened, where);
}
