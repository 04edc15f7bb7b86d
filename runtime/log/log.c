// Progress for people, JSON lines for programs, the digest for cmp.
#include "runtime/log/log.h"
#include "runtime/world/mesh.h"
#include "runtime/run/steps.h"
#include "runtime/text.h"
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

static void flush_json(Log *l) { // a line can be read as soon as it is written
    if (fflush(l->json) && !l->json_error) l->json_error = errno;
}

static bool open_file(FILE **f, const char *path, const char *mode) {
    if (!path) return true;
    *f = fopen(path, mode);
    if (!*f) hd_fail("cannot write %s: %s", path, strerror(errno));
    return *f != NULL;
}

bool hd_log_open(Log *l, const HdProgram *p, const Options *o, bool speaks, const LogStart *start) {
    const Progress *at = start->at;
    *l = (Log){.program = p, .speaks = speaks, .json_path = o->log, .digest_path = o->digest,
               .peak_flops = start->peak_flops, .optimizer_start = at->optimizer_start};
    if (!speaks) return true;
    l->terminal = isatty(STDERR_FILENO);
    l->first_step = at->step;
    l->last_step = o->steps;
    l->first_tokens = at->sequences * (p->seq ? p->seq : 1);
    l->every = o->log_every ? o->log_every : l->terminal ? 1 : (o->steps - at->step + 49) / 50;
    if (l->every < 1) l->every = 1;
    l->started = l->last = hd_now();
    if (o->log && o->resume && !hd_log_cut(o->log, at->step)) return false;
    if (!open_file(&l->json, o->log, o->resume ? "a" : "w") || !open_file(&l->digest, o->digest, "w")) return false;
    if (l->json) hd_log_header(l->json, p, o, start);
    if (l->json) flush_json(l);
    return !o->tensorboard || hd_events_open(&l->events, o->tensorboard, at->step);
}

static void put_number(Log *l, int64_t step, const char *name, double v) { // JSON has no NaN and no infinity
    if (l->json && isfinite(v)) fprintf(l->json, ", \"%s\": %.9g", name, v);
    else if (l->json) fprintf(l->json, ", \"%s\": null", name);
    hd_events_scalar(&l->events, step, name, v);
}

static void begin_line(Log *l, int64_t step) {
    if (l->json) fprintf(l->json, "{\"step\": %lld", (long long)step);
}

static void end_line(Log *l) {
    if (l->json) fputs("}\n", l->json);
    if (l->json) flush_json(l);
    hd_events_flush(&l->events);
}

static double learning_rate(const Log *l, int64_t step) { // that the optimizer has had in this step
    return hd_learning_rate(&l->program->lr, (double)(step - l->optimizer_start));
}

static int64_t resident_bytes(void) { // of this process; 0: unknown
    long long all, resident;
    FILE *f = fopen("/proc/self/statm", "re");
    const bool known = f && fscanf(f, "%lld %lld", &all, &resident) == 2;
    if (f) fclose(f);
    return known ? (int64_t)resident * (int64_t)sysconf(_SC_PAGESIZE) : 0;
}

// Of a line for people: what the further results of the loss are.
static const char *results_text(const HdStep *s, const double *results, char *text, size_t size) {
    size_t n = 0;
    text[0] = 0;
    for (int i = 0; i < s->n_results && n < size; i++) {
        const int more = snprintf(text + n, size - n, "  %s %.4g", s->results[i].name, results[i]);
        n += more < 0 ? 0 : (size_t)more;
    }
    return text;
}

// What FP8 loses of each value: a list of three in the JSON line, three scalars in the events.
static void put_counts(Log *l, int64_t step, const float *counts) {
    static const char *const names[HD_COUNTS_EACH] = {"zero", "saturated", "not_finite"};
    const HdStep *s = &l->program->train_step;
    char tag[400];
    if (l->json) fputs(", \"fp8\": {", l->json);
    for (int i = 0; i < s->n_counted; i++) {
        const float *c = counts + HD_COUNTS_EACH * i;
        if (l->json)
            fprintf(l->json, "%s\"%s\": [%.0f, %.0f, %.0f]", i ? ", " : "", s->counted[i], (double)c[0], (double)c[1],
                    (double)c[2]);
        for (int k = 0; l->events.f && k < HD_COUNTS_EACH; k++) {
            snprintf(tag, sizeof tag, "fp8/%s/%s", s->counted[i], names[k]);
            hd_events_scalar(&l->events, step, tag, (double)c[k]);
        }
    }
    if (l->json) fputc('}', l->json);
}

