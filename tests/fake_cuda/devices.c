// GPUs of the pretended driver: FAKE_CUDA_DEVICES of them, of which a process sees those that CUDA_VISIBLE_DEVICES
// lists. As NVIDIA documents it (CUDA C++ Programming Guide, "CUDA Environment Variables"), devices are numbered in the
// order of the list, and the list ends before its first invalid entry. UUIDs name no pretended device.
#include "tests/fake_cuda/driver.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 64 };

static int seen(int index[MOST]) { // how many; index: in the host
    const long all = (long)fake_number("FAKE_CUDA_DEVICES", 1);
    const char *at = getenv("CUDA_VISIBLE_DEVICES");
    int n = 0;
    if (!at)
        for (; n < all && n < MOST; n++) index[n] = n;
    while (at && n < MOST) {
        char *end;
        const long i = strtol(at, &end, 10);
        if (end == at || i < 0 || i >= all) break;
        for (int j = 0; j < n; j++)
            if (index[j] == i) return 0; // twice: drivers show none then
        index[n++] = (int)i;
        at = strchr(end, ',');
        at = at ? at + 1 : NULL;
    }
    return n;
}

CuResult fake_cuInit(unsigned flags) {
    int index[MOST];
    (void)flags;
    CALL("cuInit");
    return seen(index) ? 0 : NO_DEVICE;
}
CuResult fake_cuDriverGetVersion(int *v) { return *v = (int)fake_number("FAKE_CUDA_DRIVER", 13000), 0; }
CuResult fake_cuDeviceGetCount(int *n) {
    int index[MOST];
    return *n = seen(index), 0;
}
CuResult fake_cuDeviceGet(CuDevice *d, int ordinal) {
    int index[MOST];
    return *d = ordinal, ordinal >= 0 && ordinal < seen(index) ? 0 : INVALID;
}
CuResult fake_cuDeviceGetPCIBusId(char *text, int size, CuDevice d) {
    int index[MOST];
    if (d < 0 || d >= seen(index)) return INVALID;
    return snprintf(text, (size_t)size, "0000:%02x:00.0", (unsigned)index[d]), 0;
}
CuResult fake_cuDeviceTotalMem(size_t *bytes, CuDevice d) {
    return (void)d, *bytes = (size_t)fake_number("FAKE_CUDA_MEMORY", 1 << 28), 0;
}
CuResult fake_cuDeviceGetName(char *name, int size, CuDevice d) {
    return (void)d, snprintf(name, (size_t)size, "NVIDIA H200 (pretended)"), 0;
}
CuResult fake_cuDeviceGetAttribute(int *v, CuDeviceAttribute a, CuDevice d) {
    int cc = (int)fake_number("FAKE_CUDA_CC", 90);
    (void)d;
    *v = a == HD_CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR   ? cc / 10
         : a == HD_CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR ? cc % 10
         : a == HD_CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT     ? 132
                                                                : 232448;
    return 0;
}
