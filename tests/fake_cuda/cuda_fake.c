// The CUDA runtime on pretended libraries: usage cuda_fake FAKES_FOLDER SCRATCH_FOLDER. Each scenario runs in a process
// of its own.
#include "tests/fake_cuda/opened.h"
#include "runtime/cuda/losses.h"
#include "runtime/world/world.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *scratch;
static const HdBackend *const b = &hd_cuda_backend;

static void launches_carry_anything(void) {
    HdProgram p = small_program();
    HdExec *x = opened(&p, true);
    tiled_bytes = 128;
    CHECK(b->run(x, &test_funcs[TILED]) && b->run(x, &test_funcs[TILED]) && b->sync(x));
    CHECK(count_in_log(
              "tiled: 4 x 2 blocks of 128, clusters of 2 x 1 x 1, 200000 shared, arguments 8 128 4, map 1 2, then 7") ==
          1); // at its capture
    CHECK(count_in_log("kernel tiled runs") == 2);
    b->close(x);
    x = opened(&p, false);
    tiled_bytes = 64;
    CHECK(!b->run(x, &test_funcs[TILED]) &&
          failed_with("argument 1 of kernel tiled has 128 bytes, the program passes 64"));
    b->close(x);
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
    HdProgram p = small_program();
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
    no_open("FAKE_CUDA_FAIL", "cuMemHostRegister:1", &p, "cannot take 4096 bytes (0.00 GiB) of page-locked");
    CHECK(failed_with("offload less (schedule.offload.fraction, heddlec --host-memory), or let this process"));
}

static void memory_for_copies(void) { // read copies into it at once, elsewhere through staging slots
    HdProgram p = small_program();
    HdExec *x = opened(&p, false);
    setenv("FAKE_CUDA_FAIL", "cuMemHostRegister:2", 1);
    char *memory = b->take_memory(x, 4096);
    int *inside = (int *)(memory + 4096 - sizeof(int)), outside = -1;
    CHECK(memory && !*inside && b->run(x, &test_funcs[MICRO]));
    CHECK(b->read(x, COUNTER, inside, sizeof *inside) && *inside == counter(x) && *inside == 2);
    b->give_memory(x, memory, 4096);
    CHECK(b->read(x, COUNTER, &outside, sizeof outside) && outside == 2);
    CHECK(!b->take_memory(x, 4096) && *hd_failure());
    unsetenv("FAKE_CUDA_FAIL");
    CHECK(counter(x) == 2); // the executor goes on
    b->close(x);
}

static void graphs_replay(void) {
    HdProgram p = small_program();
    HdExec *x = opened(&p, true);
    CHECK(counter(x) == 0); // memory starts clear
    for (int i = 0; i < 3; i++) CHECK(b->run(x, &test_funcs[MICRO]) && b->run(x, &test_funcs[UPDATE]));
    CHECK(counter(x) == 21); // c -> 2 (c + 1) + 1, three times from 0
    CHECK(count_in_log("capture begins, mode 1") == 2);
    CHECK(count_in_log("capture ends: 2 nodes") == 1 && count_in_log("capture ends: 1 nodes") == 1 &&
          count_in_log("unjoined") == 0);
    CHECK(count_in_log("graph launch") == 6);
    CHECK(!strcmp(b->device(x), "NVIDIA H200 (pretended)") && b->peak_flops(x) == 989e12);
    b->close(x);
}

