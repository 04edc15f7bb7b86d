// Why the work of one place and direction is in several capture regions, from the finished plan alone: something that
// one needs and another makes, or the order of the plan.
#ifndef PASSES_REPORT_CUTS_H
#define PASSES_REPORT_CUTS_H
#include "passes/analysis/clocks.h"

typedef struct {
    const Func *f;
    Arena *a;
    const Op **ops; // by id
    Deps deps;
    Clocks clocks;
    bool *follows, *needed; // by op id, scratch
} Cuts;

Cuts hd_report_cuts(const Func *f, Arena *a);
// The reason for which the region that begins with `now` is not part of the one that begins with `before`.
const char *hd_report_cut(Cuts *c, const Op *before, const Op *now);
#endif
