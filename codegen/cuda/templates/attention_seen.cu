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
