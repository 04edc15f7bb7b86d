// The CUDA runtime on a real GPU, without the compiler: products of every kind against plain loops, cuDNN attention
// forward and backward against plain loops and against itself, kernels on several streams captured and not, initial
// values against the host's bits, copies. A
// few seconds; exit 1 when something is off. Built everywhere, run by tests/gpu/run.sh.
#include "runtime/cuda/exec.h"
#include "runtime/world/world.h"
#include "tests/gpu/draws.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int failures;
static const HdBackend *const b = &hd_cuda_backend;
#define CHECK(x) ((x) ? (void)0 : (void)(failures++, printf("FAIL line %d: %s (%s)\n", __LINE__, #x, hd_failure())))

static uint16_t to_bf16(double v) {
    float f = (float)v;
    uint32_t u;
    memcpy(&u, &f, 4);
    return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}
static double from_bf16(uint16_t h) {
    uint32_t u = (uint32_t)h << 16;
    float f;
    memcpy(&f, &u, 4);
    return (double)f;
}
static uint16_t to_f16(double v) {
    double a = fabs(v);
    unsigned sign = v < 0 ? 0x8000u : 0;
    if (a < 0x1p-14) return (uint16_t)(sign | (unsigned)nearbyint(a * 0x1p24));
    int e = ilogb(a);
    return (uint16_t)(sign | (((unsigned)(e + 15) << 10) + (unsigned)nearbyint(ldexp(a, 10 - e)) -
                              1024u)); // a carry goes into the exponent
}
static double from_f16(uint16_t h) {
    int e = h >> 10 & 31, m = h & 1023;
    double a = e == 31 ? (m ? (double)NAN : HUGE_VAL) : e ? ldexp(1024 + m, e - 25) : ldexp(m, -24);
    return h >> 15 ? -a : a;
}
static size_t width(HdDtype t) { return t == HD_F64 ? 8 : t == HD_F32 ? 4 : 2; }

static void encode(HdDtype t, const double *v, size_t n, void *to) {
    for (size_t i = 0; i < n; i++) {
        if (t == HD_F64) ((double *)to)[i] = v[i];
        else if (t == HD_F32) ((float *)to)[i] = (float)v[i];
        else if (t == HD_BF16) ((uint16_t *)to)[i] = to_bf16(v[i]);
        else ((uint16_t *)to)[i] = to_f16(v[i]);
    }
}
static void decode(HdDtype t, const void *from, size_t n, double *v) {
    for (size_t i = 0; i < n; i++)
        v[i] = t == HD_F64 ? ((const double *)from)[i] : t == HD_F32 ? (double)((const float *)from)[i]
             : t == HD_BF16 ? from_bf16(((const uint16_t *)from)[i]) : from_f16(((const uint16_t *)from)[i]);
}

static uint32_t seed = 1;
static double *numbers(HdDtype t, size_t n) { // as the type can hold them
    double *v = malloc(n * sizeof *v);
    void *raw = malloc(n * 8);
    for (size_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        v[i] = (double)(seed >> 8) / (1 << 23) - 1;
    }
    encode(t, v, n, raw);
    decode(t, raw, n, v);
    free(raw);
    return v;
}
static void put(HdExec *x, int64_t at, HdDtype t, const double *v, size_t n) {
    void *raw = malloc(n * width(t));
    encode(t, v, n, raw);
    CHECK(b->write(x, at, raw, n * width(t)));
    free(raw);
}
static double *get(HdExec *x, int64_t at, HdDtype t, size_t n) {
    void *raw = malloc(n * width(t));
    double *v = malloc(n * sizeof *v);
    CHECK(b->read(x, at, raw, n * width(t)));
    decode(t, raw, n, v);
    free(raw);
    return v;
}
// largest difference, relative to the largest value
static double off(const double *got, const double *want, size_t n) {
    double worst = 0, top = 1e-30;
    for (size_t i = 0; i < n; i++) {
        if (!(fabs(got[i] - want[i]) <= worst)) worst = isfinite(got[i]) ? fabs(got[i] - want[i]) : HUGE_VAL;
        if (fabs(want[i]) > top) top = fabs(want[i]);
    }
    return worst / top;
}

// --- products
enum { M = 48, N = 80, K = 64, MAX_GEMMS = 128 };
static HdGemm gemms[MAX_GEMMS];
static int n_gemms;
static void add_gemm(HdGemm g) {
    g.m = M, g.n = N, g.k = K, g.workspace_bytes = 4 << 20;
    gemms[n_gemms++] = g;
    if (g.epilogue != HD_EPI_NONE) return;
    const size_t in = width(g.a), out = width(g.d); // the same with operands at any element
    g.align = (int)(in < out ? in : out);
    gemms[n_gemms++] = g;
}

