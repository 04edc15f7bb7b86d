// Helpers that the kernels of attention on Hopper share: barriers of shared memory, copies into it, and wgmma (sm_90a).
// Written before this text: what attention_forward.cu, attention_hopper.cu or attention_ordered.cu names.
typedef unsigned short att_t;
typedef unsigned int u32;

#define ATT_LOG2E 1.4426950408889634f
#define ATT_ROWS 128 // of a block: two groups of 64
#define ATT_GROUP (ATT_H / ATT_KV) // query heads that share a key head
#define ATT_CHUNKS ((ATT_D + 63) / 64) // a row is stored in pieces of 64 elements, 128 bytes; the last one may be less
#define ATT_ROW_BYTES (ATT_CHUNKS * 128) // of a row in shared memory
#define ATT_MASKED (ATT_WINDOW || ATT_DOCUMENTS) // by more than causality

__device__ __forceinline__ u32 att_shared(const void *p) { return (u32)__cvta_generic_to_shared(p); }

// --- barriers of shared memory: `count` arrivals end a phase

__device__ __forceinline__ void att_barrier(u32 at, int count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(at), "r"(count) : "memory");
}
__device__ __forceinline__ void att_arrive(u32 at) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(at) : "memory");
}
__device__ __forceinline__ void att_await(u32 at, u32 phase) { // until the phase of this parity has ended
    asm volatile("{\n.reg .pred done;\n"
                 "again: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                 "@done bra over;\nbra again;\nover:\n}" ::"r"(at), "r"(phase)
                 : "memory");
}

// --- copies: 16 bytes each, zeroes where there is nothing to read. Rows of 128 bytes are swizzled as wgmma reads them:
// piece c of row r is in place c ^ r % 8.

