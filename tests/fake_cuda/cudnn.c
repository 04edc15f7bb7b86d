// cuDNN that starts but knows no engine: programs have to fall back to their own kernels.
#include "tests/fake_cuda/fake.h"

size_t fake_cudnnGetVersion(void) { return 91900; }
const char *fake_cudnnGetErrorString(DnnStatus s) { return s ? "CUDNN_STATUS_NOT_SUPPORTED" : "CUDNN_STATUS_SUCCESS"; }
void fake_cudnnGetLastErrorString(char *text, size_t size) {
    if (size) *text = 0;
}
DnnStatus fake_cudnnBackendGetAttribute(Dnn d, DnnAttribute name, DnnType type, int64_t wanted, int64_t *got, void *values) {
    (void)d, (void)name, (void)type, (void)wanted, (void)values;
    return *got = 0, 0;
}
