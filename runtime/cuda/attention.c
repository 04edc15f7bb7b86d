// Which attention runs: a cuDNN plan where the plan asks for one and the library, the GPU and the workspace allow it,
// else what the plan names as `else`, which is reported on stderr. Where it names nothing, the program does not start.
// This is decided once, before the first step.
#include "runtime/cuda/exec.h"
#include "runtime/text.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct HdAttentionBuild {
    HdCuda *x;
    HdCompile *compile;
    pthread_t thread;
    bool threaded;
    int built, wanted;
    double ms;
    char failure[512]; // one message for the whole program
};

static int64_t sum_bytes(const HdAttention *t) {
    return t->grad ? (t->batch * t->heads * t->seq * 4 + 255) & ~(int64_t)255 : 0;
}

// Why this descriptor cannot go to cuDNN on this GPU, or NULL.
static const char *unsuited(const HdCuda *x, const HdAttention *t) {
    if (t->dtype != HD_BF16 && t->dtype != HD_F16) return "it computes in bf16 and f16 only";
    if (t->size % 8 != 0 || t->size > 128) return "the head size is not a multiple of 8 up to 128";
    // Known to give NaN in dq on sm_90 when seq is 64 above a multiple of 128; other odd lengths were broken under
    // graph replay.
    if (t->seq % 128 != 0) return "the sequence length is not a multiple of 128";
    if (x->cc_major < 8) return "the GPU is older than sm_80";
    if (t->grad && x->cc_major != 9) return "its backward is known to repeat bit for bit on sm_90 only";
    return NULL;
}

static void build_all(HdAttentionBuild *b) {
    HdCuda *x = b->x;
    const HdProgram *p = x->head.program;
    char why[700];
    if (!hd_cuda_load(&x->api, HD_LIB_CUDNN)) {
        snprintf(b->failure, sizeof b->failure,
                 "cuDNN 9 is not installed (pip install nvidia-cudnn-cu13, or HEDDLE_CUDA_PATH)");
        return;
    }
    // cuDNN compiles with the NVRTC that is already loaded, which may be in a place where the loader alone would not
    // find it.
    if ((b->compile && !hd_compile_ready(b->compile)) || x->api.cuCtxSetCurrent(x->context) != HD_CUDA_SUCCESS) {
        snprintf(b->failure, sizeof b->failure, "cuDNN has neither compiler nor context");
        return;
    }
    DnnStatus s = x->api.cudnnCreate(&x->attentions.handle);
    if (s != HD_CUDNN_STATUS_SUCCESS) {
        snprintf(b->failure, sizeof b->failure, "cuDNN %.300s cannot start: %.150s", x->api.path[HD_LIB_CUDNN],
                 x->api.cudnnGetErrorString(s));
        x->attentions.handle = NULL;
        return;
    }
    for (int i = 0; i < p->n_attentions; i++) {
        const HdAttention *t = &p->attentions[i];
        if (t->impl == HD_ATTENTION_KERNEL) continue;
        const char *no = unsuited(x, t);
        int64_t limit = t->workspace_bytes - sum_bytes(t);
        why[0] = 0;
        if (no) snprintf(why, sizeof why, "%s", no);
        else if (limit < 0)
            snprintf(why, sizeof why, "the program provides %lld bytes of workspace", (long long)t->workspace_bytes);
        else if (hd_cudnn_plan(&x->api, x->attentions.handle, NULL, t, limit, &x->attentions.states[i], why,
                               sizeof why))
            b->built++;
        if (!x->attentions.states[i].plan && !b->failure[0])
            snprintf(b->failure, sizeof b->failure, "cuDNN cannot do the %s of size %lld, length %lld: %.300s",
                     t->grad ? "backward" : "forward", (long long)t->size, (long long)t->seq, why);
    }
}

static void *run_build(void *arg) {
    HdAttentionBuild *b = arg;
    double start = hd_cuda_now_ms();
    build_all(b);
    b->ms = hd_cuda_now_ms() - start;
    return NULL;
}

