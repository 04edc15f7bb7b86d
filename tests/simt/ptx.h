// PTX instructions that kernels name in asm statements, as functions: compile.py makes ptx_NAME of an instruction NAME,
// with its operands in order. Source of meanings and layouts: NVIDIA's PTX ISA 8.8, chapters 5.5, 9.7.9, 9.7.13 to
// 9.7.16.
#ifndef TESTS_SIMT_PTX_H
#define TESTS_SIMT_PTX_H
#include "tests/simt/map.h"
#include "tests/simt/simt.h"

namespace simt {
// --- narrow numbers

inline u32 to_bf16(float v) { // to nearest even
    const u32 b = bits<u32>(v);
    if ((b & 0x7fffffff) > 0x7f800000) return 0x7fff;
    return (b + 0x7fff + (b >> 16 & 1)) >> 16;
}
inline float from_bf16(u32 v) { return bits<float>(v << 16); }
inline u32 to_f16(float v) {
    const _Float16 h = (_Float16)v;
    unsigned short b;
    memcpy(&b, &h, 2);
    return v != v ? 0x7fff : b;
}
inline float from_f16(u32 v) {
    const unsigned short b = (unsigned short)v;
    _Float16 h;
    memcpy(&h, &b, 2);
    return (float)h;
}
enum Type { BF16, F16 };
template <Type T> inline float from(u32 v) { return T == BF16 ? from_bf16(v & 0xffff) : from_f16(v & 0xffff); }

template <class P> inline char *global(P p) { return (char *)(uintptr_t)p; }
inline void aligned(const void *p, size_t n) {
    if ((uintptr_t)p % n) fail("an access of %zu bytes is not aligned", n);
}

// --- copies

struct Bytes : Beside { // to shared memory; zeroes follow what is read
    char *to;
    const char *from;
    int n, read;
    void work() override {
        memcpy(to, from, (size_t)read);
        memset(to + read, 0, (size_t)(n - read));
    }
};
inline void copy(u32 to, const char *from, int n, int read) {
    Bytes *b = new Bytes;
    b->to = shared_at(to, (size_t)n);
    b->from = from;
    b->n = n;
    b->read = read;
    aligned(b->from, (size_t)n);
    if (to % (u32)n) fail("a copy of %d bytes to shared memory at %u", n, to);
    copy_later(b);
}

// A box of a tensor of 4 dimensions, with a swizzle of 128 bytes; zeroes outside the tensor.
struct Box : Beside {
    TensorMap map;
    int at[4];
    u32 to, barrier;
    Block *block;
    void work() override {
        const u32 row = map.box[0] * 2;
        u32 n = 0, c[4];
        for (c[3] = 0; c[3] < map.box[3]; c[3]++)
            for (c[2] = 0; c[2] < map.box[2]; c[2]++)
                for (c[1] = 0; c[1] < map.box[1]; c[1]++)
                    for (c[0] = 0; c[0] < map.box[0]; c[0]++, n++) {
                        const u32 address = to + n / map.box[0] * row + c[0] * 2;
                        uint16_t v = 0;
                        load(c, &v);
                        memcpy(shared_of(block, address ^ (address >> 7 & 7) << 4, 2), &v, 2);
                    }
        phases_complete(block, barrier, (int)(n * 2));
    }
    void load(const u32 c[4], uint16_t *v) const {
        u64 offset = 0;
        for (int i = 0; i < 4; i++) {
            const long x = (long)at[i] + c[i];
            if (x < 0 || (u64)x >= map.dims[i]) return;
            offset += (u64)x * (i ? map.strides[i - 1] : 2);
        }
        memcpy(v, (const char *)(uintptr_t)map.address + offset, 2);
    }
};

// --- matrices of 8 x 8 elements of 16 bits: lane 8 * m + r gives the address of row r of matrix m

struct Matrices { u32 at, r[4]; };
template <bool TRANSPOSED, bool STORE> void matrices(void **lane) {
    for (int m = 0; m < 4; m++)
        for (int row = 0; row < 8; row++) {
            const u32 at = ((Matrices *)lane[m * 8 + row])->at;
            if (at % 16) fail("a row of a matrix at %u", at);
            char *p = shared_at(at, 16);
            for (int col = 0; col < 8; col++) {
                const int r = TRANSPOSED ? col : row, c = TRANSPOSED ? row : col;
                char *half = (char *)&((Matrices *)lane[r * 4 + c / 2])->r[m] + c % 2 * 2;
                if (STORE) memcpy(p + col * 2, half, 2);
                else memcpy(half, p + col * 2, 2);
            }
        }
}

// --- products of 16 x 8 x 16 by a warp

struct Product { float c[4]; u32 a[4], b[2]; };
template <Type T> void product(void **lane) {
    float a[16][16], b[16][8];
    for (int l = 0; l < 32; l++) {
        const Product *p = (Product *)lane[l];
        const int g = l / 4, t = l % 4;
        for (int h = 0; h < 2; h++) {
            for (int i = 0; i < 4; i++) a[g + i % 2 * 8][t * 2 + h + i / 2 * 8] = from<T>(p->a[i] >> 16 * h);
            for (int i = 0; i < 2; i++) b[t * 2 + h + i * 8][g] = from<T>(p->b[i] >> 16 * h);
        }
    }
    for (int l = 0; l < 32; l++)
        for (int i = 0; i < 4; i++) {
            Product *p = (Product *)lane[l];
            for (int k = 0; k < 16; k++) p->c[i] += a[l / 4 + i / 2 * 8][k] * b[k][l % 4 * 2 + i % 2];
        }
}

// --- wgmma: a warp has 16 of the 64 rows. What is in shared memory is named by a descriptor, here always with the
// swizzle of 128 bytes.

struct Tile { // element (x, k): x of the rows of a or the columns of b, k of the sum
    u32 at, leading, stride;
    bool transposed; // x is contiguous instead of k
    explicit Tile(u64 d, bool t) : transposed(t) {
        at = (u32)(d & 0x3fff) << 4;
        leading = (u32)(d >> 16 & 0x3fff) << 4;
        stride = (u32)(d >> 32 & 0x3fff) << 4;
        if (d >> 62 != 1 || (d >> 49 & 7)) fail("a descriptor of wgmma without the swizzle of 128 bytes: %llx", d);
    }
    float get(Block *b, u32 x, u32 k, Type t) const {
        const u32 plain = transposed ? at + x / 64 * leading + k / 8 * stride + k % 8 * 128 + x % 64 * 2
                                     : at + x / 8 * stride + x % 8 * 128 + k * 2;
        uint16_t v;
        memcpy(&v, shared_of(b, plain ^ (plain >> 7 & 7) << 4, 2), 2);
        return t == BF16 ? from_bf16(v) : from_f16(v);
    }
};
struct WarpProduct : Beside {
    Type type;
    int n;
    bool registers, add, a_transposed, b_transposed;
    u64 a, b;
    u32 left[32][4];
    int rows_from; // of the warp
    float *d[32][128];
    Block *block;
    void work() override {
        static float x[16][16], y[16][256];
        for (int k = 0; k < 16; k++) {
            for (int r = 0; r < 16; r++)
                x[r][k] = registers ? held(r, k) : Tile(a, a_transposed).get(block, (u32)(rows_from + r), (u32)k, type);
            for (int c = 0; c < n; c++) y[k][c] = Tile(b, b_transposed).get(block, (u32)c, (u32)k, type);
        }
        for (int l = 0; l < 32; l++)
            for (int i = 0; i < n / 2; i++) {
                const int r = l / 4 + i / 2 % 2 * 8, c = i / 4 * 8 + l % 4 * 2 + i % 2;
                float sum = add ? *d[l][i] : 0;
                for (int k = 0; k < 16; k++) sum += x[r][k] * y[k][c];
                *d[l][i] = sum;
            }
    }
    float held(int r, int k) const {
        const u32 w = left[r % 8 * 4 + k % 8 / 2][r / 8 + k / 8 * 2] >> 16 * (k % 2);
        return type == BF16 ? from_bf16(w & 0xffff) : from_f16(w & 0xffff);
    }
};
struct WarpOperands {
    Type type;
    int n, registers, a_transposed, b_transposed;
    bool add;
    u64 a, b;
    u32 left[4];
    float *const *d;
    int warp;
};
inline void warp_product(void **lane) {
    const WarpOperands *o = (WarpOperands *)lane[0];
    WarpProduct *p = new WarpProduct;
    p->type = o->type;
    p->n = o->n;
    p->registers = o->registers;
    p->add = o->add;
    p->a_transposed = o->a_transposed;
    p->b_transposed = o->b_transposed;
    p->a = o->a;
    p->b = o->b;
    p->rows_from = o->warp % 4 * 16;
    p->block = here();
    for (int l = 0; l < 32; l++) {
        const WarpOperands *q = (WarpOperands *)lane[l];
        if (q->a != o->a || q->b != o->b || q->add != o->add) fail("lanes of a warp pass different operands to wgmma");
        memcpy(p->left[l], q->left, sizeof q->left);
        memcpy(p->d[l], q->d, (size_t)o->n / 2 * sizeof *q->d);
    }
    products_later(p);
}
inline void commit(void **) { products_commit(); }
struct Left { int groups; };
inline void wait(void **lane) { products_wait(((Left *)lane[0])->groups); }
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
PTX ptx_fence_proxy_async_shared_cta() {}
PTX ptx_fence_acq_rel_gpu() {}
PTX ptx_setmaxnreg_inc_sync_aligned_u32(int) { __syncwarp(); }
PTX ptx_setmaxnreg_dec_sync_aligned_u32(int) { __syncwarp(); }

PTX ptx_cvt_rn_bf16x2_f32(unsigned &d, float hi, float lo) { d = simt::to_bf16(hi) << 16 | simt::to_bf16(lo); }
PTX ptx_cvt_rn_f16x2_f32(unsigned &d, float hi, float lo) { d = simt::to_f16(hi) << 16 | simt::to_f16(lo); }
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
    simt::Box *x = new simt::Box;
    memcpy(&x->map, simt::global(map), sizeof x->map);
    x->at[0] = a, x->at[1] = b, x->at[2] = c, x->at[3] = d;
    x->to = to;
    x->barrier = barrier;
    x->block = simt::here();
    if (to % 128) simt::fail("a copy of a box to shared memory at %u", to);
    simt::tensor_copy(x);
}
PTX ptx_mbarrier_init_shared_cta_b64(unsigned at, int n) { simt::phases_init(at, n); }
PTX ptx_mbarrier_arrive_shared_cta_b64(unsigned at) { simt::phases_arrive(at); }
PTX ptx_mbarrier_arrive_expect_tx_shared_cta_b64(unsigned at, int bytes) { simt::phases_expect(at, bytes); }
PTX ptx_mbarrier_await(unsigned at, unsigned parity) { simt::phases_await(at, parity); }

