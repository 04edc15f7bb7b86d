// Command line of a compiled program. One row per option; the help text is made from the rows.
#include "runtime/run/options.h"
#include "runtime/run/words.h"
#include "runtime/checkpoint/settings.h"
#include "runtime/sample/call.h"
#include "runtime/dtypes.h"
#include "runtime/world/mesh.h"
#include "runtime/text.h"
#include "version.h"
#include <errno.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// COUNT: at least 1. NUMBER: at least 0. NAMES: may be given several times
// EVERY: a COUNT of steps, or a time. BATCHES: a COUNT, or all. SHARE: a number that need not be whole
typedef enum {
    TEXT,
    NAMES,
    FORMAT,
    DTYPE_OF,
    COUNT,
    NUMBER,
    SHARE,
    EVERY,
    BATCHES,
    ON,
    REPORT,
    HELP,
    MAN,
    VERSION
} Kind;
static const struct {
    const char *name, *value;
    Kind kind;
    size_t field; // of Options
    const char *doc;
} rows[] = {
    {"data", "FILE", NAMES, offsetof(Options, data),
     "training tokens: .txt (bytes), .bin (raw u16, llm.c's or Megatron's), .npy; again for more files;\n"
     "                       also a folder, a pattern such as 'shards/*.bin', or @LIST, a file of names;\n"
     "                       NAME=FILE for an argument of the loss: --data image=x.npy --data label=y.npy"},
    {"val", "FILE", NAMES, offsetof(Options, val), "validation tokens, in the same ways"},
    {"format", "KIND", FORMAT, offsetof(Options, formats),
     "what data files without a header hold: bytes, u8, i16, u16, i32, u32, i64, f16, bf16, f32;\n"
     "                       NAME=KIND for an argument of the loss"},
    {"steps", "N", NUMBER, offsetof(Options, steps), "train until step N"},
    {"ranks", "N", COUNT, offsetof(Options, ranks), "ranks on this host: as many as the mesh of the program has"},
    {"seed", "N", NUMBER, offsetof(Options, seed),
     "seed of initial weights and data order (default: the train block's)"},
    {"log", "FILE", TEXT, offsetof(Options, log), "one JSON line a step; with --resume, added to the file"},
    {"tensorboard", "DIR", TEXT, offsetof(Options, tensorboard), "the numbers of the log as a new event file in DIR"},
    {"digest", "FILE", TEXT, offsetof(Options, digest), "exact loss and gradient norm per step, a hash per parameter"},
    {"save", "DIR", TEXT, offsetof(Options, save), "write a checkpoint at the end"},
    {"save-every", "N", EVERY, offsetof(Options, save_every), "... and every N steps, or 30s, 20m, 2h: every so long"},
    {"keep", "N", COUNT, offsetof(Options, keep), "keep the newest N checkpoints, and a link `latest` (default: one)"},
    {"keep-best", NULL, ON, offsetof(Options, keep_best),
     "also keep the one with the least validation loss, in DIR/best"},
    {"overwrite", NULL, ON, offsetof(Options, overwrite),
     "replace the checkpoint of another run in the folder of --save"},
    {"resume", "DIR", TEXT, offsetof(Options, resume), "continue from a checkpoint, a folder or its file"},
    {"resume-with", "NAMES", TEXT, offsetof(Options, resume_with),
     "... with this program's train block where these settings differ: lr,total,clip,batch, ... or all"},
    {"init", "FILE", TEXT, offsetof(Options, init),
     "start from the weights of a safetensors file, an index of several, or a folder with either"},
    {"init-missing", "fresh", TEXT, offsetof(Options, init_missing),
     "... and parameters that it lacks from their initialisers"},
    {"init-ignore", "PATTERN", NAMES, offsetof(Options, init_ignore),
     "... without its tensors of these names, such as 'h.*.attn.bias'; again for more"},
    {"init-rename", "FROM=TO", NAMES, offsetof(Options, init_rename),
     "... with TO for FROM in its names (FROM empty: in front of them); again for more"},
    {"export", "FILE", TEXT, offsetof(Options, export_to), "write the weights as one safetensors file"},
    {"as", "hf", TEXT, offsetof(Options, as),
     "... in a folder with config.json and tokenizer files, which transformers loads"},
    {"weights", "ema", TEXT, offsetof(Options, weights),
     "... the average that train.optimizer.ema keeps; of --resume without --steps also for --eval,\n"
     "                       --sample, --logits and --run"},
    {"export-dtype", "TYPE", DTYPE_OF, offsetof(Options, export_dtype), "... in f32 (default), bf16 or f16"},
    {"val-every", "N", COUNT, offsetof(Options, val_every), "validation loss every N steps (default: at the end)"},
    {"val-batches", "N", BATCHES, offsetof(Options, val_batches),
     "batches in a validation, spread over the data, or all (default 8; all with --eval)"},
    {"eval", NULL, ON, offsetof(Options, eval), "train nothing: the validation loss of --resume or --init, and stop"},
    {"logits", "FILE", TEXT, offsetof(Options, logits),
     "write the logits of every sequence of --data, after training if there is any: .npy or .safetensors"},
    {"run", "NAME", TEXT, offsetof(Options, run),
     "train nothing: run the function NAME of the model on every row of --data, for --output"},
    {"output", "FILE", TEXT, offsetof(Options, output), "... and write what it returns: .npy or .safetensors, f32"},
    {"sample", "TEXT", TEXT, offsetof(Options, sample), "print TEXT and what the model writes after it, at the end"},
    {"sample-ids", "LIST", TEXT, offsetof(Options, sample_ids), "... tokens as numbers, such as 1,2,3, in and out"},
    {"tokens", "N", COUNT, offsetof(Options, tokens), "... so many tokens (default: 100)"},
    {"temperature", "T", SHARE, offsetof(Options, temperature),
     "... logits divided by T (default: 1); 0: the likeliest token each time"},
    {"top-k", "K", COUNT, offsetof(Options, top_k), "... each among the K likeliest"},
    {"top-p", "P", SHARE, offsetof(Options, top_p), "... each among the likeliest that together have the share P"},
    {"sample-every", "N", COUNT, offsetof(Options, sample_every), "... also every N steps"},
    {"choices", "FILE", TEXT, offsetof(Options, choices),
     "run the algorithms of matrix products that FILE names, for the same bits on another machine of this\n"
     "                       kind; where there is no such file, those that are chosen are written there"},
    {"log-every", "N", COUNT, offsetof(Options, log_every), "print every N steps (default: about 50 lines in all)"},
    {"no-graph", NULL, ON, offsetof(Options, no_graph), "issue every action instead of replaying captured graphs"},
    {"check", NULL, ON, offsetof(Options, check),
     "stop at the first NaN, infinity or index out of range and name it; compare graphs before use; of a program\n"
     "                       with a guard (heddlec --guard) stop at the first action that writes beyond a value"},
    {"profile", "FILE", TEXT, offsetof(Options, profile), "time every action of the last step: Chrome trace JSON"},
    {"timeline", "FILE", TEXT, offsetof(Options, timeline),
     "time every action of the last step: a page of HTML to look at"},
    {"report", "[=json]", REPORT, 0, "print the memory that the plan takes and stop: text, or JSON"},
    {"help", NULL, HELP, 0, "this text (-h)"},
    {"print-man", NULL, MAN, 0, "print the man page of this program, and stop"},
    {"version", NULL, VERSION, 0, "the version of Heddle that this program was made with"},
};
enum { N_OPTIONS = sizeof rows / sizeof *rows };

