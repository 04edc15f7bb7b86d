// A compiler whose device code is the text itself; "#error" in it fails. With FAKE_CUDA_MIX=1 it is the preprocessed
// text, in which the driver finds the kernels' parameters.
#define _GNU_SOURCE
#include "tests/fake_cuda/fake.h"
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

struct NvProgramState { char *text, *name, arch[48]; bool bad; };

// Of no real compiler, so that a real one never finds this one's device code in the folder where programs keep it.
NvResult fake_nvrtcVersion(int *major, int *minor) { return *major = 13, *minor = 9999, 0; }
const char *fake_nvrtcGetErrorString(NvResult r) { return r ? "NVRTC_ERROR_COMPILATION" : "NVRTC_SUCCESS"; }
NvResult fake_nvrtcCreateProgram(NvProgram *p, const char *text, const char *name, int n, const char *const *h,
                                 const char *const *names) {
    (void)n, (void)h, (void)names;
    *p = calloc(1, sizeof **p);
    (*p)->text = strdup(text);
    (*p)->name = strdup(name);
    return 0;
}
NvResult fake_nvrtcDestroyProgram(NvProgram *p) {
    free((*p)->text);
    free((*p)->name);
    free(*p);
    return *p = NULL, 0;
}
static char *preprocessed(const char *text) { // NULL: no C compiler, or not its language
    char path[] = "/tmp/heddle-fake-nvrtc-XXXXXX", command[100], *out = NULL;
    const int fd = mkstemp(path);
    size_t size = 0;
    if (fd < 0 || write(fd, text, strlen(text)) < 0) return NULL;
    close(fd);
    snprintf(command, sizeof command, "cc -E -P -x c %s 2>/dev/null", path);
    FILE *f = popen(command, "re");
    if (f && getdelim(&out, &size, 0, f) <= 0) out = NULL;
    const bool ok = f && pclose(f) == 0;
    unlink(path);
    return ok ? out : NULL;
}
// The answer of compile.py to a text is kept beside its libraries, in a file named by the text and by the files that
// decide what becomes of it: starting Python takes longer than most kernels run. Mutants and lists are for compile.py.
static bool note_of(const char *text, const char *arch, const char *folder, char *path, size_t size) {
    static const char *const files[] = {"compile.py", "engine.h", "launch.h", "numbers.h", "ptx.h", "simt.h"};
    XXH64_hash_t h = XXH64(text, strlen(text), XXH64(arch, strlen(arch), 0));
    if (getenv("SIMT_EDIT") || getenv("SIMT_LIST")) return false;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char name[2000];
        struct stat s;
        snprintf(name, sizeof name, "%s/%s", SIMT_SOURCES, files[i]);
        if (stat(name, &s)) return false;
        const long long of[] = {s.st_size, s.st_mtim.tv_sec, s.st_mtim.tv_nsec, (long long)s.st_ino};
        h = XXH64(of, sizeof of, h);
    }
    return snprintf(path, size, "%s/%016llx.note", folder, (unsigned long long)h) < (int)size;
}
static char *noted(const char *path) { // NULL: nothing, or the library is not there any more
    char *text = NULL, library[4000];
    size_t size = 0;
    FILE *f = fopen(path, "re");
    if (f && getdelim(&text, &size, 0, f) <= 0) free(text), text = NULL;
    if (f) fclose(f);
    if (text && sscanf(text, " SIMT %3999s", library) == 1 && !access(library, R_OK)) return text;
    free(text);
    return NULL;
}
static void note(const char *path, const char *text) { // whole or not at all
    char mine[4100];
    snprintf(mine, sizeof mine, "%s.%d", path, (int)getpid());
    FILE *f = fopen(mine, "we");
    const bool written = f && fputs(text, f) >= 0;
    if (f && (fclose(f) || !written || rename(mine, path))) unlink(mine);
}

// A library with the kernels of a text, for the CPU; what the program's image says then. NULL: it could not be made.
static char *for_the_cpu(const char *text, const char *arch, const char *folder) {
    char path[] = "/tmp/heddle-fake-nvrtc-XXXXXX", command[4000], kept[4000], *out = NULL;
    const bool keeps = note_of(text, arch, folder, kept, sizeof kept);
    if (keeps && (out = noted(kept))) return out;
    const int fd = mkstemp(path);
    size_t size = 0;
    if (fd < 0) return NULL;
    const size_t n = strlen(text);
    const bool written = write(fd, text, n) == (ssize_t)n;
    close(fd);
    snprintf(command, sizeof command, "echo SIMT $(SIMT_ENGINE='%s' python3 -IS '%s/compile.py' %s %d '%s')",
             SIMT_ENGINE, SIMT_SOURCES, path, atoi(arch + strcspn(arch, "0123456789")), folder);
    FILE *f = written ? popen(command, "re") : NULL;
    if (f && getdelim(&out, &size, 0, f) <= 0) out = NULL;
    const bool ok = f && pclose(f) == 0 && out && strstr(out, ".so");
    if (ok && keeps) note(kept, out);
    unlink(path);
    return ok ? out : NULL;
}
NvResult fake_nvrtcCompileProgram(NvProgram p, int n, const char *const *option) {
    for (int i = 0; i < n; i++)
        if (!strncmp(option[i], "--gpu-architecture=", 19)) snprintf(p->arch, sizeof p->arch, "%s", option[i] + 19);
    fake_log("compile %s for %s", p->name, p->arch);
    const char *mix = getenv("FAKE_CUDA_MIX"), *simt = getenv("FAKE_CUDA_SIMT");
    char *plain = simt ? for_the_cpu(p->text, p->arch, simt) : mix && atoi(mix) ? preprocessed(p->text) : NULL;
    if (simt && !plain) return p->bad = true, 6;
    if (plain) {
        free(p->text);
        p->text = plain;
    }
    return (p->bad = strstr(p->text, "#error") != NULL) ? 6 : 0;
}
static const char complaint[] = "k.cu(1): error: this is the log";
NvResult fake_nvrtcGetProgramLogSize(NvProgram p, size_t *n) { return (void)p, *n = sizeof complaint, 0; }
NvResult fake_nvrtcGetProgramLog(NvProgram p, char *log) {
    return (void)p, memcpy(log, complaint, sizeof complaint), 0;
}
NvResult fake_nvrtcGetCUBINSize(NvProgram p, size_t *n) { return *n = strlen(p->text) + strlen(p->arch) + 12, 0; }
NvResult fake_nvrtcGetCUBIN(NvProgram p, char *out) {
    snprintf(out, strlen(p->text) + strlen(p->arch) + 12, "FAKECUBIN %s\n%s", p->arch, p->text);
    return 0;
}
NvResult fake_nvrtcGetPTXSize(NvProgram p, size_t *n) { return (void)p, *n = 1, 0; }
NvResult fake_nvrtcGetPTX(NvProgram p, char *out) { return (void)p, *out = 0, 0; }
