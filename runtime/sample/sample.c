// See sample.h. A program that keeps keys and values computes each token of the text once, as long as the text is no
// longer than the window. Where the target chooses tokens, the next ones are under way while the host reads one.
// Otherwise every token is computed from the whole window: the last `seq` tokens of the text, and behind them tokens
// that a causal model does not look at, which the first one of a text proves.
#include "runtime/sample/sample.h"
#include "runtime/sample/choose.h"
#include "runtime/sample/logits.h"
#include "runtime/run/signals.h"
#include "runtime/text.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool hd_sample_wanted(const Options *o) { return o->sample || o->sample_ids; }

// --- the prompt

enum { BYTES = 256 };

static int64_t vocabulary(const HdProgram *p) { // tokens that the model takes and gives
    const int64_t rows = hd_logits_vocab(p), below = p->inputs[0].below;
    return below < rows ? below : rows;
}

static bool add(Sample *s, const HdProgram *p, int64_t token, const char *what) {
    if (token < 0 || token >= vocabulary(p))
        return hd_fail("%s %lld is outside the vocabulary of %lld of model %s", what, (long long)token,
                       (long long)vocabulary(p), p->model);
    s->tokens[s->prompt++] = (int32_t)token;
    return true;
}

static bool read_text(Sample *s, const HdProgram *p, const char *text) {
    if (vocabulary(p) > BYTES)
        return hd_fail("--sample: the tokens of model %s are numbers up to %lld and not bytes: run this program "
                       "with its tokenizer, heddle-sample --tokenizer=tokenizer.json --sample=TEXT PROGRAM, or give "
                       "the prompt as numbers, --sample-ids=1,2,3",
                       p->model, (long long)vocabulary(p) - 1);
    for (const char *c = text; *c; c++)
        if (!add(s, p, (unsigned char)*c, "--sample: byte")) return false;
    return true;
}

static bool read_ids(Sample *s, const HdProgram *p, const char *text) {
    for (const char *at = text;; at++) {
        char *end;
        errno = 0;
        const long long id = strtoll(at, &end, 10);
        if (end == at || errno || (*end && *end != ','))
            return hd_fail("--sample-ids=%s: expected numbers with commas between them, such as 1,2,3", text);
        if (!add(s, p, id, "--sample-ids:")) return false;
        if (!*end) return true;
        at = end;
    }
}

bool hd_sample_open(Sample *s, const HdProgram *p, const Options *o) {
    const char *given = o->sample ? o->sample : o->sample_ids;
    *s = (Sample){.text = o->sample != NULL};
    if (!hd_sample_wanted(o)) return true;
    if (!hd_logits_there(p, o->sample ? "sample" : "sample-ids")) return false;
    s->tokens = calloc(strlen(given) + (size_t)o->tokens + 1, sizeof *s->tokens); // a token has at least a character
    if (!s->tokens) return hd_fail("out of memory: a text of %lld tokens", (long long)o->tokens);
    const bool ok = (o->sample ? read_text : read_ids)(s, p, given);
    s->total = s->prompt + o->tokens;
    if (ok && o->top_k > hd_logits_vocab(p))
        return hd_fail("--top-k=%lld: model %s has %lld tokens to choose from, so that it changes nothing",
                       (long long)o->top_k, p->model, (long long)hd_logits_vocab(p));
    return ok;
}

void hd_sample_close(Sample *s) {
    free(s->tokens);
    *s = (Sample){0};
}

// --- tokens

typedef struct {
    HdExec *x;
    HdWorld *w;
    int64_t seq, vocab;
    int32_t *window;
    float *logits, *again; // a row
    HdChance *chances;
    HdChoice choice;
    uint64_t seed;
    int64_t kept; // keys and values of so many tokens of the text are there
    int64_t asked, given; // tokens of the text up to the last one that the target is asked for, that it has given
} Writer;

