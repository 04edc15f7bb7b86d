// nvrtc-check: compiles CUDA text with NVRTC, which needs no GPU, and prints what each kernel uses. Exit status: 0
// compiled, 1 compile errors (the log is on stderr) or spills with --no-spills, 2 usage, 77 no NVRTC here.
#include "ir/base/args.h"
#include <dlfcn.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct NvrtcProgram NvrtcProgram;
typedef struct { // the part of NVRTC's API that is used here; 0 is success everywhere
    int (*create)(NvrtcProgram **p, const char *text, const char *name, int n, const char *const *headers,
                  const char *const *names);
    int (*compile)(NvrtcProgram *p, int n, const char *const *options);
    int (*log_size)(NvrtcProgram *p, size_t *n);
    int (*log)(NvrtcProgram *p, char *text);
    const char *(*error)(int code);
} Nvrtc;

// The library under one folder: DIR/libnvrtc.so.N, the newest N.
static void *open_in(const char *dir, const char *sub) {
    char pattern[4096];
    glob_t found;
    void *lib = NULL;
    snprintf(pattern, sizeof pattern, "%s%s/libnvrtc.so.*", dir, sub);
    if (glob(pattern, 0, NULL, &found)) return NULL;
    for (size_t i = found.gl_pathc; i-- > 0 && !lib;)
        if (!strstr(found.gl_pathv[i], ".alt.")) lib = dlopen(found.gl_pathv[i], RTLD_NOW | RTLD_LOCAL);
    globfree(&found);
    return lib;
}

static void *open_nvrtc(void) {
    const char *path = getenv("HEDDLE_CUDA_PATH");
    void *lib = NULL;
    if (path) {
        lib = open_in(path, "/lib64");
        if (!lib) lib = open_in(path, "/lib");
        if (!lib) lib = open_in(path, "");
    }
    static const char *const names[] = {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"};
    for (size_t i = 0; i < sizeof names / sizeof *names && !lib; i++) lib = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    if (!lib) lib = open_in("/usr/local/cuda", "/lib64");
    if (!lib) lib = open_in("/usr/lib/python3*/site-packages", "/nvidia/cu13/lib"); // where pip puts it
    if (!lib) lib = open_in("/usr/local/lib/python3*/*-packages", "/nvidia/cu13/lib");
    return lib;
}

static bool load(Nvrtc *n) {
    void *lib = open_nvrtc();
    if (!lib) return false;
    struct { const char *name; void *at;
    } symbols[] = {{"nvrtcCreateProgram", &n->create},
                   {"nvrtcCompileProgram", &n->compile},
                   {"nvrtcGetProgramLogSize", &n->log_size},
                   {"nvrtcGetProgramLog", &n->log},
                   {"nvrtcGetErrorString", &n->error}};
    for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
        void *f = dlsym(lib, symbols[i].name);
        if (!f) return false;
        memcpy(symbols[i].at, &f, sizeof f);
    }
    return true;
}

static char *read_all(FILE *f) {
    size_t n = 0, cap = 1 << 16;
    char *text = malloc(cap);
    for (size_t got; text && (got = fread(text + n, 1, cap - n - 1, f)) > 0;) {
        n += got;
        if (n + 1 < cap) continue;
        char *more = realloc(text, cap *= 2);
        if (!more) free(text);
        text = more;
    }
    if (text) text[n] = 0;
    return text;
}

