// Command line of a compiled program. One row per option; the help text is made from the rows.
#include "runtime/options.h"
#include "runtime/mesh.h"
#include "version.h"
#include <errno.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OPTIONS(X)                                                                                                     \
    X(DATA, "data", "FILE", "training tokens: .txt (bytes), .bin (raw u16, or u16 after a 1 KiB header)")              \
    X(VAL, "val", "FILE", "validation tokens")                                                                         \
    X(STEPS, "steps", "N", "train until step N")                                                                       \
    X(RANKS, "ranks", "N", "ranks on this host: as many as the mesh of the program has")                               \
    X(SEED, "seed", "N", "seed of initial weights and data order (default: the train block's)")                        \
    X(LOG, "log", "FILE", "one JSON line a step; with --resume, added to the file")                                    \
    X(DIGEST, "digest", "FILE", "exact loss and gradient norm per step, a hash per parameter")                         \
    X(SAVE, "save", "DIR", "write a checkpoint at the end")                                                            \
    X(SAVE_EVERY, "save-every", "N", "... and every N steps")                                                          \
    X(RESUME, "resume", "DIR", "continue from a checkpoint, bit for bit")                                              \
    X(INIT, "init", "FILE", "start from the weights of a safetensors file")                                            \
    X(EXPORT, "export", "FILE", "write the weights as one safetensors file")                                           \
    X(VAL_EVERY, "val-every", "N", "validation loss every N steps (default: at the end)")                              \
    X(VAL_BATCHES, "val-batches", "N", "batches in a validation (default 8)")                                          \
    X(LOG_EVERY, "log-every", "N", "print every N steps (default: about 50 lines in all)")                             \
    X(NO_GRAPH, "no-graph", NULL, "issue every action instead of replaying captured graphs")                           \
    X(CHECK, "check", NULL, "stop at the first NaN or infinity and name it; compare graphs before use")                \
    X(PROFILE, "profile", "FILE", "time every action of the last step: Chrome trace JSON")                             \
    X(TIMELINE, "timeline", "FILE", "time every action of the last step: a page of HTML to look at")                   \
    X(REPORT, "report", "[=json]", "print the memory that the plan takes and stop: text, or JSON")                     \
    X(HELP, "help", NULL, "this text (-h)")                                                                            \
    X(VERSION, "version", NULL, "the version of Heddle that this program was made with")

enum {
#define X(id, name, arg, doc) OPT_##id,
    OPTIONS(X)
#undef X
    N_OPTIONS
};
static const char *const names[] = {
#define X(id, name, arg, doc) name,
    OPTIONS(X)
#undef X
};

static void usage(FILE *f, const char *argv0) {
    static const char *const args[] = {
#define X(id, name, arg, doc) arg,
        OPTIONS(X)
#undef X
    };
    static const char *const docs[] = {
#define X(id, name, arg, doc) doc,
        OPTIONS(X)
#undef X
    };
    fprintf(f, "usage: %s --data=FILE --steps=N [options]\n", argv0);
    for (int i = 0; i < N_OPTIONS; i++) {
        char left[40];
        snprintf(left, sizeof left, "--%s%s%s", names[i], args[i] && *args[i] != '[' ? "=" : "",
                 args[i] ? args[i] : "");
        fprintf(f, "  %-20s %s\n", left, docs[i]);
    }
    fputs("Interrupted or terminated, a program finishes its step, saves (with --save) and exits with 128 + the "
          "signal's number.\n"
          "Environment of programs for the cuda target: HEDDLE_CUDA_PATH=FOLDERS with NVIDIA's libraries, "
          "HEDDLE_CACHE=FOLDER|off,\n"
          "HEDDLE_TUNE=0, HEDDLE_ATTENTION=kernel, HEDDLE_EARLY=0 (launch no kernel before the one before it has "
          "ended),\n"
          "HEDDLE_SYNC=1 (find the action that fails), HEDDLE_VERBOSE=1 (print every choice)\n",
          f);
}

static bool silent; // another rank says it

