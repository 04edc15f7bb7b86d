// Attention of one token over the keys and values that are kept of those before it. A block has a head; its eight warps
// share the positions, each with a softmax of its own, and join at the end. Written before this text: AS_KERNEL (name),
// AS_T (type), AS_HEADS, AS_GROUP (heads of one kv head), AS_SIZE, AS_ROW (elements of a position in `keys` and
// `values`), AS_POSITIONS, AS_WINDOW, AS_SCALE. Grid (AS_HEADS, 1, 1), 256 threads.
/*cap:
// And AS_CAP: softcap of the scores.
:cap*/
/*sink:
// And AS_SINK: `sink` has a logit for each head.
:sink*/
#ifndef AS_ONCE
#define AS_ONCE
// exp(a - b); 0 where a is of no position
__device__ __forceinline__ float as_share(float a, float b) { return a == least<float>() ? 0.0f : expf(a - b); }
#endif

extern "C" __global__ void __launch_bounds__(256) AS_KERNEL(const AS_T *q, const int *position, const AS_T *k,
                                                            const AS_T *v, AS_T *keys, AS_T *values, AS_T *o/*sink:,
                                                            const float *sink:sink*/) {
    enter();
    enum { WARPS = 8, EACH = (AS_SIZE + 31) / 32, AHEAD = 4 };
    __shared__ float sums[WARPS][AS_SIZE], tops[WARPS], shares[WARPS];
    const int head = blockIdx.x, warp = threadIdx.x / 32, lane = threadIdx.x % 32, at = *position;
    const int part = head / AS_GROUP * AS_SIZE;
    if (at < 0 || at >= AS_POSITIONS) return; // the runtime asks for no such position
    float x[EACH], y[EACH], top = least<float>(), share = 0.0f;
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        const int c = lane + 32 * i;
        x[i] = c < AS_SIZE ? widen(q[head * AS_SIZE + c]) : 0.0f;
        y[i] = 0.0f;
        if (c < AS_SIZE && warp == 0 && head % AS_GROUP == 0) { // no block reads these rows from there
            keys[(i64)at * AS_ROW + part + c] = k[part + c];
            values[(i64)at * AS_ROW + part + c] = v[part + c];
        }
    }
    const int from = at >= AS_WINDOW ? at + 1 - AS_WINDOW : 0;
    for (int first = from + warp; first <= at; first += WARPS * AHEAD) {
        float dot[AHEAD];
#pragma unroll
        for (int n = 0; n < AHEAD; n++) {
            const int j = first + n * WARPS;
            const AS_T *row = j < at ? keys + (i64)j * AS_ROW + part : k + part;
            dot[n] = 0.0f;
#pragma unroll
            for (int i = 0; i < EACH; i++)
                if (lane + 32 * i < AS_SIZE) dot[n] += x[i] * widen(row[lane + 32 * i]);
        }
#pragma unroll
        for (int by = 16; by; by /= 2)
#pragma unroll
            for (int n = 0; n < AHEAD; n++) dot[n] += __shfl_xor_sync(~0u, dot[n], by);
        float most = top;
#pragma unroll
        for (int n = 0; n < AHEAD; n++) {
            dot[n] = first + n * WARPS <= at ? dot[n] * AS_SCALE : least<float>();
/*cap:
            if (first + n * WARPS <= at) dot[n] = AS_CAP * tanhf(dot[n] / AS_CAP);
:cap*/
            most = larger(dot[n], most);
        }
        const float before = as_share(top, most);
        share *= before;
#pragma unroll
        for (int i = 0; i < EACH; i++) y[i] *= before;
#pragma unroll
        for (int n = 0; n < AHEAD; n++) {
            const int j = first + n * WARPS;
            const AS_T *row = j < at ? values + (i64)j * AS_ROW + part : v + part;
            const float p = as_share(dot[n], most);
            share += p;
#pragma unroll
            for (int i = 0; i < EACH; i++)
                if (lane + 32 * i < AS_SIZE) y[i] += p * widen(row[lane + 32 * i]);
        }
        top = most;
    }
#pragma unroll
    for (int i = 0; i < EACH; i++)
        if (lane + 32 * i < AS_SIZE) sums[warp][lane + 32 * i] = y[i];
    if (lane == 0) tops[warp] = top, shares[warp] = share;
    __syncthreads();
    float most = least<float>(), all = 0.0f;
/*sink:
    most = sink[head];
:sink*/
    for (int w = 0; w < WARPS; w++) most = larger(tops[w], most);
/*sink:
    all = as_share(sink[head], most);
:sink*/
    for (int w = 0; w < WARPS; w++) all += as_share(tops[w], most) * shares[w];
    for (int c = threadIdx.x; c < AS_SIZE; c += 256) {
        float sum = 0.0f;
        for (int w = 0; w < WARPS; w++) sum += as_share(tops[w], most) * sums[w][c];
        put1(o + head * AS_SIZE + c, sum / all);
    }
}
