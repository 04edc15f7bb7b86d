// Helpers that kernels on the tensor cores of sm_80 and later share: copies of 16 bytes into shared memory, operands of
// mma.sync from there, and the instruction itself, in bf16 or f16 with sums in f32.
#ifndef MMA_ONCE
#define MMA_ONCE
typedef unsigned int u32;

__device__ __forceinline__ void mma_copy(u32 to, const void *from, bool inside) { // zeros where there is nothing
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(inside ? 16 : 0) : "memory");
}
__device__ __forceinline__ void mma_commit(void) { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N> __device__ __forceinline__ void mma_wait(void) {
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}
__device__ __forceinline__ void mma_load(u32 (&r)[4], u32 at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at));
}
__device__ __forceinline__ void mma_load_t(u32 (&r)[4], u32 at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at));
}
template <class T> __device__ __forceinline__ void mma_multiply(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1);
template <> __device__ __forceinline__ void mma_multiply<bf16>(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
                 "{%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
template <> __device__ __forceinline__ void mma_multiply<f16>(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
                 "{%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// 16 rows and 16 inner elements of the first operand; 16 columns of the second. Rows of shared memory are PITCH
// elements apart; DEEP: they lie along the inner axis.
template <bool DEEP, int PITCH> __device__ __forceinline__ void mma_left(u32 (&r)[4], u32 tile, int row, int k) {
    const int lane = threadIdx.x % 32;
    const int inner = k + lane / 16 * 8;
    if constexpr (DEEP) mma_load_t(r, tile + 2 * ((inner + lane % 8) * PITCH + row + lane / 8 % 2 * 8));
    else mma_load(r, tile + 2 * ((row + lane % 16) * PITCH + inner));
}
template <bool DEEP, int PITCH> __device__ __forceinline__ void mma_right(u32 (&r)[4], u32 tile, int col, int k) {
    const int lane = threadIdx.x % 32;
    const int inner = k + lane / 8 % 2 * 8;
    if constexpr (DEEP) mma_load_t(r, tile + 2 * ((inner + lane % 8) * PITCH + col + lane / 16 * 8));
    else mma_load(r, tile + 2 * ((col + lane / 16 * 8 + lane % 8) * PITCH + inner));
}
#endif
