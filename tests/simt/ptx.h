// PTX instructions that kernels name in asm statements, as functions: compile.py makes ptx_NAME of an instruction NAME,
// with its operands in order. Instructions of more than a line are in units.cc.
#ifndef TESTS_SIMT_PTX_H
#define TESTS_SIMT_PTX_H
#include "tests/simt/simt.h"

namespace simt {
template <class P> inline char *global(P p) { return (char *)(uintptr_t)p; }
inline void aligned(const void *p, size_t n) {
    if ((uintptr_t)p % n) fail("an access of %zu bytes is not aligned", n);
}

inline int warp_number() {
    return (int)(threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)) / 32;
}
// d: N / 2 addresses. a: a descriptor, or four registers.
template <int N, Type T>
inline void wgmma(std::initializer_list<float *> d, u64 a, u64 b, bool add, int, int, int ta, int tb) {
    WarpOperands o = {T, N, 0, ta, tb, add, a, b, {0, 0, 0, 0}, d.begin(), warp_number()};
    together(~0u, warp_product, &o);
}
template <int N, Type T>
inline void wgmma(std::initializer_list<float *> d, std::initializer_list<u32> a, u64 b, bool add, int, int, int tb) {
    const u32 *r = a.begin();
    WarpOperands o = {T, N, 1, 0, tb, add, 0, b, {r[0], r[1], r[2], r[3]}, d.begin(), warp_number()};
    together(~0u, warp_product, &o);
}

// --- vectors of shared memory

template <class V> inline V *words(u32 at, size_t n) {
    if (at % (n * 4)) fail("an access of %zu bytes to shared memory at %u", n * 4, at);
    return (V *)shared_at(at, n * 4);
}
} // namespace simt

using simt::u64;
#define PTX static inline void
PTX ptx_griddepcontrol_wait() {}
PTX ptx_griddepcontrol_launch_dependents() {}
PTX ptx_fence_proxy_async_shared_cta() { simt::fence_proxies(); }
PTX ptx_fence_acq_rel_gpu() { simt::fence(); }
PTX ptx_setmaxnreg_inc_sync_aligned_u32(int) { __syncwarp(); }
PTX ptx_setmaxnreg_dec_sync_aligned_u32(int) { __syncwarp(); }

PTX ptx_cvt_rn_bf16x2_f32(unsigned &d, float hi, float lo) { d = simt::to_bf16(hi) << 16 | simt::to_bf16(lo); }
PTX ptx_cvt_rn_f16x2_f32(unsigned &d, float hi, float lo) { d = simt::to_f16(hi) << 16 | simt::to_f16(lo); }
PTX ptx_cvt_rn_satfinite_e4m3x2_f32(unsigned short &d, float hi, float lo) {
    d = (unsigned short)(simt::to_e4m3(hi) << 8 | simt::to_e4m3(lo));
}
PTX ptx_cvt_rn_satfinite_e5m2x2_f32(unsigned short &d, float hi, float lo) {
    d = (unsigned short)(simt::to_e5m2(hi) << 8 | simt::to_e5m2(lo));
}
PTX ptx_cvt_rn_f16x2_e4m3x2(unsigned &d, unsigned short v) {
    d = simt::e4m3_to_f16(v >> 8) << 16 | simt::e4m3_to_f16(v & 0xff);
}
PTX ptx_cvt_f32_f16(float &d, unsigned short v) { d = simt::from_f16(v); }
PTX ptx_max_bf16x2(unsigned &d, unsigned a, unsigned b) { // a NaN is not taken
    unsigned out = 0;
    for (int s = 0; s < 32; s += 16) {
        const unsigned x = a >> s & 0xffff, y = b >> s & 0xffff;
        const float f = simt::from_bf16(x), g = simt::from_bf16(y);
        out |= (f != f || g > f ? y : x) << s;
    }
    d = out;
}
PTX ptx_ex2_approx_ftz_f32(float &d, float v) { d = exp2f(v); }
PTX ptx_rcp_approx_ftz_f32(float &d, float v) { d = 1.0f / v; }

PTX ptx_bar_sync(int id, int n) { simt::barrier(id, n, true); }
PTX ptx_bar_arrive(int id, int n) { simt::barrier(id, n, false); }

