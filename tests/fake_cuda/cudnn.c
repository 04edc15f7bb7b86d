// cuDNN that starts but knows no engine, so that programs have to fall back to their own kernels; or, with
// FAKE_CUDNN_ENGINES=n, one whose n configurations need 100, 200, ... bytes of workspace and whose executions only log.
#define _GNU_SOURCE
#include "tests/fake_cuda/fake.h"
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

struct DnnState { CuStream stream; };
typedef struct { int kind, number; int64_t count, ids[32]; void *pointers[32]; void *workspace; } Descriptor;
static int plans;

size_t fake_cudnnGetVersion(void) { return 91900; }
const char *fake_cudnnGetErrorString(DnnStatus s) { return s ? "CUDNN_STATUS_NOT_SUPPORTED" : "CUDNN_STATUS_SUCCESS"; }
void fake_cudnnGetLastErrorString(char *text, size_t size) {
    if (size) *text = 0;
}
DnnStatus fake_cudnnCreate(DnnHandle *h) {
    if (fake_call("cudnnCreate")) return 3;
    return *h = calloc(1, sizeof **h), 0;
}
DnnStatus fake_cudnnDestroy(DnnHandle h) { return free(h), 0; }
DnnStatus fake_cudnnSetStream(DnnHandle h, RtStream s) { return h->stream = (CuStream)s, 0; }
DnnStatus fake_cudnnBackendCreateDescriptor(DnnKind kind, Dnn *d) {
    Descriptor *n = calloc(1, sizeof *n);
    n->kind = kind;
    if (kind == HD_CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR) n->number = ++plans;
    return *d = n, 0;
}
DnnStatus fake_cudnnBackendDestroyDescriptor(Dnn d) { return free(d), 0; }
DnnStatus fake_cudnnBackendSetAttribute(Dnn d, DnnAttribute name, DnnType type, int64_t n, const void *values) {
    Descriptor *x = d;
    (void)type;
    if (name == HD_CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS) memcpy(x->ids, values, (size_t)n * 8), x->count = n;
    if (name == HD_CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS) memcpy(x->pointers, values, (size_t)n * 8);
    if (name == HD_CUDNN_ATTR_VARIANT_PACK_WORKSPACE) memcpy(&x->workspace, values, 8);
    return 0;
}
DnnStatus fake_cudnnBackendGetAttribute(Dnn d, DnnAttribute name, DnnType type, int64_t wanted, int64_t *got,
                                        void *values) {
    const char *engines = getenv("FAKE_CUDNN_ENGINES");
    (void)type;
    *got = name == HD_CUDNN_ATTR_ENGINEHEUR_RESULTS ? (engines ? atoi(engines) : 0) : 1;
    if (wanted > 0 && *got > wanted) *got = wanted;
    if (name == HD_CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE) *(int64_t *)values = 100 * ((const Descriptor *)d)->number;
    return 0;
}

static void do_nothing(void *d) { fake_log("attention plan %d runs", *(int *)d); }
DnnStatus fake_cudnnBackendExecute(DnnHandle h, Dnn plan, Dnn pack) {
    FakeSubmit *submit = (FakeSubmit *)dlsym(dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD), "fake_submit");
    const Descriptor *v = pack;
    for (int64_t i = 0; i < v->count; i++)
        if (!v->ids[i] || !v->pointers[i]) return 3;
    return submit(h->stream, do_nothing, &((Descriptor *)plan)->number, sizeof(int), "attention") ? 3 : 0;
}