HdAttentionBuild *hd_attention_start(HdCuda *x, HdCompile *c) {
    const HdProgram *p = x->head.program;
    const char *choice = getenv("HEDDLE_ATTENTION");
    int wanted = 0;
    for (int i = 0; i < p->n_attentions; i++) wanted += p->attentions[i].impl == HD_ATTENTION_CUDNN;
    if (p->n_attentions == 0) return NULL;
    x->attentions.states = calloc((size_t)p->n_attentions, sizeof *x->attentions.states);
    HdAttentionBuild *b = calloc(1, sizeof *b);
    if (!x->attentions.states || !b) {
        free(b);
        hd_cuda_fail(x, "out of host memory");
        return NULL;
    }
    b->x = x;
    b->compile = c;
    b->wanted = wanted;
    if (choice && !strcmp(choice, "kernel")) {
        b->wanted = 0;
        snprintf(b->failure, sizeof b->failure, "HEDDLE_ATTENTION=kernel");
    }
    if (choice && strcmp(choice, "kernel") != 0 && strcmp(choice, "cudnn") != 0)
        hd_cuda_fail(x, "HEDDLE_ATTENTION=%s: use cudnn (where possible, the default) or kernel", choice);
    if (b->wanted && !x->failed) b->threaded = pthread_create(&b->thread, NULL, run_build, b) == 0;
    return b;
}

static void execute(HdCuda *x, int stream, const HdAttention *t, const HdAttentionState *s, const uint64_t *pointers,
                    uint64_t workspace) {
    char why[700];
    HdAttentions *a = &x->attentions;
    if (a->stream != x->streams[stream]) {
        DnnStatus r = x->api.cudnnSetStream(a->handle, (RtStream)x->streams[stream]);
        if (r != HD_CUDNN_STATUS_SUCCESS) {
            hd_cuda_fail(x, "cuDNN: stream: %s", x->api.cudnnGetErrorString(r));
            return;
        }
        a->stream = x->streams[stream];
    }
    if (!hd_cudnn_execute(&x->api, a->handle, s, t, pointers, workspace, why, sizeof why))
        hd_cuda_fail(x, "cuDNN: %s", why);
}

// Runs a plan once in the arena, which is still unused, on whatever bytes are there: a kernel is loaded at its first
// launch, which must not happen inside a capture. q, k and v may share their place, as may dq, dk and dv.
static void run_once(HdCuda *x, const HdAttention *t, const HdAttentionState *s) {
    int64_t widest = t->q_stride > t->o_stride ? t->q_stride : t->o_stride;
    if (t->k_stride > widest) widest = t->k_stride;
    if (t->v_stride > widest) widest = t->v_stride;
    int64_t matrix = (t->batch * t->seq * widest * 2 + 255) & ~(int64_t)255,
            rows = (t->batch * t->heads * t->seq * 4 + 255) & ~(int64_t)255;
    // cannot happen in a planned program
    if (4 * matrix + 2 * rows + s->workspace > x->head.program->arena_bytes) return;
    CuPtr q = x->arena, o = q + (CuPtr)matrix, dout = o + (CuPtr)matrix, dq = dout + (CuPtr)matrix,
          lse = dq + (CuPtr)matrix, sum = lse + (CuPtr)rows;
    const uint64_t pointers[HD_SDPA_POINTERS] = {q, q, q, o, lse, dout, dq, dq, dq, sum};
    execute(x, 0, t, s, pointers, sum + (CuPtr)rows);
}

bool hd_attention_join(HdCuda *x, HdAttentionBuild *b) {
    if (!b) return !x->failed;
    const HdProgram *p = x->head.program;
    if (b->threaded) pthread_join(b->thread, NULL);
    else if (b->wanted && !x->failed) run_build(b);
    if (!x->failed && x->verbose && b->built)
        hd_say(stderr, "attention: %d plans by cuDNN %zu in %.0f ms\n", b->built, x->api.cudnnGetVersion(), b->ms);
    for (int i = 0; i < p->n_attentions && !x->failed; i++) {
        const HdAttention *t = &p->attentions[i];
        if (x->attentions.states[i].plan) {
            run_once(x, t, &x->attentions.states[i]);
            if (!x->failed) hd_cuda_ok(x, x->api.cuStreamSynchronize(x->streams[0]), "first run of an attention plan");
            continue;
        }
        int n = 0; // kernels before the first that there is not
        while (n < (t->grad ? 3 : 1) && t->kernel[n] >= 0) n++;
        for (int j = 0; j < (t->grad ? 3 : 1); j++)
            if (!n || t->kernel[j] >= (j < n ? p->n_kernels : 0))
                hd_cuda_fail(x, "attention %d has no kernel where cuDNN cannot run (the plan has no else): %s", i,
                             b->failure[0] ? b->failure : "cuDNN was not asked for");
    }
    if (!x->failed && b->wanted && b->built < b->wanted)
        hd_say(stderr, "note: %d of %d attention shapes run the program's own kernels: %s\n", b->wanted - b->built,
               b->wanted, b->failure);
    free(b);
    return !x->failed;
}

