// Ranges for profilers, named after unit and action. A profiler that wants them (Nsight Systems, Nsight Compute) names a library in
// NVTX_INJECTION64_PATH; it fills a table of functions that a program would otherwise get from NVIDIA's headers (NVTX 3, detail/nvtxTypes.h,
// whose numbers these are). Without such a library nothing happens, and nothing is linked.
#include "runtime/cuda/exec.h"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

enum { CORE = 1, CALLBACKS = 1, RANGE_PUSH = 9, RANGE_POP = 11, CORE_FUNCTIONS = 16 };
typedef void (*Function)(void);
typedef struct { size_t size; int (*functions)(int module, Function ***table, unsigned *n); } Callbacks;

static Function slot[CORE_FUNCTIONS], *slots[CORE_FUNCTIONS];

static int functions_of(int module, Function ***table, unsigned *n) {
    if (module != CORE) return 0;
    *table = slots;
    *n = CORE_FUNCTIONS;
    return 1;
}

static const void *export_table(uint32_t id) {
    static const Callbacks callbacks = {sizeof callbacks, functions_of};
    return id == CALLBACKS ? &callbacks : NULL;
}

bool hd_nvtx_open(void) {
    const char *path = getenv("NVTX_INJECTION64_PATH");
    void *library = path && *path ? dlopen(path, RTLD_LAZY) : NULL;
    void *symbol = library ? dlsym(library, "InitializeInjectionNvtx2") : NULL;
    int (*start)(const void *(*)(uint32_t));
    if (!symbol) return false;
    for (int i = 0; i < CORE_FUNCTIONS; i++) slots[i] = &slot[i];
    *(void **)&start = symbol;
    return start(export_table) == 1 && slot[RANGE_PUSH] && slot[RANGE_POP];
}

void hd_nvtx_push(const char *unit, const char *action) {
    char text[200];
    snprintf(text, sizeof text, "%s%s%s", unit, *unit ? " " : "", action);
    ((int (*)(const char *))slot[RANGE_PUSH])(text);
}

void hd_nvtx_pop(void) { ((int (*)(void))slot[RANGE_POP])(); }
