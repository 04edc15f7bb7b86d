// Attention of one token over the keys and values that are kept of those before it. A cluster of AS_BLOCKS blocks has
// a head. A row of keys is read by AS_LANES threads, and a warp reads several rows at once. The threads of a row have a
// softmax of their own; those of a warp are joined first, then those of a block, then those of the cluster. With
// AS_EARLY instead of AS_LATE the first rows are under way before the kernels before this one have ended, none of which
// writes what is kept of other tokens. Written before this text: AS_KERNEL (name), AS_T (type), AS_HEADS, AS_GROUP
// (heads of one kv head), AS_SIZE, AS_ROW (elements of a position in `keys` and `values`), AS_POSITIONS, AS_WINDOW,
// AS_SCALE, AS_VEC (elements of a load), AS_LANES, AS_BLOCKS. Grid (AS_HEADS AS_BLOCKS, 1, 1), 256 threads.
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

// A softmax so far: its largest score, the sum of exp(score - top), and that of the rows so weighted.
template <int N> struct AsSum {
    float top, share, y[N];
};
template <int N> __device__ __forceinline__ void as_join(AsSum<N> &s, float top, float share, const float (&y)[N]) {
    const float most = larger(top, s.top), mine = as_share(s.top, most), other = as_share(top, most);
    s.top = most;
    s.share = plus(times(s.share, mine), times(share, other));
#pragma unroll
    for (int i = 0; i < N; i++) s.y[i] = plus(times(s.y[i], mine), times(y[i], other));
}
#endif
#if AS_BLOCKS > 1 && !defined AS_CLUSTER
#define AS_CLUSTER
// The blocks of the cluster meet twice: all have started, so that the first one's memory is there; all have put their
// sums into it. The others end then.
__device__ __forceinline__ void as_arrive() {
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}
__device__ __forceinline__ void as_wait() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }
__device__ __forceinline__ void as_give(const float *here, float x) { // to that place of the first block
    const unsigned at = (unsigned)__cvta_generic_to_shared(here);
    unsigned there;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(at), "r"(0u));
    asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(there), "f"(x) : "memory");
}
#endif

extern "C" __global__ void __launch_bounds__(256) AS_KERNEL(const AS_T *q, const int *position, const AS_T *k,
                                                            const AS_T *v, AS_T *keys, AS_T *values, AS_T *o/*sink:,
                                                            const float *sink:sink*/) {
/*late:
    enter();
:late*/
    enum { WARPS = 8, ROWS = 32 / AS_LANES, CHUNK = AS_LANES * AS_VEC, EACH = (AS_SIZE + CHUNK - 1) / CHUNK,
           N = EACH * AS_VEC, AHEAD = EACH < 4 ? 4 / EACH : 1, STEP = AS_BLOCKS * WARPS * ROWS };
    __shared__ float sums[WARPS][AS_SIZE], tops[WARPS], shares[WARPS];
#if AS_BLOCKS > 1
    __shared__ float parts[AS_BLOCKS][AS_SIZE + 2]; // of the first block: what each one has
    as_arrive();
#endif
    const int head = blockIdx.x / AS_BLOCKS, block = blockIdx.x % AS_BLOCKS, warp = threadIdx.x / 32,
              lane = threadIdx.x % 32, row = lane / AS_LANES, column = lane % AS_LANES * AS_VEC,
              part = head / AS_GROUP * AS_SIZE + column, given = *position;
    const bool known = given >= 0 && given < AS_POSITIONS; // the runtime asks for no other position
    const int at = known ? given : 0, from = at >= AS_WINDOW ? at + 1 - AS_WINDOW : 0;
    Raw<AS_T, AS_VEC> key[AHEAD][EACH], value[AHEAD][EACH];
    const auto load = [&](int first) {
#pragma unroll
        for (int n = 0; n < AHEAD; n++)
#pragma unroll
            for (int i = 0; i < EACH; i++) {
                const int j = first + n * STEP;
                if (j < at && (AS_SIZE % CHUNK == 0 || column + i * CHUNK < AS_SIZE)) {
                    key[n][i].load(keys + (i64)j * AS_ROW + part + i * CHUNK);
                    value[n][i].load(values + (i64)j * AS_ROW + part + i * CHUNK);
                } else {
                    key[n][i].zero();
                    value[n][i].zero();
                }
            }
    };
    const auto score = [](float x) {
        x = times(x, AS_SCALE);
/*cap:
        x = AS_CAP * tanhf(x / AS_CAP);
:cap*/
        return x;
    };
    const int begin = from + (block * WARPS + warp) * ROWS; // of the warp
/*early:
    let_next_start();
:early*/
    load(begin + row);
/*early:
    enter();
:early*/
    if (!known) return;
    float x[EACH][AS_VEC];
    AsSum<N> s = {least<float>(), 0.0f, {}};
    if (block == 0 && warp == 0) { // the token itself
        float dot = 0.0f;
        Raw<AS_T, AS_VEC> own[EACH];
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            Raw<AS_T, AS_VEC> a;
            a.zero();
            own[i].zero();
            if (AS_SIZE % CHUNK == 0 || column + i * CHUNK < AS_SIZE) {
                a.load(k + part + i * CHUNK);
                own[i].load(v + part + i * CHUNK);
            }
            if (row == 0 && head % AS_GROUP == 0 && (AS_SIZE % CHUNK == 0 || column + i * CHUNK < AS_SIZE)) {
                a.store(keys + (i64)at * AS_ROW + part + i * CHUNK); // no block reads these rows from there
                own[i].store(values + (i64)at * AS_ROW + part + i * CHUNK);
            }
            Raw<AS_T, AS_VEC> b;
            b.zero();
            if (AS_SIZE % CHUNK == 0 || column + i * CHUNK < AS_SIZE)
                b.load(q + head * AS_SIZE + column + i * CHUNK);
#pragma unroll
            for (int j = 0; j < AS_VEC; j++) {
                x[i][j] = b.at(j);
                dot = fused(x[i][j], a.at(j), dot);
            }
        }
#pragma unroll
        for (int by = 1; by < AS_LANES; by *= 2) dot = plus(dot, __shfl_xor_sync(~0u, dot, by));
        if (row == 0) {
            s.top = score(dot);
            s.share = 1.0f;
#pragma unroll
            for (int i = 0; i < N; i++) s.y[i] = own[i / AS_VEC].at(i % AS_VEC);
        }
    } else {
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            Raw<AS_T, AS_VEC> b;
            b.zero();
            if (AS_SIZE % CHUNK == 0 || column + i * CHUNK < AS_SIZE)
                b.load(q + head * AS_SIZE + column + i * CHUNK);
#pragma unroll
            for (int j = 0; j < AS_VEC; j++) x[i][j] = b.at(j);
        }
    }
    for (int first = begin; first < at; first += STEP * AHEAD) {
        float dot[AHEAD];
        if (first > begin) load(first + row);
#pragma unroll
        for (int n = 0; n < AHEAD; n++) {
            dot[n] = 0.0f;
#pragma unroll
            for (int i = 0; i < EACH; i++)
#pragma unroll
                for (int j = 0; j < AS_VEC; j++) dot[n] = fused(x[i][j], key[n][i].at(j), dot[n]);
        }
#pragma unroll
        for (int by = 1; by < AS_LANES; by *= 2)
#pragma unroll
            for (int n = 0; n < AHEAD; n++) dot[n] = plus(dot[n], __shfl_xor_sync(~0u, dot[n], by));
        float most = s.top;
#pragma unroll
        for (int n = 0; n < AHEAD; n++) {
            dot[n] = first + row + n * STEP < at ? score(dot[n]) : least<float>();
            most = larger(dot[n], most);
        }
        const float before = as_share(s.top, most);
        s.top = most;
        s.share = times(s.share, before);
#pragma unroll
        for (int i = 0; i < N; i++) s.y[i] = times(s.y[i], before);
#pragma unroll
        for (int n = 0; n < AHEAD; n++) {
            const float p = as_share(dot[n], most);
            s.share = plus(s.share, p);
#pragma unroll
            for (int i = 0; i < N; i++) s.y[i] = fused(p, value[n][i / AS_VEC].at(i % AS_VEC), s.y[i]);
        }
    }
    // the rows of the warp
