#include "tests/fake_cuda/simt.h"
#include "tests/fake_cuda/driver.h"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct Simt { const SimtKernel *kernels; SimtRun *run; }; // of a kernel: the row of its own
enum { MAP = 128, MOST_BYTES = 4096, LEAST = 16, MOST = MOST_BYTES / LEAST }; // MAP: bytes of a tensor map
FakeSubmit fake_submit; // driver.c
typedef struct {
    const SimtKernel *kernel;
    SimtRun *run;
    SimtIndex grid, block;
    unsigned shared, cluster, at[MOST];
    _Alignas(128) char bytes[MOST_BYTES]; // of the arguments
} Work;

bool simt_open(const char *image, Simt **module) {
    const char *at = strstr(image, "\nSIMT ");
    char path[4096];
    *module = NULL;
    if (!at || sscanf(at, " SIMT %4095s", path) != 1) return true;
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL), *kernels = library ? dlsym(library, "simt_kernels") : NULL,
         *run = kernels ? dlsym(library, "simt_run") : NULL;
    if (!run) return fprintf(stderr, "pretended driver: %s\n", dlerror()), false;
    Simt *m = calloc(1, sizeof *m);
    m->kernels = kernels;
    memcpy(&m->run, &run, sizeof run);
    return (*module = m) != NULL;
}

Simt *simt_find(const Simt *module, const char *kernel) {
    for (const SimtKernel *k = module->kernels; k->name; k++)
        if (!strcmp(k->name, kernel)) {
            Simt *f = malloc(sizeof *f);
            *f = (Simt){k, module->run};
            return f;
        }
    return NULL;
}

size_t simt_bytes(const Simt *kernel, size_t param) {
    return param < (size_t)kernel->kernels->params ? kernel->kernels->bytes[param] : 0;
}

static void run(void *data) { // a copy: aligned as far as malloc does
    const Work *w = data;
    void *args[MOST];
    _Alignas(128) char bytes[MOST_BYTES];
    memcpy(bytes, w->bytes, sizeof bytes);
    for (int i = 0; i < w->kernel->params; i++) args[i] = bytes + w->at[i];
    SimtLaunch l = {.kernel = w->kernel, .args = args, .grid = w->grid, .block = w->block, .shared = w->shared,
                    .cluster = w->cluster};
    SimtRange *memory = fake_memory(&l.ranges);
    l.memory = memory;
    w->run(&l);
    free(memory);
    fake_log("kernel %s runs", w->kernel->name);
}

CuResult simt_submit(const Simt *kernel, const CuLaunch *c, void **args) {
    const SimtKernel *k = kernel->kernels;
    Work w = {.kernel = k, .run = kernel->run, .grid = {c->gx, c->gy, c->gz}, .block = {c->bx, c->by, c->bz},
              .shared = c->shared, .cluster = 1};
    unsigned at = 0;
    for (unsigned i = 0; i < c->n_attributes; i++) {
        const CuLaunchAttribute *a = &c->attributes[i];
        if (a->id != HD_CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION) continue;
        if (a->cluster.y != 1 || a->cluster.z != 1) return 1;
        w.cluster = a->cluster.x;
    }
    for (int i = 0; i < k->params; i++) {
        const unsigned align = k->bytes[i] < MAP ? LEAST : MAP;
        at = (at + align - 1) / align * align;
        if (k->params > MOST || at + k->bytes[i] > MOST_BYTES) return 1;
        w.at[i] = at;
        memcpy(w.bytes + at, args[i], k->bytes[i]);
        at += k->bytes[i];
    }
    return fake_submit(c->stream, run, &w, sizeof w, k->name);
}