// all: the logits of the last of n tokens, at most `seq`, of which `kept` have run.
static bool next_logits(Writer *t, const int32_t *tokens, int64_t n, float *row) {
    bool ok = true;
    for (; ok && t->kept < n; t->kept++) ok = hd_decode_run(t->x, tokens[t->kept], (int32_t)t->kept);
    return ok && hd_decode_read(t->x, row);
}

static bool target_chooses(const Writer *t) {
    return t->w->ranks == 1 && t->vocab <= HD_MOST_CHOSEN && t->x->program->backend->choose;
}

static double place(const Writer *t, const Sample *s, int64_t n) { // of token n, among the shares
    return hd_choose_at(t->seed, (uint64_t)(n - s->prompt));
}

static bool ask(Writer *t, const Sample *s) { // for the next token
    bool ok = true;
    if (t->asked == s->prompt)
        for (; ok && t->kept < s->prompt; t->kept++) ok = hd_decode_run(t->x, s->tokens[t->kept], (int32_t)t->kept);
    else ok = hd_decode_again(t->x), t->kept++;
    const HdPick how = {t->choice.temperature, t->choice.top_p, place(t, s, t->asked), t->choice.top_k};
    t->asked++;
    return ok && hd_decode_choose(t->x, &how, t->vocab);
}

// Token n, and those after it are under way.
static bool by_target(Writer *t, const Sample *s, int64_t n, int32_t *token) {
    enum { AHEAD = 2 };
    const int64_t last = s->total < t->seq + 1 ? s->total : t->seq + 1;
    bool ok = true;
    if (!t->asked) t->asked = t->given = s->prompt;
    while (ok && t->asked < last && t->asked <= n + AHEAD) ok = ask(t, s);
    t->given++;
    return ok && hd_decode_chosen(t->x, token);
}

static bool take_rest(Writer *t) { // of a text that a signal ended
    int32_t token;
    for (; t->given < t->asked; t->given++)
        if (!hd_decode_chosen(t->x, &token)) return false;
    return true;
}

// all: the logits of the last of n tokens. `pad`: what is behind them.
static bool last_logits(Writer *t, const int32_t *tokens, int64_t n, int32_t pad, float *row) {
    const int64_t from = n > t->seq ? n - t->seq : 0, there = n - from;
    memcpy(t->window, tokens + from, (size_t)there * sizeof *tokens);
    for (int64_t i = there; i < t->seq; i++) t->window[i] = pad;
    return hd_logits_run(t->x, t->window) && hd_logits_read(t->x, there - 1, 1, row);
}

// The products of an expert round by how many tokens it has, those behind the last one among them: the share of the
// largest logit by which a program with experts may be off. Of all others every bit counts.
static float rounding(const HdProgram *p) {
    const HdStep *s = &p->logits_step;
    bool experts = false;
    for (int i = 0; i < s->n_segments; i++)
        for (int k = 0; k < s->segments[i].func->n_actions; k++)
            experts |= !strcmp(s->segments[i].func->actions[k].op, "dispatch");
    return !experts ? 0 : p->buckets[0].compute_dtype == HD_F32 ? 0x1p-12F : 0x1p-5F;
}

// all: equal logits, whatever comes later.
static bool is_causal(Writer *t, const int32_t *tokens, int64_t n) {
    const HdProgram *p = t->x->program;
    float largest = 0, off = 0;
    if (n >= t->seq || t->vocab < 2) return true;
    if (!last_logits(t, tokens, n, (int32_t)t->vocab - 1, t->again)) return false;
    for (int64_t i = 0; i < t->vocab; i++) {
        largest = fmaxf(largest, fabsf(t->logits[i]));
        off = fmaxf(off, fabsf(t->logits[i] - t->again[i]));
    }
    return !memcmp(t->logits, t->again, (size_t)t->vocab * sizeof *t->logits) || off < rounding(p) * largest ||
           hd_fail("the logits of model %s for a token depend on tokens behind it, so it cannot write text: its "
                   "attention is not causal, or something else reads along the sequence",
                   p->model);
}