static void product(HdExec *x, int i, int64_t shift) {
    const HdGemm *g = &gemms[i];
    size_t q = g->batch > 1 ? (size_t)g->batch : 1, na = q * M * K, nb = q * K * N, nd = q * M * N;
    double *a = numbers(g->a, na), *m = numbers(g->b, nb), *bias = numbers(g->d, N), *old = numbers(g->d, nd),
           *want = malloc(nd * sizeof *want);
    int64_t at[5] = {1 << 20, 2 << 20, 3 << 20, 4 << 20, 8 << 20};
    for (int j = 0; j < 4; j++) at[j] += shift * (int64_t)width(g->a);
    if (shift) at[2] = (3 << 20) + shift * (int64_t)width(g->d), at[3] = (4 << 20) + shift * (int64_t)width(g->d);
    put(x, at[0], g->a, a, na);
    put(x, at[1], g->b, m, nb);
    put(x, at[2], g->d, bias, N);
    put(x, at[3], g->d, old, nd);
    for (size_t e = 0; e < nd; e++) {
        size_t batch = e / (M * N), r = e / N % M, c = e % N;
        double sum = g->accumulate ? old[e] : 0;
        for (size_t l = 0; l < K; l++)
            sum +=
                a[batch * M * K + (g->ta ? l * M + r : r * K + l)] * m[batch * K * N + (g->tb ? c * K + l : l * N + c)];
        if (g->epilogue != HD_EPI_NONE) sum += bias[c];
        want[e] = sum;
    }
    hd_cuda_gemm(x, 0, i, hd_device(x, at[0]), hd_device(x, at[1]), hd_device(x, at[2]), hd_device(x, at[3]),
                 hd_device(x, at[4]));
    double *got = get(x, at[3], g->d, nd), worst = off(got, want, nd);
    double allowed = g->d == HD_F64 ? 1e-12 : g->d == HD_F32 ? 1e-5 : g->d == HD_F16 ? 2e-3 : 8e-3;
    if (!(worst < allowed)) {
        failures++;
        printf("FAIL product %d (ta %d tb %d += %d batch %lld epilogue %d dtypes %d %d shift %lld): off by %g\n", i,
               g->ta, g->tb, g->accumulate, (long long)g->batch, g->epilogue, (int)g->a, (int)g->d, (long long)shift,
               worst);
    }
    free(a), free(m), free(bias), free(old), free(want), free(got);
}

// --- attention
static HdAttention attentions[] = {
    {.batch = 2, .seq = 256, .heads = 4, .kv_heads = 4, .size = 64, .q_stride = 768, .k_stride = 768, .v_stride = 768,
     .o_stride = 256, .causal = true, .scale = 0.125f, .dtype = HD_BF16, .workspace_bytes = 1024,
     .kernel = {-1, -1, -1}},
    {.batch = 2, .seq = 256, .heads = 4, .kv_heads = 4, .size = 64, .q_stride = 768, .k_stride = 768, .v_stride = 768,
     .o_stride = 256, .causal = true, .grad = true, .scale = 0.125f, .dtype = HD_BF16, .workspace_bytes = 8 << 20,
     .kernel = {-1, -1, -1}},
    {.batch = 1, .seq = 384, .heads = 4, .kv_heads = 2, .size = 128, .q_stride = 512, .k_stride = 256,
     .v_stride = 256, .o_stride = 512, .causal = true, .scale = 0.08838835f, .dtype = HD_F16, .workspace_bytes = 1024,
     .kernel = {-1, -1, -1}},
    {.batch = 1, .seq = 384, .heads = 4, .kv_heads = 2, .size = 128, .q_stride = 512, .k_stride = 256,
     .v_stride = 256, .o_stride = 512, .causal = true, .grad = true, .scale = 0.08838835f, .dtype = HD_F16,
     .workspace_bytes = 8 << 20, .kernel = {-1, -1, -1}},
    {.batch = 2, .seq = 128, .heads = 2, .kv_heads = 2, .size = 64, .q_stride = 128, .k_stride = 128, .v_stride = 128,
     .o_stride = 128, .causal = false, .scale = 0.125f, .dtype = HD_BF16, .workspace_bytes = 1024,
     .kernel = {-1, -1, -1}},
    {.batch = 2, .seq = 128, .heads = 2, .kv_heads = 2, .size = 64, .q_stride = 128, .k_stride = 128, .v_stride = 128,
     .o_stride = 128, .causal = false, .grad = true, .scale = 0.125f, .dtype = HD_BF16, .workspace_bytes = 8 << 20,
     .kernel = {-1, -1, -1}},
};

