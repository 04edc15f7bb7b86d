// Attention kernels against a double-precision reference on the CPU, and their times. Built with nvcc on a GPU machine:
//   nvcc -arch=sm_90 -O2 -include HEAD.h tests/gpu/attention_test.cu
// HEAD.h has the macros of codegen/cuda/templates/attention.cu.
// Prints the relative error ||out - ref|| / ||ref|| of o, lse, dq, dk, dv for one (batch, head), then milliseconds;
// exit 1 when an error exceeds the bound (bf16 2e-2, f32 2e-5: the rounding of the inputs' dtype through two products).
#ifndef ATT_WINDOW
#define ATT_WINDOW 0
#endif
#ifndef ATT_DOCUMENTS // else ATT_LENGTH is the mean length of a document
#define ATT_DOCUMENTS 0
#define ATT_LENGTH 0
#endif
#if ATT_DOCUMENTS
#define MORE , starts
#else
#define MORE
#endif
#include "codegen/cuda/templates/common.cu"
#include "codegen/cuda/templates/attention_seen.cu"
#include "tests/gpu/meter.h"
#ifdef ATT_ANY
#include "codegen/cuda/templates/attention_any.cu"
#define ROWS 8
#define KROWS 8
#define KTHREADS 256
#define FWD_THREADS 256
#define SH_FWD ((2 * 32 * (ATT_D + 1) + 16 * ATT_D) * sizeof(att_real))
#define SH_DKV SH_FWD
#define SH_DQ SH_FWD
typedef att_real lse_t;
#else
#ifdef ATT_HOPPER // forward and delta are those of attention.cu; its dk, dv and dq are timed beside these
#pragma push_macro("ATT_DKV")
#pragma push_macro("ATT_DQ")
#undef ATT_DKV
#undef ATT_DQ
#define ATT_DKV att_dkv_mma
#define ATT_DQ att_dq_mma
namespace mma {
#include "codegen/cuda/templates/attention.cu"
#include "codegen/cuda/templates/attention_backward.cu"
}
using mma::att_fwd;
using mma::att_delta;
#pragma pop_macro("ATT_DKV")
#pragma pop_macro("ATT_DQ")
#undef ATT_PACK
namespace hopper {
#include "codegen/cuda/templates/attention_wgmma.cu"
#ifdef ATT_ORDERED // the gradients in one kernel, timed beside those of attention.cu as well
#include "codegen/cuda/templates/attention_ordered.cu"
#else
#include "codegen/cuda/templates/attention_hopper.cu"
#endif
}
typedef unsigned short att_t;
#else
#include "codegen/cuda/templates/attention.cu"
#include "codegen/cuda/templates/attention_backward.cu"
#endif
#define ROWS ATT_BM
#define KROWS ATT_KM
#define KTHREADS ATT_KV_THREADS
#define FWD_THREADS (ATT_FWD_WARPS * 32)
#define SH_FWD ((ATT_BM + 4 * ATT_BN) * ATT_LD * 2)
#define SH_DKV ATT_KV_SHARED
#define SH_DQ ((2 * ATT_BM + 4 * ATT_BN) * ATT_LD * 2)
typedef float lse_t;
#endif
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <vector>
#define CU(x)                                                                                                          \
    do {                                                                                                               \
        cudaError_t e_ = (x);                                                                                          \
        if (e_) {                                                                                                      \
            printf("%d: %s: %s\n", __LINE__, #x, cudaGetErrorString(e_));                                              \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)
static void put(float &h, float f) { h = f; }
static void put(double &h, float f) { h = f; }
template <class T> static void put(T &h, float f) {
    unsigned u;
    memcpy(&u, &f, 4);
    u = (u + 0x7fff + (u >> 16 & 1)) >> 16;
    memcpy(&h, &u, 2);
} // bf16
static att_t narrow(float f) { att_t h; put(h, f); return h; }
static double wide(float h) { return h; }
static double wide(double h) { return h; }
template <class T> static double wide(T h) {
    unsigned u = 0;
    memcpy((char *)&u + 2, &h, 2);
    float f;
    memcpy(&f, &u, 4);
    return f;
}
struct Buf { att_t *d; std::vector<att_t> h; };
static Buf make(size_t n, float amp) {
    Buf b; b.h.resize(n);
    for (auto &x : b.h) x = narrow(amp * ((float)rand() / RAND_MAX * 2 - 1));
    CU(cudaMalloc(&b.d, n * sizeof(att_t))); CU(cudaMemcpy(b.d, b.h.data(), n * sizeof(att_t), cudaMemcpyHostToDevice));
    return b;
}
// `least`: what the norm of ref counts as if it is smaller (a query that sees itself alone has no dq)
static double err(const std::vector<double> &ref, const std::vector<double> &got, double least = 0) {
    double a = 0, c = least * least;
    for (size_t i = 0; i < ref.size(); i++) { a += (ref[i] - got[i]) * (ref[i] - got[i]); c += ref[i] * ref[i]; }
    return a == a ? sqrt(a / c) : 1e9;
}
static double norm(const std::vector<double> &x) { return err(std::vector<double>(x.size()), x, 1); }
int main(int argc, char **argv) { // with an argument: times after so many seconds without a pause, too
    const int B = ATT_B, T = ATT_T, H = ATT_H, KV = ATT_KV, D = ATT_D;
    Buf q = make((size_t)B * T * ATT_QS, 1), k = make((size_t)B * T * ATT_KS, 1), v = make((size_t)B * T * ATT_VS, 1),
        dout = make((size_t)B * T * ATT_OS, 1);
    Buf o = make((size_t)B * T * ATT_OS, 0), dq = make((size_t)B * T * ATT_QS, 0), dk = make((size_t)B * T * ATT_KS, 0),
        dv = make((size_t)B * T * ATT_VS, 0);
    lse_t *lse, *delta;
    CU(cudaMalloc(&lse, sizeof(lse_t) * B * H * T));
    CU(cudaMalloc(&delta, sizeof(lse_t) * B * H * T));
    std::vector<int> first((size_t)B * T); // the first key that a query may see
    for (size_t i = 0; i < first.size(); i++) {
        const bool begins = i % T == 0 || (ATT_DOCUMENTS && rand() % (ATT_LENGTH + 1) == 0);
        first[i] = i % T == 0 ? 0 : begins ? (int)(i % T) : first[i - 1];
    }
    int *starts;
    CU(cudaMalloc(&starts, first.size() * sizeof(int)));
    CU(cudaMemcpy(starts, first.data(), first.size() * sizeof(int), cudaMemcpyHostToDevice));
    double pairs = 0;
    for (size_t i = 0; i < first.size(); i++) {
        const int row = (int)(i % T);
        if (ATT_WINDOW && row + 1 - ATT_WINDOW > first[i]) first[i] = row + 1 - ATT_WINDOW;
        pairs += (double)((ATT_CAUSAL ? row + 1 : T) - first[i]) / B;
    }
    CU(cudaMemset(o.d, 0xff, o.h.size() * sizeof(att_t))); CU(cudaMemset(dq.d, 0xff, dq.h.size() * sizeof(att_t)));
    CU(cudaFuncSetAttribute(ATT_FWD, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)SH_FWD));
    dim3 gf((T + ROWS - 1) / ROWS, H, B), gk((T + KROWS - 1) / KROWS, KV, B),
        gd((unsigned)(((long long)B * T * H + 7) / 8));
    auto fwd = [&] { ATT_FWD<<<gf, FWD_THREADS, SH_FWD>>>(q.d, k.d, v.d, o.d, lse MORE); };
    auto d1 = [&] { ATT_DELTA<<<gd, 256>>>(dout.d, q.d, k.d, v.d, o.d, lse, dq.d, dk.d, dv.d, delta MORE); };
#ifdef ATT_HOPPER
    CU(cudaFuncSetAttribute(mma::att_dkv_mma, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)SH_DKV));
    CU(cudaFuncSetAttribute(mma::att_dq_mma, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)SH_DQ));
#ifdef ATT_ORDERED
    CU(cudaFuncSetAttribute(hopper::att_all, cudaFuncAttributeMaxDynamicSharedMemorySize, hopper::ATT_BYTES));
    float *workspace;
    CU(cudaMalloc(&workspace, hopper::ATT_WORKSPACE));
    CU(cudaMemset(workspace, 0xff, hopper::ATT_WORKSPACE));
#else
    CU(cudaFuncSetAttribute(hopper::att_dkv, cudaFuncAttributeMaxDynamicSharedMemorySize, ATT_SHARED_KV));
    CU(cudaFuncSetAttribute(hopper::att_dq, cudaFuncAttributeMaxDynamicSharedMemorySize, ATT_SHARED_Q));
    dim3 hk((T + ATT_KV_ROWS - 1) / ATT_KV_ROWS, KV, B), hq((T + 127) / 128, H, B);
#endif
#define ALL dout.d, q.d, k.d, v.d, o.d, lse, dq.d, dk.d, dv.d, delta MORE
    auto m2 = [&] { mma::att_dkv_mma<<<gk, KTHREADS, SH_DKV>>>(ALL); };
    auto m3 = [&] { mma::att_dq_mma<<<gf, 256, SH_DQ>>>(ALL); };
#ifdef ATT_ORDERED // d3 prepares, as dq leaves the row sums in the other form
    const int blocks = hopper::ATT_ITEMS < 132 ? hopper::ATT_ITEMS : 132;
    auto d3 = [&] {
        hopper::att_begin<<<dim3(H, hopper::ATT_TILES, B), 256>>>(dout.d, q.d, k.d, v.d, o.d, lse, dq.d, dk.d, dv.d,
                                                                  workspace MORE);
    };
    auto d2 = [&] {
        d3();
        hopper::att_all<<<blocks, 384, hopper::ATT_BYTES>>>(dout.d, q.d, k.d, v.d, o.d, lse, dq.d, dk.d, dv.d,
                                                            workspace MORE);
    };
#else
    auto d2 = [&] { hopper::att_dkv<<<hk, 384, ATT_SHARED_KV>>>(ALL); };
    auto d3 = [&] { hopper::att_dq<<<hq, 384, ATT_SHARED_Q>>>(ALL); };
#endif
#else
    CU(cudaFuncSetAttribute(ATT_DKV, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)SH_DKV));
    CU(cudaFuncSetAttribute(ATT_DQ, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)SH_DQ));
    auto d2 = [&] { ATT_DKV<<<gk, KTHREADS, SH_DKV>>>(dout.d, q.d, k.d, v.d, o.d, lse, dq.d, dk.d, dv.d, delta MORE); };
    auto d3 = [&] { ATT_DQ<<<gf, 256, SH_DQ>>>(dout.d, q.d, k.d, v.d, o.d, lse, dq.d, dk.d, dv.d, delta MORE); };
