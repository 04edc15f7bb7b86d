// Timelines as pages of HTML that need nothing else (runtime/log/timeline.html).
#ifndef PASSES_REPORT_TIMELINE_H
#define PASSES_REPORT_TIMELINE_H
#include "passes/report/facts.h"

// The contents of a page about a plan, as JSON. A program adds the times that it measures.
void hd_timeline_plan(const Module *m, const Facts *r, Arena *a, Out *o);
// A whole page with the predicted times. There must be a device table.
void hd_timeline_predicted(const Module *m, const Facts *r, Arena *a, Out *o);
#endif