// Prints one line per kernel from the log of --ptxas-options=-v. Returns the number of kernels that spill.
static int summary(const char *log) {
    char kernel[256] = "";
    int spills = 0;
    long stack = 0, stores = 0, loads = 0;
    for (const char *s = log; s && *s; s = strchr(s, '\n') ? strchr(s, '\n') + 1 : NULL) {
        const char *p;
        char name[256];
        if (sscanf(s, "ptxas info : Compiling entry function '%255[^']'", name) == 1) strcpy(kernel, name);
        const char *end = strchr(s, '\n');
        size_t n = end ? (size_t)(end - s) : strlen(s);
        if (n < 1024 && (p = strstr(s, "bytes stack frame")) != NULL && p < s + n)
            sscanf(s, " %ld bytes stack frame, %ld bytes spill stores, %ld bytes spill loads", &stack, &stores, &loads);
        if ((p = strstr(s, "Used ")) != NULL && p < s + n) {
            int registers = 0;
            long shared = 0;
            sscanf(p, "Used %d registers", &registers);
            const char *smem = strstr(p, " bytes smem");
            if (smem && smem < s + n) {
                while (smem > p && smem[-1] >= '0' && smem[-1] <= '9') smem--;
                shared = strtol(smem, NULL, 10);
            }
            printf("%s: %d registers, %ld bytes of stack, %ld spilled, %ld shared\n", kernel, registers, stack,
                   stores + loads, shared);
            spills += stores + loads > 0;
            stack = stores = loads = 0;
        }
    }
    return spills;
}

typedef struct { const char *arch, *path; bool no_spills; } Args;
static const ArgRow rows[] = {
    {"FILE|-", NULL, 0, ARG_INPUT, offsetof(Args, path), NULL},
    {"--arch", "sm_90", 0, ARG_TEXT, offsetof(Args, arch), "architecture to compile for (default: sm_90)"},
    {"--no-spills", NULL, 0, ARG_ON, offsetof(Args, no_spills), "exit with 1 when a kernel spills registers"},
    {"HEDDLE_CUDA_PATH", NULL, 0, ARG_ENVIRONMENT, 0, "folder with NVIDIA's libraries"},
};

static int read_arguments(Args *args, int argc, char **argv) { // -1, or the exit status
    const ArgGroup group = HD_ARG_GROUP(rows, 0);
    const Tool tool = {
        "nvrtc-check", "compiles CUDA text with NVRTC",
        "Compiles CUDA text with NVRTC, which needs no GPU, and prints what each kernel uses. Exits with "
        "77 where there is no NVRTC.",
        &group, 1};
    Arena *a = hd_arena_new();
    const int status = hd_args_read(&tool, a, argc, argv, args);
    hd_arena_free(a);
    return status != -1 || args->path ? status : hd_args_bad(&tool, "an input file is missing after", tool.name);
}

int main(int argc, char **argv) {
    Args args = {.arch = "sm_90"};
    const int usage = read_arguments(&args, argc, argv);
    if (usage != -1) return usage;
    const char *path = args.path;
    FILE *f = strcmp(path, "-") ? fopen(path, "rb") : stdin;
    char *text = f ? read_all(f) : NULL;
    if (!text) {
        fprintf(stderr, "nvrtc-check: cannot read %s\n", path);
        return 2;
    }
    Nvrtc nvrtc;
    if (!load(&nvrtc)) {
        fprintf(stderr, "nvrtc-check: NVRTC not found; install CUDA or set HEDDLE_CUDA_PATH\n");
        return 77;
    }
    char target[64];
    // as the runtime compiles: wgmma exists under the name sm_90a alone
    const size_t last = strlen(args.arch) - 1;
    const bool family = !strcmp(args.arch, "sm_90") || (!strncmp(args.arch, "sm_1", 4) && args.arch[last] != 'a');
    snprintf(target, sizeof target, "--gpu-architecture=%s%s", args.arch, family ? "a" : "");
    NvrtcProgram *p = NULL;
    int status = nvrtc.create(&p, text, path, 0, NULL, NULL);
    if (!status) status = nvrtc.compile(p, 3, (const char *const[]){target, "--ptxas-options=-v", "--std=c++17"});
    size_t n = 0;
    char *log = p && !nvrtc.log_size(p, &n) ? calloc(n + 1, 1) : NULL;
    if (log) nvrtc.log(p, log);
    if (status) {
        fprintf(stderr, "%s\nnvrtc-check: %s: %s\n", log ? log : "", path, nvrtc.error(status));
        return 1;
    }
    int spills = log ? summary(log) : 0;
    free(log);
    free(text);
    if (args.no_spills && spills) fprintf(stderr, "nvrtc-check: %d kernels spill registers\n", spills);
    return args.no_spills && spills ? 1 : 0;
}
