// A compiled program by hand whose ranks are processes, without a GPU: memory for a device, the world's gather for
// collectives. Its state is sharded, its loss the mean over the ranks of what they read. TOY="RANK STEP KIND" has one
// rank fail in a step: `fail` as a device does, `exit`, `kill`, or `stop` (it lives, and nothing more is heard from
// it).
#include "runtime/heddle.h"
#include "runtime/world/mesh.h"
#include "runtime/world/world.h"
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifndef TOY_RANKS
#define TOY_RANKS 3
#endif
enum { BATCH = 2, SEQ = 8, SHARD = 700, SIZE = SHARD * TOY_RANKS, W = SIZE - 5 };
enum {
    TOKENS = 0,
    TARGETS = TOKENS + 4 * BATCH * SEQ,
    LOSS = TARGETS + 4 * BATCH * SEQ,
    NORM = LOSS + 4,
    STEP = NORM + 4,
    MASTER = STEP + 8,
    MOMENT1 = MASTER + 4 * SHARD,
    MOMENT2 = MOMENT1 + 4 * SHARD,
    GRAD = MOMENT2 + 4 * SHARD,
    ARENA = GRAD + 4 * SHARD
};

typedef struct { HdExec head; char arena[ARENA]; float posted[8]; int first, count, steps; } Toy;

static void misbehave(Toy *t, bool *ok) {
    int rank, step;
    char kind[8];
    const char *text = getenv("TOY");
    if (!text || sscanf(text, "%d %d %7s", &rank, &step, kind) != 3 || rank != t->head.world->rank || step != t->steps)
        return;
    if (!strcmp(kind, "exit")) _exit(3);
    if (!strcmp(kind, "kill")) raise(SIGKILL);
    if (!strcmp(kind, "stop")) raise(SIGSTOP);
    hd_fail("the device stopped in step %d", step);
    *ok = false;
}

static bool toy_run(HdExec *x, const HdFunc *f) {
    Toy *t = (Toy *)(void *)x;
    (void)f;
    const bool eval = x->step == &x->program->eval_step;
    bool ok = true;
    double mine = 0, all[64], sum = 0;
    if (!eval) t->steps++;
    misbehave(t, &ok);
    for (int i = 0; i < BATCH * SEQ; i++) {
        int32_t token;
        memcpy(&token, t->arena + TOKENS + 4 * i, 4);
        mine += token;
    }
    if (!ok || !x->world->gather(x->world, &mine, sizeof mine, all)) return false;
    for (int r = 0; r < x->world->ranks; r++) sum += all[r];
    const float v[2] = {(float)(sum / (BATCH * SEQ * x->world->ranks)), 1};
    memcpy(t->arena + LOSS, v, sizeof v);
    for (int i = 0; !eval && i < SHARD; i++)
        for (int k = 0; k < 3; k++) {
            float *w = (float *)(void *)(t->arena + MASTER) + k * SHARD + i;
            *w = *w * 0.5f + v[0] * (float)(hd_shard(x, x->program->buckets) * SHARD + i + k);
        }
    return true;
}

static HdExec *toy_open(const HdProgram *p, HdWorld *w, const HdOpen *how) {
    (void)how;
    Toy *t = calloc(1, sizeof *t);
    if (!t) return NULL;
    t->head.program = p;
    t->head.world = w;
    return &t->head;
}

static bool toy_write(HdExec *x, int64_t offset, const void *data, size_t bytes) {
    memcpy(((Toy *)(void *)x)->arena + offset, data, bytes);
    return true;
}

static bool toy_read(HdExec *x, int64_t offset, void *data, size_t bytes) {
    memcpy(data, ((Toy *)(void *)x)->arena + offset, bytes);
    return true;
}

static bool toy_post(HdExec *x, int n, const int64_t *offsets, size_t bytes) { // two steps may be on their way
    Toy *t = (Toy *)(void *)x;
    for (int i = 0; i < n; i++) memcpy(&t->posted[(t->first + t->count++) % 8], t->arena + offsets[i], bytes);
    return true;
}

static bool toy_collect(HdExec *x, void *data) {
    Toy *t = (Toy *)(void *)x;
    for (int i = 0; i < 2; i++, t->count--) memcpy((float *)data + i, &t->posted[t->first++ % 8], sizeof(float));
    return true;
}

static bool toy_sync(HdExec *x) { return x != NULL; }

static bool toy_profile(HdExec *x, const char *path) {
    (void)x, (void)path;
    return true;
}

static void toy_close(HdExec *x) { free(x); }

static double toy_peak(HdExec *x) {
    (void)x;
    return 0;
}

static const char *toy_device(HdExec *x) {
    (void)x;
    return "no device";
}

static const HdBackend backend = {.name = "toy",
                                  .open = toy_open,
                                  .write = toy_write,
                                  .read = toy_read,
                                  .run = toy_run,
                                  .post = toy_post,
                                  .collect = toy_collect,
                                  .sync = toy_sync,
                                  .write_profile = toy_profile,
                                  .close = toy_close,
                                  .peak_flops = toy_peak,
                                  .device = toy_device};
static const HdTensor args[] = {{"tokens", HD_I32, 2, {BATCH, SEQ}, TOKENS},
                                {"targets", HD_I32, 2, {BATCH, SEQ}, TARGETS}};
static const HdInput inputs[] = {{"tokens", HD_I32, 2, {BATCH, SEQ}, -1, 256, 0},
                                 {"targets", HD_I32, 2, {BATCH, SEQ}, 0, 256, 0}};
static const HdFunc funcs[] = {{.name = "micro_only", .n_args = 2, .args = args},
                               {.name = "eval", .n_args = 2, .args = args}};
static const HdSegment segments[] = {{&funcs[0], 1}, {&funcs[1], 1}};
static const HdBucket buckets[] = {
    {"root", SIZE, SHARD, HD_F32, HD_F32, MASTER, {MOMENT1, MOMENT2, -1, -1}, GRAD, -1, true, true, -1, 1, false}};
static const char *const states[] = {"moment1", "moment2"};
static const HdParam params[] = {{"w", 1, {W}, W, HD_INIT_NORMAL, 0.02, 0, 0}};

int main(int argc, char **argv) {
    const HdProgram p = {.model = "Toy",
                         .source = "toy_ranks.c",
                         .target = "toy",
                         .arch = "",
                         .plan_hash = "1",
                         .model_hash = "2",
                         .report = "{}\n",
                         .report_text = "\n",
                         .arena_bytes = ARENA,
                         .batch = BATCH,
                         .seq = SEQ,
                         .micro = 1,
                         .n_inputs = 2,
                         .inputs = inputs,
                         .seed = 1,
                         .n_axes = 1,
                         .axes = (const HdAxis[]){{"shard", TOY_RANKS, true, false}},
                         .n_buckets = 1,
                         .buckets = buckets,
                         .n_states = 2,
                         .states = states,
                         .n_params = 1,
                         .params = params,
                         .train_step = {.n_segments = 1, .segments = &segments[0], .loss = LOSS, .norm = NORM,
                                        .counter = STEP, .random = -1, .dropped = -1},
                         .eval_step = {.n_segments = 1, .segments = &segments[1], .loss = LOSS, .norm = -1,
                                       .counter = -1, .random = -1, .dropped = -1},
                         .n_funcs = 2,
                         .funcs = funcs,
                         .backend = &backend};
    return hd_main(argc, argv, &p);
}
