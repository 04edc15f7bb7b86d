// The next token of a text, chosen on the device, so that nothing waits for the host between two tokens. The kernels
// are the runtime's own: NVRTC compiles their text beside that of a program that writes text.
#include "runtime/cuda/device.h"

extern const unsigned char hd_choose_text[]; // choose.cu
const HdSource hd_choose_source = {"choose.cu", (const char *)hd_choose_text};

enum { LARGEST, AMONG };
static const char *const names[] = {"choose_largest", "choose_among"};

bool hd_choose_load(HdCuda *x, CuModule m) {
    for (int i = 0; i < 2; i++) {
        CuResult r = x->api.cuModuleGetFunction(&x->modules.choose[i], m, names[i]);
        if (r == HD_CUDA_SUCCESS && x->api.cuFuncLoad) r = x->api.cuFuncLoad(x->modules.choose[i]);
        if (r != HD_CUDA_SUCCESS)
            return hd_cuda_fail(x, "cannot prepare kernel %s: %s", names[i], hd_cuda_error(&x->api, r));
    }
    return true;
}

static void launch(HdCuda *x, int kernel, int64_t n, int64_t each, void **args) {
    enum { THREADS = 1024, MOST_BLOCKS = 64 }; // as in choose.cu
    const int64_t blocks = (n + THREADS * each - 1) / (THREADS * each);
    const CuLaunch l = {.gx = blocks < MOST_BLOCKS ? (unsigned)blocks : MOST_BLOCKS, .gy = 1, .gz = 1, .bx = THREADS,
                        .by = 1, .bz = 1, .stream = x->streams[0]};
    if (!x->failed)
        hd_cuda_ok(x, x->api.cuLaunchKernelEx(&l, x->modules.choose[kernel], args, NULL), "cannot choose a token");
}

typedef struct {
    CuPtr logits, token, position;
    int64_t n;
} Text;

// The place at which tokens, or their shares, pass a limit: see choose.cu.
static void among(HdCuda *x, Text *t, const HdPick *how, double part, int64_t count, bool by_number, bool done) {
    double temperature = how->temperature;
    int numbered = by_number, closed = !done, last = done;
    for (int level = by_number ? 3 : 0; level < 5; level++) {
        void *args[] = {&t->logits, &t->n, &t->token, &t->position, &temperature, &part, &count, &level, &numbered,
                        &closed, &last};
        launch(x, AMONG, t->n, 1, args);
    }
}

bool hd_cuda_choose(HdExec *h, const HdPick *how, int64_t logits, int64_t n, int64_t token, int64_t position) {
    HdCuda *x = (HdCuda *)h;
    if (!hd_cuda_enter(x, logits, (size_t)n * sizeof(float)) || !hd_cuda_enter(x, token, sizeof(int32_t)) ||
        !hd_cuda_enter(x, position, sizeof(int32_t)))
        return false;
    Text t = {x->arena + (CuPtr)logits, x->arena + (CuPtr)token, x->arena + (CuPtr)position, n};
    const bool greedy = how->temperature == 0, few = how->top_k && how->top_k < n, likely = how->top_p < 1;
    CuPtr to = greedy ? t.token : 0;
    launch(x, LARGEST, n, 4, (void *[]){&t.logits, &t.n, &to, &t.position});
    if (!greedy) {
        if (few) among(x, &t, how, 0, how->top_k, false, false);
        if (likely) among(x, &t, how, how->top_p, 0, false, false);
        among(x, &t, how, how->at, 0, !few && !likely, true);
    }
    return hd_cuda_leave(x);
}
