// Mean cross entropy of logits against targets, and its gradient: dlogits = dloss / rows * (softmax(logits) -
// onehot(target)). With weights, a number a row: the sum by them, and dlogits = dloss * weight * (softmax(logits) -
// onehot(target)). A block takes row after row. Its threads copy their own 16-byte vectors of the row into shared
// memory (asynchronously: no registers, no barriers), scan them once for the largest logit and the sum of exponentials,
// combine both over the block, and write the gradient from the same copies, each of which is replaced by that of the
// block's next row as soon as it is used. So logits are read once and may be overwritten. The part that exceeds shared
// memory is read a second time.
//
// Written before this text by the compiler:
//   CE_ROWS_KERNEL, CE_MEAN_KERNEL  names
//   CE_T       type of the logits;  CE_ROWS, CE_COLS  their shape
//   CE_VEC     elements of a vector; CE_THREADS  of a block
//   CE_HELD    vectors of a thread in shared memory: CE_HELD * CE_THREADS * 16 bytes of dynamic shared memory
//   CE_GRAD    1: with the gradient
//   CE_WEIGHTED  1: with weights, of which a row whose target is CE_IGNORE has none. A row without weight needs no
// target.
//   CE_PARTS   what the sum over rows is divided by: CE_ROWS; 1 with weights
// The rows kernel: grid (blocks, 1, 1), blocks <= CE_ROWS. The mean kernel: one block of 1024 threads.
#ifndef CE_ONCE
#define CE_ONCE
struct CrossEntropyStat { float top, sum; }; // the largest logit; sum of exp(logit - top)

// The sum of all lanes, in each of them: the largest logit first, so that a lane scales its sum once.
__device__ __forceinline__ CrossEntropyStat ce_join(CrossEntropyStat s) {
    float top = s.top;
#pragma unroll
    for (int d = 16; d > 0; d /= 2) top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, d));
    return {top, warp_sum(s.sum * fast_exp2((s.top - top) * 1.4426950408889634f))};
}

// The largest of a vector's elements and `top`; a NaN loses.
template <class T, int vec> __device__ __forceinline__ float ce_top(float top, const Raw<T, vec> &x) {
#pragma unroll
    for (int j = 0; j < vec; j++) top = fmaxf(top, x.at(j));
    return top;
}
template <> __device__ __forceinline__ float ce_top<bf16, 8>(float top, const Raw<bf16, 8> &x) { // two at a time
    Raw<bf16, 2> best = {{x.w[0]}};
#pragma unroll
    for (int i = 1; i < 4; i++) asm("max.bf16x2 %0, %0, %1;" : "+r"(best.w[0]) : "r"(x.w[i]));
    return fmaxf(top, fmaxf(best.at(0), best.at(1)));
}

// The weight of row r, whose target becomes 0 where it has none.
__device__ __forceinline__ float ce_weight(int &target, const float *weights, int r, int ignore) {
    const float weight = target == ignore ? 0 : weights[r];
    if (weight == 0) target = 0;
    return weight;
}

template <class T, int cols, int vec, int threads, int held> struct CrossEntropy {
    static const int vectors = cols / vec, items = (vectors + threads - 1) / threads;
    uint4 *copies;

    // Starts the copy of this thread's vector i of a row; nothing when there is no row. Every call counts as one group.
    __device__ __forceinline__ void fetch(const T *row, int i) const {
        const int v = i * threads + (int)threadIdx.x;
        if (row && v < vectors)
            asm volatile(
                "cp.async.cg.shared.global [%0], [%1], 16;" ::"r"((unsigned)__cvta_generic_to_shared(copies + v)),
                "l"(row + (i64)v * vec)
                : "memory");
        asm volatile("cp.async.commit_group;" ::: "memory");
    }
    __device__ __forceinline__ Raw<T, vec> copy(int i) const { // this thread's own copy, once its group has arrived
        Raw<T, vec> x;
        x.load((const T *)(copies + i * threads + (int)threadIdx.x));
        return x;
    }
    static __device__ __forceinline__ void add(CrossEntropyStat &s, const Raw<T, vec> &x) {
        const float top = ce_top(s.top, x);
        const float shift = -1.4426950408889634f * top;
        s.sum *= fast_exp2(fmaf(s.top, 1.4426950408889634f, shift));
        s.top = top;
#pragma unroll
        for (int j = 0; j < vec; j++) s.sum += fast_exp2(fmaf(x.at(j), 1.4426950408889634f, shift));
    }
    template <int i> __device__ __forceinline__ void scan_copies(CrossEntropyStat &s, const T *next, bool grad) const {
        if constexpr (i < held) {
            // all but the newest held-1 groups: vector i is here
            asm volatile("cp.async.wait_group %0;" ::"n"(held - 1) : "memory");
            if (i * threads + (int)threadIdx.x < vectors) add(s, copy(i));
            if (!grad) fetch(next, i);
            else asm volatile("cp.async.commit_group;" ::: "memory"); // keeps the count: one group for each vector
            scan_copies<i + 1>(s, next, grad);
        }
    }
    __device__ __forceinline__ void scan_rest(CrossEntropyStat &s, const T *row) const {
#pragma unroll 4
        for (int i = held; i < items; i++) {
            const int v = i * threads + (int)threadIdx.x;
            if (v >= vectors) break;
            Raw<T, vec> x;
            x.load(row + (i64)v * vec);
            add(s, x);
        }
    }
    static __device__ __forceinline__ void put_grad(T *d, const Raw<T, vec> &x, float scale, float shift) {
        float y[vec];
#pragma unroll
        for (int j = 0; j < vec; j++) y[j] = scale * fast_exp2(fmaf(x.at(j), 1.4426950408889634f, shift));
        put<T, vec>(d, y);
    }
    __device__ __forceinline__ void write(const T *row, const T *next, T *d, float scale, float shift) const {
#pragma unroll
        for (int i = 0; i < held; i++) {
            const int v = i * threads + (int)threadIdx.x;
            if (v < vectors) put_grad(d + (i64)v * vec, copy(i), scale, shift);
            fetch(next, i);
        }
#pragma unroll 4
        for (int i = held; i < items; i++) {
            const int v = i * threads + (int)threadIdx.x;
            if (v >= vectors) break;
            Raw<T, vec> x;
            x.load(row + (i64)v * vec);
            put_grad(d + (i64)v * vec, x, scale, shift);
        }
    }
};
#endif

