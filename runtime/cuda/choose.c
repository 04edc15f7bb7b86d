// The next token of greedy text, chosen on the device, so that nothing waits for the host between two tokens. The
// kernel is the runtime's own: NVRTC compiles its text beside that of a program that writes text.
#include "runtime/cuda/device.h"

extern const unsigned char hd_choose_text[]; // choose.cu
const HdSource hd_choose_source = {"choose.cu", (const char *)hd_choose_text};

bool hd_choose_load(HdCuda *x, CuModule m) {
    CuResult r = x->api.cuModuleGetFunction(&x->modules.choose, m, "choose_largest");
    if (r == HD_CUDA_SUCCESS && x->api.cuFuncLoad) r = x->api.cuFuncLoad(x->modules.choose);
    return r == HD_CUDA_SUCCESS ||
           hd_cuda_fail(x, "cannot prepare kernel choose_largest: %s", hd_cuda_error(&x->api, r));
}

bool hd_cuda_choose(HdExec *h, int64_t logits, int64_t n, int64_t token, int64_t position) {
    enum { THREADS = 1024 };
    HdCuda *x = (HdCuda *)h;
    if (!hd_cuda_enter(x, logits, (size_t)n * sizeof(float)) || !hd_cuda_enter(x, token, sizeof(int32_t)) ||
        !hd_cuda_enter(x, position, sizeof(int32_t)))
        return false;
    CuPtr from = x->arena + (CuPtr)logits, to = x->arena + (CuPtr)token, at = x->arena + (CuPtr)position;
    void *args[] = {&from, &n, &to, &at};
    const CuLaunch launch = {.gx = 1, .gy = 1, .gz = 1, .bx = THREADS, .by = 1, .bz = 1, .stream = x->streams[0]};
    hd_cuda_ok(x, x->api.cuLaunchKernelEx(&launch, x->modules.choose, args, NULL), "cannot choose a token");
    return hd_cuda_leave(x);
}