#endif
    auto fetch = [&](Buf &b) { CU(cudaMemcpy(b.h.data(), b.d, b.h.size() * sizeof(att_t), cudaMemcpyDeviceToHost)); };
    fwd(); d1(); CU(cudaGetLastError()); CU(cudaDeviceSynchronize());
#ifdef ATT_HOPPER // both kinds of kernels, element by element
    auto all = [&](Buf &b) { fetch(b); std::vector<double> x; for (auto y : b.h) x.push_back(wide(y)); return x; };
    m2(); m3(); CU(cudaGetLastError()); CU(cudaDeviceSynchronize());
    std::vector<double> mq = all(dq), mk = all(dk), mv = all(dv);
    for (Buf *x : {&dq, &dk, &dv}) CU(cudaMemset(x->d, 0xff, x->h.size() * sizeof(att_t)));
    CU(cudaMemset(delta, 0xff, sizeof(lse_t) * B * H * T));
    d3(); d2(); CU(cudaGetLastError()); CU(cudaDeviceSynchronize());
    printf("against mma: dq %.2e dk %.2e dv %.2e; ", err(mq, all(dq), 1e-3 * norm(mv)),
           err(mk, all(dk), 1e-3 * norm(mv)), err(mv, all(dv)));
#endif
    d3(); d2(); CU(cudaGetLastError()); CU(cudaDeviceSynchronize());
    fetch(o); fetch(dq); fetch(dk); fetch(dv);
    std::vector<lse_t> hl((size_t)B * H * T);
    CU(cudaMemcpy(hl.data(), lse, hl.size() * sizeof(lse_t), cudaMemcpyDeviceToHost));
    int b = B - 1, g = KV - 1, G = H / KV;
    std::vector<double> rk((size_t)T * D), rv((size_t)T * D), gk_((size_t)T * D), gv((size_t)T * D), ro, go, rl, gl, rq,
        gq;
    const int heads = T > 2048 ? 0 : G; // the reference takes too long for more
    for (int h = g * G; h < g * G + heads; h++)
        for (int i = 0; i < T; i++) {
            std::vector<double> s(T), p(T), oo(D), dq_(D); double mx = -1e300, sum = 0; int n = ATT_CAUSAL ? i + 1 : T,
                j0 = first[(size_t)b * T + i];
            auto Q = [&](int d) { return wide(q.h[((size_t)b * T + i) * ATT_QS + h * D + d]); };
            auto K = [&](int j, int d) { return wide(k.h[((size_t)b * T + j) * ATT_KS + g * D + d]); };
            auto V = [&](int j, int d) { return wide(v.h[((size_t)b * T + j) * ATT_VS + g * D + d]); };
            auto DO = [&](int d) { return wide(dout.h[((size_t)b * T + i) * ATT_OS + h * D + d]); };
            for (int j = j0; j < n; j++) {
                double a = 0;
                for (int d = 0; d < D; d++) a += Q(d) * K(j, d);
                s[j] = a * ATT_SCALE;
                if (s[j] > mx) mx = s[j];
            }
            for (int j = j0; j < n; j++) sum += p[j] = exp(s[j] - mx);
            double delta_ = 0;
            for (int j = j0; j < n; j++) { p[j] /= sum; for (int d = 0; d < D; d++) oo[d] += p[j] * V(j, d); }
            for (int d = 0; d < D; d++) delta_ += DO(d) * oo[d];
            for (int j = j0; j < n; j++) {
                double dp = 0;
                for (int d = 0; d < D; d++) dp += DO(d) * V(j, d);
                double z = p[j] * (dp - delta_);
                for (int d = 0; d < D; d++) {
                    dq_[d] += z * K(j, d) * ATT_SCALE;
                    rk[(size_t)j * D + d] += z * Q(d) * ATT_SCALE;
                    rv[(size_t)j * D + d] += p[j] * DO(d);
                }
            }
            for (int d = 0; d < D; d++) {
                ro.push_back(oo[d]);
                go.push_back(wide(o.h[((size_t)b * T + i) * ATT_OS + h * D + d]));
                rq.push_back(dq_[d]);
                gq.push_back(wide(dq.h[((size_t)b * T + i) * ATT_QS + h * D + d]));
            }
            rl.push_back(mx + log(sum)); gl.push_back((double)hl[((size_t)b * H + h) * T + i]);
        }
    for (int j = 0; j < T; j++)
        for (int d = 0; d < D; d++) {
            gk_[(size_t)j * D + d] = wide(dk.h[((size_t)b * T + j) * ATT_KS + g * D + d]);
            gv[(size_t)j * D + d] = wide(dv.h[((size_t)b * T + j) * ATT_VS + g * D + d]);
        }
    const double least = 1e-3 * norm(rv);
    double e[5] = {err(ro, go), err(rl, gl), err(rq, gq, least), err(rk, gk_, least), err(rv, gv)},
           bound = sizeof(att_t) == 2 ? 2e-2 : 2e-5;
    bool bad = false;
    printf("B%d H%d/%d T%d D%d causal%d", B, H, KV, T, D, ATT_CAUSAL);
    if (ATT_WINDOW) printf(" window%d", ATT_WINDOW);
    if (ATT_DOCUMENTS) printf(" documents of %d", ATT_LENGTH);
    if (heads) printf(": errors o %.2e lse %.2e dq %.2e dk %.2e dv %.2e", e[0], e[1], e[2], e[3], e[4]);
    else printf(": too long for the reference on the CPU");
    for (double x : e) bad |= heads && !(x < bound);
    std::vector<att_t> again = dq.h, again_k = dk.h, again_v = dv.h;
    bool same = true;
    for (int i = 0; i < 10; i++) { // blocks meet in another order each time
        for (Buf *x : {&dq, &dk, &dv}) CU(cudaMemset(x->d, 0xff, x->h.size() * sizeof(att_t)));
#ifdef ATT_HOPPER
        d3();
        d2();
#else
        d1();
        d2();
        d3();
#endif
        CU(cudaDeviceSynchronize());
        fetch(dq);
        fetch(dk);
        fetch(dv);
        same = same && !memcmp(again.data(), dq.h.data(), again.size() * sizeof(att_t)) &&
               !memcmp(again_k.data(), dk.h.data(), again_k.size() * sizeof(att_t)) &&
               !memcmp(again_v.data(), dv.h.data(), again_v.size() * sizeof(att_t));
    }
    cudaEvent_t t0, t1; cudaEventCreate(&t0); cudaEventCreate(&t1); float ms[4];
    auto timed = [&](auto f) {
        f();
        cudaEventRecord(t0);
        for (int i = 0; i < 10; i++) f();
        cudaEventRecord(t1);
        cudaEventSynchronize(t1);
        float x;
        cudaEventElapsedTime(&x, t0, t1);
        return x / 10;
    };
    ms[0] = timed(fwd); ms[1] = timed(d1); ms[2] = timed(d2); ms[3] = timed(d3);
    float old_delta = ms[1];
