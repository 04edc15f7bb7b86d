// Finds and opens NVIDIA's libraries. A failure names the library, its purpose, every place that was searched and what
// to do.
#include "runtime/cuda/api.h"
#include "runtime/heddle.h"
#include <dlfcn.h>
#include <glob.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct { const char *id, *names, *need, *cure; bool required; } Library;
static const Library libraries[HD_N_LIBS] = {
#define LIB(id, required, names, need, cure) {#id, names, need, cure, required},
#include "runtime/cuda/api.def"
};

// Where a library may be, most wanted first; "" is the loader's own search. `looked` collects the places tried.
typedef struct { char text[3000]; size_t used; } Looked;

static void __attribute__((format(printf, 2, 3))) note(Looked *l, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(l->text + l->used, sizeof l->text - l->used, fmt, ap);
    va_end(ap);
    if (n > 0) l->used = l->used + (size_t)n < sizeof l->text ? l->used + (size_t)n : sizeof l->text - 1;
}

// One more place of the list behind the colon after a library's name.
static void note_place(Looked *l, size_t n, const char *place) {
    note(l, "%s %.*s", l->used && l->text[l->used - 1] == ':' ? "" : ",", (int)n, place);
}

static bool try_file(HdCudaApi *api, HdCudaLib lib, const char *file, Looked *looked) {
    if (file[0] == '/' && access(file, F_OK) != 0) return false;
    void *h = dlopen(file, RTLD_LAZY | RTLD_LOCAL);
    if (!h) {
        const char *why = dlerror();
        if (file[0] == '/') note(looked, ", %s (cannot be opened: %s)", file, why ? why : "no reason given");
        return false;
    }
    api->handle[lib] = h;
    snprintf(api->path[lib], sizeof api->path[lib], "%s", file);
    return true;
}

static bool try_dir(HdCudaApi *api, HdCudaLib lib, const char *dir, size_t dir_size, const char *name, Looked *looked) {
    char file[1024];
    if (!dir_size) return false;
    snprintf(file, sizeof file, "%.*s/%s", (int)dir_size, dir, name);
    note_place(looked, dir_size, dir);
    return try_file(api, lib, file, looked);
}

static bool try_glob(HdCudaApi *api, HdCudaLib lib, const char *pattern, const char *name, Looked *looked) {
    char full[1024];
    glob_t g;
    bool found = false;
    snprintf(full, sizeof full, "%s/%s", pattern, name);
    note_place(looked, strlen(pattern), pattern);
    if (glob(full, 0, NULL, &g) == 0)
        for (size_t i = 0; i < g.gl_pathc && !found; i++) found = try_file(api, lib, g.gl_pathv[i], looked);
    globfree(&g);
    return found;
}

// pip installs the libraries as nvidia/<package>/lib in a site-packages (Debian: dist-packages) folder
static bool try_python(HdCudaApi *api, HdCudaLib lib, const char *prefix, const char *name, Looked *looked) {
    char pattern[512];
    if (!prefix || !*prefix) return false;
    snprintf(pattern, sizeof pattern, "%s/lib/python3*/*-packages/nvidia/*/lib", prefix);
    return try_glob(api, lib, pattern, name, looked);
}

static bool search(HdCudaApi *api, HdCudaLib lib, const char *name, Looked *looked) {
    const char *path = getenv("HEDDLE_CUDA_PATH");
    for (const char *p = path; p && *p;) {
        size_t n = strcspn(p, ":");
        if (try_dir(api, lib, p, n, name, looked)) return true;
        p += n + (p[n] == ':');
    }
    static const char own[] = "the loader's own search (LD_LIBRARY_PATH, ld.so.cache)";
    note_place(looked, sizeof own - 1, own);
    if (try_file(api, lib, name, looked)) return true;
    const char *home[] = {getenv("CUDA_HOME"), getenv("CUDA_PATH"), "/usr/local/cuda"};
    for (int i = 0; i < 3; i++) {
        char dir[512];
        bool again = false;
        for (int j = 0; j < i && home[i]; j++) again = again || (home[j] && !strcmp(home[i], home[j]));
        if (!home[i] || !*home[i] || again) continue;
        snprintf(dir, sizeof dir, "%s/lib64", home[i]);
        if (try_dir(api, lib, dir, strlen(dir), name, looked)) return true;
    }
    static const char *const system[] = {"/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64",
                                         "/usr/local/nvidia/lib64", "/usr/lib/wsl/lib"};
    for (int i = 0; i < 5; i++)
        if (access(system[i], F_OK) == 0 && try_dir(api, lib, system[i], strlen(system[i]), name, looked)) return true;
    if (lib == HD_LIB_DRIVER) return false;
    char local[512] = "";
    if (getenv("HOME")) snprintf(local, sizeof local, "%s/.local", getenv("HOME"));
    return try_python(api, lib, getenv("VIRTUAL_ENV"), name, looked) ||
           try_python(api, lib, getenv("CONDA_PREFIX"), name, looked) || try_python(api, lib, local, name, looked) ||
           try_python(api, lib, "/usr/local", name, looked) || try_python(api, lib, "/usr", name, looked) ||
           try_python(api, lib, "/opt/*", name, looked);
}

