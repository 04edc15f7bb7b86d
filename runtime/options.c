// Command line of a compiled program. One row per option; the help text is made from the rows.
#include "runtime/options.h"
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OPTIONS(X)                                                                                                     \
    X(DATA, "data", "FILE", "training tokens: .txt (bytes), .bin (raw u16, or u16 behind a 1 KiB header)")             \
    X(VAL, "val", "FILE", "validation tokens")                                                                         \
    X(STEPS, "steps", "N", "train until step N")                                                                       \
    X(RANKS, "ranks", "N", "ranks on this host; this program holds one")                                               \
    X(SEED, "seed", "N", "seed of initial weights and data order (default: the train block's)")                        \
    X(LOG, "log", "FILE", "one JSON line a step")                                                                      \
    X(DIGEST, "digest", "FILE", "exact loss and gradient norm per step, a hash per parameter")                         \
    X(SAVE, "save", "DIR", "write a checkpoint at the end")                                                            \
    X(SAVE_EVERY, "save-every", "N", "... and every N steps")                                                          \
    X(RESUME, "resume", "DIR", "go on from a checkpoint, bit for bit")                                                 \
    X(INIT, "init", "FILE", "start from the weights of a safetensors file")                                            \
    X(EXPORT, "export", "FILE", "write the weights as one safetensors file")                                           \
    X(VAL_EVERY, "val-every", "N", "validation loss every N steps (default: at the end)")                              \
    X(VAL_BATCHES, "val-batches", "N", "batches in a validation (default 8)")                                          \
    X(LOG_EVERY, "log-every", "N", "print every N steps (default: about 50 lines in all)")                             \
    X(NO_GRAPH, "no-graph", NULL, "issue every action instead of replaying captured graphs")                           \
    X(CHECK, "check", NULL, "stop at the first NaN or infinity and name the parameter")                                \
    X(PROFILE, "profile", "FILE", "time every action of the last step: Chrome trace JSON")                             \
    X(REPORT, "report", NULL, "print the plan's report as JSON and stop")                                              \
    X(HELP, "help", NULL, "this text")

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
        snprintf(left, sizeof left, "--%s%s%s", names[i], args[i] ? "=" : "", args[i] ? args[i] : "");
        fprintf(f, "  %-20s %s\n", left, docs[i]);
    }
    fputs("Environment of programs for the cuda target: HEDDLE_CUDA_PATH=FOLDERS with NVIDIA's libraries, HEDDLE_CACHE=FOLDER|off,\n"
          "HEDDLE_TUNE=0, HEDDLE_ATTENTION=kernel, HEDDLE_SYNC=1 (find the action that fails), HEDDLE_VERBOSE=1 (tell every choice)\n", f);
}

static bool number(const char *name, const char *text, int64_t least, int64_t *v) {
    char *end;
    errno = 0;
    long long n = strtoll(text, &end, 10);
    if (*end || end == text || errno || n < least) {
        fprintf(stderr, "error: --%s=%s: expected a whole number of at least %lld\n", name, text, (long long)least);
        return false;
    }
    *v = n;
    return true;
}

static int set(Options *o, int id, const char *arg) { // 0 or 2
    const char **text = id == OPT_DATA ? &o->data : id == OPT_VAL ? &o->val : id == OPT_LOG ? &o->log : id == OPT_DIGEST ? &o->digest :
                        id == OPT_SAVE ? &o->save : id == OPT_RESUME ? &o->resume : id == OPT_INIT ? &o->init :
                        id == OPT_EXPORT ? &o->export_to : id == OPT_PROFILE ? &o->profile : NULL;
    if (text) {
        if (!*arg) {
            fprintf(stderr, "error: --%s needs a file name\n", names[id]);
            return 2;
        }
        *text = arg;
        return 0;
    }
    int64_t ranks = 1;
    int64_t *n = id == OPT_STEPS ? &o->steps : id == OPT_SEED ? &o->seed : id == OPT_SAVE_EVERY ? &o->save_every :
                 id == OPT_VAL_EVERY ? &o->val_every : id == OPT_VAL_BATCHES ? &o->val_batches : id == OPT_LOG_EVERY ? &o->log_every :
                 id == OPT_RANKS ? &ranks : NULL;
    if (n) {
        if (!number(names[id], arg, id == OPT_STEPS || id == OPT_SEED ? 0 : 1, n)) return 2;
        if (ranks == 1) return 0;
        fprintf(stderr, "error: --ranks=%lld: this program was compiled for 1 rank (mesh { shard = 1; })\n", (long long)ranks);
        return 2;
    }
    if (id == OPT_NO_GRAPH) o->no_graph = true;
    if (id == OPT_CHECK) o->check = true;
    if (id == OPT_REPORT) o->report = true;
    return 0;
}

static int takes_value(const char *arg) { return arg ? required_argument : no_argument; }

int hd_options_parse(int argc, char **argv, const HdProgram *p, Options *o) {
    const struct option longs[] = {
#define X(id, name, arg, doc) {name, takes_value(arg), NULL, OPT_##id},
        OPTIONS(X)
#undef X
        {NULL, 0, NULL, 0}};
    *o = (Options){.steps = -1, .seed = p->seed, .val_batches = 8};
    optind = 1;
    for (int id; (id = getopt_long(argc, argv, "", longs, NULL)) != -1;) {
        if (id == OPT_HELP) {
            usage(stdout, argv[0]);
            return 1;
        }
        if (id == '?' || set(o, id, optarg)) {
            if (id == '?') fprintf(stderr, "try %s --help\n", argv[0]);
            return 2;
        }
    }
    if (optind < argc) {
        fprintf(stderr, "error: unexpected argument '%s'; options start with --, try --help\n", argv[optind]);
        return 2;
    }
    bool trains = o->steps > 0;
    if (!o->report && !trains && !(o->steps == 0 || o->export_to || (o->val && o->resume))) {
        fprintf(stderr, "error: --steps=N is missing\n");
        usage(stderr, argv[0]);
        return 2;
    }
    if (trains && !o->data && !o->report) {
        fprintf(stderr, "error: --data=FILE is missing: %lld steps need training tokens\n", (long long)o->steps);
        return 2;
    }
    if (o->save_every && !o->save) {
        fprintf(stderr, "error: --save-every needs --save=DIR\n");
        return 2;
    }
    if (o->init && o->resume) {
        fprintf(stderr, "error: --init and --resume both say where the weights come from; give one\n");
        return 2;
    }
    if (o->steps < 0) o->steps = 0;
    return 0;
}
