// Kernels: NVRTC compiles the program's CUDA text on a few threads, the on-disk cache keeps the cubins, and everything
// is loaded before the first step. A kernel that is loaded inside a stream capture, or beside a running collective, can
// hang.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE // dladdr
#endif
#include "runtime/cuda/exec.h"
#include "runtime/text.h"
#include "runtime/world/world.h"
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct { void *cubin; size_t bytes; bool cached; double ms; char *error; } Unit;

struct HdCompile {
    HdCuda *x;
    int n, n_threads;
    Unit *units;
    pthread_mutex_t lock;
    int next; // under lock: the next source to compile
    pthread_t *threads;
    int nv_major, nv_minor;
    long long nv_bytes; // of its file, 0: unknown. The version that it gives names no patch release
    char *error; // NVRTC could not be opened
    bool opened;
    char arch[48], include[2][560];
};

static char *format(const char *fmt, const char *a, const char *b, const char *c) {
    size_t n = strlen(fmt) + strlen(a) + strlen(b) + strlen(c) + 1;
    char *s = malloc(n);
    if (s) snprintf(s, n, fmt, a, b, c);
    return s;
}

static const HdSource *source(const HdCompile *c, int i) { // the program's, then the runtime's own
    const HdProgram *p = c->x->head.program;
    if (i < p->n_sources) return &p->sources[i];
    return i == p->n_sources && p->n_params ? &hd_draw_source : &hd_choose_source;
}

// The first thread to arrive opens the library, under the lock; the others wait for it.
bool hd_compile_ready(HdCompile *c) {
    HdCudaApi *api = &c->x->api;
    pthread_mutex_lock(&c->lock);
    if (!c->opened) {
        c->opened = true;
        if (!hd_cuda_load(api, HD_LIB_NVRTC)) {
            c->error = format("%s%s%s", hd_failure(), "", "");
        } else {
            api->nvrtcVersion(&c->nv_major, &c->nv_minor);
            // Sources include no headers; should one include cuda_fp8.h or the like, the toolkit's folder is next to
            // its library.
            const char *slash = strrchr(api->path[HD_LIB_NVRTC], '/');
            Dl_info info;
            void *symbol;
            memcpy(&symbol, &api->nvrtcVersion, sizeof symbol);
            const char *file = slash                                     ? api->path[HD_LIB_NVRTC]
                               : dladdr(symbol, &info) && info.dli_fname ? info.dli_fname
                                                                         : "";
            struct stat st;
            if (*file && stat(file, &st) == 0) c->nv_bytes = st.st_size;
            slash = strrchr(file, '/');
            snprintf(c->include[0], sizeof c->include[0], "-I%.*s/../include", slash ? (int)(slash - file) : 0, file);
            snprintf(c->include[1], sizeof c->include[1], "-I/usr/local/cuda/include");
        }
    }
    bool ok = c->error == NULL;
    pthread_mutex_unlock(&c->lock);
    return ok;
}

static HdKey key_of(const HdCompile *c, const HdSource *s, int n, const char *const *options) {
    HdKey k;
    char version[64];
    hd_key_start(&k);
    hd_key_add(&k, version, (size_t)snprintf(version, sizeof version, "nvrtc %d.%d, %lld bytes", c->nv_major,
                                             c->nv_minor, c->nv_bytes));
    for (int i = 0; i < n; i++)
        if (strncmp(options[i], "-I", 2) != 0) hd_key_add(&k, options[i], strlen(options[i]));
    hd_key_add(&k, s->name, strlen(s->name)); // the name occurs in line information and messages
    hd_key_add(&k, s->text, strlen(s->text));
    return k;
}

static void compile(HdCompile *c, const HdSource *s, Unit *u, int n, const char *const *options) {
    const HdCudaApi *api = &c->x->api;
    NvProgram program = NULL;
    NvResult r = api->nvrtcCreateProgram(&program, s->text, s->name, 0, NULL, NULL);
    if (r == HD_NVRTC_SUCCESS) r = api->nvrtcCompileProgram(program, n, options);
    if (r != HD_NVRTC_SUCCESS) {
        size_t bytes = 0;
        char *log = NULL;
        if (program && api->nvrtcGetProgramLogSize(program, &bytes) == HD_NVRTC_SUCCESS &&
            (log = calloc(bytes + 1, 1)) != NULL)
            api->nvrtcGetProgramLog(program, log);
        if (log && c->x->head.world->rank == c->x->head.world->speaker) hd_say_text(stderr, log);
        u->error = format("cannot compile %s: %s%s", s->name, api->nvrtcGetErrorString(r),
                          log ? ", and says why above" : "");
        free(log);
    } else if (api->nvrtcGetCUBINSize(program, &u->bytes) != HD_NVRTC_SUCCESS || !u->bytes ||
               !(u->cubin = malloc(u->bytes)) || api->nvrtcGetCUBIN(program, u->cubin) != HD_NVRTC_SUCCESS) {
        u->error = format("no device code came out of %s for %s%s", s->name, c->arch, "");
    }
    if (program) api->nvrtcDestroyProgram(&program);
}