HdOptionRow hd_options_row(int i) {
    if (i >= N_OPTIONS) return (HdOptionRow){0};
    return (HdOptionRow){rows[i].name, rows[i].value, rows[i].doc};
}

const char hd_options_signals[] =
    "Interrupted or terminated, or after SIGUSR2, a program finishes its step, saves (with --save) and exits with"
    " 128 + the\n"
    "signal's number; a second signal, more than a second later, ends it at once. SIGUSR1 saves and goes on.\n";
const char hd_options_environment[] =
    "Environment of programs for the cuda target: HEDDLE_CUDA_PATH=FOLDERS with NVIDIA's libraries, "
    "HEDDLE_CACHE=FOLDER|off,\n"
    "HEDDLE_TUNE=load (choose algorithms of matrix products under load: longer, once; 0: time none),\n"
    "HEDDLE_ATTENTION=kernel, HEDDLE_EARLY=0 (launch no kernel before the one before it has ended),\n"
    "HEDDLE_SYNC=1 (find the action that fails), HEDDLE_VERBOSE=1 (print every choice)\n";

static void usage(FILE *f, const char *argv0) {
    hd_say(f, "usage: %s --data=FILE --steps=N [options]\n", argv0);
    for (int i = 0; i < N_OPTIONS; i++) {
        char left[40];
        const char *value = rows[i].value ? rows[i].value : "";
        snprintf(left, sizeof left, "--%s%s%s", rows[i].name, *value && *value != '[' ? "=" : "", value);
        hd_say(f, "  %-20s ", left);
        hd_say_text(f, rows[i].doc);
        hd_say_text(f, "\n");
    }
    hd_say_text(f, hd_options_signals);
    hd_say_text(f, hd_options_environment);
}