typedef struct { double *q, *k, *v, *dout, *o, *lse, *dq, *dk, *dv; } Ref;

// One query row of one head: probabilities, output, and its share of the gradients.
static void reference_row(const HdAttention *t, Ref *r, int64_t bt, int64_t h, int64_t i, double *p) {
    int64_t D = t->size, hk = h / (t->heads / t->kv_heads), last = t->causal ? i + 1 : t->seq;
    const double *q = r->q + (bt * t->seq + i) * t->q_stride + h * D,
                 *dout = r->dout + (bt * t->seq + i) * t->o_stride + h * D;
    double *o = r->o + (bt * t->seq + i) * t->o_stride + h * D, *dq = r->dq + (bt * t->seq + i) * t->q_stride + h * D,
           top = -HUGE_VAL, sum = 0, delta = 0;
    for (int64_t j = 0; j < last; j++) {
        const double *k = r->k + (bt * t->seq + j) * t->k_stride + hk * D;
        p[j] = 0;
        for (int64_t d = 0; d < D; d++) p[j] += q[d] * k[d];
        p[j] *= (double)t->scale;
        if (p[j] > top) top = p[j];
    }
    for (int64_t j = 0; j < last; j++) sum += p[j] = exp(p[j] - top);
    r->lse[(bt * t->heads + h) * t->seq + i] = top + log(sum);
    for (int64_t j = 0; j < last; j++) {
        const double *v = r->v + (bt * t->seq + j) * t->v_stride + hk * D;
        p[j] /= sum;
        for (int64_t d = 0; d < D; d++) o[d] += p[j] * v[d];
    }
    for (int64_t d = 0; d < D; d++) delta += dout[d] * o[d];
    for (int64_t j = 0; j < last; j++) {
        const double *k = r->k + (bt * t->seq + j) * t->k_stride + hk * D,
                     *v = r->v + (bt * t->seq + j) * t->v_stride + hk * D;
        double *dk = r->dk + (bt * t->seq + j) * t->k_stride + hk * D,
               *dv = r->dv + (bt * t->seq + j) * t->v_stride + hk * D, dp = 0;
        for (int64_t d = 0; d < D; d++) dp += dout[d] * v[d];
        double ds = p[j] * (dp - delta) * (double)t->scale;
        for (int64_t d = 0; d < D; d++) {
            dv[d] += p[j] * dout[d];
            dq[d] += ds * k[d];
            dk[d] += ds * q[d];
        }
    }
}

static bool repeats(HdExec *x, int64_t at, size_t bytes, void **first) {
    void *now = malloc(bytes);
    CHECK(b->read(x, at, now, bytes));
    bool same = !*first || !memcmp(*first, now, bytes);
    if (*first) free(now);
    else *first = now;
    return same;
}