#ifdef ATT_HOPPER
    ms[1] = 0; // in dq
#ifdef ATT_ORDERED
    ms[3] = 0; // in dkv, which is all
#endif
#endif
    double fl = 4.0 * B * H * D * pairs;
    printf("; repeat %s; fwd %.3f ms (%.0f TFLOP/s) delta %.3f dkv %.3f dq %.3f: bwd %.3f ms (%.0f)%s\n",
           same ? "bitwise" : "DIFFERS", ms[0], fl / ms[0] / 1e9, ms[1], ms[2], ms[3], ms[1] + ms[2] + ms[3],
           2.5 * fl / (ms[1] + ms[2] + ms[3]) / 1e9, bad || !same ? "  WRONG" : "");
#ifdef ATT_HOPPER
    float a = timed(m2), c = timed(m3);
    float sum = old_delta + a + c;
    printf("  mma: dkv %.3f dq %.3f: bwd %.3f ms (%.0f)\n", a, c, sum, 2.5 * fl / sum / 1e9);
#endif
#ifdef ATT_HOPPER
    if (argc > 1)
        for (int own = 1; own >= 0; own--) { // without a pause: as fast as the power limit allows
            auto whole = [&] {
                if (!own) d1(), m2(), m3();
#ifndef ATT_ORDERED
                if (own) d3();
#endif
                if (own) d2();
            };
            const Metered t = metered(Meter(), whole, atof(argv[1]), atof(argv[1]));
            printf("  %s after %s s: %.3f ms (%.0f), %u MHz, %.0f W, %.1f mJ\n", own ? "this" : "mma", argv[1], t.ms,
                   2.5 * fl / t.ms / 1e9, t.mhz, t.mj / t.ms, t.mj);
        }
#endif
    return bad || !same;
}