extern "C" __global__ void __launch_bounds__(CE_THREADS) CE_ROWS_KERNEL(const CE_T *logits, const int *targets,
#if CE_WEIGHTED
                                                                        const float *weights,
#endif
#if CE_GRAD
                                                                        const float *dloss, CE_T *dlogits,
#endif
                                                                        float *losses) {
    enter();
    extern __shared__ uint4 ce_copies[];
    __shared__ CrossEntropyStat warps[2][CE_THREADS / 32]; // of a row and of the next: one barrier for each row
    const CrossEntropy<CE_T, CE_COLS, CE_VEC, CE_THREADS, CE_HELD> ce = {ce_copies};
#if CE_GRAD
    const float step = *dloss / CE_PARTS;
#endif
#pragma unroll
    for (int i = 0; i < CE_HELD; i++) ce.fetch(logits + (i64)(CE_ROWS - 1 - blockIdx.x) * CE_COLS, i);
    int place = 0, target = targets[CE_ROWS - 1 - blockIdx.x];
#if CE_WEIGHTED
    float weight = ce_weight(target, weights, CE_ROWS - 1 - blockIdx.x, CE_IGNORE);
#endif
    for (int r = CE_ROWS - 1 - blockIdx.x; r >= 0; r -= gridDim.x, place ^= 1) { // from the end: see from_end
        const CE_T *row = logits + (i64)r * CE_COLS;
        const CE_T *next = r >= (int)gridDim.x ? row - (i64)gridDim.x * CE_COLS : (const CE_T *)0;
        const bool mine = target / CE_VEC % CE_THREADS == (int)threadIdx.x; // this thread writes the target's element
        const float at_target = mine ? widen(row[target]) : 0;              // before it writes over it
        CrossEntropyStat s = {-3.0e38f, 0.0f};
        ce.template scan_copies<0>(s, next, CE_GRAD);
        ce.scan_rest(s, row);
        s = ce_join(s);
        if (threadIdx.x % 32 == 0) warps[place][threadIdx.x / 32] = s;
        __syncthreads();
        const int lane = threadIdx.x % 32;
        s = ce_join(lane < CE_THREADS / 32 ? warps[place][lane] : CrossEntropyStat{-3.0e38f, 0.0f});
        float loss = s.top - at_target + logf(s.sum);
#if CE_WEIGHTED
        loss = weight != 0 ? weight * loss : 0;
#endif
        if (mine) losses[r] = loss;
        int next_target = next ? targets[r - (int)gridDim.x] : 0; // on its way while this row is written
#if CE_GRAD
        const float shift = -1.4426950408889634f * s.top - log2f(s.sum);
#if CE_WEIGHTED
        const float scale = step * weight;
#else
        const float scale = step;
#endif
        CE_T *d = dlogits + (i64)r * CE_COLS;
        ce.write(row, next, d, scale, shift);
        if (mine)
            put1(d + target, scale * (fast_exp2(fmaf(at_target, 1.4426950408889634f, shift)) - 1.0f));
#endif
#if CE_WEIGHTED
        weight = next ? ce_weight(next_target, weights, r - (int)gridDim.x, CE_IGNORE) : 0;
#endif
        target = next_target;
    }
}

// The mean in a fixed tree: thread t adds rows t, t + 1024, ... in order, then halves are added.
extern "C" __global__ void __launch_bounds__(1024) CE_MEAN_KERNEL(const float *losses, float *loss) {
    enter();
    __shared__ float part[1024];
    float sum = 0;
#pragma unroll 8
    for (int r = threadIdx.x; r < CE_ROWS; r += 1024) sum += losses[r];
    part[threadIdx.x] = sum;
    for (int d = 512; d > 0; d /= 2) {
        __syncthreads();
        if ((int)threadIdx.x < d) part[threadIdx.x] += part[threadIdx.x + d];
    }
    if (threadIdx.x == 0) *loss = part[0] / CE_PARTS;
}
