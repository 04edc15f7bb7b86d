// recompute auto under --device-memory: how much time recomputation must have so that the plan fits. Budgets are tried
// from the least upwards, each on a copy of the module that goes through all passes up to events. The first that fits
// is taken, so less memory is never faster.
#include "passes/tensor/recompute.h"
#include "passes/memory/plan_memory.h"

// The least bytes of device memory; -1 where some pass reports errors, which the compile itself will report again.
static int64_t bytes_with(const Module *m, Budget b) {
    static PassFn *const passes[] = {hd_pass_fsdp, hd_pass_fuse, hd_pass_select, hd_pass_schedule, hd_pass_sync};
    Arena *a = hd_arena_new();
    PassCx cx = {.scratch = a};
    Out text = hd_out(a);
    hd_print_module(m, &text);
    Module *copy = hd_parse_module(m->cx, text.text, text.n, 0);
    bool good = copy && hd_recompute_module(copy, &cx, b) != FAILED;
    for (size_t i = 0; good && i < sizeof passes / sizeof *passes; i++) good = passes[i](copy, &cx) != FAILED;
    int64_t bytes = good ? hd_memory_bound(copy, &cx) : -1;
    hd_arena_free(a);
    return bytes;
}

static bool fits(const Module *m, Budget b, int64_t limit) {
    int64_t bytes = bytes_with(m, b);
    return bytes >= 0 && bytes + bytes / 100 <= limit; // addresses take at most 1 % more
}

Budget hd_recompute_fit(const Module *m, Budget given, int64_t limit) {
    enum { MOST = 1 << 10 }; // instances; of more than there are, all
    static const Budget cheap[] = {{0.05, false, 0}, {0.1, false, 0}};
    const int errors = m->cx->diags.errors;
    Budget any = {.slower = given.slower > 0.3 ? given.slower : 0.3, .any = true};
    int64_t bytes = bytes_with(m, given);
    if (bytes <= limit || m->cx->diags.errors > errors) return given;
    for (size_t i = 0; i < sizeof cheap / sizeof *cheap; i++)
        if (cheap[i].slower > given.slower && fits(m, cheap[i], limit)) return cheap[i];
    if (!fits(m, any, limit)) return (Budget){.slower = 1, .any = true}; // all there is: the error says what lacks
    int few = 0, enough = 1;
    while (enough < MOST && !fits(m, (Budget){any.slower, true, enough}, limit)) few = enough, enough *= 2;
    while (enough - few > 1) {
        int k = few + (enough - few) / 2;
        if (fits(m, (Budget){any.slower, true, k}, limit)) enough = k;
        else few = k;
    }
    any.first = enough;
    return any;
}
