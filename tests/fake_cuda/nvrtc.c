// A compiler whose device code is the text itself; "#error" in it fails.
#include "tests/fake_cuda/fake.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct NvProgramState { char *text, *name, arch[48]; bool bad; };

NvResult fake_nvrtcVersion(int *major, int *minor) { return *major = 13, *minor = 0, 0; }
const char *fake_nvrtcGetErrorString(NvResult r) { return r ? "NVRTC_ERROR_COMPILATION" : "NVRTC_SUCCESS"; }
NvResult fake_nvrtcCreateProgram(NvProgram *p, const char *text, const char *name, int n, const char *const *h, const char *const *names) {
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
NvResult fake_nvrtcCompileProgram(NvProgram p, int n, const char *const *option) {
    for (int i = 0; i < n; i++)
        if (!strncmp(option[i], "--gpu-architecture=", 19)) snprintf(p->arch, sizeof p->arch, "%s", option[i] + 19);
    fake_log("compile %s for %s", p->name, p->arch);
    return (p->bad = strstr(p->text, "#error") != NULL) ? 6 : 0;
}
static const char complaint[] = "k.cu(1): error: this is the log";
NvResult fake_nvrtcGetProgramLogSize(NvProgram p, size_t *n) { return (void)p, *n = sizeof complaint, 0; }
NvResult fake_nvrtcGetProgramLog(NvProgram p, char *log) { return (void)p, memcpy(log, complaint, sizeof complaint), 0; }
NvResult fake_nvrtcGetCUBINSize(NvProgram p, size_t *n) { return *n = strlen(p->text) + strlen(p->arch) + 12, 0; }
NvResult fake_nvrtcGetCUBIN(NvProgram p, char *out) {
    snprintf(out, strlen(p->text) + strlen(p->arch) + 12, "FAKECUBIN %s\n%s", p->arch, p->text);
    return 0;
}
