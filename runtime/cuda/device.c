// The GPU: finding it, its name and abilities; and the first failure of an executor, which is the one it keeps.
//
// Environment: HEDDLE_SHARE_GPUS=1 (for tests: ranks take the GPUs of their host in turn, several to one if need be).
#include "runtime/cuda/device.h"
#include "runtime/cuda/comms.h"
#include "runtime/base/parallel.h"
#include "runtime/world/world.h"
#include "runtime/text.h"
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static void keep_failure(HdCuda *x, const char *what) {
    const char *ended = hd_watch_why(x); // any later failure is a consequence
    if (ended) {
        snprintf(x->failure, sizeof x->failure, "%s", ended);
    } else if (x->func && x->action >= 0 && x->action < x->func->n_actions) {
        char action[600];
        hd_action_tell(x->func, x->action, action, sizeof action);
        snprintf(x->failure, sizeof x->failure, "%s%.3500s", action, what);
    } else if (x->func) {
        snprintf(x->failure, sizeof x->failure, "%s: %s", x->func->name, what);
    } else {
        snprintf(x->failure, sizeof x->failure, "%s", what);
    }
}

bool hd_cuda_fail(HdCuda *x, const char *fmt, ...) {
    char what[4000];
    va_list ap;
    if (x->failed) return false;
    va_start(ap, fmt);
    vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    pthread_mutex_lock(&x->failing); // several threads may write to the device
    if (!x->failed) keep_failure(x, what);
    x->failed = true;
    pthread_mutex_unlock(&x->failing);
    return false;
}

// "sm_90a" -> 90; 0 when it is not of that form
static int arch_number(const char *arch) { return arch && !strncmp(arch, "sm_", 3) ? atoi(arch + 3) : 0; }

bool hd_driver_open(HdCuda *x) {
    if (hd_cuda_load(&x->api, HD_LIB_DRIVER)) return true;
    return hd_cuda_fail(x, "%s", hd_failure());
}

bool hd_device_shared(void) {
    const char *share = getenv("HEDDLE_SHARE_GPUS");
    return share && !strcmp(share, "1");
}

bool hd_device_open(HdCuda *x) {
    const HdCudaApi *api = &x->api;
    int count = 0;
    CuResult r = api->cuInit(0);
    if (r == HD_CUDA_SUCCESS) r = api->cuDeviceGetCount(&count);
    if (r != HD_CUDA_SUCCESS || count == 0)
        return hd_cuda_fail(x,
                            "no NVIDIA GPU can be used: %s; see nvidia-smi and CUDA_VISIBLE_DEVICES, or build with "
                            "--target=host",
                            r == HD_CUDA_SUCCESS ? "the driver reports none" : hd_cuda_error(api, r));
    // A launcher may show each rank one GPU, or show every rank all GPUs of the host.
    const int local = x->head.world->local_rank, ordinal = count == 1 ? 0 : hd_device_shared() ? local % count : local;
    if (ordinal >= count)
        return hd_cuda_fail(x, "rank %d is number %d of this host, which has %d GPUs: start at most one rank a GPU",
                            x->head.world->rank, ordinal + 1, count);
    if (!hd_cuda_ok(x, api->cuDeviceGet(&x->device, ordinal), "cannot open the GPU") ||
        !hd_cuda_ok(x, api->cuDeviceGetName(x->device_name, sizeof x->device_name, x->device),
                    "cannot read the GPU's name"))
        return false;
    const struct {
        int *value;
        CuDeviceAttribute attribute;
    } facts[] = {{&x->cc_major, HD_CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR},
                 {&x->cc_minor, HD_CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR},
                 {&x->sms, HD_CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT},
                 {&x->shared_limit, HD_CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN}};
    for (size_t i = 0; i < sizeof facts / sizeof *facts; i++)
        if (!hd_cuda_ok(x, api->cuDeviceGetAttribute(facts[i].value, facts[i].attribute, x->device), "attribute"))
            return false;
    int built = arch_number(x->head.program->arch), have = 10 * x->cc_major + x->cc_minor;
    if (built > have)
        return hd_cuda_fail(
            x, "this program was built for sm_%d, the GPU (%s) is sm_%d; compile it again with --arch=sm_%d", built,
            x->device_name, have, have);
    return true;
}

int64_t hd_device_used(HdCuda *x) { // bytes in use on the device by all processes
    size_t spare = 0, total = 0;
    return x->context && x->api.cuMemGetInfo(&spare, &total) == HD_CUDA_SUCCESS ? x->memory.total - (int64_t)spare : 0;
}

void hd_device_tell_memory(HdCuda *x) {
    const HdMemory *m = &x->memory;
    const double mib = 1.0 / (1 << 20);
    const int64_t used = hd_device_used(x), rest = used - m->context - m->arena - m->libraries - m->comms;
    char line[400]; // at once: other ranks print theirs now
    snprintf(line, sizeof line,
             "device memory of rank %d: %.1f MiB planned, %.1f MiB used (arena %.1f, context %.1f, kernels and "
             "libraries %.1f, NCCL %.1f, graphs and the rest %.1f)\n",
             x->head.world->rank, (double)x->head.program->arena_bytes * mib, (double)used * mib,
             (double)m->arena * mib, (double)m->context * mib, (double)m->libraries * mib, (double)m->comms * mib,
             (double)rest * mib);
    hd_say_text(stderr, line);
}

