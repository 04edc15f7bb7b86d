// The kernels of initial values as a device runs them, one thread after another: runtime/cuda/draw.cu is the text that
// NVRTC gets, here as C.
#include "tests/fake_cuda/draw.h"
#include <string.h>

static __thread struct { unsigned x; } gridDim, blockDim, blockIdx, threadIdx;
#define KERNEL static void
#include "runtime/cuda/draw.cu"

bool fake_is_draw(const char *kernel) { return !strncmp(kernel, "draw_", 5); }

void fake_draw(const FakeDraw *l) {
    gridDim.x = l->blocks;
    blockDim.x = l->threads;
    for (blockIdx.x = 0; blockIdx.x < l->blocks; blockIdx.x++)
        for (threadIdx.x = 0; threadIdx.x < l->threads; threadIdx.x++) {
            if (!strcmp(l->kernel, "draw_f32")) draw_f32(l->out, l->draw);
            else if (!strcmp(l->kernel, "draw_bf16")) draw_bf16(l->out, l->draw);
            else draw_f16(l->out, l->draw);
        }
}