template <class P> PTX ptx_cp_async_cg_shared_global(unsigned to, P from, int n, int read) {
    simt::copy(to, simt::global(from), n, read);
}
template <class P> PTX ptx_cp_async_cg_shared_global(unsigned to, P from, int n) {
    simt::copy(to, simt::global(from), n, n);
}
template <class P> PTX ptx_cp_async_ca_shared_global(unsigned to, P from, int n) {
    simt::copy(to, simt::global(from), n, n);
}
PTX ptx_cp_async_commit_group() { simt::copies_commit(); }
PTX ptx_cp_async_wait_group(int n) { simt::copies_wait(n); }
PTX ptx_cp_async_mbarrier_arrive_noinc_shared_cta_b64(unsigned at) { simt::copies_arrive(at); }
template <class P>
PTX ptx_cp_async_bulk_tensor_4d_shared_cluster_global_mbarrier_complete_tx_bytes(unsigned to, P map, int a, int b,
                                                                                int c, int d, unsigned barrier) {
    simt::copy_box(to, simt::global(map), a, b, c, d, barrier);
}
template <class P>
PTX ptx_cp_async_bulk_tensor_4d_shared_cluster_global_mbarrier_complete_tx_bytes_multicast_cluster(
    unsigned to, P map, int a, int b, int c, int d, unsigned barrier, unsigned ranks) {
    simt::copy_box_to(to, simt::global(map), a, b, c, d, barrier, ranks);
}
template <class P>
PTX ptx_cp_async_bulk_tensor_4d_global_shared_cta_bulk_group(P map, int a, int b, int c, int d, unsigned from) {
    simt::box_out(from, simt::global(map), a, b, c, d);
}
PTX ptx_cp_async_bulk_commit_group() { simt::boxes_commit(); }
PTX ptx_cp_async_bulk_wait_group_read(int n) { simt::boxes_wait(n); }
PTX ptx_mapa_shared_cluster_u32(unsigned &there, unsigned at, unsigned rank) {
    there = simt::cluster_address(at, rank);
}
PTX ptx_st_shared_cluster_f32(unsigned there, float x) { simt::cluster_write(there, x); }
PTX ptx_ld_shared_cluster_f32(float &d, unsigned there) { d = simt::cluster_read(there); }
PTX ptx_mov_u32(unsigned &d, unsigned v) { d = v; }
PTX ptx_barrier_cluster_arrive_release_aligned() { simt::cluster_arrive(); }
PTX ptx_barrier_cluster_wait_acquire_aligned() { simt::cluster_wait(); }
PTX ptx_fence_mbarrier_init_release_cluster() {} // the barrier of the cluster, which follows, orders as much here
PTX ptx_mbarrier_arrive_shared_cluster_b64(unsigned there) { simt::phases_arrive_there(there); }
PTX ptx_mbarrier_init_shared_cta_b64(unsigned at, int n) { simt::phases_init(at, n); }
PTX ptx_mbarrier_arrive_shared_cta_b64(unsigned at) { simt::phases_arrive(at); }
PTX ptx_mbarrier_arrive_expect_tx_shared_cta_b64(unsigned at, int bytes) { simt::phases_expect(at, bytes); }
PTX ptx_mbarrier_await(unsigned at, unsigned parity) { simt::phases_await(at, parity); }

