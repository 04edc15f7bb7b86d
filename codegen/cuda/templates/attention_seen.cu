// Which keys a query of attention sees: ATT_T, ATT_WINDOW and ATT_DOCUMENTS are as for attention.cu. Every text of
// attention's kernels follows this one.

#if ATT_DOCUMENTS
#define ATT_STARTS , const int *starts // the last parameter of kernels and functions
#define ATT_OF_STARTS , starts + (long long)b * ATT_T // of the sequences of batch b
#define ATT_THESE_STARTS , starts                     // as they are
#else
#define ATT_STARTS
#define ATT_OF_STARTS
#define ATT_THESE_STARTS
#endif

// The first key that a query sees; `starts` are those of its sequence. It never decreases from query to query, so that
// blocks and tiles of keys before that of their first query are left out. Queries behind the last are like the last.
__device__ __forceinline__ int att_first(int query ATT_STARTS) {
    int first = ATT_WINDOW && query >= ATT_WINDOW ? query + 1 - ATT_WINDOW : 0;
#if ATT_DOCUMENTS
    int start = starts[query < ATT_T ? query : ATT_T - 1];
    if (start > first) first = start;
#endif
    return first;
}
/*cap:

// Scores are without their factor, ATT_SCALE, which comes later.
#define ATT_BEND (ATT_SCALE / ATT_CAP) // of a score, before the tangent
template <class T> __device__ __forceinline__ T att_capped(T score) {
    return (T)(1 / ATT_BEND) * tanh(score * (T)ATT_BEND);
}
template <class T> __device__ __forceinline__ T att_slope(T capped) { // of att_capped there
    const T t = capped * (T)ATT_BEND;
    return 1 - t * t;
}
// The same by few instructions: tanh(x) = 2 / (1 + e^-2x) - 1, with an absolute error below 2^-20.
__device__ __forceinline__ float att_fast_capped(float score) {
    const float e = fast_exp2(score * (ATT_BEND * -2.8853900817779268f));
    return (1 / ATT_BEND) * (2 * fast_reciprocal(1 + e) - 1);
}
// The slope where w = 2^(score ATT_SCALE log2 e - lse) is known, and not the score; 1 where w = 0.
__device__ __forceinline__ float att_slope_of(float w, float lse) {
    const float t = w > 0 ? (__logf(w) + lse * 0.6931471805599453f) * (1 / ATT_CAP) : 0;
    return 1 - t * t;
}
:cap*/
