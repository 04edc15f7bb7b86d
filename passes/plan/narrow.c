// Bisection between two plans that neither bytes nor costs need to fall along. See narrow.h.
//
// A plan between two counts only where it lies between them in bytes and in cost; all others are forgotten. Whether it
// counts does not depend on the limit. The limit only says between which neighbours the search goes on. So
//
// - what is found under one limit is found under every limit down to its own bytes: at each step these limits lie
//   between the same two neighbours, since nothing that is found later has fewer bytes than the lower one;
// - less memory never costs less: what is found between two neighbours costs no less than all above them.
#include "passes/plan/narrow.h"

enum { MOST_STEPS = 40, ENOUGH = 2 }; // ENOUGH: plans at a step

static bool lies_between(const Plan *p, const Plan *more, const Plan *less) {
    return p->bytes >= less->bytes && p->bytes < more->bytes && p->cost >= more->cost && p->cost < less->cost;
}

static bool is_cheaper(const Plan *p, const Plan *q) {
    return p->cost < q->cost || (p->cost <= q->cost && p->bytes < q->bytes);
}

static bool is_smaller(const Plan *p, const Plan *q) {
    return p->bytes < q->bytes || (p->bytes == q->bytes && p->cost < q->cost);
}

static int find_between(const Narrow *n, const Plan *more, const Plan *less, Plan *found) {
    int count = 0;
    Plan got;
    for (int which = 0; count < ENOUGH && n->between(n->data, more, less, which, &got); which++)
        if (lies_between(&got, more, less)) found[count++] = got;
    return count;
}

Plan hd_narrow(const Narrow *n, Plan more, Plan less) {
    for (int step = 0; step < MOST_STEPS; step++) {
        Plan found[ENOUGH];
        const int count = find_between(n, &more, &less, found);
        if (!count) break;
        for (int i = 0; i < count; i++)
            if (found[i].bytes <= n->limit && is_cheaper(&found[i], &less)) less = found[i];
        for (int i = 0; i < count; i++)
            if (found[i].bytes > n->limit && found[i].cost < less.cost && is_smaller(&found[i], &more)) more = found[i];
    }
    return less;
}
