// Initial values on the device. The kernels are the runtime's own: NVRTC compiles their text beside the program's.
#include "runtime/cuda/device.h"
#include "runtime/draw.h"

extern const unsigned char hd_draw_text[]; // bits.h, draw.h and draw.cu
const HdSource hd_draw_source = {"draw.cu", (const char *)hd_draw_text};

static const struct { const char *name; HdDtype dtype; } kernels[HD_DRAWS] = {
    {"draw_f32", HD_F32}, {"draw_bf16", HD_BF16}, {"draw_f16", HD_F16}};

bool hd_draws_load(HdCuda *x, CuModule m) {
    for (int i = 0; i < HD_DRAWS; i++) {
        CuResult r = x->api.cuModuleGetFunction(&x->modules.draw[i], m, kernels[i].name);
        if (r == HD_CUDA_SUCCESS && x->api.cuFuncLoad) r = x->api.cuFuncLoad(x->modules.draw[i]);
        if (r != HD_CUDA_SUCCESS)
            return hd_cuda_fail(x, "cannot prepare kernel %s: %s", kernels[i].name, hd_cuda_error(&x->api, r));
    }
    return true;
}

static CuFunction kernel_of(HdCuda *x, HdDtype dtype) {
    for (int i = 0; i < HD_DRAWS; i++)
        if (kernels[i].dtype == dtype) return x->modules.draw[i];
    hd_cuda_fail(x, "initial values cannot be made in %s", hd_dtypes[dtype].name);
    return NULL;
}

bool hd_cuda_draw(HdExec *h, const HdDraw *d, HdDtype dtype, int64_t offset) {
    enum { THREADS = 256, WAVES = 16 };
    HdCuda *x = (HdCuda *)h;
    if (!hd_cuda_enter(x, offset, (size_t)d->count * hd_dtypes[dtype].bytes)) return false;
    CuFunction f = kernel_of(x, dtype);
    CuPtr out = x->arena + (CuPtr)offset;
    HdDraw copy = *d;
    void *args[] = {&out, &copy};
    const int64_t fours = (d->first + d->count + 3) / 4 - d->first / 4, wanted = (fours + THREADS - 1) / THREADS;
    const int64_t most = (int64_t)x->sms * WAVES;
    const CuLaunch launch = {.gx = (unsigned)(wanted < most ? wanted : most), .gy = 1, .gz = 1,
                             .bx = THREADS, .by = 1, .bz = 1, .stream = x->streams[0]};
    if (f) hd_cuda_ok(x, x->api.cuLaunchKernelEx(&launch, f, args, NULL), "cannot make initial values");
    return hd_cuda_leave(x);
}