PTX ptx_ldmatrix_sync_aligned_m8n8_x4_shared_b16(unsigned &a, unsigned &b, unsigned &c, unsigned &d, unsigned at) {
    simt::Matrices m = {at, {}};
    simt::together(~0u, simt::matrices<false, false>, &m);
    a = m.r[0], b = m.r[1], c = m.r[2], d = m.r[3];
}
PTX ptx_ldmatrix_sync_aligned_m8n8_x4_trans_shared_b16(unsigned &a, unsigned &b, unsigned &c, unsigned &d,
                                                       unsigned at) {
    simt::Matrices m = {at, {}};
    simt::together(~0u, simt::matrices<true, false>, &m);
    a = m.r[0], b = m.r[1], c = m.r[2], d = m.r[3];
}
PTX ptx_stmatrix_sync_aligned_m8n8_x4_trans_shared_b16(unsigned at, unsigned a, unsigned b, unsigned c, unsigned d) {
    simt::Matrices m = {at, {a, b, c, d}};
    simt::together(~0u, simt::matrices<true, true>, &m);
}
template <simt::Type T> PTX ptx_mma(float *c, const unsigned *a, const unsigned *b) {
    simt::Product p;
    memcpy(p.c, c, sizeof p.c);
    memcpy(p.a, a, sizeof p.a);
    memcpy(p.b, b, sizeof p.b);
    simt::together(~0u, simt::product<T>, &p);
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
PTX ptx_wgmma_commit_group_sync_aligned() { simt::together(~0u, simt::commit, nullptr); }
PTX ptx_wgmma_wait_group_sync_aligned(int n) {
    simt::Left l = {n};
    simt::pause();
    simt::together(~0u, simt::wait, &l);
}

PTX ptx_st_shared_b32(unsigned at, unsigned v) { *simt::words<unsigned>(at, 1) = v; }
PTX ptx_st_shared_f32(unsigned at, float v) { *simt::words<float>(at, 1) = v; }
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
template <class P> PTX ptx_ld_acquire_gpu_global_b32(unsigned &d, P at) {
    simt::spin();
    memcpy(&d, simt::global(at), 4);
}
template <class P> PTX ptx_st_relaxed_gpu_global_b32(P at, unsigned v) { memcpy(simt::global(at), &v, 4); }
template <class P> PTX ptx_red_relaxed_gpu_global_add_v4_f32(P at, float a, float b, float c, float d) {
    float *p = (float *)simt::global(at);
    simt::aligned(p, 16);
    p[0] += a, p[1] += b, p[2] += c, p[3] += d;
}
#undef PTX
#endif
