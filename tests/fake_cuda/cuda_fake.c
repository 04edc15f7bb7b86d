// The CUDA runtime on pretended libraries: usage cuda_fake FAKES_FOLDER SCRATCH_FOLDER. Each scenario runs in a process
// of its own.
#include "runtime/heddle.h"
#include "runtime/world/world.h"
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *scratch;
static char log_path[512], cache_path[512];
static int failures;

#define CHECK(x)                                                                                                       \
    ((x) ? (void)0 : (void)(failures++, fprintf(stderr, "%s:%d: %s: not so: %s\n", __FILE__, __LINE__, __func__, #x)))

// --- a small program: a counter at 0, three streams, two kernels with a meaning
enum { COUNTER = 0, SPARE = 256, DATA = 4096, ARENA = 16 << 20 };
static const HdSource sources[] = {{"k.cu", "bump twice tiled/3:8:128:4"}, {"other.cu", "other"}};
static const HdKernel kernels[] = {{"bump", 0, 0, false}, {"twice", 0, 0, true}, {"other", 1, 1000, false},
                                   {"tiled", 0, 200000, false}};
static const char *const streams[] = {"compute", "side", "third"};
static const HdAction actions[] = {{"launch", "compute", "head", "gpt.hd:12", 10, 20},
                                   {"record", "compute", "", "", 0, 0},
                                   {"wait", "side", "", "", 0, 0},
                                   {"launch", "side", "blocks.\"0\"", "gpt.hd:14", 1e6, 2e6},
                                   {"record", "side", "", "", 0, 0},
                                   {"wait", "compute", "", "", 0, 0}};
static const HdGrid one = {1, 1, 1, 32, 0, {0}};
extern const HdFunc test_funcs[];

static void micro_region(HdExec *x) { // (counter + 1) * 2, the second half on another stream
    const HdArg at = {.word = hd_device(x, COUNTER)};
    const HdFunc *self = &test_funcs[0];
    hd_action(x, self, 0);
    hd_cuda_launch(x, 0, 0, one, 1, &at);
    hd_action(x, self, 1);
    hd_cuda_record(x, 0, 0);
    hd_action(x, self, 2);
    hd_cuda_wait(x, 1, 0);
    hd_action(x, self, 3);
    hd_cuda_launch(x, 1, 1, one, 1, &at);
    hd_action(x, self, 4);
    hd_cuda_record(x, 1, 1);
    hd_action(x, self, 5);
    hd_cuda_wait(x, 0, 1);
}

static void update_region(HdExec *x) { // all its work is on another stream
    const HdArg at = {.word = hd_device(x, COUNTER)};
    hd_cuda_record(x, 0, 2);
    hd_cuda_wait(x, 2, 2);
    hd_cuda_launch(x, 2, 0, one, 1, &at);
    hd_cuda_record(x, 2, 3);
    hd_cuda_wait(x, 0, 3);
}

static void big_launch(HdExec *x) {
    const HdArg at = {.word = hd_device(x, SPARE)};
    hd_action(x, &test_funcs[2], 3);
    hd_cuda_launch(x, 0, 2, (HdGrid){1, 1, 1, 32, 2000, {0}}, 1, &at); // more shared memory than declared
}

// What a kernel with tensor maps takes: 128 bytes by value, blocks in clusters, much shared memory.
static size_t tiled_bytes = 128;
static void tiled_region(HdExec *x) {
    static const _Alignas(64) unsigned char map[128] = {[0] = 1, [127] = 2};
    const HdArg args[] = {{.word = hd_device(x, SPARE)}, {.data = map, .bytes = tiled_bytes}, {.word = 7}};
    hd_cuda_launch(x, 0, 3, (HdGrid){4, 2, 1, 128, 200000, {2, 1, 1}}, 3, args);
}

// Two regions with work of another stream between them: it waits for the middle of the first, and the second for it.
static void first_part(HdExec *x) {
    hd_cuda_launch(x, 0, 0, one, 1, &(HdArg){.word = hd_device(x, COUNTER)});
    hd_cuda_record_external(x, 0, 4);
    hd_cuda_launch(x, 0, 0, one, 1, &(HdArg){.word = hd_device(x, SPARE)});
}

static void second_part(HdExec *x) {
    hd_cuda_wait_external(x, 0, 5);
    hd_cuda_launch(x, 0, 0, one, 1, &(HdArg){.word = hd_device(x, COUNTER)});
}

static void careless_part(HdExec *x) { // the wait is not external
    hd_cuda_wait(x, 0, 5);
    hd_cuda_launch(x, 0, 0, one, 1, &(HdArg){.word = hd_device(x, COUNTER)});
}

static int steps_so_far;
static void forgetful_part(HdExec *x) { // a number of the host's that changes from step to step
    steps_so_far++;
    hd_action(x, &test_funcs[0], 0);
    hd_cuda_zero(x, 0, hd_device(x, SPARE), (size_t)(4 * (1 + steps_so_far / 4)));
}

static void open_part(HdExec *x) { // the other stream does not come back
    hd_cuda_record(x, 0, 0);
    hd_cuda_wait(x, 1, 0);
    hd_cuda_launch(x, 1, 0, one, 1, &(HdArg){.word = hd_device(x, COUNTER)});
}

static void between(HdExec *x, int first, int second) {
    hd_cuda_region(x, first);
    hd_cuda_wait(x, 1, 4);
    hd_cuda_launch(x, 1, 1, one, 1, &(HdArg){.word = hd_device(x, COUNTER)});
    hd_cuda_record(x, 1, 5);
    hd_cuda_region(x, second);
}

static const HdRegion regions[] = {{"micro_only.step", micro_region}, {"update.step", update_region},
                                   {"tiled.step", tiled_region},      {"first", first_part},
                                   {"second", second_part},           {"careless", careless_part},
                                   {"open", open_part},               {"forgetful", forgetful_part}};
static void micro(HdExec *x) { hd_cuda_region(x, 0); }
static void update(HdExec *x) { hd_cuda_region(x, 1); }
static void tiled(HdExec *x) { hd_cuda_region(x, 2); }
static void parts(HdExec *x) { between(x, 3, 4); }
static void careless_parts(HdExec *x) { between(x, 3, 5); }
static void open_parts(HdExec *x) { hd_cuda_region(x, 6); }
static void forgetful(HdExec *x) { hd_cuda_region(x, 7); }

const HdFunc test_funcs[] = {{.name = "micro_only", .run = micro, .n_actions = 6, .actions = actions},
                             {.name = "update", .run = update},
                             {.name = "wrong", .run = big_launch, .n_actions = 4, .actions = actions},
                             {.name = "tiled", .run = tiled},
                             {.name = "parts", .run = parts},
                             {.name = "careless", .run = careless_parts},
                             {.name = "open", .run = open_parts},
                             {.name = "forgetful", .run = forgetful, .n_actions = 6, .actions = actions}};

static HdProgram program(void) {
    return (HdProgram){.model = "Tiny",
                       .source = "tiny.hd",
                       .target = "cuda",
                       .arch = "sm_90",
                       .plan_hash = "0",
                       .model_hash = "0",
                       .report = "{}",
                       .arena_bytes = ARENA,
                       .train_step = {.loss = -1, .norm = -1, .counter = -1, .random = -1},
                       .n_funcs = 8,
                       .funcs = test_funcs,
                       .backend = &hd_cuda_backend,
                       .n_sources = 2,
                       .n_kernels = 4,
                       .sources = sources,
                       .kernels = kernels,
                       .n_streams = 3,
                       .n_events = 6,
                       .streams = streams,
                       .n_regions = 8,
                       .regions = regions};
}

static const HdBackend *const b = &hd_cuda_backend;

static int count_in_log(const char *text) {
    FILE *f = fopen(log_path, "r");
    char line[512];
    int n = 0;
    while (f && fgets(line, sizeof line, f)) n += strstr(line, text) != NULL;
    if (f) fclose(f);
    return n;
}

static bool failed_with(const char *text) {
    if (strstr(hd_failure(), text)) return true;
    fprintf(stderr, "the message is: %s\n", hd_failure());
    return false;
}

static HdExec *opened(const HdProgram *p, bool graphs) {
    HdExec *x = b->open(p, hd_world_alone(), graphs, false);
    if (!x) fprintf(stderr, "open: %s\n", hd_failure());
    CHECK(x);
    if (!x) exit(1);
    return x;
}

static int counter(HdExec *x) {
    int v = -1;
    CHECK(b->read(x, COUNTER, &v, sizeof v));
    return v;
}

static void launches_carry_anything(void) {
    HdProgram p = program();
    HdExec *x = opened(&p, true);
    tiled_bytes = 128;
    CHECK(b->run(x, &test_funcs[3]) && b->run(x, &test_funcs[3]) && b->sync(x));
    CHECK(count_in_log(
              "tiled: 4 x 2 blocks of 128, clusters of 2 x 1 x 1, 200000 shared, arguments 8 128 4, map 1 2, then 7") ==
          1); // at its capture
    CHECK(count_in_log("kernel tiled runs") == 2);
    b->close(x);
    x = opened(&p, false);
    tiled_bytes = 64;
    CHECK(!b->run(x, &test_funcs[3]) && failed_with("argument 1 of kernel tiled has 128 bytes, the program passes 64"));
    b->close(x);
}

static void no_open(const char *variable, const char *value, const HdProgram *p, const char *message) {
    if (variable) setenv(variable, value, 1);
    HdExec *x = b->open(p, hd_world_alone(), true, false);
    CHECK(!x && failed_with(message));
    if (x) b->close(x);
    if (variable) unsetenv(variable);
}

static void rounds(HdExec *x) { // the counter leaves for page-locked memory, grows by one, and comes back beside itself
    hd_cuda_copy(x, 0, (uint64_t)hd_pinned(x, 64), hd_device(x, COUNTER), sizeof(int));
    const HdArg at = {.word = hd_device(x, COUNTER)};
    hd_cuda_launch(x, 0, 0, one, 1, &at);
    hd_cuda_copy(x, 0, hd_device(x, SPARE), (uint64_t)hd_pinned(x, 64), sizeof(int));
}

static void all_of_it(HdExec *x) { hd_cuda_region(x, 0); }

static void page_locked_memory(void) {
    const HdFunc f = {.name = "rounds", .run = all_of_it};
    const HdRegion region = {"rounds.step", rounds};
    HdProgram p = program();
    p.funcs = &f;
    p.regions = &region;
    p.n_funcs = p.n_regions = 1;
    p.pinned_bytes = 4096;
    for (int graphs = 0; graphs < 2; graphs++) {
        HdExec *x = opened(&p, graphs);
        for (int i = 0; i < 4096; i++) CHECK(!*hd_pinned(x, i)); // it starts clear
        int got = -1;
        for (int i = 0; i < 3; i++) CHECK(b->run(x, &f) && b->read(x, SPARE, &got, sizeof got) && got == i);
        CHECK(counter(x) == 3);
        b->close(x);
    }
    p.pinned_bytes = 0;
    HdExec *x = opened(&p, false);
    CHECK(!x->pinned);
    b->close(x);
    p.pinned_bytes = 4096;
    no_open("FAKE_CUDA_FAIL", "cuMemHostAlloc:1", &p, "cannot take 4096 bytes (0.00 GiB) of page-locked");
    CHECK(failed_with("offload less (schedule.offload.fraction, heddlec --host-memory), or let this process"));
}

static void graphs_replay(void) {
    HdProgram p = program();
    HdExec *x = opened(&p, true);
    CHECK(counter(x) == 0); // memory starts clear
    for (int i = 0; i < 3; i++) CHECK(b->run(x, &test_funcs[0]) && b->run(x, &test_funcs[1]));
    CHECK(counter(x) == 21); // c -> 2 (c + 1) + 1, three times from 0
    CHECK(count_in_log("capture begins, mode 1") == 2);
    CHECK(count_in_log("capture ends: 2 nodes") == 1 && count_in_log("capture ends: 1 nodes") == 1 &&
          count_in_log("unjoined") == 0);
    CHECK(count_in_log("graph launch") == 6);
    CHECK(!strcmp(b->device(x), "NVIDIA H200 (pretended)") && b->peak_flops(x) == 989e12);
    b->close(x);
}

static void events_cross_regions(void) {
    HdProgram p = program();
    for (int mode = 0; mode < 4; mode++) { // streams run at once or beside the program; graphs, or not
        setenv("FAKE_CUDA_ASYNC", mode & 1 ? "1" : "0", 1);
        remove(log_path);
        HdExec *x = opened(&p, mode & 2);
        for (int i = 0; i < 5; i++) CHECK(b->run(x, &test_funcs[4]));
        CHECK(counter(x) == 93); // c -> 2 (c + 1) + 1, five times from 0
        CHECK(count_in_log("graph launch") == (mode & 2 ? 10 : 0));
        CHECK(count_in_log("external record") == (mode & 2 ? 1 : 0) &&
              count_in_log("external wait") == (mode & 2 ? 1 : 0));
        b->close(x);
    }
    setenv("FAKE_CUDA_ASYNC", "0", 1);
}

// A function whose last work is on another stream, and that waits for what it left there the time before.
static void overlapping(HdExec *x) {
    const HdArg at = {.word = hd_device(x, COUNTER)};
    hd_cuda_wait(x, 0, 1);
    hd_cuda_launch(x, 0, 0, one, 1, &at);
    hd_cuda_record(x, 0, 0);
    hd_cuda_wait(x, 1, 0);
    hd_cuda_launch(x, 1, 1, one, 1, &at);
    hd_cuda_record(x, 1, 1);
}

static void events_cross_functions(void) {
    const HdFunc f = {.name = "overlapping", .run = overlapping};
    HdProgram p = program();
    p.funcs = &f;
    p.n_funcs = 1;
    for (int late = 0; late < 2; late++) {
        setenv("FAKE_CUDA_ASYNC", late ? "1" : "0", 1);
        HdExec *x = opened(&p, true);
        for (int i = 0; i < 8; i++) CHECK(b->run(x, &f));
        CHECK(b->sync(x) && counter(x) == 510); // c -> 2 (c + 1), eight times from 0
        b->close(x);
    }
    setenv("FAKE_CUDA_ASYNC", "0", 1);
}

static void captures_keep_their_rules(void) { // a region that no graph can hold runs directly
    HdProgram p = program();
    HdExec *x = opened(&p, true);
    for (int i = 0; i < 4; i++) CHECK(b->run(x, &test_funcs[5]));
    CHECK(counter(x) == 45 && count_in_log("graph launch") == 4); // those of the first part
    for (int i = 0; i < 4; i++) CHECK(b->run(x, &test_funcs[6]));
    CHECK(counter(x) == 49 && count_in_log("graph launch") == 4 && count_in_log("unjoined") == 2);
    b->close(x);
}

static void check_compares(void) {
    HdProgram p = program();
    HdExec *x = opened(&p, true);
    x->check = true;
    tiled_bytes = 128;
    for (int i = 0; i < 3; i++)
        CHECK(b->run(x, &test_funcs[0]) && b->run(x, &test_funcs[4]) && b->run(x, &test_funcs[3]));
    CHECK(counter(x) == 147 && count_in_log("capture begins") == 4 && count_in_log("graph launch") == 12);
    steps_so_far = 0; // counts the capture and each comparison
    CHECK(b->run(x, &test_funcs[7]) && b->run(x, &test_funcs[7]));
    CHECK(!b->run(x, &test_funcs[7]) &&
          failed_with("gpt.hd:12: launch in head (action 0 of forgetful, stream compute): --check: it would get other "
                      "addresses, sizes or numbers than its graph was captured with"));
    b->close(x);
}

static void direct_is_the_same(void) {
    HdProgram p = program();
    HdExec *x = opened(&p, false);
    for (int i = 0; i < 3; i++) CHECK(b->run(x, &test_funcs[0]) && b->run(x, &test_funcs[1]));
    CHECK(counter(x) == 21 && count_in_log("capture") == 0 && b->sync(x));
    b->close(x);
}

static void sync_finds_the_action(void) {
    HdProgram p = program();
    setenv("HEDDLE_SYNC", "1", 1);
    HdExec *x = opened(&p, true);
    for (int i = 0; i < 3; i++) CHECK(b->run(x, &test_funcs[0]) && b->run(x, &test_funcs[1]));
    CHECK(counter(x) == 21 && count_in_log("capture") == 0); // nothing is captured: a wait cannot be
    b->close(x);
    setenv("FAKE_CUDA_FAIL", "cuCtxSynchronize:1", 1); // the first wait stands behind action 0
    x = opened(&p, true);
    CHECK(!b->run(x, &test_funcs[0]) &&
          failed_with("gpt.hd:12: launch in head (action 0 of micro_only, stream compute): the GPU stopped"));
    b->close(x);
}

static void copies(void) {
    HdProgram p = program();
    HdExec *x = opened(&p, true);
    size_t n = 9u << 20;
    unsigned char *out = malloc(n), *in = calloc(n, 1);
    for (size_t i = 0; i < n; i++) out[i] = (unsigned char)(i * 7 + i / 1000);
    CHECK(b->write(x, DATA, out, n) && b->read(x, DATA, in, n) && !memcmp(out, in, n));
    for (int i = 0; i < 5; i++) {
        int64_t where[2] = {COUNTER, DATA};
        CHECK(b->run(x, &test_funcs[0]) && b->post(x, 2, where, 4));
    }
    for (int i = 0, expect = 0; i < 5; i++) {
        int got[2];
        expect = 2 * (expect + 1);
        CHECK(b->collect(x, got) && got[0] == expect && !memcmp(&got[1], out, 4));
    }
    CHECK(!b->collect(x, out) && failed_with("nothing was posted"));
    b->close(x);
    x = opened(&p, true);
    CHECK(!b->write(x, ARENA - 4, out, 8) && failed_with("outside the arena"));
    CHECK(!b->run(x, &test_funcs[0]) && failed_with("outside the arena")); // the first failure stays
    b->close(x);
    free(out);
    free(in);
}

static int files_in_cache(const char *kind, bool damage) {
    char command[1200];
    int n = 0;
    if (damage) {
        snprintf(command, sizeof command,
                 "for f in %s/%s-*; do printf x | dd of=$f bs=1 seek=70 conv=notrunc 2>/dev/null; done", cache_path,
                 kind);
        CHECK(system(command) == 0);
    }
    snprintf(command, sizeof command, "ls %s | grep -c '^%s-[0-9a-f]*$'", cache_path, kind);
    FILE *f = popen(command, "r");
    if (f && fscanf(f, "%d", &n) != 1) n = -1;
    if (f) pclose(f);
    return n;
}

static void cache(void) {
    HdProgram p = program();
    b->close(opened(&p, true));
    CHECK(count_in_log("compile k.cu for sm_90a") == 1 && count_in_log("compile") == 2 &&
          files_in_cache("cubin", false) == 2);
    b->close(opened(&p, true));
    CHECK(count_in_log("compile") == 2);
    CHECK(files_in_cache("cubin", true) == 2); // a byte of each payload is changed
    b->close(opened(&p, true));
    CHECK(count_in_log("compile") == 4);
    b->close(opened(&p, true));
    CHECK(count_in_log("compile") == 4 && count_in_log("module loaded") == 8);
    setenv("FAKE_CUDA_CC", "100", 1); // another GPU: other entries
    b->close(opened(&p, true));
    CHECK(count_in_log("compile k.cu for sm_100a") == 1 && files_in_cache("cubin", false) == 4);
    setenv("HEDDLE_CACHE", "/proc/no/such", 1); // cannot be written: a warning, no failure
    b->close(opened(&p, true));
    setenv("HEDDLE_CACHE", "off", 1);
    b->close(opened(&p, true));
    CHECK(count_in_log("compile") == 10);
}

// --- matrix products
static double reference(const HdGemm *g, const double *a, const double *m, const double *bias, int64_t q, int64_t i,
                        int64_t j, double old) {
    double sum = 0;
    for (int64_t l = 0; l < g->k; l++)
        sum += a[q * g->m * g->k + (g->ta ? l * g->m + i : i * g->k + l)] *
               m[q * g->k * g->n + (g->tb ? j * g->k + l : l * g->n + j)];
    if (g->accumulate) sum += old;
    return g->epilogue == HD_EPI_NONE ? sum : sum + bias[j];
}

static void put(HdExec *x, int64_t at, HdDtype t, const double *v, int n) {
    float f[64];
    for (int i = 0; i < n; i++) f[i] = (float)v[i];
    CHECK(t == HD_F64 ? b->write(x, at, v, (size_t)n * 8) : b->write(x, at, f, (size_t)n * 4));
}

static void get(HdExec *x, int64_t at, HdDtype t, double *v, int n) {
    float f[64];
    CHECK(t == HD_F64 ? b->read(x, at, v, (size_t)n * 8) : b->read(x, at, f, (size_t)n * 4));
    for (int i = 0; i < n && t != HD_F64; i++) v[i] = (double)f[i];
}

enum { N_GEMMS = 2 * 2 * 2 * 2 + 2 };
static HdGemm gemms[N_GEMMS];
static int fill_gemms(void) {
    int n = 0;
    for (int i = 0; i < 16; i++)
        gemms[n++] = (HdGemm){.m = 3,
                              .n = 4,
                              .k = 5,
                              .ta = i & 1,
                              .tb = i >> 1 & 1,
                              .accumulate = i >> 2 & 1,
                              .batch = i >> 3 & 1 ? 2 : 1,
                              .a = HD_F32,
                              .b = HD_F32,
                              .d = HD_F32,
                              .workspace_bytes = 256};
    gemms[n++] = (HdGemm){
        .m = 3, .n = 4, .k = 5, .tb = true, .batch = 1, .epilogue = HD_EPI_BIAS, .a = HD_F32, .b = HD_F32, .d = HD_F32};
    gemms[n++] = (HdGemm){
        .m = 3, .n = 4, .k = 5, .ta = true, .accumulate = true, .a = HD_F64, .b = HD_F64, .d = HD_F64}; // batch 0 is 1
    return n;
}

static HdProgram with_gemms(void) {
    HdProgram p = program();
    p.n_gemms = fill_gemms();
    p.gemms = gemms;
    return p;
}

static void products(void) {
    HdProgram p = with_gemms();
    static HdGemm both[2 * N_GEMMS]; // those after the first half say that their operands are aligned to less
    for (int i = 0; i < 2 * N_GEMMS; i++) {
        both[i] = gemms[i % N_GEMMS];
        both[i].align = i < N_GEMMS ? 0 : both[i].d == HD_F64 ? 8 : 4;
    }
    p.gemms = both;
    p.n_gemms = 2 * N_GEMMS;
    HdExec *x = opened(&p, false);
    double a[40], m[40], bias[4], old[24], got[24];
    for (int i = 0; i < 40; i++) a[i] = i % 7 - 3, m[i] = i % 5 - 1.5;
    for (int i = 0; i < 24; i++) old[i] = i * 0.25;
    for (int i = 0; i < 4; i++) bias[i] = i - 1.5;
    for (int i = 0; i < p.n_gemms; i++)
        for (int shift = 0; shift < 1 + (i >= N_GEMMS); shift++) {
            const HdGemm *g = &both[i];
            int64_t batch = g->batch > 1 ? g->batch : 1, at = DATA + shift * g->align;
            put(x, at, g->a, a, (int)(batch * g->m * g->k));
            put(x, at + 1024, g->b, m, (int)(batch * g->k * g->n));
            put(x, at + 2048, g->d, bias, 4);
            put(x, at + 3072, g->d, old, (int)(batch * g->m * g->n));
            hd_cuda_gemm(x, 0, i, hd_device(x, at), hd_device(x, at + 1024), hd_device(x, at + 2048),
                         hd_device(x, at + 3072), hd_device(x, 0));
            get(x, at + 3072, g->d, got, (int)(batch * g->m * g->n));
            for (int64_t q = 0; q < batch; q++)
                for (int64_t r = 0; r < g->m; r++)
                    for (int64_t c = 0; c < g->n; c++) {
                        int64_t e = (q * g->m + r) * g->n + c;
                        CHECK(fabs(got[e] - reference(g, a, m, bias, q, r, c, old[e])) < 1e-4);
                    }
        }
    CHECK(count_in_log("heuristic, align 4") == N_GEMMS - 1 && count_in_log("heuristic, align 8") == 1 &&
          count_in_log("heuristic, align 16") == N_GEMMS);
    hd_cuda_gemm(x, 0, N_GEMMS, hd_device(x, DATA + 2), hd_device(x, DATA), 0, hd_device(x, 0), 0);
    CHECK(!b->sync(x) && failed_with("an operand of gemm 18 is not at a multiple of 4 bytes"));
    b->close(x);
}

static void choices_are_remembered(void) {
    HdProgram p = with_gemms();
    b->close(opened(&p, true));
    CHECK(count_in_log("heuristic") == p.n_gemms && count_in_log("check") == 0 &&
          files_in_cache("gemm", false) == p.n_gemms);
    b->close(opened(&p, true));
    CHECK(count_in_log("heuristic") == p.n_gemms &&
          count_in_log("check of algorithm 1") == p.n_gemms); // 1 is the fastest
    CHECK(files_in_cache("gemm", true) == p.n_gemms);
    b->close(opened(&p, true));
    CHECK(count_in_log("heuristic") == 2 * p.n_gemms);
    setenv("HEDDLE_TUNE", "0", 1);
    b->close(opened(&p, true));
    CHECK(count_in_log("heuristic") == 3 * p.n_gemms && count_in_log("check") == p.n_gemms);
}

// --- everything that can go wrong

static void open_fails_clearly(void) {
    HdProgram p = with_gemms();
    setenv("HEDDLE_CACHE", "off", 1);
    no_open("FAKE_CUDA_DEVICES", "0", &p, "no NVIDIA GPU can be used");
    no_open("FAKE_CUDA_CC", "80", &p, "built for sm_90, the GPU (NVIDIA H200 (pretended)) is sm_80");
    no_open("FAKE_CUDA_MEMORY", "1000000", &p, "needs 16777216 bytes (0.02 GiB) of device memory");
    no_open("FAKE_CUDA_FAIL", "cuDevicePrimaryCtxRetain:1", &p,
            "cannot create a context on the GPU: CUDA_ERROR_INJECTED (999: a pretended failure)");
    no_open("FAKE_CUDA_FAIL", "cuModuleLoadData:1", &p, "cannot load the kernels of k.cu");
    no_open("FAKE_CUDA_FAIL", "cublasLtMatmulAlgoGetHeuristic:1", &p,
            "cuBLASLt has no algorithm for gemm 3 x 4 x 5 f32,f32->f32");
    HdSource bad[] = {{"bad.cu", "#error bump twice"}, {"other.cu", "other"}};
    p.sources = bad;
    no_open(NULL, NULL, &p, "cannot compile bad.cu: NVRTC_ERROR_COMPILATION\nk.cu(1): error: this is the log");
    p.sources = sources;
    HdKernel absent[] = {{"bump", 0, 0, false}, {"absent", 0, 0, false}, {"other", 1, 1000, false},
                         {"tiled", 0, 200000, false}};
    p.kernels = absent;
    no_open(NULL, NULL, &p, "kernel absent is not in k.cu");
    absent[1] = (HdKernel){"twice", 0, 300000, false};
    no_open(NULL, NULL, &p, "kernel twice needs 300000 bytes of shared memory");
}

static void run_fails_clearly(void) {
    HdProgram p = program();
    HdExec *x = opened(&p, true);
    CHECK(!b->run(x, &test_funcs[2]));
    CHECK(failed_with("gpt.hd:14: launch in blocks.\"0\" (action 3 of wrong, stream side): kernel other of (1, 1, 1)"));
    CHECK(!b->sync(x) && failed_with("gpt.hd:14"));
    b->close(x);
    x = opened(&p, true);
    setenv("FAKE_CUDA_FAIL", "cuGraphLaunch:1", 1);
    CHECK(!b->run(x, &test_funcs[0]) && failed_with("micro_only: cannot launch the graph: CUDA_ERROR_INJECTED"));
    b->close(x);
    HdSource picky[] = {{"k.cu", "bump/2 twice tiled"}, {"other.cu", "other"}};
    p.sources = picky;
    x = opened(&p, false);
    CHECK(!b->run(x, &test_funcs[0]) && failed_with("gpt.hd:12: launch in head (action 0 of micro_only, stream "
                                                    "compute): kernel bump takes 2 arguments, the program passes 1"));
    b->close(x);
    p.sources = sources;
    setenv("FAKE_CUDA_FAIL", "cuEventRecord:1", 1);
    x = opened(&p, false);
    CHECK(!b->run(x, &test_funcs[0]) &&
          failed_with("(action 1 of micro_only, stream compute): record: CUDA_ERROR_INJECTED"));
    b->close(x);
}

static void failed_captures_run_directly(void) {
    static const char *const cases[] = {"cuStreamBeginCapture:1", "cuLaunchKernelEx:2", "cuGraphInstantiateWithFlags:1",
                                        "cuGraphUpload:1"};
    HdProgram p = program();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        remove(log_path);
        setenv("FAKE_CUDA_FAIL", cases[i], 1);
        HdExec *x = opened(&p, true);
        for (int j = 0; j < 4; j++) CHECK(b->run(x, &test_funcs[0])); // once directly, then captured and replayed
        CHECK(counter(x) == 30 && count_in_log("graph launch") == 3);
        b->close(x);
    }
}

// The page of the same step. The plan's part of its data is the program's, the times are those pretended.
static void page(HdExec *x, HdProgram *p) {
    char path[600];
    static char text[1 << 16];
    snprintf(path, sizeof path, "%s/timeline.html", scratch);
    CHECK(!b->write_timeline(x, path) && strstr(hd_failure(), "holds no timeline"));
    const HdSegment segments[] = {{&test_funcs[0], 1}, {&test_funcs[1], 1}};
    p->train_step.n_segments = 2;
    p->train_step.segments = segments;
    p->timeline = "{\"strings\":[\"here\"]}";
    CHECK(b->write_timeline(x, path));
    FILE *f = fopen(path, "r");
    size_t n = f ? fread(text, 1, sizeof text - 1, f) : 0;
    if (f) fclose(f);
    text[n] = 0;
    CHECK(strstr(text, "\"kind\":\"measured\"") && strstr(text, "\"plan\":{\"strings\":[\"here\"]}"));
    CHECK(strstr(text, "\"lanes\":[\"compute\",\"side\",\"third\"],\"shown\":2,\"runs\":[0,0,500000,1,0,0],"));
    CHECK(strstr(text, "\"spans\":[0,0,0,0,250000,1,0,2,250000,0,1,0,3,250000,250000,0,0,5,500000,0]}") &&
          strstr(text, "</html>"));
}

static void profile(void) {
    HdProgram p = program();
    char path[600], text[8192];
    snprintf(path, sizeof path, "%s/profile.json", scratch);
    HdExec *x = b->open(&p, hd_world_alone(), true, true);
    CHECK(x);
    if (!x) return;
    x->step = &p.train_step;
    for (int i = 0; i < 4; i++) {
        x->begins = i % 2 == 0;
        CHECK(b->run(x, &test_funcs[i % 2]));
    }
    CHECK(counter(x) == 9 && count_in_log("capture") == 0);
    CHECK(b->write_profile(x, path));
    FILE *f = fopen(path, "r");
    size_t n = f ? fread(text, 1, sizeof text - 1, f) : 0;
    if (f) fclose(f);
    text[n] = 0;
    CHECK(strstr(text, "\"name\": \"launch\", \"cat\": \"micro_only\", \"args\": {\"path\": \"blocks.\\\"0\\\"\", "
                       "\"where\": \"gpt.hd:14\", \"stream\": \"side\", \"action\": 3"));
    CHECK(strstr(text, "\"dur\": 250.000") && strstr(text, "\"tid\": 1"));
    char command[700];
    snprintf(command, sizeof command, "python3 -m json.tool %s >/dev/null", path);
    CHECK(system(command) == 0);
    page(x, &p);
    b->close(x);
}

static void attention(void) { // the pretended cuDNN has no engine: the program's kernels run, three for the backward
    HdAttention list[] = {{.batch = 1,
                           .seq = 128,
                           .heads = 2,
                           .kv_heads = 2,
                           .size = 64,
                           .dtype = HD_BF16,
                           .workspace_bytes = 1024,
                           .kernel = {2, -1, -1},
                           .grid = {{1, 1, 1, 32, 1000, {0}}}},
                          {.batch = 1,
                           .seq = 128,
                           .heads = 2,
                           .kv_heads = 2,
                           .size = 64,
                           .dtype = HD_BF16,
                           .grad = true,
                           .workspace_bytes = 1 << 20,
                           .kernel = {2, 2, 2},
                           .grid = {{1, 1, 1, 32, 0, {0}}, {1, 1, 1, 32, 0, {0}}, {1, 1, 1, 32, 0, {0}}}}};
    HdProgram p = program();
    p.n_attentions = 2;
    p.attentions = list;
    HdExec *x = opened(&p, false);
    hd_cuda_attention(x, 0, &list[0], 1, 2, 3, 4, 5, 0, 6);
    CHECK(b->sync(x) && count_in_log("kernel other runs") == 1);
    hd_cuda_attention_grad(x, 0, &list[1], 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 10);
    CHECK(b->sync(x) && count_in_log("kernel other runs") == 4);
    b->close(x);
    list[1].kernel[1] = -1;
    no_open(
        NULL, NULL, &p,
        "attention 1 has no kernel where cuDNN cannot run (the plan has no else): cuDNN cannot do the forward of size "
        "64, length 128: none of its 0 configurations");
    list[0].kernel[0] = -1;
    no_open("FAKE_CUDA_FAIL", "cudnnCreate:1", &p,
            "attention 0 has no kernel where cuDNN cannot run (the plan has no else): cuDNN ");
}

static HdAttention plans[] = {{.batch = 1,
                               .seq = 128,
                               .heads = 2,
                               .kv_heads = 2,
                               .size = 64,
                               .q_stride = 128,
                               .k_stride = 128,
                               .v_stride = 128,
                               .o_stride = 128,
                               .causal = true,
                               .dtype = HD_BF16,
                               .workspace_bytes = 1024,
                               .kernel = {-1, -1, -1}},
                              {.batch = 1,
                               .seq = 128,
                               .heads = 2,
                               .kv_heads = 2,
                               .size = 64,
                               .q_stride = 128,
                               .k_stride = 128,
                               .v_stride = 128,
                               .o_stride = 128,
                               .causal = true,
                               .grad = true,
                               .dtype = HD_BF16,
                               .workspace_bytes = 1024 + 250,
                               .kernel = {2, 2, 2},
                               .grid = {{1, 1, 1, 32, 0, {0}}, {1, 1, 1, 32, 0, {0}}, {1, 1, 1, 32, 0, {0}}}}};

static void both_attentions(HdExec *x) {
    hd_cuda_attention(x, 0, &plans[0], 1, 2, 3, 4, 5, 0, 6);
    hd_cuda_attention_grad(x, 0, &plans[1], 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 10);
}

static void attention_plans(void) {
    static const HdFunc f[] = {{.name = "micro_only", .run = all_of_it}};
    static const HdRegion region = {"micro_only.step", both_attentions};
    HdProgram p = program();
    p.regions = &region;
    p.n_regions = 1;
    p.n_attentions = 2;
    p.attentions = plans;
    p.funcs = f;
    p.n_funcs = 1;
    setenv("FAKE_CUDNN_ENGINES", "1", 1); // plans of 100 bytes for the forward, 200 for the backward
    HdExec *x = opened(&p, true);
    CHECK(count_in_log("attention plan 1 runs") == 1 &&
          count_in_log("attention plan 2 runs") == 1); // once, before any capture
    CHECK(b->run(x, f) && b->run(x, f) && count_in_log("attention plan 1 runs") == 3 &&
          count_in_log("capture ends: 2 nodes") == 1);
    b->close(x);
    plans[1].workspace_bytes = 1024 + 150; // now the backward's plan does not fit, and the kernels take over
    x = opened(&p, true);
    CHECK(b->run(x, f) && count_in_log("kernel other runs") == 3);
    b->close(x);
    setenv("HEDDLE_ATTENTION", "kernel", 1);
    no_open(NULL, NULL, &p,
            "attention 0 has no kernel where cuDNN cannot run (the plan has no else): HEDDLE_ATTENTION=kernel");
}

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    scratch = argv[2];
    setenv("HEDDLE_CUDA_PATH", argv[1], 1);
    snprintf(log_path, sizeof log_path, "%s/fake_cuda.log", scratch);
    snprintf(cache_path, sizeof cache_path, "%s/fake_cuda.cache", scratch);
    setenv("FAKE_CUDA_LOG", log_path, 1);
    setenv("HEDDLE_CACHE", cache_path, 1);
    static const struct { const char *name; void (*run)(void);
    } scenarios[] = {{"launches_carry_anything", launches_carry_anything},
                     {"page_locked_memory", page_locked_memory},
                     {"graphs_replay", graphs_replay},
                     {"events_cross_regions", events_cross_regions},
                     {"events_cross_functions", events_cross_functions},
                     {"captures_keep_their_rules", captures_keep_their_rules},
                     {"check_compares", check_compares},
                     {"direct_is_the_same", direct_is_the_same},
                     {"sync_finds_the_action", sync_finds_the_action},
                     {"copies", copies},
                     {"cache", cache},
                     {"products", products},
                     {"choices_are_remembered", choices_are_remembered},
                     {"open_fails_clearly", open_fails_clearly},
                     {"run_fails_clearly", run_fails_clearly},
                     {"failed_captures_run_directly", failed_captures_run_directly},
                     {"profile", profile},
                     {"attention", attention},
                     {"attention_plans", attention_plans}};
    int bad = 0;
    for (size_t i = 0; i < sizeof scenarios / sizeof *scenarios; i++) {
        char command[1200];
        snprintf(command, sizeof command, "rm -rf %s %s", log_path, cache_path);
        if (system(command) != 0) return 1;
        fflush(stdout);
        if (fork() == 0) {
            scenarios[i].run();
            exit(failures != 0);
        }
        int status = 0;
        wait(&status);
        printf("%-30s %s\n", scenarios[i].name, status ? "FAILED" : "ok");
        bad += status != 0;
    }
    return bad != 0;
}