static bool resolve(HdCudaApi *api, HdCudaLib lib) {
    const char *missing = NULL;
#define FN(l, result, name, symbol, params)                        \
    if (lib == HD_LIB_##l) {                                       \
        void *s = dlsym(api->handle[lib], symbol);                 \
        memcpy(&api->name, &s, sizeof s);                          \
        if (!s && !missing) missing = symbol;                      \
    }
#define OPT(l, result, name, symbol, params)                       \
    if (lib == HD_LIB_##l) {                                       \
        void *s = dlsym(api->handle[lib], symbol);                 \
        memcpy(&api->name, &s, sizeof s);                          \
    }
#include "runtime/cuda/api.def"
    if (!missing) return true;
    return hd_fail("%s lacks the function %s: it is too old; Heddle needs %s, CUDA 12.2 or newer: %s", api->path[lib],
                   missing, libraries[lib].need, libraries[lib].cure);
}

// the number at the end of "libnvrtc.so.13"
static int major_of(const char *name) {
    const char *dot = strrchr(name, '.');
    return dot ? atoi(dot + 1) : 0;
}

bool hd_cuda_load(HdCudaApi *api, HdCudaLib lib) {
    const Library *l = &libraries[lib];
    Looked looked = {.used = 0};
    if (api->handle[lib]) return true;
    for (const char *p = l->names; *p && !api->handle[lib];) {
        char name[64];
        size_t n = strcspn(p, " ");
        snprintf(name, sizeof name, "%.*s", (int)n, p);
        p += n + (p[n] == ' ');
        bool of_toolkit = lib == HD_LIB_NVRTC || lib == HD_LIB_LT; // their major version is CUDA's
        if (of_toolkit && api->driver_version && major_of(name) > api->driver_version / 1000) {
            note(&looked, "%s%s: skipped, the driver supports CUDA %d.%d only", looked.used ? "; " : "", name,
                 api->driver_version / 1000, api->driver_version % 1000 / 10);
            continue;
        }
        note(&looked, "%s%s:", looked.used ? "; " : "", name);
        search(api, lib, name, &looked);
    }
    if (!api->handle[lib])
        return hd_fail("cannot find %s, needed for %s: %s; or name its folder in HEDDLE_CUDA_PATH (looked for %s)",
                       l->names, l->need, l->cure, looked.text);
    if (!resolve(api, lib)) {
        dlclose(api->handle[lib]);
        api->handle[lib] = NULL;
        return false;
    }
    if (lib == HD_LIB_DRIVER && api->cuDriverGetVersion(&api->driver_version) != HD_CUDA_SUCCESS)
        api->driver_version = 0;
    return true;
}

void hd_cuda_unload(HdCudaApi *api) {
    // The libraries keep threads and exit handlers of their own; closing them early gains nothing and can crash at
    // exit.
    memset(api->handle, 0, sizeof api->handle);
}

const char *hd_cuda_error(const HdCudaApi *api, CuResult r) {
    static _Thread_local char text[256];
    const char *name = NULL, *meaning = NULL;
    if (api->cuGetErrorName(r, &name) != HD_CUDA_SUCCESS || !name) name = "unknown CUDA error";
    if (api->cuGetErrorString(r, &meaning) != HD_CUDA_SUCCESS || !meaning) meaning = "no description";
    snprintf(text, sizeof text, "%s (%d: %s)", name, r, meaning);
    return text;
}
