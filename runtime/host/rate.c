// The learning rate of a step, for the update and for the log. The meaning of the words stands in ir/eval/update.c.
#include "runtime/heddle.h"
#include <math.h>

static const double PI = 3.14159265358979323846;

static double of_points(const HdRate *r, double t) {
    const int last = r->points - 1;
    int i = 0;
    if (t < r->steps[0]) return r->rates[0];
    while (i < last && t >= r->steps[i + 1]) i++;
    if (i == last) return r->rates[last];
    return r->rates[i] + (r->rates[i + 1] - r->rates[i]) * ((t - r->steps[i]) / (r->steps[i + 1] - r->steps[i]));
}

static double fallen(int shape, double q) {
    if (shape == HD_FALL_COSINE) return (1.0 + cos(PI * q)) / 2.0;
    return 1.0 - (shape == HD_FALL_SQRT ? sqrt(q) : q);
}

double hd_learning_rate(const HdRate *r, double t) {
    const double warmup = (double)r->warmup, total = (double)r->total, decay = (double)r->decay;
    if (r->kind == HD_LR_POINTS) return of_points(r, t);
    if (t <= warmup) return r->peak * t / warmup;
    const double p = fmin(1.0, (t - warmup) / fmax(1.0, total - warmup));
    switch (r->kind) {
    case HD_LR_LINEAR: return r->floor + (r->peak - r->floor) * (1.0 - p);
    case HD_LR_COSINE: return r->floor + (r->peak - r->floor) * (1.0 + cos(PI * p)) / 2.0;
    case HD_LR_WSD:
        return r->floor + (r->peak - r->floor) *
                              fallen(r->shape, fmin(1.0, fmax(0.0, (t - (total - decay)) / fmax(1.0, decay))));
    case HD_LR_INVERSE_SQRT: return fmax(r->floor, r->peak * sqrt(fmax(1.0, warmup) / t));
    default: return r->peak;
    }
}