static void attention(HdExec *x, int i) {
    const HdAttention *t = &attentions[i], *g = &attentions[i + 1];
    bool packed = t->q_stride == 3 * t->heads * t->size;
    size_t rows = (size_t)(t->batch * t->seq), nq = rows * (size_t)t->q_stride, nk = rows * (size_t)t->k_stride,
           no = rows * (size_t)t->o_stride;
    size_t nl = (size_t)(t->batch * t->heads * t->seq);
    int64_t part = packed ? t->heads * t->size : 0; // elements from q to k to v in a packed row
    Ref r = {.q = numbers(t->dtype, nq), .dout = numbers(t->dtype, no), .o = calloc(no, 8), .lse = calloc(nl, 8),
             .dq = calloc(nq, 8)};
    r.k = packed ? r.q + part : numbers(t->dtype, nk);
    r.v = packed ? r.q + 2 * part : numbers(t->dtype, nk);
    r.dk = packed ? r.dq + part : calloc(nk, 8);
    r.dv = packed ? r.dq + 2 * part : calloc(nk, 8);
    double *p = malloc((size_t)t->seq * 8);
    for (int64_t bt = 0; bt < t->batch; bt++)
        for (int64_t h = 0; h < t->heads; h++)
            for (int64_t row = 0; row < t->seq; row++) reference_row(t, &r, bt, h, row, p);
    enum { MIB = 1 << 20 };
    int64_t w = (int64_t)width(t->dtype), q = MIB, k = packed ? q + part * w : 2 * MIB,
            v = packed ? q + 2 * part * w : 3 * MIB;
    int64_t o = 4 * MIB, dout = 5 * MIB, lse = 6 * MIB, dq = 7 * MIB, dk = packed ? dq + part * w : 8 * MIB,
            dv = packed ? dq + 2 * part * w : 9 * MIB, ws = 16 * MIB;
    put(x, q, t->dtype, r.q, nq);
    if (!packed) put(x, k, t->dtype, r.k, nk), put(x, v, t->dtype, r.v, nk);
    put(x, dout, t->dtype, r.dout, no);
    void *first[4] = {NULL};
    bool same = true;
    for (int n = 0; n < 3; n++) {
        hd_cuda_attention(x, 0, t, hd_device(x, q), hd_device(x, k), hd_device(x, v), hd_device(x, o),
                          hd_device(x, lse), 0, 0, 0, hd_device(x, ws));
        hd_cuda_attention_grad(x, 0, g, hd_device(x, dout), hd_device(x, q), hd_device(x, k), hd_device(x, v),
                               hd_device(x, o), hd_device(x, lse), hd_device(x, dq), hd_device(x, dk), hd_device(x, dv),
                               0, 0, hd_device(x, ws));
        same = repeats(x, o, no * (size_t)w, &first[0]) && repeats(x, dq, nq * (size_t)w, &first[1]) &&
               repeats(x, packed ? dq : dk, (packed ? nq : nk) * (size_t)w, &first[2]) &&
               repeats(x, packed ? dq : dv, (packed ? nq : nk) * (size_t)w, &first[3]) && same;
    }
    double *go = get(x, o, t->dtype, no), *gl = get(x, lse, HD_F32, nl), *gq = get(x, dq, t->dtype, nq);
    double *gk = packed ? NULL : get(x, dk, t->dtype, nk), *gv = packed ? NULL : get(x, dv, t->dtype, nk);
    double e[5] = {off(go, r.o, no), off(gl, r.lse, nl), off(gq, r.dq, nq), packed ? 0 : off(gk, r.dk, nk),
                   packed ? 0 : off(gv, r.dv, nk)};
    bool good = same && e[0] < 1e-2 && e[1] < 1e-3 && e[2] < 2e-2 && e[3] < 2e-2 && e[4] < 2e-2;
    printf("%s attention %d%s: o %.2g, lse %.2g, %s %.2g, dk %.2g, dv %.2g, %s\n", good ? "ok  " : "FAIL", i,
           packed ? " (packed)" : "", e[0], e[1], packed ? "dqkv" : "dq", e[2], e[3], e[4],
           same ? "repeats bit for bit" : "does NOT repeat");
    failures += !good;
}

// --- kernels, streams, graphs
static const HdSource sources[] = {{"bump.cu", "extern \"C\" __global__ void bump(int *p, int by, double *sum, double "
                                               "x) { extern __shared__ int s[]; s[threadIdx.x] = by; __syncthreads();\n"
                                               "  if (threadIdx.x == 0) { *p += s[blockDim.x - 1]; *sum += x; } }\n"},
                                   {"twice.cu", "extern \"C\" __global__ void twice(int *p) { *p *= 2; }\n"}};
static const HdKernel kernels[] = {{"bump", 0, 100000, false}, {"twice", 1, 0, false}};
static const char *const streams[] = {"compute", "side"};
static const HdAction actions[] = {{"launch", "compute", "a", "x.hd:1", 0, 0, 0},
                                   {"launch", "side", "b", "x.hd:2", 0, 0, 0},
                                   {"gemm", "compute", "c", "x.hd:3", 2. * M *N *K, 0, 0}};
enum { COUNTER = 0, SUM = 256 };

