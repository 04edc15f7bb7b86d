// Comparing train blocks. A text of settings is that of an IR attribute list, "{eps = 1e-08, betas = [0.9, 0.98]}".
#include "runtime/checkpoint/settings.h"
#include "runtime/text.h"
#include <stdio.h>
#include <string.h>

// attribute of config @train, name in the train block, value where the attribute is absent (NULL: it has none then)
static const struct { const char *attr, *name, *absent; } rows[] = {
    {"batch", "batch", NULL},
    {"reduction", "reduce", "each"},
    {"grains", "grains", "auto"},
    {"product_form", "products", "separate"},
    {"merged", "products.merged", NULL},
    {"loss_chunks", "loss_chunks", "auto"},
    {"clip", "clip", NULL},
    {"on_nan", "on_nan", "stop"},
    {"skip_loss_z", "skip_loss_z", "0"},
    {"skip_norm_z", "skip_norm_z", "0"},
    {"seed", "seed", NULL},
    {"frozen_parameters", "frozen", "none"},
    {"compute", "precision.compute", "f32"},
    {"fp8", "precision.fp8", "none"},
    {"except", "precision.fp8.except", "none"},
    {"fp8_scale", "precision.fp8.scale", "row"},
    {"fp8_backward", "precision.fp8.backward", "compute"},
    {"fp8_weight_grads", "precision.fp8.weight_grads", "compute"},
    {"fp8_weights", "precision.fp8.weights", "each"},
    {"gather", "precision.gather", "compute"},
    {"master", "precision.master", "f32"},
    {"grad", "precision.grad", "f32"},
    {"reduce", "precision.reduce", "f32"},
    {"moments", "precision.moments", "f32"},
    {"optimizer", "optimizer", "adamw"},
    {"lr", "optimizer.lr", NULL},
    {"lr_peak", "optimizer.lr.peak", NULL},
    {"lr_floor", "optimizer.lr.floor", NULL},
    {"lr_warmup", "optimizer.lr.warmup", NULL},
    {"lr_total", "optimizer.lr.total", NULL},
    {"lr_decay", "optimizer.lr.decay", NULL},
    {"lr_shape", "optimizer.lr.shape", NULL},
    {"lr_steps", "optimizer.lr.steps", NULL},
    {"lr_rates", "optimizer.lr.rates", NULL},
    {"betas", "optimizer.betas", NULL},
    {"eps", "optimizer.eps", NULL},
    {"momentum", "optimizer.momentum", NULL},
    {"nesterov", "optimizer.nesterov", NULL},
    {"ema", "optimizer.ema", "0"},
    {"weight_decay", "optimizer.weight_decay", NULL},
    {"groups", "optimizer.group", NULL},
    {"owners", "optimizer.own", ""},
};
enum { ROWS = sizeof rows / sizeof *rows, NAME = 64 };
// They may always differ (hd_emit_train leaves them out); named, they mean nothing more.
static const char *const loose[] = {"accumulate", "loss_scale"};

static const char *short_name(const char *name) { return strncmp(name, "optimizer.", 10) ? name : name + 10; }

typedef struct { const char *attr, *value; int attr_n, value_n; } Setting;

// The next "name = value" of a list; commas within brackets do not separate settings. False at the end.
static bool next(const char **at, Setting *s) {
    const char *text = *at + strspn(*at, " {,"), *end = text;
    int depth = 0;
    while (*end && *end != '}' && (*end != ',' || depth)) depth += (*end == '[') - (*end == ']'), end++;
    *at = end;
    const char *sign = memchr(text, '=', (size_t)(end - text));
    *s = (Setting){text, sign ? sign + 1 : end, (int)(sign ? sign - text : end - text), 0};
    while (s->attr_n && text[s->attr_n - 1] == ' ') s->attr_n--;
    s->value += strspn(s->value, " ");
    s->value_n = s->value < end ? (int)(end - s->value) : 0;
    return end > text;
}

static int row_of(const Setting *s) { // -1: of another version of Heddle
    for (int i = 0; i < ROWS; i++)
        if ((size_t)s->attr_n == strlen(rows[i].attr) && !memcmp(rows[i].attr, s->attr, (size_t)s->attr_n)) return i;
    return -1;
}