static bool silent; // another rank says it

__attribute__((format(printf, 1, 2))) static void say(const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    if (!silent) hd_vsay(stderr, fmt, ap);
    va_end(ap);
}

static bool number(const char *name, const char *text, int64_t least, int64_t most, int64_t *v) {
    char *end;
    errno = 0;
    long long n = strtoll(text, &end, 10);
    if (*end || end == text || errno || n < least || n > most) {
        say("error: --%s=%s: expected a whole number from %lld to %lld\n", name, text, (long long)least,
            (long long)most);
        return false;
    }
    *v = n;
    return true;
}

static int add_name(Names *names, const char *name) { // 0 or 2
    const char **grown = realloc(names->at, sizeof *grown * (size_t)(names->n + 1));
    if (!grown) {
        say("error: out of memory\n");
        return 2;
    }
    names->at = grown;
    names->at[names->n++] = name;
    return 0;
}

static int set_format(Names *formats, const char *text) { // 0 or 2
    const char *equal = strchr(text, '='), *name = equal ? equal + 1 : text;
    if (hd_data_type(name)) return add_name(formats, text);
    const char *ours = hd_word_format(name);
    say("error: --format=%s: the formats are bytes, u8, i16, u16, i32, u32, i64, f16, bf16 and f32%s%s\n", text,
        ours ? "; it is called " : "", ours ? ours : "");
    return 2;
}

static int set_dtype(HdDtype *dtype, const char *name) { // 0 or 2
    static const HdDtype dtypes[] = {HD_F32, HD_BF16, HD_F16};
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
        if (!strcmp(name, hd_dtypes[dtypes[i]].name)) {
            *dtype = dtypes[i];
            return 0;
        }
    say("error: --export-dtype=%s: weights are written as f32, bf16 or f16\n", name);
    return 2;
}

static int set_share(double *v, const char *name, const char *text, double most) { // 0 or 2
    char *end;
    *v = strtod(text, &end);
    if (end != text && !*end && *v >= 0 && *v <= most) return 0; // a NaN is not
    say("error: --%s=%s: expected a number from 0 to %g\n", name, text, most);
    return 2;
}

static int set_every(Options *o, const char *name, const char *text) { // 0 or 2
    static const struct { char unit; int64_t seconds; } units[] = {{'s', 1}, {'m', 60}, {'h', 3600}};
    const size_t n = strlen(text);
    char digits[24];
    o->save_every = o->save_seconds = 0;
    for (size_t i = 0; n && n < sizeof digits && i < sizeof units / sizeof *units; i++) {
        if (text[n - 1] != units[i].unit) continue;
        snprintf(digits, sizeof digits, "%.*s", (int)n - 1, text);
        if (strspn(digits, "0123456789") != n - 1 || n == 1) {
            say("error: --%s=%s: expected a whole number of steps, or of one unit of time: 30s, 20m or 2h\n", name,
                text);
            return 2;
        }
        if (!number(name, digits, 1, INT32_MAX / units[i].seconds, &o->save_seconds)) return 2;
        o->save_seconds *= units[i].seconds;
        return 0;
    }
    return number(name, text, 1, INT32_MAX, &o->save_every) ? 0 : 2;
}

