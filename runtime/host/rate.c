// The learning rate of a step, for the update and for the log.
#include "runtime/heddle.h"
#include <math.h>

// The rate of step t, counted from 1: linear up to the peak, then constant, or linear or half a cosine to the floor.
double hd_learning_rate(const HdOptimizer *o, double t) {
    const double warmup = (double)o->lr_warmup, total = (double)o->lr_total;
    if (t <= warmup) return o->lr_peak * t / warmup;
    const double p = fmin(1.0, (t - warmup) / fmax(1.0, total - warmup));
    switch (o->lr_kind) {
    case HD_LR_LINEAR: return o->lr_floor + (o->lr_peak - o->lr_floor) * (1.0 - p);
    case HD_LR_COSINE: return o->lr_floor + (o->lr_peak - o->lr_floor) * (1.0 + cos(3.14159265358979323846 * p)) / 2.0;
    default: return o->lr_peak;
    }
}
