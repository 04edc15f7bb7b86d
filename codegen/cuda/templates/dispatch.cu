// A stable counting sort of choices by expert: rows of an expert are consecutive, in the order of its choices, and
// experts follow each other. A block has an expert and reads all choices; the last one has those of no expert, and the
// rows that are left. Written before this text:
//   DI_COUNT, DI_PLACE   names, in the order of launch
//   DI_N, DI_K           choices; of a token
//   DI_EXPERTS, DI_ROWS  experts, rows of all
//   DI_CAPACITY, DI_RUNS the most rows of an expert in each of the equal runs of choices
//   DI_THREADS           of a block
// Grids: DI_COUNT DI_EXPERTS blocks, DI_PLACE one more.
extern "C" __global__ void __launch_bounds__(DI_THREADS) DI_COUNT(const int *index, int *counts) {
    enter();
    int all = 0;
    for (int end = DI_N / DI_RUNS; end <= DI_N; end += DI_N / DI_RUNS) {
        int n = 0;
        for (int first = end - DI_N / DI_RUNS; first < end; first += DI_THREADS) {
            const int i = first + threadIdx.x;
            n += __syncthreads_count(i < end && index[i] == (int)blockIdx.x);
        }
        all += n < DI_CAPACITY ? n : DI_CAPACITY;
    }
    if (threadIdx.x == 0) counts[blockIdx.x] = all;
}

extern "C" __global__ void __launch_bounds__(DI_THREADS)
    DI_PLACE(const int *index, const int *counts, int *source, int *slots, int *choice) {
    enter();
    __shared__ int votes[DI_THREADS / 32];
    const int own = blockIdx.x, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    int start = 0;
    for (int g = 0; g < own; g++) start += counts[g];
    if (own == DI_EXPERTS) {
        for (int i = threadIdx.x; i < DI_N; i += DI_THREADS)
            if ((unsigned)index[i] >= DI_EXPERTS) slots[i] = -1;
        for (int i = start + threadIdx.x; i < DI_ROWS; i += DI_THREADS) source[i] = -1, choice[i] = -1;
        return;
    }
    for (int end = DI_N / DI_RUNS; end <= DI_N; end += DI_N / DI_RUNS) {
        int rank = 0; // of the next choice of this expert in the run
        for (int first = end - DI_N / DI_RUNS; first < end; first += DI_THREADS) {
            const int i = first + threadIdx.x;
            const bool mine = i < end && index[i] == own;
            const unsigned vote = __ballot_sync(~0u, mine);
            if (lane == 0) votes[warp] = __popc(vote);
            __syncthreads();
            int before = rank + __popc(vote & ((1u << lane) - 1u));
#pragma unroll
            for (int w = 0; w < DI_THREADS / 32; w++) {
                before += w < warp ? votes[w] : 0;
                rank += votes[w];
            }
            if (mine) slots[i] = before < DI_CAPACITY ? start + before : -1;
            if (mine && before < DI_CAPACITY) source[start + before] = i / DI_K, choice[start + before] = i;
            __syncthreads();
        }
        start += rank < DI_CAPACITY ? rank : DI_CAPACITY;
    }
}
