// Ranges for profilers, named after unit and action. A profiler that wants them (Nsight Systems, Nsight Compute) names
// a library in NVTX_INJECTION64_PATH. The library fills a table of functions that a program would otherwise get from
// NVIDIA's headers (NVTX 3, detail/nvtxTypes.h, which defines these numbers). Without such a library nothing happens.
// Nothing is linked.
#include "runtime/cuda/exec.h"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

enum { CALLBACKS = 1, VERSION_INFO = 3, VERSION = 3 };                    // tables that the library asks for
enum {
    CORE = 1,
    RANGE_PUSH = 9,
    RANGE_POP = 11,
    MODULES = 7,
    MOST = 16
}; // modules of functions: core, CUDA, OpenCL, CUDA runtime, domains, sync
typedef void (*Function)(void);
typedef struct { size_t size; int (*functions)(int module, Function ***table, unsigned *n); } Callbacks;
typedef struct { size_t size; uint32_t version, reserved; void (*library)(uint32_t version); } VersionInfo;

static Function slot[MODULES][MOST], *slots[MODULES][MOST];

static int functions_of(int module, Function ***table, unsigned *n) { // a library supports all modules or none
    static const unsigned sizes[MODULES] = {0, 16, 9, 15, 7, 16, 7};
    if (module < CORE || module >= MODULES) return 0;
    *table = slots[module];
    *n = sizes[module];
    return 1;
}

static void library_version(uint32_t version) { (void)version; }

static const void *export_table(uint32_t id) {
    static const Callbacks callbacks = {sizeof callbacks, functions_of};
    static const VersionInfo info = {sizeof info, VERSION, 0, library_version};
    return id == CALLBACKS ? (const void *)&callbacks : id == VERSION_INFO ? &info : NULL;
}

bool hd_nvtx_open(void) {
    const char *path = getenv("NVTX_INJECTION64_PATH");
    void *library = path && *path ? dlopen(path, RTLD_LAZY) : NULL;
    void *symbol = library ? dlsym(library, "InitializeInjectionNvtx2") : NULL;
    int (*start)(const void *(*)(uint32_t));
    if (!symbol) return false;
    for (int m = 0; m < MODULES; m++)
        for (int i = 0; i < MOST; i++) slots[m][i] = &slot[m][i];
    *(void **)&start = symbol;
    return start(export_table) && slot[CORE][RANGE_PUSH] && slot[CORE][RANGE_POP];
}

void hd_nvtx_push(const char *unit, const char *action) {
    char text[200];
    snprintf(text, sizeof text, "%s%s%s", unit, *unit ? " " : "", action);
    ((int (*)(const char *))slot[CORE][RANGE_PUSH])(text);
}

void hd_nvtx_pop(void) { ((int (*)(void))slot[CORE][RANGE_POP])(); }