static int set(Options *o, int row, const char *arg) { // 0 or 2
    const char *name = rows[row].name;
    const Kind kind = rows[row].kind;
    void *field = (char *)o + rows[row].field;
    if ((kind == TEXT || kind == NAMES) && !*arg) {
        const bool file = !strcmp(rows[row].value, "FILE") || !strcmp(rows[row].value, "DIR");
        say("error: --%s needs a %s\n", name, file ? "file name" : "value");
        return 2;
    }
    if (kind == REPORT && arg && strcmp(arg, "json")) {
        say("error: --%s=%s: json is the only other form\n", name, arg);
        return 2;
    }
    if (kind == TEXT) *(const char **)field = arg;
    if (kind == NAMES) return add_name(field, arg);
    if (kind == FORMAT) return set_format(field, arg);
    if (kind == DTYPE_OF) return set_dtype(field, arg);
    if (kind == SHARE) return set_share(field, name, arg, field == &o->top_p ? 1 : 1e6);
    if (kind == EVERY) return set_every(o, name, arg);
    if (kind == ON) *(bool *)field = true;
    if (kind == REPORT) *(arg ? &o->report_json : &o->report) = true;
    if (kind == BATCHES && !strcmp(arg, "all")) o->val_batches = INT32_MAX;
    if (kind != COUNT && kind != NUMBER && (kind != BATCHES || !strcmp(arg, "all"))) return 0;
    const bool seed = field == &o->seed;
    o->seed_given |= seed;
    return number(name, arg, kind != NUMBER, seed ? INT64_MAX : INT32_MAX, field) ? 0
                                                                                 : 2; // the device counts in 32 bits
}

static int refuse(const char *what, const char *arg, const char *argv0) {
    say("error: %s%s; try %s --help\n", what, arg, argv0);
    return 2;
}

// The option that a name has with a dash for each underscore; NULL: none.
static const char *with_dashes(const char *given) {
    for (int i = 0; strchr(given, '_') && i < N_OPTIONS; i++) {
        const char *a = given + 2, *b = rows[i].name;
        while (*b && (*a == *b || (*a == '_' && *b == '-'))) a++, b++;
        if (!*b && (!*a || *a == '=')) return rows[i].name;
    }
    return NULL;
}

// getopt found no option it may take: `id` is ':' for a missing value, else '?', and optopt the row, when there is one.
static int refuse_option(int id, char **argv) {
    const bool row = optopt > 0 && optopt < N_OPTIONS;
    if (id == ':') {
        const Kind kind = rows[optopt].kind;
        say("error: %s needs a value: --%s=%s; try %s --help\n", argv[optind - 1], rows[optopt].name,
            kind == REPORT ? "json" : rows[optopt].value, argv[0]);
        return 2;
    }
    if (row) return refuse("no value may follow in ", argv[optind - 1], argv[0]);
    if (optopt) return refuse("options begin with --, unlike -", (char[]){(char)optopt, 0}, argv[0]);
    const char *meant = with_dashes(argv[optind - 1]);
    if (meant) {
        say("error: %s: it is called --%s; try %s --help\n", argv[optind - 1], meant, argv[0]);
        return 2;
    }
    const char *word = hd_word_option(argv[optind - 1]);
    if (word) {
        say("error: there is no option %s: %s; try %s --help\n", argv[optind - 1], word, argv[0]);
        return 2;
    }
    say("error: no option, or more than one, begins with %s; try %s --help. Sizes, batch and rates are "
        "settings of heddlec: --set NAME=VALUE\n", argv[optind - 1], argv[0]);
    return 2;
}

