// Measures a machine and writes its device table (devices/README.md), in under two minutes on an H100.
//
//   calibrate [-o FILE] [--gpus=N] [--arch=sm_90] [--quick] [--only=fp8|network]
//             [--build=FILE.so | --load=FILE.so]
//
// The measured code is the code that runs: each case (calibrate_cases.c) is a function of a plan that this compiler
// makes and this runtime replays as a graph; its time is that of many replays between two looks at the clock.
// Collectives are measured among 2, 4, 8 of the GPUs, each rank a process; --gpus says how many there are (default:
// those of /dev/nvidia*). A machine without a C compiler takes programs that --build made elsewhere: FILE.so, and
// FILE.so.2 and so on for ranks. --quick: a few small cases, to test this program. --only=fp8: nothing but the lines
// for products of e4m3 on one GPU, for a table that lacks them. --only=network: nothing but the lines for collectives
// over a network, among as many hosts as processes that torchrun, mpirun or srun has started, one on each.
#include "tests/bench/calibrate_cases.h"
#include "codegen/build.h"
#include "codegen/codegen.h"
#include "ir/machine/cost.h"
#include "ir/machine/workspace.h"
#include "passes/manager/manager.h"
#include "runtime/cuda/exec.h"
#include "runtime/heddle.h"
#include "runtime/world/launch.h"
#include <dlfcn.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

typedef struct {
    const char *output, *arch, *build, *load;
    int gpus;
    bool quick, only_fp8, only_network;
} Args;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void print_errors(Ctx *cx) {
    Out o = hd_out(cx->arena);
    hd_diags_print(&cx->diags, &o);
    fputs(o.text, stderr);
}

// --- programs

static bool run_passes(Module *m, const char *text) {
    Pipeline p = {0};
    ManagerOptions options = hd_manager_defaults();
    return hd_pipeline_parse(m->cx, text, &p) && hd_manager_run(m, &p, &options);
}

// The implementations that the cases ask for, not those that suit the shape.
static void set_attention(Module *m, const CaseList *l) {
    for (Func *f = m->funcs; f; f = f->next) {
        const Case *c = calibrate_find(l, f->name);
        for (Op *o = c && c->impl ? f->first : NULL; o; o = o->next) {
            if (o->kind != OP_ATTENTION && o->kind != OP_ATTENTION_GRAD) continue;
            hd_set_word(m->cx, &o->attrs, A_IMPL, hd_intern(m->cx, c->impl));
            hd_unset(&o->attrs, A_ELSE);
            if (!strcmp(c->impl, "cudnn")) hd_set_word(m->cx, &o->attrs, A_ELSE, hd_intern(m->cx, "tensor_cores"));
            hd_unset(&o->attrs, A_WORKSPACE_BYTES);
            const int64_t bytes = hd_workspace(o, true).good;
            if (bytes) hd_set_int(m->cx, &o->attrs, A_WORKSPACE_BYTES, bytes);
        }
    }
}

static void uncapture(Func *f) {
    for (Op *o = f->first, *next; o; o = next) {
        next = o->next;
        if (o->kind == OP_CAPTURE || o->kind == OP_CAPTURE_END) hd_erase(o);
    }
    hd_renumber(f);
}

static void note_costs(const Module *m, CaseList *l) {
    for (int i = 0; i < l->cases.n; i++) {
        Case *c = &l->cases.at[i];
        const Func *f = hd_func_find(m, c->name);
        for (const Op *o = f ? f->first : NULL; o; o = o->next) {
            double flops, bytes;
            hd_cost(o, &flops, &bytes);
            if (bytes > c->bytes) c->flops = flops, c->bytes = bytes;
        }
    }
}

// Without verify-plan, which refuses results that nothing reads.
static Module *plan(Ctx *cx, CaseList *l, const char *arch) {
    const char *text = calibrate_text(l, arch), *keep = getenv("CALIBRATE_TEXT");
    if (keep) hd_write_file(keep, text, strlen(text));
    const uint32_t base = hd_source_add(&cx->diags, "calibrate", text, strlen(text), 1);
    Module *m = hd_parse_module(cx, text, strlen(text), base);
    if (!m || !hd_verify(m) || !run_passes(m, "select")) return NULL;
    set_attention(m, l);
    if (!run_passes(m, "schedule,sync,capture")) return NULL;
    for (int i = 0; i < l->cases.n; i++)
        if (l->cases.at[i].direct) uncapture(hd_func_find(m, l->cases.at[i].name));
    if (!run_passes(m, "plan-memory")) return NULL;
    note_costs(m, l);
    return m;
}

static const char *(*failure)(void) = hd_failure; // of the runtime in the library that is loaded

