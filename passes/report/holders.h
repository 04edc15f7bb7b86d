// Values live at the peak, grouped by the line of the model and the op that made it, over all instances.
#ifndef PASSES_REPORT_HOLDERS_H
#define PASSES_REPORT_HOLDERS_H
#include "passes/report/facts.h"

typedef struct { ReportClass c; const char *action, *place, *path; int64_t bytes; int n; } Holder;
typedef VEC(Holder) Holders;

Holders hd_report_holders(const Facts *r, Arena *a); // the largest first
const char *hd_report_action(Arena *a, const Op *o); // "launch @k0"; NULL: an argument
const char *hd_report_place(Arena *a, const Op *o);  // "  gpt2.hd:14"
#endif