// The descriptor's place in the program's table; programs pass pointers into it.
static const HdAttentionState *state_of(HdCuda *x, const HdAttention *t) {
    const HdProgram *p = x->head.program;
    if (t >= p->attentions && t < p->attentions + p->n_attentions) return &x->attentions.states[t - p->attentions];
    hd_cuda_fail(x, "an attention descriptor outside the program's table");
    return NULL;
}

// Adds what only some have to the n arguments of a kernel; returns how many there are then.
static int more_arguments(const HdAttention *t, HdArg *args, int n, uint64_t starts, uint64_t sink, uint64_t key) {
    if (t->documents) args[n++] = (HdArg){.word = starts};
    if (t->sink) args[n++] = (HdArg){.word = sink};
    if (t->each) args[n++] = (HdArg){.word = key};
    return n;
}

// The map of [batch, seq, heads, size] from `at` on.
static bool map_heads(HdCuda *x, const HdAttention *t, uint64_t at, int64_t heads, int64_t stride, unsigned positions,
                      CuMap *map) {
    const uint64_t dims[] = {(uint64_t)t->size, (uint64_t)heads, (uint64_t)t->seq, (uint64_t)t->batch};
    const uint64_t strides[] = {(uint64_t)t->size * 2, (uint64_t)stride * 2, (uint64_t)(stride * t->seq) * 2};
    return hd_cuda_map(x, t->dtype, at, dims, strides, (const unsigned[]){64, 1, positions, 1}, map);
}

void hd_cuda_attention(HdExec *h, int stream, const HdAttention *t, uint64_t q, uint64_t k, uint64_t v, uint64_t o,
                       uint64_t lse, uint64_t starts, uint64_t sink, uint64_t key, uint64_t workspace) {
    HdCuda *x = (HdCuda *)h;
    const HdAttentionState *s = x->failed ? NULL : state_of(x, t);
    if (!s) return;
    if (s->plan &&
        !HD_NOTE(x, 'a', (uint64_t)stream, (uint64_t)(t - h->program->attentions), q, k, v, o, lse, workspace))
        execute(x, stream, t, s, (const uint64_t[]){q, k, v, o, lse}, workspace);
    HdArg args[8] = {{.word = q}, {.word = k}, {.word = v}, {.word = o}, {.word = lse}};
    const int n = more_arguments(t, args, 5, starts, sink, key);
    if (s->plan) return;
    CuMap maps[3]; // of q, k, v
    for (int i = 0; i < 3 && t->boxes[0]; i++) {
        const int64_t stride = i == 0 ? t->q_stride : i == 1 ? t->k_stride : t->v_stride;
        if (!map_heads(x, t, args[i].word, i ? t->kv_heads : t->heads, stride, t->boxes[i > 0], &maps[i])) return;
        args[i] = (HdArg){.data = &maps[i], .bytes = sizeof maps[i]};
    }
    hd_cuda_launch(h, stream, t->kernel[0], t->grid[0], n, args);
}

void hd_cuda_attention_grad(HdExec *h, int stream, const HdAttention *t, uint64_t dout, uint64_t q, uint64_t k,
                            uint64_t v, uint64_t o, uint64_t lse, uint64_t dq, uint64_t dk, uint64_t dv,
                            uint64_t starts, uint64_t key, uint64_t workspace) {
    HdCuda *x = (HdCuda *)h;
    const HdAttentionState *s = x->failed ? NULL : state_of(x, t);
    HdArg args[12] = {{.word = dout}, {.word = q},  {.word = k},  {.word = v},  {.word = o},
                      {.word = lse},  {.word = dq}, {.word = dk}, {.word = dv}, {.word = workspace}};
    const int n = more_arguments(t, args, 10, starts, 0, key);
    const uint64_t pointers[HD_SDPA_POINTERS] = {q, k, v, o, lse, dout, dq, dk, dv, workspace};
    if (!s) return;
    if (s->plan && !HD_NOTE(x, 'A', (uint64_t)stream, (uint64_t)(t - h->program->attentions), dout, q, k, v, o, lse, dq,
                            dk, dv, workspace))
        execute(x, stream, t, s, pointers, workspace + (uint64_t)sum_bytes(t));
    if (!s->plan)
        for (int j = 0; j < 3 && t->kernel[j] >= 0; j++)
            hd_cuda_launch(h, stream, t->kernel[j], t->grid[j], n, args);
}

void hd_attention_close(HdCuda *x) {
    for (int i = 0; x->attentions.states && i < x->head.program->n_attentions; i++)
        hd_cudnn_free(&x->api, &x->attentions.states[i]);
    if (x->attentions.handle) x->api.cudnnDestroy(x->attentions.handle);
    free(x->attentions.states);
    memset(&x->attentions, 0, sizeof x->attentions);
}