static void all_of_it(HdExec *x) { hd_cuda_region(x, 0); }
static const HdFunc funcs[] = {{.name = "micro_only", .run = all_of_it, .n_actions = 3, .actions = actions}};
static void step(HdExec *x) { // c = (c + 3) * 2 across two streams and back, then a product on the first
    const double half = 0.5;
    const HdArg at = {.word = hd_device(x, COUNTER)};
    const HdArg args[] = {at, {.word = 3}, {.word = hd_device(x, SUM)}, {.data = &half, .bytes = sizeof half}};
    hd_action(x, funcs, 0);
    hd_cuda_launch(x, 0, 0, (HdGrid){1, 1, 1, 256, 100000, {0}}, 4, args);
    hd_cuda_record(x, 0, 0);
    hd_cuda_wait(x, 1, 0);
    hd_action(x, funcs, 1);
    hd_cuda_launch(x, 1, 1, (HdGrid){1, 1, 1, 1, 0, {0}}, 1, &at);
    hd_cuda_record(x, 1, 1);
    hd_cuda_wait(x, 0, 1);
    hd_action(x, funcs, 2);
    hd_cuda_gemm(x, 0, 0, hd_device(x, 1 << 20), hd_device(x, 2 << 20), 0, hd_device(x, 4 << 20),
                 hd_device(x, 8 << 20));
    hd_cuda_copy(x, 0, hd_device(x, 12 << 20), hd_device(x, 4 << 20), 1024);
    hd_cuda_zero(x, 0, hd_device(x, 4 << 20), 512);
}

static const HdRegion region = {"micro_only.step", step};

static void functions(const HdProgram *p, bool graphs, const char *profile) {
    HdExec *x = b->open(p, hd_world_alone(), &(HdOpen){.use_graphs = graphs, .profile = profile != NULL});
    CHECK(x);
    if (!x) return;
    int c = 0, got[20];
    for (int i = 0; i < 20; i++) CHECK(b->run(x, funcs) && b->post(x, 1, (int64_t[]){COUNTER}, 4));
    for (int i = 0; i < 20 && !failures; i++) {
        CHECK(b->collect(x, &got[i]));
        c = (int)(((unsigned)c + 3u) * 2u);
        CHECK(got[i] == c);
    }
    double sum = 0;
    CHECK(b->read(x, SUM, &sum, 8) && sum == 10);
    if (profile) CHECK(b->write_profile(x, profile));
    b->close(x);
}

// --- what kernels with tensor maps take: 128 bytes by value, clusters of two blocks that read each other's shared
// memory, more than 48 KiB of it
static const HdSource cluster_sources[] = {
    {"pairs.cu",
     "struct __align__(64) Map { unsigned char byte[128]; };\n"
     "extern \"C\" __global__ void pairs(int *out, const __grid_constant__ Map map, int bias) {\n"
     "  extern __shared__ int s[];\n"
     "  unsigned rank, ranks, theirs, mine = (unsigned)__cvta_generic_to_shared(s + 24999); int v;\n"
     "  asm(\"mov.u32 %0, %%cluster_ctarank;\" : \"=r\"(rank));\n"
     "  asm(\"mov.u32 %0, %%cluster_nctarank;\" : \"=r\"(ranks));\n"
     "  if (threadIdx.x == 0) s[24999] = map.byte[blockIdx.x] + map.byte[127 - blockIdx.x] + bias;\n"
     "  asm volatile(\"barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;\" ::: \"memory\");\n"
     "  asm(\"mapa.shared::cluster.u32 %0, %1, %2;\" : \"=r\"(theirs) : \"r\"(mine), \"r\"(rank ^ 1));\n"
     "  asm volatile(\"ld.shared::cluster.s32 %0, [%1];\" : \"=r\"(v) : \"r\"(theirs) : \"memory\");\n"
     "  if (threadIdx.x == 0) out[blockIdx.x] = v * 100 + (int)(rank * 10 + ranks);\n"
     "  asm volatile(\"barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;\" ::: \"memory\"); }\n"}};
static const HdKernel cluster_kernels[] = {{"pairs", 0, 100000, false}};
static _Alignas(64) unsigned char map[128];
static void pairs(HdExec *x) {
    const HdArg args[] = {{.word = hd_device(x, SUM)}, {.data = map, .bytes = sizeof map}, {.word = 7}};
    hd_cuda_launch(x, 0, 0, (HdGrid){6, 1, 1, 64, 100000, {2, 1, 1}}, 3, args);
}
static const HdFunc cluster_funcs[] = {{.name = "micro_only", .run = all_of_it}};
static const HdRegion cluster_region = {"micro_only.step", pairs};

static void clusters(HdProgram p, bool graphs) {
    p.sources = cluster_sources;
    p.kernels = cluster_kernels;
    p.funcs = cluster_funcs;
    p.regions = &cluster_region;
    p.n_sources = p.n_kernels = 1;
    p.n_gemms = 0;
    for (int i = 0; i < 128; i++) map[i] = (unsigned char)(i * 7 + 1);
    HdExec *x = b->open(&p, hd_world_alone(), &(HdOpen){.use_graphs = graphs});
    CHECK(x);
    int got[6];
    CHECK(x && b->run(x, cluster_funcs) && b->read(x, SUM, got, sizeof got));
    for (int i = 0; i < 6 && !failures; i++)
        CHECK(got[i] == (map[i ^ 1] + map[127 - (i ^ 1)] + 7) * 100 + i % 2 * 10 + 2);
    if (x) b->close(x);
}