template <int ROWS, int THREADS = 128>
__device__ __forceinline__ void att_fetch(u32 to, const att_t *from, long long stride, int row) {
    constexpr int PIECES = ATT_D <= 64 ? 8 : ATT_D <= 128 ? 16 : 32; // of a row, with those past its end
    constexpr int STEP = THREADS / PIECES;                           // a thread copies piece c of every STEP-th row
    const int r = threadIdx.x / PIECES, c = threadIdx.x % PIECES;
    const u32 at = to + c / 8 * (ROWS * 128) + r * 128 + ((c % 8 ^ r % 8) << 4);
    const att_t *p = from + (row + r) * stride + c * 8;
    if (c * 8 >= ATT_D) return;
#pragma unroll
    for (int j = 0; j < ROWS; j += STEP) {
        const bool inside = ATT_T % ROWS == 0 || row + r + j < ATT_T;
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"((at ^ j % 8 << 4) + j * 128),
                     "l"(inside ? p + j * stride : from), "r"(inside ? 16 : 0)
                     : "memory");
    }
}
// Two arrivals: one now, for what this thread has stored, and one when its copies are there.
__device__ __forceinline__ void att_arrive_copied(u32 at) {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(at) : "memory");
    att_arrive(at);
}
// what other threads have written may be read by wgmma
__device__ __forceinline__ void att_seen(void) { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// --- wgmma: d (64 x N) += a (64 x 16) b (16 x N), by 128 threads. b is read from shared memory through a descriptor:
// swizzle of 128 bytes, 1024 bytes from 8 rows to the next 8.

__device__ __forceinline__ unsigned long long att_descriptor(u32 at, u32 leading) {
    return 1ull << 62 | 64ull << 32 | (unsigned long long)(leading >> 4) << 16 | (at >> 4 & 0x3fff);
}
__device__ __forceinline__ void att_begin(void) { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void att_submit(void) { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int N> __device__ __forceinline__ void att_finish(void) {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}
template <int N> __device__ __forceinline__ void att_hold(float (&d)[N]) { // keeps the registers where they are
#pragma unroll
    for (int i = 0; i < N; i++) asm volatile("" : "+f"(d[i])::"memory");
}

#ifdef ATT_F16
#define ATT_TYPES "f32.f16.f16 "
typedef f16 att_number;
#else
#define ATT_TYPES "f32.bf16.bf16 "
typedef bf16 att_number;
#endif
#define ATT_4(c, d, i) c(d[i]), c(d[i + 1]), c(d[i + 2]), c(d[i + 3])
#define ATT_8(c, d, i) ATT_4(c, d, i), ATT_4(c, d, i + 4)
#define ATT_32(c, d, i) ATT_8(c, d, i), ATT_8(c, d, i + 8), ATT_8(c, d, i + 16), ATT_8(c, d, i + 24)
#define ATT_LIST16 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define ATT_LIST32                                                                                                     \
    ATT_LIST16 ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define ATT_LIST48                                                                                                     \
    ATT_LIST32 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"
#define ATT_LIST64                                                                                                     \
    ATT_LIST48 ", %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"

// Both from shared memory, rows of a and of b^T along the sum. att_ss0: d = a b.
__device__ __forceinline__ void att_ss0(float (&d)[16], unsigned long long a, unsigned long long b) {
    asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, 0, 0;\nwgmma.mma_async.sync.aligned.m64n32k16." ATT_TYPES
                 "{" ATT_LIST16 "}, %16, %17, add, 1, 1, 0, 0;\n}"
                 : ATT_8("=f", d, 0), ATT_8("=f", d, 8)
                 : "l"(a), "l"(b));
}
__device__ __forceinline__ void att_ss0(float (&d)[32], unsigned long long a, unsigned long long b) {
    asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, 0, 0;\nwgmma.mma_async.sync.aligned.m64n64k16." ATT_TYPES
                 "{" ATT_LIST32 "}, %32, %33, add, 1, 1, 0, 0;\n}"
                 : ATT_32("=f", d, 0)
                 : "l"(a), "l"(b));
}
__device__ __forceinline__ void att_ss0(float (&d)[64], unsigned long long a, unsigned long long b) {
    asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, 0, 0;\nwgmma.mma_async.sync.aligned.m64n128k16." ATT_TYPES
                 "{" ATT_LIST64 "}, %64, %65, add, 1, 1, 0, 0;\n}"
                 : ATT_32("=f", d, 0), ATT_32("=f", d, 32)
                 : "l"(a), "l"(b));
}
__device__ __forceinline__ void att_ss(float (&d)[16], unsigned long long a, unsigned long long b) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n32k16." ATT_TYPES "{" ATT_LIST16 "}, %16, %17, 1, 1, 1, 0, 0;"
                 : ATT_8("+f", d, 0), ATT_8("+f", d, 8)
                 : "l"(a), "l"(b));
}
__device__ __forceinline__ void att_ss(float (&d)[32], unsigned long long a, unsigned long long b) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n64k16." ATT_TYPES "{" ATT_LIST32 "}, %32, %33, 1, 1, 1, 0, 0;"
                 : ATT_32("+f", d, 0)
                 : "l"(a), "l"(b));
}
__device__ __forceinline__ void att_ss(float (&d)[64], unsigned long long a, unsigned long long b) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n128k16." ATT_TYPES "{" ATT_LIST64 "}, %64, %65, 1, 1, 1, 0, 0;"
                 : ATT_32("+f", d, 0), ATT_32("+f", d, 32)
                 : "l"(a), "l"(b));
}
// a from registers, rows of b along the result
__device__ __forceinline__ void att_rs(float (&d)[32], const u32 (&a)[4], unsigned long long b) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n64k16." ATT_TYPES "{" ATT_LIST32
                 "}, {%32, %33, %34, %35}, %36, 1, 1, 1, 1;"
                 : ATT_32("+f", d, 0)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}
__device__ __forceinline__ void att_rs(float (&d)[48], const u32 (&a)[4], unsigned long long b) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n96k16." ATT_TYPES "{" ATT_LIST48
                 "}, {%48, %49, %50, %51}, %52, 1, 1, 1, 1;"
                 : ATT_32("+f", d, 0), ATT_8("+f", d, 32), ATT_8("+f", d, 40)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}
