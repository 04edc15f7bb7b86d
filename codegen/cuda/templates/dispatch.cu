// A stable counting sort of choices by expert: rows of an expert are consecutive, in the order of its choices, and
// experts follow each other. A block has an expert and reads all choices, so many at a time that few of them wait for
// memory; what belongs to no expert is shared out among the blocks. Written before this text:
//   DI_COUNT, DI_PLACE   names, in the order of launch
//   DI_N, DI_K           choices; of a token
//   DI_EXPERTS, DI_ROWS  experts, rows of all
//   DI_CAPACITY, DI_RUNS the most rows of an expert in each of the equal runs of choices
//   DI_THREADS           of a block
// Grids: DI_EXPERTS blocks.
#ifndef DI_ONCE
#define DI_ONCE
enum { DI_EACH = 8 }; // choices of a thread at a time: a warp has 32 of them side by side

template <int THREADS> __device__ __forceinline__ int di_sum(int n, int *warps) { // over the block
#pragma unroll
    for (int by = 16; by; by /= 2) n += __shfl_xor_sync(~0u, n, by);
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = n;
    __syncthreads();
    int all = 0;
#pragma unroll
    for (int w = 0; w < THREADS / 32; w++) all += warps[w];
    __syncthreads();
    return all;
}
#endif

extern "C" __global__ void __launch_bounds__(DI_THREADS) DI_COUNT(const int *index, int *counts) {
    enter();
    __shared__ int warps[DI_THREADS / 32];
    int all = 0;
    for (int end = DI_N / DI_RUNS; end <= DI_N; end += DI_N / DI_RUNS) {
        int n = 0;
        for (int first = end - DI_N / DI_RUNS; first < end; first += DI_THREADS * DI_EACH)
#pragma unroll
            for (int v = 0; v < DI_EACH; v++) {
                const int i = first + v * DI_THREADS + (int)threadIdx.x;
                n += i < end && index[i] == (int)blockIdx.x;
            }
        n = di_sum<DI_THREADS>(n, warps);
        all += min(n, DI_CAPACITY);
    }
    if (threadIdx.x == 0) counts[blockIdx.x] = all;
}

extern "C" __global__ void __launch_bounds__(DI_THREADS)
    DI_PLACE(const int *index, const int *counts, int *source, int *slots, int *choice) {
    enter();
    __shared__ int votes[DI_THREADS / 32];
    const int own = blockIdx.x, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    int before = 0, rows = 0; // of the experts before this one, of all
    for (int g = threadIdx.x; g < DI_EXPERTS; g += DI_THREADS) {
        before += g < own ? counts[g] : 0;
        rows += counts[g];
    }
    int start = di_sum<DI_THREADS>(before, votes);
    rows = di_sum<DI_THREADS>(rows, votes);
    const int from = own * DI_THREADS + (int)threadIdx.x;
    for (int i = from; i < DI_N; i += DI_EXPERTS * DI_THREADS)
        if ((unsigned)index[i] >= DI_EXPERTS) slots[i] = -1;
    for (int i = rows + from; i < DI_ROWS; i += DI_EXPERTS * DI_THREADS) source[i] = -1, choice[i] = -1;
    for (int end = DI_N / DI_RUNS; end <= DI_N; end += DI_N / DI_RUNS) {
        int rank = 0; // of the next choice of this expert in the run
        for (int first = end - DI_N / DI_RUNS; first < end; first += DI_THREADS * DI_EACH) {
            const int at = first + warp * 32 * DI_EACH + lane;
            unsigned vote[DI_EACH];
            int n = 0;
#pragma unroll
            for (int v = 0; v < DI_EACH; v++) {
                const int i = at + 32 * v;
                vote[v] = __ballot_sync(~0u, i < end && index[i] == own);
                n += __popc(vote[v]);
            }
            if (lane == 0) votes[warp] = n;
            __syncthreads();
            int next = rank;
#pragma unroll
            for (int w = 0; w < DI_THREADS / 32; w++) {
                next += w < warp ? votes[w] : 0;
                rank += votes[w];
            }
#pragma unroll
            for (int v = 0; v < DI_EACH; v++) {
                const int i = at + 32 * v, mine = next + __popc(vote[v] & ((1u << lane) - 1u));
                if (vote[v] >> lane & 1) {
                    slots[i] = mine < DI_CAPACITY ? start + mine : -1;
                    if (mine < DI_CAPACITY) source[start + mine] = i / DI_K, choice[start + mine] = i;
                }
                next += __popc(vote[v]);
            }
            __syncthreads();
        }
        start += min(rank, DI_CAPACITY);
    }
}