static bool writes(const Options *o) { return o->logits || o->run || o->output || o->sample || o->sample_ids; }

// Checks the options of what the model writes. Returns 0 or 2.
static int refuse_writing(const Options *o, const char *argv0) {
    const bool text = o->sample || o->sample_ids, weights = o->resume || o->init || o->steps > 0;
    const char *needs = o->tokens ? "tokens" : o->temperature >= 0 ? "temperature" : o->top_k ? "top-k" :
                        o->top_p >= 0 ? "top-p" : o->sample_every ? "sample-every" : NULL;
    if (o->sample && o->sample_ids)
        return refuse("--sample and --sample-ids both say how a text begins; give one", "", argv0);
    if (needs && !text) {
        say("error: --%s needs --sample=TEXT or --sample-ids=LIST; try %s --help\n", needs, argv0);
        return 2;
    }
    if (o->sample_every && o->steps <= 0) return refuse("--sample-every needs --steps=N", "", argv0);
    if (o->temperature == 0 && (o->top_k || o->top_p >= 0))
        return refuse("--temperature=0 takes the likeliest token, and --top-k and --top-p change nothing", "", argv0);
    if (o->output && !o->run) return refuse("--output needs --run=NAME, a function of the model", "", argv0);
    if (o->run && (!o->output || !o->data.n))
        return refuse(o->output ? "--run needs --data=FILE, the rows that the function runs on"
                                : "--run needs --output=FILE, for what the function returns", "", argv0);
    if (o->run && (o->steps > 0 || o->logits || text || o->eval || o->val.n))
        return refuse("--run has --data to itself, and nothing else reads it: leave out ",
                      o->steps > 0 ? "--steps, and --resume what was trained" : o->logits ? "--logits"
                      : text ? "--sample" : o->eval ? "--eval" : "--val", argv0);
    if (writes(o) && !weights)
        return refuse(o->run ? "--run needs the weights of --resume or --init"
                      : o->logits ? "--logits needs the weights of --resume or --init, or --steps=N"
                                  : "--sample needs the weights of --resume or --init, or --steps=N", "", argv0);
    if (o->logits && !o->data.n) return refuse("--logits needs --data=FILE, whose sequences it is of", "", argv0);
    return 0;
}

// Checks --weights. Returns 0 or 2.
static int refuse_average(const Options *o, const HdProgram *p, const char *argv0) {
    if (!o->weights) return 0;
    if (strcmp(o->weights, "ema")) return refuse("--weights=ema is the only form, unlike ", o->weights, argv0);
    if (!p->average)
        return refuse("--weights=ema: this program keeps no average of its weights; heddlec --set "
                      "train.optimizer.ema=0.999 makes one that does", "", argv0);
    if (o->steps > 0 && (!o->export_to || o->val.n || writes(o)))
        return refuse("--weights=ema with --steps=N is of --export alone: a run validates and writes with the weights "
                      "that it trains; save it, and --resume=DIR without --steps takes the average", "", argv0);
    if (o->steps <= 0 && !o->resume)
        return refuse("--weights=ema needs --resume=DIR, a checkpoint with the average", "", argv0);
    if (o->steps <= 0 && o->save)
        return refuse("--weights=ema with --save would replace weights that were trained; --export=FILE writes the "
                      "average, and --init=FILE starts from it", "", argv0);
    return 0;
}

// Options that only steps, or only a validation, would read: 0 or 2.
static int refuse_idle(const Options *o, const char *argv0) {
    const char *idle = o->steps > 0                       ? NULL
                       : o->val_every                     ? "--val-every"
                       : o->save_every || o->save_seconds ? "--save-every"
                       : o->log_every                     ? "--log-every"
                       : o->profile                       ? "--profile"
                       : o->timeline                      ? "--timeline"
                                                          : NULL;
    if (idle) {
        say("error: %s needs --steps=N: nothing is trained; try %s --help\n", idle, argv0);
        return 2;
    }
    if (o->val_batches && !o->val.n) return refuse("--val-batches needs --val=FILE", "", argv0);
    if (o->eval && o->data.n && !o->logits) return refuse("--eval reads --val alone: leave --data out", "", argv0);
    if (o->steps < 0 && o->data.n && !writes(o))
        return refuse("--data needs --steps=N: nothing is trained; leave it out, or say how many steps", "", argv0);
    return 0;
}