// all: rank 0 chooses. *stop: a signal ends the text.
static bool next_token(Writer *t, const Sample *s, int64_t n, int32_t *token, bool *stop) {
    const bool keeps = hd_decode_there(t->x->program) && n <= t->seq;
    const bool there = keeps && target_chooses(t);
    int32_t chosen[2] = {0, hd_signal_stop() != 0};
    bool ok = there   ? by_target(t, s, n, chosen)
              : keeps ? next_logits(t, s->tokens, n, t->logits)
                      : last_logits(t, s->tokens, n, 0, t->logits) && (n > s->prompt || is_causal(t, s->tokens, n));
    if (ok && !there)
        chosen[0] = (int32_t)hd_choose(&t->choice, t->vocab, t->logits, place(t, s, n), t->chances);
    if (ok && chosen[0] < 0) ok = hd_fail("the logits of token %lld of the text are not all finite", (long long)n);
    if (!hd_world_agree(t->w, ok) || (t->w->ranks > 1 && !t->w->share(t->w, chosen, sizeof chosen))) return false;
    *token = chosen[0];
    *stop = chosen[1];
    return true;
}

static bool written(void) {
    return (!ferror(stdout) && !fflush(stdout)) || hd_fail("cannot write the text: %s", strerror(errno));
}

// Numbers are there as soon as they are chosen.
static bool say_numbers(const Sample *s, int64_t from, int64_t n) {
    for (int64_t i = from; i < n; i++) hd_say(stdout, "%s%d", i ? "," : "", (int)s->tokens[i]);
    return written();
}

static bool say_bytes(const Sample *s, int64_t n) {
    const bool terminal = isatty(STDOUT_FILENO);
    char *text = malloc((size_t)n + 2);
    if (!text) return hd_fail("out of memory: a text of %lld tokens", (long long)n);
    for (int64_t i = 0; i < n; i++) {
        text[i] = (char)s->tokens[i];
        if (terminal && (!text[i] || text[i] == '\t')) text[i] = ' ';
    }
    text[n] = '\n';
    text[n + 1] = 0;
    if (terminal) hd_say_text(stdout, text);
    else fwrite(text, 1, (size_t)n + 1, stdout);
    free(text);
    return written();
}

static bool write_tokens(Writer *t, Sample *s, double *seconds) {
    const bool numbers = !t->w->rank && !s->text;
    int64_t n = s->prompt;
    bool stop = false, ok = true, said = !numbers || say_numbers(s, 0, n);
    const double start = hd_now();
    for (; ok && n < s->total && !stop; n++) {
        t->w->at(t->w, "token", n + 1);
        ok = next_token(t, s, n, &s->tokens[n], &stop);
        if (ok && numbers && said) said = say_numbers(s, n, n + 1);
    }
    ok = ok && take_rest(t);
    *seconds = hd_now() - start;
    if (numbers && said) hd_say(stdout, "\n"), said = written();
    return ok && hd_world_agree(t->w, said && (t->w->rank || numbers || say_bytes(s, n)));
}

bool hd_sample_write(Sample *s, HdExec *x, HdWorld *w, const Options *o, double *seconds) {
    const HdProgram *p = x->program;
    Writer t = {.x = x, .w = w, .seq = hd_logits_seq(p), .vocab = vocabulary(p), .seed = (uint64_t)o->seed,
                .choice = {o->temperature, o->top_k, o->top_p}};
    const size_t row = (size_t)hd_logits_vocab(p);
    t.window = malloc((size_t)t.seq * sizeof *t.window);
    t.logits = malloc(row * sizeof *t.logits);
    t.again = malloc(row * sizeof *t.again);
    t.chances = malloc(row * sizeof *t.chances);
    bool ok = (t.window && t.logits && t.again && t.chances) || hd_fail("out of memory: logits of a token");
    ok = hd_world_agree(w, ok) && write_tokens(&t, s, seconds);
    free(t.window);
    free(t.logits);
    free(t.again);
    free(t.chances);
    return ok;
}