__attribute__((format(printf, 1, 2))) static void say(const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    if (!silent) vfprintf(stderr, fmt, ap);
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

static int set(Options *o, int id, const char *arg) { // 0 or 2
    const char **text = id == OPT_DATA      ? &o->data
                        : id == OPT_VAL     ? &o->val
                        : id == OPT_LOG     ? &o->log
                        : id == OPT_DIGEST  ? &o->digest
                        : id == OPT_SAVE    ? &o->save
                        : id == OPT_RESUME  ? &o->resume
                        : id == OPT_INIT    ? &o->init
                        : id == OPT_EXPORT  ? &o->export_to
                        : id == OPT_PROFILE ? &o->profile
                        : id == OPT_TIMELINE ? &o->timeline
                                            : NULL;
    if (text) {
        if (!*arg) {
            say("error: --%s needs a file name\n", names[id]);
            return 2;
        }
        *text = arg;
        return 0;
    }
    int64_t *n = id == OPT_STEPS         ? &o->steps
                 : id == OPT_SEED        ? &o->seed
                 : id == OPT_SAVE_EVERY  ? &o->save_every
                 : id == OPT_VAL_EVERY   ? &o->val_every
                 : id == OPT_VAL_BATCHES ? &o->val_batches
                 : id == OPT_LOG_EVERY   ? &o->log_every
                 : id == OPT_RANKS       ? &o->ranks
                                         : NULL;
    if (n) {
        const int64_t most = id == OPT_SEED ? INT64_MAX : INT32_MAX; // the device counts steps in 32 bits
        if (!number(names[id], arg, id == OPT_STEPS || id == OPT_SEED ? 0 : 1, most, n)) return 2;
        if (id == OPT_SEED) o->seed_given = true;
        return 0;
    }
    if (id == OPT_NO_GRAPH) o->no_graph = true;
    if (id == OPT_CHECK) o->check = true;
    if (id == OPT_REPORT && arg && strcmp(arg, "json")) {
        say("error: --report=%s: json is the only other form\n", arg);
        return 2;
    }
    if (id == OPT_REPORT) *(arg ? &o->report_json : &o->report) = true;
    return 0;
}

static int refuse(const char *what, const char *arg, const char *argv0) {
    say("error: %s%s; try %s --help\n", what, arg, argv0);
    return 2;
}

// getopt found no option it may take: `id` is ':' for a missing value, else '?', and optopt the row, when there is one.
static int refuse_option(int id, char **argv) {
    const bool row = optopt > 0 && optopt < N_OPTIONS;
    if (id == ':') return refuse(argv[optind - 1], " needs a value", argv[0]);
    if (row) return refuse("no value may follow in ", argv[optind - 1], argv[0]);
    if (optopt) return refuse("options begin with --, unlike -", (char[]){(char)optopt, 0}, argv[0]);
    return refuse("no option, or more than one, begins with ", argv[optind - 1], argv[0]);
}

// What only makes sense together, or only apart. 0 or 2.
static int combine(const Options *o, int argc, char **argv) {
    static const char *const none = "";
    if (o->report || o->report_json) return 0;
    if (o->steps < 0 && !o->export_to && !(o->val && o->resume)) {
        if (argc == 1 && !silent) usage(stderr, argv[0]);
        return refuse("--steps=N is missing", none, argv[0]);
    }
    if (o->steps > 0 && !o->data) return refuse("--data=FILE is missing: steps need training tokens", none, argv[0]);
    if (o->save_every && !o->save) return refuse("--save-every needs --save=DIR", none, argv[0]);
    if (o->val_every && !o->val) return refuse("--val-every needs --val=FILE", none, argv[0]);
    if (o->init && o->resume)
        return refuse("--init and --resume both say where the weights come from; give one", none, argv[0]);
    return 0;
}

static int takes_value(const char *arg) {
    return !arg ? no_argument : *arg == '[' ? optional_argument : required_argument;
}

int hd_options_parse(int argc, char **argv, const HdProgram *p, bool speaks, Options *o) {
    const struct option longs[] = {
#define X(id, name, arg, doc) {name, takes_value(arg), NULL, OPT_##id},
        OPTIONS(X)
#undef X
        {NULL, 0, NULL, 0}};
    *o = (Options){.steps = -1, .seed = p->seed, .val_batches = 8};
    silent = !speaks;
    optind = 1;
    opterr = 0;
    for (int id; (id = getopt_long(argc, argv, ":h", longs, NULL)) != -1;) {
        if (id == OPT_HELP || id == 'h' || id == OPT_VERSION) {
            if (speaks && id == OPT_VERSION) printf("%s, target %s, Heddle " HEDDLE_VERSION "\n", p->model, p->target);
            else if (speaks) usage(stdout, argv[0]);
            return 1;
        }
        if (id == '?' || id == ':') return refuse_option(id, argv);
        if (set(o, id, optarg)) return 2;
    }
    if (optind < argc) return refuse("options begin with --, unlike ", argv[optind], argv[0]);
    if (combine(o, argc, argv)) return 2;
    if (o->ranks && o->ranks != hd_ranks(p)) {
        char mesh[HD_MESH_TEXT];
        say("error: --ranks=%lld: this program was compiled for %d rank%s (mesh { %s; })\n", (long long)o->ranks,
            hd_ranks(p), hd_ranks(p) == 1 ? "" : "s", hd_mesh_say(p, " = ", "; ", mesh, sizeof mesh));
        return 2;
    }
    if (o->steps < 0) o->steps = 0;
    return 0;
}