void hd_log_step(Log *l, int64_t step, float loss, float norm, const float *z, const float *results,
                 float dropped, const float *counts) {
    if (!l->speaks) return;
    double now = hd_now(), took = now - l->last;
    bool warm = step > l->first_step + 1; // the first step includes warm-up
    l->step_seconds = !warm                                             ? took
                      : l->step_seconds > 0 && step > l->first_step + 2 ? 0.9 * l->step_seconds + 0.1 * took
                                                                        : took;
    l->last = now;
    const HdProgram *p = l->program;
    const int64_t tokens = hd_step_tokens(p);
    double rate = (double)tokens / l->step_seconds;
    double mfu = l->peak_flops > 0 ? p->model_flops / l->step_seconds / l->peak_flops : 0; // both of one rank
    if (l->digest) fprintf(l->digest, "%lld %a %a\n", (long long)step, (double)loss, (double)norm);
    if (l->json || l->events.f) {
        begin_line(l, step);
        put_number(l, step, "loss", (double)loss);
        put_number(l, step, "grad_norm", (double)norm);
        for (int i = 0; i < p->train_step.n_results; i++)
            put_number(l, step, p->train_step.results[i].name, (double)results[i]);
        if (z) put_number(l, step, "loss_z", (double)z[0]);
        if (z) put_number(l, step, "norm_z", (double)z[1]);
        if (l->json && hd_step_skipped(p, norm, z)) fputs(", \"skipped\": true", l->json);
        if (p->train_step.dropped >= 0) put_number(l, step, "dropped", (double)dropped);
        if (counts) put_counts(l, step, counts);
        if (p->lr.peak >= 0) put_number(l, step, "lr", learning_rate(l, step));
        if (l->json)
            fprintf(l->json, ", \"seconds\": %.6f, \"tokens\": %lld", took,
                    (long long)(l->first_tokens + (step - l->first_step) * tokens));
        put_number(l, step, "tokens_per_second", (double)tokens / took);
        if (mfu > 0) put_number(l, step, "mfu", round(mfu * 1e4) / 1e4);
        put_number(l, step, "host_memory", (double)resident_bytes());
        if (l->json) fprintf(l->json, ", \"time\": %.3f, \"ranks\": %d", hd_wall_time(), hd_ranks(p));
        end_line(l);
    }
    if (step % l->every && step != l->last_step && step != l->first_step + 1) return;
    long left = lround((double)(l->last_step - step) * l->step_seconds);
    char mfu_text[32] = "", more[1000], dropped_text[48] = "";
    double of_step[HD_MOST_RESULTS];
    for (int i = 0; i < p->train_step.n_results; i++) of_step[i] = (double)results[i];
    if (dropped > 0) snprintf(dropped_text, sizeof dropped_text, "  %.0f rows dropped", (double)dropped);
    if (mfu > 0) snprintf(mfu_text, sizeof mfu_text, "  mfu %.1f%%", 100 * mfu);
    hd_log_clear(l);
    hd_say(stderr, "step %lld/%lld  loss %.4f%s  norm %.3f%s  %.0f %s/s%s  eta %ld:%02ld:%02ld", (long long)step,
           (long long)l->last_step, (double)loss, results_text(&p->train_step, of_step, more, sizeof more),
           (double)norm, dropped_text, rate, p->seq ? "tok" : "rows", mfu_text, left / 3600, left / 60 % 60,
           left % 60);
    if (!l->terminal || step == l->last_step) hd_say(stderr, "\n");
}

void hd_log_clear(const Log *l) {
    if (l->terminal) hd_say(stderr, "\r\x1b[K");
}

void hd_log_restart(Log *l) { l->last = hd_now(); }

void hd_log_val(Log *l, int64_t step, double loss, const double *results) {
    const HdStep *s = &l->program->eval_step;
    char more[1000], name[200];
    hd_log_say(l, "step %lld  validation loss %.4f  perplexity %.4g%s", (long long)step, loss, exp(loss),
               results_text(s, results, more, sizeof more));
    if (!l->json && !l->events.f) return;
    begin_line(l, step);
    put_number(l, step, "val_loss", loss);
    put_number(l, step, "val_perplexity", exp(loss));
    for (int i = 0; i < s->n_results; i++) {
        snprintf(name, sizeof name, "val_%s", s->results[i].name);
        put_number(l, step, name, results[i]);
    }
    end_line(l);
}

void hd_log_say(Log *l, const char *fmt, ...) {
    if (!l->speaks) return;
    va_list ap;
    va_start(ap, fmt);
    hd_log_clear(l);
    hd_vsay(stderr, fmt, ap);
    hd_say(stderr, "\n");
    va_end(ap);
}

static bool close_file(FILE *f, const char *path, int error) { // error: of an earlier write, where it is known
    if (!f) return true;
    const bool bad = ferror(f) != 0;
    if (fclose(f) && !error) error = errno;
    if (!error && !bad) return true;
    return hd_fail("cannot write %s: %s", path, error ? strerror(error) : "an earlier write failed; is the disk full?");
}

bool hd_log_close(Log *l) {
    bool ok = close_file(l->json, l->json_path, l->json_error);
    ok = close_file(l->digest, l->digest_path, 0) && ok;
    return hd_events_close(&l->events) && ok;
}
