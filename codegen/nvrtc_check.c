// nvrtc-check: compiles CUDA text with NVRTC, which needs no GPU, and prints what each kernel uses. Exit status: 0
// compiled, 1 compile errors (the log is on stderr) or spills with --no-spills, 2 usage, 77 no NVRTC here.
#include "ir/base/args.h"
#include "runtime/cuda/api.h"
#include "runtime/heddle.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
            hd_say(stdout, "%s: %d registers, %ld bytes of stack, %ld spilled, %ld shared\n", kernel, registers, stack,
                   stores + loads, shared);
            spills += stores + loads > 0;
            stack = stores = loads = 0;
        }
    }
    return spills;
}

typedef struct { const char *arch, *path; bool no_spills, ptx; } Args;
static const ArgRow rows[] = {
    {"FILE|-", NULL, 0, ARG_INPUT, offsetof(Args, path), NULL},
    {"--arch", "sm_90", 0, ARG_TEXT, offsetof(Args, arch), "architecture to compile for (default: sm_90)"},
    {"--no-spills", NULL, 0, ARG_ON, offsetof(Args, no_spills), "exit with 1 when a kernel spills registers"},
    {"--ptx", NULL, 0, ARG_ON, offsetof(Args, ptx), "print the kernels' PTX, as the runtime's options make it"},
    {"HEDDLE_CUDA_PATH", NULL, 0, ARG_ENVIRONMENT, 0, "folder with NVIDIA's libraries"},
};

static int read_arguments(Args *args, Arena *a, int argc, char **argv) { // -1, or the exit status
    const ArgGroup group = HD_ARG_GROUP(rows, 0);
    const Tool tool = {
        "nvrtc-check", "compiles CUDA text with NVRTC",
        "Compiles CUDA text with NVRTC, which needs no GPU, and prints what each kernel uses. Exits with "
        "77 where there is no NVRTC.",
        &group, 1, NULL};
    const int status = hd_args_read(&tool, a, argc, argv, args);
    return status != -1 || args->path ? status : hd_args_bad(&tool, "an input file is missing after", tool.name);
}

static int put_ptx(const HdCudaApi *api, NvProgram p, Arena *a) { // the exit status
    size_t n = 0;
    char *text = api->nvrtcGetPTXSize(p, &n) ? NULL : HD_NEWN(a, char, n + 1);
    if (!text || api->nvrtcGetPTX(p, text)) return 1;
    hd_say_text(stdout, text);
    return ferror(stdout) != 0;
}

static int check(const Args *args, Arena *a) { // the exit status
    static HdCudaApi api;
    size_t n = 0;
    const char *text = hd_read_file(a, args->path, &n);
    if (!text) {
        hd_say(stderr, "nvrtc-check: cannot read %s: %s\n", args->path, strerror(errno));
        return 2;
    }
    if (!hd_cuda_load(&api, HD_LIB_NVRTC)) {
        hd_say(stderr, "nvrtc-check: %s\n", hd_failure());
        return 77;
    }
    // as the runtime compiles: wgmma exists under the name sm_90a alone
    const size_t last = strlen(args->arch) - 1;
    const bool family = !strcmp(args->arch, "sm_90") || (!strncmp(args->arch, "sm_1", 4) && args->arch[last] != 'a');
    const char *const options[] = {hd_sprintf(a, "--gpu-architecture=%s%s", args->arch, family ? "a" : ""),
                                   "--ptxas-options=-v", "--std=c++17", "-default-device"};
    NvProgram p = NULL;
    NvResult status = api.nvrtcCreateProgram(&p, text, args->path, 0, NULL, NULL);
    if (!status) status = api.nvrtcCompileProgram(p, 4, options);
    char *log = p && !api.nvrtcGetProgramLogSize(p, &n) ? HD_NEWN(a, char, n + 1) : NULL;
    if (log) api.nvrtcGetProgramLog(p, log);
    if (status) {
        hd_say_text(stderr, log ? log : "");
        hd_say(stderr, "\nnvrtc-check: %s: %s\n", args->path, api.nvrtcGetErrorString(status));
        return 1;
    }
    if (args->ptx) return put_ptx(&api, p, a);
    int spills = log ? summary(log) : 0;
    if (args->no_spills && spills) hd_say(stderr, "nvrtc-check: %d kernels spill registers\n", spills);
    return args->no_spills && spills ? 1 : 0;
}

int main(int argc, char **argv) {
    Args args = {.arch = "sm_90"};
    Arena *a = hd_arena_new();
    int status = read_arguments(&args, a, argc, argv);
    if (status == -1) status = check(&args, a);
    hd_arena_free(a);
    return status;
}