static void initial_values(HdProgram p) {
    const HdParam any = {.name = "any"};
    p.n_gemms = 0;
    p.n_params = 1; // the kernels of initial values are there for programs with parameters
    p.params = &any;
    HdExec *x = b->open(&p, hd_world_alone(), &(HdOpen){.use_graphs = true});
    CHECK(x);
    const int64_t compared = x ? draws_compare(x, 4096, 8 << 20) : -1;
    CHECK(compared > 0);
    printf("%s initial values: %lld elements have the host's bits\n", compared > 0 ? "ok  " : "FAIL",
           (long long)compared);
    if (x) b->close(x);
}

static void add_gemms(void) {
    HdDtype all[] = {HD_F32, HD_BF16, HD_F16, HD_F64};
    for (int t = 0; t < 4; t++)
        for (int i = 0; i < 8; i++)
            add_gemm((HdGemm){.ta = i & 1, .tb = i >> 1 & 1, .accumulate = i >> 2, .batch = 1, .a = all[t],
                              .b = all[t], .d = all[t]});
    add_gemm((HdGemm){.tb = true, .epilogue = HD_EPI_BIAS, .batch = 1, .a = HD_BF16, .b = HD_BF16, .d = HD_BF16});
    add_gemm((HdGemm){.tb = true, .epilogue = HD_EPI_BIAS, .batch = 1, .a = HD_F32, .b = HD_F32, .d = HD_F32});
    add_gemm((HdGemm){.ta = true, .batch = 1, .a = HD_BF16, .b = HD_BF16, .d = HD_F32});
    add_gemm((HdGemm){.ta = true, .accumulate = true, .batch = 1, .a = HD_BF16, .b = HD_BF16, .d = HD_F32});
    add_gemm((HdGemm){.tb = true, .batch = 3, .a = HD_BF16, .b = HD_BF16, .d = HD_BF16});
    add_gemm((HdGemm){.ta = true, .batch = 2, .a = HD_F32, .b = HD_F32, .d = HD_F32});
}

int main(int argc, char **argv) {
    add_gemms();
    HdProgram p = {.model = "Check", .source = "x.hd", .target = "cuda", .arch = "sm_80", .plan_hash = "0",
                   .model_hash = "0", .report = "{}", .arena_bytes = 64 << 20,
                   .train_step = {.loss = -1, .norm = -1, .counter = -1, .random = -1}, .n_funcs = 1, .funcs = funcs,
                   .backend = b,
                   .n_sources = 2, .n_kernels = 2, .n_gemms = n_gemms, .sources = sources, .kernels = kernels,
                   .gemms = gemms, .n_streams = 2, .n_events = 2, .streams = streams,
                   .n_regions = 1, .regions = &region};
    functions(&p, true, NULL);
    functions(&p, false, NULL);
    functions(&p, false, argc > 1 ? argv[1] : "/tmp/runtime_check.json");
    printf("%s kernels, streams, graphs, copies\n", failures ? "FAIL" : "ok  ");
    initial_values(p);
    HdExec *x = b->open(&p, hd_world_alone(), &(HdOpen){.use_graphs = true});
    CHECK(x);
    if (x && ((HdCuda *)x)->cc_major >= 9) {
        clusters(p, true);
        clusters(p, false);
        printf("%s clusters, arguments of 128 bytes\n", failures ? "FAIL" : "ok  ");
    }
    for (int i = 0; x && i < n_gemms; i++) {
        product(x, i, 0);
        if (gemms[i].align) product(x, i, 1);
    }
    CHECK(x && b->sync(x));
    printf("%s %d kinds of products\n", failures ? "FAIL" : "ok  ", n_gemms);
    if (x) b->close(x);
    p.n_attentions = (int)(sizeof attentions / sizeof *attentions);
    p.attentions = attentions;
    x = b->open(&p, hd_world_alone(), &(HdOpen){.use_graphs = true});
    if (!x) printf("skipped attention: %s\n", hd_failure());
    for (int i = 0; x && i < p.n_attentions; i += 2) attention(x, i);
    if (x) CHECK(b->sync(x));
    if (x) b->close(x);
    return failures != 0;
}