static void *worker(void *arg) {
    HdCompile *c = arg;
    if (!hd_compile_ready(c)) return NULL;
    const char *options[] = {c->arch, "--std=c++17", "-default-device", c->include[0], c->include[1], "-fmad=false"};
    const int all = (int)(sizeof options / sizeof *options);
    for (;;) {
        pthread_mutex_lock(&c->lock);
        int i = c->next < c->n ? c->next++ : -1;
        pthread_mutex_unlock(&c->lock);
        if (i < 0) return NULL;
        const HdSource *s = source(c, i);
        const int n_options = s == &hd_draw_source ? all : all - 1; // draw.h says why it must not contract
        Unit *u = &c->units[i];
        double start = hd_cuda_now_ms();
        HdKey key = key_of(c, s, n_options, options);
        u->cubin = hd_cache_get(&c->x->cache, "cubin", key, &u->bytes);
        u->cached = u->cubin != NULL;
        if (!u->cached) compile(c, s, u, n_options, options);
        if (!u->cached && u->cubin) hd_cache_put(&c->x->cache, "cubin", key, u->cubin, u->bytes);
        u->ms = hd_cuda_now_ms() - start;
    }
}

HdCompile *hd_compile_start(HdCuda *x) {
    const HdProgram *p = x->head.program;
    HdCompile *c = calloc(1, sizeof *c);
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    const int n = p->n_sources + (p->n_params > 0) + (p->decode_step.n_segments > 0);
    if (!c || !(c->units = calloc((size_t)n + 1, sizeof *c->units)) ||
        !(c->threads = calloc((size_t)n + 1, sizeof *c->threads))) {
        if (c) free(c->units);
        free(c);
        hd_cuda_fail(x, "out of host memory");
        return NULL;
    }
    c->x = x;
    c->n = n;
    pthread_mutex_init(&c->lock, NULL);
    // Architecture-specific features (wgmma, setmaxnreg) exist under the 'a' names only, from 9.0 on.
    snprintf(c->arch, sizeof c->arch, "--gpu-architecture=sm_%d%d%s", x->cc_major, x->cc_minor,
             x->cc_major >= 9 ? "a" : "");
    int wanted = cores < 1 ? 1 : cores > c->n ? c->n : (int)cores;
    while (c->n_threads < wanted && pthread_create(&c->threads[c->n_threads], NULL, worker, c) == 0) c->n_threads++;
    return c;
}

static HdParams params_of(const HdCudaApi *api, CuFunction f) {
    size_t offset, bytes;
    HdParams p = {.n = 0, .bytes = calloc(HD_MAX_ARGS, sizeof *p.bytes)};
    if (!api->cuFuncGetParamInfo || !p.bytes) p.n = HD_MAX_ARGS;
    while (p.n < HD_MAX_ARGS && api->cuFuncGetParamInfo(f, (size_t)p.n, &offset, &bytes) == HD_CUDA_SUCCESS)
        p.bytes[p.n++] = (unsigned short)bytes;
    if (p.n == HD_MAX_ARGS) p.n = -1;
    return p;
}