__device__ __forceinline__ void att_rs(float (&d)[64], const u32 (&a)[4], unsigned long long b) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n128k16." ATT_TYPES "{" ATT_LIST64
                 "}, {%64, %65, %66, %67}, %68, 1, 1, 1, 1;"
                 : ATT_32("+f", d, 0), ATT_32("+f", d, 32)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

__device__ __forceinline__ u32 att_pack(float lo, float hi) {
    const float x[2] = {lo, hi};
    u32 r;
    Pack<att_number, 2>::put(&r, x);
    return r;
}

// scores, d = rows of a (64 of ROWS) by rows of b: the sum runs along the head
template <int TILE, int ROWS = ATT_ROWS>
__device__ __forceinline__ void att_scores(float (&d)[TILE / 2], u32 a, u32 b) {
#pragma unroll
    for (int k = 0; k < ATT_D / 16; k++) {
        const unsigned long long x = att_descriptor(a + k / 4 * (ROWS * 128) + k % 4 * 32, 16),
                                 y = att_descriptor(b + k / 4 * (TILE * 128) + k % 4 * 32, 16);
        if (k) att_ss(d, x, y);
        else att_ss0(d, x, y);
    }
}
// d += a b: the sum runs along the rows of the tile, 128 columns of b at a time
template <int TILE, int N> __device__ __forceinline__ void att_add(float (&d)[N], const u32 (&a)[TILE / 16][4], u32 b) {
#pragma unroll
    for (int k = 0; k < TILE / 16; k++) {
        constexpr int FIRST = N <= 64 ? N : 64;
        const u32 at = b + k * (16 * 128), leading = N > 32 ? TILE * 128 : 16;
        att_rs((float(&)[FIRST])d, a[k], att_descriptor(at, leading));
        if constexpr (N > 64) att_rs((float(&)[N - FIRST])d[FIRST], a[k], att_descriptor(at + TILE * 256, leading));
    }
}
template <int N> __device__ __forceinline__ void att_narrow(u32 (&to)[N / 8][4], const float (&from)[N]) {
#pragma unroll
    for (int k = 0; k < N / 8; k++)
#pragma unroll
        for (int i = 0; i < 4; i++) to[k][i] = att_pack(from[k * 8 + 2 * i], from[k * 8 + 2 * i + 1]);
}

// Four neighbouring threads have 2 columns each of four pieces of 8 columns; afterwards each has one whole piece.
__device__ __forceinline__ void att_turn(u32 (&w)[4]) {
    const int l = threadIdx.x;
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
        const u32 x = __shfl_xor_sync(~0u, l & 1 ? w[i] : w[i + 1], 1);
        if (l & 1) w[i] = x;
        else w[i + 1] = x;
    }
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const u32 x = __shfl_xor_sync(~0u, l & 2 ? w[i] : w[i + 2], 2);
        if (l & 2) w[i] = x;
        else w[i + 2] = x;
    }
}

__device__ __forceinline__ float2 att_pair(u32 at) {
    float2 x;
    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(x.x), "=f"(x.y) : "r"(at) : "memory");
    return x;
}
__device__ __forceinline__ int att_whole(u32 at) {
    int x;
    asm volatile("ld.shared.b32 %0, [%1];" : "=r"(x) : "r"(at) : "memory");
    return x;
}

// The block's shared memory from a multiple of ALIGN on.
template <u32 ALIGN> __device__ __forceinline__ u32 att_start(void) {
    extern __shared__ __align__(16) unsigned char shared[];
    return att_shared(shared) + ALIGN - 1 & ~(ALIGN - 1);
}
__device__ __forceinline__ void att_fewer(void) { asm volatile("setmaxnreg.dec.sync.aligned.u32 40;"); }
__device__ __forceinline__ void att_more(void) { asm volatile("setmaxnreg.inc.sync.aligned.u32 232;"); }
