// Memory of the pretended driver: that of the device is the host's.
#include "tests/fake_cuda/driver.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static SimtRange *ranges; // by address
static unsigned n_ranges;
static long long used;

static void add(const void *from, size_t bytes) {
    pthread_mutex_lock(&lock);
    unsigned i = n_ranges++;
    ranges = realloc(ranges, n_ranges * sizeof *ranges);
    for (; i && ranges[i - 1].from > (const char *)from; i--) ranges[i] = ranges[i - 1];
    ranges[i] = (SimtRange){from, bytes};
    pthread_mutex_unlock(&lock);
}

static void take_out(const void *from) {
    pthread_mutex_lock(&lock);
    unsigned i = 0;
    while (i < n_ranges && ranges[i].from != from) i++;
    if (i < n_ranges) memmove(ranges + i, ranges + i + 1, (--n_ranges - i) * sizeof *ranges);
    pthread_mutex_unlock(&lock);
}

SimtRange *fake_memory(unsigned *n) {
    pthread_mutex_lock(&lock);
    SimtRange *copy = calloc(n_ranges + 1, sizeof *copy);
    if (n_ranges) memcpy(copy, ranges, n_ranges * sizeof *copy);
    *n = n_ranges;
    pthread_mutex_unlock(&lock);
    return copy;
}

CuResult fake_cuMemGetInfo(size_t *spare, size_t *total) {
    *total = (size_t)fake_number("FAKE_CUDA_MEMORY", 1 << 28);
    *spare = *total - (size_t)used;
    return 0;
}
CuResult fake_cuMemAlloc(CuPtr *p, size_t bytes) {
    CALL("cuMemAlloc");
    if ((long long)bytes > fake_number("FAKE_CUDA_MEMORY", 1 << 28) - used) return OUT_OF_MEMORY;
    used += (long long)bytes;
    char *m = aligned_alloc(256, 256 + ((bytes + 255) & ~(size_t)255)); // its size stands in front
    memcpy(m, &bytes, sizeof bytes);
    memset(m + 256, 0xa5, bytes); // not clear, as on a device
    add(m + 256, bytes);
    fake_log("alloc %zu", bytes);
    return *p = (CuPtr)(uintptr_t)(m + 256), 0;
}
CuResult fake_cuMemFree(CuPtr p) {
    size_t bytes;
    memcpy(&bytes, (char *)(uintptr_t)p - 256, sizeof bytes);
    used -= (long long)bytes;
    take_out((char *)(uintptr_t)p);
    return free((char *)(uintptr_t)p - 256), 0;
}
CuResult fake_cuMemHostAlloc(void **p, size_t bytes, unsigned flags) {
    (void)flags;
    CALL("cuMemHostAlloc");
    add(*p = memset(malloc(bytes), 0xee, bytes), bytes);
    return 0;
}
CuResult fake_cuMemFreeHost(void *p) { return take_out(p), free(p), 0; }
CuResult fake_cuMemHostRegister(void *p, size_t bytes, unsigned flags) {
    (void)flags;
    CALL("cuMemHostRegister");
    if (fake_capturing()) return ISOLATION;
    return add(p, bytes), 0;
}
CuResult fake_cuMemHostUnregister(void *p) { return take_out(p), 0; }
CuResult fake_cuMemHostGetDevicePointer(CuPtr *d, void *p, unsigned flags) {
    return (void)flags, *d = (CuPtr)(uintptr_t)p, 0;
}