bool hd_device_enter(HdCuda *x) { // the primary context: cuBLASLt and cuDNN work in it, too
    size_t total = 0;
    if (!hd_cuda_ok(x, x->api.cuDeviceTotalMem(&total, x->device), "cannot read the GPU's memory")) return false;
    x->memory.total = (int64_t)total;
    return hd_cuda_ok(x, x->api.cuDevicePrimaryCtxRetain(&x->context, x->device),
                      "cannot create a context on the GPU") &&
           hd_cuda_ok(x, x->api.cuCtxSetCurrent(x->context), "cannot enter the context");
}

static void clear(void *data, int64_t first, int64_t n) { memset((char *)data + first, 0, (size_t)n); }

// Page-locked memory of the host, clear; NULL with the reason in *why. cuMemHostAlloc touches its pages one after
// another on one thread: 21 GiB take 14 s. Huge pages that all cores touch, registered then, take 1 s.
static void *lock_memory(const HdCudaApi *api, size_t bytes, const char **why) {
    void *host = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (host == MAP_FAILED) {
        *why = strerror(errno);
        return NULL;
    }
    madvise(host, bytes, MADV_HUGEPAGE); // small pages serve where there are no huge ones
    hd_parallel((int64_t)bytes, 64 << 20, clear, host);
    const CuResult r = api->cuMemHostRegister(host, bytes, HD_CU_MEMHOSTREGISTER_PORTABLE);
    if (r == HD_CUDA_SUCCESS) return host;
    *why = hd_cuda_error(api, r);
    munmap(host, bytes);
    return NULL;
}

static void unlock_memory(const HdCudaApi *api, void *host, size_t bytes) {
    if (!host) return;
    api->cuMemHostUnregister(host);
    munmap(host, bytes);
}

static bool take_pinned(HdCuda *x) { // for offload
    const size_t bytes = (size_t)x->head.program->pinned_bytes;
    const char *why = NULL;
    if (!bytes) return true;
    x->head.pinned = lock_memory(&x->api, bytes, &why);
    if (!x->head.pinned)
        return hd_cuda_fail(x,
                            "cannot take %zu bytes (%.2f GiB) of page-locked memory of the host: %s; offload less "
                            "(schedule.offload.fraction, heddlec --host-memory), or let this process lock more memory "
                            "(ulimit -l, the memory of the container)",
                            bytes, (double)bytes / (1 << 30), why);
    return true;
}

void hd_device_free_pinned(HdCuda *x) {
    unlock_memory(&x->api, x->head.pinned, (size_t)x->head.program->pinned_bytes);
    x->head.pinned = NULL;
}

void *hd_cuda_take_memory(HdExec *h, size_t bytes) {
    HdCuda *x = (HdCuda *)h;
    const char *why = NULL;
    if (!hd_cuda_enter(x, 0, 0)) return NULL;
    x->locked.at = lock_memory(&x->api, bytes, &why);
    if (!x->locked.at) hd_fail("%s", why);
    x->locked.bytes = x->locked.at ? bytes : 0;
    return x->locked.at;
}

void hd_cuda_give_memory(HdExec *h, void *memory, size_t bytes) {
    HdCuda *x = (HdCuda *)h;
    if (memory == x->locked.at) x->locked.bytes = 0;
    unlock_memory(&x->api, memory, bytes);
}

bool hd_device_allocate(HdCuda *x) {
    const HdCudaApi *api = &x->api;
    size_t spare = 0, total = 0;
    int64_t bytes = x->head.program->arena_bytes;
    if (!hd_cuda_ok(x, api->cuMemGetInfo(&spare, &total), "cannot read the GPU's memory")) return false;
    if (!take_pinned(x)) return false;
    CuResult r = api->cuMemAlloc(&x->arena, bytes > 0 ? (size_t)bytes : 256);
    if (r == HD_CUDA_SUCCESS) return true;
    x->arena = 0;
    if (r != HD_CUDA_ERROR_OUT_OF_MEMORY) return hd_cuda_ok(x, r, "cannot allocate device memory");
    const double gib = 1.0 / (1 << 30);
    return hd_cuda_fail(x,
                        "the program needs %lld bytes (%.2f GiB) of device memory, %s has %.2f GiB free of %.2f; lower "
                        "train.batch, recompute more, "
                        "or see who else uses the GPU (nvidia-smi)",
                        (long long)bytes, (double)bytes * gib, x->device_name, (double)spare * gib,
                        (double)total * gib);
}

// Dense bf16 rates from the vendor's data sheets. The first row that occurs in the device's name counts, so longer
// names come first.
double hd_cuda_peak_flops(HdExec *h) {
    static const struct { const char *name; double rate;
    } known[] = {{"GB200", 2500e12},   {"B200", 2250e12}, {"B100", 1800e12}, {"H200", 989e12},  {"H100 PCIe", 756e12},
                 {"H100 NVL", 835e12}, {"H100", 989e12},  {"H800", 989e12},  {"GH200", 989e12}, {"H20", 148e12},
                 {"A100", 312e12},     {"A800", 312e12},  {"A30", 165e12},   {"A40", 149.7e12}, {"L40S", 362e12},
                 {"L40", 181e12},      {"L4", 121e12}};
    const char *name = ((HdCuda *)h)->device_name;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strstr(name, known[i].name)) return known[i].rate;
    return 0;
}

const char *hd_cuda_device_name(HdExec *h) { return ((HdCuda *)h)->device_name; }
