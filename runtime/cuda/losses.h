// The times that the actions of a profiled step take beyond their floors (HdAction.floor).
#ifndef RUNTIME_CUDA_LOSSES_H
#define RUNTIME_CUDA_LOSSES_H
#include "runtime/heddle.h"
#include <stdio.h>

typedef struct { const HdAction *action; int count; double us; } HdLoss; // equal actions of one source line
typedef struct {
    HdLoss *at;
    int n, capacity;
    bool full; // memory ran out: what came after that is missing
} HdLosses;

void hd_losses_add(HdLosses *l, const HdAction *a, double us);
// A table, what loses most first. step: its microseconds.
void hd_losses_print(HdLosses *l, double step, FILE *out);
void hd_losses_free(HdLosses *l);
#endif