PTX ptx_ldmatrix_sync_aligned_m8n8_x4_shared_b16(unsigned &a, unsigned &b, unsigned &c, unsigned &d, unsigned at) {
    simt::Matrices m = {at, {}};
    simt::together(~0u, simt::matrices_load, &m);
    a = m.r[0], b = m.r[1], c = m.r[2], d = m.r[3];
}
PTX ptx_ldmatrix_sync_aligned_m8n8_x4_trans_shared_b16(unsigned &a, unsigned &b, unsigned &c, unsigned &d,
                                                       unsigned at) {
    simt::Matrices m = {at, {}};
    simt::together(~0u, simt::matrices_load_turned, &m);
    a = m.r[0], b = m.r[1], c = m.r[2], d = m.r[3];
}
PTX ptx_stmatrix_sync_aligned_m8n8_x4_trans_shared_b16(unsigned at, unsigned a, unsigned b, unsigned c, unsigned d) {
    simt::Matrices m = {at, {a, b, c, d}};
    simt::together(~0u, simt::matrices_store_turned, &m);
}
template <simt::Type T> PTX ptx_mma(float *c, const unsigned *a, const unsigned *b) {
    simt::Product p;
    memcpy(p.c, c, sizeof p.c);
    memcpy(p.a, a, sizeof p.a);
    memcpy(p.b, b, sizeof p.b);
    simt::together(~0u, T == simt::BF16 ? simt::product_bf16 : simt::product_f16, &p);
    memcpy(c, p.c, sizeof p.c);
}
#define SIMT_MMA(type, T)                                                                                          \
    PTX ptx_mma_sync_aligned_m16n8k16_row_col_f32_##type##_##type##_f32(                                           \
        float &c0, float &c1, float &c2, float &c3, unsigned a0, unsigned a1, unsigned a2, unsigned a3, unsigned b0, \
        unsigned b1, float, float, float, float) {                                                                 \
        float c[4] = {c0, c1, c2, c3};                                                                             \
        const unsigned a[4] = {a0, a1, a2, a3}, b[2] = {b0, b1};                                                   \
        ptx_mma<T>(c, a, b);                                                                                       \
        c0 = c[0], c1 = c[1], c2 = c[2], c3 = c[3];                                                                \
    }
SIMT_MMA(bf16, simt::BF16)
SIMT_MMA(f16, simt::F16)
#undef SIMT_MMA
PTX ptx_wgmma_fence_sync_aligned() { __syncwarp(); }
PTX ptx_wgmma_commit_group_sync_aligned() { simt::together(~0u, simt::products_commit, nullptr); }
PTX ptx_wgmma_wait_group_sync_aligned(int n) {
    simt::pause();
    simt::together(~0u, simt::products_wait, &n);
}

PTX ptx_st_shared_b32(unsigned at, unsigned v) { *simt::words<unsigned>(at, 1) = v; }
PTX ptx_st_shared_f32(unsigned at, float v) { *simt::words<float>(at, 1) = v; }
PTX ptx_st_shared_v2_f32(unsigned at, float a, float b) { *simt::words<float2>(at, 2) = make_float2(a, b); }
PTX ptx_st_shared_v4_f32(unsigned at, float a, float b, float c, float d) {
    *simt::words<float4>(at, 4) = make_float4(a, b, c, d);
}
template <class T> PTX ptx_ld_shared_b32(T &d, unsigned at) { memcpy(&d, simt::words<T>(at, 1), 4); }
template <class T> PTX ptx_ld_shared_v2_f32(T &a, T &b, unsigned at) {
    const T *p = simt::words<T>(at, 2);
    a = p[0], b = p[1];
}
template <class T> PTX ptx_ld_shared_v4_f32(T &a, T &b, T &c, T &d, unsigned at) {
    const T *p = simt::words<T>(at, 4);
    a = p[0], b = p[1], c = p[2], d = p[3];
}
template <class T> PTX ptx_ld_shared_v4_b32(T &a, T &b, T &c, T &d, unsigned at) {
    ptx_ld_shared_v4_f32(a, b, c, d, at);
}
template <class P> SIMT_ATOMIC void ptx_ld_acquire_gpu_global_b32(unsigned &d, P at) {
    simt::spin();
    simt::atomic(simt::global(at), 4, true);
    memcpy(&d, simt::global(at), 4);
}
template <class P> SIMT_ATOMIC void ptx_st_relaxed_gpu_global_b32(P at, unsigned v) {
    simt::atomic(simt::global(at), 4, false);
    memcpy(simt::global(at), &v, 4);
}
template <class P> SIMT_ATOMIC void ptx_red_relaxed_gpu_global_add_v4_f32(P at, float a, float b, float c, float d) {
    float *p = (float *)simt::global(at);
    simt::aligned(p, 16);
    simt::atomic(p, 16, false);
    p[0] += a, p[1] += b, p[2] += c, p[3] += d;
}
#undef PTX
#endif
