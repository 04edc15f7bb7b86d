// Between two plans, one that is faster and does not fit into a limit and one that fits: a plan that fits and is faster
// than the second.
#ifndef PASSES_PLAN_NARROW_H
#define PASSES_PLAN_NARROW_H
#include <stdbool.h>
#include <stdint.h>

typedef struct {
    int64_t bytes; // < 0: there is no such plan
    double cost;   // seconds, or whatever else is to be little
    const void *what;
} Plan;
typedef struct {
    int64_t limit;
    void *data;
    // Makes plan number `which` between two; false: there are no more. The plan depends on these alone.
    bool (*between)(void *data, const Plan *more, const Plan *less, int which, Plan *got);
} Narrow;

// `more` does not fit and costs less than `less`, which fits.
Plan hd_narrow(const Narrow *n, Plan more, Plan less);
#endif
