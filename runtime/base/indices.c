// See indices.h.
#include "runtime/base/indices.h"
#include <stdio.h>

const HdIndexed *hd_indices_of(const HdProgram *p, const HdFunc *f, int action, int *n) {
    const HdIndexedList all = p->indexed_in ? p->indexed_in[f - p->funcs] : (HdIndexedList){0, NULL};
    int first = 0;
    while (first < all.n && all.at[first].action < action) first++;
    for (*n = 0; first + *n < all.n && all.at[first + *n].action == action;) ++*n;
    return all.at + first;
}

bool hd_indices_good(const HdIndexed *s, const int *numbers, const char *who, char *text, size_t size) {
    for (int64_t i = 0; i < s->n; i++) {
        const int x = numbers[i];
        if ((x >= s->low && x <= s->high) || (s->also && x == s->also)) continue;
        char also[40] = "";
        if (s->also) snprintf(also, sizeof also, ", nor %lld", (long long)s->also);
        snprintf(text, size, "%s--check: element %lld of the indices %s is %d, which is not from %lld to %lld%s", who,
                 (long long)i, s->name, x, (long long)s->low, (long long)s->high, also);
        return false;
    }
    return true;
}
