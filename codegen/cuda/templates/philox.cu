// Random numbers: Philox 4x32-10; for dropout with the counter and the key of ir/dropout.h. Only programs that drop
// something, or round weights at random (update.cu), have this text. Elements next to each other share four words:
// where a thread has several, which an unrolled loop shows the compiler, they are drawn once.
struct Words {
    unsigned at[4];
};
__device__ __forceinline__ Words philox(unsigned k0, unsigned k1, unsigned c0, unsigned c1, unsigned c2, unsigned c3) {
#pragma unroll
    for (int round = 0; round < 10; round++) {
        const unsigned a = __umulhi(0xD2511F53u, c0), b = __umulhi(0xCD9E8D57u, c2);
        const unsigned low0 = 0xD2511F53u * c0, low2 = 0xCD9E8D57u * c2;
        c0 = b ^ c1 ^ k0;
        c1 = low2;
        c2 = a ^ c3 ^ k1;
        c3 = low0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return {{c0, c1, c2, c3}};
}

// Words that are the same for all elements of a sequence. `key`: a row of the table that the op random makes.
struct Draw {
    unsigned k0, k1, site, low, high;
};
__device__ __forceinline__ Draw draw_from(const int *key, unsigned long long sequence) {
    const unsigned long long first = (unsigned long long)(unsigned)key[3] << 32 | (unsigned)key[2];
    const unsigned long long number = first + sequence;
    return {(unsigned)key[0], (unsigned)key[1], (unsigned)key[4], (unsigned)number, (unsigned)(number >> 32)};
}

template <typename I> __device__ __forceinline__ bool random_keeps(const Draw &d, I element, unsigned threshold) {
    const Words w = philox(d.k0, d.k1, (unsigned)(element / 4), d.site, d.low, d.high);
    const unsigned i = (unsigned)element % 4;
    return (i < 2 ? i < 1 ? w.at[0] : w.at[1] : i < 3 ? w.at[2] : w.at[3]) >= threshold;
}

// Bit i: element 4 block + i is kept.
__device__ __forceinline__ unsigned random_keeps4(const Draw &d, unsigned block, unsigned threshold) {
    const Words w = philox(d.k0, d.k1, block, d.site, d.low, d.high);
    return (w.at[0] >= threshold) | (w.at[1] >= threshold) << 1 | (w.at[2] >= threshold) << 2 |
           (w.at[3] >= threshold) << 3;
}

template <typename I>
__device__ __forceinline__ float h_dropout(float x, const int *key, I sequence, I element, unsigned threshold,
                                           float by) {
    return random_keeps(draw_from(key, sequence), element, threshold) ? times(x, by) : 0.0f;
}
template <typename I>
__device__ __forceinline__ double h_dropout_d(double x, const int *key, I sequence, I element, unsigned threshold,
                                              double by) {
    return random_keeps(draw_from(key, sequence), element, threshold) ? times(x, by) : 0.0;
}

// --- attention: a sequence's probabilities are numbered by head, query and key; EACH batches are a sequence.
template <int EACH, int H, int T>
__device__ __forceinline__ unsigned long long probability(int b, int h, int query, int key) {
    return ((unsigned long long)(b % EACH * H + h) * T + query) * T + key;
}

// N tiles of 16 queries by 8 keys, side by side, as mma leaves them in a warp: bit 4n + e says whether accumulator e
// of tile n is kept. Where four neighbours are in one row, lanes draw for four keys at once and exchange bits.
template <int N, int EACH, int H, int T>
__device__ __forceinline__ unsigned tiles_kept(const Draw &d, unsigned threshold, int b, int h, int query, int key) {
    const int l = threadIdx.x & 31;
    unsigned own = 0, kept = 0;
    if (T % 4 == 0) { // even lanes draw for the first eight queries, odd ones for the others
        const unsigned at =
            (unsigned)(probability<EACH, H, T>(b, h, query + (l >> 2) + (l & 1) * 8, key + (l & 2) * 2) / 4);
#pragma unroll
        for (int n = 0; n < N; n++) own |= random_keeps4(d, at + n * 2, threshold) << 4 * n;
        const unsigned other = __shfl_xor_sync(~0u, own, 1), half = (l & 1) * 2;
        return ((l & 1 ? other : own) >> half & 0x33333333u) | ((l & 1 ? own : other) >> half & 0x33333333u) << 2;
    }
#pragma unroll
    for (int i = 0; i < 4 * N; i++) {
        const int row = query + (l >> 2) + (i >> 1 & 1) * 8, column = key + i / 4 * 8 + (l & 3) * 2 + (i & 1);
        kept |= (unsigned)random_keeps(d, probability<EACH, H, T>(b, h, row, column), threshold) << i;
    }
    return kept;
}

// The same of tiles of 16 keys by 8 queries.
template <int N, int EACH, int H, int T>
__device__ __forceinline__ unsigned turned_kept(const Draw &d, unsigned threshold, int b, int h, int query, int key) {
    const int l = threadIdx.x & 31, turn = l >> 2 & 3;
    unsigned own = 0, kept = 0;
    if (T % 4 == 0) { // four lanes have the same queries and keys in a row: each draws for one accumulator of all four
        const int first = key + (l >> 4) * 4 + (turn >> 1) * 8;
#pragma unroll
        for (int n = 0; n < N; n++) {
            const int row = query + n * 8 + (l & 3) * 2 + (turn & 1);
            own |= random_keeps4(d, (unsigned)(probability<EACH, H, T>(b, h, row, first) / 4), threshold) << 4 * n;
        }
#pragma unroll
        for (int e = 0; e < 4; e++)
            kept |= (__shfl_sync(~0u, own, (l & ~12) | e << 2) >> turn & 0x11111111u) << e;
        return kept;
    }
#pragma unroll
    for (int i = 0; i < 4 * N; i++) {
        const int row = query + i / 4 * 8 + (l & 3) * 2 + (i & 1), column = key + (l >> 2) + (i >> 1 & 1) * 8;
        kept |= (unsigned)random_keeps(d, probability<EACH, H, T>(b, h, row, column), threshold) << i;
    }
    return kept;
}