static void events_cross_regions(void) {
    HdProgram p = small_program();
    for (int mode = 0; mode < 4; mode++) { // streams run at once or beside the program; graphs, or not
        setenv("FAKE_CUDA_ASYNC", mode & 1 ? "1" : "0", 1);
        remove(log_path);
        HdExec *x = opened(&p, mode & 2);
        for (int i = 0; i < 5; i++) CHECK(b->run(x, &test_funcs[PARTS]));
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
    HdProgram p = small_program();
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
    HdProgram p = small_program();
    HdExec *x = opened(&p, true);
    for (int i = 0; i < 4; i++) CHECK(b->run(x, &test_funcs[CARELESS]));
    CHECK(counter(x) == 45 && count_in_log("graph launch") == 4); // those of the first part
    for (int i = 0; i < 4; i++) CHECK(b->run(x, &test_funcs[OPEN]));
    CHECK(counter(x) == 49 && count_in_log("graph launch") == 4 && count_in_log("unjoined") == 2);
    b->close(x);
}

static void check_compares(void) {
    HdProgram p = small_program();
    HdExec *x = opened(&p, true);
    x->check = true;
    tiled_bytes = 128;
    for (int i = 0; i < 3; i++)
        CHECK(b->run(x, &test_funcs[MICRO]) && b->run(x, &test_funcs[PARTS]) && b->run(x, &test_funcs[TILED]));
    CHECK(counter(x) == 147 && count_in_log("capture begins") == 4 && count_in_log("graph launch") == 12);
    steps_so_far = 0; // counts the capture and each comparison
    CHECK(b->run(x, &test_funcs[FORGETFUL]) && b->run(x, &test_funcs[FORGETFUL]));
    CHECK(!b->run(x, &test_funcs[FORGETFUL]) &&
          failed_with("gpt.hd:12: launch in head (action 0 of forgetful, stream compute): --check: it would get other "
                      "addresses, sizes or numbers than its graph was captured with"));
    b->close(x);
}

static void direct_is_the_same(void) {
    HdProgram p = small_program();
    HdExec *x = opened(&p, false);
    for (int i = 0; i < 3; i++) CHECK(b->run(x, &test_funcs[MICRO]) && b->run(x, &test_funcs[UPDATE]));
    CHECK(counter(x) == 21 && count_in_log("capture") == 0 && b->sync(x));
    b->close(x);
}

static void sync_finds_the_action(void) {
    HdProgram p = small_program();
    setenv("HEDDLE_SYNC", "1", 1);
    HdExec *x = opened(&p, true);
    for (int i = 0; i < 3; i++) CHECK(b->run(x, &test_funcs[MICRO]) && b->run(x, &test_funcs[UPDATE]));
    CHECK(counter(x) == 21 && count_in_log("capture") == 0); // nothing is captured: a wait cannot be
    b->close(x);
    setenv("FAKE_CUDA_FAIL", "cuCtxSynchronize:1", 1); // the first wait stands behind action 0
    x = opened(&p, true);
    CHECK(!b->run(x, &test_funcs[MICRO]) &&
          failed_with("gpt.hd:12: launch in head (action 0 of micro_only, stream compute): the GPU stopped"));
    b->close(x);
}

static void copies(void) {
    HdProgram p = small_program();
    HdExec *x = opened(&p, true);
    size_t n = 9u << 20;
    unsigned char *out = malloc(n), *in = calloc(n, 1);
    for (size_t i = 0; i < n; i++) out[i] = (unsigned char)(i * 7 + i / 1000);
    CHECK(b->write(x, DATA, out, n) && b->read(x, DATA, in, n) && !memcmp(out, in, n));
    for (int i = 0; i < 5; i++) {
        int64_t where[2] = {COUNTER, DATA};
        CHECK(b->run(x, &test_funcs[MICRO]) && b->post(x, 2, where, 4));
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
    CHECK(!b->run(x, &test_funcs[MICRO]) && failed_with("outside the arena")); // the first failure stays
    b->close(x);
    free(out);
    free(in);
}

static void use_patched_nvrtc(void) { // one whose file is a byte longer
    char command[2000], folders[2000];
    const char *fakes = getenv("HEDDLE_CUDA_PATH");
    snprintf(command, sizeof command, "mkdir -p %s/patched && cp %s/libnvrtc.so.* %s/patched && printf x >> %s/patched/"
             "libnvrtc.so.13", scratch, fakes, scratch, scratch);
    CHECK(system(command) == 0);
    snprintf(folders, sizeof folders, "%s/patched:%s", scratch, fakes);
    setenv("HEDDLE_CUDA_PATH", folders, 1);
}

static void cache(void) {
    HdProgram p = small_program();
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
    use_patched_nvrtc(); // of the same version: other entries
    b->close(opened(&p, true));
    CHECK(count_in_log("compile") == 8 && files_in_cache("cubin", false) == 6);
    setenv("HEDDLE_CACHE", "/proc/no/such", 1); // cannot be written: a warning, no failure
    b->close(opened(&p, true));
    setenv("HEDDLE_CACHE", "off", 1);
    b->close(opened(&p, true));
    CHECK(count_in_log("compile") == 12);
}

// --- everything that can go wrong

static void run_fails_clearly(void) {
    HdProgram p = small_program();
    HdExec *x = opened(&p, true);
    CHECK(!b->run(x, &test_funcs[WRONG]));
    CHECK(failed_with("gpt.hd:14: launch in blocks.\"0\" (action 3 of wrong, stream side): kernel other of (1, 1, 1)"));
    CHECK(!b->sync(x) && failed_with("gpt.hd:14"));
    b->close(x);
    x = opened(&p, true);
    setenv("FAKE_CUDA_FAIL", "cuGraphLaunch:1", 1);
    CHECK(!b->run(x, &test_funcs[MICRO]) && failed_with("micro_only: cannot launch the graph: CUDA_ERROR_INJECTED"));
    b->close(x);
    HdSource picky[] = {{"k.cu", "bump/2 twice tiled"}, {"other.cu", "other"}};
    p.sources = picky;
    x = opened(&p, false);
    CHECK(!b->run(x, &test_funcs[MICRO]) && failed_with("gpt.hd:12: launch in head (action 0 of micro_only, stream "
                                                    "compute): kernel bump takes 2 arguments, the program passes 1"));
    b->close(x);
    p.sources = small_sources;
    setenv("FAKE_CUDA_FAIL", "cuEventRecord:1", 1);
    x = opened(&p, false);
    CHECK(!b->run(x, &test_funcs[MICRO]) &&
          failed_with("(action 1 of micro_only, stream compute): record: CUDA_ERROR_INJECTED"));
    b->close(x);
}

static void failed_captures_run_directly(void) {
    static const char *const cases[] = {"cuStreamBeginCapture:1", "cuLaunchKernelEx:2", "cuGraphInstantiateWithFlags:1",
                                        "cuGraphUpload:1"};
    HdProgram p = small_program();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        remove(log_path);
        setenv("FAKE_CUDA_FAIL", cases[i], 1);
        HdExec *x = opened(&p, true);
        for (int j = 0; j < 4; j++) CHECK(b->run(x, &test_funcs[MICRO])); // once directly, then captured and replayed
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
    const HdSegment segments[] = {{&test_funcs[MICRO], 1}, {&test_funcs[UPDATE], 1}};
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

// Two layers of one line, of which each may take 50 us and takes 100, a line near its floor and a wait, which has none.
static void losses(void) {
    static const HdAction layer[] = {{"gemm", "compute", "blocks.0", "gpt.hd:9", 1e6, 2e6, 50},
                                     {"gemm", "compute", "blocks.1", "gpt.hd:9", 1e6, 2e6, 50},
                                     {"rows", "compute", "blocks.0", "gpt.hd:7", 0, 3e6, 90},
                                     {"wait", "compute", "", "", 0, 0, 0}};
    char text[2048];
    HdLosses l = {0};
    for (int i = 0; i < 4; i++) hd_losses_add(&l, &layer[i], 100);
    FILE *f = tmpfile();
    CHECK(f);
    if (!f) return;
    hd_losses_print(&l, 1000, f);
    rewind(f);
    text[fread(text, 1, sizeof text - 1, f)] = 0;
    fclose(f);
    hd_losses_free(&l);
    const char *product = strstr(text, "gemm "), *row = strstr(text, "rows "), *all = strstr(text, "all ");
    CHECK(product && row && all && product < row && row < all && !strstr(text, "wait"));
    CHECK(strstr(text, " 2      200.0  20.0%      100.0    50.0%      100.0 *\n"));
    CHECK(strstr(text, " 1      100.0  10.0%       90.0    90.0%       10.0\n"));
    CHECK(strstr(text, "300.0             190.0    63.3%      110.0\n") && strstr(text, "*: more than 2 %"));
}

static void profile(void) {
    HdProgram p = small_program();
    char path[600], text[8192];
    snprintf(path, sizeof path, "%s/profile.json", scratch);
    HdExec *x = b->open(&p, hd_world_alone(), &(HdOpen){.use_graphs = true, .profile = true});
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
    CHECK(strstr(text, "\"floor_us\": 50}"));
    char command[700];
    snprintf(command, sizeof command, "python3 -m json.tool %s >/dev/null", path);
    CHECK(system(command) == 0);
    page(x, &p);
    b->close(x);
}

static void clear(void) { // the log and the cache of the scenario before
    char command[1200];
    snprintf(command, sizeof command, "rm -rf %s %s", log_path, cache_path);
    CHECK(system(command) == 0);
}

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    scratch = argv[2];
    setenv("HEDDLE_CUDA_PATH", argv[1], 1);
    open_log(scratch, "fake_cuda");
    snprintf(cache_path, sizeof cache_path, "%s/fake_cuda.cache", scratch);
    setenv("HEDDLE_CACHE", cache_path, 1);
    static const Scenario scenarios[] = {SCENARIO(launches_carry_anything),
                                         SCENARIO(page_locked_memory),
                                         SCENARIO(memory_for_copies),
                                         SCENARIO(graphs_replay),
                                         SCENARIO(events_cross_regions),
                                         SCENARIO(events_cross_functions),
                                         SCENARIO(captures_keep_their_rules),
                                         SCENARIO(check_compares),
                                         SCENARIO(guards),
                                         SCENARIO(direct_is_the_same),
                                         SCENARIO(sync_finds_the_action),
                                         SCENARIO(copies),
                                         SCENARIO(cache),
                                         SCENARIO(products),
                                         SCENARIO(choices_are_remembered),
                                         SCENARIO(choices_under_load),
                                         SCENARIO(choices_of_a_file),
                                         SCENARIO(visible_devices),
                                         SCENARIO(open_fails_clearly),
                                         SCENARIO(run_fails_clearly),
                                         SCENARIO(failed_captures_run_directly),
                                         SCENARIO(profile), SCENARIO(losses),
                                         SCENARIO(attention),
                                         SCENARIO(attention_maps),
                                         SCENARIO(attention_plans)};
    return run_scenarios(scenarios, sizeof scenarios / sizeof *scenarios, clear) || failures;
}
