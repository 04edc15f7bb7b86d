// The summary that --profile prints: the actions of a step by kind of op.
#ifndef RUNTIME_LOG_SUMMARY_H
#define RUNTIME_LOG_SUMMARY_H
#include "runtime/heddle.h"
#include <stdio.h>

enum { HD_SUMMARY_KINDS = 128 }; // more than there are ops that a plan keeps

typedef struct { const char *op; int count; double us, flops, bytes; } HdSummaryKind;
typedef struct {
    HdSummaryKind kind[HD_SUMMARY_KINDS];
    int n, waits;       // waits of the compute stream for others
    double end, waited; // microseconds since the step began; in those waits
} HdSummary;

// An action that took `us` microseconds from `from` on, on stream 0 (compute) or another one.
void hd_summary_add(HdSummary *s, const HdAction *a, int stream, double from, double us);
// Sorts by time. peak: dense operations a second of the device, for the share of it; 0: unknown, and no such column.
void hd_summary_print(HdSummary *s, double peak, FILE *f);
#endif