static const HdProgram *load_program(const char *path) {
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    const HdProgram *const *p = library ? dlsym(library, "hd_built_program") : NULL;
    void *says = library ? dlsym(library, "hd_failure") : NULL;
    if (says) memcpy(&failure, &says, sizeof failure);
    if (!p) fprintf(stderr, "error: cannot load %s: %s\n", path, dlerror());
    return p ? *p : NULL;
}

static const char *library_path(const Args *args, const CaseList *l, Arena *a) {
    const char *path = args->build ? args->build : args->load;
    if (!path) return hd_sprintf(a, "/tmp/calibrate-%d.%d.so", (int)getpid(), l->ranks);
    return l->ranks > 1 ? hd_sprintf(a, "%s.%d", path, l->ranks) : path;
}

static const HdProgram *program(Ctx *cx, const Args *args, CaseList *l) {
    const char *path = library_path(args, l, cx->arena);
    Module *m = plan(cx, l, args->arch);
    Out c = hd_out(cx->arena), cuda = hd_out(cx->arena);
    const bool built = m && (args->load || (hd_codegen_c(m, &(ProgramTexts){"", "", ""}, &c, &cuda) &&
                                            hd_build_shared(cx, &(Build){.target = "cuda", .output = path}, &c)));
    const HdProgram *p = built && !args->build ? load_program(path) : NULL;
    if (!args->build && !args->load) unlink(path);
    if (!built) print_errors(cx);
    return p;
}

// --- time

static const HdFunc *function(const HdProgram *p, const char *name) {
    for (int i = 0; i < p->n_funcs; i++)
        if (!strcmp(p->funcs[i].name, name)) return &p->funcs[i];
    return NULL;
}

// Numbers such as a model has, so that products take the power that they take there: zeros would take less.
static bool fill(HdExec *x, const HdFunc *f) {
    enum { POOL = 1 << 22, MOST = 1 << 28 };
    static uint16_t pool[POOL];
    static uint8_t bytes_pool[2 * POOL];
    static int32_t indices[POOL / 2]; // of rows of the tables, which have more
    for (int i = 0; !pool[POOL - 1] && i < POOL; i++) {
        pool[i] = (uint16_t)(0x3c00 | (rand() & 0x83ff)); // bf16 of 0.008 to 0.03
        for (int k = 0; k < 2; k++) bytes_pool[2 * i + k] = (uint8_t)(0x30 + (rand() & 0x9f)); // 0.5 to 7.5
        indices[i / 2] = rand() & 0x7fff;
    }
    for (int i = 0; i < f->n_args; i++) {
        const HdTensor *t = &f->args[i];
        size_t bytes = t->dtype == HD_BF16 ? 2 : t->dtype == HD_E4M3 ? 1 : 4;
        for (int k = 0; k < t->rank; k++) bytes *= (size_t)t->dim[k];
        const void *from = t->dtype == HD_I32    ? (const void *)indices
                           : t->dtype == HD_E4M3 ? (const void *)bytes_pool
                                                 : (const void *)pool;
        for (size_t at = 0; at < bytes && at < MOST; at += sizeof pool)
            if (!x->program->backend->write(x, t->offset + (int64_t)at, from,
                                            bytes - at < sizeof pool ? bytes - at : sizeof pool))
                return false;
    }
    return true;
}

static double replay(HdExec *x, const HdFunc *f, int times) { // seconds of one; negative: it failed
    const HdBackend *b = x->program->backend;
    if (x->world->ranks > 1 && !hd_world_barrier(x->world)) return -1;
    const double start = now();
    for (int i = 0; i < times; i++)
        if (!b->run(x, f)) return -1;
    return b->sync(x) ? (now() - start) / times : -1;
}

