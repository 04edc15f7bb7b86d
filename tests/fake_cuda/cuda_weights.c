// How weights come onto a device, here a pretended one: initial values, of which it runs the text of the real one's
// kernels, and writes of several threads. Usage: cuda_weights FOLDER with the pretended libraries.
#include "runtime/checkpoint/state.h"
#include "runtime/world/world.h"
#include "tests/gpu/draws.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int failures;
#define CHECK(x)                                                                                                       \
    ((x) ? (void)0 : (void)(failures++, fprintf(stderr, "line %d: not so: %s (%s)\n", __LINE__, #x, hd_failure())))

// Two units of parameters of odd sizes: of one the optimizer's storage is a shard of three, of the other all is whole.
// The first has all of its weights gathered as well.
enum { UNIT = 3 * 1000, MASTER = 4096, COMPUTE = 16384, NEXT = 32768, WHOLE = 49152, NARROW = 65536, ARENA = 1 << 20 };
static const HdBucket buckets[] = {
    {.name = "a", .size = UNIT, .shard = UNIT / 3, .compute_dtype = HD_BF16, .master = MASTER,
     .state = {-1, -1, -1, -1}, .grad = -1, .compute = COMPUTE, .optimizer_sharded = true, .next = NEXT, .split = 1},
    {.name = "b", .size = UNIT, .shard = UNIT, .compute_dtype = HD_F16, .master = WHOLE, .state = {-1, -1, -1, -1},
     .grad = -1, .compute = NARROW, .next = -1}};
static const HdParam params[] = {
    {.name = "a.w", .rank = 1, .dim = {1501}, .count = 1501, .init = HD_INIT_NORMAL, .std = 0.02, .at = 0},
    {.name = "a.b", .rank = 1, .dim = {1}, .count = 1, .init = HD_INIT_ONES, .at = 1501},
    {.name = "a.u", .rank = 1, .dim = {1003}, .count = 1003, .init = HD_INIT_UNIFORM, .std = 0.5, .at = 1502},
    {.name = "b.o", .rank = 2, .dim = {20, 9}, .count = 180, .init = HD_INIT_ORTHOGONAL, .std = 2, .bucket = 1,
     .at = 2040},
    {.name = "b.w", .rank = 1, .dim = {1999}, .count = 1999, .init = HD_INIT_NORMAL, .std = 1, .bucket = 1, .at = 3},
    {.name = "b.z", .rank = 1, .dim = {7}, .count = 7, .init = HD_INIT_ZEROS, .bucket = 1, .at = 2002},
    {.name = "b.c", .rank = 1, .dim = {9}, .count = 9, .init = HD_INIT_CONST, .std = 0.1, .bucket = 1, .at = 2011}};

static HdProgram program(const HdBackend *b) {
    return (HdProgram){.model = "Tiny", .source = "tiny.hd", .target = "cuda", .arch = "sm_90", .plan_hash = "0",
                       .model_hash = "0", .report = "{}", .arena_bytes = ARENA, .n_buckets = 2, .buckets = buckets,
                       .n_params = sizeof params / sizeof *params, .params = params, .n_streams = 1, .backend = b,
                       .train_step = {.loss = -1, .norm = -1, .counter = -1, .random = -1}};
}

static HdExec *opened(const HdProgram *p) {
    HdExec *x = p->backend->open(p, hd_world_alone(), &(HdOpen){.use_graphs = true});
    if (x) return x;
    fprintf(stderr, "open: %s\n", hd_failure());
    exit(1);
}

static bool fails_with(const HdDraw *d, HdDtype dtype, int64_t offset, const char *why) {
    const HdProgram p = program(&hd_cuda_backend);
    HdExec *x = opened(&p);
    const bool drawn = p.backend->draw(x, d, dtype, offset), told = strstr(hd_failure(), why) != NULL;
    p.backend->close(x);
    return !drawn && told;
}

static void kernels_make_the_hosts_bits(void) {
    const HdProgram p = program(&hd_cuda_backend);
    HdExec *x = opened(&p);
    CHECK(draws_compare(x, 4096, 50000) > 0);
    p.backend->close(x);
}

// The bytes of a rank after the start: the same whether the device or the host made it.
static void ranks_hold_the_hosts_bits(void) {
    static unsigned char made[2][ARENA];
    HdBackend plain = hd_cuda_backend;
    plain.draw = NULL;
    for (int shard = 0; shard < 3; shard++) {
        for (int host = 0; host < 2; host++) {
            HdProgram p = program(host ? &plain : &hd_cuda_backend);
            HdExec *x = opened(&p);
            p.n_axes = 1, p.axes = &(HdAxis){"shard", 3, true, false}; // one of three ranks, which needs no other
            x->world->rank = shard;
            CHECK(hd_state_init(x, 20 + shard) && p.backend->read(x, 0, made[host], ARENA));
            p.backend->close(x);
        }
        CHECK(!memcmp(made[0], made[1], ARENA));
        const float one = 1;
        const int64_t before = UNIT / 3; // a.b, element 1501 of its unit, is in the second shard
        if (shard == 1) CHECK(!memcmp(made[0] + MASTER + 4 * (1501 - before), &one, 4));
        CHECK(made[0][NEXT + 2 * 1501] == 0x80 && made[0][NEXT + 2 * 1501 + 1] == 0x3f);
    }
}

// Eight threads and as many staging slots, each write with an odd length and place.
enum { WRITERS = 8, STRIPE = (5 << 20) + 3 };
typedef struct { HdExec *x; int number; bool ok; } Writer;

static void *write_stripe(void *data) {
    Writer *w = data;
    unsigned char *bytes = malloc(STRIPE);
    for (size_t i = 0; i < STRIPE; i++) bytes[i] = (unsigned char)((i >> 8) + i + 31 * (size_t)w->number);
    w->ok = w->x->program->backend->write(w->x, 1 + (int64_t)w->number * STRIPE, bytes, STRIPE);
    free(bytes);
    return NULL;
}

static void threads_write_at_once(void) {
    HdProgram p = program(&hd_cuda_backend);
    p.arena_bytes = 1 + WRITERS * STRIPE;
    HdExec *x = opened(&p);
    Writer w[WRITERS];
    pthread_t thread[WRITERS];
    unsigned char *got = malloc((size_t)p.arena_bytes);
    for (int i = 0; i < WRITERS; i++) {
        w[i] = (Writer){x, i, false};
        CHECK(!pthread_create(&thread[i], NULL, write_stripe, &w[i]));
    }
    for (int i = 0; i < WRITERS; i++) pthread_join(thread[i], NULL);
    CHECK(p.backend->read(x, 0, got, (size_t)p.arena_bytes) && !got[0]);
    int64_t wrong = 0;
    for (int n = 0; n < WRITERS; n++) {
        const unsigned char *at = got + 1 + (size_t)n * STRIPE;
        CHECK(w[n].ok);
        for (size_t i = 0; i < STRIPE; i++) wrong += at[i] != (unsigned char)((i >> 8) + i + 31 * (size_t)n);
    }
    CHECK(!wrong);
    free(got);
    p.backend->close(x);
}

static void failures_are_told(void) {
    const HdDraw d = {.count = 4, .kind = HD_DRAW_CONST};
    CHECK(fails_with(&d, HD_F64, 0, "initial values cannot be made in f64"));
    CHECK(fails_with(&d, HD_F32, ARENA - 8, "16 bytes at offset 1048568 are outside the arena of 1048576 bytes"));
    setenv("FAKE_CUDA_FAIL", "cuLaunchKernelEx:1", 1);
    CHECK(fails_with(&d, HD_F32, 0, "cannot make initial values: CUDA_ERROR_INJECTED"));
    unsetenv("FAKE_CUDA_FAIL");
}

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    setenv("HEDDLE_CUDA_PATH", argv[1], 1);
    setenv("HEDDLE_CACHE", "off", 1);
    for (int late = 0; late < 2; late++) {
        setenv("FAKE_CUDA_ASYNC", late ? "1" : "0", 1);
        kernels_make_the_hosts_bits();
        ranks_hold_the_hosts_bits();
        threads_write_at_once();
    }
    failures_are_told();
    printf("%s\n", failures ? "FAILED" : "ok");
    return failures != 0;
}
