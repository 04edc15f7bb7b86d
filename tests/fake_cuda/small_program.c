// See small_program.h.
#include "tests/fake_cuda/small_program.h"

const HdSource small_sources[] = {{"k.cu", "bump twice tiled/3:8:128:4"}, {"other.cu", "other"}};
static const HdKernel kernels[] = {{"bump", 0, 0, false}, {"twice", 0, 0, true}, {"other", 1, 1000, false},
                                   {"tiled", 0, 200000, false}};
static const char *const streams[] = {"compute", "side", "third"};
static const HdAction actions[] = {{"launch", "compute", "head", "gpt.hd:12", 10, 20, 0},
                                   {"record", "compute", "", "", 0, 0, 0},
                                   {"wait", "side", "", "", 0, 0, 0},
                                   {"launch", "side", "blocks.\"0\"", "gpt.hd:14", 1e6, 2e6, 50},
                                   {"record", "side", "", "", 0, 0, 0},
                                   {"wait", "compute", "", "", 0, 0, 0}};

static void micro_region(HdExec *x) { // (counter + 1) * 2, the second half on another stream
    const HdArg at = {.word = hd_device(x, COUNTER)};
    const HdFunc *self = &test_funcs[MICRO];
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
    hd_action(x, &test_funcs[WRONG], 3);
    hd_cuda_launch(x, 0, 2, (HdGrid){1, 1, 1, 32, 2000, {0}}, 1, &at); // more shared memory than declared
}

// The arguments of a kernel with tensor maps: 128 bytes by value, blocks in clusters, much shared memory.
size_t tiled_bytes = 128;
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

int steps_so_far;
static void forgetful_part(HdExec *x) { // a number of the host's that changes from step to step
    steps_so_far++;
    hd_action(x, &test_funcs[MICRO], 0);
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

HdProgram small_program(void) {
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
                       .sources = small_sources,
                       .kernels = kernels,
                       .n_streams = 3,
                       .n_events = 6,
                       .streams = streams,
                       .n_regions = 8,
                       .regions = regions};
}