static bool find(const char *list, const Setting *wanted, Setting *found) {
    while (next(&list, found))
        if (found->attr_n == wanted->attr_n && !memcmp(found->attr, wanted->attr, (size_t)wanted->attr_n)) return true;
    const int row = row_of(wanted);
    const char *absent = row >= 0 && rows[row].absent ? rows[row].absent : "none";
    *found = (Setting){wanted->attr, absent, wanted->attr_n, (int)strlen(absent)};
    return false;
}

typedef void EachDifference(const char *name, const Setting *theirs, const Setting *ours, void *data);

static void differ(const Setting *theirs, const Setting *ours, EachDifference *fn, void *data) {
    char name[NAME];
    const int row = row_of(theirs);
    if (theirs->value_n == ours->value_n && !memcmp(theirs->value, ours->value, (size_t)ours->value_n)) return;
    if (row >= 0) snprintf(name, sizeof name, "%s", rows[row].name);
    else snprintf(name, sizeof name, "%.*s", theirs->attr_n, theirs->attr);
    fn(name, theirs, ours, data);
}

static void each_difference(const char *theirs, const char *ours, EachDifference *fn, void *data) {
    Setting a, b;
    for (const char *at = theirs; next(&at, &a);) {
        find(ours, &a, &b);
        differ(&a, &b, fn, data);
    }
    for (const char *at = ours; next(&at, &b);)
        if (!find(theirs, &b, &a)) differ(&a, &b, fn, data);
}

// --- names

// Whether the n bytes at `word` are words of `name`, whole ones and in a row.
static bool within(const char *name, const char *word, size_t n) {
    for (const char *at = name; n && at; at = strchr(at, '.'), at = at ? at + 1 : NULL)
        if (!strncmp(at, word, n) && (!at[n] || at[n] == '.')) return true;
    return false;
}

static bool means(const char *word, size_t n, const char *name) { // `train.` may stand before it, as --set has it
    if (n > 6 && !strncmp(word, "train.", 6)) word += 6, n -= 6;
    return (n == 3 && !strncmp(word, "all", 3)) || within(name, word, n);
}

bool hd_setting_may_change(const char *with, const char *name) {
    for (const char *at = with; at && *at; at += strcspn(at, ","), at += *at == ',')
        if (means(at, strcspn(at, ","), name)) return true;
    return false;
}

static bool means_any(const char *word, size_t n, const char *train) {
    Setting s;
    for (int i = 0; i < ROWS; i++)
        if (means(word, n, rows[i].name)) return true;
    for (size_t i = 0; i < sizeof loose / sizeof *loose; i++)
        if (means(word, n, loose[i])) return true;
    while (train && next(&train, &s))
        if (row_of(&s) < 0 && (size_t)s.attr_n == n && !memcmp(s.attr, word, n)) return true;
    return false;
}

static void append(char *text, size_t size, const char *separator, const char *more) {
    const size_t n = strlen(text);
    if (n + strlen(separator) + strlen(more) < size) snprintf(text + n, size - n, "%s%s", n ? separator : "", more);
}

bool hd_settings_named(const char *with, const char *train, char *wrong, size_t wrong_size, char *names, size_t size) {
    for (const char *at = with;; at++) {
        const size_t n = strcspn(at, ",");
        if (!means_any(at, n, train)) {
            snprintf(wrong, wrong_size, "%.*s", (int)n, at);
            *names = 0;
            for (int i = 0; i < ROWS; i++) append(names, size, ", ", short_name(rows[i].name));
            return false;
        }
        at += n;
        if (!*at) return true;
    }
}

// --- comparing

typedef struct { HdDifferences *d; const char *with; } Compare;

static void compare(const char *name, const Setting *theirs, const Setting *ours, void *data) {
    const Compare *c = data;
    char text[300];
    c->d->differing++;
    c->d->batch |= !strcmp(name, "batch");
    c->d->seed |= !strcmp(name, "seed");
    c->d->optimizer |= !strcmp(name, "optimizer") || !strcmp(name, "optimizer.own") ||
                       !strcmp(name, "frozen"); // other parameters have states
    c->d->average |= !strcmp(name, "optimizer.ema") && theirs->value_n == 1; // they have none: 0
    c->d->compensation |= !strcmp(name, "precision.master"); // if one side has it, the other has not
    if (hd_setting_may_change(c->with, name)) return;
    c->d->refused++;
    snprintf(text, sizeof text, "%s = %.*s there, %.*s in this program", short_name(name), theirs->value_n,
             theirs->value, ours->value_n, ours->value);
    append(c->d->said, sizeof c->d->said, "; ", text);
    append(c->d->names, sizeof c->d->names, ",", short_name(name));
}

