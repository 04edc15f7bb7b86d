// Binary search.
#ifndef IR_BASE_SEARCH_H
#define IR_BASE_SEARCH_H

// Sets the int `i` to the first of from, ..., n - 1 for which `holds`, an expression in `i`, is true. If it is
// true for none, `i` becomes n, or `from` where that is larger. Once true, it must be true for all that follow.
#define HD_FIRST(i, from, n, holds)                                                                                    \
    do {                                                                                                               \
        int hd_lo = (from), hd_hi = (n);                                                                               \
        while (hd_lo < hd_hi) {                                                                                        \
            (i) = hd_lo + (hd_hi - hd_lo) / 2;                                                                         \
            if (holds) hd_hi = (i);                                                                                    \
            else hd_lo = (i) + 1;                                                                                      \
        }                                                                                                              \
        (i) = hd_lo;                                                                                                   \
    } while (0)
#endif