// Checks options that belong together or exclude each other. Returns 0 or 2.
static int combine(const Options *o, int argc, char **argv) {
    static const char *const none = "";
    if (o->report || o->report_json) return 0;
    if (o->eval && (o->steps > 0 || !o->val.n || !(o->resume || o->init)))
        return refuse("--eval needs --val=FILE and the weights of --resume or --init, and no --steps", none, argv[0]);
    if (o->steps < 0 && !o->eval && !o->export_to && !(o->val.n && o->resume) && !writes(o)) {
        if (argc == 1 && !silent) usage(stderr, argv[0]);
        return refuse("--steps=N is missing", none, argv[0]);
    }
    if (o->steps > 0 && !o->data.n) return refuse("--data=FILE is missing: steps need training tokens", none, argv[0]);
    if ((o->save_every || o->save_seconds) && !o->save)
        return refuse("--save-every needs --save=DIR", none, argv[0]);
    if ((o->keep || o->keep_best || o->overwrite) && !o->save)
        return refuse(o->keep        ? "--keep needs --save=DIR"
                      : o->keep_best ? "--keep-best needs --save=DIR"
                                     : "--overwrite needs --save=DIR",
                      none, argv[0]);
    if (refuse_writing(o, argv[0]) || refuse_idle(o, argv[0])) return 2;
    if (o->keep_best && !o->val.n) return refuse("--keep-best needs --val=FILE", none, argv[0]);
    if (o->val_every && !o->val.n) return refuse("--val-every needs --val=FILE", none, argv[0]);
    if (o->export_dtype != HD_F32 && !o->export_to)
        return refuse("--export-dtype needs --export=FILE", none, argv[0]);
    if ((o->init_missing || o->init_ignore.n || o->init_rename.n) && !o->init)
        return refuse(o->init_missing    ? "--init-missing needs --init=FILE"
                      : o->init_ignore.n ? "--init-ignore needs --init=FILE"
                                         : "--init-rename needs --init=FILE",
                      none, argv[0]);
    if (o->init_missing && strcmp(o->init_missing, "fresh"))
        return refuse("--init-missing=fresh is the only form, unlike ", o->init_missing, argv[0]);
    for (int i = 0; i < o->init_rename.n; i++)
        if (!strchr(o->init_rename.at[i], '='))
            return refuse("--init-rename takes FROM=TO, not ", o->init_rename.at[i], argv[0]);
    if (o->as && strcmp(o->as, "hf")) return refuse("--as=hf is the only form, unlike ", o->as, argv[0]);
    if (o->as && !o->export_to) return refuse("--as needs --export=DIR", none, argv[0]);
    if (o->init && o->resume)
        return refuse("--init and --resume both say where the weights come from; give one", none, argv[0]);
    return 0;
}

static int names_settings(const Options *o, const HdProgram *p) { // 0 or 2
    char wrong[100], names[600];
    if (!o->resume_with) return 0;
    if (!o->resume) {
        say("error: --resume-with needs --resume=DIR\n");
        return 2;
    }
    if (hd_settings_named(o->resume_with, p->train, wrong, sizeof wrong, names, sizeof names)) return 0;
    const char *ours = hd_word_setting(wrong, strlen(wrong));
    if (ours) say("error: --resume-with: no setting of a train block is called '%s'; it is %s here\n", wrong, ours);
    else
        say("error: --resume-with: no setting of a train block is called '%s'; there are %s; all means every one\n",
            wrong, names);
    return 2;
}