static bool edited(const char *hash) { return hash && !strncmp(hash, "edited", 6); }

static void tell_other_model(const StFile *f, const HdProgram *p) {
    const char *model = hd_st_meta(f, "model"), *hash = hd_st_meta(f, "model_hash"), *train = hd_st_meta(f, "train");
    if (edited(hash) || edited(p->model_hash))
        hd_fail("%s was written by another program: the IR of %s was edited by hand (hash %s; this program: "
                "%s)",
                f->path, edited(p->model_hash) ? "this one" : "that one", hash ? hash : "none", p->model_hash);
    else
        hd_fail("%s was written by another model%s (%s, hash %s; this program: %s, hash %s)", f->path,
                train && p->train ? "" : " or train block", model ? model : "?", hash ? hash : "none", p->model,
                p->model_hash);
}

// The differences, and how to go on. `core`: the checkpoint says what its model computes.
static bool may_go_on(const StFile *f, const HdDifferences *d, bool core) {
    char init[4200] = "";
    if (!d->refused) return true;
    if (!hd_st_meta(f, "shard 0")) // --init reads no shards
        snprintf(init, sizeof init, "; to begin at step 1 with its weights, --init=%s", f->path);
    return hd_fail("%s was written with another train block; --resume-with=%s (or all) goes on with this program's%s: "
                   "%s%s",
                   f->path, d->names, core ? "" : ", where of the model only names and shapes can be compared", d->said,
                   init);
}

bool hd_settings_fit(const StFile *f, const HdProgram *p, const char *with, HdDifferences *d) {
    const char *hash = hd_st_meta(f, "model_hash"), *core = hd_st_meta(f, "model_core"),
               *train = hd_st_meta(f, "train");
    *d = (HdDifferences){.differing = 0};
    if (hash && !strcmp(hash, p->model_hash)) return true;
    const bool comparable = train && p->train && !edited(hash) && !edited(p->model_hash);
    if (comparable) each_difference(train, p->train, compare, &(Compare){d, with});
    if (!d->differing || (core && p->model_core && strcmp(core, p->model_core) != 0)) {
        tell_other_model(f, p);
        return false;
    }
    if (!may_go_on(f, d, core)) return false;
    return !d->batch || hd_st_meta(f, "sequences") ||
           hd_fail("%s is of an older Heddle and does not say how many sequences it has read: train.batch has to stay",
                   f->path);
}

static void tell(const char *name, const Setting *theirs, const Setting *ours, void *data) {
    char text[400];
    snprintf(text, sizeof text, "%s: %.*s -> %.*s", short_name(name), theirs->value_n, theirs->value, ours->value_n,
             ours->value);
    hd_say(data, "note: resumed with another setting, %s\n", text);
}

void hd_settings_tell(const StFile *f, const HdProgram *p, const HdDifferences *d, const char *with) {
    if (!d->differing && with && !hd_setting_may_change(with, "seed")) // --seed is compared elsewhere
        hd_say(stderr, "note: --resume-with=%s changes nothing: this program's settings are those of %s\n", with,
               f->path);
    if (!d->differing) return;
    each_difference(hd_st_meta(f, "train"), p->train, tell, stderr);
    if (!hd_st_meta(f, "model_core"))
        hd_say(stderr, "note: the checkpoint is of an older Heddle: of its model only names and shapes were "
                       "compared\n");
    if (d->optimizer)
        hd_say(stderr, "note: the optimizer begins anew: its moments are 0 and its steps are counted from 1, so that "
                       "warmup and schedule begin again\n");
    if (p->average && (d->optimizer || d->average))
        hd_say(stderr, "note: the average of the weights begins as the weights of the checkpoint\n");
}

void hd_settings_each(const char *train, HdEachSetting *fn, void *data) {
    char name[NAME];
    Setting s;
    while (train && next(&train, &s)) {
        const int row = row_of(&s);
        snprintf(name, sizeof name, "%.*s", row < 0 ? s.attr_n : NAME, row < 0 ? s.attr : rows[row].name);
        fn(name, s.value, s.value_n, data);
    }
}