static int by_size(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

// The median of three batches of replays, each some milliseconds long. All ranks replay as often as rank 0 says.
static double measure(HdExec *x, const HdFunc *f, bool quick) {
    enum { BATCHES = 3 };
    const HdStep step = {0};
    const double batch = quick ? 5e-4 : 8e-3;
    double t[BATCHES], first;
    x->step = &step;
    if (!fill(x, f) || replay(x, f, 2) < 0 || (first = replay(x, f, 1)) < 0) return -1;
    int times = first > batch ? 1 : (int)(batch / (first + 1e-9));
    times = times > 500 ? 500 : times;
    if (x->world->ranks > 1 && !x->world->share(x->world, &times, sizeof times)) return -1;
    for (int i = 0; i < BATCHES; i++)
        if ((t[i] = replay(x, f, times)) < 0) return -1;
    qsort(t, BATCHES, sizeof *t, by_size);
    return t[BATCHES / 2];
}

// All cases; seconds of one run of each function, with the graph's start.
static bool measure_all(HdExec *x, CaseList *l) {
    for (int i = 0; i < l->cases.n; i++) {
        Case *c = &l->cases.at[i];
        const HdFunc *f = function(x->program, c->name);
        if (f && (c->seconds = measure(x, f, l->quick)) >= 0) continue;
        fprintf(stderr, "error: case %s: %s\n", c->name, f ? failure() : "not in the program");
        return false;
    }
    return true;
}

// The rate of seconds of one product after another, as a share of that of the first milliseconds.
static double sustained(HdExec *x, bool quick) {
    const HdFunc *f = function(x->program, "sustained");
    const double seconds = quick ? 0.01 : 2.0;
    usleep(quick ? 0 : 500000); // the first milliseconds after a rest
    const double brief = replay(x, f, 1), start = now();
    double last = brief;
    while (now() - start < seconds)
        if ((last = replay(x, f, quick ? 1 : 40)) < 0) return 1;
    return last > brief ? brief / last : 1;
}

// --- ranks

static bool over_hosts(const HdLaunch *launch) { // false after a message
    if (launch->where == HD_NETWORK && !launch->local_rank) return true;
    if (launch->where != HD_NETWORK && !launch->rank)
        fprintf(stderr, "error: --only=network: all %d ranks are on this host: start one on each of several hosts\n",
                launch->ranks);
    if (launch->local_rank)
        fprintf(stderr, "error: --only=network: rank %d is number %d of its host: start one on each\n", launch->rank,
                launch->local_rank);
    return false;
}

static bool put_network(const Args *args, const CaseList *l) {
    const Results r = {.single = *l};
    const char *text = calibrate_lines(&r, l->a);
    const bool wrong = args->output ? hd_write_file(args->output, text, strlen(text)) : fputs(text, stdout) < 0;
    if (wrong) fprintf(stderr, "error: cannot write %s\n", args->output ? args->output : "the lines");
    return !wrong;
}

// Results of one host's ranks come back through a pipe.

static int rank_process(const Args *args, CaseList *l, int out) {
    Ctx *cx = hd_ctx_new();
    HdLaunch launch;
    const HdProgram *p = program(cx, args, l);
    if (!p) return args->build ? 0 : 1;
    if (!hd_launch(p, l->network ? 0 : l->ranks, &launch)) return launch.status;
    if (l->network && !over_hosts(&launch)) return 1;
    HdWorld *w = hd_world_tcp(&launch, p);
    HdExec *x = w ? p->backend->open(p, w, &(HdOpen){.use_graphs = true}) : NULL;
    if (!x) return fprintf(stderr, "error: rank %d cannot start: %s\n", launch.rank, failure()), 1;
    bool good = measure_all(x, l);
    if (good && l->network && !launch.rank) good = put_network(args, l);
    for (int i = 0; !l->network && good && !launch.rank && i < l->cases.n; i++)
        if (write(out, &l->cases.at[i].seconds, sizeof(double)) != (ssize_t)sizeof(double)) return 1;
    p->backend->close(x);
    return good ? 0 : 1;
}

static bool measure_ranks(const Args *args, CaseList *l) {
    int ends[2];
    if (pipe(ends)) return false;
    fflush(stdout);
    const pid_t child = fork();
    if (!child) {
        close(ends[0]);
        const int status = rank_process(args, l, ends[1]);
        fflush(stderr);
        _exit(status);
    }
    close(ends[1]);
    bool good = child > 0;
    for (int i = 0; good && !args->build && i < l->cases.n; i++)
        good = read(ends[0], &l->cases.at[i].seconds, sizeof(double)) == (ssize_t)sizeof(double);
    close(ends[0]);
    int status = 1;
    if (child > 0) waitpid(child, &status, 0);
    return good && WIFEXITED(status) && !WEXITSTATUS(status);
}

// Where cuDNN is not installed or cannot, the program's own kernels ran, which have lines of their own.
static void drop_fallbacks(const HdExec *h, CaseList *l) {
    const HdCuda *x = (const HdCuda *)(const void *)h;
    const HdProgram *p = h->program;
    for (int i = 0; i < p->n_attentions; i++) {
        const HdAttention *t = &p->attentions[i];
        if (t->impl != HD_ATTENTION_CUDNN || x->attentions.states[i].plan) continue;
        const char *words = t->grad ? "cudnn backward bf16" : "cudnn forward bf16";
        for (int k = 0; k < l->cases.n; k++) {
            Case *c = &l->cases.at[k];
            if (c->fact == FACT_ATTENTION && !strcmp(c->words, words) && c->number == (double)t->size &&
                c->at == (double)t->seq)
                c->fact = N_FACTS;
        }
    }
}

// --- main

static CaseList cases(Arena *a, const Args *args, int ranks) {
    CaseList l = {.a = a, .symbols = hd_out(a), .kernels = hd_out(a), .quick = args->quick, .ranks = ranks,
                  .wgmma = !strcmp(args->arch, "sm_90"), .fp8 = !strcmp(args->arch, "sm_90"),
                  .only_fp8 = args->only_fp8, .network = args->only_network};
    if (ranks > 1) calibrate_ranks(&l);
    else calibrate_single(&l);
    return l;
}

static int count_gpus(void) {
    glob_t g = {0};
    const int n = glob("/dev/nvidia[0-9]*", 0, NULL, &g) == 0 ? (int)g.gl_pathc : 1;
    globfree(&g);
    return n;
}

static bool single(Ctx *cx, const Args *args, Results *r) {
    const HdProgram *p = program(cx, args, &r->single);
    if (!p) return args->build != NULL;
    HdExec *x = p->backend->open(p, hd_world_alone(), &(HdOpen){.use_graphs = true});
    if (!x) return fprintf(stderr, "error: %s\n", failure()), false;
    if (!measure_all(x, &r->single)) return false;
    if (!args->only_fp8) {
        drop_fallbacks(x, &r->single);
        r->sustained = sustained(x, args->quick);
    }
    r->gpu = hd_strdup(cx->arena, p->backend->device(x));
    r->sms = ((const HdCuda *)(const void *)x)->sms;
    p->backend->close(x);
    return true;
}

static bool read_args(Args *args, int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "-o") && i + 1 < argc) args->output = argv[++i];
        else if (!strncmp(argv[i], "--gpus=", 7)) args->gpus = atoi(argv[i] + 7);
        else if (!strncmp(argv[i], "--arch=", 7)) args->arch = argv[i] + 7;
        else if (!strncmp(argv[i], "--build=", 8)) args->build = argv[i] + 8;
        else if (!strncmp(argv[i], "--load=", 7)) args->load = argv[i] + 7;
        else if (!strcmp(argv[i], "--quick")) args->quick = true;
        else if (!strcmp(argv[i], "--only=fp8")) args->only_fp8 = true;
        else if (!strcmp(argv[i], "--only=network")) args->only_network = true;
        else {
            fprintf(stderr, "error: no option is %s; see the head of tests/bench/calibrate.c\n", argv[i]);
            return false;
        }
    }
    if (args->only_fp8 && strcmp(args->arch, "sm_90"))
        return fprintf(stderr, "error: --only=fp8 needs --arch=sm_90; %s has no such products\n", args->arch), false;
    return true;
}