#pragma unroll
    for (int by = AS_LANES; by < 32; by *= 2) {
        float y[N];
        const float top = __shfl_xor_sync(~0u, s.top, by), share = __shfl_xor_sync(~0u, s.share, by);
#pragma unroll
        for (int i = 0; i < N; i++) y[i] = __shfl_xor_sync(~0u, s.y[i], by);
        as_join(s, top, share, y);
    }
#pragma unroll
    for (int i = 0; i < N; i++) {
        const int c = column + i / AS_VEC * CHUNK + i % AS_VEC;
        if (row == 0 && (AS_SIZE % CHUNK == 0 || c < AS_SIZE)) sums[warp][c] = s.y[i];
    }
    if (lane == 0) tops[warp] = s.top, shares[warp] = s.share;
    __syncthreads();
#if AS_BLOCKS > 1
    as_wait();
#endif
    // the warps of the block
    float most = least<float>(), whole = 0.0f;
    const int c = threadIdx.x;
#if AS_BLOCKS == 1
/*sink:
    most = sink[head];
:sink*/
#endif
#pragma unroll
    for (int w = 0; w < WARPS; w++) most = larger(tops[w], most);
#if AS_BLOCKS == 1
/*sink:
    whole = as_share(sink[head], most);
:sink*/
#endif
#pragma unroll
    for (int w = 0; w < WARPS; w++) whole = fused(as_share(tops[w], most), shares[w], whole);
    for (int i = c; i < AS_SIZE; i += 256) {
        float sum = 0.0f;
#pragma unroll
        for (int w = 0; w < WARPS; w++) sum = fused(as_share(tops[w], most), sums[w][i], sum);
#if AS_BLOCKS == 1
        put1(o + head * AS_SIZE + i, sum / whole);
#else
        as_give(&parts[block][i], sum);
#endif
    }
#if AS_BLOCKS > 1
    if (c == 0) as_give(&parts[block][AS_SIZE], most), as_give(&parts[block][AS_SIZE + 1], whole);
    as_arrive();
    if (block == 0) { // the blocks of the cluster
        float top[AS_BLOCKS];
        as_wait();
        most = least<float>(), whole = 0.0f;
/*sink:
        most = sink[head];
:sink*/
#pragma unroll
        for (int b = 0; b < AS_BLOCKS; b++) top[b] = parts[b][AS_SIZE];
#pragma unroll
        for (int b = 0; b < AS_BLOCKS; b++) most = larger(top[b], most);
/*sink:
        whole = as_share(sink[head], most);
:sink*/
#pragma unroll
        for (int b = 0; b < AS_BLOCKS; b++) {
            top[b] = as_share(top[b], most);
            whole = fused(top[b], parts[b][AS_SIZE + 1], whole);
        }
        for (int i = c; i < AS_SIZE; i += 256) {
            float sum = 0.0f;
#pragma unroll
            for (int b = 0; b < AS_BLOCKS; b++) sum = fused(top[b], parts[b][i], sum);
            put1(o + head * AS_SIZE + i, sum / whole);
        }
    }
#endif
}