static bool load_kernels(HdCuda *x, HdCompile *c) {
    const HdProgram *p = x->head.program;
    const HdCudaApi *api = &x->api;
    x->modules.modules = calloc((size_t)c->n + 1, sizeof *x->modules.modules);
    x->modules.functions = calloc((size_t)p->n_kernels + 1, sizeof *x->modules.functions);
    x->modules.params = calloc((size_t)p->n_kernels + 1, sizeof *x->modules.params);
    if (!x->modules.modules || !x->modules.functions || !x->modules.params)
        return hd_cuda_fail(x, "out of host memory");
    for (int i = 0; i < c->n; i++) {
        CuResult r = api->cuModuleLoadData(&x->modules.modules[i], c->units[i].cubin);
        if (r != HD_CUDA_SUCCESS)
            return hd_cuda_fail(x,
                                "cannot load the kernels of %s, compiled by NVRTC %d.%d for %s: %s; the driver "
                                "supports CUDA %d.%d",
                                source(c, i)->name, c->nv_major, c->nv_minor, c->arch, hd_cuda_error(api, r),
                                api->driver_version / 1000, api->driver_version % 1000 / 10);
        x->modules.n_modules = i + 1;
    }
    for (int i = 0; i < p->n_kernels; i++) {
        const HdKernel *k = &p->kernels[i];
        CuFunction f = NULL;
        CuResult r = api->cuModuleGetFunction(&f, x->modules.modules[k->source], k->name);
        if (r != HD_CUDA_SUCCESS)
            return hd_cuda_fail(x, "kernel %s is not in %s: %s", k->name, p->sources[k->source].name,
                                hd_cuda_error(api, r));
        if (api->cuFuncLoad) r = api->cuFuncLoad(f);
        int fixed = 0, local = 0, registers = 0;
        if (r == HD_CUDA_SUCCESS) r = api->cuFuncGetAttribute(&fixed, HD_CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, f);
        if (r == HD_CUDA_SUCCESS && k->shared_bytes + fixed > x->shared_limit)
            return hd_cuda_fail(x, "kernel %s needs %d bytes of shared memory, %s has %d for a block", k->name,
                                k->shared_bytes + fixed, x->device_name, x->shared_limit);
        if (r == HD_CUDA_SUCCESS && k->shared_bytes > 0)
            r = api->cuFuncSetAttribute(f, HD_CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, k->shared_bytes);
        if (r != HD_CUDA_SUCCESS)
            return hd_cuda_fail(x, "cannot prepare kernel %s: %s", k->name, hd_cuda_error(api, r));
        if (x->verbose) {
            api->cuFuncGetAttribute(&local, HD_CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, f);
            api->cuFuncGetAttribute(&registers, HD_CU_FUNC_ATTRIBUTE_NUM_REGS, f);
            hd_say(stderr, "kernel %-40s %3d registers, %5d B shared, %4d B local%s\n", k->name, registers,
                   fixed + k->shared_bytes, local, local ? " (spills)" : "");
        }
        x->modules.functions[i] = f;
        x->modules.params[i] = params_of(api, f);
    }
    for (int i = p->n_sources; i < c->n; i++)
        if (!(source(c, i) == &hd_draw_source ? hd_draws_load : hd_choose_load)(x, x->modules.modules[i])) return false;
    return true;
}

bool hd_compile_join(HdCuda *x, HdCompile *c) {
    if (!c) return !x->failed;
    pthread_mutex_lock(&c->lock);
    if (x->failed) c->next = c->n; // the rest cannot be used
    pthread_mutex_unlock(&c->lock);
    if (c->n && !c->n_threads && !x->failed) worker(c); // no thread could be started
    for (int i = 0; i < c->n_threads; i++) pthread_join(c->threads[i], NULL);
    double total = 0;
    int cached = 0;
    if (c->error) hd_cuda_fail(x, "%s", c->error);
    for (int i = 0; i < c->n; i++) {
        if (c->units[i].error) hd_cuda_fail(x, "%s", c->units[i].error);
        total += c->units[i].ms;
        cached += c->units[i].cached;
    }
    if (!x->failed && x->verbose)
        hd_say(stderr, "kernels: %d sources for %s by NVRTC %d.%d, %d from the cache, %.0f ms on %d threads\n", c->n,
               c->arch + 19, c->nv_major, c->nv_minor, cached, total, c->n_threads);
    bool ok = !x->failed && load_kernels(x, c);
    for (int i = 0; i < c->n; i++) {
        free(c->units[i].cubin);
        free(c->units[i].error);
    }
    pthread_mutex_destroy(&c->lock);
    free(c->error);
    free(c->threads);
    free(c->units);
    free(c);
    return ok;
}

void hd_modules_close(HdCuda *x) {
    for (int i = 0; i < x->modules.n_modules; i++) x->api.cuModuleUnload(x->modules.modules[i]);
    free(x->modules.modules);
    free(x->modules.functions);
    for (int i = 0; x->modules.params && i < x->head.program->n_kernels; i++) free(x->modules.params[i].bytes);
    free(x->modules.params);
    memset(&x->modules, 0, sizeof x->modules);
}