static int network(const Args *args) {
    int rank, ranks = 1;
    const char *by = hd_launcher(&rank, &ranks);
    if (!by || ranks < 2)
        return fprintf(stderr, "error: --only=network measures collectives among hosts, and %s %s: start one process "
                       "on each host by torchrun, mpirun or srun\n", by ? by : "no launcher",
                       by ? "has started one process" : "has started this process"), 2;
    Ctx *cx = hd_ctx_new();
    CaseList l = cases(cx->arena, args, ranks);
    return rank_process(args, &l, -1);
}

int main(int argc, char **argv) {
    Args args = {.arch = "sm_90"};
    if (!read_args(&args, argc, argv)) return 2;
    if (args.only_network) return network(&args);
    const double start = now();
    const int gpus = args.only_fp8 ? 1 : args.gpus ? args.gpus : args.build ? 8 : count_gpus();
    Ctx *cx = hd_ctx_new();
    Results r = {.single = cases(cx->arena, &args, 1)};
    for (int n = 2; n <= 8 && n <= gpus; n *= 2) { // first: processes must be started before this one uses CUDA
        CaseList *l = &r.ranks[r.n_ranks++];
        *l = cases(cx->arena, &args, n);
        if (!measure_ranks(&args, l)) return fprintf(stderr, "error: %d ranks were not measured\n", n), 1;
        fprintf(stderr, "%d ranks: %d cases, %.0f s\n", n, l->cases.n, now() - start);
    }
    if (!single(cx, &args, &r)) return 1;
    if (args.build) return 0;
    const char *text = args.only_fp8 ? calibrate_lines(&r, cx->arena) : calibrate_table(&r, cx->arena);
    fprintf(stderr, "%d cases on one GPU, %.0f s in all\n", r.single.cases.n, now() - start);
    const int wrong = args.output ? hd_write_file(args.output, text, strlen(text)) : fputs(text, stdout) < 0;
    if (wrong) fprintf(stderr, "error: cannot write %s\n", args.output ? args.output : "the table");
    if (args.only_fp8) return wrong;
    const bool good = hd_model_parse(cx, args.output ? args.output : "the table", text, strlen(text)) != NULL;
    print_errors(cx);
    return !wrong && good ? 0 : 1;
}