static int names_function(const Options *o, const HdProgram *p) { // 0 or 2
    char names[600] = "";
    size_t n = 0;
    if (!o->run || hd_call_find(p, o->run) >= 0) return 0;
    const int calls = p->call_step.n_segments;
    for (int i = 0; i < calls && n < sizeof names; i++)
        n += (size_t)snprintf(names + n, sizeof names - n, "%s%s", !i ? "" : i < calls - 1 ? ", " : " and ",
                              p->calls[i].name);
    if (!strcmp(o->run, "loss"))
        say("error: --run=loss: --eval --val=FILE evaluates the loss; --run is for functions that schedule.functions "
            "names\n");
    else if (calls)
        say("error: --run=%s: of the functions of model %s this program has %s; where the model has this one, too, "
            "heddlec --set schedule.functions=%s makes a program that runs it\n", o->run, p->model, names, o->run);
    else
        say("error: --run=%s: this program has no function of model %s to run; where the model has it, heddlec --set "
            "schedule.functions=%s makes one that does\n", o->run, p->model, o->run);
    return 2;
}

HdInputs hd_options_inputs(const HdProgram *p, const Options *o) {
    const int call = o->run ? hd_call_find(p, o->run) : -1;
    return call < 0 ? hd_inputs(p) : hd_inputs_of_call(p, &p->calls[call]);
}

static int takes_value(const char *arg) {
    return !arg ? no_argument : *arg == '[' ? optional_argument : required_argument;
}

int hd_options_parse(int argc, char **argv, const HdProgram *p, bool speaks, Options *o) {
    struct option longs[N_OPTIONS + 1] = {{NULL, 0, NULL, 0}};
    for (int i = 0; i < N_OPTIONS; i++) longs[i] = (struct option){rows[i].name, takes_value(rows[i].value), NULL, i};
    *o = (Options){.steps = -1, .seed = p->seed, .temperature = -1, .top_p = -1};
    silent = !speaks;
    optind = 1;
    opterr = 0;
    for (int id; (id = getopt_long(argc, argv, ":h", longs, NULL)) != -1;) {
        if (id == '?' || id == ':') return refuse_option(id, argv);
        const Kind kind = id == 'h' ? HELP : rows[id].kind;
        if (speaks && kind == HELP) usage(stdout, argv[0]);
        if (speaks && kind == VERSION)
            hd_say(stdout, "%s, target %s, Heddle %s\n", p->model, p->target, HEDDLE_VERSION);
        if (speaks && kind == MAN) hd_man_page(stdout, p->model);
        if (kind == HELP || kind == MAN || kind == VERSION) return 1;
        if (set(o, id, optarg)) return 2;
    }
    if (optind < argc && !access(argv[optind], F_OK) && o->data.n)
        return refuse(argv[optind], ": each file has an option of its own, as --data=FILE --data=FILE", argv[0]);
    if (optind < argc) return refuse("options begin with --, unlike ", argv[optind], argv[0]);
    if (combine(o, argc, argv) || refuse_average(o, p, argv[0]) || names_settings(o, p) || names_function(o, p))
        return 2;
    if (o->choices && p->backend && p->backend->threads)
        return refuse("--choices is for programs of the target cuda; this one is for ", p->target, argv[0]);
    if (o->ranks && o->ranks != hd_ranks(p)) {
        char mesh[HD_MESH_TEXT];
        say("error: --ranks=%lld: this program was compiled for %d rank%s (mesh { %s; })\n", (long long)o->ranks,
            hd_ranks(p), hd_ranks(p) == 1 ? "" : "s", hd_mesh_say(p, " = ", "; ", mesh, sizeof mesh));
        return 2;
    }
    if (o->steps < 0) o->steps = 0;
    if (!o->tokens) o->tokens = 100;
    if (o->temperature < 0) o->temperature = 1;
    if (o->top_p < 0) o->top_p = 1;
    if (!o->val_batches) o->val_batches = o->eval ? INT32_MAX : 8;
    return 0;
}

void hd_options_free(Options *o) {
    free(o->data.at);
    free(o->val.at);
    free(o->formats.at);
    free(o->init_ignore.at);
    free(o->init_rename.at);
    o->data = o->val = o->formats = o->init_ignore = o->init_rename = (Names){0};
}
