// Rows of tokens for the ranks that own their experts: rows of a rank are consecutive, in the order of tokens. A block
// has a rank and reads the choices of all tokens. Written before this text:
//   RO_KERNEL       name
//   RO_N, RO_K      tokens, choices of each
//   RO_OWNED        experts of a rank
//   RO_RANKS        ranks; each has room for RO_N rows
//   RO_CAPACITY     the most rows of a rank; where it is less than RO_N, `wanted` is HdProgram.bound_wanted: the first
//                   launch that has more rows notes the bound that has room for them
//   RO_THREADS      of a block
// Grid (RO_RANKS, 1, 1).
extern "C" __global__ void __launch_bounds__(RO_THREADS)
    RO_KERNEL(const int *index, unsigned long long own, int *source, int *slots, int *sent, int *wanted) {
    enter();
    __shared__ int votes[RO_THREADS / 32];
    const int rank = blockIdx.x, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int column = (rank + RO_RANKS - 1 - (int)own) % RO_RANKS, start = rank * RO_N;
    int rows = 0; // before the next token
    for (int first = 0; first < RO_N; first += RO_THREADS) {
        const int i = first + threadIdx.x;
        bool goes = false;
        for (int j = 0; j < RO_K && i < RO_N; j++) goes |= (unsigned)(index[i * RO_K + j] - rank * RO_OWNED) < RO_OWNED;
        const unsigned vote = __ballot_sync(~0u, goes);
        if (lane == 0) votes[warp] = __popc(vote);
        __syncthreads();
        int before = rows + __popc(vote & ((1u << lane) - 1u));
#pragma unroll
        for (int w = 0; w < RO_THREADS / 32; w++) {
            before += w < warp ? votes[w] : 0;
            rows += votes[w];
        }
        if (i < RO_N) slots[i * RO_RANKS + column] = !goes ? -1 : before < RO_CAPACITY ? start + before : -2;
        if (goes && before < RO_CAPACITY) {
            source[start + before] = i;
            for (int j = 0; j < RO_K; j++) sent[(start + before) * RO_K + j] = index[i * RO_K + j];
        }
        __syncthreads();
    }
    for (int i = min(rows, RO_CAPACITY) + threadIdx.x; i < RO_N; i += RO_THREADS) {
        source[start + i] = -1;
        for (int j = 0; j < RO_K; j++) sent[(start + i) * RO_K + j] = -1;
    }
    if (RO_CAPACITY >= RO_N || threadIdx.x) return;
    const i64 most = (i64)min(RO_K, RO_RANKS) * RO_N;
    if (rows > RO_CAPACITY && !atomicMax(wanted + 1, 0))
        atomicMax(wanted, (int)((i64)(rows - 1) * RO_RANKS * 100 / most + 1));
    __threadfence();
    // the last block: what follows may be choices by scores of NaN
    if (atomicAdd(wanted + 2, 1) % RO_RANKS == RO_RANKS - 1 && atomicMax(wanted, 0)) atomicMax(wanted + 1, 1);
}
